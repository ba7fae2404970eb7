//! Client records at the start of a server: a log in its state directory (RFC 8881 §8.4.3).

use std::{path::Path, time::Duration};

use super::ServeError;
use crate::{
    Nfs4Records,
    records::{Boot, FileHome, LogHome, RecordError, RecordKeeper, RecordLog, Records as _},
};
use stag_nfs_store::StartError;

/// The file of the longest lease announced to clients of earlier boots.
const LEASE_FILE: &str = "lease";

/// Begins a boot on the records of a state directory, which is already locked. `lease` is that of
/// this boot.
///
/// # Errors
/// A sentence when the records cannot be read or written: without them no client could reclaim.
pub fn start_records(state_dir: &Path, lease: Duration) -> Result<Nfs4Records, ServeError> {
    begin(state_dir, lease).map_err(|error| {
        ServeError::Store(StartError(format!(
            "{error} (state directory {}); --nfs 3 needs none",
            state_dir.display()
        )))
    })
}

fn begin(state_dir: &Path, lease: Duration) -> Result<Nfs4Records, RecordError> {
    let mut records = RecordLog::new(FileHome::new(state_dir));
    let boot = records.begin()?;
    let grace = grace(&mut FileHome::new(state_dir), &boot, lease)?;
    let keeper = RecordKeeper::start(Box::new(records))?;
    Ok(Nfs4Records { boot, keeper, grace })
}

/// The grace period: no shorter than any lease announced to a listed client. The longest lease is
/// stored until no client has to reclaim.
fn grace(home: &mut impl LogHome, boot: &Boot, lease: Duration) -> Result<Duration, RecordError> {
    let told = home.read(LEASE_FILE)?.unwrap_or_default();
    let told = std::str::from_utf8(&told).ok().and_then(|text| text.trim().parse().ok());
    let told = told.map_or(Duration::ZERO, |seconds: u16| Duration::from_secs(seconds.into()));
    let longest = if boot.clients.is_empty() { lease } else { lease.max(told) };
    if longest != told {
        home.replace(LEASE_FILE, format!("{}\n", longest.as_secs()).as_bytes())?;
    }
    Ok(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{ClientRecord, OriginMark, Principal, RecordChange};

    fn started(home: &Path, lease: u64) -> Nfs4Records {
        start_records(home, Duration::from_secs(lease)).unwrap()
    }

    #[test]
    fn clients_have_as_long_to_reclaim_as_any_lease_that_they_were_told() {
        let home = tempfile::tempdir().unwrap();
        let mut first = started(home.path(), 300);
        assert_eq!((first.grace.as_secs(), first.boot.clients.len()), (300, 0));
        let principal = Principal::Unix(0);
        let owner = b"client".as_slice().into();
        let client =
            ClientRecord { owner, verifier: [1; 8], principal, origin: OriginMark::default() };
        first.keeper.change(RecordChange::Complete(client.clone())).unwrap();
        drop(first);
        for _ in 0..2 {
            let next = started(home.path(), 10);
            assert_eq!(
                (next.grace.as_secs(), &next.boot.clients[..]),
                (300, &[client.clone()][..])
            );
        }
        let mut next = started(home.path(), 10);
        next.keeper.change(RecordChange::EndGrace).unwrap();
        drop(next);
        let last = started(home.path(), 20);
        assert_eq!((last.grace.as_secs(), last.boot.clients.len()), (20, 0));
        assert_eq!(last.boot.epoch, 5, "each boot has a number of its own");
    }

    #[test]
    fn a_state_directory_that_cannot_be_written_stops_the_start() {
        let home = tempfile::tempdir().unwrap();
        let error = start_records(&home.path().join("missing"), Duration::from_secs(90));
        let text = error.map(drop).unwrap_err().to_string();
        assert!(text.contains("missing") && text.contains("--nfs 3"), "{text}");
    }
}
