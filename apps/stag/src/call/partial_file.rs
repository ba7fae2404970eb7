//! Partial files: a file is written under another name until it is whole, so that a reader never
//! finds a part of it, and a later run resumes an interrupted one.
//!
//! The name of a part identifies the content that it is the beginning of. When the source changes
//! in between, the part of the earlier content has another name and is not used.

use super::remote::shown;
use crate::Error;
use rustix::{fs::OFlags, process::geteuid};
use sha2::{Digest, Sha256};
use stag_operate::quote;
use std::{
    fs::{self, File, Metadata, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Octets of the digest that a name has.
const DIGEST: usize = 8;

/// The content that a part is the beginning of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceMark {
    /// Its octets.
    pub len: u64,
    /// Time of its last change, in seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds beyond.
    pub nanos: i64,
}

impl SourceMark {
    /// Of a local file.
    pub fn of(found: &Metadata) -> Self {
        Self { len: found.len(), seconds: found.mtime(), nanos: found.mtime_nsec() }
    }
}

/// The name of the part of `name`, whose content is `mark`'s. It is a valid length if `name` is,
/// and hidden.
pub fn part_name(name: &[u8], mark: SourceMark) -> String {
    let mut hash = Sha256::new();
    hash.update(name);
    for number in [mark.len.to_be_bytes(), mark.seconds.to_be_bytes(), mark.nanos.to_be_bytes()] {
        hash.update(number);
    }
    let digest = hash.finalize();
    let hex: String = digest.iter().take(DIGEST).map(|octet| format!("{octet:02x}")).collect();
    format!(".stag-part-{hex}")
}

/// A local file that is being written.
#[derive(Debug)]
pub struct LocalPart {
    /// Opened for reading and writing, and locked.
    pub file: File,
    /// Its path until it is whole.
    pub path: PathBuf,
    /// Its path from then on.
    to: PathBuf,
}

impl LocalPart {
    /// Opens the part of `to`, or `to` itself when `mark` is none. Its content is kept if `resumes`
    /// says so.
    pub fn open(to: &Path, mark: Option<SourceMark>, resumes: bool) -> Result<Self, Error> {
        refuse_special(to)?;
        let bad =
            |path: &Path, why: &str| Error::failure(format!("{}: {why}", quote::shown_path(path)));
        let path = match mark {
            Some(mark) => {
                let name = to.file_name().unwrap_or_default().as_encoded_bytes();
                to.with_file_name(part_name(name, mark))
            }
            None => to.to_owned(),
        };
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        // A link that the server had us make must not lead out of the tree.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        if mark.is_some() {
            options.mode(0o600);
        }
        let file = options.open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => bad(to, "its directory does not exist"),
            _ => bad(to, &format!("cannot be written: {}", crate::plain(&error))),
        })?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(bad(to, "another process writes it")),
            // A file system without locks: no other process is expected there.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let found = file.metadata().map_err(|error| bad(to, &crate::plain(&error)))?;
        if !found.is_file() {
            return Err(bad(&path, "it is no regular file"));
        }
        let is_named = fs::symlink_metadata(&path).is_ok_and(|named| named.ino() == found.ino());
        // One name: a second one can be a link that another user made to a file of this user.
        let is_own = found.uid() == geteuid().as_raw() && found.nlink() == 1;
        if mark.is_some() && (!is_named || !is_own) {
            return Err(bad(&path, "it belongs to another user, or another process just had it"));
        }
        if !resumes {
            file.set_len(0).map_err(|error| bad(to, &crate::plain(&error)))?;
        }
        Ok(Self { file, path, to: to.to_owned() })
    }

    /// Gives the file its name. If `syncs` says so, its content is synced to disk before, and its
    /// name after.
    pub fn finish(self, syncs: bool) -> Result<(), Error> {
        let failed = |what: &str, error: &io::Error| {
            let to = quote::shown_path(&self.to);
            Error::failure(format!("{what} {to}: {}", crate::plain(error)))
        };
        if syncs {
            // Without this, a crash of the host can leave the name without its content.
            self.file.sync_all().map_err(|error| {
                // The kernel reports lost octets only once: a later run must not resume this file.
                if self.path != self.to {
                    let _ = fs::remove_file(&self.path);
                }
                failed("cannot sync", &error)
            })?;
        }
        if self.path != self.to {
            fs::rename(&self.path, &self.to).map_err(|error| failed("cannot name", &error))?;
        }
        if syncs {
            let directory = directory_of(&self.to);
            sync_directory(directory).map_err(|error| failed("cannot sync the name", &error))?;
        }
        Ok(())
    }

    /// Ends it early. Octets that may be of use for a later run stay if `is_kept`. Returns their
    /// number.
    pub fn leave(self, is_kept: bool) -> u64 {
        let len = self.file.metadata().map_or(0, |found| found.len());
        let is_kept = is_kept && len > 0 && self.path != self.to;
        if !is_kept && self.path != self.to {
            let _ = fs::remove_file(&self.path);
        }
        if is_kept { len } else { 0 }
    }
}

/// The directory that the last name of `path` is in.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Syncs the names in a directory to disk. File systems that sync no directory have nothing to sync
/// there.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    match File::open(path).and_then(|directory| directory.sync_all()) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        // A directory that is writable but not readable cannot be opened.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Refuses to replace anything but a regular file.
fn refuse_special(to: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(to) {
        Ok(found) if !found.is_file() => Err(Error::failure(format!(
            "{} is there, and no regular file: remove it, give another name, or - for standard \
             output",
            shown(to.as_os_str().as_encoded_bytes())
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::unix::fs::symlink};

    const MARK: SourceMark = SourceMark { len: 5, seconds: 7, nanos: 9 };

    #[test]
    fn a_part_has_another_name_when_its_content_is_another() {
        let name = part_name(b"a", MARK);
        assert_eq!(name, part_name(b"a", MARK));
        for other in [
            SourceMark { len: 6, ..MARK },
            SourceMark { seconds: 8, ..MARK },
            SourceMark { nanos: 8, ..MARK },
        ] {
            assert_ne!(name, part_name(b"a", other));
        }
        assert_ne!(name, part_name(b"b", MARK));
        assert!(name.starts_with(".stag-part-") && name.len() < 32);
    }

    #[test]
    fn a_file_has_its_name_when_it_is_whole_and_not_before() {
        let home = tempfile::tempdir().unwrap();
        let to = home.path().join("x".repeat(255));
        let mut part = LocalPart::open(&to, Some(MARK), false).unwrap();
        part.file.write_all(b"hel").unwrap();
        assert!(!to.exists());
        let held = LocalPart::open(&to, Some(MARK), false).unwrap_err().to_string();
        assert!(held.contains("another process writes it"), "{held}");
        assert_eq!(part.leave(true), 3);
        let part = LocalPart::open(&to, Some(MARK), true).unwrap();
        assert_eq!(part.file.metadata().unwrap().len(), 3);
        part.finish(true).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"hel");
        let part = LocalPart::open(&to, Some(MARK), false).unwrap();
        assert_eq!(part.leave(true), 0, "nothing is in it");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_part_that_is_a_link_to_another_file_is_not_written() {
        let home = tempfile::tempdir().unwrap();
        let (to, victim) = (home.path().join("file"), home.path().join("victim"));
        fs::write(&victim, "kept").unwrap();
        let part = home.path().join(part_name(b"file", MARK));
        for plant in [symlink::<&Path, &Path>, fs::hard_link::<&Path, &Path>] {
            plant(&victim, &part).unwrap();
            LocalPart::open(&to, Some(MARK), false).unwrap_err();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
            fs::remove_file(&part).unwrap();
        }
    }

    #[test]
    fn nothing_but_a_regular_file_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let link = home.path().join("link");
        symlink("/dev/null", &link).unwrap();
        for to in [&link, Path::new("/dev/null"), home.path()] {
            let refused = LocalPart::open(to, Some(MARK), false).unwrap_err().to_string();
            assert!(refused.contains("no regular file"), "{refused}");
        }
    }
}
