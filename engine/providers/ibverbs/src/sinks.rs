//! Where Reads land on devices that want the peer's right to write in the sink of a Read (iWARP adapters; RFC 5040 §5.2.1 leaves it to them).
//!
//! Giving that right to a shard's pools would open all of them to every peer for good. So Reads go to an arena of their own, the only memory with
//! a permanent right of that kind, and are copied from there, once, when they are complete.

use crate::{
    device::{Domain, Region},
    memory,
};
use rdma_sys::ibv_sge;
use stag_pools::{Buf, Class, Pool};
use stag_verbs::Qp;
use std::{io, rc::Rc};

/// The arena, and who waits for a place in it.
#[derive(Debug)]
pub(crate) struct Sinks {
    region: Region,
    pool: Pool,
    /// Connections whose next Read waits for a place.
    starved: Vec<Qp>,
    /// A place came back while somebody waits.
    may_go_on: bool,
}

/// One span's place, and where its octets go.
#[derive(Debug)]
pub(crate) struct Landing {
    /// It is owned and not looked at: a peer may write there.
    place: Buf,
    at: usize,
    len: usize,
}

impl Sinks {
    pub(crate) fn new(domain: &Rc<Domain>, classes: &[Class]) -> io::Result<Self> {
        let pool = Pool::new(classes)?;
        let (_, len) = pool.span();
        memory::check(len)?;
        let region = Region::of_sinks(domain, &pool).map_err(|error| memory::explain(error, len))?;
        Ok(Self { region, pool, starved: Vec::new(), may_go_on: false })
    }

    /// Octets of the longest span that has a place.
    pub(crate) fn longest(&self) -> usize {
        self.pool.slot_max()
    }

    /// A place for `len` octets that belong at octet `at` of a sink. None: `qp` has to wait.
    pub(crate) fn take(&mut self, qp: Qp, at: usize, len: usize) -> Option<(Landing, ibv_sge)> {
        let Some(place) = self.pool.take(len) else {
            if !self.starved.contains(&qp) {
                self.starved.push(qp);
            }
            return None;
        };
        let named = self.region.name(place.place().at, len);
        Some((Landing { place, at, len }, named))
    }

    /// Copies what landed into `sink`, and takes the place back.
    pub(crate) fn fetch(&mut self, landing: Landing, sink: &mut Buf) {
        let Landing { place, at, len } = landing;
        let to = sink.get_mut(at..at + len).expect("`post_read` looked whether it fits");
        self.region.copy_to(place.place().at, to);
        self.may_go_on |= !self.starved.is_empty();
    }

    /// Connections that can try again, when there are places.
    pub(crate) fn wake(&mut self) -> Vec<Qp> {
        if std::mem::take(&mut self.may_go_on) { std::mem::take(&mut self.starved) } else { Vec::new() }
    }

    /// The end of a connection may have given places back.
    pub(crate) fn note_end(&mut self) {
        self.may_go_on |= !self.starved.is_empty();
    }
}
