//! Instructions that a call and a header cost, counted under callgrind in release builds of
//! `stag-counts` and its like, and compared with `bench/baselines/instructions/RUSTC-ARCH.txt`:
//! more than three in a hundred above fails. A compiler without a baseline gets one, and the test
//! says so; `STAG_RECORD=1` writes the one that is there again. Without valgrind the test says so
//! and passes, and so it does with `STAG_RELEASE=no`, which `tests/run` and the gate (`.ci/run`)
//! set because they have no time for releases: run it before a change of a call's way is committed.

use stag_bench::callgrind;
use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Programs whose processes are counted.
const PROGRAMS: [&str; 3] = ["stag-counts", "stag-counts-typed", "stag-counts-nfs"];

/// Subjects that are counted, each with the number of its repetitions.
const SUBJECTS: [(&str, u64); 71] = [
    ("shm", 500),
    ("shm/16", 800),
    ("shm-trusted", 500),
    ("shm-typed", 500),
    ("shm-v2", 500),
    ("shm-v2-draft000", 500),
    ("iwarp", 500),
    ("iwarp/16", 800),
    ("load-shm", 500),
    ("load-shm/16", 800),
    ("load-iwarp", 500),
    ("load-iwarp/16", 800),
    ("iwarp/read-4k/server", 1_000),
    ("iwarp/read-4k/client", 1_000),
    ("iwarp/read-4k-chunk/server", 1_000),
    ("iwarp/read-4k-chunk/client", 1_000),
    ("iwarp/write-4k/server", 1_000),
    ("iwarp/write-4k/client", 1_000),
    ("iwarp/write-4k-chunk/server", 1_000),
    ("iwarp/write-4k-chunk/client", 1_000),
    ("iwarp/getattr/server", 1_000),
    ("iwarp/getattr/client", 1_000),
    ("shm-trusted/read-4k/server", 1_000),
    ("shm-trusted/read-4k/client", 1_000),
    ("shm-trusted/read-4k-chunk/server", 1_000),
    ("shm-trusted/read-4k-chunk/client", 1_000),
    ("shm-trusted/write-4k/server", 1_000),
    ("shm-trusted/write-4k/client", 1_000),
    ("shm-trusted/write-4k-chunk/server", 1_000),
    ("shm-trusted/write-4k-chunk/client", 1_000),
    ("shm-trusted/getattr/server", 1_000),
    ("shm-trusted/getattr/client", 1_000),
    ("shm-trusted/getattr4/server", 1_000),
    ("shm-trusted/getattr4/client", 1_000),
    ("shm-trusted/lookup/server", 1_000),
    ("shm-trusted/lookup/client", 1_000),
    ("shm-trusted/lookup4/server", 1_000),
    ("shm-trusted/lookup4/client", 1_000),
    ("shm-trusted/read4-4k/server", 1_000),
    ("shm-trusted/read4-4k/client", 1_000),
    ("shm-trusted/write4-4k/server", 1_000),
    ("shm-trusted/write4-4k/client", 1_000),
    ("shm-trusted/names/server", 1_000),
    ("shm-trusted/names/client", 1_000),
    ("shm-trusted/names4/server", 1_000),
    ("shm-trusted/names4/client", 1_000),
    ("shm-trusted/getattr/nfs3", 1_000),
    ("shm-trusted/getattr/nfs4", 1_000),
    ("shm-trusted/read-64k/nfs3", 1_000),
    ("shm-trusted/read-64k/nfs4", 1_000),
    ("lane", 500),
    ("lane/16", 800),
    ("emit/short", 1_000),
    ("emit/null", 1_000),
    ("emit/read", 1_000),
    ("emit/write", 1_000),
    ("emit/long-call", 1_000),
    ("emit/long-reply", 1_000),
    ("emit/error-version", 1_000),
    ("emit/error-chunk", 1_000),
    ("emit/v2-null", 1_000),
    ("emit/v2-read", 1_000),
    ("parse/short", 1_000),
    ("parse/null", 1_000),
    ("parse/read", 1_000),
    ("parse/write", 1_000),
    ("parse/long-call", 1_000),
    ("parse/long-reply", 1_000),
    ("parse/error-version", 1_000),
    ("parse/v2-null", 1_000),
    ("parse/v2-read", 1_000),
];

/// Goals for the counts (goals G8 and G9): printed next to the counts, not asserted.
const GOALS: [(&str, f64); 15] = [
    ("emit/short", 25.0),
    ("emit/read", 48.0),
    ("parse/read", 60.0),
    ("shm", 1_800.0),
    ("shm/16", 1_200.0),
    ("iwarp", 2_900.0),
    ("iwarp/16", 1_900.0),
    ("iwarp/read-4k/server", 3_500.0),
    ("iwarp/read-4k/client", 3_300.0),
    ("iwarp/write-4k/server", 3_500.0),
    ("iwarp/write-4k/client", 3_300.0),
    ("shm-trusted/read-4k/server", 2_400.0),
    ("shm-trusted/read-4k/client", 2_300.0),
    ("shm-trusted/write-4k/server", 2_400.0),
    ("shm-trusted/write-4k/client", 2_300.0),
];

/// Calls of the generator by version 3, and the same by version 4.
const BY_BOTH_VERSIONS: [(&str, &str); 5] = [
    ("getattr", "getattr4"),
    ("lookup", "lookup4"),
    ("read-4k", "read4-4k"),
    ("write-4k", "write4-4k"),
    ("names", "names4"),
];

/// Hundredths above the baseline that pass.
const SLACK: f64 = 3.0;

type Counts = BTreeMap<String, f64>;

/// The directory of the release builds, in the target directory of this test; none, with a word of
/// why, where `STAG_RELEASE=no` says that none is built.
fn release_build() -> Option<PathBuf> {
    if std::env::var_os("STAG_RELEASE").is_some_and(|said| said == "no") {
        println!("skipped: STAG_RELEASE=no, and only releases are counted");
        return None;
    }
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(3).expect("a test lies in TARGET/PROFILE/deps");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--package", "stag-bench"])
        .args(PROGRAMS.into_iter().flat_map(|program| ["--bin", program]))
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "cargo build --release -p stag-bench --bins");
    Some(target.join("release"))
}

/// Ends of the subjects that `stag-counts-nfs` counts.
const BY_NFS: [&str; 6] = ["/server", "/client", "/nfs3", "/nfs4", "/sys", "/krb5"];

/// The program that counts a subject.
fn program(subject: &str) -> &'static str {
    let [plain, typed, nfs] = PROGRAMS;
    match subject {
        "shm-typed" => typed,
        _ if subject.starts_with("load-") => nfs,
        _ if BY_NFS.iter().any(|of| subject.ends_with(of)) => nfs,
        _ => plain,
    }
}

/// `1.95.0-x86_64`: what the instructions depend on.
fn compiler() -> String {
    let said =
        Command::new("rustc").arg("-vV").current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let release =
        said.lines().find_map(|line| line.strip_prefix("release: ")).expect("rustc has a release");
    format!("{release}-{}", std::env::consts::ARCH)
}

fn parse(text: &str) -> Counts {
    let counts =
        text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    counts.map(|(subject, count)| (subject.to_owned(), count.trim().parse().unwrap())).collect()
}

fn print(counts: &Counts) -> String {
    let mut text =
        "# Instructions, each time, under callgrind; written by bench/tests/instructions.rs.\n"
            .to_owned();
    for (subject, count) in counts {
        writeln!(text, "{subject} {count:.1}").unwrap();
    }
    text
}

/// Lists the counts above their baseline, in sentences.
fn regressions(counts: &Counts, baseline: &Counts) -> Vec<String> {
    let above = |(subject, count): (&String, &f64)| match baseline.get(subject) {
        None => Some(format!("{subject} has no baseline: STAG_RECORD=1 records it")),
        Some(known) if *count > known * (1.0 + SLACK / 100.0) => {
            Some(format!("{subject}: {count:.1} instructions, {known:.1} in the baseline"))
        }
        Some(_) => None,
    };
    counts.iter().filter_map(above).collect()
}

#[test]
fn no_call_and_no_header_costs_more_instructions_than_it_did() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed (apt-get install valgrind)");
        return;
    }
    let Some(programs) = release_build() else { return };
    let counts: Counts = SUBJECTS
        .iter()
        .map(|(subject, times)| {
            (
                (*subject).to_owned(),
                callgrind::count(&programs.join(program(subject)), subject, *times).unwrap(),
            )
        })
        .collect();
    for (subject, count) in &counts {
        let goal = GOALS.iter().find(|(of, _)| of == subject);
        println!(
            "{subject} {count:.1}{}",
            goal.map_or(String::new(), |(_, goal)| format!(" (goal {goal})"))
        );
    }
    for twin in ["shm-trusted/getattr", "shm-trusted/read-64k"] {
        let [three, four] = ["nfs3", "nfs4"].map(|version| counts[&format!("{twin}/{version}")]);
        println!("{twin}: version 4 costs {:.2} times version 3 (goal 1.6)", four / three);
    }
    for procedure in ["null", "getattr"] {
        let [sys, krb5] = ["sys", "krb5"].map(|flavor| {
            let subject = format!("shm-trusted/{procedure}/{flavor}");
            callgrind::count(&programs.join(program(&subject)), &subject, 1_000).unwrap()
        });
        println!("{procedure}: krb5 costs {:.2} times AUTH_SYS (goal 1.5)", krb5 / sys);
    }
    for (three, four) in BY_BOTH_VERSIONS {
        for side in ["server", "client"] {
            let [three, other] =
                [three, four].map(|of| counts[&format!("shm-trusted/{of}/{side}")]);
            println!("{four}/{side}: {:.2} times version 3 (goal 1.35)", other / three);
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("baselines/instructions")
        .join(format!("{}.txt", compiler()));
    match fs::read_to_string(&file) {
        Ok(text) if std::env::var_os("STAG_RECORD").is_none() => {
            let above = regressions(&counts, &parse(&text));
            assert!(
                above.is_empty(),
                "{above:#?}\nmeant so? STAG_RECORD=1 writes {}",
                file.display()
            );
        }
        _ => {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, print(&counts)).unwrap();
            println!("recorded: {} is the baseline of this compiler from here on", file.display());
        }
    }
}

/// Cost that watching one call in 64 may add.
#[test]
fn watching_one_call_in_64_adds_less_than_three_hundredths() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed (apt-get install valgrind)");
        return;
    }
    let Some(programs) = release_build() else { return };
    let program = programs.join("stag-counts");
    for (fabric, depth) in [("shm", 1), ("shm", 16), ("iwarp", 16)] {
        let [without, watched] = [fabric.to_owned(), format!("{fabric}-watched")].map(|fabric| {
            callgrind::count(&program, &format!("{fabric}/{depth}"), 64 * 200).unwrap()
        });
        println!("{fabric}/{depth}: {without:.1} instructions, watched {watched:.1}");
        assert!(
            watched <= without * (1.0 + SLACK / 100.0),
            "{fabric}/{depth}: {without:.1} and {watched:.1}"
        );
    }
}

/// Subjects of which no instruction may lock the bus: those of `SUBJECTS` that make calls.
const UNLOCKED: [&str; 15] = [
    "shm/16",
    "shm-trusted",
    "shm-v2",
    "iwarp/16",
    "shm-trusted/getattr/nfs3",
    "shm-trusted/getattr/nfs4",
    "shm-trusted/read-64k/nfs3",
    "shm-trusted/read-64k/nfs4",
    "iwarp/getattr/nfs4",
    "iwarp/read-64k/nfs4",
    "shm-trusted/getattr4/server",
    "shm-trusted/lookup4/server",
    "shm-trusted/read4-4k/server",
    "shm-trusted/write4-4k/server",
    "shm-trusted/names4/server",
];

#[test]
fn a_call_executes_no_instruction_that_locks_the_bus() {
    let has = |tool| Command::new(tool).arg("--version").output().is_ok();
    if !cfg!(target_arch = "x86_64") || !has("valgrind") || !has("objdump") {
        println!(
            "skipped: valgrind or objdump is not installed (apt-get install valgrind binutils)"
        );
        return;
    }
    let Some(programs) = release_build() else { return };
    for subject in UNLOCKED {
        let locked = callgrind::locked(&programs.join(program(subject)), subject, 200).unwrap();
        assert!(locked.is_empty(), "{subject}: {locked:#?}");
    }
}

#[test]
fn what_is_three_hundredths_above_its_baseline_is_told() {
    let baseline = parse("# a comment\nshm 100.0\nemit/null 20.0\n");
    assert_eq!(parse(&print(&baseline)), baseline);
    let counted = |shm: f64, null: f64| parse(&format!("shm {shm}\nemit/null {null}\n"));
    assert!(regressions(&counted(103.0, 1.0), &baseline).is_empty());
    assert_eq!(regressions(&counted(103.1, 20.0), &baseline).len(), 1);
    assert_eq!(regressions(&counted(200.0, 21.0), &baseline).len(), 2);
    assert_eq!(
        regressions(&parse("other 1.0\n"), &baseline),
        ["other has no baseline: STAG_RECORD=1 records it"]
    );
}
