//! The most frequent compounds of version 4, answered without the interpreter.

use stag_engine::{Answer, Call, Cx, Extents};
use stag_protocol::{
    nfs::{
        v3,
        v4::{SequenceOk, StatOctets},
    },
    rpc::{Accepted, CallHeader},
};

use super::{Gateway, NoMessage, dispatch::security, inline_reply::conclude_short};
use crate::{
    reply::ReplyWriter,
    requester::CallSource,
    v4::{REPLY_LEN_MAX, ShortCompound, ShortHead, ShortOutcome, perform},
};
use stag_nfs_store::{Effort, Procedures as _, Status, Store};

impl<S: Store> Gateway<S> {
    /// Answers one of the most frequent compounds without the interpreter. Returns None, with
    /// nothing changed, for all others.
    #[inline]
    pub(super) fn compound_short(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        call: &Call<'_>,
    ) -> Option<Result<Answer, NoMessage>> {
        self.nfs4.as_ref()?;
        let mut rest = call.arguments.clone();
        let head = ShortHead::parse(&mut rest)?;
        if self.store.has_security() && self.refuses(&head, call) {
            return None;
        }
        let security = security(&call.header.credential);
        let is_named = self.nfs4.as_ref().is_some_and(|nfs4| nfs4.names_owners(security));
        if !is_named && head.is_stat(rest.clone()) {
            return self.compound_stat(cx, source, call, &head);
        }
        let short = ShortCompound::parse(head, rest)?;
        match short.named().filter(|_| is_named) {
            Some(named) => self.compound_named(cx, source, call, &named),
            None => self.compound_shaped(cx, source, call, &short),
        }
    }

    /// Answers a compound that asks for names of owners: it is carried out before its slot is
    /// begun, because the interpreter has to wait for a name that is not known yet.
    #[inline(never)]
    fn compound_named(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        call: &Call<'_>,
        short: &ShortCompound<'_>,
    ) -> Option<Result<Answer, NoMessage>> {
        if short.has_message() || short.waits(&self.store) {
            return None;
        }
        let outcome = match self.arrival.is_some() {
            true => self.perform_beside_home(cx, source, call, short)?,
            false => self.perform(cx, source, call, short).0,
        };
        let nfs4 = self.nfs4.as_mut()?;
        if !nfs4.knows_owners(short, &outcome) {
            return None;
        }
        let (head, reply_max, now) = (short.head(), short.reply_len_max(), cx.now());
        let sequence = nfs4.begin_short(&self.store, head, reply_max, call, now)?;
        self.answer_shaped(cx, call, short, &sequence, &outcome)
    }

    /// Returns true if the object of a compound refuses its security flavor, which the interpreter
    /// then answers.
    #[cold]
    fn refuses(&self, head: &ShortHead, call: &Call<'_>) -> bool {
        let flavors = self.store.flavors_of(head.object(), call.from);
        flavors.is_some_and(|flavors| !flavors.accept(security(&call.header.credential)))
    }

    /// Answers a compound of nothing but the attributes of a stat(), in place in the send buffer.
    #[inline]
    fn compound_stat(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        call: &Call<'_>,
        head: &ShortHead,
    ) -> Option<Result<Answer, NoMessage>> {
        let Call { id, header, .. } = call;
        let object = head.object();
        if S::MAY_WAIT && self.store.waits(object, Effort::Plain) {
            return None;
        }
        let mut early = None;
        if let Some(arrival) = &self.arrival {
            let is_judge = self.nfs4.as_ref().is_some_and(|nfs4| nfs4.judges(head, source.peer));
            if !is_judge || !arrival.may_look_at(object) {
                return None;
            }
            // The home may have kept an object that is gone here.
            early = Some(Ok(self.look_at(source, header, object).ok()?));
        }
        let nfs4 = self.nfs4.as_mut()?;
        let sequence = nfs4.begin_short(&self.store, head, REPLY_LEN_MAX, call, cx.now())?;
        let found = early.unwrap_or_else(|| self.look_at(source, header, object));
        let nfs4 = self.nfs4.as_mut()?;
        let written = cx.try_answer_short(*id, header.reply(Accepted::Success), |writer| {
            nfs4.answer_stat(head, &sequence, &found, writer)
        });
        Some(conclude_short(cx, *id, header, written))
    }

    /// Answers a compound of another shape.
    // A separate function, so that the shortest compounds save no registers for all others.
    #[inline(never)]
    fn compound_shaped(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        call: &Call<'_>,
        short: &ShortCompound<'_>,
    ) -> Option<Result<Answer, NoMessage>> {
        if short.waits(&self.store) {
            return None;
        }
        if self.arrival.is_some() {
            return self.compound_shaped_beside_home(cx, source, call, short);
        }
        if short.has_message() {
            return self.compound_with_data(cx, source, call, short);
        }
        let nfs4 = self.nfs4.as_mut()?;
        let sequence = nfs4.begin_shaped(&self.store, short, call, cx.now())?;
        let (outcome, _) = self.perform(cx, source, call, short);
        self.answer_shaped(cx, call, short, &sequence, &outcome)
    }

    /// The same for a READ or a WRITE. The message of the reply is reserved before it is carried
    /// out, so that a WRITE that was made can be answered.
    fn compound_with_data(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        call: &Call<'_>,
        short: &ShortCompound<'_>,
    ) -> Option<Result<Answer, NoMessage>> {
        let reply = ReplyWriter::begin(cx, call.header.xid, 0)?;
        let nfs4 = self.nfs4.as_mut()?;
        let sequence = nfs4.begin_shaped(&self.store, short, call, cx.now())?;
        let (outcome, octets) = self.perform(cx, source, call, short);
        self.answer_with_data(reply, short, &sequence, &outcome, octets)
    }

    /// The same on a shard other than the home, where only LOOKUP, ACCESS and GETATTR are answered:
    /// they are carried out before their slot is begun, because the home may have to be asked.
    #[inline(never)]
    fn compound_shaped_beside_home(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        call: &Call<'_>,
        short: &ShortCompound<'_>,
    ) -> Option<Result<Answer, NoMessage>> {
        let outcome = self.perform_beside_home(cx, source, call, short)?;
        let (head, reply_max, now) = (short.head(), short.reply_len_max(), cx.now());
        let nfs4 = self.nfs4.as_mut()?;
        let sequence = nfs4.begin_short(&self.store, head, reply_max, call, now)?;
        self.answer_shaped(cx, call, short, &sequence, &outcome)
    }

    /// Writes the reply of a short compound that changes nothing in place in the send buffer. Where
    /// there is no memory for one that cannot be sent at once, the connection ends although the
    /// slot has passed, and its client asks again in another request.
    #[inline]
    fn answer_shaped(
        &mut self,
        cx: &mut Cx<'_>,
        call: &Call<'_>,
        short: &ShortCompound<'_>,
        sequence: &SequenceOk,
        outcome: &ShortOutcome,
    ) -> Option<Result<Answer, NoMessage>> {
        let Call { id, header, .. } = call;
        if short.looks_up() {
            // The handle has to be in the index before a client can use it.
            self.write_index();
        }
        let nfs4 = self.nfs4.as_mut()?;
        let written = cx.try_answer_short(*id, header.reply(Accepted::Success), |writer| {
            nfs4.answer_short(short, sequence, outcome, writer)
        });
        Some(conclude_short(cx, *id, header, written))
    }

    /// Writes the reply of a READ or a WRITE to its message; a READ has `octets`.
    #[inline(always)]
    fn answer_with_data(
        &mut self,
        mut reply: ReplyWriter,
        short: &ShortCompound<'_>,
        sequence: &SequenceOk,
        outcome: &ShortOutcome,
        octets: Extents,
    ) -> Option<Result<Answer, NoMessage>> {
        let nfs4 = self.nfs4.as_mut()?;
        let written = reply.write(|writer| nfs4.answer_short(short, sequence, outcome, writer));
        debug_assert_eq!(written, Ok(()), "a message has room for the results");
        if written.is_err() {
            reply.fail();
        } else if outcome.has_data() {
            reply.put_item(octets);
        }
        Some(Ok(reply.finish()))
    }

    /// Carries out a compound on a shard other than the home. None if it reads or writes, or the
    /// home has to be asked: it knows the state of clients, and may have kept an object that is
    /// gone here.
    fn perform_beside_home(
        &mut self,
        cx: &Cx<'_>,
        source: CallSource,
        call: &Call<'_>,
        short: &ShortCompound<'_>,
    ) -> Option<ShortOutcome> {
        let (nfs4, arrival) = (self.nfs4.as_ref()?, self.arrival.as_ref()?);
        // An object that is looked up is not known before its attributes are.
        let may_look = match short.looks_at_found() {
            true => arrival.sees_no_delegation(),
            false => arrival.may_look_at(short.head().object()),
        };
        if short.has_message() || !may_look || !nfs4.judges(short.head(), source.peer) {
            return None;
        }
        let (outcome, _) = self.perform(cx, source, call, short);
        (!outcome.is_stale()).then_some(outcome)
    }

    /// Carries out a short compound as its caller.
    #[inline]
    fn perform(
        &mut self,
        cx: &Cx<'_>,
        source: CallSource,
        call: &Call<'_>,
        short: &ShortCompound<'_>,
    ) -> (ShortOutcome, Extents) {
        let caller = self.caller(source, &call.header);
        self.store.now().act_as(&caller);
        perform(short, call.pulled, &mut self.store, &|len| cx.take(len))
    }

    /// Asks the store for the attributes of an object, as the caller.
    #[inline]
    fn look_at(
        &mut self,
        source: CallSource,
        header: &CallHeader<'_>,
        object: &v3::FileHandle,
    ) -> Result<StatOctets, Status> {
        let caller = self.caller(source, header);
        self.store.now().act_as(&caller);
        self.store.now().stat_octets(object)
    }
}
