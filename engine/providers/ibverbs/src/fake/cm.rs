//! The connection manager.

use super::{Context, Told, address, at, lend, objects, refuse, regain, system_call, with};
use crate::{
    device::tests::zeroed,
    library::Library,
    sockaddr::{from_raw, to_raw},
    sys::{
        ibv_context, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state, rdma_cm_event,
        rdma_cm_event_type as kind, rdma_cm_id, rdma_conn_param, rdma_event_channel,
    },
};
use libc::{c_int, c_uint, c_void, sockaddr, sockaddr_storage};
use std::{collections::HashMap, net::SocketAddr, ptr};

/// Octets of private data that an event has room for on InfiniBand: the fields have fixed sizes.
const REQUEST_ROOM: usize = 56;
const REPLY_ROOM: usize = 196;
/// Traffic class, timeout and retries of a connection, as the connection manager chooses them.
pub(super) const LINK: (u8, u8, u8) = (0, 17, 7);

/// The part of a connection's set-up that an identifier has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Listens,
    /// It asked a peer, or was asked.
    Asked,
    Connected,
    Over,
}

#[derive(Debug)]
pub(super) struct IdState {
    pub(super) channel: usize,
    device: usize,
    /// The context that it names the device by; 0: none.
    context: usize,
    local: SocketAddr,
    stage: Stage,
    is_asking: bool,
    peer: Option<usize>,
    number: u32,
}

/// An event and its private data.
#[repr(C)]
pub(super) struct OwnedEvent {
    raw: rdma_cm_event,
    private_data: Vec<u8>,
}

impl std::fmt::Debug for OwnedEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "event {}", self.raw.event)
    }
}

#[derive(Debug, Default)]
pub(super) struct ConnectionManager {
    /// The devices, as identifiers name them.
    contexts: HashMap<usize, usize>,
    /// Those of devices that were removed.
    stale: Vec<usize>,
    pub(super) channels: HashMap<usize, Told<Box<OwnedEvent>>>,
    pub(super) ids: HashMap<usize, IdState>,
    ports: u16,
}

impl ConnectionManager {
    /// Reports something to the owner of an identifier.
    fn tell(&mut self, id: usize, event: u32, status: c_int) {
        self.tell_of(id, ptr::null_mut(), event, status, &[]);
    }

    fn tell_of(
        &mut self,
        id: usize,
        listener: *mut rdma_cm_id,
        event: u32,
        status: c_int,
        private_data: &[u8],
    ) {
        let owner = if listener.is_null() { id } else { at(listener) };
        let Some(channel) = self.ids.get(&owner).map(|it| it.channel) else { return };
        let param = rdma_conn_param {
            private_data: ptr::null(),
            private_data_len: private_data.len() as u8,
            responder_resources: 16,
            initiator_depth: 16,
            flow_control: 1,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: 0,
            qp_num: 0,
        };
        let id = ptr::with_exposed_provenance_mut(id);
        let raw = rdma_cm_event { id, listen_id: listener, event, status, param };
        let mut told = Box::new(OwnedEvent { raw, private_data: private_data.to_vec() });
        if !told.private_data.is_empty() {
            told.raw.param.private_data = told.private_data.as_ptr().cast();
        }
        self.channels.get_mut(&channel).unwrap().push(told);
    }

    /// Takes the events of an identifier out of its channel.
    #[allow(clippy::vec_box, reason = "C has pointers to them")]
    fn take_events(&mut self, id: usize) -> Vec<Box<OwnedEvent>> {
        let Some(channel) = self.ids.get(&id).map(|it| it.channel) else { return Vec::new() };
        let told = self.channels.get_mut(&channel).unwrap();
        let all: Vec<_> = std::iter::from_fn(|| told.pop()).collect();
        let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|event| {
            at(event.raw.id) == id && event.raw.event != kind::RDMA_CM_EVENT_CONNECT_REQUEST
        });
        others.into_iter().for_each(|other| told.push(other));
        own
    }

    /// Returns true if it is a context that identifiers name.
    pub(super) fn has_open(&self, context: usize) -> bool {
        self.contexts.values().chain(&self.stale).any(|it| *it == context)
    }

    /// Reports the removal of a device to all identifiers on it.
    pub(super) fn remove(&mut self, device: usize) {
        self.stale.extend(self.contexts.remove(&device));
        let on_it = self.ids.iter().filter(|(_, it)| it.context != 0 && it.device == device);
        let on_it: Vec<_> = on_it.map(|(id, _)| *id).collect();
        on_it.into_iter().for_each(|id| self.tell(id, kind::RDMA_CM_EVENT_DEVICE_REMOVAL, 0));
    }

    /// Ends a connection, and tells both ends.
    fn part(&mut self, id: usize) -> bool {
        let Some(state) = self.ids.get_mut(&id).filter(|it| it.stage == Stage::Connected) else {
            return false;
        };
        state.stage = Stage::Over;
        let peer = state.peer.take();
        self.tell(id, kind::RDMA_CM_EVENT_DISCONNECTED, 0);
        let Some(peer) = peer else { return true };
        if let Some(state) = self.ids.get_mut(&peer) {
            (state.stage, state.peer) = (Stage::Over, None);
            self.tell(peer, kind::RDMA_CM_EVENT_DISCONNECTED, 0);
        }
        true
    }
}

fn new_id(channel: usize, context: Context, stage: Stage) -> *mut rdma_cm_id {
    let device = 0;
    let mut id = zeroed::<rdma_cm_id>();
    id.context = context;
    let id = lend(id);
    let local = SocketAddr::new(address(device), 0);
    let state = IdState {
        channel,
        device,
        context: 0,
        local,
        stage,
        is_asking: false,
        peer: None,
        number: 0,
    };
    with(|host| host.cm.ids.insert(id.expose_provenance(), state));
    id
}

unsafe extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    into: *mut *mut rdma_cm_id,
    context: Context,
    _: c_uint,
) -> c_int {
    system_call();
    let id = new_id(at(channel), context, Stage::New);
    // SAFETY: the caller has it.
    unsafe { *into = id };
    0
}

unsafe extern "C" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    system_call();
    with(|host| {
        let cm = &mut host.cm;
        cm.part(at(id));
        drop(cm.take_events(at(id)));
        let state = cm.ids.remove(&at(id)).unwrap();
        // A server that goes away rejects its peer. Of a client that goes away no event tells.
        if state.stage == Stage::Asked
            && !state.is_asking
            && let Some(peer) = state.peer
        {
            cm.tell(peer, kind::RDMA_CM_EVENT_REJECTED, 28);
        }
    });
    // SAFETY: it came from `create_id`, and is given back once.
    drop(unsafe { regain(id) });
    0
}

/// Closes devices that were removed and that no identifier names any more, as librdmacm does when
/// another device appears.
fn close_unused() {
    let unused: Vec<_> = with(|host| {
        let ConnectionManager { ids, stale, .. } = &mut host.cm;
        let is_unused = |context: &mut usize| ids.values().all(|it| it.context != *context);
        stale.extract_if(.., is_unused).collect()
    });
    for context in unused {
        // SAFETY: it was opened for identifiers, of which none is left.
        unsafe { objects::close_device(ptr::with_exposed_provenance_mut(context)) };
    }
}

/// The address that C passes.
///
/// # Safety
/// It is one of the family that it says.
unsafe fn address_of(raw: *mut sockaddr) -> SocketAddr {
    // SAFETY: the caller's promise: the provider makes all of them in storages.
    from_raw(unsafe { &*raw.cast::<sockaddr_storage>() }).unwrap()
}

/// Names the device in an identifier.
fn name_device(id: *mut rdma_cm_id, device: usize) {
    let known = with(|host| host.cm.contexts.get(&device).copied());
    let context = match known {
        None => {
            close_unused();
            let context = objects::open_for_cm(device);
            with(|host| host.cm.contexts.insert(device, context.expose_provenance()));
            context
        }
        Some(known) => ptr::with_exposed_provenance_mut::<ibv_context>(known),
    };
    with(|host| {
        let own = host.cm.ids.get_mut(&at(id)).unwrap();
        (own.device, own.context) = (device, at(context));
    });
    // SAFETY: the caller has it.
    unsafe { (*id).verbs = context };
}

/// The device that has an address.
fn device_at(ip: std::net::IpAddr) -> Option<usize> {
    with(|host| {
        let here = (0..host.adapters.len()).filter(|device| !host.removed.contains(device));
        here.into_iter().find(|device| address(*device) == ip)
    })
}

/// Returns true if an identifier belongs to an iWARP device.
fn is_iwarp(id: *mut rdma_cm_id) -> bool {
    with(|host| host.adapters[host.cm.ids.get(&at(id)).unwrap().device].is_iwarp)
}

unsafe extern "C" fn bind_addr(id: *mut rdma_cm_id, to: *mut sockaddr) -> c_int {
    system_call();
    // SAFETY: the caller has it.
    let to = unsafe { address_of(to) };
    let device = device_at(to.ip());
    if device.is_none() && !to.ip().is_unspecified() {
        return refuse(libc::ENODEV);
    }
    let is_taken = with(|host| {
        let cm = &mut host.cm;
        let is_taken = to.port() != 0 && cm.ids.values().any(|it| it.local == to);
        if !is_taken {
            cm.ids.get_mut(&at(id)).unwrap().local = to;
        }
        is_taken
    });
    if is_taken {
        return refuse(libc::EADDRINUSE);
    }
    device.into_iter().for_each(|device| name_device(id, device));
    0
}

unsafe extern "C" fn listen(id: *mut rdma_cm_id, _: c_int) -> c_int {
    system_call();
    with(|host| {
        let cm = &mut host.cm;
        cm.ports += 1;
        let port = 40_000 + cm.ports;
        let state = cm.ids.get_mut(&at(id)).unwrap();
        if state.local.port() == 0 {
            state.local.set_port(port);
        }
        state.stage = Stage::Listens;
    });
    0
}

unsafe extern "C" fn get_src_port(id: *mut rdma_cm_id) -> u16 {
    with(|host| host.cm.ids.get(&at(id)).unwrap().local.port()).to_be()
}

unsafe extern "C" fn resolve_addr(
    id: *mut rdma_cm_id,
    _: *mut sockaddr,
    to: *mut sockaddr,
    _: c_int,
) -> c_int {
    system_call();
    // SAFETY: the caller has it.
    let to = unsafe { address_of(to) };
    if device_at(to.ip()).is_none() {
        return refuse(libc::ENETUNREACH);
    }
    // The last device is that of callers.
    let device = with(|host| host.adapters.len() - 1);
    if with(|host| host.removed.contains(&device)) {
        return refuse(libc::ENETUNREACH);
    }
    name_device(id, device);
    // SAFETY: the caller has it.
    unsafe { (*id).dst_addr = to_raw(to) };
    with(|host| host.cm.tell(at(id), kind::RDMA_CM_EVENT_ADDR_RESOLVED, 0));
    0
}

unsafe extern "C" fn resolve_route(id: *mut rdma_cm_id, _: c_int) -> c_int {
    system_call();
    with(|host| host.cm.tell(at(id), kind::RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
    0
}

unsafe extern "C" fn init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    system_call();
    let mut said = ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC;
    if !is_iwarp(id) {
        // SAFETY: the caller has it.
        let attr = unsafe { &mut *attr };
        (attr.ah_attr.traffic_class, attr.timeout, attr.retry_cnt) = LINK;
        said |= match attr.qp_state {
            ibv_qp_state::IBV_QPS_RTR => ibv_qp_attr_mask::IBV_QP_AV,
            ibv_qp_state::IBV_QPS_RTS => {
                ibv_qp_attr_mask::IBV_QP_TIMEOUT | ibv_qp_attr_mask::IBV_QP_RETRY_CNT
            }
            _ => 0,
        };
    }
    // SAFETY: the caller has it.
    unsafe { *mask = said as c_int };
    0
}

/// The private data of a request, reply or rejection, as long as the field for them.
///
/// # Safety
/// `len` octets are there.
unsafe fn private_data(from: *const c_void, len: u8, room: usize, is_iwarp: bool) -> Vec<u8> {
    let mut octets = match len {
        0 => Vec::new(),
        // SAFETY: the caller's promise.
        len => unsafe { std::slice::from_raw_parts(from.cast::<u8>(), usize::from(len)) }.to_vec(),
    };
    if octets.len() < room && !is_iwarp {
        octets.resize(room, 0);
    }
    octets
}

unsafe extern "C" fn connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    system_call();
    let adapter = with(|host| host.adapters[host.cm.ids.get(&at(id)).unwrap().device]);
    if adapter.fails == Some("rdma_connect") {
        return refuse(libc::EACCES);
    }
    // SAFETY: the caller has it.
    let to = from_raw(unsafe { &(*id).dst_addr }).unwrap();
    // SAFETY: the caller has it.
    let param = unsafe { *param };
    // SAFETY: as above.
    let said = unsafe {
        private_data(param.private_data, param.private_data_len, REQUEST_ROOM, is_iwarp(id))
    };
    let is_iwarp = is_iwarp(id);
    let listener = with(|host| {
        let is_here = |it: &IdState| it.context == 0 || !host.removed.contains(&it.device);
        let is_it = |it: &IdState| {
            let is_at =
                it.local == to || it.local.ip().is_unspecified() && it.local.port() == to.port();
            it.stage == Stage::Listens && is_at && is_here(it)
        };
        host.cm.ids.iter().find(|(_, it)| is_it(it)).map(|(id, it)| (*id, it.channel))
    });
    let Some((listener, channel)) = listener else {
        with(|host| match is_iwarp {
            true => {
                let refused = -libc::ECONNREFUSED;
                host.cm.tell(at(id), kind::RDMA_CM_EVENT_CONNECT_ERROR, refused);
            }
            false => host.cm.tell(at(id), kind::RDMA_CM_EVENT_REJECTED, 8),
        });
        return 0;
    };
    let listener = ptr::with_exposed_provenance_mut::<rdma_cm_id>(listener);
    // SAFETY: a listener that is known is there.
    let context = unsafe { (*listener).context };
    let asked = new_id(channel, context, Stage::Asked);
    name_device(asked, device_at(to.ip()).unwrap());
    let from = with(|host| address(host.cm.ids.get(&at(id)).unwrap().device));
    // SAFETY: it was just made.
    unsafe { (*asked).dst_addr = to_raw(SocketAddr::new(from, 50_000)) };
    with(|host| {
        let cm = &mut host.cm;
        cm.ids.get_mut(&at(asked)).unwrap().peer = Some(at(id));
        let own = cm.ids.get_mut(&at(id)).unwrap();
        (own.stage, own.is_asking, own.peer) = (Stage::Asked, true, Some(at(asked)));
        own.number = param.qp_num;
        cm.tell_of(at(asked), listener, kind::RDMA_CM_EVENT_CONNECT_REQUEST, 0, &said);
    });
    0
}

unsafe extern "C" fn accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    system_call();
    // SAFETY: the caller has it.
    let param = unsafe { *param };
    // SAFETY: as above.
    let said = unsafe {
        private_data(param.private_data, param.private_data_len, REPLY_ROOM, is_iwarp(id))
    };
    let iwarp = is_iwarp(id);
    with(|host| {
        let cm = &mut host.cm;
        let own = cm.ids.get_mut(&at(id)).unwrap();
        let Some(peer) = own.peer.filter(|_| own.stage == Stage::Asked) else {
            return refuse(libc::EINVAL);
        };
        own.stage = Stage::Connected;
        let Some(theirs) = cm.ids.get_mut(&peer).filter(|it| it.peer == Some(at(id))) else {
            cm.ids.get_mut(&at(id)).unwrap().stage = Stage::Over;
            cm.tell(at(id), kind::RDMA_CM_EVENT_REJECTED, 28);
            return 0;
        };
        theirs.stage = Stage::Connected;
        let numbers = [param.qp_num, theirs.number];
        for (place, number) in numbers.iter().enumerate() {
            if let Some(pair) = host.objects.pairs.get_mut(number) {
                pair.peer = Some(numbers[1 - place]);
            }
        }
        if iwarp {
            // There the kernel brings the queue pairs to where they send and receive.
            for number in numbers {
                if let Some(pair) = host.objects.pairs.get_mut(&number) {
                    pair.state = ibv_qp_state::IBV_QPS_RTS;
                }
            }
            cm.tell_of(peer, ptr::null_mut(), kind::RDMA_CM_EVENT_ESTABLISHED, 0, &said);
            cm.tell(at(id), kind::RDMA_CM_EVENT_ESTABLISHED, 0);
        } else {
            cm.tell_of(peer, ptr::null_mut(), kind::RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &said);
        }
        0
    })
}

unsafe extern "C" fn establish(id: *mut rdma_cm_id) -> c_int {
    system_call();
    with(|host| {
        let peer = host.cm.ids.get(&at(id)).unwrap().peer;
        peer.into_iter().for_each(|it| host.cm.tell(it, kind::RDMA_CM_EVENT_ESTABLISHED, 0));
    });
    0
}

unsafe extern "C" fn reject(id: *mut rdma_cm_id, octets: *const c_void, len: u8) -> c_int {
    system_call();
    // SAFETY: the caller has them.
    let said = unsafe { private_data(octets, len, 0, false) };
    let status = if is_iwarp(id) { -libc::ECONNRESET } else { 28 };
    with(|host| {
        let cm = &mut host.cm;
        let own = cm.ids.get_mut(&at(id)).unwrap();
        let Some(peer) = own.peer.take().filter(|_| own.stage == Stage::Asked) else {
            return refuse(libc::EINVAL);
        };
        own.stage = Stage::Over;
        cm.tell_of(peer, ptr::null_mut(), kind::RDMA_CM_EVENT_REJECTED, status, &said);
        0
    })
}

unsafe extern "C" fn disconnect(id: *mut rdma_cm_id) -> c_int {
    system_call();
    with(|host| if host.cm.part(at(id)) { 0 } else { refuse(libc::EINVAL) })
}

unsafe extern "C" fn notify(_: *mut rdma_cm_id, _: c_int) -> c_int {
    system_call();
    0
}

unsafe extern "C" fn migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    system_call();
    with(|host| {
        let events = host.cm.take_events(at(id));
        host.cm.ids.get_mut(&at(id)).unwrap().channel = at(channel);
        let told = host.cm.channels.get_mut(&at(channel)).unwrap();
        events.into_iter().for_each(|event| told.push(event));
    });
    0
}

/// Puts the functions into the table.
pub(super) fn fill(table: &mut Library) {
    table.rdma_create_id = create_id;
    table.rdma_destroy_id = destroy_id;
    table.rdma_bind_addr = bind_addr;
    table.rdma_listen = listen;
    table.rdma_get_src_port = get_src_port;
    table.rdma_resolve_addr = resolve_addr;
    table.rdma_resolve_route = resolve_route;
    table.rdma_init_qp_attr = init_qp_attr;
    table.rdma_connect = connect;
    table.rdma_establish = establish;
    table.rdma_accept = accept;
    table.rdma_reject = reject;
    table.rdma_disconnect = disconnect;
    table.rdma_notify = notify;
    table.rdma_migrate_id = migrate_id;
}
