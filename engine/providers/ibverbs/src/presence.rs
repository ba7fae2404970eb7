//! A device that goes and comes back.
//!
//! A driver resets its device, an adapter is unplugged, `rdma link delete` is typed. The
//! connection manager reports a removal for every identifier, or the device reports that it has
//! failed. Then all connections end with that cause, and everything that the device lent goes back
//! at once, its context last: until then the kernel may hold the removal up. Receives stay here
//! with their memory. From then on the device is looked for by the address that it had, and when it
//! is there, memory is registered, receives are posted and addresses are listened at anew. The
//! engine sees connections end and peers that are not reached; nothing else changes for it.
//!
//! A port that is down, and an address that moved away, end no connection by themselves: they are
//! reported, and looked at until they are over.

use crate::{
    Ibverbs, IbverbsConfig, Through,
    close::lose,
    cm::WATCH,
    config::fit,
    device::{Completions, Device, Domain, MemoryRegion, Queues, SharedQueue},
    exposures::{Exposures, OpenRegions},
    memory,
    rdmacm::{self, FoundDevice, Id},
    sinks::ReadSinks,
    windows::DeviceWindows,
};
use rustix::event::epoll;
use stag_pools::Pool;
use stag_verbs::{Qp, Time};
use std::{
    io,
    net::SocketAddr,
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};

/// Pause between two looks for a missing device, port or address. It is short compared to the time
/// in which a driver resets its device, and long compared to the calls of a look.
const RETRY: Duration = Duration::from_millis(100);
/// Time that the way to a peer may take to be found, at the start and at a look.
pub(crate) const WAY_AT_START: Duration = Duration::from_secs(2);

/// Objects that a device lends a shard, other than its memory and its connections.
pub(crate) struct Lent {
    queues: Queues,
    exposures: Option<Exposures>,
    sinks: Option<ReadSinks>,
}

impl Lent {
    /// Makes them on `device`, for a configuration that fits it.
    pub(crate) fn new(
        device: &Arc<Device>,
        config: &IbverbsConfig,
        depth: usize,
    ) -> io::Result<Self> {
        let limits = config.limits;
        let domain = Domain::new(device)?;
        let completions = Completions::new(device, limits.receives + limits.connections * depth)?;
        let receives = match limits.receives_each {
            None => Some(SharedQueue::new(&domain, limits.receives)?),
            Some(_) => None,
        };
        let exposures = match (device.about.has_windows, limits.windows) {
            (true, count) => Some(Exposures::Windows(DeviceWindows::new(&domain, count)?)),
            (false, 0) => None,
            (false, count) => Some(Exposures::Regions(OpenRegions::new(&domain, count))),
        };
        let wants_sinks = device.about.wants_sinks || config.always_sinks;
        let sinks = if wants_sinks { Some(ReadSinks::new(&domain, &config.sinks)?) } else { None };
        let queues = Queues {
            domain,
            completions,
            receives,
            receives_each: limits.receives_each.unwrap_or(0),
            depth,
            inline_max: Arc::new(AtomicU32::new(config.inline_max)),
        };
        Ok(Self { queues, exposures, sinks })
    }
}

/// State of the device as the connection manager and the device report it.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// An identifier bound to the device: its removal is reported also to a shard that has no
    /// other one.
    watch: Option<Id>,
    is_port_down: bool,
    /// The time of the next look for what is missing.
    next: Option<Time>,
    /// The reason that was reported.
    outage: Option<String>,
}

impl Presence {
    /// The time of the next look, if something is missing.
    pub(crate) const fn next(&self) -> Option<Time> {
        self.next
    }
}

impl Ibverbs {
    /// Registers for the removal of the device that was found. Returns the device.
    pub(crate) fn watch(&mut self, found: FoundDevice) -> io::Result<Arc<Device>> {
        let FoundDevice { device, id } = found;
        self.presence.watch = match id {
            Some(mut id) => {
                // SAFETY: its channel is of this function's own until the next line.
                unsafe { id.set_context(WATCH) };
                id.migrate(&self.shared.channel)?;
                Some(id)
            }
            None => None,
        };
        Ok(device)
    }

    /// Uses the device with the objects that it lent.
    pub(crate) fn take_up(&mut self, device: &Device, lent: Lent) -> io::Result<()> {
        for fd in [lent.queues.completions.fd(), device.fd()] {
            epoll::add(&self.epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        self.shared.about = device.about.clone();
        (self.shared.exposures, self.shared.sinks) = (lent.exposures, lent.sinks);
        self.shared.queues = Some(lent.queues);
        Ok(())
    }

    /// Makes memory of `pool` known to the device.
    pub(crate) fn add_region(&mut self, pool: &Pool) -> io::Result<()> {
        let Some(queues) = &self.shared.queues else { return Ok(()) };
        let (_, len) = pool.span();
        memory::check(len)?;
        let region = MemoryRegion::new(&queues.domain, pool)
            .map_err(|error| memory::explain(error, len))
            .map_err(|error| queues.domain.device.failed("ibv_reg_mr", error))?;
        self.shared.regions.push(region);
        Ok(())
    }

    /// The device was removed: the kernel may wait until no process has it open.
    pub(crate) fn lose_removed(&mut self) {
        if let Some(watch) = self.presence.watch.take() {
            watch.let_device_go();
        }
        self.lose();
    }

    /// The device is lost: ends its connections, and releases its objects.
    pub(crate) fn lose(&mut self) {
        if std::mem::replace(&mut self.shared.is_lost, true) {
            return;
        }
        self.shared.stats.device_losses += 1;
        if let Some(inbox) = &self.inbox {
            inbox.set_device(None);
            while let Some(request) = inbox.take(0) {
                self.shared.errands.reject(Arc::new(request.id), Vec::new());
            }
        }
        // The kernel waits for identifiers, too.
        self.presence.watch = None;
        self.listeners.iter_mut().for_each(|listener| listener.lose());
        self.leave_parting();
        for place in 0..self.conns.capacity() {
            let Some(key) = self.conns.key_at(place) else { continue };
            self.with(Qp(key), lose);
        }
        // What has arrived is handled first.
        self.shared.any_flushed = true;
        self.presence.next = Some(self.shared.now);
    }

    /// Gives everything back that the device lent, once no connection needs it.
    pub(crate) fn give_back(&mut self) {
        for place in 0..self.conns.capacity() {
            let Some(key) = self.conns.key_at(place) else { continue };
            if self.conns.get_mut(key).is_some_and(|conn| conn.pair.is_some() || conn.errands > 0) {
                return;
            }
        }
        self.leave_parting();
        (self.shared.exposures, self.shared.sinks) = (None, None);
        // Queues go before the memory that they may reach.
        self.shared.queues = None;
        self.shared.regions.clear();
    }

    /// The device, or a port of it, lost or got an address.
    pub(crate) fn look_at_address(&mut self) {
        self.shared.stats.port_events += 1;
        self.presence.next = Some(self.shared.now);
    }

    /// A port of the device went down, or is back.
    pub(crate) fn change_port(&mut self, number: u64, is_down: bool) {
        self.shared.stats.port_events += 1;
        let own = self.presence.watch.as_ref().map_or(0, Id::port_number);
        if own == 0 || u64::from(own) == number {
            self.presence.is_port_down = is_down;
        }
        self.presence.next = Some(self.shared.now);
    }

    /// Looks for the missing device, port or address, when it is time for that, and reports the
    /// result.
    pub(crate) fn mend(&mut self) {
        if self.presence.next.is_none_or(|next| next > self.shared.now) {
            return;
        }
        let outage = self.try_to_mend().err();
        self.presence.next = outage.as_ref().map(|_| self.shared.now + RETRY);
        if self.presence.outage != outage {
            self.shared.config.outage.set(outage.clone());
            self.presence.outage = outage;
        }
    }

    /// Takes the device up again, listens where that ended, and looks at port and address. An
    /// error is the sentence about what is missing.
    fn try_to_mend(&mut self) -> Result<(), String> {
        if self.shared.is_lost {
            let name = &self.about().name;
            let gone = format!("{name} is gone: it was removed, or its driver resets it");
            if self.shared.queues.is_some() {
                return Err(gone);
            }
            if let Err(error) = self.take_up_again() {
                // It is here, and something of it is missing.
                let is_here = error.kind() != io::ErrorKind::NotFound;
                return Err(if is_here { format!("{gone}: {error}") } else { gone });
            }
        }
        let name = self.about().name.clone();
        if let Through::Local(ip) = self.shared.config.through
            && !ip.is_unspecified()
        {
            let id = Id::new(&self.shared.channel, WATCH).and_then(|id| {
                id.bind(SocketAddr::new(ip, 0))?;
                Ok(id)
            });
            match id {
                Ok(id) if id.device_name().is_some_and(|of| of == name) => {
                    self.presence.watch = Some(id);
                }
                _ => return Err(format!("{ip} is no address of {name} at the moment")),
            }
        }
        self.hold_again().map_err(|(at, fault)| format!("cannot listen at {at}: {fault}"))?;
        match self.presence.is_port_down {
            true => Err(format!("the port of {name} is down")),
            false => Ok(()),
        }
    }

    /// Opens the device that is at the address of the lost one, if it can do as much.
    fn take_up_again(&mut self) -> io::Result<()> {
        let library = self.shared.channel.library();
        let found = rdmacm::device_through(library, self.shared.config.through, RETRY)?;
        // It may be another device, and of no use: its removal must not wait for this shard.
        let device = self.watch(found)?;
        let mut config = self.shared.config.clone();
        let depth = fit(&mut config, &device.about)?;
        // It may have refused one, whatever it says.
        config.limits.sends_invalidation &= self.shared.config.limits.sends_invalidation;
        if (config.limits, depth) != (self.shared.config.limits, self.shared.depth) {
            let name = &device.about.name;
            return Err(io::Error::other(format!("{name} can do less than the device before")));
        }
        let lent = Lent::new(&device, &config, depth)?;
        let taken = self.take_up(&device, lent).and_then(|()| {
            self.shared.pools.clone().iter().try_for_each(|pool| self.add_region(pool))
        });
        if taken.is_err() {
            self.give_back();
            return taken;
        }
        self.post_again();
        self.shared.is_lost = false;
        self.presence.is_port_down = false;
        if let Some(inbox) = &self.inbox {
            inbox.set_device(Some(&self.shared.about.name));
        }
        Ok(())
    }

    /// Hands all receives to the queue that connections share; where they share none, receives
    /// wait for connections.
    fn post_again(&mut self) {
        self.shared.receives.owed.clear();
        if self.shared.has_own_receives() {
            return;
        }
        self.shared.receives.added = self.shared.receives.numbers();
        self.shared.post_receives();
    }
}
