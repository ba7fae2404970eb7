//! The state directory: the gateway's persistent state.
//!
//! `key` (mode 0600: the key of the file handles and of the index's checksums), `exports` (the ids
//! of the exports), `index.base` and `index.N.log`, `index.N.M.log` (see [`super::index`]), `lock`
//! (held while a server uses the directory). It must not be inside an export: the key permits
//! forging file handles.

use crate::StartError;
use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FlockOperation, Mode, OFlags, flock, openat},
    rand::{GetRandomFlags, getrandom},
};

use super::{
    config::{ExportId, HostInode},
    handle::HandleKey,
};

/// Adds the attempted action and its object to a system error.
pub(crate) fn cannot<E: fmt::Display>(what: &str, path: &Path) -> impl Fn(E) -> StartError {
    let text = format!("cannot {what} {}", path.display());
    move |error| StartError(format!("{text}: {error}"))
}

/// An open state directory, locked against other servers.
pub struct StateDirectory {
    path: PathBuf,
    directory: OwnedFd,
    place: HostInode,
    secret: [u8; Self::SECRET_LEN],
    lock: File,
}

impl fmt::Debug for StateDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateDirectory({})", self.path.display())
    }
}

impl StateDirectory {
    const SECRET_LEN: usize = 32;

    /// Opens the directory, and makes it and its key if needed.
    ///
    /// # Errors
    ///
    /// A sentence when it cannot be made, is used by another server, or its key is readable for
    /// others.
    pub fn open(path: &Path) -> Result<Self, StartError> {
        if let Err(error) = fs::create_dir(path)
            && error.kind() != ErrorKind::AlreadyExists
        {
            return Err(cannot("make the state directory", path)(error));
        } else if fs::metadata(path).is_ok_and(|found| found.is_dir() && is_empty(path)) {
            // A directory with content keeps its mode, which its owner chose; the key has its own
            // mode.
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))
                .map_err(cannot("protect the state directory", path))?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, path, flags, Mode::empty())
            .map_err(cannot("open the state directory", path))?;
        let place =
            HostInode::of(&directory).map_err(cannot("look at the state directory", path))?;
        let lock = lock(path)?;
        let secret = secret(path)?;
        Ok(Self { path: path.to_owned(), directory, place, secret, lock })
    }

    /// Returns the path of the state directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory's own inode: never served, wherever it appears.
    pub fn place(&self) -> HostInode {
        self.place
    }

    /// Returns true if the directory is `place` or is under it.
    ///
    /// # Errors
    /// A sentence when a directory above it is not accessible.
    pub fn lies_under(&self, place: HostInode) -> Result<bool, StartError> {
        let look = || -> rustix::io::Result<bool> {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let mut here = openat(&self.directory, ".", flags, Mode::empty())?;
            loop {
                let current = HostInode::of(&here)?;
                if current == place {
                    return Ok(true);
                }
                let above = openat(&here, "..", flags, Mode::empty())?;
                if HostInode::of(&above)? == current {
                    return Ok(false);
                }
                here = above;
            }
        };
        look().map_err(cannot("look above the state directory", &self.path))
    }

    /// The key of the file handles.
    pub fn handles(&self) -> HandleKey {
        HandleKey::new(&self.handle_key())
    }

    /// Sixteen bytes that identify this server among all others, including its cluster's; stable
    /// across restarts.
    pub fn identity(&self) -> [u8; 16] {
        let handles = self.handles();
        // No export has these numbers.
        let words = [u32::MAX, u32::MAX - 1].map(|number| handles.fsid(ExportId(number)));
        let mut identity = [0; 16];
        for (place, word) in identity.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        identity
    }

    fn handle_key(&self) -> [u8; HandleKey::LEN] {
        *self.secret.first_chunk().expect("32 octets hold 16")
    }

    /// The key of the index's checksums.
    pub fn record_key(&self) -> [u8; 16] {
        *self.secret.last_chunk().expect("32 octets hold 16")
    }

    /// Replaces the file `name` as a whole: afterwards, and after a crash, it has either the old
    /// content or this.
    ///
    /// # Errors
    /// A sentence when it cannot be written.
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<(), StartError> {
        replace(&self.path, name, content)
    }
}

/// As [`StateDirectory::replace`], for callers that have only the directory's path.
pub(crate) fn replace(directory: &Path, name: &str, content: &[u8]) -> Result<(), StartError> {
    let (path, draft) = (directory.join(name), directory.join(format!("{name}.tmp")));
    let write = || -> std::io::Result<()> {
        let mut file = make_draft(&draft)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(cannot("write", &path))
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        // Closing is not enough: a child that was just forked holds the same lock until it executes
        // its program.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn lock(directory: &Path) -> Result<File, StartError> {
    let path = directory.join("lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&path).map_err(
        |error| match error.kind() {
            ErrorKind::PermissionDenied => StartError(format!(
                "cannot write {}: another user's server made it; give all of {} to the user of \
                 this one (chown -R), or choose another directory with --state-dir",
                path.display(),
                directory.display()
            )),
            _ => cannot("write", &path)(error),
        },
    )?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        StartError(format!(
            "the state directory {} is in use by another server: stop that one, or give this one \
             a directory of its own with --state-dir",
            directory.display()
        ))
    })?;
    Ok(file)
}

fn secret(directory: &Path) -> Result<[u8; StateDirectory::SECRET_LEN], StartError> {
    let path = directory.join("key");
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return make_secret(directory),
        Err(error) => return Err(cannot("read", &path)(error)),
    };
    check_private(&file, &path)?;
    let mut secret = [0; StateDirectory::SECRET_LEN];
    file.read_exact(&mut secret).map_err(cannot("read", &path))?;
    if file.read(&mut [0]).map_err(cannot("read", &path))? != 0 {
        return Err(StartError(format!("{} is not a key of this server", path.display())));
    }
    Ok(secret)
}

/// Refuses a file with a secret that is readable for users other than this process's.
pub(crate) fn check_private(file: &File, path: &Path) -> Result<(), StartError> {
    let found = file.metadata().map_err(cannot("look at", path))?;
    if found.mode() & 0o077 != 0 || found.uid() != rustix::process::geteuid().as_raw() {
        let text = "belongs to another user or can be read by others: give it to the server's \
                    user with mode 0600";
        return Err(StartError(format!("{} {text}", path.display())));
    }
    Ok(())
}

/// Makes a new draft. A leftover of a crash, or a link planted by another user in a directory that
/// is not this server's alone, is removed and never written.
fn make_draft(draft: &Path) -> std::io::Result<File> {
    match fs::remove_file(draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(draft)
}

/// Writes the key under another name first: a crash leaves none, never half of one.
fn make_secret(directory: &Path) -> Result<[u8; StateDirectory::SECRET_LEN], StartError> {
    let (path, draft) = (directory.join("key"), directory.join("key.tmp"));
    let mut secret = [0; StateDirectory::SECRET_LEN];
    let filled = getrandom(&mut secret, GetRandomFlags::empty()).map_err(cannot("make", &path))?;
    assert_eq!(filled, secret.len(), "up to 256 octets come at once");
    let write = || -> std::io::Result<()> {
        let mut file = make_draft(&draft)?;
        file.write_all(&secret)?;
        file.sync_all()?;
        fs::hard_link(&draft, &path)?;
        fs::remove_file(&draft)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(cannot("write", &path))?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_are_planted_in_the_state_directory_are_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let victim = home.path().join("victim");
        fs::write(&victim, "kept").unwrap();
        let path = home.path().join("state");
        fs::create_dir(&path).unwrap();
        for name in ["key.tmp", "other.tmp", "other"] {
            std::os::unix::fs::symlink(&victim, path.join(name)).unwrap();
        }
        let state = StateDirectory::open(&path).unwrap();
        state.replace("other", b"content").unwrap();
        assert_eq!(fs::read(path.join("other")).unwrap(), b"content");
        drop(state);
        fs::remove_file(path.join("lock")).unwrap();
        std::os::unix::fs::symlink(home.path().join("made"), path.join("lock")).unwrap();
        StateDirectory::open(&path).unwrap_err();
        assert!(!home.path().join("made").exists());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    }

    #[test]
    fn the_key_is_made_once_and_only_its_owner_can_read_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        let first = StateDirectory::open(&path).unwrap().handle_key();
        assert_eq!(fs::metadata(path.join("key")).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        let again = StateDirectory::open(&path).unwrap();
        assert_eq!(again.handle_key(), first);
        assert_ne!(again.handle_key(), again.record_key());
        assert_ne!(first, [0; 16]);
    }

    #[test]
    fn a_key_that_others_can_read_stops_the_start() {
        let home = tempfile::tempdir().unwrap();
        drop(StateDirectory::open(home.path()).unwrap());
        fs::set_permissions(home.path().join("key"), fs::Permissions::from_mode(0o640)).unwrap();
        let error = StateDirectory::open(home.path()).unwrap_err();
        assert!(error.to_string().contains("mode 0600"), "{error}");
    }

    #[test]
    fn a_key_of_any_other_length_stops_the_start() {
        let home = tempfile::tempdir().unwrap();
        for len in [0, 1, 31, 33] {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(home.path().join("key"))
                .unwrap();
            file.write_all(&vec![1; len]).unwrap();
            assert!(StateDirectory::open(home.path()).is_err(), "{len} octets");
        }
    }

    #[test]
    fn two_servers_cannot_share_a_state_directory() {
        let home = tempfile::tempdir().unwrap();
        let first = StateDirectory::open(home.path()).unwrap();
        let error = StateDirectory::open(home.path()).unwrap_err();
        assert!(error.to_string().contains("in use by another server"), "{error}");
        drop(first);
        StateDirectory::open(home.path()).unwrap();
    }

    #[test]
    fn a_half_made_key_is_made_again() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("key.tmp"), b"half").unwrap();
        StateDirectory::open(home.path()).unwrap();
        assert_eq!(fs::metadata(home.path().join("key")).unwrap().len(), 32);
        assert!(!home.path().join("key.tmp").exists());
    }
}
