//! Protection of arguments and results, whichever service a call has, whole or in steps (RFC 2203
//! §5.3.2).
//!
//! A body is the part of a message after its header. Under a service the sender leaves
//! [`ProtectedRoom`] around what it protects.

use core::{fmt, ops::Range};

use stag_protocol::{
    rpc::gss::{
        GssBodyFault, GssService, INTEGRITY_FRONT, IntegrityBody, PRIVACY_FRONT, PrivacyBody,
        split_sequence,
    },
    xdr::{Reader, padded},
};

use crate::{
    CONFOUNDER, ContextKeys, MicState, Opening, SEALED_FRONT, Sealing, TokenFault, WrongBuffer,
};

/// Octets that a service adds to a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectedRoom {
    /// In front of arguments or results.
    pub front: usize,
    /// After them, without the padding of a body whose length is no multiple of four.
    pub back: usize,
}

/// Reason for which a body was refused. A server answers each with GARBAGE_ARGS, and with a
/// verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// The body is not the XDR of its service, or has another sequence number.
    Body(GssBodyFault),
    /// The checksum, or the sealed token.
    Token(TokenFault),
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(fault) => fault.fmt(f),
            Self::Token(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for BodyFault {}

impl From<GssBodyFault> for BodyFault {
    fn from(fault: GssBodyFault) -> Self {
        Self::Body(fault)
    }
}

impl From<TokenFault> for BodyFault {
    fn from(fault: TokenFault) -> Self {
        Self::Token(fault)
    }
}

/// Parameters of a body that is protected.
#[derive(Clone, Copy, Debug)]
pub struct Protection {
    /// The call's service.
    pub service: GssService,
    /// The call's sequence number.
    pub sequence: u32,
    /// Number of the token, which the receiver does not check.
    pub token_sequence: u64,
}

/// A body that is being protected in its buffer.
#[must_use = "a body is whole after its last step"]
pub struct Protecting {
    token_sequence: u64,
    state: ProtectState,
}

enum ProtectState {
    Clear,
    /// Octets signed so far, and the end of the octets to sign.
    Integrity(MicState, usize, usize),
    Privacy(Sealing, Range<usize>),
    Done,
}

impl Protecting {
    /// Protects the next `max` octets of the body; returns true when it is whole. `body` is the
    /// buffer that [`ContextKeys::begin_protect`] had.
    pub fn advance(
        &mut self,
        keys: &ContextKeys,
        body: &mut [u8],
        max: usize,
    ) -> Result<bool, WrongBuffer> {
        match &mut self.state {
            ProtectState::Clear | ProtectState::Done => return Ok(true),
            ProtectState::Privacy(sealing, token) => {
                let token = body.get_mut(token.clone()).ok_or(WrongBuffer)?;
                if !sealing.advance(keys, token, max)? {
                    return Ok(false);
                }
            }
            ProtectState::Integrity(mic, at, end) => {
                let part = at.saturating_add(max.max(1)).min(*end);
                mic.update(body.get(*at..part).ok_or(WrongBuffer)?);
                *at = part;
                if part < *end {
                    return Ok(false);
                }
            }
        }
        if let ProtectState::Integrity(mic, _, end) =
            core::mem::replace(&mut self.state, ProtectState::Done)
        {
            let token = keys.finish_sign(mic, self.token_sequence);
            let back = body.get_mut(end..).ok_or(WrongBuffer)?;
            let (len, back) = back.split_first_chunk_mut().ok_or(WrongBuffer)?;
            *len = word(token.len())?;
            back.get_mut(..token.len()).ok_or(WrongBuffer)?.copy_from_slice(&token);
        }
        Ok(true)
    }
}

/// A body of the other end that is being verified and opened in its buffer.
#[must_use = "a body is verified after its last step"]
pub struct Unprotecting {
    sequence: u32,
    state: UnprotectState,
}

enum UnprotectState {
    Clear,
    /// Octets verified so far and the end of the signed ones; then the checksum.
    Integrity(MicState, Range<usize>, Range<usize>),
    Privacy(Opening, Range<usize>),
}

impl Unprotecting {
    /// Goes on by `max` octets; returns where in `body` the arguments or results are when all of it
    /// is verified. Before that, nothing in it may be used. `body` is the buffer that
    /// [`ContextKeys::begin_unprotect`] had.
    pub fn advance(
        &mut self,
        keys: &ContextKeys,
        body: &mut [u8],
        max: usize,
    ) -> Result<Option<Range<usize>>, BodyFault> {
        let data = match &mut self.state {
            UnprotectState::Clear => return Ok(Some(0..body.len())),
            UnprotectState::Privacy(opening, token) => {
                let start = token.start;
                let token = body.get_mut(token.clone()).ok_or(TokenFault::Length)?;
                let Some(data) = opening.advance(keys, token, max)? else { return Ok(None) };
                start + data.start..start + data.end
            }
            UnprotectState::Integrity(mic, left, checksum) => {
                let part = left.start.saturating_add(max.max(1)).min(left.end);
                mic.update(body.get(left.start..part).ok_or(TokenFault::Length)?);
                left.start = part;
                if part < left.end {
                    return Ok(None);
                }
                let token = body.get(checksum.clone()).ok_or(TokenFault::Length)?;
                keys.finish_verify(mic.clone(), token)?;
                PRIVACY_FRONT..left.end
            }
        };
        let inner = body.get(data.clone()).ok_or(TokenFault::Length)?;
        let arguments = split_sequence(inner, self.sequence)?;
        Ok(Some(data.end - arguments.len()..data.end))
    }
}

/// A length on the wire.
fn word(len: usize) -> Result<[u8; 4], WrongBuffer> {
    u32::try_from(len).map(u32::to_be_bytes).map_err(|_| WrongBuffer)
}

impl ContextKeys {
    /// Octets that `service` adds to arguments or results.
    pub const fn room(&self, service: GssService) -> ProtectedRoom {
        match service {
            GssService::None => ProtectedRoom { front: 0, back: 0 },
            GssService::Integrity => {
                ProtectedRoom { front: INTEGRITY_FRONT, back: 4 + self.mic_len() }
            }
            GssService::Privacy => {
                ProtectedRoom { front: PRIVACY_FRONT + SEALED_FRONT + 4, back: self.sealed_back() }
            }
        }
    }

    /// Begins to protect arguments or results in `body`, which has [`ContextKeys::room`] around
    /// them. They are XDR: a multiple of four octets. `confounder` is fresh from a random source,
    /// and is used once; only privacy needs it.
    pub fn begin_protect(
        &self,
        protection: &Protection,
        body: &mut [u8],
        confounder: &[u8; CONFOUNDER],
    ) -> Result<Protecting, WrongBuffer> {
        let Protection { service, sequence, token_sequence } = *protection;
        let room = self.room(service);
        let inner = body.len().checked_sub(room.front + room.back).ok_or(WrongBuffer)?;
        debug_assert!(inner.is_multiple_of(4), "XDR has words");
        let put = |body: &mut [u8], at: usize, word: [u8; 4]| {
            body.get_mut(at..at + 4).map(|octets| octets.copy_from_slice(&word)).ok_or(WrongBuffer)
        };
        let state = match service {
            GssService::None => ProtectState::Clear,
            GssService::Integrity => {
                // RFC 2203 §5.3.2.2 [2203-16]: the signed octets and the checksum are two opaques
                put(body, 0, word(4 + inner)?)?;
                put(body, 4, sequence.to_be_bytes())?;
                ProtectState::Integrity(self.begin_sign(), 4, room.front + inner)
            }
            GssService::Privacy => {
                put(body, 0, word(body.len() - PRIVACY_FRONT)?)?;
                put(body, room.front - 4, sequence.to_be_bytes())?;
                let token = PRIVACY_FRONT..body.len();
                let sealed = body.get_mut(token.clone()).ok_or(WrongBuffer)?;
                let sealing = self.begin_seal(sealed, token_sequence, confounder)?;
                ProtectState::Privacy(sealing, token)
            }
        };
        Ok(Protecting { token_sequence, state })
    }

    /// Protects arguments or results at once; see [`ContextKeys::begin_protect`].
    pub fn protect(
        &self,
        protection: &Protection,
        body: &mut [u8],
        confounder: &[u8; CONFOUNDER],
    ) -> Result<(), WrongBuffer> {
        let mut protecting = self.begin_protect(protection, body, confounder)?;
        protecting.advance(self, body, usize::MAX).map(drop)
    }

    /// Begins to verify and open the other end's body, which is all that follows the header.
    pub fn begin_unprotect(
        &self,
        service: GssService,
        sequence: u32,
        body: &mut [u8],
    ) -> Result<Unprotecting, BodyFault> {
        let state = match service {
            GssService::None => UnprotectState::Clear,
            GssService::Integrity => {
                let parsed = IntegrityBody::parse(Reader::new(body))?;
                let end = 4 + parsed.signed.len();
                let checksum = 4 + padded(parsed.signed.len()) + 4;
                let checksum = checksum..checksum + parsed.checksum.len();
                UnprotectState::Integrity(self.begin_verify(), 4..end, checksum)
            }
            GssService::Privacy => {
                let token = PrivacyBody::range(body)?;
                let sealed = body.get_mut(token.clone()).ok_or(TokenFault::Length)?;
                UnprotectState::Privacy(self.begin_open(sealed)?, token)
            }
        };
        Ok(Unprotecting { sequence, state })
    }

    /// Verifies the other end's body with integrity at once: returns where in it the arguments or
    /// results are.
    pub fn verify_integrity(&self, sequence: u32, body: &[u8]) -> Result<Range<usize>, BodyFault> {
        let IntegrityBody { signed, checksum } = IntegrityBody::parse(Reader::new(body))?;
        self.verify_mic(checksum, [signed])?;
        let arguments = split_sequence(signed, sequence)?;
        let end = INTEGRITY_FRONT - 4 + signed.len();
        Ok(end - arguments.len()..end)
    }

    /// Verifies and opens the other end's body at once: returns where in it the arguments or
    /// results are.
    pub fn unprotect(
        &self,
        service: GssService,
        sequence: u32,
        body: &mut [u8],
    ) -> Result<Range<usize>, BodyFault> {
        let mut unprotecting = self.begin_unprotect(service, sequence, body)?;
        let range = unprotecting.advance(self, body, usize::MAX)?;
        range.ok_or(BodyFault::Token(TokenFault::Length))
    }
}
