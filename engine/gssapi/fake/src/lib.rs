//! libgssapi_krb5 over tickets in plain text: the functions that `stag-gssapi` loads, with faults
//! that a test asks for by the text of a token or a name. Tests use it where there is no Kerberos.
//!
//! A token is the frame of RFC 4121 §4.1 around words, as [`token`] makes it:
//!
//! | word | meaning |
//! |---|---|
//! | `principal=alice@STAG.TEST` | the initiator; its local user is the part before `@STAG.TEST` |
//! | `enctype=20` | the type of the key, whose bytes follow from type and principal |
//! | `end=4000000000` | the ticket's end |
//! | `mutual` | there is an AP-REP, and an acceptor's subkey |
//! | `continue` | a second round is asked for |
//! | `status=MAJOR,MINOR` | a refusal with these hexadecimal statuses, and with a KRB-ERROR |
//! | `fail=gss_display_name` | the initiator's name cannot be displayed |
//! | `fail=export`, `fail=version`, `fail=protocol` | keys are not exported, or in another form |
//!
//! A keytab or cache whose name has `missing` in it makes no credential, one with `unrestricted`
//! takes no restriction of its encryption types. A target with `unknown` in its name has no
//! ticket, the keys of one with `unexportable` are not exported, and one with `long` gets a token
//! of more than 65,536 bytes.

mod c;
mod contexts;
mod objects;

pub use objects::{LiveCounts, token};
use std::path::Path;

/// Objects that the library at this path holds for its callers.
///
/// # Panics
/// If it is not this library.
#[must_use]
pub fn counts(path: &Path) -> LiveCounts {
    // SAFETY: the library has no constructors.
    let library = unsafe { libloading::Library::new(path) }.expect("the library is there");
    // SAFETY: the type is that of the function in `c.rs`.
    let function = unsafe { library.get::<extern "C" fn(&mut LiveCounts)>("fake_counts\0") };
    let function = function.expect("it is this library");
    let mut counts = LiveCounts::default();
    function(&mut counts);
    counts
}
