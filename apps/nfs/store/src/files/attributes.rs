//! Conversion of `statx` to NFS attributes (`fattr3`, RFC 1813 §2.6).

use crate::{FileAttributes, FileTime, exports::config::Export};
use rustix::fs::{FileType, Statx, StatxFlags, StatxTimestamp};
use stag_protocol::nfs::v3::{DeviceNumber, FileKind};

/// Returns the kind of a file.
pub(super) fn kind(stat: &Statx) -> FileKind {
    kind_of_entry(FileType::from_raw_mode(stat.stx_mode.into())).unwrap_or(FileKind::Regular)
}

/// Returns the kind that a directory records with a name; none if it records none.
pub(super) fn kind_of_entry(kind: FileType) -> Option<FileKind> {
    Some(match kind {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::BlockDevice => FileKind::Block,
        FileType::CharacterDevice => FileKind::Character,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::RegularFile => FileKind::Regular,
        FileType::Unknown => return None,
    })
}

/// All attributes of a file in an export. The export's `fsid` replaces the host's device number,
/// which differs between gateways and after a restart.
pub(super) fn attributes(stat: &Statx, export: &Export) -> FileAttributes {
    let knows_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    let ctime = time(stat.stx_ctime);
    FileAttributes {
        kind: kind(stat),
        // RFC 1813 §2.6 [1813-11]: every attribute that the file system has is returned
        mode: u32::from(stat.stx_mode) & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(512),
        device: DeviceNumber { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor },
        fsid: export.fsid(),
        fileid: stat.stx_ino,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime,
        birth: knows_birth.then(|| time(stat.stx_btime)),
        change: export.limits().grain.change(ctime),
    }
}

fn time(stamp: StatxTimestamp) -> FileTime {
    FileTime { seconds: stamp.tv_sec, nanos: stamp.tv_nsec }
}
