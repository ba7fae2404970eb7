//! READ, WRITE and COMMIT (RFC 1813 §3.3.6, §3.3.7, §3.3.21).

use super::{
    rights::{self, must_be_regular},
    session::{CallPurpose, CephSession, FoundFile, failed},
};
use crate::{CommitDone, Failed, FilledLink, FilledRead, ObjectChange, StoreResult, WriteDone};
use rustix::io::Errno;
use stag_ceph::{SetStat, StatMask, SyncKind};
use stag_protocol::nfs::v3::{FileHandle, FileKind, StableHow, Status};

impl CephSession {
    pub(super) fn read_to(
        &self,
        handle: &FileHandle,
        offset: u64,
        room: &mut [u8],
    ) -> StoreResult<FilledRead> {
        let file = self.resolve(handle, CallPurpose::Look)?;
        let about = failed(Some(self.attributes_of(&file)));
        must_be_regular(&file.stat).map_err(&about)?;
        self.judge(&file, rights::READ).map_err(&about)?;
        let count = self.read_octets(&file, offset, room).map_err(&about)?;
        let attributes = self.after(&file).ok_or(Status::Jukebox)?;
        // RFC 1813 §3.3.6 [1813-35]: eof is TRUE exactly if the octets reach the end of file
        let eof = offset.saturating_add(count as u64) >= attributes.size;
        // At most TRANSFER_MAX, the buffer's size.
        Ok(FilledRead { count: u32::try_from(count).unwrap_or(0), eof, attributes })
    }

    fn read_octets(&self, file: &FoundFile, offset: u64, room: &mut [u8]) -> Result<usize, Status> {
        // RFC 1813 §3.3.6 [1813-36]: a READ at or past the end returns no octets and eof
        if room.is_empty() || offset >= file.stat.size {
            return Ok(0);
        }
        let read = file.held.file().and_then(|open| open.read_at(offset, room));
        read.map_err(|errno| self.fails(&file.live, errno))
    }

    pub(super) fn write_from(
        &self,
        handle: &FileHandle,
        offset: u64,
        octets: &[u8],
        stable: StableHow,
    ) -> StoreResult<WriteDone, ObjectChange> {
        let file = self.resolve(handle, CallPurpose::Change)?;
        // Taken before the write, so that a later loss shows.
        let verifier = self.shared.life.epoch.verifier();
        let outcome = self.write_octets(&file, offset, octets).and_then(|count| {
            match stable {
                // Written data is stored: no cache could lose it.
                StableHow::Unstable | StableHow::DataSync => Ok((count, StableHow::DataSync)),
                StableHow::FileSync => {
                    self.sync(&file)?;
                    Ok((count, StableHow::FileSync))
                }
            }
        });
        let about = self.wcc(&file);
        match outcome {
            // RFC 1813 §3.3.7 [1813-43]: committed is never weaker than the stability asked for
            Ok((count, committed)) => Ok(WriteDone { count, committed, verifier, file: about }),
            Err(status) => Err(Failed { status, about }),
        }
    }

    fn write_octets(&self, file: &FoundFile, offset: u64, octets: &[u8]) -> Result<u32, Status> {
        must_be_regular(&file.stat)?;
        self.judge(file, rights::WRITE)?;
        let end = offset.checked_add(octets.len() as u64);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            // RFC 1813 §3.3.7 [1813-51]: a WRITE past the largest offset gets NFS3ERR_FBIG
            return Err(Status::FBig);
        }
        // RFC 1813 §3.3.7 [1813-49]: an empty WRITE leaves mtime unchanged
        if octets.is_empty() {
            return Ok(0);
        }
        if let Some(mode) = self.mode_after_change(file) {
            let set = SetStat { mode: Some(mode), ..SetStat::default() };
            let outcome = file.held.inode.set_attributes(&set, &self.root());
            outcome.map_err(|errno| self.fails(&file.live, errno))?;
        }
        let written = file.held.file().and_then(|open| open.write_at(offset, octets));
        // RFC 1813 §3.3.7 [1813-48]: a partial WRITE succeeds with the count that it wrote
        let count = written.map_err(|errno| self.fails(&file.live, errno))?;
        u32::try_from(count).map_err(|_| Status::ServerFault)
    }

    /// Makes a file stable. After an eviction the sync succeeds, but reading the attributes fails.
    fn sync(&self, file: &FoundFile) -> Result<(), Status> {
        let outcome = file.held.syncs.wait(|| {
            file.held.file()?.sync(SyncKind::All)?;
            file.held.inode.attributes(StatMask::ALL, &self.root()).map(drop)
        });
        outcome.map_err(|errno| {
            self.shared.life.epoch.advance();
            self.fails(&file.live, errno)
        })
    }

    pub(super) fn commit_file(&self, handle: &FileHandle) -> StoreResult<CommitDone, ObjectChange> {
        let file = self.resolve(handle, CallPurpose::Change)?;
        let outcome = must_be_regular(&file.stat).and_then(|()| self.sync(&file));
        let about = self.wcc(&file);
        match outcome {
            // RFC 1813 §3.3.21 [1813-98]: a COMMIT returns the verifier that holds after its sync
            Ok(()) => Ok(CommitDone { verifier: self.shared.life.epoch.verifier(), file: about }),
            Err(status) => Err(Failed { status, about }),
        }
    }

    pub(super) fn read_link_to(
        &self,
        handle: &FileHandle,
        room: &mut [u8],
    ) -> StoreResult<FilledLink> {
        let file = self.resolve(handle, CallPurpose::Look)?;
        let attributes = self.attributes_of(&file);
        let about = failed(Some(attributes));
        // RFC 1813 §3.3.5 [1813-32]: a READLINK of anything but a link gets NFS3ERR_INVAL
        if attributes.kind != FileKind::Symlink {
            return Err(about(Status::Inval));
        }
        let read = self.as_caller(|user| file.held.inode.read_link(room, user));
        let count = read.map_err(|errno: Errno| about(self.fails(&file.live, errno)))?;
        Ok(FilledLink { count: u32::try_from(count).unwrap_or(0), attributes })
    }
}
