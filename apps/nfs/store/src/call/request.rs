//! Calls to be executed elsewhere: owned, so that they outlive the message that they came in, and
//! may move to another thread.
//!
//! Names are stored in the operation itself. Longer data is lent from the shard's memory, which
//! keeps the buffer meanwhile: a WRITE's payload, a link's target and a path to mount as
//! [`LentOctets`]; results of READ, READLINK and a listing as a [`LentRoom`].

use std::fmt;

use stag_nfs_os::{LentOctets, LentRoom};
use stag_protocol::nfs::{
    Bulk,
    v3::{
        AccessArgs, Call, CommitArgs, CreateArgs, DirOpArgs, FileHandle, GetAttrArgs, LinkArgs,
        LookupArgs, MkDirArgs, MkNodArgs, Name, PATH_MAX, Procedure, ReadArgs, ReadDirArgs,
        ReadDirPlusArgs, ReadLinkArgs, RemoveArgs, RenameArgs, SetAttrArgs, StableHow, SymlinkArgs,
        SystemArgs, WriteArgs,
    },
};

use crate::{
    Caller, CreateMode, DeviceNode, FilePlace, FileSpan, FileTime, LISTING_MAX, NameIn,
    NewAttributes, SeekFor, TRANSFER_MAX, XATTR_MAX, XattrMode,
};

/// Bytes stored of a name: one more than any store accepts, so that a longer name stays too long.
const NAME_LEN: usize = 256;

/// A name in a directory that borrows nothing.
#[derive(Clone, Copy)]
pub struct OwnedName {
    /// The directory.
    pub directory: FileHandle,
    len: u16,
    octets: [u8; NAME_LEN],
}

impl OwnedName {
    /// Copies a name. One that is too long for any store is truncated, and still too long.
    pub fn new(directory: FileHandle, name: &[u8]) -> Self {
        let mut octets = [0; NAME_LEN];
        let len = name.len().min(NAME_LEN);
        octets.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
        Self { directory, len: len as u16, octets }
    }

    fn of(place: &DirOpArgs<'_>) -> Self {
        Self::new(place.dir, place.name.0)
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        self.octets.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The name in its directory.
    pub(crate) fn place(&self) -> NameIn<'_, &FileHandle> {
        NameIn::new(&self.directory, self.name())
    }

    fn argument(&self) -> DirOpArgs<'_> {
        DirOpArgs { dir: self.directory, name: Name(self.name()) }
    }
}

impl fmt::Debug for OwnedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedName({:?})", String::from_utf8_lossy(self.name()))
    }
}

/// A procedure with its arguments, except for lent bytes.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "it waits for a file system; boxing would allocate")]
pub enum StoreRequest {
    /// MNT of a path, which is lent.
    Mount,
    /// GETATTR.
    GetAttr(GetAttrArgs),
    /// SETATTR.
    SetAttr {
        /// The file.
        file: FileHandle,
        /// Attributes to change.
        set: NewAttributes,
        /// The ctime that the file must have, in version 3's range.
        guard: Option<FileTime>,
    },
    /// LOOKUP.
    Lookup(OwnedName),
    /// ACCESS.
    Access(AccessArgs),
    /// READLINK to a room.
    ReadLink(ReadLinkArgs),
    /// READ to a room, of the room's length.
    Read(ReadArgs),
    /// WRITE of lent bytes.
    Write {
        /// The file.
        file: FileHandle,
        /// Offset of the first byte.
        offset: u64,
        /// Required stability.
        stable: StableHow,
    },
    /// CREATE.
    Create(OwnedName, CreateMode),
    /// MKDIR.
    MkDir(OwnedName, NewAttributes),
    /// SYMLINK to a lent target.
    Symlink(OwnedName, NewAttributes),
    /// MKNOD.
    MkNod(OwnedName, DeviceNode, NewAttributes),
    /// REMOVE.
    Remove(OwnedName),
    /// RMDIR.
    RmDir(OwnedName),
    /// RENAME from a name to another.
    Rename(OwnedName, OwnedName),
    /// LINK of a file to a name.
    Link(FileHandle, OwnedName),
    /// READDIR to a room.
    ReadDir(ReadDirArgs),
    /// READDIRPLUS to a room.
    ReadDirPlus(ReadDirPlusArgs),
    /// FSSTAT.
    FsStat(SystemArgs),
    /// FSINFO.
    FsInfo(SystemArgs),
    /// PATHCONF.
    PathConf(SystemArgs),
    /// COMMIT.
    Commit(CommitArgs),
    /// LOOKUPP.
    LookupParent(FileHandle),
    /// Pins a file.
    Pin(FileHandle),
    /// SEEK in a file from an offset on.
    Seek(FileHandle, u64, SeekFor),
    /// ALLOCATE.
    Allocate(FileHandle, FileSpan),
    /// DEALLOCATE.
    Deallocate(FileHandle, FileSpan),
    /// COPY of a number of bytes.
    Copy {
        /// The source.
        from: FilePlace,
        /// The target.
        to: FilePlace,
        /// The number; 0 for all.
        count: u64,
    },
    /// CLONE of a number of bytes.
    Clone {
        /// The source.
        from: FilePlace,
        /// The target.
        to: FilePlace,
        /// The number; 0 for all.
        count: u64,
    },
    /// GETXATTR to a room: the name's directory is the file.
    GetXattr(OwnedName),
    /// LISTXATTRS to a room.
    ListXattrs(FileHandle),
    /// SETXATTR of a lent value.
    SetXattr(OwnedName, XattrMode),
    /// REMOVEXATTR.
    RemoveXattr(OwnedName),
    /// Properties of an object's file system.
    Limits(FileHandle),
}

impl StoreRequest {
    /// The operation of a call; none for NULL, which never waits.
    pub fn of(call: &Call<'_>) -> Option<Self> {
        Some(match call {
            Call::Null => return None,
            Call::GetAttr(args) => Self::GetAttr(*args),
            Call::SetAttr(args) => Self::SetAttr {
                file: args.object,
                set: (&args.attributes).into(),
                guard: args.guard.map(Into::into),
            },
            Call::Lookup(args) => Self::Lookup(OwnedName::of(&args.what)),
            Call::Access(args) => Self::Access(*args),
            Call::ReadLink(args) => Self::ReadLink(*args),
            Call::Read(args) => Self::Read(*args),
            Call::Write(WriteArgs { file, offset, stable, .. }) => {
                Self::Write { file: *file, offset: *offset, stable: *stable }
            }
            Call::Create(args) => Self::Create(OwnedName::of(&args.place), (&args.how).into()),
            Call::MkDir(args) => Self::MkDir(OwnedName::of(&args.place), (&args.attributes).into()),
            Call::Symlink(args) => {
                Self::Symlink(OwnedName::of(&args.place), (&args.attributes).into())
            }
            Call::MkNod(args) => {
                let (node, set) = (DeviceNode::from(&args.what), NewAttributes::from(&args.what));
                Self::MkNod(OwnedName::of(&args.place), node, set)
            }
            Call::Remove(args) => Self::Remove(OwnedName::of(&args.object)),
            Call::RmDir(args) => Self::RmDir(OwnedName::of(&args.object)),
            Call::Rename(args) => Self::Rename(OwnedName::of(&args.from), OwnedName::of(&args.to)),
            Call::Link(args) => Self::Link(args.file, OwnedName::of(&args.link)),
            Call::ReadDir(args) => Self::ReadDir(*args),
            Call::ReadDirPlus(args) => Self::ReadDirPlus(*args),
            Call::FsStat(args) => Self::FsStat(*args),
            Call::FsInfo(args) => Self::FsInfo(*args),
            Call::PathConf(args) => Self::PathConf(*args),
            Call::Commit(args) => Self::Commit(*args),
        })
    }

    /// Restores the version 3 call, with the lent bytes; none for MNT and for procedures that
    /// version 3 lacks.
    pub fn call<'a>(&'a self, lent: &'a [u8]) -> Option<Call<'a>> {
        Some(match self {
            Self::GetAttr(args) => Call::GetAttr(*args),
            Self::SetAttr { file, set, guard } => Call::SetAttr(SetAttrArgs {
                object: *file,
                attributes: set.into(),
                guard: guard.map(Into::into),
            }),
            Self::Lookup(at) => Call::Lookup(LookupArgs { what: at.argument() }),
            Self::Access(args) => Call::Access(*args),
            Self::ReadLink(args) => Call::ReadLink(*args),
            Self::Read(args) => Call::Read(*args),
            Self::Write { file, offset, stable } => Call::Write(WriteArgs {
                file: *file,
                offset: *offset,
                stable: *stable,
                data: Bulk::Inline(lent),
            }),
            Self::Create(at, how) => {
                Call::Create(CreateArgs { place: at.argument(), how: how.into() })
            }
            Self::MkDir(at, set) => {
                Call::MkDir(MkDirArgs { place: at.argument(), attributes: set.into() })
            }
            Self::Symlink(at, set) => Call::Symlink(SymlinkArgs {
                place: at.argument(),
                attributes: set.into(),
                path: Bulk::Inline(lent),
            }),
            Self::MkNod(at, node, set) => {
                Call::MkNod(MkNodArgs { place: at.argument(), what: node.with(&set.into()) })
            }
            Self::Remove(at) => Call::Remove(RemoveArgs { object: at.argument() }),
            Self::RmDir(at) => Call::RmDir(RemoveArgs { object: at.argument() }),
            Self::Rename(from, to) => {
                Call::Rename(RenameArgs { from: from.argument(), to: to.argument() })
            }
            Self::Link(file, at) => Call::Link(LinkArgs { file: *file, link: at.argument() }),
            Self::ReadDir(args) => Call::ReadDir(*args),
            Self::ReadDirPlus(args) => Call::ReadDirPlus(*args),
            Self::FsStat(args) => Call::FsStat(*args),
            Self::FsInfo(args) => Call::FsInfo(*args),
            Self::PathConf(args) => Call::PathConf(*args),
            Self::Commit(args) => Call::Commit(*args),
            _ => return None,
        })
    }

    /// The version 3 procedure; none for MNT and for procedures that version 3 lacks.
    pub fn procedure(&self) -> Option<Procedure> {
        self.call(&[]).map(|call| call.procedure())
    }

    /// Maximum bytes of the room that it fills.
    pub fn room_len(&self) -> usize {
        match self {
            Self::Read(args) => args.count.min(TRANSFER_MAX) as usize,
            Self::ReadLink(_) => PATH_MAX,
            Self::ReadDir(args) => listing_room(args.count),
            Self::ReadDirPlus(args) => listing_room(args.max_count),
            Self::GetXattr(_) | Self::ListXattrs(_) => XATTR_MAX,
            _ => 0,
        }
    }

    /// Returns true if it changes nothing, so that it may end after its caller was asked to retry.
    pub const fn is_harmless(&self) -> bool {
        matches!(
            self,
            Self::Mount
                | Self::GetAttr(_)
                | Self::Lookup(_)
                | Self::Access(_)
                | Self::ReadLink(_)
                | Self::Read(_)
                | Self::ReadDir(_)
                | Self::ReadDirPlus(_)
                | Self::FsStat(_)
                | Self::FsInfo(_)
                | Self::PathConf(_)
                | Self::LookupParent(_)
                | Self::Seek(..)
                | Self::GetXattr(_)
                | Self::ListXattrs(_)
                | Self::Limits(_)
        )
    }

    /// Its protocol name, for the log.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Mount => "MNT",
            Self::GetAttr(_) | Self::Limits(_) => "GETATTR",
            Self::SetAttr { .. } => "SETATTR",
            Self::Lookup(_) => "LOOKUP",
            Self::LookupParent(_) => "LOOKUPP",
            Self::Access(_) => "ACCESS",
            Self::ReadLink(_) => "READLINK",
            Self::Read(_) => "READ",
            Self::Write { .. } => "WRITE",
            Self::Create(..) => "CREATE",
            Self::MkDir(..) => "MKDIR",
            Self::Symlink(..) => "SYMLINK",
            Self::MkNod(..) => "MKNOD",
            Self::Remove(_) => "REMOVE",
            Self::RmDir(_) => "RMDIR",
            Self::Rename(..) => "RENAME",
            Self::Link(..) => "LINK",
            Self::ReadDir(_) => "READDIR",
            Self::ReadDirPlus(_) => "READDIRPLUS",
            Self::FsStat(_) => "FSSTAT",
            Self::FsInfo(_) => "FSINFO",
            Self::PathConf(_) => "PATHCONF",
            Self::Commit(_) => "COMMIT",
            Self::Pin(_) => "OPEN",
            Self::Seek(..) => "SEEK",
            Self::Allocate(..) => "ALLOCATE",
            Self::Deallocate(..) => "DEALLOCATE",
            Self::Copy { .. } => "COPY",
            Self::Clone { .. } => "CLONE",
            Self::GetXattr(_) => "GETXATTR",
            Self::ListXattrs(_) => "LISTXATTRS",
            Self::SetXattr(..) => "SETXATTR",
            Self::RemoveXattr(_) => "REMOVEXATTR",
        }
    }

    /// Its effort.
    pub fn effort(&self) -> Effort {
        match self {
            Self::Allocate(..)
            | Self::Deallocate(..)
            | Self::Clone { .. }
            | Self::SetXattr(..)
            | Self::RemoveXattr(_) => Effort::Change,
            Self::Copy { .. } => Effort::Long,
            other => other.call(&[]).map_or(Effort::Plain, |call| Effort::of(&call)),
        }
    }

    /// Handles of its objects, the second only if there are two; none for MNT.
    pub fn objects(&self) -> [Option<FileHandle>; 2] {
        match self {
            Self::LookupParent(object)
            | Self::Pin(object)
            | Self::Seek(object, ..)
            | Self::Allocate(object, _)
            | Self::Deallocate(object, _)
            | Self::ListXattrs(object)
            | Self::Limits(object) => [Some(*object), None],
            Self::GetXattr(at) | Self::SetXattr(at, _) | Self::RemoveXattr(at) => {
                [Some(at.directory), None]
            }
            Self::Copy { from, to, .. } | Self::Clone { from, to, .. } => {
                [Some(from.file), Some(to.file)]
            }
            other => other.call(&[]).map_or([None; 2], |call| objects(&call).map(|o| o.copied())),
        }
    }
}

/// Room for a listing that takes `count` bytes in a reply: the entries' internal form is longer.
fn listing_room(count: u32) -> usize {
    let count = count.min(LISTING_MAX);
    (count + count / 2).min(LISTING_MAX) as usize
}

/// Handles of a call's objects, the second only if there are two.
pub const fn objects<'a>(call: &'a Call<'_>) -> [Option<&'a FileHandle>; 2] {
    let one = match call {
        Call::Null => return [None; 2],
        Call::Rename(args) => return [Some(&args.from.dir), Some(&args.to.dir)],
        Call::Link(args) => return [Some(&args.file), Some(&args.link.dir)],
        Call::GetAttr(args) => &args.object,
        Call::SetAttr(args) => &args.object,
        Call::Lookup(args) => &args.what.dir,
        Call::Access(args) => &args.object,
        Call::ReadLink(args) => &args.symlink,
        Call::Read(args) => &args.file,
        Call::Write(args) => &args.file,
        Call::Create(args) => &args.place.dir,
        Call::MkDir(args) => &args.place.dir,
        Call::Symlink(args) => &args.place.dir,
        Call::MkNod(args) => &args.place.dir,
        Call::Remove(args) | Call::RmDir(args) => &args.object.dir,
        Call::ReadDir(args) => &args.dir,
        Call::ReadDirPlus(args) => &args.dir,
        Call::FsStat(args) | Call::FsInfo(args) | Call::PathConf(args) => &args.object,
        Call::Commit(args) => &args.file,
    };
    [Some(one), None]
}

/// The weight of a call, by which a store decides where to execute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// The call queries the file system, or writes to its memory.
    Plain,
    /// The call changes a directory or attributes, which should be on stable storage afterwards.
    Change,
    /// The call ends only when content is on stable storage.
    Sync,
    /// The call moves the content of files.
    Long,
}

impl Effort {
    /// The effort of a call.
    pub const fn of(call: &Call<'_>) -> Self {
        match call {
            Call::Write(WriteArgs { stable: StableHow::Unstable, .. }) => Self::Plain,
            Call::Write(_) | Call::Commit(_) => Self::Sync,
            Call::SetAttr(_)
            | Call::Create(_)
            | Call::MkDir(_)
            | Call::Symlink(_)
            | Call::MkNod(_)
            | Call::Remove(_)
            | Call::RmDir(_)
            | Call::Rename(_)
            | Call::Link(_) => Self::Change,
            _ => Self::Plain,
        }
    }
}

/// A call to be executed elsewhere, with the memory lent for it. The executor returns it whole,
/// with the outcome or untouched.
#[derive(Debug)]
pub struct StoreCall {
    /// The caller to act as.
    pub caller: Caller,
    /// The procedure and its arguments.
    pub operation: StoreRequest,
    /// Memory for the results of READ, READLINK and listings.
    pub room: Option<LentRoom>,
    /// The bytes of WRITE, SYMLINK and MNT.
    pub payload: Option<LentOctets>,
}

impl StoreCall {
    /// The bytes that were lent with it.
    pub fn payload(&self) -> &[u8] {
        self.payload.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::nfs::v3::{CreateHow, DeviceNumber, NodeKind, PATH_MAX, SetAttributes};

    fn handle(octet: u8) -> FileHandle {
        FileHandle::new(&[octet; 44]).unwrap()
    }

    #[test]
    fn every_call_is_the_same_call_after_it_was_an_operation() {
        let (dir, set) =
            (handle(1), SetAttributes { mode: Some(0o640), ..SetAttributes::default() });
        let place = DirOpArgs { dir, name: Name(b"name") };
        let other = DirOpArgs { dir: handle(2), name: Name(b"other") };
        let device = DeviceNumber { major: 1, minor: 2 };
        let lent = &b"octets"[..];
        let calls = [
            Call::GetAttr(GetAttrArgs { object: dir }),
            Call::SetAttr(SetAttrArgs { object: dir, attributes: set, guard: None }),
            Call::Lookup(LookupArgs { what: place }),
            Call::ReadLink(ReadLinkArgs { symlink: dir }),
            Call::Read(ReadArgs { file: dir, offset: 5, count: 6 }),
            Call::Write(WriteArgs {
                file: dir,
                offset: 9,
                stable: StableHow::DataSync,
                data: Bulk::Inline(lent),
            }),
            Call::Create(CreateArgs { place, how: CreateHow::Exclusive([3; 8]) }),
            Call::MkDir(MkDirArgs { place, attributes: set }),
            Call::Symlink(SymlinkArgs { place, attributes: set, path: Bulk::Inline(lent) }),
            Call::MkNod(MkNodArgs { place, what: NodeKind::Block(set, device) }),
            Call::Remove(RemoveArgs { object: place }),
            Call::RmDir(RemoveArgs { object: place }),
            Call::Rename(RenameArgs { from: place, to: other }),
            Call::Link(LinkArgs { file: handle(3), link: other }),
            Call::Commit(CommitArgs { file: dir, offset: 0, count: 0 }),
        ];
        for call in calls {
            let operation = StoreRequest::of(&call).unwrap();
            assert_eq!(operation.call(lent), Some(call));
            assert_eq!(operation.procedure(), Some(call.procedure()));
            let is_change = Effort::of(&call) != Effort::Plain;
            assert_eq!(operation.is_harmless(), !is_change, "{call:?}");
        }
        assert!(StoreRequest::of(&Call::Null).is_none());
    }

    #[test]
    fn a_name_that_is_too_long_stays_too_long() {
        for len in [0, 1, 255, 256, 257, PATH_MAX] {
            let name = vec![b'n'; len];
            let owned = OwnedName::new(handle(1), &name);
            assert_eq!(owned.name().len(), len.min(256));
            assert!(name.starts_with(owned.name()));
        }
    }
}
