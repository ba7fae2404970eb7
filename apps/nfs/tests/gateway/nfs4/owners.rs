//! Sessions and client IDs belong to the hosts that identify their client (RFC 8881 §2.10.8.3,
//! §18.34.3, §18.37.3).

use super::client::{CONFIG, Client4, ServedExport, session_args};
use crate::gateway::{
    client::Home,
    wire::{OverTcp, Wire},
};
use stag_engine::{App, Call, Cause, Config, Cx, PeerId, PeerSecurity, tls::Secured};
use stag_nfs::{Gateway, GatewayReport, Nfs4Config, serve::start_records};
use stag_nfs_store::files::Files;
use stag_protocol::{
    nfs::v4::*,
    rpc::{AuthSys, Credential, Gids},
};
use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
    time::Duration,
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// A client of the host 127.0.0.1, over its first connection.
fn client() -> Client4 {
    let home = crate::gateway::client::Home::new();
    let gateway: Gateway<Files> = home.gateway().with_nfs4(CONFIG);
    let wire = Box::new(OverTcp::new(gateway, Config::small()));
    Client4::on(wire, ServedExport::new(b"data", home), 1)
}

fn user(uid: u32) -> Credential<'static> {
    let gids = Gids::new(&[]).unwrap();
    Credential::Sys(AuthSys { stamp: 0, machine_name: b"host", uid, gid: 7, gids })
}

/// The status of a compound of one operation without SEQUENCE.
fn alone(client: &mut Client4, request: Request<'_>) -> Status4 {
    client.send(&[request]).status()
}

fn bind(session: SessionId) -> Request<'static> {
    Request::BindConnToSession(BindConnArgs { session, wish: ChannelWish::Back, rdma_mode: false })
}

/// The status of a request in the client's session. Only one that was begun uses its slot.
fn request(client: &mut Client4) -> Status4 {
    let status = client.run(&[Request::PutRootFh(())]).status();
    if status != Status4::Ok {
        client.sequences[0] -= 1;
    }
    status
}

/// The statuses of all that could be done to the client by its session ID and its client ID.
fn attack(client: &mut Client4) -> [Status4; 5] {
    let (id, session) = (client.id, client.session);
    [
        request(client),
        alone(client, bind(session)),
        alone(client, Request::DestroySession(session)),
        client.create_session_of(session_args(id, 2)).unwrap_err(),
        alone(client, Request::DestroyClientid(id)),
    ]
}

/// A session and a client ID of another host.
const UNKNOWN: [Status4; 5] = [
    Status4::BadSession,
    Status4::BadSession,
    Status4::BadSession,
    Status4::StaleClientid,
    Status4::StaleClientid,
];

#[test]
fn a_session_and_a_client_id_do_not_exist_for_another_host() {
    let mut client = client();
    let own = client.credential;
    client.wire.connect_from(9);
    for credential in [own, user(2_000), user(0)] {
        client.credential = credential;
        assert_eq!(attack(&mut client), UNKNOWN);
    }
    client.credential = own;
    client.wire.call_over(0);
    assert_eq!(request(&mut client), Status4::Ok, "nothing has happened to it");
    assert!(client.create_session(2).is_ok());
}

#[test]
fn all_users_and_connections_of_a_host_may_use_its_sessions() {
    let mut client = client();
    for uid in [0, 1_000, 2_000] {
        client.wire.connect_from(1);
        client.credential = user(uid);
        assert_eq!(request(&mut client), Status4::Ok);
        let session = client.session;
        assert_eq!(alone(&mut client, bind(session)), Status4::Ok);
    }
}

#[test]
fn a_client_that_shows_itself_from_another_address_goes_on_there() {
    let mut client = client();
    client.wire.connect_from(9);
    assert_eq!(request(&mut client), Status4::BadSession);
    // RFC 8881 §18.35.4: only the same principal is the same client, and a verifier that differs is
    // that of a client which restarted.
    let (own, id) = (client.credential, client.id);
    client.credential = user(2_000);
    assert_eq!(client.exchange_id(b"client", 1), Err(Status4::ClidInUse));
    client.credential = own;
    assert_eq!(client.exchange_id(b"client", 2), Err(Status4::Delay), "it is there");
    assert_eq!(request(&mut client), Status4::BadSession);
    assert_eq!(client.exchange_id(b"client", 1).unwrap().0, id);
    assert_eq!(request(&mut client), Status4::Ok);
    let session = client.session;
    assert_eq!(alone(&mut client, bind(session)), Status4::Ok);
    assert!(client.create_session(2).is_ok());
    // The address that it had stays its own: it may trunk.
    client.wire.call_over(0);
    assert_eq!(request(&mut client), Status4::Ok);
}

/// Events that this thread logs, in words.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

/// The fields of an event.
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The clone of a client takes its name with this verifier, and is confirmed.
fn replace(client: &mut Client4, verifier: u8) {
    let (id, sequence) = client.exchange_id(b"client", verifier).unwrap();
    client.id = id;
    client.session = client.create_session(sequence).unwrap().session;
}

#[test]
fn two_hosts_with_one_name_are_counted_and_the_log_has_both_addresses_and_the_remedy() {
    let log = Log::default();
    // With a single subscriber, the thread that reaches a line first decides for all whether it is
    // wanted: another test, which has none, does not. With two, both are asked.
    let _second = tracing::Dispatch::new(Log::default());
    let _logs = tracing::subscriber::set_default(log.clone());
    let mut client = client();
    let conflicts = |client: &Client4| client.wire.report().nfs4.name_conflicts;
    // A host that restarts cannot be distinguished from another one at the same address, until
    // the first is back.
    replace(&mut client, 2);
    replace(&mut client, 3);
    assert_eq!((conflicts(&client), log.0.lock().unwrap().len()), (0, 0), "it has restarted");
    replace(&mut client, 2);
    replace(&mut client, 3);
    assert_eq!(conflicts(&client), 2);
    client.wire.connect_from(9);
    assert_eq!(client.exchange_id(b"client", 4), Err(Status4::Delay));
    assert_eq!(conflicts(&client), 3);
    let lines = log.0.lock().unwrap().clone();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, peer) in lines.iter().zip(["127.0.0.1:", "127.0.0.1:", "127.0.0.9:"]) {
        let has = |words: String| assert!(line.contains(&words), "{line}");
        has(format!("peer={peer}"));
        has("other=127.0.0.1:".to_owned());
        has("owner=\"client\"".to_owned());
        has("nfs4_unique_id".to_owned());
    }
}

#[test]
fn a_session_is_destroyed_over_a_connection_that_is_associated_with_it() {
    let mut client = client();
    client.wire.connect_from(1);
    let session = client.session;
    let destroy = || Request::DestroySession(session);
    assert_eq!(alone(&mut client, destroy()), Status4::ConnNotBoundToSession);
    assert_eq!(request(&mut client), Status4::Ok, "a request associates the connection");
    assert_eq!(alone(&mut client, destroy()), Status4::Ok);
    assert_eq!(request(&mut client), Status4::BadSession);
}

/// A server over these files and the records of those before it, which ends its grace period after
/// so long.
fn recorded(home: &Home, grace: Duration) -> Box<dyn Wire> {
    let mut records = start_records(&home.path("state"), CONFIG.lease).unwrap();
    records.grace = grace;
    let config = Nfs4Config { epoch: records.boot.epoch, ..CONFIG };
    let gateway: Gateway<Files> = home.gateway().with_nfs4(config).with_records(records);
    Box::new(OverTcp::new(gateway, Config::small()))
}

#[test]
fn a_recorded_owner_belongs_to_its_host_and_user_until_the_grace_period_is_over() {
    let home = Home::new();
    let wire = recorded(&home, CONFIG.lease);
    let mut client = Client4::on(wire, ServedExport::new(b"data", ()), 2);
    client.open(b"f");
    // The grace period goes on while another one is awaited.
    client.swap(&mut None);
    client.open(b"g");
    let own = client.credential;
    client.wire = Box::new(crate::gateway::wire::NoWire);
    client.wire = recorded(&home, CONFIG.lease);
    let in_use = Err(Status4::ClidInUse);
    client.credential = user(2_000);
    assert_eq!(client.exchange_id(b"client", 1), in_use, "another user of the host");
    client.wire.connect_from(9);
    assert_eq!(client.exchange_id(b"client", 2), in_use);
    client.credential = own;
    let late = Err(Status4::Delay);
    assert_eq!(client.exchange_id(b"client", 2), late, "another host with the user's number");
    assert!(client.exchange_id(b"client", 1).is_ok(), "the client itself, which has moved");
    assert!(client.exchange_id(b"newcomer", 2).is_ok());
    client.wire.call_over(0);
    assert!(client.exchange_id(b"client", 2).is_ok(), "the host may have restarted");
    let (id, sequence) = client.exchange_id(b"client", 1).unwrap();
    client.id = id;
    client.session = client.create_session(sequence).unwrap().session;
    // It has come back, and others wait for the end of the grace period.
    client.wire.connect_from(9);
    assert_eq!(client.exchange_id(b"client", 3), late);
    client.wire = Box::new(crate::gateway::wire::NoWire);
    client.wire = recorded(&home, Duration::ZERO);
    client.wire.connect_from(9);
    let mut attempts = 0..10_000;
    assert!(attempts.any(|_| client.exchange_id(b"client", 3).is_ok()), "for ever");
}

/// A gateway to which each connection shows a certificate with the names that are set then, if any
/// are.
struct Certified {
    gateway: Gateway<Files>,
    names: Arc<Mutex<Option<[u8; 32]>>>,
}

impl App for Certified {
    type Report = GatewayReport;

    fn report(&self) -> GatewayReport {
        self.gateway.report()
    }

    fn wants_idle_passes(&self) -> bool {
        self.gateway.wants_idle_passes()
    }

    fn sink(&mut self, len: usize) -> Option<stag_pools::Buf> {
        self.gateway.sink(len)
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.gateway.on_call(cx, call);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        self.gateway.on_peer_up(cx, peer);
        let names = *self.names.lock().unwrap();
        let (suite, certificate) = (String::new(), None);
        let secured = Secured { suite, certificate, names, names_protocol: true, in_kernel: false };
        self.gateway.on_security(cx, peer, &PeerSecurity::Secured(secured));
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        self.gateway.on_peer_down(cx, peer, cause);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.gateway.on_pass_end(cx);
    }
}

#[test]
fn a_client_that_has_proven_itself_is_known_by_its_certificate_alone() {
    let home = Home::new();
    let names = Arc::new(Mutex::new(Some([1; 32])));
    let gateway = home.gateway().with_nfs4(CONFIG);
    let app = Certified { gateway, names: Arc::clone(&names) };
    let wire = Box::new(OverTcp::new(app, Config::small()));
    let mut client = Client4::on(wire, ServedExport::new(b"data", ()), 2);
    client.wire.connect_from(9);
    assert_eq!(request(&mut client), Status4::Ok, "it has another address");
    for stranger in [None, Some([2; 32])] {
        *names.lock().unwrap() = stranger;
        client.wire.connect_from(1);
        assert_eq!(attack(&mut client), UNKNOWN);
        for verifier in [1, 2] {
            let asked = client.exchange_id(b"client", verifier);
            assert_eq!(asked, Err(Status4::ClidInUse), "another principal");
        }
    }
    client.wire.call_over(0);
    assert_eq!(request(&mut client), Status4::Ok);
}
