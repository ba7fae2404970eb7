//! A file to standard output, and one from standard input.

use super::{
    Said,
    file_end::{FileEnd, line},
    mover::{FileMover, RemotePlace},
    options::TransferOptions,
    remote::{Object, Remote, shown},
    show::hex,
};
use crate::{Error, progress::TransferProgress};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stag_protocol::nfs::v3::FileKind;
use std::io::{self, Write};

/// The default options.
const USUAL: TransferOptions = TransferOptions {
    recursive: false,
    verify: false,
    preserve: false,
    resume: false,
    in_place: false,
    no_sync: false,
    files: 1,
};

/// Writes the file to standard output, and nothing else anywhere.
pub fn cat(remote: &mut Remote) -> Result<Said, Error> {
    let target = file(remote)?;
    let progress = TransferProgress::new();
    progress.find(target.attributes.size);
    let mut mover = FileMover::new(remote, USUAL, &progress)?;
    let mut out = io::stdout().lock();
    mover.get_stream(&target, &mut out)?;
    out.flush().map_err(|error| Error::failure(format!("standard output: {error}")))?;
    Ok(Said::new(String::new(), Value::Null))
}

/// Writes the file to standard output; its checksum goes to standard error.
pub fn get(remote: &mut Remote, way: &TransferOptions) -> Result<Said, Error> {
    refuse(way, "get")?;
    let target = file(remote)?;
    let progress = TransferProgress::new();
    progress.find(target.attributes.size);
    let mut out = Hashed { out: io::stdout().lock(), hash: Sha256::new() };
    FileMover::new(remote, way.clone(), &progress)?.get_stream(&target, &mut out)?;
    out.flush().map_err(|error| Error::failure(format!("standard output: {error}")))?;
    progress.finish();
    let sum = line(b"-", &hex(&out.hash.finalize()));
    let aside = String::from_utf8_lossy(&sum).into_owned();
    Ok(Said { aside, ..Said::new(String::new(), Value::Null) })
}

/// Puts the octets of standard input under the URL's name.
pub fn put(remote: &mut Remote, way: &TransferOptions) -> Result<Said, Error> {
    if way.recursive || way.resume || way.preserve {
        return Err(Error::usage(
            "standard input has no times and no directories, and cannot be read again: leave -r, \
             -p and --resume out",
        ));
    }
    let (found, directory, name) = remote.target_or_place()?;
    if found.as_ref().is_some_and(Object::is_directory) {
        return Err(Error::usage(format!(
            "{} is a directory: put the name of a file behind the URL",
            shown(&name)
        )));
    }
    let (at, progress) = (remote.path(), TransferProgress::new());
    let place = RemotePlace { directory: directory.handle, name: &name, at: &at };
    let end = FileMover::new(remote, way.clone(), &progress)?
        .put_stream(&mut io::stdin().lock(), place)?;
    progress.finish();
    let FileEnd::Moved(moved) = end else { unreachable!("standard input is never left") };
    let value = json!({
        "url": remote.url_of(&moved.remote),
        "octets": moved.len,
        "sha256": moved.sha256,
        "verified": way.verify,
    });
    Ok(Said { text: line(b"-", &moved.sha256), ..Said::new(String::new(), value) })
}

/// The regular file that the URL names.
fn file(remote: &mut Remote) -> Result<Object, Error> {
    let target = remote.target()?;
    match target.attributes.kind {
        FileKind::Regular => Ok(target),
        _ => Err(Error::failure(format!("{} is no file that could be read", shown(&target.name)))),
    }
}

fn refuse(way: &TransferOptions, what: &str) -> Result<(), Error> {
    if way.recursive || way.resume || way.preserve || way.verify {
        return Err(Error::usage(format!(
            "{what} to standard output is of one file, which cannot be read back: leave -r, -p, \
             --resume and --verify out"
        )));
    }
    Ok(())
}

/// Output that is hashed as it is written.
struct Hashed<W> {
    out: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let count = self.out.write(octets)?;
        self.hash.update(octets.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
