//! Checksum tokens (RFC 4121 §4.2.6.1): GSS_GetMIC and GSS_VerifyMIC.

use core::ops::Deref;

use crate::{
    keys::ContextKeys,
    mac::Mac,
    token::{HEADER, TokenFault, TokenKind},
};

/// Octets of the longest checksum token.
pub const MIC_MAX: usize = HEADER + 24;

/// A checksum token.
#[derive(Clone, Copy, Debug)]
pub struct MicToken {
    octets: [u8; MIC_MAX],
    len: usize,
}

impl Deref for MicToken {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or_default()
    }
}

/// A message that is being signed, or whose checksum is being verified: its octets come in any
/// number of parts, over any number of passes.
#[derive(Clone)]
pub struct MicState(Mac);

impl MicState {
    /// Goes on with these octets.
    #[inline]
    pub fn update(&mut self, octets: &[u8]) {
        self.0.update(octets);
    }
}

impl ContextKeys {
    /// Begins a message to sign.
    #[inline]
    pub fn begin_sign(&self) -> MicState {
        MicState(self.sign.clone())
    }

    /// The token of a message begun by [`ContextKeys::begin_sign`]. `sequence` is the token's
    /// number, which the receiver does not check in RPCSEC_GSS.
    #[inline]
    pub fn finish_sign(&self, state: MicState, sequence: u64) -> MicToken {
        let MicState(mut mac) = state;
        let header = self.own(TokenKind::Mic).emit(sequence);
        // RFC 4121 §4.2.4 [4121-7]: a checksum covers the message, then the token's header
        mac.update(&header);
        let mut token = MicToken { octets: [0; MIC_MAX], len: self.mic_len() };
        let (front, checksum) = token.octets.split_at_mut(HEADER);
        front.copy_from_slice(&header);
        let (checksum, _) = checksum.split_at_mut(self.enctype.checksum_len());
        mac.finish(checksum);
        token
    }

    /// The checksum token of a message in pieces.
    pub fn mic<'p>(&self, sequence: u64, pieces: impl IntoIterator<Item = &'p [u8]>) -> MicToken {
        let mut state = self.begin_sign();
        pieces.into_iter().for_each(|piece| state.update(piece));
        self.finish_sign(state, sequence)
    }

    /// Begins a message of the other end, whose checksum token comes at the end.
    #[inline]
    pub fn begin_verify(&self) -> MicState {
        MicState(self.verify.clone())
    }

    /// Verifies the token of a message begun by [`ContextKeys::begin_verify`], in a time that does
    /// not depend on which octets of the checksum are wrong.
    #[inline]
    pub fn finish_verify(&self, state: MicState, token: &[u8]) -> Result<(), TokenFault> {
        let MicState(mut mac) = state;
        if token.len() != self.mic_len() {
            return Err(TokenFault::Length);
        }
        let (header, checksum) = token.split_first_chunk().ok_or(TokenFault::Length)?;
        self.others(TokenKind::Mic).check(header)?;
        mac.update(header);
        // RFC 4121 §4.2.6.1 [4121-11]: a token with a wrong checksum is refused
        if mac.verify(checksum) { Ok(()) } else { Err(TokenFault::Checksum) }
    }

    /// Verifies the checksum token of the other end's message in pieces.
    pub fn verify_mic<'p>(
        &self,
        token: &[u8],
        pieces: impl IntoIterator<Item = &'p [u8]>,
    ) -> Result<(), TokenFault> {
        let mut state = self.begin_verify();
        pieces.into_iter().for_each(|piece| state.update(piece));
        self.finish_verify(state, token)
    }
}
