//! Changes are made with a journal, and undone: after a death at any line, and while other programs
//! change the same files. All on recorded hosts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use stag_tuning::{
    ChangeEnd, ChangeJournal, HostChange, HostFiles, HostReport, apply_change, checks, is_tunable,
    plan_changes,
};
use std::fs;
use support::{apply_all, assert_as_before, plan, revert_all, snapshot, untuned};
use tempfile::TempDir;

#[test]
fn a_tuned_host_passes_and_a_reverted_one_is_as_it_was() {
    let (unpacked, changes) = untuned();
    let (root, home) = (unpacked.home.path(), TempDir::new().unwrap());
    let journal = home.path().join("state").join("journal");
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

#[test]
fn a_journal_that_ends_anywhere_is_understood() {
    let (unpacked, changes) = untuned();
    let (root, home) = (unpacked.home.path(), TempDir::new().unwrap());
    let journal = home.path().join("journal");
    let before = snapshot(root);
    apply_all(root, &journal, &changes);
    let whole = fs::read(&journal).unwrap();
    assert!(revert_all(root, &journal).iter().all(|end| end.ends_with("Done")));
    let host = HostFiles::recorded(root);
    let line_ends: Vec<_> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
    let cuts = (0..whole.len()).step_by(61).chain(line_ends.iter().flat_map(|at| [*at, at + 1]));
    for cut in cuts {
        let lines = whole[..cut].iter().filter(|octet| **octet == b'\n').count();
        let sets = lines.div_ceil(2);
        // Each change has two lines. With an odd number of lines, the process died before or after
        // it made the last change.
        for made in [sets, sets.saturating_sub(lines % 2)] {
            for change in &changes[..made] {
                host.write(&change.key, &change.new).unwrap();
            }
            fs::write(&journal, &whole[..cut]).unwrap();
            let ends = revert_all(root, &journal);
            assert_eq!(ends.len(), sets, "cut at {cut}");
            assert_as_before(root, &before, &format!("cut at {cut}, {made} made: {ends:?}"));
        }
    }
}

#[test]
fn changes_of_others_are_left_alone_with_a_word() {
    let (unpacked, changes) = untuned();
    let (root, home) = (unpacked.home.path(), TempDir::new().unwrap());
    let journal = home.path().join("journal");
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
    let journal = home.path().join("journal");
    apply_all(root, &journal, &changes[..3]);
    unpacked.put("/proc/sys/kernel/random/boot_id", "another");
    let tuned = snapshot(root);
    let ends = revert_all(root, &journal);
    assert!(ends.len() == 3 && ends.iter().all(|end| end.contains("booted since")), "{ends:?}");
    assert_as_before(root, &tuned, "booted");
}

#[test]
fn a_change_that_stopped_half_way_is_undone_and_a_whole_one_only_as_it_was_made() {
    let (unpacked, _) = untuned();
    let (root, home) = (unpacked.home.path(), TempDir::new().unwrap());
    let journal = home.path().join("journal");
    let key = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
    let new = HostChange { key: key.to_owned(), new: "32".to_owned() };
    apply_all(root, &journal, &plan_changes(&HostFiles::recorded(root), &[new]));
    let whole = fs::read_to_string(&journal).unwrap();
    let set = whole.lines().next().unwrap().to_owned() + "\n";
    for (text, value, is_undone) in
        [(&set, "7", true), (&set, "32", true), (&set, "33", false), (&whole, "7", false)]
    {
        fs::write(&journal, text).unwrap();
        unpacked.put(key, value);
        let ends = revert_all(root, &journal);
        assert_eq!(ends[0].ends_with("Done"), is_undone, "{value}: {ends:?}");
    }
}

#[test]
fn a_value_that_the_kernel_refuses_changes_nothing() {
    let (unpacked, _) = untuned();
    let (root, home) = (unpacked.home.path(), TempDir::new().unwrap());
    let journal = home.path().join("journal");
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
    let journal = home.path().join("journal");
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
    let link = home.path().join("link");
    std::os::unix::fs::symlink(&journal, &link).unwrap();
    assert!(ChangeJournal::open(&link).is_err(), "a link");
}

#[test]
fn two_processes_do_not_share_a_journal() {
    let home = TempDir::new().unwrap();
    let journal = home.path().join("journal");
    let _held = ChangeJournal::open(&journal).unwrap();
    assert_eq!(ChangeJournal::open(&journal).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
