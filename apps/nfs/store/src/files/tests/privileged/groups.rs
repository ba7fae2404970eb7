//! Tests of groups from the host's name service.

use super::*;
use crate::exports::host_groups::{SeenGroups, book_asking};
use std::{
    io,
    sync::Mutex,
    time::{Duration, Instant},
};

/// The group that may read the file.
const READERS: u32 = 3_039;

/// A lab with this name service, and `ALICE`'s file that [`READERS`] may read.
fn asking(
    ask: impl Fn(u32) -> io::Result<Option<Vec<u32>>> + Send + 'static,
) -> Option<(Lab, FileHandle)> {
    let mut lab = lab(|_| {})?;
    lab.give("file", ALICE, READERS, 0o640);
    let file = lab.by(user(ALICE), |lab| lab.find("file"));
    let book = book_asking(Box::new(ask), Duration::from_secs(3_600)).unwrap();
    lab.files.groups = Some(SeenGroups::new(&Arc::new(book), false));
    Some((lab, file))
}

/// Reads as a caller that retries when asked to; returns the minimum number of retries.
fn read(lab: &mut Lab, file: &FileHandle, user: User) -> (Result<(), Status>, u32) {
    let (end, mut times) = (Instant::now() + Duration::from_secs(20), 0);
    loop {
        let done = lab.by(user, |lab| lab.content(file).map(drop));
        if done != Err(Status::Jukebox) {
            return (done, times);
        }
        assert!(Instant::now() < end, "there is no answer");
        times += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_user_in_forty_groups_may_what_the_last_of_them_may() {
    let known = |uid| Ok((uid == BOB).then(|| (3_000..3_040).collect()));
    let Some((mut lab, file)) = asking(known) else { return };
    assert_eq!(read(&mut lab, &file, user(BOB)).0, Ok(()));
    // The client's claimed groups are ignored: the host knows the user.
    lab.give("others", ALICE, STAFF, 0o640);
    assert_eq!(read(&mut lab, &file, user(ALICE)).0, Ok(()));
    let others = lab.by(user(ALICE), |lab| lab.find("others"));
    assert_eq!(read(&mut lab, &others, member(BOB, BOB, &[STAFF])).0, Err(Status::Acces));
    // The claim of a user unknown to the host counts.
    let stranger = 1_777;
    assert_eq!(read(&mut lab, &others, member(stranger, stranger, &[STAFF])).0, Ok(()));
    assert_eq!(read(&mut lab, &file, member(stranger, stranger, &[STAFF])).0, Err(Status::Acces));
    // And neither gets the other's groups.
    for _ in 0..3 {
        assert_eq!(read(&mut lab, &file, user(BOB)), (Ok(()), 0));
        assert_eq!(
            read(&mut lab, &file, member(stranger, stranger, &[STAFF])),
            (Err(Status::Acces), 0)
        );
    }
}

#[test]
fn while_the_name_service_is_slow_a_caller_comes_again_and_others_are_served() {
    let gate = Arc::new(Mutex::new(()));
    let at_gate = Arc::clone(&gate);
    let slow = move |uid| {
        if uid == BOB {
            drop(at_gate.lock());
        }
        Ok((uid == BOB).then(|| vec![READERS]))
    };
    let Some((mut lab, file)) = asking(slow) else { return };
    assert_eq!(read(&mut lab, &file, user(ALICE)).0, Ok(()));
    let closed = gate.lock().unwrap();
    for _ in 0..3 {
        let refused = lab.by(user(BOB), |lab| lab.content(&file).map(drop));
        assert_eq!(refused, Err(Status::Jukebox));
        assert_eq!(read(&mut lab, &file, user(ALICE)), (Ok(()), 0));
    }
    drop(closed);
    assert_eq!(read(&mut lab, &file, user(BOB)).0, Ok(()));
}

#[test]
fn root_and_whoever_is_squashed_are_not_asked_about() {
    let nobody_asks = |uid| panic!("somebody asks about {uid}");
    let Some((mut lab, file)) = asking(nobody_asks) else { return };
    lab.own("file", ALICE, READERS, 0o644);
    assert_eq!(read(&mut lab, &file, User::Anyone), (Ok(()), 0));
    assert_eq!(read(&mut lab, &file, user(0)), (Ok(()), 0));
}
