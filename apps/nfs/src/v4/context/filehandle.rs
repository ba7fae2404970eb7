//! Objects that filehandles of version 4 refer to: directories of the pseudo file system, and
//! objects of the store (RFC 8881 §4).

use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Handle4, Status4},
};

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::v4) enum Node {
    /// A directory that leads to exports (RFC 8881 §7.3).
    Pseudo(PseudoHandle),
    /// An object of the store.
    Object(FileHandle),
}

/// The handle of a directory of the pseudo file system: a mark, followed by the number of a
/// directory other than the root. Handles of stores end with a tag of 16 octets, and are longer. It
/// is no secret: any client that may see an export beneath the directory gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::v4) struct PseudoHandle([u8; Self::MARK.len() + 8]);

impl PseudoHandle {
    const MARK: [u8; 4] = *b"stag";
    /// The root of all exports.
    pub(in crate::v4) const ROOT: Self = Self::numbered(1);

    /// The handle of the directory of a number.
    pub(in crate::v4) const fn numbered(number: u64) -> Self {
        let [m0, m1, m2, m3] = Self::MARK;
        let [n0, n1, n2, n3, n4, n5, n6, n7] = number.to_be_bytes();
        Self([m0, m1, m2, m3, n0, n1, n2, n3, n4, n5, n6, n7])
    }

    /// The number of the directory in the pseudo file system.
    pub(in crate::v4) const fn number(self) -> u64 {
        let [_, _, _, _, n0, n1, n2, n3, n4, n5, n6, n7] = self.0;
        u64::from_be_bytes([n0, n1, n2, n3, n4, n5, n6, n7])
    }

    /// Parses a handle; none if it is not a directory's.
    fn of(octets: &[u8]) -> Option<Self> {
        match octets.strip_prefix(&Self::MARK)? {
            [] => Some(Self::ROOT),
            number => {
                let handle = Self::numbered(u64::from_be_bytes(number.try_into().ok()?));
                (handle != Self::ROOT).then_some(handle)
            }
        }
    }

    /// The octets that are sent to clients.
    fn octets(&self) -> &[u8] {
        if *self == Self::ROOT { &Self::MARK } else { &self.0 }
    }
}

impl Node {
    /// The root of all exports.
    pub(in crate::v4) const ROOT: Self = Self::Pseudo(PseudoHandle::ROOT);

    /// The object that a handle refers to. The store checks its own handles.
    ///
    /// # Errors
    /// NFS4ERR_BADHANDLE for one that this server did not make.
    pub(in crate::v4) fn of(handle: &Handle4<'_>) -> Result<Self, Status4> {
        match PseudoHandle::of(handle.0) {
            Some(directory) => Ok(Self::Pseudo(directory)),
            None => Self::object_of(handle).map(Self::Object).ok_or(Status4::BadHandle),
        }
    }

    /// The handle of a store's object; none if it refers to a directory of the pseudo file system,
    /// or was not made by this server.
    #[inline]
    pub(in crate::v4) fn object_of(handle: &Handle4<'_>) -> Option<FileHandle> {
        let is_object = !handle.0.is_empty() && PseudoHandle::of(handle.0).is_none();
        if is_object { FileHandle::new(handle.0) } else { None }
    }

    /// Its handle.
    pub(in crate::v4) fn handle(&self) -> Handle4<'_> {
        stag_protocol::nfs::v4::Text(match self {
            Self::Pseudo(directory) => directory.octets(),
            Self::Object(handle) => handle.octets(),
        })
    }

    /// The store's handle of the object.
    ///
    /// # Errors
    /// `otherwise` for a directory of the pseudo file system, which is no object of the store.
    pub(in crate::v4) fn object(&self, otherwise: Status4) -> Result<FileHandle, Status4> {
        match self {
            Self::Pseudo(_) => Err(otherwise),
            Self::Object(handle) => Ok(*handle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_one_handle() {
        let root = stag_protocol::nfs::v4::Text(b"stag\0\0\0\0\0\0\0\x01");
        assert_ne!(Node::of(&root), Ok(Node::ROOT));
    }

    #[test]
    fn a_handle_names_the_object_that_it_was_made_of() {
        let object = Node::Object(FileHandle::new(&[7; 64]).unwrap());
        let directory = Node::Pseudo(PseudoHandle::numbered(u64::MAX >> 1));
        for node in [Node::ROOT, directory, object] {
            assert_eq!(Node::of(&node.handle()), Ok(node));
        }
        assert_eq!(Node::ROOT.handle().0, b"stag", "clients of earlier versions know it");
        for octets in [&[][..], &[7; 65]] {
            let handle = stag_protocol::nfs::v4::Text(octets);
            assert_eq!(Node::of(&handle), Err(Status4::BadHandle));
        }
    }
}
