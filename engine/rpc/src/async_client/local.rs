//! Clients whose shard runs on the thread that polls their futures: no call passes between threads.

use super::{AsyncClient, connect::AsyncShardApp, line::OrderLine};
use crate::{
    idle::{Idle, nap},
    shard::AnyShard,
    thread_shards::ThreadShards,
};
use stag_engine::{Control, Sleeper, Waker, clock::Clock, stats::Snapshot};
use std::{
    cell::{Cell, RefCell},
    future::Future,
    io,
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake},
    thread::{self, Thread},
    time::Duration,
};

thread_local! {
    static SHARDS: ThreadShards<LocalShard> = const { ThreadShards::new() };
    /// The shard whose passes the innermost [`AsyncClient::block_on`] runs.
    static RUNNING: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A shard of this thread.
pub(super) struct LocalShard {
    shard: Box<dyn AnyShard<AsyncShardApp>>,
    clock: Clock,
    control: Control<Snapshot<u64>>,
    sleeper: Sleeper,
    line: Arc<OrderLine>,
}

impl LocalShard {
    pub(super) fn new(
        shard: Box<dyn AnyShard<AsyncShardApp>>,
        clock: Clock,
        control: Control<Snapshot<u64>>,
        line: Arc<OrderLine>,
    ) -> io::Result<Self> {
        let sleeper = shard.sleeper(&control)?;
        Ok(Self { shard, clock, control, sleeper, line })
    }

    fn sleep(&mut self, longest: Duration) {
        let Self { shard, clock, control, sleeper, .. } = self;
        shard.sleep(sleeper, control, clock.now(), longest).unwrap_or_else(|_| nap());
    }
}

/// Adds a shard of this thread; returns its name.
pub(super) fn add(shard: LocalShard) -> u64 {
    SHARDS.with(|shards| shards.add(Rc::new(RefCell::new(shard))))
}

/// Returns true if the shard of this name belongs to this thread.
pub(super) fn has(name: u64) -> bool {
    SHARDS.with(|shards| shards.get(name).is_some())
}

/// Removes a shard: its connection breaks.
pub(super) fn remove(name: u64) {
    // It is dropped after the borrow. While a thread ends there may be none to remove.
    drop(SHARDS.try_with(|shards| shards.remove(name)));
}

/// The result of a request for a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalPass {
    /// [`AsyncClient::block_on`] makes its passes.
    ByRunner,
    /// It made a pass.
    Made,
    /// It belongs to another thread.
    Elsewhere,
}

/// Makes a pass of the shard of this name, unless something else does.
pub(super) fn pass(name: u64) -> LocalPass {
    let Some(shard) = SHARDS.with(|shards| shards.get(name)) else { return LocalPass::Elsewhere };
    // In a pass of its own: a caller is woken when its call ends.
    let Ok(mut local) = shard.try_borrow_mut() else { return LocalPass::ByRunner };
    if RUNNING.get() == Some(name) {
        return LocalPass::ByRunner;
    }
    let now = local.clock.now();
    local.shard.pass(now);
    LocalPass::Made
}

/// Runs passes of the shard of this name until `look` returns a result. Without work it sleeps for
/// at most as long as `sleep_for` says. None if the shard belongs to another thread.
pub(super) fn run<T>(
    name: u64,
    mut look: impl FnMut() -> Option<T>,
    sleep_for: impl Fn() -> Option<Duration>,
) -> Option<T> {
    /// Its end is noted even if a future panics.
    struct Runner(Option<u64>);

    impl Drop for Runner {
        fn drop(&mut self) {
            RUNNING.set(self.0);
        }
    }

    let shard = SHARDS.with(|shards| shards.get(name))?;
    let runner = Runner(RUNNING.replace(Some(name)));
    let mut idle = Idle::since(shard.borrow().clock.now());
    loop {
        if let Some(found) = look() {
            drop(runner);
            leave(&shard);
            return Some(found);
        }
        let mut local = shard.borrow_mut();
        let now = local.clock.now();
        let worked = local.shard.pass(now);
        if idle.is_long(now, worked)
            && let Some(longest) = sleep_for()
        {
            local.sleep(longest);
        }
    }
}

/// Has the callers of a shard woken that has lost its runner: another executor that polls
/// them makes the passes.
fn leave(shard: &Rc<RefCell<LocalShard>>) {
    if let Ok(mut local) = shard.try_borrow_mut() {
        local.line.lose_runner();
        let now = local.clock.now();
        local.shard.pass(now);
    }
}

/// The waker of a future that [`AsyncClient::block_on`] polls.
struct Due {
    is_due: AtomicBool,
    thread: Thread,
    /// Wakes the shard of the thread, if there is one.
    shard: Option<Waker>,
}

impl Wake for Due {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        if thread::current().id() == self.thread.id() {
            return;
        }
        // The thread sleeps in one of two ways.
        self.thread.unpark();
        self.shard.iter().for_each(Waker::wake);
    }
}

impl AsyncClient {
    /// Polls `future` on this thread until it is ready. For a [local
    /// client](crate::ClientBuilder::connect_local) it makes the client's passes meanwhile; for
    /// others it is an executor like any other. Inside `future`, wait with `.await`: an executor
    /// that blocks there keeps the client from its passes.
    ///
    /// ```
    /// # use stag_rpc::{Client, Replied, Replier, Server, program};
    /// # program! {
    /// #     /// Counts.
    /// #     pub mod counter: 0x2053_5404, version 1 {
    /// #         /// One more.
    /// #         1 => fn next(number: u32) -> u32;
    /// #     }
    /// # }
    /// # struct Counter;
    /// # impl counter::Service for Counter {
    /// #     fn next(&mut self, number: u32, reply: Replier<'_, '_, u32>) -> Replied {
    /// #         reply.send(number + 1)
    /// #     }
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server =
    ///     Server::builder().listen("iwarp://127.0.0.1:0").serve(|| counter::Serve(Counter))?;
    /// let connection = Client::builder().connect_local(&server.addresses()[0])?;
    /// let client = counter::AsyncClient::over(connection.clone());
    /// let six = connection.block_on(async { client.next(5).await?.results() })?;
    /// assert_eq!(six, 6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If `future` does, and if a waker calls it that the same client wakes.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let (local, shard) = self.running.local().unzip();
        let due = Arc::new(Due { is_due: AtomicBool::new(true), thread: thread::current(), shard });
        let waker = Arc::clone(&due).into();
        let mut context = Context::from_waker(&waker);
        let mut look = || {
            if !due.is_due.swap(false, Ordering::Acquire) {
                return None;
            }
            match future.as_mut().poll(&mut context) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            }
        };
        let is_due = || due.is_due.load(Ordering::Acquire);
        if let Some(name) = local
            && let Some(output) = run(name, &mut look, || (!is_due()).then_some(Duration::MAX))
        {
            return output;
        }
        loop {
            match look() {
                Some(output) => return output,
                None if is_due() => {}
                None => thread::park(),
            }
        }
    }
}
