//! WRITE and COMMIT (RFC 1813 §3.3.7, §3.3.21).

use stag_engine::Pulled;
use stag_protocol::nfs::v3::{
    CommitArgs, CommitOk, CommitResult, StableHow, WriteArgs, WriteOk, WriteResult,
};

use crate::data_counts::DataCounts;
use stag_nfs_store::{Procedures, TRANSFER_MAX, WritePayload};

/// Writes the call's bytes directly to the file, or makes them part of it, wherever they are in
/// memory. A WRITE above the maximum is written in part: the client sees the count and requests the
/// rest.
pub(super) fn write(
    store: &mut impl Procedures,
    data: &mut DataCounts,
    pulled: Pulled<'_>,
    args: &WriteArgs<'_>,
) -> WriteResult {
    let octets = args.data.octets().expect("parsed octets are there");
    // RFC 1813 §3.3.7 [1813-50]: a WRITE above wtmax writes wtmax octets
    let octets = octets.get(..TRANSFER_MAX as usize).unwrap_or(octets);
    let payload = WritePayload { octets, shared: pulled.share(octets) };
    let done = store.write(&args.file, args.offset, payload, args.stable)?;
    data.octets_written += u64::from(done.count);
    data.unstable_writes += u64::from(done.committed == StableHow::Unstable);
    Ok(WriteOk {
        wcc: done.file.into(),
        count: done.count,
        committed: done.committed,
        verifier: done.verifier,
    })
}

pub(super) fn commit(
    store: &mut impl Procedures,
    data: &mut DataCounts,
    args: &CommitArgs,
) -> CommitResult {
    let done = store.commit(&args.file)?;
    data.commits += 1;
    Ok(CommitOk { wcc: done.file.into(), verifier: done.verifier })
}
