//! Callbacks: CB_SEQUENCE and the operation that follows it, over the connection of a session in
//! the reverse direction (RFC 8881 §2.10.6, §20; RFC 8167).

use super::{
    Nfs4, milliseconds,
    session::{BackChannel, Callback, Session},
};
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use stag_engine::{Cx, PeerId, Request as CallRequest, Time, Token};
use stag_protocol::{
    nfs::v4::{
        Array, Attribute, Bitmap, CALLBACK_VERSION, COMPOUND, CallbackAnswer, CallbackHead,
        CallbackReply, CallbackRequest, CbGetAttrArgs, CbNotifyLockArgs, CbRecallAnyArgs,
        CbRecallArgs, CbSequenceArgs, ReferringCall, ReferringCalls, SessionId, StateOwner,
        Status4, Text, state::RecallAnswer,
    },
    rpc::{Accepted, Auth, AuthSys, CallHeader, Credential, Gids, ReplyHeader, Xid},
    xdr::{Codec as _, NoRoom, Reader, Writer},
};

use crate::requester::ShardPeer;
use stag_nfs4_state::{AttributeOrder, ChangeAndSize, ClientKey, StateWork};

/// Notices that wait for a slot at most; a host leaves places to others. Beyond that, they are
/// dropped and counted: the client retries its lock by itself. Other callbacks are never dropped:
/// there is one recall for each delegation, and one CB_GETATTR for each compound that waits.
const NOTICES_MAX: usize = 4_096;
/// Queued callbacks that one pass tries to send; the rest follow in the next passes.
const TRIES: usize = 64;
/// Octets of the longest callback: a notice names an owner of up to 1,024.
const MESSAGE_LEN: usize = 2_048;
/// Octets of the longest reply.
const REPLY_MAX: usize = 512;
/// Time limit for a reply; after it the connection is closed.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time after which a callback is resent that the client deferred.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

impl Callback {
    const fn client(&self) -> ClientKey {
        match self {
            Self::NotifyLock(notice) => notice.client,
            Self::GetAttr(order, _) => order.client,
            Self::Recall(order) => order.client,
            Self::RecallAny { client, .. } => *client,
        }
    }
}

/// Callbacks waiting for a slot, and outstanding ones.
#[derive(Debug, Default)]
pub(super) struct Callbacks {
    queue: VecDeque<(Callback, Option<u64>)>,
    /// Notices in the queue.
    notices: usize,
    /// The same, by host.
    notices_of: HashMap<u64, usize>,
    /// Notices that found no place in the queue.
    pub(super) dropped: u64,
    /// Callbacks sent, retries included.
    pub(super) sent: u64,
    /// Outcomes other than a reply that accepted the callback.
    pub(super) failed: u64,
    /// CB_GETATTRs so far.
    attribute_calls: u64,
    /// The earliest time at which a callback in a slot is to be resent.
    again_at: Option<Time>,
}

impl Callbacks {
    /// Puts a callback into the queue, for a client of this host. Returns false if it is a notice
    /// that finds no place.
    fn add(&mut self, callback: Callback, host: Option<u64>) -> bool {
        if matches!(callback, Callback::NotifyLock(_)) {
            let of_host = host.and_then(|host| self.notices_of.get(&host)).copied();
            if of_host.unwrap_or(0) >= NOTICES_MAX.saturating_sub(self.notices) {
                self.dropped += 1;
                return false;
            }
            self.notices += 1;
            if let Some(host) = host {
                *self.notices_of.entry(host).or_default() += 1;
            }
        }
        self.queue.push_back((callback, host));
        true
    }

    /// The callback that has waited longest.
    fn next(&mut self) -> Option<Callback> {
        let (callback, host) = self.queue.pop_front()?;
        if matches!(callback, Callback::NotifyLock(_)) {
            self.notices -= 1;
            if let Some(host) = host
                && let Some(count) = self.notices_of.get_mut(&host)
            {
                *count -= 1;
                if *count == 0 {
                    self.notices_of.remove(&host);
                }
            }
        }
        Some(callback)
    }

    /// Schedules the next look through the slots for that time, or an earlier one already set.
    fn wake_at(&mut self, at: Option<Time>) {
        self.again_at = self.again_at.into_iter().chain(at).min();
    }
}

impl Nfs4 {
    /// Returns true while callbacks wait for a slot, or for time.
    pub(crate) fn has_work(&self) -> bool {
        let is_calling = !self.callbacks.queue.is_empty() || self.callbacks.again_at.is_some();
        is_calling
            || self.has_messages()
            || self.suspended.await_recalls()
            || self.suspended.turns() > 0
            || !self.leaving.is_empty()
            || self.state.has_ranges_to_go()
            || self.recovery.has_work()
            || self.state.awaited_reclaims().is_some()
    }

    /// Does the work that the tables of state ask for, and sends callbacks. Called once in a pass.
    pub(crate) fn call_back(&mut self, cx: &mut Cx<'_>) {
        self.tend_records(cx);
        self.release_leaving();
        self.state.sweep_ranges();
        while let Some(work) = self.state.poll_work() {
            self.take_work(work, cx.now());
        }
        // All sessions are searched when one is due, not in every pass until then.
        if self.callbacks.again_at.is_some_and(|at| at <= cx.now()) {
            self.send_again(cx);
        }
        for _ in 0..self.callbacks.queue.len().min(TRIES) {
            let Some(callback) = self.callbacks.next() else { return };
            if let Err(callback) = self.send_new(cx, callback) {
                self.queue(callback);
            }
        }
    }

    fn take_work(&mut self, work: StateWork, now: Time) {
        match work {
            StateWork::NotifyLock(notice) => self.queue(Callback::NotifyLock(notice)),
            StateWork::Recall(order) => self.queue(Callback::Recall(order)),
            StateWork::RecallAny { client, keep } => {
                self.queue(Callback::RecallAny { client, keep });
            }
            StateWork::Revoke(state) => self.revoke_recorded(state, now),
            StateWork::GoOn(_) => self.suspended.note_return(),
            StateWork::Expired(key) => drop(self.remove_expired(key, now)),
            StateWork::Stateless(key) | StateWork::Silent(key) => self.forget_record(key, now),
            StateWork::Returned(key) => {
                if let Some(id) = self.state.client_id(key) {
                    self.record_client(id, now);
                }
            }
            StateWork::EndGrace => self.end_grace(now),
        }
    }

    /// Asks the holder of a write delegation for change attribute and size. Returns the number of
    /// the call.
    pub(super) fn ask_holder(&mut self, order: AttributeOrder) -> u64 {
        self.callbacks.attribute_calls += 1;
        let number = self.callbacks.attribute_calls;
        self.queue(Callback::GetAttr(order, number));
        number
    }

    fn queue(&mut self, callback: Callback) {
        let client = callback.client();
        if self.state.client_id(client).is_some() {
            self.callbacks.add(callback, self.state.host_of(client));
        }
    }

    /// Sends a callback over a session of its client. Returns it if no session has a connection and
    /// a slot.
    fn send_new(&mut self, cx: &mut Cx<'_>, callback: Callback) -> Result<(), Callback> {
        let Some(id) = self.state.client_id(callback.client()) else { return Ok(()) };
        if let Callback::GetAttr(_, number) = callback
            && !self.suspended.await_attributes(number)
        {
            return Ok(()); // Whoever asked has been told something else.
        }
        let has_room =
            |session: &&Session| session.callbacks.as_ref().is_some_and(BackChannel::has_room);
        let found = self.sessions.of(id).find(has_room).map(Session::id);
        let back = found.and_then(|id| self.sessions.get_mut(&id)?.callbacks.as_mut());
        let (Some(session), Some(back)) = (found, back) else {
            // A notice that no session can take at present is of no use later.
            let is_notice = matches!(callback, Callback::NotifyLock(_));
            return if is_notice { Ok(()) } else { Err(callback) };
        };
        let (slot, sequence) = back.begin(callback)?;
        self.send(cx, &session, slot, sequence);
        Ok(())
    }

    /// Resends callbacks that are due.
    fn send_again(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now();
        let mut due = Vec::new();
        self.callbacks.again_at = None;
        for session in self.sessions.iter_mut() {
            let id = session.id();
            let Some(back) = &mut session.callbacks else { continue };
            while back.peer.is_some()
                && let Some((slot, sequence)) = back.due(now)
            {
                due.push((id, slot, sequence));
            }
            // Without a connection they wait for the next one.
            let again_at = back.again_at().filter(|_| back.peer.is_some());
            self.callbacks.wake_at(again_at);
        }
        for (session, slot, sequence) in due {
            self.send(cx, &session, slot, sequence);
        }
    }

    /// Sends the callback in a slot.
    fn send(&mut self, cx: &mut Cx<'_>, session: &SessionId, slot: u32, sequence: u32) {
        let now = cx.now();
        let Some(open) = self.sessions.get(session) else { return };
        let minor_version = open.minor_version;
        let Some(back) = &open.callbacks else { return };
        let (Some(peer), Some(callback)) = (back.peer, back.callback(slot)) else { return };
        let arguments = CallArguments { session, slot, sequence, minor_version, callback };
        let Some(message) = arguments.message(cx, back.program, back.user) else {
            return self.put_off(session, slot, now + AGAIN_AFTER);
        };
        if let Callback::Recall(order) = callback {
            self.state.handle_recall_sent(order.state, milliseconds(now));
        }
        self.callbacks.sent += 1;
        let token = token(session, slot);
        // RFC 8267 §6.5.2 [8267-16]: nothing of a callback needs a chunk
        self.call(cx, peer, message, token);
    }

    /// A call in the reverse direction has ended; without a reply, its outcome is unknown.
    pub(crate) fn handle_reply(
        &mut self,
        now: Time,
        peer: ShardPeer,
        token: Token,
        reply: Option<&[u8]>,
    ) {
        let (number, slot) = place_of(token);
        let Some(session) = self.sessions.at(number).map(super::session::Session::id) else {
            return;
        };
        match reply.and_then(judge) {
            Some(CallbackEnd::Executed(status, told)) => {
                self.finish(&session, slot, status, told);
            }
            Some(CallbackEnd::Again) => self.put_off(&session, slot, now + AGAIN_AFTER),
            // It may have been executed: it is resent over the next connection that is bound.
            Some(CallbackEnd::Lost) | None => {
                self.callbacks.failed += 1;
                self.lose(&session, peer);
                self.put_off(&session, slot, now);
            }
        }
    }

    /// A connection no longer carries the callbacks of a session.
    fn lose(&mut self, session: &SessionId, peer: ShardPeer) {
        if let Some(session) = self.sessions.get_mut(session)
            && let Some(back) = &mut session.callbacks
        {
            back.peer.take_if(|bound| *bound == peer);
        }
    }

    fn put_off(&mut self, session: &SessionId, slot: u32, until: Time) {
        if let Some(session) = self.sessions.get_mut(session)
            && let Some(back) = &mut session.callbacks
        {
            back.put_off(slot, until);
            self.callbacks.wake_at(Some(until));
        }
    }

    /// A connection was bound: callbacks that wait for one are sent.
    pub(super) fn resume_callbacks(&mut self) {
        self.callbacks.wake_at(Some(Time(0)));
    }

    /// Removes a callback that was executed.
    fn finish(
        &mut self,
        session: &SessionId,
        slot: u32,
        status: Status4,
        told: Option<ChangeAndSize>,
    ) {
        let Some(session) = self.sessions.get_mut(session) else { return };
        let Some(callback) = session.callbacks.as_mut().and_then(|back| back.finish(slot)) else {
            return;
        };
        self.callbacks.failed += u64::from(status != Status4::Ok);
        let order = match callback {
            Callback::Recall(order) => order,
            Callback::GetAttr(_, number) => return self.suspended.tell_attributes(number, told),
            Callback::NotifyLock(_) | Callback::RecallAny { .. } => return,
        };
        let answer = match status {
            Status4::Ok => RecallAnswer::Accepted,
            Status4::BadHandle | Status4::BadStateid => RecallAnswer::Unknown,
            _ => RecallAnswer::Failed,
        };
        if self.state.handle_recall_answer(order.state, answer) {
            self.queue(Callback::Recall(order));
        }
    }

    /// Keeps the callbacks of a session that ends for the next session of its client.
    pub(super) fn keep_callbacks(&mut self, back: Option<super::session::BackChannel>) {
        for callback in back.into_iter().flat_map(|mut back| back.drain().collect::<Vec<_>>()) {
            self.queue(callback);
        }
    }
}

/// Sends a callback, given its message, over a connection of this shard.
pub(crate) fn call_over(cx: &mut Cx<'_>, peer: PeerId, message: stag_pools::Buf, token: Token) {
    let (item, result, reply_max, timeout) = (None, None, REPLY_MAX, TIMEOUT);
    cx.call(peer, CallRequest { message, item, reply_max, result, timeout, token });
}

/// A number for the call in a slot. If its session has ended, the number matches no slot, or one
/// that awaits no reply.
fn token(session: &SessionId, slot: u32) -> Token {
    let [.., a, b, c, d] = *session;
    Token(u64::from(u32::from_be_bytes([a, b, c, d])) << 32 | u64::from(slot))
}

const fn place_of(token: Token) -> (u16, u32) {
    ((token.0 >> 32) as u16, token.0 as u32)
}

/// Outcome of a callback.
enum CallbackEnd {
    /// It was executed, with this status. CB_GETATTR returns the holder's values.
    Executed(Status4, Option<ChangeAndSize>),
    /// It has to be resent, in the same slot.
    Again,
    /// The session or the connection accepts none.
    Lost,
}

/// Interprets the reply to a callback.
fn judge(reply: &[u8]) -> Option<CallbackEnd> {
    let mut reader = Reader::new(reply);
    let header = ReplyHeader::parse(&mut reader).ok()?;
    if header.outcome != stag_protocol::rpc::Outcome::accepted(Accepted::Success) {
        return Some(CallbackEnd::Lost);
    }
    let mut results = CallbackReply::parse(reader).ok()?;
    match results.next()?.ok()? {
        CallbackAnswer::Sequence(Ok(_)) => {}
        CallbackAnswer::Sequence(Err(Status4::Delay)) => return Some(CallbackEnd::Again),
        CallbackAnswer::Sequence(Err(_)) => return Some(CallbackEnd::Lost),
        _ => return None,
    }
    use stag_protocol::nfs::v4::AnswerSet as _;
    let result = results.next()?.ok()?;
    match result.status() {
        // It was executed, and its reply was lost.
        Status4::RetryUncachedRep => Some(CallbackEnd::Executed(Status4::Ok, None)),
        status => Some(CallbackEnd::Executed(status, change_and_size(&result))),
    }
}

/// The attributes in a CB_GETATTR reply, if both of them are there.
fn change_and_size(result: &CallbackAnswer<'_>) -> Option<ChangeAndSize> {
    let CallbackAnswer::GetAttr(Ok(attributes)) = result else { return None };
    let values = attributes.values().ok()?;
    Some(ChangeAndSize { change: values.change?, size: values.size? })
}

/// Arguments of CB_COMPOUND.
struct CallArguments<'a> {
    session: &'a SessionId,
    slot: u32,
    sequence: u32,
    minor_version: u32,
    callback: &'a Callback,
}

impl CallArguments<'_> {
    fn message(
        &self,
        cx: &Cx<'_>,
        program: u32,
        user: Option<(u32, u32)>,
    ) -> Option<stag_pools::Buf> {
        let gids = Gids::new(&[])?;
        let credential = match user {
            Some((uid, gid)) => {
                Credential::Sys(AuthSys { stamp: 0, machine_name: b"stag", uid, gid, gids })
            }
            None => Credential::None,
        };
        let header = CallHeader {
            xid: Xid(0),
            program,
            version: CALLBACK_VERSION,
            procedure: COMPOUND,
            credential,
            verifier: Auth::NONE,
        };
        let mut message = cx.message(MESSAGE_LEN)?;
        let mut writer = Writer::new(message.spare_mut());
        header.emit(&mut writer).and_then(|()| self.emit(&mut writer)).ok()?;
        let len = writer.len();
        message.extend(len);
        Some(message)
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let minor_version = self.minor_version;
        let head = CallbackHead { tag: Text(b""), minor_version, ident: 0, operations: 2 };
        head.emit(writer)?;
        let call = match self.callback {
            Callback::Recall(order) => order.referring,
            Callback::GetAttr(..) | Callback::NotifyLock(_) | Callback::RecallAny { .. } => None,
        };
        let calls = call.map(|call| [ReferringCall { sequence: call.sequence, slot: call.slot }]);
        let lists = match (&call, &calls) {
            (Some(call), Some(calls)) => {
                Some([ReferringCalls { session: call.session, calls: Array::of(calls) }])
            }
            _ => None,
        };
        let referring = lists.as_ref().map_or(Array::of(&[]), |lists| Array::of(lists));
        let sequence = CbSequenceArgs {
            session: *self.session,
            sequence: self.sequence,
            slot: self.slot,
            highest_slot: self.slot,
            cache_this: false,
            referring,
        };
        CallbackRequest::Sequence(sequence).emit(writer)?;
        self.operation().emit(writer)
    }

    fn operation(&self) -> CallbackRequest<'_> {
        match self.callback {
            Callback::NotifyLock(notice) => CallbackRequest::NotifyLock(CbNotifyLockArgs {
                file: Text(&notice.handle),
                owner: StateOwner { client_id: 0, owner: Text(&notice.owner) },
            }),
            Callback::GetAttr(order, _) => CallbackRequest::GetAttr(CbGetAttrArgs {
                file: Text(&order.handle),
                attributes: Bitmap::of([Attribute::Change as u32, Attribute::Size as u32]),
            }),
            Callback::Recall(order) => CallbackRequest::Recall(CbRecallArgs {
                delegation: order.stateid,
                truncate: false,
                file: Text(&order.handle),
            }),
            Callback::RecallAny { keep, .. } => CallbackRequest::RecallAny(CbRecallAnyArgs {
                keep: *keep,
                // Delegations for reading and for writing (RFC 8881 §20.6.1).
                types: Bitmap::of([0, 1]),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_nfs4_state::{LockNotice, StateLimits, StateTables};

    fn some_client() -> ClientKey {
        let limits = StateLimits::default();
        StateTables::new(0, 1, 0, limits).add_client(1, false, 0).unwrap()
    }

    fn notice(client: ClientKey) -> Callback {
        Callback::NotifyLock(LockNotice { client, handle: Box::default(), owner: Box::default() })
    }

    #[test]
    fn a_host_leaves_places_of_notices_to_others_and_displaces_no_recall() {
        let (mut callbacks, client) = (Callbacks::default(), some_client());
        let taken = |callbacks: &mut Callbacks, host| {
            (0..2 * NOTICES_MAX).filter(|_| callbacks.add(notice(client), Some(host))).count()
        };
        assert_eq!(taken(&mut callbacks, 1), NOTICES_MAX / 2);
        assert_eq!(taken(&mut callbacks, 2), NOTICES_MAX / 4);
        assert_eq!(callbacks.dropped as usize, 4 * NOTICES_MAX - NOTICES_MAX / 4 * 3);
        for _ in 0..NOTICES_MAX {
            assert!(callbacks.add(Callback::RecallAny { client, keep: 0 }, Some(1)));
        }
        while callbacks.next().is_some() {}
        assert_eq!((callbacks.notices, callbacks.notices_of.len()), (0, 0));
        assert!(callbacks.add(notice(client), Some(1)));
    }
}
