//! Memory windows.

use super::{Domain, is_gone, made};
use crate::sys::{ibv_mw, ibv_mw_type};
use std::{io, ptr, rc::Rc};

/// A type-2 memory window.
#[derive(Debug)]
pub(crate) struct MemoryWindow {
    pub(super) domain: Rc<Domain>,
    /// Null: it was given back.
    pub(super) raw: *mut ibv_mw,
}

impl MemoryWindow {
    pub(crate) fn new(domain: &Rc<Domain>) -> io::Result<Self> {
        // RFC 5042 §6.1.1 [5042-8]: an STag limited to one stream is refused on others
        // SAFETY: the domain is there.
        let raw = unsafe { domain.device.library.alloc_mw(domain.raw, ibv_mw_type::IBV_MW_TYPE_2) };
        let raw = made(raw.ok_or(io::ErrorKind::Unsupported)?)
            .map_err(|error| domain.device.failed("ibv_alloc_mw", error))?;
        Ok(Self { domain: Rc::clone(domain), raw })
    }

    /// The key it was bound with last.
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: the window is there.
        unsafe { (*self.raw).rkey }
    }

    /// Notes the key of a bind that was handed to the device: the next bind has to name the window
    /// by it.
    pub(crate) fn set_key(&mut self, key: u32) {
        // SAFETY: the window is there, and this is its only owner.
        unsafe { (*self.raw).rkey = key };
    }

    pub(crate) const fn raw(&self) -> *mut ibv_mw {
        self.raw
    }

    /// Frees it; a bound one may be. When the device keeps it, it comes back: its key may still
    /// open what it was bound to.
    pub(crate) fn free(mut self) -> Result<(), Self> {
        // SAFETY: the window is there, and is not used again when it was freed.
        let code = unsafe { self.domain.device.library.dealloc_mw(self.raw) };
        if !is_gone(code) {
            return Err(self);
        }
        self.raw = ptr::null_mut();
        Ok(())
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: it is freed once. One that the device keeps stays: whoever bound it keeps its
            // memory away from others.
            unsafe { self.domain.device.library.dealloc_mw(self.raw) };
        }
    }
}
