//! The send queue of one connection: work requests with the memory they hold (RFC 5040 §5.5).

use crate::{Event, Memory, Qp, RemoteSpan, Status, Tag};
use stag_pools::{Buf, Extent, Fenced, RemoteKey};

use std::collections::VecDeque;

/// Operation of a work request.
#[derive(Debug)]
pub enum Op {
    /// Send, or Send With Invalidate.
    Send {
        /// Its octets.
        message: Buf,
        /// The peer's key that it invalidates.
        invalidate: Option<RemoteKey>,
    },
    /// RDMA Write.
    Write {
        /// Its octets.
        source: Extent,
        /// Target of the octets; as long as the source.
        to: RemoteSpan,
    },
    /// RDMA Reads into one sink.
    Read(Read),
    /// Local invalidation.
    Invalidate {
        /// Our own key.
        key: RemoteKey,
    },
}

/// One Read work request: an RDMA Read for each of its spans.
#[derive(Debug)]
pub struct Read {
    /// Buffer for the answers.
    pub sink: Buf,
    /// Offset in the sink for the answer to the next Read Request.
    pub ask_at: usize,
    /// Offset in the sink for the next octet of an answer.
    pub fill_at: usize,
    /// Spans not requested yet. When this Read is the next to begin, they are the first of the
    /// queued spans.
    pub unasked: usize,
    /// Spans with an incomplete answer.
    pub unanswered: usize,
}

/// A work request whose completion is not reported yet.
#[derive(Debug)]
pub struct Work {
    tag: Tag,
    op: Op,
    done: Option<(Status, Option<Memory>)>,
}

/// Work requests in posting order, each identified by its sequence number.
// In this order, the fields that every message needs share one cache line.
#[derive(Debug)]
#[repr(C)]
pub struct SendQueue {
    /// Sequence number of the oldest work request in the queue.
    first: u64,
    /// Sequence number of the next one to begin.
    begun: u64,
    /// Sequence number of the first one whose doorbell has not been rung.
    rung: u64,
    /// Its memory is lent by the shard while there are any: most connections are idle.
    works: VecDeque<Work>,
    capacity: usize,
    /// Spans of posted Reads that are not requested yet, in order. Grows to the maximum that was
    /// ever pending.
    spans: VecDeque<RemoteSpan>,
}

impl SendQueue {
    /// A queue for at most `capacity` work requests, without memory for any.
    pub const fn new(capacity: usize) -> Self {
        Self {
            works: VecDeque::new(),
            capacity,
            first: 0,
            begun: 0,
            rung: 0,
            spans: VecDeque::new(),
        }
    }

    /// Takes memory for work requests from `spare`, for as many as may be pending.
    pub fn borrow(&mut self, spare: &mut Vec<VecDeque<Work>>) {
        if self.works.capacity() == 0 {
            let works = spare.pop().unwrap_or_else(|| VecDeque::with_capacity(self.capacity));
            // There was none, so there is nothing to drop.
            std::mem::forget(std::mem::replace(&mut self.works, works));
        }
    }

    /// Returns that memory, if nothing is pending.
    pub fn give_back(&mut self, spare: &mut Vec<VecDeque<Work>>) {
        if self.works.is_empty() && self.works.capacity() >= self.capacity {
            self.works.clear(); // back to its first places, which are in the cache
            spare.push(std::mem::take(&mut self.works));
        }
    }

    /// Work requests that can still be posted.
    pub fn room(&self) -> usize {
        self.capacity - self.works.len()
    }

    /// Returns true if no work is pending, so that work completed at once is in order.
    pub fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    /// Adds a work request; a Read reads the spans `from`.
    ///
    /// # Panics
    /// If there is no [`room`](Self::room): the caller has to check.
    pub fn post(&mut self, tag: Tag, op: Op, from: &[RemoteSpan]) {
        assert!(self.room() > 0, "a full send queue refuses work before it is moved here");
        if !from.is_empty() {
            self.spans.extend(from);
        }
        self.works.push_back(Work { tag, op, done: None });
    }

    /// Adds a work request that has begun already, like all before it; returns its sequence number.
    ///
    /// # Panics
    /// If there is no [`room`](Self::room), or if other work waits: the caller has to check.
    pub fn post_begun(&mut self, tag: Tag, op: Op) -> u64 {
        assert!(self.has_begun_all(), "work begins in order");
        self.post(tag, op, &[]);
        self.ring();
        let seq = self.begun;
        self.begin();
        seq
    }

    /// Lets all posted work begin.
    pub fn ring(&mut self) {
        self.rung = self.first + self.works.len() as u64;
    }

    /// The next work request to begin, if its doorbell has been rung.
    pub fn next(&self) -> Option<(u64, &Op)> {
        if self.begun >= self.rung {
            return None;
        }
        // RFC 5040 §5.1, §5.2.1, §5.3, §5.5 [5040-20]: writes, Read Requests and Sends leave in
        // posting order
        // RFC 5041 §5.3 [5041-28]: messages leave in posting order
        self.op(self.begun).map(|op| (self.begun, op))
    }

    /// The Writes from the next one on that one tagged message can carry: under one key, the target
    /// of each begins where the previous one ends. Returns their number and their octets: at most
    /// `most`, unless the first alone has more. Only work whose doorbell has been rung counts. An
    /// empty Write is sent alone, and so is one whose target wraps.
    pub fn contiguous_writes(&self, most: u32) -> (u64, u32) {
        let Some((_, Op::Write { to: first, .. })) = self.next() else { return (0, 0) };
        let end_of = |to: &RemoteSpan| to.offset.checked_add(u64::from(to.len));
        let (mut writes, mut len, mut end) =
            (1, first.len, end_of(first).filter(|_| first.len > 0));
        let rung = usize::try_from(self.rung - self.begun).unwrap_or(usize::MAX);
        let begun = self.place(self.begun);
        for work in self.works.iter().skip(begun).take(rung).skip(1) {
            let Op::Write { to, .. } = &work.op else { break };
            let joined = len.checked_add(to.len).filter(|joined| *joined <= most);
            let (Some(joined), Some(to_end)) = (joined, end_of(to)) else { break };
            if to.key != first.key || Some(to.offset) != end || to.len == 0 {
                break;
            }
            (writes, len, end) = (writes + 1, joined, Some(to_end));
        }
        (writes, len)
    }

    /// Returns true if all posted work has begun, so that work that needs no entry here may be sent
    /// at once.
    pub fn has_begun_all(&self) -> bool {
        self.begun == self.first + self.works.len() as u64
    }

    /// The span of the next Read Request.
    pub fn next_span(&self) -> Option<RemoteSpan> {
        self.spans.front().copied()
    }

    /// Marks the next work request as begun.
    pub fn begin(&mut self) {
        debug_assert!(self.begun < self.rung, "only rung work begins");
        self.begun += 1;
    }

    /// Marks one Read Request of the next work request as begun; the last one begins the work
    /// request.
    ///
    /// # Panics
    /// If the next work request is not a Read.
    pub fn begin_read(&mut self) {
        let span = self.spans.pop_front();
        if self.spans.is_empty() {
            self.spans.clear(); // back to its first places, which are in the cache
        }
        let (seq, len) = (self.begun, span.map_or(0, |span| span.len as usize));
        let Some(Op::Read(read)) = self.op_mut(seq) else { unreachable!("a Read began") };
        read.ask_at += len;
        read.unasked -= 1;
        if read.unasked == 0 {
            self.begin();
        }
    }

    fn place(&self, seq: u64) -> usize {
        seq.checked_sub(self.first)
            .and_then(|place| usize::try_from(place).ok())
            .unwrap_or(usize::MAX)
    }

    /// Returns the operation of the work request `seq` until the work request is reported.
    pub fn op(&self, seq: u64) -> Option<&Op> {
        self.works.get(self.place(seq)).map(|work| &work.op)
    }

    /// The same, mutably.
    pub fn op_mut(&mut self, seq: u64) -> Option<&mut Op> {
        let place = self.place(seq);
        self.works.get_mut(place).map(|work| &mut work.op)
    }

    /// Returns true if our own invalidation of `key` is posted and not completed.
    pub fn is_invalidating(&self, key: RemoteKey) -> bool {
        let of_key = |work: &Work| matches!(work.op, Op::Invalidate { key: of } if of == key);
        self.works.range(self.place(self.begun)..).any(of_key)
    }

    /// The octets that the Send or Write `seq` transmits.
    pub fn payload(&self, seq: u64) -> &[u8] {
        match self.op(seq) {
            Some(Op::Send { message, .. }) => message,
            Some(Op::Write { source, .. }) => source,
            _ => &[],
        }
    }

    /// Completes the work request `seq`. It is reported, with the memory that it holds, once all
    /// earlier ones are completed.
    ///
    /// # Panics
    /// If it is not pending: work completes once.
    pub fn complete(&mut self, seq: u64, status: Status, memory: Option<Memory>) {
        let place = self.place(seq);
        let work = self.works.get_mut(place).expect("work ends once");
        debug_assert!(work.done.is_none(), "work ends once");
        work.done = Some((status, memory));
    }

    /// The next completion in order.
    pub fn poll(&mut self, qp: Qp) -> Option<Event> {
        // RFC 5040 §5.5 [5040-46]: operations complete in posting order
        self.works.front()?.done.as_ref()?;
        self.pop(qp, Status::Flushed)
    }

    fn pop(&mut self, qp: Qp, pending: Status) -> Option<Event> {
        let work = self.works.pop_front()?;
        self.first += 1;
        let (status, memory) = work.done.unwrap_or((pending, None));
        let memory = memory.unwrap_or(match work.op {
            Op::Send { message, .. } => Memory::Buf(message),
            Op::Write { .. } => Memory::Shared,
            Op::Read(read) => Memory::Buf(read.sink),
            Op::Invalidate { .. } => Memory::Bound,
        });
        Some(Event::Completed { qp, tag: work.tag, status, memory })
    }

    /// Ends all work: requests completed before the first failure as they were, the failed one with
    /// the status that `marked` has for it, and all later ones flushed. `unbound` gets the windows
    /// that were invalidated after the failure.
    pub fn flush(
        &mut self,
        qp: Qp,
        marked: Option<(u64, Status)>,
        mut completed: impl FnMut(Event),
    ) -> VecDeque<Fenced> {
        let mut unbound = VecDeque::new();
        let mut has_failed = false;
        loop {
            let pending = match marked {
                Some((seq, status)) if seq == self.first => status,
                _ => Status::Flushed,
            };
            let Some(event) = self.pop(qp, pending) else { return unbound };
            completed(match event {
                Event::Completed { tag, status, memory, .. }
                    if has_failed && status == Status::Success =>
                {
                    let memory = match memory {
                        Memory::Fenced(fenced) => {
                            unbound.push_back(fenced);
                            Memory::Bound
                        }
                        memory => memory,
                    };
                    Event::Completed { qp, tag, status: Status::Flushed, memory }
                }
                event => {
                    has_failed |= matches!(
                        &event,
                        Event::Completed { status, .. } if *status != Status::Success
                    );
                    event
                }
            });
        }
    }

    /// Sequence number of the oldest work request that has not ended.
    pub fn oldest_pending(&self) -> Option<u64> {
        let place = self.works.iter().position(|work| work.done.is_none())?;
        Some(self.first + place as u64)
    }
}
