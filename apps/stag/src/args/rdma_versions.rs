//! Versions of RPC-over-RDMA in the notation of `--rdma-version`.

use stag_protocol::rpcrdma::{Version2, Versions};

/// Reads versions of RPC-over-RDMA.
///
/// # Errors
/// The texts that are versions.
pub fn versions(text: &str) -> Result<Versions, &'static str> {
    match text {
        "1" => Ok(Versions::One),
        "2" => Ok(Versions::Two(Version2::Directed)),
        "1-2" => Ok(Versions::Both(Version2::Directed)),
        "2-directed" => Ok(Versions::TwoDirected),
        "1-2-directed" => Ok(Versions::BothDirected),
        _ => Err("write 1, 2, 1-2, 2-directed or 1-2-directed"),
    }
}

/// Returns the text that [`versions`] reads as these.
pub const fn written(versions: Versions) -> &'static str {
    match versions {
        Versions::One => "1",
        Versions::Two(_) => "2",
        Versions::Both(_) => "1-2",
        Versions::TwoDirected => "2-directed",
        Versions::BothDirected => "1-2-directed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written_as_they_are_read() {
        for text in ["1", "2", "1-2", "2-directed", "1-2-directed"] {
            assert_eq!(versions(text).map(written), Ok(text));
        }
        assert!(versions("3").is_err());
    }
}
