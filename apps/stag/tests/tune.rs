//! `stag tune`: on recorded trees its exit codes and its forms, changes and their undoing; on this
//! host that a check ends.

use crate::support::Home;
use serde_json::Value;
use std::{fs, process::Output};

fn put(home: &Home, path: &str, text: &str) {
    let at = home.path("host").join(path);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(at, text).unwrap();
}

/// A home with a recorded host in it.
fn host(files: &[(&str, &str)]) -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path("host")).unwrap();
    files.iter().for_each(|(path, text)| put(&home, path, text));
    home
}

fn run(home: &Home, what: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        home.run(&[&["tune", what, "--host", "host"], arguments].concat());
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

const TAKEN: &str = "head\n 0: 00000000:0801 00000000:0000 0A 0\n";

#[test]
fn the_exit_code_is_that_of_the_gravest_finding() {
    let home = host(&[("proc/sys/kernel/numa_balancing", "0\n")]);
    assert_eq!(run(&home, "check", &[]).0, Some(0));
    put(&home, "proc/sys/vm/stat_interval", "1\n");
    assert_eq!(run(&home, "check", &[]).0, Some(0), "what only informs changes nothing");
    put(&home, "proc/sys/kernel/numa_balancing", "1\n");
    let (code, table, sentence) = run(&home, "check", &[]);
    assert_eq!((code, sentence.as_str()), (Some(1), "stag: results will suffer: MEM07\n"));
    assert!(table.contains("WARN    MEM07 automatic NUMA balancing: 1 (wanted: 0)\n"), "{table}");
    assert!(table.contains("fix: sysctl -w kernel.numa_balancing=0\n"), "{table}");
    put(&home, "proc/net/tcp", TAKEN);
    let (code, _, sentence) = run(&home, "check", &[]);
    assert_eq!((code, sentence.as_str()), (Some(2), "stag: something will not work: NFS01\n"));
    assert_eq!(run(&home, "check", &["--skip", "nfs01"]).0, Some(1));
    assert_eq!(run(&home, "check", &["--only", "CPU,NFS02"]).0, Some(0));
    assert_eq!(run(&home, "check", &["--profile", "ci", "--only", "MEM"]).0, Some(0));
}

#[test]
fn whatever_cannot_be_judged_ends_with_3() {
    let home = host(&[]);
    for (arguments, expected) in [
        (&["--only", "MEM99"][..], "no check is called MEM99"),
        (&["--explain", "x"], "no check is called x"),
        (&["--dev", "mlx5_9"], "mlx5_9 is neither an RDMA device nor a network device"),
        (&["--dev", "../x"], "../x is neither"),
        (&["--cores", "5-2"], "is no list of cores: write 2-5,8"),
        (&["--profile", "fast"], "write latency, throughput, ci or container"),
        (&["--frobnicate"], "see 'stag tune check --help'"),
    ] {
        let (code, table, sentence) = run(&home, "check", arguments);
        assert_eq!(code, Some(3), "{arguments:?}: {sentence}");
        assert!(table.is_empty() && sentence.contains(expected), "{arguments:?}: {sentence}");
    }
}

#[test]
fn the_same_findings_are_one_json_object() {
    let home = host(&[("proc/sys/kernel/numa_balancing", "1\n")]);
    let (code, text, _) = run(&home, "check", &["--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let rows = report["checks"].as_array().unwrap();
    let row = rows.iter().find(|row| row["id"] == "MEM07").unwrap();
    assert_eq!(code, Some(1));
    assert_eq!(rows.len(), 69);
    assert_eq!((&row["state"], &row["measured"]), (&"WARN".into(), &"1".into()));
    assert_eq!(row["changes"][0]["key"], "/proc/sys/kernel/numa_balancing");
}

#[test]
fn a_client_without_a_device_is_told_how_to_make_one() {
    let home = host(&[
        ("proc/sys/kernel/osrelease", "6.1.0\n"),
        ("lib/modules/6.1.0/modules.dep", "kernel/drivers/infiniband/sw/siw/siw.ko:\n"),
        ("sys/class/net/eth7/device/vendor", "0x1af4\n"),
    ]);
    let (code, table, _) = run(&home, "check", &["--client"]);
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(code, Some(2));
    assert!(words.contains("rdma link add siw0 type siw netdev eth7"), "{table}");
    assert!(words.contains("rpcrdma: absent from this kernel"), "{table}");
}

#[test]
fn a_check_is_explained_with_its_source() {
    let (code, text, _) = run(&host(&[]), "check", &["--explain", "mem05"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("source") && text.contains("transhuge.rst"), "{text}");
}

#[test]
fn changes_are_shown_made_and_undone() {
    let thp = "sys/kernel/mm/transparent_hugepage/enabled";
    let defrag = "sys/kernel/mm/transparent_hugepage/defrag";
    let home = host(&[
        ("proc/sys/kernel/numa_balancing", "1\n"),
        (thp, "[always] madvise never\n"),
        (defrag, "always [madvise] never\n"),
    ]);
    let text = |path: &str| fs::read_to_string(home.path("host").join(path)).unwrap();
    let journal = ["--journal", "state/journal"];
    let (code, shown, _) = run(&home, "apply", &[&journal[..], &["--plan"]].concat());
    assert_eq!(code, Some(0));
    assert!(shown.contains("/enabled: always -> madvise\n"), "{shown}");
    assert!(shown.ends_with("2 changes; nothing was changed\n"), "{shown}");
    assert!(!home.path("state").exists(), "a plan makes no journal");
    assert_eq!(text(thp), "[always] madvise never\n");
    assert_eq!(run(&home, "apply", &journal).0, Some(0));
    assert_eq!(text(thp), "always [madvise] never\n");
    assert_eq!(run(&home, "check", &["--only", "MEM05,MEM07"]).0, Some(0));
    assert_eq!(run(&home, "apply", &journal).1, "nothing to change\n");
    put(&home, "proc/sys/kernel/numa_balancing", "2\n");
    let (code, shown, sentence) = run(&home, "revert", &journal);
    assert_eq!((code, sentence.as_str()), (Some(1), "stag: one file was left as it is\n"));
    assert!(shown.contains("numa_balancing: 1 SKIPPED: somebody else set it to 2\n"), "{shown}");
    assert_eq!(text(thp), "[always] madvise never\n");
    assert_eq!(run(&home, "revert", &journal).1, "nothing to undo\n");
    fs::write(home.path("state/journal"), "x\n").unwrap();
    assert_eq!(run(&home, "revert", &journal).0, Some(3));
}

#[test]
fn this_host_is_judged_within_80_columns() {
    let home = Home::new();
    for arguments in [&["--skip", "CPU06,CPU07,CPU15,NET07"][..], &["--client"]] {
        let output = home.run(&[&["tune", "check", "--all"], arguments].concat());
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(matches!(output.status.code(), Some(0..=2)), "{table}");
        assert!(table.lines().count() > 10);
        // Only a word that is longer than a line makes one longer.
        let long =
            table.lines().find(|line| line.chars().count() > 80 && line.trim().contains(' '));
        assert_eq!(long, None);
    }
}
