//! The file of a result: opened before the run, so that a path that cannot be written costs no
//! measurement.

use crate::{Error, caller::say, replace::sync_directory};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// A file that results are written to, or standard output.
#[derive(Debug)]
pub struct ResultFile {
    path: PathBuf,
    /// None for standard output.
    file: Option<File>,
    /// Nothing was there before, and nothing is to stay when no result comes.
    is_ours: bool,
}

impl ResultFile {
    /// Opens `path`, or standard output for `-`. What a file holds stays until
    /// [`ResultFile::write`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mut opened = Self { path: path.to_owned(), file: None, is_ours: false };
        if path != Path::new("-") {
            opened.is_ours = fs::symlink_metadata(path).is_err();
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            opened.file =
                Some(file.map_err(|error| Error::usage(format!("{}: {error}", path.display())))?);
        }
        Ok(opened)
    }

    /// Writes the result, in the place of what was there.
    pub fn write(mut self, text: impl AsRef<[u8]>) -> Result<(), Error> {
        let Some(file) = &mut self.file else {
            say(text);
            return Ok(());
        };
        self.is_ours = false;
        replace(&self.path, file, text.as_ref())
            .map_err(|error| Error::failure(format!("{}: {error}", self.path.display())))
    }
}

fn replace(path: &Path, file: &mut File, text: &[u8]) -> io::Result<()> {
    // A pipe or a terminal has no length, and no disk.
    let is_file = file.metadata()?.is_file();
    if is_file {
        file.set_len(0)?;
    }
    file.write_all(text)?;
    if is_file {
        file.sync_all()?;
        sync_directory(path)?;
    }
    Ok(())
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}
