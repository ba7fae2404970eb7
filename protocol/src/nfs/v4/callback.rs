//! Callback operations (RFC 8881 §20, RFC 7862 §16).

use super::compound::{AnswerSet, OperationFault, OperationSet};
use super::forms::record;
use super::op::{HasStatus, operations};
use super::{Array, Bitmap, Handle4, RawAttributes, SessionId, StateOwner, Stateid, Status4};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

record! {
    /// Arguments of CB_GETATTR (RFC 8881 §20.1.1).
    #[derive(Copy)]
    CbGetAttrArgs<'a> {
        /// A file that the client has a write delegation of.
        file: Handle4<'a>,
        /// Attributes wanted: change and size.
        attributes: Bitmap,
    }
}

record! {
    /// Arguments of CB_RECALL (RFC 8881 §20.2.1).
    #[derive(Copy)]
    CbRecallArgs<'a> {
        /// The delegation.
        delegation: Stateid,
        /// True if the file will be truncated to nothing: data need not be written back.
        truncate: bool,
        /// The file.
        file: Handle4<'a>,
    }
}

record! {
    /// Arguments of CB_RECALL_ANY (RFC 8881 §20.6.1).
    #[derive(Copy)]
    CbRecallAnyArgs {
        /// Objects that the client may keep.
        keep: u32,
        /// Types of objects.
        types: Bitmap,
    }
}

record! {
    /// A request of the fore channel that a callback refers to (`referring_call4`).
    #[derive(Copy)]
    ReferringCall {
        /// Sequence ID.
        sequence: u32,
        /// Slot.
        slot: u32,
    }
}

record! {
    /// Requests of a session that a callback refers to (`referring_call_list4`).
    ReferringCalls<'a> {
        /// The session.
        session: SessionId,
        /// Its requests.
        calls: Array<'a, ReferringCall>,
    }
}

record! {
    /// Arguments of CB_SEQUENCE (RFC 8881 §20.9.1).
    CbSequenceArgs<'a> {
        /// The session.
        session: SessionId,
        /// Sequence ID of the slot.
        sequence: u32,
        /// The slot.
        slot: u32,
        /// The highest slot that the server uses.
        highest_slot: u32,
        /// True if the reply is to be cached whole.
        cache_this: bool,
        /// Requests whose replies the client has to see first.
        referring: Array<'a, ReferringCalls<'a>>,
    }
}

record! {
    /// Results of CB_SEQUENCE.
    #[derive(Copy)]
    CbSequenceOk {
        /// The session.
        session: SessionId,
        /// Sequence ID of the slot.
        sequence: u32,
        /// The slot.
        slot: u32,
        /// The highest slot that the client takes.
        highest_slot: u32,
        /// The highest slot that the client wants to be used.
        target_highest_slot: u32,
    }
}

record! {
    /// Arguments of CB_NOTIFY_LOCK (RFC 8881 §20.11.1).
    CbNotifyLockArgs<'a> {
        /// The file.
        file: Handle4<'a>,
        /// The owner that asked for a lock, which may be free.
        owner: StateOwner<'a>,
    }
}

operations! {
    CallbackOperation, CallbackRequest, CallbackAnswer;
    served {
        /// Asks the holder of a write delegation for attributes (RFC 8881 §20.1).
        GetAttr(CbGetAttrArgs<'a>) -> Result<RawAttributes<'a>, Status4> = 3;
        /// Recalls a delegation (RFC 8881 §20.2).
        Recall(CbRecallArgs<'a>) -> Result<(), Status4> = 4;
        /// Recalls some delegations of the client's choice (RFC 8881 §20.6).
        RecallAny(CbRecallAnyArgs) -> Result<(), Status4> = 8;
        /// Takes slots back (RFC 8881 §20.8).
        RecallSlot(u32) -> Result<(), Status4> = 10;
        /// Names session and slot of the compound (RFC 8881 §20.9).
        Sequence(CbSequenceArgs<'a>) -> Result<CbSequenceOk, Status4> = 11;
        /// Announces that a lock may be free (RFC 8881 §20.11).
        NotifyLock(CbNotifyLockArgs<'a>) -> Result<(), Status4> = 13;
    }
    refused {
        /// Recalls layouts (RFC 8881 §20.3).
        LayoutRecall = 5;
        /// Reports changes in a directory (RFC 8881 §20.4).
        Notify = 6;
        /// Gives a delegation that was wanted (RFC 8881 §20.5).
        PushDeleg = 7;
        /// Announces that objects are available (RFC 8881 §20.7).
        RecallableObjAvail = 9;
        /// Cancels wants (RFC 8881 §20.10).
        WantsCancelled = 12;
        /// Reports changed devices (RFC 8881 §20.12).
        NotifyDeviceid = 14;
        /// Reports that an asynchronous copy is done (RFC 7862 §16.1).
        Offload = 15;
    }
}

impl CallbackOperation {
    /// The smallest minor version that defines it.
    pub const fn minor_version(self) -> u32 {
        if self as u32 > Self::NotifyDeviceid as u32 { 2 } else { 1 }
    }
}
