//! The connection manager: channels of events.

use super::{Told, at, cm::OwnedEvent, lend, refuse, regain, system_call, with};
use crate::{
    library::Library,
    sys::{rdma_cm_event, rdma_event_channel},
};
use libc::c_int;

unsafe extern "C" fn create_event_channel() -> *mut rdma_event_channel {
    system_call();
    let told = Told::new();
    let channel = lend(rdma_event_channel { fd: told.raw_fd() });
    with(|host| host.cm.channels.insert(at(channel), told));
    channel
}

unsafe extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    system_call();
    with(|host| {
        assert!(host.cm.ids.values().all(|id| id.channel != at(channel)), "an identifier has it");
        host.cm.channels.remove(&at(channel)).unwrap();
    });
    // SAFETY: it came from `create_event_channel`, and is given back once.
    drop(unsafe { regain(channel) });
}

unsafe extern "C" fn get_cm_event(
    channel: *mut rdma_event_channel,
    into: *mut *mut rdma_cm_event,
) -> c_int {
    system_call();
    let told = with(|host| host.cm.channels.get_mut(&at(channel)).unwrap().pop());
    let Some(told) = told else { return refuse(libc::EAGAIN) };
    // SAFETY: the caller has it. The event begins with what C knows of it.
    unsafe { *into = Box::into_raw(told).cast() };
    0
}

unsafe extern "C" fn ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: it came from `get_cm_event`, and is acknowledged once.
    drop(unsafe { regain(event.cast::<OwnedEvent>()) });
    0
}

/// Puts the functions into the table.
pub(super) fn fill(table: &mut Library) {
    table.rdma_create_event_channel = create_event_channel;
    table.rdma_destroy_event_channel = destroy_event_channel;
    table.rdma_get_cm_event = get_cm_event;
    table.rdma_ack_cm_event = ack_cm_event;
}
