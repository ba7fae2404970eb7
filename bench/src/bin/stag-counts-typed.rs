//! Program whose process is counted: an echo as a service of `stag-rpc` over shared memory, called
//! as `stag-counts shm` calls the echo that is written by hand. A program of its own, because a
//! second app in one program changes what the compiler makes of the first.
//!
//! Usage: `stag-counts-typed shm-typed CALLS [OCTETS]`: CALLS NULL calls, or echoes of OCTETS
//! octets.

use stag_bench::{counted::run, ends};
use stag_echo::ECHO_MAX;
use stag_rpc::{Bulk, Octets, Replied, Replier, program};
use std::process::ExitCode;

program! {
    /// NULL and ECHO of the echo program, as a service of `stag-rpc`.
    mod typed: 0x2053_5441, version 1 {
        /// Sends back what it is sent.
        1 => fn echo(octets: Bulk<{ ECHO_MAX }>) -> Bulk<{ ECHO_MAX }>;
    }
}

/// An echo as a service of `stag-rpc`.
#[derive(Clone, Copy, Debug)]
struct TypedEcho;

impl typed::Service for TypedEcho {
    fn echo(&mut self, octets: Octets<'_>, reply: Replier<'_, '_, Bulk<{ ECHO_MAX }>>) -> Replied {
        reply.send(octets)
    }
}

fn main() -> ExitCode {
    let number = |place| std::env::args().nth(place).and_then(|text| text.parse::<u64>().ok());
    let Some(calls) = number(2) else {
        eprintln!("stag-counts-typed: say shm-typed and how often");
        return ExitCode::from(2);
    };
    let octets = number(3).and_then(|octets| usize::try_from(octets).ok());
    match ends::shm_serving(stag_rpc::app(typed::Serve(TypedEcho))) {
        Ok(ends) => {
            run(ends, calls, octets, 1);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("stag-counts-typed: {error}");
            ExitCode::FAILURE
        }
    }
}
