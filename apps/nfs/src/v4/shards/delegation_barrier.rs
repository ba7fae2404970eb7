//! Announcement of a file to all shards before a client gets a delegation of it (RFC 8881 §10.4).
//!
//! Every shard makes a change at once if the presence filter shows no conflict: changes of version
//! 3, and changes of names and attributes by version 4. So the home first enters the file in the
//! filter, then sends each shard a message. Once a shard has read the message and has finished the
//! calls it had begun before, it asks the home about every change of that file. The delegation is
//! granted after all shards have confirmed this. A change by version 3 that the home allows
//! withdraws the file: when the shard confirms the next announcement it has made the change,
//! because messages keep their order. RENAME and LINK of the file at the home withdraw it, too:
//! another shard may have looked up the new name before and be about to change the object that it
//! names.

use std::collections::{HashMap, VecDeque};

use super::messages::FromHome;
use crate::v4::Nfs4;
use stag_nfs4_state::FileId;

/// Files that are announced at a time: the oldest make room.
const FILES_MAX: usize = 4_096;

/// Announced files, and the confirmations of the shards.
#[derive(Debug, Default)]
pub(in crate::v4) struct DelegationBarrier {
    /// With the number of the announcement.
    files: HashMap<FileId, u64>,
    /// In the order of their announcements. A withdrawn file is still here.
    order: VecDeque<(FileId, u64)>,
    /// The number of the last announcement that was sent.
    sent: u64,
    /// There are files of the next one.
    has_new: bool,
    /// The last announcement that each other shard has confirmed.
    heard: Vec<u64>,
    /// The last announcement sent when a wait for one timed out.
    late: u64,
}

impl DelegationBarrier {
    /// No file announced, with `others` other shards.
    pub(in crate::v4) fn new(others: usize) -> Self {
        Self { heard: vec![0; others], ..Self::default() }
    }

    /// Returns true if all shards know that a file may have a delegation; `None` if it has to be
    /// announced.
    fn is_known(&self, file: FileId) -> Option<bool> {
        let number = self.files.get(&file)?;
        Some(self.heard.iter().all(|heard| heard >= number))
    }

    /// Adds a file to the next announcement. Returns the file that it displaced, if any.
    fn add(&mut self, file: FileId) -> Option<FileId> {
        let number = self.sent.saturating_add(1);
        self.has_new = true;
        self.files.insert(file, number);
        self.order.push_back((file, number));
        if self.order.len() <= FILES_MAX {
            return None;
        }
        let (oldest, number) = self.order.pop_front()?;
        let is_it = self.files.get(&oldest) == Some(&number);
        is_it.then(|| self.files.remove(&oldest)).map(|_| oldest)
    }

    /// Removes a file. Returns false if it was not announced.
    fn remove(&mut self, file: FileId) -> bool {
        self.files.remove(&file).is_some()
    }

    /// The number of the announcement to send, once.
    fn next(&mut self) -> Option<u64> {
        let has_new = std::mem::take(&mut self.has_new);
        has_new.then(|| {
            self.sent = self.sent.saturating_add(1);
            self.sent
        })
    }

    /// Notes the confirmation of a shard, counted from 1.
    fn hear(&mut self, shard: u16, number: u64) {
        let place = usize::from(shard).checked_sub(1);
        if let Some(heard) = place.and_then(|place| self.heard.get_mut(place)) {
            *heard = number.max(*heard);
        }
    }
}

impl Nfs4 {
    /// A wait for an announcement has timed out.
    pub(in crate::v4) fn note_late_announcement(&mut self) {
        if let Some(link) = &mut self.link {
            link.announcements.late = link.announcements.sent;
        }
    }

    /// Returns true while a shard has not confirmed the announcement whose wait timed out: another
    /// wait would time out, too.
    pub(in crate::v4) fn is_announcement_late(&self) -> bool {
        let all = self.link.as_ref().map(|link| &link.announcements);
        all.is_some_and(|all| all.heard.iter().any(|heard| *heard < all.late))
    }

    /// Returns true if other shards allow a delegation of a file. If not, the file is announced to
    /// them, and the caller may ask again.
    pub(in crate::v4) fn is_announced(&mut self, file: FileId) -> bool {
        let Some(link) = &mut self.link else { return true };
        if let Some(is_known) = link.announcements.is_known(file) {
            return is_known;
        }
        if let Some(oldest) = link.announcements.add(file) {
            self.state.show_announced(oldest, false);
        }
        self.state.show_announced(file, true);
        false
    }

    /// Withdraws the announcement of a file that another shard changes: a delegation has to wait
    /// until the change is done.
    pub(in crate::v4) fn withdraw(&mut self, file: FileId) {
        if let Some(link) = &mut self.link
            && link.announcements.remove(file)
        {
            self.state.show_announced(file, false);
        }
    }

    /// Announces added files to all shards. Called once the filter shows them, and before any other
    /// message of this pass is sent.
    pub(in crate::v4) fn announce(&mut self) {
        let Some(link) = &mut self.link else { return };
        if let Some(number) = link.announcements.next() {
            for shard in 1..=link.others_count() {
                link.tell(shard, FromHome::Announce(number));
            }
        }
    }

    /// A shard asks about every file of this announcement, and of earlier ones.
    pub(crate) fn take_announced(&mut self, shard: u16, number: u64) {
        if let Some(link) = &mut self.link {
            link.announcements.hear(shard, number);
            // An OPEN may wait for it.
            if self.suspended.await_recalls() {
                self.suspended.note_return();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_when_all_shards_have_answered_its_announcement() {
        let mut all = DelegationBarrier::new(2);
        assert_eq!((all.is_known(FileId(1)), all.next()), (None, None));
        assert_eq!(all.add(FileId(1)), None);
        assert_eq!((all.is_known(FileId(1)), all.next(), all.next()), (Some(false), Some(1), None));
        all.add(FileId(2));
        assert_eq!(all.next(), Some(2));
        all.hear(1, 2);
        all.hear(2, 1);
        assert_eq!((all.is_known(FileId(1)), all.is_known(FileId(2))), (Some(true), Some(false)));
        all.hear(7, 9);
        all.hear(0, 9);
        all.hear(2, 2);
        assert_eq!(all.is_known(FileId(2)), Some(true));
        // A file that was taken out is announced again, with a later number.
        assert!(all.remove(FileId(2)) && !all.remove(FileId(2)));
        all.add(FileId(2));
        assert_eq!((all.is_known(FileId(2)), all.next()), (Some(false), Some(3)));
    }

    #[test]
    fn the_oldest_file_makes_room_unless_it_was_announced_again() {
        let mut all = DelegationBarrier::new(1);
        all.add(FileId(1));
        all.add(FileId(2));
        all.next();
        all.remove(FileId(1));
        all.add(FileId(1));
        let others = (10..).take(FILES_MAX - 3).map(|number| all.add(FileId(number)));
        assert!(others.flatten().next().is_none());
        assert_eq!(all.add(FileId(5)), None, "what made room was taken out before");
        assert_eq!(all.is_known(FileId(1)), Some(false));
        assert_eq!(all.add(FileId(6)), Some(FileId(2)));
        assert_eq!(all.is_known(FileId(2)), None);
    }
}
