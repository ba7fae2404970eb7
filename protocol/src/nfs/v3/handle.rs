//! The name of a file between client and server (`nfs_fh3`, RFC 1813 §2.6).

use core::fmt;

use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// Up to 64 octets that mean something to the server only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    len: u8,
    /// Zero behind `len`, so that equal handles are equal in memory.
    octets: [u8; Self::MAX],
}

impl FileHandle {
    /// Octets of the longest handle (`NFS3_FHSIZE`, RFC 1813 §2.4).
    pub const MAX: usize = 64;

    /// A handle of these octets; `None` when there are more than [`FileHandle::MAX`].
    pub fn new(octets: &[u8]) -> Option<Self> {
        let mut handle = Self { len: u8::try_from(octets.len()).ok()?, octets: [0; Self::MAX] };
        handle.octets.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(handle)
    }

    /// The octets, 0 to 64 of them. A server never makes an empty handle, but a client may send one.
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..usize::from(self.len)).expect("`new` checked the length")
    }
}

impl Codec<'_> for FileHandle {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
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
