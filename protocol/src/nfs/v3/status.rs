//! Status of a procedure (`nfsstat3`, RFC 1813 §2.6).

use core::fmt;

use crate::xdr::enumeration;

/// `nfsstat3` (RFC 1813 §2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    /// The call succeeded.
    Ok = 0,
    /// The caller is neither privileged nor the owner.
    Perm = 1,
    /// No such file or directory.
    NoEnt = 2,
    /// A hard error of the storage below.
    Io = 5,
    /// No such device.
    NxIo = 6,
    /// The caller has no permission for the operation.
    Acces = 13,
    /// The name exists already.
    Exist = 17,
    /// A hard link or a rename across file systems.
    XDev = 18,
    /// No such device type.
    NoDev = 19,
    /// A directory was needed, the object is something else.
    NotDir = 20,
    /// The object is a directory, something else was needed.
    IsDir = 21,
    /// An argument is invalid or not supported for this object.
    Inval = 22,
    /// The file would grow beyond the limit of the server.
    FBig = 27,
    /// No space is left.
    NoSpc = 28,
    /// The file system is read-only.
    RoFs = 30,
    /// Too many hard links.
    MLink = 31,
    /// A name is longer than the server takes.
    NameTooLong = 63,
    /// The directory is not empty.
    NotEmpty = 66,
    /// The caller's quota is used up.
    DQuot = 69,
    /// The file handle names a file that no longer exists or is no longer accessible.
    Stale = 70,
    /// The file is on a server that this one reaches remotely.
    Remote = 71,
    /// The file handle fails the server's consistency checks.
    BadHandle = 10001,
    /// SETATTR's guard does not match the object's ctime.
    NotSync = 10002,
    /// A READDIR or READDIRPLUS cookie means nothing any more.
    BadCookie = 10003,
    /// The operation is not supported.
    NotSupp = 10004,
    /// The caller's buffer is too small.
    TooSmall = 10005,
    /// The server failed in a way no other status describes.
    ServerFault = 10006,
    /// An object of this type cannot be made here.
    BadType = 10007,
    /// The server has begun, and needs time: repeat the call later, with another XID.
    Jukebox = 10008,
}

// RFC 1813 §2.5 [1813-2]: statuses have the numbers of the RFC and no others
enumeration!(Status {
    Ok,
    Perm,
    NoEnt,
    Io,
    NxIo,
    Acces,
    Exist,
    XDev,
    NoDev,
    NotDir,
    IsDir,
    Inval,
    FBig,
    NoSpc,
    RoFs,
    MLink,
    NameTooLong,
    NotEmpty,
    DQuot,
    Stale,
    Remote,
    BadHandle,
    NotSync,
    BadCookie,
    NotSupp,
    TooSmall,
    ServerFault,
    BadType,
    Jukebox,
});

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "the call succeeded",
            Self::Perm => "only the owner or a privileged user may do this",
            Self::NoEnt => "no such file or directory",
            Self::Io => "the storage failed",
            Self::NxIo => "no such device",
            Self::Acces => "permission denied",
            Self::Exist => "the name exists already",
            Self::XDev => "the names lie on different file systems",
            Self::NoDev => "no such device type",
            Self::NotDir => "not a directory",
            Self::IsDir => "a directory",
            Self::Inval => "an argument is invalid",
            Self::FBig => "the file would be too big",
            Self::NoSpc => "no space is left",
            Self::RoFs => "the file system is read-only",
            Self::MLink => "too many hard links",
            Self::NameTooLong => "the name is too long",
            Self::NotEmpty => "the directory is not empty",
            Self::DQuot => "the quota is used up",
            Self::Stale => "the file handle is stale",
            Self::Remote => "the file lies behind another server",
            Self::BadHandle => "the file handle is not ours",
            Self::NotSync => "the file changed meanwhile",
            Self::BadCookie => "the directory cookie is stale",
            Self::NotSupp => "the operation is not supported",
            Self::TooSmall => "the caller's buffer is too small",
            Self::ServerFault => "the server failed",
            Self::BadType => "objects of this type are not supported",
            Self::Jukebox => "the server needs more time",
        })
    }
}

impl core::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Codec, Error, Reader};
    use std::vec::Vec;

    #[test]
    fn only_the_29_statuses_of_the_specification_exist() {
        let known = [
            0, 1, 2, 5, 6, 13, 17, 18, 19, 20, 21, 22, 27, 28, 30, 31, 63, 66, 69, 70, 71, 10001,
            10002, 10003, 10004, 10005, 10006, 10007, 10008,
        ];
        let parse = |value: &u32| {
            Status::parse(&mut Reader::new(&value.to_be_bytes())).map(|status| status as u32)
        };
        let parsed = (0..20_000).filter(|value| parse(value) == Ok(*value)).collect::<Vec<u32>>();
        assert_eq!(parsed, known);
        assert_eq!(parse(&u32::MAX), Err(Error::BadValue));
    }
}
