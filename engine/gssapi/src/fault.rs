//! Causes of a failure, from the status of the library (RFC 2744 §3.9) and Kerberos' own codes
//! (RFC 4120 §7.5.9), each with its fix.
#![forbid(unsafe_code)]

use crate::token::KrbError;
use std::fmt;

/// `ERROR_TABLE_BASE_krb5`: codes of Kerberos count from here.
const KRB5: i32 = -1_765_328_384;
/// The first code of MIT's mechanism.
const KG: i32 = 39_756_032;

/// Major statuses (RFC 2744 §3.9.1).
pub(crate) const NO_CREDENTIAL: u32 = 7 << 16;
pub(crate) const DEFECTIVE_TOKEN: u32 = 9 << 16;
pub(crate) const CREDENTIALS_EXPIRED: u32 = 11 << 16;
pub(crate) const FAILURE: u32 = 13 << 16;
pub(crate) const CONTINUE_NEEDED: u32 = 1;

/// The cause of a failure, as far as it can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KerberosFault {
    /// The credential cache is missing or empty.
    NoTicket,
    /// The ticket has expired.
    Expired,
    /// No KDC of the realm answers.
    KdcUnreachable,
    /// The realm has no KDC in krb5.conf or DNS, or there is no default realm.
    RealmUnknown,
    /// The KDC has no such service principal.
    ServiceUnknown,
    /// The KDC has no such client principal.
    ClientUnknown,
    /// The ticket is for a service whose name is not the acceptor's.
    OtherService,
    /// The keytab's key is not the one that the KDC used.
    WrongKey,
    /// The keytab is missing, is unreadable or has no such principal.
    NoKey,
    /// The clocks of client and server differ too much.
    ClockSkew,
    /// The AP-REQ was seen before.
    Replay,
    /// The replay cache cannot be written.
    ReplayCache,
    /// The token is not one of Kerberos 5, is cut or has wrong content.
    Malformed,
    /// The token is longer than the limit.
    TooLong,
    /// More rounds would be needed than one.
    Unfinished,
    /// The context's key has an encryption type that is not accepted.
    Enctype,
    /// krb5.conf is unreadable or has wrong syntax. Without one, the library has defaults.
    Configuration,
    /// Anything else: the text has the details.
    Other,
}

impl KerberosFault {
    /// The cause that a status means.
    pub(crate) fn of(major: u32, minor: u32) -> Self {
        let minor = i32::from_ne_bytes(minor.to_ne_bytes());
        let by_code = Self::of_krb5(minor.wrapping_sub(KRB5)).or_else(|| Self::of_other(minor));
        by_code.unwrap_or(match major & 0x00ff_0000 {
            NO_CREDENTIAL => Self::NoKey,
            DEFECTIVE_TOKEN => Self::Malformed,
            CREDENTIALS_EXPIRED => Self::Expired,
            _ => Self::Other,
        })
    }

    /// By the distance from `ERROR_TABLE_BASE_krb5`.
    fn of_krb5(code: i32) -> Option<Self> {
        Some(match code {
            6 => Self::ClientUnknown,
            7 => Self::ServiceUnknown,
            14 => Self::Enctype,
            32 => Self::Expired,
            34 | 163 => Self::Replay,
            35 | 36 | 144 => Self::OtherService,
            37 => Self::ClockSkew,
            31 | 41 | 44 | 230 => Self::WrongKey,
            39 | 40 => Self::Malformed,
            135 | 136 => Self::Configuration,
            141 | 195 => Self::NoTicket,
            154 | 217 | 220 | 224 => Self::RealmUnknown,
            156 => Self::KdcUnreachable,
            160..=166 | 215 => Self::ReplayCache,
            45 | 181 | 182 | 184 => Self::NoKey,
            _ => return None,
        })
    }

    /// Codes of the mechanism, of ASN.1 and of the system.
    fn of_other(minor: i32) -> Option<Self> {
        match minor.wrapping_sub(KG) {
            1 => return Some(Self::NoKey),
            0 | 2 | 12 => return Some(Self::NoTicket),
            _ => {}
        }
        // `ERROR_TABLE_BASE_asn1` to its last code.
        (1_859_794_432..=1_859_794_445).contains(&minor).then_some(Self::Malformed)
    }

    /// The cause that a server reports by a KRB-ERROR.
    pub(crate) fn of_error(error: &KrbError) -> Self {
        let code = i32::try_from(error.code).unwrap_or(-1);
        Self::of_krb5(code).filter(|_| code < 128).unwrap_or(Self::Other)
    }

    /// The change that helps, for the operator; None if there is no common one.
    #[must_use]
    pub const fn fix(self) -> Option<&'static str> {
        Some(match self {
            Self::NoTicket => "get a ticket with `kinit`, or give a keytab of the client",
            Self::Expired => "get a new ticket with `kinit`",
            Self::KdcUnreachable => {
                "check that a KDC of the realm runs, and that `kdc` in krb5.conf and the network \
                 lead to it"
            }
            Self::RealmUnknown => "set default_realm and the realm's `kdc` in krb5.conf",
            Self::ServiceUnknown => {
                "use the server's full name, for which its keytab has `nfs/NAME`, or create that \
                 principal (`kadmin addprinc -randkey nfs/NAME`)"
            }
            Self::ClientUnknown => "check the client's principal and realm, then `kinit` again",
            Self::OtherService => {
                "use the name that the server's keytab has (`klist -k`), or add the principal to \
                 that keytab (`kadmin ktadd`)"
            }
            Self::WrongKey => {
                "add the KDC's newest key to the server's keytab (`kadmin ktadd nfs/NAME`), and \
                 get new tickets on the client (`kdestroy`, `kinit`)"
            }
            Self::NoKey => {
                "name a keytab that this user can read and that has the principal (`klist -k`; \
                 `kadmin ktadd nfs/NAME`)"
            }
            Self::Configuration => {
                "correct krb5.conf (/etc/krb5.conf, or the file that KRB5_CONFIG names)"
            }
            Self::ClockSkew => "synchronise the clocks of client, server and KDC (NTP)",
            Self::ReplayCache => {
                "let this user write the replay cache's file, or do without the cache (`none:`)"
            }
            Self::Enctype => {
                "create keys of aes256-cts-hmac-sha384-192 or another AES type for the service"
            }
            _ => return None,
        })
    }
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GssFailure {
    /// The cause, as far as it can be known.
    pub fault: KerberosFault,
    /// The major status, as results of RPCSEC_GSS carry it (RFC 2203 §5.2.3.1).
    pub major: u32,
    /// The minor status.
    pub minor: u32,
    /// Both statuses in words, without the fix.
    pub text: String,
}

impl GssFailure {
    /// A failure that this crate finds.
    pub(crate) fn own(fault: KerberosFault, major: u32, text: String) -> Self {
        Self { fault, major, minor: 0, text }
    }
}

impl fmt::Display for GssFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.fault.fix().map_or(Ok(()), |fix| write!(f, "; fix: {fix}"))
    }
}

impl std::error::Error for GssFailure {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::KerberosTime;

    fn krb5(code: i32) -> KerberosFault {
        KerberosFault::of(FAILURE, (KRB5 + code).cast_unsigned())
    }

    #[test]
    fn codes_of_kerberos_have_their_causes() {
        assert_eq!(krb5(7), KerberosFault::ServiceUnknown);
        assert_eq!(krb5(41), KerberosFault::WrongKey);
        assert_eq!(krb5(195), KerberosFault::NoTicket);
        assert_eq!(krb5(60), KerberosFault::Other);
        assert_eq!(KerberosFault::of(CREDENTIALS_EXPIRED, 100_003), KerberosFault::Expired);
        assert_eq!(KerberosFault::of(FAILURE, u32::MAX), KerberosFault::Other);
    }

    #[test]
    fn codes_in_a_krb_error_are_those_of_the_protocol_alone() {
        let error = |code| KrbError { code, server_time: KerberosTime(0), client_time: None };
        assert_eq!(KerberosFault::of_error(&error(37)), KerberosFault::ClockSkew);
        assert_eq!(KerberosFault::of_error(&error(195)), KerberosFault::Other);
        assert_eq!(KerberosFault::of_error(&error(u32::MAX)), KerberosFault::Other);
    }

    #[test]
    fn a_failure_ends_with_its_fix() {
        let failure = GssFailure::own(KerberosFault::NoTicket, FAILURE, "no cache".to_owned());
        assert!(failure.to_string().starts_with("no cache; fix: get a ticket with `kinit`"));
        let failure = GssFailure::own(KerberosFault::Other, FAILURE, "strange".to_owned());
        assert_eq!(failure.to_string(), "strange");
    }
}
