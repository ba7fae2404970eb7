//! Contexts that a server refuses to create over RDMA, and creates over TCP.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[allow(dead_code)] // Of what it can do, some is for other tests.
mod gss_server;

use gss_server::over_both::{OverBoth, Refusal};
use stag_protocol::rpc::gss::GssService;
use stag_rpc::{
    Bulk, CallError, Client, ClientBuilder, Octets,
    gss::{ContextFault, ContextSource, PendingSetup, Tickets},
    program,
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile as _; // of other tests

program! {
    /// The server's program.
    pub mod echoes: 0x3f53_54ff, version 1 {
        /// The octets.
        1 => fn echo(octets: Bulk<100_000>) -> Bulk<100_000>;
    }
}

const SERVICES: [GssService; 3] = [GssService::None, GssService::Integrity, GssService::Privacy];
const REFUSALS: [(Refusal, &str); 3] = [
    (Refusal::Denied, "auth_stat 5"),
    (Refusal::Garbage, "GARBAGE_ARGS"),
    (Refusal::Ends, "the connection ended"),
];

/// Tokens that were made, and sentences about TCP.
#[derive(Default)]
struct Seen {
    tokens: usize,
    sentences: Vec<String>,
}

struct Noted(Arc<Mutex<Seen>>);

impl ContextSource for Noted {
    fn begin(&mut self) -> Result<(Vec<u8>, Box<dyn PendingSetup>), ContextFault> {
        self.0.lock().unwrap().tokens += 1;
        gss_server::Tickets(1).begin()
    }

    fn on_created_over_tcp(&mut self, sentence: &str) {
        self.0.lock().unwrap().sentences.push(sentence.to_owned());
    }
}

fn builder(service: GssService, port: u16, keep: bool) -> (ClientBuilder, Arc<Mutex<Seen>>) {
    let seen = Arc::<Mutex<Seen>>::default();
    let noted = Arc::clone(&seen);
    let tickets = Tickets::new(service, move || Ok(Box::new(Noted(Arc::clone(&noted)))));
    let builder = Client::builder().timeout(Duration::from_secs(20));
    let builder = builder.tickets(tickets.tcp_port(port));
    (if keep { builder.keep_connected() } else { builder }, seen)
}

fn judge(seen: &Mutex<Seen>, server: &OverBoth, part: &str) {
    let (seen, [fabric, tcp]) = (seen.lock().unwrap(), server.asked());
    assert_eq!((fabric, tcp, seen.tokens), (1, 2, 3), "each request has a token of its own");
    let [sentence] = &seen.sentences[..] else { panic!("one sentence: {:?}", seen.sentences) };
    assert!(sentence.contains(part), "{sentence}");
    assert!(sentence.contains(&format!("over TCP, at 127.0.0.1:{}", server.tcp_port)));
}

#[test]
fn a_context_that_rdma_refuses_is_created_and_renewed_over_tcp() {
    for (refusal, part) in REFUSALS {
        for (service, keep) in SERVICES.into_iter().flat_map(|it| [(it, true), (it, false)]) {
            let server = OverBoth::start([refusal, Refusal::None]);
            let (builder, seen) = builder(service, server.tcp_port, keep);
            let mut client = echoes::Client::over(builder.connect(&server.url).unwrap());
            for octets in [vec![3; 10], vec![4; 70_000]] {
                let back = client.echo(Octets::from(&octets)).unwrap();
                assert_eq!(back.as_slice(), octets, "{refusal:?} {service:?} {keep}");
                server.forget();
            }
            judge(&seen, &server, part);
        }
    }
}

#[test]
fn asynchronous_clients_go_the_same_way() {
    for (refusal, part) in REFUSALS {
        for is_local in [true, false] {
            let server = OverBoth::start([refusal, Refusal::None]);
            let keep = refusal == Refusal::Ends;
            let (builder, seen) = builder(GssService::Integrity, server.tcp_port, keep);
            let client = match is_local {
                true => builder.connect_local(&server.url).unwrap(),
                false => builder.connect_async(&server.url).unwrap(),
            };
            let typed = echoes::AsyncClient::over(client.clone());
            for octets in [vec![3; 10], vec![4; 70_000]] {
                let reply = client.block_on(typed.echo(Octets::from(&octets))).unwrap();
                assert_eq!(reply.results().unwrap().as_slice(), octets, "{refusal:?} {is_local}");
                server.forget();
            }
            judge(&seen, &server, part);
        }
    }
}

#[test]
fn an_asynchronous_client_that_is_not_kept_has_the_reason() {
    let server = OverBoth::start([Refusal::Ends, Refusal::None]);
    let (builder, _) = builder(GssService::None, server.tcp_port, false);
    let client = builder.connect_async(&server.url).unwrap();
    let typed = echoes::AsyncClient::over(client.clone());
    let failed = client.block_on(typed.echo(Octets::from(b"octets"))).unwrap_err();
    assert_eq!(failed, CallError::NoContext);
    let fault = client.take_context_fault().unwrap().to_string();
    assert!(fault.contains("keep_connected"), "{fault}");
}

#[test]
fn a_server_that_refuses_both_ways_has_both_answers_in_the_error() {
    for (first, part) in REFUSALS {
        for (second, other) in [
            (
                Some(Refusal::Denied),
                "(the server does not take RPCSEC_GSS (auth_stat 5)): it may have no keytab",
            ),
            (Some(Refusal::Garbage), "call it without tickets"),
            (None, "let the server listen there"),
        ] {
            let server = OverBoth::start([first, second.unwrap_or_default()]);
            // Port 1 of loopback has no server.
            let port = second.map_or(1, |_| server.tcp_port);
            let (builder, seen) = builder(GssService::Integrity, port, true);
            let mut client = echoes::Client::over(builder.connect(&server.url).unwrap());
            let failed = client.echo(Octets::from(b"octets")).unwrap_err();
            assert_eq!(failed, CallError::NoContext);
            let fault = client.connection().take_context_fault().unwrap().to_string();
            assert!(fault.contains(part) && fault.contains(other), "{fault}");
            assert_eq!(seen.lock().unwrap().sentences, [""; 0]);
            // A server that is mended is asked over RDMA first.
            server.refuse([Refusal::None; 2]);
            let asked = server.asked();
            client.echo(Octets::from(b"octets")).unwrap();
            assert_eq!(server.asked(), [asked[0] + 1, asked[1]]);
        }
    }
}
