use super::*;

/// The descriptor and the clearance of a file for the caller, as stored.
fn data_fd(lab: &mut Lab, file: &FileHandle) -> i32 {
    use std::os::fd::AsRawFd;
    let slot = lab.files.resolve(file, Intent::Look).unwrap();
    lab.files.cache.get(slot).data.as_ref().unwrap().fd.as_raw_fd()
}

#[test]
fn calls_of_one_user_in_a_row_take_his_identity_once() {
    let Some(mut lab) = lab(|_| {}) else { return };
    lab.give("f", ALICE, ALICE, 0o666);
    lab.by(user(ALICE), |lab| {
        let file = lab.find("f");
        let before = lab.files.counts().switches;
        for _ in 0..100 {
            lab.files.act_as(&user(ALICE));
            lab.content(&file).unwrap();
            lab.write(&file, 0, b"y").unwrap();
        }
        assert_eq!(lab.files.counts().switches, before);
        let fd = data_fd(lab, &file);
        for _ in 0..10 {
            for uid in [ALICE, BOB] {
                lab.files.act_as(&user(uid));
                lab.content(&file).unwrap();
                lab.write(&file, 0, b"z").unwrap();
            }
        }
        assert_eq!(lab.files.counts().switches, before + 19, "the first was there already");
        assert_eq!(data_fd(lab, &file), fd, "one descriptor serves whoever has the right");
    });
}

const ROUNDS: usize = 10;

/// Counts the system calls that `strace` saw between the two marks, by name.
fn traced(mode: &str) -> Option<std::collections::BTreeMap<String, usize>> {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    let test = "files::tests::privileged::counted::steady_calls";
    if !run_under(&["strace", "-f", "-o", log.to_str().unwrap()], test, mode) {
        return None;
    }
    let log = fs::read_to_string(log).unwrap();
    // A traced process may be denied privilege.
    let begin = log.lines().position(|line| line.contains("/mark-begin"))?;
    let end = log.lines().position(|line| line.contains("/mark-end")).unwrap();
    let mut counts = std::collections::BTreeMap::new();
    let tid = log.lines().nth(begin).unwrap().split_whitespace().next().unwrap();
    for line in log.lines().take(end).skip(begin + 1) {
        let mut words = line.split_whitespace();
        if words.next() == Some(tid) {
            let name = words.next().unwrap().split('(').next().unwrap();
            if name.starts_with('<') {
                continue; // The end of a call that another thread's fell into.
            }
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    Some(counts)
}

/// Runs under `strace`.
#[test]
#[ignore = "started by the_same_user_on_the_same_file_costs_the_system_calls_of_unprivileged_mode"]
fn steady_calls() {
    let mode = match std::env::var("STAG_TEST_MARKER").as_deref() {
        Ok("privileged") => CallerMode::Privileged,
        Ok("unprivileged") => CallerMode::Unprivileged,
        _ => return,
    };
    let Some(mut lab) = lab(|config| config.callers.mode = mode) else { return };
    lab.give("f", ALICE, ALICE, 0o666);
    lab.by(user(ALICE), |lab| {
        let file = lab.find("f");
        let calls = |lab: &mut Lab| {
            lab.files.act_as(&user(ALICE));
            lab.files.getattr(&file).unwrap();
            lab.content(&file).unwrap();
            lab.write(&file, 0, b"y").unwrap();
        };
        calls(lab);
        let _ = fs::metadata("/mark-begin");
        for _ in 0..ROUNDS {
            calls(lab);
        }
        let _ = fs::metadata("/mark-end");
    });
}

#[test]
fn the_same_user_on_the_same_file_costs_the_system_calls_of_unprivileged_mode() {
    if lab(|_| {}).is_none() {
        return;
    }
    let (Some(with), Some(without)) = (traced("privileged"), traced("unprivileged")) else {
        eprintln!("skipped: no strace, or no privilege under it");
        return;
    };
    assert_eq!(with, without);
    let count = |name: &str| with.get(name).copied().unwrap_or(0);
    // If the file system does not report whether a read would wait, one more query is made.
    let reads = count("preadv2") + count("pread64");
    assert!((2 * ROUNDS..=2 * ROUNDS + 1).contains(&reads), "{with:?}");
    let others = (count("pwritev"), count("statx"), count("readlinkat"));
    // The path of the file is only read before a change.
    assert_eq!(others, (ROUNDS, 4 * ROUNDS, ROUNDS), "{with:?}");
    assert_eq!(with.values().sum::<usize>() - reads, 6 * ROUNDS, "{with:?}");
}

#[test]
fn a_thread_that_acts_as_nobody_is_refused() {
    let Some(mut lab) = lab(|_| {}) else { return };
    let root = lab.root();
    assert_eq!(lab.files.getattr(&root), Err(Status::Acces));
    lab.files.mount(b"/data").unwrap();
    assert_eq!(
        lab.files.getattr(&root).unwrap().kind,
        FileKind::Directory,
        "the anonymous user mounted"
    );
    stag_nfs_os::user::leave().unwrap();
}

#[test]
fn a_larger_reply_looks_at_no_more_entries() {
    let Some(mut lab) = lab(|_| {}) else { return };
    crate::files::tests::directory::fill(lab.path("d"));
    lab.by(user(ALICE), crate::files::tests::directory::each_entry_is_looked_at_once);
}
