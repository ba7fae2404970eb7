//! Every outcome of the acceptor and the initiator on the fake library, after each of which the
//! library holds nothing for them.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, missing_docs, reason = "tests")]

use stag_gssapi::{
    AcceptorSettings, ClientCredentials, Enctype, GssAcceptor, GssFailure, GssInitiator,
    GssLibrary, InitiatorSettings, KerberosFault, RefusedToken, ReplayCache, ServiceName,
    TOKEN_LEN_MAX,
};
use stag_gssapi_fake::{LiveCounts, counts, token};
use std::{
    env,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

const ALICE: &str = "principal=alice@STAG.TEST end=4000000000";
const NFS: ServiceName<'_> = ServiceName::HostBased("nfs");

fn path() -> PathBuf {
    env::current_exe().unwrap().with_file_name("libstag_gssapi_fake.so")
}

/// Runs a test, after which nothing may be left. Tests that count go one after the other.
fn leaves_nothing(test: impl FnOnce(&'static GssLibrary)) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the fake has no constructors, and the functions of MIT's library with their types.
    let library = unsafe { GssLibrary::open(&path()) }.unwrap();
    assert_eq!(counts(&path()), LiveCounts::default(), "before");
    test(library);
    assert_eq!(counts(&path()), LiveCounts::default(), "after");
}

fn acceptor(library: &'static GssLibrary) -> GssAcceptor {
    let settings = AcceptorSettings {
        service: NFS,
        keytab: Some(Path::new("/keytab")),
        replay_cache: ReplayCache::File(Path::new("/replays")),
    };
    GssAcceptor::new(library, &settings).unwrap()
}

fn initiator(
    library: &'static GssLibrary,
    target: &str,
    is_mutual: bool,
) -> Result<GssInitiator, GssFailure> {
    let settings = InitiatorSettings {
        target: ServiceName::HostBased(target),
        credentials: ClientCredentials::Cache("FILE:/cache"),
        enctypes: &Enctype::ALL,
        is_mutual,
    };
    GssInitiator::new(library, &settings)
}

fn refused(library: &'static GssLibrary, words: &str) -> RefusedToken {
    acceptor(library).accept(&token(&format!("{ALICE} {words}"))).unwrap_err()
}

#[test]
fn an_accepted_token_is_a_principal_a_user_and_a_key() {
    leaves_nothing(|library| {
        for enctype in Enctype::ALL {
            let words = format!("{ALICE} enctype={} mutual", enctype.number());
            let accepted = acceptor(library).accept(&token(&words)).unwrap();
            assert_eq!(accepted.principal, "alice@STAG.TEST");
            assert_eq!(accepted.local_name.as_deref(), Some("alice"));
            assert_eq!(accepted.keys.key.enctype(), enctype);
            assert_eq!(&accepted.keys.key.octets()[1..5], b"lice");
            assert_eq!(accepted.keys.end_time, 4_000_000_000);
            assert!(accepted.is_mutual && accepted.keys.is_acceptor_subkey);
            assert!(!accepted.token.is_empty());
        }
        let accepted = acceptor(library).accept(&token("principal=bob@ELSEWHERE end=1")).unwrap();
        assert_eq!((accepted.local_name, accepted.is_mutual), (None, false));
        assert_eq!((accepted.token.len(), accepted.keys.is_acceptor_subkey), (0, false));
    });
}

#[test]
fn both_ends_have_the_same_key() {
    leaves_nothing(|library| {
        for is_mutual in [true, false] {
            let initiator = initiator(library, "nfs@server", is_mutual).unwrap();
            let (token, pending) = initiator.begin().unwrap();
            let accepted = acceptor(library).accept(&token).unwrap();
            let held = counts(&path());
            assert_eq!((held.names, held.credentials, held.contexts), (1, 1, 1));
            // The state outlives the initiator.
            drop(initiator);
            assert_eq!(pending.finish(&accepted.token).unwrap(), accepted.keys);
        }
    });
}

#[test]
fn a_refusal_has_the_statuses_the_words_and_the_error_token() {
    leaves_nothing(|library| {
        let RefusedToken { failure, token } = refused(library, "status=d0000,96c73a25");
        assert_eq!(failure.fault, KerberosFault::ClockSkew);
        assert_eq!((failure.major, failure.minor), (0xd_0000, 0x96c7_3a25));
        let text = "minor status 96c73a25 (clock here: 2026-12-01 12:00:00 UTC)";
        assert_eq!(failure.text, text);
        let (_, pending) = initiator(library, "nfs@server", true).unwrap().begin().unwrap();
        let failure = pending.finish(&token).unwrap_err();
        assert_eq!(failure.fault, KerberosFault::ClockSkew);
        assert!(failure.text.contains("acceptor's clock: 2026-12-01 12:00:00 UTC"), "{failure}");
        // A refusal where no reply was asked for.
        let (_, pending) = initiator(library, "nfs@server", false).unwrap().begin().unwrap();
        assert_eq!(pending.finish(&token).unwrap_err().fault, KerberosFault::ClockSkew);
        let both = refused(library, "status=b0000,d").failure;
        assert_eq!(both.fault, KerberosFault::ReplayCache);
        assert_eq!(both.text, "replay cache: major status b0000: minor status d");
        let none = refused(library, "status=d0000,0").failure;
        assert_eq!(none.fault, KerberosFault::Malformed);
        assert_eq!(none.text, "the AP-REQ cannot be decoded");
    });
}

#[test]
fn errors_of_the_system_concern_the_replay_cache_if_writing_a_file_has_them() {
    leaves_nothing(|library| {
        // EPERM, ENOENT, EACCES, ENOTDIR, EISDIR, ENOSPC, EROFS, EDQUOT
        let of_writing = [1, 2, 13, 20, 21, 28, 30, 122];
        for minor in 1..=134 {
            let failure = refused(library, &format!("status=d0000,{minor:x}")).failure;
            let is_cache = failure.fault == KerberosFault::ReplayCache;
            assert_eq!(is_cache, of_writing.contains(&minor), "{minor} {failure}");
            assert!(is_cache || failure.fault == KerberosFault::Other, "{minor} {failure}");
            assert_eq!(is_cache, failure.text.starts_with("replay cache: "), "{failure}");
        }
    });
}

#[test]
fn another_round_is_refused() {
    leaves_nothing(|library| {
        let RefusedToken { failure, token } = refused(library, "continue mutual");
        assert_eq!(failure.fault, KerberosFault::Unfinished);
        assert!(failure.major >= 1 << 16 && token.is_empty());
    });
}

#[test]
fn keys_of_another_type_or_form_are_refused() {
    leaves_nothing(|library| {
        for words in ["enctype=23", "enctype=16", "enctype=23 mutual", "enctype=0"] {
            let failure = refused(library, words).failure;
            assert_eq!(failure.fault, KerberosFault::Enctype, "{words}");
            assert!(failure.text.contains("encryption type"), "{failure}");
        }
        for words in ["fail=version", "fail=protocol mutual"] {
            let failure = refused(library, words).failure;
            assert!(failure.text.contains("another form"), "{failure}");
        }
    });
}

#[test]
fn each_later_call_that_fails_is_a_refusal() {
    leaves_nothing(|library| {
        for (words, step) in [("fail=gss_display_name", "principal"), ("fail=export", "keys")] {
            for mutual in ["", " mutual"] {
                let failure = refused(library, &format!("{words}{mutual}")).failure;
                assert_eq!(failure.text, format!("{step}: minor status bad"));
            }
        }
        let long = format!("principal={}@R", "a".repeat(1_024));
        for words in ["principal=latin@1", "principal=", "principal=a\x1b[2J@R", &long] {
            let failure = refused(library, words).failure;
            assert!(failure.text.contains("not plain UTF-8 or too long"), "{failure}");
        }
    });
}

#[test]
fn what_is_no_token_does_not_reach_the_library() {
    leaves_nothing(|library| {
        let acceptor = acceptor(library);
        let whole = token(ALICE);
        for len in 0..whole.len() {
            let refused = acceptor.accept(&whole[..len]).unwrap_err();
            assert_eq!(refused.failure.fault, KerberosFault::Malformed, "{len}");
            assert_eq!(refused.failure.major, 9 << 16);
        }
        let longest = token(&"x".repeat(TOKEN_LEN_MAX - 21));
        assert_eq!(longest.len(), TOKEN_LEN_MAX);
        assert!(acceptor.accept(&longest).unwrap_err().failure.text.contains("principal"));
        let refused = acceptor.accept(&[&longest[..], b"x"].concat()).unwrap_err();
        assert_eq!(refused.failure.fault, KerberosFault::TooLong);
        // Its reply repeats the principal and adds words.
        let words = format!("principal={} mutual", "a".repeat(TOKEN_LEN_MAX - 38));
        let refused = acceptor.accept(&token(&words)).unwrap_err();
        assert_eq!(refused.failure.fault, KerberosFault::TooLong, "{}", refused.failure);
        assert!(refused.failure.text.starts_with("a token of "), "{}", refused.failure);
    });
}

#[test]
fn credentials_that_are_missing_are_failures_with_their_fix() {
    leaves_nothing(|library| {
        for (service, keytab) in [
            (NFS, "/missing"),
            (NFS, "/unrestricted"),
            (ServiceName::Principal("nfs/missing@R"), "/keytab"),
            (ServiceName::HostBased(""), "/keytab"),
            (NFS, "/a\0b"),
        ] {
            let keytab = Some(Path::new(keytab));
            let replay_cache = ReplayCache::OfTheLibrary;
            let settings = AcceptorSettings { service, keytab, replay_cache };
            let failure = GssAcceptor::new(library, &settings).unwrap_err();
            let is_missing = failure.fault == KerberosFault::NoKey;
            assert_eq!(is_missing, failure.text.contains("major status 70000"), "{failure}");
        }
        let path = Path::new("/missing");
        for (credentials, fault) in [
            (ClientCredentials::Cache("missing"), KerberosFault::NoTicket),
            (ClientCredentials::Keytab { path, principal: None }, KerberosFault::NoKey),
            (ClientCredentials::Keytab { path, principal: Some("bob") }, KerberosFault::NoKey),
            (ClientCredentials::Cache("unrestricted"), KerberosFault::Other),
        ] {
            let target = ServiceName::HostBased("nfs@server");
            let enctypes = &Enctype::ALL;
            let settings = InitiatorSettings { target, credentials, enctypes, is_mutual: true };
            assert_eq!(GssInitiator::new(library, &settings).unwrap_err().fault, fault);
        }
    });
}

#[test]
fn an_initiator_reports_each_step_that_fails() {
    leaves_nothing(|library| {
        let unknown = initiator(library, "nfs@unknown", true).unwrap().begin().unwrap_err();
        assert_eq!(unknown.fault, KerberosFault::ServiceUnknown);
        let server = initiator(library, "nfs@server", true).unwrap();
        for reply in [&b""[..], b"reply", &token("reply"), &[0; TOKEN_LEN_MAX + 1]] {
            assert!(server.begin().unwrap().1.finish(reply).is_err());
        }
        let silent = initiator(library, "nfs@server", false).unwrap();
        let failure = silent.begin().unwrap().1.finish(b"reply").unwrap_err();
        assert_eq!(failure.fault, KerberosFault::Malformed);
        let keys = initiator(library, "nfs@unexportable", false).unwrap();
        let failure = keys.begin().unwrap().1.finish(b"").unwrap_err();
        assert_eq!(failure.text, "keys: minor status bad");
        let long = initiator(library, "nfs@long", true).unwrap().begin().unwrap_err();
        assert_eq!(long.fault, KerberosFault::TooLong);
        // A reply that never comes.
        drop(server.begin().unwrap());
    });
}

#[test]
fn threads_may_share_and_move_what_is_documented() {
    fn is_shared<T: Send + Sync>() {}
    fn is_moved<T: Send>() {}
    is_shared::<GssLibrary>();
    is_shared::<GssAcceptor>();
    is_shared::<GssInitiator>();
    is_moved::<stag_gssapi::PendingContext>();
}
