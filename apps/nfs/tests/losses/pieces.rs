//! Files in pieces, and the known state of each piece.

use stag_protocol::nfs::v3::Verifier;

/// Octets from one piece to the next.
pub const STRIDE: usize = 12_288;

/// Knowledge that a writer has about the content of its piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceState {
    /// The version is on stable storage.
    Stable,
    /// It was acknowledged with this verifier and is to be committed.
    Unstable(Verifier),
    /// The verifier has changed: the version has to be written again.
    Lost,
}

/// A part of a file with one writer, which writes one version after the other.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub file: usize,
    /// Its place in the file.
    pub place: usize,
    pub len: usize,
    /// The latest version that was written; 0 is zeros.
    pub version: u32,
    /// The latest version that is on stable storage for sure.
    pub durable: u32,
    pub known: PieceState,
}

impl Piece {
    pub const fn offset(&self) -> usize {
        self.place * STRIDE
    }

    /// The octets of a version.
    pub fn octets(&self, version: u32) -> Vec<u8> {
        if version == 0 {
            return vec![0; self.len];
        }
        let word = (version * 64 + (self.file * 16 + self.place) as u32).to_be_bytes();
        let octets = (0..self.len).map(|i| if i % 8 < 4 { word[i % 4] } else { (i / 8) as u8 });
        octets.collect()
    }
}
