//! The fabric of a calling command, which the address decides: one type for all of them. Servers, whose time counts, are made
//! for one fabric each.

use crate::address::Listen;
#[cfg(feature = "verbs")]
use stag_ibverbs::{Ibverbs, Through};
use stag_iwarp::Iwarp;
use stag_pools::{Access, Buf, Extent, Pool, RemoteKey, Window};
use stag_shm::Shm;
use stag_verbs::{
    Count, Event, FabricFault, Limits, PeerAddress, Provider, Qp, Refusal, Refused, RemoteSpan, Tag, Time,
};
use std::{io, ops::Range, os::fd::BorrowedFd};

/// One of the fabrics.
#[derive(Debug)]
pub enum Fabric {
    /// The software RNIC.
    Iwarp(Box<Iwarp>),
    /// An RDMA device.
    #[cfg(feature = "verbs")]
    Rdma(Box<Ibverbs>),
    /// Memory shared with processes of this host.
    Shm(Box<Shm>),
}

impl Fabric {
    /// The one that `at` is an address of; the software RNIC for whoever calls over TCP only.
    pub fn new(at: Option<&Listen>, limits: Limits, seed: [u8; 32], now: Time) -> io::Result<Self> {
        match at {
            Some(Listen::Shm(at)) => {
                let config = stag_shm::Config::new(limits, seed, now);
                let config = stag_shm::Config { trust: at.is_trusting(), ..config };
                Shm::new(config).map(|shm| Self::Shm(Box::new(shm)))
            }
            #[cfg(feature = "verbs")]
            Some(Listen::Rdma(at)) => calling(limits, at, now).map(|rdma| Self::Rdma(Box::new(rdma))),
            Some(Listen::Iwarp(_)) | None => {
                let reserved_port = stag_load::takes_reserved_ports();
                let config =
                    stag_iwarp::Config { reserved_port, ..stag_iwarp::Config::new(limits, seed, now) };
                Iwarp::new(config).map(|iwarp| Self::Iwarp(Box::new(iwarp)))
            }
        }
    }
}

/// A device that calls `at`. Whoever calls lends memory to the server, for which a device needs windows.
#[cfg(feature = "verbs")]
pub fn calling(limits: Limits, at: &stag_ibverbs::Address, now: Time) -> io::Result<Ibverbs> {
    let rdma = Ibverbs::new(stag_ibverbs::Config::new(limits, Through::Toward(at.0), now))?;
    if rdma.about().has_windows {
        return Ok(rdma);
    }
    let name = &rdma.about().name;
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "{name} has no memory windows, so it can serve but not call: use iwarp:// where it speaks iWARP, or tcp://"
        ),
    ))
}

/// Asks whichever it is.
macro_rules! each {
    ($self:ident, $fabric:ident => $what:expr) => {
        match $self {
            Self::Iwarp($fabric) => $what,
            #[cfg(feature = "verbs")]
            Self::Rdma($fabric) => $what,
            Self::Shm($fabric) => $what,
        }
    };
}

impl Provider for Fabric {
    type Address = Listen;

    const SCHEME: &'static str = "fabric";

    fn counts(&self) -> Count {
        each!(self, fabric => fabric.counts())
    }

    fn limits(&self) -> &Limits {
        each!(self, fabric => fabric.limits())
    }

    fn wants_shared_pools(&self) -> bool {
        each!(self, fabric => fabric.wants_shared_pools())
    }

    fn register(&mut self, pool: &Pool) -> io::Result<()> {
        each!(self, fabric => fabric.register(pool))
    }

    fn listen(&mut self, at: &Listen) -> Result<Listen, FabricFault> {
        match (self, at) {
            (Self::Iwarp(fabric), Listen::Iwarp(at)) => fabric.listen(at).map(Listen::Iwarp),
            #[cfg(feature = "verbs")]
            (Self::Rdma(fabric), Listen::Rdma(at)) => fabric.listen(at).map(Listen::Rdma),
            (Self::Shm(fabric), Listen::Shm(at)) => fabric.listen(at).map(Listen::Shm),
            _ => Err(FabricFault::BadAddress),
        }
    }

    fn stop_listening(&mut self) {
        each!(self, fabric => fabric.stop_listening());
    }

    fn connect(&mut self, to: &Listen, private_data: &[u8]) -> Result<Qp, FabricFault> {
        match (self, to) {
            (Self::Iwarp(fabric), Listen::Iwarp(to)) => fabric.connect(to, private_data),
            #[cfg(feature = "verbs")]
            (Self::Rdma(fabric), Listen::Rdma(to)) => fabric.connect(to, private_data),
            (Self::Shm(fabric), Listen::Shm(to)) => fabric.connect(to, private_data),
            _ => Err(FabricFault::BadAddress),
        }
    }

    fn accept(&mut self, qp: Qp, private_data: &[u8]) -> Result<(), Refusal> {
        each!(self, fabric => fabric.accept(qp, private_data))
    }

    fn reject(&mut self, qp: Qp, private_data: &[u8]) {
        each!(self, fabric => fabric.reject(qp, private_data));
    }

    fn disconnect(&mut self, qp: Qp) {
        each!(self, fabric => fabric.disconnect(qp));
    }

    fn private_data(&self, qp: Qp) -> &[u8] {
        each!(self, fabric => fabric.private_data(qp))
    }

    fn peer_address(&self, qp: Qp) -> Option<PeerAddress> {
        each!(self, fabric => fabric.peer_address(qp))
    }

    fn post_receive(&mut self, buf: Buf) -> Result<(), Buf> {
        each!(self, fabric => fabric.post_receive(buf))
    }

    fn receives_posted(&self) -> usize {
        each!(self, fabric => fabric.receives_posted())
    }

    fn bind(&mut self, qp: Qp, buf: Buf, span: Range<usize>, access: Access) -> Result<Window, Refused<Buf>> {
        each!(self, fabric => fabric.bind(qp, buf, span, access))
    }

    fn post_send(
        &mut self,
        qp: Qp,
        tag: Tag,
        message: Buf,
        invalidate: Option<RemoteKey>,
    ) -> Result<(), Refused<Buf>> {
        each!(self, fabric => fabric.post_send(qp, tag, message, invalidate))
    }

    fn send_inline(&mut self, qp: Qp, message: &[u8], invalidate: Option<RemoteKey>) -> bool {
        each!(self, fabric => fabric.send_inline(qp, message, invalidate))
    }

    fn post_write(
        &mut self,
        qp: Qp,
        tag: Tag,
        source: Extent,
        to: RemoteSpan,
    ) -> Result<(), Refused<Extent>> {
        each!(self, fabric => fabric.post_write(qp, tag, source, to))
    }

    fn post_read(
        &mut self,
        qp: Qp,
        tag: Tag,
        sink: Buf,
        at: usize,
        from: &[RemoteSpan],
    ) -> Result<(), Refused<Buf>> {
        each!(self, fabric => fabric.post_read(qp, tag, sink, at, from))
    }

    fn post_local_invalidate(&mut self, qp: Qp, tag: Tag, key: RemoteKey) -> Result<(), Refusal> {
        each!(self, fabric => fabric.post_local_invalidate(qp, tag, key))
    }

    fn send_room(&self, qp: Qp) -> usize {
        each!(self, fabric => fabric.send_room(qp))
    }

    fn ring(&mut self) {
        each!(self, fabric => fabric.ring());
    }

    fn poll(&mut self, now: Time) -> Option<Event> {
        each!(self, fabric => fabric.poll(now))
    }

    fn arm(&mut self) -> bool {
        each!(self, fabric => fabric.arm())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        each!(self, fabric => fabric.wait_fd())
    }

    fn wake_at(&self) -> Option<Time> {
        each!(self, fabric => fabric.wake_at())
    }
}
