use super::*;
use crate::exports::host_book::{ASKED_MAX, KNOWN_MAX};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread,
};

/// Rounds that end by [`HostBook::forget`] or never.
const LONG: Duration = Duration::from_secs(3_600);

fn numbers(groups: Option<HostGroups>) -> Option<Vec<u32>> {
    groups.map(|groups| groups.all.numbers().collect())
}

/// Asks until there is an answer, as a caller that retries.
fn answer_of(seen: &mut SeenGroups, uid: u32) -> Option<Vec<u32>> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(groups) = seen.of(uid) {
            return numbers(groups);
        }
        assert!(Instant::now() < end, "there is no answer");
        thread::sleep(Duration::from_millis(1));
    }
}

fn book(
    ask: impl Fn(u32) -> io::Result<Option<Vec<u32>>> + Send + 'static,
    round: Duration,
) -> Arc<GroupBook> {
    Arc::new(book_asking(Box::new(ask), round).unwrap())
}

#[test]
fn a_user_has_all_groups_that_the_host_knows_and_a_stranger_has_no_answer() {
    let book = book(|uid| Ok((uid < 100).then(|| (0..uid).collect())), LONG);
    let mut seen = SeenGroups::new(&book, true);
    assert_eq!(answer_of(&mut seen, 40), Some((0..40).collect()));
    let groups = seen.of(40).unwrap().unwrap();
    assert_eq!(groups.not_root.numbers().collect::<Vec<_>>(), (1..40).collect::<Vec<_>>());
    assert_eq!(answer_of(&mut seen, 100), None);
    assert_eq!(seen.of(100), Some(None), "it is kept that nobody knows him");
    assert_eq!(answer_of(&mut seen, 0), Some(Vec::new()));
}

#[test]
fn a_shard_waits_for_a_moment_and_has_the_answer_when_the_caller_comes_again() {
    let gate = Arc::new(Mutex::new(()));
    let (closed, at_gate) = (gate.lock().unwrap(), Arc::clone(&gate));
    let ask = move |uid| {
        drop(at_gate.lock());
        Ok(Some(vec![uid]))
    };
    let book = book(ask, LONG);
    let mut seen = SeenGroups::new(&book, false);
    let answered = (0..1_000).filter(|_| seen.of(7).is_some()).count();
    assert_eq!(answered, 0);
    drop(closed);
    assert_eq!(answer_of(&mut seen, 7), Some(vec![7]));
}

#[test]
fn what_was_forgotten_is_asked_again_and_an_old_answer_lasts_one_round_more() {
    let is_changed = Arc::new(AtomicBool::new(false));
    let is_failing = Arc::new(AtomicBool::new(false));
    let (changed, failing) = (Arc::clone(&is_changed), Arc::clone(&is_failing));
    let ask = move |_| match (failing.load(Ordering::SeqCst), changed.load(Ordering::SeqCst)) {
        (true, _) => Err(io::Error::other("it is down")),
        (false, true) => Ok(Some(vec![2])),
        (false, false) => Ok(Some(vec![1])),
    };
    let book = book(ask, LONG);
    let mut seen = SeenGroups::new(&book, true);
    assert_eq!(answer_of(&mut seen, 9), Some(vec![1]));
    is_changed.store(true, Ordering::SeqCst);
    assert_eq!(answer_of(&mut seen, 9), Some(vec![1]), "nobody asks in the same round");
    book.forget();
    assert_eq!(answer_of(&mut seen, 9), Some(vec![2]));
    // The next round, in which the name service fails: the old answer is used, once more only.
    is_failing.store(true, Ordering::SeqCst);
    let mut hasty = SeenGroups::new(&book, false);
    book.next_round();
    assert_eq!(answer_of(&mut hasty, 9), Some(vec![2]));
    book.next_round();
    assert_eq!(hasty.of(9), None);
    // A user never answered for is queried again once the service is back.
    is_failing.store(false, Ordering::SeqCst);
    assert_eq!(answer_of(&mut hasty, 9), Some(vec![2]));
}

#[test]
fn a_changed_answer_of_the_next_round_arrives() {
    let rounds = AtomicU64::new(0);
    let ask =
        move |_| Ok(Some(vec![u32::try_from(rounds.fetch_add(1, Ordering::SeqCst)).unwrap()]));
    let book = book(ask, Duration::from_millis(5));
    let mut seen = SeenGroups::new(&book, true);
    let first = answer_of(&mut seen, 3);
    let end = Instant::now() + Duration::from_secs(20);
    while answer_of(&mut seen, 3) == first {
        assert!(Instant::now() < end, "the first answer lasts for ever");
    }
}

#[test]
fn users_that_callers_invent_fill_no_memory_and_push_nobody_out() {
    const USER: u32 = 1_000_000;
    let book = book(|uid| Ok((uid == USER).then(|| vec![7])), LONG);
    let mut seen = SeenGroups::new(&book, false);
    assert_eq!(answer_of(&mut seen, USER), Some(vec![7]));
    for uid in 0..u32::try_from(KNOWN_MAX + 2_000).unwrap() {
        let _ = seen.of(uid);
        assert!(seen.seen.len() <= SEEN_MAX);
    }
    assert!(book.len() <= KNOWN_MAX + ASKED_MAX);
    assert!(seen.seen.contains_key(&USER) && book.has(&USER));
    assert_eq!(numbers(seen.of(USER).unwrap()), Some(vec![7]));
}

#[test]
fn room_is_made_for_many_when_all_are_known() {
    let mut users: HashMap<u32, bool> = (0..64).map(|uid| (uid, uid % 2 == 0)).collect();
    make_room(&mut users, 64, |is_known| *is_known);
    assert_eq!(users.len(), 32, "whom nobody knows has gone");
    users.extend((100..132).map(|uid| (uid, true)));
    make_room(&mut users, 64, |is_known| *is_known);
    assert!(users.is_empty());
}

#[test]
fn the_thread_ends_with_the_last_store() {
    let (ended, wait) = sync_channel::<()>(0);
    // Dropped with the thread.
    let ask = move |_| {
        let _ = &ended;
        Ok(None)
    };
    let book = book(ask, LONG);
    let seen = SeenGroups::new(&book, true);
    drop((seen, book));
    assert_eq!(wait.recv_timeout(Duration::from_secs(20)), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn this_host_knows_root_and_nobody_of_a_number_that_is_free() {
    let mut root = of_host(0).unwrap().expect("every host has root");
    root.sort_unstable();
    assert!(root.contains(&0), "{root:?}");
    assert_eq!(of_host(3_999_999_999).unwrap(), None);
}
