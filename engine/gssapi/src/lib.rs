//! Kerberos 5 for RPCSEC_GSS (RFC 2203): keys of contexts, and checks of keytabs.
#![forbid(unsafe_code)]

mod key;
pub mod keytab;

pub use key::{ContextKeys, KerberosEnctype, SessionKey};
