//! The calls of a conversation: which message answers which, and what chunks held, by a model of
//! both ends' memory.

use stag_protocol::iwarp::rdmap::ReadHeader;
use stag_protocol::iwarp::stream::{Inbound, SendSegment};
use stag_protocol::rpcrdma::requester::check_reply;
use stag_protocol::rpcrdma::{
    ChunkLists, Connection, Direction, Header, Incoming, InlineSize, PrivateData, Segment, Setup,
    Side, Xid, v1,
};

use super::pcap::{Conversation, conversations, segments};
use super::wire::{Offers, Stream, Visitor, WireCounts, other, walk};

/// Grants of Linux 6.1: its server's for calls, its client's for reverse calls; then the credits
/// that each requests.
pub const SERVER_GRANT: u32 = 64;
pub const CLIENT_GRANT: u32 = 16;
pub const CLIENT_CALLS: u32 = 128;
pub const SERVER_CALLS: u32 = 2;

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    /// All of it.
    pub octets: Vec<u8>,
    pub header: Header,
    pub lists: ChunkLists,
    /// Offset of the inline payload.
    pub payload_at: usize,
    /// Number of the Send within the conversation.
    pub number: usize,
}

impl Message {
    pub fn inline(&self) -> &[u8] {
        &self.octets[self.payload_at..]
    }
}

/// One call and its reply.
#[derive(Clone, Debug)]
pub struct Call {
    pub direction: Direction,
    pub call: Message,
    pub reply: Message,
    /// Contents of the Read chunks, in their order.
    pub pulled: Vec<Vec<u8>>,
    /// Contents written into the Write chunks, in their order.
    pub written: Vec<Vec<u8>>,
    /// Content written into the Reply chunk.
    pub long_reply: Vec<u8>,
}

/// All of one conversation.
pub struct Capture {
    pub conversation: Conversation,
    pub offers: Offers,
    pub wire: WireCounts,
    pub calls: Vec<Call>,
    /// Replies that invalidated a handle.
    pub invalidations: usize,
}

/// A segment of a call that is outstanding, and its memory.
struct Region {
    segment: Segment,
    is_read: bool,
    xid: Xid,
    octets: Vec<u8>,
    /// Octets read or written so far.
    touched: usize,
}

struct Conductor {
    ends: [Connection; 2],
    memory: Vec<Region>,
    outstanding: Vec<(Direction, Message)>,
    calls: Vec<Call>,
    sends: usize,
    invalidations: usize,
}

/// The two ends of a connection between Linux and Linux: client, server, which grants `grant`.
pub fn connections([client, server]: Offers, grant: u32) -> [Connection; 2] {
    let client_end = Setup {
        side: Side::Client,
        own: client,
        peer: server,
        calls_max: CLIENT_CALLS,
        grant: CLIENT_GRANT,
    };
    let server_end =
        Setup { side: Side::Server, own: server, peer: client, calls_max: SERVER_CALLS, grant };
    [client_end, server_end].map(Connection::new)
}

/// The one conversation of a capture file.
pub fn capture(file: &[u8]) -> Capture {
    let mut all = conversations(&segments(file));
    assert_eq!(all.len(), 1);
    follow(all.remove(0), SERVER_GRANT)
}

/// Follows a conversation of Linux with Linux over RDMA, whose server grants `grant` credits.
pub fn follow(conversation: Conversation, grant: u32) -> Capture {
    let linux = |remote_invalidation| PrivateData {
        remote_invalidation,
        send: InlineSize::at_most(4096),
        receive: InlineSize::at_most(4096),
    };
    // Linux' server denies that it invalidates, and does it.
    let expected = [linux(true), linux(false)];
    let mut conductor = Conductor {
        ends: connections(expected, grant),
        memory: Vec::new(),
        outstanding: Vec::new(),
        calls: Vec::new(),
        sends: 0,
        invalidations: 0,
    };
    let (offers, wire) = walk(&conversation, &mut conductor);
    assert_eq!(offers, expected);
    assert!(
        conductor.outstanding.is_empty() && conductor.memory.is_empty(),
        "every call is answered"
    );
    let Conductor { calls, invalidations, .. } = conductor;
    Capture { conversation, offers, wire, calls, invalidations }
}

impl Visitor for Conductor {
    fn visit_fpdu(&mut self, _: Side, _: &Stream, _: &[u8]) {}

    fn visit_inbound(&mut self, from: Side, inbound: &Inbound<'_>, read: Option<ReadHeader>) {
        match inbound {
            Inbound::Send(segment) => self.handle_send(from, segment),
            Inbound::Write(segment) => {
                assert_eq!(from, Side::Server);
                self.touch(false, segment.stag, segment.to, segment.payload);
            }
            Inbound::ReadRequest => {
                assert_eq!(from, Side::Server);
                let ReadHeader { source_stag, source_to, len, .. } = read.unwrap();
                self.find(true, source_stag, source_to, len as usize);
            }
            Inbound::ReadResponse(segment) => {
                let ReadHeader { source_stag, source_to, .. } = read.unwrap();
                self.touch(
                    true,
                    source_stag,
                    source_to + u64::from(segment.offset),
                    segment.payload,
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Conductor {
    /// Finds the memory that an outstanding call offered. Access to any other memory panics.
    fn find(
        &mut self,
        is_read: bool,
        handle: u32,
        offset: u64,
        len: usize,
    ) -> (&mut Region, usize) {
        self.memory
            .iter_mut()
            .filter(|region| region.is_read == is_read && region.segment.handle == handle)
            .find_map(|region| {
                let at = usize::try_from(offset.checked_sub(region.segment.offset)?).ok()?;
                (at + len <= region.octets.len()).then_some((region, at))
            })
            .unwrap_or_else(|| panic!("nobody offered {len} octets at {offset:x} of {handle:x}"))
    }

    fn touch(&mut self, is_read: bool, handle: u32, offset: u64, payload: &[u8]) {
        let (region, at) = self.find(is_read, handle, offset, payload.len());
        region.octets[at..at + payload.len()].copy_from_slice(payload);
        region.touched += payload.len();
    }

    fn handle_send(&mut self, from: Side, segment: &SendSegment<'_>) {
        assert!(
            segment.offset == 0 && segment.last,
            "the captured link carries any message in one segment"
        );
        let octets = segment.payload.to_vec();
        let number = self.sends;
        self.sends += 1;
        let [client, server] = &mut self.ends;
        let (sender, receiver) =
            if from == Side::Client { (client, server) } else { (server, client) };
        assert_eq!(receiver.side(), other(from));
        assert!(octets.len() <= sender.send_threshold().octets());
        let mut lists = ChunkLists::new();
        let incoming = receiver.handle_message(&octets, &mut lists);
        let message = |header, payload_at| Message { octets, header, lists, payload_at, number };
        match incoming {
            Incoming::Call { header, direction, payload_at } => {
                assert_eq!(direction, from.calls());
                sender.take_credit().expect("Linux keeps to its credits");
                let message = message(header, payload_at);
                check_header(&sender.call_header(header.xid, header.body), &message);
                assert_eq!(segment.invalidate, None);
                self.handle_call(direction, message);
            }
            Incoming::Reply { header, direction, payload_at } => {
                assert_eq!(direction, from.serves());
                let message = message(header, payload_at);
                check_header(&sender.reply_header(header.xid, header.body), &message);
                receiver.give_credit();
                sender.handle_replied();
                self.handle_reply(direction, message, segment.invalidate);
            }
            other => panic!("{other:?}"),
        }
    }

    fn handle_call(&mut self, direction: Direction, call: Message) {
        let reads =
            call.lists.reads().flat_map(|chunk| chunk.segments).map(|segment| (segment, true));
        let others = call.lists.writes().chain(call.lists.reply()).flat_map(|chunk| chunk.segments);
        for (segment, is_read) in reads.chain(others.map(|segment| (segment, false))) {
            let octets = vec![0; segment.length as usize];
            self.memory.push(Region {
                segment: *segment,
                is_read,
                xid: call.header.xid,
                octets,
                touched: 0,
            });
        }
        self.outstanding.push((direction, call));
    }

    fn handle_reply(&mut self, direction: Direction, reply: Message, invalidated: Option<u32>) {
        let xid = reply.header.xid;
        let place = self
            .outstanding
            .iter()
            .position(|(way, call)| *way == direction && call.header.xid == xid)
            .expect("a call of this XID");
        let (_, call) = self.outstanding.remove(place);
        check_reply(&call.lists, &reply.header, &reply.lists, reply.inline().len()).unwrap();
        if let Some(handle) = invalidated {
            // Linux' server invalidates only where there is nothing to choose.
            assert!(call.lists.segments().iter().all(|segment| segment.handle == handle));
            self.invalidations += 1;
        }
        let mut regions: Vec<Region> = Vec::new();
        if direction == Direction::Forward {
            let (own, others) = self.memory.drain(..).partition(|region| region.xid == xid);
            (regions, self.memory) = (own, others);
        }
        let mut regions = regions.into_iter();
        let pulled = call
            .lists
            .reads()
            .map(|chunk| {
                let own = regions.by_ref().take(chunk.segments.len());
                own.flat_map(|region| {
                    assert_eq!(
                        region.touched,
                        region.octets.len(),
                        "a Read chunk is pulled once, and whole"
                    );
                    region.octets
                })
                .collect()
            })
            .collect();
        let mut pushed = |returned: &[Segment]| -> Vec<u8> {
            returned
                .iter()
                .flat_map(|segment| {
                    let region = regions.next().unwrap();
                    assert_eq!(
                        region.touched, segment.length as usize,
                        "what is returned was written once"
                    );
                    region.octets[..region.touched].to_vec()
                })
                .collect()
        };
        let written = reply.lists.writes().map(|chunk| pushed(chunk.segments)).collect();
        let long_reply =
            reply.lists.reply().map(|chunk| pushed(chunk.segments)).unwrap_or_default();
        self.calls.push(Call { direction, call, reply, pulled, written, long_reply });
    }
}

/// Checks that our own end would have sent the octets that Linux sent.
fn check_header(header: &Header, message: &Message) {
    let mut out = vec![0; v1::header_len(&message.lists)];
    assert_eq!(v1::emit(header, &message.lists, &mut out), Ok(message.payload_at));
    assert_eq!(out, message.octets[..message.payload_at]);
}
