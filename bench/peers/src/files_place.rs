//! File systems on which servers of a measurement get a directory of files: tmpfs, where no server
//! waits for a disk, and that of a disk.

use crate::{
    contender::Absence,
    mounts::{SHARED_MEMORY, file_system},
    site::{MeasuringSite, unique},
};
use std::{fs, path::PathBuf};

/// Place of a directory that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesPlace {
    /// [`SHARED_MEMORY`].
    Tmpfs,
    /// The site's home, on a disk's file system.
    Disk,
}

/// A fresh directory to serve.
#[derive(Debug)]
pub struct FilesDirectory {
    /// The directory that is served.
    pub files: PathBuf,
    /// A directory next to it, which the server may keep its state in.
    pub state: PathBuf,
    /// Type of its file system, as `mount(8)` calls it.
    pub file_system: String,
}

impl FilesPlace {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Disk => "a disk",
        }
    }

    /// Makes a directory there, which goes with the site.
    ///
    /// # Errors
    /// [`Absence::Failed`] if the host has no such file system there.
    pub fn directory(self, site: &MeasuringSite) -> Result<FilesDirectory, Absence> {
        let home = match self {
            Self::Tmpfs => site.tmpfs().ok_or_else(|| {
                Absence::failed(format!("{SHARED_MEMORY} is no tmpfs that this user may write to"))
            })?,
            Self::Disk => site.home(),
        };
        let file_system = file_system(home).ok_or_else(|| {
            Absence::failed(format!("the file system of {} is not known", home.display()))
        })?;
        if self == Self::Disk && is_memory(&file_system) {
            return Err(Absence::failed(format!(
                "temporary files are on {file_system}: set TMPDIR to a directory of a disk"
            )));
        }
        let number = unique();
        let [files, state] = ["files", "state"].map(|name| home.join(format!("{name}-{number}")));
        fs::create_dir(&files).map_err(Absence::failed)?;
        Ok(FilesDirectory { files, state, file_system })
    }
}

impl FilesDirectory {
    /// A line among the commands of a contender, for readers.
    pub fn remark(&self) -> String {
        format!("# the files are on {}", self.file_system)
    }
}

/// Returns true if a file system of this type keeps its files in memory.
fn is_memory(file_system: &str) -> bool {
    matches!(file_system, "tmpfs" | "ramfs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_directory_is_fresh_and_says_its_file_system() {
        let Ok(site) = MeasuringSite::new(Duration::ZERO) else {
            return println!("skipped: this process may use one core");
        };
        for place in [FilesPlace::Tmpfs, FilesPlace::Disk] {
            match (place.directory(&site), place.directory(&site)) {
                (Ok(one), Ok(other)) => {
                    assert_ne!(one.files, other.files);
                    assert!(one.files.is_dir() && !one.state.exists());
                    let is_memory = is_memory(&one.file_system);
                    assert_eq!(is_memory, place == FilesPlace::Tmpfs, "{}", one.remark());
                }
                (Err(absence), _) | (_, Err(absence)) => println!("skipped: {absence}"),
            }
        }
    }
}
