//! A process that shares memory with an end of ours: any content of its ring.
//!
//! The ring is filled before the other end sees it, so nothing has to be mapped here: the parts of
//! an input are records, placed where the reader looks next.

use std::{
    cell::Cell, fs::File, mem::MaybeUninit, os::unix::fs::FileExt, path::Path, time::Duration,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::IoSlice,
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
        SocketFlags, SocketType, accept_with, bind, connect, listen, sendmsg, socket_with,
    },
};
use stag_pools::{Access, Buf, Class, Pool, RemoteKey, Scope, Window, Windows};
use stag_shm::{Shm, ShmAddress, ShmConfig};
use stag_verbs::{Event, Limits, Memory, Provider, Qp, RemoteSpan, Status, Tag, Time};

use super::InputVerdict;
use crate::mutate::parts;

const LIMITS: Limits = Limits {
    connections: 4,
    send_queue: 16,
    receives: 8,
    receives_each: None,
    receive_len: 4096,
    windows: 8,
    read_spans: 4,
    private_data_len: 64,
    sends_invalidation: true,
    bears_invalidation: true,
};
const SEED: [u8; 32] = [7; 32];
/// Octets of the peer's ring, and where it begins.
const RING_LEN: usize = 64 << 10;
const RING: usize = 4096;
const LINE: usize = 64;
/// Octets of a buffer, and which of them a window opens.
const LEN: usize = 4096;
const SPAN: std::ops::Range<usize> = 1024..3072;
const GUARD: u8 = 0xa5;
/// Octets of the pool that the peer lends.
const LENT: usize = 64 << 10;

/// In the first octet of an input: we connect to the peer; pools are mapped.
pub const WE_CONNECT: u8 = 1;
/// Pools are mapped.
pub const TRUST: u8 = 2;

/// The two windows that a connection opens first: one to write, one to read.
pub fn windows() -> [Window; 2] {
    let pool = Pool::new(&[Class { slot_len: LEN, count: 2 }]).expect("two pages");
    let mut windows = Windows::new(LIMITS.windows, SEED);
    [Access::RemoteWrite, Access::RemoteRead].map(|access| {
        let exposed = guarded(&pool).expose(SPAN, access);
        let window = windows.bind(Scope(0), exposed).expect("there is room");
        drop(windows.invalidate(Scope(0), window.key).map(|fenced| fenced.into_buf()));
        window
    })
}

fn guarded(pool: &Pool) -> Buf {
    let mut buf = pool.take(LEN).expect("the pool is large enough");
    buf.extend(LEN);
    buf.fill(GUARD);
    buf
}

/// A file that is not cut or changed from here on.
fn file(octets: &[u8]) -> OwnedFd {
    let file = File::from(
        memfd_create("fuzz", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .expect("a memory file"),
    );
    file.write_all_at(octets, 0).expect("memory");
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE)
        .expect("it is ours");
    file.into()
}

/// The peer's file: how far it read, whether it sleeps, and its ring.
fn ring<'a>(words: &[u8], records: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut memory = vec![0; RING + RING_LEN];
    for (at, word) in [64, 128].into_iter().zip(words.chunks(8)) {
        memory[at..at + word.len()].copy_from_slice(word);
    }
    let mut position = 0;
    for record in records {
        // Its kind, how many octets follow, for which connection: where the reader expects the next
        // one is said there.
        let Some((word, octets)) = record.split_first_chunk::<8>() else { continue };
        let claimed = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) as usize >> 8;
        let len = (8 + claimed).next_multiple_of(LINE);
        if position + len > RING_LEN {
            break;
        }
        let at = RING + position;
        memory[at..at + 8].copy_from_slice(word);
        let fits = octets.len().min(len - 8);
        memory[at + 8..at + 8 + fits].copy_from_slice(&octets[..fits]);
        position += len;
    }
    memory
}

fn hello(socket: BorrowedFd<'_>, ring: &OwnedFd, pool: Option<&OwnedFd>) {
    let mut octets = b"stag-shm".to_vec();
    for word in [2, RING_LEN as u32, 2 | u32::from(pool.is_some()), u32::from(pool.is_some())] {
        octets.extend(word.to_le_bytes());
    }
    octets.extend((LENT as u64).to_le_bytes());
    octets.resize(8 + 16 + 64, 0);
    let files: Vec<_> = [Some(ring), pool].into_iter().flatten().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(socket, &[IoSlice::new(&octets)], &mut control, SendFlags::NOSIGNAL)
        .expect("it was just connected");
}

/// Our end, and what became of it.
struct ShmEnd {
    shm: Shm,
    pool: Pool,
    now: Time,
    posted: u32,
    completed: u32,
    succeeded: u32,
    received: u32,
    connections: u32,
    causes: String,
}

impl ShmEnd {
    fn new(trust: bool) -> Self {
        let classes = [Class { slot_len: LEN, count: 64 }];
        let pool =
            if trust { Pool::shared(&classes) } else { Pool::new(&classes) }.expect("some pages");
        let config = ShmConfig {
            trust,
            ring_len: RING_LEN,
            parking: 4,
            ..ShmConfig::new(LIMITS, SEED, Time(0))
        };
        let mut shm = Shm::new(config).expect("some pages and descriptors");
        shm.register(&pool).expect("it is the first one");
        for _ in 0..4 {
            shm.post_receive(pool.take(LEN).expect("a buffer")).expect("there is room");
        }
        let causes = String::new();
        Self {
            shm,
            pool,
            now: Time(0),
            posted: 0,
            completed: 0,
            succeeded: 0,
            received: 0,
            connections: 0,
            causes,
        }
    }

    /// Opens two windows, and asks, writes and says something.
    fn use_it(&mut self, qp: Qp) {
        self.connections += 1;
        for access in [Access::RemoteWrite, Access::RemoteRead] {
            let Some(buf) = self.pool.take(LEN).filter(|_| self.pool.available(LEN) > 16) else {
                return;
            };
            drop(buf);
            if let Ok(window) = self.shm.bind(qp, guarded(&self.pool), SPAN, access)
                && self.connections > 2
            {
                let done = self.shm.post_local_invalidate(qp, Tag(9), window.key);
                self.posted += u32::from(done.is_ok());
            }
        }
        let span = RemoteSpan { key: RemoteKey(5), offset: 0, len: 2048 };
        let read = self.shm.post_read(
            qp,
            Tag(1),
            guarded(&self.pool),
            0,
            &[span, RemoteSpan { len: 16, ..span }],
        );
        let write =
            self.shm.post_write(qp, Tag(2), guarded(&self.pool).freeze().slice(0..2048), span);
        let send = self.shm.post_send(qp, Tag(3), guarded(&self.pool), None);
        self.posted += u32::from(read.is_ok()) + u32::from(write.is_ok()) + u32::from(send.is_ok());
    }

    fn check(buf: &[u8]) {
        let mut outside = buf[..SPAN.start].iter().chain(&buf[SPAN.end..]);
        assert!(outside.all(|octet| *octet == GUARD), "an octet outside of the window changed");
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::ConnectRequest { qp } => {
                self.shm.accept(qp, b"yes").expect("it was just asked for")
            }
            Event::Established { qp } => self.use_it(qp),
            Event::Received { buf, invalidated, .. } => {
                self.received += 1;
                invalidated.into_iter().for_each(|fenced| Self::check(&fenced.into_buf()));
                // Not every receive comes back at once.
                if !self.received.is_multiple_of(8) {
                    let _ = self.shm.post_receive(buf);
                }
            }
            Event::Unbound { fenced, .. } => Self::check(&fenced.into_buf()),
            Event::Completed { status, memory, .. } => {
                self.completed += 1;
                self.succeeded += u32::from(status == Status::Success);
                if let Memory::Fenced(fenced) = memory {
                    Self::check(&fenced.into_buf());
                }
            }
            Event::Disconnected { cause, .. } => self.causes += &format!("{cause:?} "),
        }
    }

    fn run(&mut self, polls: u32) {
        for _ in 0..polls {
            self.now = self.now + Duration::from_millis(2);
            while let Some(event) = self.shm.poll(self.now) {
                self.handle(event);
            }
            self.shm.ring();
        }
    }
}

thread_local! {
    static INPUTS: Cell<u64> = const { Cell::new(0) };
}

/// A socket to the end at `path`, or from it.
fn meet(end: &mut ShmEnd, path: &Path, we_connect: bool, trust: bool) -> OwnedFd {
    let address = ShmAddress::new(path).expect("a temporary directory has a short name");
    let address = if trust { address.trusting() } else { address };
    let at = SocketAddrUnix::new(path).expect("as above");
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a socket");
    if !we_connect {
        end.shm.listen(&address).expect("nobody listens there");
        connect(&socket, &at).expect("it listens");
        return socket;
    }
    bind(&socket, &at).expect("nobody listens there");
    listen(&socket, 1).expect("it is bound");
    end.shm.connect(&address, b"").expect("it listens");
    let accepted = accept_with(&socket, SocketFlags::CLOEXEC).expect("it has connected");
    let _ = std::fs::remove_file(path);
    accepted
}

/// A flag octet with two words, then records: their word, head and body.
pub fn link(input: &[u8]) -> InputVerdict {
    let mut parts = parts(input);
    let first = parts.next().unwrap_or_default();
    let (flags, words) = first.split_first().map_or((0, first), |(flags, words)| (*flags, words));
    let (we_connect, trust) = (flags & WE_CONNECT != 0, flags & TRUST != 0);
    let number = INPUTS.replace(INPUTS.get() + 1);
    let thread = format!("{:?}", std::thread::current().id());
    let name =
        format!("stag-fuzz-{}-{}-{number}", std::process::id(), thread.replace(['(', ')'], ""));
    let mut end = ShmEnd::new(trust);
    let socket = meet(&mut end, &std::env::temp_dir().join(name), we_connect, trust);
    let memory = file(&ring(words, parts));
    let pool = trust.then(|| file(&[0x77; LENT]));
    hello(socket.as_fd(), &memory, pool.as_ref());
    end.run(12);
    drop(socket);
    end.run(4);
    assert_eq!((end.shm.links(), end.shm.connections(), end.shm.windows_bound()), (0, 0, 0));
    assert_eq!(end.completed, end.posted, "work ends once");
    assert_eq!(end.pool.taken(), end.shm.receives_posted(), "everything came back");
    let stats = *end.shm.stats();
    drop(end.shm);
    assert_eq!(end.pool.taken(), 0);
    let outcome = (end.causes, end.received.min(3), end.succeeded.min(4), end.connections.min(3));
    if end.received + end.succeeded > 0 || stats.octets_out + stats.octets_fetched > 0 {
        InputVerdict::accepted(outcome)
    } else {
        InputVerdict::Refused(super::class(outcome))
    }
}
