//! Attributes of a file, and changes to them (RFC 1813 §2.6).

use core::fmt;

use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, enumeration, halves, hyper, structure};

/// Kind of object that a name stands for (`ftype3`).
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

// RFC 1813 §2.6 [1813-4]: the kinds of files have the numbers of the RFC
enumeration!(FileKind { Regular, Directory, Block, Character, Symlink, Socket, Fifo });

/// Time since 1970-01-01 00:00:00 UTC (`nfstime3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds.
    pub seconds: u32,
    /// Nanoseconds beyond them. The wire does not bound them: check a peer's value before using it.
    pub nanos: u32,
}

impl Codec<'_> for Time {
    #[inline]
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let [seconds, nanos] = reader.words()?;
        Ok(Self { seconds, nanos })
    }
    #[inline]
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.words([self.seconds, self.nanos])
    }
}

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
    /// Kind of the object.
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
    /// The file system that holds the file.
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

impl Codec<'_> for Attributes {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        // RFC 4506 §4.14 [4506-16]: a structure is its fields in order of declaration
        #[rustfmt::skip]
        let [
            kind, mode, nlink, uid, gid, size, size_low, used, used_low, major, minor, fsid,
            fsid_low, fileid, fileid_low, atime, atime_nanos, mtime, mtime_nanos, ctime,
            ctime_nanos,
        ] = reader.words()?;
        Ok(Self {
            kind: FileKind::new(kind)?,
            mode,
            nlink,
            uid,
            gid,
            size: hyper(size, size_low),
            used: hyper(used, used_low),
            device: DeviceNumber { major, minor },
            fsid: hyper(fsid, fsid_low),
            fileid: hyper(fileid, fileid_low),
            atime: Time { seconds: atime, nanos: atime_nanos },
            mtime: Time { seconds: mtime, nanos: mtime_nanos },
            ctime: Time { seconds: ctime, nanos: ctime_nanos },
        })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let Self { kind, mode, nlink, uid, gid, device, atime, mtime, ctime, .. } = *self;
        let [size, used] = [self.size, self.used].map(halves);
        let [fsid, fileid] = [self.fsid, self.fileid].map(halves);
        #[rustfmt::skip]
        let words = [
            kind as u32, mode, nlink, uid, gid, size[0], size[1], used[0], used[1], device.major,
            device.minor, fsid[0], fsid[1], fileid[0], fileid[1], atime.seconds, atime.nanos,
            mtime.seconds, mtime.nanos, ctime.seconds, ctime.nanos,
        ];
        writer.words(words)
    }
}

/// All attributes of a file in wire form: encoded once, and sent as long as they do not change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AttributeOctets([u8; Attributes::LEN]);

impl AttributeOctets {
    /// Place of the time of the last access; the times of the last changes follow.
    const ATIME_AT: usize = Attributes::LEN - 3 * 8;

    /// The attributes again.
    pub fn attributes(&self) -> Attributes {
        Attributes::parse(&mut Reader::new(&self.0)).expect("they were written from attributes")
    }

    /// Sets the time of the last access.
    #[inline]
    pub fn set_atime(&mut self, time: Time) {
        const { assert!(Self::ATIME_AT + 8 <= Attributes::LEN) };
        let place = self.0.get_mut(Self::ATIME_AT..).and_then(<[u8]>::first_chunk_mut::<8>);
        let value = u64::from(time.seconds) << 32 | u64::from(time.nanos);
        *place.expect("the times are the end of the attributes") = value.to_be_bytes();
    }
}

impl From<&Attributes> for AttributeOctets {
    fn from(attributes: &Attributes) -> Self {
        let mut octets = [0; Attributes::LEN];
        attributes.emit(&mut Writer::new(&mut octets)).expect("there is room for all of them");
        Self(octets)
    }
}

impl fmt::Debug for AttributeOctets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.attributes().fmt(f)
    }
}

impl Codec<'_> for AttributeOctets {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Attributes::parse(reader).map(|attributes| Self::from(&attributes))
    }

    #[inline]
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.array(&self.0)
    }
}

/// The attributes by which a client detects that a file was changed by another client (`wcc_attr`).
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

/// Weak cache consistency: a file before and after an operation (`wcc_data`). The server leaves out
/// values that are not certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WccData {
    /// Just before the operation, with no other change between the two.
    pub before: Option<WccAttributes>,
    /// Just after it.
    pub after: Option<Attributes>,
}

structure!(WccData { before, after });

impl WccData {
    /// Nothing is known.
    pub const NONE: Self = Self { before: None, after: None };
}

/// Change of a timestamp (`set_atime`, `set_mtime`).
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::xdr::survives;

    const TIME: Time = Time { seconds: 0x1112_1314, nanos: 0x15 };

    /// Attributes of a directory, each value another one.
    pub(in crate::nfs::v3) fn attributes() -> Attributes {
        Attributes {
            kind: FileKind::Directory,
            mode: 0o755,
            nlink: 3,
            uid: 4,
            gid: 5,
            size: 0x0607_0809_0a0b_0c0d,
            used: 0x0e,
            device: DeviceNumber { major: 1, minor: 2 },
            fsid: 0x0f,
            fileid: 0x10,
            atime: TIME,
            mtime: Time { seconds: 0x16, nanos: 0x17 },
            ctime: Time { seconds: 0x18, nanos: 0x19 },
        }
    }

    #[test]
    fn attributes_have_these_octets() {
        let wire = survives!(attributes(), Attributes);
        #[rustfmt::skip]
        let expected = [
            // Kind, mode, links, owner, group.
            0, 0, 0, 2, 0, 0, 1, 0xed, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5,
            6, 7, 8, 9, 10, 11, 12, 13, 0, 0, 0, 0, 0, 0, 0, 14, // size, used
            0, 0, 0, 1, 0, 0, 0, 2, // device
            0, 0, 0, 0, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 16, // file system, number
            0x11, 0x12, 0x13, 0x14, 0, 0, 0, 0x15,
            0, 0, 0, 0x16, 0, 0, 0, 0x17, 0, 0, 0, 0x18, 0, 0, 0, 0x19,
        ];
        assert_eq!(wire, expected);
        assert_eq!(wire.len(), Attributes::LEN);
    }

    #[test]
    fn attributes_as_octets_are_the_attributes() {
        let mut octets = AttributeOctets::from(&attributes());
        assert_eq!(survives!(octets, AttributeOctets), survives!(attributes(), Attributes));
        assert_eq!(octets.attributes(), attributes());
        let atime = Time { seconds: 0xf1f2_f3f4, nanos: 0xf5f6_f7f8 };
        octets.set_atime(atime);
        assert_eq!(octets.attributes(), Attributes { atime, ..attributes() });
    }

    #[test]
    fn only_the_seven_kinds_exist() {
        use FileKind::{Block, Character, Directory, Fifo, Regular, Socket, Symlink};
        let parse = |value: u32| FileKind::parse(&mut Reader::new(&value.to_be_bytes()));
        let known = [Regular, Directory, Block, Character, Symlink, Socket, Fifo];
        assert_eq!([1, 2, 3, 4, 5, 6, 7].map(parse), known.map(Ok));
        assert_eq!([0, 8, 9, u32::MAX].map(parse), [Err(Error::BadValue); 4]);
    }

    #[test]
    fn what_is_known_before_and_after_survives() {
        let before = Some(WccAttributes::from(&attributes()));
        let after = Some(attributes());
        assert_eq!(survives!(WccData { before, after }, WccData).len(), 4 + 24 + 4 + 84);
        assert_eq!(survives!(WccData { before, after: None }, WccData).len(), 4 + 24 + 4);
        assert_eq!(survives!(WccData { before: None, after }, WccData).len(), 4 + 4 + 84);
        assert_eq!(survives!(WccData::NONE, WccData), [0; 8]);
        let wrong = [0, 0, 0, 0, 0, 0, 0, 2];
        assert_eq!(WccData::parse(&mut Reader::new(&wrong)), Err(Error::BadValue));
    }

    #[test]
    fn each_attribute_can_be_set_or_left() {
        assert_eq!(survives!(SetAttributes::default(), SetAttributes), [0; 24]);
        for set in 0..64 {
            let bit = |bit: u32| set & (1 << bit) != 0;
            let attributes = SetAttributes {
                mode: bit(0).then_some(1),
                uid: bit(1).then_some(2),
                gid: bit(2).then_some(3),
                size: bit(3).then_some(4),
                atime: if bit(4) { SetTime::Client(TIME) } else { SetTime::Server },
                mtime: if bit(5) { SetTime::Server } else { SetTime::Keep },
            };
            survives!(attributes, SetAttributes);
        }
        assert_eq!(SetTime::parse(&mut Reader::new(&[0, 0, 0, 3])), Err(Error::BadValue));
        let mtime = SetTime::Client(TIME);
        let wire = survives!(SetAttributes { mtime, ..SetAttributes::default() }, SetAttributes);
        assert_eq!(wire[20..], [0, 0, 0, 2, 0x11, 0x12, 0x13, 0x14, 0, 0, 0, 0x15]);
    }
}
