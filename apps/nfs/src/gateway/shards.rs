//! Version 4 on several shards: one, the home, has all clients. The others execute compounds that
//! look at objects in sessions that it has lent them, and forward all others.

use stag_engine::{Answer, Call, Cx, Outcome, PeerId, PeerSecurity, Pulled, tls::Secured};
use stag_protocol::{
    nfs::{
        v3::{self, Procedure, Status},
        v4::{Compound, OperationFault, Status4},
    },
    rpc::{CallHeader, ReplyHeader, Xid},
    xdr::Reader,
};

use super::{
    CallTarget, Gateway, NoMessage,
    dispatch::{ServedVersions, route},
};
use crate::{
    Nfs4Link, Nfs4Report, SessionState,
    reply::ReplyWriter,
    reply_cache::CopiedCall,
    requester::{CallSource, OWN, Requester, ShardPeer},
    v4::{
        ArrivalEnd, AwaitedVerdict, CallFacts, CompoundCall, ConflictQuery, ForwardedCompound,
        FromHome, Nfs4, Placement, ShardContext, ToHome, WaitResult, call_over,
    },
};
use stag_nfs_store::{Caller, Procedures as _, Store};

impl<S: Store> Gateway<S> {
    /// Joins the shards that serve version 4 together. The home must already have version 4
    /// ([`with_nfs4`](Self::with_nfs4)). So must other shards that execute compounds themselves,
    /// with the same configuration and the same handles for the same objects. A shard without
    /// version 4 forwards all compounds.
    #[must_use]
    pub fn with_link(mut self, link: Nfs4Link) -> Self {
        match (link.into_end(), &mut self.nfs4) {
            (Ok(end), Some(nfs4)) => nfs4.link(end),
            (Err(mut end), nfs4) => {
                if let Some(nfs4) = nfs4 {
                    nfs4.borrow_from(&mut end);
                }
                self.arrival = Some(Box::new(end));
                self.serves_4 = true;
            }
            (Ok(_), None) => debug_assert!(false, "the first shard serves version 4"),
        }
        self
    }

    /// Notes the names in the certificate of a connection, here and at the home.
    pub(super) fn note_security(&mut self, peer: PeerId, security: &PeerSecurity) {
        let PeerSecurity::Secured(Secured { names: Some(names), .. }) = *security else { return };
        if let Some(nfs4) = &mut self.nfs4 {
            nfs4.note_certificate(ShardPeer::own(peer), names);
        }
        if let Some(arrival) = &mut self.arrival {
            arrival.tell_certificate(peer, names);
        }
    }

    /// The counters of version 4.
    pub(super) fn report_nfs4(&self) -> Nfs4Report {
        let here = self.nfs4.as_ref().map(|nfs4| nfs4.report()).unwrap_or_default();
        match &self.arrival {
            Some(arrival) => {
                Nfs4Report { forwarded: arrival.count, asked_home: arrival.asked, ..here }
            }
            None => here,
        }
    }

    /// The sessions of version 4, with the connections of all shards; none except at the home.
    pub(super) fn session_states(&self) -> Vec<SessionState> {
        let home = self.nfs4.as_ref().filter(|_| self.arrival.is_none());
        home.map(|nfs4| nfs4.session_states()).unwrap_or_default()
    }

    /// Executes a compound on a shard that is not the home. It runs here if the session is lent to
    /// this shard and the compound neither changes state nor needs state that was not shared.
    /// Otherwise it is forwarded.
    pub(super) fn compound_beside_home(
        &mut self,
        cx: &mut Cx<'_>,
        call: CompoundCall<'_>,
    ) -> Result<Answer, NoMessage> {
        let Some(arrival) = &mut self.arrival else { return Err(NoMessage::Dropped) };
        let CompoundCall { source, facts, caller, .. } = call;
        let arguments = call.arguments.clone();
        let Ok(compound) = Compound::parse(arguments.clone()) else {
            return self.refuse(cx, source.id, facts.garbage());
        };
        let has_room = arrival.has_room(arguments.remaining(), source.from);
        let shard_context = self
            .nfs4
            .as_mut()
            .and_then(|nfs4| nfs4.reach_of(&self.store, source, compound.clone(), has_room));
        let Some(shard_context) = shard_context else {
            return match has_room && arrival.forward(source, caller, facts, &arguments, None) {
                true => Err(NoMessage::Waits),
                false => delay(cx, facts.xid, compound).ok_or(NoMessage::Dropped),
            };
        };
        let mut is_behind_io = false;
        if shard_context.placement == Placement::Begin || shard_context.facts.home.is_some() {
            // A request is begun only if the home has room for it.
            let may_wait = shard_context.facts.home.is_none() && arrival.has_spare_room();
            let gives_up = |nfs4: &mut Box<Nfs4>| nfs4.give_up(&compound, may_wait);
            is_behind_io = has_room && self.nfs4.as_mut().is_some_and(gives_up);
            if !has_room || (is_behind_io && !may_wait) {
                return delay(cx, facts.xid, compound).ok_or(NoMessage::Dropped);
            }
        }
        let begun = match self.compound_here(cx, CompoundCall { shard_context, ..call }) {
            Err(NoMessage::NeedsHome(begun)) => begun.ok_or(NoMessage::Dropped)?,
            answer => return answer,
        };
        let (Some(arrival), Some(nfs4)) = (&mut self.arrival, &mut self.nfs4) else {
            return Err(NoMessage::Dropped);
        };
        nfs4.put_away(Requester::of(source), facts.xid, &begun);
        if arrival.forward(source, caller, facts, &arguments, Some(begun)) {
            if is_behind_io {
                arrival.hold_back();
            }
            return Err(NoMessage::Waits);
        }
        debug_assert!(false, "there was room");
        nfs4.take_away(source.id, None);
        Err(NoMessage::Dropped)
    }

    /// Keeps a compound of one of the home's own connections, whose session's slots are on another
    /// shard, until they are returned.
    pub(super) fn await_slots(
        &mut self,
        cx: &Cx<'_>,
        source: CallSource,
        caller: Caller,
        facts: CallFacts,
        arguments: Reader<'_>,
    ) -> Result<Answer, NoMessage> {
        let Some(nfs4) = &mut self.nfs4 else { return Err(NoMessage::Dropped) };
        let copy = |unread: &_| ForwardedCompound::of(unread, source, caller, facts, &arguments);
        if nfs4.keep_own(arguments.remaining(), copy) {
            return Err(NoMessage::Waits);
        }
        let compound = Compound::parse(arguments).map_err(|_| NoMessage::Dropped)?;
        delay(cx, facts.xid, compound).ok_or(NoMessage::Dropped)
    }

    /// Executes a compound that another shard has forwarded, or that was kept, once it is the turn
    /// of its host.
    fn carry_out_forwarded(&mut self, cx: &mut Cx<'_>, compound: Box<ForwardedCompound>) {
        let holder = compound.source.turn_holder();
        if cx.take_turn(holder) {
            self.carry_out_in_turn(cx, compound);
            cx.end_turn(holder);
        } else if let Some(nfs4) = &mut self.nfs4 {
            nfs4.keep_for_turn_of_host(compound);
        }
    }

    fn carry_out_in_turn(&mut self, cx: &mut Cx<'_>, compound: Box<ForwardedCompound>) {
        let (source, pieces) = (compound.source, compound.pieces());
        let answer = self.compound_of(cx, &compound, Reader::over(&pieces));
        let is_kept = match &answer {
            Err(NoMessage::NeedsHome(_)) => true,
            // Its slot waits for it: memory was short, and it has had no effect.
            Err(NoMessage::Dropped) => compound.begun.is_some(),
            _ => false,
        };
        match &mut self.nfs4 {
            Some(nfs4) if is_kept => nfs4.keep(compound),
            _ => {
                compound.drop_pin(&mut self.store);
                self.conclude_compound(cx, Requester::of(source), answer);
            }
        }
    }

    /// Retries kept compounds.
    fn resume_kept(&mut self, cx: &mut Cx<'_>) {
        let kept = self.nfs4.as_ref().map_or(0, |nfs4| nfs4.kept());
        for _ in 0..kept {
            if let Some(compound) = self.nfs4.as_mut().and_then(|nfs4| nfs4.next_kept()) {
                self.carry_out_forwarded(cx, compound);
            }
        }
        if let Some(nfs4) = self.nfs4.as_mut().filter(|_| kept > 0) {
            nfs4.revoke_waiting(cx.now());
        }
    }

    /// Checks whether state at the home may conflict with a call of version 3. If so, the call
    /// waits for the home's verdict.
    pub(super) fn ask_beside(
        &mut self,
        cx: &Cx<'_>,
        call: &Call<'_>,
        target: &Result<CallTarget, ReplyHeader<'_>>,
    ) -> Option<Result<Answer, NoMessage>> {
        let arrival = self.arrival.as_ref().filter(|arrival| arrival.is_beside())?;
        let Ok(CallTarget::Nfs(procedure)) = *target else { return None };
        // Arguments that cannot be decoded are refused on the usual path.
        let nfs = v3::Call::parse(procedure, call.arguments.clone()).ok()?;
        let question = ConflictQuery::of(&nfs).filter(|asked| arrival.may_conflict(asked))?;
        let source = CallSource::own(call.id, call.peer, call.from);
        let copied = arrival.may_ask().then(|| CopiedCall::of(cx, &call.header, &nfs)).flatten();
        let Some(copied) = copied else {
            return Some(self.refuse_call(cx, &call.header, procedure, Status::Jukebox));
        };
        let caller = self.caller(source, &call.header);
        let arrival = self.arrival.as_mut()?;
        arrival.ask(AwaitedVerdict { source, copied }, caller, question);
        Some(Err(NoMessage::Waits))
    }

    /// Answers a call of version 3 with a failure.
    pub(super) fn refuse_call(
        &mut self,
        cx: &Cx<'_>,
        header: &CallHeader<'_>,
        procedure: Procedure,
        status: Status,
    ) -> Result<Answer, NoMessage> {
        let mut reply = ReplyWriter::begin(cx, header.xid, 0).ok_or(NoMessage::Dropped)?;
        let status = crate::v3::refuse(procedure, status, &mut reply);
        self.counters.count_nfs(procedure, status);
        Ok(reply.finish())
    }

    /// Handles the result of a compound, from any shard.
    pub(super) fn conclude_compound(
        &mut self,
        cx: &mut Cx<'_>,
        requester: Requester,
        answer: Result<Answer, NoMessage>,
    ) {
        if requester.shard == OWN {
            return self.conclude(cx, requester.id, requester.peer, answer);
        }
        // Its reply may carry handles.
        self.write_index();
        let Some(nfs4) = &mut self.nfs4 else { return };
        match answer {
            Ok(answer) => nfs4.answer(cx, requester, answer),
            Err(NoMessage::Sent | NoMessage::Waits | NoMessage::NeedsHome(_)) => {}
            Err(NoMessage::Dropped) => {
                nfs4.disconnect(cx, requester.at());
                self.counters.count_unanswered();
            }
        }
    }

    /// Handles the end of a call of ours in the reverse direction.
    pub(super) fn take_callback_reply(&mut self, cx: &Cx<'_>, outcome: &Outcome<'_>) {
        let Outcome { token, peer, reply, .. } = outcome;
        match (&mut self.arrival, &mut self.nfs4) {
            (Some(arrival), _) => arrival.called_back(*peer, *token, reply.ok()),
            (None, Some(nfs4)) => {
                let peer = ShardPeer::own(*peer);
                nfs4.handle_reply(cx.now(), peer, *token, reply.ok());
            }
            (None, None) => {}
        }
    }

    /// Reads the messages of other shards.
    pub(super) fn read_messages(&mut self, cx: &mut Cx<'_>) {
        if self.nfs4.as_ref().is_some_and(|nfs4| nfs4.has_mail()) {
            // Their number is bounded by the pending calls of shards: replies are sent after this.
            while let Some(message) = self.nfs4.as_ref().and_then(|nfs4| nfs4.next_message()) {
                self.take_at_home(cx, message);
            }
        }
        self.resume_kept(cx);
        if self.arrival.as_ref().is_some_and(|arrival| arrival.has_mail()) {
            while let Some(message) = self.arrival.as_ref().and_then(|it| it.next_message()) {
                self.take_at_arrival(cx, message);
            }
        }
    }

    /// Sends messages to other shards.
    pub(super) fn send_messages(&mut self) {
        if let Some(nfs4) = &mut self.nfs4 {
            nfs4.send_messages();
        }
        if let Some(arrival) = &mut self.arrival {
            // Compounds go before the report that a client is dropped: the home does not revoke
            // states that they release.
            if let Some(nfs4) = &self.nfs4 {
                arrival.let_go(|compound| !nfs4.is_behind_io(compound));
            }
            while let Some(client) = self.nfs4.as_mut().and_then(|nfs4| nfs4.next_unsettled()) {
                arrival.tell_unsettled(client);
            }
            while let Some((id, slots)) = self.nfs4.as_mut().and_then(|nfs4| nfs4.next_return()) {
                arrival.give_back(id, slots);
            }
            arrival.answer_announced(self.pending.are_under_way());
            arrival.send();
        }
    }

    fn take_at_home(&mut self, cx: &mut Cx<'_>, message: ToHome) {
        let Some(nfs4) = &mut self.nfs4 else { return };
        match message {
            ToHome::Compound(compound) if nfs4.goes_back(&compound) => {
                nfs4.tell(compound.source.shard, FromHome::Back(compound));
            }
            ToHome::Compound(compound) => self.carry_out_forwarded(cx, compound),
            ToHome::Question { requester, caller, question } => {
                self.store.now().act_as(&caller);
                let verdict = nfs4.judge_question(&mut self.store, &question, cx.now());
                nfs4.tell_verdict(requester, verdict);
            }
            ToHome::CalledBack { at, token, reply } => {
                nfs4.handle_reply(cx.now(), at, token, reply.as_deref());
            }
            ToHome::PeerGone(at) => nfs4.forget_peer(at),
            ToHome::Certificate(at, names) => nfs4.note_certificate(at, names),
            ToHome::Unsettled(client) => nfs4.take_unsettled(client, cx.now()),
            ToHome::Returned(session, slots) => nfs4.take_back(&session, slots, cx.now()),
            ToHome::Announced(shard, number) => nfs4.take_announced(shard, number),
        }
    }

    fn take_at_arrival(&mut self, cx: &mut Cx<'_>, message: FromHome) {
        let Some(arrival) = &mut self.arrival else { return };
        let borrower = self.nfs4.as_mut();
        match (message, borrower) {
            (FromHome::Reply { id, mut reply }, borrower) => {
                let peer = arrival.take_forwarded(id);
                let split = borrower.as_ref().and_then(|nfs4| nfs4.split(id));
                if let Some(compound) = split {
                    return self.resume_compound(cx, compound, WaitResult::Home(reply));
                }
                let away = borrower.and_then(|nfs4| nfs4.take_away(id, reply.kept()));
                let (id, peer) = match (away, peer) {
                    (Some(away), _) => {
                        let Some((requester, xid)) = away.requester else { return };
                        reply.readdress(xid);
                        (requester.id, requester.peer)
                    }
                    (None, Some(peer)) => (id, peer),
                    (None, None) => return,
                };
                let answer = reply.answer(cx, &arrival.item_lists).ok_or(NoMessage::Dropped);
                self.conclude(cx, id, peer, answer);
            }
            (FromHome::Lend { session, access, used }, Some(nfs4)) => {
                let access = access.keep(|peer| arrival.knows(*peer));
                nfs4.borrow(session, access, used.map(|used| *used));
            }
            (FromHome::Bound(session, peer), Some(nfs4)) => {
                if arrival.knows(peer) {
                    nfs4.note_bound(&session, peer);
                }
            }
            (FromHome::Back(compound), _) => self.take_compound_back(cx, &compound),
            (FromHome::Recall(session), Some(nfs4)) => nfs4.begin_return(&session),
            (FromHome::Ended(session), Some(nfs4)) => nfs4.forget_lent(&session),
            (FromHome::Fact(change), Some(nfs4)) => nfs4.take_fact(change),
            (FromHome::Unsettle(client), Some(nfs4)) => nfs4.begin_unsettle(client),
            (
                FromHome::Lend { .. }
                | FromHome::Bound(..)
                | FromHome::Recall(_)
                | FromHome::Ended(_)
                | FromHome::Fact(_)
                | FromHome::Unsettle(_),
                None,
            ) => {
                debug_assert!(false, "nothing is lent to a shard that takes no loans");
            }
            (FromHome::Verdict { id, verdict }, _) => {
                let Some(waiting) = arrival.take_question(id) else { return };
                self.follow_verdict(cx, &waiting, verdict);
            }
            (FromHome::Ready(peer), _) => cx.ready(peer),
            (FromHome::Announce(number), _) => arrival.note_announced(number),
            (FromHome::Disconnect(peer), _) => cx.disconnect(peer),
            (FromHome::CallBack { peer, message, token }, _) => {
                call_back(cx, arrival, peer, &message, token)
            }
        }
    }

    /// Executes a compound that the home has sent back without executing it: the slots of its
    /// session are here now.
    fn take_compound_back(&mut self, cx: &mut Cx<'_>, compound: &ForwardedCompound) {
        let (id, pieces) = (compound.source.id, compound.pieces());
        let peer = self.arrival.as_mut().and_then(|arrival| arrival.take_forwarded(id));
        let Some(peer) = peer else { return };
        let call = CompoundCall {
            source: CallSource { shard: OWN, ..compound.source },
            facts: compound.facts,
            arguments: Reader::over(&pieces),
            pulled: Pulled::default(),
            caller: compound.caller,
            means: self.means(),
            shard_context: ShardContext::default(),
        };
        let answer = self.compound_beside_home(cx, call);
        self.conclude(cx, id, peer, answer);
    }

    /// Executes or refuses a call of version 3 by the home's verdict.
    fn follow_verdict(
        &mut self,
        cx: &mut Cx<'_>,
        waiting: &AwaitedVerdict,
        verdict: Result<(), Status>,
    ) {
        let source = waiting.source;
        let answer = match waiting.call() {
            Some(call) => {
                let served = ServedVersions { three: self.serves_3, four: self.serves_4 };
                let target = route(&call.header, served);
                match (verdict, target) {
                    (Err(status), Ok(CallTarget::Nfs(procedure))) => {
                        self.refuse_call(cx, &call.header, procedure, status)
                    }
                    (_, Ok(target)) => self.carry_out(cx, source, &call, Ok(target)),
                    // It was a call of version 3 when it was suspended.
                    (_, Err(_)) => Err(NoMessage::Dropped),
                }
            }
            None => Err(NoMessage::Dropped),
        };
        self.conclude(cx, source.id, source.peer, answer);
    }
}

/// Makes a callback for the home. Without memory its outcome is unknown at once.
fn call_back(
    cx: &mut Cx<'_>,
    arrival: &mut ArrivalEnd,
    peer: stag_engine::PeerId,
    octets: &[u8],
    token: stag_engine::Token,
) {
    let message = cx.message(octets.len()).and_then(|mut message| {
        message.append(octets).ok()?;
        Some(message)
    });
    match message {
        Some(message) => call_over(cx, peer, message, token),
        None => arrival.called_back(peer, token, None),
    }
}

/// The reply to a compound that has had no effect: the client may retry from its first operation.
fn delay(cx: &Cx<'_>, xid: Xid, mut compound: Compound<'_>) -> Option<Answer> {
    let (tag, status) = (compound.head().tag, Status4::Delay);
    let operation = compound.next().and_then(|first| match first {
        Ok(request) => Some(request.operation()),
        Err(fault) => fault.operation,
    });
    let fault = OperationFault { operation, status };
    let mut reply = ReplyWriter::begin(cx, xid, 0)?;
    let written = reply.write(|writer| {
        writer.u32(status as u32)?;
        writer.opaque(tag.0)?;
        writer.u32(1)?;
        fault.emit(writer)
    });
    written.ok().map(|()| reply.finish())
}
