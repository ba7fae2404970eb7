//! Calls that depend on earlier replies: pages of listings, and WRITEs that a COMMIT covers later.

use super::{
    CallOutlet, LoadFiles, OTHER, Workload,
    ask::Ask,
    check::{carried_out, written},
    items::SpareItems,
    listing::ListingPlace,
    maker::Maker,
};
use stag_client::Error;
use stag_engine::{Cx, Token};
use stag_protocol::{
    nfs::v3::{self, CommitOk, Verifier, WccData},
    xdr::{Piece, Reader},
};
use stag_rpc::accepted;

/// State that replies leave for later calls.
#[derive(Debug)]
pub(crate) struct CallProgress {
    /// Of each slot, if directories are listed.
    places: Box<[ListingPlace]>,
    /// Write verifier of the server's first reply.
    verifier: Option<Verifier>,
}

/// The write verifier is not that of the first reply.
const VERIFIER_CHANGED: Error = Error::Nonsense(
    "the write verifier changed: writes that were not committed may be lost (the server restarted, \
     or a sync failed)",
);

impl CallProgress {
    /// The state of `slots` slots; `None` if calls of the workload do not depend on earlier ones.
    pub fn new(workload: Workload, slots: usize) -> Option<Box<Self>> {
        let places = match workload {
            Workload::ReadDirPlus => slots,
            Workload::Commit => 0,
            _ => return None,
        };
        let places = vec![ListingPlace::default(); places].into_boxed_slice();
        Some(Box::new(Self { places, verifier: None }))
    }

    /// Compares a write verifier with the first one (RFC 1813 §3.3.7). Once it has changed, each
    /// reply with another one is an error: replies may come in another order than calls were made.
    fn keep_verifier(&mut self, verifier: Verifier) -> Result<(), Error> {
        if *self.verifier.get_or_insert(verifier) == verifier {
            Ok(())
        } else {
            Err(VERIFIER_CHANGED)
        }
    }
}

impl Maker {
    /// Makes a call that may depend on earlier replies. `None` if our memory for it is short.
    pub fn make_next(
        &self,
        cx: &mut Cx<'_>,
        mut to: impl CallOutlet,
        ask: Ask,
        token: Token,
        progress: &CallProgress,
        items: &mut SpareItems,
    ) -> Option<()> {
        let Ask::ReadDirPlus { slot } = ask else {
            return self.make(cx, to, ask, token, items);
        };
        let LoadFiles { dir, .. } = self.files?;
        let place = progress.places.get(usize::try_from(slot).ok()?)?;
        let call = v3::Call::ReadDirPlus(place.args(dir, u32::try_from(self.len).ok()?));
        let called = self.nfs_call(&call);
        let request = self.without_items(cx, token, called, |writer| call.emit(writer))?;
        to.send(cx, request)
    }

    /// The same as [`Maker::check`], of a call of [`Maker::make_next`].
    pub fn check_next(
        &self,
        ask: Ask,
        reply: &[u8],
        result: &[u8],
        progress: &mut CallProgress,
    ) -> Result<u64, Error> {
        let pieces = [Piece::Inline(reply), Piece::Chunk(result)];
        let mut results = Reader::over(&pieces);
        accepted(&mut results)?;
        match ask {
            Ask::Write { .. } => {
                let done = written(results)?;
                self.written(done.count, done.committed)?;
                progress.keep_verifier(done.verifier).map(|()| self.len as u64)
            }
            Ask::Commit => {
                let done = carried_out::<CommitOk, WccData>(results)?;
                progress.keep_verifier(done.verifier).map(|()| 0)
            }
            Ask::ReadDirPlus { slot } => {
                let names = self.files.map_or(0, |files| files.names);
                let place = usize::try_from(slot).ok().and_then(|at| progress.places.get_mut(at));
                place.ok_or(OTHER)?.turn(results, names).map(|()| reply.len() as u64)
            }
            _ => self.check(ask, reply, result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_verifier_but_the_first_is_an_error() {
        let mut progress = *CallProgress::new(Workload::Commit, 4).unwrap();
        assert!(progress.places.is_empty());
        for (verifier, kept) in [(1, true), (1, true), (2, false), (2, false), (1, true)] {
            let expected = if kept { Ok(()) } else { Err(VERIFIER_CHANGED) };
            assert_eq!(progress.keep_verifier([verifier; 8]), expected);
        }
        assert!(VERIFIER_CHANGED.to_string().contains("may be lost"));
    }

    #[test]
    fn only_calls_that_depend_on_earlier_ones_have_a_state() {
        assert_eq!(CallProgress::new(Workload::ReadDirPlus, 3).map(|it| it.places.len()), Some(3));
        for workload in [Workload::Null, Workload::Write, Workload::Write4, Workload::Meta] {
            assert!(CallProgress::new(workload, 3).is_none(), "{workload}");
        }
    }
}
