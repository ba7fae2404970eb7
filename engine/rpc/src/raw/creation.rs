//! Creation of contexts over a TCP connection of its own, for calls over RDMA.

use super::{ConnectFault, RawClient};
use crate::{
    error::SetupError,
    gss::{
        CalledProgram, ClientContext, ContextFault, ContextSource, CreationFault, CreationRoute,
        GssService, Refusal, TcpCreation,
    },
    shard::sizes,
};
use stag_engine::{Config, clock::Clock};
use std::time::Duration;

/// Time that a context's creation over TCP may take: nothing else is done meanwhile.
const CREATION_MAX: Duration = Duration::from_secs(10);
/// Buffers for a token of the longest length, and its reply.
const SLOTS: [usize; 3] = [16, 4, 1];

impl CreationRoute {
    /// Creates a context over TCP, with a token of its own: a server takes each token once. Waits
    /// for the server, ten seconds at most in each step. None while requests go over the connection
    /// of the calls; they do so again after a failure.
    pub fn create(
        &mut self,
        source: &mut dyn ContextSource,
        service: GssService,
        to: CalledProgram,
        timeout: Duration,
    ) -> Option<Result<ClientContext, ContextFault>> {
        let (Some(tcp), Some(refusal)) = (&self.tcp, &self.refusal) else { return None };
        let (at, first) = (tcp.at, &refusal.why);
        let created = match tcp.create(source, service, to, timeout.min(CREATION_MAX)) {
            Ok(context) => {
                if !std::mem::replace(&mut self.is_noted, true) {
                    source.on_created_over_tcp(&format!(
                        "the server grants no context over RDMA ({first}): its contexts are \
                         created over TCP, at {at}"
                    ));
                }
                Ok(context)
            }
            Err(Refusal { why, fix }) => Err(ContextFault(format!(
                "the server grants no context over RDMA ({first}), nor over TCP at {at} \
                 ({why}){fix}"
            ))),
        };
        if created.is_err() {
            self.refusal = None;
        }
        Some(created)
    }
}

impl TcpCreation {
    /// Creates a context over a connection of its own.
    fn create(
        &self,
        source: &mut dyn ContextSource,
        service: GssService,
        to: CalledProgram,
        timeout: Duration,
    ) -> Result<ClientContext, Refusal> {
        let config = Config { call_tls: self.tls.clone(), ..sizes(SLOTS, 2) };
        let mut client = RawClient::on_fabric(None, config, Clock::start(), timeout)
            .map_err(|error: SetupError| Refusal { why: error.to_string(), fix: "" })?;
        client.connect_tcp(self.at).map_err(|fault| Refusal {
            why: match fault {
                ConnectFault::Fabric(fault) => fault.to_string(),
                ConnectFault::Ended(cause) => cause.to_string(),
                ConnectFault::TimedOut => "no connection in time".to_owned(),
            },
            fix: ": let the server listen there, or give the port at which it does",
        })?;
        client.create_context(source, service, to).map_err(|fault| match fault {
            CreationFault::Refused(refusal) => refusal,
            fault => Refusal { why: ContextFault::from(fault).0, fix: "" },
        })
    }
}
