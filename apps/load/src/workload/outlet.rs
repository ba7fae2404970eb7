//! The way of a call to its peer: as it is made, or in a context of RPCSEC_GSS (RFC 2203).

use stag_engine::{Cx, PeerId, Request, RequestItem, Token};
use stag_protocol::{
    rpc::{CallHeader, gss::GssService},
    xdr::{NoRoom, Reader, Writer, padded},
};
use stag_rpc::{
    CallError, RawCall,
    gss::{CalledProgram, ClientContext, ProtectedCall},
};
use std::{rc::Rc, time::Duration};

/// A peer that is called, with or without protection.
pub(crate) trait CallOutlet {
    /// Makes a call that [is short](RawCall::is_short); `write` writes its arguments.
    ///
    /// # Errors
    /// Memory for it is short, or the arguments are longer than the call says.
    fn send_short(
        &mut self,
        cx: &mut Cx<'_>,
        timeout: Duration,
        token: Token,
        call: &RawCall<'_>,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<(), CallError>;

    /// Makes a call. `None` when memory for it is short.
    fn send(&mut self, cx: &mut Cx<'_>, request: Request) -> Option<()>;
}

impl CallOutlet for PeerId {
    // Always: for NULL it is most of the generator's work, and there its arguments are constants.
    #[inline(always)]
    fn send_short(
        &mut self,
        cx: &mut Cx<'_>,
        timeout: Duration,
        token: Token,
        call: &RawCall<'_>,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<(), CallError> {
        call.send_short(cx, *self, timeout, token, write)
    }

    #[inline]
    fn send(&mut self, cx: &mut Cx<'_>, request: Request) -> Option<()> {
        cx.call(*self, request);
        Some(())
    }
}

/// A peer that is called in a context.
pub(crate) struct ProtectedOutlet<'a> {
    pub peer: PeerId,
    pub context: &'a Rc<ClientContext>,
    /// Memory of the call, and of the former one of its place.
    pub message: &'a mut Option<Rc<ProtectedCall>>,
}

impl CallOutlet for ProtectedOutlet<'_> {
    fn send_short(
        &mut self,
        cx: &mut Cx<'_>,
        timeout: Duration,
        token: Token,
        call: &RawCall<'_>,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<(), CallError> {
        let request = call.write(cx, timeout, token, write)?;
        self.send(cx, request).ok_or(CallError::Failed(stag_engine::CallFault::Limit))
    }

    fn send(&mut self, cx: &mut Cx<'_>, request: Request) -> Option<()> {
        let Request { message: plain, item, reply_max, result, timeout, token } = request;
        let mut arguments = Reader::new(&plain);
        let header = CallHeader::parse(&mut arguments).ok()?;
        let to = CalledProgram {
            program: header.program,
            version: header.version,
            procedure: header.procedure,
        };
        let arguments = arguments.fixed(arguments.remaining()).ok()?;
        let is_whole = self.context.service() != GssService::None;
        let (within, apart) = if is_whole { (item, None) } else { (None, item) };
        let call = self.renewed(|to| {
            to.extend_from_slice(arguments);
            if let Some(item) = &within {
                to.extend_from_slice(&item.octets);
                to.resize(padded(to.len()), 0);
            }
        })?;
        let message = call.message(cx, to)?;
        let len = message.len();
        let item_max = result.as_ref().map_or(0, |room| room.len());
        let (reply_max, in_chunk) = call.reply_room(reply_max, item_max);
        let result = result.filter(|_| in_chunk > 0);
        let item = apart.map(|item| RequestItem { position: len, octets: item.octets });
        let signer = call.signer();
        let request = Request { message, item, reply_max, result, timeout, token };
        cx.call_signed(self.peer, request, signer);
        Some(())
    }
}

impl ProtectedOutlet<'_> {
    /// Makes the call of this place, with arguments that `fill` appends.
    fn renewed(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Option<&Rc<ProtectedCall>> {
        match self.message {
            Some(message) => ProtectedCall::renew(message, self.context, fill)?,
            None => {
                let mut arguments = Vec::new();
                fill(&mut arguments);
                *self.message = Some(ProtectedCall::new(self.context, &arguments)?);
            }
        }
        self.message.as_ref()
    }
}
