//! Calls that are answered only after a call in the other direction, as NFS recalls a delegation
//! before it lets another client open a file: neither direction may use up what the other one
//! needs.

use stag_echo::{Caller, ECHO, ECHO_MAX, Twin};
use stag_engine::{
    Answer, AnswerItem, App, Call, CallId, Config, Cx, ExtentLists, Outcome, PeerId, Request,
    RequestItem, Shard, Token,
};
use stag_protocol::{
    rpc::{Accepted, Auth, CallHeader, Credential, ReplyHeader},
    rpcrdma::{Version2, Versions, Xid},
    xdr::Writer,
};
use stag_sim::{Fabric, Faults, Port};
use stag_verbs::{Limits, Time};
use std::{collections::BTreeMap, time::Duration};

const LIMITS: Limits = Limits { send_queue: 32, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const CALLS: u64 = 200;
const NAME: u32 = 4;

/// An echo of what a call brought, in `parts` of about the same length: each takes a Write of its
/// own.
fn echo(cx: &Cx<'_>, call: &Call<'_>, lists: &ExtentLists, parts: usize) -> (Vec<u8>, Answer) {
    let octets = call.arguments.clone().item(ECHO_MAX).unwrap().to_vec();
    let mut message = cx.message(64).unwrap();
    let mut writer = Writer::new(message.spare_mut());
    call.header.reply(Accepted::Success).emit(&mut writer).unwrap();
    writer.u32(octets.len() as u32).unwrap();
    let position = writer.len();
    message.extend(position);
    let mut item = lists.take();
    for part in octets.chunks(octets.len().div_ceil(parts)) {
        let mut buf = cx.take(part.len()).unwrap();
        buf.append(part).unwrap();
        item.push(buf.freeze()).unwrap();
    }
    (octets, Answer { message, item: Some(AnswerItem::new(position, item)) })
}

/// A [`Twin`] whose echoes come in pieces.
struct Pieces {
    twin: Twin,
    lists: ExtentLists,
}

impl App for Pieces {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let (_, answer) = echo(cx, &call, &self.lists, 6);
        cx.answer(call.id, answer);
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.twin.on_reply(cx, outcome);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        self.twin.on_peer_up(cx, peer);
    }
}

/// Answers an echo once its caller has answered one.
#[derive(Default)]
struct Recalls {
    twin: Twin,
    waiting: BTreeMap<u64, (CallId, Answer)>,
    calls: u64,
    lists: ExtentLists,
}

impl App for Recalls {
    type Report = u64;

    fn report(&self) -> u64 {
        self.calls
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        if call.header.procedure != ECHO {
            return self.twin.on_call(cx, call);
        }
        let (octets, answer) = echo(cx, &call, &self.lists, 1);
        self.waiting.insert(self.calls, (call.id, answer));
        assert!(Caller::call(cx, call.peer, Token(self.calls), Some(&octets)));
        self.calls += 1;
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        outcome.reply.expect("the client answers");
        let (call, answer) =
            self.waiting.remove(&outcome.token.0).expect("one reply for each call");
        cx.answer(call, answer);
    }
}

/// ECHO of `len` octets without a time limit: a test of waiting, not of deadlines.
fn call(cx: &mut Cx<'_>, peer: PeerId, token: Token, len: usize) {
    let header = CallHeader {
        xid: Xid(0),
        program: stag_echo::PROGRAM,
        version: stag_echo::VERSION,
        procedure: ECHO,
        credential: Credential::None,
        verifier: Auth::NONE,
    };
    let mut message = cx.message(64).unwrap();
    let mut writer = Writer::new(message.spare_mut());
    header.emit(&mut writer).unwrap();
    writer.u32(len as u32).unwrap();
    let position = writer.len();
    message.extend(position);
    let filled = |cx: &Cx<'_>| {
        let mut buf = cx.take(len).unwrap();
        buf.extend(len);
        buf
    };
    let request = Request {
        message,
        item: Some(RequestItem { position, octets: filled(cx) }),
        reply_max: ReplyHeader::REFUSAL_LEN_MAX,
        result: Some(cx.room(len).unwrap()),
        timeout: Duration::from_secs(1_000),
        token,
    };
    cx.call(peer, request);
}

#[test]
fn calls_that_wait_for_calls_in_the_other_direction_end() {
    for (versions, len) in [(Versions::One, 3_000), (Versions::Two(Version2::Directed), 6_000)] {
        let fabric = Fabric::new(3, Faults::DELAYS);
        let config = || Config {
            call_versions: versions,
            grant: 64,
            grant_first: 64,
            calls_max: 64,
            reverse_calls_max: 16,
            reverse_grant: 16,
            receives: 512,
            inbound: 512,
            outbound: 256,
            slots: [2_048, 1_024, 64],
            ..Config::small()
        };
        let limits = || Limits { receives: 512, ..LIMITS };
        let admit = || Box::new(|_| true) as Box<_>;
        let mut server =
            Shard::new(fabric.end("server", limits()), Recalls::default(), config(), admit())
                .unwrap();
        let pieces = Pieces { twin: Twin::named(NAME), lists: ExtentLists::default() };
        let mut client =
            Shard::new(fabric.end("client", limits()), pieces, config(), admit()).unwrap();
        let up = client.connect(&server.listen(&Port(0)).unwrap()).unwrap();
        let (mut now, mut called, mut done, mut is_known) = (Time(0), 0, 0, false);
        while done < CALLS {
            while is_known && called < CALLS && called < done + 64 {
                client.with_app(|_, cx| call(cx, up, Token(called), len));
                called += 1;
            }
            while let Some(outcome) = client.with_app(|app, _| app.twin.caller().take()) {
                let echo = outcome.echo.expect("every call is answered");
                is_known = true;
                if outcome.token != Twin::REGISTRATION {
                    assert_eq!(echo.unwrap().len(), len);
                    done += 1;
                }
            }
            if !(server.pass(now) | client.pass(now)) {
                let timers = [fabric.next_due(), client.wake_at(), server.wake_at()];
                now = timers.into_iter().flatten().min().map_or(now, |due| due.max(now));
                assert!(
                    now < Time(10_000_000_000),
                    "{done} of {CALLS} calls are done, and no more"
                );
            }
        }
        let stats = server.snapshot().engine.requester;
        assert_eq!(stats.versions.v1.reverse + stats.versions.v2.reverse, CALLS);
    }
}
