//! Names in a directory (`filename3`, `diropargs3`, RFC 1813 §2.5, §2.6).

use core::fmt;

use super::FileHandle;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, structure};

/// A name in a directory, as received: any octets, empty, `.`, `..` or with a slash in it. The
/// server decides which are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<'a>(pub &'a [u8]);

impl Name<'_> {
    /// Octets of the longest name that is parsed. The protocol sets no limit; this one is far above
    /// any file system's limit, so that a name too long gets NFS3ERR_NAMETOOLONG, not GARBAGE_ARGS.
    pub const MAX: usize = 4096;
}

impl<'a> Codec<'a> for Name<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        // RFC 4506 §4.11 [4506-13]: a string is opaque data; its program interprets it
        reader.opaque(Self::MAX).map(Self)
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        debug_assert!(self.0.len() <= Self::MAX, "a name is at most 4096 octets");
        writer.opaque(self.0)
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A name and the directory it is in (`diropargs3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirOpArgs<'a> {
    /// The directory.
    pub dir: FileHandle,
    /// The name in it.
    pub name: Name<'a>,
}

structure!(DirOpArgs<'a> { dir, name });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::survives;
    use std::vec;

    #[test]
    fn names_of_any_sane_length_survive_so_that_the_server_can_judge_them() {
        for len in [0, 1, 255, 256, Name::MAX] {
            survives!(Name(&vec![b'n'; len]), Name<'_>);
        }
        let mut wire = vec![0; Name::MAX + 8];
        wire[..4].copy_from_slice(&4097_u32.to_be_bytes());
        assert_eq!(Name::parse(&mut Reader::new(&wire)), Err(Error::TooLong));
    }
}
