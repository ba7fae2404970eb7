//! Sockets passed by a service manager (socket activation, sd_listen_fds(3)): the server listens on
//! them in place of its own, so that connects queue while it restarts.

use super::{options::SteerOption, shards::FabricShards};
use crate::Error;
use rustix::net::{SocketType, sockopt};
use stag_nfs::serve::passed::{self, PassedDescriptor};
use stag_verbs::PassedListeners;
use std::{
    net::{SocketAddr, TcpListener},
    sync::OnceLock,
};

/// The sockets that were passed to this process. The first call takes them, before anything else is
/// opened.
///
/// # Errors
/// A sentence about one that is no listening TCP socket.
pub fn sockets() -> Result<PassedListeners, Error> {
    static SOCKETS: OnceLock<Result<PassedListeners, String>> = OnceLock::new();
    SOCKETS.get_or_init(take).clone().map_err(Error::usage)
}

fn take() -> Result<PassedListeners, String> {
    let all = passed::take().map_err(|fault| format!("the service manager: {fault}"))?;
    if all.is_empty() {
        return Ok(PassedListeners::NONE);
    }
    let listeners = all.into_iter().map(listener).collect::<Result<Vec<_>, _>>()?;
    let passed = PassedListeners::new(listeners).map_err(|error| error.to_string())?;
    let mut seen: Vec<_> = passed.addresses().collect();
    seen.sort_unstable();
    match seen.windows(2).find(|pair| pair.first() == pair.last()) {
        Some([at, ..]) => {
            Err(format!("the service manager passes two sockets at {at}: one serves"))
        }
        _ => Ok(passed),
    }
}

/// The socket of a descriptor.
fn listener(passed: PassedDescriptor) -> Result<TcpListener, String> {
    let PassedDescriptor { number, name, descriptor } = passed;
    let wrong = |why: &str| {
        format!(
            "the service manager passes a socket ({name}, descriptor {number}) that {why}: write \
             ListenStream=IP:PORT in its unit"
        )
    };
    match sockopt::socket_type(&descriptor) {
        Ok(SocketType::STREAM) => {}
        Ok(_) => return Err(wrong("is none of TCP")),
        Err(_) => return Err(wrong("is no socket")),
    }
    if !sockopt::socket_acceptconn(&descriptor).unwrap_or(false) {
        return Err(wrong("does not listen (Accept=yes?)"));
    }
    let listener = TcpListener::from(descriptor);
    // std reads no other family than those of IP.
    listener.local_addr().map_err(|_| wrong("has no IP address"))?;
    Ok(listener)
}

/// The sockets of a server at these addresses.
///
/// # Errors
/// A sentence about one that cannot serve there.
pub fn at(
    fabrics: &[FabricShards],
    tcp: Option<SocketAddr>,
    steer: SteerOption,
) -> Result<PassedListeners, Error> {
    let passed = sockets()?;
    let over_tcp = fabrics.iter().filter(|fabric| fabric.group.info().is_over_tcp);
    let listen: Vec<_> = over_tcp.flat_map(|fabric| fabric.group.ips()).collect();
    check(&passed, &listen, tcp, steer)?;
    Ok(passed)
}

/// Checks that each socket is at a served address: `listen` over a fabric on top of TCP, and `tcp`.
///
/// # Errors
/// A sentence about the first that is not.
fn check(
    passed: &PassedListeners,
    listen: &[SocketAddr],
    tcp: Option<SocketAddr>,
    steer: SteerOption,
) -> Result<(), Error> {
    let is_served = |at: &SocketAddr| listen.contains(at) || tcp == Some(*at);
    if let Some(at) = passed.addresses().find(|at| !is_served(at)) {
        return Err(Error::usage(format!(
            "the service manager passes a socket at {at}, where nothing is to be served: give \
             --tcp {at} or --listen iwarp://{at}, or take it out of the .socket unit"
        )));
    }
    if passed.addresses().next().is_some() && steer == SteerOption::Address {
        return Err(Error::usage(
            "--steer address needs a socket for each core, and the service manager passes one for \
             all: leave --steer out, or stop the .socket unit",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_at_an_address_that_is_not_served_is_refused_with_the_flags_that_would_serve_it() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let passed = PassedListeners::new([socket]).unwrap();
        let other = SocketAddr::new(at.ip(), 1);
        let judged = |listen: &[SocketAddr], tcp| {
            check(&passed, listen, tcp, SteerOption::Connection).map_err(|error| error.to_string())
        };
        assert_eq!(judged(&[other, at], None), Ok(()));
        assert_eq!(judged(&[other], Some(at)), Ok(()));
        let refused = judged(&[other], Some(other)).unwrap_err();
        assert!(refused.contains(&format!("--tcp {at} or --listen iwarp://{at}")), "{refused}");
        let steered = check(&passed, &[at], None, SteerOption::Address).unwrap_err().to_string();
        assert!(steered.contains("--steer address"), "{steered}");
        assert!(check(&PassedListeners::NONE, &[], None, SteerOption::Address).is_ok());
    }
}
