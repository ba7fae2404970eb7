//! The provider contract: the operations and promises that the engine requires of a fabric (DESIGN
//! D2, D3).
//!
//! One [`Provider`] serves one shard on one thread. Memory moves into it with a work request and is
//! returned by the event that completes the work. There is no other way to name memory, so safe
//! code cannot invent a buffer. Every provider promises:
//!
//! - Work posted to one [`Qp`] starts in order. Every accepted work request completes exactly once,
//!   in order, even if the connection dies ([`Status::Flushed`]). A [`Refused`] one returns its
//!   token and never completes.
//! - A Send's receive event comes after all earlier RDMA Writes of that sender are placed. A Send
//!   or Write posted after a Read may take effect before the Read's data was fetched.
//! - Completion of a Send or a Write means that its memory may be reused, not that the peer has it;
//!   completion of a Read means that the data is in its sink.
//! - Receives belong to the shard, not to a connection: they stay posted when a connection dies. A
//!   message without a posted receive waits in a bounded place, and other traffic of its connection
//!   continues.
//! - A window is usable by the peer after the doorbell that announces it. It ends in exactly one
//!   of: the peer's Send With Invalidate ([`Event::Received`]), our local invalidation
//!   ([`Memory::Fenced`]), or the end of its connection ([`Event::Unbound`]). All three carry the
//!   proof and the buffer.
//! - The first error on a connection is advisory, and the connection is dead: its pending work
//!   completes flushed, its windows are returned as `Unbound`, and [`Event::Disconnected`] is its
//!   last event, with the cause.
//! - The side that connected sends the first message (iWARP: RFC 5044 §7.1.2); an accepted
//!   connection is established for the acceptor when it can send, which may be only then.
//! - Nothing posted is sent before [`Provider::ring`]; the engine rings at the end of a pass, and
//!   in a long one earlier, too (DESIGN D17).
//!   Ending a connection rings for that connection.
//! - Messages that wait for a receive when their connection ends are dropped. If the peer
//!   invalidates a key whose local invalidation is pending, the connection is ended, so that each
//!   window ends once.
//! - A connect to an address without a listener ends with [`FabricFault::Refused`].
//! - Dropping a provider breaks its connections and returns all memory, windows' buffers included.
//!
//! A provider's life, on a simulated fabric: listen, connect, post, ring, poll.
//!
//! ```
//! use stag_pools::{Class, Pool};
//! use stag_sim::{Fabric, Faults, LIMITS, Port};
//! use stag_verbs::{Event, Provider, Status, Tag};
//!
//! let fabric = Fabric::new(1, Faults::NONE);
//! let (mut server, mut client) = (fabric.end("server", LIMITS), fabric.end("client", LIMITS));
//! let pool = Pool::new(&[Class { slot_len: LIMITS.receive_len, count: 8 }])?;
//! for end in [&mut server, &mut client] {
//!     end.register(&pool)?;
//!     end.post_receive(pool.take(LIMITS.receive_len).expect("memory")).expect("a place");
//! }
//!
//! let at = server.listen(&Port(0)).expect("a free port");
//! client.connect(&at, b"private data").expect("a place for one more connection");
//! let mut heard = None;
//! while heard.is_none() {
//!     let now = fabric.next_due().unwrap_or(fabric.now());
//!     while let Some(event) = server.poll(now) {
//!         match event {
//!             Event::ConnectRequest { qp } => server.accept(qp, b"").expect("it is there"),
//!             Event::Received { buf, .. } => heard = Some(buf),
//!             _ => {}
//!         }
//!     }
//!     while let Some(event) = client.poll(now) {
//!         match event {
//!             Event::Established { qp } => {
//!                 let mut message = pool.take(4).expect("memory");
//!                 message.append(b"call").expect("room");
//!                 client.post_send(qp, Tag(7), message, None).expect("room in the send queue");
//!                 client.ring();
//!             }
//!             Event::Completed { tag, status, .. } => {
//!                 assert_eq!((tag, status), (Tag(7), Status::Success));
//!             }
//!             _ => {}
//!         }
//!     }
//! }
//! assert_eq!(heard.as_deref(), Some(&b"call"[..]));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Not in the contract: immediate data, atomics, type-1 windows.
#![forbid(unsafe_code)]

mod count;
mod event;
mod fault;
mod ip;
mod open;
mod outage;
mod passed;
pub mod soft;
pub mod source;
mod time;

pub use count::Count;
pub use event::Event;
pub use fault::{Cause, FabricFault, Layer, Refusal, Refused, Status, Terminate, VerbFault};
pub use ip::{AddressFault, scoped, socket_address};
pub use open::{Here, LinkSettings, Notation, Open, Settings, Sharing, Steering};
pub use outage::{OutageReport, OutageTable, Outages};
pub use passed::PassedListeners;
pub use time::Time;

use stag_pools::{Access, Buf, Extent, Fenced, Pool, RemoteKey, Scope, Window, table::Key};
use std::{fmt, io, net::SocketAddr, ops::Range, os::fd::BorrowedFd};

/// One connection of a provider. It is never used again after [`Event::Disconnected`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qp(pub Key);

impl Qp {
    /// The scope of this connection's windows.
    pub const fn scope(self) -> Scope {
        Scope(self.0.to_bits())
    }
}

/// Tag by which a poster recognizes its work in a completion. Providers carry it without
/// interpreting it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub u64);

/// Memory of the peer, as it was advertised to us (RFC 8166 §3.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSpan {
    /// The peer's key.
    pub key: RemoteKey,
    /// Opaque to us.
    pub offset: u64,
    /// Octets.
    pub len: u32,
}

/// Limits of a provider, fixed when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum of connections, including those in set-up.
    pub connections: usize,
    /// Maximum of pending work requests per connection.
    pub send_queue: usize,
    /// Receives that the shared queue holds.
    pub receives: usize,
    /// Receives that each connection has for itself, on a device without a shared queue. They are
    /// part of [`receives`](Self::receives), and no peer may be promised more.
    pub receives_each: Option<usize>,
    /// Octets of each receive: the longest message that may arrive.
    pub receive_len: usize,
    /// Maximum of bound windows. Zero on a device without windows: its shard only answers, and its
    /// own calls have to fit inline.
    pub windows: usize,
    /// Remote spans one [`Provider::post_read`] may name.
    pub read_spans: usize,
    /// Octets of private data a connect or accept may carry.
    pub private_data_len: usize,
    /// True if a Send can invalidate a key of the peer (Send With Invalidate).
    pub sends_invalidation: bool,
    /// True if a peer can invalidate windows, and receives name the key that was invalidated.
    pub bears_invalidation: bool,
}

/// Address of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// A host on an IP network.
    Ip(SocketAddr),
    /// A process of this host, as reported by the kernel.
    Process {
        /// Its process ID when it connected.
        pid: u32,
        /// User that the process runs as.
        uid: u32,
    },
    /// The other end of a simulated fabric.
    Simulated,
}

impl PeerAddress {
    /// Returns true if both belong to one host, the unit of fair shares: the same IP address,
    /// whatever the ports, or the same user of this host. Each simulated end is a host of its own.
    pub fn is_of_host(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ip(one), Self::Ip(other)) => {
                one.ip().to_canonical() == other.ip().to_canonical()
            }
            (Self::Process { uid: one, .. }, Self::Process { uid: other, .. }) => one == other,
            _ => false,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Process { pid, uid } => write!(f, "process {pid} of user {uid}"),
            Self::Simulated => f.write_str("sim"),
        }
    }
}

/// The memory that a work request held.
#[derive(Debug)]
pub enum Memory {
    /// An RDMA Write: its extent was returned already.
    Shared,
    /// A Send's message or a Read's sink.
    Buf(Buf),
    /// A local invalidation that succeeded: the window's buffer.
    Fenced(Fenced),
    /// A local invalidation that was flushed proves nothing: the buffer is returned with
    /// [`Event::Unbound`].
    Bound,
}

/// Result of a [look](Provider::look).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A message arrived completely, without an invalidation.
    Message {
        /// From this connection.
        qp: Qp,
        /// Its length: its octets begin at the start of `room`.
        len: usize,
    },
    /// Nothing has happened.
    Nothing,
    /// Any other event, or none: [`Provider::poll`] finds out.
    Other,
}

/// Result of a [look](Provider::look) in two words, so that it is returned in registers. An enum of
/// three would be written to memory and read again; such a read waits until all earlier writes have
/// left the core, including the latest message in a ring of shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    qp: u64,
    /// Length of a message, below 2^32, possibly with [`LAST`](Self::LAST); or another result.
    len: u64,
}

impl Looked {
    const NOTHING: u64 = u64::MAX;
    const OTHER: u64 = u64::MAX - 1;
    /// Set with the length of a message after which the next look finds nothing.
    const LAST: u64 = 1 << 63;

    /// Decodes the result.
    #[inline(always)]
    pub fn look(self) -> Look {
        match self.len {
            Self::NOTHING => Look::Nothing,
            Self::OTHER => Look::Other,
            len => {
                let len = len as u32 as usize;
                Look::Message { qp: Qp(Key::from_bits(self.qp)), len }
            }
        }
    }

    /// A message that is the last one: another look before the next [ring](Provider::ring) would
    /// find nothing and can be skipped.
    #[inline(always)]
    pub fn last_message(qp: Qp, len: usize) -> Self {
        Self { qp: qp.0.to_bits(), len: len as u64 | Self::LAST }
    }

    /// Returns true if another look before the next [ring](Provider::ring) would find nothing. Only
    /// valid for messages.
    #[inline(always)]
    pub const fn is_last(self) -> bool {
        self.len & Self::LAST != 0
    }

    /// Returns true if nothing has happened.
    #[inline(always)]
    pub const fn is_nothing(self) -> bool {
        self.len == Self::NOTHING
    }
}

impl From<Look> for Looked {
    #[inline(always)]
    fn from(look: Look) -> Self {
        match look {
            Look::Message { qp, len } => Self { qp: qp.0.to_bits(), len: len as u64 },
            Look::Nothing => Self { qp: 0, len: Self::NOTHING },
            Look::Other => Self { qp: 0, len: Self::OTHER },
        }
    }
}

impl PartialEq<Look> for Looked {
    fn eq(&self, other: &Look) -> bool {
        self.look() == *other
    }
}

/// A fabric, as used by one shard.
pub trait Provider {
    /// Address to listen on or to connect to.
    type Address: Clone + fmt::Debug + fmt::Display;

    /// Scheme of the provider's addresses, and the name of its counters.
    const SCHEME: &'static str;

    /// Returns the counters of the provider. It may allocate, so it is not called while a call is
    /// handled.
    fn counts(&self) -> Count {
        Count::Group(Vec::new())
    }

    /// Returns the limits of this provider.
    fn limits(&self) -> &Limits;

    /// Returns the host's name of the device that this provider uses. None for a fabric without a
    /// device.
    fn device_name(&self) -> Option<&str> {
        None
    }

    /// Sentences about features that this provider's device lacks, and the consequences, for
    /// administrators who start a server.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns true if pools registered here should be ones that other processes can map
    /// ([`Pool::shared`]).
    fn wants_shared_pools(&self) -> bool {
        false
    }

    /// Registers the memory of `pool`, before the first connection and before any of it is posted:
    /// devices access only registered memory. Fails if there is not enough locked memory, or no
    /// room for another pool.
    fn register(&mut self, pool: &Pool) -> io::Result<()> {
        let _ = pool;
        Ok(())
    }

    /// Listens for peers at `at`; returns the address in use (a port of 0 is chosen).
    fn listen(&mut self, at: &Self::Address) -> Result<Self::Address, FabricFault>;

    /// Accepts no more peers. Connections stay.
    fn stop_listening(&mut self);

    /// Starts to connect. `Established` or `Disconnected` follows. Fails with
    /// [`FabricFault::Exhausted`] at [`Limits::connections`], and if there is more private data
    /// than [`Limits::private_data_len`].
    fn connect(&mut self, to: &Self::Address, private_data: &[u8]) -> Result<Qp, FabricFault>;

    /// Accepts the peer of a connect request. `Established` or `Disconnected` follows.
    /// [`Refusal::Malformed`] if the private data is too long (the request can still be answered)
    /// and if there is no request to answer. [`Refusal::Gone`] if the connection has ended after
    /// its request, and if there is no place for it.
    fn accept(&mut self, qp: Qp, private_data: &[u8]) -> Result<(), Refusal>;

    /// Rejects the peer of a connect request. `Disconnected` follows. Private data beyond the limit
    /// is cut off; without a request to answer nothing happens.
    fn reject(&mut self, qp: Qp, private_data: &[u8]);

    /// Ends a connection. Work posted before is sent if that is possible without waiting for the
    /// peer. `Disconnected` follows.
    fn disconnect(&mut self, qp: Qp);

    /// Private data that the peer sent during connection set-up; empty before they arrive, and if
    /// the peer sent none. Zeros follow on fabrics whose set-up messages have fields of fixed size
    /// (InfiniBand). After `Disconnected` the data can be read until the next poll, because a
    /// rejection gives its reason there.
    fn private_data(&self, qp: Qp) -> &[u8];

    /// Returns the address of the peer while the connection exists.
    fn peer_address(&self, qp: Qp) -> Option<PeerAddress>;

    /// Posts one more buffer to the shared receive queue; without a shared queue, to the connection
    /// that has lacked one for longest, or a later one. Its content is replaced by the message,
    /// from the first octet on. The buffer is returned if the queue is full or if it is shorter
    /// than [`Limits::receive_len`].
    fn post_receive(&mut self, buf: Buf) -> Result<(), Buf>;

    /// Receives that wait for a message.
    fn receives_posted(&self) -> usize;

    /// Exposes `span` of the content of `buf` to the peer of `qp`, before everything posted later.
    /// It has no completion of its own.
    fn bind(
        &mut self,
        qp: Qp,
        buf: Buf,
        span: Range<usize>,
        access: Access,
    ) -> Result<Window, Refused<Buf>>;

    /// Sends the content of `message`, and invalidates the peer's key `invalidate` there.
    fn post_send(
        &mut self,
        qp: Qp,
        tag: Tag,
        message: Buf,
        invalidate: Option<RemoteKey>,
    ) -> Result<(), Refused<Buf>>;

    /// Sends a copy of `message`, as [`post_send`](Self::post_send) would, if that is possible at
    /// once: no earlier work is pending on the connection, there is room, and the message is short
    /// enough to be copied (inline data in verbs). Returns true if it was accepted: it is sent with
    /// the next [`ring`](Self::ring) at the latest, and there is no completion. Returns false if
    /// nothing was done, for whatever reason: posting it reports that reason.
    fn send_inline(&mut self, qp: Qp, message: &[u8], invalidate: Option<RemoteKey>) -> bool {
        let _ = (qp, message, invalidate);
        false
    }

    /// Writes `source` to the peer's memory. `to.len` is the length of `source`. Consecutive Writes
    /// to adjacent targets under one key may travel as one message: each still completes by itself,
    /// but if the peer refuses one of them, the others need not be in place.
    fn post_write(
        &mut self,
        qp: Qp,
        tag: Tag,
        source: Extent,
        to: RemoteSpan,
    ) -> Result<(), Refused<Extent>>;

    /// Reads the spans `from`, one after the other, into the content of `sink` from octet `at` on.
    /// One completion for all. Refused if the content of `sink` is too short or `from` has more
    /// than [`Limits::read_spans`] elements.
    fn post_read(
        &mut self,
        qp: Qp,
        tag: Tag,
        sink: Buf,
        at: usize,
        from: &[RemoteSpan],
    ) -> Result<(), Refused<Buf>>;

    /// Invalidates our own window `key`. Completes with [`Memory::Fenced`].
    fn post_local_invalidate(&mut self, qp: Qp, tag: Tag, key: RemoteKey) -> Result<(), Refusal>;

    /// Work requests that can still be posted to `qp`; 0 if it is not established.
    fn send_room(&self, qp: Qp) -> usize;

    /// Rings the doorbells of everything posted since the last time.
    fn ring(&mut self);

    /// Looks for the most frequent event: a plain message. Its octets are copied to `room`, which
    /// is at least [`Limits::receive_len`] octets long, and take no receive. A message is reported
    /// in this way only while a receive is posted, so that the caller can take that one to keep it
    /// ([`take_receive`](Self::take_receive)). Each event is reported once, by this or by
    /// [`poll`](Self::poll), and in the same order. A look counts as a poll for everything that
    /// lasts until the next poll. Never waits. `now` never goes back.
    fn look(&mut self, now: Time, room: &mut [u8]) -> Looked {
        let _ = (now, room);
        Look::Other.into()
    }

    /// Takes an empty receive back from the queue, to keep a message that a [look](Self::look)
    /// reported.
    fn take_receive(&mut self) -> Option<Buf> {
        None
    }

    /// The next event, if there is one. Never waits. `now` never goes back.
    fn poll(&mut self, now: Time) -> Option<Event>;

    /// Makes [`wait_fd`](Self::wait_fd) become readable at the next event. Returns false if there
    /// is one already: poll once more instead of sleeping.
    fn arm(&mut self) -> bool;

    /// Readable, after [`arm`](Self::arm), when there is an event to poll. None: this provider does
    /// not support sleeping.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the time of the next poll if nothing arrives before: the earliest of this provider's
    /// own timers.
    fn wake_at(&self) -> Option<Time>;

    /// Passes the octets of data to `each` that this process has moved for a connection since the
    /// last call: copied, sent or placed, by doorbells and polls. A shard shares out time by these
    /// numbers, so those of short messages may be missing. Nothing if a device moves the data.
    fn take_moved(&mut self, each: &mut dyn FnMut(Qp, u64)) {
        let _ = each;
    }
}
