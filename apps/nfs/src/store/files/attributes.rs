//! `statx` in the words of NFS (`fattr3`, RFC 1813 §2.6).

use rustix::fs::{FileType, Statx, StatxTimestamp};
use stag_protocol::nfs::v3::{Attributes, DeviceNumber, FileKind, Time};

use crate::export::Export;

/// Returns the kind of a file.
pub(super) fn kind(stat: &Statx) -> FileKind {
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::BlockDevice => FileKind::Block,
        FileType::CharacterDevice => FileKind::Character,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::RegularFile | FileType::Unknown => FileKind::Regular,
    }
}

/// All attributes of a file in an export. The export's `fsid` stands for the host's device number,
/// which another gateway, or this one after a restart, would have another one of.
pub(super) fn attributes(stat: &Statx, export: &Export) -> Attributes {
    Attributes {
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
        ctime: time(stat.stx_ctime),
    }
}

/// A time before 1970 reads as 1970, one after 2106 as 2106: the wire has 32 unsigned bits (RFC
/// 1813 §2.6).
fn time(stamp: StatxTimestamp) -> Time {
    if stamp.tv_sec < 0 {
        return Time::default();
    }
    match u32::try_from(stamp.tv_sec) {
        Ok(seconds) => Time { seconds, nanos: stamp.tv_nsec },
        Err(_) => Time { seconds: u32::MAX, nanos: 999_999_999 },
    }
}
