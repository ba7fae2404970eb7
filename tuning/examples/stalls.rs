//! The stall probe of CPU06 alone, for `tests/stalls`: gaps above 10 us per second on one core.
#![allow(clippy::expect_used)]

use stag_tuning::{CoreList, watch};
use std::{env, time::Duration};

fn main() {
    let mut words = env::args().skip(1).map(|word| word.parse::<usize>().expect("a number"));
    let core = words.next().expect("a core");
    let seconds = words.next().expect("seconds");
    let found = watch(&CoreList([core].into()), Duration::from_secs(seconds as u64));
    let gap = found.first().expect("a core that this process may use");
    println!("{:.1}", gap.gaps as f64 / gap.watched.as_secs_f64());
}
