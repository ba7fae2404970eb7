//! Replies, written in place: at once by [`Replier`], or later by [`LaterReply`].

use crate::codec::{Encoder, Octets, XdrType};
use stag_engine::{Answer, AnswerItem, Call, CallId, Cx, Extents, PeerAddress, PeerId};
use stag_pools::{Buf, Extent};
use stag_protocol::{
    rpc::{Accepted, Credential, ReplyHeader, Xid},
    xdr::NoRoom,
};
use std::marker::PhantomData;

/// Says that a call was answered, or will be: every way out of a procedure leads by one.
#[derive(Debug)]
#[must_use = "it is the result of the procedure"]
pub struct Replied(());

/// The means to reply to one call with results of type `T`.
#[derive(Debug)]
pub struct Replier<'c, 'k, T> {
    cx: &'c mut Cx<'k>,
    call: Call<'c>,
    results: PhantomData<fn(T)>,
}

impl<'c, 'k, T: XdrType> Replier<'c, 'k, T> {
    pub(crate) const fn new(cx: &'c mut Cx<'k>, call: Call<'c>) -> Self {
        Self { cx, call, results: PhantomData }
    }

    /// The caller.
    pub const fn peer(&self) -> PeerId {
        self.call.peer
    }

    /// The caller's address.
    pub const fn from(&self) -> PeerAddress {
        self.call.from
    }

    /// The user that the caller says it acts for.
    pub const fn credential(&self) -> &Credential<'c> {
        &self.call.header.credential
    }

    /// The octets of an argument that came in a Read chunk, to keep them without a copy. None when
    /// they came with the message, and then a copy is short.
    pub fn share(&self, octets: Octets<'_>) -> Option<Extent> {
        self.call.pulled.share(&octets)
    }

    /// The context of the engine, for all else that an app can do.
    pub const fn cx(&mut self) -> &mut Cx<'k> {
        self.cx
    }

    /// Replies with these results.
    pub fn send(self, results: T::Of<'_>) -> Replied {
        self.write(|encoder| T::encode(&results, encoder))
    }

    /// Replies with results that `write` puts into the message, in place. When they are longer than
    /// type `T` allows, and when there is no memory for them, the caller is told SYSTEM_ERR.
    pub fn write<'v>(self, write: impl FnOnce(&mut Encoder<'_, 'v>) -> Result<(), NoRoom>) -> Replied {
        match answer::<T>(self.cx, self.call.header.reply(Accepted::Success), write) {
            Some(answer) => self.cx.answer(self.call.id, answer),
            None => self.cx.refuse(&self.call, Accepted::SystemErr),
        }
        Replied(())
    }

    /// Replies that the procedure was not carried out.
    pub fn refuse(self, why: Accepted) -> Replied {
        self.cx.refuse(&self.call, why);
        Replied(())
    }

    /// Replies later. A call that is never answered keeps its credit, and until a connection's
    /// first reply its client has one (RFC 8166 §3.3.1): what that reply waits for comes over
    /// another connection.
    pub fn later(self) -> (LaterReply<T>, Replied) {
        let Call { id, peer, header, .. } = &self.call;
        (LaterReply { call: *id, peer: *peer, xid: header.xid, results: PhantomData }, Replied(()))
    }
}

/// A reply that is owed.
#[derive(Debug)]
#[must_use = "the caller waits for it"]
pub struct LaterReply<T> {
    call: CallId,
    peer: PeerId,
    xid: Xid,
    results: PhantomData<fn(T)>,
}

impl<T: XdrType> LaterReply<T> {
    /// The caller.
    pub const fn peer(&self) -> PeerId {
        self.peer
    }

    /// Replies with these results. When the caller is gone meanwhile, nothing happens.
    pub fn send(self, cx: &mut Cx<'_>, results: T::Of<'_>) {
        self.write(cx, |encoder| T::encode(&results, encoder));
    }

    /// As [`Replier::write`].
    pub fn write<'v>(self, cx: &mut Cx<'_>, write: impl FnOnce(&mut Encoder<'_, 'v>) -> Result<(), NoRoom>) {
        match answer::<T>(cx, self.header(Accepted::Success), write) {
            Some(answer) => cx.answer(self.call, answer),
            None => self.refuse(cx, Accepted::SystemErr),
        }
    }

    /// Replies that the procedure was not carried out. Without memory for that the caller's
    /// connection ends: the call must not stay open.
    pub fn refuse(self, cx: &mut Cx<'_>, why: Accepted) {
        match answer::<()>(cx, self.header(why), |_| Ok(())) {
            Some(answer) => cx.answer(self.call, answer),
            None => cx.disconnect(self.peer),
        }
    }

    const fn header(&self, status: Accepted) -> ReplyHeader<'static> {
        let outcome = stag_protocol::rpc::Outcome::accepted(status);
        ReplyHeader { xid: self.xid, outcome }
    }
}

/// A reply with results of type `T`. None when there is no memory for it, or `write` found no room.
fn answer<'v, T: XdrType>(
    cx: &Cx<'_>,
    header: ReplyHeader<'_>,
    write: impl FnOnce(&mut Encoder<'_, 'v>) -> Result<(), NoRoom>,
) -> Option<Answer> {
    const { assert!(T::ITEMS <= 1, "a reply has one item that may travel in a chunk") };
    let mut message = cx.message(ReplyHeader::REFUSAL_LEN_MAX + T::LEN_MAX)?;
    let mut encoder = Encoder::new(message.spare_mut());
    header.emit(encoder.writer()).ok()?;
    write(&mut encoder).ok()?;
    let (len, item) = encoder.finish();
    message.extend(len);
    let item = match item {
        Some((position, octets)) => Some(AnswerItem { position, octets: extents(cx, octets)? }),
        None => None,
    };
    Some(Answer { message, item })
}

/// The octets as they are sent: where they lie, or a copy in memory that the fabric knows.
fn extents(cx: &Cx<'_>, octets: Octets<'_>) -> Option<Extents> {
    match octets.extent() {
        Some(extent) => Some(extent.clone().into()),
        None => copy(cx, &octets).map(|octets| octets.freeze().into()),
    }
}

/// A copy in memory that the fabric knows. None when there is none.
pub(crate) fn copy(cx: &Cx<'_>, octets: &[u8]) -> Option<Buf> {
    let mut copy = cx.take(octets.len())?;
    copy.append(octets).ok()?;
    Some(copy)
}
