//! The compounds that clients send most, answered without the interpreter: SEQUENCE, PUTFH, then
//! LOOKUP with or without GETFH, ACCESS, READ, WRITE or none of these, then GETATTR if it is asked
//! for.
//! They are parsed in one go, their slot is begun and ended in one step, and their results are
//! written in place.
//!
//! Only the usual case is answered here: a new request whose reply is not kept, about an object of
//! the store that no delegation concerns, and that can be answered at once. The interpreter
//! answers all others, and would answer these with the same octets.

mod outcome;
mod parse;

pub(crate) use outcome::{ShortOutcome, perform};

use stag_engine::{Call, PeerId, Time};
use stag_protocol::{
    nfs::{
        v3::{FileHandle, FileKind},
        v4::{
            Bitmap, Operation, Read4Args, STAT_ATTRIBUTES, SequenceArgs, SequenceOk, SessionId,
            StatOctets, Stateid, Status4, Write4Args,
        },
    },
    xdr::{NoRoom, Writer},
};

use super::request_len;
use crate::{
    owner_names::{OWNERS, OwnerForm},
    requester::{OWN, ShardPeer},
    v4::{
        Nfs4,
        attributes::{AttributeSource, FileSystemFacts, ObjectFacts},
        context::{filehandle::Node, state_calls::file_id, status},
        milliseconds,
        op::access::AskedRights,
        session::{Principal, SequenceFacts},
    },
};
use stag_nfs_store::{Effort, FileAttributes, Status, Store, TRANSFER_MAX, emit_stat};
use stag_nfs4_state::{IoAccess, StateRequest};

use outcome::ShortResults;

/// Octets that a reply has at most without data, RPC header included. A session with a lower limit
/// leaves it to the interpreter, which measures replies.
pub(crate) const REPLY_LEN_MAX: u32 = 2_048;

/// SEQUENCE and PUTFH at the head of a compound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortHead {
    sequence: SequenceArgs,
    minor_version: u32,
    operations: u32,
    object: FileHandle,
}

/// A compound of one of these shapes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortCompound<'a> {
    head: ShortHead,
    action: ShortAction<'a>,
    /// GETFH of what LOOKUP found.
    has_handle: bool,
    /// GETATTR.
    asked: Asked,
    /// Its caller is sent names of owners.
    is_named: bool,
}

/// The operation after PUTFH.
#[derive(Clone, Copy, Debug)]
enum ShortAction<'a> {
    None,
    Lookup(&'a [u8]),
    Access(AskedRights),
    Read(Read4Args),
    Write(Write4Args<'a>),
}

/// The attributes of the GETATTR.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// There is no GETATTR.
    None,
    /// Those of a stat().
    Usual,
    /// Any that are known from the object alone.
    Others(Bitmap),
}

impl Asked {
    /// The attributes; none without a GETATTR.
    const fn bitmap(&self) -> Option<Bitmap> {
        match self {
            Self::None => None,
            Self::Usual => Some(STAT_ATTRIBUTES),
            Self::Others(asked) => Some(*asked),
        }
    }
}

const fn number(operation: Operation) -> u32 {
    operation as u32
}

impl ShortHead {
    /// The object of its PUTFH.
    pub(crate) const fn object(&self) -> &FileHandle {
        &self.object
    }

    /// The session of its SEQUENCE.
    pub(in crate::v4) const fn session(&self) -> &SessionId {
        &self.sequence.session
    }
}

impl ShortCompound<'_> {
    /// Its first two operations.
    pub(crate) const fn head(&self) -> &ShortHead {
        &self.head
    }

    /// Returns true if it looks up an object, whose handle may be in the reply.
    pub(crate) const fn looks_up(&self) -> bool {
        matches!(self.action, ShortAction::Lookup(_))
    }

    /// Returns true if the object that is looked up is asked for its attributes.
    pub(crate) const fn looks_at_found(&self) -> bool {
        self.looks_up() && !matches!(self.asked, Asked::None)
    }

    /// Returns true for a READ or a WRITE: the message of the reply is reserved before it is
    /// carried out.
    pub(crate) const fn has_message(&self) -> bool {
        matches!(self.action, ShortAction::Read(_) | ShortAction::Write(_))
    }

    /// The same for a caller that is sent names of owners. None if it does not ask for them.
    pub(crate) fn named(self) -> Option<Self> {
        self.asked.bitmap()?.meets(&OWNERS).then_some(Self { is_named: true, ..self })
    }

    /// Returns true if the store may have to begin it and answer it later.
    #[inline]
    pub(crate) fn waits<S: Store>(&self, store: &S) -> bool {
        let effort = match &self.action {
            // A disk may have to supply its data.
            ShortAction::Read(_) => return S::MAY_WAIT,
            ShortAction::Write(args) => Effort::of_write(args.stable),
            _ => Effort::Plain,
        };
        S::MAY_WAIT && store.waits(&self.head.object, effort)
    }

    /// The stateid of a READ or WRITE.
    const fn io(&self) -> Option<(Stateid, IoAccess)> {
        match &self.action {
            ShortAction::Read(args) => Some((args.stateid, IoAccess::Read)),
            ShortAction::Write(args) => Some((args.stateid, IoAccess::Write)),
            _ => None,
        }
    }

    /// Octets that its reply has at most.
    pub(crate) fn reply_len_max(&self) -> u32 {
        match &self.action {
            ShortAction::Read(args) => REPLY_LEN_MAX + args.count.min(TRANSFER_MAX),
            _ => REPLY_LEN_MAX,
        }
    }
}

impl ShortAction<'_> {
    /// Its number.
    const fn operation(&self) -> Option<Operation> {
        match self {
            Self::None => None,
            Self::Lookup(_) => Some(Operation::Lookup),
            Self::Access(_) => Some(Operation::Access),
            Self::Read(_) => Some(Operation::Read),
            Self::Write(_) => Some(Operation::Write),
        }
    }
}

impl Nfs4 {
    /// As [`begin_short`](Self::begin_short), for a compound that may read or write.
    pub(crate) fn begin_shaped<S: Store>(
        &mut self,
        store: &S,
        short: &ShortCompound<'_>,
        call: &Call<'_>,
        now: Time,
    ) -> Option<SequenceOk> {
        if let Some((stateid, access)) = short.io() {
            // The state is checked before the slot, which it must not change: where there is no
            // delegation, the check has no effect, and the session is the connection's own.
            self.tidy(now);
            let at = ShardPeer::own(call.peer);
            if self.state.delegation_count() > 0
                || !self.sessions.is_bound(short.head.session(), at)
            {
                return None;
            }
            self.allows_short_io(&short.head, stateid, access, now)?;
        }
        self.begin_short(store, &short.head, short.reply_len_max(), call, now)
    }

    /// Begins and ends the request of the slot of a compound whose reply has at most `reply_max`
    /// octets, and returns the results of its SEQUENCE. None when the interpreter has to check it;
    /// no slot has changed then.
    #[inline]
    pub(crate) fn begin_short<S: Store>(
        &mut self,
        store: &S,
        head: &ShortHead,
        reply_max: u32,
        call: &Call<'_>,
        now: Time,
    ) -> Option<SequenceOk> {
        // Leases end by time alone, and there may have been no pass since.
        self.tidy(now);
        self.renew_root(store);
        // The holder of a delegation may have to be asked first.
        if self.state.delegation_count() > 0 {
            return None;
        }
        let facts = SequenceFacts {
            principal: Principal::from(&call.header.credential),
            request_len: request_len(&call.header, &call.arguments),
            operations: head.operations,
            arguments: call.arguments.clone(),
        };
        let at = ShardPeer::own(call.peer);
        if self.link.is_some() && self.sessions.is_bound(&head.sequence.session, at) {
            self.note_arrival(&head.sequence.session, OWN, false);
        }
        let session = self.sessions.pass(&head.sequence, &facts, reply_max, at)?;
        self.tally.compounds += 1;
        self.tally.short += 1;
        let mut revoked = 0;
        if let Some(key) = self.clients.get(session.client).and_then(|client| client.key) {
            self.state.renew(key, milliseconds(now));
            revoked = self.state.sequence_flags(key);
        } else if let Some(borrowed) = &self.borrowed {
            borrowed.count_use(&head.sequence.session);
            revoked = borrowed.flags(&head.sequence.session);
        }
        Some(session.sequence_ok(&head.sequence, revoked))
    }

    /// Checks the stateid of a READ or WRITE. None if the interpreter has to refuse it, or wait.
    fn allows_short_io(
        &mut self,
        head: &ShortHead,
        stateid: Stateid,
        access: IoAccess,
        now: Time,
    ) -> Option<()> {
        // After PUTFH there is no current stateid.
        if stateid == Stateid::CURRENT {
            return None;
        }
        let session = self.sessions.get(&head.sequence.session)?;
        let client = self.clients.get(session.client)?.key?;
        let request = StateRequest { client, file: file_id(&head.object), stateid };
        self.state.check_io(&request, access, milliseconds(now)).ok().map(drop)
    }

    /// Returns true if this shard checks the requests that a peer of its own sends in the session.
    pub(crate) fn judges(&self, head: &ShortHead, peer: PeerId) -> bool {
        self.sessions.is_bound(&head.sequence.session, ShardPeer::own(peer))
    }

    /// Returns true if the names of the owners that a compound returns are known. The interpreter
    /// waits for others.
    pub(crate) fn knows_owners(
        &mut self,
        short: &ShortCompound<'_>,
        outcome: &ShortOutcome,
    ) -> bool {
        match (short.asked.bitmap(), &outcome.attributes) {
            (Some(asked), Some(Ok(attributes))) => self.has_owner_names(&asked, attributes),
            _ => true,
        }
    }

    /// Writes the results of SEQUENCE and PUTFH, with the status of the compound and the number of
    /// all its results, after the header of its reply.
    #[inline(always)]
    fn answer_head(
        &mut self,
        sequence: &SequenceOk,
        status: Status4,
        results: u32,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        self.tally.count(Some(Operation::Sequence), Status4::Ok);
        self.tally.count(Some(Operation::PutFh), Status4::Ok);
        let ok = Status4::Ok as u32;
        // RFC 8881 §16.2.3: status, tag and number of results.
        writer.words([status as u32, 0, results, number(Operation::Sequence), ok])?;
        writer.array(&sequence.session)?;
        let SequenceOk { sequence, slot, highest_slot, target_highest_slot, flags, .. } = *sequence;
        writer.u32(sequence)?;
        let put = number(Operation::PutFh);
        writer.words([slot, highest_slot, target_highest_slot, flags, put, ok])
    }

    /// Writes the results of a compound with a GETATTR of the attributes of a stat().
    #[inline]
    pub(crate) fn answer_stat(
        &mut self,
        head: &ShortHead,
        sequence: &SequenceOk,
        found: &Result<StatOctets, Status>,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let status = found.as_ref().err().map_or(Status4::Ok, |status| status::of_store(*status));
        self.answer_head(sequence, status, head.operations, writer)?;
        self.tally.count(Some(Operation::GetAttr), status);
        writer.words([number(Operation::GetAttr), status as u32])?;
        let Ok(octets) = found else { return Ok(()) };
        // The root of an export is a directory.
        if octets.is_directory()
            && let Some(mounted_on) = self.mounted_on(&head.object, FileKind::Directory)
        {
            let mut octets = *octets;
            octets.set_mounted_on_fileid(mounted_on);
            return octets.emit(writer);
        }
        octets.emit(writer)
    }

    /// Writes the results of the compound after the header of its reply, without the data of a
    /// READ.
    pub(crate) fn answer_short(
        &mut self,
        short: &ShortCompound<'_>,
        sequence: &SequenceOk,
        outcome: &ShortOutcome,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let status = outcome.status();
        // No operation comes after one that failed, and GETATTR is the last.
        let results = match outcome.results {
            ShortResults::Failed(_) => 3,
            _ => short.head.operations,
        };
        outcome.count(&mut self.tally.data);
        self.answer_head(sequence, status, results, writer)?;
        let ok = Status4::Ok as u32;
        if let Some(operation) = short.action.operation() {
            let status = match outcome.results {
                ShortResults::Failed(status) => status,
                _ => Status4::Ok,
            };
            self.tally.count(Some(operation), status);
            writer.words([number(operation), status as u32])?;
            match &outcome.results {
                ShortResults::Failed(_) => return Ok(()),
                ShortResults::Plain => {}
                ShortResults::Access(ok) => writer.words([ok.supported, ok.granted])?,
                ShortResults::Read { eof, count, .. } => writer.words([u32::from(*eof), *count])?,
                ShortResults::Write { count, committed, verifier } => {
                    writer.words([*count, *committed as u32])?;
                    writer.array(verifier)?;
                }
            }
        }
        if short.has_handle {
            self.tally.count(Some(Operation::GetFh), Status4::Ok);
            writer.words([number(Operation::GetFh), ok])?;
            writer.opaque(outcome.object.octets())?;
        }
        if matches!(short.asked, Asked::None) {
            return Ok(());
        }
        self.tally.count(Some(Operation::GetAttr), status);
        writer.words([number(Operation::GetAttr), status as u32])?;
        match &outcome.attributes {
            Some(Ok(attributes)) => self.emit_short(short, outcome, attributes, writer),
            _ => Ok(()),
        }
    }

    /// Writes the attributes that GETATTR asked for.
    #[inline]
    fn emit_short(
        &self,
        short: &ShortCompound<'_>,
        outcome: &ShortOutcome,
        attributes: &FileAttributes,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let mounted_on = self.mounted_on(&outcome.object, attributes.kind);
        let asked = match (&short.asked, short.is_named) {
            (Asked::Others(asked), _) => asked,
            (_, true) => &STAT_ATTRIBUTES,
            (_, false) => {
                return emit_stat(attributes, mounted_on.unwrap_or(attributes.fileid), writer);
            }
        };
        let names = self.owner_names.as_deref().filter(|_| short.is_named);
        let owners = names.map_or(OwnerForm::Numbers, OwnerForm::Names);
        let object = ObjectFacts { attributes: *attributes, mounted_on };
        let (node, system) = (Node::Object(outcome.object), FileSystemFacts::default());
        let lease = self.lease_seconds();
        let aces = None;
        AttributeSource { node: &node, object: &object, system: &system, owners, aces, lease }
            .emit(asked, writer)
    }
}
