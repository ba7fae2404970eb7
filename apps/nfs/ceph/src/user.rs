//! As whom a call is made.

use crate::{abi::RawPerm, library::Library};
use std::{fmt, marker::PhantomData, ptr::null_mut};

/// A user with his groups, as the library judges him. Made for a call or a few, by the thread that
/// makes them. User 0 may do everything.
pub struct UserPerm<'a> {
    library: &'static Library,
    pub(crate) raw: RawPerm,
    /// The library looks at the groups for as long as this lives, and copies nothing.
    groups: PhantomData<&'a [u32]>,
}

impl<'a> UserPerm<'a> {
    /// The user `uid` with the group `gid` and these others.
    ///
    /// # Panics
    /// When there are more than 2³¹ groups, or no memory for a few words.
    pub fn new(library: &'static Library, uid: u32, gid: u32, groups: &'a [u32]) -> Self {
        let count = i32::try_from(groups.len()).expect("a caller has few groups");
        let list = if groups.is_empty() { null_mut() } else { groups.as_ptr().cast_mut() };
        // SAFETY: the list outlives the object, as its lifetime says, and the library only reads
        // it.
        let raw = unsafe { (library.ceph_userperm_new)(uid, gid, count, list) };
        assert!(!raw.is_null(), "no memory for a user");
        Self { library, raw, groups: PhantomData }
    }

    /// Root.
    pub fn root(library: &'static Library) -> Self {
        Self::new(library, 0, 0, &[])
    }
}

impl Drop for UserPerm<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`, and calls that use it borrow it.
        unsafe { (self.library.ceph_userperm_destroy)(self.raw) };
    }
}

impl fmt::Debug for UserPerm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserPerm")
    }
}
