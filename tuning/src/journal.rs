//! The journal of changes: each is recorded, and on the disk, before it is made.
//!
//! One JSON object on each line: `Set` before a file is written, and `Became` after it. A `Set`
//! without a `Became` is a change in which the process died. A line without an end was being
//! written then: the change of a `Set` was never made.

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

/// Octets that a journal has at most: many thousands of changes.
const LEN_MAX: u64 = 16 << 20;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase", deny_unknown_fields)]
pub enum JournalEntry {
    /// A change that is about to be made.
    Set {
        /// The file.
        key: String,
        /// Its value before.
        old: String,
        /// The value that it is given.
        new: String,
        /// The boot of the host (/proc/sys/kernel/random/boot_id).
        boot: String,
        /// Seconds since 1970.
        time: u64,
    },
    /// A change was made, or refused.
    Became {
        /// The file.
        key: String,
        /// The value that it shows then.
        value: String,
    },
}

/// An open journal, locked by this process.
#[derive(Debug)]
pub struct ChangeJournal {
    file: File,
    entries: Vec<JournalEntry>,
}

impl ChangeJournal {
    /// Opens the journal at `path`, or makes it, and takes it for this process. A line without an
    /// end is cut off.
    ///
    /// # Errors
    /// Those of the file system; `InvalidData` if it is not a journal or belongs to another user,
    /// who could then choose what root writes; `WouldBlock` if another process has it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true).mode(0o600);
        let mut file = options.custom_flags(NO_FOLLOW).open(path)?;
        file.try_lock().map_err(|_| ErrorKind::WouldBlock)?;
        let found = file.metadata()?;
        if !found.is_file() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(invalid("it belongs to somebody else, or others can write it"));
        }
        let mut text = String::new();
        (&file).take(LEN_MAX).read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if whole < text.len() {
            file.set_len(u64::try_from(whole).map_err(io::Error::other)?)?;
        }
        let lines = text.get(..whole).unwrap_or_default().lines();
        let entries: Result<Vec<_>, _> = lines.map(serde_json::from_str).collect();
        let entries = entries.map_err(|_| invalid("a line of it is no change"))?;
        if text.is_empty()
            && let Some(folder) = folder
        {
            File::open(folder)?.sync_all()?;
        }
        file.flush()?;
        Ok(Self { file, entries })
    }

    /// The lines, the oldest first.
    #[must_use]
    pub fn entries(&self) -> &[JournalEntry] {
        &self.entries
    }

    /// Appends `entry`, and waits until it is on the disk.
    ///
    /// # Errors
    /// Those of the file system: the change must not be made then.
    pub fn append(&mut self, entry: JournalEntry) -> io::Result<()> {
        let line = serde_json::to_string(&entry)? + "\n";
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        self.entries.push(entry);
        Ok(())
    }

    /// Empties the journal.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.sync_data()?;
        self.entries.clear();
        Ok(())
    }
}

/// Returns true if there is a journal at `path` with something in it.
#[must_use]
pub fn is_journal(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.len() > 0)
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// A link in place of the journal is refused.
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
