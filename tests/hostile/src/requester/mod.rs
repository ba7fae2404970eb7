//! A server that answers badly, for our own calling side.
//!
//! Each defect has a call of our client (`stag-client`, which `stag call` uses) and an action in
//! place of the reply, or of the MPA Reply. The client's reaction is observed on the wire: it sends
//! a Terminate, closes, answers, or goes on waiting. In the last case the right reply follows on
//! the same connection. A connection that ended is made again, and there the server behaves well.
//! In the end the client must call with success, and hold no buffer and no call.

mod accesses;
mod messages;
mod replies;
mod results;
mod returned;
mod segments;
mod table;
mod timing;
mod version2;

use crate::{
    answer::{AnswerPattern, SeenAnswers},
    judge::{self, ChunkCounts, Family},
    peer::{Heard, HostileFabric, is_error},
    wire::{
        NOMSG, REPLY, RawHeader, RawSegment, RawTagged, RawUntagged, S, depths, frame, offer,
        word_at,
    },
};
use stag_client::{ClientConfig, Error, NfsClient};
use stag_engine::{CallFault, clock::Clock};
use stag_iwarp::{Iwarp, IwarpAddress};
use stag_protocol::{
    nfs::v3::{FileHandle, StableHow},
    rpcrdma::{Version2, Versions},
};
use std::{
    fmt, io,
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

pub use table::all;

/// Octets that READs and WRITEs of the client move.
const LEN: usize = 8_192;
/// Time for which the client waits for an MPA Reply.
const SET_UP: Duration = Duration::from_millis(500);
/// Time to listen to the client before the right reply follows.
const PAUSE: Duration = Duration::from_millis(30);
/// Time limit for any other event.
const PATIENCE: Duration = Duration::from_secs(10);

/// Call that the client makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// NULL: nothing but a header.
    Null,
    /// READ of 8,192 octets into a Write chunk.
    Read,
    /// The same, twice, the second time from a file of other octets. It is the second one that is
    /// answered badly.
    ReadAgain,
    /// WRITE of 8,192 octets from a Read chunk.
    Write,
    /// READDIR, whose reply goes into a Reply chunk.
    List,
    /// GETATTR.
    Stat,
    /// LOOKUP.
    Look,
    /// READLINK.
    Link,
    /// FSINFO.
    Info,
    /// COMMIT.
    Commit,
}

impl CallKind {
    const fn of(procedure: u32) -> Self {
        match procedure {
            1 => Self::Stat,
            3 => Self::Look,
            5 => Self::Link,
            6 => Self::Read,
            7 => Self::Write,
            16 => Self::List,
            19 => Self::Info,
            21 => Self::Commit,
            _ => Self::Null,
        }
    }
}

/// The versions that the server speaks. The client tries version 2 with one that does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// Version 1.
    #[default]
    One,
    /// Version 2 as draft 000 has it.
    Two,
    /// The same with the words of draft 001, which it announces.
    Directed,
}

impl Speaks {
    pub(crate) const ALL: [Self; 3] = [Self::One, Self::Two, Self::Directed];
    pub(crate) const NEW: [Self; 2] = [Self::Two, Self::Directed];

    /// The part that the names of its defects begin with.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::One => "",
            Self::Two => "v2-",
            Self::Directed => "v2-directed-",
        }
    }

    const fn version(self) -> u32 {
        if matches!(self, Self::One) { 1 } else { 2 }
    }

    /// Octets before the lists.
    const fn lists_at(self) -> usize {
        if matches!(self, Self::Directed) { 24 } else { 16 }
    }
}

/// A call as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct AskedCall {
    pub(crate) xid: u32,
    /// It is no call but a reply, to one of ours.
    pub(crate) is_reply: bool,
    pub(crate) does: CallKind,
    pub(crate) lists: ChunkCounts,
    pub(crate) speaks: Speaks,
    /// The handle that it lets us invalidate.
    pub(crate) named: u32,
}

impl AskedCall {
    /// The segment of its first chunk; a dead one when there is none.
    pub(crate) fn segment(&self) -> RawSegment {
        let write =
            self.lists.writes.first().or(self.lists.reply.as_ref()).and_then(|chunk| chunk.first());
        write
            .copied()
            .or_else(|| self.lists.reads.first().map(|(_, segment)| *segment))
            .unwrap_or_default()
    }

    /// The header of a reply without lists.
    pub(crate) fn bare(&self) -> RawHeader {
        let intent = (self.speaks == Speaks::Directed).then_some([1, self.named]);
        RawHeader { version: self.speaks.version(), intent, ..RawHeader::msg(self.xid) }
    }

    /// The same of an RDMA_NOMSG.
    pub(crate) fn bare_nomsg(&self) -> RawHeader {
        RawHeader { procedure: NOMSG, ..self.bare() }
    }

    /// The header of a call of the server's own.
    pub(crate) fn calling(&self, xid: u32) -> RawHeader {
        let bare = self.bare();
        RawHeader { xid, intent: bare.intent.map(|_| [0, 0]), ..bare }
    }

    /// Maps an octet after the fixed words of a version 1 header to its place in this header.
    pub(crate) const fn at(&self, octet: usize) -> usize {
        octet + self.speaks.lists_at() - 16
    }

    /// The header of a right reply: everything that was offered, returned as it was; of a Reply
    /// chunk nothing was written.
    pub(crate) fn header(&self) -> RawHeader {
        let empty =
            |chunk: &Vec<RawSegment>| chunk.iter().map(|segment| segment.of_len(0)).collect();
        let reply = self.lists.reply.as_ref().map(empty);
        RawHeader { writes: self.lists.writes.clone(), reply, ..self.bare() }
    }

    /// The header of a reply of which `len` octets are in the Reply chunk.
    pub(crate) fn long_header(&self, len: usize) -> RawHeader {
        self.bare_nomsg().reply(&[self.segment().of_len(len as u32)])
    }

    /// The RPC message of a right reply, its item excepted.
    pub(crate) fn results(&self) -> Vec<u8> {
        replies::results(self)
    }
}

type SetUp = Box<dyn Fn(&mut HostileFabric) -> io::Result<()> + Send + Sync>;
type Script = Box<dyn Fn(&mut HostileFabric, &AskedCall) -> io::Result<()> + Send + Sync>;

/// Action in place of the right answer.
pub(crate) enum Instead {
    /// These octets replace an MPA Reply.
    OfSetUp(Vec<u8>),
    /// The script runs in place of an MPA Reply.
    ScriptOfSetUp(SetUp),
    /// Nothing is said, for good.
    Silence,
    /// The script runs when the first call is there.
    OfReply(CallKind, Script),
}

/// A defect of a server.
pub struct ServerDefect {
    /// Its name, unique.
    pub name: String,
    /// Section of the rule.
    pub clause: &'static str,
    /// Reaction that the specification requires of the requester; alternatives between `|`.
    pub expect: &'static str,
    pub(crate) instead: Instead,
    pub(crate) speaks: Speaks,
    /// Time that its call may take.
    pub(crate) timeout: Duration,
}

impl fmt::Debug for ServerDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Defect").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ServerDefect {
    /// Plays it with a client and a server of its own.
    pub fn play(&self) -> io::Result<SeenAnswers> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let at = IwarpAddress(listener.local_addr()?);
        listener.set_nonblocking(true)?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener, self, &over));
            let called = self.call(&at);
            over.store(true, Ordering::Relaxed);
            let seen =
                server.join().map_err(|_| io::Error::other("the hostile server panicked"))??;
            let (first, then) = called?;
            Ok(match (seen, first, then) {
                (_, _, Err(error)) => {
                    return Err(io::Error::other(format!("the next call fails: {error}")));
                }
                (None, Ok(()), _) => AnswerPattern::Served,
                (None, Err(_), _) => AnswerPattern::Failed,
                (Some(_), Err(Error::Call(CallFault::TimedOut)), _) if self.timeout < PATIENCE => {
                    AnswerPattern::GivenUp
                }
                // A connection that could not be made is the caller's to try again; a call on one
                // that was lost goes out again.
                (Some(seen), Err(error), _) if matches!(self.instead, Instead::OfReply(..)) => {
                    return Err(io::Error::other(format!("{seen}, and the call fails: {error}")));
                }
                (Some(seen), ..) => seen,
            }
            .into())
        })
    }

    /// The client's part: the outcome of the call that is answered badly, and of the next one.
    #[allow(clippy::type_complexity)]
    fn call(&self, at: &IwarpAddress) -> io::Result<(Result<(), Error>, Result<(), Error>)> {
        let clock = Clock::start();
        let mut config = ClientConfig { timeout: self.timeout, ..ClientConfig::new(0x00AB_CDEF) };
        if self.speaks != Speaks::One {
            config.shard.call_versions = Versions::Both(Version2::Directed);
        }
        let mut fabric = stag_iwarp::IwarpConfig::new(config.limits(), [3; 32], clock.now());
        fabric.reply_timeout = SET_UP;
        let mut client = NfsClient::new(Iwarp::new(fabric)?, config, move || clock.now())
            .map_err(io::Error::other)?;
        let does = match self.instead {
            Instead::OfReply(does, _) => does,
            Instead::OfSetUp(_) | Instead::ScriptOfSetUp(_) | Instead::Silence => CallKind::Null,
        };
        let connected = client.keep_connected(at);
        let first = connected.and_then(|()| run(&mut client, does));
        let then = match connected {
            Ok(()) => client.null(),
            Err(_) => client.keep_connected(at).and_then(|()| client.null()),
        };
        client.disconnect();
        let held = (client.raw().buffers_in_use(), client.raw().calls_in_progress());
        if held != (0, (0, 0)) {
            return Err(io::Error::other(format!("the client holds buffers and calls: {held:?}")));
        }
        Ok((first, then))
    }
}

fn run(client: &mut NfsClient<Iwarp>, does: CallKind) -> Result<(), Error> {
    let file = FileHandle::new(&[7; 16]).expect("16 octets are a handle");
    match does {
        CallKind::Null => client.null(),
        CallKind::Read => read(client, file),
        CallKind::ReadAgain => {
            read(client, file)?;
            read(client, FileHandle::new(&[8; 16]).expect("16 octets are a handle"))
        }
        CallKind::Write => client.write(file, 0, &[CONTENT; LEN], StableHow::FileSync).map(drop),
        CallKind::List => match client.readdir(file, 65_536)?.len() {
            replies::NAMES => Ok(()),
            _ => Err(Error::Nonsense("READDIR brought other names than were sent")),
        },
        CallKind::Stat => client.getattr(file).map(drop),
        CallKind::Look => client.lookup(file, b"name").map(drop),
        CallKind::Link => client.readlink(file).map(drop),
        CallKind::Info => client.fsinfo(file).map(drop),
        CallKind::Commit => client.commit(file, 0, 0).map(drop),
    }
}

fn read(client: &mut NfsClient<Iwarp>, file: FileHandle) -> Result<(), Error> {
    let mut room = [0; LEN];
    client.read(file, 0, &mut room)?;
    if room == [CONTENT; LEN] {
        Ok(())
    } else {
        Err(Error::Nonsense("READ brought other octets than were sent"))
    }
}

/// The octet that files are made of.
pub(crate) const CONTENT: u8 = 0x42;

/// The server's part. Returns the client's reaction to the defect; none when its next call came.
fn serve(
    listener: &TcpListener,
    defect: &ServerDefect,
    over: &AtomicBool,
) -> io::Result<Option<AnswerPattern>> {
    let speaks = defect.speaks;
    let Some(stream) = accept(listener, over)? else { return Ok(Some(AnswerPattern::Nothing)) };
    let mut fabric = HostileFabric::over(stream, true);
    fabric.hear_request(PATIENCE)?;
    let seen = match &defect.instead {
        Instead::OfSetUp(octets) => {
            fabric.say(octets)?;
            after_set_up(&mut fabric)?
        }
        Instead::ScriptOfSetUp(script) => {
            script(&mut fabric)?;
            after_set_up(&mut fabric)?
        }
        Instead::Silence => after_set_up(&mut fabric)?,
        Instead::OfReply(does, script) => {
            fabric.say(&good_reply(speaks))?;
            let Some(mut asked) = next_call(&mut fabric, speaks)? else {
                return Ok(Some(AnswerPattern::Nothing));
            };
            if *does == CallKind::ReadAgain {
                replies::reply(&mut fabric, &asked)?;
                let next = next_call(&mut fabric, speaks)?;
                asked = next.ok_or_else(|| io::Error::other("the second READ does not come"))?;
            }
            script(&mut fabric, &asked)?;
            after_reply(&mut fabric, &asked)?
        }
    };
    serve_well(&mut fabric, over, speaks)?;
    while let Some(stream) = accept(listener, over)? {
        let mut fabric = HostileFabric::over(stream, true);
        if fabric.hear_request(PATIENCE)? {
            fabric.say(&good_reply(speaks))?;
            serve_well(&mut fabric, over, speaks)?;
        }
    }
    Ok(seen)
}

/// Revision 2, peer to peer with a Write, 32 Reads each way, both sizes 4,096 octets.
pub(crate) fn good_reply(speaks: Speaks) -> Vec<u8> {
    let announced: &[u8] = if speaks == Speaks::Directed { b"Stag\x01\x01\0\0" } else { b"" };
    let data = [&depths(0x8000 | 32, 0x8000 | 32)[..], &offer(1, 1, 3, 3), announced].concat();
    frame(REPLY, crate::wire::C | S, 2, &data)
}

fn accept(listener: &TcpListener, over: &AtomicBool) -> io::Result<Option<TcpStream>> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                return Ok(Some(stream));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if over.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The next call. None when the connection ends.
fn next_call(fabric: &mut HostileFabric, speaks: Speaks) -> io::Result<Option<AskedCall>> {
    match fabric.hear(PATIENCE)? {
        Heard::Message(message, _) => Ok(asked(&message, speaks)),
        _ => Ok(None),
    }
}

/// Reads a message, which is one of version 1 or of the version spoken otherwise.
fn asked(message: &[u8], speaks: Speaks) -> Option<AskedCall> {
    let speaks = if word_at(message, 4) == 2 { speaks } else { Speaks::One };
    let lists = judge::lists_at(message, speaks.lists_at())?;
    let does = CallKind::of(word_at(message, lists.end + 20));
    let is_reply = word_at(message, lists.end + 4) == 1;
    let named = if speaks == Speaks::Directed { word_at(message, 20) } else { 0 };
    Some(AskedCall { xid: word_at(message, 0), is_reply, does, lists, speaks, named })
}

/// Observes the client's reaction to an MPA Reply.
fn after_set_up(fabric: &mut HostileFabric) -> io::Result<Option<AnswerPattern>> {
    Ok(Some(match fabric.hear(PATIENCE)? {
        Heard::Message(message, _) => {
            if let Some(asked) = asked(&message, Speaks::One) {
                replies::reply(fabric, &asked)?;
            }
            AnswerPattern::Accepted
        }
        other => crate::play::ending(fabric, &other),
    }))
}

/// Observes the client's reaction to the octets in place of a reply. `None` if the client calls
/// again.
fn after_reply(fabric: &mut HostileFabric, asked: &AskedCall) -> io::Result<Option<AnswerPattern>> {
    let mut answer = None;
    loop {
        match fabric.hear(PAUSE)? {
            // It answered: what, is seen; the reply to its own call is due nevertheless.
            Heard::Message(message, _) if is_error(&message) => {
                answer = Some(match word_at(&message, 16) {
                    2 => AnswerPattern::ErrChunk,
                    3 => AnswerPattern::ErrOther(3),
                    _ => AnswerPattern::Nonsense,
                });
            }
            Heard::Message(message, _) => match self::asked(&message, asked.speaks) {
                Some(next) if next.is_reply => {
                    let reply = message.get(next.lists.end..).unwrap_or_default();
                    answer = Some(judge::rpc(reply, next.xid, Family::Rpc));
                }
                next => {
                    if let Some(next) = next {
                        replies::reply(fabric, &next)?;
                    }
                    return Ok(answer);
                }
            },
            // It read what it was allowed to, or took nothing.
            Heard::Response(_) => {}
            Heard::Nothing => {
                replies::reply(fabric, asked)?;
                return Ok(Some(answer.unwrap_or(AnswerPattern::Discarded)));
            }
            other => return Ok(Some(crate::play::ending(fabric, &other))),
        }
    }
}

/// Answers every call until the connection ends.
fn serve_well(fabric: &mut HostileFabric, over: &AtomicBool, speaks: Speaks) -> io::Result<()> {
    loop {
        match fabric.hear(Duration::from_millis(20))? {
            Heard::Message(message, _) => {
                if let Some(asked) = asked(&message, speaks).filter(|asked| !asked.is_reply) {
                    replies::reply(fabric, &asked)?;
                }
            }
            Heard::Nothing if !over.load(Ordering::Relaxed) => {}
            Heard::Response(_) => {}
            _ => return Ok(()),
        }
    }
}

/// An RDMA Write of `octets` to the front of `segment`.
pub(crate) fn push(
    fabric: &mut HostileFabric,
    segment: RawSegment,
    octets: &[u8],
) -> io::Result<()> {
    fabric.say_ulpdu(&RawTagged::write(segment.handle, segment.offset).with(octets))
}

/// A message whose number is not counted.
pub(crate) fn raw_send(
    fabric: &mut HostileFabric,
    change: impl FnOnce(&mut RawUntagged),
    message: &[u8],
) -> io::Result<()> {
    let mut segment = RawUntagged::send(fabric.msn);
    change(&mut segment);
    fabric.say_ulpdu(&segment.with(message))
}
