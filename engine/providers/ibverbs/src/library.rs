//! libibverbs and librdmacm, loaded at run time: a binary that has this crate needs neither to
//! start.

use crate::apart;
use crate::sys::{
    ibv_access_flags, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
    ibv_device_attr, ibv_mr, ibv_mw, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq,
    ibv_srq_init_attr, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};
use libc::{c_int, c_uint, c_void, sockaddr};
use libloading::Library as Loaded;
use std::{fmt, io, net::IpAddr, sync::OnceLock};

/// Why there is no RDMA here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// A library cannot be loaded.
    NoLibrary {
        /// Its name.
        name: &'static str,
        /// Message of the dynamic loader.
        why: String,
    },
    /// The kernel has no RDMA.
    NoKernel {
        /// The operating system's number.
        errno: i32,
    },
    /// There is no RDMA device.
    NoDevice,
    /// The address belongs to no RDMA device, or no way leads there from one.
    NotHere(IpAddr),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no RDMA here: ")?;
        match self {
            Self::NoLibrary { name, why } => write!(
                f,
                "{name} cannot be loaded ({why}); fix: install it (Debian: apt install libibverbs1 \
                 librdmacm1 ibverbs-providers)"
            ),
            Self::NoKernel { errno } => write!(
                f,
                "the kernel has no RDMA ({}); fix: modprobe rdma_ucm, and the module of the device",
                io::Error::from_raw_os_error(*errno)
            ),
            Self::NoDevice => f.write_str(
                "there is no RDMA device; a software one: rdma link add rxe0 type rxe netdev eth0",
            ),
            Self::NotHere(ip) => {
                write!(f, "{ip} belongs to no RDMA device; see which do: rdma link")
            }
        }
    }
}

impl std::error::Error for Unavailable {}

/// A function that has its namesake called by the thread of [`apart`].
macro_rules! apart {
    ($name:ident () $($result:ty)?) => { apart!(@ $name [] $($result)?) };
    ($name:ident ($a:ty) $($result:ty)?) => { apart!(@ $name [a: $a] $($result)?) };
    ($name:ident ($a:ty, $b:ty) $($result:ty)?) => {
        apart!(@ $name [a: $a, b: $b] $($result)?)
    };
    ($name:ident ($a:ty, $b:ty, $c:ty) $($result:ty)?) => {
        apart!(@ $name [a: $a, b: $b, c: $c] $($result)?)
    };
    ($name:ident ($a:ty, $b:ty, $c:ty, $d:ty) $($result:ty)?) => {
        apart!(@ $name [a: $a, b: $b, c: $c, d: $d] $($result)?)
    };
    ($name:ident ($a:ty, $b:ty, $c:ty, $d:ty, $e:ty) $($result:ty)?) => {
        apart!(@ $name [a: $a, b: $b, c: $c, d: $d, e: $e] $($result)?)
    };
    (@ $name:ident [$($argument:ident: $type:ty),*] $($result:ty)?) => {{
        unsafe extern "C" fn called($($argument: $type),*) $(-> $result)? {
            let function = Library::direct().$name;
            // SAFETY: the caller's promises about the function; he waits, and librdmacm and
            // libibverbs leave it open which thread calls.
            unsafe { apart::run(|| function($($argument),*)) }
        }
        called
    }};
}

/// Domain, address, octets, address for peers, rights.
type RegMrIova2 = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;

/// Makes the table and the code that fills it.
macro_rules! functions {
    ($($library:ident { $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions that libibverbs and librdmacm export and that are not inline.
        pub(crate) struct Library {
            /// Calls that write to descriptors are made by a thread of their own ([`apart`]).
            pub(crate) is_apart: bool,
            /// `ibv_reg_mr` for rights that a kernel may ignore. None: rdma-core before version 28.
            pub(crate) ibv_reg_mr_iova2: Option<RegMrIova2>,
            $($(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Library {
            fn find(libraries: &Libraries) -> Result<Self, Unavailable> {
                // SAFETY: the type is that of the function in rdma-core's headers.
                let iova2 = unsafe { libraries.verbs.get::<RegMrIova2>("ibv_reg_mr_iova2\0") };
                let ibv_reg_mr_iova2 = iova2.ok().map(|found| *found);
                Ok(Self { is_apart: false, ibv_reg_mr_iova2, $($($name: {
                    let (library, name) = (&libraries.$library, concat!(stringify!($name), "\0"));
                    // SAFETY: the type is that of the function in rdma-core's headers, whose symbol
                    // versions keep it.
                    let found = unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(name)
                    };
                    *found.map_err(|why| no_library(stringify!($name), &why))?
                },)*)* })
            }

            /// The same functions, called by a thread of their own.
            const fn apart_all() -> Self {
                Self { is_apart: true, ibv_reg_mr_iova2: None,
                    $($($name: apart!($name ($($argument),*) $($result)?),)*)* }
            }

            /// A table of functions that succeed and do nothing, but for that of events, of which
            /// there is none.
            #[cfg(test)]
            pub(crate) fn idle() -> Self {
                unsafe extern "C" fn no_event(
                    _: *mut rdma_event_channel,
                    _: *mut *mut rdma_cm_event,
                ) -> c_int {
                    -1
                }
                let mut idle = Self { is_apart: false, ibv_reg_mr_iova2: None, $($($name: {
                    unsafe extern "C" fn idle($(_: $argument),*) $(-> $result)? {
                        // SAFETY: results are numbers and pointers, of which zero is one.
                        $(unsafe { std::mem::zeroed::<$result>() })?
                    }
                    idle
                },)*)* };
                idle.rdma_get_cm_event = no_event;
                idle
            }
        }
    };
}

functions! {
    verbs {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device;
        ibv_free_device_list: fn(*mut *mut ibv_device);
        ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context;
        ibv_close_device: fn(*mut ibv_context) -> c_int;
        ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
        ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
        ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
        ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
        ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
        ibv_create_cq:
            fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
        ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut ibv_cq, c_uint);
        ibv_create_srq: fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
        ibv_destroy_srq: fn(*mut ibv_srq) -> c_int;
        ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        ibv_query_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
        ibv_destroy_qp: fn(*mut ibv_qp) -> c_int;
        ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
        ibv_ack_async_event: fn(*mut ibv_async_event);
    }
    cm {
        rdma_create_event_channel: fn() -> *mut rdma_event_channel;
        rdma_destroy_event_channel: fn(*mut rdma_event_channel);
        rdma_create_id:
            fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_uint) -> c_int;
        rdma_destroy_id: fn(*mut rdma_cm_id) -> c_int;
        rdma_bind_addr: fn(*mut rdma_cm_id, *mut sockaddr) -> c_int;
        rdma_listen: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_get_src_port: fn(*mut rdma_cm_id) -> u16;
        rdma_resolve_addr: fn(*mut rdma_cm_id, *mut sockaddr, *mut sockaddr, c_int) -> c_int;
        rdma_resolve_route: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_init_qp_attr: fn(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
        rdma_connect: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_establish: fn(*mut rdma_cm_id) -> c_int;
        rdma_accept: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_reject: fn(*mut rdma_cm_id, *const c_void, u8) -> c_int;
        rdma_disconnect: fn(*mut rdma_cm_id) -> c_int;
        rdma_notify: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_migrate_id: fn(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
        rdma_get_cm_event: fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        rdma_ack_cm_event: fn(*mut rdma_cm_event) -> c_int;
    }
}

/// The libraries themselves. They stay loaded as long as the process lives.
struct Libraries {
    verbs: &'static Loaded,
    cm: &'static Loaded,
}

fn no_library(name: &'static str, why: &dyn ToString) -> Unavailable {
    Unavailable::NoLibrary { name, why: why.to_string() }
}

fn load(name: &'static str) -> Result<&'static Loaded, Unavailable> {
    // Loading would bring a second C library into the process, of whatever version the host has.
    if cfg!(target_feature = "crt-static") {
        let why = "this program is linked statically and loads no library: take one that is not";
        return Err(no_library(name, &why));
    }
    // SAFETY: rdma-core's libraries have no constructor that depends on anything of ours.
    let loaded = unsafe { Loaded::new(name) };
    Ok(Box::leak(Box::new(loaded.map_err(|why| no_library(name, &why))?)))
}

impl Library {
    /// The table that was loaded.
    fn direct() -> &'static Self {
        Self::get().expect("the table is loaded before a function of it is called")
    }

    /// The table for threads whose credentials change. Functions that read, or make no system call,
    /// are called by the thread itself.
    pub(crate) fn apart() -> Result<&'static Self, Unavailable> {
        static TABLE: OnceLock<Library> = OnceLock::new();
        let direct = Self::get()?;
        Ok(TABLE.get_or_init(|| Self {
            ibv_free_device_list: direct.ibv_free_device_list,
            ibv_get_cq_event: direct.ibv_get_cq_event,
            ibv_ack_cq_events: direct.ibv_ack_cq_events,
            ibv_get_async_event: direct.ibv_get_async_event,
            ibv_ack_async_event: direct.ibv_ack_async_event,
            rdma_get_src_port: direct.rdma_get_src_port,
            rdma_ack_cm_event: direct.rdma_ack_cm_event,
            ibv_reg_mr_iova2: direct.ibv_reg_mr_iova2,
            ..Self::apart_all()
        }))
    }

    /// Makes a call of a device's driver where that writes: in the thread of its own, if there is
    /// one.
    ///
    /// # Safety
    /// As of [`apart::run`].
    pub(crate) unsafe fn write<R>(&self, call: impl FnOnce() -> R) -> R {
        if !self.is_apart {
            return call();
        }
        // SAFETY: the caller's promise.
        unsafe { apart::run(call) }
    }

    /// Registers memory; with the right to order writes freely, where rdma-core knows it. It
    /// leaves that out where the kernel does not.
    ///
    /// # Safety
    /// As of `ibv_reg_mr`: `domain` is there, and `len` octets from `base` are mapped.
    pub(crate) unsafe fn reg_mr(
        &self,
        domain: *mut ibv_pd,
        base: *mut c_void,
        len: usize,
        access: u32,
    ) -> *mut ibv_mr {
        let Some(register) = self.ibv_reg_mr_iova2 else {
            // SAFETY: the caller's promise.
            return unsafe { (self.ibv_reg_mr)(domain, base, len, access as c_int) };
        };
        let access = access | ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING;
        let iova = base.addr() as u64;
        // SAFETY: the caller's promise.
        let make = || unsafe { register(domain, base, len, iova, access) };
        // SAFETY: this thread waits for the region.
        unsafe { self.write(make) }
    }

    /// Makes a window; see [`sys::ibv_alloc_mw`](crate::sys::ibv_alloc_mw).
    ///
    /// # Safety
    /// `domain` is there.
    pub(crate) unsafe fn alloc_mw(&self, domain: *mut ibv_pd, kind: u32) -> Option<*mut ibv_mw> {
        // SAFETY: the caller's promise.
        let make = || unsafe { crate::sys::ibv_alloc_mw(domain, kind) };
        // SAFETY: this thread waits for the window.
        unsafe { self.write(make) }
    }

    /// Gives a window back.
    ///
    /// # Safety
    /// `window` is there, and is not used again once it was given back.
    pub(crate) unsafe fn dealloc_mw(&self, window: *mut ibv_mw) -> c_int {
        // SAFETY: the caller's promise.
        let free = || unsafe { crate::sys::ibv_dealloc_mw(window) };
        // SAFETY: this thread waits for the end of the call.
        unsafe { self.write(free) }
    }

    /// The table, loaded at the first call.
    pub(crate) fn get() -> Result<&'static Self, Unavailable> {
        #[cfg(test)]
        if let Some(fake) = crate::fake::library() {
            return Ok(fake);
        }
        static TABLE: OnceLock<Result<Library, Unavailable>> = OnceLock::new();
        let table = TABLE.get_or_init(|| {
            let libraries =
                Libraries { verbs: load("libibverbs.so.1")?, cm: load("librdmacm.so.1")? };
            Self::find(&libraries)
        });
        table.as_ref().map_err(Clone::clone)
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Library")
    }
}
