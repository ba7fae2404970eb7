//! The end made by hand: it sends what an input says and answers Reads and Writes.

use super::{LIMITS, MESSAGE_MAX, OWN, RECEIVES, WINDOW_MAX};
use crate::targets::STEPS_PER_MESSAGE;
use stag_engine::Time;
use stag_pools::steps;
use stag_pools::{Access, Buf, Class, Pool, RemoteKey};
use stag_protocol::rpcrdma::{ChunkLists, Segment};
use stag_sim::{Fabric, Sim};
use stag_verbs::{Cause, Event, Memory as Held, Provider, Qp, Tag};
use std::collections::VecDeque;

/// The end made by hand.
pub(super) struct Raw {
    pub(super) end: Sim,
    pub(super) pool: Pool,
    pub(super) qp: Option<Qp>,
    pub(super) received: VecDeque<Vec<u8>>,
    /// Windows that were bound and have not ended.
    pub(super) windows: usize,
    pub(super) ended: Option<Cause>,
}

impl Raw {
    pub(super) fn new(fabric: &Fabric) -> Self {
        let mut end = fabric.end("raw", LIMITS);
        let classes = [
            Class { slot_len: MESSAGE_MAX, count: 192 },
            Class { slot_len: WINDOW_MAX as usize, count: 192 },
        ];
        let pool = Pool::new(&classes).expect("a few MiB");
        for _ in 0..RECEIVES {
            let receive = pool.take(MESSAGE_MAX).expect("there are more");
            end.post_receive(receive).expect("there is room");
        }
        Self { end, pool, qp: None, received: VecDeque::new(), windows: 0, ended: None }
    }

    pub(super) fn poll(&mut self, now: Time, private_data: &[u8]) -> bool {
        let mut worked = false;
        while let Some(event) = self.end.poll(now) {
            worked = true;
            match event {
                Event::ConnectRequest { qp } => {
                    self.qp = Some(qp);
                    let accepted = self.end.accept(qp, private_data);
                    assert_eq!(accepted, Ok(()), "the request was not answered yet");
                }
                Event::Received { buf, invalidated, .. } => {
                    self.windows -= usize::from(invalidated.is_some());
                    self.received.push_back(buf.to_vec());
                    self.end.post_receive(buf).expect("it came from there");
                }
                Event::Completed { memory: Held::Fenced(_), .. } | Event::Unbound { .. } => {
                    self.windows -= 1
                }
                Event::Established { .. } | Event::Completed { .. } => {}
                Event::Disconnected { cause, .. } => {
                    (self.ended, self.qp) = (Some(cause), None);
                    assert_eq!(self.windows, 0, "every window ends with its connection");
                }
            }
        }
        self.end.ring();
        worked
    }

    pub(super) fn buf(&self, octets: &[u8]) -> Option<Buf> {
        let mut buf = self.pool.take(octets.len().max(1))?;
        buf.append(octets).ok()?;
        Some(buf)
    }

    /// Sends a message, for which the gateway may take [`STEPS_PER_MESSAGE`].
    pub(super) fn send(&mut self, octets: &[u8], invalidate: Option<RemoteKey>) {
        steps::limit(Some(STEPS_PER_MESSAGE));
        let (Some(qp), Some(message)) =
            (self.qp, self.buf(&octets[..octets.len().min(MESSAGE_MAX)]))
        else {
            return;
        };
        // Refused when too much is outstanding.
        let _ = self.end.post_send(qp, Tag(0), message, invalidate);
        self.end.ring();
    }

    pub(super) fn window(&mut self, octets: &[u8], access: Access) -> Option<Segment> {
        let (qp, buf) = (self.qp?, self.buf(octets)?);
        let window = self.end.bind(qp, buf, 0..octets.len(), access).ok()?;
        self.windows += 1;
        Some(Segment { handle: window.key.0, length: window.len, offset: window.offset })
    }

    /// The lists with memory of this end where they ask for it; Read chunks hold `content`.
    pub(super) fn dress(&mut self, lists: &ChunkLists, mut content: &[u8]) -> ChunkLists {
        let mut dressed = ChunkLists::new();
        let mut dress = |segment: &Segment, access| {
            if segment.handle >> 24 != OWN {
                return *segment;
            }
            let mut octets = vec![0x5a; segment.length.min(WINDOW_MAX) as usize];
            if access == Access::RemoteRead {
                let (front, rest) = content.split_at(octets.len().min(content.len()));
                octets[..front.len()].copy_from_slice(front);
                content = rest;
            }
            self.window(&octets, access).unwrap_or(*segment)
        };
        for chunk in lists.reads() {
            for segment in chunk.segments {
                let segment = dress(segment, Access::RemoteRead);
                dressed.push_read(chunk.position, segment).expect("there was room before");
            }
        }
        for chunk in lists.writes() {
            dressed.begin_write().expect("there was room before");
            for segment in chunk.segments {
                dressed
                    .push_write(dress(segment, Access::RemoteWrite))
                    .expect("there was room before");
            }
        }
        if let Some(chunk) = lists.reply() {
            dressed.begin_reply();
            for segment in chunk.segments {
                dressed
                    .push_reply(dress(segment, Access::RemoteWrite))
                    .expect("there was room before");
            }
        }
        dressed
    }
}
