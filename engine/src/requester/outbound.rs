//! One call of ours.

use crate::{
    app::{CallFault, PeerId, ResultRooms, Token},
    spare::Spare,
};
use stag_pools::{Buf, Extent, Fenced, RemoteKey};
use stag_protocol::rpcrdma::{Xid, responder::ITEMS_MAX};
use stag_verbs::{Cause, FabricFault, Time};

/// A call of ours. Its message, item and result are here, except while the provider has them.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(super) peer: PeerId,
    pub(super) token: Token,
    /// Chosen when it is sent for the first time, or when it is written where it is sent from; the
    /// same when it is sent again (RFC 8166 §4.2.1).
    pub(super) xid: Option<Xid>,
    pub(super) deadline: Time,
    pub(super) state: OutboundState,
    /// The app gave the call up.
    pub(super) cancelled: bool,
    /// The RPC message; away from the Send until its completion. None of a call that was written
    /// where it is sent from.
    pub(super) message: Option<Buf>,
    /// Octets of such a message; zero if there is none.
    pub(super) written: u16,
    pub(super) sent: Sent,
    pub(super) reply_max: usize,
    /// Only for a call with an item, or with room for a result or for a long reply, or that ended
    /// before the app hears of it.
    pub(super) offers: Option<Box<CallChunks>>,
}

// It is moved when it begins and when it ends.
const _: () = assert!(size_of::<Outbound>() <= 128);

/// A call of ours that is over, as far as the app hears of it.
#[derive(Debug)]
pub(super) struct EndedCall {
    pub(super) peer: PeerId,
    pub(super) token: Token,
    pub(super) cancelled: bool,
    pub(super) offers: Option<Box<CallChunks>>,
}

/// The parts of a call of ours that may travel in chunks.
#[derive(Debug, Default)]
pub(crate) struct CallChunks {
    /// Octets of the message in front of the item.
    pub(super) position: Option<usize>,
    pub(super) item: Option<Buf>,
    /// The item while it is sent over TCP.
    pub(super) shared: Option<Extent>,
    pub(super) result: Option<Buf>,
    /// The rooms in it, each a Write chunk, if there are several.
    pub(super) rooms: Option<ResultRooms>,
    /// Windows that are not fenced yet.
    pub(super) windows: [Option<OpenWindow>; Outbound::WINDOWS],
    pub(super) reply_room: Option<Buf>,
    /// Octets that came in the Write chunk, according to the reply.
    pub(super) written: usize,
    /// The same for each of several Write chunks.
    pub(super) written_each: [u32; ITEMS_MAX],
    /// Octets at the front of the result's room, and of the reply's, that are not an earlier
    /// owner's ([`Fenced::filled`]).
    pub(super) result_filled: usize,
    pub(super) reply_filled: usize,
    pub(super) reply: Option<ReplyMemory>,
}

impl CallChunks {
    /// Notes the octets that came in each of several Write chunks, and returns the number of those
    /// in which nothing came.
    pub(super) fn note_written(&mut self, rooms: ResultRooms, written: &[u64]) -> u64 {
        let mut unused = 0;
        for (to, from) in self.written_each.iter_mut().zip(written) {
            *to = u32::try_from(*from).unwrap_or(0);
            unused += u64::from(*to == 0);
        }
        self.written = rooms.ends(&self.written_each).last().unwrap_or(0);
        unused
    }
}

/// The changes to the message that is being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Octets of transport header in front of it.
    pub(super) header_len: u32,
    /// Octets of the item, with its padding, that were inserted.
    pub(super) inserted: u32,
    /// The message travels in a chunk; what is sent is a header alone.
    pub(super) long: bool,
}

/// A window of a call of ours that is not fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenWindow {
    pub(super) key: RemoteKey,
    pub(super) role: Role,
}

/// The content of a window of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
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
pub(super) enum ReplyMemory {
    /// The RPC message stands behind the header of a receive.
    Inline { message: Buf, payload_at: usize },
    /// It is in the reply room: this many octets.
    Room(usize),
    /// There is none.
    Fault(CallFault),
}

/// The event that a call of ours waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutboundState {
    /// A credit, and a connection.
    AwaitCredit,
    /// The reply.
    AwaitReply,
    /// The last window's fence.
    AwaitFence,
    /// The last window's fence, and its own message, to go out again on the same connection.
    AwaitWhole,
    /// The end of the connection, for its reply cannot be used and its keys are dead. It goes again
    /// over the next one, if any.
    AwaitNext,
    /// The end of the connection, because its deadline passed.
    AwaitEnd,
}

impl Outbound {
    /// An argument or a whole message, and room for a result or for a reply.
    pub(crate) const WINDOWS: usize = 2;

    /// Puts a fenced window's buffer where it belongs. It comes back when the call has no such
    /// window.
    pub(super) fn fence(&mut self, fenced: Fenced) -> Result<(), Fenced> {
        let (key, filled, is_doubtful) = (fenced.key(), fenced.filled(), fenced.is_doubtful());
        let Some(offers) = &mut self.offers else { return Err(fenced) };
        let window =
            offers.windows.iter_mut().find(|window| window.is_some_and(|window| window.key == key));
        let Some(OpenWindow { role, .. }) = window.and_then(Option::take) else {
            return Err(fenced);
        };
        let buf = fenced.into_buf();
        if is_doubtful && offers.reply.is_some() {
            // The reply was there before its window ended; whatever it says of the content, that is
            // not what the peer wrote.
            let fault = CallFault::Disconnected(Cause::Fabric(FabricFault::Lost));
            offers.reply = Some(ReplyMemory::Fault(fault));
        }
        match role {
            Role::Item => offers.item = Some(buf),
            // A copy: the message itself stayed here.
            Role::Message => drop(buf),
            Role::Result => (offers.result, offers.result_filled) = (Some(buf), filled),
            Role::ReplyRoom => (offers.reply_room, offers.reply_filled) = (Some(buf), filled),
        }
        Ok(())
    }

    /// Returns true if the message is here, so that it can be sent again.
    pub(super) const fn has_message(&self) -> bool {
        self.message.is_some() || self.written > 0
    }

    /// Octets of the message, if it is here.
    #[inline]
    pub(super) fn message_len(&self) -> Option<usize> {
        match self.written {
            0 => self.message.as_ref().map(|message| message.len()),
            len => Some(len.into()),
        }
    }

    #[inline]
    pub(super) fn is_fenced(&self) -> bool {
        self.offers.as_ref().is_none_or(|offers| offers.windows.iter().all(Option::is_none))
    }

    /// Returns true if it is known how the call ended.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.offers.as_ref().is_some_and(|offers| offers.reply.is_some())
    }

    /// Notes the end of the call, if it is not known.
    pub(super) fn end(&mut self, reply: ReplyMemory, spare: &mut Spare<CallChunks>) {
        self.offers.get_or_insert_with(|| spare.take()).reply.get_or_insert(reply);
    }

    /// The windows that are not fenced.
    pub(super) fn windows(&self) -> [Option<OpenWindow>; Self::WINDOWS] {
        self.offers.as_ref().map_or([None; Self::WINDOWS], |offers| offers.windows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_pools::{Access, Class, Pool, Scope, Windows, table::Key};

    /// A call with one window for its result, that has its reply; and the window as it comes back
    /// when its connection ends, its content in doubt or not.
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
