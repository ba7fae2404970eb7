//! Version 2 towards a peer that knows draft 000 and nothing else, and towards one that does not
//! answer at all.
//!
//! That peer's encoder and decoder are written from the draft's XDR (§4.2), apart from ours.

use crate::support::{
    AtClient, AtServer, Raw, config, echo_head,
    keeper::{Keeper, Wanted, ask, start},
    pattern, results, rpc,
};
use stag_echo::{ECHO, Echo, NULL};
use stag_engine::{App, Config};
use stag_pools::Access;
use stag_protocol::rpcrdma::{Version, Version2, Versions};
use stag_verbs::Provider;

/// The versions that the command gives for `--rdma-version 1-2` and `2`, and that our listeners
/// speak.
const BOTH: Versions = Versions::Both(Version2::Directed);
const TWO: Versions = Versions::Two(Version2::Directed);

const SHORT: Wanted<'_> = Wanted { head: 44, item: None, reply_max: 100, result_max: 0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    handle: u32,
    length: u32,
    offset: u64,
}

/// `rpcrdma2_chunk_lists`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lists {
    reads: Vec<(u32, Segment)>,
    writes: Vec<Vec<Segment>>,
    reply: Option<Vec<Segment>>,
}

/// `rpcrdma2_xprt_hdr` of an RDMA_MSG (0) or RDMA_NOMSG (1), and what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    xid: u32,
    credits: u32,
    procedure: u32,
    lists: Lists,
    payload: Vec<u8>,
}

/// Words of XDR, and no other.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn word(&mut self) -> u32 {
        let (word, rest) = self.0.split_first_chunk().expect("the message has one more word");
        self.0 = rest;
        u32::from_be_bytes(*word)
    }

    fn is_there(&mut self) -> bool {
        match self.word() {
            0 => false,
            1 => true,
            word => panic!("{word} stands where the draft has a boolean"),
        }
    }

    fn segment(&mut self) -> Segment {
        let (handle, length) = (self.word(), self.word());
        let offset = u64::from(self.word()) << 32 | u64::from(self.word());
        Segment { handle, length, offset }
    }

    fn chunk(&mut self) -> Vec<Segment> {
        (0..self.word()).map(|_| self.segment()).collect()
    }
}

impl Message {
    /// Reads a message as the draft's XDR has it. Anything else in it fails the test.
    fn decode(octets: &[u8]) -> Self {
        let mut words = Words(octets);
        let (xid, version, credits, procedure) =
            (words.word(), words.word(), words.word(), words.word());
        assert_eq!(version, 2, "version 2 is spoken");
        assert!(procedure < 2, "procedure {procedure} has chunk lists");
        let mut lists = Lists::default();
        while words.is_there() {
            lists.reads.push((words.word(), words.segment()));
        }
        while words.is_there() {
            lists.writes.push(words.chunk());
        }
        lists.reply = words.is_there().then(|| words.chunk());
        let payload = words.0.to_vec();
        match procedure {
            0 => assert_eq!(
                payload[..4],
                xid.to_be_bytes(),
                "the RPC message follows the lists at once"
            ),
            _ => assert!(payload.is_empty(), "nothing follows an RDMA_NOMSG"),
        }
        Self { xid, credits, procedure, lists, payload }
    }

    fn encode(&self) -> Vec<u8> {
        let mut words = vec![self.xid, 2, self.credits, self.procedure];
        let segment =
            |it: &Segment| [it.handle, it.length, (it.offset >> 32) as u32, it.offset as u32];
        for (position, read) in &self.lists.reads {
            words.extend([1, *position]);
            words.extend(segment(read));
        }
        words.push(0);
        for chunk in &self.lists.writes {
            words.extend([1, chunk.len() as u32]);
            words.extend(chunk.iter().flat_map(segment));
        }
        words.push(0);
        words.push(u32::from(self.lists.reply.is_some()));
        if let Some(chunk) = &self.lists.reply {
            words.push(chunk.len() as u32);
            words.extend(chunk.iter().flat_map(segment));
        }
        let words: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        [words, self.payload.clone()].concat()
    }

    /// A reply that returns the chunks, `len` octets in each of their first segments.
    fn reply(&self, len: usize, payload: Vec<u8>) -> Self {
        let filled = |chunk: &Vec<Segment>| {
            let lengths = std::iter::once(len as u32).chain(std::iter::repeat(0));
            chunk
                .iter()
                .zip(lengths)
                .map(|(segment, length)| Segment { length, ..*segment })
                .collect()
        };
        let writes = self.lists.writes.iter().map(filled).collect();
        let lists =
            Lists { reads: Vec::new(), writes, reply: self.lists.reply.as_ref().map(filled) };
        let procedure = u32::from(payload.is_empty());
        Self { xid: self.xid, credits: 3, procedure, lists, payload }
    }
}

fn rpc_reply(xid: u32, results: &[u8]) -> Vec<u8> {
    [&xid.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16], results].concat()
}

/// The answer to a call that has the two words of draft 001 before its lists.
fn directed_reply(call: &[u8]) -> Vec<u8> {
    let xid = u32::from_be_bytes(*call.first_chunk().unwrap());
    let words = [xid, 2, 3, 0, 1, 0, 0, 0, 0].map(u32::to_be_bytes);
    [words.as_flattened(), &rpc_reply(xid, &[])].concat()
}

fn as_ours(segment: Segment) -> stag_protocol::rpcrdma::Segment {
    let Segment { handle, length, offset } = segment;
    stag_protocol::rpcrdma::Segment { handle, length, offset }
}

/// The private data of such a peer while connecting: that of RFC 8797, or none.
fn said() -> [Vec<u8>; 2] {
    [Raw::private_data().to_vec(), Vec::new()]
}

fn taken<A: App>(at: &mut AtClient<A>) -> Message {
    at.settle();
    Message::decode(&at.raw.received.pop_front().expect("the call arrives").0)
}

#[test]
fn our_calls_are_read_by_a_server_of_draft_000_and_it_answers_them() {
    for (versions, says) in
        [BOTH, TWO].into_iter().flat_map(|versions| said().map(|says| (versions, says)))
    {
        let ours = Config { call_versions: versions, ..config() };
        let mut at = AtClient::told(Keeper::default(), ours, &says, |sim| sim);
        start(&mut at, SHORT);
        let first = taken(&mut at);
        assert_eq!((first.procedure, &first.lists), (0, &Lists::default()));
        at.raw.send(&first.reply(0, rpc_reply(first.xid, &[])).encode(), None);
        at.settle();
        assert_eq!(at.shard.version(at.peer), Some(Version::Two(Version2::Undirected)));

        // An argument in a chunk, a result in a chunk, a long call, a long reply.
        let item = pattern(9_000);
        start(&mut at, Wanted { item: Some(&item), ..SHORT });
        let call = taken(&mut at);
        let [(44, read)] = call.lists.reads[..] else { panic!("{:?}", call.lists) };
        at.raw.fetch(as_ours(read));
        at.settle();
        assert_eq!(at.raw.fetched.pop(), Some(item));
        at.raw.send(&call.reply(0, rpc_reply(call.xid, b"ok..")).encode(), None);

        start(&mut at, Wanted { result_max: 9_000, ..SHORT });
        let call = taken(&mut at);
        at.raw.push(&pattern(7_000), as_ours(call.lists.writes[0][0]));
        at.raw.send(&call.reply(7_000, rpc_reply(call.xid, b"ok..")).encode(), None);

        start(&mut at, Wanted { head: 4_400, ..SHORT });
        let call = taken(&mut at);
        let [(0, read)] = call.lists.reads[..] else { panic!("{:?}", call.lists) };
        assert_eq!((call.procedure, read.length), (1, 4_400));
        at.raw.send(&call.reply(0, rpc_reply(call.xid, b"ok..")).encode(), None);

        start(&mut at, Wanted { reply_max: 9_000, ..SHORT });
        let call = taken(&mut at);
        let long = rpc_reply(call.xid, &pattern(8_000));
        at.raw.push(&long, as_ours(call.lists.reply.as_ref().unwrap()[0]));
        at.raw.send(&call.reply(long.len(), Vec::new()).encode(), None);
        at.settle();

        let kept = &at.shard.app().0;
        assert!(
            kept.len() == 5 && kept.iter().all(|kept| kept.reply.is_ok()),
            "{versions:?}, {says:?}"
        );
        assert_eq!(kept[2].result.as_ref().unwrap(), &pattern(7_000));
        assert_eq!(kept[4].reply.as_ref().unwrap(), &long);
        assert_eq!((at.shard.buffers_in_use(), at.shard.provider().windows_bound()), (0, 0));
        assert!(at.raw.ended.is_none());
    }
}

#[test]
fn a_client_of_draft_000_is_served_by_our_default() {
    assert_eq!(Config::default().serve_versions, BOTH);
    for says in said() {
        let ours = Config { serve_versions: BOTH, ..config() };
        let mut at = AtServer::begin(Echo::default(), ours, &says);
        let call = |xid, lists: Lists, payload: Vec<u8>| {
            let procedure = u32::from(payload.is_empty());
            Message { xid, credits: 9, procedure, lists, payload }
        };
        let ask = |at: &mut AtServer, message: &Message| {
            let (answer, invalidated) = at.ask(&message.encode()).expect("it is answered");
            assert_eq!(invalidated, None, "draft 000 has no remote invalidation");
            let answer = Message::decode(&answer);
            assert_eq!((answer.xid, answer.lists.reads.len()), (message.xid, 0));
            answer
        };
        let answer = ask(&mut at, &call(1, Lists::default(), rpc(1, NULL, &[])));
        assert_eq!((results(&answer.payload), answer.lists), (Vec::new(), Lists::default()));
        let small = [&echo_head(3)[..], b"abc\0"].concat();
        let answer = ask(&mut at, &call(2, Lists::default(), rpc(2, ECHO, &small)));
        assert_eq!(results(&answer.payload), small);

        let octets = pattern(9_000);
        let theirs = |segment: stag_protocol::rpcrdma::Segment| Segment {
            handle: segment.handle,
            length: segment.length,
            offset: segment.offset,
        };
        let source = at.raw.window(&octets, Access::RemoteRead);
        let sink = at.raw.window(&[0xee; 9_000], Access::RemoteWrite);
        let lists = Lists {
            reads: vec![(44, theirs(source))],
            writes: vec![vec![theirs(sink)]],
            ..Lists::default()
        };
        let answer = ask(&mut at, &call(3, lists.clone(), rpc(3, ECHO, &echo_head(9_000))));
        assert_eq!((answer.lists.writes, answer.lists.reply), (lists.writes, None));
        assert_eq!(results(&answer.payload), echo_head(9_000));
        [source, sink].into_iter().for_each(|segment| at.raw.fence(segment));
        at.settle();
        assert_eq!(at.raw.content(sink), octets);

        let whole = rpc(4, ECHO, &[&echo_head(9_000)[..], &octets].concat());
        let source = at.raw.window(&whole, Access::RemoteRead);
        let sink = at.raw.window(&[0xee; 10_000], Access::RemoteWrite);
        let lists = Lists {
            reads: vec![(0, theirs(source))],
            reply: Some(vec![theirs(sink)]),
            ..Lists::default()
        };
        let answer = ask(&mut at, &call(4, lists, Vec::new()));
        let returned = answer.lists.reply.unwrap()[0];
        assert_eq!((answer.procedure, returned.length), (1, 24 + 4 + 9_000));
        [source, sink].into_iter().for_each(|segment| at.raw.fence(segment));
        at.settle();
        let reply = &at.raw.content(sink)[..returned.length as usize];
        assert_eq!(results(reply), [&echo_head(9_000)[..], &octets].concat());
    }
}

#[test]
fn the_words_of_draft_001_are_said_only_where_both_ends_announced_them() {
    let plain = Versions::Both(Version2::Undirected);
    for (ours, theirs) in [(BOTH, BOTH), (BOTH, plain), (plain, BOTH), (plain, plain)] {
        let are_said = (ours, theirs) == (BOTH, BOTH);
        // We call.
        let config = Config { call_versions: ours, serve_versions: ours, ..config() };
        let announces = Raw::offer_of(theirs);
        let mut at = AtClient::told(Keeper::default(), config.clone(), &announces, |sim| sim);
        // We send up to 8 KiB, and take what the fabric takes.
        let mut announced = Raw::offer_of(ours);
        announced[6] = 7;
        assert_eq!(at.raw.end.private_data(at.raw.qp.unwrap()), announced, "what we announce");
        start(&mut at, SHORT);
        at.settle();
        let (call, _) = at.raw.received.pop_front().unwrap();
        assert_eq!(call.len(), if are_said { 36 + 44 } else { 28 + 44 }, "{ours:?} and {theirs:?}");
        // We are called. Without the words this is a call; with them it cannot be read.
        let mut at = AtServer::begin(Echo::default(), config, &announces);
        let call = Message {
            xid: 1,
            credits: 9,
            procedure: 0,
            lists: Lists::default(),
            payload: rpc(1, NULL, &[]),
        };
        let (answer, _) = at.ask(&call.encode()).unwrap();
        assert_eq!(answer[15], if are_said { 4 } else { 0 }, "{ours:?} and {theirs:?}");
    }
}

/// A requester that tries version 2, is kept connected, and whose first message gets no answer.
fn silent(versions: Versions) -> AtClient<Keeper> {
    let mut at = AtClient::new(Keeper::default(), Config { call_versions: versions, ..config() });
    at.peer = at.shard.keep_connected(&at.port).unwrap();
    at.settle();
    // Nothing was called for a while.
    at.wait(100);
    start(&mut at, SHORT);
    at.settle();
    assert_eq!(at.raw.received[0].0[7], 2);
    at
}

#[test]
fn a_first_message_that_is_dropped_is_followed_by_version_1_and_the_call_succeeds() {
    let mut at = silent(BOTH);
    let first = at.raw.received.pop_front().unwrap().0;
    at.wait(1);
    assert!(at.raw.received.is_empty(), "it may still be answered");
    at.wait(2);
    let (again, ..) = at.next_call();
    assert_eq!(again.xid.0.to_be_bytes(), first[..4], "the same call goes again, by version 1");
    at.answer(again.xid, &stag_protocol::rpcrdma::ChunkLists::new(), &[], None);
    assert!(at.shard.app().0.len() == 1 && at.shard.app().0[0].reply.is_ok());
    let stats = at.shard.snapshot().engine.requester;
    assert_eq!((stats.version_silences, stats.timeouts), (1, 0));
    // From here on it is called by version 1 at once.
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.wait(10);
    let (next, ..) = ask(&mut at, SHORT);
    assert_ne!(next.xid, again.xid);
}

#[test]
fn a_slow_answer_to_the_first_message_is_waited_for_as_long_as_there_is_nothing_else() {
    // It comes in time.
    let mut at = silent(BOTH);
    let first = at.raw.received.pop_front().unwrap().0;
    at.wait(1);
    at.raw.send(&directed_reply(&first), None);
    at.settle();
    assert!(at.shard.app().0.len() == 1 && at.shard.app().0[0].reply.is_ok());
    // The next one may take its time: the version is settled.
    start(&mut at, SHORT);
    at.settle();
    at.wait(8);
    assert!(at.raw.ended.is_none());
    // Where version 1 is not spoken, and where the connection is not made again, there is nothing
    // to fall back to.
    let mut at = silent(TWO);
    at.wait(8);
    assert!(at.raw.ended.is_none() && at.shard.app().0.is_empty());
    let mut at = AtClient::new(Keeper::default(), Config { call_versions: BOTH, ..config() });
    start(&mut at, SHORT);
    at.settle();
    at.wait(8);
    assert!(at.raw.ended.is_none() && at.shard.app().0.is_empty());
    assert_eq!(at.shard.snapshot().engine.requester.version_silences, 0);
}
