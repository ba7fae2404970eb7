//! Faults of a fabric, and the party at fault (DESIGN D15).

use std::{fmt, io};

/// Outcome of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Completed.
    Success,
    /// The connection died before completion.
    Flushed,
    /// The peer refused the access (its key, its bounds or its rights); on iWARP only Reads can
    /// report this.
    RemoteAccess,
    /// The peer could not carry out the operation.
    RemoteOperation,
    /// The fabric lost the connection while this was the oldest pending work.
    Lost,
}

/// The reason why a work request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such connection, or it is dying.
    Gone,
    /// The connection is not established yet.
    NotEstablished,
    /// [`Limits::send_queue`](crate::Limits::send_queue) is reached.
    SendQueueFull,
    /// [`Limits::windows`](crate::Limits::windows) is reached.
    NoWindow,
    /// No window of ours has this key.
    NoSuchKey,
    /// The work request is inconsistent: a span outside of its buffer, a length that differs, too
    /// many spans, too much private data.
    Malformed,
}

/// A refused work request: it never completes.
#[derive(Debug)]
pub struct Refused<T> {
    /// The reason.
    pub why: Refusal,
    /// The memory that was passed in.
    pub token: T,
}

/// The layer of iWARP that found an error (RFC 5040 §4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// Remote Direct Memory Access Protocol.
    Rdmap,
    /// Direct Data Placement.
    Ddp,
    /// The layer below: MPA.
    Llp,
}

/// Content of a Terminate message (RFC 5040 §4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terminate {
    /// Layer that reports the error.
    pub layer: Layer,
    /// The error type within the layer.
    pub etype: u8,
    /// The error code within the type.
    pub code: u8,
}

impl fmt::Display for Terminate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:x}/{:02x}", self.layer as u8, self.etype, self.code)
    }
}

/// Fault below the engine: in the provider, the system or the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricFault {
    /// No process listens at that address.
    Refused,
    /// The peer did not answer in time.
    TimedOut,
    /// The connection broke.
    Lost,
    /// The RDMA device is gone: it was removed, or its driver resets it.
    DeviceLost,
    /// The device cannot isolate the memory that peers access, and has connections to another host.
    NotIsolated,
    /// The address is in use already.
    AddressInUse,
    /// The address is not one of this host, or not one of this fabric.
    BadAddress,
    /// A limit of ours is reached: connections, descriptors, memory.
    Exhausted,
    /// Permission is missing.
    Denied,
    /// The peer sent octets that are not a message of this fabric.
    Corrupt,
    /// This verb failed, with the operating system's number.
    Verb(&'static str, i32),
    /// Anything else, with the operating system's number.
    Os(i32),
}

/// A verb that failed on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbFault {
    /// Its name, as in `ibv_create_srq`.
    pub verb: &'static str,
    /// The name of the device, as in `mlx5_0`.
    pub device: String,
    /// The operating system's number.
    pub errno: i32,
}

impl VerbFault {
    /// Adds the name of the verb and of the device to an error. An error without an operating
    /// system's number is one of our own and stays unchanged.
    pub fn name(verb: &'static str, device: &str, error: io::Error) -> io::Error {
        match error.raw_os_error() {
            Some(errno) => {
                io::Error::new(error.kind(), Self { verb, device: device.to_owned(), errno })
            }
            None => error,
        }
    }
}

impl fmt::Display for VerbFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, device, errno } = self;
        write!(f, "{verb} on {device}: {}", io::Error::from_raw_os_error(*errno))
    }
}

impl std::error::Error for VerbFault {}

impl From<&io::Error> for FabricFault {
    fn from(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let verb = error.get_ref().and_then(|inner| inner.downcast_ref::<VerbFault>());
        match error.kind() {
            Kind::ConnectionRefused | Kind::HostUnreachable | Kind::NetworkUnreachable => {
                Self::Refused
            }
            Kind::TimedOut => Self::TimedOut,
            Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::BrokenPipe
            | Kind::UnexpectedEof => Self::Lost,
            Kind::AddrInUse => Self::AddressInUse,
            kind => match (verb, kind) {
                (Some(VerbFault { verb, errno, .. }), _) => Self::Verb(verb, *errno),
                (None, Kind::AddrNotAvailable | Kind::InvalidInput) => Self::BadAddress,
                (None, Kind::PermissionDenied) => Self::Denied,
                (None, Kind::OutOfMemory) => Self::Exhausted,
                (None, _) => Self::Os(error.raw_os_error().unwrap_or(0)),
            },
        }
    }
}

impl fmt::Display for FabricFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("nobody answers at that address"),
            Self::TimedOut => f.write_str("the peer did not answer in time"),
            Self::Lost => f.write_str("the connection broke"),
            Self::DeviceLost => f.write_str("the RDMA device is gone"),
            Self::NotIsolated => {
                f.write_str("the RDMA device has no memory windows, so it calls one host at a time")
            }
            Self::AddressInUse => f.write_str("the address is in use"),
            Self::BadAddress => f.write_str("the address is not one of this host"),
            Self::Exhausted => f.write_str("a limit of this process is reached"),
            Self::Denied => f.write_str("permission denied"),
            Self::Corrupt => f.write_str("the peer wrote what is no message of this fabric"),
            Self::Verb(verb, number) => {
                write!(f, "{verb}: {}", io::Error::from_raw_os_error(*number))
            }
            Self::Os(number) => write!(f, "{}", io::Error::from_raw_os_error(*number)),
        }
    }
}

impl std::error::Error for FabricFault {}

/// The reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// We closed it in order.
    Local,
    /// We closed it: the peer held memory of ours, and its octets moved too slowly for that while
    /// others waited.
    Slow,
    /// We closed it: the peer held memory of ours, or work was pending for it, and next to no
    /// octets moved.
    Stalled,
    /// The peer closed it in order.
    Peer,
    /// The peer rejected the connection; its private data may give the reason.
    Rejected,
    /// The fabric failed.
    Fabric(FabricFault),
    /// The peer broke a rule; it was notified where the fabric allows that.
    PeerFault(Terminate),
    /// The peer reports that we broke a rule.
    Terminated(Terminate),
    /// The peer spoke another protocol while connecting.
    Handshake,
    /// No TLS session was established, or the peer broke its rules.
    Tls,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed by us"),
            Self::Slow => {
                f.write_str("closed by us: it held memory and moved too little while others waited")
            }
            Self::Stalled => f.write_str("closed by us: it made no progress"),
            Self::Peer => f.write_str("closed by the peer"),
            Self::Rejected => f.write_str("rejected by the peer"),
            Self::Fabric(fault) => fault.fmt(f),
            Self::PeerFault(terminate) => {
                write!(f, "the peer broke a rule (Terminate {terminate} sent)")
            }
            Self::Terminated(terminate) => write!(f, "the peer sent Terminate {terminate}"),
            Self::Handshake => f.write_str("the peer does not speak this protocol"),
            Self::Tls => f.write_str("TLS failed"),
        }
    }
}
