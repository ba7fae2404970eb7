//! Changes are made with a journal, and undone: after a death at any point, and beside others who
//! change the same files. All on recorded hosts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use stag_tuning::{
    ChangeEnd, ChangeJournal, HostChange, HostFiles, HostReport, PlannedChange, apply_change,
    checks, is_tunable, plan_changes, revert_changes,
};
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use support::{UnpackedHost, plan};
use tempfile::TempDir;

const CHILD: &str = "STAG_TUNING_CHILD";

/// Everything below `root`, by its path, but for a file that its writer left when it died.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(snapshot(&entry.path())),
            false => drop(found.insert(entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
    found.remove(&root.join(".writing"));
    found
}

/// Asserts that everything below `root` is as it was.
fn assert_as_before(root: &Path, before: &BTreeMap<PathBuf, Vec<u8>>, when: &str) {
    let after = snapshot(root);
    let differs = |path: &&PathBuf| before.get(*path) != after.get(*path);
    let other: Vec<_> = before.keys().chain(after.keys()).filter(differs).collect();
    assert!(other.is_empty(), "{when}: {other:?}");
}

/// The untuned host with enough memory for huge pages, and the changes that it needs.
fn untuned() -> (UnpackedHost, Vec<PlannedChange>) {
    let unpacked = UnpackedHost::named("metal-untuned");
    unpacked.put("/proc/sys/kernel/random/boot_id", "0b1c");
    unpacked.put("/proc/meminfo", "MemAvailable: 100000000 kB\nSwapTotal: 1 kB");
    let scene = unpacked.scene(plan(Some("mlx5_0")), None);
    let changes = HostReport::of(&scene, &checks::of_host()).changes();
    let planned = plan_changes(&scene.host, &changes);
    assert_eq!(planned.len(), changes.len(), "whatever checks want can be changed");
    (unpacked, planned)
}

fn apply_all(root: &Path, journal: &Path, changes: &[PlannedChange]) {
    let host = HostFiles::recorded(root);
    let mut journal = ChangeJournal::open(journal).unwrap();
    for change in changes {
        let end = apply_change(&host, &mut journal, change).unwrap();
        assert!(matches!(end, ChangeEnd::Done), "{change:?}: {end:?}");
    }
}

/// Undoes everything; gives the words of all ends.
fn revert_all(root: &Path, journal: &Path) -> Vec<String> {
    let mut journal = ChangeJournal::open(journal).unwrap();
    let mut ends = Vec::new();
    let tell = |key: &str, _: &str, end: &ChangeEnd| ends.push(format!("{key} {end:?}"));
    revert_changes(&HostFiles::recorded(root), &mut journal, tell).unwrap();
    ends
}

#[test]
fn a_tuned_host_passes_and_a_reverted_one_is_as_it_was() {
    let (unpacked, changes) = untuned();
    let (root, home) = (unpacked.home.path(), TempDir::new().unwrap());
    let journal = PathIn::path(&home, "state").join("journal");
    let before = snapshot(root);
    assert!(changes.len() > 25, "{changes:?}");
    assert!(changes.iter().all(|change| is_tunable(&change.key)));
    apply_all(root, &journal, &changes);
    let scene = unpacked.scene(plan(Some("mlx5_0")), None);
    let left = HostReport::of(&scene, &checks::of_host()).changes();
    // The kernel moves an interrupt to its new cores, and makes huge pages free; a file does not.
    let kinds = ["nr_hugepages", "smp_affinity_list"];
    assert!(left.iter().all(|c| kinds.iter().any(|kind| c.key.ends_with(kind))), "{left:?}");
    let ends = revert_all(root, &journal);
    assert!(ends.iter().all(|end| end.ends_with("Done")), "{ends:?}");
    let keys: Vec<_> = changes.iter().rev().map(|change| change.key.as_str()).collect();
    let undone: Vec<_> = ends.iter().map(|end| end.split(' ').next().unwrap()).collect();
    assert_eq!(undone, keys, "in reverse order");
    assert_as_before(root, &before, "after everything");
    assert_eq!(revert_all(root, &journal), Vec::<String>::new(), "the journal is empty");
}

/// Extension of a temporary directory by a path.
trait PathIn {
    fn path(&self, name: &str) -> PathBuf;
}

impl PathIn for TempDir {
    fn path(&self, name: &str) -> PathBuf {
        TempDir::path(self).join(name)
    }
}

#[test]
fn a_journal_that_ends_anywhere_is_understood() {
    let (unpacked, changes) = untuned();
    let (root, home) = (unpacked.home.path(), TempDir::new().unwrap());
    let journal = PathIn::path(&home, "journal");
    let before = snapshot(root);
    apply_all(root, &journal, &changes);
    let whole = fs::read(&journal).unwrap();
    assert!(revert_all(root, &journal).iter().all(|end| end.ends_with("Done")));
    let host = HostFiles::recorded(root);
    let line_ends: Vec<_> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
    let cuts = (0..whole.len()).step_by(61).chain(line_ends.iter().flat_map(|at| [*at, at + 1]));
    for cut in cuts {
        let lines = whole[..cut].iter().filter(|octet| **octet == b'\n').count();
        // The process died in front of the last change, or behind it.
        for made in [lines, lines.saturating_sub(1)] {
            for change in &changes[..made] {
                host.write(&change.key, &change.new).unwrap();
            }
            fs::write(&journal, &whole[..cut]).unwrap();
            let ends = revert_all(root, &journal);
            assert_eq!(ends.len(), lines, "cut at {cut}");
            assert_as_before(root, &before, &format!("cut at {cut}, {made} made: {ends:?}"));
        }
    }
}

#[test]
fn a_process_that_is_killed_at_any_time_leaves_what_can_be_undone() {
    let (unpacked, _) = untuned();
    let (root, home) = (unpacked.home.path(), TempDir::new().unwrap());
    let journal = PathIn::path(&home, "journal");
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

#[test]
fn changes_of_others_are_left_alone_with_a_word() {
    let (unpacked, changes) = untuned();
    let (root, home) = (unpacked.home.path(), TempDir::new().unwrap());
    let journal = PathIn::path(&home, "journal");
    apply_all(root, &journal, &changes);
    unpacked.put("/proc/sys/vm/swappiness", "33");
    fs::remove_file(root.join("proc/sys/net/core/busy_poll")).unwrap();
    let ends = revert_all(root, &journal);
    let skipped: Vec<_> = ends.iter().filter(|end| !end.ends_with("Done")).collect();
    assert_eq!(skipped.len(), 2, "{skipped:?}");
    assert!(ends.iter().any(|end| end.contains("swappiness") && end.contains("set it to 33")));
    assert!(ends.iter().any(|end| end.contains("busy_poll") && end.contains("it is gone")));
    assert_eq!(fs::read_to_string(root.join("proc/sys/vm/swappiness")).unwrap(), "33\n");
}

#[test]
fn nothing_is_restored_after_a_boot() {
    let (unpacked, changes) = untuned();
    let (root, home) = (unpacked.home.path(), TempDir::new().unwrap());
    let journal = PathIn::path(&home, "journal");
    apply_all(root, &journal, &changes[..3]);
    unpacked.put("/proc/sys/kernel/random/boot_id", "another");
    let tuned = snapshot(root);
    let ends = revert_all(root, &journal);
    assert!(ends.len() == 3 && ends.iter().all(|end| end.contains("booted since")), "{ends:?}");
    assert_as_before(root, &tuned, "booted");
}

#[test]
fn a_value_that_the_kernel_refuses_changes_nothing() {
    let (unpacked, _) = untuned();
    let (root, home) = (unpacked.home.path(), TempDir::new().unwrap());
    let journal = PathIn::path(&home, "journal");
    let before = snapshot(root);
    let host = HostFiles::recorded(root);
    let key = "/sys/kernel/mm/transparent_hugepage/enabled".to_owned();
    let change = plan_changes(&host, &[HostChange { key, new: "sometimes".to_owned() }]);
    let mut open = ChangeJournal::open(&journal).unwrap();
    assert!(matches!(apply_change(&host, &mut open, &change[0]), Ok(ChangeEnd::Failed(_))));
    drop(open);
    assert!(revert_all(root, &journal)[0].ends_with("Already"));
    assert_as_before(root, &before, "refused");
}

#[test]
fn a_journal_of_others_is_refused() {
    let home = TempDir::new().unwrap();
    let journal = PathIn::path(&home, "journal");
    fs::write(&journal, "{\"what\":\"set\"}\n").unwrap();
    assert!(ChangeJournal::open(&journal).is_err(), "no change");
    let (key, boot) = ("/proc/sys/kernel/core_pattern", "0b1c");
    let line = format!(
        "{{\"what\":\"set\",\"key\":\"{key}\",\"old\":\"|/evil\",\"new\":\"core\",\
         \"boot\":\"{boot}\",\"time\":1}}\n"
    );
    fs::write(&journal, line).unwrap();
    let (unpacked, _) = untuned();
    unpacked.put(key, "core");
    let ends = revert_all(unpacked.home.path(), &journal);
    assert!(ends[0].contains("no file that tuning may change"), "{ends:?}");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(&journal, mode).unwrap();
    assert!(ChangeJournal::open(&journal).is_err(), "others can write it");
    let link = PathIn::path(&home, "link");
    std::os::unix::fs::symlink(&journal, &link).unwrap();
    assert!(ChangeJournal::open(&link).is_err(), "a link");
}

#[test]
fn two_processes_do_not_share_a_journal() {
    let home = TempDir::new().unwrap();
    let journal = PathIn::path(&home, "journal");
    let _held = ChangeJournal::open(&journal).unwrap();
    assert_eq!(ChangeJournal::open(&journal).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
