//! Calls of ours with one chunk of one segment: room for a result, as for an NFS READ, or an
//! argument, as of a WRITE. A fast path with the same effect as `chunked`.

use super::{FastCall, set_xid};
use crate::{
    app::{App, PeerId},
    shard::Shard,
    state::outbound::{CallChunks, OpenWindow, Outbound, Role},
    work::Work,
};
use stag_pools::{Buf, Window, table::Key};
use stag_protocol::rpcrdma::{self, Body, Position, ReadSegment, Segment, short::Layout};
use stag_verbs::{Provider, Qp, Refused};

/// The only chunk of a call.
#[derive(Clone, Copy, Debug)]
enum PlannedChunk {
    /// A Write chunk as long as the room for the result.
    Write,
    /// A Read chunk at this position.
    Read(Position),
}

impl PlannedChunk {
    /// None: the call has no chunk, or a different one.
    fn of(call: &Outbound, layout: &Layout) -> Option<Self> {
        let (message, offers) = (call.message.as_ref()?, call.offers.as_ref()?);
        match &**offers {
            CallChunks {
                item: None, position: None, result: Some(result), rooms: None, ..
            } => layout
                .needs_write_chunk(message.len(), call.reply_max, result.len())
                .then_some(Self::Write),
            CallChunks {
                item: Some(item),
                position: Some(position),
                result: None,
                rooms: None,
                ..
            } => {
                let position = Position::new(u32::try_from(*position).ok()?)?;
                layout
                    .needs_read_chunk(message.len(), item.len(), call.reply_max)
                    .then_some(Self::Read(position))
            }
            _ => None,
        }
    }

    const fn role(self) -> Role {
        match self {
            Self::Write => Role::Result,
            Self::Read(_) => Role::Item,
        }
    }
}

impl CallChunks {
    /// The buffer that a window of this role exposes.
    const fn memory(&mut self, role: Role) -> &mut Option<Buf> {
        match role {
            Role::Item => &mut self.item,
            _ => &mut self.result,
        }
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Hops 2 to 5 of a call with one chunk of one segment, over a connection whose version is
    /// negotiated. Returns false if nothing was done.
    #[inline]
    pub(super) fn send_one_chunk(&mut self, key: Key, peer: PeerId, qp: Qp) -> bool {
        let Some(mut fast) = self.core.fast_call(key, peer) else { return false };
        // RFC 8167 §5.3: no peer is required to support chunks in the reverse direction.
        if !fast.connection.calls_with_chunks() || self.provider.limits().windows == 0 {
            return false;
        }
        let Some(chunk) = PlannedChunk::of(fast.call, fast.connection.short()) else {
            return false;
        };
        let xid = fast.begin(key);
        let FastCall { call, lists, connection, ways, stats, .. } = fast;
        ways.note_short();
        let Some(segment) = open(&mut self.provider, qp, call, chunk.role()) else {
            // The connection is dying: its end recovers the call.
            return true;
        };
        match chunk {
            // RFC 8166 §3.4.6.2 [8166-23]: a Write chunk has no room for padding
            // draft 004 §3.7.1 [exp-19]: no Write chunk has room for padding
            PlannedChunk::Write => lists.set_only_write(segment),
            // RFC 8166 §3.4.4.4 [8166-15]: the padding of an item leaves the payload with it
            // RFC 8166 §3.4.5 [8166-16]: a position counts in the unreduced payload
            // RFC 8166 §3.4.5.2 [8166-18]: a Read chunk does not include padding
            // RFC 8166 §3.4.5.2 [8166-20]: a Read chunk without padding is as long as its item
            // draft 004 §3.5.1 [exp-12]: a position counts from the XID of the RPC message
            PlannedChunk::Read(position) => lists.set_only_read(ReadSegment { position, segment }),
        }
        connection.mark_call(lists);
        stats.chunks.count(lists);
        *match chunk {
            PlannedChunk::Write => &mut stats.calls.short,
            PlannedChunk::Read(_) => &mut stats.calls.chunked,
        } += 1;
        stats.versions.count(connection.sends(), connection.side().calls());
        let Some(message) = &mut call.message else { return true };
        set_xid(message, xid);
        let header_len = rpcrdma::header_len(lists);
        call.sent.header_len = header_len as u32;
        // draft 004 §3.1.1 [exp-2]: the whole header travels by Send
        let room = message.prepend(header_len).expect("a message begins behind its head room");
        let header = connection.call_header(xid, Body::Msg);
        let emitted = connection.emit(&header, lists, room);
        debug_assert_eq!(emitted, Ok(header_len), "the header fits the room made for it");
        if self.provider.send_inline(qp, message, None) {
            message.trim_front(header_len);
        } else if let Some(message) = call.message.take()
            && let Err(Refused { token, .. }) =
                self.provider.post_send(qp, Work::Call(key).tag(), message, None)
        {
            // The connection is dying: its end recovers the call.
            self.handle_call_sent(key, token);
        }
        true
    }
}

/// Binds the only window of a call, over all octets of its memory. None: the memory is stored back
/// in the call, and the connection ends.
#[inline]
fn open<P: Provider>(provider: &mut P, qp: Qp, call: &mut Outbound, role: Role) -> Option<Segment> {
    let offers = call.offers.as_mut()?;
    let buf = offers.memory(role).take()?;
    let all = 0..buf.len();
    // RFC 8166 §8.1.2 [8166-76]: memory has a handle only for the time of its call
    // RFC 5042 §6.3.5 [5042-11]: a buffer is opened only for the access it needs
    match provider.bind(qp, buf, all, role.access()) {
        Ok(Window { key, offset, len }) => {
            let [place, ..] = &mut offers.windows;
            debug_assert!(place.is_none(), "a call goes out when all its windows are fenced");
            *place = Some(OpenWindow { key, role });
            Some(Segment { handle: key.0, length: len, offset })
        }
        Err(Refused { token, .. }) => {
            *offers.memory(role) = Some(token);
            provider.disconnect(qp);
            None
        }
    }
}
