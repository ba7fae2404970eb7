//! A link between two processes: a socket, a file of each side, and the identity of the peer.
//!
//! The connecting process sends a hello first, and receives one back. A hello carries the file with
//! the sender's ring and, where users trust each other, those of its pools. After that the socket
//! carries wake-ups only; its end is the end of the link.

use crate::{
    ShmAddress,
    config::{RING_MAX, RING_MIN},
    conn::{LinkMessage, ShmShared},
    peer::peer_of,
    ring::RING,
    rings::LinkRings,
    segment::{OwnSegment, PeerSegment},
};
use rustix::{
    event::epoll,
    fs::{Mode, chmod, unlink},
    io::{Errno, IoSlice, IoSliceMut},
    net::{
        self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
        SocketType,
    },
    process::geteuid,
    thread::{MembarrierCommand, membarrier},
};
use stag_pools::{Extent, table::Key};
use stag_verbs::{Cause, FabricFault, Limits, PeerAddress, Time};
use std::{
    collections::VecDeque,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

/// Pools that a peer may map: the shard's three, and its app's.
pub(crate) const POOLS_MAX: usize = 8;
/// Octets of a hello.
const HELLO_LEN: usize = 8 + 4 * 4 + 8 * POOLS_MAX;
const MAGIC: &[u8; 8] = b"stag-shm";
const VERSION: u32 = 2;
/// In the flags of a hello: the sender's pools may be mapped, if the receiver's may.
const TRUST: u32 = 1;
/// In the flags of a hello: membarrier(2) of others works on the sender, so a shard that falls
/// asleep needs no fence from it.
const BARRIER: u32 = 2;
/// Processes that wait to be taken in.
const BACKLOG: i32 = 64;

/// State of a link, named by the event that it awaits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinkStage {
    /// We connect, and the server's queue of newcomers is full.
    AwaitServer,
    /// The peer's hello.
    AwaitHello,
    /// Both sides may send any record.
    Up,
}

/// Memory of ours that the ring names.
#[derive(Debug)]
pub(crate) struct LentRecord {
    /// Start of the record in the ring; `end` is its end.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Connection that the memory belongs to.
    pub(crate) conn: Key,
    /// The Write that completes when the peer has read on; none for an answer, and when its
    /// connection has ended.
    pub(crate) write: Option<u64>,
    /// The Write's memory: it stays what it is also when its connection ends, because the ring
    /// still names it.
    pub(crate) source: Option<Extent>,
}

/// One process, as long as its socket lives.
#[derive(Debug)]
pub(crate) struct ShmLink {
    /// Its place in the table of links.
    pub(crate) place: usize,
    pub(crate) socket: OwnedFd,
    pub(crate) stage: LinkStage,
    pub(crate) peer: PeerAddress,
    /// Address that this side connected to.
    pub(crate) target: Option<ShmAddress>,
    /// Our file, from our hello to the peer's.
    hello: Option<OwnSegment>,
    /// Our ring and the peer's; none before both hellos.
    pub(crate) rings: Option<LinkRings>,
    /// The peer's pools, where it trusts us.
    pub(crate) pools: Vec<PeerSegment>,
    pub(crate) is_trusting: bool,
    /// The peer needs no fence when we sleep.
    pub(crate) has_barrier: bool,
    pub(crate) say: VecDeque<LinkMessage>,
    /// Connections with something to send, the longest waiting first.
    pub(crate) waiting: VecDeque<Key>,
    /// Records whose memory the peer has not read, the oldest first.
    pub(crate) lent: VecDeque<LentRecord>,
    /// Places in the table of connections that are its.
    pub(crate) conns: usize,
    pub(crate) deadline: Option<Time>,
    /// A record is in front that has to wait.
    pub(crate) is_stalled: bool,
    /// A record did not fit: the peer has to read on.
    pub(crate) is_full: bool,
    /// Memory of the peer was read, and it waits for our read position. A peer whose ring is full
    /// gets that after each part that was read anyway.
    pub(crate) is_owing: bool,
}

impl ShmLink {
    const fn new(socket: OwnedFd, peer: PeerAddress, deadline: Time) -> Self {
        Self {
            place: usize::MAX,
            socket,
            stage: LinkStage::AwaitHello,
            peer,
            target: None,
            hello: None,
            rings: None,
            pools: Vec::new(),
            is_trusting: false,
            has_barrier: false,
            say: VecDeque::new(),
            waiting: VecDeque::new(),
            lent: VecDeque::new(),
            conns: 0,
            deadline: Some(deadline),
            is_stalled: false,
            is_full: false,
            is_owing: false,
        }
    }

    /// Begins to connect to the server at `to`.
    pub(crate) fn connect(to: &ShmAddress, shared: &ShmShared) -> Result<Self, FabricFault> {
        let socket = net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(fault)?;
        let deadline = shared.now + shared.config.timeout;
        let nobody = PeerAddress::Process { pid: 0, uid: 0 };
        let mut link = Self::new(socket, nobody, deadline);
        link.target = Some(to.clone());
        link.stage = LinkStage::AwaitServer;
        link.try_server(shared)?;
        Ok(link)
    }

    /// Connects the socket and sends a hello, unless the server's queue is full.
    pub(crate) fn try_server(&mut self, shared: &ShmShared) -> Result<(), FabricFault> {
        let Some(target) = &self.target else { return Ok(()) };
        let address = SocketAddrUnix::new(target.path()).map_err(fault)?;
        match net::connect(&self.socket, &address) {
            Ok(()) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(fault(error)),
        }
        self.peer = peer_of(&self.socket).map_err(fault)?;
        self.say_hello(shared).map_err(fault)?;
        self.stage = LinkStage::AwaitHello;
        Ok(())
    }

    /// A process that connected to us.
    pub(crate) fn accepted(socket: OwnedFd, shared: &ShmShared) -> Result<Self, LinkDenied> {
        let peer = peer_of(&socket).map_err(|_| LinkDenied::Gone)?;
        let PeerAddress::Process { uid, .. } = peer else { return Err(LinkDenied::Gone) };
        if !shared.config.allow.contains(&uid) {
            return Err(LinkDenied::User);
        }
        Ok(Self::new(socket, peer, shared.now + shared.config.timeout))
    }

    /// Returns true if this side allows both sides' pools to be mapped.
    fn may_trust(&self, shared: &ShmShared) -> bool {
        let is_wanted = match &self.target {
            Some(target) => target.is_trusting(),
            None => shared.config.trust,
        };
        let ours = geteuid().as_raw();
        is_wanted && matches!(self.peer, PeerAddress::Process { uid, .. } if uid == ours)
    }

    fn say_hello(&mut self, shared: &ShmShared) -> Result<(), Errno> {
        let own = OwnSegment::new(RING + shared.config.ring_len)?;
        let pools = if self.may_trust(shared) { shared.pools.as_slice() } else { &[] };
        let mut hello = Vec::with_capacity(HELLO_LEN);
        hello.extend_from_slice(MAGIC);
        let trust = if self.may_trust(shared) { TRUST } else { 0 };
        let barrier = if register_barrier() { BARRIER } else { 0 };
        for word in [VERSION, shared.config.ring_len as u32, trust | barrier, pools.len() as u32] {
            hello.extend_from_slice(&word.to_le_bytes());
        }
        let lengths = pools.iter().map(|pool| pool.span().1 as u64).chain(std::iter::repeat(0));
        lengths.take(POOLS_MAX).for_each(|len| hello.extend_from_slice(&len.to_le_bytes()));
        let files: Vec<_> = std::iter::once(own.file())
            .chain(pools.iter().filter_map(|pool| pool.file()))
            .collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(POOLS_MAX + 1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(Errno::NOBUFS);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        net::sendmsg(&self.socket, &[IoSlice::new(&hello)], &mut control, flags)?;
        self.hello = Some(own);
        Ok(())
    }

    /// The socket has something: a hello, a wake-up, or its end.
    pub(crate) fn readable(&mut self, shared: &mut ShmShared) -> Result<(), Cause> {
        // One more than a hello has: a longer one shows.
        let mut octets = [0; HELLO_LEN + 1];
        for _ in 0..READS {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(POOLS_MAX + 1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = net::recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(&mut octets)],
                &mut control,
                flags,
            );
            let len = match received {
                Ok(received) if received.bytes > 0 => received.bytes,
                Ok(_) => return Err(Cause::Fabric(FabricFault::Lost)),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(_) => return Err(Cause::Fabric(FabricFault::Lost)),
            };
            let mut files = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    files.extend(rights);
                }
            }
            if self.stage == LinkStage::Up {
                return Ok(()); // one of many wake-ups: epoll tells of the others
            }
            if self.stage == LinkStage::AwaitHello {
                let hello = octets.get(..len).unwrap_or_default();
                self.hear_hello(hello, &files, shared).ok_or(Cause::Handshake)?;
            }
        }
        Ok(())
    }

    fn hear_hello(
        &mut self,
        hello: &[u8],
        files: &[OwnedFd],
        shared: &mut ShmShared,
    ) -> Option<()> {
        if hello.len() != HELLO_LEN || !hello.starts_with(MAGIC) {
            return None;
        }
        let word = |at: usize| Some(u32::from_le_bytes(*hello.get(at..)?.first_chunk()?));
        let ring_len = usize::try_from(word(12)?).ok()?;
        let (flags, count) = (word(16)?, usize::try_from(word(20)?).ok()?);
        let is_sane = ring_len.is_power_of_two() && (RING_MIN..=RING_MAX).contains(&ring_len);
        if word(8)? != VERSION || !is_sane || count > POOLS_MAX || files.len() != count + 1 {
            return None;
        }
        if self.hello.is_none() {
            self.say_hello(shared).ok()?;
        }
        self.is_trusting = flags & TRUST != 0 && self.may_trust(shared);
        if self.is_trusting {
            // Room for one connection's work in flight. Several connections make it grow, up to
            // the records that the ring holds.
            let Limits { send_queue, read_spans, .. } = shared.config.limits;
            self.lent.reserve(send_queue.saturating_add(read_spans));
        }
        self.has_barrier = flags & BARRIER != 0;
        let (ring, pools) = files.split_first()?;
        let theirs = PeerSegment::new(ring.as_fd(), RING + ring_len).ok()?;
        for (number, file) in pools.iter().enumerate().filter(|_| self.is_trusting) {
            let len = u64::from_le_bytes(*hello.get(24 + 8 * number..)?.first_chunk()?);
            self.pools.push(PeerSegment::new(file.as_fd(), usize::try_from(len).ok()?).ok()?);
        }
        self.rings =
            Some(LinkRings::new(self.hello.take()?, theirs, shared.receives.receive_len()));
        self.stage = LinkStage::Up;
        self.deadline = None;
        shared.stats.links += 1;
        shared.stats.trusting += u64::from(self.is_trusting);
        Some(())
    }

    /// The file that this side writes, once it was made.
    pub(crate) fn own(&self) -> Option<&OwnSegment> {
        self.rings.as_ref().map(LinkRings::own).or(self.hello.as_ref())
    }

    /// Returns true if nothing on this link waits for the peer, nor the peer for this side.
    #[inline]
    pub(crate) fn is_calm(&self) -> bool {
        // One test of all: most of the time none of them holds.
        let kept = self.waiting.len() | self.lent.len() | self.say.len();
        kept | usize::from(self.is_owing) == 0
    }

    /// Returns true if nothing waits for room in our ring.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.waiting.len() | self.say.len() == 0
    }

    /// Publishes our read position to the peer, if it waits for that.
    pub(crate) fn pay(&mut self, shared: &mut ShmShared) {
        if std::mem::take(&mut self.is_owing) {
            self.tell_progress(shared);
        }
    }

    /// Publishes our read position to the peer.
    pub(crate) fn tell_progress(&mut self, shared: &mut ShmShared) {
        if self.rings.as_mut().is_some_and(LinkRings::tell_progress) {
            self.wake(shared);
        }
    }

    /// Ends the peer's sleep, if it sleeps: a record for it was sent, or one of its own was read.
    pub(crate) fn wake(&mut self, shared: &mut ShmShared) {
        if self.rings.as_mut().is_some_and(LinkRings::must_wake) {
            self.end_sleep(shared);
        }
    }

    /// Ends a sleep of the peer that was not ended before. Returns true.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_sleep(&self, shared: &mut ShmShared) -> bool {
        shared.stats.wakeups += 1;
        // A full socket wakes as well; a broken one is found at the next look.
        let _ = net::send(&self.socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        true
    }
}

impl Drop for ShmLink {
    /// A peer that still reads must not find other content where the ring names our memory.
    fn drop(&mut self) {
        let Some(rings) = &self.rings else { return };
        self.lent.iter().for_each(|lent| rings.retract(lent.begin));
    }
}

/// Messages read from a socket at one time; after the hello only wake-ups come.
const READS: usize = 16;

/// Why a process is turned away.
#[derive(Debug)]
pub(crate) enum LinkDenied {
    /// It left.
    Gone,
    /// Its user is not allowed.
    User,
}

/// Lets membarrier(2) of others reach this process.
fn register_barrier() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// Has every registered process see our stores, and finish its own, before we go on.
pub(crate) fn barrier() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// A socket in the file system where processes connect; gone with the value.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    pub(crate) fn new(at: &ShmAddress, allow: &[u32]) -> Result<Self, FabricFault> {
        // A socket that cannot be made is reported with its own error: no peer refused or denied
        // anything.
        let why = |error: Errno| match error {
            Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::PERM => {
                FabricFault::Os(error.raw_os_error())
            }
            other => fault(other),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(why)?;
        let address = SocketAddrUnix::new(at.path()).map_err(why)?;
        match net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_left_behind(at.path(), &address) => {
                unlink(at.path()).map_err(why)?;
                net::bind(&socket, &address).map_err(why)?;
            }
            bound => bound.map_err(why)?,
        }
        let this = Self { socket, path: at.path().to_owned() };
        let is_private = allow.iter().all(|uid| [0, geteuid().as_raw()].contains(uid));
        // Who connects is asked for at accept; the mode lets only those reach it who may be let in.
        let mode = if is_private { Mode::RUSR | Mode::WUSR } else { Mode::from_raw_mode(0o666) };
        chmod(at.path(), mode).map_err(why)?;
        net::listen(&this.socket, BACKLOG).map_err(why)?;
        Ok(this)
    }

    pub(crate) fn accept(&self) -> Result<OwnedFd, Errno> {
        net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = unlink(&self.path);
    }
}

/// Returns true if a socket exists at `path` and no process listens on it any more.
fn is_left_behind(path: &Path, address: &SocketAddrUnix) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| {
        use std::os::unix::fs::FileTypeExt;
        file.file_type().is_socket()
    });
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let asked = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .and_then(|socket| net::connect(&socket, address));
    is_socket && asked == Err(Errno::CONNREFUSED)
}

/// Watches `socket` for input.
pub(crate) fn watch(epoll: &OwnedFd, socket: BorrowedFd<'_>, id: u64) -> Result<(), FabricFault> {
    epoll::add(epoll, socket, epoll::EventData::new_u64(id), epoll::EventFlags::IN).map_err(fault)
}

/// The contract's word for an error of a socket.
pub(crate) fn fault(error: Errno) -> FabricFault {
    match error {
        Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR => FabricFault::Refused,
        Errno::ACCESS | Errno::PERM => FabricFault::Denied,
        Errno::ADDRINUSE => FabricFault::AddressInUse,
        Errno::NAMETOOLONG | Errno::INVAL => FabricFault::BadAddress,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => FabricFault::Exhausted,
        Errno::PIPE | Errno::CONNRESET => FabricFault::Lost,
        other => FabricFault::Os(other.raw_os_error()),
    }
}
