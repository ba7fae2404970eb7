//! Calls by a ticket of Kerberos: the option `--sec`, and contexts for a client (RFC 2203,
//! RFC 4121).

use crate::caller;
use clap::{Args, ValueEnum};
use stag_client::NfsClient;
use stag_rpc::gss::{
    ContextFault, ContextSource, GssService, KerberosTickets, PendingSetup, TcpCreation, Tickets,
};
use std::{
    cell::RefCell,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

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

/// Lets a client that is not connected yet call by these tickets, if there are any. No ticket is
/// needed before the first call. A server that creates no contexts over RDMA is asked at
/// `creation`.
///
/// # Errors
/// There is no library of Kerberos, or no ticket.
pub fn protect(
    client: &mut NfsClient,
    tickets: Option<Tickets>,
    creation: Option<TcpCreation>,
) -> Result<(), ContextFault> {
    let Some(tickets) = tickets else { return Ok(()) };
    client.protect(tickets.source()?, tickets.service());
    client.create_contexts_at(creation);
    Ok(())
}

/// Tickets by which the server of this host is called; none without Kerberos. What they have to say
/// is printed.
pub fn tickets(sec: CallerSec, host: &str) -> Option<Tickets> {
    let service = sec.service()?;
    let tickets = KerberosTickets::new(&format!("nfs@{host}"));
    Some(Tickets::new(service, move || Ok(Box::new(NotedSource(tickets.source()?)))))
}

/// The sentence about contexts over TCP was printed. Several threads may call one server.
static IS_PRINTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The latest failure of a creation on this thread, for the error of the call that needed it.
    static LATEST: RefCell<Option<ContextFault>> = const { RefCell::new(None) };
}

/// The words of the latest failure to create a context on this thread, once.
pub fn take_fault() -> Option<ContextFault> {
    LATEST.take()
}

/// Contexts with one server, whose failures have words in [`take_fault`].
struct NotedSource(Box<dyn ContextSource>);

impl ContextSource for NotedSource {
    fn begin(&mut self) -> Result<(Vec<u8>, Box<dyn PendingSetup>), ContextFault> {
        self.0.begin()
    }

    fn on_fault(&mut self, fault: &ContextFault) {
        LATEST.set(Some(fault.clone()));
    }

    fn on_created_over_tcp(&mut self, sentence: &str) {
        if !IS_PRINTED.swap(true, Relaxed) {
            caller::aside(format!("{sentence}\n"));
        }
    }
}
