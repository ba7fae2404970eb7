//! Start of Kerberos: the acceptor of contexts, on a thread of the engine.

use crate::{Error, serve::plan::Plan};
use stag_engine::gss::{ContextLimits, GssContexts};
use stag_nfs::kerberos::KerberosAcceptor;
use std::sync::Arc;

/// Starts the thread that accepts contexts, if the plan has Kerberos. Confinement and privileges
/// are those of the whole process by then.
///
/// # Errors
/// A sentence about the library, the keytab, or the thread.
pub fn start(plan: &mut Plan) -> Result<(), Error> {
    let Some(kerberos) = &mut plan.kerberos else { return Ok(()) };
    let acceptor = KerberosAcceptor::new(kerberos.acceptor()?, Arc::clone(&kerberos.users));
    let contexts = GssContexts::start(Box::new(acceptor), ContextLimits::default());
    let contexts = contexts.map_err(|error| {
        Error::failure(format!("cannot start the thread of Kerberos contexts: {error}"))
    })?;
    kerberos.contexts = Some(contexts);
    Ok(())
}
