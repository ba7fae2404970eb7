//! Objects of a device, as it knows them.

use super::{Told, at, data::Request};
use crate::sys::{
    ibv_access_flags as access, ibv_event_type as event, ibv_qp, ibv_qp_state as state, ibv_wc,
    ibv_wc_status,
};
use libc::c_int;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Memory that a key opens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) base: usize,
    pub(super) len: usize,
    pub(super) access: u32,
}

/// A region, by its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) domain: usize,
    pub(super) opened: Opened,
}

/// A window, by the index of its keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowState {
    pub(super) key: u32,
    /// While it is bound: the queue pair that may use it, the region, and what it opens.
    pub(super) bound: Option<(u32, u32, Opened)>,
}

pub(super) struct CompletionQueue {
    pub(super) channel: usize,
    pub(super) capacity: usize,
    pub(super) waiting: VecDeque<ibv_wc>,
    pub(super) is_armed: bool,
}

/// A receive that was posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub(super) wr_id: u64,
    pub(super) base: usize,
    pub(super) len: usize,
}

#[derive(Debug)]
pub(super) struct ReceiveQueue {
    pub(super) capacity: usize,
    pub(super) waiting: VecDeque<Receive>,
}

pub(super) struct QueuePairState {
    pub(super) raw: *mut ibv_qp,
    pub(super) state: u32,
    pub(super) domain: usize,
    pub(super) context: usize,
    pub(super) completions: usize,
    /// The shared queue of its receives; 0: it has some of its own.
    pub(super) receives: usize,
    pub(super) own: ReceiveQueue,
    pub(super) depth: usize,
    pub(super) sends: VecDeque<Request>,
    /// The number of its peer.
    pub(super) peer: Option<u32>,
    /// Traffic class, timeout and retries.
    pub(super) link: (u8, u8, u8),
}

/// All of them, by their addresses, queue pairs by their numbers, and windows by the index of
/// their keys.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) devices: Vec<usize>,
    pub(super) contexts: HashMap<usize, Told<(c_int, usize)>>,
    /// Contexts whose device the kernel took from them.
    pub(super) dead: HashSet<usize>,
    /// The device of each of them.
    pub(super) device_of: HashMap<usize, usize>,
    pub(super) channels: HashMap<usize, Told<usize>>,
    pub(super) domains: HashMap<usize, usize>,
    pub(super) queues: HashMap<usize, CompletionQueue>,
    pub(super) receives: HashMap<usize, ReceiveQueue>,
    pub(super) regions: HashMap<u32, Region>,
    pub(super) windows: HashMap<u32, WindowState>,
    pub(super) pairs: BTreeMap<u32, QueuePairState>,
    pub(super) keys: u32,
    pub(super) numbers: u32,
    /// Messages that found no receive.
    pub(super) missed: u64,
}

impl Objects {
    /// The device that a context is open on.
    pub(super) fn device_of(&self, context: usize) -> usize {
        self.device_of[&context]
    }

    pub(super) fn next_key(&mut self) -> u32 {
        self.keys += 1;
        self.keys << 8 | 1
    }

    /// Adds a completion to the queue at this address.
    pub(super) fn complete(&mut self, queue: usize, completion: ibv_wc) {
        let Some(found) = self.queues.get_mut(&queue) else { return };
        assert!(found.waiting.len() < found.capacity, "a completion queue overflows");
        found.waiting.push_back(completion);
        let channel = found.channel;
        if std::mem::take(&mut found.is_armed) {
            self.channels.get_mut(&channel).unwrap().push(queue);
        }
    }

    /// Reports an event of a queue pair.
    pub(super) fn tell(&mut self, number: u32, kind: c_int) {
        let Some(pair) = self.pairs.get(&number) else { return };
        let (context, raw) = (pair.context, at(pair.raw));
        self.contexts.get_mut(&context).unwrap().push((kind, raw));
    }

    /// Stops a queue pair: all that is posted is flushed.
    pub(super) fn stop(&mut self, number: u32) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        if std::mem::replace(&mut pair.state, state::IBV_QPS_ERR) == state::IBV_QPS_ERR {
            return;
        }
        let (queue, sends) = (pair.completions, std::mem::take(&mut pair.sends));
        let is_shared = pair.receives != 0;
        for request in sends {
            self.complete(queue, flushed(request.wr_id, number));
        }
        self.flush_receives(number);
        if is_shared {
            self.tell(number, event::IBV_EVENT_QP_LAST_WQE_REACHED);
        }
    }

    /// Gives back the receives that a queue pair has of its own.
    pub(super) fn flush_receives(&mut self, number: u32) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        let (queue, own) = (pair.completions, std::mem::take(&mut pair.own.waiting));
        for receive in own {
            self.complete(queue, flushed(receive.wr_id, number));
        }
    }
}

fn flushed(wr_id: u64, number: u32) -> ibv_wc {
    completed(wr_id, ibv_wc_status::IBV_WC_WR_FLUSH_ERR, number)
}

/// A completion with this status.
pub(super) fn completed(wr_id: u64, status: u32, number: u32) -> ibv_wc {
    let mut completion = ibv_wc::EMPTY;
    (completion.wr_id, completion.status, completion.qp_num) = (wr_id, status, number);
    completion
}

/// The rights that a peer needs.
pub(super) const fn right(is_write: bool) -> u32 {
    if is_write { access::IBV_ACCESS_REMOTE_WRITE } else { access::IBV_ACCESS_REMOTE_READ }
}
