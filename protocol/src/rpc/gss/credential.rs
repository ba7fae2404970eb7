//! The credential of RPCSEC_GSS (`rpc_gss_cred_t`, RFC 2203 §5) and the octets that a call's
//! verifier covers (§5.3.1).

use super::{CREDENTIAL_MAX, MAXSEQ, VERSION};
use crate::rpc::{Auth, AuthStatus, Credential, flavor};
use crate::xdr::{Codec, NoRoom, Reader, Writer, enumeration, padded};

/// Control procedure of a call (`rpc_gss_proc_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum GssProcedure {
    /// An ordinary call.
    Data = 0,
    /// First request for a context.
    Init = 1,
    /// Further request for the same context.
    ContinueInit = 2,
    /// End of a context.
    Destroy = 3,
}
enumeration!(GssProcedure { Data, Init, ContinueInit, Destroy });

/// Protection of arguments and results (`rpc_gss_service_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum GssService {
    /// The header alone is signed.
    None = 1,
    /// Arguments and results are signed.
    Integrity = 2,
    /// Arguments and results are encrypted.
    Privacy = 3,
}
enumeration!(GssService { None, Integrity, Privacy });

/// Fields that count in the credential of a call inside a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GssData<'a> {
    /// Sequence number, below [`MAXSEQ`].
    pub sequence: u32,
    /// Protection of arguments and results.
    pub service: GssService,
    /// Name of the context. The client may have it from another server, so that it may be empty or
    /// longer than [`HANDLE_MAX`](super::HANDLE_MAX). A server answers an unknown handle with
    /// CREDPROBLEM, after which the client creates a new context.
    pub handle: &'a [u8],
}

/// The credential of a call with RPCSEC_GSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GssCredential<'a> {
    /// An ordinary call.
    Data(GssData<'a>),
    /// First request for a context. Its sequence number and service are undefined and not kept
    /// (RFC 2203 §5.2.2).
    Init,
    /// Further request for the same context; the rest as for [`GssCredential::Init`].
    ContinueInit {
        /// Name of the context, from the reply to the first request.
        handle: &'a [u8],
    },
    /// End of the context. It has neither arguments nor results under protection, with any service:
    /// Linux sends none.
    Destroy(GssData<'a>),
}

/// Rule that a credential breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialFault {
    /// The body ends early or goes on after the handle.
    Malformed,
    /// RPCSEC_GSS has no such version here.
    Version(u32),
    /// There is no such control procedure.
    Procedure(u32),
    /// There is no such service.
    Service(u32),
    /// A first request names a context.
    Handle,
    /// The sequence number is [`MAXSEQ`] or above: the context is used up.
    Sequence(u32),
}

impl CredentialFault {
    /// Status of the denied reply (AUTH_ERROR) that answers the fault.
    pub const fn status(self) -> AuthStatus {
        match self {
            // RFC 2203 §5.1 [2203-1]: another version is denied with AUTH_REJECTEDCRED
            Self::Version(_) => AuthStatus::REJECTED_CREDENTIAL,
            // RFC 2203 §5.3.3.3 [2203-25]: a number that is too high gets CTXPROBLEM
            Self::Sequence(_) => AuthStatus::GSS_CONTEXT_PROBLEM,
            // RFC 2203 §5.3.3.3 [2203-26]: a bad length, procedure or service gets AUTH_BADCRED
            Self::Malformed | Self::Procedure(_) | Self::Service(_) | Self::Handle => {
                AuthStatus::BAD_CREDENTIAL
            }
        }
    }
}

impl<'a> GssCredential<'a> {
    /// The meaning of the body of a credential whose flavor is [`flavor::GSS`].
    pub fn parse(body: &'a [u8]) -> Result<Self, CredentialFault> {
        use CredentialFault::{Handle, Malformed, Procedure, Sequence, Service, Version};
        let mut reader = Reader::new(body);
        let version = reader.u32().map_err(|_| Malformed)?;
        // RFC 2203 §5.1 [2203-1]: another version is denied with AUTH_REJECTEDCRED
        if version != VERSION {
            return Err(Version(version));
        }
        let [procedure, sequence, service] = reader.words().map_err(|_| Malformed)?;
        let handle = reader.opaque(Auth::BODY_MAX).map_err(|_| Malformed)?;
        reader.finish().map_err(|_| Malformed)?;
        let procedure = GssProcedure::new(procedure).map_err(|_| Procedure(procedure))?;
        // RFC 2203 §5.2.2 [2203-4]: a first request has an empty handle
        if procedure == GssProcedure::Init && !handle.is_empty() {
            return Err(Handle);
        }
        let data = || {
            let service = GssService::new(service).map_err(|_| Service(service))?;
            // RFC 2203 §5.3.1 [2203-13]: sequence numbers are below MAXSEQ
            if sequence >= MAXSEQ {
                return Err(Sequence(sequence));
            }
            Ok(GssData { sequence, service, handle })
        };
        match procedure {
            // RFC 2203 §5.2.2 [2203-3]: a creation request's number and service are ignored
            GssProcedure::Init => Ok(Self::Init),
            GssProcedure::ContinueInit => Ok(Self::ContinueInit { handle }),
            GssProcedure::Data => data().map(Self::Data),
            GssProcedure::Destroy => data().map(Self::Destroy),
        }
    }

    /// The control procedure.
    pub const fn procedure(&self) -> GssProcedure {
        match self {
            Self::Data(_) => GssProcedure::Data,
            Self::Init => GssProcedure::Init,
            Self::ContinueInit { .. } => GssProcedure::ContinueInit,
            Self::Destroy(_) => GssProcedure::Destroy,
        }
    }

    /// Writes the body into `room`; the credential of a call then is [`Auth::gss`] of it. A handle
    /// longer than [`HANDLE_MAX`](super::HANDLE_MAX) has no room.
    pub fn emit<'r>(&self, room: &'r mut [u8; CREDENTIAL_MAX]) -> Result<&'r [u8], NoRoom> {
        let (sequence, service, handle): (u32, GssService, &[u8]) = match self {
            Self::Data(data) | Self::Destroy(data) => (data.sequence, data.service, data.handle),
            Self::Init => (0, GssService::None, &[]),
            Self::ContinueInit { handle } => (0, GssService::None, handle),
        };
        debug_assert!(sequence < MAXSEQ, "a context ends before its numbers do");
        let mut writer = Writer::new(room);
        // RFC 2203 §5.2.2 [2203-2]: the version is that of the protocol in use
        writer.words([VERSION, self.procedure() as u32, sequence, service as u32])?;
        writer.opaque(handle)?;
        let len = writer.len();
        room.get(..len).ok_or(NoRoom)
    }
}

impl<'a> Auth<'a> {
    /// A credential or a verifier of RPCSEC_GSS with this body.
    pub const fn gss(body: &'a [u8]) -> Self {
        Self { flavor: flavor::GSS, body }
    }
}

impl<'a> Credential<'a> {
    /// The credential as RPCSEC_GSS reads it; `None` if it is of another flavor. The flavor comes
    /// as [`Credential::Other`], because only a server that has contexts refuses a faulty body.
    pub fn gss(&self) -> Option<Result<GssCredential<'a>, CredentialFault>> {
        match self {
            Self::Other(auth) if auth.flavor == flavor::GSS => {
                Some(GssCredential::parse(auth.body))
            }
            _ => None,
        }
    }
}

/// Octets of a call's header in front of its credential: XID, message type, version of RPC,
/// program, version, procedure.
const FRONT: usize = 24;

/// The octets that a call's verifier covers: all from the XID to the end of the credential.
/// `message` is at the start of a call. `None` if its header is cut, or is not in one piece.
pub fn signed_header<'a>(message: &Reader<'a>) -> Option<&'a [u8]> {
    let header = message.clone().here();
    let mut credential = Reader::new(header.get(FRONT..)?);
    let auth = Auth::parse(&mut credential).ok()?;
    // RFC 2203 §5.3.1 [2203-15]: the verifier covers the header up to the credential's end
    header.get(..FRONT + 8 + padded(auth.body.len()))
}

/// The credential in the octets that [`signed_header`] found. `None` if they do not end with a
/// credential, or if it is of another flavor.
pub fn signed_credential(header: &[u8]) -> Option<Result<GssCredential<'_>, CredentialFault>> {
    let mut reader = Reader::new(header.get(FRONT..)?);
    let auth = Auth::parse(&mut reader).ok()?;
    reader.finish().ok()?;
    (auth.flavor == flavor::GSS).then(|| GssCredential::parse(auth.body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::{CallHeader, Xid, gss::HANDLE_MAX};
    use crate::xdr::Piece;
    use std::vec::Vec;

    const DATA: GssData<'static> =
        GssData { sequence: 5, service: GssService::Integrity, handle: &[2, 0, 0, 0] };

    fn body(credential: GssCredential<'_>) -> Vec<u8> {
        credential.emit(&mut [0xee; CREDENTIAL_MAX]).unwrap().to_vec()
    }

    #[test]
    fn a_data_credential_has_these_octets() {
        #[rustfmt::skip]
        let expected = [
            0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, // version, DATA, number, integrity
            0, 0, 0, 4, 2, 0, 0, 0,
        ];
        assert_eq!(body(GssCredential::Data(DATA)), expected);
    }

    #[test]
    fn every_credential_survives_a_round_trip_and_no_cut_or_addition_does() {
        for len in 1..=HANDLE_MAX {
            let handle = &[7; HANDLE_MAX][..len];
            for service in [GssService::None, GssService::Integrity, GssService::Privacy] {
                let data = GssData { sequence: MAXSEQ - 1, service, handle };
                for credential in [
                    GssCredential::Data(data),
                    GssCredential::Destroy(data),
                    GssCredential::ContinueInit { handle },
                    GssCredential::Init,
                ] {
                    let mut octets = body(credential);
                    assert_eq!(GssCredential::parse(&octets), Ok(credential));
                    let auth = Credential::Other(Auth::gss(&octets));
                    assert_eq!(auth.gss(), Some(Ok(credential)));
                    for cut in 0..octets.len() {
                        let parsed = GssCredential::parse(&octets[..cut]);
                        assert_eq!(parsed, Err(CredentialFault::Malformed), "cut at {cut}");
                    }
                    octets.push(0);
                    assert_eq!(GssCredential::parse(&octets), Err(CredentialFault::Malformed));
                }
            }
        }
        assert_eq!(Credential::None.gss(), None);
    }

    #[test]
    fn each_fault_has_its_own_status() {
        use AuthStatus as Status;
        let with = |at: usize, value: u32| {
            let mut octets = body(GssCredential::Data(DATA));
            octets[4 * at..4 * at + 4].copy_from_slice(&value.to_be_bytes());
            GssCredential::parse(&octets).unwrap_err()
        };
        for version in [0, 2, 3, u32::MAX] {
            assert_eq!(with(0, version), CredentialFault::Version(version));
            assert_eq!(with(0, version).status(), Status::REJECTED_CREDENTIAL);
        }
        assert_eq!(with(1, 4), CredentialFault::Procedure(4));
        for service in [0, 4, u32::MAX] {
            assert_eq!(with(3, service), CredentialFault::Service(service));
            assert_eq!(with(3, service).status(), Status::BAD_CREDENTIAL);
        }
        for sequence in [MAXSEQ, MAXSEQ + 1, u32::MAX] {
            assert_eq!(with(2, sequence), CredentialFault::Sequence(sequence));
            assert_eq!(with(2, sequence).status(), Status::GSS_CONTEXT_PROBLEM);
        }
        for len in [5, 33, u32::MAX] {
            assert_eq!(with(4, len), CredentialFault::Malformed);
        }
        for fault in [with(1, 1), with(1, 4), with(4, 5)] {
            assert_eq!(fault.status(), Status::BAD_CREDENTIAL, "{fault:?}");
        }
    }

    #[test]
    fn a_first_request_has_an_empty_handle() {
        assert!(body(GssCredential::Init).ends_with(&[0; 4]));
        let mut octets = body(GssCredential::Data(DATA));
        octets[7] = 1;
        assert_eq!(GssCredential::parse(&octets), Err(CredentialFault::Handle));
        assert_eq!(CredentialFault::Handle.status(), AuthStatus::BAD_CREDENTIAL);
    }

    #[test]
    fn handles_of_other_servers_have_any_length() {
        for len in (0..=Auth::BODY_MAX - 20).step_by(4) {
            let words = [VERSION, 0, 5, GssService::Integrity as u32, len as u32];
            let mut octets: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
            octets.resize(20 + len, 7);
            let handle = &octets[20..];
            let data = GssData { handle, ..DATA };
            let credential = GssCredential::Data(data);
            assert_eq!(GssCredential::parse(&octets), Ok(credential), "{len}");
            let emitted = credential.emit(&mut [0; CREDENTIAL_MAX]).is_ok();
            assert_eq!(emitted, len <= HANDLE_MAX, "{len}");
            for (procedure, expected) in
                [(2, GssCredential::ContinueInit { handle }), (3, GssCredential::Destroy(data))]
            {
                let mut octets = octets.clone();
                octets[7] = procedure;
                assert_eq!(GssCredential::parse(&octets), Ok(expected), "{len}");
            }
        }
    }

    #[test]
    fn a_creation_request_may_have_any_number_and_service() {
        for value in [0, 4, MAXSEQ, u32::MAX] {
            let mut octets = body(GssCredential::Init);
            octets[8..12].copy_from_slice(&value.to_be_bytes());
            octets[12..16].copy_from_slice(&value.to_be_bytes());
            assert_eq!(GssCredential::parse(&octets), Ok(GssCredential::Init), "{value}");
        }
    }

    #[test]
    fn a_verifier_covers_the_header_up_to_the_credential() {
        for handle_len in 1..=8 {
            let handle = &[9; 8][..handle_len];
            let octets = body(GssCredential::Data(GssData { handle, ..DATA }));
            let call = CallHeader {
                xid: Xid(1),
                program: 100_003,
                version: 4,
                procedure: 1,
                credential: Credential::Other(Auth::gss(&octets)),
                verifier: Auth::gss(&[3; 28]),
            };
            let mut out = [0; 256];
            let mut writer = Writer::new(&mut out);
            call.emit(&mut writer).unwrap();
            let len = writer.len();
            let expected = &out[..len - 4 - 4 - 28];
            assert_eq!(signed_header(&Reader::new(&out[..len])), Some(expected));
            let pieces = [Piece::Inline(&out[..len]), Piece::Chunk(&[1, 2, 3])];
            assert_eq!(signed_header(&Reader::over(&pieces)), Some(expected));
            let credential = GssCredential::Data(GssData { handle, ..DATA });
            assert_eq!(signed_credential(expected), Some(Ok(credential)));
            assert_eq!(signed_credential(&out[..expected.len() + 4]), None);
            for cut in 0..expected.len() {
                assert_eq!(signed_header(&Reader::new(&out[..cut])), None, "cut at {cut}");
                assert_eq!(signed_credential(&out[..cut]), None, "cut at {cut}");
            }
            let mut other = expected.to_vec();
            other[FRONT + 3] = 1;
            assert_eq!(signed_credential(&other), None, "another flavor");
        }
    }
}
