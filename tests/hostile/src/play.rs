//! Execution of a defect, and observation of the answer.

use crate::{
    answer::{AnswerPattern, SeenAnswers},
    judge::{self, Family},
    peer::{Heard, HostileFabric, Opening, dial},
    record::{RecordStream, StreamRecord},
    wire::{NFS, RawHeader, RawTagged, call, record, word_at},
    world::HostileWorld,
};
use std::{fmt, io, io::Write, net::TcpStream, time::Duration};

/// Layer whose rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DefectLayer {
    /// Set-up and FPDUs (RFC 5044, RFC 6581).
    Mpa,
    /// Segments (RFC 5041).
    Ddp,
    /// Operations (RFC 5040).
    Rdmap,
    /// RPC-over-RDMA and its private data (RFC 8166, RFC 8167, RFC 8797).
    RpcRdma,
    /// RPC and its records (RFC 5531).
    Rpc,
    /// RPCSEC_GSS (RFC 2203).
    Gss,
    /// NFS and MOUNT (RFC 1813, RFC 8267).
    Nfs,
}

impl DefectLayer {
    /// All of them, from below.
    pub const ALL: [Self; 7] =
        [Self::Mpa, Self::Ddp, Self::Rdmap, Self::RpcRdma, Self::Rpc, Self::Gss, Self::Nfs];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mpa => "mpa",
            Self::Ddp => "ddp",
            Self::Rdmap => "rdmap",
            Self::RpcRdma => "rpcrdma",
            Self::Rpc => "rpc",
            Self::Gss => "gss",
            Self::Nfs => "nfs",
        }
    }
}

type MakeMessage = Box<dyn Fn(&mut HostileFabric, &HostileWorld, u32) -> Vec<u8> + Send + Sync>;
type MakeCall = Box<dyn Fn(&HostileWorld, u32) -> Vec<u8> + Send + Sync>;
type MakeScene = Box<dyn Fn(&HostileWorld) -> io::Result<SeenAnswers> + Send + Sync>;

/// Action of a defect.
pub(crate) enum Play {
    /// These octets replace an MPA Request.
    Frame(Vec<u8>),
    /// These octets follow a good set-up and a first FPDU.
    Octets(Vec<u8>),
    /// These ULPDUs follow a good set-up, in right FPDUs.
    Ulpdus(Vec<Vec<u8>>),
    /// This message is sent.
    Message(MakeMessage, Family),
    /// This RPC message is sent over both transports.
    Rpc(MakeCall, Family),
    /// These octets are written into a TCP stream; the answer is that of the given XID.
    Octet(MakeCall, Family),
    /// Anything else.
    Scene(MakeScene),
}

/// A defect of a client.
pub struct Defect {
    /// Its name, unique.
    pub name: String,
    /// Layer whose rule it breaks.
    pub layer: DefectLayer,
    /// Section of the rule.
    pub clause: &'static str,
    /// The class of answer that the specification requires; alternatives between `|`.
    pub expect: &'static str,
    /// True if it is safe to try with a kernel of which only the RPC side is under test.
    pub is_kernel_safe: bool,
    /// True if the defect waits for a deadline of the peer.
    pub is_slow: bool,
    /// True if the server has to accept contexts of [`crate::gss::KnownKeyAcceptor`].
    pub needs_key: bool,
    pub(crate) play: Play,
}

impl fmt::Debug for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Defect")
            .field("name", &self.name)
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}

/// The rule that a defect breaks, and the answers that are right.
#[derive(Clone, Copy)]
pub(crate) struct BrokenRule {
    /// Specification and section.
    pub(crate) clause: &'static str,
    /// Answers in the words of `answer.rs`, with `|` between them.
    pub(crate) expect: &'static str,
}

pub(crate) const fn rule(clause: &'static str, expect: &'static str) -> BrokenRule {
    BrokenRule { clause, expect }
}

/// The table of a layer while it is filled.
pub(crate) struct DefectTable {
    layer: DefectLayer,
    defects: Vec<Defect>,
}

impl DefectTable {
    pub(crate) const fn new(layer: DefectLayer) -> Self {
        Self { layer, defects: Vec::new() }
    }

    pub(crate) fn into_defects(self) -> Vec<Defect> {
        self.defects
    }

    pub(crate) fn add(
        &mut self,
        name: impl Into<String>,
        clause: &'static str,
        expect: &'static str,
        play: Play,
    ) -> &mut Defect {
        let name = format!("{}-{}", self.layer.name(), name.into());
        let (layer, is_kernel_safe, is_slow) = (self.layer, true, false);
        let needs_key = layer == DefectLayer::Gss;
        self.defects.push(Defect {
            name,
            layer,
            clause,
            expect,
            is_kernel_safe,
            is_slow,
            needs_key,
            play,
        });
        self.defects.last_mut().expect("one was just pushed")
    }

    pub(crate) fn frame(
        &mut self,
        name: &str,
        clause: &'static str,
        expect: &'static str,
        octets: Vec<u8>,
    ) -> &mut Defect {
        self.add(name, clause, expect, Play::Frame(octets))
    }

    pub(crate) fn octets(
        &mut self,
        name: &str,
        clause: &'static str,
        expect: &'static str,
        octets: Vec<u8>,
    ) -> &mut Defect {
        self.add(name, clause, expect, Play::Octets(octets))
    }

    pub(crate) fn ulpdu(
        &mut self,
        name: &str,
        clause: &'static str,
        expect: &'static str,
        ulpdu: Vec<u8>,
    ) -> &mut Defect {
        self.add(name, clause, expect, Play::Ulpdus(vec![ulpdu]))
    }

    pub(crate) fn ulpdus(
        &mut self,
        name: &str,
        clause: &'static str,
        expect: &'static str,
        ulpdus: Vec<Vec<u8>>,
    ) -> &mut Defect {
        self.add(name, clause, expect, Play::Ulpdus(ulpdus))
    }

    /// A message that calls NULL, if it is understood.
    pub(crate) fn message(
        &mut self,
        name: &str,
        clause: &'static str,
        expect: &'static str,
        message: impl Fn(&mut HostileFabric, &HostileWorld, u32) -> Vec<u8> + Send + Sync + 'static,
    ) -> &mut Defect {
        self.add(name, clause, expect, Play::Message(Box::new(message), Family::Rpc))
    }

    /// A message that calls a procedure with a status.
    pub(crate) fn call(
        &mut self,
        name: &str,
        clause: &'static str,
        expect: &'static str,
        message: impl Fn(&mut HostileFabric, &HostileWorld, u32) -> Vec<u8> + Send + Sync + 'static,
    ) -> &mut Defect {
        self.add(name, clause, expect, Play::Message(Box::new(message), Family::Nfs))
    }

    pub(crate) fn rpc(
        &mut self,
        name: &str,
        clause: &'static str,
        expect: &'static str,
        message: impl Fn(&HostileWorld, u32) -> Vec<u8> + Send + Sync + 'static,
    ) -> &mut Defect {
        self.add(name, clause, expect, Play::Rpc(Box::new(message), Family::Rpc))
    }

    pub(crate) fn octet(
        &mut self,
        name: &str,
        clause: &'static str,
        expect: &'static str,
        octets: impl Fn(&HostileWorld, u32) -> Vec<u8> + Send + Sync + 'static,
    ) -> &mut Defect {
        self.add(name, clause, expect, Play::Octet(Box::new(octets), Family::Rpc))
    }

    /// A call of a client that has a context, which has to serve the next call afterwards.
    pub(crate) fn scene(
        &mut self,
        name: &str,
        clause: &'static str,
        expect: &'static str,
        scene: impl Fn(&HostileWorld) -> io::Result<SeenAnswers> + Send + Sync + 'static,
    ) -> &mut Defect {
        self.add(name, clause, expect, Play::Scene(Box::new(scene)))
    }
}

impl Defect {
    /// It may stop a kernel, or its outcome depends on what a kernel does not do.
    pub(crate) fn not_for_kernels(&mut self) -> &mut Self {
        self.is_kernel_safe = false;
        self
    }

    pub(crate) fn slow(&mut self) -> &mut Self {
        self.is_slow = true;
        self
    }

    /// Plays it. Returns the answers over TCP where they differ from the answers over the fabric,
    /// else the answers seen.
    pub fn play(&self, world: &HostileWorld) -> io::Result<SeenAnswers> {
        match &self.play {
            Play::Frame(octets) => frame(world, octets),
            Play::Octets(octets) => {
                let mut fabric = world.fabric()?;
                // Before its first valid FPDU the peer may send none, not even a Terminate (RFC
                // 5044 §7.1.2).
                fabric.say_ulpdu(&RawTagged::write(1, 0).with(b""))?;
                fabric.say(octets)?;
                observe(&mut fabric, world, &[], Family::Rpc)
            }
            Play::Ulpdus(ulpdus) => {
                let mut fabric = world.fabric()?;
                for ulpdu in ulpdus {
                    fabric.say_ulpdu(ulpdu)?;
                }
                observe(&mut fabric, world, &[], Family::Rpc)
            }
            Play::Message(message, family) => {
                let mut fabric = world.fabric()?;
                let octets = message(&mut fabric, world, world.xid());
                fabric.send(&octets)?;
                observe(&mut fabric, world, &octets, *family)
            }
            Play::Rpc(message, family) => self.both(world, message, *family),
            Play::Octet(octets, family) => {
                let xid = world.xid();
                over_tcp(world, &octets(world, xid), xid, *family)
            }
            Play::Scene(scene) => scene(world),
        }
    }

    /// Both transports have to answer alike, but for what a transport decides itself.
    fn both(
        &self,
        world: &HostileWorld,
        message: &MakeCall,
        family: Family,
    ) -> io::Result<SeenAnswers> {
        let xid = world.xid();
        let streamed = over_tcp(world, &record(&message(world, xid)), xid, family)?;
        if !streamed.is_in(self.expect) {
            return Ok(streamed);
        }
        let mut fabric = world.fabric()?;
        let xid = world.xid();
        let octets = RawHeader::msg(xid).with(&message(world, xid));
        fabric.send(&octets)?;
        observe(&mut fabric, world, &octets, family)
    }
}

/// Says `octets` where an MPA Request belongs.
fn frame(world: &HostileWorld, octets: &[u8]) -> io::Result<SeenAnswers> {
    let mut fabric = HostileFabric::over(dial(world.target.rdma, world.target.patience)?, true);
    fabric.say(octets)?;
    set_up(&mut fabric, world)
}

/// Observes the peer's answer to a Request; if the connection is accepted, checks that it carries a
/// call.
pub(crate) fn set_up(fabric: &mut HostileFabric, world: &HostileWorld) -> io::Result<SeenAnswers> {
    if let Err(answer) = fabric.hear_reply(world.target.patience)? {
        return Ok(answer.into());
    }
    let served = fabric.is_served(world.xid(), world.target.patience)?;
    Ok(SeenAnswers { answer: AnswerPattern::Accepted, closed: !served })
}

/// Observes the peer's answer to `sent`, a message that may have one.
pub(crate) fn observe(
    fabric: &mut HostileFabric,
    world: &HostileWorld,
    sent: &[u8],
    family: Family,
) -> io::Result<SeenAnswers> {
    let patience = world.target.patience;
    let probe = world.xid();
    let mut heard = fabric.hear(world.target.pause)?;
    let mut probed = false;
    if heard == Heard::Nothing {
        ask(fabric, probe)?;
        probed = true;
        heard = fabric.hear(patience)?;
    }
    let message = match heard {
        Heard::Message(message, _) => message,
        other => return Ok(ending(fabric, &other).into()),
    };
    if probed && word_at(&message, 0) == probe {
        // A server of many threads may answer the second call first.
        return match fabric.hear(world.target.grace)? {
            Heard::Message(late, _) => {
                Ok(judge::message(sent, &late, &fabric.memory, family).into())
            }
            _ if fabric.trespassed => Ok(AnswerPattern::Trespass.into()),
            _ => Ok(AnswerPattern::Discarded.into()),
        };
    }
    let answer = if fabric.trespassed {
        AnswerPattern::Trespass
    } else {
        judge::message(sent, &message, &fabric.memory, family)
    };
    if !probed {
        ask(fabric, probe)?;
    }
    match fabric.hear(patience)? {
        Heard::Message(message, _) if word_at(&message, 0) == probe => Ok(answer.into()),
        Heard::Message(..) => Ok(AnswerPattern::Several.into()),
        Heard::Closed | Heard::Terminate(..) => Ok(SeenAnswers { answer, closed: true }),
        Heard::Nothing | Heard::Response(_) | Heard::Nonsense => Ok(AnswerPattern::Nothing.into()),
    }
}

fn ask(fabric: &mut HostileFabric, xid: u32) -> io::Result<()> {
    fabric.send(&RawHeader::msg(xid).with(&call(xid, NFS, 3, 0).0))
}

/// Classifies an event that came in place of a message.
pub(crate) fn ending(fabric: &HostileFabric, heard: &Heard) -> AnswerPattern {
    match heard {
        _ if fabric.trespassed => AnswerPattern::Trespass,
        Heard::Terminate(layer, kind, code) => AnswerPattern::Terminate(*layer, *kind, *code),
        Heard::Closed => AnswerPattern::Closed,
        Heard::Nothing => AnswerPattern::Nothing,
        Heard::Message(..) | Heard::Response(_) | Heard::Nonsense => AnswerPattern::Nonsense,
    }
}

/// Writes `octets` into a stream of RPC, and looks for the reply to `xid`.
pub(crate) fn over_tcp(
    world: &HostileWorld,
    octets: &[u8],
    xid: u32,
    family: Family,
) -> io::Result<SeenAnswers> {
    let mut stream = world.stream()?;
    stream.say(octets)?;
    observe_stream(&mut stream, world, xid, family)
}

/// Observes the peer's answer to octets that were written into a stream.
pub(crate) fn observe_stream(
    stream: &mut RecordStream,
    world: &HostileWorld,
    xid: u32,
    family: Family,
) -> io::Result<SeenAnswers> {
    let patience = world.target.patience;
    let probe = world.xid();
    let probing = record(&call(probe, NFS, 3, 0).0);
    let mut heard = stream.hear(world.target.pause)?;
    let mut probed = false;
    if heard == StreamRecord::Nothing {
        stream.say(&probing)?;
        probed = true;
        heard = stream.hear(patience)?;
    }
    let reply = match heard {
        StreamRecord::Whole(reply) => reply,
        StreamRecord::Closed => return Ok(AnswerPattern::Closed.into()),
        StreamRecord::Nothing => return Ok(AnswerPattern::Nothing.into()),
    };
    if probed && word_at(&reply, 0) == probe {
        return Ok(match stream.hear(world.target.grace)? {
            StreamRecord::Whole(late) => judge::rpc(&late, xid, family),
            _ => AnswerPattern::Discarded,
        }
        .into());
    }
    let answer = judge::rpc(&reply, xid, family);
    if !probed {
        stream.say(&probing)?;
    }
    match stream.hear(patience)? {
        StreamRecord::Whole(reply) if word_at(&reply, 0) == probe => Ok(answer.into()),
        StreamRecord::Whole(_) => Ok(AnswerPattern::Several.into()),
        StreamRecord::Closed => Ok(SeenAnswers { answer, closed: true }),
        StreamRecord::Nothing => Ok(AnswerPattern::Nothing.into()),
    }
}

/// Opens a connection with another Request.
pub(crate) fn open_with(
    world: &HostileWorld,
    change: impl FnOnce(&mut Opening),
) -> io::Result<Result<HostileFabric, AnswerPattern>> {
    let mut opening = Opening::new(world.target.crc);
    change(&mut opening);
    HostileFabric::open(world.target.rdma, &opening, world.target.patience)
}

/// Writes octets one at a time until the peer closes or `longest` is over; whether it closed.
pub(crate) fn dribble(
    stream: &mut TcpStream,
    octets: &[u8],
    every: Duration,
    longest: Duration,
) -> io::Result<bool> {
    let started = std::time::Instant::now();
    stream.set_read_timeout(Some(every))?;
    let mut rest = octets.iter();
    while started.elapsed() < longest {
        if let Some(octet) = rest.next()
            && stream.write_all(&[*octet]).is_err()
        {
            return Ok(true);
        }
        match io::Read::read(stream, &mut [0; 64]) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(_) => return Ok(true),
        }
    }
    Ok(false)
}
