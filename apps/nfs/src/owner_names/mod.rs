//! Owners and groups of files as `name@domain` (RFC 8881 §5.9), by this host's name service.
//!
//! A thread queries the name service ([`HostBook`]); each shard caches the answers that it has seen
//! (`ShardNames`), so that a call takes no lock and allocates nothing. Operations wait for an
//! answer that is missing (`v4::context::owner_names`).
//!
//! | limit | |
//! |---|---|
//! | a name with its domain | 128 bytes: Linux makes room for no more. A longer one is a number |
//! | names and numbers cached by the process | 65,536 |
//! | the same by a shard, users and groups apart | 4,096 |
//! | outstanding queries | 1,024: beyond that, owners are numbers |
//! | age of an answer with a result | 10 minutes, then it is queried again; 20 at most |
//! | age of an answer without one | a minute |

mod shard;

pub(crate) use shard::{OWNERS, OwnerForm, OwnerLookups, OwnerNumber, ShardNames};

use stag_nfs_store::{
    Security,
    exports::{
        host_book::{AnswerAge, AnswerAges, BookSettings, HostBook, HostQuery},
        host_users,
    },
};
use stag_protocol::nfs::v4::OWNER_LEN_MAX;
use std::{io, sync::Arc, time::Duration};

/// The length of a round: the age of an answer that there is no such name.
const ROUND: Duration = Duration::from_secs(60);
/// The rounds for which answers are used.
const AGES: AnswerAges = AnswerAges {
    known: AnswerAge { fresh: 10, usable: 20 },
    unknown: AnswerAge { fresh: 1, usable: 1 },
};

/// A user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnerKind {
    /// The attribute `owner`.
    User,
    /// The attribute `owner_group`.
    Group,
}

/// Callers whose owners are names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamedCallers {
    /// Callers of RPCSEC_GSS. All others use numbers, as Linux does with AUTH_SYS.
    #[default]
    Kerberos,
    /// All callers.
    All,
}

/// Names and numbers of users and groups. Its calls may wait.
pub trait NameService: Send {
    /// The name of a user or a group; none if there is no such number.
    ///
    /// # Errors
    /// Failures of the service.
    fn name_of(&self, kind: OwnerKind, number: u32) -> io::Result<Option<String>>;

    /// The number of a user or a group; none if there is no such name.
    ///
    /// # Errors
    /// Failures of the service.
    fn number_of(&self, kind: OwnerKind, name: &str) -> io::Result<Option<u32>>;
}

/// The name service of this host.
#[derive(Clone, Copy, Debug)]
pub struct HostNames;

impl NameService for HostNames {
    fn name_of(&self, kind: OwnerKind, number: u32) -> io::Result<Option<String>> {
        match kind {
            OwnerKind::User => host_users::name_of_user(number),
            OwnerKind::Group => host_users::name_of_group(number),
        }
    }

    fn number_of(&self, kind: OwnerKind, name: &str) -> io::Result<Option<u32>> {
        match kind {
            OwnerKind::User => host_users::uid_of(name),
            OwnerKind::Group => host_users::gid_of(name),
        }
    }
}

/// A query of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum NameQuery {
    NameOf(OwnerKind, u32),
    /// By the name without its domain.
    NumberOf(OwnerKind, Arc<str>),
}

/// Its result.
#[derive(Clone, Debug)]
enum NameAnswer {
    /// A name with its domain.
    Name(Arc<str>),
    Number(u32),
}

/// Names of owners, for all shards of a server.
#[derive(Debug)]
pub struct OwnerNames {
    domain: Arc<str>,
    callers: NamedCallers,
    book: HostBook<NameQuery, NameAnswer>,
}

impl OwnerNames {
    /// Names in `domain` by this host's name service.
    ///
    /// # Errors
    /// When no thread can be created.
    pub fn of_host(domain: &str, callers: NamedCallers) -> io::Result<Self> {
        Self::asking(domain, callers, Box::new(HostNames))
    }

    /// The same by another name service.
    ///
    /// # Errors
    /// When no thread can be created.
    pub fn asking(
        domain: &str,
        callers: NamedCallers,
        service: Box<dyn NameService>,
    ) -> io::Result<Self> {
        let domain: Arc<str> = domain.into();
        let of_query = Arc::clone(&domain);
        let query: Box<HostQuery<NameQuery, NameAnswer>> =
            Box::new(move |query| ask(&*service, query, &of_query));
        let settings = BookSettings { thread: "stag-names", warn, round: ROUND, ages: AGES };
        Ok(Self { domain, callers, book: HostBook::asking(query, settings)? })
    }

    /// Queries all names again at their next use.
    pub fn forget(&self) {
        self.book.forget();
    }

    /// Returns true if owners are names in calls with this security.
    const fn are_used_with(&self, security: Security) -> bool {
        matches!(self.callers, NamedCallers::All) || security.is_proven()
    }
}

fn warn(query: &NameQuery, error: &io::Error) {
    tracing::warn!(target: "stag", ?query, %error, "no answer about the name of an owner");
}

/// Asks the name service, on the thread that waits for it.
fn ask(
    service: &dyn NameService,
    query: &NameQuery,
    domain: &str,
) -> io::Result<Option<NameAnswer>> {
    match query {
        NameQuery::NameOf(kind, number) => {
            let name = service.name_of(*kind, *number)?;
            let Some(text) = name.and_then(|name| with_domain(&name, domain)) else {
                return Ok(None);
            };
            // A text that leads to another number would give a file to another user when a client
            // sends it back: `alice` of /etc/passwd and `alice@example.org` of a directory.
            let bare = without_domain(text.as_bytes(), domain).unwrap_or_default();
            let is_its_own = number_of(service, *kind, bare, domain)? == Some(*number);
            Ok(is_its_own.then(|| NameAnswer::Name(text.into())))
        }
        NameQuery::NumberOf(kind, name) => {
            Ok(number_of(service, *kind, name, domain)?.map(NameAnswer::Number))
        }
    }
}

/// The number of a name of the domain.
fn number_of(
    service: &dyn NameService,
    kind: OwnerKind,
    name: &str,
    domain: &str,
) -> io::Result<Option<u32>> {
    match service.number_of(kind, name)? {
        // Some name services have users with their domains only.
        None => service.number_of(kind, &format!("{name}@{domain}")),
        found => Ok(found),
    }
}

/// A name with its domain, as it is sent. None for a name that has another domain already, and for
/// one that cannot be sent.
fn with_domain(name: &str, domain: &str) -> Option<String> {
    let text = match name.rsplit_once('@') {
        None => format!("{name}@{domain}"),
        Some((_, own)) if own.eq_ignore_ascii_case(domain) => name.to_owned(),
        Some(_) => return None,
    };
    without_domain(text.as_bytes(), domain).map(|_| text.clone())
}

// RFC 8881 §5.9 [8881-411]: users of one domain are accepted, and sent as they were accepted
/// The name in an owner as it is received. None for another domain, and for a text that is no
/// `name@domain`.
fn without_domain<'a>(text: &'a [u8], domain: &str) -> Option<&'a str> {
    let text = str::from_utf8(text).ok().filter(|text| text.len() <= OWNER_LEN_MAX)?;
    let (name, own) = text.rsplit_once('@')?;
    let is_name = !name.is_empty() && !name.contains(|c: char| c.is_control() || c == '@');
    (is_name && own.eq_ignore_ascii_case(domain)).then_some(name)
}

#[cfg(test)]
mod tests;
