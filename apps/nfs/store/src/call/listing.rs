//! Encoding of directory entries for transfer between threads: one after the other, each as XDR of
//! its fields, independent of the NFS version.
//!
//! An entry is longer here than in a version 3 reply, by less than a half, and so is the room
//! ([`crate::StoreRequest::room_len`]), so that the entries returned fill the reply.

use stag_protocol::{
    nfs::v3::{DeviceNumber, FileHandle, FileKind},
    xdr::{Codec, Error, NoRoom, Reader, Writer},
};

use crate::{FileAttributes, FileTime, ListedEntry};

/// Detail of the entries of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryDetail {
    /// Names, numbers and cookies.
    Names,
    /// Attributes and handles too.
    Objects,
}

/// Entries being written to a room.
#[derive(Debug)]
pub(crate) struct EntryFiller<'a> {
    writer: Writer<'a>,
    len: usize,
    detail: EntryDetail,
}

impl<'a> EntryFiller<'a> {
    /// Starts without entries.
    pub(crate) fn new(room: &'a mut [u8], detail: EntryDetail) -> Self {
        Self { writer: Writer::new(room), len: 0, detail }
    }

    /// Adds an entry; false when it has no room.
    pub(crate) fn push(&mut self, entry: &ListedEntry<'_>) -> bool {
        let pushed = emit(&mut self.writer, entry, self.detail);
        // Bytes from a failed attempt are no entry.
        if pushed.is_ok() {
            self.len = self.writer.len();
        }
        pushed.is_ok()
    }

    /// Octets of the entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

fn emit(
    writer: &mut Writer<'_>,
    entry: &ListedEntry<'_>,
    detail: EntryDetail,
) -> Result<(), NoRoom> {
    writer.u64(entry.fileid)?;
    writer.u64(entry.cookie)?;
    entry.kind.emit(writer)?;
    writer.opaque(entry.name)?;
    match (detail, &entry.object) {
        (EntryDetail::Names, _) => Ok(()),
        (EntryDetail::Objects, None) => writer.bool(false),
        (EntryDetail::Objects, Some((handle, attributes))) => {
            writer.bool(true)?;
            handle.emit(writer)?;
            emit_attributes(writer, attributes)
        }
    }
}

fn emit_attributes(writer: &mut Writer<'_>, found: &FileAttributes) -> Result<(), NoRoom> {
    let DeviceNumber { major, minor } = found.device;
    found.kind.emit(writer)?;
    writer.words([found.mode, found.nlink, found.uid, found.gid, major, minor])?;
    for value in [found.size, found.used, found.fsid, found.fileid, found.change] {
        writer.u64(value)?;
    }
    for time in [found.atime, found.mtime, found.ctime] {
        emit_time(writer, time)?;
    }
    writer.bool(found.birth.is_some())?;
    found.birth.map_or(Ok(()), |birth| emit_time(writer, birth))
}

fn emit_time(writer: &mut Writer<'_>, time: FileTime) -> Result<(), NoRoom> {
    writer.u64(time.seconds.cast_unsigned())?;
    writer.u32(time.nanos)
}

fn parse<'a>(reader: &mut Reader<'a>, detail: EntryDetail) -> Result<ListedEntry<'a>, Error> {
    let (fileid, cookie, kind) = (reader.u64()?, reader.u64()?, Codec::parse(reader)?);
    let name = reader.opaque(usize::MAX)?;
    let has_object = detail == EntryDetail::Objects && reader.bool()?;
    let object = if has_object {
        Some((FileHandle::parse(reader)?, parse_attributes(reader)?))
    } else {
        None
    };
    Ok(ListedEntry { fileid, name, cookie, kind, object })
}

fn parse_attributes(reader: &mut Reader<'_>) -> Result<FileAttributes, Error> {
    let kind = FileKind::parse(reader)?;
    let [mode, nlink, uid, gid, major, minor] = reader.words()?;
    Ok(FileAttributes {
        kind,
        mode,
        nlink,
        uid,
        gid,
        device: DeviceNumber { major, minor },
        size: reader.u64()?,
        used: reader.u64()?,
        fsid: reader.u64()?,
        fileid: reader.u64()?,
        change: reader.u64()?,
        atime: parse_time(reader)?,
        mtime: parse_time(reader)?,
        ctime: parse_time(reader)?,
        birth: if reader.bool()? { Some(parse_time(reader)?) } else { None },
    })
}

fn parse_time(reader: &mut Reader<'_>) -> Result<FileTime, Error> {
    Ok(FileTime { seconds: reader.u64()?.cast_signed(), nanos: reader.u32()? })
}

/// Passes the entries in `octets` to `visit`, until it refuses one; true if it took them all.
pub(crate) fn visit_entries(
    octets: &[u8],
    detail: EntryDetail,
    visit: &mut crate::Visitor<'_>,
) -> bool {
    let mut reader = Reader::new(octets);
    while reader.remaining() > 0 {
        let Ok(entry) = parse(&mut reader, detail) else {
            debug_assert!(false, "entries are read as they were written");
            return false;
        };
        if !visit(&entry) {
            return false;
        }
    }
    true
}
