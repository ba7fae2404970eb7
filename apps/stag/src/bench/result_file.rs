//! Result file: opened before the run, so that an unwritable path costs no measurement.
//!
//! A regular file is replaced as a whole. Pipes, terminals and other devices are written in place,
//! and so is the target of a link, provided that no other user can have planted the link
//! ([`check_link`]).

use crate::{Error, caller::say, plain, replace::Draft};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat},
    io::Errno,
    process::geteuid,
};
use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// A file that results are written to, or standard output.
#[derive(Debug)]
pub struct ResultFile {
    path: PathBuf,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    StandardOutput,
    /// A new file, which replaces the existing one.
    Draft(Draft),
    /// A pipe, a device, or the target of a link.
    InPlace(File),
}

impl ResultFile {
    /// Opens `path`, or standard output for `-`. The content of a file stays until
    /// [`ResultFile::write`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let sink = if path == Path::new("-") {
            Sink::StandardOutput
        } else {
            open(path).map_err(|why| Error::usage(format!("{}: {why}", path.display())))?
        };
        Ok(Self { path: path.to_owned(), sink })
    }

    /// Writes the result, in the place of what was there.
    pub fn write(self, text: impl AsRef<[u8]>) -> Result<(), Error> {
        let written = match self.sink {
            Sink::StandardOutput => {
                say(text);
                return Ok(());
            }
            Sink::Draft(draft) => draft.replace(true, |out| out.write_all(text.as_ref())),
            Sink::InPlace(mut file) => write_in_place(&mut file, text.as_ref()),
        };
        written.map_err(|error| Error::failure(format!("{}: {error}", self.path.display())))
    }
}

fn write_in_place(file: &mut File, text: &[u8]) -> io::Result<()> {
    // A pipe or a terminal has no length, and no disk.
    let is_file = file.metadata()?.is_file();
    if is_file {
        file.set_len(0)?;
    }
    file.write_all(text)?;
    if is_file { file.sync_all() } else { Ok(()) }
}

fn open(path: &Path) -> Result<Sink, String> {
    let said = |error: Errno| plain(&error.into());
    let Some(name) = path.file_name() else { return Err("it is no name of a file".to_owned()) };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = parent.unwrap_or(Path::new("."));
    let directory = openat(rustix::fs::CWD, parent, flags, Mode::empty()).map_err(said)?;
    let found = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => return draft(path),
        Err(error) => return Err(said(error)),
    };
    let mut flags = OFlags::WRONLY | OFlags::CLOEXEC;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => return draft(path),
        FileType::Directory => return Err("it is a directory".to_owned()),
        FileType::Symlink => check_link(&directory, &found)?,
        // The reader at the other end of the pipe has the user's rights or root's.
        FileType::Fifo if !is_trusted(&found) => {
            return Err("it is a pipe of another user: give another file".to_owned());
        }
        _ => flags |= OFlags::NOFOLLOW,
    }
    let file = openat(&directory, name, flags, Mode::empty()).map_err(said)?;
    Ok(Sink::InPlace(file.into()))
}

fn draft(path: &Path) -> Result<Sink, String> {
    Draft::of(path, 0o666).map(Sink::Draft).map_err(|error| plain(&error))
}

/// Refuses a link that another user made, or can replace.
fn check_link(directory: &OwnedFd, link: &Stat) -> Result<(), String> {
    let above = fstat(directory).map_err(|error| plain(&error.into()))?;
    let mode = Mode::from_raw_mode(above.st_mode);
    let is_shared = mode.intersects(Mode::WGRP | Mode::WOTH) && !mode.contains(Mode::SVTX);
    if is_trusted(link) && is_trusted(&above) && !is_shared {
        return Ok(());
    }
    Err("it is a link that another user can have made: name the file that it leads to".to_owned())
}

fn is_trusted(found: &Stat) -> bool {
    found.st_uid == 0 || found.st_uid == geteuid().as_raw()
}
