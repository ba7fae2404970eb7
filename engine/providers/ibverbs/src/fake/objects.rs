//! Functions of libibverbs: domains, regions, windows, queues.

use super::{
    Adapter, Context, Host, Told, at, lend, nothing, refuse, regain,
    state::{CompletionQueue, Objects, Opened, Receive, ReceiveQueue, Region, WindowState},
    system_call, with,
};
use crate::{
    device::tests::zeroed,
    fake::DeviceWindowing,
    library::Library,
    sys::{
        ibv_access_flags, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
        ibv_device_attr, ibv_mr, ibv_mw, ibv_pd, ibv_qp, ibv_qp_state as state, ibv_recv_wr,
        ibv_srq, ibv_srq_init_attr, ibv_transport_type,
    },
};
use libc::{c_int, c_uint, c_void};
use std::collections::VecDeque;

/// Places of a list of devices.
const LIST_LEN: usize = 4;

impl Host {
    fn devices(&mut self) -> Vec<*mut ibv_device> {
        for (number, adapter) in self.adapters.iter().enumerate().skip(self.objects.devices.len()) {
            let mut device = zeroed::<ibv_device>();
            if adapter.is_iwarp {
                device.transport_type = ibv_transport_type::IBV_TRANSPORT_IWARP;
            }
            let name = format!("{}_{number}", adapter.name);
            for (to, from) in device.name.iter_mut().zip(name.bytes()) {
                *to = from as libc::c_char;
            }
            self.objects.devices.push(lend(device).expose_provenance());
        }
        let all = self.objects.devices.iter().enumerate();
        let here = all.filter(|(number, _)| !self.removed.contains(number));
        here.map(|(_, device)| std::ptr::with_exposed_provenance_mut(*device)).collect()
    }

    /// Returns true if what is open as this context can do nothing any more.
    pub(super) fn is_dead(&self, context: *mut ibv_context) -> bool {
        self.objects.dead.contains(&at(context))
    }

    /// The adapter that a context is open on.
    pub(super) fn adapter(&self, context: *mut ibv_context) -> Adapter {
        self.adapters[self.objects.device_of(at(context))]
    }
}

unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let mut list = with(Host::devices);
    // SAFETY: the caller has it.
    unsafe { *count = list.len() as c_int };
    list.resize(LIST_LEN, std::ptr::null_mut());
    lend(<[*mut ibv_device; LIST_LEN]>::try_from(list).unwrap()).cast()
}

unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: it came from `get_device_list`.
    drop(unsafe { regain(list.cast::<[*mut ibv_device; LIST_LEN]>()) });
}

pub(super) unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    system_call();
    with(|host| {
        let number = host.objects.devices.iter().position(|it| *it == at(device)).unwrap();
        let told = Told::new();
        let mut context = zeroed::<ibv_context>();
        (context.device, context.cmd_fd, context.async_fd) = (device, -1, told.raw_fd());
        let ops = &mut context.ops;
        if host.adapters[number].windowing != DeviceWindowing::Missing {
            ops.alloc_mw = Some(alloc_mw);
            ops.dealloc_mw = Some(dealloc_mw);
        }
        ops.poll_cq = Some(super::data::poll_cq);
        ops.req_notify_cq = Some(super::data::req_notify_cq);
        ops.post_srq_recv = Some(post_srq_recv);
        ops.post_recv = Some(post_recv);
        ops.post_send = Some(super::data::post_send);
        let context = lend(context);
        host.objects.contexts.insert(at(context), told);
        host.objects.device_of.insert(context.expose_provenance(), number);
        context
    })
}

pub(super) unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    system_call();
    with(|host| {
        let objects = &mut host.objects;
        let has_domain = objects.domains.values().any(|of| *of == at(context));
        assert!(!has_domain, "a device is closed while a domain of it is there");
        objects.contexts.remove(&at(context)).unwrap();
        objects.dead.remove(&at(context));
    });
    // SAFETY: it came from `open_device`, and is closed once.
    drop(unsafe { regain(context) });
    0
}

unsafe extern "C" fn query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    system_call();
    if with(|host| host.is_dead(context)) {
        return libc::EIO;
    }
    let adapter = with(|host| host.adapter(context));
    let mut found = zeroed::<ibv_device_attr>();
    found.vendor_id = adapter.vendor;
    found.device_cap_flags = adapter.caps();
    (found.max_qp, found.max_qp_wr) = (65_536, adapter.queue_depth);
    found.max_cqe = adapter.completions;
    (found.max_qp_rd_atom, found.max_qp_init_rd_atom) = (16, 16);
    found.max_mr = 1_048_576;
    let has_windows = adapter.windowing != DeviceWindowing::Missing;
    found.max_mw = if has_windows { 16_777_216 } else { 0 };
    found.max_srq_wr = adapter.says_receives.unwrap_or(adapter.shared_receives);
    // SAFETY: the caller has it.
    unsafe { *attr = found };
    0
}

unsafe extern "C" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let told = with(|host| host.objects.contexts.get_mut(&at(context)).unwrap().pop());
    let Some((event_type, element)) = told else { return refuse(libc::EAGAIN) };
    let element = std::ptr::with_exposed_provenance_mut(element);
    // SAFETY: the caller has it.
    unsafe { *event = ibv_async_event { element, event_type } };
    0
}

unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    system_call();
    if with(|host| host.is_dead(context)) {
        return nothing(libc::EIO);
    }
    let domain = lend(ibv_pd { context });
    with(|host| host.objects.domains.insert(at(domain), at(context)));
    domain
}

unsafe extern "C" fn dealloc_pd(domain: *mut ibv_pd) -> c_int {
    system_call();
    let is_used = with(|host| {
        let objects = &mut host.objects;
        let is_used = objects.regions.values().any(|region| region.domain == at(domain))
            || objects.pairs.values().any(|pair| pair.domain == at(domain));
        if !is_used {
            objects.domains.remove(&at(domain));
        }
        is_used
    });
    assert!(!is_used, "a domain is given back while something of it is there");
    // SAFETY: it came from `alloc_pd`, and is given back once.
    drop(unsafe { regain(domain) });
    0
}

unsafe extern "C" fn reg_mr(
    domain: *mut ibv_pd,
    base: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut ibv_mr {
    system_call();
    // SAFETY: the caller has it.
    let context = unsafe { (*domain).context };
    with(|host| {
        if host.is_dead(context) {
            return nothing(libc::EIO);
        }
        let key = host.objects.next_key();
        let opened = Opened { base: base.expose_provenance(), len, access: access as u32 };
        host.objects.regions.insert(key, Region { domain: at(domain), opened });
        let mut region = zeroed::<ibv_mr>();
        (region.lkey, region.rkey) = (key, key);
        lend(region)
    })
}

/// The right is one that changes nothing here.
unsafe extern "C" fn reg_mr_iova2(
    domain: *mut ibv_pd,
    base: *mut c_void,
    len: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    assert_eq!(iova, base.addr() as u64);
    assert_ne!(access & ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING, 0);
    // SAFETY: the caller's promises.
    unsafe { reg_mr(domain, base, len, access as c_int) }
}

unsafe extern "C" fn dereg_mr(region: *mut ibv_mr) -> c_int {
    system_call();
    // SAFETY: it came from `reg_mr`.
    let key = unsafe { (*region).lkey };
    let is_kept = with(|host| {
        let mut bound = host.objects.windows.values().filter_map(|window| window.bound);
        let is_kept = bound.any(|(_, of, _)| of == key);
        if !is_kept {
            host.objects.regions.remove(&key).unwrap();
        }
        is_kept
    });
    if is_kept {
        return libc::EBUSY;
    }
    // SAFETY: it came from `reg_mr`, and is given back once.
    drop(unsafe { regain(region) });
    0
}

unsafe extern "C" fn alloc_mw(domain: *mut ibv_pd, _: u32) -> *mut ibv_mw {
    system_call();
    // SAFETY: the caller has it.
    let context = unsafe { (*domain).context };
    with(|host| {
        if host.is_dead(context) {
            return nothing(libc::EIO);
        }
        if let DeviceWindowing::Fails(errno) = host.adapter(context).windowing {
            return nothing(errno);
        }
        let key = host.objects.next_key();
        host.objects.windows.insert(key >> 8, WindowState { key, bound: None });
        let mut window = zeroed::<ibv_mw>();
        (window.context, window.rkey) = (context, key);
        lend(window)
    })
}

unsafe extern "C" fn dealloc_mw(window: *mut ibv_mw) -> c_int {
    system_call();
    // SAFETY: it came from `alloc_mw`, and is given back once.
    let window = unsafe { regain(window) };
    with(|host| {
        host.objects.windows.remove(&(window.rkey >> 8)).unwrap();
        if host.is_dead(window.context) { libc::EIO } else { 0 }
    })
}

unsafe extern "C" fn create_comp_channel(_: *mut ibv_context) -> *mut ibv_comp_channel {
    system_call();
    let told = Told::new();
    let mut channel = zeroed::<ibv_comp_channel>();
    channel.fd = told.raw_fd();
    let channel = lend(channel);
    with(|host| host.objects.channels.insert(at(channel), told));
    channel
}

unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    system_call();
    with(|host| host.objects.channels.remove(&at(channel)).unwrap());
    // SAFETY: it came from `create_comp_channel`, and is given back once.
    drop(unsafe { regain(channel) });
    0
}

unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    capacity: c_int,
    _: Context,
    channel: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    system_call();
    with(|host| {
        let adapter = host.adapter(context);
        if adapter.fails == Some("ibv_create_cq") {
            return nothing(libc::ENOMEM);
        }
        if capacity > adapter.completions {
            return nothing(libc::EINVAL);
        }
        let (capacity, waiting) = (capacity as usize, VecDeque::new());
        let queue = lend(ibv_cq { context });
        let state = CompletionQueue { channel: at(channel), capacity, waiting, is_armed: false };
        host.objects.queues.insert(queue.expose_provenance(), state);
        queue
    })
}

unsafe extern "C" fn destroy_cq(queue: *mut ibv_cq) -> c_int {
    system_call();
    with(|host| {
        let mut pairs = host.objects.pairs.values();
        assert!(pairs.all(|pair| pair.completions != at(queue)), "a queue pair has it");
        host.objects.queues.remove(&at(queue)).unwrap();
    });
    // SAFETY: it came from `create_cq`, and is given back once.
    drop(unsafe { regain(queue) });
    0
}

unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    queue: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    let told = with(|host| host.objects.channels.get_mut(&at(channel)).unwrap().pop());
    let Some(told) = told else { return refuse(libc::EAGAIN) };
    // SAFETY: the caller has it.
    unsafe { *queue = std::ptr::with_exposed_provenance_mut(told) };
    0
}

unsafe extern "C" fn ack_cq_events(_: *mut ibv_cq, _: c_uint) {}

unsafe extern "C" fn create_srq(domain: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    system_call();
    // SAFETY: the caller has it.
    let context = unsafe { (*domain).context };
    // SAFETY: the caller has it.
    let init = unsafe { *init };
    with(|host| {
        let most = host.adapter(context).shared_receives as u32;
        if most == 0 {
            return nothing(libc::EOPNOTSUPP);
        }
        if init.attr.max_wr > most {
            return nothing(libc::EINVAL);
        }
        let queue = lend(ibv_srq { context });
        let (capacity, waiting) = (init.attr.max_wr as usize, VecDeque::new());
        host.objects.receives.insert(at(queue), ReceiveQueue { capacity, waiting });
        queue
    })
}

unsafe extern "C" fn destroy_srq(queue: *mut ibv_srq) -> c_int {
    system_call();
    with(|host| {
        let mut pairs = host.objects.pairs.values();
        assert!(pairs.all(|pair| pair.receives != at(queue)), "a queue pair has it");
        host.objects.receives.remove(&at(queue)).unwrap();
    });
    // SAFETY: it came from `create_srq`, and is given back once.
    drop(unsafe { regain(queue) });
    0
}

/// Posts a chain of receives to the queue that `find` finds.
///
/// # Safety
/// The chain and `bad` are the caller's.
unsafe fn post_receives(
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    find: impl Fn(&mut Objects) -> &mut ReceiveQueue,
) -> c_int {
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the caller's promise.
        let request = unsafe { *next };
        assert_eq!(request.num_sge, 1, "a receive has one place");
        // SAFETY: as above.
        let named = unsafe { *request.sg_list };
        let (base, len) = (named.addr as usize, named.length as usize);
        let is_posted = with(|host| {
            let found = find(&mut host.objects);
            let has_room = found.waiting.len() < found.capacity;
            if has_room {
                found.waiting.push_back(Receive { wr_id: request.wr_id, base, len });
            }
            has_room
        });
        if !is_posted {
            // SAFETY: the caller's promise.
            unsafe { *bad = next };
            return libc::ENOMEM;
        }
        next = request.next;
    }
    with(super::data::go_on);
    0
}

unsafe extern "C" fn post_srq_recv(
    queue: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promises.
    unsafe { post_receives(first, bad, |it| it.receives.get_mut(&at(queue)).unwrap()) }
}

unsafe extern "C" fn post_recv(
    pair: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller has it.
    let number = unsafe { (*pair).qp_num };
    let reached = with(|host| host.objects.pairs.get(&number).unwrap().state);
    assert!(reached != 0, "a receive is posted before the queue pair is initialised");
    // SAFETY: the caller's promises.
    let code =
        unsafe { post_receives(first, bad, |it| &mut it.pairs.get_mut(&number).unwrap().own) };
    if reached == state::IBV_QPS_ERR {
        with(|host| host.objects.flush_receives(number));
    }
    code
}

/// Puts the functions into the table.
pub(super) fn fill(table: &mut Library) {
    table.ibv_get_device_list = get_device_list;
    table.ibv_free_device_list = free_device_list;
    table.ibv_open_device = open_device;
    table.ibv_close_device = close_device;
    table.ibv_query_device = query_device;
    table.ibv_get_async_event = get_async_event;
    table.ibv_alloc_pd = alloc_pd;
    table.ibv_dealloc_pd = dealloc_pd;
    table.ibv_reg_mr = reg_mr;
    table.ibv_reg_mr_iova2 = Some(reg_mr_iova2);
    table.ibv_dereg_mr = dereg_mr;
    table.ibv_create_comp_channel = create_comp_channel;
    table.ibv_destroy_comp_channel = destroy_comp_channel;
    table.ibv_create_cq = create_cq;
    table.ibv_destroy_cq = destroy_cq;
    table.ibv_get_cq_event = get_cq_event;
    table.ibv_ack_cq_events = ack_cq_events;
    table.ibv_create_srq = create_srq;
    table.ibv_destroy_srq = destroy_srq;
}

/// A device as librdmacm has it open.
pub(super) fn open_for_cm(number: usize) -> *mut ibv_context {
    let device = with(|host| {
        host.devices();
        std::ptr::with_exposed_provenance_mut(host.objects.devices[number])
    });
    // SAFETY: the device is there.
    unsafe { open_device(device) }
}
