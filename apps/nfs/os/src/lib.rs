//! What a privileged NFS server asks of Linux and no crate wraps as a safe function: files named by the kernel's own handles
//! ([`handle`]), and a thread that acts as another user ([`user`]).
//!
//! Every other system call of the store goes through rustix. `unsafe` here is one system call per block.

pub mod handle;
pub mod user;

pub use handle::KernelHandle;
pub use user::{Raised, User};
