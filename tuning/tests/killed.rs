//! A process that changes a host is killed at any time, and everything is undone. It has a program
//! of its own, because between fork and exec the other process holds whatever files, and locks, the
//! tests beside it have.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use stag_tuning::{HostFiles, HostReport, checks, plan_changes};
use std::{
    env,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use support::{apply_all, assert_as_before, plan, revert_all, snapshot, untuned};
use tempfile::TempDir;

const CHILD: &str = "STAG_TUNING_CHILD";

#[test]
fn a_process_that_is_killed_at_any_time_leaves_what_can_be_undone() {
    let (unpacked, _) = untuned();
    let (root, home) = (unpacked.home.path(), TempDir::new().unwrap());
    let journal = home.path().join("journal");
    let before = snapshot(root);
    let run = |patience: Option<Duration>| {
        let began = Instant::now();
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "child_applies", "--ignored"])
            .env(CHILD, format!("{}:{}", root.display(), journal.display()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        match patience {
            None => assert!(child.wait().unwrap().success()),
            Some(patience) => {
                std::thread::sleep(patience);
                let _ = child.kill();
                child.wait().unwrap();
            }
        }
        began.elapsed()
    };
    let whole = run(None);
    revert_all(root, &journal);
    let (mut middle, mut state) = (0, 0x2545_f491_u32);
    for _ in 0..100 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        run(Some(whole * (state >> 24) / 256));
        let undone = revert_all(root, &journal).iter().filter(|end| end.ends_with("Done")).count();
        middle += usize::from(undone > 0);
        assert_as_before(root, &before, "killed");
    }
    println!("{middle} of 100 died behind their first change");
}

/// The other process of the test above.
#[test]
#[ignore = "is run by another test"]
fn child_applies() {
    let Ok(places) = env::var(CHILD) else { return };
    let (root, journal) = places.split_once(':').unwrap();
    let host = HostFiles::recorded(Path::new(root));
    let scene = stag_tuning::Scene { host, plan: plan(Some("mlx5_0")), gaps: None };
    let changes = HostReport::of(&scene, &checks::of_host()).changes();
    apply_all(Path::new(root), Path::new(journal), &plan_changes(&scene.host, &changes));
}
