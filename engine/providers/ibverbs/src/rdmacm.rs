//! The connection manager: identifiers, what they are asked to do, and what they report. Nothing
//! here waits, but for [`device_through`], which runs before a shard has connections, and
//! [`Id::migrate`] and the end of an identifier for a thread that acknowledges an event at that
//! moment.

use crate::sys::{
    ibv_qp_attr, rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_conn_param,
    rdma_event_channel, rdma_port_space,
};
use crate::{
    config::Through,
    device::{Device, let_go, name_of, no_attr, set_nonblocking},
    library::{Library, Unavailable},
    sockaddr::{from_raw, to_raw},
};
use libc::c_int;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stag_verbs::VerbFault;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::BorrowedFd,
    ptr,
    sync::Arc,
    time::Duration,
};

/// Connections that wait in the kernel for our answer.
const BACKLOG: c_int = 128;

/// An event of the connection manager, as the kernel reports it.
#[derive(Debug)]
pub(crate) struct Event {
    /// The identifier it is about; of a connect request, the new one.
    pub(crate) id: *mut rdma_cm_id,
    /// Context that this provider set for the identifier; a connect request carries that of the
    /// listener.
    pub(crate) context: u64,
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) private_data: Vec<u8>,
    /// Reads that the peer lets us have in flight, and that it wants to have in flight.
    pub(crate) reads: ReadDepths,
    /// The name of its device, of a connect request and of a way that was found.
    pub(crate) device: Option<String>,
}

// SAFETY: the identifier is a name here. The one that is new has no other owner, and librdmacm
// leaves open which thread it belongs to.
unsafe impl Send for Event {}

/// Channel that delivers the events of all identifiers of a shard.
#[derive(Debug)]
pub(crate) struct Channel {
    library: &'static Library,
    raw: *mut rdma_event_channel,
    is_nonblocking: bool,
}

// SAFETY: a channel is a descriptor, which does not change while it is there; librdmacm lets
// several threads use it, and its last holder ends it.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    fn blocking(library: &'static Library) -> io::Result<Self> {
        // SAFETY: it has no argument.
        let raw = unsafe { (library.rdma_create_event_channel)() };
        if raw.is_null() {
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(io::Error::new(io::ErrorKind::NotFound, Unavailable::NoKernel { errno }));
        }
        Ok(Self { library, raw, is_nonblocking: false })
    }

    pub(crate) fn new(library: &'static Library) -> io::Result<Arc<Self>> {
        let mut channel = Self::blocking(library)?;
        // SAFETY: the channel was just made.
        set_nonblocking(unsafe { (*channel.raw).fd })?;
        channel.is_nonblocking = true;
        Ok(Arc::new(channel))
    }

    /// The functions that it was made by.
    pub(crate) const fn library(&self) -> &'static Library {
        self.library
    }

    /// Readable when there is an event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`.
        let fd = unsafe { (*self.raw).fd };
        // SAFETY: the descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// The next event.
    pub(crate) fn next(&self) -> Option<Event> {
        // A look costs no call of another thread's while there is nothing.
        if self.library.is_apart && self.is_nonblocking && !is_readable(self.fd()) {
            return None;
        }
        let mut raw = ptr::null_mut::<rdma_cm_event>();
        // SAFETY: the channel is there, `raw` is written to.
        if unsafe { (self.library.rdma_get_cm_event)(self.raw, &raw mut raw) } != 0 {
            return None;
        }
        // SAFETY: an event that is not acknowledged is valid.
        let event = unsafe { &*raw };
        let param = event.param;
        let private_data = if param.private_data.is_null() {
            Vec::new()
        } else {
            let len = usize::from(param.private_data_len);
            // SAFETY: it points to `len` octets inside of the event.
            unsafe { std::slice::from_raw_parts(param.private_data.cast::<u8>(), len) }.to_vec()
        };
        let kind = event.event;
        let asked = if kind == rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
            event.listen_id
        } else {
            event.id
        };
        // SAFETY: an identifier with an event that is not acknowledged is there.
        let context = unsafe { (*asked).context }.addr() as u64;
        let reads = ReadDepths { served: param.responder_resources, asked: param.initiator_depth };
        let has_device = matches!(
            kind,
            rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST
                | rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED
        );
        // SAFETY: as above.
        let device = if has_device { unsafe { device_of(event.id) } } else { None };
        let status = event.status;
        let event = Event { id: event.id, context, kind, status, private_data, reads, device };
        // SAFETY: it was given above, and is acknowledged once.
        unsafe { (self.library.rdma_ack_cm_event)(raw) };
        Some(event)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: every identifier holds an `Arc` of its channel.
        unsafe { (self.library.rdma_destroy_event_channel)(self.raw) };
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&at_once)).is_ok_and(|count| count > 0)
}

/// An identifier: a listener or one end of a connection.
#[derive(Debug)]
pub(crate) struct Id {
    channel: Arc<Channel>,
    raw: *mut rdma_cm_id,
}

// SAFETY: librdmacm lets any thread ask for something for an identifier, and locks what its threads
// share. Of its fields, the owner alone reads the addresses and the device, and the context is
// written when no other thread's channel has an event of it (`migrate`).
unsafe impl Send for Id {}
// SAFETY: as above. Its shard and the shard's thread of errands share it; the errands are done in
// an order, and the shard reads no field that one of them writes at that moment: addresses and
// device come with events.
unsafe impl Sync for Id {}

/// Numbers of RDMA Reads of one side of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadDepths {
    /// Reads of the peer that this side serves at a time (`responder_resources`).
    pub(crate) served: u8,
    /// Reads that this side has outstanding at most (`initiator_depth`).
    pub(crate) asked: u8,
}

/// Connection parameters that both sides exchange in addition to private data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) number: u32,
    /// Reads of the peer in flight at a time, and ours.
    pub(crate) reads: ReadDepths,
    pub(crate) rnr_retry: u8,
}

impl Terms {
    fn param(self, private_data: &[u8]) -> rdma_conn_param {
        rdma_conn_param {
            private_data: if private_data.is_empty() {
                ptr::null()
            } else {
                private_data.as_ptr().cast()
            },
            private_data_len: u8::try_from(private_data.len()).expect("the caller keeps the limit"),
            responder_resources: self.reads.served,
            initiator_depth: self.reads.asked,
            flow_control: 1,
            retry_count: 7,
            rnr_retry_count: self.rnr_retry,
            srq: 1,
            qp_num: self.number,
        }
    }
}

fn done(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Id {
    pub(crate) fn new(channel: &Arc<Channel>, context: u64) -> io::Result<Self> {
        let mut raw = ptr::null_mut();
        let context = ptr::without_provenance_mut(context as usize);
        let space = rdma_port_space::RDMA_PS_TCP;
        // SAFETY: the channel is there, `raw` is written to.
        done(unsafe {
            (channel.library.rdma_create_id)(channel.raw, &raw mut raw, context, space)
        })?;
        Ok(Self { channel: Arc::clone(channel), raw })
    }

    /// Takes over the identifier of a connect request.
    ///
    /// # Safety
    /// `raw` came with a connect request of `channel`, and no other code has taken it over.
    pub(crate) unsafe fn adopt(channel: &Arc<Channel>, raw: *mut rdma_cm_id) -> Self {
        Self { channel: Arc::clone(channel), raw }
    }

    /// Moves the delivery of its events to `channel` alone. Waits until events that another thread
    /// has just taken are acknowledged.
    pub(crate) fn migrate(&mut self, channel: &Arc<Channel>) -> io::Result<()> {
        // SAFETY: the identifier and both channels are there.
        done(unsafe { (channel.library.rdma_migrate_id)(self.raw, channel.raw) })?;
        self.channel = Arc::clone(channel);
        Ok(())
    }

    /// The result of a verb on its device.
    fn done(&self, verb: &'static str, code: c_int) -> io::Result<()> {
        done(code).map_err(|error| {
            let device = self.device_name();
            VerbFault::name(verb, device.as_deref().unwrap_or("no device yet"), error)
        })
    }

    /// Has its events say `context`.
    ///
    /// # Safety
    /// No other thread reads events of its channel meanwhile.
    pub(crate) unsafe fn set_context(&self, context: u64) {
        // SAFETY: the identifier is there; the caller's promise is about its only reader.
        unsafe { (*self.raw).context = ptr::without_provenance_mut(context as usize) };
    }

    /// Returns true if `channel` delivers its events.
    pub(crate) fn is_of(&self, channel: &Arc<Channel>) -> bool {
        Arc::ptr_eq(&self.channel, channel)
    }

    /// The port of the device that it goes through; 0 while that is unknown.
    pub(crate) fn port_number(&self) -> u8 {
        // SAFETY: the identifier is there, and librdmacm made all of it zero.
        unsafe { (*self.raw).port_num }
    }

    pub(crate) fn is(&self, raw: *mut rdma_cm_id) -> bool {
        self.raw == raw
    }

    /// The name of the device it goes through, once that is known.
    pub(crate) fn device_name(&self) -> Option<String> {
        // SAFETY: the identifier is there.
        unsafe { device_of(self.raw) }
    }

    /// Has librdmacm give up its device, which was removed.
    pub(crate) fn let_device_go(&self) {
        // SAFETY: the identifier is there.
        let context = unsafe { (*self.raw).verbs };
        if !context.is_null() {
            // SAFETY: librdmacm keeps it open as long as the identifier.
            unsafe { let_go(context) };
        }
    }

    fn device(&self) -> io::Result<Option<Arc<Device>>> {
        // SAFETY: the identifier is there.
        let context = unsafe { (*self.raw).verbs };
        if context.is_null() {
            return Ok(None);
        }
        // SAFETY: librdmacm keeps it open as long as the identifier.
        unsafe { Device::like(self.channel.library, context) }.map(Some)
    }

    /// Gives it a local address.
    pub(crate) fn bind(&self, at: SocketAddr) -> io::Result<()> {
        let mut at = to_raw(at);
        // SAFETY: the identifier is there, `at` is an address of its family.
        done(unsafe { (self.channel.library.rdma_bind_addr)(self.raw, (&raw mut at).cast()) })
    }

    /// Waits for peers; returns the port in use.
    pub(crate) fn listen(&self) -> io::Result<u16> {
        // SAFETY: the identifier is there.
        done(unsafe { (self.channel.library.rdma_listen)(self.raw, BACKLOG) })?;
        // SAFETY: the identifier is there.
        Ok(u16::from_be(unsafe { (self.channel.library.rdma_get_src_port)(self.raw) }))
    }

    /// Finds the way to `to`.
    pub(crate) fn resolve_address(&self, to: SocketAddr, within: Duration) -> io::Result<()> {
        let mut to = to_raw(to);
        let to = (&raw mut to).cast();
        // SAFETY: the identifier is there, `to` is an address.
        done(unsafe {
            (self.channel.library.rdma_resolve_addr)(self.raw, ptr::null_mut(), to, millis(within))
        })
    }

    pub(crate) fn resolve_route(&self, within: Duration) -> io::Result<()> {
        // SAFETY: the identifier is there.
        self.done("rdma_resolve_route", unsafe {
            (self.channel.library.rdma_resolve_route)(self.raw, millis(within))
        })
    }

    /// Returns the attributes, and the mask that selects them, for the move of the queue pair to
    /// `state`.
    pub(crate) fn attr(&self, state: u32) -> io::Result<(ibv_qp_attr, c_int)> {
        let (mut attr, mut mask) = (no_attr(), 0);
        attr.qp_state = state;
        // SAFETY: the identifier is there, both are written to.
        self.done("rdma_init_qp_attr", unsafe {
            (self.channel.library.rdma_init_qp_attr)(self.raw, &raw mut attr, &raw mut mask)
        })?;
        Ok((attr, mask))
    }

    pub(crate) fn connect(&self, terms: Terms, private_data: &[u8]) -> io::Result<()> {
        let mut param = terms.param(private_data);
        // SAFETY: the identifier is there, `param` points to octets that are.
        self.done("rdma_connect", unsafe {
            (self.channel.library.rdma_connect)(self.raw, &raw mut param)
        })
    }

    /// Reports that our queue pair is ready for the connection that the peer accepted.
    pub(crate) fn establish(&self) -> io::Result<()> {
        // SAFETY: the identifier is there.
        self.done("rdma_establish", unsafe { (self.channel.library.rdma_establish)(self.raw) })
    }

    pub(crate) fn accept(&self, terms: Terms, private_data: &[u8]) -> io::Result<()> {
        let mut param = terms.param(private_data);
        // SAFETY: the identifier is there, `param` points to octets that are.
        self.done("rdma_accept", unsafe {
            (self.channel.library.rdma_accept)(self.raw, &raw mut param)
        })
    }

    pub(crate) fn reject(&self, private_data: &[u8]) {
        let len = u8::try_from(private_data.len()).expect("the caller cuts it");
        // SAFETY: the identifier is there. A peer that has gone makes it fail, and then there is no
        // one to notify.
        unsafe { (self.channel.library.rdma_reject)(self.raw, private_data.as_ptr().cast(), len) };
    }

    /// Ends the connection, or confirms the end that the peer began.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the identifier is there. It fails where no connection is left to end.
        unsafe { (self.channel.library.rdma_disconnect)(self.raw) };
    }

    /// Reports an event of the device to the connection manager.
    pub(crate) fn notify(&self, event: c_int) {
        // SAFETY: the identifier is there. It fails where the connection manager knew already.
        unsafe { (self.channel.library.rdma_notify)(self.raw, event) };
    }

    /// The other end.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is there, and librdmacm made all of it zero.
        let storage = unsafe { (*self.raw).dst_addr };
        from_raw(&storage)
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once; each of its events is acknowledged where it is taken.
        unsafe { (self.channel.library.rdma_destroy_id)(self.raw) };
    }
}

/// The name of an identifier's device, once that is known.
///
/// # Safety
/// The identifier is there.
unsafe fn device_of(id: *mut rdma_cm_id) -> Option<String> {
    // SAFETY: the caller's promise.
    let context = unsafe { (*id).verbs };
    // SAFETY: librdmacm keeps it open as long as the identifier.
    (!context.is_null()).then(|| unsafe { name_of(context) })
}

fn millis(duration: Duration) -> c_int {
    c_int::try_from(duration.as_millis()).unwrap_or(c_int::MAX)
}

/// A device, and an identifier that is bound to it, if it was found by an address.
#[derive(Debug)]
pub(crate) struct FoundDevice {
    pub(crate) device: Arc<Device>,
    pub(crate) id: Option<Id>,
}

/// Opens the device that `through` names. Waits `within` at most for the way to a peer.
pub(crate) fn device_through(
    library: &'static Library,
    through: Through,
    within: Duration,
) -> io::Result<FoundDevice> {
    let (ip, id) = match through {
        Through::Local(ip) if ip.is_unspecified() => {
            return Ok(FoundDevice { device: Device::first(library)?, id: None });
        }
        Through::Local(ip) => (ip, id_at(library, ip)?),
        Through::Toward(peer) => (peer.ip(), id_toward(library, peer, within)?),
    };
    match id {
        Some(id) => match id.device()? {
            Some(device) => Ok(FoundDevice { device, id: Some(id) }),
            None => Err(not_here(ip)),
        },
        None => Err(not_here(ip)),
    }
}

/// An identifier with this address, if the address is here.
fn id_at(library: &'static Library, ip: IpAddr) -> io::Result<Option<Id>> {
    let channel = Arc::new(Channel::blocking(library)?);
    let id = Id::new(&channel, 0)?;
    let is_bound = id.bind(SocketAddr::new(ip, 0)).is_ok();
    Ok(is_bound.then_some(id))
}

/// The name of the device that has this address, if one has.
pub(crate) fn device_name_at(library: &'static Library, ip: IpAddr) -> io::Result<Option<String>> {
    Ok(id_at(library, ip)?.and_then(|id| id.device_name()))
}

pub(crate) fn not_here(ip: IpAddr) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, Unavailable::NotHere(ip))
}

/// Waits until the system says which device leads to `peer`. None: none does, or it does not say
/// so in time.
fn id_toward(
    library: &'static Library,
    peer: SocketAddr,
    within: Duration,
) -> io::Result<Option<Id>> {
    let channel = Arc::new(Channel::blocking(library)?);
    let id = Id::new(&channel, 0)?;
    let is_resolved = id.resolve_address(peer, within).is_ok()
        && channel
            .next()
            .is_some_and(|event| event.kind == rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED);
    Ok(is_resolved.then_some(id))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::IntoRawFd;

    /// A channel of a library that does nothing, which reports nothing.
    pub(crate) fn channel(library: &'static Library) -> Arc<Channel> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        let raw = Box::leak(Box::new(rdma_event_channel { fd: fd.into_raw_fd() }));
        Arc::new(Channel { library, raw, is_nonblocking: true })
    }

    /// An identifier of that library.
    pub(crate) fn no_id() -> Id {
        let library = Box::leak(Box::new(Library::idle()));
        Id { channel: channel(library), raw: ptr::null_mut() }
    }
}
