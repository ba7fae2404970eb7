//! This host's name service, asked on threads of their own: one that hangs holds up the thread of
//! contexts for two seconds, and after that for a tenth of a second for each unknown principal.

use stag_nfs_store::exports::host_users::NamedUser;
use stag_protocol::rpc::{Gids, UnixUser};
use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Time for which an answer is used.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(600);
/// Answers that are kept; beyond that, all are dropped.
const ANSWERS_MAX: usize = 4_096;
/// Questions without an answer, each with a thread.
const QUESTIONS_MAX: usize = 4;
/// Time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same while an earlier question has no answer yet.
const PATIENCE_OVERDUE: Duration = Duration::from_millis(100);

/// A query to a name service: the user of a name; none for an unknown one.
pub(super) type UserQuery = dyn Fn(&str) -> io::Result<Option<NamedUser>> + Send + Sync;

/// A name service, and its answers of the last ten minutes.
pub(super) struct NameService {
    query: Arc<UserQuery>,
    state: Arc<Mutex<NamesState>>,
    patience: Duration,
}

#[derive(Debug, Default)]
struct NamesState {
    /// By local name, with their times.
    answers: HashMap<String, (Instant, Option<UnixUser>)>,
    /// Names whose answers have not come.
    asked: HashSet<String>,
    /// Times that all answers were forgotten: one that was asked for before is not kept.
    edition: u64,
}

impl NameService {
    pub(super) fn new(query: Box<UserQuery>) -> Self {
        Self { query: query.into(), state: Arc::default(), patience: PATIENCE }
    }

    /// Asks again about each name.
    pub(super) fn forget(&self) {
        let mut state = lock(&self.state);
        state.answers.clear();
        state.edition += 1;
    }

    /// The user of a local name, by an answer of the last ten minutes or a new one. An answer that
    /// comes too late is there for the next question.
    ///
    /// # Errors
    /// The name service failed, or has not answered yet.
    pub(super) fn user(&self, name: &str, now: Instant) -> io::Result<Option<UnixUser>> {
        let patience = {
            let mut state = lock(&self.state);
            if let Some((at, user)) = state.answers.get(name).copied()
                && now.saturating_duration_since(at) < ANSWER_AGE_MAX
            {
                return Ok(user);
            }
            let overdue = state.asked.len();
            if overdue >= QUESTIONS_MAX || !state.asked.insert(name.to_owned()) {
                return Err(no_answer());
            }
            if overdue == 0 { self.patience } else { self.patience.min(PATIENCE_OVERDUE) }
        };
        self.ask(name, now)?.recv_timeout(patience).unwrap_or_else(|_| Err(no_answer()))
    }

    /// Asks on a thread of its own, which keeps the answer.
    fn ask(
        &self,
        name: &str,
        now: Instant,
    ) -> io::Result<mpsc::Receiver<io::Result<Option<UnixUser>>>> {
        let edition = lock(&self.state).edition;
        let question = Question { state: Arc::clone(&self.state), name: name.to_owned(), edition };
        let query = Arc::clone(&self.query);
        let (answers, answer) = mpsc::sync_channel(1);
        let ask = move || {
            let user = query(&question.name).map(|user| user.as_ref().map(unix_user));
            if let Ok(user) = user {
                question.keep(now, user);
            }
            drop(question);
            // After too long a wait there is no receiver.
            let _ = answers.send(user);
        };
        thread::Builder::new().name("stag-names".into()).spawn(ask)?;
        Ok(answer)
    }
}

/// A question without an answer yet.
struct Question {
    state: Arc<Mutex<NamesState>>,
    name: String,
    edition: u64,
}

impl Question {
    fn keep(&self, now: Instant, user: Option<UnixUser>) {
        let mut state = lock(&self.state);
        if state.edition != self.edition {
            return;
        }
        if state.answers.len() >= ANSWERS_MAX {
            state.answers.clear();
        }
        state.answers.insert(self.name.clone(), (now, user));
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        lock(&self.state).asked.remove(&self.name);
    }
}

fn lock(state: &Mutex<NamesState>) -> MutexGuard<'_, NamesState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the name service has not answered yet")
}

/// A user of this host with the first 16 of its other groups.
fn unix_user(user: &NamedUser) -> UnixUser {
    let others = user.groups.iter().copied().filter(|group| *group != user.gid);
    let others: Vec<_> = others.take(Gids::MAX).collect();
    let gids = Gids::new(&others).expect("16 at most were taken");
    UnixUser { uid: user.uid, gid: user.gid, gids }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn alice(name: &str) -> Option<NamedUser> {
        (name == "alice").then(|| NamedUser { uid: 1_000, gid: 100, groups: vec![100] })
    }

    #[test]
    fn answers_are_used_for_ten_minutes_and_failures_are_not() {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let names = NameService::new(Box::new(move |name| {
            counted.fetch_add(1, Ordering::Relaxed);
            if name == "failing" { Err(io::ErrorKind::Other.into()) } else { Ok(alice(name)) }
        }));
        let start = Instant::now();
        for (name, seconds, count) in [
            ("alice", 0, 1),
            ("alice", 599, 1),
            ("eve", 599, 2),
            ("eve", 600, 2),
            ("alice", 600, 3),
        ] {
            let user = names.user(name, start + Duration::from_secs(seconds)).unwrap();
            assert_eq!(user.map(|user| user.uid), (name == "alice").then_some(1_000));
            assert_eq!(asked.load(Ordering::Relaxed), count, "{name} after {seconds} s");
        }
        for count in 4..6 {
            names.user("failing", start).unwrap_err();
            assert_eq!(asked.load(Ordering::Relaxed), count);
        }
        for number in 0..=ANSWERS_MAX {
            names.user(&number.to_string(), start).unwrap();
        }
        assert!(lock(&names.state).answers.len() <= ANSWERS_MAX);
    }

    /// A name service that knows alice at once, and answers about others when it may.
    fn hanging() -> (NameService, Arc<AtomicU32>, mpsc::Sender<()>) {
        let (go_on, waits) = mpsc::channel::<()>();
        let (waits, asked) = (Mutex::new(waits), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&asked);
        let mut names = NameService::new(Box::new(move |name| {
            if name != "alice" {
                counted.fetch_add(1, Ordering::Relaxed);
                let _ = waits.lock().unwrap().recv();
            }
            Ok(alice(name))
        }));
        names.patience = Duration::from_millis(30);
        (names, asked, go_on)
    }

    #[test]
    fn a_name_service_that_hangs_holds_up_no_known_user() {
        let (names, asked, go_on) = hanging();
        let now = Instant::now();
        names.user("alice", now).unwrap();
        for _ in 0..3 {
            let error = names.user("bob", now).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(names.user("alice", now).unwrap().unwrap().uid, 1_000);
        while asked.load(Ordering::Relaxed) < 1 {
            thread::yield_now();
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1, "one question about a name");
        // Its answer is used, though it is late.
        go_on.send(()).unwrap();
        let from = Instant::now();
        while names.user("bob", now).is_err() {
            assert!(from.elapsed() < Duration::from_secs(60));
            thread::yield_now();
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn questions_without_an_answer_are_limited() {
        let (names, asked, go_on) = hanging();
        let now = Instant::now();
        for number in 0..3 * QUESTIONS_MAX {
            names.user(&number.to_string(), now).unwrap_err();
        }
        assert_eq!(lock(&names.state).asked.len(), QUESTIONS_MAX);
        drop(go_on);
        let from = Instant::now();
        while !lock(&names.state).asked.is_empty() {
            assert!(from.elapsed() < Duration::from_secs(60));
            thread::yield_now();
        }
        assert_eq!(asked.load(Ordering::Relaxed), QUESTIONS_MAX as u32);
        names.user("0", now).unwrap();
    }
}
