//! Contexts of Kerberos and the users of their principals: with the fake library, and with MIT's
//! and a KDC of this host where there can be one; with `STAG_NO_SKIP` in the environment there has
//! to be.
//!
//! The library has one name, and reads the location of krb5.conf from the environment, so that a
//! child process runs each group of cases.

#[path = "../../../engine/gss/tests/header/mod.rs"]
mod header;
#[allow(dead_code)] // Of what it can do, some is for tests of the library.
#[path = "../../../engine/gssapi/tests/realm/mod.rs"]
mod realm;

use realm::Realm;
use stag_engine::gss::{AcceptedContext, ContextAcceptor};
use stag_gss::InitiatorContext;
use stag_gssapi::{
    AcceptorSettings, ClientCredentials, Enctype, GssAcceptor, GssInitiator, GssLibrary,
    InitiatorSettings, ReplayCache, ServiceName,
};
use stag_gssapi_fake::token;
use stag_nfs::kerberos::{KerberosAcceptor, KerberosUsers, UserMap};
use stag_protocol::rpc::{
    Auth,
    gss::{GssCredential, GssData, GssService, MajorStatus},
};
use stag_verbs::PeerAddress;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

const GROUP: &str = "STAG_NFS_KERBEROS";
const FOLDER: &str = "STAG_NFS_KERBEROS_FOLDER";
const FROM: PeerAddress = PeerAddress::Simulated;

const MAP: &str = "mapped@STAG.TEST = 4711:100,27\nnfs/mapped.test@STAG.TEST = 4712:100\n\
                   nfs/server.test@STAG.TEST = 0:0\n";

/// Runs a group of cases in a child process.
fn run(group: &str, folder: &Path, mut child: Command) {
    fs::write(folder.join("users"), MAP).unwrap();
    child.args(["--exact", "kerberos::cases_of_a_child", "--nocapture"]);
    let done = child.env(GROUP, group).env(FOLDER, folder).output().unwrap();
    let text = [&done.stdout[..], &done.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(done.status.success() && text.contains("cases are done"), "{text}");
}

#[test]
fn principals_of_the_fake_library_have_their_users() {
    let home = tempfile::tempdir().unwrap();
    let program = env::current_exe().unwrap();
    let fake = program.with_file_name("libstag_gssapi_fake.so");
    fs::copy(fake, home.path().join("libgssapi_krb5.so.2")).unwrap();
    let mut child = Command::new(program);
    child.env("LD_LIBRARY_PATH", home.path());
    run("fake", home.path(), child);
}

#[test]
fn a_ticket_of_a_kdc_is_a_context_with_its_user() {
    let made = GssLibrary::load().map_err(|error| error.to_string()).and_then(|_| Realm::start());
    match made {
        Ok(realm) => {
            realm.folder.kinit("alice.cache", &[]);
            let child = realm.folder.command(env::current_exe().unwrap().to_str().unwrap());
            run("kdc", &realm.folder.0, child);
        }
        Err(why) => {
            assert!(env::var_os("STAG_NO_SKIP").is_none(), "must not be skipped: {why}");
            println!("skipped: {why}");
        }
    }
}

/// The cases of one group, if this process is a child of a test above.
#[test]
fn cases_of_a_child() {
    let (Some(group), Some(folder)) = (env::var_os(GROUP), env::var_os(FOLDER)) else { return };
    let folder = PathBuf::from(folder);
    match group.to_str() {
        Some("fake") => fake_cases(&folder),
        _ => kdc_cases(&folder),
    }
    println!("cases are done");
}

fn acceptor(folder: &Path, keytab: &str) -> KerberosAcceptor {
    let (keytab, replays) = (folder.join(keytab), folder.join("replays"));
    let settings = AcceptorSettings {
        service: ServiceName::HostBased("nfs"),
        keytab: Some(&keytab),
        replay_cache: ReplayCache::File(&replays),
    };
    let acceptor = GssAcceptor::new(GssLibrary::load().unwrap(), &settings).unwrap();
    let map = UserMap::read(&folder.join("users")).unwrap();
    KerberosAcceptor::new(acceptor, Arc::new(KerberosUsers::new(map)))
}

fn uid(accepted: &AcceptedContext) -> Option<u32> {
    accepted.unix.map(|user| user.uid)
}

fn fake_cases(folder: &Path) {
    let mut acceptor = acceptor(folder, "keytab");
    for (principal, expected) in [
        ("mapped@STAG.TEST", Some(4711)),
        ("nfs/mapped.test@STAG.TEST", Some(4712)),
        ("nfs/other.test@STAG.TEST", None),
        ("no-such-user-here@STAG.TEST", None),
        ("root@STAG.TEST", None),
        ("root@ELSEWHERE", None),
    ] {
        let words = format!("principal={principal} end=4000000000 mutual");
        let accepted = acceptor.accept(&token(&words), FROM).unwrap();
        assert_eq!((&*accepted.principal, uid(&accepted)), (principal, expected));
        assert_eq!(accepted.ends, 4_000_000_000);
        assert!(!accepted.token.is_empty());
    }
    // KRB_AP_ERR_SKEW, of which the token tells the client.
    let refused = acceptor.accept(&token("principal=a@A status=d0000,96c73a25"), FROM).unwrap_err();
    assert_eq!((refused.major, refused.minor), (MajorStatus::FAILURE, 0x96c7_3a25));
    assert!(!refused.token.is_empty());
    for nonsense in [&b""[..], b"NTLMSSP"] {
        let refused = acceptor.accept(nonsense, FROM).unwrap_err();
        assert_eq!(refused.major, MajorStatus::DEFECTIVE_TOKEN);
        assert!(refused.token.is_empty());
    }
}

fn initiator(credentials: ClientCredentials<'_>) -> GssInitiator {
    let settings = InitiatorSettings {
        target: ServiceName::HostBased("nfs@server.test"),
        credentials,
        enctypes: &Enctype::ALL,
        is_mutual: true,
    };
    GssInitiator::new(GssLibrary::load().unwrap(), &settings).unwrap()
}

fn kdc_cases(folder: &Path) {
    let mut acceptor = acceptor(folder, "server.keytab");
    let cache = format!("FILE:{}", folder.join("alice.cache").display());
    let (token, pending) = initiator(ClientCredentials::Cache(&cache)).begin().unwrap();
    let accepted = acceptor.accept(&token, FROM).unwrap();
    assert_eq!(accepted.principal, "alice@STAG.TEST");
    // Both ends have the keys of one context.
    let secret = pending.finish(&accepted.token).unwrap();
    assert_eq!(accepted.ends, secret.end_time);
    let client = InitiatorContext::new(&secret.context_key(), 1).unwrap();
    let data = GssData { sequence: 1, service: GssService::Integrity, handle: &[7] };
    let mut room = [0; header::ROOM];
    let header = header::header(&GssCredential::Data(data), &mut room);
    let mic = client.sign_call(header, 1);
    accepted.context.verify_call(header, &Auth::gss(&mic)).unwrap();
    let replayed = acceptor.accept(&token, FROM).unwrap_err();
    // KRB_AP_ERR_REPEAT, 34 after the first code of Kerberos.
    assert_eq!((replayed.major, replayed.minor), (MajorStatus::FAILURE, 0x96c7_3a22));
    // The map names a host as root.
    let keytab = folder.join("server.keytab");
    let host = ClientCredentials::Keytab { path: &keytab, principal: Some("nfs/server.test") };
    let accepted = acceptor.accept(&initiator(host).begin().unwrap().0, FROM).unwrap();
    assert_eq!((&*accepted.principal, uid(&accepted)), ("nfs/server.test@STAG.TEST", Some(0)));
}
