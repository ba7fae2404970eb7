//! Calls of NFS version 4.1: each is a COMPOUND of a session (RFC 8881 §2.10, §16.2).

use super::{
    ask::Ask,
    block,
    maker::{Maker, label, with_result},
};
use stag_client::Error;
use stag_engine::{Cx, PeerId, Request as CallRequest, Token};
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{self, FileHandle, StableHow},
        v4::{
            self, Answer, AnswerSet as _, Attribute, Bitmap, Close4Args, CompoundHead,
            CompoundReply, CreateHow4, Open4Args, OpenClaim, OpenHow, RawAttributes, Read4Args,
            Request, STAT_ATTRIBUTES, SequenceArgs, StateOwner, Stateid, Status4, Text, Write4Args,
            share,
        },
    },
    rpc::Credential,
    xdr::{NoRoom, Piece, Reader, Writer},
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
        peer: PeerId,
        ask: Ask,
        place: SessionPlace,
    ) -> Option<()> {
        let files = self.files.as_ref()?;
        let (put, stateid, token) = (put(&files.file), place.open, place.token);
        let put_dir = || self::put(&files.dir);
        let count = u32::try_from(self.len).ok()?;
        let attributes = || Request::GetAttr(STAT_ATTRIBUTES);
        let short = self.compound_call(RESULTS_LEN_MAX);
        let transfer = self.compound_call(TRANSFER_RESULTS_LEN_MAX);
        let sequence = Request::Sequence(place.sequence);
        let name = label(ask);
        let name = name.octets();
        match ask {
            Ask::GetAttr => {
                self.short_compound(cx, peer, token, short, &[sequence, put, attributes()])
            }
            Ask::Lookup { .. } | Ask::Find { .. } => {
                let lookup = Request::Lookup(Text(name));
                let all = [sequence, put_dir(), lookup, Request::GetFh(()), attributes()];
                self.short_compound(cx, peer, token, short, &all)
            }
            Ask::Create { .. } => {
                let close = Request::Close(Close4Args { seqid: 0, open: Stateid::CURRENT });
                let (open, handle) = (Request::Open(creation(name)), Request::GetFh(()));
                let all = [sequence, put_dir(), open, handle, attributes(), close];
                self.short_compound(cx, peer, token, short, &all)
            }
            Ask::Remove { .. } => {
                let all = [sequence, put_dir(), Request::Remove(Text(name))];
                self.short_compound(cx, peer, token, short, &all)
            }
            Ask::Read { block } => {
                let offset = block * u64::from(count);
                let read = Request::Read(Read4Args { stateid, offset, count });
                let request = self.long_compound(cx, token, transfer, &[sequence, put, read])?;
                cx.call(peer, with_result(cx, request, self.len)?);
                Some(())
            }
            Ask::Write { block: number } => {
                let (offset, data) = (number * u64::from(count), Bulk::Apart(count));
                let stable = StableHow::FileSync;
                let write = Request::Write(Write4Args { stateid, offset, stable, data });
                let request = self.long_compound(cx, token, transfer, &[sequence, put, write])?;
                cx.call(peer, self.with_item(cx, request, block(number, self.len, true))?);
                Some(())
            }
            _ => None,
        }
    }

    /// Sends operations without items.
    pub fn short_compound(
        &self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        token: Token,
        call: RawCall<'_>,
        requests: &[Request<'_>],
    ) -> Option<()> {
        let write = |writer: &mut Writer<'_>| emit(writer, requests);
        let sent = match call.is_short() {
            true => call.send_short(cx, peer, self.timeout, token, write),
            false => {
                call.write(cx, self.timeout, token, write).map(|request| cx.call(peer, request))
            }
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
        requests: &[Request<'_>],
    ) -> Option<CallRequest> {
        call.write(cx, self.timeout, token, |writer| emit(writer, requests)).ok()
    }

    /// A COMPOUND for the user, with results of at most `results_max` octets.
    pub fn compound_call(&self, results_max: usize) -> RawCall<'static> {
        let credential = Credential::Sys(self.user);
        let called = RawCall::new(v3::PROGRAM, v4::VERSION, v4::COMPOUND);
        RawCall { credential, results_max, arguments_max: ARGUMENTS_LEN_MAX, ..called }
    }

    /// The same as [`Maker::check`], of a compound that was sent with this SEQUENCE.
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
        let mut reply = CompoundReply::parse(results).map_err(Error::Garbled)?;
        match succeeded(&mut reply)? {
            // RFC 8881 §18.46.3: session, slot and sequence ID are those of the request
            Answer::Sequence(Ok(done)) => {
                let told = (done.session, done.slot, done.sequence);
                if sent.is_none_or(|sent| (sent.session, sent.slot, sent.sequence) != told) {
                    return Err(OTHER_SLOT);
                }
            }
            _ => return Err(OTHER),
        }
        match succeeded(&mut reply)? {
            Answer::PutFh(Ok(())) => {}
            _ => return Err(OTHER),
        }
        let moved = match (ask, succeeded(&mut reply)?) {
            (Ask::GetAttr, Answer::GetAttr(Ok(raw))) => known(raw).map(|()| 0),
            (Ask::Lookup { .. } | Ask::Find { .. }, Answer::Lookup(Ok(())))
            | (Ask::Create { .. }, Answer::Open(Ok(_))) => found(ask, &mut reply).map(|()| 0),
            (Ask::Remove { .. }, Answer::Remove(Ok(_))) => Ok(0),
            (Ask::Read { block: number }, Answer::Read(Ok(done))) => {
                let octets = done.data.octets().unwrap_or_default();
                self.same(octets, block(number, self.len, false)).map(|()| self.len as u64)
            }
            (Ask::Write { .. }, Answer::Write(Ok(done))) => {
                self.written(done.count, done.committed).map(|()| self.len as u64)
            }
            _ => Err(OTHER),
        }?;
        reply.finish().map(|()| moved).map_err(Error::Garbled)
    }
}

const OTHER: Error = Error::Nonsense("the results are those of other operations");
const OTHER_SLOT: Error = Error::Nonsense("the results are those of another slot or request");

/// The current filehandle.
pub(crate) fn put(handle: &FileHandle) -> Request<'_> {
    Request::PutFh(Text(handle.octets()))
}

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

fn emit(writer: &mut Writer<'_>, requests: &[Request<'_>]) -> Result<(), NoRoom> {
    use stag_protocol::xdr::Codec as _;
    let operations = u32::try_from(requests.len()).unwrap_or(u32::MAX);
    CompoundHead { tag: Text(b""), minor_version: MINOR_VERSION, operations }.emit(writer)?;
    requests.iter().try_for_each(|request| request.emit(writer))
}

/// The next result, of an operation that succeeded.
pub(crate) fn succeeded<'a>(reply: &mut CompoundReply<'a>) -> Result<Answer<'a>, Error> {
    let answer = reply.next().ok_or(OTHER)?.map_err(Error::Garbled)?;
    match answer.status() {
        Status4::Ok => Ok(answer),
        status => Err(Error::Nfs4(status)),
    }
}

/// Reads attributes as a client has to.
fn known(raw: RawAttributes<'_>) -> Result<(), Error> {
    raw.values().map(|_| ()).map_err(|fault| Error::Nfs4(fault.status()))
}

/// Reads the results after the LOOKUP or OPEN of a file: its handle, its attributes, and CLOSE.
fn found(ask: Ask, reply: &mut CompoundReply<'_>) -> Result<(), Error> {
    let Answer::GetFh(Ok(_)) = succeeded(reply)? else { return Err(OTHER) };
    let Answer::GetAttr(Ok(raw)) = succeeded(reply)? else { return Err(OTHER) };
    known(raw)?;
    if let Ask::Create { .. } = ask {
        let Answer::Close(Ok(_)) = succeeded(reply)? else { return Err(OTHER) };
    }
    Ok(())
}
