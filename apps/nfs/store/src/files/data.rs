//! READ, WRITE, COMMIT (RFC 1813 §3.3.6, §3.3.7, §3.3.21).

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::{Errno, ReadWriteFlags, pread, preadv2, pwritev},
    thread::CapabilitySet,
};
use stag_nfs_os::{ReadRange, owner, user};
use stag_pools::Buf;
use stag_protocol::nfs::v3::{FileHandle, FileKind, StableHow, Status};

use super::{
    Files, Intent, Late, SyncExtent,
    cache::{FileSlotId, OpenData},
    errno::status,
};
use crate::{
    CommitDone, Failed, FileAttributes, ObjectChange, Origin, WriteDone,
    contract::tickets::ReadTicket,
};

/// Result of [`Files::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// Bytes of the file at the front of the caller's memory.
    pub count: u32,
    /// Source of the bytes.
    pub origin: Origin,
    /// True if the last byte read is the file's last, or the read began at or past the end.
    pub eof: bool,
    /// The file's attributes after the read.
    pub attributes: FileAttributes,
}

/// Behaviour of a READ on a page cache miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// It waits.
    Wait,
    /// It reports the miss.
    Tell,
    /// It waits, without looking first: some bytes are known to be missing.
    Known,
}

/// A READ that would have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MissingOctets {
    pub slot: FileSlotId,
    /// Bytes to read, and the number at the front that are in memory.
    pub len: usize,
    pub present: usize,
}

/// Octets of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteRange {
    /// The offset of the first byte.
    pub offset: u64,
    /// Their number.
    pub len: usize,
}

/// Purpose of a descriptor for content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Read,
    Write,
    /// Any descriptor will do.
    Sync,
}

impl OpenData {
    fn serves(&self, want: Want) -> bool {
        match want {
            Want::Read => self.readable,
            Want::Write => self.writable,
            Want::Sync => true,
        }
    }
}

impl Files {
    /// READ (RFC 1813 §3.3.6): copies bytes from `offset` on to the front of `into`.
    ///
    /// # Errors
    ///
    /// The status of the reply; [`Status::IsDir`] for a directory, [`Status::Inval`] for any other
    /// object but a regular file.
    pub fn read(
        &mut self,
        file: &FileHandle,
        offset: u64,
        into: &mut [u8],
    ) -> Result<ReadDone, Failed<Option<FileAttributes>>> {
        let done = self.read_unless_missing(file, offset, into, Miss::Wait)?;
        Ok(done.expect("who waits misses nothing"))
    }

    /// As [`read`](Self::read), but it may stop at bytes that are not in memory.
    pub(super) fn read_unless_missing(
        &mut self,
        file: &FileHandle,
        offset: u64,
        into: &mut [u8],
        miss: Miss,
    ) -> Result<Result<ReadDone, MissingOctets>, Failed<Option<FileAttributes>>> {
        let slot = self.resolve(file, Intent::Look)?;
        let outcome = match self.read_octets(slot, offset, into, miss) {
            Ok(Err(missing)) => return Ok(Err(missing)),
            Ok(Ok(read)) => Ok(read),
            Err(status) => Err(status),
        };
        self.conclude_read(slot, ByteRange { offset, len: into.len() }, outcome).map(Ok)
    }

    /// Completes a deferred READ after `count` of `len` bytes were read to a buffer: the caller's
    /// rights are checked again. None if the bytes may not match the attributes in the reply, or
    /// are incomplete.
    pub(super) fn read_brought(
        &mut self,
        file: &FileHandle,
        range: ByteRange,
        count: usize,
        before: &FileAttributes,
    ) -> Result<Option<ReadDone>, Failed<Option<FileAttributes>>> {
        let slot = self.resolve(file, Intent::Look)?;
        let outcome = self.data(slot, Want::Read).map(|_| (count, Origin::Ring));
        let done = self.conclude_read(slot, range, outcome)?;
        let after = &done.attributes;
        let is_same =
            (before.size, before.mtime, before.ctime) == (after.size, after.mtime, after.ctime);
        let is_whole =
            count == range.len || range.offset.saturating_add(count as u64) >= after.size;
        Ok((is_same && is_whole).then_some(done))
    }

    /// Adds the attributes to the outcome of a read.
    fn conclude_read(
        &mut self,
        slot: FileSlotId,
        ByteRange { offset, len }: ByteRange,
        mut outcome: Result<(usize, Origin), Status>,
    ) -> Result<ReadDone, Failed<Option<FileAttributes>>> {
        let after = self.attributes(slot)?;
        if self.review(slot, &after) && outcome.is_ok() {
            outcome = self.must_be_cleared(slot, Want::Read).and(outcome);
        }
        let (count, origin) = outcome.map_err(|status| Failed { status, about: Some(after) })?;
        let end = offset.saturating_add(count as u64);
        // A file that grew meanwhile is short here but not at its end. Zero bytes must mean the
        // end, else the client would retry forever.
        // RFC 1813 §3.3.6 [1813-35]: eof is TRUE exactly if the octets reach the end of file
        let eof = end >= after.size || (count == 0 && len > 0);
        let count = u32::try_from(count).map_err(|_| Status::ServerFault)?;
        Ok(ReadDone { count, origin, eof, attributes: after })
    }

    /// Reads bytes; returns their number and their source.
    fn read_octets(
        &mut self,
        slot: FileSlotId,
        offset: u64,
        into: &mut [u8],
        miss: Miss,
    ) -> Result<Result<(usize, Origin), MissingOctets>, Status> {
        // RFC 1813 §3.3.6 [1813-37]: an empty READ is refused wherever another READ is
        self.data(slot, Want::Read)?;
        let data = self.cache.get(slot).data.as_ref().expect("just opened");
        // Past the system's largest offset there is nothing.
        let room = usize::try_from((i64::MAX as u64).saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = into.len().min(room);
        let (mut done, mut origin) = (0, Origin::Memory);
        while done < len {
            let rest = into.get_mut(done..len).expect("done < len <= into.len()");
            let at = offset + done as u64;
            let present = if miss == Miss::Known {
                Err(Errno::AGAIN)
            } else {
                self.read_present(data, rest, at)
            };
            let read = match present {
                Err(Errno::AGAIN) if miss == Miss::Tell => {
                    return Ok(Err(MissingOctets { slot, len, present: done }));
                }
                Err(Errno::AGAIN) => {
                    self.waits.set(self.waits.get() + 1);
                    origin = Origin::Disk;
                    pread(&data.fd, rest, at)
                }
                Err(Errno::OPNOTSUPP) => {
                    origin = Origin::Unknown;
                    pread(&data.fd, rest, at)
                }
                read => read,
            };
            match read {
                // RFC 1813 §3.3.6 [1813-36]: a READ at or past the end returns no octets and eof
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(status(error)),
            }
        }
        Ok(Ok((done, origin)))
    }

    /// Reads what is in memory without waiting. [`Errno::AGAIN`] when that is nothing,
    /// [`Errno::OPNOTSUPP`] when the file system cannot say: tmpfs, where reads never wait, but
    /// also some network file systems.
    fn read_present(
        &self,
        data: &OpenData,
        into: &mut [u8],
        offset: u64,
    ) -> rustix::io::Result<usize> {
        if data.is_mute.get() {
            return Err(Errno::OPNOTSUPP);
        }
        if self.cold_looks.as_ref().is_some_and(|looks| looks.is_cold(data.fd.as_fd(), offset)) {
            return Err(Errno::AGAIN);
        }
        let read = preadv2(&data.fd, &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT);
        data.is_mute.set(read == Err(Errno::OPNOTSUPP));
        read
    }

    /// Has the system fetch what a READ misses: io_uring directly to its buffer, else a helper to
    /// memory. Returns the buffer when neither is available.
    pub(super) fn put_off(
        &mut self,
        missing: MissingOctets,
        offset: u64,
        mut octets: Buf,
        ticket: ReadTicket,
    ) -> Result<(), Buf> {
        let MissingOctets { slot, len, present } = missing;
        // Taken first, so that a change during the read shows.
        let before = self.attributes(slot);
        let data = self.cache.get(slot).data.as_ref().expect("it was just read from");
        if let (Some(ring), Ok(before)) = (&mut self.ring, before) {
            // From the beginning, because the present bytes were read before the attributes.
            match ring.read(
                &data.fd,
                ReadRange { offset, len },
                octets,
                Late { ticket, len, before },
            ) {
                Ok(()) => return Ok(()),
                Err((unread, _)) => octets = unread,
            }
        }
        let (at, rest) = (offset + present as u64, len - present);
        let is_fetched =
            self.helpers.as_ref().is_some_and(|helpers| helpers.fetch(&data.fd, at, rest, ticket));
        if is_fetched { Ok(()) } else { Err(octets) }
    }

    /// WRITE (RFC 1813 §3.3.7): writes the slices of `data`, one after the other, at `offset`. The
    /// slices are consumed.
    ///
    /// # Errors
    ///
    /// The status of the reply. [`Status::FBig`] when the file would end past the file system's
    /// largest offset.
    pub fn write_slices(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: &mut [IoSlice<'_>],
        stable: StableHow,
    ) -> Result<WriteDone, Failed<ObjectChange>> {
        let slot = self.resolve(file, Intent::Change)?;
        let before = self.attributes(slot)?;
        self.review(slot, &before);
        // Taken first, so that a loss from here on shows.
        let verifier = self.shared.verifier();
        let outcome = self.write_octets(slot, offset, data).and_then(|count| {
            self.make_stable(slot, stable)?;
            Ok(count)
        });
        let (count, file) = self.changed(slot, outcome)?;
        if let Some(after) = &file.after {
            self.expect_change(slot, &before, after);
        }
        // RFC 1813 §3.3.7 [1813-43]: committed is never weaker than the stability asked for
        Ok(WriteDone { count, committed: stable, verifier, file })
    }

    fn write_octets(
        &mut self,
        slot: FileSlotId,
        offset: u64,
        data: &mut [IoSlice<'_>],
    ) -> Result<u32, Status> {
        let total = data.iter().fold(0_u64, |sum, slice| sum.saturating_add(slice.len() as u64));
        let end = offset.checked_add(total).filter(|end| i64::try_from(*end).is_ok());
        let limit = u32::try_from(total).map_err(|_| Status::Inval)?;
        self.data(slot, Want::Write)?;
        if end.is_none() {
            // RFC 1813 §3.3.7 [1813-51]: a WRITE past the largest offset gets NFS3ERR_FBIG
            return Err(Status::FBig);
        }
        self.cache.get_mut(slot).unsynced |= limit > 0;
        let (mut rest, mut done, mut has_made_room) = (data, 0_u32, false);
        IoSlice::advance_slices(&mut rest, 0); // Leaves out empty slices in front.
        // RFC 1813 §3.3.7 [1813-49]: an empty WRITE leaves mtime unchanged
        while done < limit {
            match pwritev(self.cache.data(slot), rest, offset + u64::from(done)) {
                Ok(0) => break,
                Ok(count) => {
                    done += u32::try_from(count).map_err(|_| Status::ServerFault)?;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(Errno::INTR) => {}
                // Some bytes are written: the client retries the rest and then sees the error.
                // RFC 1813 §3.3.7 [1813-48]: a partial WRITE succeeds with the count that it wrote
                Err(_) if done > 0 => break,
                Err(error) if has_made_room => return Err(status(error)),
                Err(error) => {
                    self.make_room(error, &[slot]).map_err(status)?;
                    has_made_room = true;
                }
            }
        }
        if done == 0 && limit > 0 { Err(Status::Io) } else { Ok(done) }
    }

    fn make_stable(&mut self, slot: FileSlotId, stable: StableHow) -> Result<(), Status> {
        let extent = match stable {
            StableHow::Unstable => return Ok(()),
            // RFC 1813 §3.3.7 [1813-42]: a DATA_SYNC WRITE makes the data retrievable
            StableHow::DataSync => SyncExtent::Data,
            // RFC 1813 §3.3.7 [1813-41]: a FILE_SYNC WRITE makes data and metadata stable
            StableHow::FileSync => SyncExtent::All,
        };
        self.sync_data(slot, extent)
    }

    /// COMMIT (RFC 1813 §3.3.21). Commits the whole file, whatever range is requested, since the
    /// verifier covers all of it.
    ///
    /// # Errors
    ///
    /// The status of the reply. A failed sync changes the verifier, so that clients resend their
    /// data.
    pub fn commit(&mut self, file: &FileHandle) -> Result<CommitDone, Failed<ObjectChange>> {
        let slot = self.resolve(file, Intent::Change)?;
        let before = self.attributes(slot)?;
        self.review(slot, &before);
        let outcome = self
            .must_be_regular(slot)
            .and_then(|()| self.must_be_cleared(slot, Want::Write))
            // RFC 1813 §3.3.21 [1813-97]: a COMMIT makes data and metadata of the whole file stable
            .and_then(|()| self.sync_data(slot, SyncExtent::All));
        let ((), file) = self.changed(slot, outcome)?;
        // RFC 1813 §3.3.21 [1813-98]: a COMMIT returns the verifier that holds after its sync
        Ok(CommitDone { verifier: self.shared.verifier(), file })
    }

    fn sync_data(&mut self, slot: FileSlotId, extent: SyncExtent) -> Result<(), Status> {
        self.data(slot, Want::Sync)?;
        self.sync_open(slot, extent)
    }

    fn sync_open(&mut self, slot: FileSlotId, extent: SyncExtent) -> Result<(), Status> {
        let data = self.cache.get(slot).data.as_ref().expect("the caller opened it");
        // RFC 1813 §3.3.21 [1813-99]: a COMMIT with nothing to flush succeeds
        let synced = if self.owes(&data.fd, extent) { Ok(()) } else { self.sync(&data.fd, extent) };
        // After a failure nothing is left to sync: the data may be lost, which the verifier shows.
        self.cache.get_mut(slot).unsynced = false;
        synced
    }

    /// Syncs a change of an object's attributes or entries, if so configured.
    pub(super) fn sync_object(&mut self, slot: FileSlotId) -> Result<(), Status> {
        // RFC 1813 §4.7 [1813-104]: a change is stable before its reply, UNSTABLE excepted
        if !self.shared.sync_directories {
            return Ok(());
        }
        if matches!(self.cache.get(slot).kind, FileKind::Regular | FileKind::Directory) {
            match self.data_of_any_kind(slot, Want::Sync).map(drop) {
                Ok(()) => return self.sync_open(slot, SyncExtent::All),
                Err(Status::Acces | Status::Perm) => {}
                Err(status) => return Err(status),
            }
        }
        self.sync_file_system(slot)
    }

    /// Syncs the whole file system, for objects that cannot be opened to be synced alone.
    fn sync_file_system(&mut self, slot: FileSlotId) -> Result<(), Status> {
        let _raised = self.search_anywhere()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            openat(self.export_of(slot).root(), c".", flags, Mode::empty()).map_err(status)?;
        if self.owes(&root, SyncExtent::FileSystem) {
            return Ok(());
        }
        self.sync(root, SyncExtent::FileSystem)
    }

    fn must_be_regular(&self, slot: FileSlotId) -> Result<(), Status> {
        match self.cache.get(slot).kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Status::IsDir),
            // RFC 1813 §3.3.6 [1813-38]: a READ of a special file or a link gets NFS3ERR_INVAL
            _ => Err(Status::Inval),
        }
    }

    /// A descriptor for a regular file's content.
    pub(super) fn data(&mut self, slot: FileSlotId, want: Want) -> Result<BorrowedFd<'_>, Status> {
        self.must_be_regular(slot)?;
        self.data_of_any_kind(slot, want)
    }

    /// A descriptor for the content of a regular file or a directory; opening those two has no side
    /// effect.
    pub(super) fn data_of_any_kind(
        &mut self,
        slot: FileSlotId,
        want: Want,
    ) -> Result<BorrowedFd<'_>, Status> {
        self.must_be_cleared(slot, want)?;
        if !self.cache.get(slot).data.as_ref().is_some_and(|data| data.serves(want)) {
            let data = match self.open_data(slot, want) {
                // A right that the kernel does not grant; or none is needed, as for a sync.
                Err(Status::Acces) if self.shared.policy.is_some() => {
                    let _raised = user::raise(CapabilitySet::DAC_OVERRIDE).map_err(status)?;
                    self.open_data(slot, want)?
                }
                outcome => outcome?,
            };
            self.exchange(slot, data);
        }
        if want == Want::Write
            && let Some(data) = &mut self.cache.get_mut(slot).data
        {
            data.is_in_use_to_write = true;
        }
        Ok(self.cache.data(slot))
    }

    fn open_data(&mut self, slot: FileSlotId, want: Want) -> Result<OpenData, Status> {
        let attempts: &[OFlags] = match want {
            Want::Read => &[OFlags::RDONLY],
            Want::Write => &[OFlags::RDWR, OFlags::WRONLY],
            // A directory cannot be opened for writing by any user.
            Want::Sync if self.cache.get(slot).kind == FileKind::Directory => &[OFlags::RDONLY],
            Want::Sync => &[OFlags::RDONLY, OFlags::WRONLY],
        };
        // A descriptor for both replaces one for the other access only.
        let had = self.cache.get(slot).data.is_some();
        let both: &[OFlags] = if had && want == Want::Read { &[OFlags::RDWR] } else { &[] };
        let mut refusal = Status::ServerFault;
        for access in both.iter().chain(attempts) {
            match self.insist(&[slot], |files| files.reopen(slot, *access)) {
                Ok(fd) => return Ok(OpenData::new(fd, *access)),
                // RFC 1813 §4.4 [1813-100]: an owner may read and write, whatever the mode says
                Err(Errno::ACCESS) => match self.reopen_as_owner(slot, *access) {
                    Some(fd) => return Ok(OpenData::new(fd, *access)),
                    None => refusal = Status::Acces,
                },
                Err(Errno::ROFS | Errno::PERM | Errno::TXTBSY) if want == Want::Read => {}
                Err(error) => return Err(status(error)),
            }
        }
        Err(refusal)
    }

    /// Opens a file of the server's user regardless of its mode (RFC 1813 §4.4), without privilege.
    /// The mode is never changed for that: a crash would leave the file open to others, and a READ
    /// that changes the ctime would look like a change by another client.
    fn reopen_as_owner(&self, slot: FileSlotId, access: OFlags) -> Option<OwnedFd> {
        let is_regular = self.cache.get(slot).kind == FileKind::Regular;
        let is_ours = || self.attributes(slot).is_ok_and(|found| found.uid == self.uid());
        if self.shared.policy.is_some() || !is_regular || !is_ours() {
            return None;
        }
        owner::open(self.cache.path(slot), access | OFlags::NOCTTY | OFlags::NONBLOCK).ok()
    }

    pub(super) fn reopen(&self, slot: FileSlotId, access: OFlags) -> rustix::io::Result<OwnedFd> {
        let (descriptors, number) = self.magic(slot);
        openat(
            descriptors,
            number,
            access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK,
            Mode::empty(),
        )
    }
}
