//! Tickets of a caller, and keys of a server: from where their contexts come.

use super::{ContextFault, ContextSource, PendingSetup, TcpCreation};
use stag_engine::{
    gss::{AcceptedContext, ContextAcceptor, ContextLimits, GssContexts, RefusedContext},
    tls::ClientTls,
};
use stag_fabrics::Endpoint;
use stag_gss::{AcceptorContext, InitiatorContext};
use stag_gssapi::{
    AcceptorSettings, ClientCredentials, Enctype, GssAcceptor, GssInitiator, GssLibrary,
    InitiatorSettings, PendingContext, ReplayCache, ServiceName,
};
use stag_protocol::rpc::gss::{GssService, MajorStatus};
use stag_verbs::PeerAddress;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The first sequence number of a context's calls.
const FIRST: u32 = 1;

/// Opens a source of contexts on the thread that uses it.
type OpenSource = dyn Fn() -> Result<Box<dyn ContextSource>, ContextFault> + Send + Sync;

/// Tickets by which a client calls one service, and the protection of its calls.
#[derive(Clone)]
pub struct Tickets {
    open: Arc<OpenSource>,
    service: GssService,
    /// Port of the server over TCP.
    port: Option<u16>,
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Tickets {
    /// Tickets of any mechanism: `open` makes the source of contexts, on the thread that uses it.
    pub fn new(
        service: GssService,
        open: impl Fn() -> Result<Box<dyn ContextSource>, ContextFault> + Send + Sync + 'static,
    ) -> Self {
        Self { open: Arc::new(open), service, port: None }
    }

    /// Tickets of Kerberos 5, with MIT's library.
    pub fn of_kerberos(service: GssService, tickets: KerberosTickets) -> Self {
        Self::new(service, move || tickets.source())
    }

    /// The server's port over TCP, at which contexts are created if it refuses them over RDMA, by
    /// an answer or by ending the connection. Default: 2049, after an answer alone.
    #[must_use]
    pub fn tcp_port(self, port: u16) -> Self {
        Self { port: Some(port), ..self }
    }

    /// The place of contexts of the server at `to`, if it refuses to create them over RDMA.
    pub(crate) fn creation(
        &self,
        to: &Endpoint,
        tls: Option<Arc<ClientTls>>,
    ) -> Option<TcpCreation> {
        TcpCreation::of(to, self.port, tls)
    }

    /// The protection of calls.
    pub const fn service(&self) -> GssService {
        self.service
    }

    /// Opens the source of contexts.
    ///
    /// # Errors
    /// There is no library of Kerberos, or no ticket, for example.
    pub fn source(&self) -> Result<Box<dyn ContextSource>, ContextFault> {
        (self.open)()
    }
}

/// The place of a client's tickets.
#[derive(Clone, Debug, Default)]
enum TicketPlace {
    #[default]
    OfTheLibrary,
    Cache(String),
    Keytab(PathBuf, Option<String>),
}

/// Tickets of Kerberos 5 for one service. No ticket is needed before the first context.
#[derive(Clone, Debug)]
pub struct KerberosTickets {
    target: String,
    place: TicketPlace,
}

impl KerberosTickets {
    /// Tickets for a service of a host, as in `nfs@server.example`. The library chooses their
    /// place: `KRB5CCNAME`, `KRB5_CLIENT_KTNAME`, krb5.conf.
    pub fn new(target: &str) -> Self {
        Self { target: target.to_owned(), place: TicketPlace::OfTheLibrary }
    }

    /// The same, from a credential cache, as in `FILE:/tmp/krb5cc_0`.
    #[must_use]
    pub fn cache(self, cache: &str) -> Self {
        Self { place: TicketPlace::Cache(cache.to_owned()), ..self }
    }

    /// The same, by the keys of a client's keytab: of this principal, or of its first one.
    #[must_use]
    pub fn keytab(self, path: impl Into<PathBuf>, principal: Option<&str>) -> Self {
        let principal = principal.map(str::to_owned);
        Self { place: TicketPlace::Keytab(path.into(), principal), ..self }
    }

    /// A source of contexts with the service.
    ///
    /// # Errors
    /// There is no library of Kerberos, or the cache or keytab cannot be used.
    pub fn source(&self) -> Result<Box<dyn ContextSource>, ContextFault> {
        let library = GssLibrary::load().map_err(|fault| ContextFault(fault.to_string()))?;
        let credentials = match &self.place {
            TicketPlace::OfTheLibrary => ClientCredentials::OfTheLibrary,
            TicketPlace::Cache(cache) => ClientCredentials::Cache(cache),
            TicketPlace::Keytab(path, principal) => {
                ClientCredentials::Keytab { path, principal: principal.as_deref() }
            }
        };
        let settings = InitiatorSettings {
            target: ServiceName::HostBased(&self.target),
            credentials,
            enctypes: &Enctype::ALL,
            is_mutual: true,
        };
        let initiator = GssInitiator::new(library, &settings)
            .map_err(|failure| ContextFault(failure.to_string()))?;
        Ok(Box::new(KerberosSource { initiator, target: self.target.clone() }))
    }
}

/// Contexts with one service.
struct KerberosSource {
    initiator: GssInitiator,
    target: String,
}

impl ContextSource for KerberosSource {
    fn begin(&mut self) -> Result<(Vec<u8>, Box<dyn PendingSetup>), ContextFault> {
        let (token, pending) = self
            .initiator
            .begin()
            .map_err(|failure| ContextFault(format!("{failure} (service {})", self.target)))?;
        Ok((token, Box::new(KerberosSetup(pending))))
    }
}

/// A context that waits for the server's token.
struct KerberosSetup(PendingContext);

impl PendingSetup for KerberosSetup {
    fn finish(self: Box<Self>, token: &[u8]) -> Result<InitiatorContext, ContextFault> {
        let secret = self.0.finish(token).map_err(|failure| ContextFault(failure.to_string()))?;
        InitiatorContext::new(&secret.context_key(), FIRST)
            .map_err(|fault| ContextFault(fault.to_string()))
    }
}

/// The contexts of a server with the keys of a keytab, for all principals of `service` in it, as in
/// `nfs`. Principals get no user of the host. Repeated authenticators are recorded in
/// `replay_cache`, if one is given.
///
/// # Errors
/// There is no library of Kerberos, the keytab cannot be used, or no thread can be started.
pub fn contexts_of_keytab(
    keytab: &Path,
    service: &str,
    replay_cache: Option<&Path>,
) -> Result<Arc<GssContexts>, ContextFault> {
    let library = GssLibrary::load().map_err(|fault| ContextFault(fault.to_string()))?;
    let settings = AcceptorSettings {
        service: ServiceName::HostBased(service),
        keytab: Some(keytab),
        replay_cache: replay_cache.map_or(ReplayCache::Off, ReplayCache::File),
    };
    let acceptor = GssAcceptor::new(library, &settings);
    let acceptor = acceptor.map_err(|failure| ContextFault(failure.to_string()))?;
    GssContexts::start(Box::new(KeytabAcceptor(acceptor)), ContextLimits::default())
        .map_err(|error| ContextFault(error.to_string()))
}

/// Accepts every principal that has a ticket.
struct KeytabAcceptor(GssAcceptor);

impl ContextAcceptor for KeytabAcceptor {
    fn accept(&mut self, token: &[u8], _: PeerAddress) -> Result<AcceptedContext, RefusedContext> {
        let refused = |major: MajorStatus, minor, token| {
            // The results of a refusal have to be an error.
            let major = if major.is_failure() { major } else { MajorStatus::FAILURE };
            RefusedContext { major, minor, token }
        };
        let accepted =
            self.0.accept(token).map_err(|stag_gssapi::RefusedToken { failure, token }| {
                refused(MajorStatus(failure.major), failure.minor, token)
            })?;
        let stag_gssapi::AcceptedContext { token, principal, keys, .. } = accepted;
        let context = AcceptorContext::new(&keys.context_key())
            .map_err(|_| refused(MajorStatus::FAILURE, 0, Vec::new()))?;
        Ok(AcceptedContext { context, token, principal, unix: None, ends: keys.end_time })
    }
}
