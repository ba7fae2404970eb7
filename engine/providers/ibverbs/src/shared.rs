//! One listener for several shards. A port of the connection manager has one listener, so the
//! shard that has it leaves connect requests to the others, and each takes its own into its own
//! channel (`rdma_migrate_id`).

use crate::rdmacm::{Id, ReadDepths};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, write},
};
use stag_verbs::Steering;
use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Connect requests that one shard may have waiting to be taken over: as many as wait in the kernel
/// for a listener.
const WAITING: usize = 128;

/// A peer that asks to be connected.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: Id,
    /// The name of its device.
    pub(crate) device: Option<String>,
    pub(crate) private_data: Vec<u8>,
    pub(crate) reads: ReadDepths,
}

/// Connect requests that are left to one shard.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// None: the shard takes no more.
    waiting: Mutex<Option<VecDeque<Request>>>,
    /// Connections of the shard, as it last said.
    connections: AtomicUsize,
    /// The name of the shard's device; none while that is lost.
    device: Mutex<Option<String>>,
    wakeup: OwnedFd,
}

/// Takes a lock that a panic may have poisoned: the data it guards is whole after each step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    pub(crate) fn new(device: &str) -> io::Result<Arc<Self>> {
        let wakeup = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let waiting = Mutex::new(Some(VecDeque::new()));
        let (connections, device) = (AtomicUsize::new(0), Mutex::new(Some(device.to_owned())));
        Ok(Arc::new(Self { waiting, connections, device, wakeup }))
    }

    /// Readable when something was put in.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// Connections of the shard and requests that wait to become some; none if it takes no more, or
    /// none on that device.
    fn load(&self, device: Option<&str>) -> Option<usize> {
        let own = locked(&self.device);
        if own.is_none() || device.is_some_and(|device| own.as_deref() != Some(device)) {
            return None;
        }
        drop(own);
        let waiting = locked(&self.waiting).as_ref().map(VecDeque::len)?;
        Some(self.connections.load(Ordering::Relaxed).saturating_add(waiting))
    }

    /// Leaves `request` to the shard. Returns it when the shard takes no more.
    fn put(&self, request: Request) -> Result<(), Request> {
        let mut waiting = locked(&self.waiting);
        match &mut *waiting {
            Some(waiting) if waiting.len() < WAITING => waiting.push_back(request),
            _ => return Err(request),
        }
        // Under the lock, so that the taker of the last request also clears this wake-up. A counter
        // that is at its end is readable already.
        let _ = write(&self.wakeup, &1_u64.to_ne_bytes());
        Ok(())
    }

    /// The oldest request. `connections` is the shard's number of connections at the moment.
    pub(crate) fn take(&self, connections: usize) -> Option<Request> {
        self.connections.store(connections, Ordering::Relaxed);
        let mut waiting = locked(&self.waiting);
        let waiting = waiting.as_mut()?;
        let request = waiting.pop_front()?;
        if waiting.is_empty() {
            let _ = read(&self.wakeup, &mut [0; 8]);
        }
        Some(request)
    }

    /// Sets the device that the shard has. With none it takes no more requests.
    pub(crate) fn set_device(&self, device: Option<&str>) {
        *locked(&self.device) = device.map(str::to_owned);
    }

    /// Takes no more requests, and returns the waiting ones.
    pub(crate) fn close(&self) -> VecDeque<Request> {
        locked(&self.waiting).take().unwrap_or_default()
    }
}

/// The shards that share a listener, in the order in which they joined it.
#[derive(Debug, Default)]
pub(crate) struct Sharers {
    inboxes: Mutex<Vec<Weak<Inbox>>>,
    last: AtomicUsize,
}

/// Listeners of this process that are shared, by their addresses.
static SHARED: Mutex<Vec<(SocketAddr, Weak<Sharers>)>> = Mutex::new(Vec::new());

impl Sharers {
    /// Joins the shard of `inbox` to the listener at `at`. False: this process has no shared
    /// listener there.
    pub(crate) fn join(at: SocketAddr, inbox: &Arc<Inbox>) -> bool {
        let shared = locked(&SHARED);
        let found = shared.iter().find(|(address, _)| *address == at);
        let Some(sharers) = found.and_then(|(_, sharers)| sharers.upgrade()) else { return false };
        locked(&sharers.inboxes).push(Arc::downgrade(inbox));
        true
    }

    /// Lets others join the listener at `at`, which the shard of `inbox` has, until the result is
    /// dropped.
    pub(crate) fn open(at: SocketAddr, inbox: &Arc<Inbox>) -> Arc<Self> {
        let sharers = Arc::new(Self::default());
        locked(&sharers.inboxes).push(Arc::downgrade(inbox));
        let mut shared = locked(&SHARED);
        shared.retain(|(_, sharers)| sharers.strong_count() > 0);
        shared.push((at, Arc::downgrade(&sharers)));
        sharers
    }

    /// Leaves `request` to a shard that has its device: the one that `steering` names, else the one
    /// with the fewest connections. Returns it when none takes more.
    pub(crate) fn put(&self, request: Request, steering: Option<&Steering>) -> Result<(), Request> {
        let inboxes: Vec<_> = locked(&self.inboxes).iter().map(Weak::upgrade).collect();
        let loads: Vec<_> = inboxes
            .iter()
            .map(|it| it.as_ref().and_then(|it| it.load(request.device.as_deref())))
            .collect();
        let steered =
            steering.and_then(|steering| request.id.peer().map(|peer| steering.place(peer.ip())));
        let Some(place) = choose(&loads, steered, self.last.load(Ordering::Relaxed)) else {
            return Err(request);
        };
        self.last.store(place, Ordering::Relaxed);
        match inboxes.into_iter().nth(place).flatten() {
            Some(inbox) => inbox.put(request),
            None => Err(request),
        }
    }
}

/// The place of the shard for a peer, by their loads: `steered` if that shard takes more, else the
/// least loaded, among equals the next after `last`.
fn choose(loads: &[Option<usize>], steered: Option<usize>, last: usize) -> Option<usize> {
    let takes_more = |place: &usize| loads.get(*place).copied().flatten().is_some();
    steered.filter(takes_more).or_else(|| {
        let open = loads.iter().enumerate().filter_map(|(place, load)| Some((place, (*load)?)));
        let count = loads.len();
        let behind = |place: usize| (place + count - last.min(count) + count - 1) % count;
        open.min_by_key(|(place, load)| (*load, behind(*place))).map(|(place, _)| place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdmacm::tests::no_id;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn request(number: u8) -> Request {
        Request {
            id: no_id(),
            device: None,
            private_data: vec![number],
            reads: ReadDepths::default(),
        }
    }

    fn numbers(inbox: &Inbox, connections: usize) -> Vec<u8> {
        std::iter::from_fn(|| inbox.take(connections)).map(|it| it.private_data[0]).collect()
    }

    #[test]
    fn peers_go_where_the_fewest_are_in_turn_or_where_they_are_steered_to() {
        assert_eq!(choose(&[Some(4), Some(2), Some(3)], None, 0), Some(1));
        assert_eq!(choose(&[Some(1); 3], None, 0), Some(1));
        assert_eq!(choose(&[Some(1); 3], None, 1), Some(2));
        assert_eq!(choose(&[Some(1); 3], None, 2), Some(0));
        assert_eq!(choose(&[Some(1), None, Some(1)], None, 0), Some(2));
        assert_eq!(choose(&[Some(9), Some(1)], Some(0), 0), Some(0));
        // The shard that it is steered to is missing, or takes no more.
        assert_eq!(choose(&[None, Some(5), Some(1)], Some(0), 0), Some(2));
        assert_eq!(choose(&[Some(5), Some(1)], Some(2), 7), Some(1));
        assert_eq!((choose(&[None, None], None, 0), choose(&[], None, 0)), (None, None));
    }

    #[test]
    fn shards_join_a_listener_while_it_is_there_and_its_requests_are_spread_over_them() {
        let at: SocketAddr = "192.0.2.1:20049".parse().unwrap();
        let [first, second] = [(); 2].map(|()| Inbox::new("mlx5_0").unwrap());
        assert!(!Sharers::join(at, &second));
        let sharers = Sharers::open(at, &first);
        assert!(Sharers::join(at, &second));
        (0..6).for_each(|number| sharers.put(request(number), None).unwrap());
        assert_eq!((numbers(&first, 3), numbers(&second, 0)), (vec![1, 3, 5], vec![0, 2, 4]));
        // Three connections there, none here.
        (6..9).for_each(|number| sharers.put(request(number), None).unwrap());
        assert_eq!((numbers(&first, 3), numbers(&second, 3)), (vec![], vec![6, 7, 8]));
        // An ended shard gets no more, and one that ends returns the requests that it has not
        // taken.
        sharers.put(request(9), None).unwrap();
        sharers.put(request(10), None).unwrap();
        assert_eq!(first.close().len(), 1);
        drop(first);
        sharers.put(request(11), None).unwrap();
        assert_eq!(second.close().len(), 2);
        assert_eq!(sharers.put(request(12), None).unwrap_err().private_data, [12]);
        drop(sharers);
        assert!(!Sharers::join(at, &second));
    }

    #[test]
    fn a_peer_is_left_to_a_shard_that_has_its_device() {
        let at: SocketAddr = "0.0.0.0:20049".parse().unwrap();
        let [first, second] = ["mlx5_0", "mlx5_1"].map(|device| Inbox::new(device).unwrap());
        let sharers = Sharers::open(at, &first);
        assert!(Sharers::join(at, &second));
        let of = |device: &str| Request { device: Some(device.to_owned()), ..request(1) };
        (0..3).for_each(|_| sharers.put(of("mlx5_1"), None).unwrap());
        assert_eq!((numbers(&first, 0).len(), numbers(&second, 0).len()), (0, 3));
        assert!(sharers.put(of("mlx5_2"), None).is_err());
        // While its device is lost, a shard takes no request.
        second.set_device(None);
        assert!(sharers.put(of("mlx5_1"), None).is_err());
        second.set_device(Some("mlx5_1"));
        assert!(sharers.put(of("mlx5_1"), None).is_ok());
    }

    #[test]
    fn a_shard_that_takes_nothing_is_left_so_many_requests_and_is_woken_once_for_them() {
        let inbox = Inbox::new("mlx5_0").unwrap();
        (0..WAITING).for_each(|_| inbox.put(request(0)).unwrap());
        assert!(inbox.put(request(0)).is_err());
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_woken =
            || poll(&mut [PollFd::new(&inbox.wakeup, PollFlags::IN)], Some(&at_once)) == Ok(1);
        assert!(is_woken());
        assert_eq!(numbers(&inbox, 0).len(), WAITING);
        assert_eq!(read(&inbox.wakeup, &mut [0; 8]), Err(rustix::io::Errno::AGAIN));
        assert!(inbox.put(request(0)).is_ok() && is_woken());
    }
}
