//! Landing places of Reads, for devices that demand remote write on the sink of a Read (iWARP
//! adapters; RFC 5040 §5.2.1 leaves it to them).
//!
//! Giving that right to a shard's pools would open all of them to every peer for good. So Reads go
//! to places of their own, and are copied from there, once, when they are complete. No place is
//! open by itself: while it belongs to a connection it has a key that was made for it, covers
//! nothing else, and is sent to that connection's peer only. The key ends with the connection, and
//! before another connection gets the place (RFC 8166 §8.1.2). Places stay with their connection
//! between its Reads, so one that reads again needs no system call.
//!
//! A gap is left: the connections of a shard share a protection domain, and such devices do not tie
//! a key to a connection. So a peer that guesses the key of another one's place can spoil what that
//! one sends while it is being read (RFC 5042 §6.1.1). A domain for each connection would need all
//! pools registered in it again: pages pinned once more, and a shard that stops for as long as that
//! takes.

use crate::sys::ibv_sge;
use crate::{
    device::{Domain, MemoryRegion},
    memory,
    stats::IbverbsStats,
};
use stag_pools::{Buf, Class, Pool};
use stag_verbs::Qp;
use std::{cell::Cell, io, rc::Rc, sync::Arc};

/// Places for Reads, and the connections that wait for one.
#[derive(Debug)]
pub(crate) struct ReadSinks {
    domain: Arc<Domain>,
    pool: Pool,
    /// Places without a Read in flight, the one idle for longest first.
    idle: Vec<SinkPlace>,
    /// Connections whose next Read waits for a place.
    starved: Vec<Qp>,
    /// A place came back while a connection waits.
    may_go_on: bool,
    /// Places whose key the device did not give up.
    lost: Rc<Cell<u64>>,
}

/// Memory that one peer may write to. It is owned and not looked at.
#[derive(Debug)]
struct SinkPlace {
    qp: Qp,
    /// Both are there until the place is dropped.
    open: Option<Box<(MemoryRegion, Buf)>>,
    capacity: usize,
    lost: Rc<Cell<u64>>,
}

impl Drop for SinkPlace {
    /// Ends its key, and then gives the memory back. If the device keeps the key, the memory is
    /// leaked.
    fn drop(&mut self) {
        let Some((region, buf)) = self.open.take().map(|open| *open) else { return };
        if let Err(kept) = region.close() {
            self.lost.set(self.lost.get() + 1);
            std::mem::forget((kept, buf));
        }
    }
}

/// One span's place, and where its octets go.
#[derive(Debug)]
pub(crate) struct SinkLanding {
    place: SinkPlace,
    at: usize,
    len: usize,
}

impl ReadSinks {
    pub(crate) fn new(domain: &Arc<Domain>, classes: &[Class]) -> io::Result<Self> {
        let pool = Pool::new(classes)?;
        let (_, len) = pool.span();
        memory::check(len)?;
        let places = classes.iter().map(|class| class.count).sum();
        Ok(Self {
            domain: Arc::clone(domain),
            pool,
            idle: Vec::with_capacity(places),
            starved: Vec::new(),
            may_go_on: false,
            lost: Rc::default(),
        })
    }

    /// Octets of the longest span that has a place.
    pub(crate) fn longest(&self) -> usize {
        self.pool.slot_max()
    }

    /// A place for `len` octets that belong at octet `at` of a sink. None: `qp` has to wait.
    ///
    /// Fails when the device makes no key.
    pub(crate) fn take(
        &mut self,
        qp: Qp,
        at: usize,
        len: usize,
        stats: &mut IbverbsStats,
    ) -> io::Result<Option<(SinkLanding, ibv_sge)>> {
        let fits = |place: &SinkPlace| place.qp == qp && place.capacity >= len;
        let of_ours = self.idle.iter().enumerate().filter(|(_, place)| fits(place));
        let place = match of_ours.min_by_key(|(_, place)| place.capacity).map(|(index, _)| index) {
            Some(index) => Some(self.idle.remove(index)),
            None => self.open(qp, len, stats)?,
        };
        let Some(place) = place else {
            if !self.starved.contains(&qp) {
                self.starved.push(qp);
            }
            return Ok(None);
        };
        let (region, _) = &**place.open.as_ref().expect("a place is open until it is dropped");
        let named = region.name(0, len);
        Ok(Some((SinkLanding { place, at, len }, named)))
    }

    /// Opens a place to the peer of `qp`: a free one, else the one that another connection has not
    /// used for longest.
    fn open(
        &mut self,
        qp: Qp,
        len: usize,
        stats: &mut IbverbsStats,
    ) -> io::Result<Option<SinkPlace>> {
        let mut buf = self.pool.take(len);
        if buf.is_none()
            && let Some(index) = self.idle.iter().position(|place| place.capacity >= len)
        {
            // Its key ends here.
            drop(self.idle.remove(index));
            buf = self.pool.take(len);
        }
        let Some(buf) = buf else { return Ok(None) };
        let region = MemoryRegion::of_sink(&self.domain, &self.pool, &buf)
            .map_err(|error| memory::explain(error, buf.capacity()))
            .map_err(|error| self.domain.device.failed("ibv_reg_mr", error))?;
        stats.sinks_opened += 1;
        let capacity = buf.capacity();
        let (open, lost) = (Some(Box::new((region, buf))), Rc::clone(&self.lost));
        Ok(Some(SinkPlace { qp, open, capacity, lost }))
    }

    /// Copies the data that landed into `sink`, and returns the place to the idle ones.
    pub(crate) fn fetch(&mut self, landing: SinkLanding, sink: &mut Buf) {
        let SinkLanding { place, at, len } = landing;
        let to = sink.get_mut(at..at + len).expect("`post_read` looked whether it fits");
        let (region, _) = &**place.open.as_ref().expect("a place is open until it is dropped");
        region.copy_to(0, to);
        self.idle.push(place);
        self.may_go_on |= !self.starved.is_empty();
    }

    /// Connections that can try again, when there are places.
    pub(crate) fn wake(&mut self) -> Vec<Qp> {
        if std::mem::take(&mut self.may_go_on) {
            std::mem::take(&mut self.starved)
        } else {
            Vec::new()
        }
    }

    /// The queue pair of `qp` is gone, with the data that landed for it: the keys of its peer end,
    /// and other connections may have the places.
    pub(crate) fn note_end(&mut self, qp: Qp, stats: &mut IbverbsStats) {
        self.idle.retain(|place| place.qp != qp);
        self.may_go_on |= !self.starved.is_empty();
        stats.sinks_lost = self.lost.get();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::{ANSWER, ONE_AT_A_TIME, domain};
    use stag_pools::table::Key;
    use std::sync::atomic::Ordering;

    const CLASSES: [Class; 1] = [Class { slot_len: 4096, count: 2 }];

    fn qp(number: u64) -> Qp {
        Qp(Key::from_bits(number))
    }

    /// Sinks with two places, and a sink of a shard's.
    fn sinks() -> (ReadSinks, Buf, IbverbsStats) {
        let pool = Pool::new(&CLASSES).unwrap();
        let mut sink = pool.take(4096).unwrap();
        sink.reset(0);
        sink.extend(4096);
        (ReadSinks::new(&domain(), &CLASSES).unwrap(), sink, IbverbsStats::default())
    }

    #[test]
    fn a_key_is_told_to_one_peer_and_covers_one_place() {
        let _one = ONE_AT_A_TIME.lock();
        let (mut sinks, mut sink, mut stats) = sinks();
        let mut take =
            |sinks: &mut ReadSinks, of| sinks.take(qp(of), 0, 1_000, &mut stats).unwrap();
        let (first, named_first) = take(&mut sinks, 1).unwrap();
        let (second, named_second) = take(&mut sinks, 2).unwrap();
        assert_ne!(named_first.lkey, named_second.lkey);
        assert_ne!(named_first.addr / 4096, named_second.addr / 4096);
        assert!(take(&mut sinks, 3).is_none(), "both places are in use");
        // Reads of the same connection use the same key; another one's gets another.
        sinks.fetch(first, &mut sink);
        let (first, again) = take(&mut sinks, 1).unwrap();
        assert_eq!((again.lkey, again.addr), (named_first.lkey, named_first.addr));
        sinks.fetch(first, &mut sink);
        let (third, named_third) = take(&mut sinks, 3).unwrap();
        assert_eq!(named_third.addr, named_first.addr);
        assert!(![named_first.lkey, named_second.lkey].contains(&named_third.lkey));
        drop((second, third));
        assert_eq!(stats.sinks_opened, 3);
    }

    #[test]
    fn keys_end_with_their_connection() {
        let _one = ONE_AT_A_TIME.lock();
        let (mut sinks, mut sink, mut stats) = sinks();
        for round in 1..=3 {
            let (landing, named) = sinks.take(qp(1), 0, 8, &mut stats).unwrap().unwrap();
            assert_eq!(named.length, 8);
            sinks.fetch(landing, &mut sink);
            sinks.note_end(qp(1), &mut stats);
            assert_eq!((sinks.pool.taken(), sinks.idle.len(), stats.sinks_opened), (0, 0, round));
        }
    }

    #[test]
    fn a_place_whose_key_the_device_keeps_is_used_no_more() {
        let _one = ONE_AT_A_TIME.lock();
        let (mut sinks, mut sink, mut stats) = sinks();
        let (landing, named) = sinks.take(qp(1), 0, 8, &mut stats).unwrap().unwrap();
        sinks.fetch(landing, &mut sink);
        ANSWER.store(libc::EBUSY, Ordering::Relaxed);
        sinks.note_end(qp(1), &mut stats);
        ANSWER.store(0, Ordering::Relaxed);
        assert_eq!((stats.sinks_lost, sinks.pool.taken()), (1, 1));
        let (landing, other) = sinks.take(qp(2), 0, 8, &mut stats).unwrap().unwrap();
        assert_ne!(other.addr, named.addr);
        assert!(sinks.take(qp(2), 0, 8, &mut stats).unwrap().is_none());
        drop(landing);
    }
}
