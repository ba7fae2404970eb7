//! Kerberos for a server: accepts the contexts of RPCSEC_GSS (RFC 2203 §5.2) and finds the user of
//! this host for each principal. The engine's thread of contexts calls it.
//!
//! | file | what |
//! |---|---|
//! | `name_service.rs` | the host's name service, which may hang |
//! | `user_map.rs` | the map file, which gives principals their users |
//! | `users.rs` | the user of a principal: by the map, krb5.conf and the name service |

mod name_service;
mod user_map;
mod users;

pub use user_map::{USER_MAP_LEN_MAX, UserMap, UserMapFault};
pub use users::KerberosUsers;

use stag_engine::{
    clock::Clock,
    gss::{AcceptedContext, ContextAcceptor, RefusedContext},
};
use stag_gss::AcceptorContext;
use stag_gssapi::{GssAcceptor, RefusedToken};
use stag_nfs_store::log_rate::EventRate;
use stag_protocol::rpc::gss::MajorStatus;
use stag_verbs::PeerAddress;
use std::{fmt, sync::Arc, time::Instant};

/// Minor status of a failure that passes: `EAGAIN`.
const TRY_AGAIN: u32 = 11;

/// Accepts contexts with the keys of this server's keytab.
pub struct KerberosAcceptor {
    acceptor: GssAcceptor,
    admission: PrincipalAdmission,
}

impl KerberosAcceptor {
    /// An acceptor by these keys; principals are the users that `users` has for them.
    #[must_use]
    pub fn new(acceptor: GssAcceptor, users: Arc<KerberosUsers>) -> Self {
        Self { acceptor, admission: PrincipalAdmission::new(users) }
    }
}

impl fmt::Debug for KerberosAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KerberosAcceptor").finish_non_exhaustive()
    }
}

impl ContextAcceptor for KerberosAcceptor {
    fn accept(
        &mut self,
        token: &[u8],
        from: PeerAddress,
    ) -> Result<AcceptedContext, RefusedContext> {
        match self.acceptor.accept(token) {
            Ok(accepted) => self.admission.admit(accepted, from),
            Err(refused) => Err(self.admission.refuse(refused, from)),
        }
    }
}

/// The part after the library: users, refusals and the log.
struct PrincipalAdmission {
    users: Arc<KerberosUsers>,
    clock: Clock,
    refused: EventRate,
    without_user: EventRate,
    unanswered: EventRate,
}

impl PrincipalAdmission {
    fn new(users: Arc<KerberosUsers>) -> Self {
        Self {
            users,
            clock: Clock::start(),
            refused: EventRate::new("refusals of Kerberos contexts"),
            without_user: EventRate::new("principals without a user"),
            unanswered: EventRate::new("principals without an answer"),
        }
    }

    /// The context of a token that the library accepted.
    fn admit(
        &mut self,
        accepted: stag_gssapi::AcceptedContext,
        from: PeerAddress,
    ) -> Result<AcceptedContext, RefusedContext> {
        let stag_gssapi::AcceptedContext { token, principal, local_name, keys, .. } = accepted;
        let user = match self.users.of(&principal, local_name.as_deref(), Instant::now()) {
            Ok(user) => user,
            Err(error) => {
                // The user would be anonymous until its ticket ends; a new attempt may succeed.
                if self.unanswered.allows(self.clock.now()) {
                    tracing::warn!(
                        target: "stag", peer = %from, principal, %error,
                        "no answer about a principal's user"
                    );
                }
                return Err(failed(TRY_AGAIN));
            }
        };
        if let Some(why) = user.reason()
            && self.without_user.allows(self.clock.now())
        {
            tracing::info!(
                target: "stag", peer = %from, principal, why, "a principal has no user here"
            );
        }
        let context = AcceptorContext::new(&keys.context_key()).map_err(|_| failed(0))?;
        Ok(AcceptedContext { context, token, principal, unix: user.unix(), ends: keys.end_time })
    }

    /// The results for a client whose token the library refused.
    fn refuse(&mut self, refused: RefusedToken, from: PeerAddress) -> RefusedContext {
        if self.refused.allows(self.clock.now()) {
            tracing::warn!(
                target: "stag", peer = %from, why = %refused, "no Kerberos context for a client"
            );
        }
        let RefusedToken { failure, token } = refused;
        let major = MajorStatus(failure.major);
        // The results of a refusal have to be an error.
        let major = if major.is_failure() { major } else { MajorStatus::FAILURE };
        RefusedContext { major, minor: failure.minor, token }
    }
}

/// A refusal for a reason of this server.
fn failed(minor: u32) -> RefusedContext {
    RefusedContext { major: MajorStatus::FAILURE, minor, token: Vec::new() }
}

#[cfg(test)]
mod tests;
