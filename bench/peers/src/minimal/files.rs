//! Files of the minimal server: as much of NFS version 3 and MOUNT as `stag bench` calls. A handle
//! is a number; every access is permitted; times do not change.

use stag_protocol::{
    nfs::{
        Bulk, mount,
        v3::{
            self, Attributes, CommitOk, CreateOk, DeviceNumber, DirOpArgs, Entry, Failure,
            FileHandle, FileKind, LookupOk, Name, Procedure, ReadArgs, ReadDirArgs, ReadDirWriter,
            ReadOk, StableHow, Status, Time, WccData, WriteArgs, WriteOk,
        },
    },
    rpc::{Accepted, CallHeader},
    xdr::{Codec, NoRoom, Reader, Writer},
};
use std::collections::BTreeMap;

/// Octets of the longest file.
const FILE_MAX: usize = 256 << 20;
/// Files and directories at a time, and ever.
const NODES_MAX: usize = 1 << 16;
/// Octets of a READ.
const READ_MAX: usize = 1 << 20;

#[derive(Debug)]
enum Node {
    File(Vec<u8>),
    Directory(BTreeMap<Vec<u8>, usize>),
}

/// All files. The root is the first.
#[derive(Debug)]
pub struct MinimalFiles(Vec<Option<Node>>);

impl Default for MinimalFiles {
    fn default() -> Self {
        Self(vec![Some(Node::Directory(BTreeMap::new()))])
    }
}

fn handle(number: usize) -> FileHandle {
    FileHandle::new(&(number as u64).to_be_bytes()).expect("eight octets are few")
}

fn number(handle: FileHandle) -> Option<usize> {
    usize::try_from(u64::from_be_bytes(handle.octets().try_into().ok()?)).ok()
}

impl MinimalFiles {
    /// Answers any call but NULL, with its header.
    ///
    /// # Errors
    /// When the reply has no room.
    pub fn answer(
        &mut self,
        header: &CallHeader<'_>,
        arguments: Reader<'_>,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let start = writer.len();
        header.reply(Accepted::Success).emit(writer)?;
        let done = match (header.program, header.version) {
            (v3::PROGRAM, v3::VERSION) => match Procedure::new(header.procedure) {
                Some(procedure) => self.nfs(procedure, arguments, writer)?,
                None => Err(Accepted::ProcUnavail),
            },
            (mount::PROGRAM, mount::VERSION) => mounted(header.procedure, arguments, writer)?,
            _ => Err(Accepted::ProgUnavail),
        };
        done.or_else(|status| {
            writer.truncate(start);
            header.reply(status).emit(writer)
        })
    }

    fn nfs(
        &mut self,
        procedure: Procedure,
        arguments: Reader<'_>,
        writer: &mut Writer<'_>,
    ) -> Result<Result<(), Accepted>, NoRoom> {
        let Ok(call) = v3::Call::parse(procedure, arguments) else {
            return Ok(Err(Accepted::GarbageArgs));
        };
        let reply = match call {
            v3::Call::Read(args) => return self.read(args, writer).map(Ok),
            v3::Call::ReadDir(args) => return self.list(args, writer).map(Ok),
            v3::Call::GetAttr(args) => {
                v3::Reply::GetAttr(self.attributes(args.object).ok_or(Status::Stale.into()))
            }
            v3::Call::Lookup(args) => {
                v3::Reply::Lookup(self.find(&args.what).map_err(Failure::from).map(|number| {
                    LookupOk {
                        object: handle(number),
                        attributes: self.attributes(handle(number)),
                        dir_attributes: None,
                    }
                }))
            }
            v3::Call::Create(args) => v3::Reply::Create(
                self.make(&args.place, Node::File(Vec::new())).map_err(Failure::from),
            ),
            v3::Call::MkDir(args) => v3::Reply::MkDir(
                self.make(&args.place, Node::Directory(BTreeMap::new())).map_err(Failure::from),
            ),
            v3::Call::Write(args) => v3::Reply::Write(self.write(&args).map_err(Failure::from)),
            v3::Call::Commit(_) => {
                v3::Reply::Commit(Ok(CommitOk { wcc: WccData::NONE, verifier: [0; 8] }))
            }
            v3::Call::Remove(args) => {
                v3::Reply::Remove(self.remove(&args.object).map_err(Failure::from))
            }
            v3::Call::RmDir(args) => {
                v3::Reply::RmDir(self.remove(&args.object).map_err(Failure::from))
            }
            _ => return Ok(Err(Accepted::ProcUnavail)),
        };
        reply.emit(writer).map(Ok)
    }

    fn node(&self, of: FileHandle) -> Option<&Node> {
        self.0.get(number(of)?)?.as_ref()
    }

    fn node_mut(&mut self, of: FileHandle) -> Option<&mut Node> {
        self.0.get_mut(number(of)?)?.as_mut()
    }

    fn attributes(&self, of: FileHandle) -> Option<Attributes> {
        let (kind, size) = match self.node(of)? {
            Node::File(octets) => (FileKind::Regular, octets.len() as u64),
            Node::Directory(names) => (FileKind::Directory, names.len() as u64),
        };
        Some(Attributes {
            kind,
            mode: 0o777,
            nlink: 1,
            uid: 0,
            gid: 0,
            size,
            used: size,
            device: DeviceNumber::default(),
            fsid: 1,
            fileid: number(of)? as u64 + 1,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
        })
    }

    fn directory(&mut self, of: FileHandle) -> Result<&mut BTreeMap<Vec<u8>, usize>, Status> {
        match self.node_mut(of).ok_or(Status::Stale)? {
            Node::Directory(names) => Ok(names),
            Node::File(_) => Err(Status::NotDir),
        }
    }

    fn find(&mut self, what: &DirOpArgs<'_>) -> Result<usize, Status> {
        self.directory(what.dir)?.get(what.name.0).copied().ok_or(Status::NoEnt)
    }

    fn make(&mut self, place: &DirOpArgs<'_>, node: Node) -> Result<CreateOk, Status> {
        let number = match self.find(place) {
            Ok(known) => known,
            Err(Status::NoEnt) if self.0.len() < NODES_MAX => {
                self.0.push(Some(node));
                let number = self.0.len() - 1;
                self.directory(place.dir)?.insert(place.name.0.to_vec(), number);
                number
            }
            Err(Status::NoEnt) => return Err(Status::NoSpc),
            Err(status) => return Err(status),
        };
        let object = handle(number);
        Ok(CreateOk {
            object: Some(object),
            attributes: self.attributes(object),
            dir_wcc: WccData::NONE,
        })
    }

    fn remove(&mut self, place: &DirOpArgs<'_>) -> Result<WccData, Status> {
        let number = self.find(place)?;
        self.directory(place.dir)?.remove(place.name.0);
        self.0.get_mut(number).map(Option::take);
        Ok(WccData::NONE)
    }

    fn write(&mut self, args: &WriteArgs<'_>) -> Result<WriteOk, Status> {
        let data = args.data.octets().unwrap_or_default();
        let Some(Node::File(file)) = self.node_mut(args.file) else { return Err(Status::Stale) };
        let start = usize::try_from(args.offset).map_err(|_| Status::FBig)?;
        let end =
            start.checked_add(data.len()).filter(|end| *end <= FILE_MAX).ok_or(Status::FBig)?;
        if file.len() < end {
            file.resize(end, 0);
        }
        file.get_mut(start..end).into_iter().for_each(|room| room.copy_from_slice(data));
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Ok(WriteOk { wcc: WccData::NONE, count, committed: StableHow::FileSync, verifier: [0; 8] })
    }

    /// READ in place: its data is copied from the file to where the reply is sent from.
    fn read(&self, args: ReadArgs, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let Some(Node::File(file)) = self.node(args.file) else {
            let failure: v3::ReadResult<'_> = Err(Status::Stale.into());
            return failure.emit(writer);
        };
        let start = usize::try_from(args.offset).unwrap_or(usize::MAX).min(file.len());
        let len = (args.count as usize).min(READ_MAX).min(file.len() - start);
        let data = file.get(start..start + len).unwrap_or_default();
        let eof = start + len == file.len();
        let done: v3::ReadResult<'_> =
            Ok(ReadOk { attributes: self.attributes(args.file), eof, data: Bulk::Inline(data) });
        done.emit(writer)
    }

    fn list(&self, args: ReadDirArgs, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let fail = |status: Status, writer: &mut Writer<'_>| {
            let failure: v3::ReadDirResult<'_> = Err(status.into());
            failure.emit(writer)
        };
        let Some(Node::Directory(names)) = self.node(args.dir) else {
            return fail(Status::NotDir, writer);
        };
        let listed =
            ReadDirWriter::begin(writer, None, [0; 8], args.count).and_then(|mut listing| {
                let skipped = usize::try_from(args.cookie).unwrap_or(usize::MAX);
                for ((name, number), cookie) in names.iter().zip(1..).skip(skipped) {
                    let entry = Entry { fileid: *number as u64 + 1, name: Name(name), cookie };
                    if listing.push(&entry).is_err() {
                        return listing.finish(false);
                    }
                }
                listing.finish(true)
            });
        listed.map(drop).or_else(|status| fail(status, writer))
    }
}

/// MOUNT: every path is the root.
fn mounted(
    procedure: u32,
    arguments: Reader<'_>,
    writer: &mut Writer<'_>,
) -> Result<Result<(), Accepted>, NoRoom> {
    let call =
        mount::Procedure::new(procedure).ok_or(Accepted::ProcUnavail).and_then(|procedure| {
            mount::Call::parse(procedure, arguments).map_err(|_| Accepted::GarbageArgs)
        });
    let reply = match call {
        Ok(mount::Call::Mnt(_)) => {
            mount::Reply::Mnt(Ok(mount::MntOk { handle: handle(0), flavors: mount::Flavors::SYS }))
        }
        Ok(mount::Call::Umnt(_)) => mount::Reply::Umnt,
        Ok(_) => return Ok(Err(Accepted::ProcUnavail)),
        Err(status) => return Ok(Err(status)),
    };
    reply.emit(writer).map(Ok)
}
