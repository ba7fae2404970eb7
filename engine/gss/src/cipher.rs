//! AES in CBC mode with ciphertext stealing (RFC 3962 §5), in place and in steps.
//!
//! A message is whole blocks, then a tail of 17 to 32 octets whose two blocks are exchanged. The
//! state between two steps is the last block of ciphertext.

use aes::{
    Aes128Dec, Aes128Enc, Aes256Dec, Aes256Enc, Block,
    cipher::{
        BlockCipherDecrypt, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt,
        BlockSizeUser, KeyInit, consts::U16,
    },
};

/// Octets of a block.
pub(crate) const BLOCK: usize = 16;

/// Blocks that are decrypted at a time; the processor works on several at once.
const BATCH: usize = 32;

/// Octets of the tail of a message of `len` octets, which is longer than a block.
pub(crate) const fn tail_len(len: usize) -> usize {
    match len % BLOCK {
        0 => 2 * BLOCK,
        rest => BLOCK + rest,
    }
}

/// An expanded key that encrypts.
pub(crate) enum EncryptKey {
    Aes128(Aes128Enc),
    Aes256(Aes256Enc),
}

/// An expanded key that decrypts.
pub(crate) enum DecryptKey {
    Aes128(Aes128Dec),
    Aes256(Aes256Dec),
}

impl EncryptKey {
    /// Expands a key of 16 or 32 octets.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let aes256 = || Aes256Enc::new_from_slice(key).ok().map(Self::Aes256);
        Aes128Enc::new_from_slice(key).ok().map(Self::Aes128).or_else(aes256)
    }

    /// Encrypts whole blocks; `last` is the ciphertext in front of them, and of their end after it.
    pub(crate) fn blocks(&self, last: &mut Block, octets: &mut [u8]) {
        match self {
            Self::Aes128(cipher) => encrypt(cipher, last, octets),
            Self::Aes256(cipher) => encrypt(cipher, last, octets),
        }
    }

    /// Encrypts the tail of a message.
    pub(crate) fn tail(&self, mut last: Block, tail: &mut [u8]) {
        let Some((first, end)) = tail.split_first_chunk_mut::<BLOCK>() else { return };
        self.blocks(&mut last, first);
        // RFC 3962 §5 [3962-1]: the last two blocks change places, whole ones, too
        let stolen = *first;
        let mut block = Block::default();
        copy(&mut block, end);
        self.blocks(&mut last, &mut block);
        first.copy_from_slice(&block);
        copy(end, &stolen);
    }
}

impl DecryptKey {
    /// Expands a key of 16 or 32 octets.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let aes256 = || Aes256Dec::new_from_slice(key).ok().map(Self::Aes256);
        Aes128Dec::new_from_slice(key).ok().map(Self::Aes128).or_else(aes256)
    }

    /// Decrypts whole blocks; `last` is the ciphertext in front of them, and of their end after it.
    pub(crate) fn blocks(&self, last: &mut Block, octets: &mut [u8]) {
        match self {
            Self::Aes128(cipher) => decrypt(cipher, last, octets),
            Self::Aes256(cipher) => decrypt(cipher, last, octets),
        }
    }

    /// Decrypts the tail of a message.
    pub(crate) fn tail(&self, last: Block, tail: &mut [u8]) {
        let Some((first, end)) = tail.split_first_chunk_mut::<BLOCK>() else { return };
        // The block in front, without chaining: the end of its plaintext completes the other.
        let mut block = Block::from(*first);
        self.blocks(&mut Block::default(), &mut block);
        let mut before = block;
        copy(&mut before, end);
        for (plain, mask) in end.iter_mut().zip(block) {
            *plain ^= mask;
        }
        self.blocks(&mut { last }, &mut before);
        first.copy_from_slice(&before);
    }
}

fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

fn xor(block: &mut Block, mask: &Block) {
    for (octet, mask) in block.iter_mut().zip(mask) {
        *octet ^= mask;
    }
}

#[inline]
fn encrypt<C>(cipher: &C, last: &mut Block, octets: &mut [u8])
where
    C: BlockCipherEncrypt<BlockSize = U16>,
{
    let (blocks, rest) = Block::slice_as_chunks_mut(octets);
    debug_assert!(rest.is_empty(), "whole blocks");
    cipher.encrypt_with_backend(Chain { last, blocks });
}

/// Blocks to encrypt, each masked by the one in front of it. The processor's instructions are
/// chosen once for all of them.
struct Chain<'c> {
    last: &'c mut Block,
    blocks: &'c mut [Block],
}

impl BlockSizeUser for Chain<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Chain<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut last = *self.last;
        for block in self.blocks {
            xor(block, &last);
            backend.encrypt_block(block.into());
            last = *block;
        }
        *self.last = last;
    }
}

#[inline]
fn decrypt<C>(cipher: &C, last: &mut Block, octets: &mut [u8])
where
    C: BlockCipherDecrypt<BlockSize = U16>,
{
    let (blocks, rest) = Block::slice_as_chunks_mut(octets);
    debug_assert!(rest.is_empty(), "whole blocks");
    let mut masks = [Block::default(); BATCH];
    for batch in blocks.chunks_mut(BATCH) {
        for (mask, block) in masks.iter_mut().zip(&*batch) {
            *mask = core::mem::replace(last, *block);
        }
        cipher.decrypt_blocks(batch);
        for (block, mask) in batch.iter_mut().zip(&masks) {
            xor(block, mask);
        }
    }
}
