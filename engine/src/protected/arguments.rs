//! Arguments of protected calls, verified and opened.

use crate::{
    app::App,
    core::Core,
    gss::{
        AT_ONCE, ArrivedCall, OpeningFault, OwnedCall, ProtectedCall, StepWork, asks_for_protection,
    },
    item::Pulled,
    memory::Lane,
    shard::Shard,
    state::Sender,
};
use stag_pools::{Buf, table::Key};
use stag_protocol::{rpc::CallHeader, xdr::Reader};
use stag_verbs::Provider;
use std::ops::Range;

/// Arguments without protection.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    pub(super) arguments: Reader<'a>,
    pub(super) pulled: Pulled<'a>,
}

/// The rest of a message, if it is in one piece: nothing of a protected call is reduced.
fn body_of<'a>(arguments: &Reader<'a>) -> Option<&'a [u8]> {
    let mut pieces = arguments.pieces().map(|piece| piece.octets()).filter(|it| !it.is_empty());
    let body = pieces.next().unwrap_or_default();
    pieces.next().is_none().then_some(body)
}

/// Verifies arguments with integrity where they are.
pub(super) fn open_integrity<'a>(
    protected: &ProtectedCall,
    arrived: &ArrivedCall<'a>,
) -> Result<Opened<'a>, OpeningFault> {
    let body = body_of(&arrived.arguments).ok_or(OpeningFault)?;
    let acceptor = &protected.known.context.acceptor;
    let range = acceptor.verify_arguments(&protected.call, body)?;
    let arguments = Reader::new(body.get(range).ok_or(OpeningFault)?);
    Ok(Opened { arguments, pulled: arrived.pulled })
}

impl Core {
    /// Returns true if a record is to be gathered in a buffer of its own although it is complete:
    /// it is opened over several passes. What follows it in the same read needs another buffer.
    pub(crate) fn opens_in_steps(&self, record: &[u8], lane: Lane) -> bool {
        self.gss.is_some()
            && record.len() > AT_ONCE
            && asks_for_protection(record)
            && !self.is_awaited(lane)
            && self.memory.can_lend_two(record.len(), lane)
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Serves a call with privacy whose message is not the shard's own to change: its arguments
    /// are opened in the shard's room for that.
    pub(super) fn serve_private(
        &mut self,
        key: Key,
        sender: Sender,
        arrived: &ArrivedCall<'_>,
        protected: ProtectedCall,
    ) {
        let Some(gss) = &mut self.core.gss else { return };
        // Moved out of the shard while the app reads its content.
        let mut room = std::mem::take(&mut gss.room);
        let opened = open_in(&mut room, &protected, arrived);
        self.serve_opened(key, sender, &arrived.header, protected, opened);
        if let Some(gss) = &mut self.core.gss {
            gss.room = room;
        }
    }

    /// Passes a whole message in a buffer of the shard's own to the app. Arguments under integrity
    /// or privacy are verified and opened there, long ones over several passes.
    pub(crate) fn hand_over_owned(&mut self, key: Key, sender: Sender, message: Buf) {
        let reader = Reader::new(&message);
        let mut arguments = reader.clone();
        if self.core.gss.is_some()
            && asks_for_protection(&message)
            && let Ok(header) = CallHeader::parse(&mut arguments)
        {
            let body = message.len() - arguments.remaining();
            let arrived =
                ArrivedCall { message: reader, header, arguments, pulled: Pulled::default() };
            if let Some(protected) = self.judge_protected(key, sender, &arrived) {
                self.open_owned(key, sender, OwnedCall { message, body, protected });
            }
            return self.empty_outbox();
        }
        let whole = [Some(message.freeze())];
        let [octets] = &whole;
        let reader = Reader::new(octets.as_deref().unwrap_or_default());
        self.hand_over(key, sender, reader, Pulled(&whole));
    }

    fn open_owned(&mut self, key: Key, sender: Sender, mut call: OwnedCall) {
        let opening = call.begin();
        match opening {
            Ok(mut opening) if call.message.len() <= AT_ONCE => {
                let opened = call.advance(&mut opening, usize::MAX);
                self.serve_owned(
                    key,
                    sender,
                    call,
                    opened.and_then(|range| range.ok_or(OpeningFault)),
                );
            }
            Ok(opening) => {
                self.begin_steps(key, StepWork::Open(call, opening));
            }
            Err(fault) => self.serve_owned(key, sender, call, Err(fault)),
        }
    }

    /// Passes a call to the app whose arguments are opened in its own buffer, or refuses it.
    pub(super) fn serve_owned(
        &mut self,
        key: Key,
        sender: Sender,
        call: OwnedCall,
        opened: Result<Range<usize>, OpeningFault>,
    ) {
        let OwnedCall { message, protected, .. } = call;
        let whole = [Some(message.freeze())];
        let [octets] = &whole;
        let octets = octets.as_deref().unwrap_or_default();
        // In front of what was opened, so that it is as it arrived.
        let Ok(header) = CallHeader::parse(&mut Reader::new(octets)) else { return };
        let opened = opened.and_then(|range| octets.get(range).ok_or(OpeningFault));
        let opened = opened.map(|octets| {
            self.core.moved += octets.len();
            Opened { arguments: Reader::new(octets), pulled: Pulled(&whole) }
        });
        self.serve_opened(key, sender, &header, protected, opened);
    }
}

/// Opens arguments with privacy in `room`.
fn open_in<'a>(
    room: &'a mut [u8],
    protected: &ProtectedCall,
    arrived: &ArrivedCall<'a>,
) -> Result<Opened<'a>, OpeningFault> {
    let body = body_of(&arrived.arguments).ok_or(OpeningFault)?;
    let copy = room.get_mut(..body.len()).ok_or(OpeningFault)?;
    copy.copy_from_slice(body);
    let range = protected.known.context.acceptor.open_arguments(&protected.call, copy)?;
    let arguments = Reader::new(copy.get(range).ok_or(OpeningFault)?);
    Ok(Opened { arguments, pulled: Pulled::default() })
}
