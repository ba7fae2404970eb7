//! Filling the store with a copy of a directory of this host: directories, files, hard and symbolic
//! links, fifos and sockets, with their modes, owners and times. Devices and other file systems are
//! left out.

use crate::{
    FileTime, NewAttributes, WritePayload, contract::name::Name, exports::state_dir::cannot,
    start_error::StartError,
};
use std::{
    collections::HashMap,
    ffi::OsStr,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, openat, readlinkat_raw, statat};
use stag_protocol::nfs::v3::Status;

use super::{
    Memory,
    content::Content,
    handle::InodeId,
    space::BLOCK,
    tree::{Directory, ObjectBody},
};

/// Progress of the copy.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Path of the last object copied.
    pub path: &'a Path,
    /// Objects copied so far.
    pub objects: u64,
    /// Octets of files copied so far.
    pub octets: u64,
    /// Objects left out: devices, and mount points' content.
    pub left_out: u64,
}

/// A copy in progress.
struct Copy<'a> {
    progress: &'a mut dyn FnMut(&Progress<'_>),
    /// The inodes of files with several names.
    linked: HashMap<(u64, u64), InodeId>,
    /// Directories still to fill.
    waiting: Vec<(PathBuf, InodeId, Stat)>,
    device: u64,
    objects: u64,
    octets: u64,
    left_out: u64,
    block: Box<[u8]>,
}

fn stat(path: &Path) -> Result<Stat, StartError> {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(cannot("look at", path))
}

/// The error when `path` cannot be copied into the store.
fn refused(path: &Path) -> impl Fn(Status) -> StartError {
    move |status| match status {
        Status::NoSpc => {
            StartError(format!("{} does not fit: give the memory store more", path.display()))
        }
        status => StartError(format!("cannot copy {}: {status:?}", path.display())),
    }
}

impl Memory {
    pub(super) fn copy_tree(
        &mut self,
        directory: &Path,
        root: InodeId,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<(), StartError> {
        let found =
            statat(CWD, directory, AtFlags::empty()).map_err(cannot("look at", directory))?;
        let mut copy = Copy {
            progress,
            linked: HashMap::new(),
            waiting: vec![(directory.to_owned(), root, found)],
            device: found.st_dev,
            objects: 0,
            octets: 0,
            left_out: 0,
            block: vec![0; BLOCK].into(),
        };
        let mut filled = Vec::new();
        while let Some((path, id, found)) = copy.waiting.pop() {
            let entries = std::fs::read_dir(&path).map_err(cannot("read the directory", &path))?;
            for entry in entries {
                let name = entry.map_err(cannot("read the directory", &path))?.file_name();
                self.copy_entry(&mut copy, id, &path.join(&name), &name)?;
            }
            filled.push((path, id, found));
        }
        // Last, because filling a directory changes its times.
        for (path, id, found) in filled {
            self.settle(id, &found).map_err(refused(&path))?;
        }
        Ok(())
    }

    fn copy_entry(
        &mut self,
        copy: &mut Copy<'_>,
        parent: InodeId,
        path: &Path,
        name: &OsStr,
    ) -> Result<(), StartError> {
        let refuse = refused(path);
        let found = stat(path)?;
        let kind = FileType::from_raw_mode(found.st_mode);
        let is_device =
            matches!(kind, FileType::BlockDevice | FileType::CharacterDevice | FileType::Unknown);
        if is_device || found.st_dev != copy.device {
            copy.left_out += 1;
            return Ok(());
        }
        let entry = Name::of(name.as_bytes(), Status::Inval, Status::Inval).map_err(&refuse)?;
        let place = (found.st_dev, found.st_ino);
        if let Some(id) = copy.linked.get(&place) {
            self.link_entry(*id, parent, name.as_bytes()).map_err(&refuse)?;
        } else {
            let body = self.copy_body(copy, parent, path, kind)?;
            let id = self.add(parent, entry, body, &NewAttributes::default()).map_err(&refuse)?;
            self.settle(id, &found).map_err(&refuse)?;
            if kind == FileType::Directory {
                copy.waiting.push((path.to_owned(), id, found));
            } else if found.st_nlink > 1 {
                copy.linked.insert(place, id);
            }
        }
        copy.objects += 1;
        let Copy { objects, octets, left_out, .. } = *copy;
        (copy.progress)(&Progress { path, objects, octets, left_out });
        Ok(())
    }

    fn copy_body(
        &mut self,
        copy: &mut Copy<'_>,
        parent: InodeId,
        path: &Path,
        kind: FileType,
    ) -> Result<ObjectBody, StartError> {
        Ok(match kind {
            FileType::RegularFile => ObjectBody::Regular(self.copy_content(copy, path)?),
            FileType::Directory => ObjectBody::Directory(Directory::new(parent)),
            FileType::Symlink => ObjectBody::Symlink(self.copy_target(path)?),
            FileType::Fifo => ObjectBody::Fifo,
            _ => ObjectBody::Socket,
        })
    }

    /// Blocks of zeros become holes.
    fn copy_content(&mut self, copy: &mut Copy<'_>, path: &Path) -> Result<Content, StartError> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(CWD, path, flags, Mode::empty()).map_err(cannot("open", path))?;
        let mut file = std::fs::File::from(file);
        let (mut content, mut at) = (Content::default(), 0);
        loop {
            let len = fill(&mut file, &mut copy.block).map_err(cannot("read", path))?;
            let octets = copy.block.get(..len).unwrap_or_default();
            if octets.iter().any(|octet| *octet != 0) {
                let written = content.write(&self.space, at, &WritePayload::from(octets));
                let count = written.map_err(refused(path))?;
                debug_assert_eq!(count as usize, len, "one block is written whole");
            }
            at += len as u64;
            copy.octets += len as u64;
            if len < BLOCK {
                content.set_size(at);
                return Ok(content);
            }
        }
    }

    fn copy_target(&mut self, path: &Path) -> Result<stag_pools::Extent, StartError> {
        let mut target = [0; 4096];
        let len = readlinkat_raw(CWD, path, &mut target).map_err(cannot("read the link", path))?;
        let need = super::space::Need::Growth;
        let mut copy = self.space.take(len, need).map_err(refused(path))?;
        copy.append(target.get(..len).unwrap_or_default())
            .expect("the buffer was taken for as many");
        Ok(copy.freeze())
    }

    /// Sets the attributes of an object from its original.
    fn settle(&mut self, id: InodeId, found: &Stat) -> Result<(), Status> {
        let meta = &mut self.inodes.get_mut(id)?.meta;
        let time = |seconds: i64, nanos: u64| FileTime {
            seconds,
            nanos: u32::try_from(nanos).unwrap_or(0),
        };
        meta.mode = found.st_mode & 0o7777;
        (meta.uid, meta.gid) = (found.st_uid, found.st_gid);
        meta.atime = time(found.st_atime, found.st_atime_nsec);
        meta.mtime = time(found.st_mtime, found.st_mtime_nsec);
        Ok(())
    }
}

/// Reads until the block is full or the file ends.
fn fill(file: &mut impl Read, block: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = block.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
