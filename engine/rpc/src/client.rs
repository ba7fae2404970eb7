//! The blocking client: its thread runs the passes of its shard until the reply arrives.

use crate::{
    call::{CallError, CallTerms, ReplyOctets, make},
    error::SetupError,
    gss::{ContextFault, Tickets},
    program::{ArgumentsOf, Procedure, Programs, ResultsOf},
    raw::{ConnectFault, FinishedCall, RawClient},
    shard::{parse, sizes},
};
use stag_engine::{CallFault, Config, clock::Clock};
use stag_fabrics::Endpoint;
use stag_protocol::rpc::Credential;
use std::{fmt, time::Duration};

/// Time that a dropped client waits for its connection to close in order.
const FAREWELL: Duration = Duration::from_millis(20);

/// Configuration of a client. Everything has a default.
pub struct ClientBuilder {
    pub(crate) config: Option<Config>,
    pub(crate) clock: Clock,
    pub(crate) timeout: Duration,
    pub(crate) credential: Credential<'static>,
    pub(crate) keep: bool,
    pub(crate) programs: Option<Box<dyn Programs>>,
    pub(crate) tickets: Option<Tickets>,
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A client with one connection, which makes one call at a time. The typed clients of
/// [`program!`](crate::program) own one, or borrow one.
///
/// ```
/// use stag_rpc::{CallError, Client, Replied, Replier, Server, program};
/// use std::time::Duration;
///
/// program! {
///     /// Adds.
///     pub mod adder: 0x2053_5400, version 1 {
///         /// The sum of both numbers.
///         1 => fn add(a: u32, b: u32) -> Option<u32>;
///     }
/// }
///
/// struct Adder;
///
/// impl adder::Service for Adder {
///     fn add(&mut self, a: u32, b: u32, reply: Replier<'_, '_, Option<u32>>) -> Replied {
///         reply.send(a.checked_add(b))
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::builder().listen("sim://0").serve(|| adder::Serve(Adder))?;
/// let builder = Client::builder().timeout(Duration::from_secs(5));
/// let mut client = builder.connect(&server.addresses()[0])?;
/// assert_eq!(adder::Client::over(&mut client).add(2, 3)?, Some(5));
/// // The same by the type of the procedure.
/// assert_eq!(client.call::<adder::procedures::add>((u32::MAX, 1))?, None);
/// # Ok(())
/// # }
/// ```
pub struct Client {
    raw: RawClient,
    to: Endpoint,
    credential: Credential<'static>,
    keep: bool,
    /// The latest call, which its results borrow from.
    latest: Option<FinishedCall>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("to", &self.to).finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// The sizes of the client's shard. The default allows 16 concurrent calls, in about 10 MB; for
    /// an asynchronous client 256 calls, in about 37 MB, 16 of them with an item beyond 64 KiB
    /// (`slots`). Further calls fail with [`CallFault::Limit`].
    #[must_use]
    pub fn config(self, config: Config) -> Self {
        Self { config: Some(config), ..self }
    }

    /// The clock. Default: one that starts with the builder.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Limits the time that a connection, or the reply to a call, may take. Default: 30 seconds.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The user for whom calls are made. Default: anonymous (AUTH_NONE).
    #[must_use]
    pub fn credential(self, credential: Credential<'static>) -> Self {
        Self { credential, ..self }
    }

    /// Makes calls by tickets, in contexts of RPCSEC_GSS, instead of the credential. The first call
    /// creates a context, and may wait for a KDC. If the server refuses that over RDMA, it is
    /// created over TCP ([`Tickets::tcp_port`]): the client's thread waits for that, ten seconds at
    /// most for the connection and for the answer. If the server refuses by ending the connection,
    /// an asynchronous client needs [`keep_connected`](Self::keep_connected).
    #[must_use]
    pub fn tickets(self, tickets: Tickets) -> Self {
        Self { tickets: Some(tickets), ..self }
    }

    /// Re-establishes a lost connection of a fabric, and sends calls without a reply again with the
    /// same XID. Use it with servers that recognize a repeated call, or with programs whose calls
    /// may be executed twice. Default: a call fails with its connection, and the next call connects
    /// again.
    #[must_use]
    pub fn keep_connected(self) -> Self {
        Self { keep: true, ..self }
    }

    /// Serves these programs to the server, which may call back over the client's connection (RFC
    /// 8167). A [`Client`] answers while it waits: for the reply to a call of its own, or in
    /// [`Client::serve_for`].
    #[must_use]
    pub fn serve(self, programs: impl Programs + 'static) -> Self {
        Self { programs: Some(Box::new(programs)), ..self }
    }

    /// Connects to `url`, and waits until calls can be made.
    ///
    /// # Errors
    /// If the URL is invalid, no server listens there, or the system lacks a resource.
    pub fn connect(self, url: &str) -> Result<Client, SetupError> {
        let to = parse(url)?;
        let Self { config, clock, timeout, credential, keep, programs, tickets } = self;
        let programs = programs.unwrap_or_else(|| Box::new(()));
        let config = config.unwrap_or_else(|| sizes([128, 8, 8], 16));
        // A TCP connection is not re-established.
        let keep = keep && to.fabric().is_some();
        let tls = config.call_tls.clone();
        let mut raw = RawClient::serving(programs, to.fabric(), config, clock, timeout)?;
        if let Some(tickets) = tickets {
            let source = tickets.source().map_err(|ContextFault(why)| SetupError::Tickets(why));
            raw.protect(source?, tickets.service());
            raw.create_contexts_at(tickets.creation(&to, tls));
        }
        let mut client = Client { raw, to, credential, keep, latest: None };
        client.connected().map_err(|fault| fault.at(&client.to))?;
        Ok(client)
    }
}

impl Client {
    /// Configures a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            config: None,
            clock: Clock::start(),
            timeout: Duration::from_secs(30),
            credential: Credential::None,
            keep: false,
            programs: None,
            tickets: None,
        }
    }

    /// A client of the server at `url`, with all defaults.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub fn connect(url: &str) -> Result<Self, SetupError> {
        Self::builder().connect(url)
    }

    /// Calls procedure `P` and waits for its results. They borrow from the reply, which is kept
    /// until the next call.
    ///
    /// # Errors
    /// If there are no results. After [`CallFault::Disconnected`] and [`CallFault::TimedOut`] the
    /// call may or may not have been executed; the next call connects again.
    pub fn call<P: Procedure>(
        &mut self,
        arguments: ArgumentsOf<'_, P>,
    ) -> Result<ResultsOf<'_, P>, CallError> {
        if let Some(latest) = self.latest.take() {
            self.raw.give(latest);
        }
        // The outcomes of cancelled calls are not awaited; their memory may serve the next call.
        self.raw.drop_finished();
        self.connected().map_err(CallFault::from)?;
        let (credential, timeout) = (self.credential, self.raw.timeout());
        let token = match self.raw.is_protected() {
            true => self.raw.begin_protected::<P>(&arguments)?,
            false => self.raw.begin_by(|cx, peer, token| {
                make::<P>(cx, peer, &CallTerms { credential, timeout, token }, &arguments)
            })?,
        };
        let mut finished = self.raw.next_finished()?;
        while finished.token != token {
            self.raw.give(finished);
            finished = self.raw.next_finished()?;
        }
        let finished = self.latest.insert(finished);
        if let Some(fault) = finished.fault() {
            return Err(fault);
        }
        let message = finished.reply.as_ref().map_err(|fault| *fault)?;
        ReplyOctets { message, chunk: finished.chunk() }.results::<P::Results>()
    }

    /// The reason of the latest [`CallError::NoContext`], once.
    pub fn take_context_fault(&mut self) -> Option<ContextFault> {
        self.raw.take_context_fault()
    }

    /// Answers the server's calls for `time`; returns early if the connection ends.
    pub fn serve_for(&mut self, time: Duration) {
        self.raw.serve_for(time);
    }

    /// Connects, unless there is a connection, or a kept one is about to be re-established.
    fn connected(&mut self) -> Result<(), ConnectFault> {
        if self.raw.is_up() || self.keep && self.raw.has_peer() {
            return Ok(());
        }
        self.raw.connect_endpoint(&self.to, self.keep)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.raw.disconnect_within(FAREWELL);
        }
    }
}

/// Typed clients of a program.
#[doc(hidden)]
#[macro_export]
macro_rules! clients {
    ($(
        $(#[$meta:meta])*
        fn $procedure:ident($($argument:ident: $type:ty),*) -> $results:ty;
    )+) => {
        /// A client that waits for each reply. It owns its connection, or borrows one that is
        /// shared with clients of other programs.
        #[derive(Debug)]
        pub struct Client<C = $crate::Client>(C);

        impl Client {
            /// Connects to the server at `url`.
            ///
            /// # Errors
            /// As `stag_rpc::ClientBuilder::connect`.
            pub fn connect(url: &str) -> ::std::result::Result<Self, $crate::SetupError> {
                $crate::Client::connect(url).map(Self)
            }
        }

        impl<C: ::std::borrow::BorrowMut<$crate::Client>> Client<C> {
            /// Calls over this connection.
            pub const fn over(connection: C) -> Self {
                Self(connection)
            }

            /// The connection.
            pub fn connection(&mut self) -> &mut $crate::Client {
                self.0.borrow_mut()
            }

            $(
                $(#[$meta])*
                ///
                /// # Errors
                /// As `stag_rpc::Client::call`.
                #[allow(clippy::extra_unused_lifetimes, clippy::needless_lifetimes)]
                pub fn $procedure<'arguments>(
                    &mut self,
                    $($argument: <$type as $crate::XdrType>::Of<'arguments>),*
                ) -> ::std::result::Result<
                    <$results as $crate::XdrType>::Of<'_>,
                    $crate::CallError,
                > {
                    self.0.borrow_mut().call::<procedures::$procedure>(($($argument,)*))
                }
            )+
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bulk, Octets, Server, Text, XdrType, app};

    /// A procedure with these arguments, of a program that no server has.
    struct Unknown<T>(T);

    impl<T: XdrType> Procedure for Unknown<T> {
        const PROGRAM: u32 = 0x4000_0007;
        const VERSION: u32 = 1;
        const NUMBER: u32 = 1;
        type Arguments = T;
        type Results = u32;
    }

    /// Makes a call of `P` over `raw` and returns the number of buffers that it holds.
    fn held<P: Procedure>(raw: &mut RawClient, arguments: ArgumentsOf<'_, P>) -> usize {
        let (credential, timeout) = (Credential::None, Duration::from_secs(20));
        let begun = raw.begin_by(|cx, peer, token| {
            make::<P>(cx, peer, &CallTerms { credential, timeout, token }, &arguments)
        });
        begun.unwrap();
        let held = raw.buffers_in_use();
        let finished = raw.next_finished().unwrap();
        raw.give(finished);
        held
    }

    #[test]
    fn calls_without_items_hold_no_buffer() {
        let server = Server::builder().listen("iwarp://127.0.0.1:0").serve(|| ()).unwrap();
        let mut client = Client::connect(&server.addresses()[0]).unwrap();
        assert_eq!(held::<Unknown<Text<200>>>(&mut client.raw, "text"), 0);
        assert!(held::<Unknown<Bulk<200>>>(&mut client.raw, Octets::from(b"octets")) > 0);
    }

    #[test]
    fn only_a_client_whose_orders_come_from_elsewhere_wants_idle_passes() {
        use stag_engine::App;
        assert!(!app(()).wants_idle_passes());
    }
}
