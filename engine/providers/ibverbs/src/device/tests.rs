//! A device that does nothing, for tests of what it lends.

use super::*;
use crate::sys::{ibv_mr, ibv_mw};
use libc::c_void;
use std::sync::atomic::{AtomicI32, Ordering};

/// The device's answer when a window or a queue pair is to be given back.
pub(crate) static ANSWER: AtomicI32 = AtomicI32::new(0);
/// Tests that change it go one after the other.
pub(crate) static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// One of the structures of libibverbs that lead to functions and to each other.
pub(crate) fn zeroed<T: Copy>() -> T {
    // SAFETY: they are made of integers, pointers and optional functions, for which zero is a
    // value.
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
pub(crate) fn device() -> Arc<Device> {
    let library = Library {
        ibv_destroy_qp: destroy_qp,
        ibv_dereg_mr: dereg_mr,
        ibv_reg_mr: reg_mr,
        ..Library::idle()
    };
    let about = DeviceAbout {
        name: "idle0".to_owned(),
        is_iwarp: true,
        has_windows: true,
        sends_invalidation: true,
        queue_pairs: 8,
        queue_depth: 8,
        completions: 64,
        receives: 8,
        windows: 8,
        regions: 64,
        reads: 1,
        invalidation_flags: 0,
        wants_sinks: true,
        is_soft: false,
    };
    Arc::new(Device { library: Box::leak(Box::new(library)), raw: ptr::null_mut(), about })
}

/// A domain that has no more windows.
pub(crate) fn domain() -> Arc<Domain> {
    let (context, mut raw) = (zeroed::<ibv_context>(), zeroed::<ibv_pd>());
    raw.context = Box::leak(Box::new(context));
    Arc::new(Domain { device: device(), raw: Box::leak(Box::new(raw)) })
}

pub(crate) fn queues(domain: &Arc<Domain>) -> Queues {
    let device = Arc::clone(&domain.device);
    Queues {
        domain: Arc::clone(domain),
        completions: Arc::new(Completions {
            device,
            raw: ptr::null_mut(),
            channel: ptr::null_mut(),
        }),
        receives: Some(Arc::new(SharedQueue { domain: Arc::clone(domain), raw: ptr::null_mut() })),
        receives_each: 0,
        depth: 8,
        inline_max: Arc::default(),
    }
}

/// A window of such a device, with the key `key`.
pub(crate) fn window(domain: &Arc<Domain>, key: u32) -> MemoryWindow {
    let (mut context, mut raw) = (zeroed::<ibv_context>(), zeroed::<ibv_mw>());
    context.ops.dealloc_mw = Some(dealloc_mw);
    raw.context = Box::leak(Box::new(context));
    raw.rkey = key;
    MemoryWindow { domain: Arc::clone(domain), raw: Box::leak(Box::new(raw)) }
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
