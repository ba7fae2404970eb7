//! Sealed tokens (RFC 4121 §4.2.4, §4.2.6.2): GSS_Wrap and GSS_Unwrap with confidentiality, in
//! place and in steps.
//!
//! A token is its header, ciphertext and a checksum. The ciphertext is that of a confounder, the
//! message, and a copy of the header.

use core::ops::Range;

use aes::Block;

use crate::{
    cipher::{BLOCK, tail_len},
    keys::ContextKeys,
    mac::Mac,
    token::{HEADER, TokenFault, TokenKind},
};

/// Octets of a sealed token in front of its message: header and confounder.
pub const SEALED_FRONT: usize = HEADER + BLOCK;

/// Octets of the random part of a sealed token.
pub const CONFOUNDER: usize = BLOCK;

/// Octets that are signed and encrypted in turn, so that both find them in the cache.
const STRIDE: usize = 4096;

/// The buffer of a token is too short for one, or is not the one that the state was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongBuffer;

impl core::fmt::Display for WrongBuffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the buffer is not that of the token")
    }
}

impl std::error::Error for WrongBuffer {}

/// Progress through the ciphertext of a token.
struct TokenProgress {
    mac: Mac,
    /// The last block of ciphertext.
    last: Block,
    /// Octets of the token that are done.
    at: usize,
    /// Octets of the whole token.
    len: usize,
    /// End of the ciphertext.
    end: usize,
}

impl TokenProgress {
    /// `keyed` is the expanded Ki; `len` counts the octets of the whole token.
    fn new(keys: &ContextKeys, keyed: &Mac, len: usize) -> Option<Self> {
        let end = len.checked_sub(keys.enctype.checksum_len())?;
        if end < HEADER + CONFOUNDER + HEADER {
            return None;
        }
        let (mut mac, last) = (keyed.clone(), Block::default());
        if keys.enctype.signs_ciphertext() {
            // RFC 8009 §5 [8009-5]: the HMAC covers the initial vector and the ciphertext
            mac.update(&last);
        }
        Some(Self { mac, last, at: HEADER, len, end })
    }

    /// Start of the tail, whose blocks are exchanged.
    const fn tail(&self) -> usize {
        self.end - tail_len(self.end - HEADER)
    }

    /// The next octets to work on, of `limit` at most; `None` when all that remains is the tail.
    fn stride<'t>(&mut self, token: &'t mut [u8], limit: usize) -> Option<&'t mut [u8]> {
        let len = self.tail().saturating_sub(self.at).min(limit).min(STRIDE);
        let whole = token.get_mut(self.at..self.at + len).filter(|part| !part.is_empty())?;
        self.at += len;
        Some(whole)
    }
}

/// Whole blocks of a pass of at most `max` octets, one at least.
const fn blocks_of(max: usize) -> usize {
    match max / BLOCK * BLOCK {
        0 => BLOCK,
        blocks => blocks,
    }
}

/// A message that is being sealed in its buffer.
#[must_use = "a token is whole after its last step"]
pub struct Sealing(TokenProgress);

impl Sealing {
    /// Seals the next `max` octets, rounded to blocks; returns true when the token is whole, then
    /// and at each later call. `token` is the buffer that [`ContextKeys::begin_seal`] had.
    pub fn advance(
        &mut self,
        keys: &ContextKeys,
        token: &mut [u8],
        max: usize,
    ) -> Result<bool, WrongBuffer> {
        let Self(progress) = self;
        if token.len() != progress.len {
            return Err(WrongBuffer);
        }
        if progress.at == progress.len {
            return Ok(true);
        }
        let signs_ciphertext = keys.enctype.signs_ciphertext();
        let mut left = blocks_of(max);
        while left > 0
            && let Some(part) = progress.stride(token, left)
        {
            left -= part.len();
            if !signs_ciphertext {
                progress.mac.update(part);
            }
            keys.encrypt.blocks(&mut progress.last, part);
            if signs_ciphertext {
                progress.mac.update(part);
            }
        }
        if progress.at != progress.tail() || left == 0 {
            return Ok(false);
        }
        let (sealed, checksum) = token.split_at_mut_checked(progress.end).ok_or(WrongBuffer)?;
        let tail = sealed.get_mut(progress.at..).ok_or(WrongBuffer)?;
        let mut mac = progress.mac.clone();
        if !signs_ciphertext {
            // RFC 3962 §6 [3962-3]: the HMAC covers the plaintext
            mac.update(tail);
        }
        keys.encrypt.tail(progress.last, tail);
        if signs_ciphertext {
            mac.update(tail);
        }
        mac.finish(checksum);
        progress.at = progress.len;
        Ok(true)
    }
}

/// A token that is being opened in its buffer.
#[must_use = "a token is verified after its last step"]
pub struct Opening {
    progress: TokenProgress,
    header: [u8; HEADER],
    extra: usize,
    /// The result, once there is one.
    finished: Option<Result<Range<usize>, TokenFault>>,
}

impl Opening {
    /// Opens the next `max` octets, rounded to blocks; returns where in `token` the message is when
    /// all of it is verified, then and at each later call. A fault is returned again, too. Before
    /// that, nothing in the buffer may be used. `token` is the buffer that
    /// [`ContextKeys::begin_open`] had.
    pub fn advance(
        &mut self,
        keys: &ContextKeys,
        token: &mut [u8],
        max: usize,
    ) -> Result<Option<Range<usize>>, TokenFault> {
        let progress = &mut self.progress;
        if token.len() != progress.len {
            return Err(TokenFault::Length);
        }
        if let Some(finished) = &self.finished {
            return finished.clone().map(Some);
        }
        let signs_ciphertext = keys.enctype.signs_ciphertext();
        let mut left = blocks_of(max);
        while left > 0
            && let Some(part) = progress.stride(token, left)
        {
            left -= part.len();
            if signs_ciphertext {
                progress.mac.update(part);
            }
            keys.decrypt.blocks(&mut progress.last, part);
            if !signs_ciphertext {
                progress.mac.update(part);
            }
        }
        if progress.at != progress.tail() || left == 0 {
            return Ok(None);
        }
        let finished = self.finish(keys, token);
        self.finished = Some(finished.clone());
        finished.map(Some)
    }

    /// Opens the tail, and verifies all of the token.
    fn finish(&self, keys: &ContextKeys, token: &mut [u8]) -> Result<Range<usize>, TokenFault> {
        let Self { progress, header, extra, .. } = self;
        let signs_ciphertext = keys.enctype.signs_ciphertext();
        let split = token.split_at_mut_checked(progress.end).ok_or(TokenFault::Length)?;
        let (sealed, checksum) = split;
        let tail = sealed.get_mut(progress.at..).ok_or(TokenFault::Length)?;
        let mut mac = progress.mac.clone();
        if signs_ciphertext {
            mac.update(tail);
        }
        keys.decrypt.tail(progress.last, tail);
        if !signs_ciphertext {
            mac.update(tail);
        }
        // RFC 4121 §4.2.6.2 [4121-12]: a token with a wrong checksum is refused
        if !mac.verify(checksum) {
            return Err(TokenFault::Checksum);
        }
        let (message, copied) = sealed.split_last_chunk().ok_or(TokenFault::Length)?;
        // RFC 4121 §4.2.4 [4121-6]: the encrypted copy of the header is that of the token
        if copied != header {
            return Err(TokenFault::HeaderCopy);
        }
        let end = message.len().checked_sub(*extra).filter(|end| *end >= SEALED_FRONT);
        Ok(SEALED_FRONT..end.ok_or(TokenFault::ExtraCount)?)
    }
}

impl ContextKeys {
    /// Octets of a sealed token after its message: a copy of the header, and the checksum.
    pub const fn sealed_back(&self) -> usize {
        HEADER + self.enctype.checksum_len()
    }

    /// Begins to seal the message in `token`, which has [`SEALED_FRONT`] octets in front of it and
    /// [`ContextKeys::sealed_back`] after it. `confounder` is fresh from a random source, and is
    /// used once. `sequence` is the token's number, which the receiver does not check in
    /// RPCSEC_GSS.
    pub fn begin_seal(
        &self,
        token: &mut [u8],
        sequence: u64,
        confounder: &[u8; CONFOUNDER],
    ) -> Result<Sealing, WrongBuffer> {
        let progress = TokenProgress::new(self, &self.seal, token.len()).ok_or(WrongBuffer)?;
        // RFC 4121 §4.2.5 [4121-9]: RRC may be any number, 0 as well
        let header = self.own(TokenKind::Sealed).emit(sequence);
        let (front, rest) = token.split_first_chunk_mut().ok_or(WrongBuffer)?;
        *front = header;
        *rest.first_chunk_mut().ok_or(WrongBuffer)? = *confounder;
        // RFC 4121 §4.2.4 [4121-6]: the encrypted copy of the header is that of the token
        let copied = token.get_mut(progress.end - HEADER..progress.end).ok_or(WrongBuffer)?;
        copied.copy_from_slice(&header);
        Ok(Sealing(progress))
    }

    /// Seals the message in `token` at once; see [`ContextKeys::begin_seal`].
    pub fn seal(
        &self,
        token: &mut [u8],
        sequence: u64,
        confounder: &[u8; CONFOUNDER],
    ) -> Result<(), WrongBuffer> {
        self.begin_seal(token, sequence, confounder)?.advance(self, token, usize::MAX).map(drop)
    }

    /// Begins to open a token of the other end. A rotated one is rotated back, in place.
    pub fn begin_open(&self, token: &mut [u8]) -> Result<Opening, TokenFault> {
        let progress =
            TokenProgress::new(self, &self.open, token.len()).ok_or(TokenFault::Length)?;
        let (header, rest) = token.split_first_chunk_mut::<HEADER>().ok_or(TokenFault::Length)?;
        let counts = self.others(TokenKind::Sealed).check(header)?;
        if counts.extra > progress.end - SEALED_FRONT - HEADER {
            return Err(TokenFault::ExtraCount);
        }
        // RFC 4121 §4.2.5 [4121-8]: a receiver takes any rotation
        if counts.rotation > 0 {
            let rotation = counts.rotation % rest.len();
            rest.rotate_left(rotation);
        }
        // RFC 4121 §4.2.4 [4121-6]: in the encrypted copy of the header RRC is zero
        let mut header = *header;
        header.iter_mut().skip(6).take(2).for_each(|octet| *octet = 0);
        Ok(Opening { progress, header, extra: counts.extra, finished: None })
    }

    /// Opens a token at once: returns where in it the message is.
    pub fn open(&self, token: &mut [u8]) -> Result<Range<usize>, TokenFault> {
        let message = self.begin_open(token)?.advance(self, token, usize::MAX)?;
        message.ok_or(TokenFault::Length)
    }
}
