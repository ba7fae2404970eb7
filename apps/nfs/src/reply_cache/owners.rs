//! Distribution of clients' cached replies over the shards, and their transfer between shards.
//!
//! Clients are grouped in slots. A slot belongs to one shard at a time: the first that needs it
//! takes it, and another that needs it asks the owner by mail. The owner hands it over between two
//! passes, when it executes no call. The replies travel in one message, during which the slot
//! belongs to no shard. So a late retransmission to the former owner finds the reply, too, and a
//! call is executed once whatever shards its copies reach.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::Receiver,
    },
};

use super::cache::MovedReply;
use stag_nfs_store::shard_mailbox::{Inbox, Wakeup};

/// Groups of clients. Clients of one group move together.
pub(crate) const SLOTS: usize = 256;

/// Message from one shard to another.
#[derive(Debug)]
pub(crate) enum CacheMail {
    /// Shard `by` needs the slot.
    Claim { slot: usize, by: usize },
    /// The slot is granted, with its replies.
    Grant { slot: usize, moved: Vec<MovedReply> },
    /// The sender does not own the slot: locate it again.
    Refusal { slot: usize },
}

/// Location of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotLocation {
    Here,
    /// With another shard, or in transit to it.
    With(usize),
}

/// State that all shards share. A call's lookup in it is one load.
struct SlotOwners {
    secret: [u8; 16],
    /// By slot: 0 no shard, 2 n + 2 shard n, 2 n + 3 in transit to shard n. Only the owner releases
    /// a slot.
    owners: Box<[AtomicU32]>,
    inboxes: Box<[Arc<Inbox<CacheMail>>]>,
}

/// One shard's part of a duplicate request cache. It may be sent to the shard's thread, which gives
/// it to its gateway.
pub struct CacheHandle {
    shared: Arc<SlotOwners>,
    index: usize,
    inbox: Arc<Inbox<CacheMail>>,
    messages: Receiver<CacheMail>,
}

impl fmt::Debug for CacheHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheHandle({} of {})", self.index, self.shared.inboxes.len())
    }
}

impl CacheHandle {
    /// The parts of one cache for `shards` shards, in their order.
    pub fn all(shards: usize) -> Vec<Self> {
        // Each shard has one outstanding claim per slot, and gets one answer to it.
        let capacity = if shards > 1 { 2 * SLOTS * shards } else { 1 };
        let new = |_| {
            let (inbox, messages) = Inbox::new(capacity);
            (Arc::new(inbox), messages)
        };
        let (inboxes, receivers): (Vec<_>, Vec<_>) = (0..shards).map(new).unzip();
        let shared = Arc::new(SlotOwners {
            secret: secret(),
            owners: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
            inboxes: inboxes.iter().map(Arc::clone).collect(),
        });
        let handle = |(index, (inbox, messages))| Self {
            shared: Arc::clone(&shared),
            index,
            inbox,
            messages,
        };
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

    /// Returns the location of a slot. A slot without an owner is assigned to this shard.
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

    /// Sends mail to `shard`; returns it when the inbox is full or the shard is gone.
    pub(crate) fn post(&self, shard: usize, mail: CacheMail) -> Result<(), CacheMail> {
        let Some(inbox) = self.shared.inboxes.get(shard) else { return Err(mail) };
        inbox.put(mail)?;
        inbox.wake();
        Ok(())
    }

    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// Returns true if there is mail, without clearing the flag.
    pub(crate) fn has_messages(&self) -> bool {
        self.inbox.is_filled()
    }

    /// Returns true if there is mail, and clears the flag: one load, once per pass.
    pub(crate) fn has_mail(&self) -> bool {
        self.inbox.look()
    }

    pub(crate) fn next_message(&self) -> Option<CacheMail> {
        self.messages.try_recv().ok()
    }

    /// Records the arrival of the slot.
    pub(crate) fn keep(&self, slot: usize) {
        self.owner(slot).store(self.mine(), Ordering::Relaxed);
    }

    /// Records the departure of the slot to `shard`.
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
    /// Releases the slots of this shard: the replies cached here are gone, and other shards need
    /// not request them.
    fn drop(&mut self) {
        for owner in &self.shared.owners {
            for state in [self.mine(), self.mine() + 1] {
                let _ = owner.compare_exchange(state, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }
}

/// Random bytes, from the source of the standard library's maps.
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
        assert!(matches!(b.next_message(), Some(CacheMail::Claim { slot: 3, by: 0 })));
        assert!(b.next_message().is_none());
    }

    #[test]
    fn a_mailbox_is_bounded_and_that_of_a_shard_that_is_gone_takes_nothing() {
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
