//! Wire format of the probe for TLS and its reply (RFC 9289 §4.1), and the decision about calls
//! with and without TLS.

use stag_protocol::{
    rpc::{
        Accepted, Auth, AuthStatus, CallHeader, Credential, Outcome, ReplyHeader, flavor, record,
    },
    rpcrdma::Xid,
    xdr::{Reader, Writer},
};
use stag_tls::TlsProbe;

/// The body of the verifier in the reply to a probe (RFC 9289 §4.1).
const STARTTLS: &[u8] = b"STARTTLS";
/// Octets of a probe, and of its reply, including the record mark.
pub(crate) const PROBE_MAX: usize = 64;
/// The XID of a probe: no other call is pending.
const PROBE_XID: Xid = Xid(0);

/// The decision about a call, by its security.
#[derive(Debug)]
pub(crate) enum CallSecurity {
    /// It goes to the app.
    Pass,
    Deny(AuthStatus),
    /// It requests TLS, and does not go to the app.
    Start,
}

/// Emits the call that requests TLS, as a record; returns its length.
pub(crate) fn emit_probe(octets: &mut [u8; PROBE_MAX], probe: TlsProbe) -> usize {
    let TlsProbe { program, version } = probe;
    // RFC 9289 §4.1 [9289-4]: the probe's credential and verifier are empty
    let credential = Credential::Other(Auth { flavor: flavor::TLS, body: &[] });
    let (xid, verifier) = (PROBE_XID, Auth::NONE);
    let call = CallHeader { xid, program, version, procedure: 0, credential, verifier };
    frame(octets, |writer| call.emit(writer).is_ok())
}

/// Emits the reply that promises TLS, as a record; returns its length.
pub(crate) fn emit_reply(octets: &mut [u8; PROBE_MAX], xid: Xid) -> usize {
    // RFC 9289 §4.1 [9289-8]: the reply is accepted, and its verifier says STARTTLS
    let verifier = Auth { flavor: flavor::NONE, body: STARTTLS };
    let outcome = Outcome::Accepted { verifier, status: Accepted::Success };
    let reply = ReplyHeader { xid, outcome };
    frame(octets, |writer| reply.emit(writer).is_ok())
}

/// Reason for which a server has no TLS.
pub(crate) const NO_TLS: &str = "the server offers no TLS";

/// Emits a record around the output of `emit`; returns its length.
fn frame(octets: &mut [u8; PROBE_MAX], emit: impl FnOnce(&mut Writer<'_>) -> bool) -> usize {
    let Some((mark, message)) = octets.split_first_chunk_mut() else { return 0 };
    let mut writer = Writer::new(message);
    let is_whole = emit(&mut writer);
    debug_assert!(is_whole, "a probe and its reply have room");
    let len = writer.len();
    let fragment = record::Fragment::new(len as u32, true);
    *mark = fragment.map_or([0; 4], record::Fragment::emit);
    len + record::Fragment::LEN
}

/// Decides about a call by its security. A message that is not a call of RPC version 2 is answered
/// elsewhere, and does not go to the app.
pub(crate) fn judge(record: &[u8], is_secured: bool, is_required: bool) -> CallSecurity {
    let mut reader = Reader::new(record);
    let Ok([_, _, _, _, _, procedure, credential, len]) = reader.words() else {
        return CallSecurity::Pass;
    };
    if credential != flavor::TLS {
        return match is_required && !is_secured {
            true => CallSecurity::Deny(AuthStatus::TOO_WEAK),
            false => CallSecurity::Pass,
        };
    }
    // RFC 9289 §4.1 [9289-14]: AUTH_TLS elsewhere than with NULL, or in a session, is refused
    if procedure != 0 || is_secured || len != 0 {
        return CallSecurity::Deny(AuthStatus::BAD_CREDENTIAL);
    }
    match reader.words() {
        Ok([flavor::NONE, 0]) => CallSecurity::Start,
        _ => CallSecurity::Deny(AuthStatus::BAD_VERIFIER),
    }
}

/// Checks the reply to a probe. None while octets are missing.
pub(crate) fn judge_reply(octets: &[u8]) -> Option<Result<(), &'static str>> {
    const NO_REPLY: &str = "the server's answer to the probe for TLS is none";
    let (mark, message) = octets.split_first_chunk()?;
    let fragment = record::Fragment::parse(*mark);
    let len = fragment.octets() as usize;
    if !fragment.last || len > PROBE_MAX - record::Fragment::LEN {
        return Some(Err(NO_REPLY));
    }
    let message = message.get(..len.min(message.len()))?;
    if message.len() < len {
        return None;
    }
    if octets.len() > len + record::Fragment::LEN {
        return Some(Err("octets in the clear came behind the answer to the probe for TLS"));
    }
    Some(match ReplyHeader::parse(&mut Reader::new(message)) {
        // RFC 9289 §4.1 [9289-9]: the token counts, whatever the status
        Ok(ReplyHeader { xid: PROBE_XID, outcome: Outcome::Accepted { verifier, .. } })
            if verifier == (Auth { flavor: flavor::NONE, body: STARTTLS }) =>
        {
            Ok(())
        }
        Ok(ReplyHeader { xid: PROBE_XID, .. }) => Err(NO_TLS),
        _ => Err(NO_REPLY),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn verdict(octets: &[u32], is_secured: bool, is_required: bool) -> Result<bool, AuthStatus> {
        match judge(&words(octets), is_secured, is_required) {
            CallSecurity::Pass => Ok(false),
            CallSecurity::Start => Ok(true),
            CallSecurity::Deny(status) => Err(status),
        }
    }

    #[test]
    fn a_probe_is_a_null_with_an_empty_credential_and_verifier_outside_of_a_session() {
        let probe = [7, 0, 2, 100_003, 3, 0, flavor::TLS, 0, 0, 0];
        let changed = |at: usize, value| {
            let mut changed = probe;
            changed[at] = value;
            changed
        };
        for is_required in [false, true] {
            assert_eq!(verdict(&probe, false, is_required), Ok(true));
            let bad = Err(AuthStatus::BAD_CREDENTIAL);
            assert_eq!(verdict(&probe, true, is_required), bad);
            assert_eq!(verdict(&changed(5, 1), false, is_required), bad);
            assert_eq!(verdict(&changed(7, 4), false, is_required), bad);
            let bad = Err(AuthStatus::BAD_VERIFIER);
            assert_eq!(verdict(&changed(8, 1), false, is_required), bad);
            assert_eq!(verdict(&changed(9, 4), false, is_required), bad);
            assert_eq!(verdict(&probe[..9], false, is_required), bad);
        }
    }

    #[test]
    fn calls_in_the_clear_are_too_weak_only_where_tls_is_required() {
        for credential in [flavor::NONE, flavor::SYS, flavor::GSS] {
            let call = [7, 0, 2, 100_003, 3, 0, credential, 0, 0, 0];
            assert_eq!(verdict(&call, false, true), Err(AuthStatus::TOO_WEAK));
            assert_eq!(verdict(&call, true, true), Ok(false));
            assert_eq!(verdict(&call, false, false), Ok(false));
        }
    }

    /// A reply to a probe, in wire format.
    fn reply(verifier: Auth<'_>, status: Accepted) -> Vec<u8> {
        let header =
            ReplyHeader { xid: PROBE_XID, outcome: Outcome::Accepted { verifier, status } };
        let mut octets = [0; PROBE_MAX];
        let len = frame(&mut octets, |writer| header.emit(writer).is_ok());
        octets[..len].to_vec()
    }

    #[test]
    fn a_reply_to_a_probe_says_starttls_whatever_its_status() {
        let token = Auth { flavor: flavor::NONE, body: STARTTLS };
        for status in [Accepted::Success, Accepted::ProgUnavail] {
            let whole = reply(token, status);
            assert_eq!(judge_reply(&whole), Some(Ok(())));
            for cut in 0..whole.len() {
                assert_eq!(judge_reply(&whole[..cut]), None, "{cut}");
            }
            assert!(judge_reply(&[&whole[..], &[22]].concat()).is_some_and(|it| it.is_err()));
        }
        for verifier in [
            Auth::NONE,
            Auth { flavor: flavor::SYS, body: STARTTLS },
            Auth { flavor: flavor::NONE, body: b"STARTTLS1234" },
        ] {
            let whole = reply(verifier, Accepted::Success);
            assert_eq!(judge_reply(&whole), Some(Err(NO_TLS)), "{verifier:?}");
        }
    }

    #[test]
    fn no_octets_of_a_reply_to_a_probe_do_harm() {
        let whole = reply(Auth { flavor: flavor::NONE, body: STARTTLS }, Accepted::Success);
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut changed = whole.clone();
                changed[at] = value;
                let _ = judge_reply(&changed);
            }
        }
    }
}
