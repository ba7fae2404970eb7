//! The asynchronous client: its calls are futures. It needs no runtime: a thread of its own runs
//! its shard, sends the calls of other threads, and wakes the tasks that wait for replies. Or its
//! shard runs on the thread that polls the futures (`local`).
//!
//! Dropping a future before its reply cancels its call. An unsent call is never sent. A sent one
//! keeps its buffers until the server can no longer reach them (DESIGN D9): until its reply, or
//! until its deadline, which ends the connection.

mod connect;
mod line;
mod local;
mod protected;
mod slot;

use crate::{
    call::{CallError, ReplyOctets, encode, header, reply_max},
    codec::{Encoder, XdrType},
    error::SetupError,
    gss::ContextFault,
    program::{ArgumentsOf, Procedure},
};
use connect::{Advance, AsyncShard};
use slot::{CallOrder, OwnedReply, SlotHandle, SlotOrder};
use stag_engine::{CallFault, Token};
use stag_protocol::{rpc::Credential, xdr::NoRoom};
use std::{
    fmt,
    marker::PhantomData,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// A client with one connection, for many calls at a time. Clones share it; when the last
/// one is dropped the connection ends.
///
/// ```
/// use stag_rpc::{CallError, Replied, Replier, Server, Text, program};
/// use std::{pin::pin, task::{Context, Poll, Waker}};
///
/// program! {
///     /// Greets.
///     pub mod greeter: 0x2053_5401, version 1 {
///         /// The length of a name.
///         1 => fn measure(name: Text<255>) -> u32;
///     }
/// }
///
/// struct Greeter;
///
/// impl greeter::Service for Greeter {
///     fn measure(&mut self, name: &str, reply: Replier<'_, '_, u32>) -> Replied {
///         reply.send(name.len() as u32)
///     }
/// }
///
/// async fn measure_both(client: &greeter::AsyncClient) -> Result<u32, CallError> {
/// // Both calls are in flight at the same time.
///     let (hello, world) = (client.measure("hello"), client.measure("world!"));
///     Ok(hello.await?.results()? + world.await?.results()?)
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::builder().listen("sim://0").serve(|| greeter::Serve(Greeter))?;
/// let client = greeter::AsyncClient::connect(&server.addresses()[0])?;
/// // Any executor works. At sim:// polling a future advances the time.
/// let polled = pin!(measure_both(&client)).poll(&mut Context::from_waker(Waker::noop()));
/// assert_eq!(polled, Poll::Ready(Ok(11)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AsyncClient {
    running: Arc<AsyncShard>,
    timeout: Duration,
    credential: Credential<'static>,
}

impl fmt::Debug for AsyncClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncClient").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A pending call: a future of its reply.
#[must_use = "dropped, it gives up the call"]
pub struct PendingCall<T> {
    running: Arc<AsyncShard>,
    token: Token,
    /// Until the outcome is taken.
    slot: Option<SlotHandle>,
    /// The error of a call that could not be made.
    failed: Option<CallError>,
    results: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for PendingCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCall").field("token", &self.token).finish_non_exhaustive()
    }
}

impl<T> PendingCall<T> {
    /// The outcome of the call, whose reply the slot then has; until it comes, `context` is
    /// registered to be woken.
    fn poll_end(&mut self, context: &Context<'_>) -> Poll<Result<(), CallError>> {
        let slot = self.slot.as_mut().expect("a future is not polled after it was ready");
        let mut state = slot.state();
        if state.ended.is_none() {
            if state.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                return Poll::Pending;
            }
            drop(state);
            // A waker is foreign code: no lock is held while one is cloned or dropped.
            let waker = context.waker().clone();
            let mut again = slot.state();
            if again.ended.is_none() {
                let earlier = again.waker.replace(waker);
                drop(again);
                drop(earlier);
                return Poll::Pending;
            }
            drop(again);
            drop(waker);
            state = slot.state();
        }
        let (ended, reply) = (state.ended, mem::take(&mut state.reply));
        drop(state);
        slot.reply = reply;
        ended.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T: XdrType> Future for PendingCall<T> {
    type Output = Result<AsyncReply<T>, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let mut polled = self.poll_end(context);
        while polled.is_pending() {
            match self.running.advance() {
                Advance::Wait => break,
                Advance::Again => {
                    polled = self.poll_end(context);
                    if polled.is_pending() {
                        context.waker().wake_by_ref();
                    }
                    break;
                }
                Advance::Now => polled = self.poll_end(context),
                Advance::Never => {
                    // Dropping the future gives up the call, which may have been sent.
                    return Poll::Ready(Err(CallError::Failed(CallFault::Cancelled)));
                }
            }
        }
        let Poll::Ready(ended) = polled else { return Poll::Pending };
        let slot = self.slot.take().expect("it was there when it was polled");
        Poll::Ready(ended.and_then(|()| AsyncReply::new(slot)))
    }
}

impl<T> Drop for PendingCall<T> {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        slot.give_up();
        let is_under_way = slot.state().ended.is_none();
        if is_under_way {
            self.running.line().tell(SlotOrder::Cancel(self.token));
        }
    }
}

/// The reply to an executed call, with results of type `T`.
pub struct AsyncReply<T> {
    /// The octets, whose buffers it takes back for the next call.
    slot: SlotHandle,
    /// Offset of the results in the message.
    results_at: usize,
    results: PhantomData<fn() -> T>,
}

impl<T: XdrType> AsyncReply<T> {
    fn new(slot: SlotHandle) -> Result<Self, CallError> {
        let mut reply = Self { slot, results_at: 0, results: PhantomData };
        reply.results_at = reply.octets().results_at()?;
        Ok(reply)
    }

    fn octets(&self) -> ReplyOctets<'_> {
        let OwnedReply { message, chunk } = &self.slot.reply;
        ReplyOctets { message, chunk }
    }

    /// Decodes the results; they borrow from the reply.
    ///
    /// # Errors
    /// If the reply does not match this procedure.
    pub fn results(&self) -> Result<T::Of<'_>, CallError> {
        self.octets().results_from::<T>(self.results_at)
    }
}

impl<T> fmt::Debug for AsyncReply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OwnedReply { message, chunk } = &self.slot.reply;
        write!(f, "a reply of {} octets, {} in a chunk", message.len(), chunk.len())
    }
}

impl AsyncClient {
    /// A client of the server at `url`, with all defaults.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect_async`](crate::ClientBuilder::connect_async).
    pub fn connect(url: &str) -> Result<Self, SetupError> {
        crate::Client::builder().connect_async(url)
    }

    /// The reason of the latest [`CallError::NoContext`], once.
    pub fn take_context_fault(&self) -> Option<ContextFault> {
        self.running.line().take_context_fault()
    }

    /// Calls procedure `P`. The call is started at once; the future is for its reply.
    pub fn call<P: Procedure>(&self, arguments: ArgumentsOf<'_, P>) -> PendingCall<P::Results> {
        let line = self.running.line();
        let (slot, completion, token, ordered) =
            SlotHandle::pair(line, |order| self.order::<P>(order, &arguments));
        let elsewhere = (!self.running.is_here()).then_some(CallFault::NoPeer.into());
        let failed = ordered.err().or(elsewhere);
        let mut call = PendingCall {
            running: Arc::clone(&self.running),
            token,
            slot: Some(slot),
            failed,
            results: PhantomData,
        };
        match failed {
            Some(_) => call.slot = None,
            None => line.tell(SlotOrder::Call(token, completion)),
        }
        call
    }

    /// Writes a call into `order`.
    fn order<P: Procedure>(
        &self,
        order: &mut CallOrder,
        arguments: &ArgumentsOf<'_, P>,
    ) -> Result<(), CallError> {
        let len_max = P::Arguments::LEN_MAX;
        if order.room.len() < len_max {
            order.room.resize(len_max, 0);
        }
        let mut encoder = Encoder::new(&mut order.room);
        encode::<P>(&mut encoder, arguments).map_err(|NoRoom| CallError::TooLong)?;
        let (len, item) = encoder.finish();
        (order.header, order.arguments_len) = (Some(header::<P>(self.credential)), len);
        order.item.clear();
        order.item_at = item.map(|(position, octets)| {
            order.item.extend_from_slice(&octets);
            position
        });
        (order.reply_max, order.item_max) = (reply_max::<P>(), P::Results::ITEM_MAX);
        order.timeout = self.timeout;
        Ok(())
    }
}

/// The asynchronous client of a program.
#[doc(hidden)]
#[macro_export]
macro_rules! async_clients {
    ($(
        $(#[$meta:meta])*
        fn $procedure:ident($($argument:ident: $type:ty),*) -> $results:ty;
    )+) => {
        /// A client whose calls are futures. Clones share one connection.
        #[derive(Clone, Debug)]
        pub struct AsyncClient($crate::AsyncClient);

        impl AsyncClient {
            /// Connects to the server at `url`, and waits for the connection.
            ///
            /// # Errors
            /// As `stag_rpc::ClientBuilder::connect_async`.
            pub fn connect(url: &str) -> ::std::result::Result<Self, $crate::SetupError> {
                $crate::AsyncClient::connect(url).map(Self)
            }

            /// Calls over this connection.
            pub const fn over(connection: $crate::AsyncClient) -> Self {
                Self(connection)
            }

            /// The connection.
            pub const fn connection(&self) -> &$crate::AsyncClient {
                &self.0
            }

            $(
                $(#[$meta])*
                #[allow(clippy::extra_unused_lifetimes, clippy::needless_lifetimes)]
                pub fn $procedure<'arguments>(
                    &self,
                    $($argument: <$type as $crate::XdrType>::Of<'arguments>),*
                ) -> $crate::PendingCall<$results> {
                    self.0.call::<procedures::$procedure>(($($argument,)*))
                }
            )+
        }
    };
}
