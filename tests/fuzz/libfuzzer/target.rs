//! The target that the variable `STAG_FUZZ_TARGET` names, under libFuzzer.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use stag_fuzz::{FuzzTarget, find};

static TARGET: LazyLock<&FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("STAG_FUZZ_TARGET").expect("STAG_FUZZ_TARGET names a target");
    find(&name).expect("STAG_FUZZ_TARGET is a target that `stag-fuzz --list` shows")
});

fuzz_target!(|input: &[u8]| {
    (TARGET.check)(input);
});
