//! The verifier of an exclusive CREATE (RFC 1813 §3.3.8), kept in the times of the file.

use crate::{FileAttributes, FileTime, NewAttributes, NewTime};
use stag_protocol::nfs::v3::CreateVerifier;

/// The times of an exclusively created file until its client sets them: 31 bits each, which every
/// file system stores.
fn times_of(verifier: CreateVerifier) -> (FileTime, FileTime) {
    let [a, b, c, d, e, f, g, h] = verifier;
    let time =
        |word| FileTime { seconds: i64::from(u32::from_be_bytes(word) & 0x7fff_ffff), nanos: 0 };
    (time([a, b, c, d]), time([e, f, g, h]))
}

/// The attributes of `set`, with the verifier stored in the times.
pub(crate) fn carrying(verifier: CreateVerifier, set: &NewAttributes) -> NewAttributes {
    let (mtime, atime) = times_of(verifier);
    let (mtime, atime) = (NewTime::Client(mtime), NewTime::Client(atime));
    NewAttributes { mtime, atime, size: None, ..*set }
}

/// Returns true if a file with these attributes stores this verifier.
pub(crate) fn carries(found: &FileAttributes, verifier: CreateVerifier) -> bool {
    (found.mtime, found.atime) == times_of(verifier)
}
