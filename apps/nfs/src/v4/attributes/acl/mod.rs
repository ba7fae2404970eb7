//! The attribute `acl` (RFC 8881 §6) of objects that have POSIX lists: how it is written, received
//! and set. [`mapping`] translates the lists.

use stag_protocol::{
    nfs::{
        v3::{FileHandle, FileKind},
        v4::{
            ACL_LEN_MAX, Ace, Attribute, Bitmap, Decimal, OWNER_LEN_MAX, RawAttributes, Status4,
            ace::flag,
        },
    },
    xdr::{NoRoom, Writer},
};

mod mapping;

use self::mapping::{AceSubject, aces_of, lists_of, received};
use super::{FileSystemFacts, ObjectFacts};
use crate::{
    owner_names::{OwnerForm, OwnerKind, OwnerNumber},
    v4::context::{CompoundContext, OpExit, OpResult, filehandle::Node},
};
use stag_nfs_store::{Acl, AclPair, AclPart, Store};

pub(in crate::v4) use self::mapping::AceOf;

/// Entries that a client may set, at most. An entry may change what all others before it grant, so
/// that the work grows with the square.
const ACES_MAX: usize = 512;
/// Unknown names of one list that are asked for at a time: others need the name service, too.
const NAMES_MAX: usize = 64;

/// Bytes of an entry without its subject.
const ACE_HEAD: usize = 4 + 4 + 4 + 4;
/// Bytes of the longest subject without a name: `EVERYONE@`, or a number.
const SUBJECT_LEN: usize = 12;

/// Writes the value of the attribute.
pub(super) fn emit_aces(
    aces: &[AceOf],
    owners: OwnerForm<'_>,
    writer: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    writer.u32(u32::try_from(aces.len()).map_err(|_| NoRoom)?)?;
    for AceOf { denies, inheritance, mask, subject } in aces {
        let of_group = match subject {
            AceSubject::Members(_) => flag::IDENTIFIER_GROUP,
            _ => 0,
        };
        let kind = if *denies { Ace::DENY } else { Ace::ALLOW };
        writer.words([kind, inheritance | of_group, *mask])?;
        match *subject {
            AceSubject::Owner => writer.opaque(Ace::OWNER)?,
            AceSubject::Group => writer.opaque(Ace::GROUP)?,
            AceSubject::Everyone => writer.opaque(Ace::EVERYONE)?,
            AceSubject::User(id) => owners.emit(OwnerKind::User, id, writer)?,
            AceSubject::Members(id) => owners.emit(OwnerKind::Group, id, writer)?,
        }
    }
    Ok(())
}

/// The status of an operation on an attribute that a file system does not have.
fn of_acl(exit: OpExit) -> OpExit {
    match exit {
        OpExit::Fail(Status4::NotSupp) => Status4::AttrNotSupp.into(),
        exit => exit,
    }
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// The entries of an object's list, if that is asked for and there is one. Waits for the names
    /// of its users and groups.
    ///
    /// # Errors
    /// NFS4ERR_REP_TOO_BIG for a list that is too long, else as the store.
    pub(in crate::v4) fn aces(
        &mut self,
        node: &Node,
        asked: &Bitmap,
        object: &ObjectFacts,
        system: &FileSystemFacts,
    ) -> OpResult<Option<Vec<AceOf>>> {
        let Node::Object(handle) = node else { return Ok(None) };
        if !asked.contains(Attribute::Acl as u32) || !system.has_acls() {
            return Ok(None);
        }
        let octets = match self.get_acls(handle) {
            Ok(octets) => octets,
            // Symbolic links have no list.
            Err(OpExit::Fail(Status4::NotSupp)) => return Ok(None),
            Err(OpExit::Fail(Status4::TooSmall)) => return Err(Status4::RepTooBig.into()),
            Err(exit) => return Err(exit),
        };
        let attributes = &object.attributes;
        let pair = AclPair::parse(&octets, attributes.mode).ok_or(Status4::ServerFault)?;
        let aces = aces_of(&pair, attributes.kind == FileKind::Directory);
        let names = self.nfs4.names_owners(self.compound.caller.security);
        let subject_len = if names { OWNER_LEN_MAX } else { SUBJECT_LEN };
        // RFC 8881 §2.10.6.4: the room for the results was looked for before
        if 4 + aces.len() * (ACE_HEAD + subject_len) > ACL_LEN_MAX {
            return Err(Status4::RepTooBig.into());
        }
        let ticket = self.with_owners(|_, mut owners| {
            for ace in &aces {
                match ace.subject {
                    AceSubject::User(id) => owners.look_up_number(OwnerKind::User, id),
                    AceSubject::Members(id) => owners.look_up_number(OwnerKind::Group, id),
                    AceSubject::Owner | AceSubject::Group | AceSubject::Everyone => {}
                }
            }
            owners.ticket
        });
        self.await_names(ticket)?;
        Ok(Some(aces))
    }

    /// The entries in the arguments of an operation, with their subjects by number.
    ///
    /// # Errors
    /// NFS4ERR_ATTRNOTSUPP for an entry that cannot be stored, NFS4ERR_FBIG for too many,
    /// NFS4ERR_BADOWNER for a subject that is not accepted; as
    /// [`owner_number`](Self::owner_number).
    pub(in crate::v4) fn received_aces<'a>(
        &mut self,
        list: impl Iterator<Item = Ace<'a>>,
    ) -> OpResult<Vec<AceOf>> {
        let (mut aces, mut ticket, mut pending) = (Vec::new(), None, 0);
        for ace in list {
            if aces.len() == ACES_MAX {
                return Err(Status4::FBig.into());
            }
            let kind = match ace.flags & flag::IDENTIFIER_GROUP {
                0 => OwnerKind::User,
                _ => OwnerKind::Group,
            };
            let subject = match (ace.who.0, kind) {
                (Ace::OWNER, _) => AceSubject::Owner,
                (Ace::GROUP, _) => AceSubject::Group,
                (Ace::EVERYONE, _) => AceSubject::Everyone,
                (name, kind) => match self.named_number(kind, name) {
                    OwnerNumber::Known(None) => return Err(Status4::BadOwner.into()),
                    OwnerNumber::Known(Some(number)) if kind == OwnerKind::User => {
                        AceSubject::User(number)
                    }
                    OwnerNumber::Known(Some(number)) => AceSubject::Members(number),
                    OwnerNumber::Unavailable => return Err(Status4::Delay.into()),
                    OwnerNumber::Pending(name) => {
                        // Several are asked for before it waits.
                        ticket = ticket.max(Some(name));
                        pending += 1;
                        if pending == NAMES_MAX {
                            break;
                        }
                        AceSubject::Everyone
                    }
                },
            };
            aces.push(received(&ace, subject)?);
        }
        match ticket {
            None => Ok(aces),
            Some(ticket) => Err(self.wait_for_owner(ticket)),
        }
    }

    fn named_number(&mut self, kind: OwnerKind, text: &[u8]) -> OwnerNumber {
        let security = self.compound.caller.security;
        let names = self.nfs4.owner_names.as_mut();
        match names.filter(|names| names.are_used_with(security)) {
            Some(names) => names.number(kind, text, security),
            // RFC 8881 §5.9: without a domain only numbers are known
            None => OwnerNumber::Known(Decimal::parse(text)),
        }
    }

    /// The lists that an operation sets on an object; none if it sets none.
    ///
    /// # Errors
    /// As [`received_aces`](Self::received_aces) and [`lists_of`].
    pub(in crate::v4) fn acls_to_set(
        &mut self,
        raw: &RawAttributes<'_>,
        is_directory: bool,
    ) -> OpResult<Option<Box<AclPair>>> {
        if !raw.mask.contains(Attribute::Acl as u32) {
            return Ok(None);
        }
        let values = raw.values().map_err(|fault| fault.status())?;
        let Some(list) = &values.acl else { return Ok(None) };
        self.compound.replay_log.go_on()?;
        if let Some(known) = &self.compound.replay_log.acls {
            return Ok(Some(known.clone()));
        }
        let aces = self.received_aces(list.items())?;
        let lists = Box::new(lists_of(&aces, is_directory)?);
        self.compound.replay_log.acls = Some(lists.clone());
        Ok(Some(lists))
    }

    /// Sets the lists of an object that the operation has created, so that it cannot fail any more.
    /// Returns the attributes in `asked` that are set.
    ///
    /// # Errors
    /// [`OpExit::Wait`].
    pub(in crate::v4) fn set_acls_of_new(
        &mut self,
        object: &FileHandle,
        lists: Option<&AclPair>,
        is_directory: bool,
        mut asked: Bitmap,
    ) -> OpResult<Bitmap> {
        let Some(lists) = lists else { return Ok(asked) };
        match self.set_acls(object, lists, is_directory) {
            Ok(()) => Ok(asked),
            Err(OpExit::Fail(_)) => {
                asked.remove(Attribute::Acl as u32);
                Ok(asked)
            }
            Err(exit) => Err(exit),
        }
    }

    /// Sets the lists of an object; a directory without a default list loses the one that it has.
    ///
    /// # Errors
    /// NFS4ERR_ATTRNOTSUPP in a file system without such lists, else as the store.
    pub(in crate::v4) fn set_acls(
        &mut self,
        object: &FileHandle,
        lists: &AclPair,
        is_directory: bool,
    ) -> OpResult {
        let access = lists.access.octets();
        self.set_acl(object, AclPart::Access, &access).map_err(of_acl)?;
        if is_directory {
            let default = lists.default.as_ref().map(Acl::octets).unwrap_or_default();
            self.set_acl(object, AclPart::Default, &default).map_err(of_acl)?;
        }
        Ok(())
    }
}
