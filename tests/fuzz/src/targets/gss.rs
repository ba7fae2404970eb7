//! RPCSEC_GSS: credentials, creation of contexts, protected bodies, and tokens of Kerberos 5.

use stag_gss::{CONFOUNDER, ContextKey, ContextKeys, EXTRA_MAX, Enctype, GssRole, SEALED_FRONT};
use stag_protocol::{
    rpc::gss::{
        CREDENTIAL_MAX, CredentialFault, GssBodyFault, GssCredential, HANDLE_MAX, InitArguments,
        InitResults, IntegrityBody, MAXSEQ, PRIVACY_FRONT, PrivacyBody, split_sequence,
    },
    xdr::{Codec, Error, Reader},
};

use super::{InputVerdict, differs_in_padding_only, emitted, survives};

/// The body of a credential.
pub fn credential(input: &[u8]) -> InputVerdict {
    let credential = match GssCredential::parse(input) {
        Ok(credential) => credential,
        Err(fault) => {
            let _ = fault.status();
            let is_late = input.len() >= 20 && input[..4] == [0, 0, 0, 1];
            let is_header =
                matches!(fault, CredentialFault::Malformed | CredentialFault::Version(_));
            assert!(is_late || is_header, "{fault:?}");
            return InputVerdict::refused(&fault);
        }
    };
    let mut room = [0xEE; CREDENTIAL_MAX];
    let handle = match credential {
        GssCredential::Data(data) | GssCredential::Destroy(data) => data.handle,
        GssCredential::Init => &[],
        GssCredential::ContinueInit { handle } => handle,
    };
    let Ok(body) = credential.emit(&mut room) else {
        assert!(handle.len() > HANDLE_MAX, "there is room");
        return InputVerdict::accepted((credential.procedure(), "another server's handle"));
    };
    assert!(handle.len() <= HANDLE_MAX);
    assert_eq!(GssCredential::parse(body), Ok(credential));
    match credential {
        GssCredential::Data(data) | GssCredential::Destroy(data) => {
            assert!(data.sequence < MAXSEQ);
            assert!(differs_in_padding_only(body, input));
            InputVerdict::accepted((credential.procedure(), data.service, data.handle.len()))
        }
        GssCredential::Init | GssCredential::ContinueInit { .. } => {
            InputVerdict::accepted((credential.procedure(), body.len()))
        }
    }
}

/// Arguments or results of the creation of a context, as the first word says.
pub fn init(input: &[u8]) -> InputVerdict {
    let Some((choice, octets)) = input.split_first_chunk::<4>() else {
        return InputVerdict::refused(&Error::Short);
    };
    match choice[3] & 1 {
        0 => survives!(octets, InitArguments<'_>).of(0),
        _ => survives!(octets, InitResults<'_>).of(1),
    }
}

/// A protected body, after a word that names its service and one for the sequence number.
pub fn body(input: &[u8]) -> InputVerdict {
    let Some(([_, _, _, service, sequence @ ..], octets)) = input.split_first_chunk::<8>() else {
        return InputVerdict::refused(&Error::Short);
    };
    let sequence = u32::from_be_bytes(*sequence);
    let refused = |fault: GssBodyFault| match fault {
        GssBodyFault::Xdr(error) => InputVerdict::refused(&error),
        GssBodyFault::Sequence => InputVerdict::refused(&fault),
    };
    if service & 1 == 0 {
        let body = match IntegrityBody::parse(Reader::new(octets)) {
            Ok(body) => body,
            Err(fault) => return refused(fault),
        };
        let padded = |octets: &[u8]| octets.len().next_multiple_of(4);
        assert_eq!(octets.len(), 8 + padded(body.signed) + padded(body.checksum));
        assert!(body.signed.is_empty() || octets[4..].starts_with(body.signed));
        match body.arguments(sequence) {
            Ok(arguments) => {
                assert_eq!(body.signed, [&sequence.to_be_bytes()[..], arguments].concat());
                InputVerdict::accepted((0, arguments.len().min(64)))
            }
            Err(fault) => refused(fault),
        }
    } else {
        let range = match PrivacyBody::range(octets) {
            Ok(range) => range,
            Err(fault) => return refused(fault),
        };
        assert_eq!(PrivacyBody::parse(Reader::new(octets)).unwrap().token, &octets[range.clone()]);
        assert_eq!(range.start, PRIVACY_FRONT);
        // A token hides its plaintext. It is split as if it were one.
        let arguments = split_sequence(&octets[range], sequence);
        InputVerdict::accepted((1, arguments.map_or(0, |octets| 1 + octets.len().min(64))))
    }
}

/// The other end's token. Four octets come first: how it is made, the enctype, whether the key is
/// the acceptor's, and the octets of one step.
///
/// A raw token is never taken, because its checksum is wrong. One whose plaintext is in the input
/// gets a right checksum, so that the checks after it are reached.
pub fn token(input: &[u8]) -> InputVerdict {
    let Some(([how, enctype, subkey, step], octets)) = input.split_first_chunk::<4>() else {
        return InputVerdict::refused(&Error::Short);
    };
    let enctype = Enctype::new(17 + u32::from(*enctype % 4)).unwrap();
    let key = vec![enctype as u8; enctype.key_len()];
    let key = ContextKey { enctype, octets: &key, acceptor_subkey: subkey & 1 == 1 };
    let keys = |role| ContextKeys::new(&key, role).unwrap();
    let (from, to) = (keys(GssRole::Initiator), keys(GssRole::Acceptor));
    let step = usize::from(*step) + 1;
    match how % 3 {
        0 => match to.verify_mic(octets, [&b"message"[..]]) {
            Ok(()) => panic!("a checksum was guessed"),
            Err(fault) => InputVerdict::refused(&fault).of(0),
        },
        1 => {
            let opened = open(&to, octets, step);
            assert!(opened.is_err(), "a checksum was guessed");
            InputVerdict::refused(&opened.unwrap_err()).of(1)
        }
        _ => {
            let Some(token) = seal(&from, octets) else {
                return InputVerdict::refused(&Error::Short);
            };
            match open(&to, &token, step) {
                Ok(range) => {
                    let after = token.len() - from.sealed_back();
                    assert!(range.start == SEALED_FRONT && range.end <= after);
                    assert!(after - range.end <= EXTRA_MAX);
                    InputVerdict::accepted((range.len().min(64), after - range.end))
                }
                Err(fault) => InputVerdict::refused(&fault).of(2),
            }
        }
    }
}

/// Opens a copy of a token, in steps and at once.
fn open(
    keys: &ContextKeys,
    token: &[u8],
    step: usize,
) -> Result<std::ops::Range<usize>, stag_gss::TokenFault> {
    let (mut whole, mut stepped) = (token.to_vec(), token.to_vec());
    let at_once = keys.open(&mut whole);
    let in_steps = keys.begin_open(&mut stepped).and_then(|mut opening| {
        loop {
            if let Some(range) = opening.advance(keys, &mut stepped, step)? {
                return Ok(range);
            }
        }
    });
    assert_eq!(at_once, in_steps);
    assert_eq!(whole, stepped);
    at_once
}

/// A token with the header and the plaintext of `octets`, and a right checksum.
fn seal(keys: &ContextKeys, octets: &[u8]) -> Option<Vec<u8>> {
    let mut token = octets.to_vec();
    token.resize(octets.len() + keys.enctype().checksum_len(), 0);
    let mut sealing = keys.begin_seal(&mut token, 0, &[0; CONFOUNDER]).ok()?;
    token[..octets.len()].copy_from_slice(octets);
    while !sealing.advance(keys, &mut token, usize::MAX).ok()? {}
    Some(token)
}
