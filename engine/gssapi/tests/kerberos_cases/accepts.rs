//! The acceptor's end.

use super::{ANY_NFS, Place, SERVER, cases, framed, refusal, set_up};
use crate::header;
use stag_gss::{AcceptorContext, InitiatorContext};
use stag_gssapi::{
    ClientCredentials, Enctype, GssInitiator, InitiatorSettings, KerberosFault, KrbError,
    RefusedToken, ReplayCache, ServiceName, TOKEN_LEN_MAX, keytab,
};
use stag_protocol::rpc::{
    Auth,
    gss::{GssCredential, GssData, GssService},
};
use std::{
    collections::BTreeSet,
    fs, thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

cases! { USUAL:
    mutual_contexts_have_the_acceptors_key,
    contexts_that_are_not_mutual_have_no_reply_and_the_initiators_key,
    each_encryption_type_is_that_of_the_key,
    a_principal_is_a_user_of_this_host_if_it_is_of_the_default_realm,
    any_nfs_and_a_named_principal_accept,
    a_client_keytab_needs_no_cache,
    a_missing_keytab_and_one_without_the_service_are_refused_at_start,
    a_keytab_with_another_key_is_refused,
    a_ticket_for_another_service_is_refused,
    a_keytab_that_vanishes_is_found_again_without_a_restart,
    a_new_key_in_the_keytab_needs_no_restart_and_old_tickets_stay_good,
    a_replayed_token_is_refused_by_a_cache_and_not_without,
    a_replay_cache_that_cannot_be_written_refuses_all,
    cut_tokens_are_refused_at_every_length,
    tokens_that_are_none_are_refused,
    the_parser_of_keytabs_reads_what_kadmin_writes,
}

cases! { FOREIGN: a_principal_of_another_realm_is_no_user_of_this_host }

cases! { EXPIRED: an_expired_ticket_is_refused }

cases! { MISCONFIGURED: a_broken_configuration_is_named }

cases! { SKEWED: a_wrong_clock_is_refused_with_the_time }

fn mutual_contexts_have_the_acceptors_key(place: &Place) {
    let initiator = place.client("alice.cache", SERVER).unwrap();
    let (accepted, _) = set_up(&initiator, &place.server());
    assert!(accepted.is_mutual && accepted.keys.is_acceptor_subkey);
    assert!((100..400).contains(&accepted.token.len()), "{}", accepted.token.len());
    assert_eq!(accepted.principal, "alice@STAG.TEST");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!((now + 3_600..now + 36_060).contains(&accepted.keys.end_time));
    let (again, _) = set_up(&initiator, &place.server());
    assert_ne!(accepted.keys.key, again.keys.key);
}

fn contexts_that_are_not_mutual_have_no_reply_and_the_initiators_key(place: &Place) {
    let initiator = place.client_with(&Enctype::ALL, false);
    let (accepted, _) = set_up(&initiator, &place.server());
    assert!(!accepted.is_mutual && !accepted.keys.is_acceptor_subkey);
    assert_eq!(accepted.token, [0; 0]);
}

fn each_encryption_type_is_that_of_the_key(place: &Place) {
    for enctype in Enctype::ALL {
        for is_mutual in [true, false] {
            let initiator = place.client_with(&[enctype], is_mutual);
            let (accepted, secret) = set_up(&initiator, &place.server());
            assert_eq!(accepted.keys.key.enctype(), enctype);
            assert_eq!(accepted.keys.key.octets().len(), enctype.key_len());
            assert_eq!(accepted.is_mutual, is_mutual);
            let client = InitiatorContext::new(&secret.context_key(), 1).unwrap();
            let server = AcceptorContext::new(&accepted.keys.context_key()).unwrap();
            let data = GssData { sequence: 1, service: GssService::Integrity, handle: &[7] };
            let mut room = [0; header::ROOM];
            let header = header::header(&GssCredential::Data(data), &mut room);
            let mic = client.sign_call(header, 1);
            let call = server.verify_call(header, &Auth::gss(&mic)).unwrap();
            let mic = server.sign_reply(&call, 1);
            assert_eq!(client.verify_reply(&Auth::gss(&mic), &[1]), Ok(1));
        }
    }
}

fn a_principal_is_a_user_of_this_host_if_it_is_of_the_default_realm(place: &Place) {
    let accepted = place.server().accept(&place.token(SERVER).0).unwrap();
    assert_eq!(accepted.local_name.as_deref(), Some("alice"));
    // A service is no user.
    let keytab = place.folder.path("server.keytab");
    let credentials =
        ClientCredentials::Keytab { path: &keytab, principal: Some("nfs/server.test") };
    let accepted =
        place.server().accept(&client_of(place, credentials).begin().unwrap().0).unwrap();
    assert_eq!(accepted.principal, "nfs/server.test@STAG.TEST");
    assert_eq!(accepted.local_name, None);
}

fn a_principal_of_another_realm_is_no_user_of_this_host(place: &Place) {
    let accepted = place.server().accept(&place.token(SERVER).0).unwrap();
    assert_eq!((&*accepted.principal, accepted.local_name), ("alice@STAG.TEST", None));
}

fn client_of(place: &Place, credentials: ClientCredentials<'_>) -> GssInitiator {
    let enctypes = &Enctype::ALL;
    let settings = InitiatorSettings { target: SERVER, credentials, enctypes, is_mutual: true };
    GssInitiator::new(place.library, &settings).unwrap()
}

fn any_nfs_and_a_named_principal_accept(place: &Place) {
    for service in [ANY_NFS, SERVER, ServiceName::Principal("nfs/server.test@STAG.TEST")] {
        let acceptor = place.acceptor(service, "server.keytab", ReplayCache::Off).unwrap();
        assert!(acceptor.accept(&place.token(SERVER).0).is_ok(), "{service:?}");
    }
    // A ticket by the principal's name rather than by the host's.
    let target = ServiceName::Principal("nfs/server.test@STAG.TEST");
    assert!(place.server().accept(&place.token(target).0).is_ok());
}

fn a_client_keytab_needs_no_cache(place: &Place) {
    let path = place.folder.path("alice.keytab");
    for principal in [None, Some("alice"), Some("alice@STAG.TEST")] {
        let credentials = ClientCredentials::Keytab { path: &path, principal };
        let (accepted, _) = set_up(&client_of(place, credentials), &place.server());
        assert_eq!(accepted.principal, "alice@STAG.TEST");
    }
}

fn a_missing_keytab_and_one_without_the_service_are_refused_at_start(place: &Place) {
    for (service, keytab) in [
        (ANY_NFS, "nothing.keytab"),
        (ANY_NFS, "alice.keytab"),
        (ServiceName::HostBased("nfs@elsewhere.test"), "server.keytab"),
        (ServiceName::Principal("nfs/elsewhere@STAG.TEST"), "server.keytab"),
    ] {
        let failure = place.acceptor(service, keytab, ReplayCache::Off).unwrap_err();
        println!("  {failure} [{:x} {:x}]", failure.major, failure.minor);
        assert_eq!(failure.fault, KerberosFault::NoKey, "{keytab}");
        assert!(failure.to_string().contains("; fix: name a keytab"), "{failure}");
    }
}

fn a_keytab_with_another_key_is_refused(place: &Place) {
    let acceptor = place.acceptor(ANY_NFS, "old.keytab", ReplayCache::Off).unwrap();
    let (token, pending) = place.token(SERVER);
    let refused = refusal(&acceptor, &token);
    assert_eq!(refused.failure.fault, KerberosFault::WrongKey);
    assert!(refused.to_string().contains("; fix: add the KDC's newest key"), "{refused}");
    let failure = pending.finish(&refused.token).unwrap_err();
    println!("  initiator: {failure}");
    assert_eq!(failure.fault, KerberosFault::WrongKey);
}

fn a_ticket_for_another_service_is_refused(place: &Place) {
    // The keytab has this key, too: an acceptor of nfs must not take it.
    let host = ServiceName::HostBased("host@server.test");
    let other = ServiceName::HostBased("nfs@other.test");
    for target in [host, other] {
        let refused = refusal(&place.server(), &place.token(target).0);
        assert_eq!(refused.failure.fault, KerberosFault::OtherService, "{target:?}");
    }
}

fn a_keytab_that_vanishes_is_found_again_without_a_restart(place: &Place) {
    let [here, away] = ["moving.keytab", "away.keytab"].map(|name| place.folder.path(name));
    fs::copy(place.folder.path("server.keytab"), &here).unwrap();
    let acceptor = place.acceptor(ANY_NFS, "moving.keytab", ReplayCache::Off).unwrap();
    fs::rename(&here, &away).unwrap();
    let refused = refusal(&acceptor, &place.token(SERVER).0);
    assert_eq!(refused.failure.fault, KerberosFault::NoKey);
    fs::rename(&away, &here).unwrap();
    assert!(acceptor.accept(&place.token(SERVER).0).is_ok());
}

fn a_new_key_in_the_keytab_needs_no_restart_and_old_tickets_stay_good(place: &Place) {
    let service = ServiceName::HostBased("nfs@rekeyed.test");
    let acceptor = place.acceptor(ANY_NFS, "rekeyed.keytab", ReplayCache::Off).unwrap();
    let (old, _) = place.token(service);
    let keytab = place.folder.path("rekeyed.keytab");
    place.folder.kadmin(&format!("ktadd -k {} nfs/rekeyed.test", keytab.display()));
    place.folder.kinit("rekeyed.cache", &[]);
    let (new, _) = place.client("rekeyed.cache", service).unwrap().begin().unwrap();
    assert!(acceptor.accept(&old).is_ok() && acceptor.accept(&new).is_ok());
    let versions: BTreeSet<u32> =
        keytab::parse(&fs::read(&keytab).unwrap()).unwrap().iter().map(|e| e.version).collect();
    assert_eq!(versions, BTreeSet::from([1, 2]));
}

fn a_replayed_token_is_refused_by_a_cache_and_not_without(place: &Place) {
    let cache = place.folder.path("replays");
    let recorded = place.acceptor(ANY_NFS, "server.keytab", ReplayCache::File(&cache)).unwrap();
    let token = place.token(SERVER).0;
    assert!(recorded.accept(&token).is_ok());
    let refused = refusal(&recorded, &token);
    assert_eq!(refused.failure.fault, KerberosFault::Replay);
    assert!(cache.exists());
    let server = place.server();
    assert!(server.accept(&token).is_ok() && server.accept(&token).is_ok());
}

fn a_replay_cache_that_cannot_be_written_refuses_all(place: &Place) {
    let cache = place.folder.path("no-such-folder/replays");
    let acceptor = place.acceptor(ANY_NFS, "server.keytab", ReplayCache::File(&cache)).unwrap();
    let refused = refusal(&acceptor, &place.token(SERVER).0);
    assert_eq!(refused.failure.fault, KerberosFault::ReplayCache);
    assert!(refused.failure.text.contains("No such file or directory"), "{refused}");
}

fn cut_tokens_are_refused_at_every_length(place: &Place) {
    let server = place.server();
    let (token, pending) = place.token(SERVER);
    for len in 0..token.len() {
        let refused = server.accept(&token[..len]).unwrap_err();
        assert_eq!(refused.failure.fault, KerberosFault::Malformed, "{len}");
    }
    // The same in a frame of the right length, which the library has to refuse.
    let request = &token[17..];
    assert_eq!(framed([1, 0], request), token);
    for len in 0..request.len() {
        let refused = server.accept(&framed([1, 0], &request[..len])).unwrap_err();
        assert_eq!(refused.failure.fault, KerberosFault::Malformed, "{len} {refused}");
    }
    // So is a cut reply by the initiator.
    let reply = server.accept(&token).unwrap().token;
    assert!(pending.finish(&reply[..reply.len() - 1]).is_err());
    let (_, pending) = place.token(SERVER);
    let failure = pending.finish(&reply).unwrap_err();
    println!("  the reply of another context: {failure}");
    let (_, pending) = place.token(SERVER);
    assert_eq!(pending.finish(&[]).unwrap_err().fault, KerberosFault::Malformed);
}

fn tokens_that_are_none_are_refused(place: &Place) {
    let server = place.server();
    let token = place.token(SERVER).0;
    let long = framed([1, 0], &vec![0; TOKEN_LEN_MAX - 17]);
    assert_eq!(refusal(&server, &long).failure.fault, KerberosFault::Malformed);
    let too_long = vec![0x60; TOKEN_LEN_MAX + 1];
    assert_eq!(refusal(&server, &too_long).failure.fault, KerberosFault::TooLong);
    for token in [b"garbage".to_vec(), framed([2, 0], &token[17..]), framed([1, 0], &[0; 700])] {
        assert_eq!(refusal(&server, &token).failure.fault, KerberosFault::Malformed);
    }
}

fn the_parser_of_keytabs_reads_what_kadmin_writes(place: &Place) {
    let found = keytab::inspect(&place.folder.path("server.keytab"), "nfs").unwrap();
    let all = [17, 18, 19, 20];
    assert_eq!(
        found.into_iter().collect::<Vec<_>>(),
        [("nfs/server.test@STAG.TEST".to_owned(), all.into()),]
    );
    let problem = keytab::inspect(&place.folder.path("alice.keytab"), "nfs").unwrap_err();
    assert!(problem.to_string().contains("no nfs/ principal (it has alice@STAG.TEST)"));
}

fn a_broken_configuration_is_named(place: &Place) {
    let failure = place.acceptor(ANY_NFS, "server.keytab", ReplayCache::Off).unwrap_err();
    println!("  {failure} [{:x} {:x}]", failure.major, failure.minor);
    assert_eq!(failure.fault, KerberosFault::Configuration);
    assert!(failure.to_string().contains("; fix: correct krb5.conf"), "{failure}");
}

fn an_expired_ticket_is_refused(place: &Place) {
    place.folder.kinit("short.cache", &["-l", "4s"]);
    let (token, _) = place.client("short.cache", SERVER).unwrap().begin().unwrap();
    let server = place.server();
    let end = Instant::now() + Duration::from_secs(60);
    // Its clock is wrong before that, for the acceptor allows a second.
    let is_early = |refused: RefusedToken| refused.failure.fault == KerberosFault::ClockSkew;
    while server.accept(&token).map_or_else(is_early, |_| true) {
        assert!(Instant::now() < end, "the ticket does not expire");
        thread::sleep(Duration::from_millis(200));
    }
    let refused = refusal(&server, &token);
    assert_eq!(refused.failure.fault, KerberosFault::Expired);
}

fn a_wrong_clock_is_refused_with_the_time(place: &Place) {
    let (token, pending) = place.token(SERVER);
    thread::sleep(Duration::from_secs(3));
    let refused = refusal(&place.server(), &token);
    assert_eq!(refused.failure.fault, KerberosFault::ClockSkew);
    let error = KrbError::parse(&refused.token).unwrap();
    assert_eq!(error.code, 37);
    assert!(refused.to_string().contains(&format!("clock here: {}", error.server_time)));
    let failure = pending.finish(&refused.token).unwrap_err();
    println!("  initiator: {failure}");
    assert_eq!(failure.fault, KerberosFault::ClockSkew);
    assert!(failure.text.contains(&format!("acceptor's clock: {}", error.server_time)));
}
