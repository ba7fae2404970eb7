//! Typed clients by tickets, and services that ask for their caller. A fake acceptor takes the
//! place of Kerberos; the last test has MIT's library and a KDC of this host, which it starts and
//! ends. Where there can be none, it says why and passes; with `STAG_NO_SKIP` in the environment,
//! it fails.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[allow(dead_code)] // Of what it can do, some is for tests of untyped clients.
mod gss_server;
#[allow(dead_code)] // Of what it can do, some is for tests of the library.
#[path = "../../gssapi/tests/realm/mod.rs"]
mod realm;

use gss_server::key;
use realm::{Folder, Realm};
use stag_protocol::rpc::gss::MajorStatus;
use stag_rpc::{
    AsyncClient, AuthStatus, Bulk, CallError, Client, ClientBuilder, Denied, Octets, PeerAddress,
    Replied, Replier, Server, ServerBuilder, Text,
    gss::{
        AcceptedContext, AcceptorContext, ContextAcceptor, ContextLimits, GssContexts, GssService,
        KerberosTickets, RefusedContext, Tickets, contexts_of_keytab,
    },
    program,
};
use std::{
    env, process,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tempfile as _; // of the realm

const SERVICES: [GssService; 3] = [GssService::None, GssService::Integrity, GssService::Privacy];
const TOO_WEAK: CallError = CallError::Denied(Denied::AuthError(AuthStatus::TOO_WEAK));
/// Octets of the longest item.
const ITEM_MAX: usize = 100_000;

program! {
    /// Knows its callers.
    pub mod lobby: 0x2053_5410, version 1 {
        /// The caller's principal, and the number of the protection.
        1 => fn who() -> (Text<64>, u32);
        /// The arguments.
        2 => fn echo(name: Text<64>, octets: Bulk<ITEM_MAX>, after: u32)
            -> (Text<64>, Bulk<ITEM_MAX>, u32);
        /// Succeeds for calls that are encrypted.
        3 => fn whisper();
    }
}

struct Lobby;

impl lobby::Service for Lobby {
    fn who(&mut self, reply: Replier<'_, '_, (Text<64>, u32)>) -> Replied {
        let (principal, service) =
            reply.proven().map_or(("", 0), |user| (user.principal, user.service as u32));
        reply.send((principal, service))
    }

    fn echo(
        &mut self,
        name: &str,
        octets: Octets<'_>,
        after: u32,
        reply: Replier<'_, '_, (Text<64>, Bulk<ITEM_MAX>, u32)>,
    ) -> Replied {
        reply.send((name, octets, after))
    }

    fn whisper(&mut self, reply: Replier<'_, '_, ()>) -> Replied {
        match reply.proven() {
            Some(user) if user.service == GssService::Privacy => reply.send(()),
            _ => reply.deny(AuthStatus::TOO_WEAK),
        }
    }
}

/// Grants contexts to whom asks by the right token, until `refuses`.
struct Doorman;

impl ContextAcceptor for Doorman {
    fn accept(&mut self, token: &[u8], _: PeerAddress) -> Result<AcceptedContext, RefusedContext> {
        if token != b"ask" {
            let token = b"the clock is wrong".to_vec();
            return Err(RefusedContext { major: MajorStatus::FAILURE, minor: 37, token });
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        Ok(AcceptedContext {
            context: AcceptorContext::new(&key(&[7; 32])).unwrap(),
            token: b"granted".to_vec(),
            principal: "alice@STAG.TEST".to_owned(),
            unix: None,
            ends: now + 3_600,
        })
    }
}

fn contexts() -> Arc<GssContexts> {
    GssContexts::start(Box::new(Doorman), ContextLimits::default()).unwrap()
}

const URLS: [&str; 2] = ["iwarp://127.0.0.1:0", "tcp://127.0.0.1:0"];

fn serve(url: &str, change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> (Server, String) {
    let server = change(Server::builder().listen(url)).serve(|| lobby::Serve(Lobby)).unwrap();
    let at = server.addresses()[0].clone();
    (server, at)
}

/// A client with tickets that the doorman takes.
fn builder(service: GssService) -> ClientBuilder {
    let tickets = Tickets::new(service, || Ok(Box::new(gss_server::Tickets(1))));
    Client::builder().timeout(Duration::from_secs(20)).tickets(tickets)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|place| (place * 7 + place / 251) as u8).collect()
}

const LENGTHS: [usize; 5] = [0, 5, 3_990, 65_537, 90_001];

/// Calls every procedure, the items in the middle of the others.
fn talk(client: &mut lobby::Client, service: GssService, principal: &str) {
    for len in LENGTHS {
        let octets = pattern(len);
        let (name, back, after) = client.echo("alice", Octets::from(&octets), 7).unwrap();
        assert!(name == "alice" && back.as_slice() == octets && after == 7, "{service:?} {len}");
    }
    assert_eq!(client.who(), Ok((principal, service as u32)));
    let whispered = client.whisper();
    assert_eq!(whispered.is_ok(), service == GssService::Privacy, "{whispered:?}");
}

#[test]
fn a_service_has_the_principal_and_the_protection_of_each_call() {
    for url in URLS {
        let contexts = contexts();
        let (_server, at) = serve(url, |server| server.contexts(Arc::clone(&contexts)));
        for service in SERVICES {
            let mut client = lobby::Client::over(builder(service).connect(&at).unwrap());
            talk(&mut client, service, "alice@STAG.TEST");
            // The server forgets its contexts.
            contexts.forget_all();
            talk(&mut client, service, "alice@STAG.TEST");
        }
        let counts = contexts.counts();
        assert_eq!((counts.accepted, counts.refused), (6, 0), "{url}");
        // A caller without a ticket is taken, and has no principal.
        let mut client = lobby::Client::connect(&at).unwrap();
        assert_eq!(client.who(), Ok(("", 0)));
        assert_eq!(client.whisper(), Err(TOO_WEAK));
    }
}

#[test]
fn asynchronous_clients_call_by_tickets_too() {
    for url in URLS {
        let contexts = contexts();
        let (_server, at) = serve(url, |server| server.contexts(Arc::clone(&contexts)));
        for service in SERVICES {
            let local = builder(service).connect_local(&at).unwrap();
            for client in [builder(service).connect_async(&at).unwrap(), local] {
                let typed = lobby::AsyncClient::over(client.clone());
                // The second round has lost its context.
                for _ in 0..2 {
                    client.block_on(talk_at_once(&typed, service));
                    contexts.forget_all();
                }
            }
        }
        assert_eq!(contexts.counts().accepted, 12, "one for all calls at a time: {url}");
    }
}

/// Calls of every length at the same time.
async fn talk_at_once(client: &lobby::AsyncClient, service: GssService) {
    let all = LENGTHS.map(pattern);
    let calls = [&all, &all]
        .map(|all| all.each_ref().map(|octets| client.echo("alice", Octets::from(&octets[..]), 7)));
    for calls in calls {
        for (call, octets) in calls.into_iter().zip(&all) {
            let reply = call.await.unwrap();
            let (name, back, after) = reply.results().unwrap();
            assert!(name == "alice" && back.as_slice() == &octets[..] && after == 7);
        }
    }
    let reply = client.who().await.unwrap();
    assert_eq!(reply.results(), Ok(("alice@STAG.TEST", service as u32)));
}

#[test]
fn a_server_denies_calls_with_less_protection_than_it_demands() {
    for url in URLS {
        let demand = GssService::Integrity;
        let (_server, at) = serve(url, |server| server.contexts(contexts()).demand(demand));
        for service in SERVICES {
            let mut client = lobby::Client::over(builder(service).connect(&at).unwrap());
            let expected = if service < demand { Err(TOO_WEAK) } else { Ok(service as u32) };
            assert_eq!(client.who().map(|(_, service)| service), expected);
        }
        let mut client = lobby::Client::connect(&at).unwrap();
        assert_eq!(client.who(), Err(TOO_WEAK));
        let asynchronous = builder(GssService::None).connect_async(&at).unwrap();
        let typed = lobby::AsyncClient::over(asynchronous.clone());
        assert_eq!(asynchronous.block_on(typed.who()).unwrap_err(), TOO_WEAK);
    }
}

/// Tickets whose token the doorman does not take.
struct Forged;

impl stag_rpc::gss::ContextSource for Forged {
    fn begin(
        &mut self,
    ) -> Result<(Vec<u8>, Box<dyn stag_rpc::gss::PendingSetup>), stag_rpc::gss::ContextFault> {
        let (_, setup) = gss_server::Tickets(1).begin()?;
        Ok((b"let me in".to_vec(), setup))
    }
}

#[test]
fn without_a_context_a_call_ends_and_the_client_has_the_reason() {
    let forged = || {
        let tickets = Tickets::new(GssService::Integrity, || Ok(Box::new(Forged)));
        Client::builder().timeout(Duration::from_secs(20)).tickets(tickets)
    };
    for url in URLS {
        let (_server, at) = serve(url, |server| server.contexts(contexts()));
        let (_other, elsewhere) = serve(url, |server| server);
        let usual = || builder(GssService::Integrity);
        for (builder, at, part) in [
            (&forged as &dyn Fn() -> ClientBuilder, &at, "the clock is wrong"),
            (&usual, &elsewhere, "does not take RPCSEC_GSS"),
        ] {
            let mut client = lobby::Client::over(builder().connect(at).unwrap());
            assert_eq!(client.who(), Err(CallError::NoContext));
            let fault = client.connection().take_context_fault().unwrap().to_string();
            assert!(fault.contains(part), "{fault}");
            let client: AsyncClient = builder().connect_async(at).unwrap();
            let typed = lobby::AsyncClient::over(client.clone());
            assert_eq!(client.block_on(typed.who()).unwrap_err(), CallError::NoContext);
            let fault = client.take_context_fault().unwrap().to_string();
            assert!(fault.contains(part), "{fault}");
        }
    }
}

const FOLDER: &str = "STAG_RPC_REALM";

/// The library reads the location of krb5.conf from the environment, so that a child process calls.
#[test]
fn tickets_of_a_kdc_are_taken_with_a_keytab() {
    let realm = match Realm::start() {
        Ok(realm) => realm,
        Err(why) => {
            assert!(env::var_os("STAG_NO_SKIP").is_none(), "must not be skipped: {why}");
            return println!("skipped: {why}");
        }
    };
    realm.folder.kinit("alice.cache", &[]);
    let program = env::current_exe().unwrap();
    let mut child = process::Command::new(program);
    child.args(["--exact", "a_child_calls_with_the_tickets_of_a_kdc", "--nocapture"]);
    child.env(FOLDER, &realm.folder.0).env("KRB5_CONFIG", realm.folder.path("usual.conf"));
    let done = child.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && out.contains("all called"), "{out}{err}");
}

#[test]
fn a_child_calls_with_the_tickets_of_a_kdc() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let folder = Folder(folder.into());
    let cache = folder.path("replays");
    let contexts = contexts_of_keytab(&folder.path("server.keytab"), "nfs", Some(&cache)).unwrap();
    let (_server, at) = serve("tcp://127.0.0.1:0", |server| server.contexts(contexts));
    let target = KerberosTickets::new("nfs@server.test");
    for service in SERVICES {
        let by_cache = target.clone().cache(&folder.cache("alice.cache"));
        let by_keytab = target.clone().keytab(folder.path("alice.keytab"), Some("alice"));
        for tickets in [by_cache, by_keytab] {
            let tickets = Tickets::of_kerberos(service, tickets);
            let builder = Client::builder().tickets(tickets.clone());
            let mut client = lobby::Client::over(builder.connect(&at).unwrap());
            talk(&mut client, service, "alice@STAG.TEST");
            let client = Client::builder().tickets(tickets).connect_async(&at).unwrap();
            client.block_on(talk_at_once(&lobby::AsyncClient::over(client.clone()), service));
        }
    }
    let missing = target.cache(&folder.cache("missing"));
    let builder = Client::builder().tickets(Tickets::of_kerberos(GssService::None, missing));
    let fault = match builder.connect(&at) {
        Err(error) => error.to_string(),
        Ok(client) => {
            let mut client = lobby::Client::over(client);
            assert_eq!(client.who(), Err(CallError::NoContext));
            client.connection().take_context_fault().unwrap().to_string()
        }
    };
    assert!(fault.contains("kinit"), "{fault}");
    println!("all called");
}
