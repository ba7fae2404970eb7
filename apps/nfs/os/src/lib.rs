//! Safe functions for the parts of Linux that an NFS server needs and no crate wraps: files named
//! by the kernel's own handles ([`handle`]), octets that two files share ([`mod@clone`]), a thread
//! that acts as another user ([`user`]) of any number of groups ([`groups`]), threads that take the
//! core from nobody ([`batch`]), files that are opened for their owner whatever their mode
//! ([`owner`]), reads that nobody waits for ([`ring`]), memory of a shard that another thread works
//! on ([`lent`]), a file size limit that ends no process ([`signal`]), the one of several listeners
//! that a caller gets ([`steer`]), TLS of the kernel ([`tls_records`]), locks of octets that belong
//! to an open file ([`range_lock`]), files that nobody writes unseen ([`lease`]), failures of
//! write-back ([`writeback`]), and descriptors that a service manager passes ([`passed`]).
//!
//! Every other system call of the store goes through rustix. `unsafe` here is one system call per
//! block, but for lent memory.

pub mod batch;
pub mod clone;
pub mod groups;
pub mod handle;
pub mod lease;
pub mod lent;
pub mod owner;
pub mod passed;
pub mod range_lock;
pub mod ring;
pub mod signal;
pub mod steer;
pub mod tls_records;
pub mod user;
pub mod writeback;

pub use batch::BatchThread;
pub use groups::GroupList;
pub use handle::KernelHandle;
pub use lent::{LentOctets, LentRoom, OctetsKeeper, RoomKeeper};
pub use ring::{Done, ReadRange, Ring};
pub use user::{Raised, User};

/// Converts the return value of libc's `syscall`, which leaves the error in `errno`.
fn returned(value: libc::c_long) -> rustix::io::Result<libc::c_long> {
    if value >= 0 {
        return Ok(value);
    }
    let error = rustix::io::Errno::from_io_error(&std::io::Error::last_os_error());
    Err(error.expect("a failed call has a number"))
}
