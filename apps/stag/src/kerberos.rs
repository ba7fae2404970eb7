//! Kerberos for a server's clients (RPCSEC_GSS, RFC 2203), as requested by settings.

use crate::Error;
use clap::Args;
use stag_gssapi::ServiceName;
use std::path::{Path, PathBuf};

/// Heading of the flags: a table of the file.
const KERBEROS: &str = "Kerberos";

/// Options of a server.
#[derive(Debug, Args)]
pub struct ServeKerberosOptions {
    /// The keys of this server's principals: clients may then mount with sec=krb5, krb5i and krb5p
    /// (see KERBEROS)
    #[arg(long, value_name = "FILE", help_heading = KERBEROS)]
    pub keytab: Option<PathBuf>,
    /// The principals to serve: all of a service in the keytab, or one, as nfs/HOST@REALM
    #[arg(long, value_name = "NAME", default_value = "nfs", help_heading = KERBEROS)]
    pub kerberos_principal: String,
    /// The users of principals, in lines PRINCIPAL = UID:GID,GROUP,…; other principals have the
    /// user that krb5.conf and this host's name service give them
    #[arg(long, value_name = "FILE", help_heading = KERBEROS)]
    pub kerberos_map: Option<PathBuf>,
    /// The file that records used authenticators, or off [default: krb5.rcache in the state
    /// directory]
    #[arg(long, value_name = "FILE|off", help_heading = KERBEROS)]
    pub replay_cache: Option<PathBuf>,
}

/// The principals of a keytab to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServedPrincipals {
    /// All of a service.
    Service(String),
    /// One, with its service.
    One { service: String, principal: String },
}

impl ServedPrincipals {
    /// Reads a value of `--kerberos-principal`.
    ///
    /// # Errors
    /// A sentence about a name that is neither.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = || {
            Error::usage(format!(
                "--kerberos-principal {text}: write a service, as nfs, or a principal with its \
                 realm, as nfs/HOST@REALM"
            ))
        };
        if text.is_empty() || text.contains(char::is_whitespace) {
            return Err(bad());
        }
        match text.split_once('/') {
            None if text.contains('@') => Err(bad()),
            None => Ok(Self::Service(text.to_owned())),
            Some((service, rest)) => {
                let (host, realm) = rest.split_once('@').ok_or_else(bad)?;
                if service.is_empty() || host.is_empty() || realm.is_empty() {
                    return Err(bad());
                }
                Ok(Self::One { service: service.to_owned(), principal: text.to_owned() })
            }
        }
    }

    /// The service.
    pub fn service(&self) -> &str {
        match self {
            Self::Service(service) | Self::One { service, .. } => service,
        }
    }

    /// Its name as the library takes it.
    pub fn name(&self) -> ServiceName<'_> {
        match self {
            Self::Service(service) => ServiceName::HostBased(service),
            Self::One { principal, .. } => ServiceName::Principal(principal),
        }
    }

    /// True if it is `principal` or includes it.
    pub fn includes(&self, principal: &str) -> bool {
        match self {
            Self::Service(_) => true,
            Self::One { principal: only, .. } => only == principal,
        }
    }
}

/// The host in a principal, as in `nfs/host@REALM`.
fn host_of(principal: &str) -> Option<&str> {
    let (_, rest) = principal.split_once('/')?;
    Some(rest.rsplit_once('@').map_or(rest, |(host, _)| host))
}

/// True if a principal is of the host `name`, which may lack its domain.
pub fn is_of_host(principal: &str, name: &str) -> bool {
    let Some(host) = host_of(principal).map(str::to_ascii_lowercase) else { return false };
    let name = name.to_ascii_lowercase();
    let has_domain = host.strip_prefix(&name).is_some_and(|domain| domain.starts_with('.'));
    host == name || !name.contains('.') && has_domain
}

/// The files of krb5.conf that the environment names, which may be outside of `/etc`.
pub fn configuration_files() -> Vec<PathBuf> {
    let named = std::env::var_os("KRB5_CONFIG").unwrap_or_default();
    std::env::split_paths(&named).filter(|path| path != Path::new("")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_or_a_whole_principal_is_served() {
        let parse = |text| ServedPrincipals::parse(text).ok();
        let nfs = ServedPrincipals::Service("nfs".to_owned());
        assert_eq!(parse("nfs"), Some(nfs));
        let one = parse("nfs/gw.test@A.TEST").unwrap();
        assert_eq!(one.service(), "nfs");
        assert!(one.includes("nfs/gw.test@A.TEST") && !one.includes("nfs/gw2.test@A.TEST"));
        for text in ["", "nfs/gw.test", "nfs@gw.test", "nfs/@A", "/a@A", "nfs/a@", "n f"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_host_has_the_principals_of_its_name_with_any_domain_if_it_has_none() {
        for (principal, name, expected) in [
            ("nfs/gw.a.test@A", "gw", true),
            ("nfs/gw.a.test@A", "GW.a.test", true),
            ("nfs/gw@A", "gw", true),
            ("nfs/gw2.a.test@A", "gw", false),
            ("nfs/gw.a.test@A", "gw.b.test", false),
            ("nfs/gw.a.test@A", "gw.a", false),
            ("alice@A", "alice", false),
        ] {
            assert_eq!(is_of_host(principal, name), expected, "{principal} {name}");
        }
    }
}
