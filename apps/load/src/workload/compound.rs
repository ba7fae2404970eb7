//! Calls of NFS version 4.1: each is a COMPOUND of a session (RFC 8881 §2.10, §16.2).

use super::{
    CallOutlet, LoadFiles,
    ask::Ask,
    block,
    items::SpareItems,
    maker::{Maker, label, with_result},
};
use stag_client::Error;
use stag_engine::{CallFault, Cx, Request as CallRequest, Token};
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{self, FileHandle, StableHow},
        v4::{
            self, Answer, AnswerSet as _, Attribute, Bitmap, ChangeInfo, Close4Args, CompoundReply,
            CreateHow4, Handle4, Open4Args, Open4Ok, OpenClaim, OpenHow, Operation, RawAttributes,
            Read4Args, Read4Ok, STAT_WORDS, SequenceArgs, SessionId, StatValues, StateOwner,
            Stateid, Status4, Text, Write4Args, Write4Ok, share,
        },
    },
    rpc::Credential,
    xdr::{Codec, NoRoom, Piece, Reader, Writer},
};
use stag_rpc::{CallError, RawCall, accepted};

/// The minor version: every server of sessions has it.
pub(crate) const MINOR_VERSION: u32 = 1;
/// Octets of the longest arguments without their item.
const ARGUMENTS_LEN_MAX: usize = 384;
/// Octets of the longest results without their item.
const RESULTS_LEN_MAX: usize = 1_024;
/// Octets of the results of SEQUENCE, PUTFH, and a READ or WRITE without its data.
const TRANSFER_RESULTS_LEN_MAX: usize = 256;

/// Mode of a file that is made, as the value of an attribute.
const MODE: [u8; 4] = 0o600_u32.to_be_bytes();

/// The place of a call in its session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionPlace {
    /// Token of the call.
    pub token: Token,
    /// Session, slot and sequence ID.
    pub sequence: SequenceArgs,
    /// The open of the generator's file.
    pub open: Stateid,
}

impl Maker {
    /// Makes the call as a compound. `None` when our memory for it is short.
    pub fn make_compound(
        &self,
        cx: &mut Cx<'_>,
        mut to: impl CallOutlet,
        ask: Ask,
        place: SessionPlace,
        items: &mut SpareItems,
    ) -> Option<()> {
        let LoadFiles { dir, file, .. } = self.files.as_ref()?;
        let (sequence, stateid, token) = (&place.sequence, place.open, place.token);
        let count = u32::try_from(self.len).ok()?;
        let short = self.compound_call(RESULTS_LEN_MAX);
        let transfer = self.compound_call(TRANSFER_RESULTS_LEN_MAX);
        let name = label(ask);
        let name = &Text::<{ v3::Name::MAX }>(name.octets());
        match ask {
            Ask::GetAttr => self.short_compound(cx, &mut to, token, short, |writer| {
                begin(writer, ask, sequence, file)?;
                get_attributes(writer)
            }),
            Ask::Lookup { .. } | Ask::Find { .. } => {
                self.short_compound(cx, &mut to, token, short, |writer| {
                    begin(writer, ask, sequence, dir)?;
                    operation(writer, Operation::Lookup, name)?;
                    operation(writer, Operation::GetFh, &())?;
                    get_attributes(writer)
                })
            }
            Ask::Create { .. } => self.short_compound(cx, &mut to, token, short, |writer| {
                begin(writer, ask, sequence, dir)?;
                operation(writer, Operation::Open, &creation(name.0))?;
                operation(writer, Operation::GetFh, &())?;
                get_attributes(writer)?;
                operation(
                    writer,
                    Operation::Close,
                    &Close4Args { seqid: 0, open: Stateid::CURRENT },
                )
            }),
            Ask::Remove { .. } => self.short_compound(cx, &mut to, token, short, |writer| {
                begin(writer, ask, sequence, dir)?;
                operation(writer, Operation::Remove, name)
            }),
            Ask::Read { block } => {
                let read = Read4Args { stateid, offset: block * u64::from(count), count };
                let request = self.long_compound(cx, token, transfer, |writer| {
                    begin(writer, ask, sequence, file)?;
                    operation(writer, Operation::Read, &read)
                })?;
                let request = with_result(cx, request, self.len)?;
                to.send(cx, request)
            }
            Ask::Write { block: number } => {
                let (offset, data) = (number * u64::from(count), Bulk::Apart(count));
                let write = Write4Args { stateid, offset, stable: StableHow::FileSync, data };
                let request = self.long_compound(cx, token, transfer, |writer| {
                    begin(writer, ask, sequence, file)?;
                    operation(writer, Operation::Write, &write)
                })?;
                let request = items.add(cx, request, block(number, self.len, true))?;
                to.send(cx, request)
            }
            _ => None,
        }
    }

    /// Sends operations without items, which `write` writes.
    #[inline]
    pub fn short_compound(
        &self,
        cx: &mut Cx<'_>,
        to: &mut impl CallOutlet,
        token: Token,
        call: RawCall<'_>,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Option<()> {
        let sent = match call.is_short() {
            true => to.send_short(cx, self.timeout, token, &call, write),
            false => call.write(cx, self.timeout, token, write).and_then(|request| {
                to.send(cx, request).ok_or(CallError::Failed(CallFault::Limit))
            }),
        };
        debug_assert_ne!(sent, Err(CallError::TooLong), "there is room for every compound");
        sent.ok()
    }

    /// Operations to which an item belongs, or whose results have one.
    fn long_compound(
        &self,
        cx: &Cx<'_>,
        token: Token,
        call: RawCall<'_>,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Option<CallRequest> {
        call.write(cx, self.timeout, token, write).ok()
    }

    /// A COMPOUND for the user, with results of at most `results_max` octets.
    pub fn compound_call(&self, results_max: usize) -> RawCall<'static> {
        let credential = Credential::Sys(self.user);
        let called = RawCall::new(v3::PROGRAM, v4::VERSION, v4::COMPOUND);
        RawCall { credential, results_max, arguments_max: ARGUMENTS_LEN_MAX, ..called }
    }

    /// The same as [`Maker::check`], of a compound. It was `sent` with this SEQUENCE; without one
    /// no reply is its own.
    pub fn check_compound(
        &self,
        ask: Ask,
        sent: Option<SequenceArgs>,
        reply: &[u8],
        result: &[u8],
    ) -> Result<u64, Error> {
        let pieces = [Piece::Inline(reply), Piece::Chunk(result)];
        let mut results = Reader::over(&pieces);
        accepted(&mut results)?;
        // RFC 8881 §18.46.3: session, slot and sequence ID are those of the request
        let is_own = |told| sent.is_some_and(|it| (it.session, it.slot, it.sequence) == told);
        let mut usual = results.clone();
        match begun(&mut usual, operations(ask)) {
            Some(told) if is_own(told) => {}
            _ => return Err(failure(results, is_own)),
        }
        let results = &mut usual;
        let moved = match ask {
            Ask::GetAttr => {
                expect_operation(results, Operation::GetAttr)?;
                parse_attributes(results).map(|()| 0)
            }
            Ask::Lookup { .. } | Ask::Find { .. } => {
                expect_operation(results, Operation::Lookup)?;
                parse_handle_and_attributes(results).map(|()| 0)
            }
            Ask::Create { .. } => {
                results_of::<Open4Ok<'_>>(results, Operation::Open)?;
                parse_handle_and_attributes(results)?;
                results_of::<Stateid>(results, Operation::Close).map(|_| 0)
            }
            Ask::Remove { .. } => results_of::<ChangeInfo>(results, Operation::Remove).map(|_| 0),
            Ask::Read { block: number } => {
                let done: Read4Ok<'_> = results_of(results, Operation::Read)?;
                let octets = done.data.octets().unwrap_or_default();
                self.same(octets, block(number, self.len, false)).map(|()| self.len as u64)
            }
            Ask::Write { .. } => {
                let done: Write4Ok = results_of(results, Operation::Write)?;
                self.written(done.count, done.committed).map(|()| self.len as u64)
            }
            _ => Err(OTHER),
        }?;
        usual.finish().map(|()| moved).map_err(Error::Garbled)
    }
}

pub(crate) const OTHER: Error = Error::Nonsense("the results are those of other operations");
const OTHER_SLOT: Error = Error::Nonsense("the results are those of another slot or request");

/// An open for writing that makes the file of this name.
fn creation(name: &[u8]) -> Open4Args<'_> {
    let attributes = RawAttributes { mask: Bitmap::of([Attribute::Mode as u32]), octets: &MODE };
    Open4Args {
        claim: OpenClaim::Null(Text(name)),
        how: OpenHow::Create(CreateHow4::Unchecked(attributes)),
        ..opening()
    }
}

/// An open of the current filehandle for reading and writing, without a delegation: the server
/// would recall it from a client that has no callbacks.
pub(crate) fn opening() -> Open4Args<'static> {
    Open4Args {
        seqid: 0,
        share_access: share::BOTH | share::WANT_NO_DELEGATION,
        share_deny: 0,
        owner: StateOwner { client_id: 0, owner: Text(b"bench") },
        how: OpenHow::NoCreate,
        claim: OpenClaim::Fh,
    }
}

/// Number of the operations of a call.
const fn operations(ask: Ask) -> u32 {
    match ask {
        Ask::Lookup { .. } | Ask::Find { .. } => 5,
        Ask::Create { .. } => 6,
        _ => 3,
    }
}

/// Writes the head of the compound of a call, SEQUENCE, and PUTFH.
fn begin(
    writer: &mut Writer<'_>,
    ask: Ask,
    sequence: &SequenceArgs,
    handle: &FileHandle,
) -> Result<(), NoRoom> {
    // No tag.
    writer.words([0, MINOR_VERSION, operations(ask), Operation::Sequence as u32])?;
    sequence.emit(writer)?;
    writer.u32(Operation::PutFh as u32)?;
    writer.opaque(handle.octets())
}

/// Writes an operation.
fn operation<'a>(
    writer: &mut Writer<'_>,
    operation: Operation,
    arguments: &impl Codec<'a>,
) -> Result<(), NoRoom> {
    writer.u32(operation as u32)?;
    arguments.emit(writer)
}

/// Writes a GETATTR of the attributes of a stat().
fn get_attributes(writer: &mut Writer<'_>) -> Result<(), NoRoom> {
    let [count, first, second] = STAT_WORDS;
    writer.words([Operation::GetAttr as u32, count, first, second])
}

/// Reads the head of a reply of as many operations, and the results of SEQUENCE and PUTFH. Returns
/// session, slot and sequence ID. None if an operation failed or the reply has another form;
/// [`failure`] then reads it in full.
fn begun(results: &mut Reader<'_>, operations: u32) -> Option<(SessionId, u32, u32)> {
    // No tag.
    let [number, status] = [Operation::Sequence as u32, Status4::Ok as u32];
    results.words_if(|words| *words == [status, 0, operations, number, status])?;
    let session = results.array().ok()?;
    let [sequence, slot, ..]: [u32; 5] = results.words().ok()?;
    expect_operation(results, Operation::PutFh).ok()?;
    Some((session, slot, sequence))
}

/// Reads an unexpected reply in full, and returns the error to report.
#[cold]
fn failure(results: Reader<'_>, is_own: impl Fn((SessionId, u32, u32)) -> bool) -> Error {
    let read = || -> Result<(), Error> {
        let mut reply = CompoundReply::parse(results).map_err(Error::Garbled)?;
        for answer in &mut reply {
            let answer = answer.map_err(Error::Garbled)?;
            match answer.status() {
                Status4::Ok => {}
                status => return Err(Error::Nfs4(status)),
            }
            if let Answer::Sequence(Ok(done)) = answer
                && !is_own((done.session, done.slot, done.sequence))
            {
                return Err(OTHER_SLOT);
            }
        }
        match reply.head().status {
            Status4::Ok => Err(OTHER),
            status => Err(Error::Nfs4(status)),
        }
    };
    read().err().unwrap_or(OTHER)
}

/// Reads the number and the status of an operation, which has to be this one, and to succeed.
fn expect_operation(results: &mut Reader<'_>, operation: Operation) -> Result<(), Error> {
    let [number, status] = results.words().map_err(Error::Garbled)?;
    if number != operation as u32 {
        return Err(OTHER);
    }
    match status {
        0 => Ok(()),
        status => {
            let parsed = Status4::parse(&mut Reader::new(&status.to_be_bytes()));
            Err(parsed.map_or_else(Error::Garbled, Error::Nfs4))
        }
    }
}

/// Reads the results of this operation.
fn results_of<'a, T: Codec<'a>>(
    results: &mut Reader<'a>,
    operation: Operation,
) -> Result<T, Error> {
    expect_operation(results, operation)?;
    T::parse(results).map_err(Error::Garbled)
}

/// Checks the form of the attributes, of the usual ones without decoding them.
fn parse_attributes(results: &mut Reader<'_>) -> Result<(), Error> {
    if StatValues::skip_whole(results) {
        return Ok(());
    }
    // A server leaves out attributes that it does not support.
    let raw = RawAttributes::parse(results).map_err(Error::Garbled)?;
    raw.values().map(|_| ()).map_err(|fault| Error::Nfs4(fault.status()))
}

/// Reads the results after the LOOKUP or OPEN of a file: its handle, and its attributes.
fn parse_handle_and_attributes(results: &mut Reader<'_>) -> Result<(), Error> {
    results_of::<Handle4<'_>>(results, Operation::GetFh)?;
    expect_operation(results, Operation::GetAttr)?;
    parse_attributes(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::{
        nfs::v4::{OpenDelegation, ReplyHead, STAT_ATTRIBUTES, SequenceOk, emit_attributes},
        rpc::{Accepted, AuthSys, Gids, Outcome, ReplyHeader, Xid},
    };
    use std::time::Duration;

    const SENT: SequenceArgs =
        SequenceArgs { session: [7; 16], sequence: 3, slot: 2, highest_slot: 4, cache_this: false };

    fn maker() -> Maker {
        let handle = FileHandle::new(&[1]).unwrap();
        Maker {
            workload: super::super::Workload::GetAttr4,
            len: 8,
            depth: 1,
            verify: false,
            user: AuthSys { stamp: 0, machine_name: b"", uid: 0, gid: 0, gids: Gids::default() },
            timeout: Duration::ZERO,
            is_nfs: true,
            files: Some(LoadFiles { dir: handle, file: handle, blocks: 1, names: 0 }),
            read: None,
        }
    }

    /// The attributes of a stat(), all zeros but the kind, as far as `mask` has them.
    fn attributes(mask: &Bitmap) -> Vec<u8> {
        let mut octets = [0; 512];
        let mut writer = Writer::new(&mut octets);
        emit_attributes(mask, &mut writer, |attribute, writer| match attribute {
            Attribute::Type | Attribute::Mode | Attribute::NumLinks => writer.u32(1),
            Attribute::Owner | Attribute::OwnerGroup => writer.opaque(b"0"),
            Attribute::Fsid => writer.words([0; 4]),
            Attribute::TimeAccess | Attribute::TimeMetadata | Attribute::TimeModify => {
                writer.words([0; 3])
            }
            _ => writer.u64(0),
        })
        .unwrap();
        let len = writer.len();
        octets[..len].to_vec()
    }

    /// The reply to a call, whose attributes are these; the places of all statuses in it.
    fn reply(ask: Ask, mask: &Bitmap) -> (Vec<u8>, Vec<usize>) {
        let mut octets = [0; 2_048];
        let mut writer = Writer::new(&mut octets);
        let outcome = Outcome::accepted(Accepted::Success);
        ReplyHeader { xid: Xid(1), outcome }.emit(&mut writer).unwrap();
        let mut statuses = vec![writer.len()];
        let head = ReplyHead { status: Status4::Ok, tag: Text(b""), results: operations(ask) };
        head.emit(&mut writer).unwrap();
        let SequenceArgs { session, sequence, slot, highest_slot, .. } = SENT;
        let [target_highest_slot, flags] = [highest_slot, 0];
        let done = SequenceOk { session, sequence, slot, highest_slot, target_highest_slot, flags };
        let raw = attributes(mask);
        let attributes: RawAttributes<'_> = Reader::new(&raw).whole().unwrap();
        let open = Open4Ok {
            stateid: Stateid::ANONYMOUS,
            change: ChangeInfo { atomic: true, before: 1, after: 2 },
            flags: 0,
            set: Bitmap::EMPTY,
            delegation: OpenDelegation::None,
        };
        let mut all = vec![Answer::Sequence(Ok(done)), Answer::PutFh(Ok(()))];
        let found = [Answer::GetFh(Ok(Text(b"handle"))), Answer::GetAttr(Ok(attributes))];
        match ask {
            Ask::Lookup { .. } => {
                all.push(Answer::Lookup(Ok(())));
                all.extend(found);
            }
            Ask::Create { .. } => {
                all.push(Answer::Open(Ok(open)));
                all.extend(found);
                all.push(Answer::Close(Ok(Stateid::INVALID)));
            }
            Ask::Remove { .. } => all.push(Answer::Remove(Ok(open.change))),
            _ => all.push(Answer::GetAttr(Ok(attributes))),
        }
        for answer in all {
            statuses.push(writer.len() + 4);
            answer.emit(&mut writer).unwrap();
        }
        let len = writer.len();
        (octets[..len].to_vec(), statuses)
    }

    const ASKS: [Ask; 4] =
        [Ask::GetAttr, Ask::Lookup { number: 1 }, Ask::Create { slot: 1 }, Ask::Remove { slot: 1 }];

    #[test]
    fn a_reply_is_the_one_to_its_call_or_says_why_not() {
        let maker = maker();
        for ask in ASKS {
            let (octets, statuses) = reply(ask, &STAT_ATTRIBUTES);
            let check = |octets: &[u8]| maker.check_compound(ask, Some(SENT), octets, &[]);
            assert_eq!(check(&octets), Ok(0), "{ask:?}");
            assert_eq!(maker.check_compound(ask, None, &octets, &[]), Err(OTHER_SLOT));
            let changed = |at: usize, value: u32| {
                let mut other = octets.clone();
                other[at..at + 4].copy_from_slice(&value.to_be_bytes());
                check(&other)
            };
            let status = Status4::BadSession;
            for at in &statuses {
                assert_eq!(changed(*at, status as u32), Err(Error::Nfs4(status)), "{ask:?} {at}");
            }
            for at in &statuses[1..] {
                // Another operation, or none that exists.
                assert!(changed(*at - 4, Operation::Commit as u32).is_err(), "{ask:?} {at}");
            }
            // The number of results.
            let count = statuses[0] + 8;
            for more in [operations(ask) - 1, operations(ask) + 1] {
                assert!(changed(count, more).is_err(), "{ask:?} with {more} results");
            }
            // Session, sequence ID and slot.
            for at in [statuses[1] + 4, statuses[1] + 20, statuses[1] + 24] {
                assert_eq!(changed(at, 99), Err(OTHER_SLOT), "{ask:?}");
            }
            for len in 0..octets.len() {
                assert!(check(&octets[..len]).is_err(), "{ask:?} cut to {len}");
            }
            assert!(check(&[&octets[..], &[0; 4]].concat()).is_err());
        }
    }

    #[test]
    fn a_server_may_leave_out_attributes() {
        let mut mask = STAT_ATTRIBUTES;
        mask.remove(Attribute::MountedOnFileid as u32);
        for ask in ASKS {
            let (octets, _) = reply(ask, &mask);
            assert_eq!(maker().check_compound(ask, Some(SENT), &octets, &[]), Ok(0), "{ask:?}");
        }
    }
}
