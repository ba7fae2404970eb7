//! A toy fabric, as a developer would add one: a folder with a provider and its `Open`.

use stag_fabrics::{Here, Notation, Open, Settings, Sharing};
use stag_pools::{Access, Buf, Extent, RemoteKey, Window};
use stag_sim::{Fabric, Port, Sim};
use stag_verbs::{
    Event, FabricFault, Limits, PeerAddress, Provider, Qp, Refusal, Refused, RemoteSpan, Tag, Time,
};
use std::{fmt, io, ops::Range, os::fd::BorrowedFd, path::Path, str::FromStr};

/// The name of a toy, written `toy://NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(pub String);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "toy://{}", self.0)
    }
}

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("toy://").unwrap_or(text) {
            "" => Err("a toy has a name, as in toy://bear"),
            name => Ok(Self(name.to_owned())),
        }
    }
}

impl Name {
    fn port(&self) -> Port {
        Port(self.0.bytes().fold(1, |port, octet| port.rotate_left(3) ^ u16::from(octet)))
    }
}

/// A fabric whose addresses are names; the rest is the simulated one.
#[derive(Debug)]
pub struct Toy(Sim);

impl Toy {
    pub fn windows_bound(&self) -> usize {
        self.0.windows_bound()
    }
}

impl Open for Toy {
    const NOTATION: Notation = Notation::Other;
    const SHARING: Sharing = Sharing::Nobody;
    const IS_SIMULATED: bool = true;

    fn here(_: &Path) -> Result<Here<Name>, String> {
        Ok(Here { at: Name("bear".to_owned()), facts: vec![("made of", "wood".to_owned())] })
    }

    fn for_listening(settings: Settings, _: &[Name]) -> io::Result<Self> {
        Ok(Self(Fabric::of_thread().end("listening toy", settings.limits)))
    }

    fn for_connecting(settings: Settings, _: Option<&Name>) -> io::Result<Self> {
        Ok(Self(Fabric::of_thread().end("connecting toy", settings.limits)))
    }
}

impl Provider for Toy {
    type Address = Name;

    const SCHEME: &'static str = "toy";

    fn limits(&self) -> &Limits {
        self.0.limits()
    }

    fn listen(&mut self, at: &Name) -> Result<Name, FabricFault> {
        self.0.listen(&at.port()).map(|_| at.clone())
    }

    fn stop_listening(&mut self) {
        self.0.stop_listening();
    }

    fn connect(&mut self, to: &Name, private_data: &[u8]) -> Result<Qp, FabricFault> {
        self.0.connect(&to.port(), private_data)
    }

    fn accept(&mut self, qp: Qp, private_data: &[u8]) -> Result<(), Refusal> {
        self.0.accept(qp, private_data)
    }

    fn reject(&mut self, qp: Qp, private_data: &[u8]) {
        self.0.reject(qp, private_data);
    }

    fn disconnect(&mut self, qp: Qp) {
        self.0.disconnect(qp);
    }

    fn private_data(&self, qp: Qp) -> &[u8] {
        self.0.private_data(qp)
    }

    fn peer_address(&self, qp: Qp) -> Option<PeerAddress> {
        self.0.peer_address(qp)
    }

    fn post_receive(&mut self, buf: Buf) -> Result<(), Buf> {
        self.0.post_receive(buf)
    }

    fn receives_posted(&self) -> usize {
        self.0.receives_posted()
    }

    fn bind(
        &mut self,
        qp: Qp,
        buf: Buf,
        span: Range<usize>,
        access: Access,
    ) -> Result<Window, Refused<Buf>> {
        self.0.bind(qp, buf, span, access)
    }

    fn post_send(
        &mut self,
        qp: Qp,
        tag: Tag,
        message: Buf,
        invalidate: Option<RemoteKey>,
    ) -> Result<(), Refused<Buf>> {
        self.0.post_send(qp, tag, message, invalidate)
    }

    fn post_write(
        &mut self,
        qp: Qp,
        tag: Tag,
        source: Extent,
        to: RemoteSpan,
    ) -> Result<(), Refused<Extent>> {
        self.0.post_write(qp, tag, source, to)
    }

    fn post_read(
        &mut self,
        qp: Qp,
        tag: Tag,
        sink: Buf,
        at: usize,
        from: &[RemoteSpan],
    ) -> Result<(), Refused<Buf>> {
        self.0.post_read(qp, tag, sink, at, from)
    }

    fn post_local_invalidate(&mut self, qp: Qp, tag: Tag, key: RemoteKey) -> Result<(), Refusal> {
        self.0.post_local_invalidate(qp, tag, key)
    }

    fn send_room(&self, qp: Qp) -> usize {
        self.0.send_room(qp)
    }

    fn ring(&mut self) {
        self.0.ring();
    }

    fn poll(&mut self, now: Time) -> Option<Event> {
        self.0.poll(now)
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.wait_fd()
    }

    fn wake_at(&self) -> Option<Time> {
        self.0.wake_at()
    }
}
