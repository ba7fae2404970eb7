//! The messages that are malformed.

use std::collections::BTreeSet;

use stag_protocol::nfs::v3;
use stag_protocol::rpcrdma::chunk::{ReadChunk, Segment};
use stag_protocol::rpcrdma::{Body, ChunkLists, Connection, Direction, Header, Xid, v1};

use crate::calls::{Call, Capture, Message, capture};
use crate::receive::{Called, Context, Scratch};
use crate::understood::{first_chunk, name, receiver, shape, understand_call};
use crate::{NFS3, NFS41};

pub const SAMPLES: usize = 64;

/// A message, and what its receiver knows.
pub struct Sample {
    pub name: String,
    pub message: Message,
    /// Capture that the sample is from: NFS 3 or NFS 4.1.
    pub capture: usize,
    /// Its receiver, and the other end.
    pub ends: [Connection; 2],
    direction: Direction,
    xid: Xid,
    called: Called,
    offered: ChunkLists,
    /// Content of the first chunk: as many octets as were seen, then zeros.
    pub memory: Vec<u8>,
    pub content_len: usize,
}

impl Sample {
    fn new(capture: (usize, &Capture), call: &Call, called: Called, is_call: bool) -> Self {
        let message = if is_call { &call.call } else { &call.reply };
        let contents = if is_call {
            [&call.pulled[..], &[]]
        } else {
            [&call.written[..], std::slice::from_ref(&call.long_reply)]
        };
        let (_, detail) = kind_of(call, called, is_call);
        let kind = if is_call { "call" } else { "reply" };
        Self {
            name: format!("{} {kind} {}, {detail}", name(called), shape(message)),
            message: message.clone(),
            capture: capture.0,
            ends: [is_call, !is_call].map(|is_call| receiver(capture.1, call.direction, is_call)),
            direction: call.direction,
            xid: call.call.header.xid,
            called,
            offered: call.call.lists.clone(),
            memory: first_chunk(&contents),
            content_len: contents
                .iter()
                .flat_map(|chunks| chunks.iter())
                .map(Vec::len)
                .find(|len| *len > 0)
                .unwrap_or(0),
        }
    }

    pub fn is_v3(&self) -> bool {
        (self.called.0, self.called.1) == (v3::PROGRAM, v3::VERSION)
    }

    pub fn context(&self) -> Context<'_> {
        Context {
            direction: self.direction,
            xid: self.xid,
            called: self.called,
            offered: &self.offered,
            memory: &self.memory,
        }
    }

    /// Writes the message as it would be with `len` octets in its chunk; says how long it is.
    pub fn with_content(&self, len: usize, lists: &mut ChunkLists, out: &mut [u8]) -> usize {
        let Header { body, .. } = self.message.header;
        lists.clone_from(&self.message.lists);
        let fits = match (body, self.offered.writes().next(), self.offered.reply()) {
            _ if self.message.lists.reads().next().is_some() => {
                let ReadChunk { position, segments } = self.message.lists.reads().next().unwrap();
                lists.clear();
                let [Segment { handle, offset, .. }] = *segments else { panic!() };
                lists.push_read(position, Segment { handle, length: len as u32, offset }).is_ok()
            }
            (Body::NoMsg, _, Some(offered)) => lists.fill_reply(offered, len as u64),
            (_, Some(offered), _) => lists.fill_write(0, offered, len as u64),
            _ => panic!("there is a chunk"),
        };
        assert!(fits);
        let header_len = v1::emit(&self.message.header, lists, out).unwrap();
        let inline = self.message.inline();
        out[header_len..header_len + inline.len()].copy_from_slice(inline);
        header_len + inline.len()
    }
}

/// Key that distinguishes kinds of messages: program and procedure, direction and shape, and the
/// status of NFS 3 or the length of the rest.
fn kind_of(call: &Call, called: Called, is_call: bool) -> (String, usize) {
    let message = if is_call { &call.call } else { &call.reply };
    let payload =
        if message.header.body == Body::NoMsg { &call.long_reply[..] } else { message.inline() };
    let detail = match (called.1, is_call) {
        (3, true) => 0,
        (3, false) => payload
            .get(24..28)
            .map_or(0, |word| u32::from_be_bytes(word.try_into().unwrap()) as usize),
        _ => payload.len(),
    };
    (format!("{called:?} {is_call} {}", shape(message)), detail)
}

/// [`SAMPLES`] messages: one of every kind of NFS 3, one of every shape of NFS 4.1, and then those
/// of other lengths.
pub fn samples() -> Vec<Sample> {
    let captures = [capture(NFS3), capture(NFS41)];
    let mut scratch = Scratch::new();
    let mut all = Vec::new();
    for (index, capture) in captures.iter().enumerate() {
        for call in &capture.calls {
            let called = understand_call(capture, call, &mut scratch);
            all.extend(
                [true, false]
                    .map(|is_call| (index, call, called, is_call, kind_of(call, called, is_call))),
            );
        }
    }
    let mut shapes = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    let mut chosen = Vec::new();
    for detailed in [false, true] {
        for (index, call, called, is_call, kind) in &all {
            // The details of NFS 3 come first.
            let is_new = if detailed || *index == 0 { true } else { shapes.insert(kind.0.clone()) };
            if is_new && chosen.len() < SAMPLES && kinds.insert(kind.clone()) {
                chosen.push(Sample::new((*index, &captures[*index]), call, *called, *is_call));
            }
        }
    }
    assert_eq!(chosen.len(), SAMPLES);
    let octets: BTreeSet<_> = chosen.iter().map(|sample| &sample.message.octets).collect();
    assert_eq!(octets.len(), SAMPLES, "no two are the same");
    chosen
}
