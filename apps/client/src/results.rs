//! Results that procedures return as values of their own.

use stag_protocol::nfs::v3::{Attributes, Entry, FileHandle};

/// Result of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadResult {
    /// Octets that were read.
    pub count: usize,
    /// True if the last octet that was read is the file's last.
    pub eof: bool,
    /// Of the file.
    pub attributes: Option<Attributes>,
}

/// A name of a directory, as READDIR or READDIRPLUS gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The file's number.
    pub fileid: u64,
    /// Cookie after which the next entries begin.
    pub cookie: u64,
    /// Of the file, from READDIRPLUS and if the server knows them.
    pub attributes: Option<Attributes>,
    /// Of the file, from READDIRPLUS and if the server knows it.
    pub handle: Option<FileHandle>,
}

impl DirEntry {
    pub(crate) fn new(entry: &Entry<'_>) -> Self {
        let Entry { fileid, name, cookie } = *entry;
        Self { name: name.0.to_vec(), fileid, cookie, attributes: None, handle: None }
    }
}
