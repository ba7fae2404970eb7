//! Clusters of this host (`tests/ceph/cluster`), the fake library, gateways on both, and clients.

use super::support::{Home, PATIENCE, Server};
use stag_client::{ClientConfig, Error, NfsClient};
use stag_engine::clock::Clock;
use stag_iwarp::Iwarp;
use stag_protocol::nfs::v3::{CreateHow, FileHandle, SetAttributes};
use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{self, Command},
    thread,
    time::{Duration, Instant},
};

/// True in the long form, which takes minutes.
pub fn is_long() -> bool {
    env::var_os("CI").is_some()
}

/// A cluster that ends when this is dropped, or when this process ends.
pub struct Cluster(tempfile::TempDir);

impl Cluster {
    /// Starts one with these numbers of metadata and data daemons. Where that is impossible,
    /// prints the reason and returns none.
    pub fn start(mdss: &str, osds: &str) -> Option<Self> {
        let able = Self::script().arg("able").output().unwrap();
        if !able.status.success() || stag_ceph::Library::installed().is_err() {
            println!("skipped: {}", String::from_utf8_lossy(&able.stderr).trim());
            return None;
        }
        let cluster = Self(tempfile::tempdir().unwrap());
        let mut start = Self::script();
        start.arg("start").arg(cluster.directory()).arg(process::id().to_string());
        let started = start.env("MDSS", mdss).env("OSDS", osds).output().unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        Some(cluster)
    }

    pub fn script() -> Command {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        Command::new(root.join("tests/ceph/cluster"))
    }

    pub fn directory(&self) -> PathBuf {
        self.0.path().join("c")
    }

    pub fn configuration(&self) -> String {
        self.directory().join("ceph.conf").to_str().unwrap().to_owned()
    }

    /// Does something to a daemon.
    pub fn daemon(&self, verb: &str, name: &str) {
        let done = Self::script().arg(verb).arg(self.directory()).arg(name).status().unwrap();
        assert!(done.success(), "{verb} {name}");
    }

    /// A name of a gateway that no other test of this host uses.
    pub fn name(&self, node: &str) -> String {
        let unique = self.0.path().file_name().unwrap().to_str().unwrap();
        format!("{node}{unique}")
    }

    /// A gateway of this name, which exports the root of the file system as /data.
    pub fn gateway(&self, home: &Home, node: &str) -> Server {
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

/// A gateway on a file system of the fake library, which exports its root as /data. Only root may
/// write there.
pub fn fake_gateway(home: &Home, node: &str) -> Server {
    let library = env::current_exe().unwrap().with_file_name("libstag_ceph_fake.so");
    symlink(library, home.path("libcephfs.so.2")).unwrap();
    fs::write(home.path("ceph.conf"), "").unwrap();
    let node = format!("ceph:/?conf={}&node={node}-{}", home.text("ceph.conf"), process::id());
    let ports = ["--listen", "iwarp://127.0.0.1:0", "--tcp", "127.0.0.1:0"];
    let arguments = ["serve", &node, "--name", "data", "--squash", "none", "--insecure"];
    let mut command = home.stag(&[&arguments[..], &ports].concat());
    command.env("LD_LIBRARY_PATH", home.0.path());
    Server::start(home, command)
}

/// A client of a server over its fabric.
pub fn client(server: &Server) -> NfsClient<Iwarp> {
    let (clock, config) = (Clock::start(), ClientConfig::new(1));
    let fabric = stag_iwarp::IwarpConfig::new(config.limits(), [1; 32], clock.now());
    let mut client =
        NfsClient::new(Iwarp::new(fabric).unwrap(), config, move || clock.now()).unwrap();
    client.connect(&server.line("LISTEN").parse().unwrap()).unwrap();
    client.limit_timeout(PATIENCE);
    client
}

/// Tries until it succeeds, as a client does that is asked to retry.
pub fn until<T, E: std::fmt::Debug>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let end = Instant::now() + 2 * PATIENCE;
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(Instant::now() < end, "{what}: {error:?}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

pub fn create(client: &mut NfsClient<Iwarp>, root: FileHandle, name: &[u8]) -> FileHandle {
    let how = CreateHow::Unchecked(SetAttributes { mode: Some(0o644), ..Default::default() });
    client.create(root, name, how).unwrap().object.unwrap()
}

pub fn content(client: &mut NfsClient<Iwarp>, file: FileHandle) -> Result<Vec<u8>, Error> {
    let mut room = vec![0; 100];
    let read = client.read(file, 0, &mut room)?;
    room.truncate(read.count as usize);
    Ok(room)
}
