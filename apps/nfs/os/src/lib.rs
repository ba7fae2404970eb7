//! Safe functions for the parts of Linux that an NFS server needs and no crate wraps: kernel file
//! handles ([`handle`]), sharing of blocks between files ([`mod@clone`]), threads that act as
//! another user ([`user`]) with any number of groups ([`groups`]), threads that preempt no other
//! ([`batch`]), opening of files for their owner regardless of mode ([`owner`]), asynchronous reads
//! ([`ring`]), memory of a shard lent to another thread ([`lent`]), a file size limit that ends no
//! process ([`signal`]), selection of one of several listeners by the caller's address ([`steer`]),
//! kernel TLS ([`tls_records`]), byte range locks of an open file ([`range_lock`]), leases of files
//! ([`lease`]), failures of write-back ([`writeback`]), and descriptors passed by a service manager
//! ([`passed`]).
//!
//! Every other system call of the store goes through rustix. `unsafe` here is one system call per
//! block, except for lent memory.

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
