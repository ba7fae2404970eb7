//! The way of creation requests (RFC 2203 §5.2): the connection of the calls, or a TCP connection
//! for them alone, once the server has refused them over RDMA. Contexts are of the server, not of a
//! connection: Linux creates those of its mounts over RDMA by TCP, too, and some servers expect it.

use super::{
    CalledProgram, ClientContext, ContextFault, ContextSource,
    context::{CreationFault, Refusal},
};
use crate::{
    call::CallError,
    client::sizes,
    error::SetupError,
    raw::{ConnectFault, RawClient},
};
use stag_engine::{CallFault, Config, clock::Clock, tls::ClientTls};
use stag_fabrics::Endpoint;
use stag_protocol::rpc::gss::GssService;
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Time that a context's creation over TCP may take: nothing else is done meanwhile.
const CREATION_MAX: Duration = Duration::from_secs(10);
/// Buffers for a token of the longest length, and its reply.
const SLOTS: [usize; 3] = [16, 4, 1];

/// The place where a server that refuses the creation of contexts over RDMA creates them by TCP.
#[derive(Clone, Debug)]
pub struct TcpCreation {
    /// Address of the server's program over TCP.
    pub at: SocketAddr,
    /// TLS of the connection (RFC 9289); without it the server is called in the clear.
    pub tls: Option<Arc<ClientTls>>,
}

impl TcpCreation {
    /// The port of NFS over TCP (RFC 8881 §2.9.3), at which Linux creates contexts for mounts over
    /// RDMA.
    pub const PORT: u16 = 2_049;

    /// The host of `to` at this port. None if calls go over TCP, or to a process of this host.
    pub fn of(to: &Endpoint, port: u16, tls: Option<Arc<ClientTls>>) -> Option<Self> {
        let mut at = to.fabric()?.ip()?;
        at.set_port(port);
        Some(Self { at, tls })
    }
}

/// The way of a client's creation requests.
#[derive(Debug, Default)]
pub struct CreationRoute {
    tcp: Option<TcpCreation>,
    /// A connection that the server ends is made again.
    reconnects: bool,
    /// The answer to a request over RDMA, after which requests go over TCP.
    refusal: Option<Refusal>,
    /// The source was notified.
    is_noted: bool,
}

impl CreationRoute {
    /// Requests go over the connection of the calls, and to `tcp` once that is refused. A server
    /// may refuse by ending the connection: contexts are then of use if it is made again,
    /// `reconnects`.
    pub fn new(tcp: Option<TcpCreation>, reconnects: bool) -> Self {
        Self { tcp, reconnects, ..Self::default() }
    }

    /// Returns true if a refusal leads to TCP.
    pub const fn has_detour(&self) -> bool {
        self.tcp.is_some()
    }

    /// Takes the failure of a creation over the connection of the calls. From then on creations go
    /// over TCP.
    ///
    /// # Errors
    /// The failure, if TCP would not change it, or there is no address for it.
    pub fn leave_connection(&mut self, fault: CreationFault) -> Result<(), CreationFault> {
        let refusal = match fault {
            _ if self.tcp.is_none() => return Err(fault),
            CreationFault::Refused(refusal) => refusal,
            CreationFault::Call(CallError::Failed(CallFault::Disconnected(cause)))
                if !self.reconnects =>
            {
                return Err(CreationFault::Failed(ContextFault(format!(
                    "the server ends the connection over RDMA when it is asked for a context \
                     ({cause}): make lost connections again (keep_connected, bench --reconnect), \
                     then the context is created over TCP"
                ))));
            }
            CreationFault::Call(CallError::Failed(
                fault @ (CallFault::Refused(_) | CallFault::Disconnected(_)),
            )) => Refusal { why: fault.to_string(), fix: "" },
            fault => return Err(fault),
        };
        self.refusal = Some(refusal);
        Ok(())
    }

    /// Creates a context over TCP, with a token of its own: a server takes each token once. Waits
    /// for the server, ten seconds at most. None while requests go over the connection of the
    /// calls; they do so again after a failure.
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
