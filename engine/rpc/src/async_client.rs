//! The client whose calls are futures. It needs no runtime: a thread of its own runs its shard,
//! sends what other threads ask for, and wakes whoever waits for a reply.
//!
//! A future that is dropped before its reply came gives up its call. One that was not sent is never
//! sent. One that was keeps its buffers until the server can no longer reach them (DESIGN D9): until
//! its reply, or until its deadline, which ends the connection.

use crate::{
    app::{Door, Outcomes},
    call::{CLIENT_TOKEN, CallError, HEADER_LEN_MAX, encode, reply_max, results, room_for_item},
    client::{ClientBuilder, sizes},
    codec::XdrType,
    error::SetupError,
    fabric::{Parts, Url, random, shard_for},
    program::{ArgumentsOf, Procedure},
    reply::copy,
};
use stag_engine::{
    CallFault, Cause, Command, Config, Cx, Handle, Outcome, PeerId, Request, RequestItem, Token, Waker,
    control, stats::Snapshot,
};
use stag_protocol::rpc::Credential;
use std::{
    collections::HashMap,
    fmt,
    marker::PhantomData,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    task::{self, Context, Poll},
    thread::JoinHandle,
    time::Duration,
};

/// A client with one connection, for many calls at a time. Clones share it; when the last
/// one is dropped the connection ends.
#[derive(Clone)]
pub struct AsyncClient {
    thread: Arc<Thread>,
    timeout: Duration,
    credential: Credential<'static>,
}

impl fmt::Debug for AsyncClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncClient").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// The way to the client's thread.
#[derive(Debug)]
struct Thread {
    orders: Sender<Order>,
    waker: Waker,
    /// The control channel has one user at a time.
    handle: Mutex<Handle<Snapshot<u64>>>,
    thread: Option<JoinHandle<()>>,
    calls: AtomicU64,
}

impl Thread {
    fn tell(&self, order: Order) {
        // A thread that has ended drops the order, which fails the call.
        let _ = self.orders.send(order);
        self.waker.wake();
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        lock(&self.handle).tell(Command::Stop);
        // A future's waker may have dropped the last client on this very thread.
        let thread = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id());
        let _ = thread.map(JoinHandle::join);
    }
}

/// Orders of other threads to the client's thread.
#[derive(Debug)]
enum Order {
    Call(Box<OrderedCall>),
    Cancel(Token),
}

#[derive(Debug)]
struct OrderedCall {
    token: Token,
    message: Vec<u8>,
    item: Option<(usize, Vec<u8>)>,
    reply_max: usize,
    item_max: usize,
    timeout: Duration,
    completion: Completion,
}

/// The end of a call, for the future that waits for it.
type Ended = Result<AsyncReplyOctets, CallFault>;

/// The octets of a reply, outside of the shard's memory.
#[derive(Debug)]
struct AsyncReplyOctets {
    message: Vec<u8>,
    chunk: Vec<u8>,
}

/// Between the client's thread and a future.
#[derive(Debug, Default)]
struct Slot {
    ended: Option<Ended>,
    waker: Option<task::Waker>,
}

/// The shard's end of a [`Slot`]. Dropped without an outcome, it says that there is no connection.
#[derive(Debug)]
struct Completion(Arc<Mutex<Slot>>);

impl Completion {
    fn complete(&self, ended: Ended) {
        let waker = {
            let mut slot = lock(&self.0);
            slot.ended.get_or_insert(ended);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.complete(Err(CallFault::NoPeer));
    }
}

/// Locks, also behind a panic elsewhere: every change of these values is one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call that is under way: a future of its results.
#[must_use = "dropped, it gives up the call"]
pub struct PendingCall<T> {
    thread: Arc<Thread>,
    token: Token,
    /// Until the outcome was taken.
    slot: Option<Arc<Mutex<Slot>>>,
    /// Why there is nothing to wait for.
    failed: Option<CallError>,
    results: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for PendingCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCall").field("token", &self.token).finish_non_exhaustive()
    }
}

impl<T: XdrType> Future for PendingCall<T> {
    type Output = Result<AsyncReply<T>, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let slot = self.slot.as_ref().expect("a future is not polled after it was ready");
        let ended = {
            let mut slot = lock(slot);
            let ended = slot.ended.take();
            if ended.is_none() && !slot.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                slot.waker = Some(context.waker().clone());
            }
            ended
        };
        let Some(ended) = ended else { return Poll::Pending };
        self.slot = None;
        Poll::Ready(ended.map_err(CallError::Failed).and_then(|octets| {
            results::<T>(&octets.message, &octets.chunk)?;
            Ok(AsyncReply { octets, results: PhantomData })
        }))
    }
}

impl<T> Drop for PendingCall<T> {
    fn drop(&mut self) {
        if self.slot.take().is_some_and(|slot| lock(&slot).ended.is_none()) {
            self.thread.tell(Order::Cancel(self.token));
        }
    }
}

/// The reply to a call, with results of type `T`.
pub struct AsyncReply<T> {
    octets: AsyncReplyOctets,
    results: PhantomData<fn() -> T>,
}

impl<T: XdrType> AsyncReply<T> {
    /// The results; they borrow from the reply.
    pub fn get(&self) -> T::Of<'_> {
        let results = results::<T>(&self.octets.message, &self.octets.chunk);
        results.unwrap_or_else(|error| unreachable!("they were read when they came: {error}"))
    }
}

impl<T> fmt::Debug for AsyncReply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.octets.fmt(f)
    }
}

/// Orders that came to the client's thread, and its calls that are under way.
struct Mail {
    orders: Receiver<Order>,
    calls: HashMap<Token, Completion>,
    peer: Option<PeerId>,
    /// Says once if there is a connection.
    connected: Option<Sender<Result<(), Cause>>>,
}

impl Mail {
    fn call(&mut self, cx: &mut Cx<'_>, call: OrderedCall) {
        let OrderedCall { token, message, item, reply_max, item_max, timeout, completion } = call;
        let Some(peer) = self.peer else { return };
        let made = || {
            let mut buf = cx.message(message.len())?;
            buf.append(&message).ok()?;
            let item = match item {
                Some((position, octets)) => Some(RequestItem { position, octets: copy(cx, &octets)? }),
                None => None,
            };
            let result = room_for_item(cx, item_max).ok()?;
            Some(Request { message: buf, item, reply_max, result, timeout, token })
        };
        match made() {
            Some(request) => {
                self.calls.insert(token, completion);
                cx.call(peer, request);
            }
            None => completion.complete(Err(CallFault::Limit)),
        }
    }
}

impl Outcomes for Mail {
    fn on_reply(&mut self, outcome: Outcome<'_>) {
        let Some(completion) = self.calls.remove(&outcome.token) else { return };
        completion.complete(outcome.reply.map(|message| AsyncReplyOctets {
            message: message.to_vec(),
            chunk: outcome.result.as_deref().unwrap_or_default().to_vec(),
        }));
    }

    fn on_peer_up(&mut self, peer: PeerId) {
        self.peer = Some(peer);
        if let Some(connected) = self.connected.take() {
            let _ = connected.send(Ok(()));
        }
    }

    fn on_peer_down(&mut self, _: PeerId, cause: Cause) {
        if let Some(connected) = self.connected.take() {
            let _ = connected.send(Err(cause));
        }
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Call(call) => self.call(cx, *call),
                Order::Cancel(token) => {
                    if let Some(peer) = self.peer.filter(|_| self.calls.contains_key(&token)) {
                        cx.cancel(peer, token);
                    }
                }
            }
        }
    }
}

impl ClientBuilder {
    /// Connects to `url` with a thread of its own, and waits until calls can be made. Not over
    /// `sim://`, whose ends are all in one thread.
    ///
    /// A lost connection fails its calls, and those made after it: then connect again, or
    /// [keep connected](Self::keep_connected).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_async(self, url: &str) -> Result<AsyncClient, SetupError> {
        let to: Url = url.parse()?;
        if let Url::Sim(_) = to {
            let why = "an asynchronous client has a thread of its own, and sim:// has none".to_owned();
            return Err(SetupError::Url { url: url.to_owned(), why });
        }
        let Self { config, clock, timeout, credential, keep, programs } = self;
        if programs.is_some() {
            return Err(SetupError::Config("an asynchronous client serves no programs"));
        }
        let config = config.unwrap_or_else(|| sizes([1_024, 32, 16], 256));
        let config = Config { xid_seed: u32::from_ne_bytes(random()?), ..config };
        let (control, handle) = control::pair()?;
        let (orders, ordered) = mpsc::channel();
        let (tell, connected) = mpsc::channel();
        let (tell_setup, setup) = mpsc::channel();
        let waker = handle.waker();
        let at = to.clone();
        let run = move || {
            let parts = Parts { config, clock, admission: Box::new(|_| false), is_shared: false };
            let mail = Mail { orders: ordered, calls: HashMap::new(), peer: None, connected: Some(tell) };
            let made = shard_for(&at, Door::new((), mail), parts).and_then(|mut shard| {
                let failed = |fault| SetupError::Connect { url: at.to_string(), fault };
                shard.connect(&at, keep).map_err(failed)?;
                Ok(shard)
            });
            match made {
                Ok(mut shard) => {
                    let _ = tell_setup.send(Ok(()));
                    // Its end fails every call that is left.
                    let _ = shard.run(&control, clock);
                }
                Err(error) => drop(tell_setup.send(Err(error))),
            }
        };
        let thread = std::thread::Builder::new().name("stag-rpc".to_owned()).spawn(run)?;
        let (handle, calls) = (Mutex::new(handle), AtomicU64::new(0));
        let thread = Arc::new(Thread { orders, waker, handle, thread: Some(thread), calls });
        let ended = || SetupError::NotConnected { url: to.to_string(), cause: None };
        setup.recv().map_err(|_| ended())??;
        match connected.recv_timeout(timeout) {
            Ok(Ok(())) => Ok(AsyncClient { thread, timeout, credential }),
            Ok(Err(cause)) => Err(SetupError::NotConnected { url: to.to_string(), cause: Some(cause) }),
            Err(_) => Err(ended()),
        }
    }
}

impl AsyncClient {
    /// A client of the server at `url`, with all defaults.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect_async`].
    pub fn connect(url: &str) -> Result<Self, SetupError> {
        crate::Client::builder().connect_async(url)
    }

    /// Calls procedure `P`. The call is on its way at once; the future is for its reply.
    pub fn call<P: Procedure>(&self, arguments: ArgumentsOf<'_, P>) -> PendingCall<P::Results> {
        let slot = Arc::new(Mutex::new(Slot::default()));
        let token = Token(CLIENT_TOKEN | self.thread.calls.fetch_add(1, Ordering::Relaxed));
        let ordered = self.order::<P>(&arguments, token, Completion(Arc::clone(&slot)));
        let failed = match ordered {
            Ok(call) => {
                self.thread.tell(Order::Call(Box::new(call)));
                None
            }
            Err(error) => Some(error),
        };
        let slot = failed.is_none().then_some(slot);
        PendingCall { thread: Arc::clone(&self.thread), token, slot, failed, results: PhantomData }
    }

    fn order<P: Procedure>(
        &self,
        arguments: &ArgumentsOf<'_, P>,
        token: Token,
        completion: Completion,
    ) -> Result<OrderedCall, CallError> {
        let mut message = vec![0; HEADER_LEN_MAX + P::Arguments::LEN_MAX];
        let (len, item) = encode::<P>(&mut message, self.credential, arguments)?.finish();
        message.truncate(len);
        let item = item.map(|(position, octets)| (position, octets.to_vec()));
        let (reply_max, item_max) = (reply_max::<P>(), P::Results::ITEM_MAX);
        let timeout = self.timeout;
        Ok(OrderedCall { token, message, item, reply_max, item_max, timeout, completion })
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
            /// Connects to the server at `url`, and waits for that.
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

            $(
                $(#[$meta])*
                pub fn $procedure(
                    &self,
                    $($argument: <$type as $crate::XdrType>::Of<'_>),*
                ) -> $crate::PendingCall<$results> {
                    self.0.call::<procedures::$procedure>(($($argument,)*))
                }
            )+
        }
    };
}
