//! Payload octets that our code copies for each octet a call moves, counted by the fabrics: on
//! iWARP none where they are sent (short messages aside) and none where they arrive, but for what
//! came in one read with what was in front of it, which is copied once; in shared
//! memory one when the processes trust each other, two when they do not.

use stag_bench::{compounds, ends, secured::SecuredEnds};
use stag_gss::Enctype;

/// Octets of an echo that travels in chunks: a Read chunk to the server, a Write chunk back.
const OCTETS: usize = 256 << 10;
const CALLS: u64 = 64;
/// Octets of payload, both ways.
const MOVED: u64 = 2 * CALLS * OCTETS as u64;
/// Octets that go inline next to the payload: copied twice in every kind of shared memory, and much
/// fewer than the payload.
const MESSAGES: u64 = CALLS * 2 * 512;

#[test]
fn on_iwarp_nothing_is_copied_to_be_sent_and_little_where_it_arrives() {
    let mut ends = ends::iwarp().unwrap();
    ends.calls(CALLS, Some(OCTETS), 1);
    let (server, client) = (ends.server.provider().stats(), ends.client.provider().stats());
    for (end, stats) in [("server", server), ("client", client)] {
        println!(
            "{end}: {} gathered, {} placed, {} landed, {} moved",
            stats.octets_gathered, stats.octets_placed, stats.octets_landed, stats.octets_moved
        );
        assert_eq!(stats.octets_gathered, 0, "{end}: payload is sent from where it lies");
    }
    let placed = server.octets_placed + client.octets_placed;
    let landed = server.octets_landed + client.octets_landed;
    assert!((MOVED..=MOVED + MESSAGES).contains(&(placed + landed)), "{placed} of {MOVED}");
    // What a large read brings before the first header is judged, and the ends of long messages.
    assert!(landed >= MOVED / 2, "{landed} of {MOVED} octets landed");
    // Parts of an FPDU that came in two reads: at most one in each of those.
    let (moved, reads) = (server.octets_moved + client.octets_moved, server.recv + client.recv);
    assert!(moved <= reads * (64 << 10), "{moved} octets moved in {reads} reads");
}

#[test]
fn in_shared_memory_isolation_costs_the_second_copy() {
    for (trust, copies) in [(false, 2), (true, 1)] {
        let mut ends = ends::shm(trust).unwrap();
        ends.calls(CALLS, Some(OCTETS), 1);
        let (server, client) = (ends.server.provider().stats(), ends.client.provider().stats());
        let sum = |of: fn(&stag_shm::ShmStats) -> u64| of(server) + of(client);
        let (into, out, fetched) = (
            sum(|stats| stats.octets_in),
            sum(|stats| stats.octets_out),
            sum(|stats| stats.octets_fetched),
        );
        println!(
            "trust {trust}: {into} into rings, {out} out of them, {fetched} fetched, of {MOVED}"
        );
        let copied = into + out + fetched;
        let wanted = copies * MOVED..=copies * (MOVED + MESSAGES);
        assert!(
            wanted.contains(&copied),
            "trust {trust}: {copied} octets copied, {wanted:?} wanted"
        );
    }
}

/// Octets of the READs of `stag_bench::compounds`.
const READ: u64 = 64 << 10;

#[test]
fn a_read_by_version_4_copies_no_more_than_one_by_version_3() {
    let questions = ["read-64k/nfs3", "read-64k/nfs4"].map(|text| text.parse().unwrap());
    let moved = CALLS * READ;
    let messages = CALLS * 2 * 1_024;
    for question in questions {
        let mut ends = compounds::iwarp().unwrap();
        let before = ends.server.provider().stats().octets_gathered;
        ends.ask(question, CALLS, &mut |serve| serve());
        let gathered = ends.server.provider().stats().octets_gathered - before;
        assert_eq!(gathered, 0, "{question:?}: data is sent from where it lies");
        // Where processes trust each other, the reader fetches the data from its place in memory.
        let mut ends = compounds::shm_trusted().unwrap();
        let copied = |ends: &compounds::CompoundEnds<stag_shm::Shm>| {
            let stats = ends.server.provider().stats();
            stats.octets_in + stats.octets_out + stats.octets_fetched
        };
        let before = copied(&ends);
        ends.ask(question, CALLS, &mut |serve| serve());
        let copied = copied(&ends) - before;
        println!("{question:?}: {copied} octets copied at the server of {moved}");
        assert!(copied <= messages, "{question:?}: {copied} of {moved}");
    }
}

#[test]
fn a_read_under_krb5_copies_no_data_at_the_server() {
    let mut ends = SecuredEnds::connect(Enctype::Aes256Sha384).unwrap();
    let stats = |ends: &SecuredEnds| {
        let stats = ends.server.provider().stats();
        stats.octets_in + stats.octets_out + stats.octets_fetched
    };
    for flavor in ["sys", "krb5"] {
        let call = format!("read-64k/{flavor}").parse().unwrap();
        let before = stats(&ends);
        ends.ask(call, CALLS, &mut |serve| serve());
        let copied = stats(&ends) - before;
        println!("{flavor}: {copied} octets copied at the server of {}", CALLS * READ);
        assert!(copied <= CALLS * 2 * 1_024, "{flavor}: {copied} of {}", CALLS * READ);
    }
}
