//! The list of contexts for the operator.

use super::{ENCTYPE, ask, client, client::Client, contexts, serving};
use stag_echo::NULL;
use stag_engine::{Time, gss::ContextLimits};
use stag_protocol::rpc::gss::{GssCredential, GssService};

#[test]
fn contexts_are_listed_by_principal_with_their_latest_use() {
    let contexts = contexts(ENCTYPE, ContextLimits::default());
    let mut at = serving(&contexts);
    assert_eq!(contexts.by_principal(), []);
    let alices: Vec<_> = (0..300).map(|_| client(&mut at, ENCTYPE, "alice@REALM")).collect();
    let bob = client(&mut at, ENCTYPE, "bob@REALM 40000000000");
    let mut call = |client: &Client, sequence, service| {
        at.now = Time(at.now.0 + 1_000);
        let call = client.call((sequence, sequence), service, NULL, &[]);
        let before = at.now;
        client.open(sequence, service, &ask(&mut at, &call));
        before..=at.now
    };
    let last = alices.last().unwrap();
    call(last, 1, GssService::None);
    let used = call(last, 2, GssService::Privacy);
    let mut all = contexts.by_principal();
    all.sort_by_key(|group| group.principal.clone());
    let [alice, of_bob] = &all[..] else { panic!("{all:?}") };
    let limit = ContextLimits::default().each_principal as u64;
    assert_eq!(
        (&*alice.principal, alice.contexts, alice.ends),
        ("alice@REALM", limit, 32_503_680_000)
    );
    assert_eq!(alice.service, Some(GssService::Privacy));
    // To four nanoseconds, in whose place the service is.
    assert!(used.contains(&Time(alice.used_at.0 | 3)) || used.contains(&alice.used_at), "{used:?}");
    assert_eq!(
        (&*of_bob.principal, of_bob.contexts, of_bob.ends),
        ("bob@REALM", 1, 40_000_000_000)
    );
    assert_eq!((of_bob.service, alice.host.is_empty()), (None, false));
    let end = bob.signed(6, NULL, &GssCredential::Destroy(bob.data(3, GssService::None)));
    ask(&mut at, &end);
    assert_eq!(contexts.by_principal().len(), 1, "bob has ended his");
}
