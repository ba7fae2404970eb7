//! The connection manager: how two identifiers become a connection, and how that ends.

use super::{
    address, at,
    cm::{IdState, Stage, device_at, is_iwarp, name_device, new_id},
    refuse, system_call, with,
};
use crate::{
    library::Library,
    sockaddr::{from_raw, to_raw},
    sys::{ibv_qp_state, rdma_cm_event_type as kind, rdma_cm_id, rdma_conn_param},
};
use libc::{c_int, c_void};
use std::{net::SocketAddr, ptr};

/// Octets of private data that an event has room for on InfiniBand: the fields have fixed sizes.
const REQUEST_ROOM: usize = 56;
const REPLY_ROOM: usize = 196;

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

/// Puts the functions into the table.
pub(super) fn fill(table: &mut Library) {
    table.rdma_connect = connect;
    table.rdma_establish = establish;
    table.rdma_accept = accept;
    table.rdma_reject = reject;
    table.rdma_disconnect = disconnect;
}
