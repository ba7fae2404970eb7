//! Distribution of the clients' kept replies over the shards, and their way from shard to shard.
//!
//! Clients are grouped in slots. A slot belongs to one shard at a time: the first that needs it
//! takes it, and another that needs it asks the owner by mail. The owner hands over between two
//! passes, when it carries no call out: the replies travel in one message, and while they do the
//! slot belongs to nobody. So a late copy of a call on a connection of the former owner, too, finds
//! the reply where it is, and a call is carried out once whatever shards its copies reach.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::Receiver,
    },
};

use super::cache::MovedReply;
use crate::inbox::{Inbox, Wakeup};

/// Groups of clients. Clients of one group move together.
pub(crate) const SLOTS: usize = 256;

/// Message from one shard to another.
#[derive(Debug)]
pub(crate) enum CacheMail {
    /// Shard `by` needs the slot.
    Claim { slot: usize, by: usize },
    /// The slot is yours, and this is what was in it.
    Grant { slot: usize, moved: Vec<MovedReply> },
    /// The slot is not mine to give: look again whose it is.
    Refusal { slot: usize },
}

/// Location of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotLocation {
    Here,
    /// With another shard, or on the way to it.
    With(usize),
}

/// State that all shards share. Looking at it on the way of a call is one load.
struct SlotOwners {
    secret: [u8; 16],
    /// By slot: 0 nobody, 2 n + 2 shard n, 2 n + 3 on the way to shard n. Only the owner takes a
    /// slot from itself.
    owners: Box<[AtomicU32]>,
    inboxes: Box<[Arc<Inbox<CacheMail>>]>,
}

/// One shard's part of a duplicate request cache. It may be sent to the shard's thread, which gives
/// it to its gateway.
pub struct CacheHandle {
    shared: Arc<SlotOwners>,
    index: usize,
    inbox: Arc<Inbox<CacheMail>>,
    letters: Receiver<CacheMail>,
}

impl fmt::Debug for CacheHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheHandle({} of {})", self.index, self.shared.inboxes.len())
    }
}

impl CacheHandle {
    /// The parts of one cache for `shards` shards, in their order.
    pub fn all(shards: usize) -> Vec<Self> {
        // Each shard has one claim under way per slot, and gets one answer to it.
        let capacity = if shards > 1 { 2 * SLOTS * shards } else { 1 };
        let new = |_| {
            let (inbox, letters) = Inbox::new(capacity);
            (Arc::new(inbox), letters)
        };
        let (inboxes, receivers): (Vec<_>, Vec<_>) = (0..shards).map(new).unzip();
        let shared = Arc::new(SlotOwners {
            secret: secret(),
            owners: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            inboxes: inboxes.iter().map(Arc::clone).collect(),
        });
        let handle =
            |(index, (inbox, letters))| Self { shared: Arc::clone(&shared), index, inbox, letters };
        inboxes.into_iter().zip(receivers).enumerate().map(handle).collect()
    }

    /// The whole of a cache for one shard.
    pub fn alone() -> Self {
        Self::all(1).pop().expect("one shard has one handle")
    }

    /// Returns true if there are no other shards.
    pub(crate) fn is_alone(&self) -> bool {
        self.shared.inboxes.len() == 1
    }

    /// Wakes this shard when it has mail.
    pub fn wakeup(&self) -> Wakeup {
        Wakeup::new(&self.inbox)
    }

    pub(crate) fn secret(&self) -> &[u8; 16] {
        &self.shared.secret
    }

    /// Returns the location of a slot. A slot without an owner belongs to this shard from here on.
    pub(crate) fn locate(&self, slot: usize) -> SlotLocation {
        let owner = self.owner(slot);
        let mine = self.mine();
        let found = match owner.load(Ordering::Relaxed) {
            0 => owner
                .compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed)
                .unwrap_or_else(|found| found),
            found => found,
        };
        match found {
            0 => SlotLocation::Here,
            found if found == mine => SlotLocation::Here,
            found => SlotLocation::With(found as usize / 2 - 1),
        }
    }

    /// Writes to `shard`. The letter comes back when its box is full or its shard is gone.
    pub(crate) fn post(&self, shard: usize, mail: CacheMail) -> Result<(), CacheMail> {
        let Some(inbox) = self.shared.inboxes.get(shard) else { return Err(mail) };
        inbox.put(mail)?;
        inbox.wake();
        Ok(())
    }

    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// Returns true if there is mail, and takes no note of it.
    pub(crate) fn has_letters(&self) -> bool {
        self.inbox.is_filled()
    }

    /// Returns true if there is mail: one load, once per pass.
    pub(crate) fn has_mail(&self) -> bool {
        self.inbox.look()
    }

    pub(crate) fn next_letter(&self) -> Option<CacheMail> {
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
        self.shared.owners.get(slot).expect("a client has one of the slots")
    }
}

impl Drop for CacheHandle {
    /// Gives up the slots of this shard: the replies kept here are gone, and other shards need not
    /// ask for them.
    fn drop(&mut self) {
        for owner in &self.shared.owners {
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
        let handles = CacheHandle::all(3);
        let [a, b, _] = &handles[..] else { panic!() };
        assert_eq!(
            (a.locate(5), b.locate(5), b.locate(6)),
            (SlotLocation::Here, SlotLocation::With(0), SlotLocation::Here)
        );
        a.send_off(5, 2);
        assert_eq!((a.locate(5), b.locate(5)), (SlotLocation::With(2), SlotLocation::With(2)));
        assert_eq!(handles[2].locate(5), SlotLocation::With(2), "it is on its way");
        handles[2].keep(5);
        assert_eq!(
            (a.locate(5), handles[2].locate(5)),
            (SlotLocation::With(2), SlotLocation::Here)
        );
    }

    #[test]
    fn mail_is_seen_and_wakes() {
        let handles = CacheHandle::all(2);
        let [a, b] = &handles[..] else { panic!() };
        let woken = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&woken);
        b.wakeup().attach(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert!(!b.has_mail());
        a.post(1, CacheMail::Claim { slot: 3, by: 0 }).unwrap();
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        assert!(b.has_mail() && !b.has_mail());
        assert!(matches!(b.next_letter(), Some(CacheMail::Claim { slot: 3, by: 0 })));
        assert!(b.next_letter().is_none());
    }

    #[test]
    fn a_letterbox_is_bounded_and_that_of_a_shard_that_is_gone_takes_nothing() {
        let mut handles = CacheHandle::all(2);
        let gone = handles.pop().unwrap();
        let here = handles.pop().unwrap();
        assert_eq!(gone.locate(9), SlotLocation::Here);
        for _ in 0..4 * SLOTS {
            here.post(1, CacheMail::Refusal { slot: 0 }).unwrap();
        }
        assert!(here.post(1, CacheMail::Refusal { slot: 0 }).is_err());
        drop(gone);
        assert!(here.post(1, CacheMail::Refusal { slot: 0 }).is_err());
        assert_eq!(here.locate(9), SlotLocation::Here, "its slots are free");
    }
}
