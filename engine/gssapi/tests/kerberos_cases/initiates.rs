//! Failures of the initiator's end, each with its fix.

use super::{Place, SERVER, cases};
use stag_gssapi::{
    ClientCredentials, Enctype, GssFailure, GssInitiator, InitiatorSettings, KerberosFault,
    ServiceName,
};
use std::{thread, time::Duration};

/// A cache that has a ticket for nfs/other.test.
pub const ALONE_CACHE: &str = "alone.cache";

cases! { USUAL:
    without_a_ticket_kinit_is_the_fix,
    an_expired_ticket_is_named,
    an_unknown_service_is_named,
    a_client_keytab_that_is_missing_or_without_the_client_is_named,
    names_that_are_no_service_are_refused,
}

cases! { ALONE: an_unreachable_kdc_is_named }

fn expect(failure: &GssFailure, fault: KerberosFault, fix: &str) {
    println!("  {failure} [{:x} {:x}]", failure.major, failure.minor);
    assert_eq!(failure.fault, fault, "{failure}");
    assert!(failure.to_string().split_once("; fix: ").unwrap().1.contains(fix), "{failure}");
}

/// The failure of a client, when it is made or when it begins.
fn failure(client: Result<GssInitiator, GssFailure>) -> GssFailure {
    client.and_then(|client| client.begin().map(drop)).unwrap_err()
}

fn without_a_ticket_kinit_is_the_fix(place: &Place) {
    let failure = failure(place.client("nothing.cache", SERVER));
    expect(&failure, KerberosFault::NoTicket, "`kinit`");
}

fn an_expired_ticket_is_named(place: &Place) {
    place.folder.kinit("brief.cache", &["-l", "1s"]);
    thread::sleep(Duration::from_secs(2));
    let failure = failure(place.client("brief.cache", SERVER));
    expect(&failure, KerberosFault::Expired, "`kinit`");
}

fn an_unknown_service_is_named(place: &Place) {
    for target in [
        ServiceName::HostBased("nfs@nowhere.test"),
        ServiceName::Principal("nfs/nowhere.test@STAG.TEST"),
    ] {
        let failure = failure(place.client("alice.cache", target));
        expect(&failure, KerberosFault::ServiceUnknown, "`nfs/NAME`");
    }
}

fn a_client_keytab_that_is_missing_or_without_the_client_is_named(place: &Place) {
    for (keytab, principal) in
        [("nothing.keytab", None), ("alice.keytab", Some("bob")), ("nothing.keytab", Some("bob"))]
    {
        let path = place.folder.path(keytab);
        let credentials = ClientCredentials::Keytab { path: &path, principal };
        let enctypes = &Enctype::ALL;
        let settings = InitiatorSettings { target: SERVER, credentials, enctypes, is_mutual: true };
        let failure = failure(GssInitiator::new(place.library, &settings));
        expect(&failure, KerberosFault::NoKey, "keytab");
    }
}

fn names_that_are_no_service_are_refused(place: &Place) {
    for name in ["a@B@C", "", "nfs@", "@"] {
        for target in [ServiceName::Principal(name), ServiceName::HostBased(name)] {
            let failure = failure(place.client("alice.cache", target));
            println!("  {target:?}: {failure} [{:x} {:x}]", failure.major, failure.minor);
        }
    }
}

fn an_unreachable_kdc_is_named(place: &Place) {
    let unknown = ServiceName::HostBased("nfs@third.test");
    let failure = failure(place.client(ALONE_CACHE, unknown));
    expect(&failure, KerberosFault::KdcUnreachable, "KDC of the realm runs");
    // A service whose ticket is in the cache needs no KDC.
    let other = ServiceName::HostBased("nfs@other.test");
    assert!(place.client(ALONE_CACHE, other).unwrap().begin().is_ok());
}
