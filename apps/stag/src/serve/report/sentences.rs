//! Sentences about shards that do not run as they should.

use crate::{Error, args::address::cannot_listen, plain};
use stag_engine::Over;
use stag_nfs::serve::ServeError;

/// The reason for which a shard does not run, and what to do about it.
pub fn cannot_serve(error: ServeError) -> Error {
    match error {
        ServeError::Listen { at, over, fault } => {
            cannot_listen(&at, fault, if over == Over::Tcp { "--tcp" } else { "--listen" })
        }
        ServeError::Address(why) => Error::usage(format!("--listen: {why}")),
        ServeError::Store(error) => Error::usage(error.to_string()),
        other => Error::failure(other.to_string()),
    }
}

/// Returns the notice that is given when there is no io_uring.
pub fn without_ring(error: &std::io::Error) -> String {
    format!(
        "READs from the disk are brought by threads: no io_uring ({}; it needs Linux 6.1)",
        plain(error)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_io_uring_is_told_of_in_one_line() {
        let text = without_ring(&std::io::Error::from_raw_os_error(38));
        assert_eq!(
            text,
            "READs from the disk are brought by threads: no io_uring (function not implemented; \
             it needs Linux 6.1)"
        );
    }
}
