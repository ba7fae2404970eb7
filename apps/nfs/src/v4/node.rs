//! Objects that filehandles of version 4 name: the root of all exports, and objects of the store
//! (RFC 8881 §4).

use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Handle4, Status4},
};

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// The directory that has an entry for each export (RFC 8881 §7.3).
    Root,
    /// An object of the store.
    Object(FileHandle),
}

/// The handle of the root. Those of stores end with a tag and are longer. It is no secret:
/// PUTROOTFH gives it to everybody.
const ROOT: &[u8] = b"stag";

impl Node {
    /// The object that a handle names. The store judges its own handles.
    ///
    /// # Errors
    /// NFS4ERR_BADHANDLE for one that nobody made.
    pub(super) fn of(handle: &Handle4<'_>) -> Result<Self, Status4> {
        match handle.0 {
            ROOT => Ok(Self::Root),
            [] => Err(Status4::BadHandle),
            octets => FileHandle::new(octets).map(Self::Object).ok_or(Status4::BadHandle),
        }
    }

    /// Its handle.
    pub(super) fn handle(&self) -> Handle4<'_> {
        stag_protocol::nfs::v4::Text(match self {
            Self::Root => ROOT,
            Self::Object(handle) => handle.octets(),
        })
    }

    /// The handle that the store knows it by.
    ///
    /// # Errors
    /// `otherwise` for the root, which is no object of the store.
    pub(super) fn object(&self, otherwise: Status4) -> Result<FileHandle, Status4> {
        match self {
            Self::Root => Err(otherwise),
            Self::Object(handle) => Ok(*handle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_the_object_that_it_was_made_of() {
        let object = Node::Object(FileHandle::new(&[7; 64]).unwrap());
        for node in [Node::Root, object] {
            assert_eq!(Node::of(&node.handle()), Ok(node));
        }
        for octets in [&[][..], &[7; 65]] {
            let handle = stag_protocol::nfs::v4::Text(octets);
            assert_eq!(Node::of(&handle), Err(Status4::BadHandle));
        }
    }
}
