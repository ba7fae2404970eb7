//! Results of compounds, converted to those of version 3.

use crate::Error;
use stag_protocol::{
    nfs::mount,
    nfs::v3::{
        self, Access, AccessOk, Attributes, CommitOk, CreateOk, DeviceNumber, FileHandle, FileKind,
        FsInfo, FsStat, LinkWcc, LookupOk, PathConf, Procedure, ReadLinkOk, ReadOk, RenameWcc,
        Reply, Status, SystemOk, Time, WccData, WriteOk,
    },
    nfs::v4::{
        Answer, AnswerSet as _, AttributeValues, CompoundReply, DeviceNumber4, FileKind4, Fsid,
        Owner4, Status4, Time4,
    },
    xdr::{Codec as _, Reader},
};

/// Number of the user and the group that stand for names without a number.
const NOBODY: u32 = 65_534;

/// The error of a status.
pub(super) fn error(status: Status4) -> Error {
    let status = match status {
        // Both ask for patience.
        Status4::Delay | Status4::Grace => Status::Jukebox,
        // Version 3 has one status for all of them.
        Status4::BadName | Status4::BadChar | Status4::WrongType => Status::Inval,
        // A guard that does not hold any more.
        Status4::NotSame => Status::NotSync,
        status => match Status::parse(&mut Reader::new(&(status as u32).to_be_bytes())) {
            Ok(same) => same,
            Err(_) => return Error::Nfs4(status),
        },
    };
    Error::Nfs(status)
}

/// The error of a path from the root on, as MOUNT has it.
pub(super) fn of_mount(error: Error) -> Error {
    let Error::Nfs(status) = error else { return error };
    let octets = (status as u32).to_be_bytes();
    mount::Status::parse(&mut Reader::new(&octets)).map_or(error, Error::Mount)
}

/// Refuses results of an operation that failed.
pub(super) fn check(answer: &Answer<'_>) -> Result<(), Error> {
    match answer.status() {
        Status4::Ok => Ok(()),
        status => Err(error(status)),
    }
}

/// The results of a successful compound that later operations need.
#[derive(Default)]
struct Found<'a> {
    handle: Option<FileHandle>,
    values: Option<AttributeValues<'a>>,
    last: Option<Answer<'a>>,
}

fn found<'a>(reply: CompoundReply<'a>) -> Result<Found<'a>, Error> {
    let mut found = Found::default();
    for answer in reply {
        let answer = answer.map_err(Error::Garbled)?;
        check(&answer)?;
        match answer {
            Answer::GetFh(Ok(handle)) => {
                found.handle = Some(FileHandle::new(handle.0).ok_or(LONG_HANDLE)?);
            }
            Answer::GetAttr(Ok(raw)) => {
                let values = raw.values().map_err(|fault| error(fault.status()))?;
                found.values = Some(values);
            }
            Answer::Close(_) => {}
            other => found.last = Some(other),
        }
    }
    Ok(found)
}

const LONG_HANDLE: Error =
    Error::Nonsense("a filehandle has more than 64 octets, which this client does not keep");
const OTHER: Error = Error::Nonsense("the results are those of other operations");

/// The handle that a compound ends with.
pub(super) fn handle(reply: CompoundReply<'_>) -> Result<FileHandle, Error> {
    found(reply)?.handle.ok_or(OTHER)
}

/// The reply of version 3 to a call that was made by version 4.
pub(super) fn reply<'a>(
    procedure: Procedure,
    reply: CompoundReply<'a>,
) -> Result<Reply<'a>, Error> {
    let found = match found(reply) {
        // RFC 8881 §18.25: the type of the object was compared with a directory.
        Err(Error::Nfs(Status::NotSync)) if procedure == Procedure::RmDir => {
            return Err(Error::Nfs(Status::NotDir));
        }
        Err(Error::Nfs4(Status4::Same)) if procedure == Procedure::Remove => {
            return Err(Error::Nfs(Status::IsDir));
        }
        found => found?,
    };
    let Found { handle, values, last } = found;
    let attributes = values.as_ref().and_then(attributes);
    let wcc = WccData::NONE;
    Ok(match (procedure, last) {
        (Procedure::GetAttr, _) => Reply::GetAttr(Ok(attributes.ok_or(OTHER)?)),
        (Procedure::FsStat, _) => system(values, space).map(|ok| Reply::FsStat(Ok(ok)))?,
        (Procedure::FsInfo, _) => system(values, limits).map(|ok| Reply::FsInfo(Ok(ok)))?,
        (Procedure::PathConf, _) => system(values, names).map(|ok| Reply::PathConf(Ok(ok)))?,
        (Procedure::Lookup, _) => {
            let object = handle.ok_or(OTHER)?;
            Reply::Lookup(Ok(LookupOk { object, attributes, dir_attributes: None }))
        }
        (Procedure::SetAttr, _) => Reply::SetAttr(Ok(wcc)),
        (Procedure::Create, _) => Reply::Create(Ok(made(handle, attributes))),
        (Procedure::MkDir, _) => Reply::MkDir(Ok(made(handle, attributes))),
        (Procedure::Symlink, _) => Reply::Symlink(Ok(made(handle, attributes))),
        (Procedure::MkNod, _) => Reply::MkNod(Ok(made(handle, attributes))),
        (Procedure::Remove, _) => Reply::Remove(Ok(wcc)),
        (Procedure::RmDir, _) => Reply::RmDir(Ok(wcc)),
        (Procedure::Rename, _) => Reply::Rename(Ok(RenameWcc { from_dir: wcc, to_dir: wcc })),
        (Procedure::Link, _) => Reply::Link(Ok(LinkWcc { attributes, dir_wcc: wcc })),
        (Procedure::Access, Some(Answer::Access(Ok(ok)))) => {
            Reply::Access(Ok(AccessOk { attributes, access: Access(ok.granted) }))
        }
        (Procedure::ReadLink, Some(Answer::ReadLink(Ok(path)))) => {
            Reply::ReadLink(Ok(ReadLinkOk { attributes, path: path.0 }))
        }
        (Procedure::Read, Some(Answer::Read(Ok(ok)))) => {
            Reply::Read(Ok(ReadOk { attributes, eof: ok.eof, data: ok.data }))
        }
        (Procedure::Write, Some(Answer::Write(Ok(ok)))) => Reply::Write(Ok(WriteOk {
            wcc,
            count: ok.count,
            committed: ok.committed,
            verifier: ok.verifier,
        })),
        (Procedure::Commit, Some(Answer::Commit(Ok(verifier)))) => {
            Reply::Commit(Ok(CommitOk { wcc, verifier }))
        }
        _ => return Err(OTHER),
    })
}

const fn made(object: Option<FileHandle>, attributes: Option<Attributes>) -> CreateOk {
    CreateOk { object, attributes, dir_wcc: WccData::NONE }
}

fn system<T>(
    values: Option<AttributeValues<'_>>,
    about: impl Fn(&AttributeValues<'_>) -> T,
) -> Result<SystemOk<T>, Error> {
    let about = about(&values.ok_or(OTHER)?);
    Ok(SystemOk { attributes: None, about })
}

fn space(values: &AttributeValues<'_>) -> FsStat {
    FsStat {
        total_octets: values.space_total.unwrap_or_default(),
        free_octets: values.space_free.unwrap_or_default(),
        available_octets: values.space_avail.unwrap_or_default(),
        total_files: values.files_total.unwrap_or_default(),
        free_files: values.files_free.unwrap_or_default(),
        available_files: values.files_avail.unwrap_or_default(),
        unchanged_seconds: 0,
    }
}

/// A server that does not state its transfer sizes gets 64 KiB.
fn limits(values: &AttributeValues<'_>) -> FsInfo {
    let of = |max: Option<u64>| max.map_or(65_536, |max| u32::try_from(max).unwrap_or(u32::MAX));
    let (read, write) = (of(values.max_read), of(values.max_write));
    let properties = [
        (values.link_support, FsInfo::LINK),
        (values.symlink_support, FsInfo::SYMLINK),
        (values.homogeneous, FsInfo::HOMOGENEOUS),
        (values.can_set_time, FsInfo::CAN_SET_TIME),
    ];
    let has = |(value, bit): (Option<bool>, u32)| if value == Some(true) { bit } else { 0 };
    FsInfo {
        read_max: read,
        read_preferred: read,
        read_multiple: 1,
        write_max: write,
        write_preferred: write,
        write_multiple: 1,
        readdir_preferred: 65_536,
        file_size_max: values.max_file_size.unwrap_or(u64::MAX),
        time_delta: values.time_delta.map_or(Time::default(), time),
        properties: properties.map(has).iter().fold(0, |all, bit| all | bit),
    }
}

fn names(values: &AttributeValues<'_>) -> PathConf {
    PathConf {
        link_max: values.max_link.unwrap_or(1),
        name_max: values.max_name.unwrap_or(255),
        no_trunc: values.no_trunc.unwrap_or(true),
        chown_restricted: values.chown_restricted.unwrap_or(true),
        case_insensitive: values.case_insensitive.unwrap_or(false),
        case_preserving: values.case_preserving.unwrap_or(true),
    }
}

/// Attributes of an object, if all mandatory ones are there.
pub(super) fn attributes(values: &AttributeValues<'_>) -> Option<Attributes> {
    let DeviceNumber4 { major, minor } =
        values.raw_dev.unwrap_or(DeviceNumber4 { major: 0, minor: 0 });
    let Fsid { major: fsid, minor: second } = values.fsid?;
    Some(Attributes {
        kind: kind(values.kind?),
        mode: values.mode?,
        nlink: values.num_links.unwrap_or(1),
        uid: user(values.owner),
        gid: user(values.owner_group),
        size: values.size?,
        used: values.space_used.unwrap_or_default(),
        device: DeviceNumber { major, minor },
        fsid: fsid ^ second,
        fileid: values.fileid?,
        atime: values.time_access.map_or(Time::default(), time),
        mtime: values.time_modify.map_or(Time::default(), time),
        ctime: values.time_metadata.map_or(Time::default(), time),
    })
}

const fn kind(kind: FileKind4) -> FileKind {
    match kind {
        FileKind4::Directory | FileKind4::AttributeDirectory => FileKind::Directory,
        FileKind4::Block => FileKind::Block,
        FileKind4::Character => FileKind::Character,
        FileKind4::Link => FileKind::Symlink,
        FileKind4::Socket => FileKind::Socket,
        FileKind4::Fifo => FileKind::Fifo,
        FileKind4::Regular | FileKind4::NamedAttribute => FileKind::Regular,
    }
}

/// The number of a user; `NOBODY` if the owner is a name.
fn user(owner: Option<Owner4<'_>>) -> u32 {
    let text = owner.and_then(|owner| std::str::from_utf8(owner.0).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(NOBODY)
}

/// Times before 1970, and after the last that version 3 has, become the nearest that it has.
fn time(time: Time4) -> Time {
    let seconds = time.seconds.clamp(0, i64::from(u32::MAX));
    v3::Time { seconds: u32::try_from(seconds).unwrap_or(u32::MAX), nanos: time.nanoseconds }
}
