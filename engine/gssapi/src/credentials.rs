//! Settings of credentials as the library takes them, and failures in words.

use crate::{
    fault::{FAILURE, GssFailure, KerberosFault},
    handles::{CredentialSetting, GssName, GssStatus, NameForm, display},
    library::GssLibrary,
};
use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::OsStrExt,
};

/// Words of a failure for which the library has none: MIT says "Success" where it cannot decode a
/// message.
pub(crate) const NO_REASON: &str = "the library gives no reason";

/// A name of a service or a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceName<'a> {
    /// `nfs@host`: the principal `nfs/host` in the realm to which krb5.conf maps the host. An
    /// acceptor takes `nfs` alone, too: any principal `nfs/…` in its keytab.
    HostBased(&'a str),
    /// A principal, as in `nfs/host@REALM`.
    Principal(&'a str),
}

impl ServiceName<'_> {
    pub(crate) fn import(self, library: &'static GssLibrary) -> Result<GssName, GssFailure> {
        let (text, form) = match self {
            // RFC 8881 §2.2.1.1.1.3 [8881-394]: a server is a service of a host
            Self::HostBased(text) => (text, NameForm::Service),
            Self::Principal(text) => (text, NameForm::Principal),
        };
        let failed = |status| failure(library, &format!("\"{text}\" is not a valid name"), status);
        GssName::import(library, text, form).map_err(failed)
    }
}

/// A setting with a value of several pieces.
pub(crate) fn setting(
    key: &'static CStr,
    pieces: &[&OsStr],
) -> Result<CredentialSetting, GssFailure> {
    let value: Vec<u8> = pieces.iter().flat_map(|piece| piece.as_bytes()).copied().collect();
    let value = CString::new(value).map_err(|_| {
        let text = format!("{} has a NUL in its name", key.to_string_lossy());
        GssFailure::own(KerberosFault::Other, FAILURE, text)
    })?;
    Ok((key, value))
}

/// A failure of the library in words. Call it on the thread that saw the failure, before another
/// call.
pub(crate) fn failure(library: &'static GssLibrary, step: &str, status: GssStatus) -> GssFailure {
    let mut texts = vec![step.to_owned()];
    // The words of GSS_S_FAILURE only point to the minor status.
    if status.major & 0x00ff_0000 != FAILURE {
        texts.push(display(library, status.major, 1));
    }
    let minor = if status.minor == 0 { String::new() } else { display(library, status.minor, 2) };
    texts.push(if minor == "Success" { String::new() } else { minor });
    texts.retain(|text| !text.is_empty());
    if texts.is_empty() {
        texts.push(NO_REASON.to_owned());
    }
    let GssStatus { major, minor } = status;
    GssFailure { fault: KerberosFault::of(major, minor), major, minor, text: texts.join(": ") }
}
