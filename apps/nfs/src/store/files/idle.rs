//! Letting go of files that nobody uses: their space, their file systems and the programs among
//! them are free for this host again.
//!
//! - A file without a name is closed at once when it was removed through this gateway, on every
//!   shard; else when it is idle.
//! - A descriptor to write by is closed after one to two seconds without a WRITE: a program can be
//!   executed then, and the file system be made read-only.
//! - Any other file is closed after four to five seconds without a call about it.
//! - A file with data that is not on stable storage is closed as the others to write by, but it
//!   stays open to be synced, for a minute.
//!
//! Looking for them costs no wake-up: a shard makes a pass at least once a second in any case, and
//! looks at a part of the open files in each, at none when none is open.
//!
//! **A file that was just made** is held on: the clock of birth times ticks every few milliseconds,
//! and a later file with its inode number would have its handle (`create`).
//!
//! **Without the kernel's handles** a file is found again by its names. Before it is closed the
//! index learns the one it has then: what was renamed behind our back while it was open is found;
//! what is renamed later, after the next lookup.
//!
//! When the system has no descriptor left, or the file system no room, what can be closed is closed
//! at once, and the call is made once more ([`Files::insist`]).

use core::time::Duration;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use rustix::time::{ClockId, clock_gettime};
use stag_engine::Time;
use stag_nfs_os::{user, writeback};
use stag_protocol::nfs::v3::FileKind;

use super::cache::{FileSlotId, OpenData, OpenFile};
use super::siblings::{self, Room, SiblingLetter};
use super::watch::HostWatch;
use super::{Files, SyncExtent};
use crate::handle::{Birth, Identity};

/// Time in which all slots are looked at once.
const ROUND: Duration = Duration::from_secs(1);
/// Parts of a round. None takes long.
const STEPS: u32 = 64;
/// Rounds without a call about a file after which it is closed.
const IDLE_ROUNDS: u8 = 5;
/// As many for a file with data that is not on stable storage; the system has written it by itself
/// then.
const UNSYNCED_ROUNDS: u8 = 60;
/// Files closed at a time when descriptors are short.
const EVICTED: usize = 64;
/// Time between two looks at all open files when room is short.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Longest tick of a clock that birth times are taken from; and where they are whole seconds.
const TICK: Duration = Duration::from_millis(20);
const TICK_OF_SECONDS: Duration = Duration::from_millis(2_500);

/// The state of the search for idle files.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    next_step: Time,
    /// The slot to look at next.
    at: usize,
    /// Parts of a slot, by [`STEPS`], that earlier steps left to later ones.
    left_over: usize,
    /// Time at which all open files were looked at because room was short.
    searched: Option<Instant>,
    /// A removal was told to other shards since they were asked for room.
    told: bool,
}

impl Files {
    /// Returns true while a file is open, which gets older, while a letter of another shard is not
    /// read, while the exports that are served are not those of now, while a record of the index
    /// is not written, and while the log has to be told of callers that were turned away.
    pub(super) fn wants_idle_passes(&self) -> bool {
        !self.cache.is_empty()
            || self.shared.siblings.is_written_to(&self.letters)
            || self.watch.as_ref().is_some_and(HostWatch::is_filled)
            || self.shared.roster.has_changed_since(&self.serving)
            || self.index.has_pending()
            || self.owes_the_log()
            || self.shared.faults.owes_the_log()
    }

    /// Closes what other shards removed, and what nobody uses. Called once per pass; `now` is its
    /// time.
    pub fn tidy(&mut self, now: Time) {
        if self.shared.siblings.has_mail(&self.letters) {
            self.read_mail();
        }
        if now < self.rounds.next_step {
            return;
        }
        self.renew();
        if self.owes_the_log() {
            self.settle_with_the_log();
        }
        self.shared.faults.settle_with_the_log();
        let step = ROUND / STEPS;
        let late = now.since(self.rounds.next_step).as_nanos() / step.as_nanos();
        let steps = u32::try_from(late).unwrap_or(STEPS).saturating_add(1).min(STEPS);
        self.rounds.next_step = now + step;
        self.inside.begin_step();
        if self.cache.is_empty() {
            return;
        }
        let slots = self.cache.slots();
        // What a step leaves over of its part, the next ones look at: all slots in a round, each
        // once.
        let due = slots * steps as usize + self.rounds.left_over;
        self.rounds.left_over = due % STEPS as usize;
        for _ in 0..due / STEPS as usize {
            let at = self.rounds.at;
            self.rounds.at = if at + 1 < slots { at + 1 } else { 0 };
            if let Some((slot, age)) = self.cache.grow_older(at) {
                self.look_at(slot, age);
            }
        }
    }

    fn read_mail(&mut self) {
        while let Some(letter) = self.letters.next_letter() {
            let (SiblingLetter::Removed(file) | SiblingLetter::StopWriting(file)) = letter;
            let Some(slot) = self.cache.look_for(file) else { continue };
            match letter {
                SiblingLetter::Removed(_) => self.close_if_removed(slot),
                SiblingLetter::StopWriting(_) => self.stop_writing_now(slot),
            }
        }
        self.close_as_asked(&[]);
    }

    /// Closes what is removed if another shard asks for that. What is asked for meanwhile is done
    /// the next time.
    fn close_as_asked(&mut self, keep: &[FileSlotId]) {
        if let Some(asked) = self.shared.siblings.asked(&self.letters) {
            self.close_removed(keep);
            self.shared.siblings.answer(&self.letters, asked);
        }
    }

    fn look_at(&mut self, slot: FileSlotId, age: u8) {
        let open = self.cache.get(slot);
        let (is_removed, unsynced) = (open.is_removed.get(), open.unsynced);
        if is_removed && (age >= IDLE_ROUNDS || !self.may_recur(open.identity)) {
            self.close(slot);
        } else if age >= IDLE_ROUNDS && (!unsynced || age >= UNSYNCED_ROUNDS) {
            self.learn_name(slot);
            self.close(slot);
        } else if age >= IDLE_ROUNDS && self.has_no_name(slot) {
            self.close(slot);
        } else if let Some(data) =
            self.cache.get_mut(slot).data.as_mut().filter(|data| data.writable)
            && !core::mem::take(&mut data.is_in_use_to_write)
        {
            self.stop_writing(slot);
        }
    }

    /// Closes the descriptor that a file is written by. While data is not on stable storage another
    /// stays, to sync it by.
    fn stop_writing(&mut self, slot: FileSlotId) {
        let spare =
            if self.cache.get(slot).unsynced { self.reopen_to_sync(slot).ok() } else { None };
        if let Some(fd) = spare {
            self.exchange(slot, OpenData::new(fd, OFlags::RDONLY));
        } else {
            self.close_data(slot);
        }
    }

    /// Closes the descriptor that a file is written by now, if there is one. Waits for nothing: it
    /// stays where it is the last one to sync by.
    pub(super) fn stop_writing_now(&mut self, slot: FileSlotId) {
        let open = self.cache.get(slot);
        if !open.data.as_ref().is_some_and(|data| data.writable) {
            return;
        }
        if !open.unsynced {
            self.close_data(slot);
        } else if let Ok(fd) = self.reopen_to_sync(slot) {
            self.exchange(slot, OpenData::new(fd, OFlags::RDONLY));
        }
    }

    /// Puts a descriptor for a file's content in the place of another, which is asked for data that
    /// was lost. The new one is there before: one of them is told of every failure.
    pub(super) fn exchange(&mut self, slot: FileSlotId, data: OpenData) {
        let open = self.cache.get_mut(slot);
        let old = open.data.replace(data).filter(|_| open.unsynced);
        if let Some(old) = old {
            // A failure changes the verifier: that is how its writers hear of it.
            let _ = self.judge_sync(writeback::failure(&old.fd));
        }
    }

    /// Closes a file's content, and makes it stable first if that is owed.
    fn close_data(&mut self, slot: FileSlotId) {
        let open = self.cache.get_mut(slot);
        if let Some(data) = open.data.take()
            && core::mem::take(&mut open.unsynced)
        {
            let _ = self.sync(&data.fd, SyncExtent::All);
        }
    }

    pub(super) fn reopen_to_sync(&self, slot: FileSlotId) -> rustix::io::Result<OwnedFd> {
        let _raised = user::raise(CapabilitySet::DAC_OVERRIDE)?;
        self.reopen(slot, OFlags::RDONLY)
    }

    /// Closes a file, and makes it stable first if that is owed. A pinned one loses its content
    /// only.
    pub(super) fn close(&mut self, slot: FileSlotId) {
        if !self.cache.is_pinned(slot) {
            let open = self.cache.take(slot);
            self.part_with(open);
        } else {
            self.close_data(slot);
        }
    }

    /// The end of a file that left the cache. One that was written to is synced, so that a lost
    /// write is noticed.
    pub(super) fn part_with(&self, open: Option<OpenFile>) {
        if let Some(OpenFile { unsynced: true, data: Some(data), path, is_removed, .. }) = open
            && !(is_removed.get()
                || crate::export::stat(&path).is_ok_and(|found| found.stx_nlink == 0))
        {
            let _ = self.sync(&data.fd, SyncExtent::All);
        }
    }

    /// Closes what lost its last name through this gateway, and tells the other shards.
    pub(super) fn let_go(&mut self, identity: Identity, kind: FileKind) {
        self.shared.siblings.tell_removed(&self.letters, identity.file);
        self.rounds.told = true;
        // A file that the call uses was not removed: the name led to it a moment before.
        if let Some(slot) =
            self.cache.look_for(identity.file).filter(|slot| !self.cache.is_paired(*slot))
        {
            if kind == FileKind::Directory {
                self.cache.get(slot).is_removed.set(true);
            }
            self.close_if_removed(slot);
        }
    }

    fn close_if_removed(&mut self, slot: FileSlotId) {
        if self.has_no_name(slot) && !self.may_recur(self.cache.get(slot).identity) {
            self.close(slot);
        }
    }

    /// True for a file without a name. Looks unless that is known.
    fn has_no_name(&self, slot: FileSlotId) -> bool {
        let open = self.cache.get(slot);
        if !open.is_removed.get() {
            let found = crate::export::stat(&open.path);
            open.is_removed.set(found.is_ok_and(|found| found.stx_nlink == 0));
        }
        open.is_removed.get()
    }

    /// True while a later file could get the same handle if this one were closed: it is too young,
    /// or its file system records no birth times.
    fn may_recur(&self, Identity { file, birth }: Identity) -> bool {
        if !self.is_indexed(file.export) {
            return false;
        }
        if birth == Birth::default() {
            return true;
        }
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let nanos =
            |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        let age = nanos(now.tv_sec, now.tv_nsec) - nanos(birth.seconds, birth.nanos.into());
        let tick = if birth.nanos == 0 { TICK_OF_SECONDS } else { TICK };
        age < i128::try_from(tick.as_nanos()).unwrap_or(i128::MAX)
    }

    /// Makes a system call, and makes it once more if it failed for want of descriptors, space or
    /// inodes and some could be given back meanwhile. The files in `keep` stay open.
    pub(super) fn insist<T>(
        &mut self,
        keep: &[FileSlotId],
        call: impl Fn(&Self) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        call(self).or_else(|error| {
            self.make_room(error, keep)?;
            call(self)
        })
    }

    /// Closes what may help after such an error.
    ///
    /// # Errors
    /// The same one when nothing helps, or [`Errno::AGAIN`] when another shard is about to free
    /// space.
    pub(super) fn make_room(
        &mut self,
        error: Errno,
        keep: &[FileSlotId],
    ) -> rustix::io::Result<()> {
        let is_made = match error {
            Errno::NOSPC | Errno::DQUOT => self.free_space(keep)?,
            Errno::MFILE | Errno::NFILE => self.free_descriptors(keep),
            _ => false,
        };
        if is_made { Ok(()) } else { Err(error) }
    }

    fn free_space(&mut self, keep: &[FileSlotId]) -> rustix::io::Result<bool> {
        // A full file system is asked again and again: all open files are looked at now and then
        // only.
        let is_due = self.rounds.searched.is_none_or(|at| at.elapsed() >= LOOK_INTERVAL);
        if !is_due && !self.rounds.told {
            return Ok(self.close_known_removed(keep));
        }
        let any = self.close_removed(keep);
        let others = self.ask_for_room(keep);
        self.rounds.searched = Some(Instant::now());
        let is_awaited = others == Room::Awaited && core::mem::take(&mut self.rounds.told);
        self.rounds.told = is_awaited;
        if is_awaited && !any { Err(Errno::AGAIN) } else { Ok(any || others == Room::Made) }
    }

    /// Asks the other shards to close what is removed, and waits a moment for them. Meanwhile it
    /// does what they ask for: two that ask each other do not wait in vain.
    fn ask_for_room(&mut self, keep: &[FileSlotId]) -> Room {
        let mut request = self.shared.siblings.ask_for_room(&self.letters);
        loop {
            if let Some(room) = self.shared.siblings.outcome(&mut request) {
                return room;
            }
            self.close_as_asked(keep);
            std::thread::sleep(siblings::LOOK);
        }
    }

    /// Closes every file without a name; whether there was any.
    fn close_removed(&mut self, keep: &[FileSlotId]) -> bool {
        self.close_each(keep, Self::has_no_name)
    }

    fn close_known_removed(&mut self, keep: &[FileSlotId]) -> bool {
        self.close_each(keep, |files, slot| files.cache.get(slot).is_removed.get())
    }

    fn close_each(
        &mut self,
        keep: &[FileSlotId],
        is_over: impl Fn(&Self, FileSlotId) -> bool,
    ) -> bool {
        let mut any = false;
        for number in 0..self.cache.slots() {
            let is_used = |slot: &FileSlotId| keep.contains(slot) || self.cache.is_paired(*slot);
            let slot = self.cache.slot(number).filter(|slot| !is_used(slot));
            if let Some(slot) = slot.filter(|slot| !self.cache.is_pinned(*slot))
                && is_over(self, slot)
            {
                self.close(slot);
                any = true;
            }
        }
        any
    }

    fn free_descriptors(&mut self, keep: &[FileSlotId]) -> bool {
        let mut any = false;
        for _ in 0..EVICTED {
            let Some(open) = self.cache.evict(keep) else { break };
            self.part_with(Some(open));
            any = true;
        }
        any
    }
}
