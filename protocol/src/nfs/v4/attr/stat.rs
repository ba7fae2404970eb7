//! The values of the [attributes of a stat()](STAT_ATTRIBUTES), read in few steps: nearly every
//! call of clients asks for exactly these.

use super::STAT_ATTRIBUTES;
use crate::nfs::v4::{DeviceNumber4, FileKind4, Fsid, Time4, types::OPAQUE_LEN_MAX};
use crate::xdr::{Codec as _, Error, NoRoom, Reader, Writer, hyper, padded, split_opaque};

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
        if len as usize == values_len(owner, owner_group) {
            Ok(values)
        } else {
            Err(Error::BadValue)
        }
    }

    /// Skips what [`parse`](Self::parse) would read, for a caller that needs no values. Returns
    /// false, and skips nothing, for anything that it would refuse, and if it is in several pieces.
    #[inline]
    pub fn skip_whole(reader: &mut Reader<'_>) -> bool {
        let octets = reader.here();
        let is_whole = Self::after_whole(octets).map(|rest| reader.go_on(rest));
        is_whole.is_some()
    }

    /// The octets after these attributes.
    #[inline]
    fn after_whole(octets: &[u8]) -> Option<&[u8]> {
        let (words, rest) = octets.split_first_chunk::<{ 4 * (4 + 13) }>()?;
        let [count, first, second, len, kind, ..] = words.as_chunks().0 else { return None };
        let is_stat = [count, first, second].map(|word| u32::from_be_bytes(*word)) == STAT_WORDS;
        FileKind4::parse(&mut Reader::new(kind)).ok()?;
        let (owner, rest) = split_opaque(rest, OPAQUE_LEN_MAX)?;
        let (owner_group, rest) = split_opaque(rest, OPAQUE_LEN_MAX)?;
        let len = u32::from_be_bytes(*len) as usize;
        let is_whole = is_stat && len == values_len(owner, owner_group);
        rest.get(4 * 15..).filter(|_| is_whole)
    }
}

/// Octets of the values (RFC 8881 §3.3.7).
const fn values_len(owner: &[u8], owner_group: &[u8]) -> usize {
    4 * (13 + 2 + 15) + padded(owner.len()) + padded(owner_group.len())
}

/// [`STAT_ATTRIBUTES`] of an object in wire form (`fattr4`): encoded once, and sent as long as they
/// do not change. Owner and group are [`Decimal`](super::Decimal) numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatOctets {
    /// The octets, followed by zeros.
    octets: [u8; Self::LEN_MAX],
    len: u32,
}

impl StatOctets {
    /// Octets of the longest: bitmap and length, and the values, of which owner and group have at
    /// most ten digits.
    pub const LEN_MAX: usize = 4 * (3 + 1 + 13 + 2 * 4 + 15);
    /// Place of the kind of the object.
    const KIND_AT: usize = 4 * (3 + 1);
    /// Places of the time of the last access and of the number of the directory entry that the
    /// object is mounted on, from the end.
    const ATIME_FROM_END: usize = 4 * (3 * 3 + 2);
    const MOUNTED_ON_FROM_END: usize = 4 * 2;

    /// The octets that `write` writes.
    ///
    /// # Errors
    /// [`NoRoom`] if they do not fit [`LEN_MAX`](Self::LEN_MAX).
    pub fn of(write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>) -> Result<Self, NoRoom> {
        let mut octets = [0; Self::LEN_MAX];
        let mut writer = Writer::new(&mut octets);
        write(&mut writer)?;
        let len = u32::try_from(writer.len()).map_err(|_| NoRoom)?;
        Ok(Self { octets, len })
    }

    /// The values again.
    ///
    /// # Errors
    /// Those of [`StatValues::parse`] if other octets were written.
    pub fn values(&self) -> Result<StatValues<'_>, Error> {
        StatValues::parse(&mut Reader::new(
            self.octets.get(..self.len as usize).ok_or(Error::Short)?,
        ))
    }

    /// Returns true for a directory.
    #[inline]
    pub fn is_directory(&self) -> bool {
        const { assert!(Self::KIND_AT + 4 <= Self::LEN_MAX) };
        let kind = self.octets.get(Self::KIND_AT..).and_then(<[u8]>::first_chunk::<4>);
        kind == Some(&(FileKind4::Directory as u32).to_be_bytes())
    }

    /// Sets the time of the last access.
    #[inline]
    pub fn set_time_access(&mut self, time: Time4) {
        let [a, b, c, d, e, f, g, h] = time.seconds.to_be_bytes();
        let [i, j, k, l] = time.nanoseconds.to_be_bytes();
        self.set_from_end(Self::ATIME_FROM_END, [a, b, c, d, e, f, g, h, i, j, k, l]);
    }

    /// Sets the number of the directory entry that the object is mounted on.
    pub fn set_mounted_on_fileid(&mut self, fileid: u64) {
        self.set_from_end(Self::MOUNTED_ON_FROM_END, fileid.to_be_bytes());
    }

    fn set_from_end<const N: usize>(&mut self, from_end: usize, value: [u8; N]) {
        let at = (self.len as usize).checked_sub(from_end);
        let place = at.and_then(|at| self.octets.get_mut(at..)?.first_chunk_mut());
        debug_assert!(place.is_some(), "the octets are those of the attributes");
        if let Some(place) = place {
            *place = value;
        }
    }

    /// Writes the attributes.
    ///
    /// # Errors
    /// [`NoRoom`].
    #[inline]
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.front_of(&self.octets, self.len as usize)
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
        let values = StatValues::parse(&mut reader);
        let mut skipped = Reader::new(octets);
        assert_eq!(StatValues::skip_whole(&mut skipped), values.is_ok());
        assert_eq!(skipped.remaining(), values.map_or(octets.len(), |_| reader.remaining()));
        let values = values?;
        reader.finish().map(|()| values)
    }

    #[test]
    fn values_that_were_written_one_by_one_are_read() {
        let octets = emitted(&VALUES);
        assert_eq!(parsed(&octets), Ok(VALUES));
    }

    fn octets_of(values: &StatValues<'_>) -> StatOctets {
        StatOctets::of(|writer| writer.fixed(&emitted(values))).unwrap()
    }

    #[test]
    fn encoded_attributes_are_sent_as_they_are_and_two_of_them_can_be_set() {
        let mut values = VALUES;
        for (owner, group) in [("0", "1"), ("1000", "99999"), ("4294967295", "4294967295")] {
            (values.owner, values.owner_group) = (owner.as_bytes(), group.as_bytes());
            let mut octets = octets_of(&values);
            assert_eq!(octets.values(), Ok(values));
            let mut changed = values;
            changed.time_access = Time4 { seconds: -3, nanoseconds: 77 };
            octets.set_time_access(changed.time_access);
            assert_eq!(octets.values(), Ok(changed));
            changed.mounted_on_fileid = 5 << 40;
            octets.set_mounted_on_fileid(changed.mounted_on_fileid);
            assert_eq!(octets, octets_of(&changed));
            // The rest of the memory is that of the next item.
            let expected = emitted(&changed);
            for room in 0..StatOctets::LEN_MAX + 8 {
                let mut out = [0x55; StatOctets::LEN_MAX + 8];
                let mut writer = Writer::new(&mut out[..room]);
                let written = octets.emit(&mut writer).map(|()| writer.len());
                match room < expected.len() {
                    true => assert_eq!(written, Err(NoRoom), "{room}"),
                    false => assert_eq!(written, Ok(expected.len()), "{room}"),
                }
                assert!(out[room..].iter().all(|octet| *octet == 0x55), "{room}");
                if room >= expected.len() {
                    assert_eq!(out[..expected.len()], expected);
                }
            }
        }
    }

    #[test]
    fn a_directory_is_known_by_its_octets_and_longer_ones_are_refused() {
        for kind in [FileKind4::Directory, FileKind4::Regular, FileKind4::Link] {
            let values = StatValues { kind, owner: b"1", owner_group: b"1", ..VALUES };
            assert_eq!(octets_of(&values).is_directory(), kind == FileKind4::Directory);
        }
        let long = StatOctets::of(|writer| writer.fixed(&[0; StatOctets::LEN_MAX + 1]));
        assert_eq!(long, Err(NoRoom));
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
