//! Entries of a directory in the plain form in which they go from thread to thread: one after the
//! other, each as it stands in a reply but for the word in front of it.
//!
//! An entry is never longer here than there, so a room of as many octets as the reply may have
//! holds at least as many entries.

use stag_protocol::{
    nfs::v3::{Entry, EntryPlus, Name},
    xdr::{Codec, NoRoom, Reader, Writer},
};

use super::ListedEntry;

/// Detail of the entries of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryDetail {
    /// Names, numbers and cookies.
    Names,
    /// Attributes and handles too.
    Objects,
}

/// Entries that are being written to a room.
#[derive(Debug)]
pub(super) struct EntryFiller<'a> {
    writer: Writer<'a>,
    len: usize,
    detail: EntryDetail,
}

impl<'a> EntryFiller<'a> {
    /// None yet.
    pub(super) fn new(room: &'a mut [u8], detail: EntryDetail) -> Self {
        Self { writer: Writer::new(room), len: 0, detail }
    }

    /// Adds an entry; false when it has no room.
    pub(super) fn push(&mut self, entry: &ListedEntry<'_>) -> bool {
        let pushed = emit(&mut self.writer, entry, self.detail);
        // What a failed attempt left behind is no entry.
        if pushed.is_ok() {
            self.len = self.writer.len();
        }
        pushed.is_ok()
    }

    /// Octets of the entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

fn emit(
    writer: &mut Writer<'_>,
    entry: &ListedEntry<'_>,
    detail: EntryDetail,
) -> Result<(), NoRoom> {
    let plain = Entry { fileid: entry.fileid, name: Name(entry.name), cookie: entry.cookie };
    if detail == EntryDetail::Names {
        return plain.emit(writer);
    }
    let (handle, attributes) = entry.object.unzip();
    EntryPlus { entry: plain, attributes, handle }.emit(writer)
}

/// Shows the entries in `octets` to `visit`, until it takes no more; true if it took them all.
pub(super) fn visit_entries(
    octets: &[u8],
    detail: EntryDetail,
    visit: &mut super::Visitor<'_>,
) -> bool {
    let mut reader = Reader::new(octets);
    while reader.remaining() > 0 {
        let parsed = match detail {
            EntryDetail::Names => Entry::parse(&mut reader).map(|entry| EntryPlus {
                entry,
                attributes: None,
                handle: None,
            }),
            EntryDetail::Objects => EntryPlus::parse(&mut reader),
        };
        let Ok(EntryPlus { entry, attributes, handle }) = parsed else {
            debug_assert!(false, "entries are read as they were written");
            return false;
        };
        let (fileid, name, cookie) = (entry.fileid, entry.name.0, entry.cookie);
        if !visit(&ListedEntry { fileid, name, cookie, object: handle.zip(attributes) }) {
            return false;
        }
    }
    true
}
