//! Operations of a compound for each call of version 3 (RFC 8881 §18).

use crate::Error;
use stag_protocol::{
    nfs::{
        v3::{self, CreateHow, DeviceNumber, FileHandle, NodeKind, SetAttributes, SetTime, Time},
        v4::{
            Access4Args, Attribute, AttributeValues, Bitmap, Close4Args, Commit4Args, CompoundHead,
            Create4Args, CreateHow4, CreateKind, DeviceNumber4, FileKind4, Open4Args, OpenClaim,
            OpenHow, RawAttributes, Read4Args, Rename4Args, Request, SequenceArgs, SetAttr4Args,
            SetTime4, StateOwner, Stateid, Text, Time4, Write4Args, share,
        },
    },
    xdr::{Codec as _, Reader, Writer},
};

/// Octets of the longest operations without an item: paths, names and attributes.
const OPERATIONS_MAX: usize = 16_384;

/// Attributes of an object that version 3 knows.
pub(super) const OBJECT: [Attribute; 13] = [
    Attribute::Type,
    Attribute::Size,
    Attribute::Fsid,
    Attribute::Fileid,
    Attribute::Mode,
    Attribute::NumLinks,
    Attribute::Owner,
    Attribute::OwnerGroup,
    Attribute::RawDev,
    Attribute::SpaceUsed,
    Attribute::TimeAccess,
    Attribute::TimeMetadata,
    Attribute::TimeModify,
];
const SPACE: [Attribute; 6] = [
    Attribute::FilesAvail,
    Attribute::FilesFree,
    Attribute::FilesTotal,
    Attribute::SpaceAvail,
    Attribute::SpaceFree,
    Attribute::SpaceTotal,
];
const LIMITS: [Attribute; 8] = [
    Attribute::LinkSupport,
    Attribute::SymlinkSupport,
    Attribute::CanSetTime,
    Attribute::Homogeneous,
    Attribute::MaxFileSize,
    Attribute::MaxRead,
    Attribute::MaxWrite,
    Attribute::TimeDelta,
];
const NAMES: [Attribute; 6] = [
    Attribute::CaseInsensitive,
    Attribute::CasePreserving,
    Attribute::ChownRestricted,
    Attribute::MaxLink,
    Attribute::MaxName,
    Attribute::NoTrunc,
];

pub(super) fn mask(attributes: &[Attribute]) -> Bitmap {
    Bitmap::of(attributes.iter().map(|attribute| *attribute as u32))
}

pub(super) fn put(handle: &FileHandle) -> Request<'_> {
    Request::PutFh(Text(handle.octets()))
}

/// Octets of the longest results, and of their item.
pub(super) fn results_len_max(call: &v3::Call<'_>) -> (usize, usize) {
    let item = stag_protocol::nfs::binding::result_len_max(call).item;
    (if item > 0 { 256 } else { 2_048 }, item)
}

fn write(emit: impl FnOnce(&mut Writer<'_>) -> Result<(), stag_protocol::xdr::NoRoom>) -> Vec<u8> {
    let mut octets = vec![0; OPERATIONS_MAX];
    let mut writer = Writer::new(&mut octets);
    // We make no requests that do not fit; such a one is sent empty, and the server refuses it.
    let len = emit(&mut writer).map_or(0, |()| writer.len());
    octets.truncate(len);
    octets
}

/// Operations as octets.
pub(super) fn emitted(requests: &[Request<'_>]) -> Vec<u8> {
    write(|writer| requests.iter().try_for_each(|request| request.emit(writer)))
}

/// Arguments of a COMPOUND without a session.
pub(super) fn alone(minor_version: u32, requests: &[Request<'_>]) -> Vec<u8> {
    let head = CompoundHead { tag: Text(b""), minor_version, operations: requests.len() as u32 };
    let mut arguments = write(|writer| head.emit(writer));
    arguments.extend(emitted(requests));
    arguments
}

/// Arguments of a COMPOUND in a session, with `count` operations after SEQUENCE.
pub(super) fn in_session(
    minor_version: u32,
    sequence: &SequenceArgs,
    count: usize,
    operations: &[u8],
) -> Vec<u8> {
    let head = CompoundHead { tag: Text(b""), minor_version, operations: count as u32 + 1 };
    let mut arguments =
        write(|writer| head.emit(writer).and_then(|()| Request::Sequence(*sequence).emit(writer)));
    arguments.extend(operations);
    arguments
}

/// The operations for a call of version 3: their number, and as octets.
pub(super) fn operations(call: &v3::Call<'_>) -> Result<(usize, Vec<u8>), Error> {
    let mut values = Vec::new();
    let requests = requests(call, &mut values)?;
    let octets = emitted(&requests);
    if octets.is_empty() { Err(Error::TooLong) } else { Ok((requests.len(), octets)) }
}

/// `values` takes the octets of attributes to set.
fn requests<'a>(
    call: &'a v3::Call<'a>,
    values: &'a mut Vec<u8>,
) -> Result<Vec<Request<'a>>, Error> {
    use v3::Call;
    let stateid = Stateid::ANONYMOUS;
    let about = |object, asked: &[Attribute]| vec![put(object), Request::GetAttr(mask(asked))];
    Ok(match call {
        Call::GetAttr(args) => about(&args.object, &OBJECT),
        Call::FsStat(args) => about(&args.object, &SPACE),
        Call::FsInfo(args) => about(&args.object, &LIMITS),
        Call::PathConf(args) => about(&args.object, &NAMES),
        Call::SetAttr(args) => {
            let attributes = raw(values, &args.attributes, args.guard)?;
            let mut all = vec![put(&args.object)];
            if let Some(guard) = attributes.guard {
                all.push(Request::Verify(guard));
            }
            all.push(Request::SetAttr(SetAttr4Args { stateid, attributes: attributes.set }));
            all
        }
        Call::Lookup(args) => {
            let mut all = vec![put(&args.what.dir)];
            match args.what.name.0 {
                b"." => {}
                b".." => all.push(Request::LookupP(())),
                name => all.push(Request::Lookup(Text(name))),
            }
            all.extend([Request::GetFh(()), Request::GetAttr(mask(&OBJECT))]);
            all
        }
        Call::Access(args) => {
            let rights = args.access.0;
            vec![put(&args.object), Request::Access(Access4Args { rights })]
        }
        Call::ReadLink(args) => vec![put(&args.symlink), Request::ReadLink(())],
        Call::Read(args) => {
            let (offset, count) = (args.offset, args.count);
            vec![put(&args.file), Request::Read(Read4Args { stateid, offset, count })]
        }
        Call::Write(args) => {
            let (offset, stable, data) = (args.offset, args.stable, args.data);
            vec![put(&args.file), Request::Write(Write4Args { stateid, offset, stable, data })]
        }
        Call::Commit(args) => {
            let (offset, count) = (args.offset, args.count);
            vec![put(&args.file), Request::Commit(Commit4Args { offset, count })]
        }
        Call::Create(args) => create(args, values)?,
        Call::MkDir(args) => make(&args.place, CreateKind::Directory, &args.attributes, values)?,
        Call::Symlink(args) => {
            make(&args.place, CreateKind::Link(args.path), &args.attributes, values)?
        }
        Call::MkNod(args) => {
            let bad_type = Error::Nfs(v3::Status::BadType);
            let (kind, attributes) = special(&args.what).ok_or(bad_type)?;
            make(&args.place, kind, attributes, values)?
        }
        Call::Remove(args) => removal(&args.object, false),
        Call::RmDir(args) => removal(&args.object, true),
        Call::Rename(args) => {
            let names = Rename4Args { old: Text(args.from.name.0), new: Text(args.to.name.0) };
            let (from, to) = (put(&args.from.dir), put(&args.to.dir));
            vec![from, Request::SaveFh(()), to, Request::Rename(names)]
        }
        Call::Link(args) => vec![
            put(&args.file),
            Request::SaveFh(()),
            put(&args.link.dir),
            Request::Link(Text(args.link.name.0)),
        ],
        Call::Null | Call::ReadDir(_) | Call::ReadDirPlus(_) => return Err(NOT_MADE),
    })
}

const NOT_MADE: Error = Error::Nonsense("version 4 makes nothing of the kind");

/// An open for creating, and the end of it.
fn create<'a>(
    args: &'a v3::CreateArgs<'a>,
    values: &'a mut Vec<u8>,
) -> Result<Vec<Request<'a>>, Error> {
    let how = match &args.how {
        CreateHow::Unchecked(attributes) => {
            CreateHow4::Unchecked(raw(values, attributes, None)?.set)
        }
        CreateHow::Guarded(attributes) => CreateHow4::Guarded(raw(values, attributes, None)?.set),
        CreateHow::Exclusive(verifier) => CreateHow4::Exclusive(*verifier),
    };
    let open = Open4Args {
        seqid: 0,
        share_access: share::BOTH | share::WANT_NO_DELEGATION,
        share_deny: 0,
        owner: StateOwner { client_id: 0, owner: Text(b"stag") },
        how: OpenHow::Create(how),
        claim: OpenClaim::Null(Text(args.place.name.0)),
    };
    Ok(vec![
        put(&args.place.dir),
        Request::Open(open),
        Request::GetFh(()),
        Request::GetAttr(mask(&OBJECT)),
        Request::Close(Close4Args { seqid: 0, open: Stateid::CURRENT }),
    ])
}

fn make<'a>(
    place: &'a v3::DirOpArgs<'a>,
    kind: CreateKind<'a>,
    attributes: &SetAttributes,
    values: &'a mut Vec<u8>,
) -> Result<Vec<Request<'a>>, Error> {
    let attributes = raw(values, attributes, None)?.set;
    let args = Create4Args { kind, name: Text(place.name.0), attributes };
    Ok(vec![
        put(&place.dir),
        Request::Create(args),
        Request::GetFh(()),
        Request::GetAttr(mask(&OBJECT)),
    ])
}

fn special(what: &NodeKind) -> Option<(CreateKind<'static>, &SetAttributes)> {
    let of = |DeviceNumber { major, minor }: &DeviceNumber| DeviceNumber4 {
        major: *major,
        minor: *minor,
    };
    Some(match what {
        NodeKind::Character(attributes, device) => (CreateKind::Character(of(device)), attributes),
        NodeKind::Block(attributes, device) => (CreateKind::Block(of(device)), attributes),
        NodeKind::Socket(attributes) => (CreateKind::Socket, attributes),
        NodeKind::Fifo(attributes) => (CreateKind::Fifo, attributes),
        NodeKind::Regular | NodeKind::Directory | NodeKind::Symlink => return None,
    })
}

/// REMOVE of version 4 removes directories as well as files, so the object's type is compared
/// first, in the same compound.
fn removal<'a>(object: &'a v3::DirOpArgs<'a>, is_directory: bool) -> Vec<Request<'a>> {
    const DIRECTORY: &[u8] = &(FileKind4::Directory as u32).to_be_bytes();
    let name = Text(object.name.0);
    let kind = RawAttributes { mask: Bitmap::of([Attribute::Type as u32]), octets: DIRECTORY };
    let compare = if is_directory { Request::Verify(kind) } else { Request::NVerify(kind) };
    vec![put(&object.dir), Request::Lookup(name), compare, put(&object.dir), Request::Remove(name)]
}

/// Attributes as octets.
struct RawOperation<'a> {
    set: RawAttributes<'a>,
    /// The time of the last change, if that is asked for.
    guard: Option<RawAttributes<'a>>,
}

fn raw<'a>(
    values: &'a mut Vec<u8>,
    attributes: &SetAttributes,
    guard: Option<Time>,
) -> Result<RawOperation<'a>, Error> {
    let [uid, gid] =
        [attributes.uid, attributes.gid].map(|id| id.map(|id| id.to_string().into_bytes()));
    let set = AttributeValues {
        mode: attributes.mode,
        owner: uid.as_deref().map(Text),
        owner_group: gid.as_deref().map(Text),
        size: attributes.size,
        time_access_set: set_time(attributes.atime),
        time_modify_set: set_time(attributes.mtime),
        ..AttributeValues::default()
    };
    let guard = AttributeValues { time_metadata: guard.map(time), ..AttributeValues::default() };
    *values = write(|writer| {
        set.emit(&set.mask(), writer)?;
        guard.emit(&guard.mask(), writer)
    });
    let mut reader = Reader::new(values);
    let mut next = || RawAttributes::parse(&mut reader).map_err(Error::Garbled);
    let (set, guard) = (next()?, next()?);
    Ok(RawOperation { set, guard: (!guard.octets.is_empty()).then_some(guard) })
}

const fn time(time: Time) -> Time4 {
    Time4 { seconds: time.seconds as i64, nanoseconds: time.nanos }
}

const fn set_time(wanted: SetTime) -> Option<SetTime4> {
    match wanted {
        SetTime::Keep => None,
        SetTime::Server => Some(SetTime4::Server),
        SetTime::Client(to) => Some(SetTime4::Client(time(to))),
    }
}
