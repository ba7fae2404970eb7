//! The server's side of the same request by version 4 and by version 3 of NFS.

use stag_bench::compounds::{Question, iwarp, shm_trusted};
use std::io;

/// Makes `calls` calls of `question`, 32 at a time, over `fabric`.
pub fn count(fabric: &str, question: Question, calls: u64) -> io::Result<()> {
    match fabric {
        "iwarp" => iwarp()?.run(question, calls),
        "shm-trusted" => shm_trusted()?.run(question, calls),
        _ => return Err(io::Error::other(format!("{fabric:?} is no fabric"))),
    }
    Ok(())
}
