//! Compounds that wait at the home: another shard has the slots of their session and is returning
//! them, memory was short, or other hosts have their turn.

use stag_protocol::nfs::v4::{Compound, Request, SequenceArgs, SessionId};

use super::{
    Nfs4,
    letters::{ForwardedCompound, Unread},
};

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
    pub(super) fn speaking(&self) -> Vec<u64> {
        let kept = self.link.iter().flat_map(|link| &link.kept);
        let sessions = kept.filter_map(|kept| self.sessions.get(&sequence_of(kept)?.session));
        let mut clients: Vec<_> = sessions.map(|session| session.client).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }
}

/// Returns true for a compound of this session.
pub(super) fn is_of(compound: &ForwardedCompound, session: &SessionId) -> bool {
    sequence_of(compound).is_some_and(|args| args.session == *session)
}

/// The SEQUENCE of a compound.
pub(super) fn sequence_of(compound: &ForwardedCompound) -> Option<SequenceArgs> {
    let pieces = compound.pieces();
    let mut operations = Compound::parse(stag_protocol::xdr::Reader::over(&pieces)).ok()?;
    match operations.next()?.ok()? {
        Request::Sequence(args) => Some(args),
        _ => None,
    }
}
