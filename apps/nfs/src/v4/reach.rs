//! The part of a compound that a shard with its session's slots carries out itself (`loans`).

use stag_protocol::nfs::v4::{Compound, Request};

use super::{
    Nfs4,
    node::Node,
    op::HELD,
    session::{BegunSlot, Standing},
    settled::IoAbout,
    state::{IoAccess, StateOther},
    stateids::file_id,
};

/// Part of a compound that this shard carries out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All of it.
    #[default]
    All,
    /// All of it. Where an object is gone here, the home may have kept it for who has it open.
    Here {
        /// Up to this operation the home can begin anew then. Behind, such an object is
        /// NFS4ERR_DELAY.
        until: u32,
    },
    /// Its SEQUENCE.
    Begin,
}

/// Relation of a compound to other shards.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crossing<'a> {
    pub(crate) reach: Reach,
    /// The state by which this shard lets it read or write, which is not the home.
    pub(crate) io: Option<StateOther>,
    /// Its request was begun by the shard that it came to.
    pub(crate) begun: Option<&'a BegunSlot>,
    /// That shard can have the slots of a session that it makes.
    pub(crate) takes_loans: bool,
}

impl Nfs4 {
    /// The part of a compound that this shard carries out. None if its session's slots are not
    /// here, or are about to go back.
    pub(crate) fn reach_of(&self, mut operations: Compound<'_>) -> Option<Crossing<'static>> {
        const BEGIN: Crossing<'static> =
            Crossing { reach: Reach::Begin, io: None, begun: None, takes_loans: false };
        let borrowed = self.borrowed.as_ref()?;
        let Ok(Request::Sequence(args)) = operations.next()? else { return None };
        let session = self.sessions.get(&args.session)?;
        if matches!(session.standing, Standing::Borrowed { is_due: true }) {
            return None;
        }
        let client = session.client;
        let (mut file, mut until, mut io) = (None, u32::MAX, None);
        for (request, place) in operations.zip(1..) {
            let (stateid, access) = match request {
                Ok(Request::PutFh(handle)) => {
                    file = Node::object_of(&handle).map(|it| file_id(&it));
                    continue;
                }
                Ok(Request::Read(args)) => (args.stateid, IoAccess::Read),
                Ok(Request::Write(args)) => {
                    until = place;
                    (args.stateid, IoAccess::Write)
                }
                // RFC 8881 §10.4.3: the holder of a write delegation may have to be asked.
                Ok(Request::GetAttr(asked)) if asked.meets(&HELD) => {
                    match borrowed.facts.may_conflict(file) {
                        true => return Some(BEGIN),
                        false => continue,
                    }
                }
                Ok(request) if leaves_file(&request) => continue,
                Ok(request) if is_look(&request) => {
                    file = None;
                    continue;
                }
                _ => return Some(BEGIN),
            };
            let about = file.map(|file| IoAbout { client, file, access });
            if io.is_some() || !about.is_some_and(|about| borrowed.told.cover(&stateid, about)) {
                return Some(BEGIN);
            }
            io = Some(stateid.other);
        }
        Some(Crossing { reach: Reach::Here { until }, io, ..Crossing::default() })
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
            | Request::SaveFh(())
    )
}

/// Returns true for other operations that need no state.
const fn is_look(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Lookup(_)
            | Request::LookupP(())
            | Request::PutPubFh(())
            | Request::PutRootFh(())
            | Request::RestoreFh(())
            | Request::SecInfo(_)
            | Request::SecInfoNoName(_)
    )
}
