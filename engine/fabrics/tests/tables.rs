//! A table with one more fabric: its URLs, its addresses, its providers.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod toy;

mod table {
    #![allow(missing_docs, unreachable_pub)]

    stag_fabrics::fabrics! {
        Iwarp = stag_iwarp::Iwarp;
        Shm = stag_shm::Shm;
        Sim = stag_sim::Sim;
        Toy = super::toy::Toy;
    }
}

use stag_echo::{Caller, Echo};
use stag_engine::{Config, Shard, Token, clock::Clock};
use stag_fabrics::{Settings, UrlError};
use stag_verbs::Provider;
use std::path::Path;
use table::{AnyProvider, Fabric, FabricAddress, FabricVisitor};

/// Serves the echo program at an address, and calls it from the same thread.
struct Round;

impl Round {
    fn settings(config: &Config, clock: Clock, seed: u8) -> Settings {
        Settings::new(config.limits(64), [seed; 32], clock.now())
    }

    /// Answers from `server`, calls from a provider of any fabric.
    fn echo<P: Fabric>(server: P, at: &P::Address) -> (String, usize) {
        let (clock, config) = (Clock::start(), Config::small());
        let admit = || Box::new(|_| true) as Box<_>;
        let mut server = Shard::new(server, Echo::default(), config.clone(), admit()).unwrap();
        let at = P::any(server.listen(at).unwrap());
        let client =
            AnyProvider::for_connecting(Self::settings(&config, clock, 2), Some(&at)).unwrap();
        let mut client = Shard::new(client, Caller::with_capacity(8), config, admit()).unwrap();
        client.connect(&at).unwrap();
        let mut is_called = false;
        loop {
            let now = clock.now();
            let _ = client.pass(now) | server.pass(now);
            if let Some(peer) = client.app().peers().first().copied().filter(|_| !is_called) {
                let payload = Some(b"a bear".as_slice());
                is_called = client.with_app(|_, cx| Caller::call(cx, peer, Token(0), payload));
            }
            if let Some(outcome) = client.with_app(|app, _| app.take()) {
                return (at.to_string(), outcome.echo.unwrap().unwrap().len());
            }
        }
    }
}

impl FabricVisitor for Round {
    type Output = (&'static str, String, usize);

    fn visit<P: Fabric>(self, at: P::Address) -> Self::Output {
        let settings = Self::settings(&Config::small(), Clock::start(), 1);
        let server = P::for_listening(settings, std::slice::from_ref(&at)).unwrap();
        let (at, octets) = Self::echo(server, &at);
        (P::SCHEME, at, octets)
    }
}

#[test]
fn a_fabric_of_one_folder_and_one_line_is_served_and_called_by_its_url() {
    let at = FabricAddress::parse("toy://bear").unwrap();
    assert_eq!(at.visit(Round), ("toy", "toy://bear".to_owned(), 6));
}

#[test]
fn every_fabric_of_the_table_is_served_and_called_by_its_url() {
    let home = tempfile::tempdir().unwrap();
    let shm = format!("shm://{}", home.path().join("socket").display());
    for (url, begin) in [
        ("iwarp://127.0.0.1:0", "iwarp://127.0.0.1:"),
        (shm.as_str(), shm.as_str()),
        (&format!("{shm}2?trust=uid"), &shm),
        ("sim://7", "sim://7"),
    ] {
        let (scheme, at, octets) = FabricAddress::parse(url).unwrap().visit(Round);
        assert!(at.starts_with(begin) && url.starts_with(scheme), "{url}: {scheme} {at}");
        assert_eq!(octets, 6, "{url}");
    }
}

#[test]
fn the_facts_of_every_fabric_come_with_its_line() {
    let schemes: Vec<_> = table::FABRICS.iter().map(|info| info.scheme).collect();
    assert_eq!(schemes, ["iwarp", "shm", "sim", "toy"]);
    let here = FabricAddress::here("toy", Path::new("/no/such/socket")).unwrap();
    assert_eq!((here.at.to_string().as_str(), here.facts[0].1.as_str()), ("toy://bear", "wood"));
    assert!(here.at.info().is_simulated && here.at.ip().is_none());
}

#[test]
fn a_fabric_says_what_is_wrong_with_its_addresses() {
    let wrong =
        UrlError::Address { scheme: "toy", why: "a toy has a name, as in toy://bear".to_owned() };
    assert_eq!(FabricAddress::parse("toy://"), Err(wrong));
    assert_eq!(FabricAddress::parse("bear"), Err(UrlError::NoScheme));
    let unknown = FabricAddress::parse("doll://bear").unwrap_err();
    assert_eq!(unknown, UrlError::UnknownScheme("doll".to_owned()));
}

#[test]
fn an_address_of_another_fabric_is_refused() {
    let settings = Round::settings(&Config::small(), Clock::start(), 3);
    let [toy, sim] = ["toy://bear", "sim://1"].map(|url| FabricAddress::parse(url).unwrap());
    let mut provider = AnyProvider::for_connecting(settings, Some(&toy)).unwrap();
    assert!(provider.listen(&sim).is_err() && provider.connect(&sim, b"").is_err());
    assert_eq!(provider.windows_bound(), 0);
}
