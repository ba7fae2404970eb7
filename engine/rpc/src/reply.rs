//! Replies, written in place: at once by [`Replier`], or later by [`LaterReply`].

use crate::codec::{Encoder, Octets, XdrType};
use stag_engine::{Answer, AnswerItem, Call, CallId, Cx, Extents, PeerAddress, PeerId};
use stag_pools::{Buf, Extent};
use stag_protocol::{
    rpc::{Accepted, AuthStatus, Credential, ProvenUser, ReplyHeader, Xid},
    xdr::NoRoom,
};
use std::{
    cell::{Cell, RefCell},
    fmt,
    marker::PhantomData,
    rc::Rc,
};

/// Proof that a call was answered, or will be: every procedure has to return one.
#[derive(Debug)]
#[must_use = "it is the result of the procedure"]
pub struct Replied(());

impl Replied {
    /// A reply was sent by other means than a [`Replier`].
    pub(crate) const fn said() -> Self {
        Self(())
    }
}

/// The means to reply to one call with results of type `T`.
#[derive(Debug)]
pub struct Replier<'c, 'k, T> {
    incoming: AnswerableCall<'c, 'k>,
    results: PhantomData<fn(T)>,
}

/// A call, and the means to answer it.
#[derive(Debug)]
pub(crate) struct AnswerableCall<'c, 'k> {
    pub(crate) cx: &'c mut Cx<'k>,
    pub(crate) call: Call<'c>,
    /// Receives the reply if a later answer is dropped.
    pub(crate) dropped: &'c Rc<DroppedReplies>,
    /// Set once the call is answered, or a later answer is promised.
    pub(crate) is_settled: &'c Cell<bool>,
}

impl<'c, 'k, T: XdrType> Replier<'c, 'k, T> {
    pub(crate) const fn new(incoming: AnswerableCall<'c, 'k>) -> Self {
        Self { incoming, results: PhantomData }
    }

    /// The caller.
    pub const fn peer(&self) -> PeerId {
        self.incoming.call.peer
    }

    /// The caller's address.
    pub const fn from(&self) -> PeerAddress {
        self.incoming.call.from
    }

    /// The credential that the caller claims.
    pub const fn credential(&self) -> &Credential<'c> {
        &self.incoming.call.header.credential
    }

    /// The principal that the caller's ticket proves, with the protection of the call. None of a
    /// call without RPCSEC_GSS, and of a server without contexts
    /// ([`ServerBuilder::contexts`](crate::ServerBuilder::contexts)).
    pub const fn proven(&self) -> Option<&ProvenUser<'c>> {
        match &self.incoming.call.header.credential {
            Credential::Proven(user) => Some(*user),
            Credential::None | Credential::Sys(_) | Credential::Other(_) => None,
        }
    }

    /// The octets of an argument that came in a Read chunk, to keep them without a copy. None if
    /// they came inline; then they are few enough to copy.
    pub fn share(&self, octets: Octets<'_>) -> Option<Extent> {
        self.incoming.call.pulled.share(&octets)
    }

    /// The context of the engine, for all other actions of an app.
    pub const fn cx(&mut self) -> &mut Cx<'k> {
        self.incoming.cx
    }

    /// Replies with these results.
    pub fn send(self, results: T::Of<'_>) -> Replied {
        self.write(|encoder| T::encode(&results, encoder))
    }

    /// Replies with results that `write` puts into the message, in place. If they are longer than
    /// type `T` allows, or if there is no memory for them, the caller gets SYSTEM_ERR.
    pub fn write<'v>(
        self,
        write: impl FnOnce(&mut Encoder<'_, 'v>) -> Result<(), NoRoom>,
    ) -> Replied {
        let AnswerableCall { cx, call, is_settled, .. } = self.incoming;
        let header = call.header.reply(Accepted::Success);
        if send_answer::<T>(cx, call.id, header, write).is_none() {
            cx.refuse(&call, Accepted::SystemErr);
        }
        is_settled.set(true);
        Replied(())
    }

    /// Replies that the procedure was not executed.
    pub fn refuse(self, why: Accepted) -> Replied {
        self.incoming.cx.refuse(&self.incoming.call, why);
        self.incoming.is_settled.set(true);
        Replied(())
    }

    /// Denies the call because of its caller, with AUTH_TOOWEAK for example.
    pub fn deny(self, status: AuthStatus) -> Replied {
        self.incoming.cx.deny(&self.incoming.call, status);
        self.incoming.is_settled.set(true);
        Replied(())
    }

    /// Replies later. Until the first reply of a connection its client has one credit (RFC 8166
    /// §3.3.1): calls that this reply depends on must come over another connection.
    pub fn later(self) -> (LaterReply<T>, Replied) {
        let owed = OwedReply::of(&self.incoming.call);
        let dropped = Some(Rc::clone(self.incoming.dropped));
        self.incoming.is_settled.set(true);
        (LaterReply { owed, dropped, results: PhantomData }, Replied(()))
    }
}

/// A reply that is owed. Dropping it sends SYSTEM_ERR to the caller, so that no call keeps its
/// credit for ever. It belongs to its shard, and stays on that thread.
#[must_use = "dropped, it tells the caller SYSTEM_ERR"]
pub struct LaterReply<T> {
    owed: OwedReply,
    /// Until the call is answered.
    dropped: Option<Rc<DroppedReplies>>,
    results: PhantomData<fn(T)>,
}

impl<T> fmt::Debug for LaterReply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaterReply").field("owed", &self.owed).finish_non_exhaustive()
    }
}

impl<T> LaterReply<T> {
    /// The caller.
    pub const fn peer(&self) -> PeerId {
        self.owed.peer
    }

    /// Replies that the procedure was not executed. If there is no memory for that, the caller's
    /// connection ends, because the call must not stay open.
    pub fn refuse(mut self, cx: &mut Cx<'_>, why: Accepted) {
        self.dropped = None;
        self.owed.refuse(cx, why);
    }
}

impl<T: XdrType> LaterReply<T> {
    /// Replies with these results. Does nothing if the caller is gone.
    pub fn send(self, cx: &mut Cx<'_>, results: T::Of<'_>) {
        self.write(cx, |encoder| T::encode(&results, encoder));
    }

    /// As [`Replier::write`].
    pub fn write<'v>(
        mut self,
        cx: &mut Cx<'_>,
        write: impl FnOnce(&mut Encoder<'_, 'v>) -> Result<(), NoRoom>,
    ) {
        self.dropped = None;
        let header = self.owed.header(Accepted::Success);
        if send_answer::<T>(cx, self.owed.call, header, write).is_none() {
            self.owed.refuse(cx, Accepted::SystemErr);
        }
    }
}

impl<T> Drop for LaterReply<T> {
    fn drop(&mut self) {
        if let Some(dropped) = self.dropped.take() {
            dropped.0.borrow_mut().push(self.owed);
        }
    }
}

/// A call that waits for its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwedReply {
    call: CallId,
    peer: PeerId,
    xid: Xid,
}

impl OwedReply {
    pub(crate) const fn of(call: &Call<'_>) -> Self {
        let Call { id, peer, header, .. } = call;
        Self { call: *id, peer: *peer, xid: header.xid }
    }

    const fn header(self, status: Accepted) -> ReplyHeader<'static> {
        let outcome = stag_protocol::rpc::Outcome::accepted(status);
        ReplyHeader { xid: self.xid, outcome }
    }

    pub(crate) fn refuse(self, cx: &mut Cx<'_>, why: Accepted) {
        match answer::<()>(cx, self.header(why), |_| Ok(())) {
            Some(answer) => cx.answer(self.call, answer),
            None => cx.disconnect(self.peer),
        }
    }
}

/// Later replies that a service dropped.
#[derive(Debug, Default)]
pub(crate) struct DroppedReplies(RefCell<Vec<OwedReply>>);

impl DroppedReplies {
    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Sends SYSTEM_ERR to every caller.
    pub(crate) fn refuse_all(&self, cx: &mut Cx<'_>) {
        for owed in self.0.borrow_mut().drain(..) {
            owed.refuse(cx, Accepted::SystemErr);
        }
    }
}

/// Octets of the longest results that are written directly into the send buffer.
const SHORT_MAX: usize = 512;

/// Sends a reply with results of type `T`. None if there is no memory for it, or `write` found no
/// room.
#[inline]
fn send_answer<'v, T: XdrType>(
    cx: &mut Cx<'_>,
    call: CallId,
    header: ReplyHeader<'_>,
    write: impl FnOnce(&mut Encoder<'_, 'v>) -> Result<(), NoRoom>,
) -> Option<()> {
    if T::ITEMS == 0 && T::LEN_MAX <= SHORT_MAX {
        return cx.answer_short(call, header, |to| Encoder::behind(to, write)).ok();
    }
    let answer = answer::<T>(cx, header, write)?;
    cx.answer(call, answer);
    Some(())
}

/// A reply with results of type `T`. None if there is no memory for it, or `write` found no room.
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
        Some((position, octets)) => Some(AnswerItem::new(position, extents(cx, octets)?)),
        None => None,
    };
    Some(Answer { message, item })
}

/// The octets in sendable form: the extent itself, or a copy in registered memory.
fn extents(cx: &Cx<'_>, octets: Octets<'_>) -> Option<Extents> {
    match octets.extent() {
        Some(extent) => Some(extent.clone().into()),
        None => copy(cx, &octets).map(|octets| octets.freeze().into()),
    }
}

/// A copy in registered memory. None if there is no memory.
pub(crate) fn copy(cx: &Cx<'_>, octets: &[u8]) -> Option<Buf> {
    let mut copy = cx.take(octets.len())?;
    copy.append(octets).ok()?;
    Some(copy)
}
