//! Headers of calls with RPCSEC_GSS, up to the end of the credential, which a verifier covers.

use stag_protocol::{
    rpc::{
        Auth, CallHeader, Credential, Xid,
        gss::{CREDENTIAL_MAX, GssCredential, signed_header},
    },
    xdr::{Reader, Writer},
};

/// Octets of room for a header and an empty verifier.
pub const ROOM: usize = 40 + CREDENTIAL_MAX;

/// The header of a call with this credential. Nothing is allocated.
pub fn header<'r>(credential: &GssCredential<'_>, room: &'r mut [u8; ROOM]) -> &'r [u8] {
    let mut body = [0; CREDENTIAL_MAX];
    let body = credential.emit(&mut body).unwrap();
    let call = CallHeader {
        xid: Xid(7),
        program: 100_003,
        version: 4,
        procedure: 1,
        credential: Credential::Other(Auth::gss(body)),
        verifier: Auth::NONE,
    };
    let mut writer = Writer::new(room);
    call.emit(&mut writer).unwrap();
    signed_header(&Reader::new(room)).unwrap()
}
