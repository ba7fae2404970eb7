//! Contexts and protected calls of one shard.

use super::{
    contexts::{GssContext, GssContexts, InitRequest, Mailbox, random_numbers},
    steps::{Step, WaitingReply},
};
use rand::{Rng as _, rngs::StdRng};
use stag_gss::{CONFOUNDER, VerifiedCall};
use stag_pools::table::Key;
use stag_verbs::Time;
use std::{
    collections::VecDeque,
    fmt, io,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A context that this shard knows.
#[derive(Debug)]
pub(crate) struct KnownContext {
    pub(crate) context: Arc<GssContext>,
    /// End of its ticket, by the shard's clock.
    ends_at: Time,
}

impl KnownContext {
    /// Returns true if its ticket has ended.
    pub(crate) fn is_expired(&self, now: Time) -> bool {
        now >= self.ends_at
    }
}

/// A call of a context that the app has, or that its reply is made for.
#[derive(Clone, Debug)]
pub(crate) struct ProtectedCall {
    pub(crate) known: Rc<KnownContext>,
    pub(crate) call: VerifiedCall,
    /// Its results are protected by its service.
    pub(crate) has_body: bool,
}

impl ProtectedCall {
    /// The same for a call whose results are not protected, whatever its service.
    pub(crate) fn without_body(self) -> Self {
        Self { has_body: false, ..self }
    }
}

/// Contexts and protected calls of one shard.
pub(crate) struct ShardGss {
    pub(crate) contexts: Arc<GssContexts>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// By index in the handle.
    known: Vec<Option<Rc<KnownContext>>>,
    /// By the place of the call in the table of calls.
    calls: Box<[Option<ProtectedCall>]>,
    /// Room for arguments that cannot be opened where they are: a record of TCP, or an inline
    /// message.
    pub(crate) room: Box<[u8]>,
    /// Calls and replies whose protection takes several passes, the next one first.
    pub(crate) steps: VecDeque<Step>,
    /// Replies that wait for memory.
    pub(crate) waiting: VecDeque<WaitingReply>,
    /// Requests for contexts for which the acceptor has no place, and the octets of their tokens.
    pub(crate) put_off: VecDeque<InitRequest>,
    pub(crate) put_off_octets: usize,
    random: StdRng,
}

impl ShardGss {
    /// For a shard with this number of places for calls. `record` is the length of the longest
    /// message that is served from a buffer that is not its own.
    pub(crate) fn new(contexts: Arc<GssContexts>, calls: usize, record: usize) -> io::Result<Self> {
        Ok(Self {
            contexts,
            mailbox: Arc::default(),
            known: Vec::new(),
            calls: (0..calls).map(|_| None).collect(),
            room: vec![0; record].into_boxed_slice(),
            steps: VecDeque::with_capacity(calls),
            waiting: VecDeque::with_capacity(calls),
            put_off: VecDeque::new(),
            put_off_octets: 0,
            random: random_numbers()?,
        })
    }

    /// The context of a handle. None if it was not issued in this run, or has ended.
    pub(crate) fn find(&mut self, handle: &[u8], now: Time) -> Option<Rc<KnownContext>> {
        let index = self.contexts.index_of(handle)?;
        match self.known.get(index) {
            // A place has one context at a time: another handle names none.
            Some(Some(known)) if !known.context.is_over() => {
                (known.context.handle == *handle).then(|| Rc::clone(known))
            }
            _ => self.learn(handle, index, now),
        }
    }

    /// Looks a context up among those of the server, once for each shard and context.
    #[cold]
    #[inline(never)]
    fn learn(&mut self, handle: &[u8], index: usize, now: Time) -> Option<Rc<KnownContext>> {
        // What is there has ended.
        if let Some(place) = self.known.get_mut(index) {
            *place = None;
        }
        let context = self.contexts.find(handle)?;
        // Not above the limit of contexts, as there is one.
        if index >= self.known.len() {
            self.known.resize_with(index + 1, || None);
        }
        let ends_at = now + left_until(context.ends);
        let known = Rc::new(KnownContext { context, ends_at });
        *self.known.get_mut(index)? = Some(Rc::clone(&known));
        Some(known)
    }

    /// Keeps a call until its reply is made.
    pub(crate) fn keep(&mut self, key: Key, call: ProtectedCall) {
        if let Some(place) = self.calls.get_mut(key.index()) {
            *place = Some(call);
        }
    }

    /// The call that a reply is made for.
    pub(crate) fn take(&mut self, key: Key) -> Option<ProtectedCall> {
        self.calls.get_mut(key.index())?.take()
    }

    /// A confounder, which is used once.
    pub(crate) fn confounder(&mut self) -> [u8; CONFOUNDER] {
        let mut octets = [0; CONFOUNDER];
        self.random.fill_bytes(&mut octets);
        octets
    }
}

impl fmt::Debug for ShardGss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardGss").finish_non_exhaustive()
    }
}

/// The time until a number of seconds since 1970.
fn left_until(ends: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(ends).saturating_sub(now)
}
