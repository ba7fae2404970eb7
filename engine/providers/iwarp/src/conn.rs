//! One connection: its socket, its state, and the state shared with the others of its shard.

use crate::{
    IwarpConfig,
    arrival::Arrival,
    crc_losers::CrcLosers,
    sock::{Epoll, Ready},
    stats::IwarpStats,
    transmit::{Fpdu, Stream, Transmit},
};
use stag_pools::{AccessViolation, Windows, prefetch_lines, table::Key};
use stag_protocol::iwarp::{ddp, fpdu, mpa, rdmap, stream::TaggedFault};
use stag_verbs::soft::{Landing, MovedOctets, Receives, SendQueue, Work};
use stag_verbs::{Cause, Event, Layer, Qp, Status, Terminate, Time};
use std::{
    collections::VecDeque,
    mem::offset_of,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};

/// Octets of the buffer for large reads.
pub(crate) const STAGING: usize = 256 << 10;
/// Octets of the shortest FPDU that begins a message: length, untagged header, CRC, a multiple of
/// four.
pub(crate) const SEND_FPDU_MIN: usize = fpdu::fpdu_len(ddp::UNTAGGED_LEN as u16);

const _: () = assert!(STAGING >= 2 * fpdu::FPDU_MAX);

/// State of a connection, named by the event that it awaits.
#[derive(Debug)]
pub(crate) enum IwarpState {
    /// We connect: TCP is not established.
    AwaitTcp { initiator: mpa::Initiator, request: Box<mpa::FrameOctets> },
    /// We connect: the Request is sent.
    AwaitReply { initiator: mpa::Initiator },
    /// A peer connected: its Request is incomplete.
    AwaitRequest,
    /// A peer connected: the engine has to accept or reject. The Request is at the start of the
    /// input.
    AwaitAnswer { request_len: usize },
    /// We accepted: nothing may be sent before the first FPDU (RFC 5044 §7.1.2).
    AwaitFpdu,
    /// We connected to a siw, which may not read its socket yet ([`crate::siw`]): both sides may
    /// send. After `pause` it gets a nudge.
    AwaitSign { pause: Duration },
    /// Both sides may send.
    Established,
    /// The last FPDU is a Terminate that is not sent completely; then the connection ends by this
    /// cause.
    AwaitTerminateSent { cause: Cause },
    /// Ended for the engine. The socket is still read, so that a reset does not overtake sent
    /// octets.
    AwaitEnd,
    /// To be removed.
    Dead,
}

/// State of a connection after MPA set-up.
// In this order, the fields that each short message needs are adjacent; the fields that a Send
// needs are at the beginning of the stream.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct IwarpLink {
    pub(crate) stream: Stream,
    pub(crate) queue: SendQueue,
    /// Check CRCs.
    pub(crate) crc: bool,
    /// A Write or an answer has begun to arrive and is incomplete.
    pub(crate) is_amid_tagged: bool,
    /// Reads still to be limited to end soon after the next header, because an FPDU landed
    /// recently.
    pub(crate) headers_first: u8,
    /// The peer serves at least one Read at a time.
    pub(crate) may_read: bool,
    pub(crate) transmit: Transmit,
    /// The message that is arriving.
    pub(crate) landing: Option<Landing>,
    /// The tagged FPDU whose payload lands as it arrives.
    pub(crate) arrival: Option<Arrival>,
    pub(crate) peer: rdmap::Peer,
    /// The work request that the peer's Terminate refers to.
    pub(crate) blamed: Option<(u64, Status)>,
}

/// One connection.
// In this order, and aligned to a cache line, the fields that each short message needs are
// adjacent.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct IwarpConn {
    pub(crate) qp: Qp,
    pub(crate) socket: OwnedFd,
    /// The kernel accepted less than we have.
    pub(crate) wants_out: bool,
    /// A complete message is in the input and has no receive.
    pub(crate) is_stalled: bool,
    /// It is read directly instead of watched by epoll ([`crate::hot`]).
    pub(crate) is_hot: bool,
    /// It is in the list of connections with unrung work.
    pub(crate) is_posted: bool,
    pub(crate) link: Option<Box<IwarpLink>>,
    /// Octets that arrived and are not consumed: set-up frames, or the start of an FPDU.
    pub(crate) input: LentOctets,
    /// FPDUs that wait for the kernel, complete or in part: copies of short messages, before all
    /// others.
    pub(crate) output: LentOctets,
    /// Octets at the front of the output that the kernel has accepted.
    pub(crate) output_sent: usize,
    pub(crate) state: IwarpState,
    /// There are FPDUs to send that no doorbell announces: an answer, a Terminate, a Read that
    /// waited for the ORD.
    pub(crate) wants_flush: bool,
    /// It is in the list of connections that need a flush.
    pub(crate) is_listed: bool,
    /// The connection was reported to the engine, which gets its events.
    pub(crate) is_known: bool,
    /// The engine has had its last event.
    pub(crate) is_over: bool,
    /// Events of the socket that epoll watches.
    pub(crate) interest: Ready,
    /// Time limit of the awaited event.
    pub(crate) deadline: Option<Time>,
    pub(crate) private_data: Box<[u8]>,
    pub(crate) peer: SocketAddr,
}

/// Octets that arrived and are not consumed, or that wait to be sent. Their memory is lent by the
/// shard from the first octet to the last: idle connections have none.
#[derive(Debug, Default)]
pub(crate) struct LentOctets {
    /// The full buffer, or none.
    pub(crate) octets: Box<[u8]>,
    pub(crate) len: usize,
}

/// Free buffers of the shard: the number that was recently needed at one time.
#[derive(Debug)]
pub(crate) struct Spares {
    /// Octets of each buffer.
    buffer_len: usize,
    free: Vec<Box<[u8]>>,
    /// Buffers that are lent, and their maximum since the surplus was last checked.
    lent: usize,
    most: usize,
    /// Buffers returned since then.
    returns: u32,
}

impl Spares {
    /// Number of returned buffers after which the unneeded ones are freed.
    const EPOCH: u32 = 4_096;
    /// Buffers that are always kept.
    const KEPT: usize = 8;

    /// For at most `connections`, each with one buffer of `buffer_len` octets. The buffers that are
    /// always kept are allocated here, so that no call is the first to need one.
    pub(crate) fn new(connections: usize, buffer_len: usize) -> Self {
        let mut free = Vec::with_capacity(connections);
        free.resize_with(Self::KEPT.min(connections), || vec![0; buffer_len].into());
        Self { buffer_len, free, lent: 0, most: 0, returns: 0 }
    }

    /// Takes an empty buffer back.
    pub(crate) fn take_back(&mut self, lent: &mut LentOctets) {
        if lent.len == 0 && !lent.octets.is_empty() {
            self.free.push(std::mem::take(&mut lent.octets));
            self.lent -= 1;
            self.returns += 1;
            if self.returns == Self::EPOCH {
                self.free_surplus();
            }
        }
    }

    /// Lends a buffer, unless there is one.
    pub(crate) fn lend(&mut self, lent: &mut LentOctets) {
        if lent.octets.is_empty() {
            let buffer_len = self.buffer_len;
            lent.octets = self.free.pop().unwrap_or_else(|| vec![0; buffer_len].into());
            self.lent += 1;
            self.most = self.most.max(self.lent);
        }
    }

    /// A crowd of connections may once have needed many buffers.
    #[cold]
    fn free_surplus(&mut self) {
        self.free.truncate((self.most - self.lent).max(Self::KEPT));
        (self.most, self.returns) = (self.lent, 0);
    }
}

// A set-up frame, and the octets after a Reply, fit in a buffer for the longest FPDU.
const _: () = assert!(mpa::FRAME_MAX < fpdu::FPDU_MAX);

impl LentOctets {
    pub(crate) fn content(&self) -> &[u8] {
        self.octets.get(..self.len).expect("the content is inside the buffer")
    }

    /// Drops the first `count` octets.
    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.len, "only what is there is consumed");
        if count == 0 {
            return; // a move onto itself would still touch every octet
        }
        if count < self.len {
            self.octets.copy_within(count..self.len, 0);
        }
        self.len -= count;
    }
}

impl IwarpConn {
    pub(crate) fn new(qp: Qp, socket: OwnedFd, peer: SocketAddr, state: IwarpState) -> Self {
        Self {
            qp,
            socket,
            peer,
            state,
            is_known: false,
            is_over: false,
            private_data: Box::default(),
            input: LentOctets::default(),
            output: LentOctets::default(),
            output_sent: 0,
            link: None,
            deadline: None,
            interest: Ready::empty(),
            wants_out: false,
            is_stalled: false,
            is_hot: false,
            wants_flush: false,
            is_posted: false,
            is_listed: false,
        }
    }

    /// Prefetches the state that a short message and its answer need, before a system call that
    /// takes as long as the memory access.
    #[inline]
    pub(crate) fn prefetch(&self) {
        const TO_STATE: usize = offset_of!(IwarpConn, wants_flush);
        const BEHIND_STREAM: usize = size_of::<IwarpLink>() - offset_of!(IwarpLink, queue);
        prefetch_lines(self, TO_STATE);
        if let Some(link) = self.link.as_deref() {
            // The rest of the stream is for Reads.
            prefetch_lines(&link.stream, 1);
            prefetch_lines(&link.queue, BEHIND_STREAM);
        }
    }

    /// Records that work was posted, by adding its key to `posted`.
    pub(crate) fn note_posted(&mut self, posted: &mut Vec<Key>) {
        if !self.is_posted {
            self.is_posted = true;
            posted.push(self.qp.0);
        }
    }

    /// Returns true if the engine may still use the connection.
    pub(crate) const fn is_live(&self) -> bool {
        !matches!(self.state, IwarpState::AwaitEnd | IwarpState::Dead)
    }

    /// Returns the limit that the connection counts against.
    pub(crate) const fn standing(&self) -> ConnStanding {
        match self.state {
            IwarpState::AwaitRequest => ConnStanding::HalfOpen,
            IwarpState::AwaitAnswer { .. } => ConnStanding::Waiting,
            IwarpState::AwaitEnd | IwarpState::Dead => ConnStanding::Over,
            _ => ConnStanding::Taken,
        }
    }

    pub(crate) const fn is_established(&self) -> bool {
        self.may_send() || matches!(self.state, IwarpState::AwaitFpdu)
    }

    /// Returns true if MPA set-up is complete and allows sending.
    pub(crate) const fn may_send(&self) -> bool {
        matches!(self.state, IwarpState::AwaitSign { .. } | IwarpState::Established)
    }

    pub(crate) const fn is_terminating(&self) -> bool {
        matches!(self.state, IwarpState::AwaitTerminateSent { .. })
    }

    /// Returns true if the peer is between two messages, so that its end is an orderly one.
    /// Outstanding answers of the peer do not count: they do not show how it left.
    pub(crate) fn is_clean(&self) -> bool {
        let is_between = |link: &IwarpLink| {
            link.landing.is_none() && link.arrival.is_none() && !link.is_amid_tagged
        };
        match self.state {
            IwarpState::AwaitAnswer { .. } => true,
            _ => self.input.len == 0 && self.link.as_deref().is_none_or(is_between),
        }
    }

    /// Returns the events that epoll has to watch for in this state.
    pub(crate) fn wanted(&self) -> Ready {
        match self.state {
            IwarpState::AwaitTcp { .. } => Ready::OUT,
            IwarpState::Dead => Ready::empty(),
            _ => {
                let read = if self.is_stalled || self.is_hot { Ready::empty() } else { Ready::IN };
                let write = if self.wants_out { Ready::OUT } else { Ready::empty() };
                read | write
            }
        }
    }
}

/// Identifies the host of an address, as far as possible: a host on IPv6 has a whole /64.
pub(crate) const fn host(address: SocketAddr) -> u64 {
    match address.ip().to_canonical() {
        IpAddr::V4(address) => address.to_bits() as u64,
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

/// The limit that a connection counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnStanding {
    /// [`IwarpConfig::half_open`](crate::IwarpConfig::half_open).
    HalfOpen,
    /// The connections and the spare ones: the engine has its request.
    Waiting,
    /// [`Limits::connections`](stag_verbs::Limits::connections).
    Taken,
    /// None: it has ended for the engine.
    Over,
}

/// Number of connections of each standing.
#[derive(Debug, Default)]
pub(crate) struct Census {
    pub(crate) half_open: usize,
    pub(crate) waiting: usize,
    pub(crate) taken: usize,
    over: usize,
}

impl Census {
    pub(crate) const fn count(&mut self, standing: ConnStanding) -> &mut usize {
        match standing {
            ConnStanding::HalfOpen => &mut self.half_open,
            ConnStanding::Waiting => &mut self.waiting,
            ConnStanding::Taken => &mut self.taken,
            ConnStanding::Over => &mut self.over,
        }
    }
}

/// State that all connections of a shard share.
#[derive(Debug)]
pub(crate) struct IwarpShared {
    pub(crate) config: IwarpConfig,
    pub(crate) epoll: Epoll,
    pub(crate) census: Census,
    /// Buffers for inputs: each holds the longest FPDU.
    pub(crate) spares: Spares,
    /// Buffers for outputs.
    pub(crate) output_spares: Spares,
    /// Memory for work requests and waiting FPDUs, for connections that need it.
    pub(crate) spare_works: Vec<VecDeque<Work>>,
    pub(crate) spare_fpdus: Vec<VecDeque<Fpdu>>,
    pub(crate) windows: Windows,
    pub(crate) crc_losers: CrcLosers,
    pub(crate) receives: Receives,
    /// [`has_few_receives`], which is checked before each read.
    pub(crate) has_few_receives: bool,
    pub(crate) events: VecDeque<Event>,
    pub(crate) stats: IwarpStats,
    /// Octets read and sent by polls, and by doorbells of more than copied messages.
    pub(crate) moved: MovedOctets,
    /// Buffer for large reads from sockets.
    pub(crate) staging: Box<[u8]>,
    /// Buffer in which FPDUs with markers are assembled.
    pub(crate) scratch: Vec<u8>,
    pub(crate) now: Time,
    /// A receive or a parking place has become free since stalled connections were last checked.
    pub(crate) may_resume: bool,
}

impl IwarpShared {
    pub(crate) fn emit(&mut self, event: Event) {
        // RFC 5040 §8.1.1 [5040-70]: a full event queue affects no other stream
        // RFC 5042 §6.4.3.2, §6.4.6 [5042-16]: a shared completion queue does not overflow
        // RFC 5042 §6.4.3.2, §6.4.6 [5042-19]: a full event queue affects no other stream
        self.events.push_back(event);
    }

    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        // An event is large, and so is an empty option of it: most calls find none.
        let event = self.events.pop_front()?;
        if self.events.is_empty() {
            self.events.clear(); // back to its first places, which are in the cache
        }
        Some(event)
    }
}

/// Converts the protocol's Terminate to the contract's type.
pub(crate) const fn terminate(cause: rdmap::Terminate) -> Terminate {
    let layer = match cause.layer {
        0 => Layer::Rdmap,
        1 => Layer::Ddp,
        _ => Layer::Llp,
    };
    Terminate { layer, etype: cause.error_type, code: cause.code }
}

/// Converts a refused access to the protocol's type.
pub(crate) const fn tagged_fault(refusal: AccessViolation) -> TaggedFault {
    match refusal {
        AccessViolation::InvalidKey => TaggedFault::InvalidStag,
        AccessViolation::OtherScope => TaggedFault::NotAssociated,
        AccessViolation::Access => TaggedFault::Access,
        AccessViolation::Wrap => TaggedFault::Wrap,
        AccessViolation::Bounds => TaggedFault::Bounds,
    }
}

/// Reports completed work, in order.
pub(crate) fn report(link: &mut IwarpLink, qp: Qp, shared: &mut IwarpShared) {
    while let Some(event) = link.queue.poll(qp) {
        shared.emit(event);
    }
    link.queue.give_back(&mut shared.spare_works);
}

/// Returns true if receives and parking places can never outnumber the Sends of the shortest read.
pub(crate) fn has_few_receives(config: &IwarpConfig) -> bool {
    let places = config.limits.receives.saturating_add(config.parking.max(1));
    places <= fpdu::FPDU_MAX / SEND_FPDU_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crowd_needed_is_freed_when_it_is_gone() {
        let mut spares = Spares::new(200, 100);
        let mut crowd: Vec<LentOctets> = (0..100).map(|_| LentOctets::default()).collect();
        crowd.iter_mut().for_each(|lent| spares.lend(lent));
        crowd.iter_mut().for_each(|lent| spares.take_back(lent));
        assert_eq!(spares.free.len(), 100);
        let mut pair = [LentOctets::default(), LentOctets::default()];
        for _ in 0..Spares::EPOCH {
            pair.iter_mut().for_each(|lent| spares.lend(lent));
            pair.iter_mut().for_each(|lent| spares.take_back(lent));
        }
        assert_eq!((spares.free.len(), spares.lent), (Spares::KEPT, 0));
    }
}
