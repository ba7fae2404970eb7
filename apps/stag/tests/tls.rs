//! `stag serve`, `call`, `check` and `bench` over TCP inside TLS (RFC 9289), and a client that is
//! not ours: Python's `ssl`, which is OpenSSL. With STAG_TLS_RECORDS=kernel in the environment the
//! servers leave their sessions to the kernel, as `tests/guest/tls` has it.

use crate::authority::Authority;
// Of the authority, whose file is another crate's, too.
use crate::support::{Home, Server, wait_for};
use rcgen as _;
use rustix::process::Signal;
use stag_tls as _;
use std::{fs, path::Path, process::Command};

/// True if the servers' sessions are the kernel's.
fn in_kernel() -> bool {
    std::env::var("STAG_TLS_RECORDS").is_ok_and(|records| records == "kernel")
}

/// Files that a server is started with.
struct Setup {
    home: Home,
    authority: Authority,
}

impl Setup {
    fn new() -> Self {
        let home = Home::new();
        fs::write(home.path("data/file"), "octets of a file").unwrap();
        Self { home, authority: Authority::new() }
    }

    fn file(&self, path: &Path) -> String {
        path.to_str().unwrap().to_owned()
    }

    /// A server that uses TLS as `wanted`, with more arguments.
    fn serve(&self, wanted: &str, more: &[&str]) -> Server {
        let files = self.authority.server().identity;
        let (certificate, key) = (self.file(&files.certificate), self.file(&files.key));
        let tls = ["--tls", wanted, "--tls-cert", &certificate, "--tls-key", &key];
        let records: &[&str] = if in_kernel() { &["--tls-records", "kernel"] } else { &[] };
        self.home.serve(&[&["data"], &tls[..], records, more].concat())
    }

    /// Runs a calling command; its output, and whether it succeeded.
    fn run(&self, arguments: &[&str]) -> (bool, String) {
        let done = self.home.stag(arguments).output().unwrap();
        let text = [&done.stdout[..], &done.stderr].concat();
        (done.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn authorities(&self) -> String {
        self.file(&self.authority.certificate())
    }
}

#[test]
fn files_are_read_checked_and_measured_inside_tls_where_it_is_required() {
    let setup = Setup::new();
    let server = setup.serve("required", &[]);
    let url = |path: &str| format!("tcp://{}/data{path}", server.line("TCP"));
    let ca = setup.authorities();
    let read = setup.run(&["call", &url("/file"), "--tls-ca", &ca, "cat"]);
    assert_eq!(read, (true, "octets of a file".to_owned()));
    let (is_right, text) = setup.run(&["check", &url(""), "--tls-ca", &ca, "--entries", "50"]);
    assert!(is_right, "{text}");
    let arguments = ["bench", &url(""), "--workload", "nfs3:read", "--calls", "100"];
    let (is_right, text) = setup.run(&[&arguments[..], &["--tls-ca", &ca]].concat());
    assert!(is_right, "{text}");
    // Without TLS not even MOUNT is answered.
    let (is_right, text) = setup.run(&["call", &url("/file"), "cat"]);
    assert!(!is_right && text.contains("it may want TLS"), "{text}");
    // Names that the certificate does not have.
    let (is_right, text) =
        setup.run(&["call", &url("/file"), "--tls-ca", &ca, "--tls-name", "other.test", "cat"]);
    assert!(!is_right && text.contains("TLS: invalid peer certificate"), "{text}");
}

#[test]
fn clients_show_their_certificate_where_an_authority_is_named() {
    let setup = Setup::new();
    let ca = setup.authorities();
    let server = setup.serve("required", &["--tls-client-ca", &ca]);
    let url = format!("tcp://{}/data/file", server.line("TCP"));
    let pair = setup.authority.certify("client", &["client.test"]);
    let (certificate, key) = (setup.file(&pair.certificate), setup.file(&pair.key));
    let known =
        ["call", &url, "--tls-ca", &ca, "--tls-cert", &certificate, "--tls-key", &key, "cat"];
    assert_eq!(setup.run(&known), (true, "octets of a file".to_owned()));
    let (is_right, text) = setup.run(&["call", &url, "--tls-ca", &ca, "cat"]);
    assert!(!is_right && text.contains("TLS"), "{text}");
}

#[test]
fn arguments_that_cannot_be_are_refused_with_what_to_give() {
    let setup = Setup::new();
    let missing = setup.home.text("missing.pem");
    let ca = setup.authorities();
    for (arguments, part) in [
        (&["serve", "data", "--tls", "required"][..], "--tls-cert FILE"),
        (&["serve", "data", "--tls-cert", &missing, "--tls-key", &missing], "cannot read"),
        (
            &["serve", "data", "--tcp", "none", "--tls-cert", &ca, "--tls-key", &ca],
            "TLS is for calls over TCP",
        ),
        (&["serve", "data", "--tls-records", "kernel"], "give --tls-cert FILE"),
        (&["call", "iwarp://127.0.0.1:1/data", "--tls-ca", &ca, "cat"], "is for tcp://"),
        (&["call", "tcp://127.0.0.1:1/data", "--tls-ca", &missing, "cat"], "cannot read"),
    ] {
        let (is_right, text) = setup.run(arguments);
        assert!(!is_right && text.contains(part), "{arguments:?}: {text}");
    }
}

/// Arguments of a check of a server that uses TLS as `wanted`, and more of them.
fn checked(setup: &Setup, wanted: &str, more: &[&str]) -> Vec<String> {
    let files = setup.authority.server().identity;
    let (certificate, key) = (setup.file(&files.certificate), setup.file(&files.key));
    let tls = ["--tls", wanted, "--tls-cert", &certificate, "--tls-key", &key];
    let own = ["serve", "data", "--check", "--clients", "10.0.0.0/8", "--state-dir", "state"];
    own.iter().chain(&tls).chain(more).map(|it| (*it).to_owned()).collect()
}

#[test]
fn rdma_of_other_hosts_beside_tls_that_is_required_is_refused_unless_it_is_named() {
    let setup = Setup::new();
    fs::create_dir(setup.home.path("state")).unwrap();
    let run_with = |wanted: &str, more: &[&str]| {
        let arguments = checked(&setup, wanted, more);
        setup.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let run = |more: &[&str]| run_with("required", more);
    // All addresses of this host, and ports that are free.
    let (open, other, tcp) = ("iwarp://0.0.0.0:0", "iwarp://[::]:0", ["--tcp", "127.0.0.1:0"]);
    for (more, part) in [
        (&["--listen", open][..], "spite of --tls required"),
        (&["--listen", open, "--listen", other, "--unprotected", open], "--listen iwarp://[::]:0"),
        (&["--listen", open, "--unprotected", other], "is none of the addresses of --listen"),
    ] {
        let (is_right, text) = run(&[more, &tcp].concat());
        assert!(!is_right && text.contains(part), "{more:?}: {text}");
    }
    let named = [&["--listen", open, "--unprotected", open][..], &tcp].concat();
    let (is_right, text) = run_with("offered", &named);
    assert!(!is_right && text.contains("means nothing without --tls required"), "{text}");
    let (is_right, text) = run(&named);
    assert!(is_right, "{text}");
    assert!(
        text.contains("listener iwarp://0.0.0.0:0: in the clear; proves the address"),
        "{text}"
    );
    assert!(text.contains("listener tcp://127.0.0.1:0: TLS alone; proves the address"), "{text}");
    let (is_right, text) = run(&[&["--listen", "iwarp://127.0.0.1:0"][..], &tcp].concat());
    assert!(is_right, "loopback has no strangers: {text}");
    assert!(text.contains("proves that the caller is on this host"), "{text}");
}

#[test]
fn a_listener_of_a_file_says_itself_that_it_is_unprotected() {
    let setup = Setup::new();
    fs::create_dir(setup.home.path("state")).unwrap();
    let run = |file: &str, more: &[&str]| {
        fs::write(setup.home.path("stag.toml"), file).unwrap();
        let file = ["--tcp", "127.0.0.1:0", "--config", "stag.toml"];
        let arguments = checked(&setup, "required", &[&file, more].concat());
        setup.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let url = "[[listen]]\nurl = \"iwarp://0.0.0.0:0\"\n";
    let (is_right, text) = run(url, &[]);
    assert!(!is_right && text.contains("spite of --tls required"), "{text}");
    let named = format!("{url}unprotected = true\n");
    let (is_right, text) = run(&named, &[]);
    assert!(is_right, "{text}");
    // The command line's own listener is not the file's.
    let (is_right, text) = run(&named, &["--listen", "iwarp://0.0.0.0:0"]);
    assert!(!is_right && text.contains("spite of --tls required"), "{text}");
    let (is_right, text) = run(&named, &["--listen", "iwarp://127.0.0.1:0"]);
    assert!(is_right, "{text}");
}

/// A probe for TLS, a session, and NULL of NFS in it, which is printed.
const CLIENT: &str = r#"
import socket, ssl, struct, sys
at, ca, protocol = sys.argv[1].rsplit(":", 1), sys.argv[2], sys.argv[3:]
def call(xid, flavor):
    body = struct.pack(">10I", xid, 0, 2, 100003, 3, 0, flavor, 0, 0, 0)
    return struct.pack(">I", 0x80000000 | len(body)) + body
def reply(s):
    def exactly(n):
        octets = b""
        while len(octets) < n:
            more = s.recv(n - len(octets))
            if not more: sys.exit("closed")
            octets += more
        return octets
    return exactly(struct.unpack(">I", exactly(4))[0] & 0x7fffffff)
s = socket.create_connection((at[0], int(at[1])), 20)
s.sendall(call(1, 7))
assert reply(s) == struct.pack(">5I", 1, 1, 0, 0, 8) + b"STARTTLS" + struct.pack(">I", 0)
context = ssl.create_default_context(cafile=ca)
if protocol: context.set_alpn_protocols(protocol)
s = context.wrap_socket(s, server_hostname="host.test")
s.sendall(call(2, 0))
assert reply(s) == struct.pack(">6I", 2, 1, 0, 0, 0, 0)
print(s.version(), s.selected_alpn_protocol())
"#;

#[test]
fn a_python_client_reads_inside_a_session_and_the_log_says_how_it_came() {
    let setup = Setup::new();
    let server = setup.serve("required", &["--log", "info"]);
    let (at, ca) = (server.line("TCP"), setup.authorities());
    for (protocol, said) in [(&["sunrpc"][..], "TLSv1.3 sunrpc\n"), (&[], "TLSv1.3 None\n")] {
        let mut command = Command::new("python3");
        let Ok(done) = command.args(["-c", CLIENT, &at, &ca]).args(protocol).output() else {
            return eprintln!("there is no python3: nothing was tried");
        };
        let error = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!((String::from_utf8_lossy(&done.stdout).as_ref(), error.as_str()), (said, ""));
    }
    let log = server.err();
    assert!(log.contains("calls inside TLS") && log.contains("suite=TLS13_"), "{log}");
    assert!(log.contains("alpn=true") && log.contains("alpn=false"), "{log}");
    assert!(log.contains(&format!("in_kernel={}", in_kernel())), "{log}");
    // Python's side said that it was at its end.
    assert!(!log.contains("no TLS session"), "{log}");
}

#[test]
fn a_kernel_without_tls_is_told_of_and_another_one_takes_sessions_over() {
    let setup = Setup::new();
    let files = setup.authority.server().identity;
    let (certificate, key) = (setup.file(&files.certificate), setup.file(&files.key));
    let check = ["serve", "data", "--check", "--tls-cert", &certificate, "--tls-key", &key];
    let (is_right, text) = setup.run(&[&check[..], &["--tls-records", "kernel"]].concat());
    if in_kernel() {
        assert!(is_right && text.contains("the kernel encrypts"), "{text}");
    } else {
        let expected = if is_right { "the kernel encrypts" } else { "modprobe tls" };
        assert!(text.contains(expected), "{text}");
    }
}

/// Writes and reads through a session, longer than any buffer on the way.
#[test]
fn a_long_file_travels_both_ways_inside_a_session() {
    let setup = Setup::new();
    let server = setup.serve("required", &[]);
    let url = format!("tcp://{}/data/long", server.line("TCP"));
    let ca = setup.authorities();
    let octets: Vec<u8> = (0..5_000_001_u32).map(|at| (at ^ at >> 9) as u8).collect();
    fs::write(setup.home.path("long"), &octets).unwrap();
    let (is_right, text) = setup.run(&["call", &url, "--tls-ca", &ca, "put", "long"]);
    assert!(is_right, "{text}");
    assert!(fs::read(setup.home.path("data/long")).unwrap() == octets);
    let (is_right, text) = setup.run(&["call", &url, "--tls-ca", &ca, "get", "back"]);
    assert!(is_right && fs::read(setup.home.path("back")).unwrap() == octets, "{text}");
}

#[test]
fn certificates_are_read_again_and_a_bad_one_changes_nothing() {
    let setup = Setup::new();
    let files = setup.authority.server().identity;
    let (certificate, key) = (setup.file(&files.certificate), setup.file(&files.key));
    let settings = format!(
        "listen = [\"iwarp://127.0.0.1:0\"]\ntcp = \"127.0.0.1:0\"\nmode = \"unprivileged\"\n\
         insecure = true\ntls = \"required\"\ntls-cert = {certificate:?}\ntls-key = {key:?}\n\
         [[export]]\npath = \"data\"\n"
    );
    fs::write(setup.home.path("stag.toml"), &settings).unwrap();
    let server = Server::start(&setup.home, setup.home.stag(&["serve", "--config", "stag.toml"]));
    let url = format!("tcp://{}/data/file", server.line("TCP"));
    let ca = setup.authorities();
    let read = |name: &str| setup.run(&["call", &url, "--tls-ca", &ca, "--tls-name", name, "cat"]);
    let reload = |expected: &str| {
        let before = server.err().matches(expected).count();
        server.signal(Signal::HUP);
        wait_for(expected, || server.err().matches(expected).count() > before);
    };
    assert!(read("host.test").0 && !read("new.test").0);
    // The same files, with another certificate in them.
    setup.authority.certify("server", &["new.test"]);
    reload("settings read again: certificates of TLS as they are now");
    assert!(read("new.test").0 && !read("host.test").0);
    // A certificate without its key.
    let kept = fs::read(&key).unwrap();
    fs::write(&key, fs::read(&certificate).unwrap()).unwrap();
    reload("settings stay as they are: ");
    assert!(server.err().contains(&key), "the file is named: {}", server.err());
    assert!(read("new.test").0, "what was there goes on");
    fs::write(&key, kept).unwrap();
    // That TLS is required at all is a setting of the start.
    fs::write(setup.home.path("stag.toml"), settings.replace("required", "offered")).unwrap();
    reload("--tls cannot change while the server runs");
}
