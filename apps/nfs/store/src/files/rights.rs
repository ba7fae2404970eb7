//! Rights to a file's open content, in privileged mode.
//!
//! A descriptor opened by path only confers no rights: the kernel checks each operation on it for
//! the user that the thread acts as. A descriptor for content carries its opener's rights. So a
//! file remembers the last user found to have the right to read it, and the last to write it; any
//! other user is checked first (`faccessat2`). The same user on the same file costs no system call.
//!
//! **A revoked right ends at once.** The attributes that every READ and WRITE reads anyway show it:
//! when mode, owner, group or ctime differ from those seen before the user was checked, the check
//! is repeated, and a READ's bytes are dropped if it fails. A WRITE's own change of the ctime is
//! accepted when mode, owner and group stay. (A change of an access control list that coincides
//! with another client's WRITE and alters no mode bit shows at the next change.)
//!
//! Beyond the kernel's rules (RFC 1813 §4.4, and as in knfsd): the owner of a regular file reads
//! and writes it regardless of its mode, because a client checks only at open; and execute
//! permission implies read, which running the file requires.

use crate::{FileAttributes, FileTime};
use rustix::{
    fs::{Access, AtFlags, accessat},
    io::Errno,
};
use stag_nfs_os::user;
use stag_protocol::nfs::v3::{FileKind, Status};

use super::{Files, cache::FileSlotId, data::Want, errno::status, identity::Serial};

/// Users with rights to a file's content, and the attributes by which they were checked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cleared {
    seen: Option<RightsSeen>,
    reader: Option<Serial>,
    writer: Option<Serial>,
}

/// Attributes that decide about rights, or that change together with them.
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
    /// Refuses the caller access to content without the right. Without privilege there is only one
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
            // Read before the check: any later change shows.
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

    /// Asks the kernel for a right of the thread's user.
    pub(super) fn ask(&self, slot: FileSlotId, need: Access) -> rustix::io::Result<()> {
        let (descriptors, number) = self.magic(slot);
        match self.shared.policy {
            Some(_) => user::may(descriptors, number, need),
            None => accessat(descriptors, number, need, AtFlags::EACCESS),
        }
    }

    /// Compares attributes just read; returns true if rights may have changed, and all users are
    /// checked again.
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

    /// Accepts a file's ctime change as our own, if nothing else changed with it.
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
