//! Client records in files of the state directory, or of a directory shared by several gateways.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use super::{LogHome, RecordError};

/// Bytes of the longest file that is read: far above the size of any log.
const FILE_MAX: u64 = 256 << 20;

/// A directory with a file per name. Files are readable for their owner only. A directory of a
/// network file system has to show one host's files to the others as soon as they are synced.
#[derive(Debug)]
pub struct FileHome {
    directory: PathBuf,
}

impl FileHome {
    /// Uses an existing directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Makes the names in the directory stable.
    fn sync(&self) -> Result<(), RecordError> {
        Ok(File::open(&self.directory)?.sync_all()?)
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Writes a new file.
fn write_new(path: &Path, octets: &[u8]) -> Result<(), RecordError> {
    let mut file = options().write(true).create_new(true).open(path)?;
    file.write_all(octets)?;
    Ok(file.sync_all()?)
}

impl LogHome for FileHome {
    fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, RecordError> {
        let file = match options().read(true).open(self.path(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut octets = Vec::new();
        if file.take(FILE_MAX + 1).read_to_end(&mut octets)? as u64 > FILE_MAX {
            return Err(RecordError::Unfit("a file of client records is longer than any can be"));
        }
        Ok(Some(octets))
    }

    fn append(&mut self, name: &str, at: u64, octets: &[u8]) -> Result<(), RecordError> {
        let file = options().write(true).open(self.path(name))?;
        file.write_all_at(octets, at)?;
        Ok(file.sync_data()?)
    }

    fn replace(&mut self, name: &str, octets: &[u8]) -> Result<(), RecordError> {
        let fresh = self.path(&format!("{name}.new"));
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        write_new(&fresh, octets)?;
        fs::rename(&fresh, self.path(name))?;
        self.sync()
    }

    fn create(&mut self, name: &str, octets: &[u8]) -> Result<bool, RecordError> {
        // A name appears with its full content, or not at all: other gateways read it.
        let fresh = self.path(&format!("{name}.{}.new", std::process::id()));
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        write_new(&fresh, octets)?;
        let linked = fs::hard_link(&fresh, self.path(name));
        fs::remove_file(&fresh)?;
        match linked {
            Ok(()) => self.sync().map(|()| true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn remove(&mut self, name: &str) -> Result<(), RecordError> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => self.sync(),
        }
    }
}
