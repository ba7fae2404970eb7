//! The values of the [attributes of a stat()](STAT_ATTRIBUTES), read in few steps: nearly every
//! call of clients asks for exactly these.

use super::STAT_ATTRIBUTES;
use crate::nfs::v4::{DeviceNumber4, FileKind4, Fsid, Time4, types::OPAQUE_LEN_MAX};
use crate::xdr::{Codec as _, Error, Reader, hyper, padded};

/// [`STAT_ATTRIBUTES`] on the wire: the number of words, and the words.
pub const STAT_WORDS: [u32; 3] = {
    let [first, second] = STAT_ATTRIBUTES.first_words();
    [2, first, second]
};

/// The values of [`STAT_ATTRIBUTES`]. On the wire (`fattr4`, RFC 8881 §3.3.7) they follow their
/// bitmap and their length; any other bitmap is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatValues<'a> {
    /// Kind of the object.
    pub kind: FileKind4,
    /// Change attribute.
    pub change: u64,
    /// Octets of the content.
    pub size: u64,
    /// File system.
    pub fsid: Fsid,
    /// Number of the object in its file system.
    pub fileid: u64,
    /// Permissions, as in `chmod(2)`.
    pub mode: u32,
    /// Hard links.
    pub num_links: u32,
    /// Owner.
    pub owner: &'a [u8],
    /// Group.
    pub owner_group: &'a [u8],
    /// Numbers of a device.
    pub raw_dev: DeviceNumber4,
    /// Octets of storage used.
    pub space_used: u64,
    /// Time of the last access.
    pub time_access: Time4,
    /// Time of the last change of attributes.
    pub time_metadata: Time4,
    /// Time of the last change of the content.
    pub time_modify: Time4,
    /// Number of the directory entry that the object is mounted on.
    pub mounted_on_fileid: u64,
}

impl<'a> StatValues<'a> {
    /// Reads the attributes of an object (`fattr4`).
    ///
    /// # Errors
    /// [`Error::BadValue`] for other attributes than these, for a kind that does not exist, and for
    /// a length that is not that of the values; otherwise those of the reader.
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let [count, first, second, len] = reader.words()?;
        if [count, first, second] != STAT_WORDS {
            return Err(Error::BadValue);
        }
        let [
            kind,
            change_high,
            change,
            size_high,
            size,
            major_high,
            major,
            minor_high,
            minor,
            fileid_high,
            fileid,
            mode,
            num_links,
        ] = reader.words()?;
        let (owner, owner_group) = (reader.opaque(OPAQUE_LEN_MAX)?, reader.opaque(OPAQUE_LEN_MAX)?);
        let [
            device_major,
            device_minor,
            used_high,
            used,
            accessed_high,
            accessed,
            accessed_nanos,
            changed_high,
            changed,
            changed_nanos,
            modified_high,
            modified,
            modified_nanos,
            mounted_high,
            mounted,
        ] = reader.words()?;
        let values = Self {
            kind: FileKind4::parse(&mut Reader::new(&kind.to_be_bytes()))?,
            change: hyper(change_high, change),
            size: hyper(size_high, size),
            fsid: Fsid { major: hyper(major_high, major), minor: hyper(minor_high, minor) },
            fileid: hyper(fileid_high, fileid),
            mode,
            num_links,
            owner,
            owner_group,
            raw_dev: DeviceNumber4 { major: device_major, minor: device_minor },
            space_used: hyper(used_high, used),
            time_access: time(accessed_high, accessed, accessed_nanos),
            time_metadata: time(changed_high, changed, changed_nanos),
            time_modify: time(modified_high, modified, modified_nanos),
            mounted_on_fileid: hyper(mounted_high, mounted),
        };
        // RFC 8881 §3.3.7: the length is that of the values
        let read = 4 * (13 + 2 + 15) + padded(owner.len()) + padded(owner_group.len());
        if len as usize == read { Ok(values) } else { Err(Error::BadValue) }
    }
}

const fn time(high: u32, low: u32, nanoseconds: u32) -> Time4 {
    Time4 { seconds: hyper(high, low).cast_signed(), nanoseconds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::v4::{Attribute, emit_attributes};
    use crate::xdr::Writer;
    use std::vec::Vec;

    const VALUES: StatValues<'static> = StatValues {
        kind: FileKind4::Link,
        change: u64::MAX - 1,
        size: 1 << 33,
        fsid: Fsid { major: 3 << 32, minor: 5 },
        fileid: 7 << 40,
        mode: 0o640,
        num_links: 2,
        owner: b"1000",
        owner_group: b"a@b.c",
        raw_dev: DeviceNumber4 { major: 8, minor: 17 },
        space_used: 1 << 34,
        time_access: Time4 { seconds: -1, nanoseconds: 1 },
        time_metadata: Time4 { seconds: 1 << 35, nanoseconds: 2 },
        time_modify: Time4 { seconds: 3, nanoseconds: 999_999_999 },
        mounted_on_fileid: u64::MAX,
    };

    fn emitted(values: &StatValues<'_>) -> Vec<u8> {
        use Attribute as A;
        let mut octets = [0; 512];
        let mut writer = Writer::new(&mut octets);
        emit_attributes(&STAT_ATTRIBUTES, &mut writer, |attribute, writer| match attribute {
            A::Type => values.kind.emit(writer),
            A::Change => writer.u64(values.change),
            A::Size => writer.u64(values.size),
            A::Fsid => values.fsid.emit(writer),
            A::Fileid => writer.u64(values.fileid),
            A::Mode => writer.u32(values.mode),
            A::NumLinks => writer.u32(values.num_links),
            A::Owner => writer.opaque(values.owner),
            A::OwnerGroup => writer.opaque(values.owner_group),
            A::RawDev => values.raw_dev.emit(writer),
            A::SpaceUsed => writer.u64(values.space_used),
            A::TimeAccess => values.time_access.emit(writer),
            A::TimeMetadata => values.time_metadata.emit(writer),
            A::TimeModify => values.time_modify.emit(writer),
            A::MountedOnFileid => writer.u64(values.mounted_on_fileid),
            other => panic!("{other:?} is none of these"),
        })
        .unwrap();
        let len = writer.len();
        octets[..len].to_vec()
    }

    fn parsed(octets: &[u8]) -> Result<StatValues<'_>, Error> {
        let mut reader = Reader::new(octets);
        let values = StatValues::parse(&mut reader)?;
        reader.finish().map(|()| values)
    }

    #[test]
    fn values_that_were_written_one_by_one_are_read() {
        let octets = emitted(&VALUES);
        assert_eq!(parsed(&octets), Ok(VALUES));
    }

    #[test]
    fn what_is_not_exactly_these_values_is_refused() {
        let octets = emitted(&VALUES);
        for len in 0..octets.len() {
            assert!(parsed(&octets[..len]).is_err(), "{len} octets");
        }
        // The number of words, the bitmap, the length, and the kind of the object.
        for word in 0..5 {
            let mut other = octets.clone();
            other[4 * word + 3] ^= 0x40;
            assert!(parsed(&other).is_err(), "word {word}");
        }
    }
}
