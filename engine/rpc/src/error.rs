//! Errors in the set-up of a server or a client.

use stag_engine::{Cause, ConfigFault};
use stag_gss::{BodyFault, TokenFault};
use stag_verbs::FabricFault;
use std::{error::Error, fmt, io};

/// The reason why a server or a client could not be made.
#[derive(Debug)]
pub enum SetupError {
    /// The URL is invalid.
    Url {
        /// The text as given.
        url: String,
        /// The mistake in it.
        why: String,
    },
    /// These sizes conflict.
    Size(ConfigFault),
    /// The builder requests an impossible combination.
    Config(&'static str),
    /// The system has no memory, descriptor or thread left.
    Os(io::Error),
    /// There are no tickets, or no library of Kerberos, for this reason.
    Tickets(String),
    /// A shard ended by a panic, with this text.
    Panicked(String),
    /// Listening at this address failed.
    Listen {
        /// The address.
        url: String,
        /// The reason.
        fault: FabricFault,
    },
    /// The fabric could not even try to connect.
    Connect {
        /// The address.
        url: String,
        /// The reason.
        fault: FabricFault,
    },
    /// No connection was established.
    NotConnected {
        /// The address.
        url: String,
        /// The reason; none if it took too long.
        cause: Option<Cause>,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { url, why } => write!(f, "cannot use {url}: {why}"),
            Self::Size(fault) => fault.fmt(f),
            Self::Config(why) => f.write_str(why),
            Self::Os(error) => write!(
                f,
                "the system has no memory, descriptor or thread for it ({error}): ask for fewer \
                 buffers, connections or cores, or raise the limits of the process"
            ),
            Self::Tickets(why) => write!(f, "no Kerberos: {why}"),
            Self::Panicked(why) => write!(f, "a shard ended by a panic: {why}"),
            Self::Listen { url, fault } => {
                write!(f, "cannot listen at {url}: {fault}{}", listen_advice(*fault))
            }
            Self::Connect { url, fault } => {
                write!(f, "cannot connect to {url}: {fault}{}", CONNECT_ADVICE)
            }
            Self::NotConnected { url, cause: Some(cause) } => {
                write!(f, "no connection to {url}: {cause}{}", connection_advice(*cause))
            }
            Self::NotConnected { url, cause: None } => {
                write!(f, "no connection to {url} in time: is this its address, or is it too busy?")
            }
        }
    }
}

const CONNECT_ADVICE: &str = "; start the server first, or correct the address";

/// Advice for an address that cannot be listened at.
const fn listen_advice(fault: FabricFault) -> &'static str {
    match fault {
        FabricFault::AddressInUse => "; stop the program that uses it, or choose another one",
        FabricFault::BadAddress => "; choose one of this host, or 0.0.0.0 for all of them",
        FabricFault::Denied => "; choose a port from 1024 on, or a directory of your own",
        // ENOENT of a socket's path.
        FabricFault::Os(2) => "; make its directory first",
        FabricFault::Exhausted => "; raise the limit of open files (ulimit -n)",
        _ => "",
    }
}

/// Advice when no connection is established.
const fn connection_advice(cause: Cause) -> &'static str {
    match cause {
        Cause::Fabric(_) => CONNECT_ADVICE,
        Cause::Rejected => "; it is full, or does not admit this client",
        Cause::Handshake => "; another program may listen at this address",
        _ => "",
    }
}

impl Error for SetupError {}

impl From<io::Error> for SetupError {
    fn from(error: io::Error) -> Self {
        let fault = error.get_ref().and_then(|error| error.downcast_ref::<ConfigFault>());
        fault.copied().map_or_else(|| Self::Os(error), Self::Size)
    }
}

impl From<ConfigFault> for SetupError {
    fn from(fault: ConfigFault) -> Self {
        Self::Size(fault)
    }
}

/// The error that ends a program. As the error of `main` it is printed as a sentence, unlike
/// `Box<dyn Error>`.
///
/// ```no_run
/// use stag_rpc::{Failure, Server};
///
/// fn main() -> Result<(), Failure> {
///     let server = Server::builder().listen("tcp://127.0.0.1:4000").serve(|| ())?;
///     Ok(server.wait()?)
/// }
/// ```
pub struct Failure(Box<dyn Error>);

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// As [`Display`](fmt::Display): Rust prints the error of `main` in this form.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The reason why a reply is not taken: it does not have the protection that its call asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnprovenReply {
    /// Its verifier is not the server's signature of the call's number.
    Verifier(TokenFault),
    /// Its results are not protected as the call's arguments were.
    Results(BodyFault),
}

impl fmt::Display for UnprovenReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verifier(fault) => write!(f, "its verifier is not the server's: {fault}"),
            Self::Results(fault) => write!(f, "its results are not protected as asked: {fault}"),
        }
    }
}

impl std::error::Error for UnprovenReply {}
