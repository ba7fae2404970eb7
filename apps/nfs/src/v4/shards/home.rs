//! Dealings of the home with connections, its own and those of shards that forward to it
//! (`channel`).

use stag_engine::{Answer, Cx, Token};
use stag_pools::Buf;
use stag_protocol::nfs::{
    v3::Status,
    v4::{Compound, Request, SequenceArgs, SessionId},
};

use super::{
    channel::{ArrivalEnd, HomeEnd, LinkEnd, Nfs4Link},
    messages::{ForwardedCompound, FromHome, ToHome, Unread},
    shared_flags::Conflicts,
};
use crate::{
    requester::{OWN, Requester, ShardPeer},
    v4::{Nfs4, callbacks::call_over, context::shard_context::ForwardedReply},
};

impl Nfs4 {
    /// Serves forwarding shards, too. No client has state yet.
    pub(crate) fn link(&mut self, end: Box<HomeEnd>) {
        self.state.share_presence(end.facts.presence());
        self.link = Some(end);
        self.tell_conflicts();
    }

    /// Publishes to the other shards in which cases they have to ask, and the access that states
    /// allow. Called before any reply is sent that grants state.
    pub(crate) fn tell_conflicts(&mut self) {
        if let Some(link) = &self.link {
            link.facts.tell(Conflicts {
                has_presence: self.state.has_presence(),
                spoils_reclaims: self.spoils_reclaims(),
                in_grace: self.state.check_grace().is_err(),
            });
            self.tell_facts();
        }
    }

    /// The next message of another shard.
    pub(crate) fn next_message(&self) -> Option<ToHome> {
        self.link.as_ref()?.next_message()
    }

    /// Returns true if other shards have sent messages since the last look.
    pub(crate) fn has_mail(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.has_mail())
    }

    /// Sends the messages that were written.
    pub(crate) fn send_messages(&mut self) {
        self.lend_followed();
        self.tell_conflicts();
        self.announce();
        if let Some(link) = &mut self.link {
            link.send();
        }
    }

    /// Returns true if there is mail to be read or sent.
    pub(in crate::v4) fn has_messages(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.has_work())
    }

    /// Queues a message to a shard.
    pub(crate) fn tell(&mut self, shard: u16, message: FromHome) {
        if let Some(link) = &mut self.link {
            link.tell(shard, message);
        }
    }

    /// Answers a call.
    pub(crate) fn answer(&mut self, cx: &mut Cx<'_>, requester: Requester, answer: Answer) {
        match requester.shard {
            OWN => cx.answer(requester.id, answer),
            shard => {
                let reply = ForwardedReply::of(&answer);
                self.tell(shard, FromHome::Reply { id: requester.id, reply });
            }
        }
    }

    /// Sends the verdict on a call of version 3 on another shard.
    pub(crate) fn tell_verdict(&mut self, requester: Requester, verdict: Result<(), Status>) {
        self.tell(requester.shard, FromHome::Verdict { id: requester.id, verdict });
    }

    /// Ends a connection.
    pub(crate) fn disconnect(&mut self, cx: &mut Cx<'_>, at: ShardPeer) {
        match at.shard {
            OWN => cx.disconnect(at.peer),
            shard => self.tell(shard, FromHome::Disconnect(at.peer)),
        }
    }

    /// Marks a connection ready for callbacks.
    pub(in crate::v4) fn make_ready(&mut self, cx: &mut Cx<'_>, at: ShardPeer) {
        match at.shard {
            OWN => cx.ready(at.peer),
            shard => self.tell(shard, FromHome::Ready(at.peer)),
        }
    }

    /// Sends a callback over a connection.
    pub(in crate::v4) fn call(
        &mut self,
        cx: &mut Cx<'_>,
        at: ShardPeer,
        message: Buf,
        token: Token,
    ) {
        let peer = at.peer;
        match at.shard {
            OWN => call_over(cx, peer, message, token),
            shard => {
                let message = message.to_vec().into();
                self.tell(shard, FromHome::CallBack { peer, message, token });
            }
        }
    }
}

impl Nfs4Link {
    /// The end of the home, or that of a shard that forwards.
    pub(crate) fn into_end(self) -> Result<Box<HomeEnd>, ArrivalEnd> {
        match self.0 {
            LinkEnd::Home(end) => Ok(end),
            LinkEnd::Arrival(mail) => Err(ArrivalEnd::new(mail)),
        }
    }
}

impl Nfs4 {
    /// Keeps a compound until its session's slots have returned, or there is memory for it.
    pub(crate) fn keep(&mut self, compound: Box<ForwardedCompound>) {
        if let Some(link) = &mut self.link {
            link.kept.push_back(compound);
        }
    }

    /// Keeps a compound until it is the turn of its host. Its session is not lent meanwhile.
    pub(crate) fn keep_for_turn_of_host(&mut self, mut compound: Box<ForwardedCompound>) {
        compound.awaits_turn = true;
        self.keep(compound);
    }

    /// Keeps a copy of a compound of one of the home's own connections, with `octets` of arguments.
    /// Returns false when too many are kept.
    pub(crate) fn keep_own(
        &mut self,
        octets: usize,
        copy: impl FnOnce(&Unread) -> ForwardedCompound,
    ) -> bool {
        let link = self.link.as_mut().filter(|link| link.unread.has_room(octets));
        let Some(link) = link else { return false };
        link.kept.push_back(Box::new(copy(&link.unread)));
        true
    }

    /// Number of compounds that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.kept.len())
    }

    /// The next kept compound to be tried again. Compounds whose slots have not returned move to
    /// the end.
    pub(crate) fn next_kept(&mut self) -> Option<Box<ForwardedCompound>> {
        let mut compound = self.link.as_mut()?.kept.pop_front()?;
        // Anything else that it waits for is found when it is executed.
        if std::mem::take(&mut compound.awaits_turn) {
            return Some(compound);
        }
        let session = sequence_of(&compound).map(|args| args.session);
        let session = session.and_then(|session| self.sessions.get(&session));
        let is_lent = session.is_some_and(|session| {
            session.lent_to().is_some() || !self.is_unsettled(session.client)
        });
        if is_lent && compound.begun.is_none() {
            self.keep(compound);
            return None;
        }
        Some(compound)
    }

    /// Clients with queued requests whose slots are still lent to another shard; their leases must
    /// not expire meanwhile.
    pub(in crate::v4) fn speaking(&self) -> Vec<u64> {
        let kept = self.link.iter().flat_map(|link| &link.kept);
        let sessions = kept.filter_map(|kept| self.sessions.get(&sequence_of(kept)?.session));
        let mut clients: Vec<_> = sessions.map(|session| session.client).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }
}

/// Returns true for a compound of this session.
pub(in crate::v4) fn is_of(compound: &ForwardedCompound, session: &SessionId) -> bool {
    sequence_of(compound).is_some_and(|args| args.session == *session)
}

/// The SEQUENCE of a compound.
pub(in crate::v4) fn sequence_of(compound: &ForwardedCompound) -> Option<SequenceArgs> {
    let pieces = compound.pieces();
    let mut operations = Compound::parse(stag_protocol::xdr::Reader::over(&pieces)).ok()?;
    match operations.next()?.ok()? {
        Request::Sequence(args) => Some(args),
        _ => None,
    }
}
