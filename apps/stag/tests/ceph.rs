//! Gateways on CephFS: over the fake library everywhere, and over a cluster of this host where
//! there can be one (`tests/ceph/cluster`), with the failures that a cluster has.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod support;

use rustix::process::{Signal, geteuid};
use stag_client::{ClientConfig, Error, NfsClient};
use stag_engine::clock::Clock;
use stag_iwarp::Iwarp;
use stag_protocol::nfs::v3::{CreateHow, FileHandle, SetAttributes, StableHow, Status};
// Only so that Cargo builds it beside this program.
use stag_ceph_fake as _;
use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{self, Command},
    thread,
    time::{Duration, Instant},
};
use support::{Home, PATIENCE, Server};

/// Time after which a metadata server gives up a client that is gone, in the tests' clusters:
/// whoever waits for one waits as long.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// A cluster that ends when this is dropped, or when this process ends.
struct Cluster(tempfile::TempDir);

impl Cluster {
    /// Starts one; none, and a line that says why, where there can be none.
    fn start(mdss: &str) -> Option<Self> {
        let able = Self::script().arg("able").output().unwrap();
        if !able.status.success() || stag_ceph::Library::installed().is_err() {
            println!("skipped: {}", String::from_utf8_lossy(&able.stderr).trim());
            return None;
        }
        let cluster = Self(tempfile::tempdir().unwrap());
        let mut start = Self::script();
        start.arg("start").arg(cluster.directory()).arg(process::id().to_string());
        let started = start.env("MDSS", mdss).output().unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        Some(cluster)
    }

    fn script() -> Command {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        Command::new(root.join("tests/ceph/cluster"))
    }

    fn directory(&self) -> PathBuf {
        self.0.path().join("c")
    }

    fn configuration(&self) -> String {
        self.directory().join("ceph.conf").to_str().unwrap().to_owned()
    }

    /// Does something to a daemon.
    fn daemon(&self, verb: &str, name: &str) {
        let done = Self::script().arg(verb).arg(self.directory()).arg(name).status().unwrap();
        assert!(done.success(), "{verb} {name}");
    }

    /// A name of a gateway that no other test of this host uses.
    fn name(&self, node: &str) -> String {
        let unique = self.0.path().file_name().unwrap().to_str().unwrap();
        format!("{node}{unique}")
    }

    /// A gateway of this name, which exports the root of the file system as /data.
    fn gateway(&self, home: &Home, node: &str) -> Server {
        let node = self.name(node);
        let export = format!("ceph:/?conf={}&node={node}", self.configuration());
        let (state, cluster) = (format!("state-{node}"), home.text("blue.toml"));
        let arguments =
            [&export, "--name", "data", "--squash", "none", "--insecure", "--state-dir", &state];
        if !Path::new(&cluster).exists() {
            let made = home.run(&["cluster", "init", "blue.toml", "--name", "blue", "data"]);
            assert_eq!(made.status.code(), Some(0), "{made:?}");
        }
        home.serve_as_given(&[&arguments[..], &["--cluster", &cluster]].concat())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = Self::script().arg("stop").arg(self.directory()).status();
    }
}

/// A client of a server over its fabric.
fn client(server: &Server) -> NfsClient<Iwarp> {
    let (clock, config) = (Clock::start(), ClientConfig::new(1));
    let fabric = stag_iwarp::IwarpConfig::new(config.limits(), [1; 32], clock.now());
    let mut client =
        NfsClient::new(Iwarp::new(fabric).unwrap(), config, move || clock.now()).unwrap();
    client.connect(&server.line("LISTEN").parse().unwrap()).unwrap();
    client.limit_timeout(PATIENCE);
    client
}

/// Tries until it succeeds, as a client does that is told to ask again.
fn until<T, E: std::fmt::Debug>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let end = Instant::now() + 2 * PATIENCE;
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(Instant::now() < end, "{what}: {error:?}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn create(client: &mut NfsClient<Iwarp>, root: FileHandle, name: &[u8]) -> FileHandle {
    let how = CreateHow::Unchecked(SetAttributes { mode: Some(0o644), ..Default::default() });
    client.create(root, name, how).unwrap().object.unwrap()
}

fn content(client: &mut NfsClient<Iwarp>, file: FileHandle) -> Result<Vec<u8>, Error> {
    let mut room = vec![0; 100];
    let read = client.read(file, 0, &mut room)?;
    room.truncate(read.count as usize);
    Ok(room)
}

#[test]
fn the_functional_run_passes_on_the_fake_library() {
    if !geteuid().is_root() {
        return println!("skipped: the root of the file system is root's");
    }
    let home = Home::new();
    let library = env::current_exe().unwrap().with_file_name("libstag_ceph_fake.so");
    symlink(library, home.path("libcephfs.so.2")).unwrap();
    fs::write(home.path("ceph.conf"), "").unwrap();
    let node = format!("ceph:/?conf={}&node=fake-{}", home.text("ceph.conf"), process::id());
    let ports = ["--listen", "iwarp://127.0.0.1:0", "--tcp", "127.0.0.1:0"];
    let arguments = ["serve", &node, "--name", "data", "--squash", "none", "--insecure"];
    let mut command = home.stag(&[&arguments[..], &ports].concat());
    command.env("LD_LIBRARY_PATH", home.0.path());
    let mut server = Server::start(&home, command);
    assert!(server.err().contains("store ceph, as the client fake-"), "{}", server.err());
    assert!(server.err().contains("export /data = ceph:/ (rw)"), "{}", server.err());
    let url = format!("{}/data", server.line("LISTEN"));
    let output = home.run(&["check", &url, "--json", "--seed", "7"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
}

#[test]
fn what_cannot_be_served_together_is_refused() {
    let home = Home::new();
    for (arguments, part) in [
        (&["ceph:/a?node=x", "--memory", "8M"][..], "where libcephfs ends it"),
        (&["ceph:/a?node=x", "data"], "start a server for each"),
        (&["ceph:/a?node=x", "--mode", "privileged"], "--mode means nothing"),
        (&["ceph:/a?node=x", "--slow", "all"], "--slow means nothing"),
        (&["ceph:a"], "from the root"),
    ] {
        let sentence = home.refused(&[&["serve"], arguments].concat());
        assert!(sentence.contains(part), "{arguments:?}: {sentence}");
    }
    let name = home.refused(&["cluster", "takeover", "a b"]);
    assert!(name.contains("cannot name a gateway"), "{name}");
}

#[test]
fn a_gateway_that_is_killed_serves_again_and_keeps_nobody_waiting() {
    let Some(cluster) = Cluster::start("1") else { return };
    let home = Home::new();
    let (mut first, second) = (cluster.gateway(&home, "one"), cluster.gateway(&home, "two"));
    let mut there = client(&second);
    let root = until("the mount", || there.mount("/data"));
    let rounds = if env::var_os("CI").is_some() { 20 } else { 3 };
    for round in 0..rounds {
        let mut here = client(&first);
        assert_eq!(until("the mount", || here.mount("/data")), root, "round {round}");
        let name = format!("f{round}").into_bytes();
        let file = create(&mut here, root, &name);
        here.write(file, 0, b"acknowledged", StableHow::Unstable).unwrap();
        first.signal(Signal::KILL);
        first.wait();
        let began = Instant::now();
        if round % 2 == 0 {
            // The other gateway takes over, before anybody starts the first one again.
            let conf = cluster.configuration();
            let name = cluster.name("one");
            let done = home.run(&["cluster", "takeover", &name, "--conf", &conf]);
            assert_eq!(done.status.code(), Some(0), "{done:?}");
            let said = String::from_utf8(done.stdout).unwrap();
            assert!(said.ends_with("its files are free, and it cannot write\n"), "{said}");
            create(&mut there, root, b"beside");
        } else {
            first = cluster.gateway(&home, "one");
            let mut again = client(&first);
            until("the restart", || again.getattr(file));
        }
        let waited = began.elapsed();
        assert!(waited < SESSION_TIMEOUT, "round {round}: {waited:?}: nobody was reclaimed");
        println!("round {round}: {} ms", waited.as_millis());
        let kept = until("the read", || content(&mut there, file));
        assert_eq!(kept, b"acknowledged", "round {round}");
        if round % 2 == 0 {
            first = cluster.gateway(&home, "one");
        }
    }
}

#[test]
fn a_data_daemon_that_stops_keeps_only_its_readers_waiting() {
    let Some(cluster) = Cluster::start("1") else { return };
    let home = Home::new();
    let server = cluster.gateway(&home, "one");
    let [mut reader, mut other] = [client(&server), client(&server)];
    let root = until("the mount", || reader.mount("/data"));
    let file = create(&mut reader, root, b"f");
    reader.write(file, 0, b"octets", StableHow::FileSync).unwrap();
    cluster.daemon("pause", "osd.0");
    let (sender, receiver) = std::sync::mpsc::channel();
    let at = server.line("LISTEN");
    let waiting = thread::spawn(move || {
        let (clock, config) = (Clock::start(), ClientConfig::new(2));
        let fabric = stag_iwarp::IwarpConfig::new(config.limits(), [2; 32], clock.now());
        let mut client =
            NfsClient::new(Iwarp::new(fabric).unwrap(), config, move || clock.now()).unwrap();
        client.connect(&at.parse().unwrap()).unwrap();
        client.limit_timeout(PATIENCE);
        sender.send(()).unwrap();
        until("the read", || content(&mut client, file))
    });
    receiver.recv().unwrap();
    for _ in 0..20 {
        other.null().unwrap();
        assert_eq!(other.getattr(file).unwrap().size, 6, "metadata goes on");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!waiting.is_finished(), "the daemon has the only copy");
    cluster.daemon("resume", "osd.0");
    assert_eq!(waiting.join().unwrap(), b"octets");
}

#[test]
fn another_metadata_daemon_takes_over() {
    if env::var_os("CI").is_none() {
        return println!("skipped: takes two minutes (fix: set CI)");
    }
    let Some(cluster) = Cluster::start("2") else { return };
    let home = Home::new();
    let server = cluster.gateway(&home, "one");
    let mut client = client(&server);
    let root = until("the mount", || client.mount("/data"));
    let file = create(&mut client, root, b"f");
    client.write(file, 0, b"octets", StableHow::FileSync).unwrap();
    // One of the two is active; with both killed in turn, the active one was.
    for daemon in ["mds.a", "mds.b"] {
        cluster.daemon("kill", daemon);
        until("the other daemon", || {
            let made = client.mkdir(root, daemon.as_bytes(), 0o755);
            if matches!(made, Err(Error::NotConnected(_))) {
                client.connect(&server.line("LISTEN").parse().unwrap())?;
            }
            // The call whose connection was given up may have been carried out.
            match made {
                Err(Error::Nfs(Status::Exist)) => Ok(()),
                other => other.map(drop),
            }
        });
        cluster.daemon("revive", daemon);
        thread::sleep(Duration::from_secs(2));
    }
    // Asked to come again while the new daemon takes this client's capabilities back.
    assert_eq!(until("the read", || content(&mut client, file)), b"octets");
}
