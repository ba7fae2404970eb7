//! File handles: names of files between client and server (`nfs_fh3`, RFC 1813 §2.6).

use core::fmt;

use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// Up to 64 octets that mean something to the server only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    len: u8,
    /// Zero past `len`, so that equal handles are equal in memory.
    octets: [u8; Self::MAX],
}

impl FileHandle {
    /// Octets of the longest handle (`NFS3_FHSIZE`, RFC 1813 §2.4).
    pub const MAX: usize = 64;

    /// A handle of these octets; `None` when there are more than [`FileHandle::MAX`].
    #[inline]
    pub fn new(octets: &[u8]) -> Option<Self> {
        let mut handle = Self { len: u8::try_from(octets.len()).ok()?, octets: [0; Self::MAX] };
        handle.octets.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(handle)
    }

    /// The octets, 0 to 64 of them. A server never makes an empty handle, but a client may send
    /// one.
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..usize::from(self.len)).expect("`new` checked the length")
    }
}

impl Codec<'_> for FileHandle {
    #[inline]
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        // RFC 1813 §2.4 [1813-1]: a file handle has at most 64 octets
        Self::new(reader.opaque(Self::MAX)?).ok_or(Error::TooLong)
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.opaque(self.octets())
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileHandle(")?;
        for octet in self.octets() {
            write!(f, "{octet:02x}")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::survives;
    use std::{format, vec};

    #[test]
    fn handles_of_every_length_survive_and_longer_ones_do_not() {
        for len in 0..=64 {
            let wire = survives!(FileHandle::new(&vec![7; len]).unwrap(), FileHandle);
            assert_eq!(wire.len(), 4 + len.next_multiple_of(4));
        }
        for len in [65, 255, 256, 320] {
            assert_eq!(FileHandle::new(&vec![7; len]), None);
        }
        for len in [65, u32::MAX] {
            let mut wire = [0; 4 + 68];
            wire[..4].copy_from_slice(&len.to_be_bytes());
            assert_eq!(FileHandle::parse(&mut Reader::new(&wire)), Err(Error::TooLong));
        }
    }

    #[test]
    fn a_handle_has_these_octets() {
        let handle = FileHandle::new(&[1, 2, 3, 4, 5]).unwrap();
        assert_eq!(survives!(handle, FileHandle), [0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(format!("{handle:?}"), "FileHandle(0102030405)");
        assert_ne!(handle, FileHandle::new(&[1, 2, 3, 4, 5, 0]).unwrap());
    }
}
