//! Limits of a file system that `statfs(2)` does not report: the size of a file, and its links.
//!
//! **The largest file** is found by seeking: the system refuses an offset past it. The probe uses a
//! file without a name (`O_TMPFILE`), which is gone when it is closed. If none can be made, or
//! nothing may be changed, the limit follows from the type of the file system.
//!
//! **The maximum number of links** comes from a table, as in the C library.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::contract::{acl::ACCESS_LIST, change_attribute::TimeGrain};
use procfs::process::Process;
use rustix::{
    fs::{
        Mode, OFlags, SeekFrom, StatFs, StatVfsMountFlags, Statx, fstatfs, fstatvfs, getxattr,
        makedev, openat, seek,
    },
    io::{Errno, pwrite},
};
use stag_nfs_os::clone::clone_range;

/// The limits of one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileSystemLimits {
    /// Bytes of the largest file.
    pub(crate) file_size_max: u64,
    /// Maximum links of one file.
    pub(crate) link_max: u32,
    /// True for a file system on the network, or of another process: any call may block.
    pub(crate) is_remote: bool,
    /// True for tmpfs, where a sync has nothing to write.
    pub(crate) is_in_memory: bool,
    /// True if it was mounted read-only when it was checked.
    pub(crate) is_read_only: bool,
    /// Ability of its times to distinguish changes.
    pub(crate) grain: TimeGrain,
    /// True if files have user extended attributes.
    pub(crate) has_xattrs: bool,
    /// True if files have POSIX access control lists.
    pub(crate) has_acls: bool,
    /// Unit of CLONE, if files can share blocks.
    pub(crate) clone_block: Option<u32>,
}

/// Numbers of network file systems and those of other processes in statfs(2), from linux/magic.h
/// and their own sources.
const REMOTE: [u32; 17] = [
    0x6573_5546, // FUSE
    0x00c3_6400, // CephFS
    0x0000_6969, // NFS
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS (Storage Scale)
    0x1983_0326, // BeeGFS
    0x0000_517b, // SMB
    0xfe53_4d42, // SMB 2
    0xff53_4d42, // CIFS
    0x0102_1997, // 9P
    0x5346_414f, // AFS
    0x6b41_4653, // AFS of OpenAFS
    0x7375_7245, // Coda
    0x2003_0528, // OrangeFS
    0xaad7_aaea, // PanFS
    0xbacb_acbc, // folders of a VMware host
    0x786f_4256, // folders of a VirtualBox host
];

/// Links that a client may rely on where the limit is unknown.
const LINK_MAX_UNKNOWN: u32 = 255;
/// The largest offset of this system.
const OFFSET_MAX: u64 = i64::MAX as u64;

impl FileSystemLimits {
    /// The limits of the file system that an export's root is on. Nothing is probed on one that may
    /// not be changed.
    pub(crate) fn of(root: impl AsFd, found: &Statx, is_read_only: bool) -> Self {
        let Ok(about) = fstatfs(&root) else {
            return Self {
                file_size_max: OFFSET_MAX,
                link_max: LINK_MAX_UNKNOWN,
                is_remote: false,
                is_in_memory: false,
                is_read_only: false,
                grain: TimeGrain::default(),
                has_xattrs: false,
                has_acls: false,
                clone_block: None,
            };
        };
        let kind = FileSystemKind::of(&about, || name_of_type(found));
        let file = if is_read_only { None } else { nameless(&root) };
        let probed = file.as_ref().and_then(largest_offset);
        let is_remote = REMOTE.contains(&(about.f_type as u32));
        // If other hosts change files, a local probe does not show how their changes look.
        let grain = file.as_ref().filter(|_| !is_remote).map(TimeGrain::probe);
        Self {
            file_size_max: probed.unwrap_or_else(|| kind.file_size_max(block_len(&about))),
            link_max: kind.link_max(),
            is_remote,
            is_in_memory: kind == FileSystemKind::Tmpfs,
            is_read_only: is_mounted_read_only(&root),
            grain: grain.unwrap_or_default(),
            has_xattrs: has_attribute(&root, "user.stag"),
            has_acls: has_attribute(&root, ACCESS_LIST),
            clone_block: file.filter(|_| can_clone(&root)).map(|_| block_len(&about) as u32),
        }
    }
}

fn is_mounted_read_only(root: impl AsFd) -> bool {
    fstatvfs(root).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// File systems with known limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileSystemKind {
    Ext2,
    Ext4,
    Xfs,
    Btrfs,
    F2fs,
    Tmpfs,
    Fat,
    ExFat,
    Other,
}

impl FileSystemKind {
    /// The type, by the number that statfs(2) reports; `name` distinguishes types that share it.
    fn of(about: &StatFs, name: impl FnOnce() -> Option<String>) -> Self {
        // From linux/magic.h; 32 bits, whatever the type of the field.
        match about.f_type as u32 {
            0xef53 if name().is_some_and(|name| name == "ext2") => Self::Ext2,
            0xef53 => Self::Ext4,
            0x5846_5342 => Self::Xfs,
            0x9123_683e => Self::Btrfs,
            0xf2f5_2010 => Self::F2fs,
            0x0102_1994 => Self::Tmpfs,
            0x4d44 => Self::Fat,
            0x2011_bab0 => Self::ExFat,
            _ => Self::Other,
        }
    }

    /// Maximum links of one file, from the sources of Linux (EXT4_LINK_MAX and its like).
    const fn link_max(self) -> u32 {
        match self {
            Self::Ext2 => 32_000,
            Self::Ext4 => 65_000,
            Self::Xfs => i32::MAX as u32,
            Self::Btrfs => 65_535,
            Self::F2fs | Self::Tmpfs => u32::MAX,
            Self::Fat | Self::ExFat => 1,
            Self::Other => LINK_MAX_UNKNOWN,
        }
    }

    /// Bytes of the largest file if it cannot be probed.
    fn file_size_max(self, block: u64) -> u64 {
        match self {
            // Blocks of a file are numbered by 32 bits. A file without extents, as all are on ext2,
            // holds less.
            Self::Ext2 | Self::Ext4 => block.saturating_mul(u32::MAX.into()),
            Self::Fat => u32::MAX.into(),
            _ => OFFSET_MAX,
        }
    }
}

/// Returns true unless the file system reports that it has no extended attributes of this kind.
fn has_attribute(root: impl AsFd, name: impl rustix::path::Arg) -> bool {
    let path = format!("/proc/self/fd/{}", root.as_fd().as_raw_fd());
    getxattr(path, name, &mut [0_u8; 1][..]) != Err(Errno::OPNOTSUPP)
}

/// Returns true if files here can share a block.
fn can_clone(root: impl AsFd) -> bool {
    let (Some(source), Some(target)) = (nameless(&root), nameless(&root)) else { return false };
    pwrite(&source, &[0], 0).is_ok() && clone_range(&source, 0, 0, &target, 0).is_ok()
}

fn block_len(about: &StatFs) -> u64 {
    u64::try_from(about.f_bsize).unwrap_or(4096)
}

/// A file of this file system that never gets a name.
fn nameless(root: impl AsFd) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    openat(root, c".", flags, Mode::RUSR | Mode::WUSR).ok()
}

/// The largest offset that the system accepts for the descriptor: the end of the largest file.
fn largest_offset(file: &OwnedFd) -> Option<u64> {
    let fits = |offset: u64| seek(file, SeekFrom::Start(offset)).is_ok();
    if !fits(0) {
        return None;
    }
    let (mut fitting, mut refused) = (0, OFFSET_MAX);
    if fits(OFFSET_MAX) {
        return Some(OFFSET_MAX);
    }
    while fitting + 1 < refused {
        let middle = fitting + (refused - fitting) / 2;
        *if fits(middle) { &mut fitting } else { &mut refused } = middle;
    }
    Some(fitting)
}

/// The type name of the file system that a file is on.
fn name_of_type(found: &Statx) -> Option<String> {
    let device = makedev(found.stx_dev_major, found.stx_dev_minor);
    let mounts = Process::myself().and_then(|process| process.mountinfo()).ok()?;
    mounts.into_iter().find_map(|mount| {
        let (major, minor) = mount.majmin.split_once(':')?;
        let place = makedev(major.parse().ok()?, minor.parse().ok()?);
        (place == device).then_some(mount.fs_type)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::config::stat;
    use rustix::fs::ftruncate;
    use rustix::io::Errno;
    use std::fs::File;

    fn limits(at: &std::path::Path) -> FileSystemLimits {
        let root = File::open(at).unwrap();
        FileSystemLimits::of(&root, &stat(&root).unwrap(), false)
    }

    #[test]
    fn a_file_can_be_as_large_as_said_and_not_larger() {
        let home = tempfile::tempdir().unwrap();
        let largest = limits(home.path()).file_size_max;
        let file = File::create(home.path().join("f")).unwrap();
        ftruncate(&file, largest).unwrap();
        if largest < OFFSET_MAX {
            assert_eq!(ftruncate(&file, largest + 1), Err(Errno::FBIG));
        }
        let left = std::fs::read_dir(home.path()).unwrap().count();
        assert_eq!(left, 1, "whoever looks leaves nothing behind");
    }

    #[test]
    fn where_nothing_can_be_made_the_kind_of_file_system_says_it() {
        assert_eq!(FileSystemKind::Ext4.file_size_max(4096), (16 << 40) - 4096);
        assert_eq!(FileSystemKind::Fat.file_size_max(512), u64::from(u32::MAX));
        assert_eq!(FileSystemKind::Xfs.file_size_max(4096), OFFSET_MAX);
        // No files can be made there.
        let limits = limits(std::path::Path::new("/proc"));
        assert_eq!(
            limits,
            FileSystemLimits {
                file_size_max: OFFSET_MAX,
                link_max: LINK_MAX_UNKNOWN,
                is_remote: false,
                is_in_memory: false,
                is_read_only: false,
                grain: TimeGrain::Coarse,
                has_xattrs: false,
                has_acls: false,
                clone_block: None,
            }
        );
    }

    #[test]
    fn a_file_has_as_many_names_as_said_and_no_more() {
        let home = tempfile::tempdir().unwrap();
        let most = limits(home.path()).link_max;
        let file = home.path().join("f");
        File::create(&file).unwrap();
        // More would take long; the limits of the larger ones are from the sources of Linux.
        for number in 1..most.min(70_000) {
            if let Err(error) = std::fs::hard_link(&file, home.path().join(number.to_string())) {
                panic!("{most} names are promised, {number} is refused: {error}");
            }
        }
        if most < 70_000 && most != LINK_MAX_UNKNOWN {
            let error = std::fs::hard_link(&file, home.path().join("more")).unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::MLINK));
        }
    }
}
