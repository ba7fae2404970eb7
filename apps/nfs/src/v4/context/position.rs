//! Positions at which operations may appear in a compound (RFC 8881 §2.10.2).

use stag_protocol::nfs::v4::{Compound, Operation, Request, Status4};

use crate::v4::session::{SequenceFacts, SlotInUse};

/// Place of an operation in its compound.
pub(in crate::v4) struct Step<'a> {
    pub(in crate::v4) place: u32,
    /// Number of operations after it.
    pub(in crate::v4) left: u32,
    pub(in crate::v4) facts: &'a SequenceFacts<'a>,
    /// The operations after it.
    pub(in crate::v4) rest: &'a Compound<'a>,
}

impl Step<'_> {
    /// Checks that the operation may appear there (RFC 8881 §2.10.2, §18.46.3).
    #[inline]
    pub(in crate::v4) fn check_position(
        &self,
        request: &Request<'_>,
        operation: Operation,
        slot: Option<&SlotInUse>,
    ) -> Result<(), Status4> {
        let is_special = matches!(
            operation,
            Operation::Sequence
                | Operation::ExchangeId
                | Operation::CreateSession
                | Operation::BindConnToSession
                | Operation::DestroySession
                | Operation::DestroyClientid
        );
        match self.place {
            0 if operation == Operation::Sequence => Ok(()),
            1.. if !is_special => Ok(()),
            _ => self.check_special(request, slot),
        }
    }

    /// The same for the operations on clients and sessions, and for the first one.
    #[cold]
    fn check_special(
        &self,
        request: &Request<'_>,
        slot: Option<&SlotInUse>,
    ) -> Result<(), Status4> {
        if self.place == 0 {
            return match request {
                Request::Sequence(_) => Ok(()),
                Request::ExchangeId(_)
                | Request::CreateSession(_)
                | Request::BindConnToSession(_)
                | Request::DestroySession(_)
                | Request::DestroyClientid(_) => match self.left {
                    0 => Ok(()),
                    // RFC 8881 §18.35.3 [8881-321]: it is the only operation
                    _ => Err(Status4::NotOnlyOp),
                },
                // RFC 8881 §2.10.2 [8881-320]: all but these need a session
                _ => Err(Status4::OpNotInSession),
            };
        }
        match request {
            // RFC 8881 §18.46.3 [8881-319]: SEQUENCE is the first operation
            Request::Sequence(_) => Err(Status4::SequencePos),
            Request::BindConnToSession(_) => Err(Status4::NotOnlyOp),
            // RFC 8881 §18.37.3: the session of the compound ends with it.
            Request::DestroySession(id) => match slot {
                Some(slot) if slot.session == *id && self.left > 0 => Err(Status4::NotOnlyOp),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
