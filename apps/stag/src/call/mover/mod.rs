//! File mover: gets or puts one file at a time over one connection, as a whole or not at all.

mod put;

use super::{
    file_end::{FileEnd, MovedFile, hash_of, hash_rest, is_same},
    options::TransferOptions,
    partial_file::{LocalPart, SourceMark},
    remote::{Object, Remote, shown},
    show::hex,
};
use crate::{Error, progress::TransferProgress};
use sha2::{Digest, Sha256};
use stag_client::transfer::{self, FileRest, SizedFile, TransferFlow, TransferTotals};
use stag_operate::quote;
use stag_protocol::nfs::v3::{Attributes, FileHandle, SetTime, Time};
use std::{
    fmt::Display,
    fs::{self, FileTimes, Metadata, Permissions},
    io::{self, Seek, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

/// A file that is to be moved.
#[derive(Debug)]
pub enum FileJob {
    /// From the server.
    Get {
        /// The file.
        object: Box<Object>,
        /// Its path there.
        at: Vec<u8>,
        /// Its path here.
        to: PathBuf,
    },
    /// To the server.
    Put {
        /// Its path here.
        from: PathBuf,
        /// The directory there.
        directory: FileHandle,
        /// Its name in that directory.
        name: Vec<u8>,
        /// Its path there.
        at: Vec<u8>,
    },
}

/// A place for a file on the server.
#[derive(Clone, Copy, Debug)]
pub struct RemotePlace<'a> {
    /// The directory.
    pub directory: FileHandle,
    /// The name in it.
    pub name: &'a [u8],
    /// The path.
    pub at: &'a [u8],
}

/// Moves files over one connection.
pub struct FileMover<'a> {
    /// The connection.
    pub remote: &'a mut Remote,
    reads: TransferFlow,
    writes: TransferFlow,
    way: TransferOptions,
    progress: &'a TransferProgress,
}

impl<'a> FileMover<'a> {
    /// Moves files as `way` says.
    pub fn new(
        remote: &'a mut Remote,
        way: TransferOptions,
        progress: &'a TransferProgress,
    ) -> Result<Self, Error> {
        let (reads, writes) = remote.flows()?;
        Ok(Self { remote, reads, writes, way, progress })
    }

    /// Moves one file.
    pub fn run(&mut self, job: &FileJob) -> Result<FileEnd, Error> {
        match job {
            FileJob::Get { object, at, to } => self.get(object, at, to),
            FileJob::Put { from, directory, name, at } => {
                self.put(from, RemotePlace { directory: *directory, name, at })
            }
        }
    }

    fn get(&mut self, object: &Object, at: &[u8], to: &Path) -> Result<FileEnd, Error> {
        let (name, mark) = (shown(&object.name), mark_of(&object.attributes));
        if self.way.resume
            && let Ok(found) = fs::symlink_metadata(to)
            && found.is_file()
            && is_same(SourceMark::of(&found), mark, self.way.preserve)
            && self.is_alike(object, to)?
        {
            self.progress.leave(mark.len);
            return Ok(FileEnd::Left);
        }
        let mark = (!self.way.in_place).then_some(mark);
        let part = LocalPart::open(to, mark, self.way.resume)?;
        match self.fill(object, &part).and_then(|filled| {
            self.complete(object, &part, &filled)?;
            Ok(filled)
        }) {
            Ok(Filled { resumed, totals, sha256 }) => {
                part.finish(!self.way.no_sync)?;
                let (path, remote, len) = (to.to_owned(), at.to_vec(), resumed + totals.octets);
                let moved = MovedFile { path, remote, len, resumed, totals, sha256 };
                Ok(FileEnd::Moved(Box::new(moved)))
            }
            Err(error) => match part.leave(self.remote.is_lost()) {
                0 => Err(about(&name, error)),
                kept => Err(about(&name, keeps(error, kept))),
            },
        }
    }

    /// Reads what is not in `part` yet.
    fn fill(&mut self, object: &Object, part: &LocalPart) -> Result<Filled, Error> {
        let size = object.attributes.size;
        let (mut hash, mut file) = (Sha256::new(), &part.file);
        let mut resumed = match self.way.resume {
            true => hash_rest(&mut file, &mut hash).map_err(local("read", &part.path))?,
            false => 0,
        };
        if resumed > size {
            file.set_len(0).and_then(|()| file.rewind()).map_err(local("cut", &part.path))?;
            (hash, resumed) = (Sha256::new(), 0);
        }
        let mut sink = |_, octets: &[u8]| {
            hash.update(octets);
            file.write_all(octets)
        };
        let mut moved_to = self.progress.moving(resumed);
        let source = SizedFile { file: object.handle, len: size };
        let totals = transfer::get_rest(
            &mut self.remote.client,
            FileRest { file: source, from: resumed },
            self.reads,
            &mut sink,
            &mut moved_to,
        )?;
        Ok(Filled { resumed, totals, sha256: hex(&hash.finalize()) })
    }

    /// Sets the attributes of a file that was read, and compares it if requested.
    fn complete(
        &mut self,
        object: &Object,
        part: &LocalPart,
        filled: &Filled,
    ) -> Result<(), Error> {
        let attributes = &object.attributes;
        let mode = Permissions::from_mode(attributes.mode & 0o777);
        part.file.set_permissions(mode).map_err(local("set the mode of", &part.path))?;
        if self.way.preserve {
            let times = local_times(attributes);
            part.file.set_times(times).map_err(local("set the times of", &part.path))?;
        }
        if !self.way.verify {
            return Ok(());
        }
        if hash_of(&part.path).map_err(local("read back", &part.path))? != filled.sha256 {
            return Err(Error::failure("what was stored is not what came"));
        }
        // Octets of an earlier run are compared with the server's: this run has not received them.
        if filled.resumed > 0 && self.hash_there(object.handle, attributes.size)? != filled.sha256 {
            return Err(Error::failure(
                "what an earlier run left is not what the server has: remove it, and get it again",
            ));
        }
        Ok(())
    }

    /// Writes a file to `out`.
    pub fn get_stream(
        &mut self,
        object: &Object,
        out: &mut dyn Write,
    ) -> Result<TransferTotals, Error> {
        let source = SizedFile { file: object.handle, len: object.attributes.size };
        let mut sink = |_, octets: &[u8]| out.write_all(octets);
        let mut moved_to = self.progress.moving(0);
        Ok(transfer::get(&mut self.remote.client, source, self.reads, &mut sink, &mut moved_to)?)
    }

    /// True unless contents are to be compared and differ.
    fn is_alike(&mut self, there: &Object, here: &Path) -> Result<bool, Error> {
        if !self.way.verify {
            return Ok(true);
        }
        let hash = hash_of(here).map_err(local("read", here))?;
        Ok(self.hash_there(there.handle, there.attributes.size)? == hash)
    }

    /// The digest of a file on the server.
    fn hash_there(&mut self, file: FileHandle, len: u64) -> Result<String, Error> {
        let mut hash = Sha256::new();
        let mut sink = |_, octets: &[u8]| {
            hash.update(octets);
            Ok(())
        };
        let source = SizedFile { file, len };
        let read =
            transfer::get(&mut self.remote.client, source, self.reads, &mut sink, &mut |_| {});
        read.map_err(|failure| Error::failure(format!("read back: {failure}")))?;
        Ok(hex(&hash.finalize()))
    }
}

/// A file all of whose octets are where they belong.
struct Filled {
    resumed: u64,
    totals: TransferTotals,
    sha256: String,
}

/// Length and time of a file on the server.
pub fn mark_of(attributes: &Attributes) -> SourceMark {
    let Time { seconds, nanos } = attributes.mtime;
    SourceMark { len: attributes.size, seconds: seconds.into(), nanos: nanos.into() }
}

/// The times of a file on the server, for a local one.
pub fn local_times(attributes: &Attributes) -> FileTimes {
    let time = |Time { seconds, nanos }: Time| {
        // The wire does not bound nanoseconds.
        UNIX_EPOCH + Duration::new(seconds.into(), nanos.min(999_999_999))
    };
    FileTimes::new().set_modified(time(attributes.mtime)).set_accessed(time(attributes.atime))
}

/// The time of a local file, for one on the server; none that NFS cannot express.
pub fn remote_time(found: &Metadata) -> SetTime {
    let mark = SourceMark::of(found);
    match (u32::try_from(mark.seconds), u32::try_from(mark.nanos)) {
        (Ok(seconds), Ok(nanos)) => SetTime::Client(Time { seconds, nanos }),
        _ => SetTime::Keep,
    }
}

fn about(what: impl Display, error: Error) -> Error {
    match error {
        Error::Failure(why) => Error::Failure(format!("{what}: {why}")),
        other => other,
    }
}

fn keeps(error: Error, octets: u64) -> Error {
    Error::failure(format!("{error}; {octets} octets of it are kept: --resume goes on behind them"))
}

/// An error of the system about a local file.
pub fn local(what: &str, path: &Path) -> impl Fn(io::Error) -> Error {
    let what = format!("cannot {what} {}", quote::shown_path(path));
    move |error| Error::failure(format!("{what}: {error}"))
}
