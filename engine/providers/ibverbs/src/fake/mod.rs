//! An RDMA adapter that is not there: the functions of libibverbs and librdmacm in this process.
//! Tests see what the provider does on adapters with other capabilities, as drivers and kernel
//! report them ([`Adapter`]).
//!
//! Each thread has a host of its own with one adapter or several, and all work is done at once:
//! when a work request can be carried out, its completion is there when the call returns. Only a
//! Send waits, for a receive of the peer. Keys, bounds, rights, the connection of a window and the
//! sizes of queues are checked as a device does. An object that something else needs is kept
//! (`EBUSY`).
//!
//! | file | what it does |
//! |---|---|
//! | `adapters` | the table of adapters |
//! | `state` | objects of a device, as it knows them |
//! | `objects` | functions that make them and give them back |
//! | `pairs` | those of queue pairs |
//! | `data` | work requests and completions |
//! | `channel`, `cm`, `dial` | the connection manager |
//! | `removal` | adapters that are removed and added |

mod adapters;
mod channel;
mod cm;
mod costs;
mod crowds;
mod data;
mod dial;
mod early_ends;
mod objects;
mod pairs;
mod rails;
mod removal;
mod roles;
mod state;
mod tests;

pub(crate) use adapters::{ADAPTERS, Adapter, DeviceWindowing};

use crate::{counting::allocations, library::Library};
use cm::ConnectionManager;
use libc::{c_int, c_void};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, write},
};
use state::Objects;
use std::{
    cell::{Cell, RefCell},
    collections::{HashSet, VecDeque},
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsRawFd, OwnedFd},
    sync::OnceLock,
    time::Duration,
};

/// The address of an adapter, by its number.
pub(crate) const fn address(device: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1 + device as u8))
}

/// A host with adapters.
pub(crate) struct Host {
    adapters: Vec<Adapter>,
    /// The adapters that were removed.
    removed: HashSet<usize>,
    /// Those whose address another device has for now.
    without_address: HashSet<usize>,
    /// The thread that makes its system calls.
    opener: Option<std::thread::ThreadId>,
    objects: Objects,
    cm: ConnectionManager,
}

thread_local! {
    static HOST: RefCell<Option<Host>> = const { RefCell::new(None) };
}

/// Gives this thread a host with `adapters`. Nothing of an earlier one may be in use.
pub(crate) fn install(adapters: &[Adapter]) {
    let adapters = adapters.to_vec();
    let host = Host {
        adapters,
        removed: HashSet::new(),
        without_address: HashSet::new(),
        opener: None,
        objects: Objects::default(),
        cm: ConnectionManager::default(),
    };
    HOST.with_borrow_mut(|it| *it = Some(host));
}

/// The addresses of this thread's host, if it has one: those of its adapters, and one of none.
pub(crate) fn addresses() -> Option<Vec<IpAddr>> {
    HOST.with_borrow(|host| {
        let count = host.as_ref()?.adapters.len();
        Some((0..count).map(address).chain([IpAddr::V4(Ipv4Addr::LOCALHOST)]).collect())
    })
}

/// Messages of this thread's host that found no receive, each as often as it was tried.
pub(crate) fn missed_receives() -> u64 {
    with(|host| host.objects.missed)
}

/// Traffic class, timeout and retries of all queue pairs.
fn links() -> Vec<(u8, u8, u8)> {
    with(|host| host.objects.pairs.values().map(|pair| pair.link).collect())
}

/// Takes the host from this thread, for another one.
pub(crate) fn take() -> Option<Host> {
    HOST.take()
}

/// Gives this thread a host that was another one's.
pub(crate) fn put(host: Option<Host>) {
    HOST.set(host);
}

thread_local! {
    /// The time that system calls of this thread took.
    static CLOCK: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// The time that each takes.
    static CALL_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

thread_local! {
    /// Calls of this thread count as those of another thread.
    static IS_OFF_CORE: Cell<bool> = const { Cell::new(false) };
}

thread_local! {
    /// Errands that may be done.
    static ERRANDS: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Takes one of the errands that may be done. False: none may.
pub(crate) fn may_do_errand() -> bool {
    let left = ERRANDS.get().checked_sub(1);
    left.inspect(|left| ERRANDS.set(*left)).is_some()
}

/// Makes calls that a thread of their own makes elsewhere: they take none of this one's time.
pub(crate) fn off_core(act: impl FnOnce()) {
    IS_OFF_CORE.set(true);
    act();
    IS_OFF_CORE.set(false);
}

/// The time of this thread, in which nothing but system calls takes any.
pub(crate) fn clock() -> Duration {
    CLOCK.get()
}

/// A call that writes to a descriptor: made by the thread that opened it, as the kernel wants it
/// of credentials.
fn system_call() {
    if !IS_OFF_CORE.get() {
        CLOCK.set(CLOCK.get() + CALL_TIME.get());
    }
    let caller = std::thread::current().id();
    with(|host| assert_eq!(*host.opener.get_or_insert(caller), caller, "changed credentials"));
}

thread_local! {
    /// Allocations of this thread for what its host does.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of this thread that a device would not make.
fn allocations_of_fake() -> u64 {
    ALLOCATIONS.get()
}

/// Runs `act` on the host of this thread.
fn with<R>(act: impl FnOnce(&mut Host) -> R) -> R {
    let before = allocations();
    let result =
        HOST.with_borrow_mut(|host| act(host.as_mut().expect("the adapter of this thread")));
    ALLOCATIONS.set(ALLOCATIONS.get() + allocations() - before);
    result
}

/// The functions, if this thread has a host.
pub(crate) fn library() -> Option<&'static Library> {
    static TABLE: OnceLock<Library> = OnceLock::new();
    HOST.with_borrow(Option::is_some).then(|| {
        TABLE.get_or_init(|| {
            let mut table = Library::idle();
            objects::fill(&mut table);
            pairs::fill(&mut table);
            channel::fill(&mut table);
            cm::fill(&mut table);
            table
        })
    })
}

/// Reports `errno` as a call of the libraries does that returns -1 or nothing.
fn refuse(errno: c_int) -> c_int {
    // SAFETY: the place is this thread's.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place = errno };
    -1
}

/// A pointer to nothing, with the reason in `errno`.
fn nothing<T>(errno: c_int) -> *mut T {
    refuse(errno);
    std::ptr::null_mut()
}

/// Puts a structure where C finds it.
fn lend<T>(it: T) -> *mut T {
    Box::into_raw(Box::new(it))
}

/// Takes over a structure that was lent.
///
/// # Safety
/// It came from [`lend`], and is not used any more.
unsafe fn regain<T>(it: *mut T) -> Box<T> {
    // SAFETY: the caller's promise.
    unsafe { Box::from_raw(it) }
}

/// Reports with a descriptor, which is readable while there are some.
#[derive(Debug)]
struct Told<T> {
    fd: OwnedFd,
    waiting: VecDeque<T>,
}

impl<T> Told<T> {
    fn new() -> Self {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        Self { fd, waiting: VecDeque::new() }
    }

    fn raw_fd(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    fn push(&mut self, it: T) {
        self.waiting.push_back(it);
        write(&self.fd, &1_u64.to_ne_bytes()).unwrap();
    }

    fn pop(&mut self) -> Option<T> {
        let it = self.waiting.pop_front();
        if it.is_some() && self.waiting.is_empty() {
            read(&self.fd, &mut [0; 8]).unwrap();
        }
        it
    }
}

/// The address of an object, by which its state is found.
fn at<T>(it: *mut T) -> usize {
    it.addr()
}

/// A context, as C passes it.
type Context = *mut c_void;
