//! Work that the tables ask their caller to do: callbacks to send, and records to write.

use super::{ClientKey, LockNotice, StateTables};
use std::collections::VecDeque;

/// Work for the caller. Everything in it is owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateWork {
    /// Send CB_NOTIFY_LOCK. One that is lost costs the client a wait, and no more.
    NotifyLock(LockNotice),
    /// The client's lease expired and nothing is worth keeping, or it was kept long enough: forget
    /// its record, then [release](StateTables::release_client) it.
    Expired(ClientKey),
    /// The grace period is over: record it, then [tell so](StateTables::handle_grace_recorded).
    /// Nobody gets new state before.
    EndGrace,
}

/// Work in the order in which it came up. Callbacks that may be lost are, when many wait.
#[derive(Debug, Default)]
pub(super) struct WorkQueue(VecDeque<StateWork>);

/// Notices that wait at most.
const NOTICES_MAX: usize = 4_096;

impl WorkQueue {
    pub fn push(&mut self, work: StateWork) {
        if !matches!(work, StateWork::NotifyLock(_)) || self.0.len() < NOTICES_MAX {
            self.0.push_back(work);
        }
    }
}

impl StateTables {
    /// The next work. Work of a client that is gone is left out.
    pub fn poll_work(&mut self) -> Option<StateWork> {
        loop {
            let work = self.work.0.pop_front()?;
            let client = match &work {
                StateWork::NotifyLock(notice) => notice.client,
                StateWork::Expired(client) => *client,
                StateWork::EndGrace => return Some(work),
            };
            if self.clients.get(client.0).is_some() {
                return Some(work);
            }
        }
    }
}
