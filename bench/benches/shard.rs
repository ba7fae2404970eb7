//! Frequent operations of a shard: a buffer is taken and given back, a window is bound and fenced,
//! a pass finds nothing, a call makes its round trip in one thread.
#![allow(clippy::unwrap_used, missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use stag_bench::ends::{self, Ends};
use stag_pools::{Access, Class, Pool, Scope, Windows};
use stag_verbs::Provider;
use std::hint::black_box;

fn memory(criterion: &mut Criterion) {
    let pool =
        Pool::new(&[Class { slot_len: 4096, count: 64 }, Class { slot_len: 65_536, count: 8 }])
            .unwrap();
    criterion.bench_function("pool/take and give", |bencher| {
        bencher.iter(|| drop(black_box(pool.take(black_box(100)).unwrap())));
    });
    let mut windows = Windows::new(64, [7; 32]);
    let scope = Scope(1);
    let mut kept = pool.take(4096);
    criterion.bench_function("window/bind and fence", |bencher| {
        bencher.iter(|| {
            let mut buf = kept.take().unwrap();
            buf.reset(0);
            buf.extend(4096);
            let window = windows.bind(scope, buf.expose(0..4096, Access::RemoteWrite)).unwrap();
            kept = Some(windows.invalidate(scope, black_box(window.key)).unwrap().into_buf());
        });
    });
}

fn fabric<P: Provider>(criterion: &mut Criterion, name: &str, mut ends: Ends<P>) {
    ends.calls(100, None, 1);
    criterion.bench_function(&format!("pass/idle, both ends, {name}"), |bencher| {
        bencher.iter(|| ends.turn())
    });
    criterion.bench_function(&format!("call/NULL, {name}"), |bencher| {
        bencher.iter(|| ends.calls(1, None, 1))
    });
    criterion.bench_function(&format!("call/16 NULL at a time, {name}"), |bencher| {
        bencher.iter(|| ends.calls(16, None, 16));
    });
}

fn calls(criterion: &mut Criterion) {
    fabric(criterion, "shm", ends::shm(false).unwrap());
    fabric(criterion, "iwarp", ends::iwarp().unwrap());
}

criterion_group!(benches, memory, calls);
criterion_main!(benches);
