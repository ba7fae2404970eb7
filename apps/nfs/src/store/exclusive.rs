//! The verifier of an exclusive CREATE (RFC 1813 §3.3.8), kept in the times of the file.

use stag_protocol::nfs::v3::{Attributes, CreateVerifier, SetAttributes, SetTime, Time};

/// The times that an exclusively created file has until its client sets them: 31 bits each, which
/// every file system keeps.
fn times_of(verifier: CreateVerifier) -> (Time, Time) {
    let [a, b, c, d, e, f, g, h] = verifier;
    let time = |word| Time { seconds: u32::from_be_bytes(word) & 0x7fff_ffff, nanos: 0 };
    (time([a, b, c, d]), time([e, f, g, h]))
}

/// The attributes of a file that keeps this verifier.
pub(super) fn carrying(verifier: CreateVerifier) -> SetAttributes {
    let (mtime, atime) = times_of(verifier);
    SetAttributes {
        mtime: SetTime::Client(mtime),
        atime: SetTime::Client(atime),
        ..SetAttributes::default()
    }
}

/// Returns true if a file with these attributes keeps this verifier.
pub(super) fn carries(found: &Attributes, verifier: CreateVerifier) -> bool {
    (found.mtime, found.atime) == times_of(verifier)
}
