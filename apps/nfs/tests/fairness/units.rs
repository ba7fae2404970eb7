//! The operations of versions 3 and 4 that a client makes as fast as it can, each where it can be
//! repeated.

use super::{Attack, handle};
use crate::gateway::{
    client::{self as v3, place},
    nfs4::client::{open_args, session_args, write_args},
};
use stag_protocol::nfs::{
    Bulk,
    v3::{
        Access, AccessArgs, Call as Call3, CommitArgs, CreateArgs, CreateHow, FileHandle,
        GetAttrArgs, LinkArgs, LookupArgs, MkDirArgs, MkNodArgs, NodeKind, ReadArgs, ReadDirArgs,
        ReadDirPlusArgs, ReadLinkArgs, RemoveArgs, RenameArgs, SetAttrArgs, SetAttributes,
        StableHow, SymlinkArgs, SystemArgs, WriteArgs,
    },
    v4::*,
};

/// Operations that one compound repeats.
pub struct Unit<'a> {
    pub name: &'static str,
    pub requests: Vec<Request<'a>>,
    /// It is the whole compound, without SEQUENCE (RFC 8881 §2.10.2).
    pub is_alone: bool,
    /// Statuses in addition to success: what a store has not, and operations that can be repeated
    /// only where they fail.
    pub may: &'static [Status4],
}

impl<'a> Unit<'a> {
    fn new(name: &'static str, requests: Vec<Request<'a>>) -> Self {
        Self { name, requests, is_alone: false, may: &[] }
    }

    fn alone(name: &'static str, request: Request<'a>) -> Self {
        Self { is_alone: true, ..Self::new(name, vec![request]) }
    }

    fn or(self, may: &'static [Status4]) -> Self {
        Self { may, ..self }
    }
}

/// The stateid of the operation before.
const CURRENT: Stateid = Stateid::CURRENT;
/// No state has it.
const UNKNOWN: Stateid = Stateid { seqid: 1, other: [9; 12] };
const NO_XATTRS: &[Status4] = &[Status4::NotSupp, Status4::NoXattr];

/// The operations of version 4.
pub fn units(of: &Attack) -> Vec<Unit<'_>> {
    [handles(of), names(of), files(of), state(of), ranges(of), xattrs(), clients(of)]
        .into_iter()
        .flatten()
        .collect()
}

fn handles(of: &Attack) -> Vec<Unit<'_>> {
    let root = handle(&of.root);
    let style = SecInfoStyle::Current;
    vec![
        Unit::new("SEQUENCE", vec![]),
        Unit::new("GETFH", vec![Request::GetFh(())]),
        Unit::new("PUTFH", vec![root.clone()]),
        Unit::new("PUTPUBFH", vec![Request::PutPubFh(())]),
        Unit::new("PUTROOTFH", vec![Request::PutRootFh(())]),
        Unit::new("SAVEFH, RESTOREFH", vec![Request::SaveFh(()), Request::RestoreFh(())]),
        Unit::new("LOOKUP", vec![root.clone(), Request::Lookup(Text(b"f"))]),
        Unit::new("LOOKUPP", vec![root.clone(), Request::LookupP(())]),
        Unit::new("SECINFO", vec![root.clone(), Request::SecInfo(Text(b"f"))]),
        Unit::new("SECINFO_NO_NAME", vec![root, Request::SecInfoNoName(style)]),
    ]
}

fn names(of: &Attack) -> Vec<Unit<'_>> {
    let root = handle(&of.root);
    let list = ReadDir4Args {
        cookie: 0,
        verifier: [0; 8],
        dir_count: 700,
        max_count: 700,
        attributes: Bitmap::of([1, 20]),
    };
    let directory = Create4Args {
        kind: CreateKind::Directory,
        name: Text(b"made"),
        attributes: RawAttributes::default(),
    };
    let rename = |old, new| Request::Rename(Rename4Args { old: Text(old), new: Text(new) });
    let remove = |name| Request::Remove(Text(name));
    let made = vec![root.clone(), Request::Create(directory), root.clone(), remove(b"made")];
    let linked = vec![
        handle(&of.file),
        Request::SaveFh(()),
        root.clone(),
        Request::Link(Text(b"linked")),
        remove(b"linked"),
    ];
    let renamed = vec![
        root.clone(),
        Request::SaveFh(()),
        rename(b"other", b"renamed"),
        rename(b"renamed", b"other"),
    ];
    vec![
        Unit::new("READDIR", vec![root, Request::ReadDir(list)]),
        Unit::new("READLINK", vec![handle(&of.link), Request::ReadLink(())]),
        Unit::new("CREATE, REMOVE", made),
        Unit::new("LINK, REMOVE", linked),
        Unit::new("RENAME", renamed),
    ]
}

fn files(of: &Attack) -> Vec<Unit<'_>> {
    let open = of.open;
    let look = Request::GetAttr(Bitmap::of([1, 3, 4, 20, 33, 35, 36, 53]));
    // Of a regular file, and not of a directory.
    let kind = |octets| RawAttributes { mask: Bitmap::of([1]), octets };
    let set = SetAttr4Args { stateid: open, attributes: RawAttributes::default() };
    vec![
        Unit::new("ACCESS", vec![Request::Access(Access4Args { rights: 0x3f })]),
        Unit::new("GETATTR", vec![look]),
        Unit::new("VERIFY", vec![Request::Verify(kind(&[0, 0, 0, 1]))]),
        Unit::new("NVERIFY", vec![Request::NVerify(kind(&[0, 0, 0, 2]))]),
        Unit::new("SETATTR", vec![Request::SetAttr(set)]),
        Unit::new("READ", vec![Request::Read(Read4Args { stateid: open, offset: 0, count: 64 })]),
        Unit::new("WRITE", vec![write_args(open, 0, &[1; 64])]),
        Unit::new("COMMIT", vec![Request::Commit(Commit4Args { offset: 0, count: 0 })]),
    ]
}

fn state(of: &Attack) -> Vec<Unit<'_>> {
    let root = handle(&of.root);
    let owner = |owner| StateOwner { client_id: 0, owner: Text(owner) };
    let opens = || Request::Open(open_args(b"f", share::BOTH, false));
    let other = Open4Args { owner: owner(b"another"), ..open_args(b"f", share::BOTH, false) };
    let close = Request::Close(Close4Args { seqid: 0, open: CURRENT });
    let less = OpenDowngrade4Args { open: CURRENT, seqid: 0, share_access: 3, share_deny: 0 };
    let locker = Locker::Known(KnownLockOwner { stateid: of.lock, seqid: 0 });
    let (kind, reclaim) = (LockType::Write, false);
    let lock = Lock4Args { kind, reclaim, offset: 0, length: 10, locker };
    let test = LockT4Args { kind, offset: 100, length: 10, owner: owner(b"two") };
    let unlock = LockU4Args { kind, seqid: 0, stateid: CURRENT, offset: 0, length: 10 };
    vec![
        Unit::new("OPEN", vec![root.clone(), opens()]),
        Unit::new("OPEN, CLOSE", vec![root.clone(), Request::Open(other), close]),
        Unit::new("OPEN, OPEN_DOWNGRADE", vec![root, opens(), Request::OpenDowngrade(less)]),
        Unit::new("LOCK, LOCKU", vec![Request::Lock(lock), Request::LockU(unlock)]),
        Unit::new("LOCKT", vec![Request::LockT(test)]),
        Unit::new("TEST_STATEID", vec![Request::TestStateid(Array::of(&of.states))]),
        Unit::new("FREE_STATEID", vec![Request::FreeStateid(UNKNOWN)]).or(&[Status4::BadStateid]),
        Unit::new("DELEGRETURN", vec![Request::DelegReturn(UNKNOWN)]).or(&[Status4::BadStateid]),
    ]
}

fn ranges(of: &Attack) -> Vec<Unit<'_>> {
    let open = of.open;
    let range = FileRange { stateid: open, offset: 0, length: 1_000 };
    let seek = SeekArgs { stateid: open, offset: 0, what: FileContent::Data };
    let copy = Copy4Args {
        source: of.other_open,
        target: open,
        source_offset: 0,
        target_offset: 4_096,
        count: 1_000,
        consecutive: true,
        synchronous: true,
        servers: Array::of(&[]),
    };
    let clone = CloneArgs {
        source: of.other_open,
        target: open,
        source_offset: 0,
        target_offset: 0,
        count: 0,
    };
    let advise = IoAdviseArgs { stateid: open, offset: 0, count: 9, hints: Bitmap::EMPTY };
    let from_other =
        |request| vec![handle(&of.other), Request::SaveFh(()), handle(&of.file), request];
    vec![
        Unit::new("SEEK", vec![Request::Seek(seek)]),
        Unit::new("ALLOCATE", vec![Request::Allocate(range)]),
        Unit::new("DEALLOCATE", vec![Request::Deallocate(range)]),
        Unit::new("COPY", from_other(Request::Copy(copy))),
        Unit::new("CLONE", from_other(Request::Clone(clone))).or(&[Status4::NotSupp]),
        Unit::new("IO_ADVISE", vec![Request::IoAdvise(advise)]),
    ]
}

fn xattrs<'a>() -> Vec<Unit<'a>> {
    let (how, name) = (SetXattrHow::Either, Text(&b"kept"[..]));
    let set = |name| Request::SetXattr(SetXattrArgs { how, name, value: Text(b"value") });
    let made = Text(&b"made"[..]);
    let list = ListXattrsArgs { cookie: 0, max_count: 256 };
    vec![
        Unit::new("SETXATTR, REMOVEXATTR", vec![set(made), Request::RemoveXattr(made)])
            .or(NO_XATTRS),
        Unit::new("SETXATTR, GETXATTR", vec![set(name), Request::GetXattr(name)]).or(NO_XATTRS),
        Unit::new("LISTXATTRS", vec![Request::ListXattrs(list)]).or(NO_XATTRS),
    ]
}

fn clients(of: &Attack) -> Vec<Unit<'_>> {
    let client = ClientOwner { verifier: [1; 8], owner: Text(b"yet another") };
    let protection = StateProtection::None;
    let exchange = ExchangeIdArgs { client, flags: 0, protection, implementation: None };
    let create = session_args(of.client, 1);
    let bind = BindConnArgs { session: of.session, wish: ChannelWish::Fore, rdma_mode: false };
    let control = BackchannelCtlArgs { program: 1, security: Array::of(&[CallbackSecurity::None]) };
    let (session, destroy) = (Request::DestroySession([9; 16]), Request::DestroyClientid(99));
    vec![
        Unit::alone("EXCHANGE_ID", Request::ExchangeId(exchange)),
        // Sent again, it gets the session that it made.
        Unit::alone("CREATE_SESSION", Request::CreateSession(create)),
        Unit::alone("BIND_CONN_TO_SESSION", Request::BindConnToSession(bind)),
        Unit::alone("DESTROY_SESSION", session).or(&[Status4::BadSession]),
        Unit::alone("DESTROY_CLIENTID", destroy).or(&[Status4::StaleClientid]),
        Unit::new("RECLAIM_COMPLETE", vec![Request::ReclaimComplete(false)])
            .or(&[Status4::CompleteAlready]),
        Unit::new("BACKCHANNEL_CTL", vec![Request::BackchannelCtl(control)]),
    ]
}

/// The calls of version 3.
pub fn calls(of: &Attack) -> Vec<(String, Call3<'static>)> {
    let [root, file, link] =
        [&of.root, &of.file, &of.link].map(|octets| FileHandle::new(octets).unwrap());
    let (verifier, attributes) = (Default::default(), SetAttributes::default());
    let listing =
        ReadDirPlusArgs { dir: root, cookie: 0, verifier, dir_count: 1_000, max_count: 1_000 };
    let names = ReadDirArgs { dir: root, cookie: 0, verifier, count: 1_000 };
    let at = |name| place(root, name);
    let what = NodeKind::Fifo(attributes);
    let data = Bulk::Inline(&[3; 64]);
    let write = WriteArgs { file, offset: 0, stable: StableHow::FileSync, data };
    let path = Bulk::Inline(b"somewhere");
    let all = vec![
        Call3::Null,
        Call3::GetAttr(GetAttrArgs { object: file }),
        Call3::SetAttr(SetAttrArgs { object: file, attributes, guard: None }),
        Call3::Lookup(LookupArgs { what: at(b"f") }),
        Call3::Access(AccessArgs { object: file, access: Access(0x3f) }),
        Call3::ReadLink(ReadLinkArgs { symlink: link }),
        Call3::Read(ReadArgs { file, offset: 0, count: 64 }),
        Call3::Write(write),
        Call3::Create(CreateArgs { place: at(b"f3"), how: CreateHow::Unchecked(attributes) }),
        Call3::MkDir(MkDirArgs { place: at(b"d3"), attributes }),
        Call3::Symlink(SymlinkArgs { place: at(b"l3"), attributes, path }),
        Call3::MkNod(MkNodArgs { place: at(b"p3"), what }),
        Call3::Remove(RemoveArgs { object: at(b"none") }),
        Call3::RmDir(RemoveArgs { object: at(b"none") }),
        Call3::Rename(RenameArgs { from: at(b"f3"), to: at(b"f3") }),
        Call3::Link(LinkArgs { file, link: at(b"f3") }),
        Call3::ReadDir(names),
        Call3::ReadDirPlus(listing),
        Call3::FsStat(SystemArgs { object: root }),
        Call3::FsInfo(SystemArgs { object: root }),
        Call3::PathConf(SystemArgs { object: root }),
        Call3::Commit(CommitArgs { file, offset: 0, count: 0 }),
    ];
    let name = |call: &Call3<'_>| format!("{:?}", call.procedure()).to_uppercase();
    all.into_iter().map(|call| (format!("{} of 3", name(&call)), call)).collect()
}

/// A call of version 3 with all of its octets in the message.
pub fn encode3(call: &Call3<'_>) -> Vec<u8> {
    v3::written(|writer| {
        v3::header(100_003, 3, call.procedure().number(), v3::user()).emit(writer).unwrap();
        call.emit(writer).unwrap();
    })
}
