//! NFS version 3 (RFC 1813): program 100003, version 3.
//!
//! [`Procedure`] numbers the 22 procedures, [`Call`] holds the arguments of one and [`Reply`] its
//! results. A result is a `Result`: the procedure's results, or a [`Failure`] with the attributes
//! that its failure arm carries. A server need not build a [`Reply`]: each result is a
//! [`Codec`](crate::xdr::Codec) of its own.

mod attributes;
mod create;
mod getattr;
mod handle;
mod lookup;
mod name;
mod procedure;
mod read;
mod readdir;
mod remove;
mod result;
mod status;
mod system;
mod write;

pub use attributes::{
    AttributeOctets, Attributes, DeviceNumber, FileKind, SetAttributes, SetTime, Time,
    WccAttributes, WccData,
};
pub use create::{
    CreateArgs, CreateHow, CreateOk, CreateResult, MkDirArgs, MkNodArgs, NodeKind, SymlinkArgs,
};
pub use getattr::{
    Access, AccessArgs, AccessOk, AccessResult, GetAttrArgs, GetAttrResult, SetAttrArgs,
    SetAttrResult,
};
pub use handle::FileHandle;
pub use lookup::{LookupArgs, LookupOk, LookupResult, ReadLinkArgs, ReadLinkOk, ReadLinkResult};
pub use name::{DirOpArgs, Name};
pub use procedure::{Call, Procedure, Reply};
pub use read::{ReadArgs, ReadOk, ReadResult};
pub use readdir::{
    Entry, EntryPlus, PlusLimits, PlusRoom, ReadDirArgs, ReadDirOk, ReadDirPlusArgs, ReadDirPlusOk,
    ReadDirPlusResult, ReadDirPlusWriter, ReadDirResult, ReadDirWriter,
};
pub use remove::{
    LinkArgs, LinkResult, LinkWcc, RemoveArgs, RemoveResult, RenameArgs, RenameResult, RenameWcc,
};
pub use result::Failure;
pub use status::Status;
pub use system::{
    FsInfo, FsInfoResult, FsStat, FsStatResult, PathConf, PathConfResult, SystemArgs, SystemOk,
};
pub use write::{
    CommitArgs, CommitOk, CommitResult, StableHow, WriteArgs, WriteOk, WriteResult, WrittenData,
};

/// The program number (RFC 1813 §3).
pub const PROGRAM: u32 = 100_003;
/// The version number (RFC 1813 §3).
pub const VERSION: u32 = 3;
/// Octets of the longest path in a symbolic link that is parsed. The protocol sets no limit; this
/// is Linux's.
pub const PATH_MAX: usize = 4096;

/// Write verifier of WRITE and COMMIT: a changed one shows that unstable data may have been lost
/// (`writeverf3`, RFC 1813 §2.4).
pub type Verifier = [u8; 8];
/// Cookie verifier of READDIR and READDIRPLUS: shows if cookies still mean the same (`cookieverf3`,
/// RFC 1813 §2.4).
pub type CookieVerifier = [u8; 8];
/// Verifier by which a repeated exclusive CREATE is recognised (`createverf3`, RFC 1813 §2.4).
pub type CreateVerifier = [u8; 8];
