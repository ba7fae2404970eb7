//! Compounds of SEQUENCE, PUTFH and GETATTR, the most frequent ones without data. Their results are
//! written in place in the send buffer, like those of small procedures of version 3, and their slot
//! is begun and ended in one step.
//!
//! Only the usual case is answered here: a new request whose reply is not kept, about an object
//! whose attributes are known at once. The interpreter (`interpreter`) answers all others, and
//! would answer these with the same octets.

use stag_engine::{Call, PeerId, Time};
use stag_protocol::{
    nfs::{
        v3::FileHandle,
        v4::{Handle4, Operation, SequenceArgs, SequenceOk, Status4},
    },
    xdr::{Codec as _, NoRoom, Reader, Writer},
};

use super::request_len;
use crate::{
    requester::{OWN, ShardPeer},
    v4::{
        Nfs4,
        attributes::{USUAL_WORDS, emit_usual},
        context::{filehandle::Node, status},
        milliseconds,
        session::{Principal, SequenceFacts},
    },
};
use stag_nfs_store::{FileAttributes, Status, Store};

/// Operations of such a compound.
const OPERATIONS: u32 = 3;
/// Limit of octets of a reply to it, RPC header included. A session with a lower limit leaves it to
/// the interpreter, which measures replies.
pub(in crate::v4) const REPLY_LEN_MAX: u32 = 2_048;

/// A SEQUENCE, a PUTFH of an object of the store, and a GETATTR of the usual attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortCompound {
    sequence: SequenceArgs,
    object: FileHandle,
}

impl ShortCompound {
    /// Parses the arguments of COMPOUND. None for any other compound, including malformed ones.
    #[inline]
    pub(crate) fn parse(mut reader: Reader<'_>) -> Option<Self> {
        const SEQUENCE: u32 = Operation::Sequence as u32;
        const PUT_FH: u32 = Operation::PutFh as u32;
        let [count, first, second] = USUAL_WORDS;
        let get = [Operation::GetAttr as u32, count, first, second];
        // Of most other compounds nothing more is read.
        if !reader.ends_with(get) {
            return None;
        }
        // Without a tag.
        reader.words_if(|words| matches!(words, [0, 1 | 2, OPERATIONS, SEQUENCE]))?;
        let session = reader.array().ok()?;
        // The reply is not kept.
        let is_next = |words: &[u32; 5]| matches!(words, [_, _, _, 0, PUT_FH]);
        let [sequence, slot, highest_slot, _, _] = reader.words_if(is_next)?;
        let sequence = SequenceArgs { session, sequence, slot, highest_slot, cache_this: false };
        let object = Node::object_of(&Handle4::parse(&mut reader).ok()?)?;
        reader.words_if(|words| *words == get)?;
        reader.finish().ok()?;
        Some(Self { sequence, object })
    }

    /// The object whose attributes are asked for.
    pub(crate) const fn object(&self) -> &FileHandle {
        &self.object
    }
}

impl Nfs4 {
    /// Begins and ends the request of the compound's slot, and returns the results of its SEQUENCE.
    /// None when the interpreter has to check it; no slot has changed then.
    pub(crate) fn begin_short<S: Store>(
        &mut self,
        store: &S,
        short: &ShortCompound,
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
            operations: OPERATIONS,
            arguments: call.arguments.clone(),
        };
        let at = ShardPeer { shard: OWN, peer: call.peer };
        if self.link.is_some() && self.sessions.is_bound(&short.sequence.session, at) {
            self.note_arrival(&short.sequence.session, OWN, false);
        }
        let session = self.sessions.pass(&short.sequence, &facts, REPLY_LEN_MAX, at)?;
        self.tally.compounds += 1;
        let mut revoked = 0;
        if let Some(key) = self.clients.get(session.client).and_then(|client| client.key) {
            self.state.renew(key, milliseconds(now));
            revoked = self.state.sequence_flags(key);
        } else if let Some(borrowed) = &self.borrowed {
            borrowed.count_use(&short.sequence.session);
            revoked = borrowed.flags(&short.sequence.session);
        }
        Some(session.sequence_ok(&short.sequence, revoked))
    }

    /// Returns true if this shard checks the requests that a peer of its own sends in the session.
    pub(crate) fn judges(&self, short: &ShortCompound, peer: PeerId) -> bool {
        self.sessions.is_bound(&short.sequence.session, ShardPeer { shard: OWN, peer })
    }

    /// Writes the results of the compound after the header of its reply.
    pub(crate) fn answer_short(
        &mut self,
        short: &ShortCompound,
        sequence: &SequenceOk,
        found: &Result<FileAttributes, Status>,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let status = found.as_ref().err().map_or(Status4::Ok, |status| status::of_store(*status));
        self.tally.count(Some(Operation::Sequence), Status4::Ok);
        self.tally.count(Some(Operation::PutFh), Status4::Ok);
        self.tally.count(Some(Operation::GetAttr), status);
        let [ok, get] = [Status4::Ok as u32, Operation::GetAttr as u32];
        // RFC 8881 §16.2.3: status, tag and number of results.
        writer.words([status as u32, 0, OPERATIONS, Operation::Sequence as u32, ok])?;
        writer.array(&sequence.session)?;
        let SequenceOk { sequence, slot, highest_slot, target_highest_slot, flags, .. } = *sequence;
        let put = Operation::PutFh as u32;
        let behind = [slot, highest_slot, target_highest_slot, flags, put, ok, get, status as u32];
        writer.u32(sequence)?;
        writer.words(behind)?;
        let Ok(attributes) = found else { return Ok(()) };
        let mounted_on = self.mounted_on(&short.object, attributes.kind);
        emit_usual(attributes, mounted_on.unwrap_or(attributes.fileid), writer)
    }
}
