//! Lists of version 4 for POSIX lists and the way back, as Linux' server maps them.
//!
//! POSIX lists have three rights, a mask, and one entry for each subject; the first entry that
//! matches a user decides, and all groups of a user count. A list of version 4 has many rights and
//! is read from its beginning, right by right. So each POSIX list has a list of version 4 with the
//! same meaning, in which DENY entries keep later entries from adding rights. The way back gives
//! the POSIX list with the same meaning where there is one, and otherwise one that grants less:
//! never a right that the list of version 4 denies.

use std::collections::BTreeMap;

use stag_nfs_store::{Acl, AclEntry, AclPair, AclSubject};
use stag_protocol::nfs::v4::{
    Ace, Status4,
    ace::{flag, right},
};

const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;

/// Subject of an entry of version 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::v4) enum AceSubject {
    Owner,
    Group,
    Everyone,
    /// The user of this number.
    User(u32),
    /// The group of this number.
    Members(u32),
}

/// An entry of version 4 with its subject as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::v4) struct AceOf {
    /// True for DENY.
    pub(super) denies: bool,
    /// Bits of inheritance.
    pub(super) inheritance: u32,
    /// Its rights.
    pub(super) mask: u32,
    pub(super) subject: AceSubject,
}

const INHERITED_BY_ALL: u32 = flag::FILE_INHERIT | flag::DIRECTORY_INHERIT;
const INHERITANCE: u32 = INHERITED_BY_ALL | flag::INHERIT_ONLY;

/// The list of version 4 of an object: the entries for access, then the entries for new objects.
pub(super) fn aces_of(pair: &AclPair, is_directory: bool) -> Vec<AceOf> {
    let mut aces = Vec::new();
    add_list(&mut aces, &pair.access, 0, is_directory);
    if let Some(default) = &pair.default {
        add_list(&mut aces, default, INHERITANCE, is_directory);
    }
    aces
}

/// The rights of a POSIX list, by kinds of entries, and as far as the mask lets them.
#[derive(Clone, Copy, Debug, Default)]
struct ListSummary {
    owner: u32,
    group: u32,
    other: u32,
    mask: u32,
    /// Of any user, and of any group, by number.
    users: u32,
    groups: u32,
}

impl ListSummary {
    fn of(list: &Acl) -> Self {
        let mut all = Self { mask: READ | WRITE | EXECUTE, ..Self::default() };
        for AclEntry { subject, rights } in list.entries().iter().copied() {
            match subject {
                AclSubject::Owner => all.owner = rights,
                AclSubject::User(_) => all.users |= rights,
                AclSubject::OwningGroup => all.group = rights,
                AclSubject::Group(_) => all.groups |= rights,
                AclSubject::Mask => all.mask = rights,
                AclSubject::Other => all.other = rights,
            }
        }
        all.users &= all.mask;
        all.group &= all.mask;
        all.groups &= all.mask;
        all
    }
}

/// Adds the entries of one POSIX list. An entry that grants less than a later one is denied the
/// difference, as far as the later one can apply to the same user.
fn add_list(aces: &mut Vec<AceOf>, list: &Acl, inheritance: u32, is_directory: bool) {
    let all = ListSummary::of(list);
    let mut add = |denies, subject, mask| aces.push(AceOf { denies, inheritance, mask, subject });
    let deny = |rights| rights_mask(rights, is_directory);
    let allow = |rights| rights_mask(rights, is_directory) | ANYONE;

    let kept = !all.owner & (all.users | all.group | all.groups | all.other);
    if kept != 0 {
        add(true, AceSubject::Owner, deny(kept));
    }
    add(false, AceSubject::Owner, allow(all.owner) | OWNER);
    for (id, rights) in named(list, all.mask, false) {
        let kept = !rights & (all.group | all.groups | all.other);
        if kept != 0 {
            add(true, AceSubject::User(id), deny(kept));
        }
        add(false, AceSubject::User(id), allow(rights));
    }
    // A user can be in several groups, whose rights add up: all of them before what they are
    // denied.
    add(false, AceSubject::Group, allow(all.group));
    for (id, rights) in named(list, all.mask, true) {
        add(false, AceSubject::Members(id), allow(rights));
    }
    let kept = !all.group & all.other;
    if kept != 0 {
        add(true, AceSubject::Group, deny(kept));
    }
    for (id, rights) in named(list, all.mask, true) {
        let kept = !rights & all.other;
        if kept != 0 {
            add(true, AceSubject::Members(id), deny(kept));
        }
    }
    add(false, AceSubject::Everyone, allow(all.other));
}

/// The users, or the groups, that a list has by number, with their rights within the mask.
fn named(list: &Acl, mask: u32, groups: bool) -> impl Iterator<Item = (u32, u32)> + '_ {
    list.entries().iter().filter_map(move |entry| match entry.subject {
        AclSubject::User(id) if !groups => Some((id, entry.rights & mask)),
        AclSubject::Group(id) if groups => Some((id, entry.rights & mask)),
        _ => None,
    })
}

/// Rights that everybody has.
const ANYONE: u32 = right::READ_ACL | right::READ_ATTRIBUTES | right::SYNCHRONIZE;
/// Rights that an owner has.
const OWNER: u32 = right::WRITE_ATTRIBUTES | right::WRITE_ACL;

const fn write_mask(is_directory: bool) -> u32 {
    let write = right::WRITE_DATA | right::APPEND_DATA;
    if is_directory { write | right::DELETE_CHILD } else { write }
}

/// The rights of version 4 for the three of POSIX.
const fn rights_mask(rights: u32, is_directory: bool) -> u32 {
    let mut mask = 0;
    if rights & READ != 0 {
        mask |= right::READ_DATA;
    }
    if rights & WRITE != 0 {
        mask |= write_mask(is_directory);
    }
    if rights & EXECUTE != 0 {
        mask |= right::EXECUTE;
    }
    mask
}

/// The rights of POSIX whose rights of version 4 are all in a mask.
const fn posix_rights(mask: u32, is_directory: bool) -> u32 {
    let mut rights = 0;
    if mask & right::READ_DATA != 0 {
        rights |= READ;
    }
    // RFC 8881 §6.2.1.3: of WRITE_DATA and APPEND_DATA alone, neither is granted
    if mask & write_mask(is_directory) == write_mask(is_directory) {
        rights |= WRITE;
    }
    if mask & right::EXECUTE != 0 {
        rights |= EXECUTE;
    }
    rights
}

/// Bits of [`Ace::mask`] that entries so far have decided for one subject.
#[derive(Clone, Copy, Debug, Default)]
struct Decided {
    allowed: u32,
    denied: u32,
}

impl Decided {
    /// RFC 8881 §6.2.1: the first entry that names a right decides it
    const fn decide(&mut self, mask: u32, denies: bool) {
        match denies {
            true => self.denied |= mask & !self.allowed,
            false => self.allowed |= mask & !self.denied,
        }
    }
}

/// A POSIX list that comes from entries of version 4.
#[derive(Debug, Default)]
struct Draft {
    owner: Decided,
    group: Decided,
    other: Decided,
    /// The decisions of entries for everybody, with which users and groups that follow begin.
    everyone: Decided,
    users: BTreeMap<u32, Decided>,
    groups: BTreeMap<u32, Decided>,
    has_owner: bool,
    has_group: bool,
    has_other: bool,
}

impl Draft {
    fn is_empty(&self) -> bool {
        !(self.has_owner || self.has_group || self.has_other)
            && self.users.is_empty()
            && self.groups.is_empty()
    }

    fn take(&mut self, ace: &AceOf) {
        let AceOf { denies, mask, subject, .. } = *ace;
        match subject {
            AceSubject::Owner => {
                self.has_owner = true;
                self.owner.decide(mask, denies);
            }
            AceSubject::User(id) => {
                let user = self.users.entry(id).or_insert(self.everyone);
                user.decide(mask, denies);
                // The user may be the owner.
                if denies {
                    self.owner.decide(user.denied, true);
                }
            }
            AceSubject::Group => {
                self.has_group = true;
                self.group.decide(mask, denies);
                if denies {
                    self.deny_members(self.group.denied);
                }
            }
            AceSubject::Members(id) => {
                let group = self.groups.entry(id).or_insert(self.everyone);
                group.decide(mask, denies);
                if denies {
                    let denied = group.denied;
                    self.deny_members(denied);
                }
            }
            AceSubject::Everyone => {
                self.has_other = true;
                let all = [&mut self.owner, &mut self.group, &mut self.other, &mut self.everyone];
                let named = self.users.values_mut().chain(self.groups.values_mut());
                all.into_iter().chain(named).for_each(|one| one.decide(mask, denies));
            }
        }
    }

    /// Denies what members of a group are denied: anybody but the others may be one of them.
    fn deny_members(&mut self, mask: u32) {
        let all = [&mut self.owner, &mut self.group, &mut self.everyone];
        let named = self.users.values_mut().chain(self.groups.values_mut());
        all.into_iter().chain(named).for_each(|one| one.decide(mask, true));
    }

    /// The list.
    ///
    /// # Errors
    /// NFS4ERR_NOSPC for a list that is too long.
    fn list(&self, is_directory: bool) -> Result<Acl, Status4> {
        let rights = |decided: &Decided| posix_rights(decided.allowed, is_directory);
        let users = self.users.iter().map(|(id, user)| (AclSubject::User(*id), rights(user)));
        let groups = self.groups.iter().map(|(id, group)| (AclSubject::Group(*id), rights(group)));
        let mut entries: Vec<_> =
            users.chain(groups).map(|(subject, rights)| AclEntry::new(subject, rights)).collect();
        if !entries.is_empty() {
            let mask = entries.iter().fold(rights(&self.group), |all, entry| all | entry.rights);
            entries.push(AclEntry::new(AclSubject::Mask, mask));
        }
        entries.push(AclEntry::new(AclSubject::Owner, rights(&self.owner)));
        entries.push(AclEntry::new(AclSubject::OwningGroup, rights(&self.group)));
        entries.push(AclEntry::new(AclSubject::Other, rights(&self.other)));
        Acl::new(entries).map_err(|_| Status4::NoSpc)
    }
}

/// The POSIX lists for entries of version 4.
///
/// # Errors
/// NFS4ERR_ATTRNOTSUPP for inheritance by an object that is no directory, NFS4ERR_NOSPC for lists
/// that are too long.
pub(super) fn lists_of(aces: &[AceOf], is_directory: bool) -> Result<AclPair, Status4> {
    let (mut access, mut default) = (Draft::default(), Draft::default());
    for ace in aces {
        let is_inherited = ace.inheritance & INHERITED_BY_ALL != 0;
        let is_for_this = ace.inheritance & flag::INHERIT_ONLY == 0;
        // RFC 8881 §6.2.1.4.1 [8881-413]: only what a directory passes on is inherited
        if (is_inherited && !is_directory) || !(is_inherited || is_for_this) {
            return Err(Status4::AttrNotSupp);
        }
        if is_for_this {
            access.take(ace);
        }
        // RFC 8881 §6.2.1.4: what files inherit, directories inherit, too
        if is_inherited {
            default.take(ace);
        }
    }
    let default = if default.is_empty() {
        None
    } else {
        // An entry that is needed and was left out would deny all: new objects have that of the
        // directory.
        let parts = [
            (default.has_owner, &mut default.owner, access.owner),
            (default.has_group, &mut default.group, access.group),
            (default.has_other, &mut default.other, access.other),
        ];
        for (is_given, decided, of_access) in parts {
            if !is_given {
                *decided = of_access;
            }
        }
        Some(default.list(is_directory)?)
    };
    Ok(AclPair { access: access.list(is_directory)?, default })
}

/// An entry as it is received, but for its subject by name.
///
/// # Errors
/// NFS4ERR_ATTRNOTSUPP for an entry that cannot be stored.
pub(super) fn received(ace: &Ace<'_>, subject: AceSubject) -> Result<AceOf, Status4> {
    // RFC 8881 §6.2.1.2 [8881-414]: an entry that cannot be stored is refused
    if ace.kind > Ace::DENY || ace.flags & !(INHERITANCE | flag::IDENTIFIER_GROUP) != 0 {
        return Err(Status4::AttrNotSupp);
    }
    let (denies, inheritance) = (ace.kind == Ace::DENY, ace.flags & INHERITANCE);
    Ok(AceOf { denies, inheritance, mask: ace.mask, subject })
}

#[cfg(test)]
mod tests;
