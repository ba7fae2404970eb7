//! The generator's own ceiling (G14): a fabric without another end. Each message sent is answered
//! at the next poll, by NULL's reply.

use super::load::{self, RunTotals, Until};
use crate::{
    contender::{Contender, Reading},
    site::{MeasuringSite, shown},
};
use stag_engine::clock::Clock;
use stag_load::{Load, Workload};
use stag_pools::{Access, Buf, Extent, RemoteKey, Window, table::Key};
use stag_verbs::{
    Event, FabricFault, Limits, Look, Looked, Memory, PeerAddress, Provider, Qp, Refusal, Refused,
    RemoteSpan, Status, Tag, Time,
};
use std::{collections::VecDeque, io, ops::Range, os::fd::BorrowedFd};

/// The reply to NULL in RPC-over-RDMA version 1: RDMA_MSG without chunks that grants many credits,
/// and a successful reply. Both XIDs are the call's.
const REPLY: [u8; 52] = {
    let mut reply = [0; 52];
    reply[7] = 1;
    reply[10] = 16;
    reply[35] = 1;
    reply
};

/// A fabric without another end.
#[derive(Debug)]
pub struct ReplySink {
    limits: Limits,
    receives: VecDeque<Buf>,
    events: VecDeque<Event>,
    /// XIDs of calls that have no reply yet.
    calls: VecDeque<(Qp, [u8; 4])>,
    connections: u64,
}

impl ReplySink {
    /// One that holds this much.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            receives: VecDeque::with_capacity(limits.receives),
            events: VecDeque::with_capacity(limits.receives),
            calls: VecDeque::with_capacity(limits.receives),
            connections: 0,
        }
    }

    fn take(&mut self, qp: Qp, message: &[u8]) {
        let xid = message.first_chunk().copied().expect("a call has an XID");
        self.calls.push_back((qp, xid));
    }

    /// The reply to the oldest call. Without a receive it waits, as everywhere.
    #[inline]
    fn reply(&mut self) -> Option<(Qp, [u8; REPLY.len()])> {
        let (qp, xid) = if self.receives.is_empty() { None } else { self.calls.pop_front() }?;
        let mut reply = REPLY;
        for at in [0, 28] {
            reply.get_mut(at..at + 4).into_iter().for_each(|room| room.copy_from_slice(&xid));
        }
        Some((qp, reply))
    }
}

impl Provider for ReplySink {
    type Address = String;

    const SCHEME: &'static str = "sink";

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn listen(&mut self, _at: &String) -> Result<String, FabricFault> {
        Err(FabricFault::BadAddress)
    }

    fn stop_listening(&mut self) {}

    fn connect(&mut self, _to: &String, _private_data: &[u8]) -> Result<Qp, FabricFault> {
        self.connections += 1;
        let qp = Qp(Key::from_bits(self.connections));
        self.events.push_back(Event::Established { qp });
        Ok(qp)
    }

    fn accept(&mut self, _qp: Qp, _private_data: &[u8]) -> Result<(), Refusal> {
        Err(Refusal::Malformed)
    }

    fn reject(&mut self, _qp: Qp, _private_data: &[u8]) {}

    fn disconnect(&mut self, _qp: Qp) {}

    fn private_data(&self, _qp: Qp) -> &[u8] {
        &[]
    }

    fn peer_address(&self, _qp: Qp) -> Option<PeerAddress> {
        Some(PeerAddress::Simulated)
    }

    fn post_receive(&mut self, buf: Buf) -> Result<(), Buf> {
        if self.receives.len() >= self.limits.receives {
            return Err(buf);
        }
        self.receives.push_back(buf);
        Ok(())
    }

    fn receives_posted(&self) -> usize {
        self.receives.len()
    }

    fn bind(
        &mut self,
        _qp: Qp,
        buf: Buf,
        _span: Range<usize>,
        _access: Access,
    ) -> Result<Window, Refused<Buf>> {
        Err(Refused { why: Refusal::NotEstablished, token: buf })
    }

    fn post_send(
        &mut self,
        qp: Qp,
        tag: Tag,
        message: Buf,
        _invalidate: Option<RemoteKey>,
    ) -> Result<(), Refused<Buf>> {
        self.take(qp, &message);
        self.events.push_back(Event::Completed {
            qp,
            tag,
            status: Status::Success,
            memory: Memory::Buf(message),
        });
        Ok(())
    }

    fn send_inline(&mut self, qp: Qp, message: &[u8], _invalidate: Option<RemoteKey>) -> bool {
        self.take(qp, message);
        true
    }

    fn post_write(
        &mut self,
        _: Qp,
        _: Tag,
        source: Extent,
        _: RemoteSpan,
    ) -> Result<(), Refused<Extent>> {
        Err(Refused { why: Refusal::NotEstablished, token: source })
    }

    fn post_read(
        &mut self,
        _: Qp,
        _: Tag,
        sink: Buf,
        _: usize,
        _: &[RemoteSpan],
    ) -> Result<(), Refused<Buf>> {
        Err(Refused { why: Refusal::NotEstablished, token: sink })
    }

    fn post_local_invalidate(
        &mut self,
        _qp: Qp,
        _tag: Tag,
        _key: RemoteKey,
    ) -> Result<(), Refusal> {
        Err(Refusal::NotEstablished)
    }

    fn send_room(&self, _qp: Qp) -> usize {
        self.limits.send_queue
    }

    fn ring(&mut self) {}

    fn look(&mut self, _now: Time, room: &mut [u8]) -> Looked {
        if !self.events.is_empty() {
            return Look::Other.into();
        }
        let Some(room) = room.get_mut(..REPLY.len()) else { return Look::Other.into() };
        match self.reply() {
            Some((qp, reply)) => {
                room.copy_from_slice(&reply);
                Look::Message { qp, len: reply.len() }.into()
            }
            None => Look::Nothing.into(),
        }
    }

    fn take_receive(&mut self) -> Option<Buf> {
        self.receives.pop_front()
    }

    fn poll(&mut self, _now: Time) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let (qp, reply) = self.reply()?;
        let mut buf = self.receives.pop_front()?;
        buf.reset(0);
        buf.append(&reply).ok()?;
        Some(Event::Received { qp, buf, invalidated: None })
    }

    fn arm(&mut self) -> bool {
        self.events.is_empty() && self.calls.is_empty()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

/// NULL calls per second that the generator makes when nothing answers them but this.
///
/// # Errors
/// As `mmap(2)` fails, and when a call does.
pub fn rate(depth: usize, seconds: f64) -> io::Result<f64> {
    run(depth, Until::seconds(seconds)).map(|done| done.calls as f64 / done.seconds)
}

fn run(depth: usize, until: Until) -> io::Result<RunTotals> {
    let plan = load::plan(Workload::Null, 0, depth);
    let load = Load::new(ReplySink::new(plan.limits()), &plan)?;
    load::run(load, String::new(), Clock::start(), until)
}

/// The generator before nothing, as one side of a comparison.
#[derive(Debug)]
pub struct Ceiling {
    depth: usize,
    commands: Vec<String>,
}

impl Ceiling {
    /// Makes `depth` calls at a time.
    pub const fn new(depth: usize) -> Self {
        Self { depth, commands: Vec::new() }
    }
}

impl Contender for Ceiling {
    fn name(&self) -> String {
        "generator of stag bench".to_owned()
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let mut command = site.part(site.client, "sink");
        let seconds = format!("{:.3}", site.turn.as_secs_f64());
        command.args(["--depth", &self.depth.to_string(), "--seconds", &seconds]);
        self.commands = vec![shown(&command)];
        let said = site.run(command)?;
        let rate = said.trim().parse().map_err(|_| format!("{said:?} is no rate"))?;
        Ok(Reading { calls_per_s: Some(rate), ..Reading::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_answered() {
        for depth in [1, 32, 128] {
            assert_eq!(
                run(depth, Until { seconds: 60.0, calls: Some(10_000) }).unwrap().calls,
                10_000,
                "{depth}"
            );
        }
    }
}
