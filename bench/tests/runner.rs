//! `tests/run --beside-load`: the output of many runs is counted.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

fn bench_test(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/run"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that refuses its arguments may be gone.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn failures_are_counted_by_program_and_test() {
    let run = "\
     Running unittests src/lib.rs (target/debug/deps/stag_nfs-0123456789abcdef)
running 3 tests
test store::tests::one ... ok
test store::tests::two ... FAILED
failures:
    store::tests::two
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
     Running tests/serve.rs (target/debug/deps/serve-fedcba9876543210)
test two ... ok
error: test failed, to rerun pass `-p stag --test serve`
Caused by:
  process didn't exit successfully: `/x/target/debug/deps/serve-fedcba9876543210` (signal: 6, \
  SIGABRT: process abort signal)
";
    let later = "     Running tests/serve.rs (target/debug/deps/serve-fedcba9876543210)\ntest two \
        ... FAILED\n";
    let counted = bench_test(&["--count-failures"], &format!("{run}{run}{later}"));
    let expected = "2 serve (ended by a signal)\n2 stag_nfs store::tests::two\n1 serve two\n";
    assert_eq!(String::from_utf8(counted.stdout).unwrap(), expected);
    assert!(counted.status.success());
    assert!(bench_test(&["--count-failures"], "test one ... ok\n").stdout.is_empty());
}

#[test]
fn how_often_has_to_be_said() {
    for arguments in [
        &["--beside-load"][..],
        &["--beside-load", "0"],
        &["--beside-load", "x"],
        &["--", "-p", "stag"],
    ] {
        let refused = bench_test(arguments, "");
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert_eq!(String::from_utf8(refused.stderr).unwrap().lines().count(), 1);
    }
}
