//! Atomic replacement of files: a reader sees the old content or the new one.
//!
//! The directory may be writable by other users, such as `/tmp`, and the process may run as root.
//! So the new content is written to a [`Draft`], a file that did not exist and whose name cannot be
//! guessed, and no link that another user planted is followed.

use crate::{Error, caller::random, plain};
use rustix::fs::OFlags;
use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Names that are tried for a draft. Each has 64 random bits.
const TRIES: usize = 4;

/// Replaces `file` by the output of `fill`, and returns once that is on disk.
///
/// # Errors
/// The system's; `file` is then what it was, or holds the new content and its name may not be on
/// the disk.
pub fn write(file: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    replace(file, true, fill)
}

/// Replaces `file` as [`write()`] does, without waiting for the disk: for content that is written
/// again every few seconds. A loss of power may leave an empty file.
///
/// # Errors
/// The system's; `file` is then what it was.
pub fn write_unsynced(
    file: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    replace(file, false, fill)
}

fn replace(
    file: &Path,
    is_synced: bool,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    Draft::of(file, 0o666)?.replace(is_synced, fill)
}

/// A new file in the directory of the one that it replaces. Dropping it removes it.
#[derive(Debug)]
pub struct Draft {
    out: File,
    path: PathBuf,
    /// The file that it replaces; none once it has that one's name.
    to: Option<PathBuf>,
}

impl Draft {
    /// Makes the draft of `file`, with the rights `mode` as far as the umask permits them.
    ///
    /// # Errors
    /// The system's.
    pub fn of(file: &Path, mode: u32) -> io::Result<Self> {
        let mut options = File::options();
        // O_EXCL: an existing name, even a link, is never opened.
        options.write(true).create_new(true).mode(mode);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let mut tries = TRIES;
        loop {
            let path = draft_path(file)?;
            match options.open(&path) {
                Ok(out) => return Ok(Self { out, path, to: Some(file.to_owned()) }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries > 1 => {
                    tries -= 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Fills the draft and gives it the name of the file that it replaces. With `is_synced` both
    /// are on the disk when this returns.
    ///
    /// # Errors
    /// The system's, and those of `fill`.
    pub fn replace(
        mut self,
        is_synced: bool,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut out = BufWriter::new(&self.out);
        fill(&mut out)?;
        out.flush()?;
        drop(out);
        // The content before the name, because otherwise an empty file may replace the old one.
        if is_synced {
            self.out.sync_all()?;
        }
        let Some(to) = self.to.take() else { return Ok(()) };
        if let Err(error) = fs::rename(&self.path, &to) {
            self.to = Some(to);
            return Err(error);
        }
        if is_synced { sync_directory(&to) } else { Ok(()) }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.to.is_some() {
            // A partial content is useless; the first error is the one that matters.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// An unguessable name in the directory of `file`. It does not grow with the name of
/// `file`, which may have the greatest length that the file system permits.
fn draft_path(file: &Path) -> io::Result<PathBuf> {
    let random = random::<8>().map_err(|error| io::Error::other(error.to_string()))?;
    Ok(file.with_file_name(format!(".stag-{:016x}.tmp", u64::from_ne_bytes(random))))
}

/// The first `most` octets of the regular file at `file`.
///
/// # Errors
/// The system's; `InvalidInput` for a pipe, a device, or another file that is not regular, which
/// may have no end or none yet. A link is not followed.
pub fn read_start(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut found = Vec::new();
    opened.take(most).read_to_end(&mut found)?;
    Ok(found)
}

/// Checks, before anything starts, that `file` can be written later. `content` names it in a
/// sentence: "statistics".
///
/// # Errors
/// A sentence about the file.
pub fn check(file: &Path, content: &str) -> Result<(), Error> {
    let shown = file.display();
    let bad = |why: String| Error::usage(format!("cannot write {content} to {shown}: {why}"));
    if file.is_dir() {
        return Err(bad("it is a directory; give the name of a file in it".to_owned()));
    }
    let draft = Draft::of(file, 0o600).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            bad("its directory does not exist; make it, or give another file".to_owned())
        }
        _ => bad(plain(&error)),
    })?;
    drop(draft);
    Ok(())
}

/// Waits until the name of `file` is on the disk.
///
/// # Errors
/// The system's.
pub fn sync_directory(file: &Path) -> io::Result<()> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    match File::open(parent.unwrap_or(Path::new("."))).and_then(|directory| directory.sync_all()) {
        // A file system that syncs no directories, or one that may not be read: nothing can be
        // done.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_no_draft_stays() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("stats.json");
        check(&file, "statistics").unwrap();
        assert!(!file.exists());
        for content in ["one", "another"] {
            write_unsynced(&file, |out| out.write_all(b"before")).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), "before");
            write(&file, |out| out.write_all(content.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), content);
        }
        let half = write(&file, |out| {
            out.write_all(b"half")?;
            Err(io::ErrorKind::Other.into())
        });
        assert!(half.is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "another");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
        let of_a_directory = check(home.path(), "statistics").unwrap_err().to_string();
        assert!(of_a_directory.contains("is a directory"), "{of_a_directory}");
        let nowhere = home.path().join("no/file");
        assert!(check(&nowhere, "x").unwrap_err().to_string().contains("does not exist"));
        assert!(write(&nowhere, |_| Ok(())).is_err());
        // A name without a directory is one of the working directory.
        sync_directory(Path::new("stats.json")).unwrap();
        assert!(sync_directory(&nowhere).is_err());
    }

    #[test]
    fn the_names_of_drafts_differ_and_fit_beside_the_longest_name() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("x".repeat(255));
        let (one, other) = (Draft::of(&file, 0o600).unwrap(), Draft::of(&file, 0o600).unwrap());
        assert_ne!(one.path, other.path);
        drop(other);
        one.replace(true, |out| out.write_all(b"long")).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"long");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn neither_a_link_nor_a_pipe_is_read() {
        let home = tempfile::tempdir().unwrap();
        let (file, link, pipe) =
            (home.path().join("file"), home.path().join("link"), home.path().join("pipe"));
        fs::write(&file, "content").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(read_start(&file, 3).unwrap(), b"con");
        read_start(&link, 3).unwrap_err();
        assert_eq!(read_start(&pipe, 3).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
