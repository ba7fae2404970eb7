//! NFS attributes (`fattr3`, RFC 1813 §2.6), SETATTR, and file system information.

use super::{
    rights::{self, kind, must_be_regular},
    session::{CallPurpose, CephSession, FoundFile, failed},
};
use crate::{
    Failed, FileAttributes, FileTime, NewAttributes, NewTime, ObjectChange, StoreResult,
    TRANSFER_MAX, contract::name::NAME_MAX,
};
use rustix::fs::{major, minor};
use stag_ceph::{CephStat, SetStamp, SetStat, SpaceUse, Stamp};
use stag_protocol::nfs::v3::{
    DeviceNumber, FileHandle, FileKind, FsInfo, FsStat, PathConf, Status, Time,
};
use std::{
    sync::PoisonError,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Bytes of directory entries that a client should request at once.
const READDIR_PREFERRED: u32 = 32 << 10;
/// Time for which a space report is cached: each query goes to a monitor.
const SPACE_AGE: Duration = Duration::from_secs(1);
/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// All attributes of a file in an export.
pub(super) fn attributes(stat: &CephStat, fsid: u64) -> FileAttributes {
    FileAttributes {
        kind: kind(stat),
        // RFC 1813 §2.6 [1813-11]: every attribute that the file system has is returned
        mode: u32::from(stat.mode) & 0o7777,
        nlink: stat.links,
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size,
        used: stat.blocks.saturating_mul(512),
        device: DeviceNumber { major: major(stat.special), minor: minor(stat.special) },
        fsid,
        fileid: stat.inode,
        atime: time(stat.accessed),
        mtime: time(stat.modified),
        ctime: time(stat.changed),
        // Zero on a file system created before Ceph recorded birth times.
        birth: Some(time(stat.born)).filter(|born| *born != FileTime::default()),
        change: change(stat),
    }
}

fn time(stamp: Stamp) -> FileTime {
    FileTime { seconds: stamp.seconds, nanos: u32::try_from(stamp.nanos).unwrap_or(0) }
}

/// The change attribute. Ceph's counter alone does not suffice: it goes back when the gateway that
/// incremented it is lost. The time may go back too, but never both to an earlier pair.
fn change(stat: &CephStat) -> u64 {
    time(stat.changed).wrapping_nanos().wrapping_add(stat.version)
}

fn stamp(time: FileTime) -> Result<Stamp, Status> {
    // Ceph keeps 32 unsigned bits of seconds.
    if !time.is_valid() || u32::try_from(time.seconds).is_err() {
        return Err(Status::Inval);
    }
    Ok(Stamp { seconds: time.seconds, nanos: i64::from(time.nanos) })
}

fn now() -> Stamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Stamp { seconds, nanos: i64::from(since.subsec_nanos()) }
}

fn set_stamp(set: NewTime) -> Result<Option<SetStamp>, Status> {
    Ok(match set {
        // RFC 1813 §3.3.2 [1813-23]: attributes that SETATTR does not name stay unchanged
        NewTime::Keep => None,
        // RFC 1813 §3.3.2 [1813-24]: a time is set to the server's or to the client's
        NewTime::Server => Some(SetStamp::Now(now())),
        NewTime::Client(time) => Some(SetStamp::At(stamp(time)?)),
    })
}

/// Attributes to set in Ceph's form, except the size.
pub(super) fn set_stat(set: &NewAttributes) -> Result<SetStat, Status> {
    if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
        return Err(Status::Inval);
    }
    if set.size.is_some_and(|size| i64::try_from(size).is_err()) {
        return Err(Status::FBig);
    }
    Ok(SetStat {
        mode: set.mode.map(|mode| mode & 0o7777),
        uid: set.uid,
        gid: set.gid,
        size: None,
        accessed: set_stamp(set.atime)?,
        modified: set_stamp(set.mtime)?,
    })
}

impl CephSession {
    pub(super) fn set_attributes(
        &self,
        handle: &FileHandle,
        set: &NewAttributes,
        guard: Option<FileTime>,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let file = self.resolve(handle, CallPurpose::Change)?;
        // RFC 1813 §3.3.2 [1813-21]: a guard that differs from ctime gets NFS3ERR_NOT_SYNC
        let outcome = match guard {
            Some(ctime) if ctime != time(file.stat.changed).in_32_bits() => Err(Status::NotSync),
            _ => self.apply(&file, set),
        };
        let about = self.wcc(&file);
        outcome.map(|()| about).map_err(|status| Failed { status, about })
    }

    /// Sets attributes as the caller. The size comes last, so that a refusal precedes any
    /// truncation.
    pub(super) fn apply(&self, file: &FoundFile, set: &NewAttributes) -> Result<(), Status> {
        let wanted = set_stat(set)?;
        if wanted.mode.is_some() && kind(&file.stat) == FileKind::Symlink {
            return Err(Status::NotSupp);
        }
        if set.size.is_some() {
            must_be_regular(&file.stat)?;
            self.judge(file, rights::WRITE)?;
        }
        if wanted != SetStat::default() {
            let outcome = self.as_caller(|user| file.held.inode.set_attributes(&wanted, user));
            outcome.map_err(|errno| self.fails(&file.live, errno))?;
        }
        match set.size {
            Some(size) => self.cut(file, size, &wanted),
            None => Ok(()),
        }
    }

    /// Sets the size for an authorized caller, then the times again, which truncation changes.
    fn cut(&self, file: &FoundFile, size: u64, wanted: &SetStat) -> Result<(), Status> {
        let mode = self.mode_after_change(file).filter(|_| wanted.mode.is_none());
        // RFC 1813 §3.3.2 [1813-22]: a new size cuts the file or extends it by zeros
        let set = SetStat { size: Some(size), mode, ..SetStat::default() };
        let SetStat { accessed, modified, .. } = *wanted;
        let times = SetStat { accessed, modified, ..SetStat::default() };
        for set in [set, times].iter().filter(|set| **set != SetStat::default()) {
            let outcome = file.held.inode.set_attributes(set, &self.root());
            outcome.map_err(|errno| self.fails(&file.live, errno))?;
        }
        Ok(())
    }

    /// The mode after a change of content, if it differs: only root may change a set-user-id
    /// program without clearing that bit.
    pub(super) fn mode_after_change(&self, file: &FoundFile) -> Option<u32> {
        let mode = u32::from(file.stat.mode) & 0o7777;
        // Without group execute permission, set-group-id has another meaning.
        let lost = if mode & 0o010 != 0 { SET_ID } else { 0o4000 };
        (self.user().uid() != 0 && mode & lost != 0).then_some(mode & !lost)
    }

    /// Refuses access to a file's content without the needed right.
    pub(super) fn judge(&self, file: &FoundFile, need: u32) -> Result<(), Status> {
        rights::judge(&file.held.inode, &file.stat, self.user(), need)
            .map_err(|errno| self.fails(&file.live, errno))
    }

    fn space(&self, file: &FoundFile) -> Result<SpaceUse, Status> {
        let known = *self.shared.space.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((told, space)) = known
            && told.elapsed() < SPACE_AGE
        {
            return Ok(space);
        }
        let space = file.held.inode.space().map_err(|errno| self.fails(&file.live, errno))?;
        let mut known = self.shared.space.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((Instant::now(), space));
        Ok(space)
    }

    pub(super) fn system_space(
        &self,
        object: &FileHandle,
    ) -> StoreResult<(FsStat, FileAttributes)> {
        let file = self.resolve(object, CallPurpose::Look)?;
        let attributes = self.attributes_of(&file);
        let space = self.space(&file).map_err(failed(Some(attributes)))?;
        let octets = |blocks: u64| blocks.saturating_mul(space.block_len);
        let fsstat = FsStat {
            total_octets: octets(space.blocks),
            free_octets: octets(space.free),
            // RFC 1813 §3.3.18 [1813-89]: an FSSTAT counts octets and files: all, free, available
            available_octets: octets(space.available),
            total_files: space.files,
            free_files: space.files_free,
            available_files: space.files_free,
            unchanged_seconds: 0,
        };
        Ok((fsstat, attributes))
    }

    pub(super) fn system_info(&self, object: &FileHandle) -> StoreResult<(FsInfo, FileAttributes)> {
        let file = self.resolve(object, CallPurpose::Look)?;
        let fsinfo = FsInfo {
            read_max: TRANSFER_MAX,
            // RFC 1813 §3.3.19 [1813-90]: the preferred sizes are the largest ones
            read_preferred: TRANSFER_MAX,
            read_multiple: 4096,
            write_max: TRANSFER_MAX,
            write_preferred: TRANSFER_MAX,
            write_multiple: 4096,
            readdir_preferred: READDIR_PREFERRED,
            // RFC 1813 §3.3.19 [1813-93]: maxfilesize is the size of the largest file
            // The file system's own limit cannot be queried; NFS3ERR_FBIG reports it.
            file_size_max: i64::MAX as u64,
            // RFC 1813 §3.3.19 [1813-91]: times are kept to the accuracy of time_delta
            time_delta: Time { seconds: 0, nanos: 1 },
            // RFC 1813 §3.3.19 [1813-92]: the FSINFO properties describe what is supported
            properties: FsInfo::LINK | FsInfo::SYMLINK | FsInfo::HOMOGENEOUS | FsInfo::CAN_SET_TIME,
        };
        Ok((fsinfo, self.attributes_of(&file)))
    }

    pub(super) fn path_limits(
        &self,
        object: &FileHandle,
    ) -> StoreResult<(PathConf, FileAttributes)> {
        let file = self.resolve(object, CallPurpose::Look)?;
        let pathconf = PathConf {
            // RFC 1813 §3.3.20 [1813-94]: linkmax is the largest number of hard links
            // Ceph counts them in 32 bits and has no other limit.
            link_max: i32::MAX as u32,
            name_max: NAME_MAX as u32,
            // RFC 1813 §3.3.20 [1813-95]: names are never cut, and their case is kept and compared
            no_trunc: true,
            // RFC 1813 §3.3.20 [1813-96]: chown_restricted says if only root gives files away
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        };
        Ok((pathconf, self.attributes_of(&file)))
    }
}
