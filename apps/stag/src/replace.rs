//! Files that are replaced as a whole: a reader sees the old content or the new one.

use crate::{Error, plain};
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Replaces `file` by what `fill` writes, and returns once that is on its disk.
///
/// # Errors
/// The system's; `file` is then what it was, or holds the new content and its name may not be on
/// the disk.
pub fn write(file: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    replace(file, true, fill)
}

/// Replaces `file` as [`write()`] does, and does not wait for the disk: for content that is written
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
    let draft = draft(file);
    let written = File::create(&draft)
        .and_then(|out| {
            let mut out = BufWriter::new(out);
            fill(&mut out)?;
            let out = out.into_inner()?;
            // The content before the name: else an empty file may take the place of the old one.
            if is_synced { out.sync_all() } else { Ok(()) }
        })
        .and_then(|()| fs::rename(&draft, file))
        .and_then(|()| if is_synced { sync_directory(file) } else { Ok(()) });
    if written.is_err() {
        // Half of it helps nobody; the error that matters is the first one.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Checks that `file` can be written later, before anything starts. `content` names it in a
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
    let draft = draft(file);
    File::create(&draft).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            bad("its directory does not exist; make it, or give another file".to_owned())
        }
        _ => bad(plain(&error)),
    })?;
    fs::remove_file(&draft).map_err(|error| bad(plain(&error)))
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

/// The name under which the new content is written before it takes the place of the old one.
fn draft(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    file.with_file_name(name)
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
}
