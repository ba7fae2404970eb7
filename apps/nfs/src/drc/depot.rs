//! Which shard keeps which clients' replies, and how they get there.
//!
//! Clients are grouped in slots. A slot belongs to one shard at a time: the first that needs it takes it, and another that needs it
//! asks the owner by mail. The owner hands over between two passes, when it carries no call out: the replies travel in one
//! message, and while they do the slot belongs to nobody. So a late copy of a call on a connection of the former owner, too, finds the reply
//! where it is, and a call is carried out once whatever shards its copies reach.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::Receiver,
    },
};

use super::cache::Moved;
use crate::mail::Letterbox;

/// Groups of clients. Clients of one group move together.
pub(crate) const SLOTS: usize = 256;

/// What one shard writes to another.
#[derive(Debug)]
pub(crate) enum Mail {
    /// Shard `by` needs the slot.
    Claim { slot: usize, by: usize },
    /// The slot is yours, and this is what was in it.
    Grant { slot: usize, moved: Vec<Moved> },
    /// The slot is not mine to give: look again whose it is.
    Refusal { slot: usize },
}

/// Where a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Here,
    /// With another shard, or on the way to it.
    With(usize),
}

/// What all shards share. On the way of a call it is one load.
struct Depot {
    secret: [u8; 16],
    /// By slot: 0 nobody, 2 n + 2 shard n, 2 n + 3 on the way to shard n. Only the owner takes a slot from itself.
    owners: Box<[AtomicU32]>,
    boxes: Box<[Letterbox<Mail>]>,
}

/// One shard's part of a duplicate request cache. It may be sent to the shard's thread, which gives it to its gateway.
pub struct Branch {
    depot: Arc<Depot>,
    index: usize,
    letters: Receiver<Mail>,
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Branch({} of {})", self.index, self.depot.boxes.len())
    }
}

/// Wakes a shard when it has mail, from any thread.
#[derive(Clone)]
pub struct BellPull {
    depot: Arc<Depot>,
    index: usize,
}

impl fmt::Debug for BellPull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BellPull({})", self.index)
    }
}

impl BellPull {
    /// Lets `ring` wake the shard. Without it a sleeping shard finds its mail at its next pass. Only the first counts.
    pub fn attach(&self, ring: impl Fn() + Send + Sync + 'static) {
        if let Some(letterbox) = self.depot.boxes.get(self.index) {
            letterbox.attach(ring);
        }
    }
}

impl Branch {
    /// The parts of one cache for `shards` shards, in their order.
    pub fn all(shards: usize) -> Vec<Self> {
        // Each shard has one claim under way per slot, and gets one answer to it.
        let capacity = if shards > 1 { 2 * SLOTS * shards } else { 1 };
        let (boxes, receivers): (Vec<_>, Vec<_>) = (0..shards).map(|_| Letterbox::new(capacity)).unzip();
        let depot = Arc::new(Depot {
            secret: secret(),
            owners: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            boxes: boxes.into(),
        });
        let branch = |(index, letters)| Self { depot: Arc::clone(&depot), index, letters };
        receivers.into_iter().enumerate().map(branch).collect()
    }

    /// The whole of a cache for one shard.
    pub fn alone() -> Self {
        Self::all(1).pop().expect("one shard has one branch")
    }

    /// Whether there are no other shards.
    pub(crate) fn is_alone(&self) -> bool {
        self.depot.boxes.len() == 1
    }

    /// What wakes this shard.
    pub fn bell_pull(&self) -> BellPull {
        BellPull { depot: Arc::clone(&self.depot), index: self.index }
    }

    pub(crate) fn secret(&self) -> &[u8; 16] {
        &self.depot.secret
    }

    /// Where the slot is. One that is nobody's is here from now on.
    pub(crate) fn locate(&self, slot: usize) -> Place {
        let owner = self.owner(slot);
        let mine = self.mine();
        let found = match owner.load(Ordering::Relaxed) {
            0 => owner
                .compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed)
                .unwrap_or_else(|found| found),
            found => found,
        };
        match found {
            0 => Place::Here,
            found if found == mine => Place::Here,
            found => Place::With(found as usize / 2 - 1),
        }
    }

    /// Writes to `shard`. The letter comes back when its box is full or its shard is gone.
    pub(crate) fn post(&self, shard: usize, mail: Mail) -> Result<(), Mail> {
        let Some(letterbox) = self.depot.boxes.get(shard) else { return Err(mail) };
        letterbox.put(mail)?;
        letterbox.ring();
        Ok(())
    }

    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// Whether there is mail: one load, once per pass.
    pub(crate) fn has_mail(&self) -> bool {
        self.depot.boxes.get(self.index).expect("every branch has a box").look()
    }

    pub(crate) fn next_letter(&self) -> Option<Mail> {
        self.letters.try_recv().ok()
    }

    /// The slot arrived.
    pub(crate) fn keep(&self, slot: usize) {
        self.owner(slot).store(self.mine(), Ordering::Relaxed);
    }

    /// The slot leaves for `shard`.
    pub(crate) fn send_off(&self, slot: usize, shard: usize) {
        self.owner(slot).store(shard as u32 * 2 + 3, Ordering::Relaxed);
    }

    const fn mine(&self) -> u32 {
        self.index as u32 * 2 + 2
    }

    fn owner(&self, slot: usize) -> &AtomicU32 {
        self.depot.owners.get(slot).expect("a client has one of the slots")
    }
}

impl Drop for Branch {
    /// What was kept here is gone: others need not ask for it.
    fn drop(&mut self) {
        for owner in &self.depot.owners {
            for state in [self.mine(), self.mine() + 1] {
                let _ = owner.compare_exchange(state, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }
}

/// Random octets, from where the standard library's maps have theirs.
fn secret() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let word = || u128::from(RandomState::new().hash_one(0));
    (word() << 64 | word()).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_belongs_to_whoever_needs_it_first() {
        let branches = Branch::all(3);
        let [a, b, _] = &branches[..] else { panic!() };
        assert_eq!((a.locate(5), b.locate(5), b.locate(6)), (Place::Here, Place::With(0), Place::Here));
        a.send_off(5, 2);
        assert_eq!((a.locate(5), b.locate(5)), (Place::With(2), Place::With(2)));
        assert_eq!(branches[2].locate(5), Place::With(2), "it is on its way");
        branches[2].keep(5);
        assert_eq!((a.locate(5), branches[2].locate(5)), (Place::With(2), Place::Here));
    }

    #[test]
    fn mail_is_seen_and_rings() {
        let branches = Branch::all(2);
        let [a, b] = &branches[..] else { panic!() };
        let rung = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&rung);
        b.bell_pull().attach(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert!(!b.has_mail());
        a.post(1, Mail::Claim { slot: 3, by: 0 }).unwrap();
        assert_eq!(rung.load(Ordering::Relaxed), 1);
        assert!(b.has_mail() && !b.has_mail());
        assert!(matches!(b.next_letter(), Some(Mail::Claim { slot: 3, by: 0 })));
        assert!(b.next_letter().is_none());
    }

    #[test]
    fn a_letterbox_is_bounded_and_that_of_a_shard_that_is_gone_takes_nothing() {
        let mut branches = Branch::all(2);
        let gone = branches.pop().unwrap();
        let here = branches.pop().unwrap();
        assert_eq!(gone.locate(9), Place::Here);
        for _ in 0..4 * SLOTS {
            here.post(1, Mail::Refusal { slot: 0 }).unwrap();
        }
        assert!(here.post(1, Mail::Refusal { slot: 0 }).is_err());
        drop(gone);
        assert!(here.post(1, Mail::Refusal { slot: 0 }).is_err());
        assert_eq!(here.locate(9), Place::Here, "its slots are free");
    }
}
