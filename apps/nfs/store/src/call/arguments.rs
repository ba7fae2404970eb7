//! Arguments of a procedure as a call owns them, so that they outlive the message that they came in
//! and may move to another thread.

use std::fmt;

use stag_protocol::nfs::v3::{DirOpArgs, FileHandle, Name};

use crate::{NameIn, WritePayload};

/// Bytes stored of a name: one more than any store accepts, so that a longer name stays too long.
const NAME_LEN: usize = 256;

/// A name that borrows nothing.
#[derive(Clone, Copy)]
pub struct OwnedName {
    len: u16,
    octets: [u8; NAME_LEN],
}

impl OwnedName {
    /// Copies a name. One that is too long for any store is truncated, and still too long.
    pub fn new(name: &[u8]) -> Self {
        let mut octets = [0; NAME_LEN];
        let len = name.len().min(NAME_LEN);
        octets.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
        Self { len: len as u16, octets }
    }

    /// The name.
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The name in a directory, as version 3 has it.
    pub(super) fn argument(&self, directory: &FileHandle) -> DirOpArgs<'_> {
        DirOpArgs { dir: *directory, name: Name(self.octets()) }
    }
}

impl fmt::Debug for OwnedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedName({:?})", String::from_utf8_lossy(self.octets()))
    }
}

/// A name in a directory that borrows nothing.
#[derive(Clone, Copy, Debug)]
pub struct OwnedNameIn {
    /// The directory.
    pub directory: FileHandle,
    /// The name.
    pub name: OwnedName,
}

/// Takes the place of bytes of any length, which are lent from the shard's memory with the call
/// ([`StoreCall::payload`](crate::StoreCall::payload)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LentArgument;

/// An argument of a procedure that can be kept as an `Owned`.
pub trait Own<Owned> {
    /// The argument as a call owns it.
    fn own(&self) -> Owned;

    /// Its bytes, which the caller lends with the call, if it takes [their place](LentArgument)
    /// there.
    fn lent(&self) -> Option<&[u8]> {
        None
    }
}

/// An argument owned by a call, of which the procedure takes a `Borrowed`.
pub trait Lend<'a, Borrowed> {
    /// The argument as the procedure takes it; `payload` are the bytes lent with the call.
    fn lend(&'a self, payload: &'a [u8]) -> Borrowed;
}

impl<T: Copy> Own<T> for T {
    fn own(&self) -> T {
        *self
    }
}

impl<'a, T: Copy> Lend<'a, T> for T {
    fn lend(&'a self, _payload: &'a [u8]) -> T {
        *self
    }
}

impl<T: Copy> Own<T> for &T {
    fn own(&self) -> T {
        **self
    }
}

impl<'a, T: Copy> Lend<'a, &'a T> for T {
    fn lend(&'a self, _payload: &'a [u8]) -> &'a T {
        self
    }
}

impl Own<OwnedName> for &[u8] {
    fn own(&self) -> OwnedName {
        OwnedName::new(self)
    }
}

impl<'a> Lend<'a, &'a [u8]> for OwnedName {
    fn lend(&'a self, _payload: &'a [u8]) -> &'a [u8] {
        self.octets()
    }
}

impl Own<OwnedNameIn> for NameIn<'_, &FileHandle> {
    fn own(&self) -> OwnedNameIn {
        OwnedNameIn { directory: *self.directory, name: OwnedName::new(self.name) }
    }
}

impl<'a> Lend<'a, NameIn<'a, &'a FileHandle>> for OwnedNameIn {
    fn lend(&'a self, _payload: &'a [u8]) -> NameIn<'a, &'a FileHandle> {
        NameIn::new(&self.directory, self.name.octets())
    }
}

impl Own<LentArgument> for &[u8] {
    fn own(&self) -> LentArgument {
        LentArgument
    }

    fn lent(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl<'a> Lend<'a, &'a [u8]> for LentArgument {
    fn lend(&'a self, payload: &'a [u8]) -> &'a [u8] {
        payload
    }
}

impl Own<LentArgument> for WritePayload<'_> {
    fn own(&self) -> LentArgument {
        LentArgument
    }

    fn lent(&self) -> Option<&[u8]> {
        Some(self.octets)
    }
}

impl<'a> Lend<'a, WritePayload<'a>> for LentArgument {
    fn lend(&'a self, payload: &'a [u8]) -> WritePayload<'a> {
        WritePayload::from(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::nfs::v3::PATH_MAX;

    #[test]
    fn a_name_that_is_too_long_stays_too_long() {
        for len in [0, 1, 255, 256, 257, PATH_MAX] {
            let name = vec![b'n'; len];
            let owned = OwnedName::new(&name);
            assert_eq!(owned.octets().len(), len.min(256));
            assert!(name.starts_with(owned.octets()));
        }
    }
}
