//! A gateway that can be killed, and a requester that stays connected to it, on one simulated
//! fabric.

use crate::losses::requester::{Requester, request};
use stag_engine::{CallFault, Config, PeerId, Shard, Token};
use stag_nfs::{Gateway, GatewayReport};
use stag_nfs_store::{
    User,
    exports::config::ExportConfig,
    files::{self, Files, SharedFiles},
};
use stag_protocol::nfs::v3::{Call, FileHandle};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Provider, Time};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

const LIMITS: Limits =
    Limits { connections: 8, send_queue: 64, receives: 64, windows: 64, ..stag_sim::LIMITS };
const PORT: Port = Port(2049);
/// Connections of the requester.
const CONNECTIONS: usize = 2;

/// A directory in memory if there is one: 10,000 servers sync their files.
fn home() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

fn sizes() -> Config {
    Config {
        grant: 8,
        grant_first: 4,
        calls_max: 8,
        receives: 64,
        peers: 8,
        inbound: 64,
        outbound: 16,
        slots: [64, 6, 0],
        ..Config::small()
    }
}

pub struct Pair {
    pub fabric: Fabric,
    server: Option<Shard<Sim, Gateway>>,
    client: Shard<Sim, Requester>,
    peers: Vec<PeerId>,
    now: Time,
    files: files::FilesConfig,
    home: TempDir,
    pub root: FileHandle,
    steps: u64,
}

impl Pair {
    pub fn new(seed: u64) -> Self {
        let home = home();
        for name in ["data", "state"] {
            fs::create_dir(home.path().join(name)).unwrap();
        }
        let export = ExportConfig {
            name: "data".to_owned(),
            path: home.path().join("data"),
            read_only: false,
            is_mountpoint: false,
        };
        let files = files::FilesConfig {
            state_dir: home.path().join("state"),
            exports: vec![export],
            callers: files::Callers::UNPRIVILEGED,
            shards: 1,
            sync_directories: false,
            open_files: Some(16),
            cluster: None,
        };
        let fabric = Fabric::new(seed, Faults::DELAYS);
        let client = fabric.end("client", LIMITS);
        let client =
            Shard::new(client, Requester::default(), sizes(), Box::new(|_| false)).unwrap();
        let root = FileHandle::new(&[]).unwrap();
        Self {
            fabric,
            server: None,
            client,
            peers: vec![],
            now: Time(0),
            files,
            home,
            root,
            steps: 0,
        }
    }

    pub fn data(&self, name: &str) -> PathBuf {
        self.home.path().join("data").join(name)
    }

    /// Starts the server; returns the handles of these files, which are there.
    pub fn start(&mut self, names: &[&str]) -> Vec<FileHandle> {
        let shared = SharedFiles::open(&self.files).unwrap();
        let mut store = Files::open(&shared, 0).unwrap();
        store.act_as(&User::Anyone);
        self.root = store.mount(b"/data").unwrap();
        let root = self.root;
        let handle = |name: &&str| store.lookup(&root, name.as_bytes()).unwrap().handle;
        let handles = names.iter().map(handle).collect();
        let end = self.fabric.end("server", LIMITS);
        let mut server = Shard::new(end, Gateway::new(store), sizes(), Box::new(|_| true)).unwrap();
        server.listen(&PORT).unwrap();
        self.server = Some(server);
        handles
    }

    /// Everything that the server had in memory is gone.
    pub fn kill(&mut self) {
        self.server = None;
    }

    pub fn connect(&mut self) {
        self.peers = (0..CONNECTIONS).map(|_| self.client.keep_connected(&PORT).unwrap()).collect();
    }

    pub fn call(&mut self, token: Token, call: &Call<'_>) {
        let peer = self.peers[token.0 as usize % CONNECTIONS];
        self.client.with_app(|_, cx| {
            let request = request(cx, token, call);
            cx.call(peer, request);
        });
    }

    pub fn take(&mut self) -> Option<(Token, Result<Vec<u8>, CallFault>)> {
        self.client.with_app(|app, _| app.take())
    }

    pub fn losses(&self) -> u64 {
        self.client.app().losses()
    }

    pub fn report(&self) -> GatewayReport {
        self.server.as_ref().map_or_else(GatewayReport::default, |server| server.snapshot().app)
    }

    /// One pass of each; without work, time advances to the next event.
    pub fn step(&mut self) {
        self.steps += 1;
        assert!(self.steps < 200_000, "it never ends\n{}", self.fabric.trace());
        let server = self.server.as_mut();
        if server.is_some_and(|server| server.pass(self.now)) | self.client.pass(self.now) {
            return;
        }
        let server = self.server.as_ref().and_then(Shard::wake_at);
        let due =
            [self.fabric.next_due(), self.client.wake_at(), server].into_iter().flatten().min();
        let next = self.now + Duration::from_nanos(100);
        self.now = due.map_or(next, |due| due.max(next));
    }

    /// The requester leaves; then nothing is held at either end.
    pub fn end(&mut self) {
        let peers = std::mem::take(&mut self.peers);
        self.client.with_app(|_, cx| peers.iter().for_each(|peer| cx.disconnect(*peer)));
        while self.ends().iter().any(|(end, _)| end.connections() > 0) {
            self.step();
        }
        // Delivers what was in flight when they left.
        (0..20).for_each(|_| self.step());
        for (end, held) in self.ends() {
            assert_eq!(
                (end.windows_bound(), held),
                (0, [0; 4]),
                "windows, then buffers, receives and calls"
            );
            assert!(end.receives_posted() > 0);
        }
    }

    /// Each end with its buffers in use, receives promised, and calls in progress.
    fn ends(&self) -> [(&Sim, [usize; 4]); 2] {
        fn held<A: stag_engine::App>(shard: &Shard<Sim, A>) -> (&Sim, [usize; 4]) {
            let (inbound, outbound) = shard.calls_in_progress();
            (
                shard.provider(),
                [shard.buffers_in_use(), shard.receives_promised(), inbound, outbound],
            )
        }
        [
            held(self.server.as_ref().expect("a server that was killed was started again")),
            held(&self.client),
        ]
    }
}
