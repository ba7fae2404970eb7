//! Calls and replies as an app sees them, of peers and of our own, with their items.

use crate::{
    fault::CallFault,
    item::{Extents, MoreItems, PlacedItem, Pulled},
    peer_view::PeerId,
    room::Room,
    short_send::WRITTEN_MAX,
};
use stag_pools::{Buf, table::Key};
use stag_protocol::{rpc::CallHeader, rpcrdma::responder::ITEMS_MAX, xdr};
use stag_verbs::PeerAddress;
use std::{fmt, time::Duration};

/// One call of a peer, until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(pub(crate) Key);

/// The app's own number for a call that it makes, returned in the outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// A call that arrived completely, with its Read chunks pulled.
#[derive(Debug)]
pub struct Call<'a> {
    /// Names the call in [`Cx::answer`](crate::Cx::answer), at once or later.
    pub id: CallId,
    /// The caller.
    pub peer: PeerId,
    /// The caller's address.
    pub from: PeerAddress,
    /// Transaction, program, version, procedure and credential.
    pub header: CallHeader<'a>,
    /// Positioned at the first octet of the arguments.
    pub arguments: xdr::Reader<'a>,
    /// The arguments that came in Read chunks, for an app that keeps them.
    pub pulled: Pulled<'a>,
}

/// A reply to be sent.
#[derive(Debug)]
pub struct Answer {
    /// The RPC reply message without its item, after [`HEAD_ROOM`](crate::HEAD_ROOM); made by
    /// [`Cx::message`](crate::Cx::message).
    pub message: Buf,
    /// The results that may travel in Write chunks.
    pub item: Option<AnswerItem>,
}

/// The DDP-eligible results of a reply (RFC 8166 §3.4.2): the first, which is nearly always the
/// only one, and any further ones. Each goes to the Write chunk of the same index.
#[derive(Debug)]
pub struct AnswerItem {
    /// Octets of the message in front of the first item; its length word is the last four of them.
    pub position: usize,
    /// The first item, without padding. If there are others, it may be empty.
    pub octets: Extents,
    /// The items after it.
    pub more: MoreItems,
}

impl AnswerItem {
    /// The only item of a reply.
    #[inline]
    pub fn new(position: usize, octets: impl Into<Extents>) -> Self {
        Self { position, octets: octets.into(), more: MoreItems::default() }
    }

    /// All items with their positions, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Extents)> + Clone {
        let more = self.more.iter().map(|PlacedItem { position, octets }| (*position, octets));
        std::iter::once((self.position, &self.octets)).chain(more)
    }

    /// An item by its index.
    pub(crate) fn octets_of(&self, place: usize) -> Option<&Extents> {
        self.iter().nth(place).map(|(_, octets)| octets)
    }
}

/// A call to be made.
#[derive(Debug)]
pub struct Request {
    /// The RPC call message without its item, after [`HEAD_ROOM`](crate::HEAD_ROOM); made by
    /// [`Cx::message`](crate::Cx::message). The engine writes the XID into its first word.
    pub message: Buf,
    /// The argument that may travel in a Read chunk.
    pub item: Option<RequestItem>,
    /// Octets of the longest RPC reply message without its item.
    pub reply_max: usize,
    /// The room for the DDP-eligible result, as long as the longest result
    /// ([`Cx::room`](crate::Cx::room)).
    pub result: Option<Room>,
    /// The time that the reply may take, reconnections included. When it expires the connection is
    /// closed: a call is never repeated on the same connection.
    pub timeout: Duration,
    /// Returned with the outcome.
    pub token: Token,
}

/// The lengths of several result rooms, stored one after the other in one buffer. Each is a Write
/// chunk for the DDP-eligible result of the same index.
/// [`Cx::call_for_results`](crate::Cx::call_for_results) offers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultRooms {
    lens: [u32; ITEMS_MAX],
    count: usize,
}

impl ResultRooms {
    /// Rooms of these lengths. None if there are more than a message has Write chunks, or if they
    /// are longer than a buffer can be.
    pub fn new(lens: &[u32]) -> Option<Self> {
        let mut all = [0; ITEMS_MAX];
        all.get_mut(..lens.len())?.copy_from_slice(lens);
        lens.iter().try_fold(0_u32, |total, len| total.checked_add(*len))?;
        Some(Self { lens: all, count: lens.len() })
    }

    /// Their lengths, in order.
    pub fn lens(&self) -> &[u32] {
        self.lens.get(..self.count).unwrap_or_default()
    }

    /// Octets of all of them.
    pub(crate) fn total(&self) -> usize {
        self.lens().iter().map(|len| *len as usize).sum()
    }

    /// The end offsets of `written` octets at the beginning of each room.
    pub(crate) fn ends<'a>(&'a self, written: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
        let mut at = 0;
        self.lens().iter().zip(written).filter_map(move |(len, written)| {
            let begin = at;
            at += *len as usize;
            (*written > 0).then_some(begin + *written as usize)
        })
    }
}

/// Completes a call message each time it is sent, when its XID is known: adds a signature that
/// covers the XID, and a number that belongs to one transmission (RFC 2203 §5.3.1, §5.3.3.1).
/// [`Cx::call_signed`](crate::Cx::call_signed) makes such calls. The caller shares it with the
/// shard, and may use its memory for another call once this one has ended.
pub trait SignCall: fmt::Debug {
    /// Completes `message`, the RPC message with its XID and without its item. A call that is sent
    /// again comes here again, with the octets that the last time left.
    ///
    /// # Errors
    /// If the message cannot be completed: the call then ends with
    /// [`CallFault::Limit`].
    fn sign(&self, message: &mut [u8]) -> Result<(), CannotSign>;
}

/// A call message cannot be completed: its signer's numbers are used up, or the message is not the
/// signer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CannotSign;

impl fmt::Display for CannotSign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call cannot be signed")
    }
}

impl std::error::Error for CannotSign {}

/// A short call: it has no argument or result that could travel in a chunk, and its longest reply
/// fits inline.
#[derive(Clone, Copy, Debug)]
pub struct ShortRequest<'a> {
    /// Program, procedure and credential; the engine chooses the XID.
    pub header: CallHeader<'a>,
    /// As [`Request::reply_max`].
    pub reply_max: usize,
    /// As [`Request::timeout`].
    pub timeout: Duration,
    /// As [`Request::token`].
    pub token: Token,
}

impl ShortRequest<'_> {
    /// Octets of the longest call message that can be made so.
    pub const LEN_MAX: usize = WRITTEN_MAX;
}

/// A DDP-eligible argument.
#[derive(Debug)]
pub struct RequestItem {
    /// Octets of the message in front of the item; its length word is the last four of them.
    pub position: usize,
    /// The item, without padding.
    pub octets: Buf,
}

/// The end of a call of ours. All keys that it offered have been invalidated.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// As in the request.
    pub token: Token,
    /// The peer that was called.
    pub peer: PeerId,
    /// The RPC reply message, without the octets that came in a Write chunk.
    pub reply: Result<&'a [u8], CallFault>,
    /// The argument's buffer. None if a call over TCP ended while part of the buffer was still
    /// being sent.
    pub item: Option<Buf>,
    /// The result's room. It holds the octets that came in the Write chunk, and is empty when the
    /// result came inline. With several [rooms](ResultRooms) each result is at the offset of its
    /// room, and the buffer ends at the last octet received.
    pub result: Option<Room>,
    /// Octets that came in each of several [rooms](ResultRooms); empty for any other call.
    pub written: &'a [u32],
}
