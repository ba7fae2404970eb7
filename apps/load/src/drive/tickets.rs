//! Contexts of a generator: made before its first call and ended after its last one.

use super::Load;
use stag_client::Error;
use stag_protocol::nfs::{v3, v4};
use stag_rpc::gss::{CalledProgram, ContextFault, CreationRoute};
use stag_verbs::{Provider, Time};
use std::time::Duration;

/// Time for the server to answer that a context is gone; it need not (RFC 2203 §5.4).
const END_MAX: Duration = Duration::from_secs(1);

impl<P: Provider> Load<P> {
    /// Makes the contexts that all calls need, over connections that are established. Does nothing
    /// without tickets. May wait for a KDC.
    ///
    /// # Errors
    /// There is no ticket, or the server grants no context, or the run is stopped.
    pub fn begin_contexts(
        &mut self,
        now: impl Fn() -> Time,
        stop: impl Fn() -> bool,
    ) -> Result<(), ContextFault> {
        let Some(tickets) = self.tickets.take() else { return Ok(()) };
        let version = if self.is_version4 { v4::VERSION } else { v3::VERSION };
        // RFC 2203 §5.2: a context is created by procedure 0 of the program
        let program = CalledProgram { program: v3::PROGRAM, version, procedure: 0 };
        let contexts_max = self.contexts_max;
        let route = CreationRoute::new(self.creation.take(), self.reconnects);
        self.with_generator(|generator| {
            generator.by_tickets(&tickets, route, program, contexts_max)
        })?;
        let mut fault = None;
        let ended = self.pass_until(&now, &stop, |load| {
            let ready = load.shard.with_app(|generator, cx| generator.ready_contexts(cx));
            Ok(match ready {
                Ok(is_ready) => is_ready.then_some(()),
                Err(found) => {
                    fault = Some(found);
                    Some(())
                }
            })
        });
        match (fault, ended) {
            (Some(fault), _) => Err(fault),
            (None, ended) => ended.map_err(|error: Error| ContextFault(error.to_string())),
        }
    }

    /// Asks the server to forget the contexts, and waits for its answers, but not for long.
    pub fn end_contexts(&mut self, now: impl Fn() -> Time) {
        let timeout = self.timeout.min(END_MAX);
        self.shard.with_app(|generator, cx| generator.end_contexts(cx, timeout));
        // Contexts that remain end with their tickets.
        let _ = self.pass_until(&now, &|| false, |load| {
            Ok(load.generator().have_contexts_ended().then_some(()))
        });
    }
}
