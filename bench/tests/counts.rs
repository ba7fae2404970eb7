//! Counts of a call on shared memory: system calls, and instructions that lock the bus.
//! Counted on the program `stag-counts`, both ends in one thread, by strace and objdump; without
//! those tools the tests say so and pass.

use std::{collections::BTreeSet, fs, process::Command};

const PROGRAM: &str = env!("CARGO_BIN_EXE_stag-counts");

fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {tool} is not installed (apt-get install strace binutils)");
    }
    found
}

/// A million where tests may take their time.
fn calls() -> u64 {
    if std::env::var_os("CI").is_some() { 1_000_000 } else { 100_000 }
}

/// All system calls of a process that makes `calls` NULL calls, and the seconds that those took.
fn system_calls(fabric: &str, calls: u64) -> Option<(u64, f64)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-c", "-f", "-o"]).arg(file.path()).args([PROGRAM, fabric, &calls.to_string()]);
    let traced = strace.output().unwrap();
    let out = String::from_utf8(traced.stdout).unwrap();
    let Some(seconds) = out.split(" calls in ").nth(1).and_then(|rest| rest.split(' ').next())
    else {
        let err = String::from_utf8_lossy(&traced.stderr).into_owned();
        assert!(err.contains("ptrace"), "{out}{err}");
        println!("skipped: strace may not trace here: {err}");
        return None;
    };
    let table = fs::read_to_string(file.path()).unwrap();
    let total = table.lines().find(|line| line.ends_with(" total")).unwrap();
    // % time, seconds, usecs/call, calls, [errors], "total".
    Some((total.split_whitespace().nth(3).unwrap().parse().unwrap(), seconds.parse().unwrap()))
}

#[test]
fn a_call_on_shared_memory_makes_no_system_call() {
    if !has("strace") {
        return;
    }
    for fabric in ["shm", "shm-trusted"] {
        let (Some((start, _)), Some((all, seconds))) =
            (system_calls(fabric, 1_000), system_calls(fabric, calls()))
        else {
            return;
        };
        // Each end looks at its sockets once in a millisecond, whatever it does.
        let looks = (seconds * 2_000.0) as u64;
        println!(
            "{fabric}: {all} system calls in {} calls and {seconds} s, {start} of them before and \
             after",
            calls()
        );
        assert!(
            all <= start + looks + 200,
            "{fabric}: {all} system calls in {} calls, {start} at start",
            calls()
        );
        assert!(all < calls() / 2, "{fabric}: {all} system calls in {} calls", calls());
    }
}

#[test]
fn no_instruction_on_a_call_s_way_locks_the_bus() {
    if !cfg!(target_arch = "x86_64") || !has("objdump") {
        return;
    }
    let listing =
        Command::new("objdump").args(["-d", "-C", "--no-show-raw-insn", PROGRAM]).output().unwrap();
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let (mut function, mut seen, mut locked) = ("", BTreeSet::new(), BTreeSet::new());
    for line in listing.lines() {
        if let Some(name) = line.split_once(" <").and_then(|(_, rest)| rest.strip_suffix(">:")) {
            function = name;
            continue;
        }
        let Some(ours) =
            ["stag_engine", "stag_protocol", "stag_shm", "stag_verbs", "stag_pools", "stag_iwarp"]
                .into_iter()
                .find(|ours| function.contains(ours))
        else {
            continue;
        };
        seen.insert(ours);
        // An exchange with memory locks without saying so.
        let is_locked =
            line.contains("\tlock ") || (line.contains("\txchg ") && line.contains('('));
        if is_locked {
            locked.insert(function.to_owned());
        }
    }
    assert!(
        seen.contains("stag_engine") && seen.contains("stag_shm"),
        "the listing has our functions: {seen:?}"
    );
    // Pools are made at start, and count there what all of the process lack; connections are made
    // from the process' next port. Shards and pools end once, and a connection has one session of
    // TLS. Which of these the compiler makes part of another differs by its units of code.
    let at_start = [
        "stag_pools::arena",
        "stag_pools::pool::Pool::cut",
        "stag_pools::host",
        "stag_verbs::source::connect",
        "core::ptr::drop_in_place<stag_verbs::passed::PassedListeners>",
        "core::ptr::drop_in_place<stag_verbs::open::Steering>",
        "core::ptr::drop_in_place<stag_engine::config::Config>",
        "core::ptr::drop_in_place<stag_engine::core::Core>",
        "core::ptr::drop_in_place<stag_iwarp::conn::IwarpShared>",
        "core::ptr::drop_in_place<stag_pools::pool::PoolInner>",
        "core::ptr::drop_in_place<stag_iwarp::config::IwarpConfig>",
        "stag_engine::state::turns::Turns::new",
        "<impl stag_engine::state::turns::Turns>::new",
        "stag_iwarp::rnic::Iwarp::new",
        // Contexts of Kerberos are set up and looked up once. The lock of the window of sequence
        // numbers is in `stag_gss`.
        "stag_engine::gss::contexts",
        "stag_engine::gss::table",
        "stag_engine::gss::shard::ShardGss::learn",
        "stag_engine::gss::shard::ShardGss::new",
        // A shard forgets a context once.
        "stag_engine::gss::shard::KnownContext>",
        ">::start_session",
        ">::probe_tls",
        ">::fail_session",
    ];
    let others: Vec<_> =
        locked.iter().filter(|name| !at_start.iter().any(|known| name.contains(known))).collect();
    assert!(others.is_empty(), "{others:#?}");
}
