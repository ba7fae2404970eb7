//! Output records of TCP connections, as parts for gathering writes.

use super::{
    GATHER, OUTPUT_MAX,
    table::{Stream, Streams},
};
use crate::{
    call::{Answer, AnswerItem},
    stats::StreamStats,
};
use stag_pools::{Buf, Extent, table::Key};
use stag_protocol::{
    rpc::record,
    xdr::{pad, padded},
};
use std::io::{self, IoSlice, Write};

#[derive(Debug)]
pub(crate) struct Part {
    octets: Octets,
    /// Octets of the buffer that is freed with it.
    memory: usize,
    /// The last part of a reply: with it a call of the peer ends.
    ends_call: bool,
}

#[derive(Debug)]
enum Octets {
    Message(Buf),
    Item(Extent),
}

impl Stream {
    fn push(&mut self, octets: Octets, memory: usize) {
        let part = Part { octets, memory, ends_call: false };
        self.output_octets += part.octets().len();
        self.output_memory += memory;
        self.output.push_back(part);
    }
}

impl Part {
    pub(crate) fn octets(&self) -> &[u8] {
        match &self.octets {
            Octets::Message(buf) => buf,
            Octets::Item(extent) => extent,
        }
    }
}

impl Streams {
    /// Queues a reply.
    pub(crate) fn answer(&mut self, key: Key, answer: Answer, zeros: &Extent) {
        let items = answer.item.iter().flat_map(AnswerItem::iter);
        self.queue_record(key, answer.message, items, zeros);
        if let Some(stream) = self.connections.get_mut(key) {
            if let Some(part) = stream.output.back_mut() {
                part.ends_call = true;
            }
            self.stats.replies += 1;
        }
    }

    /// Queues a record: a call or a reply, with its items and their padding at their positions.
    pub(crate) fn queue_record<'a, Item: IntoIterator<Item = &'a Extent> + Copy>(
        &mut self,
        key: Key,
        mut message: Buf,
        items: impl Iterator<Item = (usize, Item)> + Clone,
        zeros: &Extent,
    ) {
        let Some(stream) = self.connections.get_mut(key) else { return };
        let before = stream.output.len();
        let len_of = |octets: Item| octets.into_iter().map(|part| part.len()).sum::<usize>();
        let items_len: usize = items.clone().map(|(_, octets)| padded(len_of(octets))).sum();
        let len = u32::try_from(message.len() + items_len).ok();
        let Some(fragment) = len.and_then(|len| record::Fragment::new(len, true)) else {
            stream.dead = true;
            return self.queue(key);
        };
        let room =
            message.prepend(record::Fragment::LEN).expect("a message begins behind its head room");
        room.copy_from_slice(&fragment.emit());
        if items_len == 0 {
            let memory = message.capacity();
            stream.push(Octets::Message(message), memory);
        } else {
            let whole = message.freeze();
            let (mut at, memory) = (0, whole.capacity());
            for (position, octets) in items {
                let position = position + record::Fragment::LEN;
                stream.push(Octets::Item(whole.slice(at..position)), 0);
                for part in octets {
                    stream.push(Octets::Item(part.clone()), part.capacity());
                }
                stream.push(Octets::Item(zeros.slice(0..pad(len_of(octets)))), 0);
                at = position;
            }
            stream.push(Octets::Item(whole.slice(at..whole.len())), memory);
        }
        self.parts += stream.output.len() - before;
        self.queue(key);
    }

    /// Queues a call of ours.
    pub(crate) fn send_call(
        &mut self,
        key: Key,
        message: Buf,
        item: Option<(usize, &Extent)>,
        zeros: &Extent,
    ) {
        if let Some(stream) = self.connections.get_mut(key) {
            stream.own_calls += 1;
        }
        let items = item.map(|(position, octets)| (position, std::slice::from_ref(octets)));
        self.queue_record(key, message, items.into_iter(), zeros);
    }

    /// Waiting parts that one connection may have before no more of its calls are taken: all
    /// connections together must not hold all message slots.
    pub(crate) fn fair_output(&self) -> usize {
        if self.parts < self.crowd {
            OUTPUT_MAX
        } else {
            self.crowd.div_ceil(self.connections.capacity().max(1)).max(1)
        }
    }

    /// Sends the output of one connection, as far as its socket accepts it. Returns false if the
    /// connection is broken.
    pub(crate) fn flush(&mut self, key: Key) -> bool {
        let Some(stream) = self.connections.get_mut(key) else { return false };
        let before = stream.output.len();
        let works = Self::send(stream, &mut self.stats);
        self.parts -= before - stream.output.len();
        works
    }

    fn send(stream: &mut Stream, stats: &mut StreamStats) -> bool {
        if stream.tls.is_some() {
            return Self::send_secured(stream, stats);
        }
        while !stream.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); GATHER];
            let mut skip = stream.sent;
            for (slice, part) in slices.iter_mut().zip(&stream.output) {
                *slice = IoSlice::new(part.octets().get(skip..).unwrap_or_default());
                skip = 0;
            }
            let count = stream.output.len().min(GATHER);
            stats.sends += 1;
            let sent = match slices.get(..count).unwrap_or_default() {
                // A single piece needs no list.
                [only] => (&stream.socket).write(only),
                slices => (&stream.socket).write_vectored(slices),
            };
            match sent {
                Ok(sent) => {
                    stats.sent += sent as u64;
                    stream.note_sent(sent);
                    Self::forget(stream, sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Drops octets that were sent.
    pub(crate) fn forget(stream: &mut Stream, sent: usize) {
        stream.sent += sent;
        while let Some(first) = stream.output.front() {
            let len = first.octets().len();
            if stream.sent < len {
                break;
            }
            stream.sent -= len;
            stream.output_octets -= len;
            let part = stream.output.pop_front();
            stream.output_memory -= part.as_ref().map_or(0, |part| part.memory);
            let ends_call = part.is_some_and(|part| part.ends_call);
            debug_assert!(!ends_call || stream.calls > 0, "a reply ends a call");
            stream.calls = stream.calls.saturating_sub(ends_call.into());
        }
        debug_assert!(
            !stream.output.is_empty() || (stream.output_octets, stream.output_memory) == (0, 0),
            "no octets wait without a part"
        );
    }
}
