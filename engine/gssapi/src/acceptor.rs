//! The acceptor's end of context set-up (RFC 4121 §4.1), for a server of RPCSEC_GSS: an AP-REQ
//! goes in, a principal and the keys of its context come out.

use crate::{
    abi::{ACCEPT, MUTUAL},
    credentials::{NO_REASON, ServiceName, failure, setting},
    fault::{CONTINUE_NEEDED, DEFECTIVE_TOKEN, FAILURE, GssFailure, KerberosFault},
    handles::{GssBuffer, GssContext, GssCredential, GssName, NoKeys},
    key::ContextSecret,
    library::GssLibrary,
    token::{KrbError, is_request},
};
use stag_gss::Enctype;
use stag_protocol::rpc::gss::InitArguments;
use std::{ffi::OsStr, fmt, path::Path};

/// Longest token that is accepted, which is the longest that a call carries. Tickets with a PAC of
/// Active Directory, which lists groups, are the longest ones.
pub const TOKEN_LEN_MAX: usize = InitArguments::TOKEN_MAX;
/// Longest name of a principal or a local user.
pub const NAME_LEN_MAX: usize = 1_024;

/// A record of AP-REQs, by which a replayed one is refused (RFC 4120 §3.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayCache<'a> {
    /// The library's choice: `KRB5RCACHENAME`, krb5.conf, or a file below `/var/tmp`. All accepts
    /// fail where that file cannot be written.
    #[default]
    OfTheLibrary,
    /// A file, which is created (MIT 1.18 or newer). Its directory should be writable for this user
    /// only.
    File(&'a Path),
    /// None. A replayed AP-REQ makes a context whose keys its sender does not have, which is of no
    /// use to it.
    Off,
}

/// Settings of a [`GssAcceptor`]. No variable of the environment has to be set for them.
#[derive(Clone, Copy, Debug)]
pub struct AcceptorSettings<'a> {
    /// The principals that are served: [`ServiceName::HostBased`] with `nfs` for all `nfs/…`.
    pub service: ServiceName<'a>,
    /// The keytab, opened anew by each accept; that of `KRB5_KTNAME` or krb5.conf if None.
    pub keytab: Option<&'a Path>,
    /// The replay cache.
    pub replay_cache: ReplayCache<'a>,
}

/// The keys of a service, which accepts contexts. `Send` and `Sync`: the library locks its
/// credential during each accept, so that accepts of several threads run one after the other.
pub struct GssAcceptor {
    library: &'static GssLibrary,
    credential: GssCredential,
    has_replay_cache: bool,
}

/// A context that is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedContext {
    /// The AP-REP for the initiator; empty if it did not ask for mutual authentication.
    pub token: Vec<u8>,
    /// The initiator, as in `alice@REALM`; special characters are escaped as in krb5.conf.
    pub principal: String,
    /// The user of this host that krb5.conf maps it to (`auth_to_local`); None if it maps to none.
    /// By default, principals of the default realm with one component have one: `root@REALM` is
    /// root, unless the caller decides otherwise.
    pub local_name: Option<String>,
    /// The keys, and the time at which they end.
    pub keys: ContextSecret,
    /// True if the initiator asked for proof of the acceptor's identity.
    pub is_mutual: bool,
}

/// A token that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedToken {
    /// The cause, the statuses and the words.
    pub failure: GssFailure,
    /// A KRB-ERROR for the initiator, which may be empty.
    pub token: Vec<u8>,
}

impl fmt::Display for RefusedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)
    }
}

impl std::error::Error for RefusedToken {}

impl From<GssFailure> for RefusedToken {
    fn from(failure: GssFailure) -> Self {
        Self { failure, token: Vec::new() }
    }
}

impl GssAcceptor {
    /// Finds the service in the keytab.
    ///
    /// # Errors
    /// If the keytab is missing, is unreadable or has no such principal.
    pub fn new(
        library: &'static GssLibrary,
        settings: &AcceptorSettings<'_>,
    ) -> Result<Self, GssFailure> {
        let name = settings.service.import(library)?;
        let mut store = Vec::new();
        if let Some(keytab) = settings.keytab {
            store.push(setting(c"keytab", &[OsStr::new("FILE:"), keytab.as_os_str()])?);
        }
        match settings.replay_cache {
            ReplayCache::OfTheLibrary => {}
            ReplayCache::File(path) => {
                store.push(setting(c"rcache", &[OsStr::new("file2:"), path.as_os_str()])?);
            }
            ReplayCache::Off => store.push(setting(c"rcache", &[OsStr::new("none:")])?),
        }
        let failed = |status| failure(library, "keytab", status);
        let mut credential =
            GssCredential::acquire(library, Some(&name), ACCEPT, &store).map_err(failed)?;
        credential.restrict(&Enctype::ALL).map_err(failed)?;
        let has_replay_cache = settings.replay_cache != ReplayCache::Off;
        Ok(Self { library, credential, has_replay_cache })
    }

    /// Accepts an initiator's first and only token. Reads the keytab and writes the replay cache:
    /// make the call on a thread that may wait for a disk.
    ///
    /// # Errors
    /// The failure's major status is an error, for the results of INIT (RFC 2203 §5.2.3.1). The
    /// token, if any, is for the initiator.
    pub fn accept(&self, token: &[u8]) -> Result<AcceptedContext, RefusedToken> {
        // RFC 8881 §2.2.1.1.1.2.1 [8881-364]: Kerberos V5 is the mechanism
        check(token)?;
        let mut context = GssContext::none(self.library);
        // RFC 4121 §3 [4121-13]: the library makes the context of AP-REQ and AP-REP
        let (step, source) = context.accept(&self.credential, token);
        if step.status.is_error() {
            let failure = self.explained(failure(self.library, "", step.status));
            let token = bounded(&step.token).unwrap_or_default();
            return Err(RefusedToken { failure: with_clocks(failure, &token), token });
        }
        if step.status.major & CONTINUE_NEEDED != 0 {
            return Err(unfinished().into());
        }
        let token = bounded(&step.token)?;
        let (principal, local_name) = self.names(&source)?;
        Ok(AcceptedContext {
            token,
            principal,
            local_name,
            keys: export(self.library, context)?,
            is_mutual: step.flags & MUTUAL != 0,
        })
    }

    /// Adds the causes of failures that have no code of Kerberos.
    fn explained(&self, mut failure: GssFailure) -> GssFailure {
        if failure.fault == KerberosFault::Other && failure.text == NO_REASON {
            failure.fault = KerberosFault::Malformed;
            failure.text = "the AP-REQ cannot be decoded".to_owned();
        }
        // Errors of a keytab's file get a code of Kerberos, those of the cache's file do not.
        if self.has_replay_cache && is_of_writing(failure.minor) {
            failure.fault = KerberosFault::ReplayCache;
            failure.text = format!("replay cache: {}", failure.text);
        }
        failure
    }

    /// The initiator's name in text, and the local user that it maps to.
    fn names(&self, source: &GssName) -> Result<(String, Option<String>), GssFailure> {
        let principal = source.display();
        let principal = principal.map_err(|status| failure(self.library, "principal", status))?;
        let Some(principal) = text(&principal) else {
            let text = "the initiator's principal is not plain UTF-8 or too long".to_owned();
            return Err(GssFailure::own(KerberosFault::Other, FAILURE, text));
        };
        let local = source.local().ok();
        Ok((principal, local.and_then(|local| text(&local))))
    }
}

impl fmt::Debug for GssAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GssAcceptor")
    }
}

/// Refuses what can be refused without the library: other mechanisms, and lengths.
fn check(token: &[u8]) -> Result<(), GssFailure> {
    within_limit(token)?;
    if !is_request(token) {
        let text = format!("the token ({} bytes) is not a Kerberos 5 AP-REQ", token.len());
        return Err(GssFailure::own(KerberosFault::Malformed, DEFECTIVE_TOKEN, text));
    }
    Ok(())
}

/// The failure of a context that one round does not complete.
pub(crate) fn unfinished() -> GssFailure {
    let text = "the context needs another round, which Kerberos 5 does not have".to_owned();
    GssFailure::own(KerberosFault::Unfinished, FAILURE, text)
}

/// The keys of a complete context.
pub(crate) fn export(
    library: &'static GssLibrary,
    context: GssContext,
) -> Result<ContextSecret, GssFailure> {
    let lucid = context.export().map_err(|status| failure(library, "keys", status))?;
    lucid.keys().map_err(|why| {
        let text = match why {
            NoKeys::Structure => "the library exports keys of another form".to_owned(),
            NoKeys::Enctype(enctype) => format!("the context's key has encryption type {enctype}"),
        };
        GssFailure::own(KerberosFault::Enctype, FAILURE, text)
    })
}

/// Adds the clock of the KRB-ERROR in a token to a failure's words.
fn with_clocks(mut failure: GssFailure, token: &[u8]) -> GssFailure {
    let Some(error) = KrbError::parse(token) else { return failure };
    if failure.fault == KerberosFault::ClockSkew {
        failure.text.push_str(&format!(" (clock here: {}", error.server_time));
        if let Some(client) = error.client_time {
            failure.text.push_str(&format!(", initiator's: {client}"));
        }
        failure.text.push(')');
    }
    failure
}

/// True for errors of the system, which the library gives as they are, that creating or writing a
/// file may have.
fn is_of_writing(minor: u32) -> bool {
    use std::io::{Error, ErrorKind};
    let error = i32::try_from(minor).map(Error::from_raw_os_error);
    error.is_ok_and(|error| {
        matches!(
            error.kind(),
            ErrorKind::PermissionDenied
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::NotFound
                | ErrorKind::StorageFull
                | ErrorKind::QuotaExceeded
                | ErrorKind::NotADirectory
                | ErrorKind::IsADirectory
        )
    })
}

/// A token for the peer, if it is not longer than the peer accepts.
pub(crate) fn bounded(token: &GssBuffer) -> Result<Vec<u8>, GssFailure> {
    within_limit(token.octets()).map(<[u8]>::to_vec)
}

/// A token of either end, unless it is longer than the limit.
fn within_limit(token: &[u8]) -> Result<&[u8], GssFailure> {
    let len = token.len();
    if len > TOKEN_LEN_MAX {
        let text = format!("a token of {len} bytes is longer than {TOKEN_LEN_MAX}");
        return Err(GssFailure::own(KerberosFault::TooLong, DEFECTIVE_TOKEN, text));
    }
    Ok(token)
}

/// A name, if it is UTF-8 without control characters, of a sensible length.
fn text(name: &GssBuffer) -> Option<String> {
    // Some versions count a NUL at the end.
    let octets = name.octets();
    let octets = octets.strip_suffix(b"\0").unwrap_or(octets);
    let is_sensible = (1..=NAME_LEN_MAX).contains(&octets.len());
    let text = String::from_utf8(octets.to_vec()).ok().filter(|_| is_sensible)?;
    (!text.contains(char::is_control)).then_some(text)
}
