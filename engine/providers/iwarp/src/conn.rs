//! One connection: its socket, its state, and what it shares with the others of its shard.

use crate::{
    config::READS_MAX,
    siw::CrcLosers,
    sock::{Epoll, Ready},
    stats::Stats,
    tx::{Fpdu, Transmit},
};
use stag_pools::{Windows, table::Key};
use stag_protocol::iwarp::{fpdu, mpa, rdmap, stream};
use stag_verbs::soft::{Landing, Receives, SendQueue, Work};
use stag_verbs::{Cause, Event, Layer, Qp, Status, Terminate, Time};
use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};

/// What a connection waits for.
#[derive(Debug)]
pub(crate) enum State {
    /// We connect: TCP is not established.
    AwaitTcp { initiator: mpa::Initiator, request: Box<mpa::FrameOctets> },
    /// We connect: the Request is sent.
    AwaitReply { initiator: mpa::Initiator },
    /// A peer connected: its Request is not whole.
    AwaitRequest,
    /// A peer connected: the engine has to accept or reject. The Request is at the start of the input.
    AwaitAnswer { request_len: usize },
    /// We accepted: nothing may be sent before the first FPDU (RFC 5044 §7.1.2).
    AwaitFpdu,
    /// We connected to a siw, which may not look at its socket yet ([`crate::siw`]): both sides may send. After `pause` it gets a nudge.
    AwaitSign { pause: Duration },
    /// Both sides may send.
    Established,
    /// The last FPDU is a Terminate, which is not sent whole; then it ends by this cause.
    AwaitTerminateSent { cause: Cause },
    /// It ended for the engine. The socket reads on so that no reset overtakes what was sent.
    AwaitEnd,
    /// To be removed.
    Dead,
}

/// The stream with room for as many Reads as we ever negotiate.
pub(crate) type Stream = stream::Stream<{ READS_MAX as usize }, { READS_MAX as usize }>;

/// What a connection has once MPA is through.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: Stream,
    /// Check CRCs.
    pub(crate) crc: bool,
    pub(crate) peer: rdmap::Peer,
    /// The peer serves at least one Read at a time.
    pub(crate) may_read: bool,
    pub(crate) queue: SendQueue,
    pub(crate) transmit: Transmit,
    /// The message that is arriving.
    pub(crate) landing: Option<Landing>,
    /// A Write or an answer has begun to arrive and has not ended.
    pub(crate) is_amid_tagged: bool,
    /// The work request that the peer's Terminate is about.
    pub(crate) blamed: Option<(u64, Status)>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) qp: Qp,
    pub(crate) socket: OwnedFd,
    pub(crate) peer: SocketAddr,
    pub(crate) state: State,
    /// The engine knows this connection and gets its events.
    pub(crate) is_known: bool,
    /// The engine has had its last event.
    pub(crate) is_over: bool,
    pub(crate) private_data: Box<[u8]>,
    /// What arrived and is not used up: set-up frames, or the start of an FPDU.
    pub(crate) input: Lent,
    /// FPDUs that wait for the kernel, whole or from where it stopped: copies of short messages, before all others.
    pub(crate) output: Lent,
    pub(crate) link: Option<Box<Link>>,
    /// When to give up what it waits for.
    pub(crate) deadline: Option<Time>,
    /// What epoll watches it for.
    pub(crate) interest: Ready,
    /// The kernel took less than we have.
    pub(crate) wants_out: bool,
    /// A whole message is in the input and has nowhere to go.
    pub(crate) is_stalled: bool,
    /// It is asked for octets instead of watched for them ([`crate::hot`]).
    pub(crate) is_hot: bool,
    /// Something can be sent that no doorbell announces: an answer, a Terminate, a Read that waited for the ORD.
    pub(crate) wants_flush: bool,
    /// It is in the list of those with unrung work.
    pub(crate) is_posted: bool,
    /// It is in the list of those that want a flush.
    pub(crate) is_listed: bool,
}

/// Octets that arrived and are not used up, or that wait to be sent. Their memory is lent by the shard from the first octet to
/// the last: connections that wait for nothing have none.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// Room for the longest FPDU, or none.
    pub(crate) octets: Box<[u8]>,
    pub(crate) len: usize,
}

/// Memory that no connection has at the moment: as much as was lately needed at one time.
#[derive(Debug)]
pub(crate) struct Spares {
    free: Vec<Box<[u8]>>,
    /// Buffers that connections have, and the most of them since the surplus was looked at.
    lent: usize,
    most: usize,
    /// Buffers that came back since then.
    returns: u32,
}

impl Spares {
    /// Buffers to come back before those are freed that were not needed meanwhile.
    const EPOCH: u32 = 4_096;
    /// Buffers that are kept anyhow.
    const KEPT: usize = 8;

    /// For at most `connections`, each of which has an input and an output.
    pub(crate) fn new(connections: usize) -> Self {
        Self { free: Vec::with_capacity(2 * connections), lent: 0, most: 0, returns: 0 }
    }

    /// Takes memory back that nothing is in.
    pub(crate) fn take_back(&mut self, lent: &mut Lent) {
        if lent.len == 0 && !lent.octets.is_empty() {
            self.free.push(std::mem::take(&mut lent.octets));
            self.lent -= 1;
            self.returns += 1;
            if self.returns == Self::EPOCH {
                self.free_surplus();
            }
        }
    }

    /// Gives memory to what has none.
    pub(crate) fn lend(&mut self, lent: &mut Lent) {
        if lent.octets.is_empty() {
            lent.octets = self.free.pop().unwrap_or_else(|| vec![0; fpdu::FPDU_MAX].into());
            self.lent += 1;
            self.most = self.most.max(self.lent);
        }
    }

    /// A crowd that read nothing may have needed much, once.
    #[cold]
    fn free_surplus(&mut self) {
        self.free.truncate((self.most - self.lent).max(Self::KEPT));
        (self.most, self.returns) = (self.lent, 0);
    }
}

// A set-up frame, and whatever follows a Reply, fit where the longest FPDU fits.
const _: () = assert!(mpa::FRAME_MAX < fpdu::FPDU_MAX);

impl Lent {
    pub(crate) fn content(&self) -> &[u8] {
        self.octets.get(..self.len).expect("the content is inside the buffer")
    }

    /// Forgets the first `count` octets.
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

impl Conn {
    pub(crate) fn new(qp: Qp, socket: OwnedFd, peer: SocketAddr, state: State) -> Self {
        Self {
            qp,
            socket,
            peer,
            state,
            is_known: false,
            is_over: false,
            private_data: Box::default(),
            input: Lent::default(),
            output: Lent::default(),
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

    /// Work was posted to it: its key is in `posted`.
    pub(crate) fn note_posted(&mut self, posted: &mut Vec<Key>) {
        if !self.is_posted {
            self.is_posted = true;
            posted.push(self.qp.0);
        }
    }

    /// Whether the engine may still use it.
    pub(crate) const fn is_live(&self) -> bool {
        !matches!(self.state, State::AwaitEnd | State::Dead)
    }

    /// Which limit it counts against.
    pub(crate) const fn standing(&self) -> Standing {
        match self.state {
            State::AwaitRequest => Standing::HalfOpen,
            State::AwaitAnswer { .. } => Standing::Waiting,
            State::AwaitEnd | State::Dead => Standing::Over,
            _ => Standing::Taken,
        }
    }

    pub(crate) const fn is_established(&self) -> bool {
        self.may_send() || matches!(self.state, State::AwaitFpdu)
    }

    /// Whether MPA is through and lets us send.
    pub(crate) const fn may_send(&self) -> bool {
        matches!(self.state, State::AwaitSign { .. } | State::Established)
    }

    pub(crate) const fn is_terminating(&self) -> bool {
        matches!(self.state, State::AwaitTerminateSent { .. })
    }

    /// Whether the peer stands between two messages: it may leave in order. Whether it owes us answers does not show how
    /// it left.
    pub(crate) fn is_clean(&self) -> bool {
        let is_between = |link: &Link| link.landing.is_none() && !link.is_amid_tagged;
        match self.state {
            State::AwaitAnswer { .. } => true,
            _ => self.input.len == 0 && self.link.as_deref().is_none_or(is_between),
        }
    }

    /// What epoll has to watch it for in its state.
    pub(crate) fn wanted(&self) -> Ready {
        match self.state {
            State::AwaitTcp { .. } => Ready::OUT,
            State::Dead => Ready::empty(),
            _ => {
                let read = if self.is_stalled || self.is_hot { Ready::empty() } else { Ready::IN };
                let write = if self.wants_out { Ready::OUT } else { Ready::empty() };
                read | write
            }
        }
    }
}

/// The host behind an address, as far as an address tells: IPv6 gives a host a whole /64.
pub(crate) const fn host(address: SocketAddr) -> u64 {
    match address.ip().to_canonical() {
        IpAddr::V4(address) => address.to_bits() as u64,
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

/// Which limit a connection counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// [`Config::half_open`](crate::Config::half_open).
    HalfOpen,
    /// The connections and the spare ones: the engine has its request.
    Waiting,
    /// [`Limits::connections`](stag_verbs::Limits::connections).
    Taken,
    /// None: for the engine it has ended.
    Over,
}

/// How many connections there are of each standing.
#[derive(Debug, Default)]
pub(crate) struct Census {
    pub(crate) half_open: usize,
    pub(crate) waiting: usize,
    pub(crate) taken: usize,
    over: usize,
}

impl Census {
    pub(crate) const fn count(&mut self, standing: Standing) -> &mut usize {
        match standing {
            Standing::HalfOpen => &mut self.half_open,
            Standing::Waiting => &mut self.waiting,
            Standing::Taken => &mut self.taken,
            Standing::Over => &mut self.over,
        }
    }
}

/// What all connections of a shard share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: crate::Config,
    pub(crate) epoll: Epoll,
    pub(crate) census: Census,
    pub(crate) spares: Spares,
    /// Memory for work requests and for FPDUs that wait, of connections that have none.
    pub(crate) spare_works: Vec<VecDeque<Work>>,
    pub(crate) spare_fpdus: Vec<VecDeque<Fpdu>>,
    pub(crate) windows: Windows,
    pub(crate) crc_losers: CrcLosers,
    pub(crate) receives: Receives,
    pub(crate) events: VecDeque<Event>,
    pub(crate) stats: Stats,
    /// Where large reads go.
    pub(crate) staging: Box<[u8]>,
    /// Where FPDUs with markers are put together.
    pub(crate) scratch: Vec<u8>,
    pub(crate) now: Time,
    /// A receive or a parking place became free since stalled connections were last looked at.
    pub(crate) may_resume: bool,
}

impl Shared {
    pub(crate) fn emit(&mut self, event: Event) {
        // RFC 5040 §8.1.1 [5040-70], RFC 5042 §6.4.3.2, §6.4.6 [5042-16] [5042-19]
        self.events.push_back(event);
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.events.clear(); // back to its first places, which are in the cache
        }
        event
    }
}

/// The protocol's Terminate in the contract's words.
pub(crate) const fn terminate(cause: rdmap::Terminate) -> Terminate {
    let layer = match cause.layer {
        0 => Layer::Rdmap,
        1 => Layer::Ddp,
        _ => Layer::Llp,
    };
    Terminate { layer, etype: cause.error_type, code: cause.code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crowd_needed_is_freed_when_it_is_gone() {
        let mut spares = Spares::new(200);
        let mut crowd: Vec<Lent> = (0..100).map(|_| Lent::default()).collect();
        crowd.iter_mut().for_each(|lent| spares.lend(lent));
        crowd.iter_mut().for_each(|lent| spares.take_back(lent));
        assert_eq!(spares.free.len(), 100);
        let mut pair = [Lent::default(), Lent::default()];
        for _ in 0..Spares::EPOCH {
            pair.iter_mut().for_each(|lent| spares.lend(lent));
            pair.iter_mut().for_each(|lent| spares.take_back(lent));
        }
        assert_eq!((spares.free.len(), spares.lent), (Spares::KEPT, 0));
    }
}
