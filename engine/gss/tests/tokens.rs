//! Checksum tokens and sealed tokens of the four enctypes.

use fastrand::Rng;
use stag_gss::{
    ContextKey, ContextKeys, EXTRA_MAX, Enctype, GssRole, SEALED_FRONT, TokenFault, WrongBuffer,
    WrongKeyLen,
};

use crate::{ends, key_octets};

/// Lengths around what a step, a pass and the largest message have.
const LONG: [usize; 11] =
    [4_064, 4_096, 4_097, 65_504, 65_535, 65_536, 65_537, 65_552, 1_048_575, 1_048_576, 1_048_577];

fn message(len: usize) -> Vec<u8> {
    let mut random = Rng::with_seed(len as u64);
    let mut octets = vec![0; len];
    random.fill(&mut octets);
    octets
}

/// A message with room for a token around it.
fn with_room(keys: &ContextKeys, message: &[u8]) -> Vec<u8> {
    [&[0xEE; SEALED_FRONT], message, &vec![0xEE; keys.sealed_back()]].concat()
}

fn sealed(keys: &ContextKeys, message: &[u8]) -> Vec<u8> {
    let mut token = with_room(keys, message);
    keys.seal(&mut token, 7, &[0xC0; 16]).unwrap();
    token
}

/// Opens a copy of a token: its message.
fn opened(keys: &ContextKeys, token: &[u8]) -> Result<Vec<u8>, TokenFault> {
    let mut token = token.to_vec();
    let message = keys.open(&mut token)?;
    Ok(token[message].to_vec())
}

/// Every enctype, with the acceptor's subkey and without.
fn every_end(mut check: impl FnMut(ContextKeys, ContextKeys)) {
    for enctype in Enctype::ALL {
        for acceptor_subkey in [false, true] {
            let [initiator, acceptor] = ends(enctype, acceptor_subkey);
            check(initiator, acceptor);
            let [initiator, acceptor] = ends(enctype, acceptor_subkey);
            check(acceptor, initiator);
        }
    }
}

#[test]
fn every_length_is_opened_by_the_other_end_alone() {
    every_end(|from, to| {
        let overhead = [60, 60, 64, 72][from.enctype() as usize - 17];
        for len in 0..=200 {
            let message = message(len);
            let token = sealed(&from, &message);
            assert_eq!(token.len(), len + overhead);
            assert_eq!(opened(&to, &token), Ok(message), "{from:?}, {len} octets");
            assert_eq!(opened(&from, &token), Err(TokenFault::Direction));
        }
    });
}

#[test]
fn steps_of_any_size_give_the_same_token() {
    let mut random = Rng::with_seed(5);
    for enctype in Enctype::ALL {
        let [from, to] = ends(enctype, true);
        for len in (0..=200).chain(LONG) {
            let message = message(len);
            let expected = sealed(&from, &message);
            let steps = if len > 200 { [65_536, 100_000] } else { [1, 1 + random.usize(..64)] };
            for step in steps {
                let mut token = with_room(&from, &message);
                let mut sealing = from.begin_seal(&mut token, 7, &[0xC0; 16]).unwrap();
                let mut passes = 1;
                while !sealing.advance(&from, &mut token, step).unwrap() {
                    passes += 1;
                }
                assert!(token == expected, "{len} octets by {step}");
                assert!(passes <= 2 + (len + 48) / (step.max(16) / 16 * 16));
                let mut opening = to.begin_open(&mut token).unwrap();
                let range = loop {
                    if let Some(range) = opening.advance(&to, &mut token, step).unwrap() {
                        break range;
                    }
                };
                assert!(token[range] == message, "{len} octets by {step}");
            }
        }
    }
}

#[test]
fn a_finished_state_returns_its_result_again_and_changes_nothing() {
    every_end(|from, to| {
        let mut token = with_room(&from, b"message");
        let mut sealing = from.begin_seal(&mut token, 7, &[0xC0; 16]).unwrap();
        assert_eq!(sealing.advance(&from, &mut token, usize::MAX), Ok(true));
        let expected = token.clone();
        for max in [0, 64, usize::MAX] {
            assert_eq!(sealing.advance(&from, &mut token, max), Ok(true));
            assert_eq!(token, expected);
        }
        let mut wrong = token.clone();
        *wrong.last_mut().unwrap() ^= 1;
        let message = SEALED_FRONT..SEALED_FRONT + 7;
        for (mut token, result) in [(token, Ok(Some(message))), (wrong, Err(TokenFault::Checksum))]
        {
            let mut opening = to.begin_open(&mut token).unwrap();
            assert_eq!(opening.advance(&to, &mut token, usize::MAX), result);
            let expected = token.clone();
            for max in [0, 64, usize::MAX] {
                assert_eq!(opening.advance(&to, &mut token, max), result);
                assert_eq!(token, expected);
            }
        }
    });
}

#[test]
fn every_octet_of_a_sealed_token_counts() {
    every_end(|from, to| {
        for len in [0, 1, 15, 16, 17, 33, 100] {
            let token = sealed(&from, &message(len));
            for at in 0..token.len() {
                for change in [0x01, 0x80, 0xFF] {
                    let mut changed = token.clone();
                    changed[at] ^= change;
                    let rotation = usize::from(u16::from_be_bytes([changed[6], changed[7]]));
                    // A rotation by the whole length, which nothing covers, is no rotation.
                    if rotation % (token.len() - 16) == 0 && (6..8).contains(&at) {
                        continue;
                    }
                    assert!(opened(&to, &changed).is_err(), "{from:?}, octet {at} of {len}");
                }
            }
            for cut in 0..token.len() {
                assert!(opened(&to, &token[..cut]).is_err(), "{from:?}, cut at {cut} of {len}");
            }
            assert!(opened(&to, &[&token[..], &[0]].concat()).is_err());
        }
    });
}

#[test]
fn any_rotation_is_turned_back() {
    every_end(|from, to| {
        for len in [0, 4, 31, 100] {
            let message = message(len);
            let token = sealed(&from, &message);
            let rest = token.len() - 16;
            for rotation in (0..=2 * rest).chain([65_535]) {
                let mut rotated = token.clone();
                rotated[16..].rotate_right(rotation % rest);
                rotated[6..8].copy_from_slice(&(rotation as u16).to_be_bytes());
                assert_eq!(opened(&to, &rotated), Ok(message.clone()), "by {rotation}");
            }
        }
    });
}

#[test]
fn filler_is_taken_off_up_to_16_octets() {
    every_end(|from, to| {
        for (len, extra) in [(0, 0), (1, 1), (16, 16), (40, 16), (40, 17), (15, 16), (0, 1)] {
            // The last `extra` octets of the message become filler.
            let message = message(len);
            let mut token = with_room(&from, &message);
            let mut sealing = from.begin_seal(&mut token, 7, &[0xC0; 16]).unwrap();
            let copy = SEALED_FRONT + len;
            token[5] = extra as u8;
            token[copy + 5] = extra as u8;
            while !sealing.advance(&from, &mut token, 64).unwrap() {}
            let expected = match len.checked_sub(extra) {
                Some(left) if extra <= EXTRA_MAX => Ok(message[..left].to_vec()),
                _ => Err(TokenFault::ExtraCount),
            };
            assert_eq!(opened(&to, &token), expected, "{extra} of {len}");
        }
    });
}

#[test]
fn a_copy_of_the_header_that_differs_is_refused() {
    let [from, to] = ends(Enctype::Aes256Sha1, false);
    for at in 0..16 {
        let mut token = with_room(&from, b"message");
        let mut sealing = from.begin_seal(&mut token, 7, &[0xC0; 16]).unwrap();
        token[SEALED_FRONT + 7 + at] ^= 1;
        while !sealing.advance(&from, &mut token, 64).unwrap() {}
        assert_eq!(opened(&to, &token), Err(TokenFault::HeaderCopy), "octet {at}");
    }
}

#[test]
fn each_rule_of_a_header_has_its_fault() {
    let [from, to] = ends(Enctype::Aes128Sha256, true);
    let token = sealed(&from, b"message");
    let mic = from.mic(7, [&b"message"[..]]);
    let fault = |token: &[u8], at: usize, value: u8| {
        let mut changed = token.to_vec();
        changed[at] = value;
        if token[0] == 5 {
            opened(&to, &changed).unwrap_err()
        } else {
            to.verify_mic(&changed, [&b"message"[..]]).unwrap_err()
        }
    };
    for (at, value, expected) in [
        (0, 4, TokenFault::Kind),
        (1, 1, TokenFault::Kind),
        (2, 7, TokenFault::Direction),
        (2, 2, TokenFault::Subkey),
        (2, 4, TokenFault::Confidentiality),
        (3, 0, TokenFault::Kind),
        (4, 1, TokenFault::ExtraCount),
        (5, 17, TokenFault::ExtraCount),
        (2, 14, TokenFault::HeaderCopy),
        (15, 8, TokenFault::HeaderCopy),
        (16, token[16] ^ 1, TokenFault::Checksum),
    ] {
        assert_eq!(fault(&token, at, value), expected, "sealed, {value} at {at}");
    }
    for (at, value, expected) in [
        (0, 5, TokenFault::Kind),
        (2, 5, TokenFault::Direction),
        (2, 0, TokenFault::Subkey),
        (2, 6, TokenFault::Confidentiality),
        (2, 12, TokenFault::Checksum),
        (7, 0, TokenFault::Kind),
        (15, 8, TokenFault::Checksum),
    ] {
        assert_eq!(fault(&mic, at, value), expected, "checksum, {value} at {at}");
    }
}

#[test]
fn checksums_are_the_same_for_any_pieces() {
    every_end(|from, to| {
        assert_eq!(from.mic_len(), [28, 28, 32, 40][from.enctype() as usize - 17]);
        for len in (0..=200).chain([65_536, 1_048_576]) {
            let message = message(len);
            let token = from.mic(9, [&message[..]]);
            assert_eq!(token.len(), from.mic_len());
            let (front, back) = message.split_at(len / 3);
            assert_eq!(*from.mic(9, [front, &[], back]), *token);
            assert_eq!(to.verify_mic(&token, message.chunks(61)), Ok(()));
            let mut state = to.begin_verify();
            message.chunks(4_099).for_each(|piece| state.update(piece));
            assert_eq!(to.finish_verify(state, &token), Ok(()));
            assert_eq!(from.verify_mic(&token, [&message[..]]), Err(TokenFault::Direction));
            if len > 0 {
                assert_eq!(to.verify_mic(&token, [&message[1..]]), Err(TokenFault::Checksum));
            }
        }
    });
}

#[test]
fn every_octet_of_a_checksum_token_counts() {
    every_end(|from, to| {
        let message = message(100);
        let token = from.mic(9, [&message[..]]);
        for at in 0..token.len() {
            for change in 1..=255 {
                let mut changed = token.to_vec();
                changed[at] ^= change;
                assert!(to.verify_mic(&changed, [&message[..]]).is_err(), "octet {at}");
            }
        }
        for at in 0..message.len() {
            let mut changed = message.clone();
            changed[at] ^= 1;
            assert_eq!(to.verify_mic(&token, [&changed[..]]), Err(TokenFault::Checksum));
        }
        for len in 0..token.len() {
            assert_eq!(to.verify_mic(&token[..len], [&message[..]]), Err(TokenFault::Length));
        }
        let longer = [&token[..], &[0]].concat();
        assert_eq!(to.verify_mic(&longer, [&message[..]]), Err(TokenFault::Length));
    });
}

#[test]
fn keys_and_enctypes_of_another_context_open_nothing() {
    for enctype in Enctype::ALL {
        let [from, _] = ends(enctype, false);
        let octets = key_octets(enctype, 2);
        let key = ContextKey { enctype, octets: &octets, acceptor_subkey: false };
        let stranger = ContextKeys::new(&key, GssRole::Acceptor).unwrap();
        let token = sealed(&from, b"message");
        assert_eq!(opened(&stranger, &token), Err(TokenFault::Checksum));
        let mic = from.mic(1, [&b"message"[..]]);
        assert_eq!(stranger.verify_mic(&mic, [&b"message"[..]]), Err(TokenFault::Checksum));
    }
}

#[test]
fn keys_of_the_wrong_length_make_no_context() {
    for enctype in Enctype::ALL {
        for len in (0..=64).filter(|len| *len != enctype.key_len()) {
            let octets = vec![1; len];
            let key = ContextKey { enctype, octets: &octets, acceptor_subkey: false };
            let made = ContextKeys::new(&key, GssRole::Initiator);
            assert_eq!(made.map(drop), Err(WrongKeyLen), "{enctype:?}, {len}");
        }
    }
}

#[test]
fn no_key_is_shown() {
    let octets = key_octets(Enctype::Aes128Sha1, 1);
    let key = ContextKey { enctype: Enctype::Aes128Sha1, octets: &octets, acceptor_subkey: true };
    assert_eq!(format!("{key:?}"), "ContextKey(Aes128Sha1, acceptor's: true)");
    let [keys, _] = ends(Enctype::Aes128Sha1, true);
    assert_eq!(format!("{keys:?}"), "ContextKeys(Aes128Sha1, Initiator)");
}

#[test]
fn a_buffer_other_than_that_of_the_token_is_refused() {
    let [from, to] = ends(Enctype::Aes256Sha1, false);
    for len in 0..SEALED_FRONT + from.sealed_back() {
        let done = from.seal(&mut vec![0; len], 1, &[0; 16]);
        assert_eq!(done, Err(WrongBuffer), "{len} octets");
    }
    let mut token = with_room(&from, b"message");
    let mut sealing = from.begin_seal(&mut token, 1, &[0; 16]).unwrap();
    assert_eq!(sealing.advance(&from, &mut [0; 99], 64), Err(WrongBuffer));
    while !sealing.advance(&from, &mut token, 64).unwrap() {}
    let mut opening = to.begin_open(&mut token).unwrap();
    assert_eq!(opening.advance(&to, &mut [0; 99], 64), Err(TokenFault::Length));
}
