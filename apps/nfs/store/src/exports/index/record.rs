//! One record of the index log: a name that a file has, or no longer has.
//!
//! Octets, numbers little-endian: length of all (2), what (1), zero (1), export (4), inode (8),
//! birth seconds (8) and nanoseconds (4), inode of the directory (8), stamp (8), name (1–255),
//! SipHash-2-4 of all before it (8).

use core::{fmt, hash::Hasher as _};

use siphasher::sip::SipHasher24;

use crate::exports::{
    config::ExportId,
    handle::{Birth, FileId, Identity},
};

/// State of a name: held by the file, or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// The file has this name.
    Here,
    /// The file no longer has this name.
    Gone,
}

/// A name that a file has or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexRecord<'a> {
    pub what: RecordKind,
    pub identity: Identity,
    /// Inode of the directory that holds the name.
    pub parent: u64,
    /// Orders records of different logs: nanoseconds of the wall clock, rising within one log.
    pub stamp: u64,
    /// 1 to 255 octets.
    pub name: &'a [u8],
}

/// No whole record could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotWhole;

const SUM_LEN: usize = 8;

/// The checksum's key.
#[derive(Clone)]
pub(super) struct RecordKey(pub [u8; 16]);

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordKey")
    }
}

impl<'a> IndexRecord<'a> {
    const HEAD_LEN: usize = 44;
    /// Bytes of the longest record.
    pub const MAX: usize = Self::HEAD_LEN + 255 + SUM_LEN;

    /// Appends the record to `out`. Never allocates when `out` has [`IndexRecord::MAX`] bytes of
    /// spare capacity.
    pub fn emit(&self, key: &RecordKey, out: &mut Vec<u8>) {
        let start = out.len();
        debug_assert!(
            (1..=255).contains(&self.name.len()),
            "names are checked before they are recorded"
        );
        let len = Self::HEAD_LEN + self.name.len() + SUM_LEN;
        out.extend_from_slice(&u16::try_from(len).expect("at most IndexRecord::MAX").to_le_bytes());
        out.extend_from_slice(&[matches!(self.what, RecordKind::Gone).into(), 0]);
        out.extend_from_slice(&self.identity.file.export.0.to_le_bytes());
        out.extend_from_slice(&self.identity.file.inode.to_le_bytes());
        out.extend_from_slice(&self.identity.birth.seconds.to_le_bytes());
        out.extend_from_slice(&self.identity.birth.nanos.to_le_bytes());
        out.extend_from_slice(&self.parent.to_le_bytes());
        out.extend_from_slice(&self.stamp.to_le_bytes());
        out.extend_from_slice(self.name);
        let sum = checksum(key, out.get(start..).expect("only appended to"));
        out.extend_from_slice(&sum);
    }

    /// The first record of `octets`, and its length in bytes.
    ///
    /// # Errors
    ///
    /// [`NotWhole`] when it is cut short or damaged: its writer is still writing it, or died there.
    pub fn parse(octets: &'a [u8], key: &RecordKey) -> Result<(Self, usize), NotWhole> {
        Self::read(octets, key).ok_or(NotWhole)
    }

    fn read(octets: &'a [u8], key: &RecordKey) -> Option<(Self, usize)> {
        let len = usize::from(u16::from_le_bytes(*octets.first_chunk()?));
        let (signed, sum) = octets.get(..len)?.split_last_chunk::<SUM_LEN>()?;
        if checksum(key, signed) != *sum {
            return None;
        }
        let mut rest = signed.get(2..)?;
        let [what, _] = take::<2>(&mut rest)?;
        let export = ExportId(u32::from_le_bytes(take(&mut rest)?));
        let inode = u64::from_le_bytes(take(&mut rest)?);
        let seconds = i64::from_le_bytes(take(&mut rest)?);
        let nanos = u32::from_le_bytes(take(&mut rest)?);
        let parent = u64::from_le_bytes(take(&mut rest)?);
        let stamp = u64::from_le_bytes(take(&mut rest)?);
        if rest.is_empty() || rest.len() > 255 {
            return None;
        }
        let record = Self {
            what: if what == 0 { RecordKind::Here } else { RecordKind::Gone },
            identity: Identity { file: FileId { export, inode }, birth: Birth { seconds, nanos } },
            parent,
            stamp,
            name: rest,
        };
        Some((record, len))
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*first)
}

fn checksum(key: &RecordKey, octets: &[u8]) -> [u8; SUM_LEN] {
    let mut hasher = SipHasher24::new_with_key(&key.0);
    hasher.write(octets);
    hasher.finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RecordKey = RecordKey([3; 16]);

    fn record(what: RecordKind) -> IndexRecord<'static> {
        IndexRecord {
            what,
            identity: Identity {
                file: FileId { export: ExportId(9), inode: 0x0102_0304_0506_0708 },
                birth: Birth { seconds: -5, nanos: 999_999_999 },
            },
            parent: 0xf1f2_f3f4_f5f6_f7f8,
            stamp: 77,
            name: b"a name",
        }
    }

    #[test]
    fn a_record_reads_as_it_was_written() {
        for what in [RecordKind::Here, RecordKind::Gone] {
            let mut octets = Vec::new();
            record(what).emit(&KEY, &mut octets);
            let len = octets.len();
            octets.extend_from_slice(b"behind");
            assert_eq!(IndexRecord::parse(&octets, &KEY), Ok((record(what), len)));
        }
    }

    #[test]
    fn a_record_cut_anywhere_or_changed_anywhere_is_not_whole() {
        let mut octets = Vec::new();
        record(RecordKind::Here).emit(&KEY, &mut octets);
        for len in 0..octets.len() {
            assert_eq!(IndexRecord::parse(&octets[..len], &KEY), Err(NotWhole));
        }
        for bit in 0..octets.len() * 8 {
            let mut damaged = octets.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(IndexRecord::parse(&damaged, &KEY), Err(NotWhole), "bit {bit}");
        }
    }

    #[test]
    fn the_longest_record_has_the_promised_length() {
        let mut octets = Vec::new();
        IndexRecord { name: &[b'x'; 255], ..record(RecordKind::Here) }.emit(&KEY, &mut octets);
        assert_eq!(octets.len(), IndexRecord::MAX);
    }
}
