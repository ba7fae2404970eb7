//! Calls by a ticket of Kerberos: the option `--sec`, and contexts for a client from
//! libgssapi_krb5 (RFC 2203, RFC 4121).

use clap::{Args, ValueEnum};
use stag_client::NfsClient;
use stag_gss::InitiatorContext;
use stag_gssapi::{
    ClientCredentials, Enctype, GssFailure, GssInitiator, GssLibrary, InitiatorSettings,
    PendingContext, ServiceName,
};
use stag_protocol::rpc::gss::GssService;
use stag_rpc::gss::{ContextFault, ContextSource, PendingSetup};
use std::{cell::RefCell, fmt};

/// The first sequence number of a context's calls.
const FIRST: u32 = 1;

/// The credential of a caller, as mount(8) spells it (RFC 2623).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CallerSec {
    /// AUTH_SYS: the user and group that run the command
    #[default]
    Sys,
    /// A ticket of Kerberos; headers are signed
    Krb5,
    /// Also arguments and results are signed
    Krb5i,
    /// Arguments and results are encrypted
    Krb5p,
}

impl CallerSec {
    /// The service that it names, by its spelling.
    pub fn named(name: &str) -> Option<Self> {
        Self::from_str(name, false).ok()
    }

    /// Its spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sys => "sys",
            Self::Krb5 => "krb5",
            Self::Krb5i => "krb5i",
            Self::Krb5p => "krb5p",
        }
    }

    /// The protection of calls in a context; none without Kerberos.
    pub const fn service(self) -> Option<GssService> {
        match self {
            Self::Sys => None,
            Self::Krb5 => Some(GssService::None),
            Self::Krb5i => Some(GssService::Integrity),
            Self::Krb5p => Some(GssService::Privacy),
        }
    }
}

/// The option `--sec`.
#[derive(Clone, Copy, Debug, Args)]
pub struct CallSecOptions {
    /// Credential of the calls to NFS: sys, or a ticket of Kerberos by krb5 (headers signed), krb5i
    /// (all signed) or krb5p (all encrypted); the same as ?sec= in the URL [default: sys]
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "sys|krb5|krb5i|krb5p",
        hide_possible_values = true
    )]
    pub sec: Option<CallerSec>,
}

/// Lets a client call the host of this name by a credential. No ticket is needed before the first
/// call.
///
/// # Errors
/// There is no library of Kerberos, or no ticket.
pub fn protect(client: &mut NfsClient, sec: CallerSec, host: &str) -> Result<(), ContextFault> {
    let Some(service) = sec.service() else { return Ok(()) };
    client.protect(Box::new(TicketSource::open(host)?), service);
    Ok(())
}

thread_local! {
    /// The latest failure of a creation on this thread, for the error of the call that needed it.
    static LATEST: RefCell<Option<ContextFault>> = const { RefCell::new(None) };
}

/// The words of the latest failure to create a context on this thread, once.
pub fn take_fault() -> Option<ContextFault> {
    LATEST.take()
}

/// Contexts with one server.
struct TicketSource {
    initiator: GssInitiator,
    target: String,
}

impl TicketSource {
    fn open(host: &str) -> Result<Self, ContextFault> {
        let target = format!("nfs@{host}");
        let library = GssLibrary::load().map_err(|fault| ContextFault(fault.to_string()))?;
        let settings = InitiatorSettings {
            target: ServiceName::HostBased(&target),
            credentials: ClientCredentials::OfTheLibrary,
            enctypes: &Enctype::ALL,
            is_mutual: true,
        };
        let initiator = GssInitiator::new(library, &settings).map_err(|fault| words(&fault))?;
        Ok(Self { initiator, target })
    }
}

impl fmt::Debug for TicketSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSource").field("target", &self.target).finish_non_exhaustive()
    }
}

/// A failure with its fix.
fn words(failure: &GssFailure) -> ContextFault {
    ContextFault(failure.to_string())
}

impl ContextSource for TicketSource {
    fn begin(&mut self) -> Result<(Vec<u8>, Box<dyn PendingSetup>), ContextFault> {
        let (token, pending) = self.initiator.begin().map_err(|failure| {
            ContextFault(format!("{} (service {})", words(&failure), self.target))
        })?;
        Ok((token, Box::new(TicketSetup(pending))))
    }

    fn on_fault(&mut self, fault: &ContextFault) {
        LATEST.set(Some(fault.clone()));
    }
}

/// A context that waits for the server's token.
struct TicketSetup(PendingContext);

impl PendingSetup for TicketSetup {
    fn finish(self: Box<Self>, token: &[u8]) -> Result<InitiatorContext, ContextFault> {
        let secret = self.0.finish(token).map_err(|failure| words(&failure))?;
        InitiatorContext::new(&secret.context_key(), FIRST)
            .map_err(|fault| ContextFault(fault.to_string()))
    }
}
