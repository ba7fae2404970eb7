//! Groups of users from this host's name service.
//!
//! A credential of AUTH_SYS has sixteen groups in addition to the first one (RFC 5531 Appendix A);
//! a user in more groups loses the rights of the others. If configured, a user's groups are the
//! host's, and those in the credentials count only for users unknown to the host, as in knfsd with
//! `mountd --manage-gids`.
//!
//! **A name service may be slow**, so a separate thread queries it. A shard waits for an answer
//! briefly ([`MOMENT`]) and rarely ([`PAUSE`]); else the client is asked to retry (NFS3ERR_JUKEBOX,
//! NFS4ERR_DELAY). Each shard caches the answers that it has seen: a call takes no lock.
//!
//! **Answers expire.** A round is [`ROUND`] long. An answer of an earlier round is queried again at
//! its next use, and serves until the new answer arrives, or for one more round at most.

use std::{
    collections::HashMap,
    ffi::CString,
    fmt, io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use nix::unistd::{Gid, Uid, User as HostUser, getgrouplist};
use stag_nfs_os::GroupList;

/// Time for which an answer is not queried again.
const ROUND: Duration = Duration::from_secs(600);
/// Time that a shard waits for one answer.
const MOMENT: Duration = Duration::from_micros(500);
/// Time between two such waits.
const PAUSE: Duration = Duration::from_millis(25);
/// Time that a helper's thread waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time after which a failed query is repeated.
const AGAIN: Duration = Duration::from_secs(1);
/// Time between two warnings about a failing name service.
const SAID: Duration = Duration::from_secs(10);
/// Outstanding queries, at most: beyond that, clients retry.
const ASKED_MAX: usize = 1024;
/// Users cached by the process, and by a shard. Callers choose whom they name: at the limit, users
/// unknown to the host are dropped first, and then the others.
const KNOWN_MAX: usize = 65_536;
const SEEN_MAX: usize = 4096;

/// Source of a caller's groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupSource {
    /// The groups that its client names: seventeen at most.
    #[default]
    Client,
    /// The groups that this host's name service has for the user.
    Host,
}

/// Groups of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostGroups {
    /// All.
    pub all: GroupList,
    /// All groups but root's.
    pub not_root: GroupList,
}

/// A query to a name service: the groups of a user; none for an unknown user.
pub(crate) type GroupQuery = dyn Fn(u32) -> io::Result<Option<Vec<u32>>> + Send;

/// One answer: none for a user unknown to the host.
#[derive(Clone, Copy, Debug)]
struct Answer {
    groups: Option<HostGroups>,
    round: u64,
}

/// State of the query about a user.
#[derive(Clone, Copy, Debug)]
enum Question {
    Asked {
        before: Option<Answer>,
    },
    Answered(Answer),
    /// The name service failed.
    Failed {
        at: Instant,
        before: Option<Answer>,
    },
}

#[derive(Debug, Default)]
struct Known {
    users: Mutex<HashMap<u32, Question>>,
    answered: Condvar,
    /// The current round: each call loads it.
    round: AtomicU64,
}

impl Known {
    fn users(&self) -> MutexGuard<'_, HashMap<u32, Question>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The groups of all users, for the stores of a process; its thread ends with it.
pub(crate) struct GroupBook {
    known: Arc<Known>,
    ask: SyncSender<u32>,
}

impl fmt::Debug for GroupBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupBook").field("users", &self.known.users().len()).finish()
    }
}

impl GroupBook {
    /// Starts the thread that asks this host's name service.
    ///
    /// # Errors
    /// When the thread cannot be created.
    pub fn of_host() -> io::Result<Self> {
        Self::asking(Box::new(of_host), ROUND)
    }

    /// The same with another name service and round length.
    pub fn asking(ask: Box<GroupQuery>, round: Duration) -> io::Result<Self> {
        let known = Arc::new(Known::default());
        let (sender, asked) = sync_channel(ASKED_MAX);
        let of_thread = Arc::downgrade(&known);
        thread::Builder::new()
            .name("stag-groups".to_owned())
            .spawn(move || answer(&of_thread, &asked, &ask, round))?;
        Ok(Self { known, ask: sender })
    }

    /// Invalidates every user's answer before the next round.
    pub fn forget(&self) {
        let mut users = self.known.users();
        users.clear();
        self.known.round.fetch_add(2, Ordering::Release);
    }

    /// The answer about a user; queries it if it is not of this round. None while there is no
    /// answer.
    fn look(&self, uid: u32, round: u64, patience: Duration) -> Option<Answer> {
        let end = Instant::now() + patience;
        let mut users = self.known.users();
        loop {
            let before = match users.get(&uid) {
                Some(Question::Answered(answer)) if answer.round == round => return Some(*answer),
                Some(Question::Answered(answer)) => Some(*answer),
                Some(Question::Failed { at, before }) if at.elapsed() > AGAIN => *before,
                Some(Question::Asked { before } | Question::Failed { before, .. }) => {
                    let usable = before.filter(|answer| answer.round + 1 == round);
                    let now = Instant::now();
                    if usable.is_some() || now >= end {
                        return usable;
                    }
                    let waited = self.known.answered.wait_timeout(users, end - now);
                    users = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
                None => None,
            };
            make_room(&mut users, KNOWN_MAX, |question| match question {
                Question::Answered(answer) => answer.groups.is_some(),
                Question::Asked { .. } => true,
                Question::Failed { before, .. } => before.is_some(),
            });
            if self.ask.try_send(uid).is_err() {
                return before.filter(|answer| answer.round + 1 == round);
            }
            users.insert(uid, Question::Asked { before });
        }
    }
}

/// Answers queries until no store is left.
fn answer(known: &Weak<Known>, asked: &Receiver<u32>, ask: &GroupQuery, length: Duration) {
    let (mut end, mut said) = (Instant::now() + length, None::<Instant>);
    loop {
        let next = asked.recv_timeout(end.saturating_duration_since(Instant::now()));
        let Some(here) = known.upgrade() else { return };
        if Instant::now() >= end {
            here.round.fetch_add(1, Ordering::Release);
            end = Instant::now() + length;
        }
        let uid = match next {
            Ok(uid) => uid,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // Belongs to this round, even if `forget` is called meanwhile.
        let round = here.round.load(Ordering::Acquire);
        let found = groups(ask, uid);
        let mut users = here.users();
        let question = match found {
            Ok(groups) => Question::Answered(Answer { groups, round }),
            Err(error) => {
                if said.is_none_or(|at| at.elapsed() > SAID) {
                    said = Some(Instant::now());
                    tracing::warn!(target: "stag", uid, %error, "no answer about a user's groups");
                }
                let before = match users.get(&uid) {
                    Some(Question::Asked { before }) => *before,
                    _ => None,
                };
                Question::Failed { at: Instant::now(), before }
            }
        };
        users.insert(uid, question);
        drop(users);
        here.answered.notify_all();
    }
}

/// Makes room for one more among `max`: drops unknown users, and all if that frees too little.
fn make_room<T>(users: &mut HashMap<u32, T>, max: usize, is_known: impl Fn(&T) -> bool) {
    if users.len() < max {
        return;
    }
    users.retain(|_, user| is_known(user));
    // At least an eighth has to be free, because each scan of all users takes time.
    if users.len() >= max - max / 8 {
        users.clear();
    }
}

fn groups(ask: &GroupQuery, uid: u32) -> io::Result<Option<HostGroups>> {
    let Some(groups) = ask(uid)? else { return Ok(None) };
    let all = GroupList::keep(groups.iter().copied());
    let not_root = GroupList::keep(groups.iter().copied().filter(|group| *group != 0));
    let (Some(all), Some(not_root)) = (all, not_root) else {
        return Err(io::Error::other("this server keeps too many groups already"));
    };
    Ok(Some(HostGroups { all, not_root }))
}

/// The groups that this host has for a user.
fn of_host(uid: u32) -> io::Result<Option<Vec<u32>>> {
    let Some(user) = HostUser::from_uid(Uid::from_raw(uid))? else { return Ok(None) };
    let name = CString::new(user.name)?;
    let groups = getgrouplist(&name, user.gid)?;
    Ok(Some(groups.into_iter().map(Gid::as_raw).collect()))
}

/// The answers that one store has seen.
#[derive(Debug)]
pub(crate) struct SeenGroups {
    book: Arc<GroupBook>,
    seen: HashMap<u32, Answer>,
    /// The answer that was used last.
    last: Option<(u32, Answer)>,
    /// True for a store whose thread may wait.
    is_patient: bool,
    /// The end of the last wait.
    waited: Option<Instant>,
}

impl SeenGroups {
    pub fn new(book: &Arc<GroupBook>, is_patient: bool) -> Self {
        let book = Arc::clone(book);
        Self { book, seen: HashMap::new(), last: None, is_patient, waited: None }
    }

    /// The groups of a user: `Some(None)` for one unknown to the host, none while there is no
    /// answer.
    pub fn of(&mut self, uid: u32) -> Option<Option<HostGroups>> {
        let round = self.book.known.round.load(Ordering::Acquire);
        if let Some((last, answer)) = self.last
            && (last, answer.round) == (uid, round)
        {
            return Some(answer.groups);
        }
        let answer = match self.seen.get(&uid) {
            Some(answer) if answer.round == round => *answer,
            _ => self.look(uid, round)?,
        };
        self.last = Some((uid, answer));
        Some(answer.groups)
    }

    #[cold]
    fn look(&mut self, uid: u32, round: u64) -> Option<Answer> {
        let now = Instant::now();
        let may_wait = self.waited.is_none_or(|at| now.duration_since(at) >= PAUSE);
        let patience = match (self.is_patient, may_wait) {
            (true, _) => PATIENCE,
            (false, true) => MOMENT,
            (false, false) => Duration::ZERO,
        };
        let answer = self.book.look(uid, round, patience);
        if now.elapsed() > MOMENT / 8 {
            self.waited = Some(Instant::now());
        }
        let answer = answer?;
        make_room(&mut self.seen, SEEN_MAX, |answer| answer.groups.is_some());
        self.seen.insert(uid, answer);
        Some(answer)
    }
}

#[cfg(test)]
mod tests;
