//! Turns: shares of a core, measured in time.
//!
//! Calls cost between a microsecond and milliseconds: equal numbers of calls are no equal shares.
//! While peers of more than one host have work, the time of each call is charged to its connection
//! ([`Meter`]), once for each active connection of the same host. A connection whose account is
//! more than [`LEAD`] above the lowest one waits: its messages stay where they are until the others
//! had as much. While it waits and the core is idle, because the others have not sent their next
//! call yet, the idle time is charged to those others, and after [`GRACE`] they are not waited for.
//!
//! With one host nothing is measured. Tables have a place for each peer, and no call allocates.

use crate::{app::PeerId, core::Core, peer::Peer, peers::Peers};
use stag_protocol::rpcrdma::Side;
use stag_verbs::{PeerAddress, Qp, Time};
use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

/// Time that a connection may be ahead of the one that had least.
const LEAD: u64 = 100_000;
/// Time for which one call has the core, where it can be continued later.
const SLICE: Duration = Duration::from_micros(100);
/// Time after its latest call for which a connection is waited for, if it called again within that
/// time before.
const GRACE: Duration = Duration::from_micros(200);
/// Passes for which it is waited for at least: a pass may take longer than the time.
const GRACE_PASSES: u64 = 4;
/// Time for which calls go on being measured after several hosts had work.
const LINGER: Duration = Duration::from_millis(10);
/// Calls of one connection between two looks at the clock while nothing is measured, and the time
/// of a pass after which its other calls wait for the next one.
const LOOK_EVERY: u32 = 8;
const LONG: Duration = Duration::from_millis(1);
/// The most that one call is charged: more is a pause of the host.
const COST_MAX: Duration = Duration::from_millis(100);

/// A clock that calls are measured by, with the zero of the times given to
/// [`Shard::pass`](crate::Shard::pass).
pub trait Meter: fmt::Debug + Send + Sync {
    /// The time.
    fn now(&self) -> Time;
}

impl Meter for crate::clock::Clock {
    fn now(&self) -> Time {
        Self::now(self)
    }
}

/// A client, as shares are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientHost {
    Ip(IpAddr),
    Process(u32),
    /// A connection of a simulated fabric is its own host.
    Peer(PeerId),
}

impl ClientHost {
    fn of(peer: PeerId, address: PeerAddress) -> Self {
        match address {
            PeerAddress::Ip(at) => Self::Ip(at.ip().to_canonical()),
            PeerAddress::Process { pid, .. } => Self::Process(pid),
            PeerAddress::Simulated => Self::Peer(peer),
        }
    }
}

/// The account of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnAccount {
    /// Nanoseconds that it had, from the base of all accounts.
    spent: u64,
    /// The time and the number of the pass in which it was served last.
    served_at: Time,
    served_in: u64,
    /// The pass in which it last had to wait; 0 once it was served.
    waits_in: u64,
    /// The pass in which a call of it was last put aside by the app; 0 once that goes on.
    aside_in: u64,
    /// It called again soon after its latest reply.
    is_brisk: bool,
    /// The place of its host, while it is among the active ones.
    host: Option<u32>,
}

impl TurnAccount {
    fn is_fresh(&self, now: Time, pass: u64) -> bool {
        now.since(self.served_at) <= GRACE || pass.saturating_sub(self.served_in) <= GRACE_PASSES
    }

    /// Returns true if work of it waits.
    const fn has_work(&self, pass: u64) -> bool {
        let latest = if self.waits_in > self.aside_in { self.waits_in } else { self.aside_in };
        latest > 0 && latest + 1 >= pass
    }

    /// Returns true if a call of it was put aside.
    const fn has_aside(&self, pass: u64) -> bool {
        self.aside_in > 0 && self.aside_in + 1 >= pass
    }
}

/// A connection that had work of late, and the place of its host.
#[derive(Clone, Copy, Debug)]
struct ActivePeer {
    peer: PeerId,
    host: u32,
}

/// A host and the number of its active connections; with none the place is free.
#[derive(Clone, Copy, Debug)]
struct ActiveHost {
    host: ClientHost,
    connections: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Turns {
    meter: Option<Arc<dyn Meter>>,
    active: Vec<ActivePeer>,
    hosts: Vec<ActiveHost>,
    /// Hosts with active connections.
    count: usize,
    /// The connection that was served last while nothing was measured.
    latest: Option<PeerId>,
    /// The same over the fabric, as each message is asked.
    latest_qp: Option<Qp>,
    /// Calls are measured.
    is_metered: bool,
    metered_until: Time,
    /// The lowest account of those that are waited for.
    floor: u64,
    /// Time up to which all is charged.
    mark: Time,
    /// Start of the latest pass that was measured, and whether anything was charged since.
    begun: Time,
    has_served: bool,
    /// The account of calls whose connection is gone.
    orphans: TurnAccount,
}

impl Turns {
    /// Accounts for so many peers.
    pub(crate) fn new(meter: Option<Arc<dyn Meter>>, peers: usize) -> Self {
        Self {
            meter,
            active: Vec::with_capacity(peers),
            hosts: Vec::with_capacity(peers),
            count: 0,
            latest: None,
            latest_qp: None,
            is_metered: false,
            metered_until: Time(0),
            floor: 0,
            mark: Time(0),
            begun: Time(0),
            has_served: false,
            orphans: TurnAccount::default(),
        }
    }

    /// Returns true while calls are measured.
    #[inline(always)]
    pub(crate) const fn are_metered(&self) -> bool {
        self.is_metered
    }

    fn clock(&self) -> Time {
        self.meter.as_ref().map_or(self.mark, |meter| meter.now())
    }

    /// Takes a connection among the active ones.
    fn activate(&mut self, peer: PeerId, address: PeerAddress) -> u32 {
        let host = ClientHost::of(peer, address);
        let is_it = |known: &ActiveHost| known.connections > 0 && known.host == host;
        let free = |known: &ActiveHost| known.connections == 0;
        let place = self.hosts.iter().position(is_it);
        let place = place.or_else(|| self.hosts.iter().position(free)).unwrap_or_else(|| {
            self.hosts.push(ActiveHost { host, connections: 0 });
            self.hosts.len() - 1
        });
        if let Some(known) = self.hosts.get_mut(place) {
            self.count += usize::from(known.connections == 0);
            *known = ActiveHost { host, connections: known.connections + 1 };
        }
        self.active.push(ActivePeer { peer, host: place as u32 });
        place as u32
    }

    fn deactivate(hosts: &mut [ActiveHost], count: &mut usize, host: u32) {
        if let Some(known) = hosts.get_mut(host as usize) {
            known.connections = known.connections.saturating_sub(1);
            *count -= usize::from(known.connections == 0);
        }
    }

    /// Active connections of a host, by each of which its time counts.
    fn weight(&self, host: Option<u32>) -> u64 {
        let known = host.and_then(|host| self.hosts.get(host as usize));
        known.map_or(1, |known| known.connections.max(1).into())
    }

    /// Charges the idle time since the latest measured pass to the connections that it was spent
    /// waiting for.
    fn charge_idle(&mut self, peers: &mut Peers, now: Time, pass: u64) {
        let idle = now.since(self.begun).min(COST_MAX).as_nanos() as u64;
        let awaited = |account: &TurnAccount| {
            account.is_brisk && account.is_fresh(now, pass) && !account.has_work(pass)
        };
        let accounts = |peers: &Peers| {
            let known = |active: &ActivePeer| peers.get(active.peer).map(|entry| entry.turn);
            self.active.iter().filter_map(known).filter(|account| awaited(account)).count() as u64
        };
        let (count, has_waiting) = (accounts(peers), self.has_waiting(peers, pass));
        let Some(each) = idle.checked_div(count).filter(|_| has_waiting) else { return };
        for ActivePeer { peer, .. } in &self.active {
            if let Some(entry) = peers.get_mut(*peer).filter(|entry| awaited(&entry.turn)) {
                entry.turn.spent += each;
            }
        }
    }

    fn has_waiting(&self, peers: &Peers, pass: u64) -> bool {
        let waits = |active: &ActivePeer| {
            peers.get(active.peer).is_some_and(|entry| entry.turn.has_work(pass))
        };
        self.orphans.has_work(pass) || self.active.iter().any(waits)
    }

    /// Forgets connections that have had no work for a while, and finds the lowest account.
    fn review(&mut self, peers: &mut Peers, now: Time, pass: u64) {
        let Self { active, hosts, count, .. } = self;
        let mut floor = None::<u64>;
        active.retain(|active| {
            let account = peers.get_mut(active.peer).map(|entry| &mut entry.turn);
            let Some(account) = account else {
                Self::deactivate(hosts, count, active.host);
                return false;
            };
            let (is_fresh, has_work) = (account.is_fresh(now, pass), account.has_work(pass));
            if has_work || is_fresh && account.is_brisk {
                floor = Some(floor.map_or(account.spent, |least| least.min(account.spent)));
            }
            if !has_work && !is_fresh {
                account.host = None;
                Self::deactivate(hosts, count, active.host);
            }
            has_work || is_fresh
        });
        if self.orphans.has_work(pass) {
            let own = self.orphans.spent;
            floor = Some(floor.map_or(own, |least| least.min(own)));
        }
        // Accounts begin at the floor, so it never falls.
        self.floor = floor.unwrap_or(self.floor).max(self.floor);
    }
}

impl Core {
    /// Notes a call of a peer while nothing is measured: with calls of several hosts, all are
    /// measured from here on.
    #[inline(always)]
    pub(crate) fn note_caller(&mut self, peer: PeerId) {
        if self.turns.latest != Some(peer) {
            self.note_other_caller(peer);
        }
    }

    /// The same of a message of the fabric.
    #[inline(always)]
    pub(crate) fn note_caller_at(&mut self, qp: Qp) {
        if self.turns.latest_qp != Some(qp) {
            self.note_other_caller_at(qp);
        }
    }

    #[inline(never)]
    fn note_other_caller_at(&mut self, qp: Qp) {
        self.turns.latest_qp = Some(qp);
        if let Some(peer) = self.peers.of_qp(qp) {
            self.note_other_caller(peer);
        }
    }

    #[inline(never)]
    fn note_other_caller(&mut self, peer: PeerId) {
        if self.turns.meter.is_none() || self.turns.is_metered {
            return;
        }
        let pass = self.counters.stats.passes.total;
        let former = self.turns.latest.replace(peer);
        if let Some(entry) = former.and_then(|former| self.peers.get_mut(former)) {
            (entry.turn.served_at, entry.turn.served_in) = (self.now, pass);
        }
        self.hear(peer);
        if self.turns.count > 1 {
            self.turns.metered_until = self.now + LINGER;
            self.turns.is_metered = true;
            self.turns.has_served = true;
            self.turns.mark = self.turns.clock();
        }
    }

    /// Notes that a peer has work.
    fn hear(&mut self, peer: PeerId) {
        let (now, pass) = (self.now, self.counters.stats.passes.total);
        let Some(entry) = self.peers.get_mut(peer) else { return };
        let account = &mut entry.turn;
        if account.served_in != pass {
            account.is_brisk = account.host.is_some() && account.is_fresh(now, pass);
        }
        (account.served_at, account.served_in) = (now, pass);
        self.activate(peer);
    }

    /// Takes a peer among the active ones.
    fn activate(&mut self, peer: PeerId) {
        if self.peers.get(peer).is_none_or(|entry| entry.turn.host.is_some()) {
            return;
        }
        if self.turns.active.len() == self.turns.active.capacity() {
            // Some of them are gone: there is a place for each peer.
            let (now, pass) = (self.now, self.counters.stats.passes.total);
            self.turns.review(&mut self.peers, now, pass);
        }
        let Some(entry) = self.peers.get_mut(peer) else { return };
        entry.turn.spent = entry.turn.spent.max(self.turns.floor);
        entry.turn.host = Some(self.turns.activate(peer, entry.address));
    }

    /// Begins a pass in which calls are measured.
    #[inline(never)]
    pub(crate) fn begin_turns(&mut self) {
        let (now, pass) = (self.now, self.counters.stats.passes.total);
        let Self { turns, peers, .. } = self;
        if !std::mem::take(&mut turns.has_served) {
            turns.charge_idle(peers, now, pass);
        }
        turns.review(peers, now, pass);
        if turns.count > 1 || turns.has_waiting(peers, pass) {
            turns.metered_until = now + LINGER;
        } else if now >= turns.metered_until {
            (turns.is_metered, turns.latest, turns.latest_qp) = (false, None, None);
        }
        turns.begun = now;
        turns.mark = turns.clock();
    }

    /// Returns true if calls of this peer that came have to wait: it had more time than others
    /// which have work, or a call of it was put aside and goes first.
    #[inline]
    pub(crate) fn must_wait(&mut self, peer: PeerId) -> bool {
        self.turns.is_metered && self.judge(peer, true)
    }

    /// Returns true if this peer has to wait.
    #[inline(never)]
    fn judge(&mut self, peer: PeerId, is_new: bool) -> bool {
        let (floor, pass) = (self.turns.floor, self.counters.stats.passes.total);
        // One that comes back has the account that it left.
        self.activate(peer);
        let account = match self.peers.get_mut(peer) {
            Some(entry) => &mut entry.turn,
            None => &mut self.turns.orphans,
        };
        let must_wait = account.spent > floor + LEAD || is_new && account.has_aside(pass);
        if must_wait {
            let since = if is_new { &mut account.waits_in } else { &mut account.aside_in };
            *since = pass;
        }
        must_wait
    }

    /// Charges a peer for the time since the latest charge.
    #[inline]
    pub(crate) fn charge(&mut self, peer: PeerId) {
        if self.turns.is_metered {
            self.charge_time(peer);
        }
    }

    #[inline(never)]
    fn charge_time(&mut self, peer: PeerId) {
        let now = self.turns.clock();
        let is_ours = |entry: &Peer| entry.side == Side::Client;
        if self.peers.get(peer).is_some_and(is_ours) {
            // What a server answers us is charged to no client.
            self.turns.mark = now;
            return;
        }
        self.hear(peer);
        let cost = now.since(self.turns.mark).min(COST_MAX).as_nanos() as u64;
        (self.turns.mark, self.turns.has_served) = (now, true);
        let weight = self.turns.weight(self.peers.get(peer).and_then(|entry| entry.turn.host));
        let least = self.turns.floor.saturating_sub(LEAD);
        let account = match self.peers.get_mut(peer) {
            Some(entry) => &mut entry.turn,
            None => &mut self.turns.orphans,
        };
        account.waits_in = 0;
        // Time that was not used is not kept.
        account.spent = account.spent.max(least);
        account.spent = account.spent.saturating_add(cost.saturating_mul(weight));
    }

    /// Returns true if `count` calls of one connection, one after another, have had the core for so
    /// long that others are to be looked at, though none is known to have work. Only one call in
    /// [`LOOK_EVERY`] looks at the clock.
    #[inline]
    pub(crate) fn has_taken_long(&self, count: u32) -> bool {
        count > 0
            && count.is_multiple_of(LOOK_EVERY)
            && self.turns.meter.as_ref().is_some_and(|meter| meter.now().since(self.now) >= LONG)
    }

    /// Returns true once the call that the app looks at had the core for long enough, while others
    /// have work.
    #[inline]
    pub(crate) fn is_turn_over(&self) -> bool {
        self.turns.is_metered && self.turns.clock().since(self.turns.mark) >= SLICE
    }

    /// Notes that the app has put a call of a peer aside, and asks for its turn.
    pub(crate) fn put_aside(&mut self, peer: PeerId) {
        let pass = self.counters.stats.passes.total;
        match self.peers.get_mut(peer) {
            Some(entry) => entry.turn.aside_in = pass,
            None => self.turns.orphans.aside_in = pass,
        }
        (self.has_aside, self.has_worked) = (true, true);
    }

    /// Gives a call that was put aside its turn, if it is due.
    pub(crate) fn take_turn(&mut self, peer: PeerId) -> bool {
        if self.turns.is_metered && self.judge(peer, false) {
            (self.has_aside, self.has_worked) = (true, true);
            return false;
        }
        match self.peers.get_mut(peer) {
            Some(entry) => entry.turn.aside_in = 0,
            None => self.turns.orphans.aside_in = 0,
        }
        self.turns.mark = self.turns.clock();
        true
    }
}
