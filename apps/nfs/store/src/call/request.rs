//! Calls to be executed elsewhere: owned, so that they outlive the message that they came in, and
//! may move to another thread.
//!
//! Names are stored in the call itself. Longer data is lent from the shard's memory, which
//! keeps the buffer meanwhile: a WRITE's payload, a link's target and a path to mount as
//! [`LentOctets`]; results of READ, READLINK and a listing as a [`LentRoom`].

use stag_nfs_os::{LentOctets, LentRoom};
use stag_protocol::nfs::{
    Bulk,
    v3::{
        AccessArgs, Call, CommitArgs, CreateArgs, GetAttrArgs, LinkArgs, LookupArgs, MkDirArgs,
        MkNodArgs, Name, PATH_MAX, Procedure, ReadArgs, ReadDirArgs, ReadDirPlusArgs, ReadLinkArgs,
        RemoveArgs, RenameArgs, SetAttrArgs, SymlinkArgs, SystemArgs, WriteArgs,
    },
};

use super::arguments::Lend;
use crate::{ACL_PAIR_MAX, Caller, LISTING_MAX, TRANSFER_MAX, XATTR_MAX, procedure_types::*};

/// The word of a row that says if a call may change something.
macro_rules! is_harmless {
    (reads) => {
        true
    };
    (changes) => {
        false
    };
}

/// Makes the calls of the table of [procedures](crate::store_procedures).
macro_rules! store_requests {
    ($(
        $(#[$doc:meta])*
        $variant:ident: $label:literal, $effort:expr, $touch:ident, [$($object:expr),*];
        fn $method:ident($($arg:ident: $lent:ty as $owned:ty),*) -> $result:ty as $outcome:ident;
    )*) => {
        /// A procedure with its arguments, except for lent bytes.
        #[derive(Clone, Copy, Debug)]
        #[allow(
            clippy::large_enum_variant,
            reason = "it waits for a file system; boxing would allocate"
        )]
        #[allow(missing_docs, reason = "fields are the arguments of the procedure")]
        pub enum StoreRequest {
            /// MNT of a path, which is lent.
            Mount,
            /// READLINK to a room.
            ReadLink(ReadLinkArgs),
            /// READ to a room, of the room's length.
            Read(ReadArgs),
            /// READDIR to a room.
            ReadDir(ReadDirArgs),
            /// READDIRPLUS to a room.
            ReadDirPlus(ReadDirPlusArgs),
            /// GETXATTR to a room.
            GetXattr { file: FileHandle, name: OwnedName },
            /// LISTXATTRS to a room.
            ListXattrs(FileHandle),
            /// Both access control lists to a room.
            GetAcls(FileHandle),
            $(
                #[doc = concat!($label, ", by the procedure `", stringify!($method), "`.")]
                $variant { $($arg: $owned),* },
            )*
        }

        #[allow(unused_variables, reason = "a row names all arguments")]
        impl StoreRequest {
            /// Returns true if it changes nothing, so that it may end after its caller was asked to
            /// retry.
            pub const fn is_harmless(&self) -> bool {
                match self {
                    Self::Mount
                    | Self::ReadLink(_)
                    | Self::Read(_)
                    | Self::ReadDir(_)
                    | Self::ReadDirPlus(_)
                    | Self::GetXattr { .. }
                    | Self::ListXattrs(_)
                    | Self::GetAcls(_) => true,
                    $(Self::$variant { .. } => is_harmless!($touch),)*
                }
            }

            /// Its protocol name, for the log.
            pub const fn label(&self) -> &'static str {
                match self {
                    Self::Mount => "MNT",
                    Self::ReadLink(_) => "READLINK",
                    Self::Read(_) => "READ",
                    Self::ReadDir(_) => "READDIR",
                    Self::ReadDirPlus(_) => "READDIRPLUS",
                    Self::GetXattr { .. } => "GETXATTR",
                    Self::ListXattrs(_) => "LISTXATTRS",
                    Self::GetAcls(_) => "GETACL",
                    $(Self::$variant { .. } => $label,)*
                }
            }

            /// Its effort.
            pub fn effort(&self) -> Effort {
                match self {
                    Self::Mount
                    | Self::ReadLink(_)
                    | Self::Read(_)
                    | Self::ReadDir(_)
                    | Self::ReadDirPlus(_)
                    | Self::GetXattr { .. }
                    | Self::ListXattrs(_)
                    | Self::GetAcls(_) => Effort::Plain,
                    $(Self::$variant { $($arg),* } => {
                        $(let $arg: $lent = Lend::lend($arg, &[]);)*
                        $effort
                    })*
                }
            }

            /// Handles of its objects, the second only if there are two; none for MNT.
            pub fn objects(&self) -> [Option<FileHandle>; 2] {
                match self {
                    Self::Mount => [None; 2],
                    Self::ReadLink(args) => handles([&args.symlink]),
                    Self::Read(args) => handles([&args.file]),
                    Self::ReadDir(args) => handles([&args.dir]),
                    Self::ReadDirPlus(args) => handles([&args.dir]),
                    Self::GetXattr { file, .. }
                    | Self::ListXattrs(file)
                    | Self::GetAcls(file) => handles([file]),
                    $(Self::$variant { $($arg),* } => {
                        $(let $arg: $lent = Lend::lend($arg, &[]);)*
                        handles([$($object),*])
                    })*
                }
            }
        }
    };
}

crate::store_procedures!(all store_requests);

/// The handles of one or two objects.
fn handles<const N: usize>(objects: [&FileHandle; N]) -> [Option<FileHandle>; 2] {
    let mut objects = objects.into_iter().copied();
    [objects.next(), objects.next()]
}

impl StoreRequest {
    /// The operation of a call; none for NULL, which never waits.
    pub fn of(call: &Call<'_>) -> Option<Self> {
        let name = |name: &Name<'_>| OwnedName::new(name.0);
        Some(match call {
            Call::Null => return None,
            Call::GetAttr(args) => Self::GetAttr { file: args.object },
            Call::SetAttr(args) => Self::SetAttr {
                file: args.object,
                set: (&args.attributes).into(),
                guard: args.guard.map(Into::into),
            },
            Call::Lookup(LookupArgs { what: at }) => {
                Self::Lookup { directory: at.dir, name: name(&at.name) }
            }
            Call::Access(args) => Self::Access { file: args.object, asked: args.access },
            Call::ReadLink(args) => Self::ReadLink(*args),
            Call::Read(args) => Self::Read(*args),
            Call::Write(WriteArgs { file, offset, stable, .. }) => {
                let (file, offset, stable) = (*file, *offset, *stable);
                Self::Write { file, offset, data: LentArgument, stable }
            }
            Call::Create(CreateArgs { place: at, how }) => {
                Self::Create { directory: at.dir, name: name(&at.name), how: how.into() }
            }
            Call::MkDir(MkDirArgs { place: at, attributes }) => {
                Self::MkDir { directory: at.dir, name: name(&at.name), set: attributes.into() }
            }
            Call::Symlink(SymlinkArgs { place: at, attributes, .. }) => Self::Symlink {
                directory: at.dir,
                name: name(&at.name),
                target: LentArgument,
                set: attributes.into(),
            },
            Call::MkNod(MkNodArgs { place: at, what }) => Self::MkNod {
                directory: at.dir,
                name: name(&at.name),
                node: what.into(),
                set: what.into(),
            },
            Call::Remove(RemoveArgs { object: at }) => {
                Self::Remove { directory: at.dir, name: name(&at.name) }
            }
            Call::RmDir(RemoveArgs { object: at }) => {
                Self::RmDir { directory: at.dir, name: name(&at.name) }
            }
            Call::Rename(RenameArgs { from, to }) => Self::Rename {
                from: OwnedNameIn { directory: from.dir, name: name(&from.name) },
                to: OwnedNameIn { directory: to.dir, name: name(&to.name) },
            },
            Call::Link(LinkArgs { file, link: at }) => {
                Self::Link { file: *file, directory: at.dir, name: name(&at.name) }
            }
            Call::ReadDir(args) => Self::ReadDir(*args),
            Call::ReadDirPlus(args) => Self::ReadDirPlus(*args),
            Call::FsStat(args) => Self::FsStat { object: args.object },
            Call::FsInfo(args) => Self::FsInfo { object: args.object },
            Call::PathConf(args) => Self::PathConf { object: args.object },
            Call::Commit(args) => Self::Commit { file: args.file },
        })
    }

    /// Restores the version 3 call, with the lent bytes; none for MNT and for procedures that
    /// version 3 lacks.
    pub fn call<'a>(&'a self, lent: &'a [u8]) -> Option<Call<'a>> {
        Some(match self {
            Self::GetAttr { file } => Call::GetAttr(GetAttrArgs { object: *file }),
            Self::SetAttr { file, set, guard } => Call::SetAttr(SetAttrArgs {
                object: *file,
                attributes: set.into(),
                guard: guard.map(Into::into),
            }),
            Self::Lookup { directory, name } => {
                Call::Lookup(LookupArgs { what: name.argument(directory) })
            }
            Self::Access { file, asked } => {
                Call::Access(AccessArgs { object: *file, access: *asked })
            }
            Self::ReadLink(args) => Call::ReadLink(*args),
            Self::Read(args) => Call::Read(*args),
            Self::Write { file, offset, stable, .. } => Call::Write(WriteArgs {
                file: *file,
                offset: *offset,
                stable: *stable,
                data: Bulk::Inline(lent),
            }),
            Self::Create { directory, name, how } => {
                Call::Create(CreateArgs { place: name.argument(directory), how: how.into() })
            }
            Self::MkDir { directory, name, set } => {
                Call::MkDir(MkDirArgs { place: name.argument(directory), attributes: set.into() })
            }
            Self::Symlink { directory, name, set, .. } => Call::Symlink(SymlinkArgs {
                place: name.argument(directory),
                attributes: set.into(),
                path: Bulk::Inline(lent),
            }),
            Self::MkNod { directory, name, node, set } => Call::MkNod(MkNodArgs {
                place: name.argument(directory),
                what: node.with(&set.into()),
            }),
            Self::Remove { directory, name } => {
                Call::Remove(RemoveArgs { object: name.argument(directory) })
            }
            Self::RmDir { directory, name } => {
                Call::RmDir(RemoveArgs { object: name.argument(directory) })
            }
            Self::Rename { from, to } => Call::Rename(RenameArgs {
                from: from.name.argument(&from.directory),
                to: to.name.argument(&to.directory),
            }),
            Self::Link { file, directory, name } => {
                Call::Link(LinkArgs { file: *file, link: name.argument(directory) })
            }
            Self::ReadDir(args) => Call::ReadDir(*args),
            Self::ReadDirPlus(args) => Call::ReadDirPlus(*args),
            Self::FsStat { object } => Call::FsStat(SystemArgs { object: *object }),
            Self::FsInfo { object } => Call::FsInfo(SystemArgs { object: *object }),
            Self::PathConf { object } => Call::PathConf(SystemArgs { object: *object }),
            Self::Commit { file } => {
                // The verifier covers the whole file.
                Call::Commit(CommitArgs { file: *file, offset: 0, count: 0 })
            }
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
            Self::GetXattr { .. } | Self::ListXattrs(_) => XATTR_MAX,
            Self::GetAcls(_) => ACL_PAIR_MAX,
            _ => 0,
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
    /// The effort of a WRITE.
    pub const fn of_write(stable: StableHow) -> Self {
        match stable {
            StableHow::Unstable => Self::Plain,
            StableHow::DataSync | StableHow::FileSync => Self::Sync,
        }
    }

    /// The effort of a call.
    pub const fn of(call: &Call<'_>) -> Self {
        match call {
            Call::Write(args) => Self::of_write(args.stable),
            Call::Commit(_) => Self::Sync,
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
    use stag_protocol::nfs::v3::{
        CreateHow, DeviceNumber, DirOpArgs, Name, NodeKind, SetAttributes,
    };

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
}
