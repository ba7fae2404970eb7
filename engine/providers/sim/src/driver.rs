//! The provider: one end of the fabric in the hands of its shard.

use crate::{conn::SimState, end::SimEnd, net::Net};
use stag_pools::RemoteKey;
use stag_verbs::{Cause, Event, Limits, Qp};
use std::{cell::RefCell, fmt, rc::Rc};

/// One end of a [`Fabric`](crate::Fabric).
pub struct Sim {
    pub(crate) net: Rc<RefCell<Net>>,
    pub(crate) end: SimEnd,
}

impl Sim {
    pub(crate) fn new(net: Rc<RefCell<Net>>, name: &'static str, limits: Limits) -> Self {
        let end = {
            let mut net = net.borrow_mut();
            let id = net.add_end(name, limits.connections, limits.send_queue);
            let seed = net.key_seed();
            SimEnd::new(id, limits, seed)
        };
        Self { net, end }
    }

    /// Windows a peer can use. Zero when everything came back.
    pub fn windows_bound(&self) -> usize {
        self.end.windows.bound()
    }

    /// Connections that exist, including those being set up.
    pub fn connections(&self) -> usize {
        self.end.conns.len()
    }

    /// Breaks `qp` in the fabric; both sides notice in their own time.
    pub fn lose(&mut self, qp: Qp) {
        if let Some(conn) = self.end.conns.get(qp.0).filter(|conn| conn.state != SimState::Dead) {
            self.net.borrow_mut().break_link(conn.place);
        }
    }

    /// Invalidating what is not bound is a bug of the engine, unless the peer did it and the engine
    /// cannot know yet.
    pub(crate) fn report_unbound(&self, qp: Qp, key: RemoteKey) {
        let is_news = self.end.events.iter().any(|event| {
            matches!(
                event,
                Event::Received { invalidated: Some(fenced), .. } if fenced.key() == key
            )
        });
        let net = self.net.borrow();
        let (seed, is_lenient) = (net.seed(), net.faults().lenient);
        drop(net);
        assert!(
            is_news || is_lenient,
            "seed {seed}: local invalidation of {key:?}, which is not bound on {qp:?}"
        );
    }

    pub(crate) fn ring_one(&mut self, qp: Qp) {
        let Some(conn) = self.end.conns.get_mut(qp.0) else { return };
        conn.is_dirty = false;
        if conn.state == SimState::Established {
            conn.rung = conn.queue.len();
            self.end.start(&mut self.net.borrow_mut(), qp);
        }
    }
}

impl Drop for Sim {
    /// Breaks every connection; the peers notice in their time. All memory goes back to its pool.
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What failed may have stopped half way; a second panic would hide the first one and
            // its seed.
            return;
        }
        let net = &mut *self.net.borrow_mut();
        net.stop_listening(self.end.id);
        while let Some(place) = net.entry(self.end.id).places.last().copied() {
            net.break_link(place);
            match net.side(place).qp {
                Some(qp) => self.end.die(net, qp, Cause::Local, None),
                None => net.leave(place),
            }
        }
        net.entry(self.end.id).due = None;
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({} connections, {} windows)", self.connections(), self.windows_bound())
    }
}
