//! Objects of a device. Each releases itself when it is dropped, and keeps alive the objects that
//! it was made from.

pub(crate) mod pair;
mod queues;
mod region;
#[cfg(test)]
pub(crate) mod tests;
mod window;

pub(crate) use pair::{QueuePair, Queues, no_attr};
pub(crate) use queues::{Completions, SharedQueue};
pub(crate) use region::MemoryRegion;
pub(crate) use window::{MadeAgain, MemoryWindow};

use crate::library::{Library, Unavailable};
use crate::sys::{
    ibv_async_event, ibv_context, ibv_device, ibv_device_attr, ibv_device_cap_flags,
    ibv_event_type as event, ibv_mw_type, ibv_pd, ibv_qp, ibv_srq_attr, ibv_srq_init_attr,
    ibv_transport_type, ibv_wc_flags,
};
use libc::c_int;
use stag_verbs::{Limits, VerbFault};
use std::{
    ffi::CStr,
    fs::OpenOptions,
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    ptr,
    sync::Arc,
};

/// Name and capabilities of a device, as it reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAbout {
    /// Its name, e.g. `rxe0`.
    pub name: String,
    /// True for an iWARP device; false for InfiniBand or RoCE.
    pub is_iwarp: bool,
    /// True if windows can be bound to a connection and invalidated by its peer (type 2): one was
    /// made, whatever the device says of itself.
    pub has_windows: bool,
    /// True if a Send can invalidate a key of the peer.
    pub sends_invalidation: bool,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Work requests of one queue.
    pub queue_depth: usize,
    /// Entries of one completion queue.
    pub completions: usize,
    /// Receives of one shared queue; 0 where none can be made.
    pub receives: usize,
    /// Windows.
    pub windows: usize,
    /// Memory regions.
    pub regions: usize,
    /// Reads in flight at a time, of the peer and of ours.
    pub reads: u8,
    /// The flags of a completion of which any says that the peer invalidated a key.
    pub(crate) invalidation_flags: u32,
    /// True if the sink of a Read has to grant the peer remote write.
    pub(crate) wants_sinks: bool,
    /// True if posting and arming are system calls: of devices that are software.
    pub(crate) is_soft: bool,
}

impl DeviceAbout {
    /// Sentences about its missing capabilities, for a provider with these limits.
    pub(crate) fn notices(&self, limits: &Limits) -> Vec<String> {
        let (name, mut told) = (&self.name, Vec::new());
        if let Some(each) = limits.receives_each {
            told.push(format!(
                "{name} has no shared receive queue: {} connections on each core, with {each} \
                 receives each",
                limits.connections
            ));
        }
        if !limits.sends_invalidation {
            told.push(format!("{name} sends no invalidations: clients end their keys themselves"));
        }
        if !self.has_windows && limits.windows > 0 {
            told.push(format!(
                "{name} has no memory windows: memory is registered for each call, and one host is \
                 called at a time"
            ));
        }
        told
    }
}

/// An asynchronous event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceEvent {
    pub(crate) number: c_int,
    /// The context of the queue pair that it is about, or the number of the port; else 0.
    pub(crate) of: u64,
}

/// The vendor that the kernel's software device for iWARP (siw) says it has.
const SIW_VENDOR: u32 = 0x62_6d74;

/// Intel: irdma binds windows of type 2, and its kernel driver does not say so. (mana's library
/// makes windows, too, and cannot bind them.)
const INTEL_VENDOR: u32 = 0x8086;

/// The vendor that the kernel's software device for RoCE (rxe) says it has.
const RXE_VENDOR: u32 = 0xff_ffff;
/// The kernel's number of `IBV_WC_WITH_INV`, which rxe puts unchanged into completions of programs.
/// There it means a checksum that only datagrams have.
const RXE_INVALIDATION_FLAG: u32 = 1 << 2;

/// A failed call that returned an error number.
fn failed(code: c_int) -> io::Error {
    io::Error::from_raw_os_error(code.abs())
}

/// Turns a null pointer into the last error of the operating system.
fn made<T>(pointer: *mut T) -> io::Result<*mut T> {
    if pointer.is_null() { Err(io::Error::last_os_error()) } else { Ok(pointer) }
}

/// Lets reads of `fd` return at once.
pub(crate) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: rdma-core keeps the descriptor open as long as what it belongs to, which the caller
    // holds.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// Closes the descriptors of a context that librdmacm has open on a device that was removed.
///
/// librdmacm closes a device only when it has seen another one appear or go, and some drivers make
/// the kernel wait for that (rxe, siw). The descriptors stay in use, for the null device, until
/// librdmacm closes them.
///
/// # Safety
/// `context` is an open device context of librdmacm, and an identifier holds it.
pub(crate) unsafe fn let_go(context: *mut ibv_context) {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    // Without it the kernel waits until this process ends.
    let Ok(null) = null else { return };
    // SAFETY: the caller's promise.
    let context = unsafe { &*context };
    for fd in [context.cmd_fd, context.async_fd].into_iter().filter(|fd| *fd >= 0) {
        // SAFETY: the descriptor is the context's, which asks for nothing but to give back what
        // identifiers had, and takes any answer to that.
        unsafe { libc::dup3(null.as_raw_fd(), fd, libc::O_CLOEXEC) };
    }
}

/// The name of the device that `context` is open on.
///
/// # Safety
/// `context` is an open device context.
pub(crate) unsafe fn name_of(context: *mut ibv_context) -> String {
    // SAFETY: the caller's promise.
    let device = unsafe { (*context).device };
    // SAFETY: an open context keeps its device.
    unsafe { device_name(device) }
}

/// # Safety
/// `device` is in a device list that is not freed, or has an open context.
unsafe fn device_name(device: *mut ibv_device) -> String {
    // SAFETY: the caller's promise.
    let name = unsafe { &raw const (*device).name };
    // SAFETY: the name ends with a zero inside the array.
    let name = unsafe { CStr::from_ptr(name.cast()) };
    name.to_string_lossy().into_owned()
}

/// An open device: a context of our own, so that its asynchronous events are ours alone.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) library: &'static Library,
    raw: *mut ibv_context,
    pub(crate) about: DeviceAbout,
}

// SAFETY: libibverbs lets any thread call for an open device, and several at a time.
unsafe impl Send for Device {}
// SAFETY: as above; the fields do not change.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device once more that librdmacm has open as `context`.
    ///
    /// # Safety
    /// `context` is an open device context.
    pub(crate) unsafe fn like(
        library: &'static Library,
        context: *mut ibv_context,
    ) -> io::Result<Arc<Self>> {
        // SAFETY: the caller's promise.
        let device = unsafe { (*context).device };
        Self::open(library, device)
    }

    /// Opens the first device there is.
    pub(crate) fn first(library: &'static Library) -> io::Result<Arc<Self>> {
        let mut count = 0;
        // SAFETY: `count` is written to; the list is freed below.
        let list = unsafe { (library.ibv_get_device_list)(&raw mut count) };
        if list.is_null() {
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(io::Error::new(io::ErrorKind::NotFound, Unavailable::NoKernel { errno }));
        }
        let opened = if count > 0 {
            // SAFETY: the list has `count` entries.
            let device = unsafe { *list };
            Self::open(library, device)
        } else {
            Err(io::Error::new(io::ErrorKind::NotFound, Unavailable::NoDevice))
        };
        // SAFETY: `list` is the one from above, and is not used any more. Open devices stay.
        unsafe { (library.ibv_free_device_list)(list) };
        opened
    }

    fn open(library: &'static Library, device: *mut ibv_device) -> io::Result<Arc<Self>> {
        // SAFETY: `device` is in a device list that is not freed, or has an open context.
        let opened = made(unsafe { (library.ibv_open_device)(device) });
        let raw = opened.map_err(|error| {
            // SAFETY: as above.
            let name = unsafe { device_name(device) };
            VerbFault::name("ibv_open_device", &name, error)
        })?;
        let about = DeviceAbout {
            name: String::new(),
            is_iwarp: false,
            has_windows: false,
            sends_invalidation: false,
            queue_pairs: 0,
            queue_depth: 0,
            completions: 0,
            receives: 0,
            windows: 0,
            regions: 0,
            reads: 0,
            invalidation_flags: 0,
            wants_sinks: false,
            is_soft: false,
        };
        let mut opened = Self { library, raw, about };
        opened.about = opened.ask()?;
        opened.try_out();
        set_nonblocking(opened.async_fd())?;
        Ok(Arc::new(opened))
    }

    fn ask(&self) -> io::Result<DeviceAbout> {
        let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is open, `attr` is written to.
        let code = unsafe { (self.library.ibv_query_device)(self.raw, attr.as_mut_ptr()) };
        if code != 0 {
            // SAFETY: the context is open.
            let name = unsafe { name_of(self.raw) };
            return Err(VerbFault::name("ibv_query_device", &name, failed(code)));
        }
        // SAFETY: it was filled; every bit pattern of its integers is valid.
        let attr = unsafe { attr.assume_init() };
        // SAFETY: the context is open.
        let alloc_mw = unsafe { (*self.raw).ops.alloc_mw };
        // SAFETY: the context is open.
        let device = unsafe { (*self.raw).device };
        // SAFETY: an open context keeps its device.
        let transport = unsafe { (*device).transport_type };
        let is_iwarp = transport == ibv_transport_type::IBV_TRANSPORT_IWARP;
        let type_2 = ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A
            | ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B;
        let size = |count: c_int| usize::try_from(count).unwrap_or(0);
        let reads = attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom).clamp(1, 255);
        Ok(DeviceAbout {
            // SAFETY: the context is open.
            name: unsafe { name_of(self.raw) },
            is_iwarp,
            wants_sinks: is_iwarp && attr.vendor_id != SIW_VENDOR,
            is_soft: matches!(attr.vendor_id, SIW_VENDOR | RXE_VENDOR),
            has_windows: (attr.device_cap_flags & type_2 != 0 || attr.vendor_id == INTEL_VENDOR)
                && alloc_mw.is_some()
                && attr.max_mw > 0,
            // siw's library sends the wrong key (that of `wr.rdma`), and the kernel's siw lets a
            // peer invalidate more than windows.
            sends_invalidation: attr.vendor_id != SIW_VENDOR
                && attr.device_cap_flags & ibv_device_cap_flags::IBV_DEVICE_MEM_MGT_EXTENSIONS != 0,
            queue_pairs: size(attr.max_qp),
            queue_depth: size(attr.max_qp_wr),
            completions: size(attr.max_cqe),
            receives: size(attr.max_srq_wr),
            windows: size(attr.max_mw),
            regions: size(attr.max_mr),
            reads: u8::try_from(reads).unwrap_or(u8::MAX),
            invalidation_flags: ibv_wc_flags::IBV_WC_WITH_INV
                | if attr.vendor_id == RXE_VENDOR { RXE_INVALIDATION_FLAG } else { 0 },
        })
    }

    /// Makes one each of the objects that some drivers claim to support but fail to make, and frees
    /// it: a window (bnxt_re, hns), a shared receive queue (cxgb4 before T6).
    fn try_out(&mut self) {
        // SAFETY: the context is open.
        let Ok(domain) = made(unsafe { (self.library.ibv_alloc_pd)(self.raw) }) else { return };
        if self.about.has_windows {
            // SAFETY: the domain is there.
            let window = unsafe { self.library.alloc_mw(domain, ibv_mw_type::IBV_MW_TYPE_2) };
            let window = window.filter(|window| !window.is_null());
            self.about.has_windows = window.is_some();
            if let Some(window) = window {
                // SAFETY: it was just made, and is given back once.
                unsafe { self.library.dealloc_mw(window) };
            }
        }
        let attr = ibv_srq_attr { max_wr: 1, max_sge: 1, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is there, `init` is written to.
        match made(unsafe { (self.library.ibv_create_srq)(domain, &raw mut init) }) {
            // SAFETY: it was just made, and is given back once.
            Ok(queue) => _ = unsafe { (self.library.ibv_destroy_srq)(queue) },
            Err(_) => self.about.receives = 0,
        }
        // SAFETY: nothing of it is left.
        unsafe { (self.library.ibv_dealloc_pd)(domain) };
    }

    fn async_fd(&self) -> RawFd {
        // SAFETY: the context is open.
        unsafe { (*self.raw).async_fd }
    }

    /// The error of a verb on this device.
    pub(crate) fn failed(&self, verb: &'static str, error: io::Error) -> io::Error {
        VerbFault::name(verb, &self.about.name, error)
    }

    /// Readable when there is an asynchronous event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the context, which `self` holds.
        unsafe { BorrowedFd::borrow_raw(self.async_fd()) }
    }

    /// The next asynchronous event.
    pub(crate) fn next_event(&self) -> Option<DeviceEvent> {
        let mut event = ibv_async_event { element: ptr::null_mut(), event_type: 0 };
        // SAFETY: the context is open, `event` is written to.
        let code = unsafe { (self.library.ibv_get_async_event)(self.raw, &raw mut event) };
        if code != 0 {
            return None;
        }
        let of_queue_pair = matches!(
            event.event_type,
            event::IBV_EVENT_QP_FATAL
                | event::IBV_EVENT_QP_REQ_ERR
                | event::IBV_EVENT_QP_ACCESS_ERR
                | event::IBV_EVENT_COMM_EST
                | event::IBV_EVENT_SQ_DRAINED
                | event::IBV_EVENT_PATH_MIG
                | event::IBV_EVENT_PATH_MIG_ERR
                | event::IBV_EVENT_QP_LAST_WQE_REACHED
        );
        let of_port = matches!(
            event.event_type,
            event::IBV_EVENT_PORT_ERR | event::IBV_EVENT_PORT_ACTIVE | event::IBV_EVENT_GID_CHANGE
        );
        let of = if of_queue_pair {
            // SAFETY: a queue pair cannot be destroyed while an event of it is not acknowledged.
            unsafe { (*event.element.cast::<ibv_qp>()).qp_context }.addr() as u64
        } else if of_port {
            // SAFETY: C has a union here, whose field for these events is a number.
            u64::from(unsafe { (&raw const event.element).cast::<u32>().read() })
        } else {
            0
        };
        // SAFETY: it was given above, and is acknowledged once.
        unsafe { (self.library.ibv_ack_async_event)(&raw mut event) };
        Some(DeviceEvent { number: event.event_type, of })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: everything made from this context holds an `Arc` of it, so nothing is left.
        unsafe { (self.library.ibv_close_device)(self.raw) };
    }
}

/// A protection domain: what is in another one cannot be reached through it.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) device: Arc<Device>,
    raw: *mut ibv_pd,
}

// SAFETY: libibverbs lets any thread call for a protection domain, and several at a time.
unsafe impl Send for Domain {}
// SAFETY: as above; the fields do not change.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn new(device: &Arc<Device>) -> io::Result<Arc<Self>> {
        // SAFETY: the context is open.
        let raw = made(unsafe { (device.library.ibv_alloc_pd)(device.raw) })
            .map_err(|error| device.failed("ibv_alloc_pd", error))?;
        Ok(Arc::new(Self { device: Arc::clone(device), raw }))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: everything made in this domain holds an `Arc` of it, so nothing is left.
        unsafe { (self.device.library.ibv_dealloc_pd)(self.raw) };
    }
}

/// Returns true if a destroyed object is gone: by this call, or together with its device. Memory is
/// released on the strength of this.
fn is_gone(code: c_int) -> bool {
    matches!(code.abs(), 0 | libc::EIO | libc::ENODEV)
}
