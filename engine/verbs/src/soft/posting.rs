//! Validation of work requests, the same for all providers with queues. The order of the checks:
//! contradictions, the connection's state, room, the peer.

use super::{Op, Read, fits};
use crate::{Provider, Qp, Refusal, Refused, RemoteSpan, Tag};
use stag_pools::{Buf, Extent, RemoteKey};

/// An established connection, for one work request.
pub trait Postable {
    /// Work requests that its queue still accepts.
    fn room(&self) -> usize;

    /// Returns false if its peer serves no Reads: one would never complete.
    fn may_read(&self) -> bool {
        true
    }

    /// Begins the local invalidation of `key`. Returns false if that is not a bound window of this
    /// connection, or its invalidation was already posted.
    fn begin_invalidation(&mut self, key: RemoteKey) -> bool;

    /// Queues `op`; a Read reads the spans `from`. There is room.
    fn enqueue(self, tag: Tag, op: Op, from: &[RemoteSpan]);
}

/// A provider whose work requests wait in queues until the doorbell rings.
pub trait Posting: Provider {
    /// A connection with the parts of the provider that posting needs.
    type Postable<'a>: Postable
    where
        Self: 'a;

    /// An established connection.
    ///
    /// # Errors
    /// [`Refusal::Gone`] or [`Refusal::NotEstablished`].
    fn established(&mut self, qp: Qp) -> Result<Self::Postable<'_>, Refusal>;

    /// An established connection that takes one more work request.
    ///
    /// # Errors
    /// As [`established`](Self::established), and [`Refusal::SendQueueFull`].
    #[inline]
    fn with_room(&mut self, qp: Qp) -> Result<Self::Postable<'_>, Refusal> {
        let connection = self.established(qp)?;
        if connection.room() == 0 { Err(Refusal::SendQueueFull) } else { Ok(connection) }
    }

    /// Queues `token` as `op`.
    ///
    /// # Errors
    /// The token is returned if there is no room.
    #[inline]
    fn enqueue<T>(
        &mut self,
        qp: Qp,
        tag: Tag,
        token: T,
        op: impl FnOnce(T) -> Op,
    ) -> Result<(), Refused<T>> {
        match self.with_room(qp) {
            Ok(connection) => {
                connection.enqueue(tag, op(token), &[]);
                Ok(())
            }
            Err(why) => Err(Refused { why, token }),
        }
    }

    /// Does [`Provider::post_send`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    fn enqueue_send(
        &mut self,
        qp: Qp,
        tag: Tag,
        message: Buf,
        invalidate: Option<RemoteKey>,
    ) -> Result<(), Refused<Buf>> {
        self.enqueue(qp, tag, message, |message| Op::Send { message, invalidate })
    }

    /// Does [`Provider::post_write`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    fn enqueue_write(
        &mut self,
        qp: Qp,
        tag: Tag,
        source: Extent,
        to: RemoteSpan,
    ) -> Result<(), Refused<Extent>> {
        if source.len() != to.len as usize {
            return Err(Refused { why: Refusal::Malformed, token: source });
        }
        self.enqueue(qp, tag, source, |source| Op::Write { source, to })
    }

    /// Does [`Provider::post_read`].
    ///
    /// # Errors
    /// As there.
    fn enqueue_read(
        &mut self,
        qp: Qp,
        tag: Tag,
        sink: Buf,
        at: usize,
        from: &[RemoteSpan],
    ) -> Result<(), Refused<Buf>> {
        if !fits(&sink, at, from) || from.len() > self.limits().read_spans {
            return Err(Refused { why: Refusal::Malformed, token: sink });
        }
        match self.with_room(qp) {
            Ok(connection) if connection.may_read() => {
                let (unasked, unanswered) = (from.len(), from.len());
                let read = Read { sink, ask_at: at, fill_at: at, unasked, unanswered };
                connection.enqueue(tag, Op::Read(read), from);
                Ok(())
            }
            Ok(_) => Err(Refused { why: Refusal::Malformed, token: sink }),
            Err(why) => Err(Refused { why, token: sink }),
        }
    }

    /// Does [`Provider::post_local_invalidate`].
    ///
    /// # Errors
    /// As there.
    fn enqueue_invalidation(&mut self, qp: Qp, tag: Tag, key: RemoteKey) -> Result<(), Refusal> {
        let mut connection = self.with_room(qp)?;
        if !connection.begin_invalidation(key) {
            return Err(Refusal::NoSuchKey);
        }
        connection.enqueue(tag, Op::Invalidate { key }, &[]);
        Ok(())
    }
}
