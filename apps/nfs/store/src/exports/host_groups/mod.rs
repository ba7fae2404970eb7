//! Groups of users from this host's name service.
//!
//! A credential of AUTH_SYS has sixteen groups in addition to the first one (RFC 5531 Appendix A);
//! a user in more groups loses the rights of the others. If configured, a user's groups are the
//! host's, and those in the credentials count only for users unknown to the host, as in knfsd with
//! `mountd --manage-gids`.
//!
//! The thread of a [`HostBook`] queries the name service. A shard waits for an answer briefly
//! ([`MOMENT`]) and rarely ([`PAUSE`]); else the client is asked to retry (NFS3ERR_JUKEBOX,
//! NFS4ERR_DELAY). Each shard caches the answers that it has seen: a call takes no lock. An answer
//! of an earlier round ([`ROUND`]) is queried again at its next use, and serves until the new
//! answer arrives, or for one more round at most.

use super::host_book::{
    AnswerAge, AnswerAges, BookAnswer, BookSettings, HostBook, HostQuery, make_room,
};
use nix::unistd::{Gid, Uid, User as HostUser, getgrouplist};
use stag_nfs_os::GroupList;
use std::{
    collections::HashMap,
    ffi::CString,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// Time for which an answer is not queried again.
const ROUND: Duration = Duration::from_secs(600);
/// Time that a shard waits for one answer.
const MOMENT: Duration = Duration::from_micros(500);
/// Time between two such waits.
const PAUSE: Duration = Duration::from_millis(25);
/// Time that a helper's thread waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Users cached by a shard.
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

/// The groups of all users, for the stores of a process.
pub(crate) type GroupBook = HostBook<u32, HostGroups>;

type Answer = BookAnswer<HostGroups>;

/// Starts a book that asks this host's name service.
///
/// # Errors
/// When its thread cannot be created.
pub(crate) fn book_of_host() -> io::Result<GroupBook> {
    book_asking(Box::new(of_host), ROUND)
}

/// The same with another name service and round length.
pub(crate) fn book_asking(ask: Box<GroupQuery>, round: Duration) -> io::Result<GroupBook> {
    let query: Box<HostQuery<u32, HostGroups>> = Box::new(move |uid| groups(&ask, *uid));
    // An old answer serves for one round more, while the new one is queried.
    let age = AnswerAge { fresh: 1, usable: 2 };
    let ages = AnswerAges { known: age, unknown: age };
    let settings = BookSettings {
        thread: "stag-groups",
        warn: |uid, error| {
            tracing::warn!(target: "stag", uid, %error, "no answer about a user's groups");
        },
        round,
        ages,
    };
    HostBook::asking(query, settings)
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
        let round = self.book.round();
        let ages = *self.book.ages();
        if let Some((last, answer)) = self.last
            && last == uid
            && answer.is_fresh(round, &ages)
        {
            return Some(answer.found);
        }
        let answer = match self.seen.get(&uid) {
            Some(answer) if answer.is_fresh(round, &ages) => *answer,
            _ => self.look(uid, round)?,
        };
        self.last = Some((uid, answer));
        Some(answer.found)
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
        let answer = self.book.look(&uid, round, patience);
        if now.elapsed() > MOMENT / 8 {
            self.waited = Some(Instant::now());
        }
        let answer = answer?;
        make_room(&mut self.seen, SEEN_MAX, |answer| answer.found.is_some());
        self.seen.insert(uid, answer);
        Some(answer)
    }
}

#[cfg(test)]
mod tests;
