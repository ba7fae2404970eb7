//! The connections that may use a client's sessions and its record (RFC 8881 §2.10.8.3, §18.34.3,
//! §18.37.3). The interpreter of compounds and the operations on clients and sessions ask here.
//!
//! Clients ask for SP4_NONE, where the server checks no principal: any user of a host may use any
//! session of that host. An AUTH_SYS credential proves nothing either. So the *origin* of a
//! connection decides, which is the host that it comes from: its address, or the names in the
//! certificate it presented. A client is recognised by the origin that it was created from, and by
//! each origin it has used since: by an EXCHANGE_ID with the same owner, verifier and principal,
//! which a client sends after its address has changed, or to test trunking.
//!
//! For any other origin, a session or a client ID does not exist. The first request over a
//! connection associates it with its session; later requests are not checked again.

use std::borrow::Cow;

use stag_protocol::nfs::v4::{Operation, SessionId, Status4, Verifier4};

use super::CompoundContext;
use crate::{
    records::OriginMark,
    requester::{CallSource, Requester, ShardPeer},
    v4::{
        Nfs4,
        session::{
            CertificateNames, Client, Host, MachineGuard, NewClient, is_machine_credential, mark_of,
        },
    },
};
use stag_nfs_store::Store;

/// Octets of an owner's name that are logged.
const OWNER_MAX: usize = 128;
/// Connections that are remembered with the session that they came with.
const MOVED_MAX: usize = 64;

/// An owner's name as it is logged.
fn shown(owner: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(owner.get(..OWNER_MAX).unwrap_or(owner))
}

impl Nfs4 {
    /// A connection has shown a certificate with these names.
    pub(crate) fn note_certificate(&mut self, at: ShardPeer, names: CertificateNames) {
        self.certificates.insert(at, names);
    }

    /// The host that a call came from.
    pub(in crate::v4) fn host(&self, source: CallSource) -> Host {
        self.names.host(source.from, self.certificate(source))
    }

    /// The mark of a call's origin, for the record of a client with this verifier.
    pub(in crate::v4) fn mark(&self, verifier: &Verifier4, source: CallSource) -> OriginMark {
        mark_of(verifier, source.from, self.certificate(source))
    }

    fn certificate(&self, source: CallSource) -> Option<&CertificateNames> {
        self.certificates.get(&Requester::of(source).at())
    }

    /// Associates a connection of this origin with a session, unless it is already. Returns false
    /// if the session's client has not used this origin.
    #[inline]
    pub(in crate::v4) fn associate(&mut self, id: &SessionId, source: CallSource) -> bool {
        let at = Requester::of(source).at();
        self.sessions.is_bound(id, at) || self.associate_new(id, at, self.host(source))
    }

    #[cold]
    fn associate_new(&mut self, id: &SessionId, at: ShardPeer, host: Host) -> bool {
        if self.needs_binding(id) {
            return false;
        }
        let Some(session) = self.sessions.get_mut(id) else { return false };
        let is_known = match &session.origins {
            Some(origins) => origins.know(&host),
            None => {
                let client = self.clients.get(session.client);
                client.is_some_and(|client| client.origins.know(&host))
            }
        };
        if is_known {
            session.bound.add(at);
        }
        is_known
    }

    /// Returns true if a session's connections are bound by BIND_CONN_TO_SESSION only.
    fn needs_binding(&self, id: &SessionId) -> bool {
        let session = self.sessions.get(id);
        let client = session.and_then(|session| self.clients.get(session.client));
        client.and_then(|client| client.guard).is_some_and(|guard| guard.binds_connections())
    }

    /// Checks whether a host may replace the client of an owner. A host with another verifier may
    /// be the same one, restarted with another address, or a different one. It waits until the
    /// lease of the client ends, which does not happen while the client is active.
    ///
    /// # Errors
    /// NFS4ERR_DELAY.
    pub(in crate::v4) fn check_host(&mut self, new: &NewClient<'_>) -> Result<(), Status4> {
        let Some(client) = self.clients.confirmed(new.owner) else { return Ok(()) };
        let is_allowed = client.verifier == new.verifier
            || client.principal != new.principal
            || !client.origins.allow(&new.host)
            || client.origins.know(&new.host)
            || !self.holds_state(client);
        let (key, other) = (client.key.filter(|_| !is_allowed), client.from);
        let Some(key) = key else { return Ok(()) };
        if self.state.is_expired(key) && !self.is_renewed(key, new.now) {
            return Ok(());
        }
        self.tally.name_conflicts += 1;
        if self.strangers.allows(new.now) {
            tracing::warn!(
                target: "stag",
                peer = %new.from,
                other = %other,
                owner = ?shown(new.owner),
                "a client of this name is there from another address: it waits until the lease of \
                 that ends. Cloned hosts need names of their own (nfs4_unique_id)"
            );
        }
        Err(Status4::Delay)
    }

    /// Reports two hosts that share a name and an address, as behind address translation. Each is
    /// taken for the other one after a restart, and ends its state. A host never returns to a
    /// verifier that it has replaced, as Linux uses its start time.
    pub(in crate::v4) fn note_rival(&mut self, new: &NewClient<'_>) {
        let Some(client) = self.clients.confirmed(new.owner) else { return };
        let is_known = client.verifier == new.verifier || client.principal != new.principal;
        if is_known || client.former != Some(new.verifier) {
            return;
        }
        let other = client.from;
        self.tally.name_conflicts += 1;
        if self.strangers.allows(new.now) {
            tracing::warn!(
                target: "stag",
                peer = %new.from,
                other = %other,
                owner = ?shown(new.owner),
                "two clients of one name end each other's opens and locks in turn. Cloned hosts \
                 need names of their own (nfs4_unique_id)"
            );
        }
    }

    /// Notes a connection that uses the session of another gateway: its client has moved. The name
    /// of the client follows with its EXCHANGE_ID, which comes next. Returns the status for an
    /// unknown session.
    #[cold]
    fn note_unknown_session(&mut self, id: &SessionId, source: CallSource) -> Status4 {
        let at = Requester::of(source).at();
        if self.names.is_of_other_gateway(id) && !self.moved.contains(&at) {
            if self.moved.len() == MOVED_MAX {
                self.moved.pop_front();
            }
            self.moved.push_back(at);
        }
        Status4::BadSession
    }

    /// Logs that a client has moved, if its connection came with the session of another gateway.
    pub(in crate::v4) fn log_move(&mut self, new: &NewClient<'_>, source: CallSource) {
        let at = Requester::of(source).at();
        let Some(place) = self.moved.iter().position(|moved| *moved == at) else { return };
        self.moved.remove(place);
        if self.moves.allows(new.now) {
            tracing::warn!(
                target: "stag",
                peer = %source.from,
                owner = ?shown(new.owner),
                "a client has moved here from another gateway of the cluster: what it has open \
                 and locked there is not known here, and it gets EIO for that"
            );
        }
    }

    /// Returns true if a client has used the origin of a call.
    pub(in crate::v4) fn is_of(&self, client: u64, source: CallSource) -> bool {
        let host = self.host(source);
        self.clients.get(client).is_some_and(|client| client.origins.know(&host))
    }
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Associates the connection with a session.
    ///
    /// # Errors
    /// NFS4ERR_BADSESSION for one that does not exist, or belongs to another host.
    #[inline]
    pub(in crate::v4) fn associate(&mut self, id: &SessionId) -> Result<(), Status4> {
        match self.nfs4.associate(id, self.compound.source) {
            true => Ok(()),
            // RFC 8881 §2.10.8.3 [8881-392]: such a session is used over bound connections only
            false if self.nfs4.needs_binding(id) => Err(Status4::ConnNotBoundToSession),
            false => Err(self.nfs4.note_unknown_session(id, self.compound.source)),
        }
    }

    /// Admits an operation on a session that needs the credential of the client's machine where
    /// that is enforced: a call with it may come over any connection. BIND_CONN_TO_SESSION
    /// associates that.
    ///
    /// # Errors
    /// NFS4ERR_WRONG_CRED without that credential; else as [`associate`](Self::associate).
    pub(in crate::v4) fn associate_by_machine(
        &mut self,
        id: &SessionId,
        operation: Operation,
    ) -> Result<(), Status4> {
        let session = self.nfs4.sessions.get(id);
        let client = session.and_then(|session| self.nfs4.clients.get(session.client));
        let enforces = |guard: MachineGuard| guard.enforces(operation);
        let guarded = client.filter(|client| client.guard.is_some_and(enforces));
        // What is not enforced needs an origin of the client, as without any protection.
        let Some(client) = guarded else { return self.associate(id) };
        self.check_machine(client, operation)?;
        if operation != Operation::BindConnToSession {
            return Ok(());
        }
        let at = self.peer_at();
        self.nfs4.bind(id, at);
        Ok(())
    }

    /// Checks the credential of an operation on a client or its sessions.
    ///
    /// # Errors
    /// NFS4ERR_WRONG_CRED where the credential of the client's machine is enforced, and the call
    /// has another one.
    pub(in crate::v4) fn check_machine(
        &self,
        client: &Client,
        operation: Operation,
    ) -> Result<(), Status4> {
        let enforces = client.guard.is_some_and(|guard| guard.enforces(operation));
        if enforces && !self.has_credential_of(client) { Err(Status4::WrongCred) } else { Ok(()) }
    }

    /// Returns true for a call with the credential of the machine of its session's client, if that
    /// may send this operation for all users.
    pub(in crate::v4) fn may_let_go(&self, operation: Operation) -> bool {
        let session = self.compound.slot.and_then(|slot| self.nfs4.sessions.get(&slot.session));
        let client = session.and_then(|session| self.nfs4.clients.get(session.client));
        client.is_some_and(|client| {
            client.guard.is_some_and(|guard| guard.allows(operation))
                && self.has_credential_of(client)
        })
    }

    fn has_credential_of(&self, client: &Client) -> bool {
        let (principal, security) = (self.compound.principal, self.compound.caller.security);
        is_machine_credential(principal, security) && client.principal == principal
    }

    /// The record of a client ID.
    ///
    /// # Errors
    /// NFS4ERR_STALE_CLIENTID for one that does not exist, or belongs to another host.
    pub(in crate::v4) fn own_client(&self, id: u64) -> Result<&Client, Status4> {
        let is_own = self.nfs4.is_of(id, self.compound.source);
        self.nfs4.clients.get(id).filter(|_| is_own).ok_or(Status4::StaleClientid)
    }
}
