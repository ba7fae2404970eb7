//! Calls over TCP inside TLS (RFC 9289), and peers that break the rules on the way there.

use crate::authority::Authority;
// Of the authority, whose file is another crate's, too.
use rcgen as _;
use tempfile as _;

use rustls::pki_types::{ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::CertificateDer};
use stag_echo::{Caller, Done, ECHO, Echo, NULL, PROGRAM, VERSION};
use stag_engine::{
    CallFault, Cause, Config, PeerId, Shard, Time, Token,
    tls::{ClientFiles, ClientTls, ServerFiles, ServerTls, TlsProbe},
};
use stag_protocol::{
    rpc::{
        Accepted, Auth, AuthStatus, CallHeader, Credential, Denied, Outcome, ReplyHeader, flavor,
        record::Fragment,
    },
    rpcrdma::Xid,
    xdr::{Reader, Writer},
};
use stag_sim::{Fabric, Faults, Sim};
use stag_verbs::Limits;
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

const LIMITS: Limits = Limits { read_spans: 64, windows: 512, ..stag_sim::LIMITS };
/// The call that asks for TLS.
const PROBE: TlsProbe = TlsProbe { program: PROGRAM, version: VERSION };
/// The verifier that says that TLS is there.
const TOKEN: Auth<'static> = Auth { flavor: flavor::NONE, body: b"STARTTLS" };

/// A server, and the time of its shard.
struct Server {
    shard: Shard<Sim, Echo>,
    tls: Option<Arc<ServerTls>>,
    at: SocketAddr,
    clock: Instant,
    skipped: Duration,
    /// The time at which the clock is stopped.
    held: Option<Time>,
}

impl Server {
    fn new(files: Option<(ServerFiles, bool)>) -> Self {
        let tls =
            files.map(|(files, is_required)| ServerTls::open(files, is_required).unwrap().into());
        let config = Config { serve_tls: tls.clone(), ..crate::support::small() };
        let end = Fabric::new(1, Faults::NONE).end("server", LIMITS);
        let mut shard = Shard::new(end, Echo::default(), config, Box::new(|_| true)).unwrap();
        let at = shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        Self { shard, tls, at, clock: Instant::now(), skipped: Duration::ZERO, held: None }
    }

    fn offering(authority: &Authority) -> Self {
        Self::new(Some((authority.server(), false)))
    }

    fn now(&self) -> Time {
        self.held.unwrap_or_else(|| Time((self.clock.elapsed() + self.skipped).as_nanos() as u64))
    }

    fn pass(&mut self) {
        let now = self.now();
        if !self.shard.pass(now) {
            std::thread::yield_now();
        }
    }

    /// Passes until `done` has something.
    fn until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let from = Instant::now();
        loop {
            if let Some(found) = done(self) {
                return found;
            }
            assert!(from.elapsed() < Duration::from_secs(60), "it happens within a minute");
            self.pass();
        }
    }

    fn stream(&self) -> stag_engine::stats::StreamStats {
        self.shard.snapshot().engine.stream
    }

    fn raw(&self) -> Raw {
        let socket = TcpStream::connect(self.at).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        Raw { socket, tls: None, input: Vec::new(), is_closed: false }
    }
}

/// A client whose octets are made by hand.
struct Raw {
    socket: TcpStream,
    tls: Option<ClientConnection>,
    input: Vec<u8>,
    is_closed: bool,
}

impl Raw {
    /// Writes octets as they are.
    fn write(&mut self, octets: &[u8]) {
        let sent = self.socket.write(octets);
        assert!(
            sent.is_err() || sent.is_ok_and(|sent| sent == octets.len()),
            "the socket has room"
        );
    }

    /// Calls in the clear or inside the session, whichever there is.
    fn call(&mut self, record: &[u8]) {
        match &mut self.tls {
            Some(tls) => {
                tls.writer().write_all(&marked(record)).unwrap();
                self.flush();
            }
            None => self.write(&marked(record)),
        }
    }

    fn flush(&mut self) {
        while let Some(tls) = self.tls.as_mut().filter(|tls| tls.wants_write()) {
            if tls.write_tls(&mut self.socket).is_err() {
                return;
            }
        }
    }

    /// Takes what came. False when the session failed.
    fn read(&mut self) {
        let mut octets = [0; 1 << 14];
        match self.socket.read(&mut octets) {
            Ok(0) => self.is_closed = true,
            Ok(len) => match &mut self.tls {
                Some(tls) => {
                    let mut rest = &octets[..len];
                    while !rest.is_empty() {
                        tls.read_tls(&mut rest).unwrap();
                        if tls.process_new_packets().is_err() {
                            self.is_closed = true;
                            return;
                        }
                        let mut plain = [0; 1 << 14];
                        while let Ok(len @ 1..) = tls.reader().read(&mut plain) {
                            self.input.extend_from_slice(&plain[..len]);
                        }
                    }
                    self.flush();
                }
                None => self.input.extend_from_slice(&octets[..len]),
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.is_closed = true,
        }
    }

    /// The next record, or None when the server closes.
    fn reply(&mut self, server: &mut Server) -> Option<Vec<u8>> {
        server.until(|_| {
            self.read();
            if let Some(mark) = self.input.first_chunk::<4>() {
                let end = 4 + Fragment::parse(*mark).octets() as usize;
                if self.input.len() >= end {
                    let record = self.input[4..end].to_vec();
                    self.input.drain(..end);
                    return Some(Some(record));
                }
            }
            self.is_closed.then_some(None)
        })
    }

    fn outcome(&mut self, server: &mut Server) -> Option<Outcome<'static>> {
        let reply = self.reply(server)?;
        let header = ReplyHeader::parse(&mut Reader::new(&reply)).unwrap();
        Some(match header.outcome {
            Outcome::Accepted { verifier, status } if verifier == TOKEN => {
                Outcome::Accepted { verifier: TOKEN, status }
            }
            Outcome::Accepted { status, .. } => Outcome::accepted(status),
            Outcome::Denied(denied) => Outcome::Denied(denied),
        })
    }

    /// Asks for TLS, and proves what is to be proved. False when there is no session.
    fn secure(&mut self, server: &mut Server, config: ClientConfig) -> bool {
        self.call(&call(1, NULL, Some(flavor::TLS)));
        let started = Outcome::Accepted { verifier: TOKEN, status: Accepted::Success };
        assert_eq!(self.outcome(server), Some(started));
        self.handshake(server, config)
    }

    fn handshake(&mut self, server: &mut Server, config: ClientConfig) -> bool {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        self.tls = Some(ClientConnection::new(Arc::new(config), name).unwrap());
        self.flush();
        server.until(|_| {
            self.read();
            let stands = self.tls.as_ref().is_some_and(|tls| !tls.is_handshaking());
            (stands || self.is_closed).then_some(stands)
        })
    }

    fn is_ended(&mut self, server: &mut Server) -> bool {
        server.until(|_| {
            self.read();
            self.is_closed.then_some(true)
        })
    }
}

/// A client without certificate, whose ALPN names `protocols`.
fn anonymous(authority: &Authority, protocols: &[&[u8]]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.certificate()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

/// A call without arguments, or of ECHO with few octets; with an empty credential of this flavor.
fn call(xid: u32, procedure: u32, flavor: Option<u32>) -> Vec<u8> {
    let credential =
        flavor.map_or(Credential::None, |flavor| Credential::Other(Auth { flavor, body: &[] }));
    let (xid, verifier) = (Xid(xid), Auth::NONE);
    let header =
        CallHeader { xid, program: PROGRAM, version: VERSION, procedure, credential, verifier };
    let mut out = vec![0; 64];
    let mut writer = Writer::new(&mut out);
    header.emit(&mut writer).unwrap();
    if procedure == ECHO {
        writer.opaque(b"octets").unwrap();
    }
    let len = writer.len();
    out.truncate(len);
    out
}

fn marked(record: &[u8]) -> Vec<u8> {
    [&Fragment::new(record.len() as u32, true).unwrap().emit(), record].concat()
}

const fn denied(status: AuthStatus) -> Option<Outcome<'static>> {
    Some(Outcome::Denied(Denied::AuthError(status)))
}

const SUCCESS: Option<Outcome<'static>> = Some(Outcome::accepted(Accepted::Success));

/// Our client next to a server.
struct Client {
    shard: Shard<Sim, Caller>,
    tls: Arc<ClientTls>,
    server: Server,
}

impl Client {
    fn new(server: Server, files: &ClientFiles) -> Self {
        let tls = Arc::new(ClientTls::open(files, PROBE).unwrap());
        let end = Fabric::new(2, Faults::NONE).end("client", LIMITS);
        let config = Config { call_tls: Some(Arc::clone(&tls)), ..crate::support::small() };
        let shard = Shard::new(end, Caller::default(), config, Box::new(|_| true)).unwrap();
        Self { shard, tls, server }
    }

    fn until<T>(&mut self, mut done: impl FnMut(&mut Shard<Sim, Caller>) -> Option<T>) -> T {
        let (shard, server) = (&mut self.shard, &mut self.server);
        server.until(|server| {
            shard.pass(server.now());
            done(shard)
        })
    }

    fn connect(&mut self) -> PeerId {
        let peer = self.shard.connect_tcp(self.server.at).unwrap();
        self.until(|shard| (shard.app().peers() == [peer]).then_some(()));
        peer
    }

    fn echo(&mut self, peer: PeerId, octets: &[u8]) -> Done {
        assert!(self.shard.with_app(|_, cx| Caller::call(cx, peer, Token(1), Some(octets))));
        self.until(|shard| shard.with_app(|caller, _| caller.take()))
    }

    /// Connects in vain; returns the reason.
    fn refused(&mut self) -> String {
        let peer = self.shard.connect_tcp(self.server.at).unwrap();
        assert!(self.shard.with_app(|_, cx| Caller::call(cx, peer, Token(1), Some(b"secret"))));
        let done = self.until(|shard| shard.with_app(|caller, _| caller.take()));
        assert_eq!(done.echo.unwrap_err(), CallFault::Disconnected(Cause::Tls));
        assert!(self.shard.app().peers().is_empty(), "nobody was told of a connection");
        self.tls.take_fault().unwrap().to_string()
    }
}

#[test]
fn calls_of_every_size_travel_inside_a_session() {
    let authority = Authority::new();
    let mut client =
        Client::new(Server::new(Some((authority.server(), true))), &authority.client());
    let peer = client.connect();
    for len in [0, 1, 3, 4_096, 16_384, 65_537, 300_001, 1 << 20] {
        let octets: Vec<u8> = (0..len).map(|i: usize| (i * 11 + i / 253) as u8).collect();
        let done = client.echo(peer, &octets);
        assert!(done.echo.unwrap().unwrap()[..] == octets, "{len} octets");
    }
    for token in 0..100 {
        assert!(client.shard.with_app(|_, cx| Caller::call(cx, peer, Token(token), None)));
    }
    for _ in 0..100 {
        let done = client.until(|shard| shard.with_app(|caller, _| caller.take()));
        done.echo.unwrap();
    }
    for stats in [client.server.stream(), client.shard.snapshot().engine.stream] {
        assert_eq!((stats.tls_sessions, stats.tls_failures, stats.tls_refusals), (1, 0, 0));
    }
    assert_eq!(client.server.shard.buffers_in_use(), 0);
    // A closure alert ends it in order.
    client.shard.with_app(|_, cx| cx.disconnect(peer));
    let is_gone =
        |server: &mut Server| (server.shard.snapshot().engine.connections.live == 0).then_some(());
    client.until(|shard| shard.app().peers().is_empty().then_some(()));
    client.server.until(is_gone);
    let ends = client.server.shard.snapshot().engine.disconnects;
    assert_eq!(ends.keys().collect::<Vec<_>>(), ["closed by the peer"]);
}

#[test]
fn a_server_that_is_not_who_it_should_be_is_not_called() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut client = Client::new(Server::offering(&other), &authority.client());
    let why = client.refused();
    assert!(why.contains("invalid peer certificate"), "{why}");
    let is_over = |server: &mut Server| (server.stream().tls_failures == 1).then_some(());
    client.server.until(is_over);
    assert_eq!(client.server.shard.snapshot().engine.disconnects["TLS failed"], 1);
}

#[test]
fn a_server_without_tls_is_not_called_and_hears_no_client_hello() {
    let authority = Authority::new();
    let mut client = Client::new(Server::new(None), &authority.client());
    assert_eq!(client.refused(), "the server offers no TLS");
    // The probe alone: a mark and ten words.
    assert_eq!(client.server.stream().received, 44);
}

#[test]
fn a_server_that_names_no_protocol_is_not_called() {
    let authority = Authority::new();
    let mut client = Client::new(Server::offering(&authority), &authority.client());
    // In place of the server, a listener that answers the probe and knows TLS, but not RPC in it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    client.server.at = listener.local_addr().unwrap();
    let files = authority.server().identity;
    let certificates: Vec<_> = CertificateDer::pem_file_iter(&files.certificate)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let key = rustls::pki_types::PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    let other = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut probe = [0; 44];
        socket.read_exact(&mut probe).unwrap();
        let outcome = Outcome::Accepted { verifier: TOKEN, status: Accepted::Success };
        let mut reply = [0; 32];
        let mut writer = Writer::new(&mut reply);
        ReplyHeader { xid: Xid(0), outcome }.emit(&mut writer).unwrap();
        socket.write_all(&marked(&reply)).unwrap();
        let mut tls = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        // Until the client has enough of it.
        while tls.complete_io(&mut socket).is_ok_and(|(read, _)| read > 0) {}
    });
    let why = client.refused();
    assert!(why.contains("ALPN sunrpc"), "{why}");
    other.join().unwrap();
}

#[test]
fn clients_without_a_certificate_are_refused_where_one_is_asked_for() {
    let authority = Authority::new();
    let files =
        ServerFiles { client_authorities: Some(authority.certificate()), ..authority.server() };
    let known = ClientFiles {
        identity: Some(authority.certify("client", &["client.test"])),
        ..authority.client()
    };
    let mut client = Client::new(Server::new(Some((files, true))), &known);
    let peer = client.connect();
    assert_eq!(&client.echo(peer, b"known").echo.unwrap().unwrap()[..], b"known");
    let mut raw = client.server.raw();
    let server = &mut client.server;
    raw.secure(server, anonymous(&authority, &[b"sunrpc"]));
    raw.call(&call(2, NULL, None));
    assert!(raw.is_ended(server));
    assert_eq!((server.stream().tls_sessions, server.stream().tls_failures), (1, 1));
}

#[test]
fn calls_in_the_clear_are_denied_where_tls_is_required_and_served_where_it_is_offered() {
    let authority = Authority::new();
    for is_required in [true, false] {
        let mut server = Server::new(Some((authority.server(), is_required)));
        let mut raw = server.raw();
        let expected = if is_required { denied(AuthStatus::TOO_WEAK) } else { SUCCESS };
        for procedure in [NULL, ECHO, NULL] {
            raw.call(&call(7, procedure, None));
            assert_eq!(raw.outcome(&mut server), expected);
        }
        let calls = if is_required { 0 } else { 3 };
        assert_eq!(server.shard.snapshot().app, calls, "calls that the app saw");
        // The connection goes on, and may have TLS.
        assert!(raw.secure(&mut server, anonymous(&authority, &[b"sunrpc"])));
        raw.call(&call(8, ECHO, None));
        assert_eq!(raw.outcome(&mut server), SUCCESS);
        assert_eq!(server.stream().tls_refusals, if is_required { 3 } else { 0 });
    }
}

#[test]
fn the_flavor_of_probes_is_denied_with_other_procedures_and_inside_a_session() {
    let authority = Authority::new();
    let mut server = Server::offering(&authority);
    let mut raw = server.raw();
    raw.call(&call(1, ECHO, Some(flavor::TLS)));
    assert_eq!(raw.outcome(&mut server), denied(AuthStatus::BAD_CREDENTIAL));
    assert!(raw.secure(&mut server, anonymous(&authority, &[b"sunrpc"])));
    raw.call(&call(2, NULL, Some(flavor::TLS)));
    assert_eq!(raw.outcome(&mut server), denied(AuthStatus::BAD_CREDENTIAL));
    raw.call(&call(3, NULL, None));
    assert_eq!(raw.outcome(&mut server), SUCCESS);
}

#[test]
fn a_probe_without_tls_at_the_server_is_denied_as_a_flavor_that_it_does_not_know() {
    let mut server = Server::new(None);
    let mut raw = server.raw();
    raw.call(&call(1, NULL, Some(flavor::TLS)));
    assert_eq!(raw.outcome(&mut server), denied(AuthStatus::TOO_WEAK));
    raw.call(&call(2, ECHO, None));
    assert_eq!(raw.outcome(&mut server), SUCCESS);
}

#[test]
fn calls_that_somebody_put_behind_the_probe_are_dropped_with_the_connection() {
    let authority = Authority::new();
    let mut server = Server::offering(&authority);
    let probe = marked(&call(1, NULL, Some(flavor::TLS)));
    // At once with it, and with a word of a record.
    for behind in [marked(&call(2, ECHO, None)), vec![0x80]] {
        let mut raw = server.raw();
        raw.write(&[&probe[..], &behind].concat());
        let started = Some(Outcome::Accepted { verifier: TOKEN, status: Accepted::Success });
        assert_eq!(raw.outcome(&mut server), started);
        assert_eq!(raw.reply(&mut server), None);
    }
    // Later, in the place of the handshake.
    let mut raw = server.raw();
    raw.write(&probe);
    raw.outcome(&mut server);
    raw.write(&marked(&call(2, ECHO, None)));
    assert!(raw.is_ended(&mut server));
    assert_eq!(server.shard.snapshot().app, 0, "the app saw no call");
    assert_eq!(server.stream().tls_failures, 3);
    // After a handshake that was right, in the clear.
    let mut raw = server.raw();
    assert!(raw.secure(&mut server, anonymous(&authority, &[b"sunrpc"])));
    raw.write(&marked(&call(2, ECHO, None)));
    assert!(raw.is_ended(&mut server));
    assert_eq!(server.shard.snapshot().app, 0);
}

#[test]
fn no_probe_is_answered_while_a_call_in_the_clear_is_under_way() {
    let authority = Authority::new();
    let mut server = Server::offering(&authority);
    let mut raw = server.raw();
    let both = [marked(&call(1, ECHO, None)), marked(&call(2, NULL, Some(flavor::TLS)))].concat();
    raw.write(&both);
    // Its reply may be lost with the connection.
    while raw.reply(&mut server).is_some() {}
    assert_eq!((server.stream().tls_failures, server.stream().tls_sessions), (1, 0));
}

#[test]
fn garbage_in_place_of_a_handshake_ends_that_connection_alone() {
    let authority = Authority::new();
    let mut server = Server::offering(&authority);
    let mut good = server.raw();
    assert!(good.secure(&mut server, anonymous(&authority, &[b"sunrpc"])));
    let hellos = [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        &[0; 600],
        &[0xff; 600],
        // An alert, a change of ciphers, and a ClientHello that is cut off.
        &[21, 3, 3, 0, 2, 2, 40],
        &[22, 3, 1, 0, 4, 1, 0, 0, 0],
    ];
    for octets in hellos {
        let mut raw = server.raw();
        raw.write(&marked(&call(1, NULL, Some(flavor::TLS))));
        raw.outcome(&mut server);
        raw.write(octets);
        assert!(raw.is_ended(&mut server), "{octets:?}");
    }
    good.call(&call(9, ECHO, None));
    assert_eq!(good.outcome(&mut server), SUCCESS);
    assert_eq!(server.stream().tls_sessions, 1);
}

#[test]
fn a_client_names_rpc_or_nothing_as_its_protocol() {
    let authority = Authority::new();
    let mut server = Server::offering(&authority);
    // Those of Linux name none.
    for protocols in [&[&b"sunrpc"[..]][..], &[b"h2", b"sunrpc"], &[]] {
        let mut raw = server.raw();
        assert!(raw.secure(&mut server, anonymous(&authority, protocols)));
        raw.call(&call(3, NULL, None));
        assert_eq!(raw.outcome(&mut server), SUCCESS);
    }
    let mut raw = server.raw();
    assert!(!raw.secure(&mut server, anonymous(&authority, &[b"h2"])));
    assert_eq!(server.stream().tls_failures, 1);
}

#[test]
fn keys_are_renewed_inside_a_session_and_a_second_handshake_ends_it() {
    let authority = Authority::new();
    let mut server = Server::offering(&authority);
    let mut raw = server.raw();
    assert!(raw.secure(&mut server, anonymous(&authority, &[b"sunrpc"])));
    for xid in 0..3 {
        raw.tls.as_mut().unwrap().refresh_traffic_keys().unwrap();
        raw.call(&call(xid, ECHO, None));
        assert_eq!(raw.outcome(&mut server), SUCCESS);
    }
    // A ClientHello in the clear, as a renegotiation of earlier versions would begin.
    raw.tls = None;
    assert!(!raw.handshake(&mut server, anonymous(&authority, &[b"sunrpc"])));
}

#[test]
fn a_handshake_that_takes_too_long_ends_and_nobody_else_waits_for_it() {
    let authority = Authority::new();
    let mut server = Server::offering(&authority);
    let mut slow: Vec<_> = (0..3).map(|_| server.raw()).collect();
    for raw in &mut slow {
        raw.write(&marked(&call(1, NULL, Some(flavor::TLS))));
        raw.outcome(&mut server);
        raw.write(&[22, 3, 1]);
    }
    let mut good = server.raw();
    assert!(good.secure(&mut server, anonymous(&authority, &[b"sunrpc"])));
    (0..20).for_each(|_| server.pass());
    assert_eq!(server.shard.snapshot().engine.connections.live, 4);
    let wake_at = server.shard.wake_at().unwrap();
    assert!(wake_at.since(server.now()) <= Duration::from_secs(5), "a sleeping shard looks, too");
    server.skipped += Duration::from_secs(6);
    (0..20).for_each(|_| server.pass());
    assert_eq!(server.shard.snapshot().engine.connections.live, 1);
    assert!(slow.iter_mut().all(|raw| raw.is_ended(&mut server)));
    good.call(&call(9, NULL, None));
    assert_eq!(good.outcome(&mut server), SUCCESS);
    assert_eq!(server.shard.wake_at(), None, "there is nothing to look at any more");
}

#[test]
fn handshakes_beside_calls_go_one_at_a_time_and_wait_for_their_share() {
    let authority = Authority::new();
    let mut server = Server::offering(&authority);
    let mut busy = server.raw();
    let mut calls = |server: &mut Server| {
        for _ in 0..20 {
            busy.call(&call(1, NULL, None));
            assert_eq!(busy.outcome(server), SUCCESS, "calls are served meanwhile");
        }
    };
    let mut newcomers: Vec<_> = (0..6).map(|_| server.raw()).collect();
    for raw in &mut newcomers {
        raw.write(&marked(&call(1, NULL, Some(flavor::TLS))));
        raw.outcome(&mut server);
    }
    calls(&mut server);
    // From here on time goes on by our hand: no step of a handshake can take none.
    server.held = Some(server.now());
    calls(&mut server);
    for raw in &newcomers {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let config = Arc::new(anonymous(&authority, &[b"sunrpc"]));
        let mut tls = ClientConnection::new(config, name).unwrap();
        tls.write_tls(&mut &raw.socket).unwrap();
    }
    let mut answered: Vec<_> = newcomers.iter().map(|_| false).collect();
    for turn in 1..=newcomers.len() {
        calls(&mut server);
        server.until(|_| {
            for (raw, answered) in newcomers.iter().zip(&mut answered) {
                *answered |= raw.socket.peek(&mut [0]).is_ok_and(|len| len > 0);
            }
            (answered.iter().filter(|it| **it).count() >= turn).then_some(())
        });
        (0..5).for_each(|_| calls(&mut server));
        for (raw, answered) in newcomers.iter().zip(&mut answered) {
            *answered |= raw.socket.peek(&mut [0]).is_ok_and(|len| len > 0);
        }
        assert_eq!(answered.iter().filter(|it| **it).count(), turn, "the others have to wait");
        // Time spent waiting for us does not count towards their deadline: six turns take longer.
        let wake_at = server.shard.wake_at().unwrap();
        let now = server.held.unwrap();
        assert!(wake_at.since(now) <= Duration::from_secs(5), "a sleeping shard looks, too");
        server.held = Some(now + Duration::from_secs(2));
    }
}

#[test]
fn sessions_go_on_when_certificates_are_read_again() {
    let authority = Authority::new();
    let mut client = Client::new(Server::offering(&authority), &authority.client());
    let peer = client.connect();
    let _ = authority.server();
    client.server.tls.as_ref().unwrap().reload().unwrap();
    assert_eq!(&client.echo(peer, b"before").echo.unwrap().unwrap()[..], b"before");
    let again = client.shard.connect_tcp(client.server.at).unwrap();
    client.until(|shard| (shard.app().peers().len() == 2).then_some(()));
    assert_eq!(&client.echo(again, b"after").echo.unwrap().unwrap()[..], b"after");
}

#[test]
fn a_peer_inside_a_session_that_takes_no_replies_holds_little() {
    let authority = Authority::new();
    let mut server = Server::offering(&authority);
    let mut raw = server.raw();
    assert!(raw.secure(&mut server, anonymous(&authority, &[b"sunrpc"])));
    let record = marked(&call(3, ECHO, None));
    let mut calls = 0;
    for _ in 0..5_000 {
        let tls = raw.tls.as_mut().unwrap();
        let taken = tls.writer().write(&record).unwrap_or(0);
        assert!(taken == 0 || taken == record.len(), "a record fits the buffer or waits");
        calls += usize::from(taken > 0);
        raw.flush();
        server.pass();
    }
    assert!(server.shard.buffers_in_use() < 300);
    for _ in 0..calls {
        assert_eq!(raw.outcome(&mut server), SUCCESS);
        raw.flush();
    }
}
