//! The set-up of contexts as this crate needs it. A library of Kerberos is outside: it is loaded
//! and called by code with `unsafe`, and waits for files and for the KDC.

use stag_gss::InitiatorContext;
use std::fmt;

/// Makes contexts with one server, for one user.
pub trait ContextSource {
    /// Makes the token that asks for a context. May wait for a KDC.
    ///
    /// # Errors
    /// If there is no ticket, for example.
    fn begin(&mut self) -> Result<(Vec<u8>, Box<dyn PendingSetup>), ContextFault>;

    /// A creation has failed, at this end or at the server's.
    fn on_fault(&mut self, _fault: &ContextFault) {}

    /// The server refuses creations over RDMA, and the first context was created over TCP:
    /// `sentence` has both, for people.
    fn on_created_over_tcp(&mut self, _sentence: &str) {}
}

/// A context for which the server's token is outstanding.
pub trait PendingSetup {
    /// Takes the server's token. A server that refuses may have sent one, too.
    ///
    /// # Errors
    /// If the server refused, or does not prove its identity.
    fn finish(self: Box<Self>, token: &[u8]) -> Result<InitiatorContext, ContextFault>;
}

/// The reason why there is no context, as a sentence for people, with a fix where one is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFault(pub String);

impl fmt::Display for ContextFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ContextFault {}
