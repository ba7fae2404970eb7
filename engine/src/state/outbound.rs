//! The state of one call of ours.

use crate::{
    call::{ResultRooms, SignCall, Token},
    config::CALL_WINDOWS,
    fault::CallFault,
    peer_view::PeerId,
    spare::{Reused, Spare},
};
use stag_pools::{Buf, Extent, Fenced, RemoteKey};
use stag_protocol::rpcrdma::{Connection, Xid, responder::ITEMS_MAX};
use stag_verbs::{Cause, FabricFault, Time};
use std::rc::Rc;

/// A call of ours, with its message, item and result, except while the provider has them.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) peer: PeerId,
    pub(crate) token: Token,
    /// Chosen when the call is sent for the first time, or when it is written directly into the
    /// send buffer; the same when it is sent again (RFC 8166 §4.2.1).
    pub(crate) xid: Option<Xid>,
    pub(crate) deadline: Time,
    pub(crate) state: OutboundState,
    /// The app cancelled the call.
    pub(crate) cancelled: bool,
    /// The RPC message; the provider holds it from the Send until its completion. None for a call
    /// that was written directly into the send buffer.
    pub(crate) message: Option<Buf>,
    /// Octets of such a written message; zero if there is none.
    pub(crate) written: u16,
    pub(crate) sent: Sent,
    pub(crate) reply_max: usize,
    /// Only for a call with an item, or with room for a result or a long reply, or one that has
    /// ended but is not reported to the app yet.
    pub(crate) offers: Option<Box<CallChunks>>,
}

// An entry is moved when a call begins and when it ends.
const _: () = assert!(size_of::<Outbound>() <= 128);

/// An ended call: the parts that the app gets.
#[derive(Debug)]
pub(crate) struct EndedCall {
    pub(crate) peer: PeerId,
    pub(crate) token: Token,
    pub(crate) cancelled: bool,
    pub(crate) offers: Option<Box<CallChunks>>,
}

/// The parts of a call of ours that may travel in chunks.
#[derive(Debug, Default)]
pub(crate) struct CallChunks {
    /// Octets of the message in front of the item.
    pub(crate) position: Option<usize>,
    pub(crate) item: Option<Buf>,
    /// The item while it is sent over TCP.
    pub(crate) shared: Option<Extent>,
    pub(crate) result: Option<Buf>,
    /// The result rooms in it, each a Write chunk, if there are several.
    pub(crate) rooms: Option<ResultRooms>,
    /// Completes the message whenever it is sent. Such a call has [`CallChunks::rooms`], by which
    /// fast paths leave it out.
    pub(crate) signer: Option<Rc<dyn SignCall>>,
    /// Windows that are not fenced yet.
    pub(crate) windows: [Option<OpenWindow>; Outbound::WINDOWS],
    pub(crate) reply_room: Option<Buf>,
    /// Octets that came in the Write chunk, according to the reply.
    pub(crate) written: usize,
    /// The same for each of several Write chunks.
    pub(crate) written_each: [u32; ITEMS_MAX],
    /// Octets at the beginning of the result's room, and of the reply's, that hold no data of an
    /// earlier owner ([`Fenced::filled`]).
    pub(crate) result_filled: usize,
    pub(crate) reply_filled: usize,
    pub(crate) reply: Option<ReplyMemory>,
}

impl Reused for CallChunks {}

impl CallChunks {
    /// Records the octets that came in each of several Write chunks, and returns the number of
    /// chunks without any.
    pub(crate) fn note_written(&mut self, rooms: ResultRooms, written: &[u64]) -> u64 {
        let mut unused = 0;
        for (to, from) in self.written_each.iter_mut().zip(written) {
            *to = u32::try_from(*from).unwrap_or(0);
            unused += u64::from(*to == 0);
        }
        self.written = rooms.ends(&self.written_each).last().unwrap_or(0);
        unused
    }
}

/// The changes made to the message while it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Octets of transport header in front of it.
    pub(crate) header_len: u32,
    /// Octets of the item, with its padding, that were inserted.
    pub(crate) inserted: u32,
    /// The message travels in a chunk; only a header is sent.
    pub(crate) long: bool,
}

/// A window of a call of ours that is not fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenWindow {
    pub(crate) key: RemoteKey,
    pub(crate) role: Role,
}

/// The role of a window of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The argument.
    Item,
    /// The whole call message.
    Message,
    /// The room for the result.
    Result,
    /// The room for the whole reply.
    ReplyRoom,
}

/// The end of a call of ours.
#[derive(Debug)]
pub(crate) enum ReplyMemory {
    /// The RPC message follows the header in a receive.
    Inline { message: Buf, payload_at: usize },
    /// The RPC message is in the reply room, with this many octets.
    Room(usize),
    /// There is no reply.
    Fault(CallFault),
}

/// The event that a call of ours waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutboundState {
    /// A credit, and a connection.
    AwaitCredit,
    /// The reply.
    AwaitReply,
    /// The last window's fence.
    AwaitFence,
    /// The last window's fence, and its own message, to go out again on the same connection.
    AwaitWhole,
    /// The end of the connection, because the reply is unusable and the keys are dead. The call is
    /// sent again over the next connection, if any.
    AwaitNext,
    /// The end of the connection, because its deadline passed.
    AwaitEnd,
}

impl Outbound {
    /// An argument or a whole message, and room for a result or for a reply.
    pub(crate) const WINDOWS: usize = CALL_WINDOWS;

    /// Stores a fenced window's buffer in its place. It is returned if the call has no such window.
    pub(crate) fn fence(&mut self, fenced: Fenced) -> Result<(), Fenced> {
        let (key, filled, is_doubtful) = (fenced.key(), fenced.filled(), fenced.is_doubtful());
        let Some(offers) = &mut self.offers else { return Err(fenced) };
        let window =
            offers.windows.iter_mut().find(|window| window.is_some_and(|window| window.key == key));
        let Some(OpenWindow { role, .. }) = window.and_then(Option::take) else {
            return Err(fenced);
        };
        let buf = fenced.into_buf();
        if is_doubtful && offers.reply.is_some() {
            // The reply came before its window ended. The content may not be what the peer wrote,
            // whatever the reply says.
            let fault = CallFault::Disconnected(Cause::Fabric(FabricFault::Lost));
            offers.reply = Some(ReplyMemory::Fault(fault));
        }
        let memory = match role {
            Role::Item => &offers.item,
            Role::Message => &None,
            Role::Result => &offers.result,
            Role::ReplyRoom => &offers.reply_room,
        };
        debug_assert!(memory.is_none(), "memory that a window exposes is not in the call");
        match role {
            Role::Item => offers.item = Some(buf),
            // A copy: the message itself is still in the call.
            Role::Message => drop(buf),
            Role::Result => (offers.result, offers.result_filled) = (Some(buf), filled),
            Role::ReplyRoom => (offers.reply_room, offers.reply_filled) = (Some(buf), filled),
        }
        Ok(())
    }

    /// Returns true if the message is present, so that it can be sent again.
    pub(crate) const fn has_message(&self) -> bool {
        self.message.is_some() || self.written > 0
    }

    /// Octets of the message, if it is present.
    #[inline]
    pub(crate) fn message_len(&self) -> Option<usize> {
        match self.written {
            0 => self.message.as_ref().map(|message| message.len()),
            len => Some(len.into()),
        }
    }

    #[inline]
    pub(crate) fn is_fenced(&self) -> bool {
        self.offers.as_ref().is_none_or(|offers| offers.windows.iter().all(Option::is_none))
    }

    /// Returns true if the outcome of the call is known.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.offers.as_ref().is_some_and(|offers| offers.reply.is_some())
    }

    /// Records the outcome of the call, unless it has one.
    pub(crate) fn end(&mut self, reply: ReplyMemory, spare: &mut Spare<CallChunks>) {
        self.offers.get_or_insert_with(|| spare.take()).reply.get_or_insert(reply);
    }

    /// The windows that are not fenced.
    pub(crate) fn windows(&self) -> [Option<OpenWindow>; Self::WINDOWS] {
        self.offers.as_ref().map_or([None; Self::WINDOWS], |offers| offers.windows)
    }
}

/// Reserved entries of the send queue: every open window may need an invalidation of ours.
#[inline]
pub(crate) fn room_kept(connection: &Connection) -> usize {
    let windows = if connection.calls_with_chunks() { Outbound::WINDOWS } else { 0 };
    connection.calls().map_or(0, |credits| credits.in_flight() as usize) * windows
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_pools::{Access, Class, Pool, Scope, Windows, table::Key};

    /// A call that has a window for its result and its reply, and the window after its connection
    /// ended, with its content in doubt or not.
    fn replied(is_doubtful: bool) -> (Outbound, Fenced) {
        let scope = Scope(1);
        let mut windows = Windows::new(1, [1; 32]);
        let pool = Pool::new(&[Class { slot_len: 64, count: 2 }]).unwrap();
        let mut result = pool.take(64).unwrap();
        result.extend(64);
        let window = windows.bind(scope, result.expose(0..64, Access::RemoteWrite)).unwrap();
        if is_doubtful {
            windows.doubt(scope, window.key);
        }
        let fenced = windows.invalidate(scope, window.key).unwrap();
        let mut offers = Box::new(CallChunks::default());
        offers.windows[0] = Some(OpenWindow { key: window.key, role: Role::Result });
        offers.reply = Some(ReplyMemory::Inline { message: pool.take(64).unwrap(), payload_at: 0 });
        let call = Outbound {
            peer: PeerId(Key::from_bits(1)),
            token: Token(1),
            xid: Some(Xid(1)),
            deadline: Time(0),
            state: OutboundState::AwaitFence,
            cancelled: false,
            message: None,
            written: 0,
            sent: Sent::default(),
            reply_max: 0,
            offers: Some(offers),
        };
        (call, fenced)
    }

    #[test]
    fn a_reply_whose_result_is_in_doubt_when_its_window_ends_is_a_lost_connection() {
        for is_doubtful in [false, true] {
            let (mut call, fenced) = replied(is_doubtful);
            call.fence(fenced).unwrap();
            let offers = call.offers.as_ref().unwrap();
            let lost = CallFault::Disconnected(Cause::Fabric(FabricFault::Lost));
            let is_lost =
                matches!(&offers.reply, Some(ReplyMemory::Fault(fault)) if *fault == lost);
            assert_eq!(is_lost, is_doubtful);
            assert!(call.is_fenced() && call.has_ended() && offers.result.is_some());
        }
    }
}
