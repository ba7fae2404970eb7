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
use libc::{c_int, c_uint, sockaddr, sockaddr_storage};
use std::{collections::HashMap, net::SocketAddr, ptr};

/// Traffic class, timeout and retries of a connection, as the connection manager chooses them.
pub(super) const LINK: (u8, u8, u8) = (0, 17, 7);

/// The part of a connection's set-up that an identifier has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
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
    pub(super) device: usize,
    /// The context that it names the device by; 0: none.
    pub(super) context: usize,
    pub(super) local: SocketAddr,
    pub(super) stage: Stage,
    pub(super) is_asking: bool,
    pub(super) peer: Option<usize>,
    pub(super) number: u32,
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
    pub(super) fn tell(&mut self, id: usize, event: u32, status: c_int) {
        self.tell_of(id, ptr::null_mut(), event, status, &[]);
    }

    pub(super) fn tell_of(
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
        self.tell_all(device, kind::RDMA_CM_EVENT_DEVICE_REMOVAL);
    }

    /// Moves the address of a bond to its other device. Identifiers are
    /// notified and of no use from then on.
    pub(super) fn fail_over(&mut self, device: usize) {
        self.tell_all(device, kind::RDMA_CM_EVENT_ADDR_CHANGE);
        let listening = |it: &&mut IdState| it.device == device && it.stage == Stage::Listens;
        self.ids.values_mut().filter(listening).for_each(|it| it.stage = Stage::Over);
    }

    /// Reports an event to all identifiers on a device.
    fn tell_all(&mut self, device: usize, event: u32) {
        let on_it = self.ids.iter().filter(|(_, it)| it.context != 0 && it.device == device);
        let on_it: Vec<_> = on_it.map(|(id, _)| *id).collect();
        on_it.into_iter().for_each(|id| self.tell(id, event, 0));
    }

    /// Ends a connection, and notifies both ends.
    pub(super) fn part(&mut self, id: usize) -> bool {
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

pub(super) fn new_id(channel: usize, context: Context, stage: Stage) -> *mut rdma_cm_id {
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
        // A server that goes away rejects its peer. No event reports a client that goes away.
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
pub(super) fn name_device(id: *mut rdma_cm_id, device: usize) {
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
pub(super) fn device_at(ip: std::net::IpAddr) -> Option<usize> {
    with(|host| {
        let here = (0..host.adapters.len()).filter(|device| {
            !host.removed.contains(device) && !host.without_address.contains(device)
        });
        here.into_iter().find(|device| address(*device) == ip)
    })
}

/// Returns true if an identifier belongs to an iWARP device.
pub(super) fn is_iwarp(id: *mut rdma_cm_id) -> bool {
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
    table.rdma_notify = notify;
    table.rdma_migrate_id = migrate_id;
    super::dial::fill(table);
}
