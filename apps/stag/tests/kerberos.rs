//! Kerberos of a server: its settings, the line at the start, and a reload of the map. The library
//! is a fake one that the loader finds under the name of MIT's.

use crate::support::{Home, PATIENCE, Server, wait_for};
use rustix::process::Signal;
use stag_gssapi_fake as _;
use std::{env, fs, process::Command, time::Instant};

const AES256_SHA384: u16 = 20;
const RC4: u16 = 23;

/// A keytab of format 0x502.
fn keytab(entries: &[(&str, u16)]) -> Vec<u8> {
    let mut file = vec![5, 2];
    for (principal, enctype) in entries {
        let (name, realm) = principal.split_once('@').unwrap();
        let parts: Vec<_> = name.split('/').collect();
        let mut entry = u16::try_from(parts.len()).unwrap().to_be_bytes().to_vec();
        for text in [realm].iter().chain(&parts) {
            entry.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
            entry.extend(text.as_bytes());
        }
        // Type of the name, time, version.
        entry.extend([0, 0, 0, 1, 0, 0, 0, 0, 1]);
        entry.extend(enctype.to_be_bytes());
        entry.extend([0, 32]);
        entry.extend([7; 32]);
        file.extend(u32::try_from(entry.len()).unwrap().to_be_bytes());
        file.extend(entry);
    }
    file
}

/// A home with a keytab, a map and the library.
fn home() -> Home {
    let home = Home::new();
    let keys = [("nfs/gw.test@STAG.TEST", AES256_SHA384), ("host/gw.test@STAG.TEST", RC4)];
    fs::write(home.path("keys"), keytab(&keys)).unwrap();
    fs::copy(home.path("keys"), home.path("data/keys")).unwrap();
    fs::write(home.path("rc4"), keytab(&[("nfs/gw.test@STAG.TEST", RC4)])).unwrap();
    fs::write(home.path("host"), keytab(&keys[1..])).unwrap();
    fs::write(home.path("users"), "alice@STAG.TEST = 1000:100\n").unwrap();
    fs::create_dir(home.path("lib")).unwrap();
    let fake = env::current_exe().unwrap().with_file_name("libstag_gssapi_fake.so");
    fs::copy(fake, home.path("lib/libgssapi_krb5.so.2")).unwrap();
    home
}

/// The command with the fake library.
fn stag(home: &Home, arguments: &[&str]) -> Command {
    let mut command = home.stag(arguments);
    command.env("LD_LIBRARY_PATH", home.path("lib"));
    command
}

fn checked(home: &Home, arguments: &[&str]) -> (Option<i32>, String) {
    let own = ["serve", "data", "--check", "--listen", "iwarp://127.0.0.1:0"];
    let has_mode = !arguments.contains(&"--memory");
    let mode: &[&str] = if has_mode { &["--mode", "unprivileged"] } else { &[] };
    let done = stag(home, &[&own[..], mode, arguments].concat()).output().unwrap();
    let text = [&done.stdout[..], &done.stderr].concat();
    (done.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_check_says_which_principals_serve_and_where_contexts_are_set_up() {
    let home = home();
    let usual = ["--keytab", "keys", "--tcp", "127.0.0.1:2049"];
    let (code, text) = checked(&home, &[&usual[..], &["--kerberos-map", "users"]].concat());
    assert_eq!(code, Some(0), "{text}");
    let line = format!(
        "kerberos: contexts for nfs/gw.test@STAG.TEST (aes256-cts-hmac-sha384-192), set up over \
         TCP at 127.0.0.1:2049; users by {} (1 principals), then krb5.conf and the name service; \
         replay cache {}\n",
        home.text("users"),
        home.text("state/krb5.rcache")
    );
    assert!(text.contains(&line), "{line}{text}");
    assert!(text.contains("notice: the keytab has no principal nfs/"), "{text}");
    assert!(!text.contains("Kerberos contexts"), "{text}");
    let (_, text) = checked(&home, &["--keytab", "keys", "--tcp", "none"]);
    assert!(text.contains("notice: Kerberos contexts are set up over TCP"), "{text}");
    let (_, text) = checked(&home, &["--keytab", "keys", "--replay-cache", "off"]);
    assert!(text.contains("at port 2049 of TCP, and this server has another"), "{text}");
    assert!(text.contains("; no replay cache\n"), "{text}");
    let (code, text) = checked(&home, &["--keytab", "keys", "--memory", "1M"]);
    assert!(code == Some(0) && text.contains("notice: Kerberos has no replay cache"), "{text}");
    let (_, text) = checked(&home, &[]);
    assert!(!text.to_lowercase().contains("kerberos"), "{text}");
}

#[test]
fn settings_that_cannot_be_are_refused_with_what_to_do() {
    let home = home();
    fs::write(home.path("bad"), "# users\nalice = 1:1\n").unwrap();
    let missing = home.text("missing");
    let whole = "nfs/gw.test@STAG.TEST";
    for (arguments, part) in [
        (&["--keytab", "missing"][..], "missing is missing; fix: `kadmin ktadd -k"),
        (&["--keytab", "data/keys"], "data, so that clients could read its keys: move it"),
        (&["--keytab", "users"], "is damaged (it is no keytab"),
        (&["--keytab", "host"], "has no nfs/ principal (it has host/gw.test@STAG.TEST); fix:"),
        (&["--keytab", "rc4"], "has no AES key of nfs/"),
        (
            &["--keytab", "keys", "--kerberos-principal", "nfs/a@B"],
            "(it has nfs/gw.test@STAG.TEST)",
        ),
        (&["--keytab", "keys", "--kerberos-principal", "nfs@gw"], "write a service, as nfs"),
        (&["--keytab", "keys", "--kerberos-map", "bad"], "bad:2: alice has no realm"),
        (&["--keytab", "keys", "--kerberos-map", &missing], "missing cannot be read"),
        (&["--keytab", "keys", "--replay-cache", "no/cache"], "its directory does not exist"),
        (&["--kerberos-map", "users"], "--kerberos-map means nothing without the keys of Kerberos"),
        (&["--replay-cache", "off"], "--replay-cache means nothing without"),
        (&["--kerberos-principal", whole], "--kerberos-principal means nothing without"),
    ] {
        let (code, text) = checked(&home, arguments);
        assert!(code == Some(2) && text.contains(part), "{arguments:?}: {text}");
    }
    // A library that lacks the functions stands for one that is missing.
    fs::copy("/proc/self/exe", home.path("lib/libgssapi_krb5.so.2")).unwrap();
    let (code, text) = checked(&home, &["--keytab", "keys"]);
    assert!(code == Some(2) && text.contains("apt install libgssapi-krb5-2"), "{text}");
}

#[test]
fn owners_are_names_of_a_domain_that_the_start_shows() {
    let home = home();
    let domain = ["--id-domain", "stag.test"];
    let line = |arguments: &[&str]| {
        let (code, text) = checked(&home, arguments);
        assert_eq!(code, Some(0), "{text}");
        text.lines().find(|line| line.starts_with("owners: ")).map(str::to_owned)
    };
    let with_tickets = ["--keytab", "keys"];
    let of_tickets = "owners: NAME@stag.test (by --id-domain) for callers with Kerberos; numbers \
                      for all others";
    let shown = line(&[&with_tickets[..], &domain].concat());
    assert_eq!(shown.as_deref(), Some(of_tickets));
    // The domain of the host's name, or that of the realm.
    let shown = line(&with_tickets).expect("there is a realm at least");
    let is_of_realm = shown.starts_with("owners: NAME@stag.test (by the realm) for callers with");
    assert!(is_of_realm || shown.contains(" (by the name of this host) for callers"), "{shown}");
    let all = line(&[&domain[..], &["--id-names", "always"]].concat());
    let expected = "owners: NAME@stag.test (by --id-domain) for all callers of version 4";
    assert_eq!(all.as_deref(), Some(expected));
    for numbers in [&["--id-domain", "none"][..], &["--nfs", "3"]] {
        assert_eq!(line(&[&with_tickets[..], numbers].concat()), None);
    }
    assert_eq!(line(&[]), None);
    for (arguments, part) in [
        (&["--id-domain", "stag.test"][..], "--id-domain means nothing without callers that"),
        (&["--keytab", "keys", "--id-domain", "a@b"], "--id-domain a@b: write a domain, as"),
        (&["--keytab", "keys", "--id-domain", ""], "write a domain"),
        (&["--id-names", "always", "--id-domain", "none"], "--id-names always needs a domain"),
        (&["--nfs", "3", "--id-names", "always"], "--id-names means nothing without version 4"),
    ] {
        let (code, text) = checked(&home, arguments);
        assert!(code == Some(2) && text.contains(part), "{arguments:?}: {text}");
    }
}

const HEAD: &str = "listen = [\"iwarp://127.0.0.1:0\"]\ntcp = \"127.0.0.1:0\"\n\
                    mode = \"unprivileged\"\ninsecure = true\n";

fn settings(home: &Home, kerberos: &str) {
    let text = format!("{HEAD}[kerberos]\n{kerberos}[[export]]\npath = \"data\"\n");
    fs::write(home.path("stag.toml"), text).unwrap();
}

/// Has the settings read again, and waits until the log says `expected` once more.
fn reload(server: &Server, expected: &str) {
    let said = || server.err().matches(expected).count();
    let (before, began) = (said(), Instant::now());
    server.signal(Signal::HUP);
    wait_for(expected, || said() > before || began.elapsed() > PATIENCE / 2);
    assert!(said() > before, "{expected} is missing: {}", server.err());
}

#[test]
fn a_reload_reads_the_map_and_refuses_another_keytab() {
    let home = home();
    settings(&home, "keytab = \"keys\"\nmap = \"users\"\n");
    let server = Server::start(&home, stag(&home, &["serve", "--config", "stag.toml"]));
    assert!(server.err().contains("kerberos: contexts for nfs/gw.test@STAG.TEST"));
    reload(&server, "settings read again: the same exports");
    fs::write(home.path("users"), "alice@STAG.TEST = 1001:100\n").unwrap();
    reload(&server, "settings read again: principals of Kerberos as the map has them");
    fs::write(home.path("users"), "alice@STAG.TEST = 1001\n").unwrap();
    reload(&server, "users:1: alice@STAG.TEST has no group");
    settings(&home, "keytab = \"keys\"\n");
    reload(&server, "settings read again: principals of Kerberos as the map has them");
    fs::copy(home.path("keys"), home.path("keys2")).unwrap();
    settings(&home, "keytab = \"keys2\"\n");
    reload(&server, "stag.toml:6: --keytab cannot change while the server runs");
    settings(&home, "keytab = \"keys\"\n");
    let text = fs::read_to_string(home.path("stag.toml")).unwrap();
    fs::write(home.path("stag.toml"), format!("id-domain = \"other.test\"\n{text}")).unwrap();
    reload(&server, "stag.toml:1: --id-domain cannot change while the server runs");
}

#[test]
fn the_file_has_a_table_whose_values_are_shown_with_their_origin() {
    let home = home();
    settings(&home, "keytab = \"keys\"\nmap = \"users\"\n");
    let done = home.run(&["config", "show", "--config", "stag.toml"]);
    let text = String::from_utf8(done.stdout).unwrap();
    let cache = format!("#replay-cache = \"{}\"  # default", home.text("state/krb5.rcache"));
    for line in [
        "[kerberos]",
        "keytab = \"keys\"  # stag.toml:6",
        "principal = \"nfs\"  # default",
        "map = \"users\"  # stag.toml:7",
        &cache,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing:\n{text}");
    }
    let sentence = home.refused(&["serve", "--config", "stag.toml", "--kerberos-map", "missing"]);
    assert!(sentence.contains("cannot be read"), "{sentence}");
    fs::write(home.path("stag.toml"), "kerberos-map = \"users\"\n").unwrap();
    let sentence = home.refused(&["serve", "--config", "stag.toml"]);
    assert!(sentence.contains("kerberos-map stands in the table [kerberos], as map"), "{sentence}");
}

#[test]
fn flavors_of_exports_in_memory_are_those_of_the_start() {
    let home = home();
    let file = |sec: &str| {
        let text = format!(
            "listen = [\"iwarp://127.0.0.1:0\"]\nmemory = \"16M\"\ninsecure = true\n\
             control = \"{}\"\n[kerberos]\nkeytab = \"keys\"\n\
             [[export]]\npath = \"data/d\"\n{sec}\n",
            home.text("control.sock")
        );
        fs::write(home.path("stag.toml"), text).unwrap();
    };
    fs::create_dir(home.path("data/d")).unwrap();
    file("sec = [\"krb5p\"]");
    let server = Server::start(&home, stag(&home, &["serve", "--config", "stag.toml"]));
    let url = format!("{}/d", server.line("LISTEN"));
    let socket = server.line("CONTROL");
    let expect_denied = || {
        let done = home.run(&["call", &url, "ls"]);
        assert_ne!(done.status.code(), Some(0), "AUTH_SYS is denied");
        let done = home.run(&["ctl", "--socket", &socket, "exports"]);
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(text.contains("sec=krb5p"), "{text}");
    };
    expect_denied();
    for sec in ["sec = [\"sys\"]", "sec = [\"krb5p\", \"sys\"]", ""] {
        file(sec);
        reload(&server, "settings stay as they are: --sec cannot change while the server runs");
        expect_denied();
    }
    file("sec = [\"krb5p\"]");
    reload(&server, "settings read again: the same exports");
}
