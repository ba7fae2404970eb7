//! Carries out short compounds.

use super::{Asked, ShortAction, ShortCompound};
use crate::{
    data_counts::Nfs4DataCounts,
    v4::{
        context::status,
        op::{lookup, read},
    },
};
use stag_engine::{Extents, Pulled};
use stag_nfs_store::{
    Failed, FileAttributes, Lender, Procedures as _, Status, Store, TRANSFER_MAX, WritePayload,
};
use stag_protocol::nfs::{
    v3::{FileHandle, StableHow, Verifier},
    v4::{Access4Ok, Status4},
};

/// The outcome of a short compound after its SEQUENCE and PUTFH: the results of the operations that
/// succeeded, and the status of the one that failed.
#[derive(Debug)]
pub(crate) struct ShortOutcome {
    pub(super) results: ShortResults,
    /// The object that GETFH and GETATTR are about.
    pub(super) object: FileHandle,
    /// Its attributes, if they were asked for and the operation before GETATTR succeeded.
    pub(super) attributes: Option<Result<FileAttributes, Status4>>,
}

/// Results of the operation after PUTFH.
#[derive(Debug)]
pub(super) enum ShortResults {
    /// There is none, or it has none but its status.
    Plain,
    Failed(Status4),
    Access(Access4Ok),
    /// The data are apart. `is_cut`: memory was short for all of them.
    Read {
        eof: bool,
        count: u32,
        is_cut: bool,
    },
    Write {
        count: u32,
        committed: StableHow,
        verifier: Verifier,
    },
}

impl ShortOutcome {
    /// The operation after PUTFH failed.
    fn failed(object: &FileHandle, status: Status4) -> Self {
        let results = ShortResults::Failed(status);
        Self { results, object: *object, attributes: None }
    }

    /// Returns true if data of a READ follow its results.
    pub(crate) const fn has_data(&self) -> bool {
        matches!(self.results, ShortResults::Read { .. })
    }

    /// Returns true if an object was gone.
    pub(crate) fn is_stale(&self) -> bool {
        self.status() == Status4::Stale
    }

    /// Counts the data that were read or written.
    pub(super) fn count(&self, data: &mut Nfs4DataCounts) {
        match &self.results {
            ShortResults::Read { count, is_cut, .. } => {
                data.octets_read += u64::from(*count);
                data.short_of_memory += u64::from(*is_cut);
            }
            ShortResults::Write { count, committed, .. } => {
                data.octets_written += u64::from(*count);
                data.unstable_writes += u64::from(*committed == StableHow::Unstable);
            }
            ShortResults::Plain | ShortResults::Failed(_) | ShortResults::Access(_) => {}
        }
    }

    /// Status of the compound.
    pub(super) const fn status(&self) -> Status4 {
        match (&self.results, &self.attributes) {
            (ShortResults::Failed(status), _) | (_, Some(Err(status))) => *status,
            _ => Status4::Ok,
        }
    }
}

/// Carries out a compound after its PUTFH. The store must have been given the caller before.
/// Returns the outcome, and the data of a READ.
#[inline(always)]
pub(crate) fn perform<S: Store>(
    short: &ShortCompound<'_>,
    pulled: Pulled<'_>,
    store: &mut S,
    lender: &Lender<'_>,
) -> (ShortOutcome, Extents) {
    let object = &short.head.object;
    let mut payload = Extents::default();
    let asks = !matches!(short.asked, Asked::None);
    let fail = |status| ShortOutcome::failed(object, status);
    let outcome = match &short.action {
        ShortAction::None => ShortOutcome {
            results: ShortResults::Plain,
            object: *object,
            attributes: Some(store.now().getattr(object).map_err(status::of_store)),
        },
        ShortAction::Lookup(name) => match store.now().lookup(object, name) {
            Ok(found) => ShortOutcome {
                results: ShortResults::Plain,
                object: found.handle,
                attributes: Some(Ok(found.attributes)),
            },
            Err(Failed { status: Status::NotDir, .. }) => {
                let kind = store.now().getattr(object).ok().map(|attributes| attributes.kind);
                fail(lookup::status_of_kind(kind))
            }
            Err(failed) => fail(status::of_store(failed.status)),
        },
        ShortAction::Access(rights) => match store.now().access(object, rights.to_ask_store()) {
            Ok((granted, attributes)) => ShortOutcome {
                results: ShortResults::Access(rights.results(granted, attributes.kind)),
                object: *object,
                attributes: Some(Ok(attributes)),
            },
            Err(failed) => fail(status::of_store(failed.status)),
        },
        ShortAction::Read(args) => {
            let wanted = args.count.min(TRANSFER_MAX);
            match store.now().read(lender, object, args.offset, wanted) {
                Ok(done) => {
                    let count = done.data.len() as u32;
                    payload = done.data;
                    ShortOutcome {
                        results: ShortResults::Read { eof: done.eof, count, is_cut: done.is_cut },
                        object: *object,
                        attributes: None,
                    }
                }
                Err(failed) => fail(of_io(store, object, failed.status)),
            }
        }
        ShortAction::Write(args) => {
            let octets = args.data.octets().unwrap_or_default();
            let octets = octets.get(..TRANSFER_MAX as usize).unwrap_or(octets);
            let written = WritePayload { octets, shared: pulled.share(octets) };
            match store.now().write(object, args.offset, written, args.stable) {
                Ok(done) => {
                    let results = ShortResults::Write {
                        count: done.count,
                        committed: done.committed,
                        verifier: done.verifier,
                    };
                    let attributes = asks.then(|| match done.file.after {
                        Some(attributes) => Ok(attributes),
                        None => store.now().getattr(object).map_err(status::of_store),
                    });
                    ShortOutcome { results, object: *object, attributes }
                }
                Err(failed) => fail(of_io(store, object, failed.status)),
            }
        }
    };
    (outcome, payload)
}

/// Status of a READ or WRITE that failed in the store.
#[cold]
fn of_io<S: Store>(store: &mut S, object: &FileHandle, failed: Status) -> Status4 {
    let failed = status::of_store(failed);
    if !read::is_refined_by_kind(failed) {
        return failed;
    }
    match store.now().getattr(object) {
        Ok(attributes) => read::status_of_kind(attributes.kind, failed),
        Err(status) => status::of_store(status),
    }
}
