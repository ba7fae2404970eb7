//! All contexts of a server, which its shards share, and the thread that sets them up.
//!
//! A context is in the table before the reply to its INIT leaves: a client may use it over another
//! connection, at another shard, at once. A shard looks a context up here once, under a lock, and
//! keeps it ([`shard`](super::shard)).

use super::{
    acceptor::{AcceptedContext, ContextAcceptor, RefusedContext},
    by_principal::PrincipalContexts,
    queue::{InitQueue, Queued},
    table::ContextTable,
};
use crate::{call::CallId, peer_view::ClientHost};
use rand::{SeedableRng, rngs::StdRng};
use stag_gss::AcceptorContext;
use stag_protocol::rpc::{
    PrincipalId, UnixUser,
    gss::{GssService, MajorStatus},
};
use stag_verbs::{PeerAddress, Time};
use std::{
    fmt, io,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Limits of contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLimits {
    /// Contexts in all.
    pub contexts: usize,
    /// Contexts of one principal.
    pub each_principal: usize,
    /// Contexts that were set up from one address.
    pub each_address: usize,
    /// Requests for contexts that wait for the acceptor. As many may wait at each shard for a place
    /// among them.
    pub waiting: usize,
    /// Such requests of one address.
    pub waiting_each_address: usize,
}

impl Default for ContextLimits {
    fn default() -> Self {
        Self {
            contexts: 16_384,
            each_principal: 64,
            each_address: 512,
            waiting: 128,
            waiting_each_address: 8,
        }
    }
}

/// Counts of contexts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextCounts {
    /// Contexts that exist now.
    pub live: u64,
    /// Contexts that were set up.
    pub accepted: u64,
    /// Requests that the acceptor refused.
    pub refused: u64,
    /// Requests that found no place among the waiting ones, or lost it to those of another host:
    /// they wait at their shards.
    pub crowded: u64,
    /// Requests that wait now, with the one that the acceptor judges.
    pub waiting: u64,
    /// Contexts that made room for newer ones.
    pub displaced: u64,
}

/// The contexts of a server, and the thread that sets them up.
pub struct GssContexts {
    shared: Arc<Shared>,
}

impl GssContexts {
    /// Starts the thread of `acceptor`. It ends when this is dropped, after the request at hand.
    ///
    /// # Errors
    /// When no thread can be started, or there is no source of random numbers.
    pub fn start(
        acceptor: Box<dyn ContextAcceptor>,
        limits: ContextLimits,
    ) -> io::Result<Arc<Self>> {
        let mut run = [0; RUN];
        rand::Rng::fill_bytes(&mut random_numbers()?, &mut run);
        let shared = Arc::new(Shared {
            limits,
            run,
            table: Mutex::default(),
            queue: Mutex::default(),
            has_work: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        thread::Builder::new().name("stag-gss".into()).spawn(move || own.serve(acceptor))?;
        Ok(Arc::new(Self { shared }))
    }

    /// Forgets all contexts: their clients set up new ones. For a changed keytab or map of users.
    pub fn forget_all(&self) {
        self.shared.lock_table().forget_all();
    }

    /// The counts at this moment.
    pub fn counts(&self) -> ContextCounts {
        let waiting = self.shared.lock_queue().waiting();
        let table = self.shared.lock_table();
        ContextCounts { live: table.live() as u64, waiting, ..table.counts }
    }

    /// The contexts that exist, by principal and host, in any order. It may take milliseconds, in
    /// which no shard waits for more than a small part of it.
    pub fn by_principal(&self) -> Vec<PrincipalContexts> {
        let parts = (0..).map_while(|part| self.shared.lock_table().part(part));
        PrincipalContexts::of_all(parts.flatten())
    }

    /// The context of a handle, if it was issued in this run and still exists.
    pub(crate) fn find(&self, handle: &[u8]) -> Option<Arc<GssContext>> {
        let index = self.index_of(handle)?;
        let table = self.shared.lock_table();
        let context = table.get(index)?;
        (context.handle == *handle).then(|| Arc::clone(context))
    }

    /// The index in a handle of this run.
    pub(crate) fn index_of(&self, handle: &[u8]) -> Option<usize> {
        let (index, rest) = handle.split_first_chunk::<4>()?;
        let is_of_run = rest.len() == HANDLE - 4 && rest.ends_with(&self.shared.run);
        is_of_run.then_some(u32::from_be_bytes(*index) as usize)
    }

    /// Ends a context, at all shards.
    pub(crate) fn end(&self, context: &GssContext) {
        self.shared.lock_table().end(context);
    }

    /// The limits.
    pub(crate) fn limits(&self) -> ContextLimits {
        self.shared.limits
    }

    /// Counts a request that found no place in the queue.
    pub(crate) fn note_crowded(&self) {
        self.shared.lock_table().counts.crowded += 1;
    }

    /// Queues a request for a context.
    ///
    /// # Errors
    /// When there are too many, of all or of its host: the request is returned.
    pub(crate) fn ask(&self, request: InitRequest) -> Result<(), InitRequest> {
        let mut queue = self.shared.lock_queue();
        let queued = queue.requests.push(host_of(request.from), request, &self.shared.limits);
        drop(queue);
        self.shared.has_work.notify_one();
        match queued {
            Queued::Waits => Ok(()),
            Queued::InPlaceOf(displaced) => {
                self.note_crowded();
                let (call, mailbox) = (displaced.call, Arc::clone(&displaced.mailbox));
                mailbox.put(InitDone { call, results: InitOutcome::Crowded(displaced) });
                Ok(())
            }
            Queued::NoPlace(request) => Err(request),
        }
    }
}

impl Drop for GssContexts {
    fn drop(&mut self) {
        self.shared.lock_queue().is_over = true;
        self.shared.has_work.notify_all();
    }
}

impl fmt::Debug for GssContexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GssContexts").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

/// A source of random numbers that are fit for secrets.
pub(crate) fn random_numbers() -> io::Result<StdRng> {
    StdRng::try_from_rng(&mut rand::rngs::SysRng).map_err(io::Error::other)
}

/// Time after which a request is refused unjudged: its client has given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bits of the time of the latest use that have the service.
const SERVICE_BITS: u64 = 3;
const _: () = assert!(GssService::Privacy as u64 <= SERVICE_BITS);
/// Octets of a handle: index, generation, and the run.
const HANDLE: usize = 16;
/// Octets that all handles of a run have in common.
const RUN: usize = 8;

/// A context: shared by all shards, and unchangeable but for its window and its end.
#[derive(Debug)]
pub(crate) struct GssContext {
    pub(crate) handle: [u8; HANDLE],
    pub(crate) acceptor: AcceptorContext,
    pub(crate) identity: PrincipalId,
    pub(crate) principal: Box<str>,
    pub(crate) unix: Option<UnixUser>,
    /// End of the ticket, in seconds since 1970.
    pub(crate) ends: u64,
    pub(super) host: ClientHost,
    /// It was destroyed, or has made room for others.
    is_over: AtomicBool,
    /// The latest use: nanoseconds of the shards' clock, with the service in the lowest bits.
    used: AtomicU64,
}

impl GssContext {
    /// Returns true if it has ended before its ticket.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Ends it, for all shards that know it.
    pub(super) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// The latest use.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The place in the table.
    pub(super) const fn slot(&self) -> usize {
        let [a, b, c, d, ..] = self.handle;
        u32::from_be_bytes([a, b, c, d]) as usize
    }

    /// The time of the latest use, by the shards' clock; of the set-up before the first call.
    pub(super) fn used_at(&self) -> Time {
        Time(self.used() & !SERVICE_BITS)
    }

    /// The service of the latest call; none before the first one.
    pub(super) fn service(&self) -> Option<GssService> {
        match self.used() & SERVICE_BITS {
            1 => Some(GssService::None),
            2 => Some(GssService::Integrity),
            3 => Some(GssService::Privacy),
            _ => None,
        }
    }

    /// Notes a use at this time, in nanoseconds of the shard's clock.
    pub(crate) fn note_use(&self, now: u64, service: GssService) {
        self.used.store(now & !SERVICE_BITS | service as u64, Relaxed);
    }
}

/// A request for a context.
#[derive(Debug)]
pub(crate) struct InitRequest {
    pub(crate) token: Vec<u8>,
    pub(crate) from: PeerAddress,
    pub(crate) call: CallId,
    /// The time of its arrival, in nanoseconds of the shard's clock.
    pub(crate) came_at: u64,
    /// The same, by the clock of threads.
    pub(crate) asked_at: Instant,
    pub(crate) mailbox: Arc<Mailbox>,
}

/// A request that was carried out.
#[derive(Debug)]
pub(crate) struct InitDone {
    pub(crate) call: CallId,
    pub(crate) results: InitOutcome,
}

/// Outcome of a request.
#[derive(Debug)]
pub(crate) enum InitOutcome {
    /// A context, and the token for its client.
    Granted(Arc<GssContext>, Vec<u8>),
    /// The acceptor refused it.
    Refused(RefusedContext),
    /// It lost its place to a request of another host.
    Crowded(InitRequest),
}

/// Requests of one shard that were carried out.
#[derive(Debug, Default)]
pub(crate) struct Mailbox(Mutex<Vec<InitDone>>);

impl Mailbox {
    fn put(&self, done: InitDone) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(done);
    }

    /// The results so far; while the other thread adds one, none.
    pub(crate) fn take(&self) -> Vec<InitDone> {
        self.0.try_lock().map(|mut done| std::mem::take(&mut *done)).unwrap_or_default()
    }
}

#[derive(Debug)]
struct Shared {
    limits: ContextLimits,
    /// Makes handles of an earlier run invalid.
    run: [u8; RUN],
    table: Mutex<ContextTable>,
    queue: Mutex<Queue>,
    has_work: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    requests: InitQueue,
    /// The acceptor judges one.
    is_judging: bool,
    is_over: bool,
}

impl Queue {
    fn waiting(&self) -> u64 {
        self.requests.len() as u64 + u64::from(self.is_judging)
    }
}

impl Shared {
    fn lock_table(&self) -> MutexGuard<'_, ContextTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries requests out, one after the other.
    fn serve(&self, mut acceptor: Box<dyn ContextAcceptor>) {
        while let Some(request) = self.next() {
            let InitRequest { token, from, call, came_at, asked_at, mailbox } = request;
            // What is forgotten meanwhile includes this one: its user may have changed.
            let edition = self.lock_table().edition();
            let results = match judge(&mut *acceptor, &token, from, asked_at) {
                Ok(accepted) => {
                    let (context, token) = self.add(accepted, from, came_at, edition);
                    InitOutcome::Granted(context, token)
                }
                Err(refused) => {
                    self.lock_table().counts.refused += 1;
                    InitOutcome::Refused(refused)
                }
            };
            mailbox.put(InitDone { call, results });
        }
    }

    fn next(&self) -> Option<InitRequest> {
        let mut queue = self.lock_queue();
        queue.is_judging = false;
        loop {
            if queue.is_over {
                return None;
            }
            if let Some(request) = queue.requests.pop() {
                queue.is_judging = true;
                return Some(request);
            }
            queue = self.has_work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn add(
        &self,
        accepted: AcceptedContext,
        from: PeerAddress,
        now: u64,
        edition: u64,
    ) -> (Arc<GssContext>, Vec<u8>) {
        let AcceptedContext { context: acceptor, token, principal, unix, ends } = accepted;
        let identity = stag_gss::identity_of(&principal);
        let mut table = self.lock_table();
        let host = host_of(from);
        table.make_room(&self.limits, identity, host);
        let slot = table.take_slot();
        let context = Arc::new(GssContext {
            handle: handle(slot, table.uses_of(slot), self.run),
            acceptor,
            identity,
            principal: principal.into(),
            unix,
            ends,
            host,
            is_over: AtomicBool::new(false),
            used: AtomicU64::new(now & !SERVICE_BITS),
        });
        table.put(slot, Arc::clone(&context));
        if table.edition() != edition {
            table.end(&context);
        }
        (context, token)
    }
}

/// Has the acceptor judge a token, unless its client has waited for too long. An acceptor that
/// panics refuses: the next request is judged all the same.
fn judge(
    acceptor: &mut dyn ContextAcceptor,
    token: &[u8],
    from: PeerAddress,
    asked_at: Instant,
) -> Result<AcceptedContext, RefusedContext> {
    let failed = || {
        let (major, token) = (MajorStatus::FAILURE, Vec::new());
        Err(RefusedContext { major, minor: 0, token })
    };
    if asked_at.elapsed() > PATIENCE {
        return failed();
    }
    panic::catch_unwind(AssertUnwindSafe(|| acceptor.accept(token, from)))
        .unwrap_or_else(|_| failed())
}

fn handle(slot: usize, uses: u32, run: [u8; RUN]) -> [u8; HANDLE] {
    let mut handle = [0; HANDLE];
    let parts = (slot as u32).to_be_bytes().into_iter().chain(uses.to_be_bytes()).chain(run);
    handle.iter_mut().zip(parts).for_each(|(to, octet)| *to = octet);
    handle
}

/// The host that limits count by.
fn host_of(from: PeerAddress) -> ClientHost {
    ClientHost::of(from, ClientHost::User(u32::MAX))
}
