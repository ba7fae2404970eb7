//! A running compound: its filehandles, caller, session and reply (RFC 8881 §16.2.3).
//!
//! | file | what |
//! |---|---|
//! | [`filehandle`], [`pseudo_fs`] | objects of filehandles; the directories that lead to exports |
//! | [`flavors`] | security flavors that objects accept |
//! | [`owner_names`] | names of owners, and waiting for them |
//! | [`position`] | positions at which operations may appear |
//! | [`association`] | connections that may use a client's sessions and record |
//! | [`store_calls`], [`state_calls`] | calls of operations to the store, and to the state tables |
//! | [`status`] | statuses of the store in version 4 |
//! | [`waiting`], [`replay_log`] | operations that wait, and the answers that they had before |
//! | [`saved_arguments`] | arguments that outlive their message |
//! | [`changes_in_flight`] | pending changes, during which their files are not delegated |
//! | [`shard_context`] | the part that this shard executes, and the data for another shard |
//! | [`counters`] | counters of version 4 |

pub(in crate::v4) mod association;
pub(in crate::v4) mod changes_in_flight;
pub(in crate::v4) mod counters;
pub(in crate::v4) mod filehandle;
pub(in crate::v4) mod flavors;
pub(in crate::v4) mod owner_names;
pub(in crate::v4) mod position;
pub(in crate::v4) mod pseudo_fs;
pub(in crate::v4) mod replay_log;
pub(in crate::v4) mod saved_arguments;
pub(in crate::v4) mod shard_context;
pub(in crate::v4) mod state_calls;
pub(in crate::v4) mod status;
pub(in crate::v4) mod store_calls;
pub(in crate::v4) mod waiting;

use crate::{
    reply::ReplyWriter,
    requester::{BufferLimits, CallSource, Requester, ShardPeer},
    v4::context::shard_context::ShardFacts,
};
use stag_engine::{Cx, ItemsFull, Pulled, Time};
use stag_protocol::{
    nfs::{
        v3,
        v4::{Stateid, Status4},
    },
    xdr::{NoRoom, Reader, Writer},
};

use super::{
    Nfs4,
    session::{Principal, SequenceFacts, SlotInUse},
};
use filehandle::Node;
use replay_log::ReplayLog;
use shard_context::ShardContext;
use stag_nfs_store::{Caller, Failed, ReadTicket, Store};

/// Reason for which an operation does not return NFS4_OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpExit {
    /// It fails, and its only result is the status.
    Fail(Status4),
    /// It fails, and its results are written already.
    Written(Status4),
    /// It has to wait, and runs again after the event that it waits for (`replay_log`).
    Wait,
    /// The home has to execute it, since a delegation may conflict. It has had no effect.
    NeedsHome,
}

impl From<Status4> for OpExit {
    fn from(status: Status4) -> Self {
        Self::Fail(status)
    }
}

impl From<v3::Status> for OpExit {
    fn from(status: v3::Status) -> Self {
        Self::Fail(status::of_store(status))
    }
}

impl<About> From<Failed<About>> for OpExit {
    fn from(failed: Failed<About>) -> Self {
        failed.status.into()
    }
}

/// Outcome of an operation.
pub(super) type OpResult<T = ()> = Result<T, OpExit>;

/// Filehandles and stateids that operations pass on to each other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filehandles {
    current: Option<Node>,
    saved: Option<Node>,
    /// The current stateid (RFC 8881 §16.2.3.1.2).
    stateid: Option<Stateid>,
    saved_stateid: Option<Stateid>,
}

/// Means by which a compound can wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitMeans {
    /// The ticket of the next deferred READ, if there is one.
    pub(crate) read_ticket: Option<ReadTicket>,
    /// Limits of the memory that suspended compounds may hold.
    pub(crate) limits: BufferLimits,
}

/// The part of a compound that is done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Operations whose results are written.
    pub(super) count: u32,
    /// Place of their number in the reply.
    pub(super) count_at: usize,
    /// Number of operations to execute here.
    pub(super) until: u32,
    /// Number of operations that another shard has executed, too, and that are counted there.
    pub(super) passed: u32,
}

/// The state of a compound that lasts while it waits: it is put aside and taken up as a whole.
#[derive(Debug)]
pub(super) struct CompoundState {
    /// The replay log of the operation.
    pub(super) replay_log: Box<ReplayLog>,
    /// Time up to which it waits for delegations, once it does.
    pub(super) recall_until: Option<Time>,
    /// The last caller; none when it is gone.
    pub(super) requester: Option<Requester>,
    pub(super) source: CallSource,
    pub(super) caller: Caller,
    pub(super) principal: Principal,
    /// Octets of the call, and its operations, by which SEQUENCE is checked.
    pub(super) request_len: usize,
    pub(super) operations: u32,
    pub(super) minor_version: u32,
    pub(super) reply: ReplyWriter,
    pub(super) place: Filehandles,
    /// The slot of its SEQUENCE.
    pub(super) slot: Option<SlotInUse>,
    pub(super) progress: Progress,
    /// Facts about it at other shards.
    pub(super) shard_facts: ShardFacts,
}

/// Execution state of one COMPOUND: the state that lasts, and what a run borrows.
pub(super) struct CompoundContext<'t, 'k, S> {
    pub(super) nfs4: &'t mut Nfs4,
    pub(super) store: &'t mut S,
    pub(super) cx: &'t mut Cx<'k>,
    /// All arguments of the compound.
    pub(super) arguments: Reader<'t>,
    /// The arguments that came in Read chunks.
    pub(super) pulled: Pulled<'t>,
    pub(super) means: WaitMeans,
    pub(super) compound: CompoundState,
    /// The operation has asked the store for a change.
    pub(super) has_changed: bool,
    /// The store has been given the caller.
    pub(super) has_acted: bool,
    /// The reply was taken from the slot.
    pub(super) is_replay: bool,
    /// Relation to other shards.
    pub(super) shard_context: ShardContext<'t>,
}

impl<'t, S> CompoundContext<'t, '_, S> {
    /// Facts by which SEQUENCE is checked.
    pub(super) fn facts(&self) -> SequenceFacts<'t> {
        let CompoundState { principal, request_len, operations, .. } = self.compound;
        SequenceFacts { principal, request_len, operations, arguments: self.arguments.clone() }
    }
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// The connection that the compound came over.
    pub(super) const fn peer_at(&self) -> ShardPeer {
        Requester::of(self.compound.source).at()
    }

    /// The current object.
    ///
    /// # Errors
    /// NFS4ERR_NOFILEHANDLE.
    pub(super) fn current(&self) -> Result<Node, Status4> {
        self.compound.place.current.ok_or(Status4::NoFileHandle)
    }

    /// The saved object.
    ///
    /// # Errors
    /// NFS4ERR_NOFILEHANDLE.
    pub(super) fn saved(&self) -> Result<Node, Status4> {
        self.compound.place.saved.ok_or(Status4::NoFileHandle)
    }

    /// The client of the session.
    ///
    /// # Errors
    /// NFS4ERR_OP_NOT_IN_SESSION without a session.
    pub(super) fn client(&self) -> Result<u64, Status4> {
        self.compound.slot.map(|slot| slot.client).ok_or(Status4::OpNotInSession)
    }

    /// Makes an object the current one. It has no stateid yet.
    pub(super) fn set_current(&mut self, node: Node) {
        self.compound.place.current = Some(node);
        self.compound.place.stateid = None;
    }

    /// Sets or clears the current stateid.
    pub(super) fn set_stateid(&mut self, stateid: Option<Stateid>) {
        self.compound.place.stateid = stateid;
    }

    /// A stateid of the arguments, or the current one if they contain the special stateid for it.
    ///
    /// # Errors
    /// NFS4ERR_BAD_STATEID when there is no current one.
    pub(super) fn stateid(&self, given: Stateid) -> Result<Stateid, Status4> {
        match given {
            // RFC 8881 §16.2.3.1.2: this special stateid stands for the current one.
            Stateid::CURRENT => self.compound.place.stateid.ok_or(Status4::BadStateid),
            given => Ok(given),
        }
    }

    /// The stateid that was saved.
    pub(super) const fn saved_stateid(&self) -> Option<Stateid> {
        self.compound.place.saved_stateid
    }

    /// Drops the current object (RFC 8881 §18.29.3).
    pub(super) fn drop_current(&mut self) {
        self.compound.place.current = None;
        self.compound.place.stateid = None;
    }

    /// SAVEFH: saves the object and its stateid.
    pub(super) fn save(&mut self) {
        self.compound.place.saved = self.compound.place.current;
        self.compound.place.saved_stateid = self.compound.place.stateid;
    }

    /// RESTOREFH.
    pub(super) fn restore(&mut self) {
        self.compound.place.current = self.compound.place.saved;
        self.compound.place.stateid = self.compound.place.saved_stateid;
    }

    /// Octets of the reply so far, including its items.
    pub(super) fn reply_len(&self) -> usize {
        self.compound.reply.len_with_items()
    }

    /// Writes results: number, status, and the arm that belongs to it.
    ///
    /// # Errors
    /// NFS4ERR_SERVERFAULT when there is no room, which is a bug of ours: the interpreter checks
    /// for room before an operation runs.
    pub(super) fn encode(
        &mut self,
        emit: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> OpResult {
        let written = self.compound.reply.write(emit);
        debug_assert_eq!(written, Ok(()), "results have the room that they were said to need");
        written.map_err(|NoRoom| Status4::ServerFault.into())
    }

    /// Writes the results of an operation that succeeded.
    pub(super) fn put(&mut self, answer: &stag_protocol::nfs::v4::Answer<'_>) -> OpResult {
        use stag_protocol::nfs::v4::AnswerSet as _;
        self.encode(|writer| answer.emit(writer))
    }

    /// Adds an item whose length word was written last: separate from the message, so that the next
    /// Write chunk may take it, unless the call has no more chunks. A slot keeps the whole message,
    /// from which the item is taken later (`reply_data`).
    ///
    /// # Errors
    /// NFS4ERR_DELAY when there is no memory for it in the message.
    pub(super) fn put_item(&mut self, octets: stag_engine::Extents) -> OpResult {
        let is_cached = self.compound.slot.is_some_and(|slot| slot.cache_this);
        let octets = if is_cached {
            octets
        } else {
            // RFC 8267 §6.4.1 [8267-8]: a READ without data keeps its Write chunk, which is empty
            match self.compound.reply.put_any_item(octets, &self.nfs4.item_lists) {
                Ok(()) => return Ok(()),
                // RFC 8267 §6.4.1 [8267-9]: a READ for which no Write chunk is left is inline
                Err(ItemsFull(octets)) => octets,
            }
        };
        if !self.compound.reply.ensure(self.cx, octets.len().saturating_add(64)) {
            return Err(Status4::Delay.into());
        }
        self.encode(|writer| {
            let mut room = writer.spare();
            for part in &octets {
                let (here, rest) = room.split_at_mut_checked(part.len()).ok_or(NoRoom)?;
                here.copy_from_slice(part);
                room = rest;
            }
            writer.advance(octets.len())
        })
    }

    /// Memory for a second reply.
    ///
    /// # Errors
    /// NFS4ERR_DELAY when there is none.
    pub(super) fn another_reply(&self) -> Result<ReplyWriter, Status4> {
        ReplyWriter::begin(self.cx, self.compound.reply.xid(), 0).ok_or(Status4::Delay)
    }
}
