//! Places at which operations may stand in a compound (RFC 8881 §2.10.2).

use stag_protocol::nfs::v4::{Request, Status4};

use super::session::SequenceFacts;

/// Place of an operation in its compound.
pub(super) struct Step<'a> {
    pub(super) place: u32,
    /// Operations behind it.
    pub(super) left: u32,
    pub(super) facts: &'a SequenceFacts<'a>,
}

impl Step<'_> {
    /// Checks that the operation may stand there (RFC 8881 §2.10.2, §18.46.3).
    pub(super) fn check_position(
        &self,
        request: &Request<'_>,
        session: Option<stag_protocol::nfs::v4::SessionId>,
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
            Request::DestroySession(id) if session == Some(*id) && self.left > 0 => {
                Err(Status4::NotOnlyOp)
            }
            _ => Ok(()),
        }
    }
}
