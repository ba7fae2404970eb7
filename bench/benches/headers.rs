//! Transport headers of every form, written and read, next to a copy of the same octets; XDR and
//! RPC headers.
#![allow(clippy::unwrap_used, missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use stag_bench::headers;
use stag_protocol::{
    rpc::{Auth, AuthSys, CallHeader, Credential, Gids, Xid},
    rpcrdma::ChunkLists,
    xdr::{Reader, Writer},
};
use std::hint::black_box;

fn transport(criterion: &mut Criterion) {
    let mut out = [0; 1024];
    let mut lists = ChunkLists::new();
    for form in headers::forms() {
        criterion.bench_function(&format!("emit/{}", form.name), |bencher| {
            bencher.iter(|| black_box(&form).emit(black_box(&mut out)));
        });
        criterion.bench_function(&format!("parse/{}", form.name), |bencher| {
            bencher.iter(|| black_box(&form).parse(black_box(&form.octets), &mut lists));
        });
        criterion.bench_function(&format!("copy/{}", form.name), |bencher| {
            let len = form.octets.len();
            bencher.iter(|| {
                black_box(&mut out).get_mut(..len).unwrap().copy_from_slice(black_box(&form.octets))
            });
        });
    }
}

fn xdr(criterion: &mut Criterion) {
    let gids = Gids::new(&[10, 20]).unwrap();
    let credential =
        Credential::Sys(AuthSys { stamp: 5, machine_name: b"node-7", uid: 6, gid: 7, gids });
    let header = CallHeader {
        xid: Xid(1),
        program: 100_003,
        version: 3,
        procedure: 6,
        credential,
        verifier: Auth::NONE,
    };
    let mut out = [0; 1024];
    criterion.bench_function("xdr/call header emit", |bencher| {
        bencher.iter(|| black_box(&header).emit(&mut Writer::new(black_box(&mut out))));
    });
    let mut writer = Writer::new(&mut out);
    header.emit(&mut writer).unwrap();
    let len = writer.len();
    criterion.bench_function("xdr/call header parse", |bencher| {
        bencher.iter(|| {
            CallHeader::parse(&mut Reader::new(black_box(&out).get(..len).unwrap())).is_ok()
        });
    });
    let item = [0x5a; 4096];
    let mut out = [0; 8192];
    criterion.bench_function("xdr/4 KiB item emit", |bencher| {
        bencher.iter(|| Writer::new(black_box(&mut out)).opaque(black_box(&item)));
    });
    Writer::new(&mut out).opaque(&item).unwrap();
    criterion.bench_function("xdr/4 KiB item parse", |bencher| {
        bencher.iter(|| Reader::new(black_box(&out)).item(1 << 20).unwrap().len());
    });
}

criterion_group!(benches, transport, xdr);
criterion_main!(benches);
