//! What a device lends us. Each thing gives itself back when it is dropped, and keeps alive what it was made from.

pub(crate) mod pair;

pub(crate) use pair::{QueuePair, Queues, no_attr};

use crate::library::{AsyncEvent, Library, Unavailable};
use libc::{c_int, c_void};
use rdma_sys::{
    ibv_access_flags, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr,
    ibv_device_cap_flags, ibv_mr, ibv_mw, ibv_mw_type, ibv_pd, ibv_qp, ibv_recv_wr, ibv_sge, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr, ibv_transport_type, ibv_wc, ibv_wc_flags,
};
use stag_pools::{Buf, Pool, PoolId};
use std::{
    ffi::CStr,
    io,
    mem::MaybeUninit,
    os::fd::{BorrowedFd, RawFd},
    ptr::{self, NonNull},
    rc::Rc,
};

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name, e.g. `rxe0`.
    pub name: String,
    /// Whether it speaks iWARP; else InfiniBand or RoCE.
    pub is_iwarp: bool,
    /// Whether windows can be bound to a connection and invalidated by its peer (type 2).
    pub has_windows: bool,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Work requests of one queue.
    pub queue_depth: usize,
    /// Entries of one completion queue.
    pub completions: usize,
    /// Receives of one shared queue.
    pub receives: usize,
    /// Windows.
    pub windows: usize,
    /// Reads under way at a time, of the peer and of ours.
    pub reads: u8,
    /// The flags of a completion of which any says that the peer invalidated a key.
    pub(crate) invalidation_flags: u32,
    /// Whether the sink of a Read needs the peer's right to write.
    pub(crate) wants_sinks: bool,
}

/// The vendor that the kernel's software device for iWARP (siw) says it has.
const SIW_VENDOR: u32 = 0x62_6d74;

/// The vendor that the kernel's software device for RoCE (rxe) says it has.
const RXE_VENDOR: u32 = 0xff_ffff;
/// The kernel's number of `IBV_WC_WITH_INV`, which rxe puts unchanged into completions of programs. There it means a checksum that
/// only datagrams have.
const RXE_INVALIDATION_FLAG: u32 = 1 << 2;

/// A failed call that returned an error number.
fn failed(code: c_int) -> io::Error {
    io::Error::from_raw_os_error(code.abs())
}

/// What a function that returns a pointer gave.
fn made<T>(pointer: *mut T) -> io::Result<*mut T> {
    if pointer.is_null() { Err(io::Error::last_os_error()) } else { Ok(pointer) }
}

/// Lets reads of `fd` return at once.
pub(crate) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: rdma-core keeps the descriptor open as long as what it belongs to, which the caller holds.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// The name of the device that `context` is open on.
///
/// # Safety
/// `context` is an open device context.
pub(crate) unsafe fn name_of(context: *mut ibv_context) -> String {
    // SAFETY: the caller's promise.
    let device = unsafe { (*context).device };
    // SAFETY: an open context keeps its device.
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
    pub(crate) about: About,
}

impl Device {
    /// Opens the device once more that librdmacm has open as `context`.
    ///
    /// # Safety
    /// `context` is an open device context.
    pub(crate) unsafe fn like(library: &'static Library, context: *mut ibv_context) -> io::Result<Rc<Self>> {
        // SAFETY: the caller's promise.
        let device = unsafe { (*context).device };
        Self::open(library, device)
    }

    /// Opens the first device there is.
    pub(crate) fn first(library: &'static Library) -> io::Result<Rc<Self>> {
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

    fn open(library: &'static Library, device: *mut ibv_device) -> io::Result<Rc<Self>> {
        // SAFETY: `device` is in a device list that is not freed, or has an open context.
        let raw = made(unsafe { (library.ibv_open_device)(device) })?;
        let about = About {
            name: String::new(),
            is_iwarp: false,
            has_windows: false,
            queue_pairs: 0,
            queue_depth: 0,
            completions: 0,
            receives: 0,
            windows: 0,
            reads: 0,
            invalidation_flags: 0,
            wants_sinks: false,
        };
        let mut opened = Self { library, raw, about };
        opened.about = opened.ask()?;
        set_nonblocking(opened.async_fd())?;
        Ok(Rc::new(opened))
    }

    fn ask(&self) -> io::Result<About> {
        let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is open, `attr` is written to.
        let code = unsafe { (self.library.ibv_query_device)(self.raw, attr.as_mut_ptr()) };
        if code != 0 {
            return Err(failed(code));
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
        let type_2 = ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A.0
            | ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0;
        let size = |count: c_int| usize::try_from(count).unwrap_or(0);
        let reads = attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom).clamp(1, 255);
        Ok(About {
            // SAFETY: the context is open.
            name: unsafe { name_of(self.raw) },
            is_iwarp,
            wants_sinks: is_iwarp && attr.vendor_id != SIW_VENDOR,
            has_windows: attr.device_cap_flags & type_2 != 0 && alloc_mw.is_some() && attr.max_mw > 0,
            queue_pairs: size(attr.max_qp),
            queue_depth: size(attr.max_qp_wr),
            completions: size(attr.max_cqe),
            receives: size(attr.max_srq_wr),
            windows: size(attr.max_mw),
            reads: u8::try_from(reads).unwrap_or(u8::MAX),
            invalidation_flags: ibv_wc_flags::IBV_WC_WITH_INV.0
                | if attr.vendor_id == RXE_VENDOR { RXE_INVALIDATION_FLAG } else { 0 },
        })
    }

    fn async_fd(&self) -> RawFd {
        // SAFETY: the context is open.
        unsafe { (*self.raw).async_fd }
    }

    /// Readable when there is an asynchronous event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the context, which `self` holds.
        unsafe { BorrowedFd::borrow_raw(self.async_fd()) }
    }

    /// The next asynchronous event: its number, and the queue pair's context if it is about one.
    pub(crate) fn next_event(&self) -> Option<(c_int, *mut c_void)> {
        let mut event = AsyncEvent { element: ptr::null_mut(), event_type: 0 };
        // SAFETY: the context is open, `event` has the layout of `struct ibv_async_event`.
        let code = unsafe { (self.library.ibv_get_async_event)(self.raw, &raw mut event) };
        if code != 0 {
            return None;
        }
        let of_queue_pair = matches!(
            event.event_type,
            event::QP_FATAL
                | event::QP_REQUEST
                | event::QP_ACCESS
                | event::ESTABLISHED
                | event::SQ_DRAINED
                | event::PATH_MIGRATED
                | event::PATH_ERROR
                | event::LAST_WQE
        );
        let context = if of_queue_pair {
            // SAFETY: a queue pair cannot be destroyed while an event of it is not acknowledged.
            unsafe { (*event.element.cast::<ibv_qp>()).qp_context }
        } else {
            ptr::null_mut()
        };
        // SAFETY: it was given above, and is acknowledged once.
        unsafe { (self.library.ibv_ack_async_event)(&raw mut event) };
        Some((event.event_type, context))
    }
}

/// Numbers of asynchronous events (`enum ibv_event_type`).
pub(crate) mod event {
    use libc::c_int;
    pub(crate) const CQ_ERROR: c_int = 0;
    pub(crate) const QP_FATAL: c_int = 1;
    pub(crate) const QP_REQUEST: c_int = 2;
    pub(crate) const QP_ACCESS: c_int = 3;
    pub(crate) const ESTABLISHED: c_int = 4;
    pub(crate) const SQ_DRAINED: c_int = 5;
    pub(crate) const PATH_MIGRATED: c_int = 6;
    pub(crate) const PATH_ERROR: c_int = 7;
    pub(crate) const DEVICE_FATAL: c_int = 8;
    pub(crate) const PORT_ACTIVE: c_int = 9;
    pub(crate) const PORT_ERROR: c_int = 10;
    pub(crate) const SRQ_ERROR: c_int = 14;
    pub(crate) const LAST_WQE: c_int = 16;
    pub(crate) const GID_CHANGE: c_int = 18;
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: everything made from this context holds an `Rc` of it, so nothing is left.
        unsafe { (self.library.ibv_close_device)(self.raw) };
    }
}

/// A protection domain: what is in another one cannot be reached through it.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) device: Rc<Device>,
    raw: *mut ibv_pd,
}

impl Domain {
    pub(crate) fn new(device: &Rc<Device>) -> io::Result<Rc<Self>> {
        // SAFETY: the context is open.
        let raw = made(unsafe { (device.library.ibv_alloc_pd)(device.raw) })?;
        Ok(Rc::new(Self { device: Rc::clone(device), raw }))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: everything made in this domain holds an `Rc` of it, so nothing is left.
        unsafe { (self.device.library.ibv_dealloc_pd)(self.raw) };
    }
}

/// Memory of a pool that the device knows: all of it, for our own use and for windows, with a permanent remote key that opens
/// nothing; or one place where a Read lands.
#[derive(Debug)]
pub(crate) struct Region {
    domain: Rc<Domain>,
    /// Null: it was given back.
    raw: *mut ibv_mr,
    pub(crate) id: PoolId,
    base: NonNull<u8>,
    len: usize,
    lkey: u32,
    /// What is registered stays mapped.
    _pool: Pool,
}

impl Region {
    /// A pool of the shard.
    pub(crate) fn new(domain: &Rc<Domain>, pool: &Pool) -> io::Result<Self> {
        // RFC 8166 §8.1.2: no right for a peer is in it; those come with windows.
        let mut access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        if domain.device.about.has_windows {
            access |= ibv_access_flags::IBV_ACCESS_MW_BIND.0;
        }
        Self::with(domain, (pool, 0, pool.span().1), access)
    }

    /// The place of `buf`, in which a peer may write: a Read lands there.
    pub(crate) fn of_sink(domain: &Rc<Domain>, pool: &Pool, buf: &Buf) -> io::Result<Self> {
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        let (at, len) = (buf.place().at, buf.capacity());
        assert!(at + len <= pool.span().1, "a place lies inside of its pool");
        Self::with(domain, (pool, at, len), access)
    }

    fn with(domain: &Rc<Domain>, (pool, at, len): (&Pool, usize, usize), access: u32) -> io::Result<Self> {
        let library = domain.device.library;
        // SAFETY: the callers look that `at` is inside of the pool.
        let base = unsafe { pool.span().0.add(at) };
        // SAFETY: the domain is there; `len` octets from `base` are mapped as long as the pool, of which this keeps a clone.
        let raw = unsafe { (library.ibv_reg_mr)(domain.raw, base.as_ptr().cast(), len, access as c_int) };
        let raw = made(raw)?;
        // SAFETY: it was just made.
        let lkey = unsafe { (*raw).lkey };
        let domain = Rc::clone(domain);
        Ok(Self { domain, raw, id: pool.id(), base, len, lkey, _pool: pool.clone() })
    }

    /// Takes the memory from the device. When the device keeps it, it comes back: its key may still open it.
    pub(crate) fn close(mut self) -> Result<(), Self> {
        // SAFETY: nothing that is under way names it, and it is not used again when it was given back.
        let code = unsafe { (self.domain.device.library.ibv_dereg_mr)(self.raw) };
        if !is_gone(code) {
            return Err(self);
        }
        self.raw = ptr::null_mut();
        Ok(())
    }

    /// Names `len` octets from its octet `at` for a work request.
    pub(crate) fn name(&self, at: usize, len: usize) -> ibv_sge {
        assert!(at + len <= self.len, "memory of a pool lies inside of its region");
        ibv_sge {
            addr: (self.base.addr().get() + at) as u64,
            length: u32::try_from(len).expect("slots are shorter than 2^32"),
            lkey: self.lkey,
        }
    }

    /// Copies what a device put at its octet `at`.
    pub(crate) fn copy_to(&self, at: usize, to: &mut [u8]) {
        assert!(at + to.len() <= self.len, "memory of a pool lies inside of its region");
        // SAFETY: `at` is inside of what is mapped.
        let from = unsafe { self.base.add(at) };
        // SAFETY: so are as many octets as `to` has; they are another pool's than `to`. No reference is made to them, because a
        // peer may write there.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), to.len()) };
    }

    pub(crate) const fn raw(&self) -> *mut ibv_mr {
        self.raw
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the provider drops its queue pairs and windows before its regions.
            unsafe { (self.domain.device.library.ibv_dereg_mr)(self.raw) };
        }
    }
}

/// A shard's completion queue, and what wakes it up.
#[derive(Debug)]
pub(crate) struct Completions {
    device: Rc<Device>,
    raw: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
}

impl Completions {
    pub(crate) fn new(device: &Rc<Device>, capacity: usize) -> io::Result<Rc<Self>> {
        let library = device.library;
        // SAFETY: the context is open.
        let channel = made(unsafe { (library.ibv_create_comp_channel)(device.raw) })?;
        let capacity = c_int::try_from(capacity).unwrap_or(c_int::MAX);
        // SAFETY: the context is open and the channel belongs to it.
        let raw = unsafe { (library.ibv_create_cq)(device.raw, capacity, ptr::null_mut(), channel, 0) };
        let raw = match made(raw) {
            Ok(raw) => raw,
            Err(error) => {
                // SAFETY: no queue uses it.
                unsafe { (library.ibv_destroy_comp_channel)(channel) };
                return Err(error);
            }
        };
        let queue = Self { device: Rc::clone(device), raw, channel };
        set_nonblocking(queue.channel_fd())?;
        Ok(Rc::new(queue))
    }

    fn channel_fd(&self) -> RawFd {
        // SAFETY: the channel lives as long as `self`.
        unsafe { (*self.channel).fd }
    }

    /// Readable when the queue was armed and a completion came.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel, which `self` holds.
        unsafe { BorrowedFd::borrow_raw(self.channel_fd()) }
    }

    /// Takes completions; returns how many.
    pub(crate) fn poll(&self, into: &mut [ibv_wc]) -> usize {
        let most = i32::try_from(into.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue is there, and `into` has room for `most`.
        let count = unsafe { rdma_sys::ibv_poll_cq(self.raw, most, into.as_mut_ptr()) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Forgets wake-ups that came.
    pub(crate) fn quench(&self) {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        let get = self.device.library.ibv_get_cq_event;
        let mut count = 0;
        // SAFETY: the channel is there and never blocks.
        while unsafe { get(self.channel, &raw mut queue, &raw mut context) } == 0 {
            count += 1;
        }
        if count > 0 {
            // SAFETY: so many were taken from this queue.
            unsafe { (self.device.library.ibv_ack_cq_events)(self.raw, count) };
        }
    }

    /// Asks for a wake-up at the next completion.
    pub(crate) fn arm(&self) {
        // SAFETY: the queue is there.
        let code = unsafe { rdma_sys::ibv_req_notify_cq(self.raw, 0) };
        debug_assert_eq!(code, 0, "a queue with a channel can be armed");
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold an `Rc` of this, and every event was acknowledged.
        unsafe { (self.device.library.ibv_destroy_cq)(self.raw) };
        // SAFETY: its only queue is gone.
        unsafe { (self.device.library.ibv_destroy_comp_channel)(self.channel) };
    }
}

/// A shard's receives, shared by its connections.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    domain: Rc<Domain>,
    raw: *mut ibv_srq,
}

impl SharedQueue {
    pub(crate) fn new(domain: &Rc<Domain>, capacity: usize) -> io::Result<Rc<Self>> {
        let max_wr = u32::try_from(capacity).unwrap_or(u32::MAX);
        let attr = ibv_srq_attr { max_wr, max_sge: 1, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is there.
        let raw = made(unsafe { (domain.device.library.ibv_create_srq)(domain.raw, &raw mut init) })?;
        Ok(Rc::new(Self { domain: Rc::clone(domain), raw }))
    }

    /// Gives the queue one more receive.
    ///
    /// # Safety
    /// Nobody touches what `at` names before the receive completes or the queue is destroyed.
    pub(crate) unsafe fn post(&self, wr_id: u64, mut at: ibv_sge) -> io::Result<()> {
        let mut wr = ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: &raw mut at, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue is there, and reads the request during the call.
        match unsafe { rdma_sys::ibv_post_srq_recv(self.raw, &raw mut wr, &raw mut bad) } {
            0 => Ok(()),
            code => Err(failed(code)),
        }
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold an `Rc` of this, so none uses it.
        unsafe { (self.domain.device.library.ibv_destroy_srq)(self.raw) };
    }
}

/// Whether what was destroyed is gone: with its device, if not by our call. Memory is given back on the strength of this.
fn is_gone(code: c_int) -> bool {
    matches!(code.abs(), 0 | libc::EIO | libc::ENODEV)
}

/// A type-2 memory window.
#[derive(Debug)]
pub(crate) struct MemoryWindow {
    _domain: Rc<Domain>,
    /// Null: it was given back.
    raw: *mut ibv_mw,
}

impl MemoryWindow {
    pub(crate) fn new(domain: &Rc<Domain>) -> io::Result<Self> {
        // RFC 5042 §6.1.1 [5042-8]
        // SAFETY: the domain is there.
        let raw = unsafe { rdma_sys::ibv_alloc_mw(domain.raw, ibv_mw_type::IBV_MW_TYPE_2) };
        Ok(Self { _domain: Rc::clone(domain), raw: made(raw.unwrap_or(ptr::null_mut()))? })
    }

    /// The key it was bound with last.
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: the window is there.
        unsafe { (*self.raw).rkey }
    }

    /// Notes the key of a bind that was handed to the device: the next bind has to name the window by it.
    pub(crate) fn set_key(&mut self, key: u32) {
        // SAFETY: the window is there, and this is its only owner.
        unsafe { (*self.raw).rkey = key };
    }

    pub(crate) const fn raw(&self) -> *mut ibv_mw {
        self.raw
    }

    /// Frees it; a bound one may be. When the device keeps it, it comes back: its key may still open what it was bound to.
    pub(crate) fn free(mut self) -> Result<(), Self> {
        // SAFETY: the window is there, and is not used again when it was freed.
        let code = unsafe { rdma_sys::ibv_dealloc_mw(self.raw) };
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
            // SAFETY: it is freed once. One that the device keeps stays: whoever bound it keeps its memory away from others.
            unsafe { rdma_sys::ibv_dealloc_mw(self.raw) };
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rdma_sys::ibv_context_ops;
    use std::sync::atomic::{AtomicI32, Ordering};

    /// The device's answer when a window or a queue pair is to be given back.
    pub(crate) static ANSWER: AtomicI32 = AtomicI32::new(0);
    /// Tests that change it go one after the other.
    pub(crate) static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

    /// One of the structures of libibverbs that lead to functions and to each other.
    pub(crate) fn zeroed<T: Copy>() -> T {
        // SAFETY: they are made of integers, pointers and optional functions, for which zero is a value.
        unsafe { MaybeUninit::<T>::zeroed().assume_init() }
    }

    unsafe extern "C" fn dealloc_mw(_: *mut ibv_mw) -> c_int {
        ANSWER.load(Ordering::Relaxed)
    }

    unsafe extern "C" fn destroy_qp(_: *mut ibv_qp) -> c_int {
        ANSWER.load(Ordering::Relaxed)
    }

    unsafe extern "C" fn dereg_mr(_: *mut ibv_mr) -> c_int {
        ANSWER.load(Ordering::Relaxed)
    }

    unsafe extern "C" fn reg_mr(_: *mut ibv_pd, _: *mut c_void, _: usize, _: c_int) -> *mut ibv_mr {
        static NEXT: AtomicI32 = AtomicI32::new(1);
        let mut region = zeroed::<ibv_mr>();
        region.lkey = NEXT.fetch_add(1, Ordering::Relaxed) as u32;
        Box::leak(Box::new(region))
    }

    /// A device that does nothing, and gives back what it lent as [`ANSWER`] says.
    pub(crate) fn device() -> Rc<Device> {
        let library = Library {
            ibv_destroy_qp: destroy_qp,
            ibv_dereg_mr: dereg_mr,
            ibv_reg_mr: reg_mr,
            ..Library::idle()
        };
        let about = About {
            name: "idle0".to_owned(),
            is_iwarp: true,
            has_windows: true,
            queue_pairs: 8,
            queue_depth: 8,
            completions: 64,
            receives: 8,
            windows: 8,
            reads: 1,
            invalidation_flags: 0,
            wants_sinks: true,
        };
        Rc::new(Device { library: Box::leak(Box::new(library)), raw: ptr::null_mut(), about })
    }

    /// A domain that has no more windows.
    pub(crate) fn domain() -> Rc<Domain> {
        let (context, mut raw) = (zeroed::<ibv_context>(), zeroed::<ibv_pd>());
        raw.context = Box::leak(Box::new(context));
        Rc::new(Domain { device: device(), raw: Box::leak(Box::new(raw)) })
    }

    pub(crate) fn queues(domain: &Rc<Domain>) -> Queues {
        let device = Rc::clone(&domain.device);
        Queues {
            domain: Rc::clone(domain),
            completions: Rc::new(Completions { device, raw: ptr::null_mut(), channel: ptr::null_mut() }),
            receives: Rc::new(SharedQueue { domain: Rc::clone(domain), raw: ptr::null_mut() }),
            depth: 8,
        }
    }

    /// A window of such a device, with the key `key`.
    pub(crate) fn window(domain: &Rc<Domain>, key: u32) -> MemoryWindow {
        let (mut context, mut raw) = (zeroed::<ibv_context>(), zeroed::<ibv_mw>());
        context.ops = ibv_context_ops { dealloc_mw: Some(dealloc_mw), ..context.ops };
        raw.context = Box::leak(Box::new(context));
        raw.rkey = key;
        MemoryWindow { _domain: Rc::clone(domain), raw: Box::leak(Box::new(raw)) }
    }

    #[test]
    fn a_window_that_the_device_keeps_comes_back_and_nothing_aborts() {
        let _one = ONE_AT_A_TIME.lock();
        let domain = domain();
        ANSWER.store(libc::EBUSY, Ordering::Relaxed);
        let kept = window(&domain, 0x100).free().unwrap_err();
        assert_eq!(kept.key(), 0x100);
        drop(kept);
        ANSWER.store(0, Ordering::Relaxed);
        assert!(window(&domain, 0x100).free().is_ok());
        for gone in [libc::EIO, -libc::ENODEV] {
            ANSWER.store(gone, Ordering::Relaxed);
            assert!(window(&domain, 0x100).free().is_ok(), "it went with its device");
        }
        ANSWER.store(0, Ordering::Relaxed);
    }
}
