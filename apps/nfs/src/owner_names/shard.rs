//! Names of owners that one shard has seen.

use super::{NameAnswer, NameQuery, OwnerKind, OwnerNames, without_domain};
use stag_nfs_store::{
    FileAttributes, Security,
    exports::host_book::{Asked, BookAnswer, make_room},
};
use stag_protocol::{
    nfs::v4::{Attribute, Bitmap, Decimal},
    xdr::{NoRoom, Writer},
};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// Names of users cached by a shard; and the same number of groups, and of numbers of each.
pub(super) const SEEN_MAX: usize = 4_096;

/// The attributes that are owners.
pub(crate) const OWNERS: Bitmap = Bitmap::of_attributes(&[Attribute::Owner, Attribute::OwnerGroup]);

/// Names of owners, with the answers that one shard has seen.
#[derive(Debug)]
pub(crate) struct ShardNames {
    names: Arc<OwnerNames>,
    users: Seen,
    groups: Seen,
}

/// Answers about users or groups.
#[derive(Debug, Default)]
struct Seen {
    /// Names with their domain, by number.
    texts: HashMap<u32, BookAnswer<Arc<str>>>,
    /// Numbers, by name without its domain.
    numbers: HashMap<Arc<str>, BookAnswer<u32>>,
}

/// The number of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerNumber {
    /// It is this; none for an owner that this server does not accept.
    Known(Option<u32>),
    /// The name service is asked, under this ticket.
    Pending(u64),
    /// The name service does not answer.
    Unavailable,
}

impl ShardNames {
    pub(crate) fn new(names: Arc<OwnerNames>) -> Self {
        Self { names, users: Seen::default(), groups: Seen::default() }
    }

    /// Returns true if owners are names in calls with this security.
    pub(crate) fn are_used_with(&self, security: Security) -> bool {
        self.names.are_used_with(security)
    }

    /// Returns true once the query with this ticket is over.
    pub(crate) fn is_answered(&self, ticket: u64) -> bool {
        self.names.book.is_answered(ticket)
    }

    /// Returns true if the name service has worked on one query for longer than `limit`.
    pub(crate) fn is_late(&self, limit: Duration) -> bool {
        self.names.book.is_late(limit)
    }

    /// The number of answers that it has seen.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        [&self.users, &self.groups].map(|seen| seen.texts.len() + seen.numbers.len()).iter().sum()
    }

    /// Queries all names again at their next use.
    #[cfg(test)]
    pub(super) fn forget(&self) {
        self.names.forget();
    }

    const fn seen(&self, kind: OwnerKind) -> &Seen {
        match kind {
            OwnerKind::User => &self.users,
            OwnerKind::Group => &self.groups,
        }
    }

    const fn seen_mut(&mut self, kind: OwnerKind) -> &mut Seen {
        match kind {
            OwnerKind::User => &mut self.users,
            OwnerKind::Group => &mut self.groups,
        }
    }

    /// The name of an owner with its domain, as far as it has been [looked up](Self::look_up).
    fn text(&self, kind: OwnerKind, number: u32) -> Option<&str> {
        let (round, ages) = (self.names.book.round(), self.names.book.ages());
        let answer = self.seen(kind).texts.get(&number)?;
        answer.found.as_deref().filter(|_| answer.is_usable(round, ages))
    }

    /// Looks up the name of an owner. Returns the state of the question without its result.
    fn look_up(&mut self, kind: OwnerKind, number: u32) -> Asked<()> {
        let (round, ages) = (self.names.book.round(), *self.names.book.ages());
        let known = self.seen(kind).texts.get(&number);
        if let Some(answer) = known.filter(|answer| answer.is_fresh(round, &ages)) {
            return Asked::Answer(answer.clone().map(|_| None));
        }
        match self.names.book.ask(&NameQuery::NameOf(kind, number), round) {
            Asked::Answer(answer) => {
                let answer = answer.map(|found| match found {
                    NameAnswer::Name(text) => Some(text),
                    NameAnswer::Number(_) => None,
                });
                let texts = &mut self.seen_mut(kind).texts;
                make_room(texts, SEEN_MAX, |answer| answer.found.is_some());
                texts.insert(number, answer.clone());
                Asked::Answer(answer.map(|_| None))
            }
            Asked::Pending(ticket) => Asked::Pending(ticket),
            Asked::Unavailable => Asked::Unavailable,
        }
    }

    /// The number of an owner in the arguments of a call with this security.
    pub(crate) fn number(
        &mut self,
        kind: OwnerKind,
        text: &[u8],
        security: Security,
    ) -> OwnerNumber {
        if let Some(number) = Decimal::parse(text) {
            return self.accepted(kind, number, security);
        }
        let Some(name) = without_domain(text, &self.names.domain) else {
            return OwnerNumber::Known(None);
        };
        let (round, ages) = (self.names.book.round(), *self.names.book.ages());
        let known = self.seen(kind).numbers.get(name);
        if let Some(answer) = known.filter(|answer| answer.is_fresh(round, &ages)) {
            return OwnerNumber::Known(answer.found);
        }
        // Names in arguments, which a client makes up, leave half of the queries to files' owners.
        if self.names.book.is_half_full() {
            return OwnerNumber::Unavailable;
        }
        let name: Arc<str> = name.into();
        match self.names.book.ask(&NameQuery::NumberOf(kind, Arc::clone(&name)), round) {
            Asked::Answer(answer) => {
                let answer = answer.map(|found| match found {
                    NameAnswer::Number(number) => Some(number),
                    NameAnswer::Name(_) => None,
                });
                let numbers = &mut self.seen_mut(kind).numbers;
                make_room(numbers, SEEN_MAX, |answer| answer.found.is_some());
                numbers.insert(name, answer);
                OwnerNumber::Known(answer.found)
            }
            Asked::Pending(ticket) => OwnerNumber::Pending(ticket),
            Asked::Unavailable => OwnerNumber::Unavailable,
        }
    }

    /// The number itself, if it is accepted as an owner.
    fn accepted(&mut self, kind: OwnerKind, number: u32, security: Security) -> OwnerNumber {
        // RFC 8881 §5.9 [8881-410]: a number that has a name is not taken in its place. RFC 7530
        // §5.9 limits that to Kerberos: other flavors prove no names either.
        if !security.is_proven() {
            return OwnerNumber::Known(Some(number));
        }
        match self.look_up(kind, number) {
            Asked::Answer(_) => {
                // As it was found, although a reload may have begun another round since.
                let answer = self.seen(kind).texts.get(&number);
                let has_name = answer.is_some_and(|answer| answer.found.is_some());
                OwnerNumber::Known((!has_name).then_some(number))
            }
            Asked::Pending(ticket) => OwnerNumber::Pending(ticket),
            Asked::Unavailable => OwnerNumber::Unavailable,
        }
    }
}

/// The form of owners in results.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OwnerForm<'a> {
    /// Numbers.
    Numbers,
    /// Names as far as they have been looked up, else numbers.
    Names(&'a ShardNames),
    /// These texts, which stand for the owners of the object.
    Texts {
        /// The user.
        user: &'a [u8],
        /// The group.
        group: &'a [u8],
    },
}

impl OwnerForm<'_> {
    /// Writes an owner.
    #[inline]
    pub(crate) fn emit(
        self,
        kind: OwnerKind,
        number: u32,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let text = match (self, kind) {
            (Self::Numbers, _) => None,
            (Self::Names(names), _) => names.text(kind, number).map(str::as_bytes),
            (Self::Texts { user, .. }, OwnerKind::User) => Some(user),
            (Self::Texts { group, .. }, OwnerKind::Group) => Some(group),
        };
        match text {
            Some(text) => writer.opaque(text),
            // RFC 8881 §5.9 [8881-412]: without a name there is no "@"
            None => Decimal::of(number).emit(writer),
        }
    }
}

/// Looks up the owners of the objects that one operation returns.
#[derive(Debug)]
pub(crate) struct OwnerLookups<'a> {
    names: Option<&'a mut ShardNames>,
    /// The last ticket of a name that is not known yet.
    pub(crate) ticket: Option<u64>,
}

impl<'a> OwnerLookups<'a> {
    /// By `names`; none if owners are numbers.
    pub(crate) const fn new(names: Option<&'a mut ShardNames>) -> Self {
        Self { names, ticket: None }
    }

    /// Looks up the owners of an object, as far as they are `asked` for.
    pub(crate) fn look_up(&mut self, asked: &Bitmap, object: &FileAttributes) {
        if !asked.meets(&OWNERS) {
            return;
        }
        let both = [
            (Attribute::Owner, OwnerKind::User, object.uid),
            (Attribute::OwnerGroup, OwnerKind::Group, object.gid),
        ];
        for (attribute, kind, number) in both {
            if asked.contains(attribute as u32) {
                self.look_up_number(kind, number);
            }
        }
    }

    /// Looks up a user or a group by its number.
    pub(crate) fn look_up_number(&mut self, kind: OwnerKind, number: u32) {
        if let Some(names) = self.names.as_deref_mut()
            && let Asked::Pending(ticket) = names.look_up(kind, number)
        {
            self.ticket = self.ticket.max(Some(ticket));
        }
    }

    /// The form of the owners that it has looked up.
    pub(crate) fn form(&self) -> OwnerForm<'_> {
        self.names.as_deref().map_or(OwnerForm::Numbers, OwnerForm::Names)
    }
}
