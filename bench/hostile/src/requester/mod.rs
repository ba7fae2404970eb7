//! A server that answers badly, for our own calling side.
//!
//! Each defect has a call of our client (`stag-load`, which is what `stag call` calls with) and what is done instead of the reply, or instead of
//! the MPA Reply. What the client does then is seen on the wire: it says a Terminate, it closes, it answers, or it goes on waiting; in the last
//! case the right reply follows on the same connection. A connection that ended is made again, and there the server behaves well. In the
//! end the client must call with success, and hold no buffer and no call.

mod messages;
mod replies;
mod table;

use crate::{
    answer::{Answer, Seen},
    judge::{self, Family, Lists},
    peer::{Fabric, Heard, is_error},
    wire::{Header, REPLY, S, Segment, Tagged, Untagged, depths, frame, offer, success, word_at},
};
use stag_engine::clock::Clock;
use stag_iwarp::{Address, Iwarp};
use stag_load::{Client, Config, Error};
use stag_protocol::nfs::v3::{FileHandle, StableHow};
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
/// How long the client waits for an MPA Reply.
const SET_UP: Duration = Duration::from_millis(500);
/// How long it is listened to before the right reply follows.
const PAUSE: Duration = Duration::from_millis(30);
/// What anything else may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the client calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// NULL: nothing but a header.
    Null,
    /// READ of 8,192 octets into a Write chunk.
    Read,
    /// WRITE of 8,192 octets from a Read chunk.
    Write,
}

/// A call as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) xid: u32,
    /// It is no call but a reply, to one of ours.
    pub(crate) is_reply: bool,
    pub(crate) does: Does,
    pub(crate) lists: Lists,
}

impl Asked {
    /// The segment of its Read or Write chunk; a dead one when there is none.
    pub(crate) fn segment(&self) -> Segment {
        let write = self.lists.writes.first().and_then(|chunk| chunk.first()).copied();
        write.or_else(|| self.lists.reads.first().map(|(_, segment)| *segment)).unwrap_or_default()
    }

    /// The header of a right reply: everything that was offered, returned as it was.
    pub(crate) fn header(&self) -> Header {
        Header { writes: self.lists.writes.clone(), reply: self.lists.reply.clone(), ..Header::msg(self.xid) }
    }

    /// The RPC message of a right reply, its item excepted.
    pub(crate) fn results(&self) -> Vec<u8> {
        let reply = success(self.xid);
        match self.does {
            Does::Null => reply,
            // Status, no attributes, count, end of file, length of the data.
            Does::Read => reply.words(&[0, 0, LEN as u32, 1, LEN as u32]),
            // Status, no attributes before and after, count, FILE_SYNC, verifier.
            Does::Write => reply.words(&[0, 0, 0, LEN as u32, 2]).u64(7),
        }
        .0
    }
}

type Script = Box<dyn Fn(&mut Fabric, &Asked) -> io::Result<()> + Send + Sync>;

/// What is done instead.
pub(crate) enum Instead {
    /// These octets stand where an MPA Reply belongs.
    OfSetUp(Vec<u8>),
    /// Nothing is said, for good.
    Silence,
    /// The script runs when the first call is there.
    OfReply(Does, Script),
}

/// A defect of a server.
pub struct Defect {
    /// Its name, unique.
    pub name: String,
    /// Where the rule stands.
    pub clause: &'static str,
    /// What the specification wants the requester to do; alternatives between `|`.
    pub expect: &'static str,
    pub(crate) instead: Instead,
}

impl fmt::Debug for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Defect").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Defect {
    /// Plays it with a client and a server of its own.
    pub fn play(&self) -> io::Result<Seen> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let at = Address(listener.local_addr()?);
        listener.set_nonblocking(true)?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener, &self.instead, &over));
            let called = self.call(&at);
            over.store(true, Ordering::Relaxed);
            let seen = server.join().map_err(|_| io::Error::other("the hostile server panicked"))??;
            let (first, then) = called?;
            Ok(match (seen, first, then) {
                (_, _, Err(error)) => return Err(io::Error::other(format!("the next call fails: {error}"))),
                (None, Ok(()), _) => Answer::Served,
                (None, Err(_), _) => Answer::Failed,
                // A connection that could not be made is the caller's to try again; a call on one that was lost goes out again.
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
    fn call(&self, at: &Address) -> io::Result<(Result<(), Error>, Result<(), Error>)> {
        let clock = Clock::start();
        let config = Config { timeout: PATIENCE, ..Config::new(0x00AB_CDEF) };
        let mut fabric = stag_iwarp::Config::new(config.limits(), [3; 32], clock.now());
        fabric.reply_timeout = SET_UP;
        let mut client = Client::new(Iwarp::new(fabric)?, config, move || clock.now())?;
        let does = match self.instead {
            Instead::OfReply(does, _) => does,
            Instead::OfSetUp(_) | Instead::Silence => Does::Null,
        };
        let connected = client.keep_connected(at);
        let first = connected.and_then(|()| run(&mut client, does));
        let then = match connected {
            Ok(()) => client.null(),
            Err(_) => client.keep_connected(at).and_then(|()| client.null()),
        };
        client.disconnect();
        let held = (client.shard().buffers_in_use(), client.shard().calls_in_progress());
        if held != (0, (0, 0)) {
            return Err(io::Error::other(format!("the client holds buffers and calls: {held:?}")));
        }
        Ok((first, then))
    }
}

fn run(client: &mut Client<Iwarp>, does: Does) -> Result<(), Error> {
    let file = FileHandle::new(&[7; 16]).expect("16 octets are a handle");
    match does {
        Does::Null => client.null(),
        Does::Read => {
            let mut room = [0; LEN];
            client.read(file, 0, &mut room)?;
            if room == [CONTENT; LEN] {
                Ok(())
            } else {
                Err(Error::Nonsense("READ brought other octets than were sent"))
            }
        }
        Does::Write => client.write(file, 0, &[CONTENT; LEN], StableHow::FileSync).map(drop),
    }
}

/// The octet that files are made of.
pub(crate) const CONTENT: u8 = 0x42;

/// The server's part. What the client did about the defect; none when its next call came.
fn serve(listener: &TcpListener, instead: &Instead, over: &AtomicBool) -> io::Result<Option<Answer>> {
    let Some(stream) = accept(listener, over)? else { return Ok(Some(Answer::Nothing)) };
    let mut fabric = Fabric::over(stream, true);
    fabric.hear_request(PATIENCE)?;
    let seen = match instead {
        Instead::OfSetUp(octets) => {
            fabric.say(octets)?;
            after_set_up(&mut fabric)?
        }
        Instead::Silence => after_set_up(&mut fabric)?,
        Instead::OfReply(_, script) => {
            fabric.say(&good_reply())?;
            let Some(asked) = next_call(&mut fabric)? else { return Ok(Some(Answer::Nothing)) };
            script(&mut fabric, &asked)?;
            after_reply(&mut fabric, &asked)?
        }
    };
    serve_well(&mut fabric, over)?;
    while let Some(stream) = accept(listener, over)? {
        let mut fabric = Fabric::over(stream, true);
        if fabric.hear_request(PATIENCE)? {
            fabric.say(&good_reply())?;
            serve_well(&mut fabric, over)?;
        }
    }
    Ok(seen)
}

/// Revision 2, peer to peer with a Write, 32 Reads each way, both sizes 4,096 octets.
pub(crate) fn good_reply() -> Vec<u8> {
    frame(REPLY, crate::wire::C | S, 2, &[&depths(0x8000 | 32, 0x8000 | 32)[..], &offer(1, 1, 3, 3)].concat())
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
fn next_call(fabric: &mut Fabric) -> io::Result<Option<Asked>> {
    match fabric.hear(PATIENCE)? {
        Heard::Message(message, _) => Ok(asked(&message)),
        _ => Ok(None),
    }
}

fn asked(message: &[u8]) -> Option<Asked> {
    let lists = judge::lists(message)?;
    let does = match word_at(message, lists.end + 20) {
        6 => Does::Read,
        7 => Does::Write,
        _ => Does::Null,
    };
    let is_reply = word_at(message, lists.end + 4) == 1;
    Some(Asked { xid: word_at(message, 0), is_reply, does, lists })
}

/// What the client makes of an MPA Reply.
fn after_set_up(fabric: &mut Fabric) -> io::Result<Option<Answer>> {
    Ok(Some(match fabric.hear(PATIENCE)? {
        Heard::Message(message, _) => {
            if let Some(asked) = asked(&message) {
                replies::reply(fabric, &asked)?;
            }
            Answer::Accepted
        }
        other => crate::play::ending(fabric, &other),
    }))
}

/// What the client makes of what stood for a reply. None when it calls again.
fn after_reply(fabric: &mut Fabric, asked: &Asked) -> io::Result<Option<Answer>> {
    let mut answer = None;
    loop {
        match fabric.hear(PAUSE)? {
            // It answered: what, is seen; the reply to its own call is due nevertheless.
            Heard::Message(message, _) if is_error(&message) => {
                let is_chunk = word_at(&message, 16) == 2;
                answer = Some(if is_chunk { Answer::ErrChunk } else { Answer::Nonsense });
            }
            Heard::Message(message, _) => match self::asked(&message) {
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
                return Ok(Some(answer.unwrap_or(Answer::Discarded)));
            }
            other => return Ok(Some(crate::play::ending(fabric, &other))),
        }
    }
}

/// Answers every call until the connection ends.
fn serve_well(fabric: &mut Fabric, over: &AtomicBool) -> io::Result<()> {
    loop {
        match fabric.hear(Duration::from_millis(20))? {
            Heard::Message(message, _) => {
                if let Some(asked) = asked(&message).filter(|asked| !asked.is_reply) {
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
pub(crate) fn push(fabric: &mut Fabric, segment: Segment, octets: &[u8]) -> io::Result<()> {
    fabric.say_ulpdu(&Tagged::write(segment.handle, segment.offset).with(octets))
}

/// A message whose number is not counted.
pub(crate) fn raw_send(
    fabric: &mut Fabric,
    change: impl FnOnce(&mut Untagged),
    message: &[u8],
) -> io::Result<()> {
    let mut segment = Untagged::send(fabric.msn);
    change(&mut segment);
    fabric.say_ulpdu(&segment.with(message))
}
