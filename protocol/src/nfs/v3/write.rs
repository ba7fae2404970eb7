//! WRITE and COMMIT (RFC 1813 §3.3.7, §3.3.21).

use super::{Attributes, Failure, FileHandle, FileKind, Status, Verifier, WccData};
use crate::nfs::Bulk;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, enumeration, structure};

/// Stability that written data have, or must have, before the answer; ordered from weak to strong
/// (RFC 1813 §3.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum StableHow {
    /// Anywhere: a later COMMIT makes it stable.
    Unstable = 0,
    /// Data, and the metadata needed to find it, are on stable storage.
    DataSync = 1,
    /// Data and all metadata are on stable storage.
    FileSync = 2,
}

enumeration!(StableHow { Unstable, DataSync, FileSync });

/// Arguments of WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteArgs<'a> {
    /// The file.
    pub file: FileHandle,
    /// Offset of the first octet in the file.
    pub offset: u64,
    /// Stability that the data must have before the answer.
    pub stable: StableHow,
    /// The octets. DDP-eligible. The wire has their number twice; contradictory arguments are
    /// rejected.
    pub data: Bulk<'a>,
}

impl<'a> Codec<'a> for WriteArgs<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let (file, offset) = (Codec::parse(reader)?, reader.u64()?);
        let (count, stable) = (reader.u32()?, Codec::parse(reader)?);
        Ok(Self { file, offset, stable, data: Bulk::parse_counted(reader, count)? })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.file.emit(writer)?;
        writer.u64(self.offset)?;
        writer.u32(self.data.count()?)?;
        self.stable.emit(writer)?;
        self.data.emit(writer)
    }
}

/// Results of a successful WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOk {
    /// The file before and after.
    pub wcc: WccData,
    /// Octets written.
    pub count: u32,
    /// Stability of the written octets: at least the requested one.
    pub committed: StableHow,
    /// Changes when unstable data may have been lost.
    pub verifier: Verifier,
}

structure!(WriteOk { wcc, count, committed, verifier });

/// Results of a successful WRITE without the file's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenData {
    /// Octets written.
    pub count: u32,
    /// Stability of the written octets.
    pub committed: StableHow,
    /// Changes when unstable data may have been lost.
    pub verifier: Verifier,
}

impl WriteOk {
    /// Octets of the results from the status on, with all attributes.
    const USUAL_LEN: usize = 4 + (4 + 24) + (4 + Attributes::LEN) + 4 + 4 + 8;

    /// The outcome of a successful WRITE, for a client that needs nothing else: of results from the
    /// status on that have all attributes, as nearly all do. `None` for any other results, of which
    /// nothing is read.
    #[inline]
    pub fn usual(reader: &mut Reader<'_>) -> Option<WrittenData> {
        let (octets, rest) = reader.here().split_first_chunk::<{ Self::USUAL_LEN }>()?;
        let (words, verifier) = octets.split_last_chunk::<8>()?;
        let (words, _) = words.as_chunks::<4>();
        let [status, before, _, _, _, _, _, _, after, kind, .., count, committed] = words else {
            return None;
        };
        let [status, before, after] = [status, before, after].map(|word| u32::from_be_bytes(*word));
        let [kind, count, committed] =
            [kind, count, committed].map(|word| u32::from_be_bytes(*word));
        let is_usual = (status, before, after) == (Status::Ok as u32, 1, 1)
            && (FileKind::Regular as u32..=FileKind::Fifo as u32).contains(&kind);
        let committed = match committed {
            0 => StableHow::Unstable,
            1 => StableHow::DataSync,
            2 => StableHow::FileSync,
            _ => return None,
        };
        let written = is_usual.then_some(WrittenData { count, committed, verifier: *verifier })?;
        reader.go_on(rest);
        Some(written)
    }
}

/// Results of WRITE.
pub type WriteResult = Result<WriteOk, Failure<WccData>>;

/// Arguments of COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitArgs {
    /// The file.
    pub file: FileHandle,
    /// The first octet to make stable.
    pub offset: u64,
    /// Number of octets; 0 = all from `offset` on.
    pub count: u32,
}

structure!(CommitArgs { file, offset, count });

/// Results of a successful COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitOk {
    /// The file before and after.
    pub wcc: WccData,
    /// To compare with the one that WRITE gave.
    pub verifier: Verifier,
}

structure!(CommitOk { wcc, verifier });

/// Results of COMMIT.
pub type CommitResult = Result<CommitOk, Failure<WccData>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::v3::{WccAttributes, attributes::tests::attributes};
    use std::vec::Vec;

    fn results(wcc: WccData, committed: StableHow) -> Vec<u8> {
        let results: WriteResult = Ok(WriteOk { wcc, count: 77, committed, verifier: [3; 8] });
        let mut octets = [0; 256];
        let mut writer = Writer::new(&mut octets);
        results.emit(&mut writer).unwrap();
        let len = writer.len();
        octets[..len].to_vec()
    }

    fn usual(octets: &[u8]) -> Option<WrittenData> {
        let mut reader = Reader::new(octets);
        let written = WriteOk::usual(&mut reader);
        let left = if written.is_some() { 0 } else { octets.len() };
        assert_eq!(reader.remaining(), left, "all is read, or nothing");
        written
    }

    #[test]
    fn usual_results_are_those_that_have_all_attributes() {
        let whole =
            WccData { before: Some(WccAttributes::from(&attributes())), after: Some(attributes()) };
        for committed in [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync] {
            let octets = results(whole, committed);
            let expected = WrittenData { count: 77, committed, verifier: [3; 8] };
            assert_eq!(usual(&octets), Some(expected));
            let parsed: WriteResult = Reader::new(&octets).whole().unwrap();
            let WriteOk { count, verifier, .. } = parsed.unwrap();
            assert_eq!((count, verifier), (expected.count, expected.verifier));
            for len in 0..octets.len() {
                assert_eq!(usual(&octets[..len]), None, "{len} octets");
            }
            // Status, both attributes, the kind of the file, and the stability.
            for at in [3, 7, 35, 39, octets.len() - 9] {
                let mut other = octets.clone();
                other[at] = 9;
                assert_eq!(usual(&other), None, "octet {at}");
            }
        }
        for wcc in
            [WccData::NONE, WccData { before: None, ..whole }, WccData { after: None, ..whole }]
        {
            assert_eq!(usual(&results(wcc, StableHow::FileSync)), None, "{wcc:?}");
        }
    }
}
