//! Every input of the corpora and of the regressions: as it is, cut everywhere, and with every
//! octet set to every value.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_fuzz::{FuzzRandom, FuzzTarget, InputVerdict, TARGETS, corpus, find, run::attempt};

/// Octets from the front of an input that take every value; after them every [`STRIDE`]th does.
const DENSE: usize = 256;
const STRIDE: usize = 16;
/// Inputs that are made where there is no corpus.
const MADE: usize = 6;

fn attempt_or_panic(target: &FuzzTarget, name: &str, input: &[u8]) -> InputVerdict {
    attempt(target, input).unwrap_or_else(|failure| panic!("{name}: {failure}"))
}

/// Changes everything there is to change; how often.
fn sweep(target: &FuzzTarget, entry: &corpus::CorpusEntry) -> usize {
    let mut octets = entry.octets.clone();
    let mut count = 0;
    let mut attempt = |input: &[u8]| {
        attempt_or_panic(target, &entry.name, input);
        count += 1;
    };
    let is_swept = |at: &usize| *at < DENSE || at.is_multiple_of(STRIDE);
    (0..octets.len()).for_each(|cut| attempt(&octets[..cut]));
    for at in (0..octets.len()).filter(is_swept) {
        let old = octets[at];
        // A connection takes longer: each bit, then, and the ends.
        let bits = (0..8).map(|bit| old ^ 1 << bit).chain([0, u8::MAX]);
        let every = (0..=u8::MAX).filter(|_| !target.is_slow);
        for value in bits.filter(|_| target.is_slow).chain(every) {
            octets[at] = value;
            attempt(&octets);
        }
        octets[at] = old;
    }
    assert_eq!(octets, entry.octets);
    count
}

/// The corpus, or a few inputs made from a structure where real peers sent nothing of the kind.
fn entries(target: &FuzzTarget) -> Vec<corpus::CorpusEntry> {
    let entries = corpus::corpus(target.name);
    if !entries.is_empty() {
        return entries;
    }
    let mut random = FuzzRandom::new(1);
    let made = (0..1000)
        .map(|_| (target.make)(&mut random))
        .filter(|input| (32..512).contains(&input.len()));
    made.take(MADE).map(|octets| corpus::CorpusEntry { name: "made".to_owned(), octets }).collect()
}

fn sweep_all(names: &[&str]) {
    for name in names {
        let target = find(name).unwrap();
        let count: usize = entries(target).iter().map(|entry| sweep(target, entry)).sum();
        println!("{name}: {count} inputs");
        assert!(count > 1_000, "{name} has something to sweep");
    }
}

#[test]
fn every_octet_of_what_real_peers_sent_may_be_anything_in_rpc_and_nfs() {
    sweep_all(&[
        "xdr",
        "types",
        "rpc_call",
        "rpc_reply",
        "rpc_auth",
        "rpc_record",
        "nfs3_call",
        "nfs3_reply",
        "mount",
        "file_handle",
        "nfs4_compound",
        "nfs4_reply",
        "nfs4_callback",
        "nfs4_attributes",
    ]);
}

#[test]
fn every_octet_of_what_real_peers_sent_may_be_anything_in_rpcsec_gss() {
    sweep_all(&["gss_credential", "gss_init", "gss_body", "gss_token"]);
}

#[test]
fn every_octet_of_what_real_peers_sent_may_be_anything_in_rpc_over_rdma() {
    sweep_all(&[
        "cm_private",
        "rpcrdma_v1",
        "rpcrdma_v2",
        "rpcrdma_requester",
        "rpcrdma_responder",
        "rpcrdma_plan_call",
    ]);
}

#[test]
fn every_octet_of_what_real_peers_sent_may_be_anything_in_whole_messages() {
    sweep_all(&["rpcrdma_message", "rpcrdma_connection"]);
}

#[test]
fn every_octet_of_what_real_peers_sent_may_be_anything_in_iwarp() {
    sweep_all(&["mpa", "fpdu", "ddp", "rdmap", "iwarp_connection"]);
}

#[test]
fn every_octet_of_keytabs_and_of_tokens_may_be_anything() {
    sweep_all(&["keytab", "krb_token"]);
}

#[test]
fn every_bit_of_a_connection_to_a_shard_may_be_wrong() {
    sweep_all(&["stages", "shard", "shard_requester", "shard_tcp", "shm_link"]);
}

#[test]
fn every_bit_of_what_clients_of_version_4_ask_of_its_state_may_be_wrong() {
    sweep_all(&["nfs4_state"]);
}

#[test]
fn every_bit_of_the_compounds_of_a_client_of_version_4_may_be_wrong() {
    sweep_all(&["compound"]);
}

#[test]
fn every_target_is_swept() {
    let this = include_str!("sweeps.rs");
    for target in &TARGETS {
        assert!(this.contains(&format!("\"{}\"", target.name)), "{}", target.name);
    }
}

#[test]
fn what_real_peers_sent_is_accepted() {
    for target in &TARGETS {
        // Only their peers have the keys of these tokens.
        let is_foreign = target.name == "gss_token";
        for entry in corpus::corpus(target.name) {
            let verdict = attempt_or_panic(target, &entry.name, &entry.octets);
            let is_accepted = matches!(verdict, InputVerdict::Accepted(_));
            assert_ne!(is_accepted, is_foreign, "{} {}", target.name, entry.name);
        }
    }
}

#[test]
fn what_once_did_harm_does_none() {
    for target in &TARGETS {
        for entry in corpus::regressions(target.name) {
            attempt_or_panic(target, &entry.name, &entry.octets);
        }
    }
}
