//! Closing of unused files: their space, their file systems and the programs among them become free
//! for this host again.
//!
//! - A file without a name is closed at once when it was removed through this gateway, on every
//!   shard; else when it is idle.
//! - A descriptor for writing is closed after one to two seconds without a WRITE: a program can be
//!   executed then, and the file system remounted read-only.
//! - Any other file is closed after four to five seconds without a call on it.
//! - The write descriptor of a file with unstable data is closed likewise, but the file stays open
//!   for a sync, for a minute.
//!
//! The search costs no wake-up: a shard makes a pass at least once a second in any case. Each pass
//! checks a part of the open files, and nothing when none is open.
//!
//! **A new file** is kept open longer: the clock of birth times ticks every few milliseconds, and a
//! later file with its inode number would have its handle (`create`).
//!
//! **Without the kernel's handles** a file is found again by its names. Before it is closed the
//! index records its current name: a local rename while it was open is found; a later one only
//! after the next lookup.
//!
//! When the system has no free descriptor, or the file system no space, all closable files are
//! closed at once, and the call is repeated ([`Files::insist`]).

use core::time::Duration;
use std::{os::fd::OwnedFd, time::Instant};

use rustix::{
    fs::OFlags,
    io::Errno,
    thread::CapabilitySet,
    time::{ClockId, clock_gettime},
};
use stag_engine::Time;
use stag_nfs_os::{user, writeback};
use stag_protocol::nfs::v3::FileKind;

use super::{
    Files, SyncExtent,
    cache::{FileSlotId, OpenData, OpenFile},
    cross_shard_cache::{self, Room, SiblingMessage},
    watch::HostWatch,
};
use crate::exports::handle::{Birth, Identity};

/// Time in which all slots are checked once.
const ROUND: Duration = Duration::from_secs(1);
/// Steps of a round, so that none takes long.
const STEPS: u32 = 64;
/// Rounds without a call on a file after which it is closed.
const IDLE_ROUNDS: u8 = 5;
/// The same for a file with unstable data, which the system has written back by itself then.
const UNSYNCED_ROUNDS: u8 = 60;
/// Files closed at a time when descriptors run out.
const EVICTED: usize = 64;
/// Minimum time between two searches of all open files when space is short.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Longest tick of a clock for birth times, and the same where they are whole seconds.
const TICK: Duration = Duration::from_millis(20);
const TICK_OF_SECONDS: Duration = Duration::from_millis(2_500);

/// The state of the search for idle files.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    next_step: Time,
    /// The slot to check next.
    at: usize,
    /// Fractions of a slot, in units of 1/[`STEPS`], carried over to later steps.
    left_over: usize,
    /// Time of the last search of all open files for lack of space.
    searched: Option<Instant>,
    /// A removal was announced to other shards since they were last asked for room.
    told: bool,
}

impl Files {
    /// Returns true while passes are needed: while a file is open and ages, a message from another
    /// shard is unread, the exports changed, a record of the index is unwritten, or refused callers
    /// are not yet reported in the log.
    pub(super) fn wants_idle_passes(&self) -> bool {
        !self.cache.is_empty()
            || self.shared.siblings.is_written_to(&self.messages)
            || self.watch.as_ref().is_some_and(HostWatch::is_filled)
            || self.shared.roster.has_changed_since(&self.serving)
            || self.index.has_pending()
            || self.owes_the_log()
            || self.shared.faults.owes_the_log()
    }

    /// Closes files that other shards removed, and unused ones. Called once per pass; `now` is its
    /// time.
    pub fn tidy(&mut self, now: Time) {
        if self.shared.siblings.has_mail(&self.messages) {
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
        // Each step carries its remainder over to the next ones: every slot is checked once per
        // round.
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
        while let Some(message) = self.messages.next_message() {
            let (SiblingMessage::Removed(file) | SiblingMessage::StopWriting(file)) = message;
            let Some(slot) = self.cache.look_for(file) else { continue };
            match message {
                SiblingMessage::Removed(_) => self.close_if_removed(slot),
                SiblingMessage::StopWriting(_) => self.stop_writing_now(slot),
            }
        }
        self.close_as_asked(&[]);
    }

    /// Closes removed files if another shard requests that. Requests that arrive meanwhile are
    /// served the next time.
    fn close_as_asked(&mut self, keep: &[FileSlotId]) {
        if let Some(asked) = self.shared.siblings.asked(&self.messages) {
            self.close_removed(keep);
            self.shared.siblings.answer(&self.messages, asked);
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

    /// Closes the descriptor a file is written through. While data is unstable another stays open,
    /// for syncing it.
    fn stop_writing(&mut self, slot: FileSlotId) {
        let spare =
            if self.cache.get(slot).unsynced { self.reopen_to_sync(slot).ok() } else { None };
        if let Some(fd) = spare {
            self.exchange(slot, OpenData::new(fd, OFlags::RDONLY));
        } else {
            self.close_data(slot);
        }
    }

    /// Closes the current write descriptor of a file, if any, without waiting: it stays open if it
    /// is the last one for a sync.
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

    /// Replaces a descriptor for a file's content, and asks the old one for lost data. The new one
    /// is opened first, so that at least one of them reports every failure.
    pub(super) fn exchange(&mut self, slot: FileSlotId, data: OpenData) {
        let open = self.cache.get_mut(slot);
        let old = open.data.replace(data).filter(|_| open.unsynced);
        if let Some(old) = old {
            // A failure changes the verifier, which informs the writers.
            let _ = self.judge_sync(writeback::failure(&old.fd));
        }
    }

    /// Closes a file's content; syncs it first if that is due.
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

    /// Closes a file; syncs it first if that is due. A pinned one loses its content only.
    pub(super) fn close(&mut self, slot: FileSlotId) {
        if !self.cache.is_pinned(slot) {
            let open = self.cache.take(slot);
            self.part_with(open);
        } else {
            self.close_data(slot);
        }
    }

    /// Drops a file that left the cache. One that was written to is synced, so that a lost write is
    /// noticed.
    pub(super) fn part_with(&self, open: Option<OpenFile>) {
        if let Some(OpenFile { unsynced: true, data: Some(data), path, is_removed, .. }) = open
            && !(is_removed.get()
                || crate::exports::config::stat(&path).is_ok_and(|found| found.stx_nlink == 0))
        {
            let _ = self.sync(&data.fd, SyncExtent::All);
        }
    }

    /// Closes an object that lost its last name through this gateway, and notifies the other
    /// shards.
    pub(super) fn let_go(&mut self, identity: Identity, kind: FileKind) {
        self.shared.siblings.tell_removed(&self.messages, identity.file);
        self.rounds.told = true;
        // A file used by the call was not removed: the name led to it a moment before.
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

    /// True for a file without a name. Checks unless that is known.
    fn has_no_name(&self, slot: FileSlotId) -> bool {
        let open = self.cache.get(slot);
        if !open.is_removed.get() {
            let found = crate::exports::config::stat(&open.path);
            open.is_removed.set(found.is_ok_and(|found| found.stx_nlink == 0));
        }
        open.is_removed.get()
    }

    /// True while closing this file could let a later one get the same handle: it is too young, or
    /// its file system records no birth times.
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

    /// Makes a system call, and repeats it once if it failed for lack of descriptors, space or
    /// inodes and some could be freed meanwhile. The files in `keep` stay open.
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
    /// The same error when nothing helps, or [`Errno::AGAIN`] when another shard is about to free
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
        // Clients retry on a full file system: all open files are searched only now and then.
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

    /// Asks the other shards to close removed files, and waits for them briefly. It serves their
    /// requests meanwhile, so two shards that ask each other do not deadlock.
    fn ask_for_room(&mut self, keep: &[FileSlotId]) -> Room {
        let mut request = self.shared.siblings.ask_for_room(&self.messages);
        loop {
            if let Some(room) = self.shared.siblings.outcome(&mut request) {
                return room;
            }
            self.close_as_asked(keep);
            std::thread::sleep(cross_shard_cache::LOOK);
        }
    }

    /// Closes every file without a name; returns true if there was any.
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
