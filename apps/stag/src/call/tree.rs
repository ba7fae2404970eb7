//! `get` and `put`: files and trees, with the SHA-256 of each file.

use super::{
    remote::{Object, Remote, failed, shown},
    show::hex,
};
use crate::{Error, progress::Progress};
use rustix::fs::OFlags;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stag_client::transfer::{self, SizedFile, TransferFlow, TransferTotals};
use stag_protocol::nfs::v3::{CreateHow, FileHandle, FileKind, SetAttributes, Status};
use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    time::Instant,
};

/// Directories in each other: more is a tree that has no end.
const DEPTH_MAX: usize = 128;
/// Octets of a local file that are read at a time to be hashed.
const HASHED: usize = 1 << 17;

/// A tree on its way.
pub struct Tree<'a> {
    remote: &'a mut Remote,
    progress: Progress,
    reads: TransferFlow,
    writes: TransferFlow,
    is_recursive: bool,
    is_verified: bool,
    began: Instant,
    files: Vec<Sum>,
    directories: u64,
    links: u64,
    skipped: Vec<String>,
    moved: TransferTotals,
}

/// A file that was moved.
struct Sum {
    path: PathBuf,
    octets: u64,
    sha256: String,
}

type Outcome = Result<(), Error>;

/// Choices for moving a tree.
#[derive(Clone, Copy, Debug)]
pub struct TreeWay {
    /// Directories are moved too.
    pub is_recursive: bool,
    /// Files are read back and compared.
    pub is_verified: bool,
}

impl<'a> Tree<'a> {
    /// Nothing is moved yet.
    pub fn new(remote: &'a mut Remote, way: TreeWay) -> Result<Self, Error> {
        let TreeWay { is_recursive, is_verified } = way;
        let (reads, writes) = remote.flows()?;
        Ok(Self {
            remote,
            progress: Progress::new(false),
            reads,
            writes,
            is_recursive,
            is_verified,
            began: Instant::now(),
            files: Vec::new(),
            directories: 0,
            links: 0,
            skipped: Vec::new(),
            moved: TransferTotals::default(),
        })
    }

    /// Gets `object`. Into `to` when that is a directory, else under that name.
    pub fn get(&mut self, object: &Object, to: &Path) -> Outcome {
        let is_into = fs::metadata(to).is_ok_and(|found| found.is_dir());
        match is_into && !object.name.is_empty() {
            true => self.get_object(object, &to.join(local_name(&object.name)?), 0),
            false => self.get_object(object, to, 0),
        }
    }

    fn get_object(&mut self, object: &Object, to: &Path, depth: usize) -> Outcome {
        match object.attributes.kind {
            FileKind::Regular => self.get_file(object, to),
            FileKind::Directory => self.get_directory(object, to, depth),
            FileKind::Symlink => {
                let path = self.remote.client.readlink(object.handle);
                let path =
                    path.map_err(failed(format_args!("READLINK of {}", shown(&object.name))))?;
                symlink(OsStr::from_bytes(&path), to)
                    .map_err(local("make the symbolic link", to))?;
                self.links += 1;
                Ok(())
            }
            _ => self.skip(format!("{}: no file, directory or symbolic link", shown(&object.name))),
        }
    }

    fn get_directory(&mut self, object: &Object, to: &Path, depth: usize) -> Outcome {
        self.check_directory(&shown(&object.name), depth)?;
        if let Err(error) = fs::create_dir(to) {
            // A link that the server had us make must not lead out of the tree.
            let is_there = fs::symlink_metadata(to).is_ok_and(|found| found.is_dir());
            if !is_there {
                return Err(local("make the directory", to)(error));
            }
        }
        self.directories += 1;
        for entry in self.remote.list(object)? {
            self.get_object(&entry, &to.join(local_name(&entry.name)?), depth + 1)?;
        }
        Ok(())
    }

    fn get_file(&mut self, object: &Object, to: &Path) -> Outcome {
        let name = shown(&object.name);
        let mut options = File::options();
        options
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let mut file = options.open(to).map_err(local("open", to))?;
        let size = object.attributes.size;
        self.progress.begin(&name, Some(size));
        let (mut hash, progress) = (Sha256::new(), &self.progress);
        let mut sink = |_, octets: &[u8]| {
            hash.update(octets);
            file.write_all(octets)
        };
        let source = SizedFile { file: object.handle, len: size };
        let moved =
            transfer::get(&mut self.remote.client, source, self.reads, &mut sink, &mut |at| {
                progress.at(at)
            });
        let moved = moved.map_err(|failure| Error::failure(format!("{name}: {failure}")))?;
        let mode = Permissions::from_mode(object.attributes.mode & 0o777);
        file.set_permissions(mode).map_err(local("set the mode of", to))?;
        let sha256 = hex(&hash.finalize());
        if self.is_verified && hash_of(to).map_err(local("read back", to))? != sha256 {
            return Err(Error::failure(format!(
                "{}: what was stored is not what came",
                to.display()
            )));
        }
        self.add(to, moved, sha256);
        Ok(())
    }

    /// Puts `from` under `name` into `directory`.
    pub fn put(&mut self, from: &Path, directory: FileHandle, name: &[u8]) -> Outcome {
        self.put_object(from, directory, name, 0)
    }

    fn put_object(
        &mut self,
        from: &Path,
        directory: FileHandle,
        name: &[u8],
        depth: usize,
    ) -> Outcome {
        let found = fs::symlink_metadata(from).map_err(local("look at", from))?;
        if found.is_file() {
            self.put_file(from, directory, name, found.permissions().mode() & 0o777)
        } else if found.is_dir() {
            self.put_directory(from, directory, name, found.permissions().mode() & 0o777, depth)
        } else if found.is_symlink() {
            let path = fs::read_link(from).map_err(local("read the symbolic link", from))?;
            let made = self.remote.client.symlink(directory, name, path.as_os_str().as_bytes());
            made.map_err(failed(format_args!("SYMLINK {}", shown(name))))?;
            self.links += 1;
            Ok(())
        } else {
            self.skip(format!("{}: no file, directory or symbolic link", from.display()))
        }
    }

    fn put_directory(
        &mut self,
        from: &Path,
        directory: FileHandle,
        name: &[u8],
        mode: u32,
        depth: usize,
    ) -> Outcome {
        self.check_directory(&from.display().to_string(), depth)?;
        let made = self.remote.client.mkdir(directory, name, mode);
        let made = match made {
            Err(stag_client::Error::Nfs(Status::Exist)) => None,
            made => made.map_err(failed(format_args!("MKDIR {}", shown(name))))?.object,
        };
        let handle = match made {
            Some(handle) => handle,
            None => match self.remote.find(directory, name)? {
                Some(found) if found.is_directory() => found.handle,
                _ => {
                    return Err(Error::failure(format!(
                        "MKDIR {}: the name is no directory",
                        shown(name)
                    )));
                }
            },
        };
        self.directories += 1;
        let entries =
            fs::read_dir(from).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        let mut entries = entries.map_err(local("read the directory", from))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            self.put_object(&entry.path(), handle, entry.file_name().as_bytes(), depth + 1)?;
        }
        Ok(())
    }

    fn put_file(&mut self, from: &Path, directory: FileHandle, name: &[u8], mode: u32) -> Outcome {
        let what = from.display().to_string();
        let file = File::open(from).map_err(local("open", from))?;
        let size = file.metadata().map_err(local("look at", from))?.len();
        let how = SetAttributes { mode: Some(mode), size: Some(0), ..SetAttributes::default() };
        let made = self.remote.client.create(directory, name, CreateHow::Unchecked(how));
        let made = made.map_err(failed(format_args!("CREATE {}", shown(name))))?;
        let handle = match made.object {
            Some(handle) => handle,
            None => match self.remote.find(directory, name)? {
                Some(found) => found.handle,
                None => {
                    return Err(Error::failure(format!("CREATE {}: it is not there", shown(name))));
                }
            },
        };
        self.progress.begin(&what, Some(size));
        let (mut hash, mut hashed, progress) = (Sha256::new(), 0, &self.progress);
        let mut source = |offset, room: &mut [u8]| {
            file.read_exact_at(room, offset)?;
            // What is written again was hashed before.
            if offset == hashed {
                hash.update(&room);
                hashed += room.len() as u64;
            }
            Ok(())
        };
        let target = SizedFile { file: handle, len: size };
        let moved =
            transfer::put(&mut self.remote.client, target, self.writes, &mut source, &mut |at| {
                progress.at(at)
            });
        let moved = moved.map_err(|failure| Error::failure(format!("{what}: {failure}")))?;
        let sha256 = hex(&hash.finalize());
        if self.is_verified {
            self.read_back(handle, size, &what, &sha256)?;
        }
        self.add(from, moved, sha256);
        Ok(())
    }

    fn read_back(&mut self, file: FileHandle, size: u64, what: &str, sha256: &str) -> Outcome {
        let mut hash = Sha256::new();
        let mut sink = |_, octets: &[u8]| {
            hash.update(octets);
            Ok(())
        };
        transfer::get(
            &mut self.remote.client,
            SizedFile { file, len: size },
            self.reads,
            &mut sink,
            &mut |_| {},
        )
        .map_err(|failure| Error::failure(format!("{what}, read back: {failure}")))?;
        if hex(&hash.finalize()) == sha256 {
            return Ok(());
        }
        Err(Error::failure(format!("{what}: what the server has is not what was sent")))
    }

    fn check_directory(&self, name: &str, depth: usize) -> Outcome {
        if !self.is_recursive {
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
        self.skipped.push(what);
        Ok(())
    }

    fn add(&mut self, path: &Path, moved: TransferTotals, sha256: String) {
        self.moved.octets += moved.octets;
        self.moved.calls += moved.calls;
        self.moved.replayed += moved.replayed;
        self.files.push(Sum { path: path.to_owned(), octets: moved.octets, sha256 });
    }

    /// Lines as `sha256sum` writes them, for standard output; and what was moved, for standard
    /// error.
    pub fn text(&self) -> (Vec<u8>, String) {
        self.progress.finish();
        let TransferTotals { octets, replayed, .. } = self.moved;
        let seconds = self.began.elapsed().as_secs_f64();
        let mut summary = format!(
            "{} files, {} directories, {} symbolic links: {octets} octets in {seconds:.2} s, \
             {:.1} MiB/s",
            self.files.len(),
            self.directories,
            self.links,
            octets as f64 / 1_048_576.0 / seconds.max(1e-9)
        );
        if replayed > 0 {
            summary.push_str(&format!(
                "; {replayed} octets written again after a restart of the server"
            ));
        }
        if self.is_verified {
            summary.push_str("; read back and compared");
        }
        summary.push('\n');
        self.skipped.iter().for_each(|what| summary.push_str(&format!("skipped: {what}\n")));
        (
            self.files
                .iter()
                .flat_map(|sum| line(sum.path.as_os_str().as_bytes(), &sum.sha256))
                .collect(),
            summary,
        )
    }

    /// The same as a JSON object.
    pub fn object(&self) -> Value {
        let file = |Sum { path, octets, sha256 }: &Sum| {
            let path = path.to_string_lossy();
            json!({ "path": path, "octets": octets, "sha256": sha256 })
        };
        json!({
            "files": self.files.iter().map(file).collect::<Vec<_>>(),
            "directories": self.directories,
            "symbolic_links": self.links,
            "skipped": self.skipped,
            "octets": self.moved.octets,
            "calls": self.moved.calls,
            "replayed": self.moved.replayed,
            "verified": self.is_verified,
            "elapsed_s": self.began.elapsed().as_secs_f64(),
        })
    }
}

/// A line that `sha256sum -c` understands: a name that would break it is escaped, which a backslash
/// in front says.
fn line(path: &[u8], sha256: &str) -> Vec<u8> {
    let is_odd = path.iter().any(|octet| matches!(octet, b'\\' | b'\n' | b'\r'));
    let mut line = if is_odd { vec![b'\\'] } else { Vec::new() };
    line.extend_from_slice(sha256.as_bytes());
    line.extend_from_slice(b"  ");
    for octet in path {
        match octet {
            b'\\' => line.extend_from_slice(br"\\"),
            b'\n' => line.extend_from_slice(br"\n"),
            b'\r' => line.extend_from_slice(br"\r"),
            octet => line.push(*octet),
        }
    }
    line.push(b'\n');
    line
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

fn local(what: &str, path: &Path) -> impl Fn(io::Error) -> Error {
    let what = format!("cannot {what} {}", path.display());
    move |error| Error::failure(format!("{what}: {error}"))
}

fn hash_of(path: &Path) -> io::Result<String> {
    let (mut file, mut hash, mut room) = (File::open(path)?, Sha256::new(), vec![0; HASHED]);
    loop {
        let count = file.read(&mut room)?;
        if count == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(room.get(..count).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_sha256sum() {
        assert_eq!(line(b"a b", "77"), b"77  a b\n");
        assert_eq!(line(b"a\n\\\xff", "77"), b"\\77  a\\n\\\\\xff\n");
    }

    #[test]
    fn no_name_of_a_server_leads_out_of_the_tree() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/etc", b"a\0b"] {
            assert!(local_name(name).is_err(), "{name:?}");
        }
        for name in [&b"a"[..], b"...", b" ", b"\xff", b"-r", b"a\nb"] {
            assert_eq!(local_name(name).unwrap().as_bytes(), name);
        }
    }
}
