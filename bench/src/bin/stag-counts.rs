//! Program whose process is counted, in one thread: calls with both ends, and transport headers.
//! Counted by `strace -c -f`, `objdump -d`, and `valgrind --tool=callgrind
//! --toggle-collect=*measured*`, which leaves out start and end.
//!
//! Usage: `stag-counts iwarp|shm|shm-trusted[/DEPTH] CALLS [OCTETS]`: CALLS NULL calls, or echoes
//! of OCTETS octets, DEPTH at a time (1 when it is not said); `iwarp-watched` and `shm-watched`:
//! one call in 64 is watched from stage to stage; `shm-v2` and `shm-v2-draft000`: version 2 with
//! the chunk lists of draft 001 or draft 000; `lane`: the least that a NULL call needs
//! ([`stag_bench::lane`]). `stag-counts emit|parse/FORM TIMES`: one header, so
//! many times ([`stag_bench::headers`]); FORM `short`: a NULL's, as connections write and read it.

use stag_bench::{
    counted::{measured, run},
    ends,
    headers::{self, HeaderForm, HeaderVersion},
    lane::Lanes,
};
use stag_engine::Sampling;
use stag_protocol::rpcrdma::{ChunkLists, Header, MessageType, Version2, Xid, short, v1, v2};
use std::{hint::black_box, io, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| arguments.get(place).and_then(|text| text.parse::<u64>().ok());
    let (Some(subject), Some(times)) = (arguments.first(), number(1)) else {
        eprintln!(
            "stag-counts: say what (iwarp, shm, shm-trusted, emit/FORM, parse/FORM) and how often"
        );
        return ExitCode::from(2);
    };
    let octets = number(2).and_then(|octets| usize::try_from(octets).ok());
    let (kind, detail) = subject.split_once('/').unwrap_or((subject, ""));
    let depth = detail.parse().unwrap_or(1).clamp(1, ends::DEPTH_MAX);
    let done = match (kind, headers::form(detail)) {
        ("iwarp", _) => ends::iwarp().map(|ends| run(ends, times, octets, depth)),
        ("iwarp-watched", _) => {
            ends::iwarp_watched(Sampling::EVERY).map(|ends| run(ends, times, octets, depth))
        }
        ("shm-watched", _) => {
            ends::shm_watched(false, Sampling::EVERY).map(|ends| run(ends, times, octets, depth))
        }
        ("shm", _) => ends::shm(false).map(|ends| run(ends, times, octets, depth)),
        ("shm-v2", _) => {
            ends::shm_two(Version2::Directed).map(|ends| run(ends, times, octets, depth))
        }
        ("shm-v2-draft000", _) => {
            ends::shm_two(Version2::Undirected).map(|ends| run(ends, times, octets, depth))
        }
        ("shm-trusted", _) => ends::shm(true).map(|ends| run(ends, times, octets, depth)),
        ("lane", _) => {
            let mut lanes = Lanes::new();
            // Warms up all memory that a call touches.
            lanes.calls(depth * 4, depth);
            measured(&mut || lanes.calls(times, depth));
            Ok(())
        }
        ("emit" | "parse", None) if detail == "short" => {
            short(kind == "emit", times);
            Ok(())
        }
        ("emit", Some(form)) => {
            emit(&form, times);
            Ok(())
        }
        ("parse", Some(form)) => {
            parse(&form, times);
            Ok(())
        }
        _ => Err(io::Error::other(format!("{subject:?} is no fabric and no header"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stag-counts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn short(writes: bool, times: u64) {
    let (mut connection, message) = (headers::short(), headers::short_reply());
    let mut out = [0; short::HEADER_LEN];
    measured(&mut || {
        for number in 0..times {
            if writes {
                black_box(black_box(&connection).emit_short(
                    MessageType::Call,
                    Xid(number as u32),
                    &mut out,
                ));
                black_box(&out);
            } else {
                black_box(connection.handle_short(black_box(&message)));
            }
        }
    });
}

fn emit(form: &HeaderForm, times: u64) {
    match form.version {
        HeaderVersion::One => emit_by(form, times, v1::emit),
        HeaderVersion::Two => emit_by(form, times, v2::emit::<v2::Directed>),
    }
}

fn emit_by<R>(form: &HeaderForm, times: u64, emit: impl Fn(&Header, &ChunkLists, &mut [u8]) -> R) {
    let mut out = [0; 1024];
    measured(&mut || {
        for _ in 0..times {
            black_box(emit(black_box(&form.header), &form.lists, &mut out));
        }
    });
    assert!(out.starts_with(&form.octets), "what was counted wrote the header");
}

fn parse(form: &HeaderForm, times: u64) {
    match form.version {
        HeaderVersion::One => parse_by(form, times, v1::parse),
        HeaderVersion::Two => parse_by(form, times, v2::parse::<v2::Directed>),
    }
}

fn parse_by<R>(form: &HeaderForm, times: u64, parse: impl Fn(&[u8], &mut ChunkLists) -> R) {
    let mut lists = ChunkLists::new();
    measured(&mut || {
        for _ in 0..times {
            black_box(parse(black_box(&form.octets), &mut lists));
        }
    });
    assert!(lists.same_chunks(&form.lists), "what was counted read the chunks");
}
