//! The way of creation requests (RFC 2203 §5.2): the connection of the calls, or a TCP connection
//! for them alone, once the server has refused them over RDMA. Contexts are of the server, not of a
//! connection: Linux creates those of its mounts over RDMA by TCP, too, and some servers expect it.

use super::{
    ContextFault,
    context::{CreationFault, Refusal},
};
use crate::call::CallError;
use stag_engine::{CallFault, tls::ClientTls};
use stag_fabrics::Endpoint;
use std::{net::SocketAddr, sync::Arc};

/// The place where a server that refuses the creation of contexts over RDMA creates them by TCP.
#[derive(Clone, Debug)]
pub struct TcpCreation {
    /// Address of the server's program over TCP.
    pub at: SocketAddr,
    /// TLS of the connection (RFC 9289); without it the server is called in the clear.
    pub tls: Option<Arc<ClientTls>>,
    /// A connection over RDMA that ends while a context is asked for counts as a refusal, too. Only
    /// where the port was named: otherwise a server that was just started again would be asked at a
    /// port where perhaps nothing listens.
    pub after_losses: bool,
}

impl TcpCreation {
    /// The port of NFS over TCP (RFC 8881 §2.9.3), at which Linux creates contexts for mounts over
    /// RDMA.
    pub const PORT: u16 = 2_049;

    /// The host of `to` at this port, by default [`Self::PORT`]. None if calls go over TCP, or to a
    /// process of this host.
    pub fn of(to: &Endpoint, port: Option<u16>, tls: Option<Arc<ClientTls>>) -> Option<Self> {
        let mut at = to.fabric()?.ip()?;
        at.set_port(port.unwrap_or(Self::PORT));
        Some(Self { at, tls, after_losses: port.is_some() })
    }
}

/// The way of a client's creation requests.
#[derive(Debug, Default)]
pub struct CreationRoute {
    pub(crate) tcp: Option<TcpCreation>,
    /// A connection that the server ends is made again.
    reconnects: bool,
    /// The answer to a request over RDMA, after which requests go over TCP.
    pub(crate) refusal: Option<Refusal>,
    /// The source was notified.
    pub(crate) is_noted: bool,
}

impl CreationRoute {
    /// Requests go over the connection of the calls, and to `tcp` once that is refused. A server
    /// may refuse by ending the connection: contexts are then of use if it is made again,
    /// `reconnects`.
    pub fn new(tcp: Option<TcpCreation>, reconnects: bool) -> Self {
        Self { tcp, reconnects, ..Self::default() }
    }

    /// Returns true if the end of the connection leads to TCP.
    pub fn watches_losses(&self) -> bool {
        self.tcp.as_ref().is_some_and(|tcp| tcp.after_losses)
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
            CreationFault::Call(CallError::Failed(CallFault::Disconnected(_)))
                if !self.watches_losses() =>
            {
                return Err(fault);
            }
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
}
