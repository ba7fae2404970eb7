//! Conflicts of version 3 calls with state of version 4 clients: a version 3 call respects their
//! opens and delegations (RFC 8881 §8.2.3, §10.4.4).
//!
//! A conflicting delegation is recalled, and the caller retries (NFS3ERR_JUKEBOX). Access that an
//! open denies fails with NFS3ERR_ACCES. Version 3 has no locks here.

use stag_engine::Time;
use stag_protocol::nfs::v3::{Call, CreateHow, DirOpArgs, FileHandle, Name, Status};

use super::{Nfs4, context::state_calls::file_id, milliseconds};
use stag_nfs_store::{Effort, Procedures as _, Store};
use stag_nfs4_state::{DelegationPolicy, FileId, IoAccess, RecallScope, StateFault, StateTables};

/// Clients whose leases expired that one call removes because their state conflicts.
const REMOVALS: usize = 64;

/// The effect of a call of version 3 on files, which another shard asks about.
#[derive(Debug)]
pub(crate) enum ConflictQuery {
    /// To have this access to a file.
    Access(FileHandle, AccessBeside),
    /// To change the objects of these names in directories, with this access to their files.
    Names(Vec<(FileHandle, Box<[u8]>)>, AccessBeside),
}

impl ConflictQuery {
    /// The question about a call; none if the call never conflicts.
    pub(crate) fn of(call: &Call<'_>) -> Option<Self> {
        let names = |places: &[&DirOpArgs<'_>]| {
            let names = places.iter().map(|place| (place.dir, place.name.0.into())).collect();
            Self::Names(names, named_access(call))
        };
        Some(match call {
            Call::Create(args) => names(&[&args.place]),
            Call::Remove(args) => names(&[&args.object]),
            Call::Rename(args) => names(&[&args.from, &args.to]),
            call => {
                let (file, access) = access(call)?;
                Self::Access(file, access)
            }
        })
    }

    /// The file, where it is known.
    pub(super) fn file(&self) -> Option<FileId> {
        match self {
            Self::Access(file, _) => Some(file_id(file)),
            Self::Names(..) => None,
        }
    }
}

/// The access that a call needs to a file that it finds by name: a call that makes a file may cut
/// it instead (RFC 1813 §3.3.8).
fn named_access(call: &Call<'_>) -> AccessBeside {
    let cuts = match call {
        Call::Create(args) => {
            matches!(&args.how, CreateHow::Unchecked(set) if set.size.is_some())
        }
        _ => false,
    };
    match cuts {
        true => AccessBeside::Data(IoAccess::Write),
        false => AccessBeside::Object(RecallScope::All),
    }
}

/// The access that a call needs to a file that it refers to by handle.
fn access(call: &Call<'_>) -> Option<(FileHandle, AccessBeside)> {
    let all = AccessBeside::Object(RecallScope::All);
    Some(match call {
        Call::Read(args) => (args.file, AccessBeside::Data(IoAccess::Read)),
        Call::GetAttr(args) => (args.object, AccessBeside::Object(RecallScope::Writers)),
        Call::Write(args) => (args.file, AccessBeside::Data(IoAccess::Write)),
        Call::SetAttr(args) if args.attributes.size.is_some() => {
            (args.object, AccessBeside::Data(IoAccess::Write))
        }
        Call::SetAttr(args) => (args.object, all),
        Call::Link(args) => (args.file, all),
        _ => return None,
    })
}

/// An access to a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AccessBeside {
    /// To its octets.
    Data(IoAccess),
    /// To its attributes or names.
    Object(RecallScope),
}

impl Nfs4 {
    /// Returns true if a call of version 3 has to be checked.
    pub(crate) fn is_beside(&self) -> bool {
        self.state.has_presence() || self.spoils_reclaims()
    }

    /// Returns true if a change without a state may spoil a reclaim: in the grace period
    /// delegations may be reclaimed as if they had never been interrupted. In watched exports a
    /// reclaimed delegation has to be returned at once.
    pub(super) fn spoils_reclaims(&self) -> bool {
        self.state.awaited_reclaims().is_some() && self.had_delegations()
    }

    /// Returns true if clients may have had delegations before the restart.
    fn had_delegations(&self) -> bool {
        let gives =
            matches!(self.config.delegations, DelegationPolicy::Read | DelegationPolicy::ReadWrite);
        gives || self.has_exclusive() || self.recovery.had_write_delegations()
    }

    /// Checks a call of version 3 before it is executed. The store has been given its caller.
    ///
    /// # Errors
    /// NFS3ERR_JUKEBOX while a delegation is being recalled, and in the grace period; NFS3ERR_ACCES
    /// for access that an open denies.
    pub(crate) fn judge_beside<S: Store>(
        &mut self,
        store: &mut S,
        call: &Call<'_>,
        now: Time,
    ) -> Result<(), Status> {
        let access_named = named_access(call);
        match call {
            Call::Create(args) => self.judge_named(store, &args.place, access_named, now),
            Call::Remove(args) => self.judge_named(store, &args.object, access_named, now),
            Call::Rename(args) => {
                self.judge_named(store, &args.from, access_named, now)?;
                self.judge_named(store, &args.to, access_named, now)
            }
            call => match access(call) {
                Some((file, access)) => self.judge(&file, access, now),
                None => Ok(()),
            },
        }
    }

    /// [`judge_beside`](Self::judge_beside) for a call on another shard.
    ///
    /// # Errors
    /// As [`judge_beside`](Self::judge_beside).
    pub(crate) fn judge_question<S: Store>(
        &mut self,
        store: &mut S,
        question: &ConflictQuery,
        now: Time,
    ) -> Result<(), Status> {
        match question {
            ConflictQuery::Access(file, access) => self.judge(file, *access, now),
            ConflictQuery::Names(names, access) => names.iter().try_for_each(|(dir, name)| {
                let place = DirOpArgs { dir: *dir, name: Name(name) };
                self.judge_named(store, &place, *access, now)
            }),
        }
    }

    /// Checks a change of the file that has a name, if there is one.
    fn judge_named<S: Store>(
        &mut self,
        store: &mut S,
        place: &DirOpArgs<'_>,
        access: AccessBeside,
        now: Time,
    ) -> Result<(), Status> {
        if self.spoils_reclaims() {
            return Err(Status::Jukebox);
        }
        // No call waits here: where a lookup may, names are not checked, only handles are.
        if S::MAY_WAIT && store.waits(&place.dir, Effort::Plain) {
            return Ok(());
        }
        match store.now().lookup(&place.dir, place.name.0) {
            Ok(found) => self.judge(&found.handle, access, now),
            // The procedure itself reports the error.
            Err(_) => Ok(()),
        }
    }

    fn judge(&mut self, file: &FileHandle, access: AccessBeside, now: Time) -> Result<(), Status> {
        let is_change = !matches!(
            access,
            AccessBeside::Data(IoAccess::Read) | AccessBeside::Object(RecallScope::Writers)
        );
        if is_change && self.spoils_reclaims() {
            return Err(Status::Jukebox);
        }
        let file = file_id(file);
        // RFC 8881 §10.4.4 [8881-266]: a change by another protocol recalls, too
        for _ in 0..REMOVALS {
            match ask(&mut self.state, file, access, milliseconds(now)) {
                Ok(()) => {
                    if is_change {
                        self.withdraw(file);
                    }
                    return Ok(());
                }
                // RFC 8881 §9.7 [8881-267]: what an open denies, no other protocol does
                Err(StateFault::Failed(_) | StateFault::Denied(_)) => return Err(Status::Acces),
                Err(StateFault::AwaitRecall | StateFault::AwaitPart | StateFault::AwaitRecord) => {
                    break;
                }
                Err(StateFault::AwaitRemoval(client)) => {
                    if !self.remove_expired(client, now) {
                        break;
                    }
                }
            }
        }
        Err(Status::Jukebox)
    }
}

fn ask(
    state: &mut StateTables,
    file: FileId,
    access: AccessBeside,
    now: u64,
) -> Result<(), StateFault> {
    match access {
        AccessBeside::Data(access) => state.check_stateless_io(file, access, now),
        AccessBeside::Object(scope) => state.recall(file, None, scope, now),
    }
}
