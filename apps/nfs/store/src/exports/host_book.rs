//! Answers of this host's name service, cached and queried by a thread of its own.
//!
//! **A name service may be slow**, so no shard queries it. [`HostBook::ask`] returns an answer, or
//! the ticket of a query that the thread makes; [`HostBook::look`] also waits for it.
//!
//! **Answers expire.** Time passes in rounds. [`AnswerAges`] are the rounds for which an answer is
//! not queried again, and for which it serves until the new one arrives.

use std::{
    collections::HashMap,
    fmt::{self, Debug},
    hash::Hash,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Time after which a failed query is repeated.
const AGAIN: Duration = Duration::from_secs(1);
/// Time between two warnings about a failing name service.
const SAID: Duration = Duration::from_secs(10);
/// Outstanding queries, at most: beyond that, none is accepted.
pub(crate) const ASKED_MAX: usize = 1024;
/// Answers cached by the process. Callers choose their questions: at the limit, those without a
/// result are dropped first, and then the others.
pub(crate) const KNOWN_MAX: usize = 65_536;

/// A query to a name service; none for a user or a name that it does not have.
pub type HostQuery<Q, A> = dyn Fn(&Q) -> io::Result<Option<A>> + Send;

/// Rounds for which answers of one kind are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerAge {
    /// Rounds for which it is not queried again.
    pub fresh: u64,
    /// Rounds for which it is used at all.
    pub usable: u64,
}

/// Rounds for which answers are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerAges {
    /// Answers with a result.
    pub known: AnswerAge,
    /// Answers that there is none.
    pub unknown: AnswerAge,
}

/// The properties of a book.
#[derive(Clone, Copy, Debug)]
pub struct BookSettings<Q> {
    /// The name of its thread.
    pub thread: &'static str,
    /// Logs that the name service has failed.
    pub warn: fn(&Q, &io::Error),
    /// The length of a round.
    pub round: Duration,
    /// The ages of its answers.
    pub ages: AnswerAges,
}

/// One answer: none for a question without a result.
#[derive(Clone, Copy, Debug)]
pub struct BookAnswer<A> {
    /// The result.
    pub found: Option<A>,
    /// Its round.
    round: u64,
}

impl<A> BookAnswer<A> {
    /// The same answer with a part of its result.
    pub fn map<B>(self, part: impl FnOnce(A) -> Option<B>) -> BookAnswer<B> {
        BookAnswer { found: self.found.and_then(part), round: self.round }
    }

    const fn age(&self, ages: &AnswerAges) -> AnswerAge {
        if self.found.is_some() { ages.known } else { ages.unknown }
    }

    /// Returns true if it is not queried again in this round.
    pub const fn is_fresh(&self, round: u64, ages: &AnswerAges) -> bool {
        round.saturating_sub(self.round) < self.age(ages).fresh
    }

    /// Returns true if it is used in this round.
    pub const fn is_usable(&self, round: u64, ages: &AnswerAges) -> bool {
        round.saturating_sub(self.round) < self.age(ages).usable
    }
}

/// The state of a question.
#[derive(Clone, Copy, Debug)]
pub enum Asked<A> {
    /// Its answer.
    Answer(BookAnswer<A>),
    /// The answer arrives once [`HostBook::is_answered`] with this ticket.
    Pending(u64),
    /// There is no answer: the name service has failed, or too many queries are outstanding.
    Unavailable,
}

/// State of the query about something.
#[derive(Clone, Debug)]
enum Question<A> {
    Asked {
        before: Option<BookAnswer<A>>,
        ticket: u64,
    },
    Answered(BookAnswer<A>),
    /// The name service failed.
    Failed {
        at: Instant,
        before: Option<BookAnswer<A>>,
    },
}

impl<A> Question<A> {
    const fn is_known(&self) -> bool {
        match self {
            Self::Answered(answer) => answer.found.is_some(),
            Self::Asked { .. } => true,
            Self::Failed { before, .. } => before.is_some(),
        }
    }
}

#[derive(Debug)]
struct Questions<Q, A> {
    all: HashMap<Q, Question<A>>,
    /// Number of queries sent.
    sent: u64,
    /// Begin of the query that the thread makes.
    began: Option<Instant>,
}

#[derive(Debug)]
struct Known<Q, A> {
    questions: Mutex<Questions<Q, A>>,
    arrived: Condvar,
    /// Number of queries that are over.
    answered: AtomicU64,
    /// The current round: each call loads it.
    round: AtomicU64,
}

impl<Q, A> Known<Q, A> {
    fn questions(&self) -> MutexGuard<'_, Questions<Q, A>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answers of a name service, for all shards of a process; its thread ends with it.
pub struct HostBook<Q, A> {
    known: Arc<Known<Q, A>>,
    ask: SyncSender<Q>,
    ages: AnswerAges,
}

impl<Q, A> Debug for HostBook<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.known.questions().all.len();
        f.debug_struct("HostBook").field("questions", &count).finish()
    }
}

impl<Q, A> HostBook<Q, A>
where
    Q: Clone + Debug + Eq + Hash + Send + 'static,
    A: Clone + Send + 'static,
{
    /// Starts the thread, which asks `query`.
    ///
    /// # Errors
    /// When the thread cannot be created.
    pub fn asking(query: Box<HostQuery<Q, A>>, settings: BookSettings<Q>) -> io::Result<Self> {
        let questions = Questions { all: HashMap::new(), sent: 0, began: None };
        let known = Arc::new(Known {
            questions: Mutex::new(questions),
            arrived: Condvar::new(),
            answered: AtomicU64::new(0),
            round: AtomicU64::new(0),
        });
        let (sender, asked) = sync_channel(ASKED_MAX);
        let of_thread = Arc::downgrade(&known);
        let ages = settings.ages;
        thread::Builder::new()
            .name(settings.thread.to_owned())
            .spawn(move || answer(&of_thread, &asked, &query, settings))?;
        Ok(Self { known, ask: sender, ages })
    }

    /// The current round.
    pub fn round(&self) -> u64 {
        self.known.round.load(Ordering::Acquire)
    }

    /// The ages of its answers.
    pub const fn ages(&self) -> &AnswerAges {
        &self.ages
    }

    /// Invalidates every answer before the next round.
    pub fn forget(&self) {
        let mut questions = self.known.questions();
        questions.all.clear();
        let AnswerAges { known, unknown } = self.ages;
        self.known.round.fetch_add(known.usable.max(unknown.usable), Ordering::Release);
    }

    /// Returns true once the query with this ticket is over.
    pub fn is_answered(&self, ticket: u64) -> bool {
        self.known.answered.load(Ordering::Acquire) >= ticket
    }

    /// Returns true if the name service has worked on one query for longer than `limit`.
    pub fn is_late(&self, limit: Duration) -> bool {
        self.known.questions().began.is_some_and(|began| began.elapsed() > limit)
    }

    /// The answer to a question; queries it if it is not fresh.
    pub fn ask(&self, question: &Q, round: u64) -> Asked<A> {
        self.ask_among(&mut self.known.questions(), question, round)
    }

    fn ask_among(&self, all: &mut Questions<Q, A>, question: &Q, round: u64) -> Asked<A> {
        let usable = |answer: &Option<BookAnswer<A>>| {
            answer.clone().filter(|answer| answer.is_usable(round, &self.ages))
        };
        let before = match all.all.get(question) {
            Some(Question::Answered(answer)) if answer.is_fresh(round, &self.ages) => {
                return Asked::Answer(answer.clone());
            }
            Some(Question::Answered(answer)) => Some(answer.clone()),
            Some(Question::Failed { at, before }) if at.elapsed() > AGAIN => before.clone(),
            Some(Question::Failed { before, .. }) => {
                return usable(before).map_or(Asked::Unavailable, Asked::Answer);
            }
            Some(Question::Asked { before, ticket }) => {
                return usable(before).map_or(Asked::Pending(*ticket), Asked::Answer);
            }
            None => None,
        };
        make_room(&mut all.all, KNOWN_MAX, Question::is_known);
        let old = usable(&before);
        if self.ask.try_send(question.clone()).is_err() {
            return old.map_or(Asked::Unavailable, Asked::Answer);
        }
        all.sent += 1;
        let ticket = all.sent;
        all.all.insert(question.clone(), Question::Asked { before, ticket });
        old.map_or(Asked::Pending(ticket), Asked::Answer)
    }

    /// Returns true if at least half of the queries that may be outstanding are.
    pub fn is_half_full(&self) -> bool {
        let sent = self.known.questions().sent;
        sent.saturating_sub(self.known.answered.load(Ordering::Relaxed)) >= ASKED_MAX as u64 / 2
    }

    /// The answer to a question, for which the thread of the caller waits for as long as
    /// `patience`. None while there is no answer.
    pub fn look(&self, question: &Q, round: u64, patience: Duration) -> Option<BookAnswer<A>> {
        let end = Instant::now() + patience;
        let mut questions = self.known.questions();
        loop {
            let pending = match self.ask_among(&mut questions, question, round) {
                Asked::Answer(answer) => return Some(answer),
                Asked::Pending(_) => true,
                Asked::Unavailable => questions.all.contains_key(question),
            };
            let now = Instant::now();
            if !pending || now >= end {
                return None;
            }
            let waited = self.known.arrived.wait_timeout(questions, end - now);
            questions = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The number of questions that it has.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.known.questions().all.len()
    }

    /// Returns true if it has a question.
    #[cfg(test)]
    pub(crate) fn has(&self, question: &Q) -> bool {
        self.known.questions().all.contains_key(question)
    }

    /// Begins the next round.
    #[cfg(test)]
    pub(crate) fn next_round(&self) {
        self.known.round.fetch_add(1, Ordering::SeqCst);
    }
}

/// Answers queries until the book is gone.
fn answer<Q: Debug + Eq + Hash, A: Clone>(
    known: &Weak<Known<Q, A>>,
    asked: &Receiver<Q>,
    query: &HostQuery<Q, A>,
    settings: BookSettings<Q>,
) {
    let BookSettings { warn, round: length, .. } = settings;
    let (mut end, mut said) = (Instant::now() + length, None::<Instant>);
    loop {
        let next = asked.recv_timeout(end.saturating_duration_since(Instant::now()));
        let Some(here) = known.upgrade() else { return };
        if Instant::now() >= end {
            here.round.fetch_add(1, Ordering::Release);
            end = Instant::now() + length;
        }
        let question = match next {
            Ok(question) => question,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // Belongs to this round, even if `forget` is called meanwhile.
        let round = here.round.load(Ordering::Acquire);
        here.questions().began = Some(Instant::now());
        let found = query(&question);
        let mut questions = here.questions();
        questions.began = None;
        let state = match found {
            Ok(found) => Question::Answered(BookAnswer { found, round }),
            Err(error) => {
                if said.is_none_or(|at| at.elapsed() > SAID) {
                    said = Some(Instant::now());
                    warn(&question, &error);
                }
                let before = match questions.all.get(&question) {
                    Some(Question::Asked { before, .. }) => before.clone(),
                    _ => None,
                };
                Question::Failed { at: Instant::now(), before }
            }
        };
        questions.all.insert(question, state);
        here.answered.fetch_add(1, Ordering::Release);
        drop(questions);
        here.arrived.notify_all();
    }
}

/// Makes room for one more among `max`: drops entries without a result, and all if that frees too
/// little.
pub fn make_room<K: Eq + Hash, T>(
    entries: &mut HashMap<K, T>,
    max: usize,
    is_known: impl Fn(&T) -> bool,
) {
    if entries.len() < max {
        return;
    }
    entries.retain(|_, entry| is_known(entry));
    // At least an eighth has to be free, because each scan of all entries takes time.
    if entries.len() >= max - max / 8 {
        entries.clear();
    }
}
