//! CephFS through libcephfs, which is loaded when the first mount is made: no program needs it to
//! start or to build. The contract of the C library is in Ceph's `libcephfs.h`; the declarations
//! here are our own.
//!
//! | file | content |
//! |---|---|
//! | `library.rs` | the functions, looked up one by one |
//! | `abi.rs` | the structures that cross the boundary, with their sizes |
//! | `mount.rs` | [`PreparedMount`] and [`CephMount`]: a client of a file system |
//! | `inode.rs`, `namespace.rs` | [`CephInode`]: a reference to a file or directory |
//! | `file.rs`, `directory.rs` | [`CephFile`] and [`CephDirectory`]: open files and directories |
//! | `user.rs` | [`UserPerm`]: the user for whom a call is made |
//! | `callbacks.rs` | inodes that the library asks the caller to release |
//! | `rados.rs` | [`RadosPool`]: small objects, by librados |
//!
//! Every owner releases its object when it is dropped, and keeps its mount alive until then. A call
//! may wait for ever (for a data or metadata daemon that is down), and so may a drop: make neither
//! on a thread that others wait for. No promise of POSIX is added: errors are the library's.

mod abi;
mod callbacks;
mod directory;
mod file;
mod inode;
mod library;
mod mount;
mod namespace;
mod rados;
mod user;

pub use abi::{CephStat, Stamp, StatMask, Vino};
pub use callbacks::Released;
pub use directory::{CephDirectory, DirectoryEntry};
pub use file::{CephFile, SyncKind};
pub use inode::{CephInode, SetStamp, SetStat, SpaceUse};
pub use library::{Library, NoLibrary};
pub use mount::{
    CephMount, MountError, MountSettings, PreparedMount, Reclaimed, await_unmounts, exit_at_once,
    live_mounts,
};
pub use namespace::OpenFlags;
pub use rados::{Existence, PoolSettings, RadosLibrary, RadosPool};
pub use rustix::io::Errno;
pub use user::UserPerm;
