//! Calls as futures, run by the smallest executor there is.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_rpc::{
    AsyncClient, Bulk, CallError, CallFault, Client, ClientBuilder, LaterReply, Octets, Opaque,
    Replied, Replier, Server, SetupError, program,
};
use std::{
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

const MIB: usize = 1 << 20;

program! {
    /// Answers at once, or never.
    pub mod tool: 0x2053_5403, version 1 {
        /// The same octets.
        1 => fn echo(octets: Bulk<MIB>) -> Bulk<MIB>;
        /// No reply, until the connection ends.
        2 => fn never() -> u32;
        /// One more.
        3 => fn next(number: u32) -> u32;
        /// A MiB, in as many parts as there are.
        4 => fn fetch() -> Bulk<MIB>;
        /// Octets that do not travel in chunks.
        5 => fn list() -> Opaque<200_000>;
    }
}

#[derive(Debug, Default)]
struct Tool {
    /// Calls of `never`.
    called: Arc<AtomicU32>,
    forgotten: Vec<LaterReply<u32>>,
}

impl tool::Service for Tool {
    fn echo(&mut self, octets: Octets<'_>, reply: Replier<'_, '_, Bulk<MIB>>) -> Replied {
        reply.send(octets)
    }

    fn never(&mut self, reply: Replier<'_, '_, u32>) -> Replied {
        self.called.fetch_add(1, Ordering::Relaxed);
        let (reply, later) = reply.later();
        self.forgotten.push(reply);
        later
    }

    fn next(&mut self, number: u32, reply: Replier<'_, '_, u32>) -> Replied {
        reply.send(number.wrapping_add(1))
    }

    fn fetch(&mut self, reply: Replier<'_, '_, Bulk<MIB>>) -> Replied {
        reply.send(Octets::from(&vec![7; MIB]))
    }

    fn list(&mut self, reply: Replier<'_, '_, Opaque<200_000>>) -> Replied {
        reply.send(&[5; 200_000])
    }
}

/// An executor: it polls when it is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park_timeout(Duration::from_secs(20)),
        }
    }
}

/// A server, and the number of calls of `never` there.
fn serve() -> (Server, Arc<AtomicU32>) {
    let called = Arc::new(AtomicU32::new(0));
    let builder = Server::builder().listen("iwarp://127.0.0.1:0").listen("tcp://127.0.0.1:0");
    let of_shard = Arc::clone(&called);
    let serve = move || tool::Serve(Tool { called: Arc::clone(&of_shard), forgotten: Vec::new() });
    (builder.serve(serve).unwrap(), called)
}

/// A client with a thread of its own, and one without.
fn both(builder: impl Fn() -> ClientBuilder, url: &str) -> [tool::AsyncClient; 2] {
    [ClientBuilder::connect_async, ClientBuilder::connect_local]
        .map(|connect| connected(|| connect(builder(), url)))
}

/// Tries again what did not connect in time: the time of calls is that of connecting, too, and a
/// busy machine may take longer than a test's calls.
fn connected(connect: impl Fn() -> Result<AsyncClient, SetupError>) -> tool::AsyncClient {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match connect() {
            Err(SetupError::NotConnected { cause: None, .. }) if Instant::now() < until => {}
            client => return tool::AsyncClient::over(client.unwrap()),
        }
    }
}

#[test]
fn calls_are_under_way_together_and_each_gets_its_reply() {
    let (server, _) = serve();
    let clients = |url: &String| both(Client::builder, url).map(|client| (client, url.clone()));
    for (client, url) in server.addresses().iter().flat_map(clients) {
        let numbers: Vec<_> = (0..200).map(|number| client.next(number)).collect();
        let octets: Vec<u8> = (0..MIB).map(|octet| (octet * 7) as u8).collect();
        let echo = client.echo(Octets::from(&octets));
        for (number, reply) in (1..).zip(numbers) {
            assert_eq!(block_on(reply).unwrap().results().unwrap(), number);
        }
        assert!(block_on(echo).unwrap().results().unwrap().as_slice() == octets, "over {url}");
    }
}

/// Large buffers of an asynchronous client by default.
const LARGES: usize = 16;

#[test]
fn as_many_long_results_come_as_there_are_large_buffers_and_the_connection_goes_on() {
    let (server, _) = serve();
    let clients = |url: &String| both(Client::builder, url).map(|client| (client, url.clone()));
    for (client, url) in server.addresses().iter().flat_map(clients) {
        assert_eq!(block_on(client.next(0)).unwrap().results().unwrap(), 1);
        let results: Vec<_> = (0..LARGES).map(|_| client.fetch()).collect();
        for result in results {
            let reply = block_on(result).unwrap();
            assert!(reply.results().unwrap().as_slice() == [7; MIB], "over {url}");
        }
        assert_eq!(block_on(client.next(1)).unwrap().results().unwrap(), 2, "over {url}");
    }
}

#[test]
fn arguments_that_hold_every_large_buffer_leave_room_for_replies_over_tcp() {
    let (server, _) = serve();
    let url = server.addresses().iter().find(|url| url.starts_with("tcp")).unwrap();
    let client = tool::AsyncClient::connect(url).unwrap();
    let octets = vec![3; MIB];
    let list = client.list();
    let echoes: Vec<_> = (0..LARGES / 2).map(|_| client.echo(Octets::from(&octets))).collect();
    let (more, lists): (Vec<_>, Vec<_>) =
        (0..LARGES / 2).map(|_| (client.echo(Octets::from(&octets)), client.list())).unzip();
    for echo in echoes.into_iter().chain(more) {
        // One that found no buffer is refused at once; none is left without an end.
        match block_on(echo) {
            Ok(reply) => assert!(reply.results().unwrap().as_slice() == octets),
            Err(error) => assert_eq!(error, CallError::Failed(CallFault::Limit)),
        }
    }
    for list in lists.into_iter().chain([list]) {
        assert_eq!(block_on(list).unwrap().results().unwrap().len(), 200_000);
    }
    assert_eq!(block_on(client.next(1)).unwrap().results().unwrap(), 2);
}

#[test]
fn clones_call_from_other_threads() {
    let (server, _) = serve();
    let client = tool::AsyncClient::connect(&server.addresses()[0]).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let client = client.clone();
            thread::spawn(move || {
                (0..50).all(|_| {
                    block_on(client.next(number)).unwrap().results().unwrap() == number + 1
                })
            })
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}

#[test]
fn a_future_that_is_dropped_gives_up_its_call_and_others_go_on() {
    let (server, called) = serve();
    let builder = || Client::builder().timeout(Duration::from_secs(2));
    for (client, before) in both(builder, &server.addresses()[0]).into_iter().zip(0..) {
        // A client has one credit until the first reply (RFC 8166 §3.3.1).
        assert_eq!(block_on(client.next(0)).unwrap().results().unwrap(), 1);
        let mut never = Box::pin(client.never());
        let until = Instant::now() + Duration::from_secs(10);
        while called.load(Ordering::Relaxed) == before {
            assert!(Instant::now() < until, "the call arrives");
            // Without a thread of its own a client works while it is polled.
            let _ = never.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            thread::yield_now();
        }
        drop(never);
        assert_eq!(block_on(client.next(1)).unwrap().results().unwrap(), 2);
    }
}

#[test]
fn a_call_without_reply_ends_in_time() {
    let (server, _) = serve();
    let builder = || Client::builder().timeout(Duration::from_millis(300));
    for url in server.addresses() {
        for client in both(builder, url) {
            // It sleeps meanwhile.
            let never = client.connection().block_on(client.never());
            assert_eq!(never.unwrap_err(), CallError::Failed(CallFault::TimedOut), "over {url}");
            for _ in 0..20 {
                // Each ends at once: were it noticed by the next sleep's end, this took 20 s.
                let gone = client.connection().block_on(client.next(1)).unwrap_err();
                let lost = CallError::Failed(CallFault::NoPeer);
                assert_eq!(gone, lost, "its connection ended with it, over {url}");
            }
        }
    }
}

#[test]
fn a_server_that_stops_fails_what_it_owes() {
    for connect in [ClientBuilder::connect_async, ClientBuilder::connect_local] {
        let (server, _) = serve();
        let client = connect(Client::builder(), &server.addresses()[0]);
        let client = tool::AsyncClient::over(client.unwrap());
        assert_eq!(block_on(client.next(0)).unwrap().results().unwrap(), 1);
        let never = client.never();
        assert_eq!(block_on(client.next(1)).unwrap().results().unwrap(), 2);
        // A client without a thread works while it is polled, and a server waits for its clients.
        let stopped = thread::spawn(move || server.stop().unwrap());
        assert!(matches!(block_on(never), Err(CallError::Failed(CallFault::Disconnected(_)))));
        drop(client);
        stopped.join().unwrap();
    }
}

#[test]
fn connecting_to_nobody_is_an_error() {
    assert!(matches!(
        AsyncClient::connect("iwarp://127.0.0.1:1"),
        Err(SetupError::NotConnected { .. })
    ));
    assert!(matches!(AsyncClient::connect("sim://1"), Err(SetupError::NotConnected { .. })));
    let local = Client::builder().connect_local("iwarp://127.0.0.1:1");
    assert!(matches!(local, Err(SetupError::NotConnected { .. })));
    // It listens, and never answers: the kernel takes connections for it.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("iwarp://{}", deaf.local_addr().unwrap());
    let local = Client::builder().timeout(Duration::from_millis(50)).connect_local(&url);
    assert!(matches!(local, Err(SetupError::NotConnected { cause: None, .. })));
    let serving = Client::builder().serve(()).connect_async("iwarp://127.0.0.1:1");
    assert!(matches!(serving, Err(SetupError::Config(_))));
}

#[test]
fn a_call_that_finds_no_place_is_told_so_and_one_that_is_given_up_leaves_its_own() {
    let (server, _) = serve();
    let config = stag_rpc::Config { outbound: 2, ..stag_rpc::Config::small() };
    let builder = || Client::builder().config(config.clone()).timeout(Duration::from_secs(1));
    let client = connected(|| builder().connect_async(&server.addresses()[0]));
    let limit = CallError::Failed(CallFault::Limit);
    // The first call has the only credit of a new connection; the second one waits.
    let (_first, second) = (client.never(), client.never());
    assert_eq!(block_on(client.never()).unwrap_err(), limit);
    drop(second);
    assert_ne!(block_on(client.never()).unwrap_err(), limit);
}

/// The future of a value that another thread puts in.
#[derive(Clone, Default)]
struct Elsewhere(Arc<Mutex<(Option<u32>, Option<Waker>)>>);

impl Elsewhere {
    fn put(&self, value: u32) {
        let mut inner = self.0.lock().unwrap();
        inner.0 = Some(value);
        inner.1.take().into_iter().for_each(Waker::wake);
    }
}

impl Future for Elsewhere {
    type Output = u32;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
        let mut inner = self.0.lock().unwrap();
        inner.1 = Some(context.waker().clone());
        inner.0.map_or(Poll::Pending, Poll::Ready)
    }
}

#[test]
fn a_client_that_waits_in_block_on_is_woken_by_other_threads() {
    let (server, _) = serve();
    for client in both(Client::builder, &server.addresses()[0]) {
        let elsewhere = Elsewhere::default();
        let other = elsewhere.clone();
        let thread = thread::spawn(move || {
            // Long enough for a sleep; it is correct whatever happens first.
            thread::sleep(Duration::from_millis(50));
            other.put(6);
        });
        let sum = client.connection().block_on(async {
            let number = elsewhere.await;
            client.next(number).await.unwrap().results().unwrap()
        });
        assert_eq!(sum, 7);
        thread.join().unwrap();
    }
}

#[test]
fn a_call_that_ends_outside_of_an_event_is_told_before_the_thread_sleeps_again() {
    let (server, _) = serve();
    let builder = || Client::builder().timeout(Duration::from_millis(30));
    for url in server.addresses() {
        let mut took = Vec::new();
        for _ in 0..5 {
            for client in both(builder, url) {
                let started = Instant::now();
                let never = client.connection().block_on(client.never());
                assert_eq!(never.unwrap_err(), CallError::Failed(CallFault::TimedOut));
                took.push(started.elapsed());
            }
        }
        // The longest sleep is a second. One of ten is quick even on a busy host.
        let best = took.iter().min().unwrap();
        assert!(*best < Duration::from_millis(900), "{took:?} over {url}");
    }
}

#[test]
fn futures_of_a_local_client_end_in_another_executor_after_block_on() {
    let (server, _) = serve();
    let client = Client::builder().connect_local(&server.addresses()[0]).unwrap();
    let client = tool::AsyncClient::over(client);
    let mut later = Box::pin(client.next(1));
    client.connection().block_on(std::future::poll_fn(|context| {
        // Registered with the waker of `block_on`, which is over then.
        let _ = later.as_mut().poll(context);
        Poll::Ready(())
    }));
    assert_eq!(block_on(later).unwrap().results().unwrap(), 2);
    // A client whose passes another one's executor does not make.
    let other = Client::builder().connect_local(&server.addresses()[0]).unwrap();
    let nested = client.connection().block_on(async { other.block_on(client.next(2)) });
    assert_eq!(nested.unwrap().results().unwrap(), 3);
}

#[test]
fn local_clients_belong_to_their_thread_and_one_runs_the_futures_of_another() {
    let (server, _) = serve();
    let [first, second] = [0, 1].map(|_| {
        let client = Client::builder().connect_local(&server.addresses()[0]).unwrap();
        tool::AsyncClient::over(client)
    });
    let sum = first.connection().block_on(async {
        let (one, other) = (first.next(1), second.next(2));
        let other = other.await.unwrap().results().unwrap();
        // A call that blocks in a future makes passes, too.
        let nested = first.connection().block_on(first.next(3)).unwrap().results().unwrap();
        one.await.unwrap().results().unwrap() + other + nested
    });
    assert_eq!(sum, 9);
    let elsewhere = {
        let client = first.clone();
        thread::spawn(move || block_on(client.next(3)).unwrap_err())
    };
    assert_eq!(elsewhere.join().unwrap(), CallError::Failed(CallFault::NoPeer));
    assert_eq!(block_on(first.next(4)).unwrap().results().unwrap(), 5);
}

#[test]
fn in_simulated_time_futures_end_when_they_are_polled_and_only_in_their_thread() {
    let serve = || tool::Serve(Tool::default());
    let server = Server::builder().listen("sim://0").serve(serve).unwrap();
    let builder = Client::builder().timeout(Duration::from_secs(60));
    let client = tool::AsyncClient::over(builder.connect_async(&server.addresses()[0]).unwrap());
    assert_eq!(block_on(client.next(1)).unwrap().results(), Ok(2));
    let (never, next) = (client.never(), client.next(2));
    assert_eq!(block_on(next).unwrap().results(), Ok(3));
    assert_eq!(block_on(never).unwrap_err(), CallError::Failed(CallFault::TimedOut));
    let elsewhere = thread::spawn(move || block_on(client.next(3)).unwrap_err());
    assert_eq!(elsewhere.join().unwrap(), CallError::Failed(CallFault::NoPeer));
}
