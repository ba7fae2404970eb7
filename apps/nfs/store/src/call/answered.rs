//! A store with a single answer: the outcome of a call that was carried out elsewhere. The
//! procedure handlers encode its reply like any other.

use crate::{
    Caller, Failed, FilledListing, Lender, Listed, ListingStart, Origin, Procedures, Procedures4,
    ReadDone, ReadlinkDone, StoreOutcome, Visitor, procedure_types::*,
};
use stag_pools::{Buf, Extent};
use stag_protocol::nfs::v3::AttributeOctets;

use super::listing::{EntryDetail, visit_entries};

/// See the module. Any procedure other than the answered one fails: the client is asked to retry.
#[derive(Clone, Debug)]
pub struct Answered {
    outcome: StoreOutcome,
    /// The bytes returned with the outcome.
    octets: Option<Extent>,
}

/// Takes the outcome of one kind, or fails.
macro_rules! outcome {
    ($answered:ident, Attributes) => {
        $answered.attributes()
    };
    ($answered:ident, $kind:ident) => {
        match $answered.outcome {
            StoreOutcome::$kind(result) => result,
            _ => Err($answered.failure().into()),
        }
    };
}

impl Answered {
    /// An outcome and the buffer filled for it, whose bytes the executor has counted.
    pub fn new(outcome: StoreOutcome, filled: Option<Buf>) -> Self {
        let len = match &outcome {
            StoreOutcome::Read(Ok(done)) => done.count as usize,
            StoreOutcome::ReadLink(Ok(done)) => done.count as usize,
            StoreOutcome::Listed(Ok(done)) => done.len,
            StoreOutcome::Xattr(Ok(count)) => *count as usize,
            _ => 0,
        };
        let filled = filled.filter(|filled| len <= filled.spare_len());
        let octets = filled.map(|mut filled| {
            filled.extend(len);
            filled.freeze()
        });
        Self { outcome, octets }
    }

    /// Fails every procedure with this status, without attributes.
    pub const fn failed(status: Status) -> Self {
        Self { outcome: StoreOutcome::Failed(status), octets: None }
    }

    /// The outcome.
    pub const fn outcome(&self) -> &StoreOutcome {
        &self.outcome
    }

    /// Returns true if the call was not carried out to the end.
    pub const fn is_failure(&self) -> bool {
        matches!(self.outcome, StoreOutcome::Failed(_))
    }

    const fn failure(&self) -> Status {
        match self.outcome {
            StoreOutcome::Failed(status) => status,
            _ => Status::Jukebox,
        }
    }

    /// The `count` bytes returned with the outcome.
    fn octets(&mut self, count: usize) -> Result<Extent, Status> {
        let octets = self.octets.take().filter(|octets| octets.len() == count);
        octets.ok_or(Status::ServerFault)
    }

    fn xattr(&mut self, lender: &Lender<'_>) -> StoreResult<Extent> {
        match outcome!(self, Xattr)? {
            // There may have been no room to fill.
            0 => Ok(lender(0).ok_or(Status::Jukebox)?.freeze()),
            count => Ok(self.octets(count as usize)?),
        }
    }

    fn list(&mut self, detail: EntryDetail, visit: &mut Visitor<'_>) -> StoreResult<Listed> {
        let FilledListing { len, eof, verifier, attributes, .. } = outcome!(self, Listed)?;
        let entries = if len > 0 { Some(self.octets(len)?) } else { None };
        let took_all = visit_entries(entries.as_deref().unwrap_or_default(), detail, visit);
        Ok(Listed { eof: eof && took_all, verifier, attributes })
    }

    /// A listing asks for its directory first.
    fn attributes(&self) -> Result<FileAttributes, Status> {
        match self.outcome {
            StoreOutcome::Attributes(result) => result,
            StoreOutcome::Listed(listed) => {
                listed.map(|done| done.before).map_err(|failed| failed.status)
            }
            _ => Err(self.failure()),
        }
    }

    fn target(&mut self) -> StoreResult<ReadlinkDone> {
        let done = outcome!(self, ReadLink)?;
        let about = |status| Failed { status, about: Some(done.attributes) };
        let target = self.octets(done.count as usize).map_err(about)?;
        Ok(ReadlinkDone { target, attributes: done.attributes })
    }

    fn content(&mut self, lender: &Lender<'_>, count: u32) -> StoreResult<ReadDone> {
        let done = outcome!(self, Read)?;
        let about = |status| Failed { status, about: Some(done.attributes) };
        let data = match done.count {
            // There may have been no room to fill.
            0 => lender(0).ok_or_else(|| about(Status::Jukebox))?.freeze().into(),
            octets if octets <= count => self.octets(octets as usize).map_err(about)?.into(),
            _ => return Err(about(Status::ServerFault)),
        };
        let attributes = AttributeOctets::from(&done.attributes);
        Ok(ReadDone { data, is_cut: false, origin: Origin::Helper, eof: done.eof, attributes })
    }
}

/// Makes procedures of the [table](crate::store_procedures): each has the outcome, or fails.
macro_rules! answers {
    ($(
        $(#[$doc:meta])*
        $variant:ident: $label:literal, $effort:expr, $touch:ident, [$($object:expr),*];
        fn $method:ident($($arg:ident: $lent:ty as $owned:ty),*) -> $result:ty as $outcome:ident;
    )*) => {
        $(fn $method(&mut self, $(_: $lent),*) -> $result {
            outcome!(self, $outcome)
        })*
    };
}

impl Procedures for Answered {
    fn act_as(&mut self, _caller: &Caller) {}

    fn mount(&mut self, _path: &[u8]) -> Result<FileHandle, Status> {
        outcome!(self, Mounted)
    }

    fn readlink(&mut self, _lender: &Lender<'_>, _file: &FileHandle) -> StoreResult<ReadlinkDone> {
        self.target()
    }

    fn read(
        &mut self,
        lender: &Lender<'_>,
        _file: &FileHandle,
        _offset: u64,
        count: u32,
    ) -> StoreResult<ReadDone> {
        self.content(lender, count)
    }

    fn readdir(
        &mut self,
        _directory: &FileHandle,
        _place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        self.list(EntryDetail::Names, visit)
    }

    fn readdirplus(
        &mut self,
        _directory: &FileHandle,
        _place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        self.list(EntryDetail::Objects, visit)
    }

    crate::store_procedures!(version3 answers);
}

impl Procedures4 for Answered {
    fn get_xattr(
        &mut self,
        lender: &Lender<'_>,
        _file: &FileHandle,
        _name: &[u8],
    ) -> StoreResult<Extent> {
        self.xattr(lender)
    }

    fn list_xattrs(&mut self, lender: &Lender<'_>, _file: &FileHandle) -> StoreResult<Extent> {
        self.xattr(lender)
    }

    fn get_acls(&mut self, lender: &Lender<'_>, _file: &FileHandle) -> StoreResult<Extent> {
        self.xattr(lender)
    }

    crate::store_procedures!(version4 answers);
}
