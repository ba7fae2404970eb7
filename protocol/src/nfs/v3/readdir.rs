//! READDIR and READDIRPLUS (RFC 1813 §3.3.16, §3.3.17).
//!
//! A server does not build a result and emit it. It fills the reply in place, entry by entry, with
//! [`ReadDirWriter`] or [`ReadDirPlusWriter`], which keep the limits that the caller set.

use super::{Attributes, CookieVerifier, Failure, FileHandle, Name, Status};
use crate::nfs::{List, ListWriter};
use crate::xdr::{Codec, NoRoom, Writer, padded, structure};

/// Arguments of READDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDirArgs {
    /// The directory.
    pub dir: FileHandle,
    /// The cookie of the last entry that the caller has; 0 = begin.
    pub cookie: u64,
    /// The verifier that came with that cookie; 0 at the beginning.
    pub verifier: CookieVerifier,
    /// Most octets of the result, its status not counted.
    pub count: u32,
}

structure!(ReadDirArgs { dir, cookie, verifier, count });

/// Arguments of READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDirPlusArgs {
    /// The directory.
    pub dir: FileHandle,
    /// The cookie of the last entry that the caller has; 0 = begin.
    pub cookie: u64,
    /// The verifier that came with that cookie; 0 at the beginning.
    pub verifier: CookieVerifier,
    /// Most octets of entries, their attributes and handles not counted (`dircount`).
    pub dir_count: u32,
    /// Most octets of the result, its status not counted (`maxcount`).
    pub max_count: u32,
}

structure!(ReadDirPlusArgs { dir, cookie, verifier, dir_count, max_count });

/// One name of a directory (`entry3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The file's number. Never 0, which UNIX clients interpret as no file.
    pub fileid: u64,
    /// The name.
    pub name: Name<'a>,
    /// Position from which the entries after this one are read.
    pub cookie: u64,
}

structure!(Entry<'a> { fileid, name, cookie });

impl Entry<'_> {
    /// Octets on the wire, with the TRUE in front.
    fn wire_len(&self) -> usize {
        Self::wire_len_of(self.name.0.len())
    }

    fn wire_len_of(name_len: usize) -> usize {
        padded(name_len).saturating_add(4 + 8 + 4 + 8)
    }
}

/// One name of a directory, and the file that it stands for (`entryplus3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPlus<'a> {
    /// The name.
    pub entry: Entry<'a>,
    /// Of the file.
    pub attributes: Option<Attributes>,
    /// Of the file.
    pub handle: Option<FileHandle>,
}

structure!(EntryPlus<'a> { entry, attributes, handle });

/// Results of a successful READDIR.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadDirOk<'a> {
    /// Of the directory.
    pub attributes: Option<Attributes>,
    /// To be sent with any of the cookies.
    pub verifier: CookieVerifier,
    /// The names.
    pub entries: List<'a, Entry<'a>>,
    /// True if no name follows these entries.
    pub eof: bool,
}

structure!(ReadDirOk<'a> { attributes, verifier, entries, eof });

/// Results of READDIR.
pub type ReadDirResult<'a> = Result<ReadDirOk<'a>, Failure<Option<Attributes>>>;

/// Results of a successful READDIRPLUS.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadDirPlusOk<'a> {
    /// Of the directory.
    pub attributes: Option<Attributes>,
    /// To be sent with any of the cookies.
    pub verifier: CookieVerifier,
    /// The names and their files.
    pub entries: List<'a, EntryPlus<'a>>,
    /// True if no name follows these entries.
    pub eof: bool,
}

structure!(ReadDirPlusOk<'a> { attributes, verifier, entries, eof });

/// Results of READDIRPLUS.
pub type ReadDirPlusResult<'a> = Result<ReadDirPlusOk<'a>, Failure<Option<Attributes>>>;

/// Writes the results of READDIR in place.
#[derive(Debug)]
pub struct ReadDirWriter<'w, 'b>(EntryWriter<'w, 'b>);

impl<'w, 'b> ReadDirWriter<'w, 'b> {
    /// Begins a successful result, status and all, that keeps to `count` of the arguments and to
    /// the writer's room. [`Status::TooSmall`] when not even an empty result fits: then nothing is
    /// written.
    pub fn begin(
        writer: &'w mut Writer<'b>,
        attributes: Option<Attributes>,
        verifier: CookieVerifier,
        count: u32,
    ) -> Result<Self, Status> {
        let limits = PlusLimits { dir_count: u32::MAX, max_count: count };
        EntryWriter::begin(writer, attributes, verifier, limits).map(Self)
    }

    /// Adds an entry. One that does not fit leaves no trace; it and all after it belong to the next
    /// call.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<(), NoRoom> {
        self.0.push(entry.wire_len(), |writer| entry.emit(writer))
    }

    /// Ends the result and returns the number of its entries; `eof` says that the last entry of the
    /// directory is included. [`Status::TooSmall`] when there are entries but not one did fit: then
    /// nothing is written.
    pub fn finish(self, eof: bool) -> Result<usize, Status> {
        self.0.finish(eof)
    }
}

/// The limits of a reply that a READDIRPLUS call sets (RFC 1813 §3.3.17).
#[derive(Clone, Copy, Debug)]
pub struct PlusLimits {
    /// Octets of directory entries, attributes and handles not counted.
    pub dir_count: u32,
    /// Octets of the reply's structure.
    pub max_count: u32,
}

/// Writes the results of READDIRPLUS in place.
#[derive(Debug)]
pub struct ReadDirPlusWriter<'w, 'b>(EntryWriter<'w, 'b>);

impl<'w, 'b> ReadDirPlusWriter<'w, 'b> {
    /// Begins a successful result, status and all, that keeps to `limits` and to the
    /// writer's room. [`Status::TooSmall`] when not even
    /// an empty result fits: then nothing is written.
    pub fn begin(
        writer: &'w mut Writer<'b>,
        attributes: Option<Attributes>,
        verifier: CookieVerifier,
        limits: PlusLimits,
    ) -> Result<Self, Status> {
        EntryWriter::begin(writer, attributes, verifier, limits).map(Self)
    }

    /// Adds an entry. One that does not fit leaves no trace; it and all after it belong to the next
    /// call.
    pub fn push(&mut self, plus: &EntryPlus<'_>) -> Result<(), NoRoom> {
        self.0.push(plus.entry.wire_len(), |writer| plus.emit(writer))
    }

    /// The room for entries to come.
    pub fn room(&self) -> PlusRoom {
        self.0.room()
    }

    /// Ends the result and returns the number of its entries; `eof` says that the last entry of the
    /// directory is included. [`Status::TooSmall`] when there are entries but not one did fit: then
    /// nothing is written.
    pub fn finish(self, eof: bool) -> Result<usize, Status> {
        self.0.finish(eof)
    }
}

/// Octets that entries of READDIRPLUS may take. A caller can check that an entry does not fit
/// before it looks up the entry's attributes and handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlusRoom {
    /// Octets for names, numbers and cookies alone (`dircount`).
    pub names: usize,
    /// Octets for everything (`maxcount`).
    pub all: usize,
}

impl PlusRoom {
    /// More than any listing takes.
    pub const UNLIMITED: Self = Self { names: usize::MAX, all: usize::MAX };

    /// Takes the room of an entry. Returns false if there was less. `name_len` and `handle_len` are
    /// octets without padding.
    pub fn take(&mut self, name_len: usize, handle_len: usize) -> bool {
        let entry = Entry::wire_len_of(name_len);
        let object = 4 + Attributes::LEN + 4 + 4 + padded(handle_len);
        let left =
            (self.names.checked_sub(entry), self.all.checked_sub(entry.saturating_add(object)));
        let (Some(names), Some(all)) = left else { return false };
        (self.names, self.all) = (names, all);
        true
    }
}

impl Default for PlusRoom {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

/// Common writer of READDIR and READDIRPLUS results.
#[derive(Debug)]
struct EntryWriter<'w, 'b> {
    list: ListWriter<'w, 'b>,
    /// Offset in the writer at which the result begins.
    start: usize,
    /// Largest offset in the writer at which the result may end.
    end: usize,
    /// Octets of entries, attributes and handles not counted, that may still come.
    dir_left: usize,
    entries: usize,
    refused: bool,
}

/// The end of the list, and `eof`.
const TRAILER_LEN: usize = 8;

impl<'w, 'b> EntryWriter<'w, 'b> {
    fn begin(
        writer: &'w mut Writer<'b>,
        attributes: Option<Attributes>,
        verifier: CookieVerifier,
        limits: PlusLimits,
    ) -> Result<Self, Status> {
        let start = writer.len();
        // `count` and `maxcount` measure the structure of the success arm, which follows the
        // status.
        // RFC 1813 §3.3.16 [1813-80]: the results of READDIR keep to count octets
        let end = start.saturating_add(4).saturating_add(octets(limits.max_count));
        let head = Status::Ok
            .emit(writer)
            .and_then(|()| attributes.emit(writer))
            .and_then(|()| verifier.emit(writer));
        if head.is_err()
            || writer.room() < TRAILER_LEN
            || writer.len().saturating_add(TRAILER_LEN) > end
        {
            writer.truncate(start);
            return Err(Status::TooSmall);
        }
        let list = ListWriter::begin(writer, 4).map_err(|NoRoom| Status::TooSmall)?;
        Ok(Self {
            list,
            start,
            end,
            dir_left: octets(limits.dir_count),
            entries: 0,
            refused: false,
        })
    }

    fn push(
        &mut self,
        dir_len: usize,
        emit: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        // RFC 1813 §3.3.17 [1813-87]: a READDIRPLUS reply keeps to dircount and to maxcount
        let Some(dir_left) = self.dir_left.checked_sub(dir_len).filter(|_| !self.refused) else {
            // Smaller entries that follow are refused, too: they would be repeated, or come out of
            // order.
            self.refused = true;
            return Err(NoRoom);
        };
        let end = self.end;
        let pushed = self.list.push(|writer| {
            emit(writer)?;
            if writer.len().saturating_add(TRAILER_LEN) > end { Err(NoRoom) } else { Ok(()) }
        });
        match pushed {
            Ok(()) => {
                self.dir_left = dir_left;
                self.entries = self.entries.saturating_add(1);
            }
            Err(NoRoom) => self.refused = true,
        }
        pushed
    }

    fn room(&self) -> PlusRoom {
        let limit = self.end.saturating_sub(self.list.len().saturating_add(TRAILER_LEN));
        PlusRoom { names: self.dir_left, all: self.list.room().min(limit) }
    }

    fn finish(mut self, eof: bool) -> Result<usize, Status> {
        debug_assert!(!(eof && self.refused), "an entry that did not fit is behind the last");
        // RFC 1813 §3.3.16 [1813-85]: a count too small for one entry gets NFS3ERR_TOOSMALL
        if self.entries == 0 && self.refused {
            self.list.truncate(self.start);
            return Err(Status::TooSmall);
        }
        // RFC 1813 §3.3.16 [1813-81]: eof is TRUE exactly if no entry is left
        let eof = eof && !self.refused;
        self.list.finish().bool(eof).expect("`begin` keeps room for the trailer");
        Ok(self.entries)
    }
}

fn octets(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
