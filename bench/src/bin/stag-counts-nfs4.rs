//! Program whose process is counted: the server's side of the same question by version 4 and by
//! version 3 of NFS, on the memory store, both ends in one thread.
//!
//! Usage: `stag-counts-nfs4 iwarp|shm-trusted/getattr|read-64k/nfs3|nfs4 CALLS`: CALLS calls, 32 at
//! a time.

use stag_bench::compounds::{Question, iwarp, shm_trusted};
use std::{io, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let subject = arguments.first().map_or("", String::as_str);
    let parts = subject.split_once('/');
    let question = parts.map(|(_, question)| question.parse::<Question>());
    let calls = arguments.get(1).and_then(|text| text.parse().ok());
    let (Some((fabric, _)), Some(Ok(question)), Some(calls)) = (parts, question, calls) else {
        eprintln!("stag-counts-nfs4: say FABRIC/getattr|read-64k/nfs3|nfs4 and how often");
        return ExitCode::from(2);
    };
    match count(fabric, question, calls) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stag-counts-nfs4: {error}");
            ExitCode::FAILURE
        }
    }
}

fn count(fabric: &str, question: Question, calls: u64) -> io::Result<()> {
    match fabric {
        "iwarp" => iwarp()?.run(question, calls),
        "shm-trusted" => shm_trusted()?.run(question, calls),
        _ => return Err(io::Error::other(format!("{fabric:?} is no fabric"))),
    }
    Ok(())
}
