//! The READY block as a file, for job scripts that wait for it (`--ready-file`).

use crate::{Error, plain, replace};
use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// Octets of a file that are compared with the beginning of a block.
const MARK: &str = "READY ";

/// The block in its file. Dropping it removes the file, unless another server has replaced it.
#[derive(Debug)]
pub struct ReadyFile {
    file: PathBuf,
    block: String,
}

/// Checks that `file` can be written, and replaced.
///
/// # Errors
/// A sentence about the file.
pub fn check(file: &Path) -> Result<(), Error> {
    replace::check(file, "the READY block")?;
    let is_replaced = match replace::read_start(file, MARK.len() as u64) {
        Ok(found) => found.is_empty() || found == MARK.as_bytes(),
        // A link, a pipe or a device is not read, and is no block either.
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    if is_replaced {
        return Ok(());
    }
    Err(Error::usage(format!(
        "{} is no READY block of an earlier server, so it is not replaced: give another file",
        file.display()
    )))
}

/// Removes an earlier server's block from `file`, which has its address.
///
/// # Errors
/// A sentence about the file.
pub fn clear(file: &Path) -> Result<(), Error> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::usage(format!(
            "cannot remove {}, which an earlier server left: {}",
            file.display(),
            plain(&error)
        ))),
        _ => Ok(()),
    }
}

impl ReadyFile {
    /// Writes `block` to `file`, as a whole.
    ///
    /// # Errors
    /// A sentence about the file.
    pub fn write(file: PathBuf, block: &str) -> Result<Self, Error> {
        replace::write(&file, |out| out.write_all(block.as_bytes())).map_err(|error| {
            Error::failure(format!("cannot write {}: {}", file.display(), plain(&error)))
        })?;
        Ok(Self { file, block: block.to_owned() })
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        let found = replace::read_start(&self.file, self.block.len() as u64 + 1);
        if found.is_ok_and(|found| found == self.block.as_bytes()) {
            // A file that stays is stale, and the next server removes it.
            let _ = fs::remove_file(&self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_there_while_its_server_is_and_replaces_what_was_left() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("ready");
        fs::write(&file, "READY from long ago").unwrap();
        clear(&file).unwrap();
        assert!(!file.exists());
        let ready = ReadyFile::write(file.clone(), "READY 1\nEND\n").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "READY 1\nEND\n");
        drop(ready);
        assert!(!file.exists());
        let ready = ReadyFile::write(file.clone(), "READY 1\nEND\n").unwrap();
        let other = ReadyFile::write(file.clone(), "READY 2\nEND\n").unwrap();
        drop(ready);
        assert_eq!(fs::read_to_string(&file).unwrap(), "READY 2\nEND\n");
        drop(other);
        fs::write(&file, "somebody's").unwrap();
        assert!(check(&file).unwrap_err().to_string().contains("is not replaced"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "somebody's");
        let nowhere = home.path().join("no/ready");
        assert!(check(&nowhere).unwrap_err().to_string().contains("does not exist"));
    }
}
