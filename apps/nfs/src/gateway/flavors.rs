//! Security flavors of calls of version 3, which has no status for a wrong one: the call is denied,
//! with AUTH_TOOWEAK (RFC 2623 §2.3.3). Calls of version 4 are judged in `v4/context/flavors.rs`.

use stag_engine::{Answer, Call, Cx};
use stag_protocol::{
    nfs::v3::{self, Procedure},
    rpc::{AuthStatus, CallHeader, Credential, Denied, PrincipalId, ProvenUser, gss::GssService},
};

use super::{CallTarget, Gateway, NoMessage, dispatch::security};
use crate::requester::CallSource;
use stag_nfs_store::{Security, Store, exports::security::SecurityFlavors, objects};

impl<S: Store> Gateway<S> {
    /// Judges the flavor of a call of version 3, and answers it if its exports refuse that. NULL
    /// has no object.
    #[cold]
    pub(super) fn judge_flavor(
        &mut self,
        cx: &mut Cx<'_>,
        call: &Call<'_>,
        procedure: Procedure,
    ) -> Option<Result<Answer, NoMessage>> {
        // Arguments that cannot be decoded are refused on the usual path.
        let nfs = v3::Call::parse(procedure, call.arguments.clone()).ok()?;
        let security = security(&call.header.credential);
        let flavors = objects(&nfs).into_iter().flatten().find_map(|object| {
            let flavors = self.store.flavors_of(object, call.from)?;
            (!flavors.accept(security)).then_some(flavors)
        })?;
        let root = match &nfs {
            v3::Call::GetAttr(args) => Some(&args.object),
            v3::Call::FsInfo(args) => Some(&args.object),
            _ => None,
        };
        // Its port has to prove as much as for any other call.
        let is_trusted = !self.store.asks_for_proof() || self.peers.is_proven(call.peer);
        let is_mounting = !security.is_proven()
            && is_trusted
            && root.is_some_and(|object| self.store.is_root(object));
        let service = service_of(flavors).filter(|_| is_mounting);
        let Some(service) = service else {
            let refusal = call.header.deny(Denied::AuthError(AuthStatus::TOO_WEAK));
            return Some(self.refuse(cx, call.id, refusal));
        };
        Some(self.carry_out_to_mount(cx, call, procedure, service))
    }

    /// Carries out a call that clients make when they mount, before they know which flavor the
    /// export accepts (RFC 2623 §2.3.2): as the anonymous user, with an accepted flavor.
    fn carry_out_to_mount(
        &mut self,
        cx: &mut Cx<'_>,
        call: &Call<'_>,
        procedure: Procedure,
        service: GssService,
    ) -> Result<Answer, NoMessage> {
        let Call { id, peer, from, header, arguments, pulled } = call;
        let anonymous =
            ProvenUser { identity: PrincipalId([0; 16]), principal: "", service, unix: None };
        let header = CallHeader { credential: Credential::Proven(&anonymous), ..*header };
        let (id, peer, from) = (*id, *peer, *from);
        let call = Call { id, peer, from, header, arguments: arguments.clone(), pulled: *pulled };
        let source = CallSource::own(id, peer, from);
        self.carry_out(cx, source, &call, Ok(CallTarget::Nfs(procedure)))
    }
}

/// The service of the first flavor that needs a ticket.
fn service_of(flavors: SecurityFlavors) -> Option<GssService> {
    flavors.list().iter().find_map(|flavor| match flavor {
        Security::Krb5 => Some(GssService::None),
        Security::Krb5i => Some(GssService::Integrity),
        Security::Krb5p => Some(GssService::Privacy),
        Security::None | Security::Sys => None,
    })
}
