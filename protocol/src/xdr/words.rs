//! Words of the wire and their meaning, for items that are read or written several at a time, and
//! the padding to whole words.

use super::Error;

/// Octets from `len` to the next multiple of four (RFC 4506 §3).
pub const fn pad(len: usize) -> usize {
    // RFC 4506 §3 [4506-1]: every item takes a multiple of four octets
    len.wrapping_neg() & 3
}

/// `len` rounded up to a multiple of four; saturates.
pub const fn padded(len: usize) -> usize {
    len.saturating_add(pad(len))
}

/// The words that these octets are (RFC 4506 §4.2).
#[inline]
pub(crate) fn words<const OCTETS: usize, const WORDS: usize>(
    octets: &[u8; OCTETS],
) -> [u32; WORDS] {
    const { assert!(OCTETS == 4 * WORDS) };
    let mut words = [0; WORDS];
    for (word, octets) in words.iter_mut().zip(octets.as_chunks().0) {
        *word = u32::from_be_bytes(*octets);
    }
    words
}

/// The unsigned hyper integer of these words (RFC 4506 §4.5).
pub(crate) const fn hyper(high: u32, low: u32) -> u64 {
    ((high as u64) << 32) | low as u64
}

/// The words of an unsigned hyper integer.
pub(crate) const fn halves(value: u64) -> [u32; 2] {
    [(value >> 32) as u32, value as u32]
}

/// The boolean of this value (RFC 4506 §4.4).
#[inline]
pub(crate) const fn boolean(value: u32) -> Result<bool, Error> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        // RFC 4506 §4.4 [4506-7]: a boolean is 0 or 1
        _ => Err(Error::BadValue),
    }
}

/// Splits variable-length opaque data of at most `max` octets off the front of `octets`, if all of
/// it is there.
#[inline]
pub(crate) fn split_opaque(octets: &[u8], max: usize) -> Option<(&[u8], &[u8])> {
    let (len, rest) = octets.split_first_chunk()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok().filter(|len| *len <= max)?;
    let (item, rest) = rest.split_at_checked(len)?;
    Some((item, rest.get(pad(len)..)?))
}
