//! The initiator's end of context set-up (RFC 4121 §4.1), for a client of RPCSEC_GSS.

use crate::{
    abi::{INITIATE, MUTUAL},
    acceptor::{TOKEN_LEN_MAX, bounded, export, unfinished},
    credentials::{ServiceName, failure, setting},
    fault::{CONTINUE_NEEDED, DEFECTIVE_TOKEN, FAILURE, GssFailure, KerberosFault},
    handles::{CredentialSetting, GssContext, GssCredential, GssName},
    key::ContextSecret,
    library::GssLibrary,
    time::KerberosTime,
    token::KrbError,
};
use stag_gss::Enctype;
use std::{
    ffi::OsStr,
    fmt,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The source of an initiator's tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCredentials<'a> {
    /// The library's choice: `KRB5CCNAME`, `KRB5_CLIENT_KTNAME`, krb5.conf.
    #[default]
    OfTheLibrary,
    /// A credential cache with a ticket, as in `FILE:/tmp/krb5cc_0` or `KCM:`.
    Cache(&'a str),
    /// A keytab. Tickets are obtained when needed and kept in this process's memory.
    Keytab {
        /// The file.
        path: &'a Path,
        /// The client; the keytab's first one if None.
        principal: Option<&'a str>,
    },
}

/// Settings of a [`GssInitiator`]. No variable of the environment has to be set for them.
#[derive(Clone, Copy, Debug)]
pub struct InitiatorSettings<'a> {
    /// The service: `nfs@HOST`, or a principal.
    pub target: ServiceName<'a>,
    /// The tickets.
    pub credentials: ClientCredentials<'a>,
    /// Encryption types that it asks for; [`Enctype::ALL`] as a rule.
    pub enctypes: &'a [Enctype],
    /// True: the acceptor has to prove its identity, and chooses the key.
    pub is_mutual: bool,
}

/// Credentials for one service. `Send` and `Sync`: the library locks its credential during each
/// call.
pub struct GssInitiator {
    shared: Arc<InitiatorParts>,
}

struct InitiatorParts {
    library: &'static GssLibrary,
    credential: GssCredential,
    target: GssName,
    flags: u32,
    keytab: Option<PathBuf>,
}

/// A context for which the acceptor's reply is outstanding. `Send`, not `Sync`.
pub struct PendingContext {
    shared: Arc<InitiatorParts>,
    context: GssContext,
    is_complete: bool,
}

impl GssInitiator {
    /// Finds the credentials. No ticket for the service is asked for yet.
    ///
    /// # Errors
    /// If there is no ticket and no key, or the ticket has expired.
    pub fn new(
        library: &'static GssLibrary,
        settings: &InitiatorSettings<'_>,
    ) -> Result<Self, GssFailure> {
        let target = settings.target.import(library)?;
        let (name, store) = own_identity(library, settings.credentials)?;
        let keytab = match settings.credentials {
            ClientCredentials::Keytab { path, .. } => Some(path.to_owned()),
            _ => None,
        };
        let failed = |status| failure(library, "credentials", status);
        let mut credential = GssCredential::acquire(library, name.as_ref(), INITIATE, &store)
            .map_err(|status| as_client(failed(status), keytab.as_deref()))?;
        credential.restrict(settings.enctypes).map_err(failed)?;
        // RFC 2203 §5.2.2 [2203-6]: replay detection and sequencing stay off
        let flags = if settings.is_mutual { MUTUAL } else { 0 };
        Ok(Self { shared: Arc::new(InitiatorParts { library, credential, target, flags, keytab }) })
    }

    /// Gets a ticket of the service and makes the token for it. Talks to the KDC, for as long as
    /// krb5.conf allows, unless the cache has the ticket.
    ///
    /// # Errors
    /// If the KDC cannot be reached or refuses.
    pub fn begin(&self) -> Result<(Vec<u8>, PendingContext), GssFailure> {
        let shared = &*self.shared;
        let mut context = GssContext::none(shared.library);
        let step = context.initiate(&shared.credential, &shared.target, shared.flags, &[]);
        if step.status.is_error() {
            let failure = failure(shared.library, "ticket", step.status);
            return Err(as_client(failure, shared.keytab.as_deref()));
        }
        let is_complete = step.status.major & CONTINUE_NEEDED == 0;
        let token = bounded(&step.token)?;
        Ok((token, PendingContext { shared: Arc::clone(&self.shared), context, is_complete }))
    }
}

impl PendingContext {
    /// Takes the acceptor's reply: an AP-REP, or nothing if mutual authentication was not asked
    /// for.
    ///
    /// # Errors
    /// If the acceptor refused, or its reply does not prove its identity.
    pub fn finish(mut self, reply: &[u8]) -> Result<ContextSecret, GssFailure> {
        let library = self.shared.library;
        let error = KrbError::parse(reply);
        if reply.len() > TOKEN_LEN_MAX || (reply.is_empty() != self.is_complete && error.is_none())
        {
            let len = reply.len();
            let text = format!("unexpected reply of {len} bytes");
            return Err(GssFailure::own(KerberosFault::Malformed, DEFECTIVE_TOKEN, text));
        }
        if !self.is_complete {
            self.read(reply).map_err(|failure| add_cause(failure, error))?;
        } else if let Some(error) = error {
            let text = format!("the acceptor refuses with error {} of Kerberos", error.code);
            let failure = GssFailure::own(KerberosFault::Other, FAILURE, text);
            return Err(add_cause(failure, Some(error)));
        }
        export(library, self.context)
    }

    /// Gives the acceptor's reply to the library.
    fn read(&mut self, reply: &[u8]) -> Result<(), GssFailure> {
        let InitiatorParts { library, credential, target, flags, .. } = &*self.shared;
        let step = self.context.initiate(credential, target, *flags, reply);
        if step.status.is_error() {
            return Err(failure(library, "reply", step.status));
        }
        if step.status.major & CONTINUE_NEEDED != 0 {
            return Err(unfinished());
        }
        Ok(())
    }
}

/// The name and the settings of a client's credentials.
fn own_identity(
    library: &'static GssLibrary,
    credentials: ClientCredentials<'_>,
) -> Result<(Option<GssName>, Vec<CredentialSetting>), GssFailure> {
    let os = OsStr::new;
    match credentials {
        ClientCredentials::OfTheLibrary => Ok((None, Vec::new())),
        ClientCredentials::Cache(cache) => Ok((None, vec![setting(c"ccache", &[os(cache)])?])),
        ClientCredentials::Keytab { path, principal } => {
            let name = principal.map(|name| ServiceName::Principal(name).import(library));
            // One cache for each identity: the library keeps it until the process ends.
            let cache =
                [os("MEMORY:stag:"), path.as_os_str(), os(":"), os(principal.unwrap_or(""))];
            let keytab = [os("FILE:"), path.as_os_str()];
            let store = vec![setting(c"client_keytab", &keytab)?, setting(c"ccache", &cache)?];
            Ok((name.transpose()?, store))
        }
    }
}

/// Corrects the cause: a client without a keytab lacks a ticket, one with a keytab lacks a key.
fn as_client(mut failure: GssFailure, keytab: Option<&Path>) -> GssFailure {
    use KerberosFault::{NoKey, NoTicket};
    if !matches!(failure.fault, NoKey | NoTicket) {
        return failure;
    }
    failure.fault = if keytab.is_some() { NoKey } else { NoTicket };
    if let Some(path) = keytab {
        failure.text += &format!(" (client keytab {}", path.display());
        if let Err(error) = File::open(path) {
            failure.text += &format!(": {error}");
        }
        failure.text.push(')');
    }
    failure
}

/// Adds what the acceptor's KRB-ERROR says to a failure.
fn add_cause(mut failure: GssFailure, error: Option<KrbError>) -> GssFailure {
    let Some(error) = error else { return failure };
    if failure.fault == KerberosFault::Other {
        failure.fault = KerberosFault::of_error(&error);
    }
    if failure.fault == KerberosFault::ClockSkew {
        let here = KerberosTime::of_this_host();
        failure.text += &format!(" (acceptor's clock: {}, clock here: {here})", error.server_time);
    }
    failure
}

impl fmt::Debug for GssInitiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GssInitiator")
    }
}

impl fmt::Debug for PendingContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingContext")
    }
}
