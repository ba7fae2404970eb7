//! RPCSEC_GSS version 1: credentials, context creation and protected bodies (RFC 2203).
//!
//! Only the octets are here. Checksums and encryption belong to the mechanism (`stag-gss` has that
//! of Kerberos 5); the table of contexts belongs to the server. [`GssCredential`] is the body of a
//! credential of flavor 6, [`InitArguments`] and [`InitResults`] belong to context creation,
//! [`IntegrityBody`] and [`PrivacyBody`] wrap arguments and results.

mod body;
mod credential;
mod init;

pub use body::{
    GssBodyFault, INTEGRITY_FRONT, IntegrityBody, PRIVACY_FRONT, PrivacyBody, split_sequence,
};
pub use credential::{
    CredentialFault, GssCredential, GssData, GssProcedure, GssService, signed_credential,
    signed_header,
};
pub use init::{InitArguments, InitResults, MajorStatus};

/// The version of RPCSEC_GSS (RPCSEC_GSS_VERS_1, RFC 2203 §5).
pub const VERSION: u32 = 1;

/// The first sequence number that no call may have (RFC 2203 §5).
pub const MAXSEQ: u32 = 0x8000_0000;

/// Octets of the longest handle that a server here issues, or that a client here accepts for its
/// calls. RFC 2203 has no bound; the longest handle that a server is known to issue has 16.
pub const HANDLE_MAX: usize = 32;

/// Octets of the longest body of a credential that is emitted.
pub const CREDENTIAL_MAX: usize = 20 + HANDLE_MAX;

/// Octets of the longest checksum or verifier: a verifier's body can be no longer (RFC 5531 §8.2).
pub const CHECKSUM_MAX: usize = super::Auth::BODY_MAX;
