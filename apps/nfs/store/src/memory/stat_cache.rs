//! A direct-mapped cache of encoded attributes for version 4 (`fattr4`, RFC 8881 §3.3.7), by the
//! index of the inode. Its size is fixed, so that an inode takes no more memory. `tree.rs` keeps it
//! current.

use stag_protocol::nfs::v4::{StatOctets, Time4};

use super::handle::InodeId;

/// Number of places, a power of two.
const PLACES: usize = 256;

/// An object and its attributes.
#[derive(Clone, Copy, Debug)]
struct CachedStat {
    object: InodeId,
    octets: StatOctets,
}

/// See the module.
#[derive(Debug)]
pub(super) struct StatCache {
    places: Box<[Option<CachedStat>]>,
}

impl StatCache {
    pub(super) fn new() -> Self {
        Self { places: vec![None; PLACES].into() }
    }

    /// The place of an object, which may hold another one.
    #[inline]
    fn place(&mut self, object: InodeId) -> &mut Option<CachedStat> {
        let at = object.index as usize % PLACES;
        self.places.get_mut(at).expect("the remainder is below the number of places")
    }

    /// The attributes of an object; calls `make` if they are not cached.
    #[inline]
    pub(super) fn get_or_make(
        &mut self,
        object: InodeId,
        make: impl FnOnce() -> StatOctets,
    ) -> &StatOctets {
        let place = self.place(object);
        if place.is_none_or(|cached| cached.object != object) {
            *place = Some(CachedStat { object, octets: make() });
        }
        &place.as_ref().expect("it was just filled").octets
    }

    /// The attributes of an object, if they are cached.
    #[inline]
    fn get_mut(&mut self, object: InodeId) -> Option<&mut StatOctets> {
        let cached = self.place(object).as_mut().filter(|cached| cached.object == object);
        cached.map(|cached| &mut cached.octets)
    }

    /// Forgets the attributes of an object, which is about to be changed.
    #[inline]
    pub(super) fn forget(&mut self, object: InodeId) {
        let place = self.place(object);
        if place.as_ref().is_some_and(|cached| cached.object == object) {
            *place = None;
        }
    }

    /// Records a read of an object's content.
    #[inline]
    pub(super) fn set_time_access(&mut self, object: InodeId, time: Time4) {
        if let Some(octets) = self.get_mut(object) {
            octets.set_time_access(time);
        }
    }
}
