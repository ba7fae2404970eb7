//! Connection of the end that runs the tests: questions to the other end, calls of the echo program
//! in every form, and answers to its calls.

use super::{
    place::DEVICES,
    program::{ASK, PROGRAM, Question, Reply, TEXT_MAX, VERSION},
};
use crate::{Error, caller::random};
use stag_echo::{
    Echo,
    forms::{FormCaller, FormEnd, call_all},
};
use stag_engine::{
    App, Call, CallFault, Cause, Config, Cx, Outcome, PeerId, Request, RequestItem, Shard, Token,
    clock::Clock,
};
use stag_fabrics::{AnyProvider, FabricAddress, Settings};
use stag_protocol::{
    rpc::{self, Accepted, Auth, CallHeader, Credential, ReplyHeader},
    rpcrdma::{Versions, Xid},
    xdr::{Piece, Reader, Writer},
};
use stag_verbs::{FabricFault, Limits, Provider};
use std::{
    io, thread,
    time::{Duration, Instant},
};

/// The time that a connection may take to stand.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The time that an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Passes without work after which the thread sleeps between them.
const BUSY_PASSES: u32 = 2_000;
/// The time for which it sleeps then.
const NAP: Duration = Duration::from_micros(50);
/// Work requests pending on a connection.
const SEND_QUEUE: usize = 128;

/// The way in which a connection is made: once, or again whenever it is lost.
type Connect = fn(&mut Shard<AnyProvider, Asker>, &FabricAddress) -> Result<PeerId, FabricFault>;

/// A connection to the other end.
#[derive(Debug)]
pub struct Line {
    shard: Shard<AnyProvider, Asker>,
    clock: Clock,
    peer: PeerId,
    idle: u32,
}

/// The part of the app that is about the connection.
#[derive(Debug, Default)]
struct Asker {
    echo: Echo,
    forms: FormCaller,
    heard: Option<Result<Vec<u8>, String>>,
    is_asking: bool,
    is_up: bool,
    /// The end of the connection, and the time of it.
    ended: Option<(Cause, Instant)>,
}

impl Line {
    /// Connects to `at`, once.
    pub fn connect(at: &FabricAddress, versions: Versions) -> Result<Self, Error> {
        Self::open(at, versions, Shard::connect)
    }

    /// Connects to `at`, and again whenever the connection is lost.
    pub fn keep_connected(at: &FabricAddress) -> Result<Self, Error> {
        Self::open(at, Versions::One, Shard::keep_connected)
    }

    fn open(at: &FabricAddress, versions: Versions, connect: Connect) -> Result<Self, Error> {
        let failed = |why: String| Error::failure(format!("cannot connect to {at}: {why}"));
        let clock = Clock::start();
        let config = Config {
            call_versions: versions,
            calls_max: 8,
            reverse_grant: 4,
            xid_seed: u32::from_ne_bytes(random()?),
            ..Config::small()
        };
        let short = |error: io::Error| Error::failure(format!("cannot call {at}: {error}"));
        let settings = Settings::new(config.limits(SEND_QUEUE), random()?, clock.now());
        let fabric = AnyProvider::for_connecting(settings, Some(at)).map_err(short)?;
        let mut shard =
            Shard::new(fabric, Asker::default(), config, Box::new(|_| true)).map_err(short)?;
        let peer = connect(&mut shard, at).map_err(|fault| failed(fault.to_string()))?;
        let mut line = Self { shard, clock, peer, idle: 0 };
        let began = Instant::now();
        while !line.is_up() {
            if let Some((cause, _)) = line.ended() {
                return Err(failed(format!("{cause}{}", hint(at, cause))));
            }
            if began.elapsed() > CONNECT_MAX {
                return Err(failed(format!(
                    "no answer within {} s; does 'stag accept serve' wait there?",
                    CONNECT_MAX.as_secs()
                )));
            }
            line.turn();
        }
        Ok(line)
    }

    /// Limits of the provider, and the name of its device.
    pub fn device(&self) -> (Limits, Option<String>) {
        let provider = self.shard.provider();
        (*provider.limits(), provider.device_name().map(str::to_owned))
    }

    /// The connection stands.
    pub fn is_up(&self) -> bool {
        self.shard.app().is_up
    }

    /// The end of the connection, and the time of it.
    pub fn ended(&self) -> Option<(Cause, Instant)> {
        self.shard.app().ended
    }

    /// Makes a turn of the shard.
    pub fn turn(&mut self) {
        turn(&mut self.shard, self.clock, &mut self.idle);
    }

    /// Asks the other end, and waits for the answer.
    pub fn ask(&mut self, question: &Question) -> Result<Reply, String> {
        self.start(question)?;
        loop {
            if let Some(heard) = self.heard() {
                return heard;
            }
            self.turn();
        }
    }

    /// Asks the other end; the answer is [heard](Self::heard) later.
    pub fn start(&mut self, question: &Question) -> Result<(), String> {
        let text = serde_json::to_vec(question).map_err(|error| error.to_string())?;
        let peer = self.peer;
        let made = self.shard.with_app_at(self.clock.now(), |asker, cx| {
            (asker.heard, asker.is_asking) = (None, true);
            request(cx, &text).map(|request| cx.call(peer, request)).is_some()
        });
        if made { Ok(()) } else { Err("no memory for the question".to_owned()) }
    }

    /// True while a question has no answer.
    pub fn is_asking(&self) -> bool {
        self.shard.app().is_asking
    }

    /// The answer to the latest question, once it is there.
    pub fn heard(&mut self) -> Option<Result<Reply, String>> {
        let heard = self.shard.with_app(|asker, _| asker.heard.take())?;
        Some(heard.and_then(|text| match serde_json::from_slice(&text) {
            Ok(Reply::Cannot(why)) => Err(why),
            Ok(reply) => Ok(reply),
            Err(error) => Err(format!("the answer cannot be read: {error}; is it the same stag?")),
        }))
    }

    /// Calls in every form.
    pub fn call_all(&mut self) -> Vec<FormEnd> {
        let (clock, idle) = (self.clock, &mut self.idle);
        call_all(&mut self.shard, self.peer, |shard| turn(shard, clock, idle))
    }

    /// Buffers that are in use, of calls that are not over.
    pub fn buffers_in_use(&self) -> usize {
        self.shard.buffers_in_use()
    }
}

fn turn(shard: &mut Shard<AnyProvider, Asker>, clock: Clock, idle: &mut u32) {
    *idle = if shard.pass(clock.now()) { 0 } else { *idle + 1 };
    if *idle > BUSY_PASSES {
        thread::sleep(NAP);
    } else if *idle > 0 {
        thread::yield_now();
    }
}

/// Advice for a connection that ended before it stood.
fn hint(at: &FabricAddress, cause: Cause) -> &'static str {
    match cause {
        Cause::Rejected | Cause::Peer => "; is this host in --clients of 'stag accept serve'?",
        _ if at.info().scheme == DEVICES => {
            "; does 'stag accept serve' wait there, and does 'stag probe rdma' work on both hosts?"
        }
        _ => "; does 'stag accept serve' wait there?",
    }
}

/// A question as a call.
fn request(cx: &Cx<'_>, text: &[u8]) -> Option<Request> {
    let header = CallHeader {
        xid: Xid(0),
        program: PROGRAM,
        version: VERSION,
        procedure: ASK,
        credential: Credential::None,
        verifier: Auth::NONE,
    };
    let mut message = cx.message(64)?;
    let mut writer = Writer::new(message.spare_mut());
    header.emit(&mut writer).ok()?;
    writer.u32(u32::try_from(text.len()).ok()?).ok()?;
    let position = writer.len();
    message.extend(position);
    let mut octets = cx.take(text.len())?;
    octets.append(text).ok()?;
    let room = cx.room(TEXT_MAX)?;
    Some(Request {
        item: Some(RequestItem { position: message.len(), octets }),
        message,
        reply_max: ReplyHeader::REFUSAL_LEN_MAX + 8,
        result: Some(room),
        timeout: TIMEOUT,
        token: Token(0),
    })
}

/// The text of an answer.
fn answer(outcome: &Outcome<'_>) -> Result<Vec<u8>, String> {
    let reply = outcome.reply.map_err(|fault: CallFault| fault.to_string())?;
    let result = outcome.result.as_deref().unwrap_or_default();
    let pieces = [Piece::Inline(reply), Piece::Chunk(result)];
    let mut results = Reader::over(&pieces);
    let garbled = |_| "the answer cannot be read".to_owned();
    let header = ReplyHeader::parse(&mut results).map_err(garbled)?;
    if header.outcome != rpc::Outcome::accepted(Accepted::Success) {
        return Err("the server there is not 'stag accept serve' of this version".to_owned());
    }
    results.item(TEXT_MAX).map(<[u8]>::to_vec).map_err(garbled)
}

impl AsMut<FormCaller> for Asker {
    fn as_mut(&mut self) -> &mut FormCaller {
        &mut self.forms
    }
}

impl App for Asker {
    type Report = u64;

    /// Calls in some form whose payload was compared and is the same.
    fn report(&self) -> u64 {
        self.forms.report()
    }

    fn wants_idle_passes(&self) -> bool {
        false
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.echo.on_call(cx, call);
    }

    fn on_reply(&mut self, _cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        if outcome.token == FormCaller::TOKEN {
            return self.forms.handle_outcome(&outcome);
        }
        (self.heard, self.is_asking) = (Some(answer(&outcome)), false);
    }

    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, _peer: PeerId) {
        self.is_up = true;
    }

    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, cause: Cause) {
        self.is_up = false;
        self.ended = Some((cause, Instant::now()));
    }
}
