//! One connection as its own end sees it: the send queue and its order.

use crate::net::{InFlight, SideId, SimRead};
use stag_pools::{Buf, Extent, RemoteKey};
use stag_verbs::{Cause, Memory, RemoteSpan, Status, Tag, Time};
use std::collections::VecDeque;

/// States are named by what they wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimState {
    /// We connect: the peer's answer.
    AwaitReply,
    /// The peer connects: our answer.
    AwaitAnswer,
    /// We accepted: leave to send.
    AwaitReady,
    /// Nothing: it works.
    Established,
    /// We ended it: its end.
    Closing,
    /// The poll that reports its end.
    Dead,
}

/// A posted work request.
#[derive(Debug)]
pub(crate) enum SimWork {
    Send(Buf, Option<RemoteKey>),
    Write(Extent, RemoteSpan),
    Read(SimRead),
    Invalidate(RemoteKey),
}

/// Progress of a work request.
#[derive(Debug)]
pub(crate) enum WorkStage {
    /// Not sent yet; its doorbell was rung or not.
    Posted(SimWork),
    /// The fabric has its memory.
    Flying { is_read: bool },
    /// A local invalidation, done when this is the oldest work and the time has come.
    Invalidating(RemoteKey, Time),
    /// Done; waits for the work before it.
    Done(Memory),
    /// It will not be done, and its memory is back.
    TakenBack(Memory),
}

#[derive(Debug)]
pub(crate) struct Wr {
    pub(crate) tag: Tag,
    pub(crate) stage: WorkStage,
}

#[derive(Debug)]
pub(crate) struct SimConn {
    pub(crate) place: SideId,
    pub(crate) state: SimState,
    pub(crate) queue: VecDeque<Wr>,
    /// The number of the oldest work request in `queue`.
    pub(crate) first_seq: u64,
    /// Work requests of `queue` whose doorbell was rung.
    pub(crate) rung: usize,
    /// Work requests of `queue` that are in flight or further.
    pub(crate) started: usize,
    /// Reads in flight.
    pub(crate) reads: usize,
    /// It is in the list of connections to ring.
    pub(crate) is_dirty: bool,
    pub(crate) private_data: Vec<u8>,
    /// Copies of messages that found no receive.
    pub(crate) parked: VecDeque<InFlight>,
    /// Time from which the acceptor may send although nothing has arrived.
    pub(crate) ready_at: Option<Time>,
    /// Time and cause of the connection's end, if it is set.
    pub(crate) die_at: Option<(Time, Cause)>,
}

impl SimConn {
    pub(crate) fn new(
        place: SideId,
        state: SimState,
        private_data: Vec<u8>,
        send_queue: usize,
    ) -> Self {
        Self {
            place,
            state,
            queue: VecDeque::with_capacity(send_queue),
            first_seq: 0,
            rung: 0,
            started: 0,
            reads: 0,
            is_dirty: false,
            private_data,
            parked: VecDeque::new(),
            ready_at: None,
            die_at: None,
        }
    }

    /// Returns the time of the next event that the connection causes by itself.
    pub(crate) fn due(&self) -> Option<Time> {
        let invalidation = match self.queue.front() {
            Some(Wr { stage: WorkStage::Invalidating(_, due), .. }) => Some(*due),
            _ => None,
        };
        let death = self.die_at.map(|(at, _)| at);
        [invalidation, death, self.ready_at].into_iter().flatten().min()
    }

    fn wr_mut(&mut self, seq: u64) -> &mut Wr {
        let index = seq.checked_sub(self.first_seq).and_then(|index| usize::try_from(index).ok());
        index
            .and_then(|index| self.queue.get_mut(index))
            .expect("work is pending until it completes")
    }

    /// Work request `seq` is done with `memory`, or will never be.
    pub(crate) fn finish(&mut self, seq: u64, stage: WorkStage) {
        let wr = self.wr_mut(seq);
        debug_assert!(
            matches!(wr.stage, WorkStage::Flying { .. }),
            "the fabric finishes what it has"
        );
        if let WorkStage::Flying { is_read: true } = std::mem::replace(&mut wr.stage, stage) {
            self.reads -= 1;
        }
    }

    /// The oldest work request, with its completion, leaves the queue.
    pub(crate) fn pop(&mut self) -> Option<Wr> {
        let wr = self.queue.pop_front()?;
        self.first_seq += 1;
        self.rung = self.rung.saturating_sub(1);
        self.started = self.started.saturating_sub(1);
        Some(wr)
    }

    /// Returns true if our own invalidation of `key` is pending.
    pub(crate) fn is_invalidating(&self, key: RemoteKey) -> bool {
        self.queue.iter().any(|wr| match wr.stage {
            WorkStage::Posted(SimWork::Invalidate(pending))
            | WorkStage::Invalidating(pending, _) => pending == key,
            _ => false,
        })
    }

    /// Ends the work request at `stage` together with its connection; returns true if the work was
    /// done, and the memory of the work request.
    pub(crate) fn flush(stage: WorkStage) -> (bool, Memory) {
        match stage {
            WorkStage::Done(memory) => (true, memory),
            WorkStage::TakenBack(memory) => (false, memory),
            WorkStage::Posted(SimWork::Send(buf, _)) => (false, Memory::Buf(buf)),
            WorkStage::Posted(SimWork::Read(read)) => (false, Memory::Buf(read.sink)),
            WorkStage::Posted(SimWork::Write(..)) => (false, Memory::Shared),
            WorkStage::Posted(SimWork::Invalidate(_)) | WorkStage::Invalidating(..) => {
                (false, Memory::Bound)
            }
            WorkStage::Flying { .. } => {
                unreachable!("memory is taken back before the queue is flushed")
            }
        }
    }
}

/// The status of the first work request that a dying connection leaves undone; later ones are
/// flushed.
pub(crate) fn first_undone(cause: Cause) -> Status {
    match cause {
        Cause::Fabric(_) => Status::Lost,
        _ => Status::Flushed,
    }
}
