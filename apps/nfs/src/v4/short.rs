//! Compounds of SEQUENCE, PUTFH and GETATTR, which clients send more often than all others without
//! data. Their results are written where they are sent from, as those of small procedures of
//! version 3, and their slot is begun and ended in one step.
//!
//! Only the usual case is answered here: a new request whose reply is not kept, about an object
//! whose attributes are known at once. The interpreter (`compound`) answers all others, and answers
//! these by the same octets.

use stag_engine::Time;
use stag_protocol::{
    nfs::{
        v3::FileHandle,
        v4::{
            Answer, AnswerSet as _, Bitmap, Handle4, Operation, SequenceArgs, SequenceOk, Status4,
            check_readable,
        },
    },
    rpc::CallHeader,
    xdr::{Codec as _, NoRoom, Reader, Writer},
};

use super::{
    Nfs4,
    attr::{AttributeSource, FileSystemFacts, needs_file_system},
    compound::request_len,
    node::Node,
    op::HELD,
    session::{Principal, SequenceFacts},
    status,
};
use crate::store::{FileAttributes, Status, Store};

/// Operations of such a compound.
const OPERATIONS: u32 = 3;
/// Octets that a reply to it may have, RPC header included. A session with a lower limit leaves it
/// to the interpreter, which measures replies.
pub(super) const REPLY_LEN_MAX: u32 = 2_048;

/// A SEQUENCE, a PUTFH of an object of the store, and a GETATTR of attributes of objects alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortCompound {
    sequence: SequenceArgs,
    object: FileHandle,
    asked: Bitmap,
}

impl ShortCompound {
    /// Takes the arguments of COMPOUND. None for any other compound, malformed ones among them.
    #[inline]
    pub(crate) fn parse(mut reader: Reader<'_>) -> Option<Self> {
        const SEQUENCE: u32 = Operation::Sequence as u32;
        // Without a tag.
        reader.words_if(|words| matches!(words, [0, 1 | 2, OPERATIONS, SEQUENCE]))?;
        let sequence = SequenceArgs::parse(&mut reader).ok()?;
        reader.words_if(|[operation]| *operation == Operation::PutFh as u32)?;
        let node = Node::of(&Handle4::parse(&mut reader).ok()?).ok()?;
        reader.words_if(|[operation]| *operation == Operation::GetAttr as u32)?;
        let asked = reader.whole().ok()?;
        let object = node.object(Status4::BadHandle).ok()?;
        let is_usual =
            !sequence.cache_this && check_readable(&asked).is_ok() && !needs_file_system(&asked);
        is_usual.then_some(Self { sequence, object, asked })
    }

    /// The object whose attributes are asked for.
    pub(crate) const fn object(&self) -> &FileHandle {
        &self.object
    }
}

impl Nfs4 {
    /// Begins and ends the request of the compound's slot, and gives the results of its SEQUENCE.
    /// None when the interpreter has to judge it; no slot has changed then.
    pub(crate) fn begin_short<S: Store>(
        &mut self,
        store: &S,
        short: &ShortCompound,
        header: &CallHeader<'_>,
        arguments: Reader<'_>,
        now: Time,
    ) -> Option<SequenceOk> {
        // Leases end by time alone, and there may have been no pass since.
        self.tidy(now);
        self.renew_root(store);
        // The holder of a delegation may have to be asked first.
        if self.state.delegation_count() > 0 && short.asked.meets(&HELD) {
            return None;
        }
        let facts = SequenceFacts {
            principal: Principal::from(&header.credential),
            request_len: request_len(header, &arguments),
            operations: OPERATIONS,
            arguments,
        };
        let client = self.sessions.pass(&short.sequence, &facts, REPLY_LEN_MAX)?;
        self.tally.compounds += 1;
        self.renew_lease(client, now);
        self.sequence_ok(&short.sequence)
    }

    /// Writes the results of the compound behind the header of its reply.
    pub(crate) fn answer_short(
        &mut self,
        short: &ShortCompound,
        sequence: SequenceOk,
        found: Result<FileAttributes, Status>,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let status = found.as_ref().err().map_or(Status4::Ok, |status| status::of_store(*status));
        self.tally.count(Some(Operation::Sequence), Status4::Ok);
        self.tally.count(Some(Operation::PutFh), Status4::Ok);
        self.tally.count(Some(Operation::GetAttr), status);
        // RFC 8881 §16.2.3: status, tag and number of results.
        writer.words([status as u32, 0, OPERATIONS])?;
        Answer::Sequence(Ok(sequence)).emit(writer)?;
        let [put, get] = [Operation::PutFh as u32, Operation::GetAttr as u32];
        writer.words([put, Status4::Ok as u32, get, status as u32])?;
        let Ok(attributes) = found else { return Ok(()) };
        let node = Node::Object(short.object);
        let object = self.facts_of(&short.object, attributes);
        let (system, lease) = (FileSystemFacts::default(), self.lease_seconds());
        AttributeSource { node: &node, object: &object, system: &system, lease }
            .emit(&short.asked, writer)
    }
}
