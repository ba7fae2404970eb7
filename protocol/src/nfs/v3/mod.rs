//! NFS version 3 (RFC 1813): program 100003, version 3.

mod attributes;
mod handle;
mod status;
mod system;

pub use attributes::{
    Attributes, DeviceNumber, FileKind, SetAttributes, SetTime, Time, WccAttributes, WccData,
};
pub use handle::FileHandle;
pub use status::Status;
pub use system::{Access, CreateHow, FsInfo, FsStat, PathConf, StableHow};

/// The program number (RFC 1813 §3).
pub const PROGRAM: u32 = 100_003;
/// The version number (RFC 1813 §3).
pub const VERSION: u32 = 3;

/// What WRITE and COMMIT return to show whether unstable data may have been lost (`writeverf3`, RFC 1813 §2.4).
pub type Verifier = [u8; 8];
/// What READDIR and READDIRPLUS return to show whether cookies still mean the same (`cookieverf3`, RFC 1813 §2.4).
pub type CookieVerifier = [u8; 8];
/// What an exclusive CREATE is recognised by when it comes again (`createverf3`, RFC 1813 §2.4).
pub type CreateVerifier = [u8; 8];
