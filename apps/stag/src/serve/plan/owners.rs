//! Step of a plan: the domain of names of owners in version 4 (RFC 8881 §5.9).

use super::{
    KerberosPlan,
    options::{IdNamesOption, ServeOptions},
};
use crate::Error;
use rustix::system::uname;
use stag_nfs::owner_names::{NamedCallers, OwnerNames};
use std::sync::Arc;

/// The value of `--id-domain` for numbers.
const NONE: &str = "none";
/// A domain that hosts have for want of one.
const NO_DOMAIN: &str = "localdomain";
/// Bytes of the longest domain: Linux makes room for 128 with the name.
const DOMAIN_LEN_MAX: usize = 96;

/// Names of owners of a server.
#[derive(Clone, Debug)]
pub struct OwnersPlan {
    /// The domain, and the place that it is from. None if owners are numbers.
    domain: Option<(String, &'static str)>,
    callers: NamedCallers,
    /// Kerberos is served.
    has_tickets: bool,
    /// Owners are to be numbers.
    is_off: bool,
    /// The names of a server that has started.
    pub names: Option<Arc<OwnerNames>>,
}

impl OwnersPlan {
    /// Checks the settings.
    ///
    /// # Errors
    /// A sentence about a domain that cannot be one, is missing, or means nothing.
    pub fn checked(
        arguments: &ServeOptions,
        kerberos: Option<&KerberosPlan>,
    ) -> Result<Self, Error> {
        let callers = match arguments.id_names {
            IdNamesOption::Kerberos => NamedCallers::Kerberos,
            IdNamesOption::Always => NamedCallers::All,
        };
        let has_names = kerberos.is_some() || callers == NamedCallers::All;
        let has_four = arguments.nfs.contains(&4);
        let domain = match arguments.id_domain.as_deref() {
            Some(NONE) if callers == NamedCallers::All => {
                return Err(Error::usage(
                    "--id-names always needs a domain: give --id-domain DOMAIN, or leave it out",
                ));
            }
            Some(_) if !has_names => {
                return Err(Error::usage(
                    "--id-domain means nothing without callers that are sent names: give --keytab \
                     FILE or --id-names always, or leave it out",
                ));
            }
            Some(NONE) => None,
            Some(given) => Some((checked_domain(given)?, "--id-domain")),
            None if has_names && has_four => usual(kerberos),
            None => None,
        };
        if domain.is_none() && callers == NamedCallers::All {
            return Err(Error::usage(
                "--id-names always needs a domain, which the name of this host lacks: give \
                 --id-domain DOMAIN",
            ));
        }
        let is_off = arguments.id_domain.is_some() || !has_four;
        Ok(Self { domain, callers, has_tickets: kerberos.is_some(), is_off, names: None })
    }

    /// Starts the thread that asks the name service, if owners are names.
    ///
    /// # Errors
    /// A sentence about the thread.
    pub fn start(&mut self) -> Result<(), Error> {
        let Some((domain, _)) = &self.domain else { return Ok(()) };
        let names = OwnerNames::of_host(domain, self.callers);
        let names = names.map_err(|error| {
            Error::failure(format!("cannot start the thread of names of owners: {error}"))
        })?;
        self.names = Some(Arc::new(names));
        Ok(())
    }

    /// A line about the form of owners; none where they are numbers as ever.
    pub fn line(&self) -> Option<String> {
        let (domain, from) = self.domain.as_ref()?;
        let callers = match self.callers {
            NamedCallers::Kerberos => "callers with Kerberos; numbers for all others",
            NamedCallers::All => "all callers of version 4",
        };
        Some(format!("owners: NAME@{domain} (by {from}) for {callers}"))
    }

    /// A sentence about a domain that was not found.
    pub fn notice(&self) -> Option<String> {
        (self.has_tickets && self.domain.is_none() && !self.is_off).then(|| {
            "owners of files are numbers, also with Kerberos, because neither the name of this \
             host nor the keytab shows a domain: give --id-domain DOMAIN, the domain of the \
             clients' idmapd.conf"
                .to_owned()
        })
    }
}

/// The domain of a server that was given none. The name of the host comes first, as in idmapd of
/// Linux, but DNS is not asked for it: a start must not depend on DNS.
fn usual(kerberos: Option<&KerberosPlan>) -> Option<(String, &'static str)> {
    let of_host = host_domain().map(|domain| (domain, "the name of this host"));
    let of_realm = || {
        let realm = kerberos?.realm()?.to_ascii_lowercase();
        checked_domain(&realm).ok().map(|domain| (domain, "the realm"))
    };
    of_host.or_else(of_realm)
}

/// The domain of this host's name.
pub fn host_domain() -> Option<String> {
    let name = uname().nodename().to_string_lossy().into_owned();
    domain_of(&name).map(str::to_owned)
}

/// The domain in the name of a host.
fn domain_of(name: &str) -> Option<&str> {
    let (_, domain) = name.trim_end_matches('.').split_once('.')?;
    (domain != NO_DOMAIN && checked_domain(domain).is_ok()).then_some(domain)
}

fn checked_domain(text: &str) -> Result<String, Error> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_domain = text.len() <= DOMAIN_LEN_MAX
        && text.chars().all(is_allowed)
        && text.split('.').all(|label| !label.is_empty());
    match is_domain {
        true => Ok(text.to_owned()),
        false => Err(Error::usage(format!(
            "--id-domain {text}: write a domain, as example.org, or none"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_of_a_host_is_all_after_the_first_dot() {
        for (name, expected) in [
            ("gw.example.org", Some("example.org")),
            ("gw.example.org.", Some("example.org")),
            ("gw.test", Some("test")),
            ("gw", None),
            ("gw.", None),
            ("localhost.localdomain", None),
            ("gw.a b", None),
        ] {
            assert_eq!(domain_of(name), expected, "{name}");
        }
    }
}
