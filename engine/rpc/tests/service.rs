//! Servers and clients at `sim://` URLs: routing, refusals, replies that come later or fail, lost
//! servers.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_rpc::{
    Accepted, Bulk, CallError, CallFault, Client, Config, Extent, LaterReply, Octets, Opaque,
    Procedure, Replied, Replier, Server, SetupError, Text, XdrError, program,
};
use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

const MIB: usize = 1 << 20;

program! {
    /// Does what tests need.
    pub mod tool: 0x2053_5402, version 2 {
        /// The same octets.
        1 => fn echo(octets: Bulk<MIB>) -> Bulk<MIB>;
        /// Nothing.
        2 => fn nothing();
        /// The lengths of all arguments.
        3 => fn lengths(name: Text<8>, octets: Bulk<MIB>, rest: Opaque<8>) -> (u32, u32, u32);
        /// The name and the octets the other way around.
        4 => fn turned(name: Text<8>, octets: Bulk<64>) -> (Bulk<64>, Text<8>);
        /// More than results may be.
        5 => fn too_long() -> Text<4>;
        /// A reply when the next call of `nothing` came.
        6 => fn wait() -> u32;
        /// No reply, ever.
        7 => fn never();
        /// The bytes kept last, from where they are stored; keeps the new ones.
        8 => fn swap(octets: Bulk<MIB>) -> Bulk<MIB>;
        /// A reply that is promised for later and dropped at once.
        9 => fn dropped() -> u32;
        /// Drops what `wait` promised.
        10 => fn forget();
    }
}

program! {
    /// The same program in another version.
    pub mod old_tool: 0x2053_5402, version 1 {
        /// Nothing.
        1 => fn nothing();
    }
}

#[derive(Debug, Default)]
struct Tool {
    waiting: Vec<LaterReply<u32>>,
    /// Replies that never come.
    forgotten: Vec<LaterReply<()>>,
    kept: Option<Extent>,
}

impl tool::Service for Tool {
    fn echo(&mut self, octets: Octets<'_>, reply: Replier<'_, '_, Bulk<MIB>>) -> Replied {
        reply.send(octets)
    }

    fn nothing(&mut self, mut reply: Replier<'_, '_, ()>) -> Replied {
        for (place, waiting) in (1..).zip(self.waiting.drain(..)) {
            waiting.send(reply.cx(), place);
        }
        reply.send(())
    }

    fn lengths(
        &mut self,
        name: &str,
        octets: Octets<'_>,
        rest: &[u8],
        reply: Replier<'_, '_, (u32, u32, u32)>,
    ) -> Replied {
        reply.send((name.len() as u32, octets.len() as u32, rest.len() as u32))
    }

    fn turned(
        &mut self,
        name: &str,
        octets: Octets<'_>,
        reply: Replier<'_, '_, (Bulk<64>, Text<8>)>,
    ) -> Replied {
        reply.write(|encoder| {
            encoder.put::<Bulk<64>>(&octets)?;
            encoder.put::<Text<8>>(&name)
        })
    }

    fn too_long(&mut self, reply: Replier<'_, '_, Text<4>>) -> Replied {
        reply.send("hello")
    }

    fn wait(&mut self, reply: Replier<'_, '_, u32>) -> Replied {
        let (reply, later) = reply.later();
        self.waiting.push(reply);
        later
    }

    fn never(&mut self, reply: Replier<'_, '_, ()>) -> Replied {
        let (reply, later) = reply.later();
        self.forgotten.push(reply);
        later
    }

    fn dropped(&mut self, reply: Replier<'_, '_, u32>) -> Replied {
        reply.later().1
    }

    fn forget(&mut self, reply: Replier<'_, '_, ()>) -> Replied {
        self.waiting.clear();
        reply.send(())
    }

    fn swap(&mut self, octets: Octets<'_>, reply: Replier<'_, '_, Bulk<MIB>>) -> Replied {
        let kept = std::mem::replace(&mut self.kept, reply.share(octets));
        match &kept {
            Some(kept) => reply.send(Octets::from(kept)),
            None => reply.send(Octets::from(b"")),
        }
    }
}

#[derive(Debug)]
struct OldTool;

impl old_tool::Service for OldTool {
    fn nothing(&mut self, reply: Replier<'_, '_, ()>) -> Replied {
        reply.refuse(Accepted::SystemErr)
    }
}

fn server() -> Server {
    Server::builder().listen("sim://0").serve(|| tool::Serve(Tool::default())).unwrap()
}

fn client(server: &Server) -> Client {
    Client::connect(&server.addresses()[0]).unwrap()
}

/// Defines procedures that a server may not have.
macro_rules! stranger {
    ($name:ident: $program:expr, $version:expr, $number:expr, $arguments:ty) => {
        enum $name {}

        impl Procedure for $name {
            const PROGRAM: u32 = $program;
            const VERSION: u32 = $version;
            const NUMBER: u32 = $number;
            type Arguments = $arguments;
            type Results = ();
        }
    };
}

stranger!(Null: tool::PROGRAM, tool::VERSION, 0, ());
stranger!(OtherProgram: 99, 1, 1, ());
stranger!(OtherVersion: tool::PROGRAM, 9, 1, ());
stranger!(OtherProcedure: tool::PROGRAM, tool::VERSION, 99, ());
stranger!(TooFew: tool::PROGRAM, tool::VERSION, 3, (Text<8>,));
stranger!(TooMany: tool::PROGRAM, tool::VERSION, 2, (u32,));

#[test]
fn a_call_that_no_program_has_is_refused_by_itself() {
    let server = server();
    let mut client = client(&server);
    client.call::<Null>(()).unwrap();
    let rejected = |status| Err(CallError::Rejected(status));
    assert_eq!(client.call::<OtherProgram>(()), rejected(Accepted::ProgUnavail));
    assert_eq!(
        client.call::<OtherVersion>(()),
        rejected(Accepted::ProgMismatch { low: 2, high: 2 })
    );
    assert_eq!(client.call::<OtherProcedure>(()), rejected(Accepted::ProcUnavail));
    assert_eq!(client.call::<TooFew>(("name",)), rejected(Accepted::GarbageArgs));
    assert_eq!(client.call::<TooMany>((1,)), rejected(Accepted::GarbageArgs));
    client.call::<Null>(()).unwrap();
}

#[test]
fn two_versions_of_a_program_are_two_programs_of_a_server() {
    let both = || (tool::Serve(Tool::default()), old_tool::Serve(OldTool));
    let server = Server::builder().listen("sim://0").serve(both).unwrap();
    let mut client = client(&server);
    tool::Client::over(&mut client).nothing().unwrap();
    let refused = old_tool::Client::over(&mut client).nothing();
    assert_eq!(refused, Err(CallError::Rejected(Accepted::SystemErr)));
    let mismatch = Err(CallError::Rejected(Accepted::ProgMismatch { low: 1, high: 2 }));
    assert_eq!(client.call::<OtherVersion>(()), mismatch);
    assert_eq!(client.call::<OtherProgram>(()), Err(CallError::Rejected(Accepted::ProgUnavail)));
}

#[test]
fn octets_of_every_length_come_back_inline_or_in_chunks() {
    let server = server();
    let mut client = client(&server);
    let mut client = tool::Client::over(&mut client);
    for len in [0, 1, 3, 900, 4_000, 4_096, 65_537, MIB] {
        let octets: Vec<u8> = (0..len).map(|octet| (octet * 31) as u8).collect();
        assert!(client.echo(Octets::from(&octets)).unwrap().as_slice() == octets, "{len} octets");
        let lengths = client.lengths("name", Octets::from(&octets), b"rest!").unwrap();
        assert_eq!(lengths, (4, len as u32, 5), "what stands behind the item is read, too");
    }
    for len in [0, 1, 64] {
        let octets = vec![7; len];
        let (turned, name) = client.turned("name", Octets::from(&octets)).unwrap();
        assert_eq!((turned.as_slice(), name), (&octets[..], "name"));
    }
}

#[test]
fn octets_that_came_in_a_chunk_are_kept_and_sent_from_where_they_lie() {
    let server = server();
    let mut client = tool::Client::connect(&server.addresses()[0]).unwrap();
    let long = vec![3; 100_000];
    assert!(client.swap(Octets::from(&long)).unwrap().is_empty());
    assert!(client.swap(Octets::from(b"short")).unwrap().as_slice() == long);
    assert!(client.swap(Octets::from(&long)).unwrap().is_empty(), "what came inline is not shared");
}

#[test]
fn an_argument_that_is_too_long_is_not_sent_and_results_are_not_cut() {
    let server = server();
    let mut client = tool::Client::connect(&server.addresses()[0]).unwrap();
    let octets = Octets::from(b"");
    assert_eq!(client.lengths("much too long", octets, b""), Err(CallError::TooLong));
    assert_eq!(client.too_long(), Err(CallError::Rejected(Accepted::SystemErr)));
    client.nothing().unwrap();
}

#[test]
fn a_call_that_is_not_answered_ends_in_time_and_the_next_one_connects_again() {
    let server = server();
    let builder = Client::builder().timeout(Duration::from_secs(3));
    let mut client = builder.connect(&server.addresses()[0]).unwrap();
    let mut client = tool::Client::over(&mut client);
    assert_eq!(client.never(), Err(CallError::Failed(CallFault::TimedOut)));
    client.nothing().unwrap();
}

#[test]
fn a_later_reply_that_is_dropped_tells_the_caller_and_gives_its_credit_back() {
    let server = server();
    let mut client = client(&server);
    let mut client = tool::Client::over(&mut client);
    let refused = Err(CallError::Rejected(Accepted::SystemErr));
    // More calls than a connection has credits.
    for _ in 0..300 {
        assert_eq!(client.dropped(), refused);
    }
    client.nothing().unwrap();
}

#[test]
fn later_replies_that_are_dropped_by_another_call_tell_their_callers() {
    let server = server();
    let waits = tool::AsyncClient::connect(&server.addresses()[0]).unwrap();
    let mut other = tool::Client::connect(&server.addresses()[0]).unwrap();
    // After its first reply a connection has more than one credit (RFC 8166 §3.3.1).
    let waker = Waker::noop();
    let mut context = Context::from_waker(waker);
    assert!(pin!(waits.nothing()).poll(&mut context).is_ready());
    let calls: Vec<_> = (0..4).map(|_| waits.wait()).collect();
    // They have arrived when another call was answered.
    assert_eq!(other.dropped(), Err(CallError::Rejected(Accepted::SystemErr)));
    other.forget().unwrap();
    for call in calls {
        let Poll::Ready(ended) = pin!(call).poll(&mut context) else { panic!("it waits") };
        assert_eq!(ended.unwrap_err(), CallError::Rejected(Accepted::SystemErr));
    }
}

#[test]
fn a_server_that_is_gone_fails_the_call() {
    let server = server();
    let url = server.addresses()[0].clone();
    let mut client = tool::Client::connect(&url).unwrap();
    client.nothing().unwrap();
    drop(server);
    assert!(matches!(client.nothing(), Err(CallError::Failed(CallFault::Disconnected(_)))));
    assert!(matches!(client.nothing(), Err(CallError::Failed(CallFault::Disconnected(_)))));
    assert!(matches!(Client::connect(&url), Err(SetupError::NotConnected { cause: Some(_), .. })));
}

#[test]
fn without_memory_for_its_results_a_call_is_refused_and_the_next_one_is_not() {
    // One large buffer: the argument has it, so that there is none for the result.
    let config = Config { slots: [64, 1, 1], ..Config::small() };
    let builder = Server::builder().listen("sim://0").config(config);
    let server = builder.serve(|| tool::Serve(Tool::default())).unwrap();
    let mut client = tool::Client::connect(&server.addresses()[0]).unwrap();
    let octets = vec![1; 500_000];
    let refused = client.echo(Octets::from(&octets));
    assert_eq!(refused, Err(CallError::Rejected(Accepted::SystemErr)));
    assert!(client.echo(Octets::from(&octets[..1_000])).is_ok());
}

#[test]
fn setting_up_what_cannot_be_is_an_error() {
    let serve = |urls: &[&str]| {
        let builder = urls.iter().fold(Server::builder(), |builder, url| builder.listen(url));
        builder.serve(|| ()).map(drop)
    };
    assert!(matches!(serve(&[]), Err(SetupError::Config(_))));
    assert!(matches!(serve(&["iwarp://nowhere"]), Err(SetupError::Url { .. })));
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for scheme in ["tcp", "iwarp"] {
        let url = format!("{scheme}://{}", holder.local_addr().unwrap());
        assert!(matches!(serve(&[&url]), Err(SetupError::Listen { .. })), "{url}");
    }
    let config = Config { inbound: 1, ..Config::small() };
    let server = Server::builder().listen("sim://0").config(config).serve(|| ());
    assert!(matches!(server, Err(SetupError::Size(_))));
    let config = Config { slots: [8, 0, 8], ..Config::small() };
    let server = Server::builder().listen("sim://0").config(config).serve(|| ());
    assert!(matches!(server, Err(SetupError::Size(_))));
    for cores in [0, usize::MAX] {
        let server = Server::builder().listen("sim://0").cores(cores).serve(|| ());
        assert!(matches!(server, Err(SetupError::Config(_))), "{cores} cores");
    }
    assert!(matches!(Client::connect("tcp://127.0.0.1:1"), Err(SetupError::NotConnected { .. })));
}

#[test]
fn no_size_that_a_user_can_give_is_a_panic() {
    let sizes = [0, 1, 7, 1_023, 4_096, 70_000, 1 << 24, u32::MAX as usize, usize::MAX];
    let small = || Config { receives: 64, inbound: 64, ..Config::small() };
    let changes: [fn(&mut Config, usize); 13] = [
        |config, size| config.grant = size as u32,
        |config, size| config.grant_first = size as u32,
        |config, size| config.calls_max = size as u32,
        |config, size| config.reverse_calls_max = size as u32,
        |config, size| config.reverse_grant = size as u32,
        |config, size| config.absence = Duration::from_secs(size as u64),
        |config, size| config.receives = size,
        |config, size| config.receive_len = size,
        |config, size| config.peers = size,
        |config, size| config.streams = size,
        |config, size| config.outbound = size,
        |config, size| config.payload_max = size as u32,
        |config, size| config.slots = [size.min(70_000), 4, 4],
    ];
    for change in changes {
        for size in sizes {
            let mut config = small();
            change(&mut config, size);
            config.inbound = config.inbound.max(config.receives.min(1 << 20));
            for url in ["sim://0", "tcp://127.0.0.1:0"] {
                let builder = Server::builder().listen(url).config(config.clone());
                let Ok(server) = builder.serve(|| tool::Serve(Tool::default())) else { continue };
                let builder = Client::builder().timeout(Duration::from_secs(5));
                // A server without room for anybody refuses; it does not break.
                if let Ok(client) = builder.connect(&server.addresses()[0]) {
                    let _ = tool::Client::over(client).nothing();
                }
                server.stop().unwrap();
            }
        }
    }
    for timeout in [Duration::ZERO, Duration::MAX] {
        let server = server();
        let client = Client::builder().timeout(timeout).connect(&server.addresses()[0]);
        if let Ok(client) = client {
            let _ = tool::Client::over(client).nothing();
        }
    }
}

#[test]
fn peers_that_are_not_admitted_do_not_connect() {
    let builder = Server::builder().listen("sim://0").admit(|_| false);
    let server = builder.serve(|| tool::Serve(Tool::default())).unwrap();
    assert!(matches!(
        Client::connect(&server.addresses()[0]),
        Err(SetupError::NotConnected { .. })
    ));
}

#[test]
fn a_service_may_write_forms_that_have_no_type() {
    struct Raw;
    impl old_tool::Service for Raw {
        fn nothing(&mut self, reply: Replier<'_, '_, ()>) -> Replied {
            // Results that the procedure does not have, to see them refused.
            reply.write(|encoder| encoder.writer().u32(7))
        }
    }
    let server = Server::builder().listen("sim://0").serve(|| old_tool::Serve(Raw)).unwrap();
    let mut client = old_tool::Client::connect(&server.addresses()[0]).unwrap();
    assert_eq!(client.nothing(), Err(CallError::Garbled(XdrError::Trailing)));
}

#[test]
fn shards_of_one_address_answer_together() {
    let builder =
        Server::builder().listen("iwarp://127.0.0.1:0").listen("tcp://127.0.0.1:0").cores(2);
    let server = builder.serve(|| tool::Serve(Tool::default())).unwrap();
    // As many clients as make it likely that each shard has some.
    let clients =
        (0..8).flat_map(|_| server.addresses()).map(|url| tool::Client::connect(url).unwrap());
    for mut client in clients.collect::<Vec<_>>() {
        let octets = client.echo(Octets::from(b"both")).unwrap();
        assert_eq!(octets.as_slice(), b"both");
    }
    server.stop().unwrap();
}

#[test]
fn a_lost_connection_is_made_again_by_the_next_call_or_at_once() {
    let path = std::env::temp_dir().join(format!("stag-rpc-again-{}.sock", std::process::id()));
    let url = format!("shm://{}", path.display());
    let start = || Server::builder().listen(&url).serve(|| tool::Serve(Tool::default())).unwrap();
    let server = start();
    let builder = || Client::builder().timeout(Duration::from_secs(20));
    let mut once = tool::Client::over(builder().connect(&url).unwrap());
    let mut kept = tool::Client::over(builder().keep_connected().connect(&url).unwrap());
    once.nothing().unwrap();
    kept.nothing().unwrap();
    server.stop().unwrap();
    let server = start();
    assert!(matches!(once.nothing(), Err(CallError::Failed(CallFault::Disconnected(_)))));
    once.nothing().unwrap();
    kept.nothing().unwrap();
    drop(server);
}
