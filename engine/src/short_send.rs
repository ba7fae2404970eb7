//! Sends of short messages, calls and replies: no chunks, a header of a few words.

use stag_pools::Buf;
use stag_protocol::rpcrdma::{Connection, MessageType, Xid, short};
use stag_verbs::{Provider, Qp};

/// The header fields of a short message, and its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortSend {
    pub(crate) qp: Qp,
    pub(crate) message_type: MessageType,
    pub(crate) xid: Xid,
}

/// Sends `message` after a short header, if its connection has short messages and the fabric
/// accepts a copy at once. A call is left unchanged, because it may be sent again; so is a reply
/// that was not sent.
// The length of the header is a constant in both paths, which saves thirty instructions for each
// message.
#[inline(always)]
pub(crate) fn send_short<P: Provider>(
    provider: &mut P,
    connection: &Connection,
    send: ShortSend,
    message: &mut Buf,
) -> bool {
    if connection.short().header_len() == short::HEADER_LEN {
        send_behind::<P, { short::HEADER_LEN }>(provider, connection, send, message)
    } else {
        send_directed(provider, connection, send, message)
    }
}

/// The same, after a header that includes the direction of its message.
#[inline(never)]
fn send_directed<P: Provider>(
    provider: &mut P,
    connection: &Connection,
    send: ShortSend,
    message: &mut Buf,
) -> bool {
    send_behind::<P, { short::DIRECTED_LEN }>(provider, connection, send, message)
}

#[inline(always)]
fn send_behind<P: Provider, const LEN: usize>(
    provider: &mut P,
    connection: &Connection,
    send: ShortSend,
    message: &mut Buf,
) -> bool {
    let ShortSend { qp, message_type, xid } = send;
    // draft 004 §3.1.1 [exp-2]: the whole header travels by Send
    let room = message.prepend(LEN).expect("a message begins behind its head room");
    let room = room.first_chunk_mut::<LEN>().expect("it has this length");
    let sent =
        connection.emit_short(message_type, xid, room) && provider.send_inline(qp, message, None);
    if !sent || message_type == MessageType::Call {
        message.trim_front(LEN);
    }
    sent
}

/// Octets in front of a message that is written directly into the send buffer: the longest short
/// header.
pub(crate) const SHORT_ROOM: usize = short::DIRECTED_LEN;
/// Octets of the longest message that is written so: a call of a UNIX user with a few groups, with
/// a handle and a name, fits.
pub(crate) const WRITTEN_MAX: usize = 476;

/// The fabric, for messages that are sent as soon as an app has written them.
pub(crate) trait SendsShort {
    /// Sends a copy of `message`, as [`Provider::send_inline`] does.
    fn send(&mut self, qp: Qp, message: &[u8]) -> bool;
}

impl<P: Provider> SendsShort for P {
    #[inline]
    fn send(&mut self, qp: Qp, message: &[u8]) -> bool {
        self.send_inline(qp, message, None)
    }
}

/// Sends the message after the first [`SHORT_ROOM`] of `octets`, with a short header in front, if
/// its connection has short messages and the fabric accepts a copy at once.
#[inline(always)]
pub(crate) fn send_written<S: SendsShort + ?Sized>(
    fabric: &mut S,
    connection: &Connection,
    send: ShortSend,
    octets: &mut [u8],
) -> bool {
    let is_sent = if connection.short().header_len() == short::HEADER_LEN {
        written_behind::<S, { short::HEADER_LEN }>(fabric, connection, send, octets)
    } else {
        written_behind::<S, { short::DIRECTED_LEN }>(fabric, connection, send, octets)
    };
    is_sent.unwrap_or(false)
}

#[inline(always)]
fn written_behind<S: SendsShort + ?Sized, const LEN: usize>(
    fabric: &mut S,
    connection: &Connection,
    send: ShortSend,
    octets: &mut [u8],
) -> Option<bool> {
    let ShortSend { qp, message_type, xid } = send;
    let message = octets.get_mut(SHORT_ROOM - LEN..)?;
    let header = message.first_chunk_mut::<LEN>()?;
    // draft 004 §3.1.1 [exp-2]: the whole header travels by Send
    Some(connection.emit_short(message_type, xid, header) && fabric.send(qp, message))
}
