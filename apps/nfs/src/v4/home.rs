//! Dealings of the home with connections, its own and those of shards that forward to it (`link`).

use stag_engine::{Answer, Cx, Token};
use stag_pools::Buf;
use stag_protocol::nfs::v3::Status;

use super::{
    Nfs4,
    callbacks::call_over,
    facts::Conflicts,
    letters::{FromHome, ToHome},
    link::{ArrivalEnd, HomeEnd, LinkEnd, Nfs4Link},
    placement::ForwardedReply,
};
use crate::parked::{Asker, OWN, PeerAt};

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

    /// The next letter of another shard.
    pub(crate) fn next_letter(&self) -> Option<ToHome> {
        self.link.as_ref()?.next_letter()
    }

    /// Returns true if other shards have sent letters since the last look.
    pub(crate) fn has_mail(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.has_mail())
    }

    /// Sends the letters that were written.
    pub(crate) fn send_letters(&mut self) {
        self.lend_followed();
        self.tell_conflicts();
        self.announce();
        if let Some(link) = &mut self.link {
            link.send();
        }
    }

    /// Returns true if there is mail to be read or sent.
    pub(super) fn has_letters(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.has_work())
    }

    /// Queues a letter to a shard.
    pub(crate) fn tell(&mut self, shard: u16, letter: FromHome) {
        if let Some(link) = &mut self.link {
            link.tell(shard, letter);
        }
    }

    /// Answers a call.
    pub(crate) fn answer(&mut self, cx: &mut Cx<'_>, asker: Asker, answer: Answer) {
        match asker.shard {
            OWN => cx.answer(asker.id, answer),
            shard => {
                let reply = ForwardedReply::of(&answer);
                self.tell(shard, FromHome::Reply { id: asker.id, reply });
            }
        }
    }

    /// Sends the verdict on a call of version 3 on another shard.
    pub(crate) fn tell_verdict(&mut self, asker: Asker, verdict: Result<(), Status>) {
        self.tell(asker.shard, FromHome::Verdict { id: asker.id, verdict });
    }

    /// Ends a connection.
    pub(crate) fn disconnect(&mut self, cx: &mut Cx<'_>, at: PeerAt) {
        match at.shard {
            OWN => cx.disconnect(at.peer),
            shard => self.tell(shard, FromHome::Disconnect(at.peer)),
        }
    }

    /// Marks a connection ready for callbacks.
    pub(super) fn make_ready(&mut self, cx: &mut Cx<'_>, at: PeerAt) {
        match at.shard {
            OWN => cx.ready(at.peer),
            shard => self.tell(shard, FromHome::Ready(at.peer)),
        }
    }

    /// Sends a callback over a connection.
    pub(super) fn call(&mut self, cx: &mut Cx<'_>, at: PeerAt, message: Buf, token: Token) {
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
