//! Put of files: written under another name, compared, and renamed when they are whole.

use super::{FileMover, Filled, RemotePlace, about, local, mark_of, remote_time};
use crate::{
    Error,
    call::{
        file_end::{FileEnd, MovedFile, is_same},
        partial_file::{SourceMark, part_name},
        remote::{failed, shown},
        show::hex,
    },
};
use sha2::{Digest, Sha256};
use stag_client::transfer::{self, FileRange, FileWriter, SizedFile, TransferTotals};
use stag_operate::quote;
use stag_protocol::nfs::v3::{CreateHow, FileHandle, FileKind, SetAttributes, SetTime, Status};
use std::{
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// Octets of standard input that are kept until they are committed: a server that loses them gets
/// them again.
const WINDOW: usize = 8 << 20;

impl FileMover<'_> {
    pub(super) fn put(&mut self, from: &Path, place: RemotePlace<'_>) -> Result<FileEnd, Error> {
        let what = quote::shown_path(from);
        let file = File::open(from).map_err(local("open", from))?;
        let found = file.metadata().map_err(local("look at", from))?;
        let mark = SourceMark::of(&found);
        if self.way.resume
            && let Some(there) = self.remote.find(place.directory, place.name)?
            && there.attributes.kind == FileKind::Regular
            && is_same(mark_of(&there.attributes), mark, self.way.preserve)
            && self.is_alike(&there, from)?
        {
            self.progress.leave(mark.len);
            return Ok(FileEnd::Left);
        }
        let mode = found.permissions().mode() & 0o777;
        let name = self.draft_name(place.name, mark);
        let (handle, there) = self.begin_draft(place, &name, mode)?;
        let sent = self.send(&file, handle, there).and_then(|filled| {
            let after = file.metadata().map_err(local("look at", from))?;
            if SourceMark::of(&after) != mark {
                return Err(Error::failure("it changed while it was read: put it again"));
            }
            self.settle(handle, &found, &filled)?;
            Ok(filled)
        });
        let Filled { resumed, totals, sha256 } =
            self.name_draft(place, handle, &name, sent).map_err(|error| about(&what, error))?;
        let (path, remote) = (from.to_owned(), place.at.to_vec());
        let moved = MovedFile { path, remote, len: mark.len, resumed, totals, sha256 };
        Ok(FileEnd::Moved(Box::new(moved)))
    }

    /// Puts everything that `from` gives.
    pub fn put_stream(
        &mut self,
        from: &mut dyn Read,
        place: RemotePlace<'_>,
    ) -> Result<FileEnd, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = SourceMark {
            len: std::process::id().into(),
            seconds: now.as_secs().cast_signed(),
            nanos: now.subsec_nanos().into(),
        };
        let name = self.draft_name(place.name, mark);
        let (handle, _) = self.begin_draft(place, &name, 0o666 & !umask())?;
        let sent = self.send_stream(from, handle).and_then(|filled| {
            if self.way.verify && self.hash_there(handle, filled.totals.octets)? != filled.sha256 {
                return Err(not_as_sent());
            }
            Ok(filled)
        });
        let Filled { resumed, totals, sha256 } = self
            .name_draft(place, handle, &name, sent)
            .map_err(|error| about("standard input", error))?;
        let (path, remote) = (PathBuf::from("-"), place.at.to_vec());
        let moved = MovedFile { path, remote, len: totals.octets, resumed, totals, sha256 };
        Ok(FileEnd::Moved(Box::new(moved)))
    }

    fn draft_name(&self, name: &[u8], mark: SourceMark) -> Vec<u8> {
        match self.way.in_place {
            true => name.to_vec(),
            false => part_name(name, mark).into_bytes(),
        }
    }

    /// Makes the draft, or finds that of an earlier run. Returns it and its octets.
    fn begin_draft(
        &mut self,
        place: RemotePlace<'_>,
        name: &[u8],
        mode: u32,
    ) -> Result<(FileHandle, u64), Error> {
        if self.way.resume
            && let Some(found) = self.remote.find(place.directory, name)?
            && found.attributes.kind == FileKind::Regular
        {
            return Ok((found.handle, found.attributes.size));
        }
        let how = SetAttributes { mode: Some(mode), size: Some(0), ..SetAttributes::default() };
        let shown = shown(place.name);
        let made = self.remote.client.create(place.directory, name, CreateHow::Unchecked(how));
        let made = made.map_err(failed(format_args!("CREATE {shown}")))?;
        match made.object {
            Some(handle) => Ok((handle, 0)),
            None => match self.remote.find(place.directory, name)? {
                Some(found) => Ok((found.handle, 0)),
                None => Err(Error::failure(format!("CREATE {shown}: it is not there"))),
            },
        }
    }

    /// Writes `file`, of which `there` octets may be on the server already.
    fn send(&mut self, file: &File, handle: FileHandle, there: u64) -> Result<Filled, Error> {
        let size = file.metadata().map_err(|error| Error::failure(crate::plain(&error)))?.len();
        let mut hash = Sha256::new();
        let resumed = self.agreed(file, handle, there.min(size), &mut hash)?;
        if there > resumed {
            let cut = SetAttributes { size: Some(resumed), ..SetAttributes::default() };
            let cut = self.remote.client.setattr(handle, cut, None);
            cut.map_err(failed("SETATTR of what an earlier run left"))?;
        }
        let mut hashed = resumed;
        let mut source = |offset, room: &mut [u8]| {
            file.read_exact_at(room, offset)?;
            // What is written again was hashed before.
            if offset == hashed {
                hash.update(&room);
                hashed += room.len() as u64;
            }
            Ok(())
        };
        let (rest, mut moved_to) = (size - resumed, self.progress.moving(resumed));
        let range = FileRange { offset: resumed, len: rest };
        let mut writer = FileWriter::new(handle, self.writes);
        let mut progress = |taken: u64| moved_to(resumed + taken);
        let totals = writer.write(&mut self.remote.client, range, &mut source, &mut progress)?;
        Ok(Filled { resumed, totals, sha256: hex(&hash.finalize()) })
    }

    /// Number of leading octets, among the first `len`, that the server has as in `file`: WRITEs of
    /// an earlier run may have left a hole. They are hashed.
    fn agreed(
        &mut self,
        file: &File,
        handle: FileHandle,
        len: u64,
        hash: &mut Sha256,
    ) -> Result<u64, Error> {
        if len == 0 {
            return Ok(0);
        }
        let (mut agreed, mut room) = (0, Vec::new());
        let mut sink = |offset: u64, octets: &[u8]| {
            if offset != agreed || offset >= len {
                return Ok(());
            }
            room.resize(octets.len(), 0);
            let read = file.read_at(&mut room, offset)?;
            let pairs = octets.iter().zip(room.get(..read).unwrap_or_default());
            let same = pairs.take_while(|(one, other)| one == other).count();
            hash.update(octets.get(..same).unwrap_or_default());
            agreed += same as u64;
            Ok(())
        };
        let there = SizedFile { file: handle, len };
        transfer::get(&mut self.remote.client, there, self.reads, &mut sink, &mut |_| {})?;
        Ok(agreed)
    }

    fn send_stream(&mut self, from: &mut dyn Read, handle: FileHandle) -> Result<Filled, Error> {
        let (mut hash, mut totals) = (Sha256::new(), TransferTotals::default());
        let (mut window, mut moved_to) = (Vec::with_capacity(WINDOW), self.progress.moving(0));
        let mut writer = FileWriter::new(handle, self.writes);
        loop {
            window.clear();
            let read = from.take(WINDOW as u64).read_to_end(&mut window);
            read.map_err(|error| Error::failure(crate::plain(&error)))?;
            hash.update(&window);
            let range = FileRange { offset: totals.octets, len: window.len() as u64 };
            let mut source = |offset: u64, room: &mut [u8]| {
                let at = usize::try_from(offset - range.offset).map_err(io::Error::other)?;
                let octets = window.get(at..at + room.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
                room.copy_from_slice(octets);
                Ok(())
            };
            let mut progress = |taken: u64| moved_to(range.offset + taken);
            let sent = writer.write(&mut self.remote.client, range, &mut source, &mut progress)?;
            totals.octets += sent.octets;
            totals.calls += sent.calls;
            totals.replayed += sent.replayed;
            if window.len() < WINDOW {
                return Ok(Filled { resumed: 0, totals, sha256: hex(&hash.finalize()) });
            }
        }
    }

    /// Compares the written file, and sets its times, if requested.
    fn settle(
        &mut self,
        handle: FileHandle,
        found: &Metadata,
        filled: &Filled,
    ) -> Result<(), Error> {
        if self.way.verify && self.hash_there(handle, found.len())? != filled.sha256 {
            return Err(not_as_sent());
        }
        if !self.way.preserve && filled.resumed == 0 {
            return Ok(());
        }
        let mtime = if self.way.preserve { remote_time(found) } else { SetTime::Keep };
        let mode = Some(found.permissions().mode() & 0o777);
        let attributes = SetAttributes { mode, mtime, ..SetAttributes::default() };
        let set = self.remote.client.setattr(handle, attributes, None);
        set.map(drop).map_err(failed("SETATTR of times and mode"))
    }

    /// Renames a written file to its name; a failed one is removed, unless a later run may resume
    /// it.
    fn name_draft(
        &mut self,
        place: RemotePlace<'_>,
        handle: FileHandle,
        draft: &[u8],
        sent: Result<Filled, Error>,
    ) -> Result<Filled, Error> {
        let RemotePlace { directory, name, .. } = place;
        if draft == name {
            return sent;
        }
        let filled = match sent {
            Ok(filled) => filled,
            Err(error) if self.remote.is_lost() => {
                return Err(Error::failure(format!(
                    "{error}; what was written until then may be there: --resume goes on with it"
                )));
            }
            Err(error) => {
                let _ = self.remote.client.remove(directory, draft);
                return Err(error);
            }
        };
        match self.remote.client.rename(directory, draft, directory, name) {
            Ok(_) => Ok(filled),
            // The call was executed twice, or another process put the same file.
            Err(stag_client::Error::Nfs(Status::NoEnt))
                if self.remote.find(directory, name)?.is_some_and(|at| at.handle == handle) =>
            {
                Ok(filled)
            }
            Err(error) => {
                let error = failed(format_args!("RENAME to {}", shown(name)))(error);
                let _ = self.remote.client.remove(directory, draft);
                Err(error)
            }
        }
    }
}

/// The umask of this process, from proc(5).
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

fn not_as_sent() -> Error {
    Error::failure("what the server has is not what was sent")
}
