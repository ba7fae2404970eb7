//! Untyped calls: their arguments are encoded by the caller's own code.

use super::RawClient;
use crate::{
    call::{CLIENT_TOKEN, CallError, goes_short, header_len, room_for_item},
    reply::copy,
};
use stag_engine::{CallFault, Cx, PeerId, Request, RequestItem, ShortRequest, Token};
use stag_protocol::{
    rpc::{Auth, CallHeader, Credential, ReplyHeader, Xid},
    xdr::{NoRoom, Writer},
};
use stag_verbs::Provider;
use std::time::Duration;

/// The description of an untyped call.
#[derive(Clone, Copy, Debug)]
pub struct RawCall<'a> {
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure's number.
    pub procedure: u32,
    /// The caller.
    pub credential: Credential<'a>,
    /// Octets of the longest arguments, without their item.
    pub arguments_max: usize,
    /// Octets of the longest results, without their item.
    pub results_max: usize,
    /// Octets of the longest item in the results; 0 without one.
    pub item_max: usize,
    /// The argument that may travel in a Read chunk. It is the last argument; its length is written
    /// together with the other arguments.
    pub item: Option<&'a [u8]>,
}

impl<'a> RawCall<'a> {
    /// An anonymous call without arguments and results.
    pub const fn new(program: u32, version: u32, procedure: u32) -> Self {
        let credential = Credential::None;
        let (arguments_max, results_max, item_max) = (0, 0, 0);
        Self {
            program,
            version,
            procedure,
            credential,
            arguments_max,
            results_max,
            item_max,
            item: None,
        }
    }

    /// Writes the call in memory of the shard; `emit` writes the arguments. The reply may take
    /// `timeout`, and its outcome carries `token`.
    ///
    /// # Errors
    /// [`CallFault::Limit`] if there is no memory for it, [`CallError::TooLong`] if the arguments
    /// exceed `arguments_max`.
    #[inline]
    pub fn write(
        &self,
        cx: &Cx<'_>,
        timeout: Duration,
        token: Token,
        emit: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<Request, CallError> {
        let none = CallError::Failed(CallFault::Limit);
        let len_max = self.len_max();
        let mut message = cx.message(len_max).ok_or(none)?;
        let mut writer = Writer::new(message.spare_mut().get_mut(..len_max).ok_or(none)?);
        let written = self.header().emit(&mut writer).and_then(|()| emit(&mut writer));
        let position = writer.len();
        written.map_err(|_| CallError::TooLong)?;
        message.extend(position);
        let item = match self.item {
            Some(item) => Some(RequestItem { position, octets: copy(cx, item).ok_or(none)? }),
            None => None,
        };
        let result = room_for_item(cx, self.item_max)?;
        Ok(Request { message, item, reply_max: self.reply_max(), result, timeout, token })
    }

    /// Returns true if the call can use [`send_short`](Self::send_short): neither it nor its reply
    /// has an item, its longest message is short, and its longest reply goes inline.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.item.is_none() && self.item_max == 0 && goes_short(self.len_max(), self.reply_max())
    }

    /// Makes a call that [is short](Self::is_short), without memory of the shard: `emit` writes the
    /// arguments directly into the send buffer ([`Cx::call_short`]).
    ///
    /// # Errors
    /// [`CallError::TooLong`] if the arguments exceed `arguments_max`, or if the call is not short;
    /// then no outcome follows.
    // Always: it is most of what a generator does for NULL, and there its arguments are constants.
    #[inline(always)]
    pub fn send_short(
        &self,
        cx: &mut Cx<'_>,
        peer: PeerId,
        timeout: Duration,
        token: Token,
        emit: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<(), CallError> {
        if !self.is_short() {
            return Err(CallError::TooLong);
        }
        let (header, reply_max) = (self.header(), self.reply_max());
        let request = ShortRequest { header, reply_max, timeout, token };
        let len_max = self.len_max();
        let write = |writer: &mut Writer<'_>| {
            emit(writer)?;
            if writer.len() <= len_max { Ok(()) } else { Err(NoRoom) }
        };
        cx.call_short(peer, &request, write).map_err(|NoRoom| CallError::TooLong)
    }

    #[inline]
    const fn header(&self) -> CallHeader<'a> {
        CallHeader {
            xid: Xid(0),
            program: self.program,
            version: self.version,
            procedure: self.procedure,
            credential: self.credential,
            // RFC 5531 §A [5531-29]: the verifier beside AUTH_SYS is AUTH_NONE
            verifier: Auth::NONE,
        }
    }

    /// Octets of the longest message, without its item.
    #[inline]
    fn len_max(&self) -> usize {
        header_len(&self.credential).saturating_add(self.arguments_max)
    }

    /// Octets of the longest reply, without its item.
    #[inline]
    fn reply_max(&self) -> usize {
        (ReplyHeader::LEN + self.results_max).max(ReplyHeader::REFUSAL_LEN_MAX)
    }
}

impl<P: Provider> RawClient<P> {
    /// Makes a call that `make` writes in memory of the shard, with the token that `make` gets. Its
    /// outcome comes by [`next_finished`](Self::next_finished).
    ///
    /// # Errors
    /// [`CallFault::NoPeer`] without a connection, [`CallFault::Limit`] if the number of untaken
    /// outcomes has reached the maximum of concurrent calls, and the errors of `make`. A call above
    /// the maximum ends with [`CallFault::Limit`] as its outcome.
    pub fn begin(
        &mut self,
        make: impl FnOnce(&mut Cx<'_>, Token) -> Result<Request, CallError>,
    ) -> Result<Token, CallError> {
        self.begin_by(|cx, peer, token| {
            let request = make(cx, token)?;
            cx.call(peer, Request { token, ..request });
            Ok(())
        })
    }

    /// Makes a call by `make`, which gets the peer and the call's token.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) fn begin_by(
        &mut self,
        make: impl FnOnce(&mut Cx<'_>, PeerId, Token) -> Result<(), CallError>,
    ) -> Result<Token, CallError> {
        let peer = self.peer.ok_or(CallFault::NoPeer)?;
        if self.keeper().done.len() >= self.outcomes_max {
            return Err(CallFault::Limit.into());
        }
        let token = Token(CLIENT_TOKEN | self.calls);
        self.shard.with_app(|_, cx| make(cx, peer, token))?;
        self.calls = (self.calls + 1) & !CLIENT_TOKEN;
        Ok(token)
    }

    /// Makes a call: `emit` writes the arguments. Its outcome comes by
    /// [`next_finished`](Self::next_finished).
    ///
    /// # Errors
    /// [`CallFault::NoPeer`] without a connection, [`CallFault::Limit`] without memory for the call
    /// or its outcome, [`CallError::TooLong`] if the arguments exceed the maximum in `call`.
    pub fn send(
        &mut self,
        call: &RawCall<'_>,
        emit: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<Token, CallError> {
        let timeout = self.timeout;
        if call.is_short() {
            return self
                .begin_by(|cx, peer, token| call.send_short(cx, peer, timeout, token, emit));
        }
        self.begin(|cx, token| call.write(cx, timeout, token, emit))
    }
}
