//! Rights to a file's open content, in privileged mode.
//!
//! A descriptor opened by path only gives no right to anybody: each operation on it is judged by
//! the kernel, for the user that the thread acts as. A descriptor for content carries the rights of
//! whoever opened it. So a file remembers which user was last found to have the right to read it,
//! and which to write it; anyone else is judged first (`faccessat2`). The same user on the same
//! file costs no system call.
//!
//! **A right that is taken away ends at once.** The attributes that every READ and WRITE asks for
//! anyhow show it: when mode, owner, group or ctime differ from what was seen before the user was
//! judged, he is judged again; a READ's octets are dropped if he fails. A WRITE's own change of the
//! ctime is let pass when mode, owner and group stay. (An access control list that someone changes
//! in the instant of another's WRITE, and no mode bit with it, shows at the next change.)
//!
//! Beyond what the kernel says (RFC 1813 §4.4, and as knfsd does): the owner of a regular file
//! reads and writes it whatever its mode says, for a client asks when it opens the file; and who
//! may execute a file may read it, for how else should he.

use crate::store::{FileAttributes, FileTime};
use rustix::fs::{Access, AtFlags, accessat};
use rustix::io::Errno;
use stag_nfs_os::user;
use stag_protocol::nfs::v3::{FileKind, Status};

use super::Files;
use super::cache::FileSlotId;
use super::callers::Serial;
use super::data::Want;
use super::errno::status;

/// Users whose rights to a file's content were found good, and the attributes by which they were
/// judged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cleared {
    seen: Option<RightsSeen>,
    reader: Option<Serial>,
    writer: Option<Serial>,
}

/// Attributes that decide about rights, or that change together with those that do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RightsSeen {
    mode: u32,
    uid: u32,
    gid: u32,
    ctime: FileTime,
}

impl RightsSeen {
    fn of(found: &FileAttributes) -> Self {
        Self { mode: found.mode, uid: found.uid, gid: found.gid, ctime: found.ctime }
    }
}

impl Cleared {
    fn holder(&mut self, want: Want) -> Option<&mut Option<Serial>> {
        match want {
            Want::Read => Some(&mut self.reader),
            Want::Write => Some(&mut self.writer),
            Want::Sync => None,
        }
    }
}

impl Files {
    /// Refuses the caller content that he has no right to. Without privilege there is but one
    /// caller, and opening decides.
    pub(super) fn must_be_cleared(&mut self, slot: FileSlotId, want: Want) -> Result<(), Status> {
        if self.shared.policy.is_none() {
            return Ok(());
        }
        let (_, serial) = self.acting.current().ok_or(Status::ServerFault)?;
        let mut cleared = self.cache.get(slot).cleared;
        if cleared.holder(want).is_none_or(|holder| *holder == Some(serial)) {
            return Ok(());
        }
        if cleared.seen.is_none() {
            // Looked at before the user is judged: whatever changes from here on shows.
            cleared.seen = Some(RightsSeen::of(&self.attributes(slot)?));
        }
        self.judge(slot, want)?;
        if let Some(holder) = cleared.holder(want) {
            *holder = Some(serial);
        }
        self.cache.get_mut(slot).cleared = cleared;
        Ok(())
    }

    fn judge(&self, slot: FileSlotId, want: Want) -> Result<(), Status> {
        let need = if want == Want::Write { Access::WRITE_OK } else { Access::READ_OK };
        match self.ask(slot, need) {
            Err(Errno::ACCESS) if self.cache.get(slot).kind == FileKind::Regular => {}
            outcome => return outcome.map_err(status),
        }
        let is_owner = self.attributes(slot)?.uid == self.uid();
        // RFC 1813 §4.4 [1813-101]: a caller that may execute a file may read it
        let may_execute = || want == Want::Read && self.ask(slot, Access::EXEC_OK).is_ok();
        if is_owner || may_execute() { Ok(()) } else { Err(Status::Acces) }
    }

    /// Asks the kernel whether the thread's user has a right.
    pub(super) fn ask(&self, slot: FileSlotId, need: Access) -> rustix::io::Result<()> {
        let (descriptors, number) = self.magic(slot);
        match self.shared.policy {
            Some(_) => user::may(descriptors, number, need),
            None => accessat(descriptors, number, need, AtFlags::EACCESS),
        }
    }

    /// Looks at attributes just asked for; whether rights may have changed, and everyone is judged
    /// again.
    pub(super) fn review(&mut self, slot: FileSlotId, found: &FileAttributes) -> bool {
        if self.shared.policy.is_none() {
            return false;
        }
        let seen = Some(RightsSeen::of(found));
        let cleared = &mut self.cache.get_mut(slot).cleared;
        if cleared.seen == seen {
            return false;
        }
        *cleared = Cleared { seen, ..Cleared::default() };
        true
    }

    /// Takes the change of a file's ctime for our own, if nothing else changed with it.
    pub(super) fn expect_change(
        &mut self,
        slot: FileSlotId,
        before: &FileAttributes,
        after: &FileAttributes,
    ) {
        let cleared = &mut self.cache.get_mut(slot).cleared;
        let (before, after) = (RightsSeen::of(before), RightsSeen::of(after));
        if cleared.seen == Some(before) && before == (RightsSeen { ctime: before.ctime, ..after }) {
            cleared.seen = Some(after);
        }
    }
}
