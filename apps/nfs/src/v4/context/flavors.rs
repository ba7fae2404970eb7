//! Security flavors of the objects of a compound (RFC 8881 §2.6.3.1).
//!
//! An export accepts a list of flavors. A directory of the pseudo file system accepts those of all
//! exports beneath it, so that every client finds its way to them. A wrong flavor is reported by
//! the operation that makes an object the current one, so that its client knows which object
//! SECINFO or SECINFO_NO_NAME has to be about. The store judges it again in each of its calls.

use stag_protocol::nfs::v4::{Compound, OpenClaim, Operation, Request, Status4};

use super::{CompoundContext, OpResult, filehandle::Node};
use stag_nfs_store::{Store, exports::security::SecurityFlavors};

/// The effect of an operation after PUTFH and its like on the judgement of the filehandle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextOperation {
    /// SAVEFH, which counts as absent.
    Saves,
    /// It replaces the filehandle, drops it, or reports a wrong flavor itself.
    Judges,
    /// It lets state go, as the machine of a client may whatever its flavor.
    LetsGo(Operation),
    /// Any other.
    Uses,
}

impl NextOperation {
    const fn of(request: &Request<'_>) -> Self {
        match request {
            // RFC 8881 §2.6.3.1.1.1 [8881-375]: SAVEFH is no reason to judge, nor not to
            Request::SaveFh(()) => Self::Saves,
            // RFC 8881 §2.6.3.1.1.2 [8881-376]: of several filehandles only the last is judged
            Request::PutFh(_)
            | Request::PutPubFh(())
            | Request::PutRootFh(())
            | Request::RestoreFh(()) => Self::Judges,
            // RFC 8881 §2.6.3.1.1.3 [8881-377]: LOOKUP and OPEN by name report it themselves
            // RFC 8881 §2.6.3.1.1.4 [8881-378]: and so does LOOKUPP
            Request::Lookup(_) | Request::LookupP(()) => Self::Judges,
            Request::Open(args) => match args.claim {
                OpenClaim::Null(_) | OpenClaim::DelegateCur(_) | OpenClaim::DelegatePrev(_) => {
                    Self::Judges
                }
                _ => Self::Uses,
            },
            // RFC 8881 §2.6.3.1.1.5 [8881-379]: SECINFO works with any flavor
            Request::SecInfo(_) | Request::SecInfoNoName(_) => Self::Judges,
            Request::Close(_) => Self::LetsGo(Operation::Close),
            Request::OpenDowngrade(_) => Self::LetsGo(Operation::OpenDowngrade),
            Request::DelegReturn(_) => Self::LetsGo(Operation::DelegReturn),
            Request::LockU(_) => Self::LetsGo(Operation::LockU),
            _ => Self::Uses,
        }
    }
}

/// Returns true if an operation makes another filehandle the current one without a name.
const fn puts(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::PutFh(_) | Request::PutPubFh(()) | Request::PutRootFh(()) | Request::RestoreFh(())
    )
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Flavors that an object accepts from the caller; none where none is refused.
    pub(in crate::v4) fn flavors(&self, node: &Node) -> Option<SecurityFlavors> {
        if !self.store.has_security() {
            return None;
        }
        match node {
            Node::Object(object) => self.store.flavors_of(object, self.compound.caller.address),
            Node::Pseudo(handle) => self.flavors_beneath(self.nfs4.pseudo.place_of(handle)?),
        }
    }

    fn flavors_beneath(&self, directory: usize) -> Option<SecurityFlavors> {
        let exports = self.nfs4.pseudo.beneath(directory).iter();
        exports.filter_map(|place| self.flavors_of_export(*place)).reduce(SecurityFlavors::union)
    }

    fn flavors_of_export(&self, place: usize) -> Option<SecurityFlavors> {
        let entry = self.nfs4.pseudo.export(place)?;
        let name = core::str::from_utf8(&entry.name).ok()?;
        self.store.flavors(name, self.compound.caller.address)
    }

    fn accepts(&self, flavors: Option<SecurityFlavors>) -> bool {
        flavors.is_none_or(|flavors| flavors.accept(self.compound.caller.security))
    }

    /// Returns true if an object refuses the flavor of the call.
    pub(in crate::v4) fn refuses(&self, node: &Node) -> bool {
        !self.accepts(self.flavors(node))
    }

    /// Returns true if the export at a place refuses the flavor of the call.
    pub(in crate::v4) fn refuses_at(&self, place: usize) -> bool {
        self.store.has_security() && !self.accepts(self.flavors_of_export(place))
    }

    /// Returns true if a directory of the pseudo file system refuses it.
    pub(in crate::v4) fn refuses_beneath(&self, directory: usize) -> bool {
        self.store.has_security() && !self.accepts(self.flavors_beneath(directory))
    }

    /// Checks that an object accepts the flavor of the call.
    ///
    /// # Errors
    /// NFS4ERR_WRONGSEC.
    pub(in crate::v4) fn check_flavor(&self, node: &Node) -> Result<(), Status4> {
        if self.refuses(node) { Err(Status4::WrongSec) } else { Ok(()) }
    }

    /// Judges the current filehandle after an operation, as the next ones require.
    ///
    /// # Errors
    /// NFS4ERR_WRONGSEC.
    #[cold]
    pub(in crate::v4) fn judge_put(&self, request: &Request<'_>, rest: &Compound<'_>) -> OpResult {
        if !puts(request) {
            return Ok(());
        }
        // RFC 8881 §2.6.3.1.1.6 [8881-380]: a filehandle that is not used is not judged
        // An operation that cannot be decoded has its own status.
        let mut next = rest.clone().map_while(Result::ok).map(|next| NextOperation::of(&next));
        match next.find(|next| *next != NextOperation::Saves) {
            // RFC 8881 §2.6.3.1.1.7 [8881-381]: PUTFH and its like report it for all others
            Some(NextOperation::LetsGo(operation)) if self.may_let_go(operation) => Ok(()),
            Some(NextOperation::Uses | NextOperation::LetsGo(_)) => {
                Ok(self.check_flavor(&self.current()?)?)
            }
            _ => Ok(()),
        }
    }

    /// Judges the saved filehandle of a RENAME or LINK.
    ///
    /// # Errors
    /// NFS4ERR_WRONGSEC; NFS4ERR_XDEV where no flavor is right for both filehandles.
    pub(in crate::v4) fn check_saved_flavor(&self, saved: &Node, current: &Node) -> OpResult {
        if !self.refuses(saved) {
            return Ok(());
        }
        let both = self.flavors(saved).zip(self.flavors(current));
        let are_apart = both.is_some_and(|(saved, current)| !saved.meet(&current));
        // RFC 8881 §2.6.3.1.2 [8881-382]: a client is not sent from one flavor to the other
        Err(if are_apart { Status4::XDev } else { Status4::WrongSec }.into())
    }
}
