//! What a file is like, and how to change it (RFC 1813 §2.6).

use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, enumeration, structure};

/// What a name stands for (`ftype3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum FileKind {
    /// A regular file (`NF3REG`).
    Regular = 1,
    /// A directory (`NF3DIR`).
    Directory = 2,
    /// A block device (`NF3BLK`).
    Block = 3,
    /// A character device (`NF3CHR`).
    Character = 4,
    /// A symbolic link (`NF3LNK`).
    Symlink = 5,
    /// A socket (`NF3SOCK`).
    Socket = 6,
    /// A named pipe (`NF3FIFO`).
    Fifo = 7,
}

enumeration!(FileKind { Regular, Directory, Block, Character, Symlink, Socket, Fifo });

/// Time since 1970-01-01 00:00:00 UTC (`nfstime3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds.
    pub seconds: u32,
    /// Nanoseconds beyond them. The wire does not bound them: whoever uses a peer's value checks it.
    pub nanos: u32,
}

structure!(Time { seconds, nanos });

/// The number of a device (`specdata3`); zero for a file that is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// The driver (`specdata1`).
    pub major: u32,
    /// The device of that driver (`specdata2`).
    pub minor: u32,
}

structure!(DeviceNumber { major, minor });

/// All attributes of a file (`fattr3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, set-user-id, set-group-id and sticky bit: the low 12 bits of `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// Octets of content.
    pub size: u64,
    /// Octets of storage.
    pub used: u64,
    /// The device it stands for, if it is a device.
    pub device: DeviceNumber,
    /// The file system it lies on.
    pub fsid: u64,
    /// Its number there (the inode).
    pub fileid: u64,
    /// Last access to the content.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
}

impl Attributes {
    /// Octets on the wire, always.
    pub const LEN: usize = 84;
}

structure!(Attributes { kind, mode, nlink, uid, gid, size, used, device, fsid, fileid, atime, mtime, ctime });

/// The attributes by which a client sees whether someone else changed a file (`wcc_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WccAttributes {
    /// Octets of content.
    pub size: u64,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
}

structure!(WccAttributes { size, mtime, ctime });

impl From<&Attributes> for WccAttributes {
    fn from(attributes: &Attributes) -> Self {
        Self { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime }
    }
}

/// Weak cache consistency: a file before and after an operation (`wcc_data`). The server leaves out what it does not
/// know for certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WccData {
    /// Just before the operation, and with nothing between the two.
    pub before: Option<WccAttributes>,
    /// Just after it.
    pub after: Option<Attributes>,
}

structure!(WccData { before, after });

impl WccData {
    /// Nothing is known.
    pub const NONE: Self = Self { before: None, after: None };
}

/// What to do with a timestamp (`set_atime`, `set_mtime`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Leave it (`DONT_CHANGE`).
    #[default]
    Keep,
    /// Set it to the server's time (`SET_TO_SERVER_TIME`).
    Server,
    /// Set it to this (`SET_TO_CLIENT_TIME`).
    Client(Time),
}

impl Codec<'_> for SetTime {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        match reader.u32()? {
            0 => Ok(Self::Keep),
            1 => Ok(Self::Server),
            2 => Time::parse(reader).map(Self::Client),
            _ => Err(Error::BadValue),
        }
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Keep => writer.u32(0),
            Self::Server => writer.u32(1),
            Self::Client(time) => {
                writer.u32(2)?;
                time.emit(writer)
            }
        }
    }
}

/// The attributes to set; `None` leaves one as it is (`sattr3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The owning group.
    pub gid: Option<u32>,
    /// Octets of content: cut, or filled up with zeros.
    pub size: Option<u64>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of the content.
    pub mtime: SetTime,
}

structure!(SetAttributes { mode, uid, gid, size, atime, mtime });
