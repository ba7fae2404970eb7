//! A call in a buffer of the shard's own, whose arguments are verified and opened there.

use super::ProtectedCall;
use stag_gss::{BodyFault, Unprotecting};
use stag_pools::Buf;
use std::ops::Range;

/// Arguments whose protection does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpeningFault;

impl From<BodyFault> for OpeningFault {
    fn from(_: BodyFault) -> Self {
        Self
    }
}

/// A call in a buffer of the shard's own, where its arguments are verified and opened.
#[derive(Debug)]
pub(crate) struct OwnedCall {
    pub(crate) message: Buf,
    /// Octets of the message in front of its arguments.
    pub(crate) body: usize,
    pub(crate) protected: ProtectedCall,
}

impl OwnedCall {
    /// Begins to verify and open the arguments.
    pub(crate) fn begin(&mut self) -> Result<Unprotecting, OpeningFault> {
        let Self { message, body, protected } = self;
        let (call, context) = (&protected.call, &protected.known.context);
        let octets = message.get_mut(*body..).unwrap_or_default();
        let keys = context.acceptor.keys();
        Ok(keys.begin_unprotect(call.service(), call.sequence(), octets)?)
    }

    /// Goes on by `max` octets. Returns the place of the arguments in the message once all are
    /// verified.
    pub(crate) fn advance(
        &mut self,
        opening: &mut Unprotecting,
        max: usize,
    ) -> Result<Option<Range<usize>>, OpeningFault> {
        let Self { message, body, protected } = self;
        let octets = message.get_mut(*body..).unwrap_or_default();
        let range = opening.advance(protected.known.context.acceptor.keys(), octets, max)?;
        Ok(range.map(|range| *body + range.start..*body + range.end))
    }
}
