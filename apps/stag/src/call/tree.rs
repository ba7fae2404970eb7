//! `get` and `put` of trees: directories are walked, links are made, and files are handed to the
//! threads that move them. An entry that fails does not stop the others.

use super::{
    file_end::TreeOutcome,
    mover::{FileJob, FileMover, RemotePlace, local, local_times, remote_time},
    options::TransferOptions,
    parallel::FileCrew,
    partial_file::{directory_of, sync_directory},
    remote::{Object, Remote, failed, shown},
};
use crate::{Error, progress::TransferProgress};
use stag_operate::quote;
use stag_protocol::nfs::v3::{Attributes, FileHandle, FileKind, SetAttributes, Status};
use std::{
    ffi::OsStr,
    fs::{self, File, Metadata, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

/// Deepest nesting of directories: more is an endless tree.
const DEPTH_MAX: usize = 128;
/// The bits of a mode that a directory needs for names to be made in it.
const OPEN: u32 = 0o700;

/// A tree that is being moved.
pub struct Tree<'a> {
    mover: FileMover<'a>,
    crew: FileCrew,
    progress: &'a TransferProgress,
    way: TransferOptions,
    outcome: TreeOutcome,
    /// Number of the next entry.
    number: usize,
    /// Directories that get their attributes once all their entries are there.
    late: Vec<LateDirectory>,
}

/// A directory whose attributes would change while names are made in it.
enum LateDirectory {
    Here(PathBuf, Box<Attributes>),
    There(String, FileHandle, SetAttributes),
}

type Outcome = Result<(), Error>;

/// An entry on the server that is to be got.
struct Got<'a> {
    object: &'a Object,
    /// Its path there.
    at: &'a [u8],
    /// Its path here.
    to: &'a Path,
    depth: usize,
}

impl<'a> Tree<'a> {
    /// Nothing is moved yet.
    pub fn new(
        remote: &'a mut Remote,
        way: &TransferOptions,
        progress: &'a Arc<TransferProgress>,
    ) -> Result<Self, Error> {
        let crew = FileCrew::new(remote.plan(), way.clone(), Arc::clone(progress));
        Ok(Self {
            mover: FileMover::new(remote, way.clone(), progress)?,
            crew,
            progress,
            way: way.clone(),
            outcome: TreeOutcome::new(way.verify),
            number: 0,
            late: Vec::new(),
        })
    }

    /// Gets `object`, whose path on the server is `at`. Into `to` when that is a directory, else
    /// under that name.
    pub fn get(&mut self, object: &Object, at: &[u8], to: &Path) -> Outcome {
        let is_into = fs::metadata(to).is_ok_and(|found| found.is_dir());
        let within;
        let to = match is_into && !object.name.is_empty() {
            true => {
                within = to.join(local_name(&object.name)?);
                &within
            }
            false => to,
        };
        let got = self.get_object(&Got { object, at, to, depth: 0 });
        self.note(got)
    }

    fn get_object(&mut self, got: &Got<'_>) -> Outcome {
        let Got { object, at, to, depth } = *got;
        match object.attributes.kind {
            FileKind::Regular => {
                let (object, at) = (Box::new(object.clone()), at.to_vec());
                let len = object.attributes.size;
                self.submit(len, FileJob::Get { object, at, to: to.to_owned() });
                Ok(())
            }
            FileKind::Directory => self.get_directory(object, at, to, depth),
            FileKind::Symlink => {
                let path = self.mover.remote.client.readlink(object.handle);
                let path =
                    path.map_err(failed(format_args!("READLINK of {}", shown(&object.name))))?;
                let path = OsStr::from_bytes(&path);
                match symlink(path, to) {
                    Err(error)
                        if error.kind() == io::ErrorKind::AlreadyExists
                            && fs::read_link(to).is_ok_and(|there| there == path) => {}
                    made => made.map_err(local("make the symbolic link", to))?,
                }
                self.outcome.links += 1;
                Ok(())
            }
            _ => self.skip(format!("{}: no file, directory or symbolic link", shown(&object.name))),
        }
    }

    fn get_directory(&mut self, object: &Object, at: &[u8], to: &Path, depth: usize) -> Outcome {
        self.check_directory(&shown(&object.name), depth)?;
        if let Err(error) = fs::create_dir(to) {
            // A link that the server had us make must not lead out of the tree.
            let is_there = fs::symlink_metadata(to).is_ok_and(|found| found.is_dir());
            if !is_there {
                return Err(local("make the directory", to)(error));
            }
        } else if !self.way.no_sync {
            sync_directory(directory_of(to)).map_err(local("sync the directory of", to))?;
        }
        self.outcome.directories += 1;
        if self.way.preserve {
            let attributes = Box::new(object.attributes);
            self.late.push(LateDirectory::Here(to.to_owned(), attributes));
        }
        for entry in self.mover.remote.list(object)? {
            let ended = local_name(&entry.name).and_then(|name| {
                let (at, to) = (below(at, &entry.name), to.join(name));
                self.get_object(&Got { object: &entry, at: &at, to: &to, depth: depth + 1 })
            });
            if self.is_over(ended) {
                break;
            }
        }
        Ok(())
    }

    /// Puts `from` into a directory of the server.
    pub fn put(&mut self, from: &Path, place: RemotePlace<'_>) -> Outcome {
        let put = self.put_object(from, place, 0);
        self.note(put)
    }

    fn put_object(&mut self, from: &Path, place: RemotePlace<'_>, depth: usize) -> Outcome {
        let found = fs::symlink_metadata(from).map_err(local("look at", from))?;
        let RemotePlace { directory, name, at } = place;
        if found.is_file() {
            let (name, at) = (name.to_vec(), at.to_vec());
            self.submit(found.len(), FileJob::Put { from: from.to_owned(), directory, name, at });
            Ok(())
        } else if found.is_dir() {
            self.put_directory(from, place, &found, depth)
        } else if found.is_symlink() {
            let path = fs::read_link(from).map_err(local("read the symbolic link", from))?;
            let path = path.as_os_str().as_bytes();
            match self.mover.remote.client.symlink(directory, name, path) {
                Err(stag_client::Error::Nfs(Status::Exist)) if self.is_link(place, path)? => {}
                made => drop(made.map_err(failed(format_args!("SYMLINK {}", shown(name))))?),
            }
            self.outcome.links += 1;
            Ok(())
        } else {
            self.skip(format!("{}: no file, directory or symbolic link", quote::shown_path(from)))
        }
    }

    /// Returns true if there is a symbolic link to `path` at `place` already.
    fn is_link(&mut self, place: RemotePlace<'_>, path: &[u8]) -> Result<bool, Error> {
        let found = self.mover.remote.find(place.directory, place.name)?;
        let Some(found) = found.filter(|found| found.attributes.kind == FileKind::Symlink) else {
            return Ok(false);
        };
        Ok(self.mover.remote.client.readlink(found.handle).is_ok_and(|there| there == path))
    }

    fn put_directory(
        &mut self,
        from: &Path,
        place: RemotePlace<'_>,
        found: &Metadata,
        depth: usize,
    ) -> Outcome {
        let name = shown(place.name);
        self.check_directory(&quote::shown_path(from), depth)?;
        let mode = found.permissions().mode() & 0o777;
        let made = self.mover.remote.client.mkdir(place.directory, place.name, mode | OPEN);
        let (made, is_new) = match made {
            Err(stag_client::Error::Nfs(Status::Exist)) => (None, false),
            made => (made.map_err(failed(format_args!("MKDIR {name}")))?.object, true),
        };
        let handle = match made {
            Some(handle) => handle,
            None => match self.mover.remote.find(place.directory, place.name)? {
                Some(found) if found.is_directory() => found.handle,
                _ => return Err(Error::failure(format!("MKDIR {name}: the name is no directory"))),
            },
        };
        self.outcome.directories += 1;
        if self.way.preserve || is_new && mode & OPEN != OPEN {
            let mtime = if self.way.preserve { remote_time(found) } else { Default::default() };
            let attributes = SetAttributes { mode: Some(mode), mtime, ..SetAttributes::default() };
            self.late.push(LateDirectory::There(name, handle, attributes));
        }
        let entries =
            fs::read_dir(from).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        let mut entries = entries.map_err(local("read the directory", from))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let (name, at) = (name.as_bytes(), below(place.at, name.as_bytes()));
            let within = RemotePlace { directory: handle, name, at: &at };
            let ended = self.put_object(&entry.path(), within, depth + 1);
            if self.is_over(ended) {
                break;
            }
        }
        Ok(())
    }

    fn submit(&mut self, len: u64, job: FileJob) {
        self.progress.find(len);
        self.number += 1;
        self.crew.submit(&mut self.mover, self.number, job);
    }

    /// Records the end of an entry in a directory. Returns true if no other can be moved.
    fn is_over(&mut self, ended: Outcome) -> bool {
        if let Err(error) = ended {
            self.number += 1;
            self.outcome.failures.push((self.number, error.to_string()));
            if self.mover.remote.is_lost() {
                self.crew.give_up();
            }
        }
        self.crew.is_lost()
    }

    /// The same for an entry named by the user: it is refused by itself when it makes no sense.
    fn note(&mut self, ended: Outcome) -> Outcome {
        if let Err(Error::Usage(_)) = ended {
            return ended;
        }
        self.is_over(ended);
        Ok(())
    }

    fn check_directory(&self, name: &str, depth: usize) -> Outcome {
        if !self.way.recursive {
            return Err(Error::usage(format!("{name} is a directory: add -r")));
        }
        if depth > DEPTH_MAX {
            return Err(Error::failure(format!(
                "{name} lies more than {DEPTH_MAX} directories deep"
            )));
        }
        Ok(())
    }

    fn skip(&mut self, what: String) -> Outcome {
        self.outcome.skipped.push(what);
        Ok(())
    }

    /// Waits until all files are moved.
    pub fn finish(self) -> TreeOutcome {
        let Self { mut mover, crew, mut outcome, late, progress, mut number, .. } = self;
        let (ends, untried) = crew.finish(&mut mover);
        outcome.untried = untried;
        for (number, end) in ends {
            match end {
                Ok(end) => outcome.add(number, end),
                Err(why) => outcome.failures.push((number, why)),
            }
        }
        // The innermost first: a change in a directory changes its time.
        for directory in late.into_iter().rev() {
            if untried == 0
                && let Err(error) = directory.set(mover.remote)
            {
                number += 1;
                outcome.failures.push((number, error.to_string()));
            }
        }
        outcome.sort();
        progress.finish();
        outcome
    }
}

impl LateDirectory {
    fn set(&self, remote: &mut Remote) -> Outcome {
        match self {
            Self::Here(path, attributes) => {
                let directory = File::open(path).map_err(local("open", path))?;
                let mode = Permissions::from_mode(attributes.mode & 0o777);
                let times = directory.set_times(local_times(attributes));
                times
                    .and_then(|()| directory.set_permissions(mode))
                    .map_err(local("set the times of", path))
            }
            Self::There(name, handle, attributes) => {
                let set = remote.client.setattr(*handle, *attributes, None);
                set.map(drop).map_err(failed(format_args!("SETATTR of {name}")))
            }
        }
    }
}

/// The path of `name` in the directory `at`.
pub fn below(at: &[u8], name: &[u8]) -> Vec<u8> {
    let at = at.strip_suffix(b"/").unwrap_or(at);
    [at, b"/", name].concat()
}

/// A name that a server gave, as one component of a local path: it must not lead anywhere else.
fn local_name(name: &[u8]) -> Result<&OsStr, Error> {
    let is_component = !name.is_empty()
        && name != b"."
        && name != b".."
        && !name.contains(&b'/')
        && !name.contains(&0);
    if !is_component {
        return Err(Error::failure(format!(
            "the server lists {}, which is no name of a file",
            shown(name)
        )));
    }
    Ok(OsStr::from_bytes(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_server_leads_out_of_the_tree() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/etc", b"a\0b"] {
            assert!(local_name(name).is_err(), "{name:?}");
        }
        for name in [&b"a"[..], b"...", b" ", b"\xff", b"-r", b"a\nb"] {
            assert_eq!(local_name(name).unwrap().as_bytes(), name);
        }
    }

    #[test]
    fn paths_have_one_slash_between_names() {
        assert_eq!(below(b"/data", b"a"), b"/data/a");
        assert_eq!(below(b"/", b"a"), b"/a");
        assert_eq!(below(b"/data/", b"a"), b"/data/a");
    }
}
