//! The part of a compound that a shard with its session's slots executes itself (`slot_lease`).

use super::{slot_lease::Borrowed, state_cache::IoAbout};
use crate::{
    requester::CallSource,
    v4::{
        Nfs4, Placement, ShardContext,
        context::{
            filehandle::Node,
            shard_context::{OpenAtHome, ShardFacts, is_apart},
            state_calls::file_id,
        },
        op::HOLDER_KNOWS,
        session::SlotOwner,
    },
};
use stag_nfs_store::{Effort, Store};
use stag_nfs4_state::{IoAccess, StateOther};
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Attribute, Compound, Open4Args, OpenClaim, Request, Stateid},
};

impl Nfs4 {
    /// The part of a compound that this shard executes; the home may have room for one more. None
    /// if its session's slots are not here, or are about to be returned, or the client has not used
    /// the call's origin here: the home then checks it.
    pub(crate) fn reach_of<S: Store>(
        &mut self,
        store: &S,
        source: CallSource,
        mut operations: Compound<'_>,
        has_room: bool,
    ) -> Option<ShardContext<'static>> {
        let Ok(Request::Sequence(args)) = operations.next()? else { return None };
        if !self.associate(&args.session, source) {
            return None;
        }
        let borrowed = self.borrowed.as_ref()?;
        let session = self.sessions.get(&args.session)?;
        if matches!(session.owner_of_slots, SlotOwner::Borrowed { is_due: true }) {
            return None;
        }
        let mut look = PlacementScan {
            store,
            borrowed,
            client: session.client,
            may_open: borrowed.may_open(&args.session) && has_room,
            home: None,
            current: KnownObject::Somewhere,
            saved: KnownObject::Somewhere,
            lookup_waits: false,
            io: None,
            looks_up: false,
            looks: false,
            first_change: None,
        };
        let all = operations.clone();
        let here = operations
            .zip(1..)
            .try_for_each(|(request, place)| look.pass(&request.map_err(|_| NeedsHome)?, place));
        let PlacementScan { io, looks_up, first_change, home, .. } = look;
        // The separate parts of a reply of the home's go to its caller with that reply.
        let has_parts = || all.flatten().any(|request| is_apart(&request));
        if here.is_err() && (home.is_none() || has_parts()) {
            return Some(ShardContext { placement: Placement::Begin, ..ShardContext::default() });
        }
        let home = home.map(|place| OpenAtHome { place, is_rest: here.is_err() });
        let placement =
            Placement::Here { first_change: first_change.unwrap_or(u32::MAX), has_room };
        let facts = ShardFacts { io, looks_up, home };
        Some(ShardContext { placement, facts, ..ShardContext::default() })
    }
}

/// The home has to execute it.
struct NeedsHome;

const fn away_if(is_away: bool) -> Result<(), NeedsHome> {
    if is_away { Err(NeedsHome) } else { Ok(()) }
}

/// An object as far as it is known from the arguments of a compound.
#[derive(Clone, Copy)]
enum KnownObject {
    Object(FileHandle),
    /// CREATE makes it, or OPEN opens it: no other client has a delegation that caches its
    /// attributes.
    Own,
    /// An object that is looked up, or none.
    Somewhere,
}

/// A check of the operations of a compound before any of them is executed.
struct PlacementScan<'a, S> {
    store: &'a S,
    borrowed: &'a Borrowed,
    client: u64,
    /// Its client may be granted state, and the home takes one more compound.
    may_open: bool,
    /// The place of its OPEN, which the home completes.
    home: Option<u32>,
    current: KnownObject,
    saved: KnownObject,
    /// A lookup may have to wait for the store. Only a compound that has not waited can go to the
    /// home.
    lookup_waits: bool,
    /// The state by which it reads or writes.
    io: Option<StateOther>,
    looks_up: bool,
    /// The store is asked a question that the home would ask again.
    looks: bool,
    /// Place of the first operation that changes a file, names or attributes.
    first_change: Option<u32>,
}

impl<S: Store> PlacementScan<'_, S> {
    fn pass(&mut self, request: &Request<'_>, place: u32) -> Result<(), NeedsHome> {
        match request {
            Request::PutFh(handle) => {
                self.current =
                    Node::object_of(handle).map_or(KnownObject::Somewhere, KnownObject::Object);
            }
            Request::SaveFh(()) => self.saved = self.current,
            Request::RestoreFh(()) => self.current = self.saved,
            Request::Read(args) => {
                self.begin_io()?;
                self.io(&args.stateid, IoAccess::Read)?;
            }
            Request::Write(args) => {
                self.begin_io()?;
                self.io(&args.stateid, IoAccess::Write)?;
                self.first_change = Some(place);
            }
            // RFC 8881 §10.4.3: the holder of a write delegation may have to be asked.
            Request::GetAttr(asked) if asked.meets(&HOLDER_KNOWS) => self.look_at_attributes()?,
            Request::SetAttr(args) => {
                self.change(place)?;
                match args.attributes.mask.contains(Attribute::Size as u32) {
                    true => self.io(&args.stateid, IoAccess::Write)?,
                    false => away_if(!args.stateid.is_anonymous())?,
                }
                self.change_object(self.current)?;
            }
            Request::SetXattr(_) | Request::RemoveXattr(_) => {
                self.change(place)?;
                self.change_object(self.current)?;
            }
            Request::Link(_) => {
                self.change(place)?;
                self.change_object(self.saved)?;
            }
            Request::Create(_) => {
                self.change(place)?;
                self.current = KnownObject::Own;
            }
            Request::Open(args) => self.open(args, place)?,
            Request::Remove(_) => {
                self.change(place)?;
                self.change_name(self.current)?;
            }
            Request::Rename(_) => {
                self.change(place)?;
                self.change_name(self.saved)?;
                self.change_name(self.current)?;
            }
            request if leaves_file(request) => self.looks = true,
            request if is_lookup(request) => {
                self.lookup_waits |= self.waits(self.current);
                (self.looks, self.current) = (true, KnownObject::Somewhere);
            }
            _ => return Err(NeedsHome),
        }
        Ok(())
    }

    /// A compound has one READ, WRITE or change.
    fn begin_io(&self) -> Result<(), NeedsHome> {
        away_if(self.io.is_some() || self.first_change.is_some())
    }

    /// A READ or WRITE with a state that the home has shared.
    fn io(&mut self, stateid: &Stateid, access: IoAccess) -> Result<(), NeedsHome> {
        let KnownObject::Object(object) = self.current else { return Err(NeedsHome) };
        let about = IoAbout { client: self.client, file: file_id(&object), access };
        away_if(!self.borrowed.told.cover(stateid, about))?;
        self.io = Some(stateid.other);
        Ok(())
    }

    /// A change of names or attributes. None may follow a look at an object that was looked up:
    /// such looks may have to go to the home, which is impossible after a change.
    fn change(&mut self, place: u32) -> Result<(), NeedsHome> {
        self.begin_io()?;
        away_if(self.looks_up)?;
        // RFC 8881 §8.4.2.1: the name removed may be one by which a client is about to reclaim.
        away_if(self.borrowed.facts.is_in_grace())?;
        self.first_change = Some(place);
        Ok(())
    }

    /// An OPEN of a name or a file that this shard asks the store about. No earlier operation may
    /// have an answer that could differ at the home, where the compound begins again.
    fn open(&mut self, args: &Open4Args<'_>, place: u32) -> Result<(), NeedsHome> {
        away_if(!matches!(self.current, KnownObject::Object(_)))?;
        let is_new = matches!(args.claim, OpenClaim::Null(_) | OpenClaim::Fh);
        away_if(!is_new || !self.may_open || self.looks || self.waits(self.current))?;
        self.change(place)?;
        (self.home, self.current) = (Some(place), KnownObject::Own);
        Ok(())
    }

    /// Checks a change of this object.
    fn change_object(&self, object: KnownObject) -> Result<(), NeedsHome> {
        away_if(match object {
            KnownObject::Object(object) => self.borrowed.may_conflict(&object),
            KnownObject::Own => false,
            KnownObject::Somewhere => self.lookup_waits && self.borrowed.sees_conflicts(),
        })
    }

    /// Checks a change of a name in this directory, which has to be looked up.
    fn change_name(&self, directory: KnownObject) -> Result<(), NeedsHome> {
        let waits = self.lookup_waits || self.waits(directory);
        away_if(waits && self.borrowed.sees_conflicts())
    }

    /// Attributes that the holder of a delegation may have changed.
    fn look_at_attributes(&mut self) -> Result<(), NeedsHome> {
        self.looks = true;
        away_if(match self.current {
            // A change by the compound itself was checked at that time: no delegation of the object
            // is granted before this shard reports that the compound is complete.
            KnownObject::Object(object) => self.borrowed.may_conflict(&object),
            KnownObject::Own => false,
            KnownObject::Somewhere => {
                self.looks_up = true;
                // After a change of names it would get NFS4ERR_DELAY, and its retry would find the
                // change made.
                let is_changed = self.first_change.is_some();
                is_changed || (self.lookup_waits && self.borrowed.sees_conflicts())
            }
        })
    }

    /// Returns true if a question about an object may have to wait.
    fn waits(&self, object: KnownObject) -> bool {
        S::MAY_WAIT
            && match object {
                KnownObject::Object(object) => self.store.waits(&object, Effort::Plain),
                KnownObject::Own | KnownObject::Somewhere => self.store.mount_waits(),
            }
    }
}

/// Returns true for operations that need no state and leave the current filehandle as it is.
const fn leaves_file(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Access(_)
            | Request::Commit(_)
            | Request::GetAttr(_)
            | Request::GetFh(())
            | Request::GetXattr(_)
            | Request::ListXattrs(_)
            | Request::ReadDir(_)
            | Request::ReadLink(())
    )
}

/// Returns true for operations that need no state and set another current filehandle, or none.
const fn is_lookup(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Lookup(_)
            | Request::LookupP(())
            | Request::PutPubFh(())
            | Request::PutRootFh(())
            | Request::SecInfo(_)
            | Request::SecInfoNoName(_)
    )
}
