//! Every operation's arguments and results, in each of their forms; the results are the longest
//! that there are.

use stag_protocol::nfs::v3::StableHow;
use stag_protocol::nfs::v4::*;
use stag_protocol::nfs::{Bulk, List};
use stag_protocol::rpc::{AuthSys, Gids};
use stag_protocol::xdr::{Codec, Reader};

pub const LIMITS: ReplyLimits = ReplyLimits {
    read: 1 << 20,
    listing: 64 << 10,
    link: 4096,
    xattr: 65_536,
    flavors: 2,
    handle: 128,
    user: 1024,
};

pub const STATEID: Stateid = Stateid { seqid: 3, other: *b"a stateid..." };
pub const SESSION: SessionId = *b"a session of us!";
const VERIFIER: Verifier4 = *b"verifier";
const CHANGE: ChangeInfo = ChangeInfo { atomic: true, before: 1, after: u64::MAX };
const OWNER: StateOwner<'static> = StateOwner { client_id: 5, owner: Text(&[b'o'; 1024]) };
const TIME: Time4 = Time4 { seconds: -7, nanoseconds: 999_999_999 };
const ATTRIBUTES: RawAttributes<'static> =
    RawAttributes { mask: Bitmap::EMPTY, octets: &[1, 2, 3] };
const NAME: Name4<'static> = Text(b"a name");
const OPERATIONS: ProtectedOperations =
    ProtectedOperations { enforce: Bitmap::EMPTY, allow: Bitmap::EMPTY };
const IMPLEMENTATION: Implementation<'static> =
    Implementation { domain: Text(&[b'd'; 1024]), name: Text(&[b'n'; 1024]), date: TIME };
const CHANNEL: ChannelAttributes = ChannelAttributes {
    header_pad: 0,
    request_max: 1,
    response_max: 2,
    response_cached_max: 3,
    operations_max: 4,
    requests_max: 5,
    rdma_ird: Some(6),
};
const ACE: Ace<'static> = Ace { kind: 0, flags: 1, mask: 2, who: Text(&[b'w'; 1024]) };
const KERBEROS: [SecurityFlavor<'static>; 2] = [
    SecurityFlavor::Gss(GssMechanism::kerberos(GssService::Privacy)),
    SecurityFlavor::Gss(GssMechanism::kerberos(GssService::Integrity)),
];
const GSS: GssMechanism<'static> =
    GssMechanism { oid: Text(b"oid"), quality: 1, service: GssService::Privacy };
const RANGE: FileRange = FileRange { stateid: STATEID, offset: 1, length: u64::MAX };

pub fn full_bitmap() -> Bitmap {
    Bitmap::of(0..256)
}

fn leaked<T>(items: Vec<T>) -> &'static [T] {
    items.leak()
}

fn security() -> Array<'static, CallbackSecurity<'static>> {
    let gids = Gids::new(&[1, 2, 3]).unwrap();
    let sys = AuthSys { stamp: 1, machine_name: b"host", uid: 0, gid: 0, gids };
    let text = Text(&b"handle"[..]);
    let gss = GssCallback { service: GssService::Integrity, from_server: text, from_client: text };
    Array::of(leaked(vec![
        CallbackSecurity::None,
        CallbackSecurity::Sys(sys),
        CallbackSecurity::Gss(gss),
    ]))
}

fn open_requests() -> Vec<Request<'static>> {
    let hows = [
        OpenHow::NoCreate,
        OpenHow::Create(CreateHow4::Unchecked(ATTRIBUTES)),
        OpenHow::Create(CreateHow4::Guarded(ATTRIBUTES)),
        OpenHow::Create(CreateHow4::Exclusive(VERIFIER)),
        OpenHow::Create(CreateHow4::Exclusive41(ExclusiveCreate {
            verifier: VERIFIER,
            attributes: ATTRIBUTES,
        })),
    ];
    let claims = [
        OpenClaim::Null(NAME),
        OpenClaim::Previous(DelegationType::Write),
        OpenClaim::DelegateCur(DelegatedName { delegation: STATEID, name: NAME }),
        OpenClaim::DelegatePrev(NAME),
        OpenClaim::Fh,
        OpenClaim::DelegCurFh(STATEID),
        OpenClaim::DelegPrevFh,
    ];
    let mut requests = Vec::new();
    for how in &hows {
        for claim in &claims {
            requests.push(Request::Open(Open4Args {
                seqid: 0,
                share_access: share::BOTH | share::WANT_READ_DELEGATION,
                share_deny: 0,
                owner: OWNER,
                how: how.clone(),
                claim: claim.clone(),
            }));
        }
    }
    requests
}

fn create_requests() -> Vec<Request<'static>> {
    let device = DeviceNumber4 { major: 8, minor: 1 };
    let kinds = [
        CreateKind::Link(Bulk::Inline(b"../elsewhere")),
        CreateKind::Block(device),
        CreateKind::Character(device),
        CreateKind::Socket,
        CreateKind::Fifo,
        CreateKind::Directory,
        CreateKind::Other(FileKind4::Regular as u32),
    ];
    let request = |kind| Create4Args { kind, name: NAME, attributes: ATTRIBUTES };
    kinds.into_iter().map(|kind| Request::Create(request(kind))).collect()
}

fn lock_requests() -> Vec<Request<'static>> {
    let lockers = [
        Locker::New(NewLockOwner { open_seqid: 0, open: STATEID, lock_seqid: 0, owner: OWNER }),
        Locker::Known(KnownLockOwner { stateid: STATEID, seqid: 0 }),
    ];
    let kinds = [LockType::Read, LockType::Write, LockType::ReadWait, LockType::WriteWait];
    let (offset, length) = (7, u64::MAX);
    let mut requests = Vec::new();
    for kind in kinds {
        for locker in lockers.clone() {
            requests.push(Request::Lock(Lock4Args { kind, reclaim: true, offset, length, locker }));
        }
        requests.push(Request::LockT(LockT4Args { kind, offset, length, owner: OWNER }));
        let unlock = LockU4Args { kind, seqid: 0, stateid: STATEID, offset, length };
        requests.push(Request::LockU(unlock));
    }
    requests
}

fn session_requests() -> Vec<Request<'static>> {
    let texts = Array::of(leaked(vec![Text(&b"1.2.3"[..])]));
    let protections = [
        StateProtection::None,
        StateProtection::MachineCredential(OPERATIONS),
        StateProtection::Ssv(SsvParameters {
            operations: OPERATIONS,
            hashes: texts.clone(),
            ciphers: texts,
            window: 3,
            handles: 1,
        }),
    ];
    let client = ClientOwner { verifier: VERIFIER, owner: Text(b"a client") };
    let mut requests: Vec<_> = protections
        .into_iter()
        .zip([None, Some(IMPLEMENTATION), None])
        .map(|(protection, implementation)| {
            Request::ExchangeId(ExchangeIdArgs { client, flags: 1, protection, implementation })
        })
        .collect();
    requests.extend([
        Request::BackchannelCtl(BackchannelCtlArgs { program: 7, security: security() }),
        Request::BindConnToSession(BindConnArgs {
            session: SESSION,
            wish: ChannelWish::BackOrBoth,
            rdma_mode: false,
        }),
        Request::CreateSession(CreateSessionArgs {
            client_id: 1,
            sequence: 2,
            flags: session_flag::CONN_BACK_CHAN,
            fore: CHANNEL,
            back: ChannelAttributes { rdma_ird: None, ..CHANNEL },
            program: 0x4000_0000,
            security: security(),
        }),
        Request::DestroySession(SESSION),
        Request::Sequence(SequenceArgs {
            session: SESSION,
            sequence: 1,
            slot: 2,
            highest_slot: 3,
            cache_this: true,
        }),
        Request::DestroyClientid(9),
        Request::ReclaimComplete(true),
        Request::FreeStateid(STATEID),
        Request::TestStateid(Array::of(leaked(vec![STATEID; 5]))),
        Request::TestStateid(Array::default()),
    ]);
    requests
}

fn space_requests() -> Vec<Request<'static>> {
    let address = NetworkAddress { netid: Text(b"tcp"), address: Text(b"192.0.2.1.8.1") };
    let servers = leaked(vec![
        SourceServer::Name(Text(b"server")),
        SourceServer::Url(Text(b"nfs://server")),
        SourceServer::Address(address),
    ]);
    let copy = Copy4Args {
        source: STATEID,
        target: STATEID,
        source_offset: 1,
        target_offset: 2,
        count: 3,
        consecutive: true,
        synchronous: true,
        servers: Array::of(servers),
    };
    let clone = CloneArgs {
        source: STATEID,
        target: STATEID,
        source_offset: 1,
        target_offset: 2,
        count: 0,
    };
    vec![
        Request::Allocate(RANGE),
        Request::Deallocate(RANGE),
        Request::Copy(copy),
        Request::IoAdvise(IoAdviseArgs {
            stateid: STATEID,
            offset: 0,
            count: 1,
            hints: Bitmap::of([4]),
        }),
        Request::Seek(SeekArgs { stateid: STATEID, offset: 0, what: FileContent::Hole }),
        Request::Seek(SeekArgs { stateid: STATEID, offset: 0, what: FileContent::Data }),
        Request::Seek(SeekArgs { stateid: STATEID, offset: 0, what: FileContent::Other(7) }),
        Request::Clone(clone),
        Request::GetXattr(NAME),
        Request::SetXattr(SetXattrArgs {
            how: SetXattrHow::Replace,
            name: NAME,
            value: Text(b"a value"),
        }),
        Request::ListXattrs(ListXattrsArgs { cookie: 0, max_count: 4096 }),
        Request::RemoveXattr(NAME),
    ]
}

pub fn requests() -> Vec<Request<'static>> {
    let mut requests = vec![
        Request::Access(Access4Args { rights: 0x3f }),
        Request::Close(Close4Args { seqid: 0, open: STATEID }),
        Request::Commit(Commit4Args { offset: 0, count: 0 }),
        Request::DelegReturn(STATEID),
        Request::GetAttr(Bitmap::of(Attribute::ALL.iter().map(|attribute| *attribute as u32))),
        Request::GetFh(()),
        Request::Link(NAME),
        Request::Lookup(NAME),
        Request::LookupP(()),
        Request::NVerify(ATTRIBUTES),
        Request::OpenDowngrade(OpenDowngrade4Args {
            open: STATEID,
            seqid: 0,
            share_access: 1,
            share_deny: 0,
        }),
        Request::PutFh(Text(&[1; 128])),
        Request::PutPubFh(()),
        Request::PutRootFh(()),
        Request::Read(Read4Args { stateid: Stateid::CURRENT, offset: 9, count: 1000 }),
        Request::ReadDir(ReadDir4Args {
            cookie: 0,
            verifier: [0; 8],
            dir_count: 1 << 20,
            max_count: 4096,
            attributes: Bitmap::of([1, 11]),
        }),
        Request::ReadLink(()),
        Request::Remove(NAME),
        Request::Rename(Rename4Args { old: NAME, new: Text(b"another") }),
        Request::RestoreFh(()),
        Request::SaveFh(()),
        Request::SecInfo(NAME),
        Request::SetAttr(SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes: ATTRIBUTES }),
        Request::Verify(ATTRIBUTES),
        Request::Write(Write4Args {
            stateid: STATEID,
            offset: 1,
            stable: StableHow::FileSync,
            data: Bulk::Inline(b"hello"),
        }),
        Request::SecInfoNoName(SecInfoStyle::Parent),
    ];
    requests.extend(open_requests());
    requests.extend(create_requests());
    requests.extend(lock_requests());
    requests.extend(session_requests());
    requests.extend(space_requests());
    requests
}

fn open_answers() -> Vec<Answer<'static>> {
    let limits =
        [SpaceLimit::Size(u64::MAX), SpaceLimit::Blocks(BlockLimit { blocks: 1, octets: 2 })];
    let stateid = STATEID;
    let mut delegations = vec![
        OpenDelegation::None,
        OpenDelegation::Read(ReadDelegation { stateid, recall: true, permissions: ACE }),
    ];
    delegations.extend(limits.map(|space_limit| {
        let permissions = ACE;
        OpenDelegation::Write(WriteDelegation { stateid, recall: false, space_limit, permissions })
    }));
    let reasons = [
        NoDelegation::NotWanted,
        NoDelegation::Contention(true),
        NoDelegation::Resource(false),
        NoDelegation::FileType,
        NoDelegation::WriteFileType,
        NoDelegation::Upgrade,
        NoDelegation::Downgrade,
        NoDelegation::Cancelled,
        NoDelegation::Directory,
    ];
    delegations.extend(reasons.map(OpenDelegation::NoneExt));
    let open = |delegation| Open4Ok {
        stateid,
        change: CHANGE,
        flags: open_flag::LOCKTYPE_POSIX,
        set: full_bitmap(),
        delegation,
    };
    delegations.into_iter().map(|delegation| Answer::Open(Ok(open(delegation)))).collect()
}

fn lock_answers() -> Vec<Answer<'static>> {
    let denied = LockDenied { offset: 1, length: u64::MAX, kind: LockType::Write, owner: OWNER };
    vec![
        Answer::Lock(Ok(STATEID)),
        Answer::Lock(Err(LockFault::Denied(denied.clone()))),
        Answer::Lock(Err(LockFault::Failed(Status4::Grace))),
        Answer::LockT(Ok(())),
        Answer::LockT(Err(LockFault::Denied(denied))),
        Answer::LockT(Err(LockFault::Failed(Status4::Inval))),
        Answer::LockU(Ok(STATEID)),
    ]
}

fn session_answers() -> Vec<Answer<'static>> {
    let granted = |protection| ExchangeIdOk {
        client_id: 1,
        sequence: 2,
        flags: exchange_flag::USE_NON_PNFS,
        protection,
        server: ServerOwner { minor: 0, major: Text(&[b's'; 1024]) },
        scope: Text(&[b'c'; 1024]),
        implementation: Some(IMPLEMENTATION),
    };
    vec![
        Answer::ExchangeId(Ok(granted(GrantedProtection::None))),
        Answer::CreateSession(Ok(CreateSessionOk {
            session: SESSION,
            sequence: 1,
            flags: 0,
            fore: CHANNEL,
            back: CHANNEL,
        })),
        Answer::BindConnToSession(Ok(BindConnOk {
            session: SESSION,
            grant: ChannelGrant::Both,
            rdma_mode: false,
        })),
        Answer::Sequence(Ok(SequenceOk {
            session: SESSION,
            sequence: 1,
            slot: 0,
            highest_slot: 63,
            target_highest_slot: 63,
            flags: sequence_flag::CB_PATH_DOWN,
        })),
        Answer::BackchannelCtl(Ok(())),
        Answer::DestroySession(Err(Status4::BadSession)),
        Answer::DestroyClientid(Err(Status4::ClientidBusy)),
        Answer::ReclaimComplete(Ok(())),
        Answer::FreeStateid(Err(Status4::LocksHeld)),
        Answer::TestStateid(Ok(Array::of(&[Status4::Ok, Status4::BadStateid]))),
    ]
}

/// Results that only other servers give: those of ours are not so long.
pub fn foreign_answers() -> Vec<Answer<'static>> {
    let texts = Array::of(leaked(vec![Text(&b"handle"[..])]));
    let protections = [
        GrantedProtection::MachineCredential(OPERATIONS),
        GrantedProtection::Ssv(SsvGranted {
            operations: OPERATIONS,
            hash: 0,
            cipher: 1,
            secret_len: 32,
            window: 2,
            handles: texts,
        }),
    ];
    let Some(Answer::ExchangeId(Ok(first))) = session_answers().into_iter().next() else {
        panic!("EXCHANGE_ID comes first")
    };
    let exchange = |protection| ExchangeIdOk { protection, ..first.clone() };
    let mut answers: Vec<_> = protections
        .into_iter()
        .map(|protection| Answer::ExchangeId(Ok(exchange(protection))))
        .collect();
    let flavors = leaked(vec![SecurityFlavor::Gss(GSS), SecurityFlavor::Plain(1)]);
    answers.push(Answer::SecInfo(Ok(Array::of(flavors))));
    answers
}

fn space_answers() -> Vec<Answer<'static>> {
    let manner = CopyManner { consecutive: true, synchronous: true };
    let outcome = CopyOutcome {
        callback: Some(STATEID),
        count: 1,
        committed: StableHow::Unstable,
        verifier: VERIFIER,
    };
    vec![
        Answer::Allocate(Ok(())),
        Answer::Deallocate(Err(Status4::NotSupp)),
        Answer::Copy(Ok(Copy4Ok { outcome, manner })),
        Answer::Copy(Err(CopyFault::Requirements(manner))),
        Answer::Copy(Err(CopyFault::Failed(Status4::Inval))),
        Answer::IoAdvise(Ok(full_bitmap())),
        Answer::Seek(Ok(SeekOk { eof: true, offset: 1 })),
        Answer::Clone(Ok(())),
        Answer::GetXattr(Ok(Text(&[7; 65_536]))),
        Answer::SetXattr(Ok(CHANGE)),
        Answer::ListXattrs(Ok(ListXattrsOk {
            cookie: 1,
            names: Array::of(leaked(vec![NAME; 3])),
            eof: true,
        })),
        Answer::RemoveXattr(Ok(CHANGE)),
        Answer::RemoveXattr(Err(Status4::NoXattr)),
    ]
}

fn entries() -> List<'static, Entry4<'static>> {
    let entry = Entry4 { cookie: 3, name: NAME, attributes: ATTRIBUTES };
    let mut out = vec![0; 256];
    let mut writer = stag_protocol::xdr::Writer::new(&mut out);
    for _ in 0..2 {
        writer.bool(true).unwrap();
        entry.emit(&mut writer).unwrap();
    }
    writer.bool(false).unwrap();
    List::parse(&mut Reader::new(out.leak())).unwrap()
}

pub fn answers() -> Vec<Answer<'static>> {
    let mut answers = vec![
        Answer::Access(Ok(Access4Ok { supported: 0x3f, granted: 1 })),
        Answer::Close(Ok(Stateid::INVALID)),
        Answer::Commit(Ok(VERIFIER)),
        Answer::Create(Ok(Create4Ok { change: CHANGE, set: full_bitmap() })),
        Answer::Create(Err(Status4::BadType)),
        Answer::DelegReturn(Ok(())),
        Answer::GetAttr(Ok(ATTRIBUTES)),
        Answer::GetFh(Ok(Text(&[9; 128]))),
        Answer::Link(Ok(CHANGE)),
        Answer::Lookup(Err(Status4::NoEnt)),
        Answer::LookupP(Ok(())),
        Answer::NVerify(Err(Status4::Same)),
        Answer::OpenDowngrade(Ok(STATEID)),
        Answer::PutFh(Ok(())),
        Answer::PutPubFh(Ok(())),
        Answer::PutRootFh(Ok(())),
        Answer::Read(Ok(Read4Ok { eof: false, data: Bulk::Inline(&[5; 1000]) })),
        Answer::ReadDir(Ok(ReadDir4Ok { verifier: VERIFIER, entries: entries(), eof: true })),
        Answer::ReadLink(Ok(LinkPath(Bulk::Inline(&[b'/'; 4096])))),
        Answer::Remove(Ok(CHANGE)),
        Answer::Rename(Ok(Rename4Ok { source: CHANGE, target: CHANGE })),
        Answer::RestoreFh(Ok(())),
        Answer::SaveFh(Ok(())),
        Answer::SecInfo(Ok(Array::of(&KERBEROS))),
        Answer::SecInfo(Ok(Array::of(&[SecurityFlavor::Plain(1), SecurityFlavor::Plain(0)]))),
        Answer::SecInfoNoName(Ok(Array::of(&[SecurityFlavor::Plain(1)]))),
        Answer::SetAttr(SetAttr4Result { status: Status4::Ok, set: full_bitmap() }),
        Answer::SetAttr(SetAttr4Result { status: Status4::Perm, set: Bitmap::EMPTY }),
        Answer::Verify(Err(Status4::NotSame)),
        Answer::Write(Ok(Write4Ok {
            count: 5,
            committed: StableHow::DataSync,
            verifier: VERIFIER,
        })),
    ];
    answers.extend(open_answers());
    answers.extend(lock_answers());
    answers.extend(session_answers());
    answers.extend(space_answers());
    answers
}
