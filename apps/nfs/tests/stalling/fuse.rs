//! A FUSE file system of our own, in memory, that stalls on command: the kernel's protocol
//! (`linux/fuse.h`, version 7.31) spoken over `/dev/fuse`, without a library.

use rustix::{
    fs::{Mode, OFlags, open},
    io::{Errno, read, write},
    mount::{MountFlags, UnmountFlags, mount, unmount},
};
use std::{
    collections::BTreeMap,
    ffi::CString,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
pub const MKDIR: u32 = 9;
const UNLINK: u32 = 10;
const OPEN: u32 = 14;
pub const READ: u32 = 15;
pub const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
pub const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const FSYNCDIR: u32 = 30;
pub const CREATE: u32 = 35;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

/// Octets of the longest request: a WRITE of 1 MiB and its headers.
const REQUEST_MAX: usize = (1 << 20) + 4096;
const WRITE_MAX: u32 = 1 << 20;

/// A request as the kernel sends it.
#[derive(Clone)]
struct Request {
    opcode: u32,
    unique: u64,
    node: u64,
    uid: u32,
    body: Vec<u8>,
}

struct Node {
    is_directory: bool,
    uid: u32,
    mode: u32,
    content: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
}

/// A WRITE that reached the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub offset: u64,
    pub first: u8,
    pub len: usize,
}

/// The events that a test looks at.
#[derive(Default)]
pub struct Log {
    pub writes: Vec<Written>,
    /// Users who made files.
    pub creators: Vec<u32>,
}

struct State {
    nodes: BTreeMap<u64, Node>,
    /// Requests of these kinds wait.
    stalls: fn(u32) -> bool,
    /// Syncs fail.
    loses: bool,
    /// Requests of these kinds fail, as those to a dying disk do.
    fails: fn(u32) -> bool,
    held: Vec<Request>,
    log: Log,
}

/// The mounted file system. Everything that is held is answered, and it is unmounted, when this
/// goes.
pub struct Fuse {
    mounted: PathBuf,
    device: Arc<OwnedFd>,
    state: Arc<Mutex<State>>,
    serving: Option<JoinHandle<()>>,
}

fn put(into: &mut Vec<u8>, words: &[u64], halves: &[u32]) {
    words.iter().for_each(|word| into.extend_from_slice(&word.to_ne_bytes()));
    halves.iter().for_each(|half| into.extend_from_slice(&half.to_ne_bytes()));
}

fn half(from: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(from[at..at + 4].try_into().unwrap())
}

fn word(from: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(from[at..at + 8].try_into().unwrap())
}

fn text(from: &[u8]) -> &[u8] {
    from.split(|octet| *octet == 0).next().unwrap()
}

impl Node {
    fn new(is_directory: bool, uid: u32, mode: u32) -> Self {
        Self { is_directory, uid, mode, content: vec![], names: BTreeMap::new() }
    }

    /// `struct fuse_attr`.
    fn attributes(&self, number: u64) -> Vec<u8> {
        let (kind, size) =
            if self.is_directory { (0o040_000, 4096) } else { (0o100_000, self.content.len()) };
        let mut octets = vec![];
        put(
            &mut octets,
            &[number, size as u64, size.div_ceil(512) as u64, 1_000_000, 1_000_000, 1_000_000],
            &[0, 0, 0, kind | self.mode, 1, self.uid, 0, 0, 4096, 0],
        );
        octets
    }
}

impl State {
    /// `struct fuse_entry_out`; nothing is cached.
    fn entry(&self, number: u64) -> Vec<u8> {
        let mut octets = vec![];
        put(&mut octets, &[number, 1, 0, 0], &[0, 0]);
        octets.extend(self.nodes[&number].attributes(number));
        octets
    }

    fn add(&mut self, parent: u64, name: &[u8], node: Node) -> u64 {
        let number = self.nodes.keys().last().unwrap() + 1;
        self.nodes.insert(number, node);
        self.nodes.get_mut(&parent).unwrap().names.insert(name.to_vec(), number);
        number
    }

    fn answer(&mut self, request: &Request) -> Result<Vec<u8>, Errno> {
        let Request { opcode, node, uid, body, .. } = request;
        let opened = |flags: u32| {
            let mut octets = vec![];
            put(&mut octets, &[1], &[flags, 0]);
            octets
        };
        let mut octets = vec![];
        match *opcode {
            failing if (self.fails)(failing) => return Err(Errno::IO),
            INIT => {
                let flags = half(body, 12) & ((1 << 0) | (1 << 4) | (1 << 5)); // ASYNC, EXPORT, BIG
                put(&mut octets, &[], &[7, 31, 1 << 20, flags]);
                octets.extend_from_slice(&512_u16.to_ne_bytes());
                octets.extend_from_slice(&400_u16.to_ne_bytes());
                put(&mut octets, &[], &[WRITE_MAX, 1]);
                octets.extend_from_slice(&[0; 36]);
            }
            LOOKUP => {
                let number = match text(body) {
                    b"." => Some(*node),
                    b".." => Some(1),
                    name => self.nodes.get(node).and_then(|at| at.names.get(name).copied()),
                };
                let number = number.filter(|at| self.nodes.contains_key(at)).ok_or(Errno::NOENT)?;
                return Ok(self.entry(number));
            }
            GETATTR | SETATTR => {
                let at = self.nodes.get_mut(node).ok_or(Errno::STALE)?;
                if *opcode == SETATTR && half(body, 0) & (1 << 3) != 0 {
                    at.content.resize(word(body, 16) as usize, 0);
                }
                put(&mut octets, &[0], &[0, 0]);
                octets.extend(at.attributes(*node));
            }
            OPEN | OPENDIR => return Ok(opened(1)), // FOPEN_DIRECT_IO
            CREATE => {
                let name = text(&body[16..]).to_vec();
                if self.nodes[node].names.contains_key(&name) {
                    return Err(Errno::EXIST);
                }
                let made = Node::new(false, *uid, half(body, 4) & 0o7777);
                let number = self.add(*node, &name, made);
                self.log.creators.push(*uid);
                octets = self.entry(number);
                octets.extend(opened(1));
            }
            MKDIR => {
                let made = Node::new(true, *uid, half(body, 0) & 0o7777);
                let number = self.add(*node, text(&body[8..]), made);
                return Ok(self.entry(number));
            }
            UNLINK => {
                let names = &mut self.nodes.get_mut(node).unwrap().names;
                names.remove(text(body)).ok_or(Errno::NOENT)?;
            }
            READ => {
                let (from, len) = (word(body, 8) as usize, half(body, 16) as usize);
                let content = &self.nodes[node].content;
                let end = content.len().min(from + len);
                octets.extend_from_slice(content.get(from..end).unwrap_or_default());
            }
            WRITE => {
                let (offset, len) = (word(body, 8), half(body, 16) as usize);
                let data = &body[40..40 + len];
                let content = &mut self.nodes.get_mut(node).unwrap().content;
                let end = offset as usize + len;
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].copy_from_slice(data);
                self.log.writes.push(Written { offset, first: data[0], len });
                put(&mut octets, &[], &[len as u32, 0]);
            }
            STATFS => put(
                &mut octets,
                &[1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19],
                &[4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0],
            ),
            READDIR => {
                let from = word(body, 8) as usize;
                let names = &self.nodes[node].names;
                for (place, (name, number)) in names.iter().enumerate().skip(from) {
                    put(&mut octets, &[*number, place as u64 + 1], &[name.len() as u32, 8]);
                    octets.extend_from_slice(name);
                    octets.resize(octets.len().next_multiple_of(8), 0);
                }
                octets.truncate(half(body, 16) as usize);
            }
            FSYNC if self.loses => return Err(Errno::IO),
            RELEASE | RELEASEDIR | FLUSH | FSYNC | FSYNCDIR => {}
            _ => return Err(Errno::NOSYS),
        }
        Ok(octets)
    }
}

fn reply(device: &OwnedFd, unique: u64, answer: Result<Vec<u8>, Errno>) {
    let (error, octets) = match answer {
        Ok(octets) => (0, octets),
        Err(error) => (-error.raw_os_error(), vec![]),
    };
    let mut message = vec![];
    put(&mut message, &[], &[16 + octets.len() as u32, error as u32]);
    put(&mut message, &[unique], &[]);
    message.extend(octets);
    // A caller who was killed waits for nothing any more.
    let _ = write(device, &message);
}

fn serve(device: &OwnedFd, state: &Mutex<State>) {
    let mut octets = vec![0; REQUEST_MAX];
    loop {
        let len = match read(device, &mut octets) {
            Ok(len) => len,
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            Err(_) => return, // Unmounted.
        };
        let request = Request {
            opcode: half(&octets, 4),
            unique: word(&octets, 8),
            node: word(&octets, 16),
            uid: half(&octets, 24),
            body: octets[40..len].to_vec(),
        };
        let mut state = state.lock().unwrap();
        match request.opcode {
            FORGET | BATCH_FORGET | INTERRUPT => {}
            DESTROY => return,
            opcode if opcode != INIT && (state.stalls)(opcode) => state.held.push(request),
            _ => {
                let answer = state.answer(&request);
                drop(state);
                reply(device, request.unique, answer);
            }
        }
    }
}

impl Fuse {
    /// Mounts it at a directory, with some files; None, with a word, where that cannot be done.
    pub fn mount(at: &Path, files: &[(&str, &[u8])]) -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = match open("/dev/fuse", flags, Mode::empty()) {
            Ok(device) => Arc::new(device),
            Err(error) => {
                eprintln!("skipped: no /dev/fuse here ({error})");
                return None;
            }
        };
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,max_read={WRITE_MAX}",
            device.as_raw_fd()
        );
        let options = CString::new(options).unwrap();
        let none = MountFlags::NODEV | MountFlags::NOSUID;
        if let Err(error) = mount("stalling", at, "fuse.stalling", none, &*options) {
            eprintln!("skipped: FUSE cannot be mounted here ({error})");
            return None;
        }
        let nodes = BTreeMap::from([(1, Node::new(true, 0, 0o777))]);
        let mut state = State {
            nodes,
            stalls: |_| false,
            loses: false,
            fails: |_| false,
            held: vec![],
            log: Log::default(),
        };
        for (name, content) in files {
            let number = state.add(1, name.as_bytes(), Node::new(false, 0, 0o666));
            state.nodes.get_mut(&number).unwrap().content = content.to_vec();
        }
        let state = Arc::new(Mutex::new(state));
        let serving = {
            let (device, state) = (Arc::clone(&device), Arc::clone(&state));
            std::thread::spawn(move || serve(&device, &state))
        };
        Some(Self { mounted: at.to_owned(), device, state, serving: Some(serving) })
    }

    /// Lets requests of these kinds wait from here on.
    pub fn stall(&self, stalls: fn(u32) -> bool) {
        self.state.lock().unwrap().stalls = stalls;
    }

    /// Lets syncs fail, or not.
    pub fn lose(&self, loses: bool) {
        self.state.lock().unwrap().loses = loses;
    }

    /// Lets requests of these kinds fail from here on.
    pub fn fail(&self, fails: fn(u32) -> bool) {
        self.state.lock().unwrap().fails = fails;
    }

    /// Requests that wait.
    pub fn held(&self) -> usize {
        self.state.lock().unwrap().held.len()
    }

    /// Answers all that waits, and lets nothing wait any more.
    pub fn release(&self) {
        let mut state = self.state.lock().unwrap();
        state.stalls = |_| false;
        let held = std::mem::take(&mut state.held);
        let answers: Vec<_> =
            held.iter().map(|request| (request.unique, state.answer(request))).collect();
        drop(state);
        for (unique, answer) in answers {
            reply(&self.device, unique, answer);
        }
    }

    /// Looks at what happened.
    pub fn log<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.state.lock().unwrap().log)
    }

    /// The content of a file in the root.
    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.state.lock().unwrap();
        state.nodes[&state.nodes[&1].names[name.as_bytes()]].content.clone()
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.release();
        // Aborts requests in progress: else the end of this process would wait for itself.
        let _ = unmount(&self.mounted, UnmountFlags::FORCE | UnmountFlags::DETACH);
        // Ends when no file is open any more: processes with an open file may end later.
        drop(self.serving.take());
    }
}
