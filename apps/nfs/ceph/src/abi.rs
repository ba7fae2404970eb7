//! The structures of `libcephfs.h` and `ceph_ll_client.h` that cross the boundary: the same in Ceph
//! 16.2 and 18.2, for x86-64 and aarch64.

use libc::{c_char, c_int, c_void};

/// A time, as `struct timespec` has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub seconds: i64,
    /// Nanoseconds beyond them.
    pub nanos: i64,
}

/// Attributes of a file (`struct ceph_statx`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CephStat {
    /// Attributes that are known: bits of [`StatMask`].
    pub mask: u32,
    /// Preferred size of a transfer in octets.
    pub block_len: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Type and permissions, as `st_mode` of stat(2) has them.
    pub mode: u16,
    /// Inode number: never used for another file.
    pub inode: u64,
    /// Octets.
    pub size: u64,
    /// Blocks of 512 octets.
    pub blocks: u64,
    /// The snapshot, not a device.
    pub device: u64,
    /// The device that a special file stands for.
    pub special: u64,
    /// Time of the last access.
    pub accessed: Stamp,
    /// Time of the last change of anything.
    pub changed: Stamp,
    /// Time of the last change of the content.
    pub modified: Stamp,
    /// Time at which the file was made.
    pub born: Stamp,
    /// Counter of changes. It may go back when a client that wrote is lost.
    pub version: u64,
}

const _: () = assert!(size_of::<Stamp>() == 16);
const _: () = assert!(size_of::<CephStat>() == 24 + 5 * 8 + 4 * 16 + 8);

/// Attributes that are asked for (`CEPH_STATX_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatMask(pub(crate) u32);

impl StatMask {
    /// All that the file system knows.
    pub const ALL: Self = Self(0x1fff);
    /// Type, permissions, owner and group.
    pub const RIGHTS: Self = Self(0x1 | 0x4 | 0x8);
    /// The inode number only, which costs nothing.
    pub const INODE: Self = Self(0x100);

    /// Returns true if `stat` has all of these.
    pub fn is_known(self, stat: &CephStat) -> bool {
        stat.mask & self.0 == self.0
    }
}

/// The name of a file that is good for ever: an inode number, and the snapshot in which it is seen
/// (`vinodeno_t`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vino {
    /// Inode number.
    pub inode: u64,
    /// Snapshot; [`Vino::LIVE`] for the file as it is.
    pub snapshot: u64,
}

const _: () = assert!(size_of::<Vino>() == 16);

impl Vino {
    /// The file as it is, not as a snapshot kept it (`CEPH_NOSNAP`).
    pub const LIVE: u64 = u64::MAX - 1;

    /// The live file with this inode number.
    pub const fn live(inode: u64) -> Self {
        Self { inode, snapshot: Self::LIVE }
    }
}

/// Opaque objects of the library.
pub(crate) type RawMount = *mut c_void;
pub(crate) type RawInode = *mut c_void;
pub(crate) type RawFile = *mut c_void;
pub(crate) type RawDirectory = *mut c_void;
pub(crate) type RawPerm = *mut c_void;

type InodeCallback = unsafe extern "C" fn(*mut c_void, Vino, i64, i64);
type NameCallback = unsafe extern "C" fn(*mut c_void, Vino, Vino, *const c_char, usize);
type InterruptCallback = unsafe extern "C" fn(*mut c_void, *mut c_void);
type RemountCallback = unsafe extern "C" fn(*mut c_void) -> c_int;
type UmaskCallback = unsafe extern "C" fn(*mut c_void) -> u32;
/// Asks for an inode to be let go.
pub(crate) type ReleaseCallback = unsafe extern "C" fn(*mut c_void, Vino);

/// Functions that the library calls (`struct ceph_client_callback_args`); none where a field is
/// None.
#[repr(C)]
pub(crate) struct CallbackArguments {
    pub(crate) handle: *mut c_void,
    pub(crate) inode: Option<InodeCallback>,
    pub(crate) name: Option<NameCallback>,
    pub(crate) interrupt: Option<InterruptCallback>,
    pub(crate) remount: Option<RemountCallback>,
    pub(crate) umask: Option<UmaskCallback>,
    pub(crate) release: Option<ReleaseCallback>,
}

const _: () = assert!(size_of::<CallbackArguments>() == 7 * size_of::<usize>());
const _: () = assert!(size_of::<libc::dirent64>() == 280);
const _: () = assert!(size_of::<libc::statvfs>() == 112);
