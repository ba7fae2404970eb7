//! The connections that may use a session whose slots another shard has.
//!
//! That shard has a copy of the origins of the client. Connections of a session with the protection
//! of its machine (`session::machine_guard`) are bound by BIND_CONN_TO_SESSION only: the home binds
//! them, for it alone checks the machine's credential, and the shard has a copy of them. It leaves
//! any other connection to the home, which refuses it, or sends the shard that it is associated.

use stag_engine::PeerId;
use stag_protocol::nfs::v4::SessionId;

use super::{
    home::sequence_of,
    messages::{ForwardedCompound, FromHome},
};
use crate::{
    requester::ShardPeer,
    v4::{
        Nfs4,
        session::{Client, LeasedAccess},
    },
};

impl Nfs4 {
    /// The connections that may use a session of a client at a shard that gets its slots.
    pub(super) fn leased_access(
        &self,
        session: &SessionId,
        client: &Client,
        shard: u16,
    ) -> LeasedAccess {
        if !client.guard.is_some_and(|guard| guard.binds_connections()) {
            return LeasedAccess::From(Box::new(client.origins));
        }
        let bound = self.sessions.get(session).into_iter().flat_map(|it| it.bound.iter());
        LeasedAccess::Bound(bound.filter(|at| at.shard == shard).map(|at| at.peer).collect())
    }

    /// Binds a connection to a session, also at the shard that has its slots. The reply to the
    /// client follows the message to that shard.
    pub(in crate::v4) fn bind(&mut self, id: &SessionId, at: ShardPeer) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.bound.add(at);
        if session.lent_to() == Some(at.shard) {
            self.tell(at.shard, FromHome::Bound(*id, at.peer));
        }
    }

    /// Returns true if the shard that sent a compound has got the slots of its session since, or
    /// only asks whether its connection may use the session: it may, and the shard has been sent
    /// that. Any other connection is refused here.
    pub(crate) fn goes_back(&mut self, compound: &ForwardedCompound) -> bool {
        let has_loans = self.link.as_ref().is_some_and(|link| link.loans > 0);
        let is_whole = has_loans && compound.begun.is_none();
        let Some(args) = is_whole.then(|| sequence_of(compound)).flatten() else { return false };
        let (id, source) = (args.session, compound.source);
        let session = self.sessions.get(&id);
        let is_lent = session.is_some_and(|session| session.is_lent_for_good(source.shard));
        if !is_lent || !self.associate(&id, source) {
            return false;
        }
        self.tell(source.shard, FromHome::Bound(id, source.peer));
        true
    }

    /// The home has bound a connection of this shard to a session.
    pub(crate) fn note_bound(&mut self, id: &SessionId, peer: PeerId) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.bound.add(ShardPeer::own(peer));
        }
    }
}
