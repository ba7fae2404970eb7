//! Every defect of a server against our requester: it does what the specification requires, its
//! next call succeeds, and it holds nothing.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_hostile::requester;
use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Defects at a time: most of them wait for a moment in which nothing comes.
const AT_A_TIME: usize = 4;

#[test]
fn every_bad_answer_is_met_as_it_should_be_and_the_next_call_succeeds() {
    let table = requester::all();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(defect) = table.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let seen = match defect.play() {
                        Ok(seen) if seen.is_in(defect.expect) => continue,
                        Ok(seen) => seen.to_string(),
                        Err(error) => error.to_string(),
                    };
                    let line = format!(
                        "{}: {seen}, instead of {} ({})",
                        defect.name, defect.expect, defect.clause
                    );
                    wrong.lock().unwrap().push(line);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), table.len(), wrong.join("\n"));
}

#[test]
fn names_are_unique() {
    let table = requester::all();
    let names: BTreeSet<_> = table.iter().map(|defect| &defect.name).collect();
    assert_eq!(names.len(), table.len());
    for (family, least) in [
        ("server-reply-key", 16),
        ("server-write-to-a-", 18),
        ("server-read-of-a-read-chunk", 9),
        ("server-terminate", 18),
        ("server-getattr", 50),
        ("server-v2-", 300),
        ("server-v2-directed-", 300),
        ("server-reply-chunk-", 20),
        ("trickles", 6),
    ] {
        let count = table.iter().filter(|defect| defect.name.contains(family)).count();
        assert!(count >= least, "{family}: {count}");
    }
    assert!(table.len() >= 1_000, "{}", table.len());
}
