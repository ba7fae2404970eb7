//! Shards over one directory, callers over TCP, and disks as slow as a test wants them.

use super::*;

pub(crate) const LIMITS: Limits =
    Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };

/// A directory that is probably on a disk.
pub(crate) fn home() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file that only the disk has.
pub(crate) fn write_cold(path: &Path, content: &[u8]) {
    std::fs::write(path, content).unwrap();
    let file = File::open(path).unwrap();
    // On a busy machine a page that another process holds for a moment stays.
    for _ in 0..10 {
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns true if a file can be out of memory here at all, and the system says so.
pub(crate) fn is_on_disk(directory: &Path) -> bool {
    let path = directory.join("probe");
    write_cold(&path, &pattern(8192, 1));
    let mut octets = [0; 8192];
    let read = preadv2(
        File::open(&path).unwrap(),
        &mut [IoSliceMut::new(&mut octets)],
        0,
        ReadWriteFlags::NOWAIT,
    );
    if read != Err(Errno::AGAIN) {
        eprintln!(
            "skipped: {} keeps its files in memory, or does not say ({read:?})",
            directory.display()
        );
    }
    read == Err(Errno::AGAIN)
}

/// Eventfd without a listener, because these shards do not sleep.
pub(crate) fn bell() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

/// Reads, as helpers do.
pub(crate) fn bring(file: BorrowedFd<'_>, offset: u64, scratch: &mut [u8]) {
    let file = File::from(file.try_clone_to_owned().unwrap());
    let _ = file.read_at(scratch, offset).unwrap();
}

/// A disk that brings data only when the sender signals; dropping the sender opens it for good.
pub(crate) fn gated() -> (Sender<()>, Arc<AtomicUsize>, Arc<Fetch>) {
    let (go, gate) = channel();
    let (gate, begun) = (Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&begun);
    let fetch = move |file: BorrowedFd<'_>, offset: u64, scratch: &mut [u8]| {
        count.fetch_add(1, Ordering::SeqCst);
        let _ = gate.lock().unwrap().recv();
        bring(file, offset, scratch);
    };
    (go, begun, Arc::new(fetch))
}

/// Shards that serve one directory over TCP.
pub(crate) struct World {
    pub(crate) shards: Vec<Shard<Sim, Gateway>>,
    pub(crate) ports: Vec<SocketAddr>,
    pub(crate) root: FileHandle,
    pub(crate) handles: Files,
    pub(crate) home: TempDir,
    pub(crate) began: Instant,
    pub(crate) _fabric: Fabric,
}

impl World {
    /// None where no file is ever out of memory.
    pub(crate) fn new(helpers: impl FnOnce() -> Vec<Helpers>) -> Option<Self> {
        Self::with(0, 1, helpers)
    }

    /// Shards that also have a ring for `reads` READs at a time. None also where the system has no
    /// ring.
    pub(crate) fn with_rings(reads: u16, helpers: impl FnOnce() -> Vec<Helpers>) -> Option<Self> {
        if let Err(error) = Ring::<()>::new(reads, bell()) {
            eprintln!("skipped: no io_uring here ({error})");
            return None;
        }
        Self::with(reads, 1, helpers)
    }

    /// The first `cold_looks` looks at each place find nothing, however fast the disk is.
    pub(crate) fn with(
        ring_reads: u16,
        cold_looks: u32,
        helpers: impl FnOnce() -> Vec<Helpers>,
    ) -> Option<Self> {
        let home = home();
        for name in ["data", "state"] {
            std::fs::create_dir(home.path().join(name)).unwrap();
        }
        if !is_on_disk(&home.path().join("data")) {
            return None;
        }
        let helpers = helpers();
        let path = home.path().join("data");
        let config = files::FilesConfig {
            state_dir: home.path().join("state"),
            exports: vec![ExportConfig {
                name: "data".to_owned(),
                path,
                read_only: false,
                is_mountpoint: false,
            }],
            callers: files::Callers::UNPRIVILEGED,
            shards: helpers.len() + 1,
            sync_directories: false,
            open_files: Some(512),
            cluster: None,
        };
        let shared = SharedFiles::open(&config).unwrap();
        let fabric = Fabric::new(1, Faults::DELAYS);
        let (mut shards, mut ports) = (vec![], vec![]);
        let count = helpers.len();
        for (index, helpers) in helpers.into_iter().enumerate() {
            let mut files = Files::open(&shared, index)
                .unwrap()
                .with_helpers(helpers)
                .with_cold_looks(cold_looks);
            if ring_reads > 0 {
                files = files.with_ring(Ring::new(ring_reads, bell()).unwrap());
            }
            let config = Config { slots: [1024, 64, 8], ..Config::small() };
            let end = fabric.end("server", LIMITS);
            let mut shard =
                Shard::new(end, Gateway::new(files), config, Box::new(|_| true)).unwrap();
            ports.push(shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap());
            shards.push(shard);
        }
        let mut handles = Files::open(&shared, count).unwrap();
        let root = handles.mount(b"/data").unwrap();
        Some(Self { shards, ports, root, handles, home, began: Instant::now(), _fabric: fabric })
    }

    /// A file that only the disk has; its handle is known without a look at its octets.
    pub(crate) fn cold(&mut self, name: &str, content: &[u8]) -> FileHandle {
        write_cold(&self.home.path().join("data").join(name), content);
        let handle = self.handles.lookup(&self.root, name.as_bytes()).unwrap().handle;
        self.handles.flush().unwrap();
        handle
    }

    pub(crate) fn pass(&mut self) {
        let now = Time(self.began.elapsed().as_nanos() as u64);
        for shard in &mut self.shards {
            shard.pass(now);
        }
    }

    pub(crate) fn connect(&self, shard: usize) -> Caller {
        let socket = TcpStream::connect(self.ports[shard]).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        Caller { socket, input: vec![] }
    }

    /// The next reply.
    pub(crate) fn await_reply(&mut self, caller: &mut Caller) -> Vec<u8> {
        let began = Instant::now();
        loop {
            self.pass();
            if let Some(reply) = caller.reply() {
                return reply;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "no reply");
        }
    }

    pub(crate) fn report(&self, shard: usize) -> GatewayReport {
        self.shards[shard].snapshot().app
    }

    /// READs that were carried out.
    pub(crate) fn reads(&self, shard: usize) -> u64 {
        self.report(shard).nfs3.get("READ").map_or(0, |served| served.calls)
    }

    pub(crate) fn await_fetches(&mut self, begun: &AtomicUsize, count: usize) {
        let began = Instant::now();
        while begun.load(Ordering::SeqCst) < count {
            self.pass();
            assert!(began.elapsed() < Duration::from_secs(60), "no helper begins");
        }
    }

    pub(crate) fn assert_empty(&mut self) {
        (0..100).for_each(|_| self.pass());
        for shard in &self.shards {
            assert_eq!((shard.buffers_in_use(), shard.calls_in_progress().0), (0, 0));
        }
    }
}

pub(crate) struct Caller {
    pub(crate) socket: TcpStream,
    pub(crate) input: Vec<u8>,
}

impl Caller {
    pub(crate) fn call(&mut self, call: &Call<'_>) {
        let (octets, _) = encode(call);
        let mut record = Fragment::new(octets.len() as u32, true).unwrap().emit().to_vec();
        record.extend_from_slice(&octets);
        self.socket.write_all(&record).unwrap();
    }

    pub(crate) fn read(&mut self, file: FileHandle, offset: u64, count: u32) {
        self.call(&Call::Read(ReadArgs { file, offset, count }));
    }

    /// Takes a reply, once all of it is here.
    pub(crate) fn reply(&mut self) -> Option<Vec<u8>> {
        let mut staging = [0; 65_536];
        match self.socket.read(&mut staging) {
            Ok(0) => panic!("the connection is closed"),
            Ok(len) => self.input.extend_from_slice(&staging[..len]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let len = 4 + Fragment::parse(*self.input.first_chunk()?).octets() as usize;
        (self.input.len() >= len).then(|| self.input.drain(..len).skip(4).collect())
    }
}

/// Returns the octets that a READ returned, or the status of its failure.
pub(crate) fn octets(reply: &[u8]) -> Result<Vec<u8>, Status> {
    let results = Reader::new(&reply[ReplyHeader::LEN..]);
    match Reply::parse(stag_protocol::nfs::v3::Procedure::Read, results).unwrap() {
        Reply::Read(Ok(read)) => Ok(read.data.octets().unwrap().to_vec()),
        Reply::Read(Err(failure)) => Err(failure.status),
        other => panic!("{other:?}"),
    }
}
