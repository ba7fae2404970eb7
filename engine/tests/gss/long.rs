//! Long protected calls: the buffers that they need, and their steps.

use super::{
    ENCTYPE, ask,
    client::{Client, denied, init},
    contexts, xid_of,
};
use crate::support::{AtServer, config, message, no_message, pattern, reply};
use stag_echo::{ECHO, Echo, NULL, PULL, part};
use stag_engine::{
    Answer, AnswerItem, App, Call, Config, Cx,
    gss::{ContextLimits, GssContexts},
};
use stag_gss::Enctype;
use stag_pools::{Access, Class, Extent, Pool};
use stag_protocol::{
    rpc::{Accepted, AuthStatus, gss::GssService},
    rpcrdma::{Body, ChunkLists, ErrorBody, Position, Segment},
    xdr::Writer,
};
use stag_verbs::Provider as _;
use std::{collections::HashMap, sync::Arc};

pub(super) const READ: u32 = 11;
const READ_SHARED: u32 = 12;
const READ_OWN: u32 = 13;
pub(super) const LEN: usize = 100_000;
/// Octets of a step, as the engine has it.
const STEP: usize = 64 << 10;

/// Answers READ by octets in a buffer of the shard, which it may keep for some passes, as a cache
/// does, or by octets in memory of its own.
#[derive(Default)]
pub(super) struct Store {
    echo: Echo,
    kept: Vec<(u32, Extent)>,
    own: Option<Pool>,
}

impl Store {
    fn read(&mut self, cx: &mut Cx<'_>, call: &mut Call<'_>) -> Option<()> {
        let len = call.arguments.u32().ok()? as usize;
        let own = self.own.as_ref().filter(|_| call.header.procedure == READ_OWN);
        let mut octets = own.map_or_else(|| cx.take(len), |own| own.take(len))?;
        octets.reset(0);
        octets.append(&pattern(len)).ok()?;
        let octets = octets.freeze();
        if call.header.procedure == READ_SHARED {
            self.kept.push((0, octets.clone()));
        }
        let mut message = cx.message(64)?;
        let mut writer = Writer::new(message.spare_mut());
        call.header.reply(Accepted::Success).emit(&mut writer).ok()?;
        writer.u32(len as u32).ok()?;
        let written = writer.len();
        message.extend(written);
        let item = Some(AnswerItem::new(message.len(), octets));
        cx.answer(call.id, Answer { message, item });
        Some(())
    }
}

impl App for Store {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>) {
        match call.header.procedure {
            READ | READ_SHARED | READ_OWN => {
                if self.read(cx, &mut call).is_none() {
                    cx.refuse(&call, Accepted::SystemErr);
                }
            }
            _ => self.echo.on_call(cx, call),
        }
    }

    fn on_pass_end(&mut self, _: &mut Cx<'_>) {
        self.kept.iter_mut().for_each(|(passes, _)| *passes += 1);
        self.kept.retain(|(passes, _)| *passes < 3);
    }
}

fn serving(gss: Arc<GssContexts>, larges: usize) -> (AtServer<Store>, Client) {
    let config = Config { gss: Some(gss), slots: [512, 16, larges], ..config() };
    let mut at = AtServer::serving(Store::default(), config);
    let client = Client::of(ENCTYPE, &ask(&mut at, &init(1, b"alice@REALM")));
    (at, client)
}

fn limits() -> ContextLimits {
    ContextLimits::default()
}

/// A call, what carries it, and the memory that its chunks name.
pub(super) struct LongCall {
    pub(super) message: Vec<u8>,
    parts: Vec<Segment>,
    rooms: Vec<Segment>,
}

/// A call in Read chunks of position 0 unless it is short, with a Reply chunk for `room` octets.
pub(super) fn long_call<A: App>(at: &mut AtServer<A>, call: &[u8], room: usize) -> LongCall {
    let (mut lists, mut parts, mut rooms) = (ChunkLists::new(), Vec::new(), Vec::new());
    let is_long = call.len() > 4_000;
    for part in call.chunks(LEN).filter(|_| is_long) {
        let part = at.raw.window(part, Access::RemoteRead);
        lists.push_read(Position::ZERO, part).unwrap();
        parts.push(part);
    }
    if room > 0 {
        lists.begin_reply();
    }
    for len in (0..room).step_by(LEN).map(|at| LEN.min(room - at)) {
        let room = at.raw.window(&vec![0; len], Access::RemoteWrite);
        lists.push_reply(room).unwrap();
        rooms.push(room);
    }
    let xid = xid_of(call);
    let message = if is_long { no_message(xid, &lists) } else { message(xid, &lists, call) };
    LongCall { message, parts, rooms }
}

/// The RPC message of a reply, in its Reply chunk if that was used.
fn whole_reply<A: App>(at: &mut AtServer<A>, answer: &[u8], call: &LongCall) -> Vec<u8> {
    let (_, returned, inline) = reply(answer);
    for segment in call.parts.iter().chain(&call.rooms) {
        if !at.raw.fenced.iter().any(|(key, _)| key.0 == segment.handle) {
            at.raw.fence(*segment);
            at.settle();
        }
    }
    let Some(chunk) = returned.reply() else { return inline };
    let written: Vec<usize> =
        chunk.segments.iter().map(|segment| segment.length as usize).collect();
    let mut whole = Vec::new();
    for (room, written) in call.rooms.iter().zip(written) {
        whole.extend_from_slice(&at.raw.content(*room)[..written]);
    }
    whole
}

pub(super) fn read_arguments(len: usize) -> Vec<u8> {
    (len as u32).to_be_bytes().to_vec()
}

/// The results of a READ.
fn results_of(len: usize) -> Vec<u8> {
    let mut results = [&(len as u32).to_be_bytes()[..], &pattern(len)].concat();
    results.resize(results.len().next_multiple_of(4), 0);
    results
}

/// Sends four calls at a time, and expects the results of each.
fn expect_all<A: App>(
    at: &mut AtServer<A>,
    client: &Client,
    service: GssService,
    procedures: &[u32],
) {
    let mut sequence = 0;
    for _ in 0..4 {
        let mut calls = HashMap::new();
        for procedure in procedures.iter().cycle().take(4) {
            sequence += 1;
            let pull = || [&[0; 4], &super::opaque(part(0, LEN).unwrap())[..]].concat();
            let arguments = if *procedure == PULL { pull() } else { read_arguments(LEN) };
            let call = client.call((sequence, sequence), service, *procedure, &arguments);
            let room = if *procedure == PULL { 0 } else { LEN + 400 };
            let call = long_call(at, &call, room);
            at.raw.send(&call.message, None);
            calls.insert(sequence, (*procedure, call));
        }
        // All calls arrive before the first is answered.
        at.settle();
        for _ in 0..2_000 {
            if at.raw.received.len() == calls.len() {
                break;
            }
            at.now = at.now + std::time::Duration::from_millis(1);
            at.settle();
        }
        assert_eq!(at.raw.ended, None, "the connection stays");
        assert_eq!(at.raw.received.len(), calls.len(), "each call is answered");
        while let Some((answer, _)) = at.raw.received.pop_front() {
            let (header, ..) = reply(&answer);
            let (procedure, call) = &calls[&header.xid.0];
            let message = whole_reply(at, &answer, call);
            let results = match *procedure {
                PULL => 1_u32.to_be_bytes().to_vec(),
                _ => results_of(LEN),
            };
            let opened = client.open(header.xid.0, service, &message);
            assert!(opened == (Accepted::Success, results), "{procedure} {service:?}");
        }
        at.raw.fenced.clear();
    }
    for _ in 0..4 {
        at.shard.pass(at.now);
    }
    at.expect_alive();
    assert_eq!(at.shard.calls_in_progress(), (0, 0));
}

#[test]
fn arguments_are_opened_in_the_buffer_that_they_arrived_in() {
    let (mut at, client) = serving(contexts(ENCTYPE, limits()), 1);
    expect_all(&mut at, &client, GssService::Privacy, &[PULL]);
}

#[test]
fn an_item_is_sealed_in_its_own_buffer() {
    let (mut at, client) = serving(contexts(ENCTYPE, limits()), 1);
    expect_all(&mut at, &client, GssService::Privacy, &[READ]);
    assert_eq!(at.shard.snapshot().engine.gss.unprotectable, 0);
}

#[test]
fn replies_without_a_free_buffer_are_sealed_in_the_reserved_one_in_turn() {
    for larges in [1, 2, 4] {
        let (mut at, client) = serving(contexts(ENCTYPE, limits()), larges);
        expect_all(&mut at, &client, GssService::Privacy, &[READ_SHARED, PULL]);
    }
}

#[test]
fn results_longer_than_every_buffer_are_not_sent() {
    let own = Pool::new(&[Class { slot_len: 2 << 20, count: 1 }]).unwrap();
    let (mut at, client) = serving(contexts(ENCTYPE, limits()), 1);
    at.shard.register(&own).unwrap();
    at.shard.with_app(|app, _| app.own = Some(own));
    let call = client.call((5, 1), GssService::Privacy, READ_OWN, &read_arguments(1_100_000));
    let call = long_call(&mut at, &call, 400_000);
    assert_eq!(at.ask(&call.message), None);
    assert!(at.raw.ended.is_some(), "the client learns that there is no reply");
    assert_eq!(at.shard.snapshot().engine.gss.unprotectable, 1);
    assert_eq!(at.shard.calls_in_progress(), (0, 0));
    at.connect();
    let call = client.call((5, 2), GssService::Privacy, NULL, &[]);
    client.open(2, GssService::Privacy, &ask(&mut at, &call));
}

#[test]
fn results_of_a_long_call_are_not_reduced_under_protection() {
    for service in [GssService::Integrity, GssService::Privacy] {
        let (mut at, client) = serving(contexts(ENCTYPE, limits()), 4);
        let call = client.call((5, 1), service, ECHO, &super::opaque(&pattern(9_000)));
        // What asks for protection is in the chunk.
        let mut lists = ChunkLists::new();
        lists.push_read(Position::ZERO, at.raw.window(&call, Access::RemoteRead)).unwrap();
        lists.begin_write().unwrap();
        lists.push_write(at.raw.window(&[0; 9_000], Access::RemoteWrite)).unwrap();
        let (answer, _) = at.ask(&no_message(5, &lists)).expect("it is answered");
        assert_eq!(reply(&answer).0.body, Body::Error(ErrorBody::Chunk), "{service:?}");
        assert_eq!(at.shard.snapshot().engine.responder.writes, 0);
    }
}

/// Passes both ends until an answer is there. Returns it with the most steps of a pass, and those
/// of all passes.
fn passes<A: App>(at: &mut AtServer<A>) -> (Vec<u8>, u64, u64) {
    let steps = |at: &AtServer<A>| at.shard.snapshot().engine.gss.steps;
    let (before, mut most) = (steps(at), 0);
    for _ in 0..10_000 {
        let begun = steps(at);
        let worked = at.shard.pass(at.now);
        most = most.max(steps(at) - begun);
        let worked = worked | at.raw.poll(at.now);
        if let Some((answer, _)) = at.raw.received.pop_front() {
            return (answer, most, steps(at) - before);
        }
        if !worked && let Some(due) = at.fabric.next_due() {
            at.now = due.max(at.now);
        }
    }
    panic!("an answer comes");
}

#[test]
fn a_long_call_and_its_reply_take_one_step_in_a_pass() {
    for enctype in Enctype::ALL {
        for service in [GssService::Integrity, GssService::Privacy] {
            let len = 350_001;
            let gss = Some(contexts(enctype, limits()));
            let mut at = AtServer::serving(Store::default(), Config { gss, ..config() });
            let client = Client::of(enctype, &ask(&mut at, &init(1, b"alice@REALM")));
            let octets = pattern(len);
            let call = client.call((7, 1), service, ECHO, &super::opaque(&octets));
            let call = long_call(&mut at, &call, len + 400);
            at.raw.send(&call.message, None);
            let (answer, most, all) = passes(&mut at);
            let message = whole_reply(&mut at, &answer, &call);
            let opened = client.open(1, service, &message);
            assert!(opened == (Accepted::Success, super::opaque(&octets)), "{service:?}");
            let each = len.div_ceil(STEP) as u64;
            assert_eq!(most, 1, "{enctype:?} {service:?}");
            assert!((2 * each..=2 * each + 2).contains(&all), "{all} steps, {each} each way");
        }
    }
}

/// Passes until two steps of a call are done.
fn go_to_the_middle<A: App>(at: &mut AtServer<A>) {
    for _ in 0..10_000 {
        if at.shard.snapshot().engine.gss.steps == 2 {
            break;
        }
        if !(at.shard.pass(at.now) | at.raw.poll(at.now)) {
            at.now = at.fabric.next_due().map_or(at.now, |due| due.max(at.now));
        }
    }
    assert_eq!(at.shard.calls_in_progress(), (1, 0), "in the middle");
}

#[test]
fn a_context_that_ends_between_steps_serves_no_call() {
    let gss = contexts(ENCTYPE, limits());
    let mut at =
        AtServer::serving(Store::default(), Config { gss: Some(Arc::clone(&gss)), ..config() });
    let client = Client::of(ENCTYPE, &ask(&mut at, &init(1, b"alice@REALM")));
    let arguments = super::opaque(&pattern(350_000));
    let call = client.call((7, 1), GssService::Privacy, ECHO, &arguments);
    let call = long_call(&mut at, &call, 350_400);
    at.raw.send(&call.message, None);
    go_to_the_middle(&mut at);
    // As a reload does whose map has other users.
    gss.forget_all();
    let (answer, ..) = passes(&mut at);
    let (.., inline) = reply(&answer);
    assert_eq!(denied(&inline), AuthStatus::GSS_CREDENTIAL_PROBLEM);
}

#[test]
fn a_connection_that_ends_between_steps_frees_all() {
    for has_arrived in [false, true] {
        let gss = Some(contexts(ENCTYPE, limits()));
        let mut at = AtServer::serving(Store::default(), Config { gss, ..config() });
        let client = Client::of(ENCTYPE, &ask(&mut at, &init(1, b"alice@REALM")));
        let (procedure, arguments) = match has_arrived {
            true => (READ, read_arguments(350_000)),
            false => (PULL, [&[0; 4], &super::opaque(&pattern(350_000))[..]].concat()),
        };
        let call = client.call((7, 1), GssService::Privacy, procedure, &arguments);
        let call = long_call(&mut at, &call, if has_arrived { 350_400 } else { 0 });
        at.raw.send(&call.message, None);
        go_to_the_middle(&mut at);
        at.raw.end.disconnect(at.raw.qp.unwrap());
        at.expect_end();
        assert_eq!(at.shard.snapshot().engine.gss.steps, 2);
    }
}
