//! RPC program between the two ends of `stag accept`: one procedure, whose argument and result are
//! JSON in `opaque<>`. The server also has the echo program.
//!
//! Both are DDP-eligible: long ones travel by Read and Write chunks.

use super::{
    facts::EndFacts,
    perftest::{ToolRun, ToolStart},
    place::DevicePlace,
    report::AcceptStep,
    suite::SuiteRun,
};
use serde::{Deserialize, Serialize};
use stag_echo::{
    Driver,
    forms::{FORMS, FormCaller},
    reply,
};
use stag_engine::{Answer, AnswerItem, App, Call, CallId, Cause, Cx, Outcome, PeerId};
use stag_fabrics::FabricAddress;
use stag_pools::Buf;
use stag_protocol::rpc::{Accepted, NullHeader, ReplyHeader};
use stag_verbs::Limits;
use std::fs;

/// The program's number, from the range for local administration (RFC 5531 §8.3).
pub const PROGRAM: u32 = 0x2053_5456;
/// Its version.
pub const VERSION: u32 = 1;
/// Does nothing.
pub const NULL: u32 = 0;
/// Takes a [`Question`] and returns a [`Reply`].
pub const ASK: u32 = 1;
/// Octets of the longest argument or result.
pub const TEXT_MAX: usize = 1 << 20;

/// A question of the end that tries everything.
#[derive(Debug, Serialize, Deserialize)]
pub enum Question {
    /// Exchange facts: about this end, for facts about the other one.
    Meet(Box<EndFacts>),
    /// Run the conformance suite there, or report its progress.
    Suite,
    /// Call me in the form with this index, over this connection.
    Reverse(usize),
    /// Resources that the other process holds.
    Counts,
    /// Start a program of perftest that waits.
    Perftest(ToolRun),
}

/// The answer to a [`Question`].
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Facts about the other end.
    Met(Box<EndFacts>),
    /// Cases that are over.
    Suite {
        /// The cases.
        steps: Vec<AcceptStep>,
        /// Those are all.
        is_done: bool,
    },
    /// The end of a call in the reverse direction.
    Reversed(ReverseEnd),
    /// Resources of the process.
    Counts(HeldCounts),
    /// The program of perftest.
    Perftest(ToolStart),
    /// The question cannot be answered, for this reason.
    Cannot(String),
}

/// The end of a call in the reverse direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReverseEnd {
    /// The payload was compared and is the same.
    Same,
    /// The call cannot be made on this connection: it does not fit inline.
    TooLong,
    /// Anything else.
    Failed(String),
}

/// Resources that a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldCounts {
    /// Descriptors that are open.
    pub descriptors: usize,
    /// Connections of the server.
    pub connections: usize,
}

impl HeldCounts {
    /// Those of this process, without connections.
    pub fn here() -> Self {
        // The directory itself is open while it is read.
        let open = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count());
        Self { descriptors: open.saturating_sub(1), connections: 0 }
    }
}

/// A question that waits for the end of a reverse call.
#[derive(Debug)]
struct OpenReverse {
    call: CallId,
    peer: PeerId,
    header: ReplyHeader<'static>,
}

/// The waiting end: the echo program, and the answers to questions.
#[derive(Debug)]
pub struct AcceptHost {
    driver: Driver,
    forms: FormCaller,
    at: FabricAddress,
    facts: EndFacts,
    suite: Option<SuiteRun>,
    reverse: Option<OpenReverse>,
    peers: usize,
}

impl AcceptHost {
    /// The end that listens at `at`, on a host with these facts.
    pub fn new(at: FabricAddress, facts: EndFacts) -> Self {
        Self {
            driver: Driver::default(),
            forms: FormCaller::default(),
            at,
            facts,
            suite: None,
            reverse: None,
            peers: 0,
        }
    }

    /// Adds the facts about the device.
    pub fn open(&mut self, limits: &Limits, device: Option<&str>) {
        if let Ok(place) = DevicePlace::of_own(&self.at) {
            let facts = std::mem::take(&mut self.facts);
            self.facts = facts.with_device(&place, limits, device);
        }
    }

    fn question(&mut self, cx: &mut Cx<'_>, call: &Call<'_>) {
        let asked = call.arguments.clone().item(TEXT_MAX).ok().map(serde_json::from_slice);
        let Some(Ok(question)) = asked else { return cx.refuse(call, Accepted::GarbageArgs) };
        let header = call.header.reply(Accepted::Success);
        let answer = match question {
            Question::Meet(_) => Reply::Met(Box::new(self.facts.clone())),
            Question::Suite => self.suite(),
            Question::Perftest(run) => Reply::Perftest(run.start_waiting()),
            Question::Counts => {
                Reply::Counts(HeldCounts { connections: self.peers, ..HeldCounts::here() })
            }
            Question::Reverse(index) => match FORMS.get(index) {
                Some(form) if self.reverse.is_none() => {
                    self.reverse = Some(OpenReverse { call: call.id, peer: call.peer, header });
                    cx.ready(call.peer);
                    return self.forms.call(cx, call.peer, *form);
                }
                Some(_) => {
                    Reply::Cannot("another call in the reverse direction is open".to_owned())
                }
                None => Reply::Cannot(format!("there is no form {index}")),
            },
        };
        say(cx, call.peer, call.id, header, &answer);
    }

    /// Starts the suite, or reports its progress.
    fn suite(&mut self) -> Reply {
        let run = self.suite.get_or_insert_with(|| match DevicePlace::of_own(&self.at) {
            Ok(place) => SuiteRun::start(place),
            Err(why) => SuiteRun::failed(why),
        });
        let reply = run.with(|progress| Reply::Suite {
            steps: progress.steps.clone(),
            is_done: progress.is_done,
        });
        // The next caller has a run of its own.
        if matches!(reply, Reply::Suite { is_done: true, .. }) {
            self.suite = None;
        }
        reply
    }

    /// Reports the result of a reverse call, once it has ended.
    fn end_reverse(&mut self, cx: &mut Cx<'_>) {
        let Some(end) = self.forms.take() else { return };
        let Some(OpenReverse { call, peer, header }) = self.reverse.take() else { return };
        say(cx, peer, call, header, &Reply::Reversed(super::forms::reverse_end(end)));
    }
}

/// Answers a call. Without memory for that the connection ends, so that the call does not stay
/// open.
fn say(cx: &mut Cx<'_>, peer: PeerId, call: CallId, header: ReplyHeader<'_>, said: &Reply) {
    let made = || -> Option<Answer> {
        let text = serde_json::to_vec(said).ok()?;
        let len = u32::try_from(text.len()).ok()?;
        let message = reply(cx, header, |writer| writer.u32(len))?;
        let mut item: Buf = cx.take(text.len())?;
        item.append(&text).ok()?;
        let item = Some(AnswerItem::new(message.len(), item.freeze()));
        Some(Answer { message, item })
    };
    match made() {
        Some(answer) => cx.answer(call, answer),
        None => cx.disconnect(peer),
    }
}

impl App for AcceptHost {
    type Report = u64;

    /// Calls of the echo program that were answered.
    fn report(&self) -> u64 {
        self.driver.report()
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        match (call.header.program, call.header.version, call.header.procedure) {
            (PROGRAM, VERSION, ASK) => self.question(cx, &call),
            (PROGRAM, VERSION, NULL) => cx.refuse(&call, Accepted::Success),
            (PROGRAM, VERSION, _) => cx.refuse(&call, Accepted::ProcUnavail),
            (PROGRAM, ..) => {
                cx.refuse(&call, Accepted::ProgMismatch { low: VERSION, high: VERSION });
            }
            _ => self.driver.on_call(cx, call),
        }
    }

    fn on_null(&mut self, call: NullHeader) -> bool {
        self.driver.on_null(call)
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        if outcome.token == FormCaller::TOKEN {
            return self.forms.handle_outcome(&outcome);
        }
        self.driver.on_reply(cx, outcome);
    }

    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, _peer: PeerId) {
        self.peers += 1;
    }

    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, peer: PeerId, _cause: Cause) {
        self.peers = self.peers.saturating_sub(1);
        if self.reverse.as_ref().is_some_and(|open| open.peer == peer) {
            self.reverse = None;
        }
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.end_reverse(cx);
        self.driver.on_pass_end(cx);
    }
}
