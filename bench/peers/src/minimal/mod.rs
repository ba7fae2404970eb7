//! The fastest server of ONC RPC over TCP that one can write down: one thread that polls its
//! sockets, answers all records of a read in place, and sends all replies by one write. It serves
//! NULL of every program, and as much of MOUNT and NFS version 3 as `stag bench` calls ([`files`]).
//! It does not distinguish clients, and has no credits, no cache of replies and no fairness.

pub mod files;

use crate::{
    contender::{Absence, Contender, Reading},
    site::{MeasuringSite, RunningServer, shown},
    stag::StagBench,
};
use files::MinimalFiles;
use rustix::event::{Timespec, epoll};
use stag_protocol::{
    rpc::{Accepted, CallHeader, Refusal, record::Fragment},
    xdr::{NoRoom, Reader, Writer},
};
use std::{
    hint::spin_loop,
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// Octets of the longest record, either way: a READ or WRITE of 1 MiB with its headers.
const RECORD_MAX: usize = (1 << 20) + 4_096;
/// Octets of what is read, and written, at a time.
const ROOM: usize = 2 * RECORD_MAX;
/// Sweeps between two looks for connections that are new.
const SWEEPS: u32 = 256;
/// Time that the server sweeps without finding anything before it sleeps.
const SPIN: Duration = Duration::from_millis(2);
/// Longest sleep, so that it sees when to stop.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// One caller.
#[derive(Debug)]
struct MinimalConnection {
    socket: TcpStream,
    input: Box<[u8]>,
    /// Part of the input that has not been answered.
    unanswered: std::ops::Range<usize>,
    output: Box<[u8]>,
    /// Part of the output that has not been sent.
    unsent: std::ops::Range<usize>,
}

/// Answers callers until `stop` is set.
///
/// # Errors
/// As `epoll(7)` fails; a caller that breaks a rule only loses its connection.
pub fn serve(listener: &TcpListener, stop: &AtomicBool) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = |socket: &dyn std::os::fd::AsFd| {
        epoll::add(&poll, socket.as_fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)
    };
    watch(listener)?;
    let (mut files, mut connections) = (MinimalFiles::default(), Vec::<MinimalConnection>::new());
    let (mut sweeps, mut busy_at) = (0_u32, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let mut worked = false;
        connections.retain_mut(|connection| match connection.turn(&mut files) {
            Ok(did) => {
                worked |= did;
                true
            }
            Err(_) => false,
        });
        sweeps = sweeps.wrapping_add(1);
        if worked {
            busy_at = Instant::now();
        } else {
            spin_loop();
        }
        let sleeps = connections.is_empty() || (!worked && busy_at.elapsed() > SPIN);
        if sleeps {
            let mut events = [epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: epoll::EventData::new_u64(0),
            }; 8];
            let _ = epoll::wait(&poll, &mut events, Some(&SLEEP));
            busy_at = Instant::now();
        }
        if (sleeps || sweeps.is_multiple_of(SWEEPS))
            && let Ok((socket, _)) = listener.accept()
        {
            watch(&socket)?;
            connections.push(MinimalConnection::new(socket)?);
        }
    }
    Ok(())
}

impl MinimalConnection {
    fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        // Touched here, not while it is measured.
        let room = || vec![1; ROOM].into_boxed_slice();
        Ok(Self { socket, input: room(), unanswered: 0..0, output: room(), unsent: 0..0 })
    }

    /// Reads once, answers what is whole, sends. True when there was something to do; an error ends
    /// the connection.
    fn turn(&mut self, files: &mut MinimalFiles) -> io::Result<bool> {
        if !self.unsent.is_empty() && !self.send()? {
            return Ok(true);
        }
        let room = self.input.get_mut(self.unanswered.end..).unwrap_or_default();
        match self.socket.read(room) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => self.unanswered.end += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        while self.answer(files)? {
            if !self.send()? {
                break;
            }
        }
        self.make_room();
        Ok(true)
    }

    /// Answers records while they are whole and a reply has room. True when any was.
    fn answer(&mut self, files: &mut MinimalFiles) -> io::Result<bool> {
        let mut answered = false;
        while self.output.len() - self.unsent.end >= RECORD_MAX {
            let waiting = self.input.get(self.unanswered.clone()).unwrap_or_default();
            let Some((word, rest)) = waiting.split_first_chunk() else { break };
            let fragment = Fragment::parse(*word);
            let len = fragment.octets() as usize;
            if !fragment.last || len > RECORD_MAX - Fragment::LEN {
                // `stag bench` sends each record as one fragment, and none is longer.
                return Err(ErrorKind::InvalidData.into());
            }
            let Some(record) = rest.get(..len) else { break };
            let room = self.output.get_mut(self.unsent.end..).unwrap_or_default();
            self.unsent.end +=
                reply(record, files, room).map_err(|NoRoom| ErrorKind::InvalidData)?;
            self.unanswered.start += Fragment::LEN + len;
            answered = true;
        }
        Ok(answered)
    }

    /// Sends. True when everything is gone.
    fn send(&mut self) -> io::Result<bool> {
        while let Some(octets) =
            self.output.get(self.unsent.clone()).filter(|octets| !octets.is_empty())
        {
            match self.socket.write(octets) {
                Ok(sent) => self.unsent.start += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.unsent = 0..0;
        Ok(true)
    }

    /// A record that has begun gets the room that its rest may need.
    fn make_room(&mut self) {
        if self.unanswered.is_empty() {
            self.unanswered = 0..0;
        } else if self.input.len() - self.unanswered.start < RECORD_MAX {
            let len = self.unanswered.len();
            self.input.copy_within(self.unanswered.clone(), 0);
            self.unanswered = 0..len;
        }
    }
}

/// Writes the reply to a call after its fragment's word. Returns the octets of both, or none when
/// no reply is due.
fn reply(record: &[u8], files: &mut MinimalFiles, out: &mut [u8]) -> Result<usize, NoRoom> {
    let mut writer = Writer::new(out);
    writer.u32(0)?;
    let mut arguments = Reader::new(record);
    match CallHeader::parse(&mut arguments) {
        Ok(header) if header.procedure == 0 => header.reply(Accepted::Success).emit(&mut writer)?,
        Ok(header) => files.answer(&header, arguments, &mut writer)?,
        Err(Refusal::Answer(refusal)) => refusal.emit(&mut writer)?,
        Err(Refusal::Discard) => return Ok(0),
    }
    let len = u32::try_from(writer.len() - Fragment::LEN).map_err(|_| NoRoom)?;
    let word = Fragment::new(len, true).ok_or(NoRoom)?;
    writer.patch_u32(0, u32::from_be_bytes(word.emit()))?;
    Ok(writer.len())
}

/// Serves as a process of its own, until a signal ends it.
///
/// # Errors
/// As sockets fail.
pub fn run() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("TCP {}", listener.local_addr()?);
    serve(&listener, &AtomicBool::new(false))
}

/// The server as one side of a comparison, with our generator as its caller.
#[derive(Debug)]
pub struct Minimal {
    bench: StagBench,
    /// Path after the address in the server's URL.
    path: &'static str,
    server: Option<(RunningServer, String)>,
    commands: Vec<String>,
}

impl Minimal {
    /// `stag bench` with these options; a workload that names `nfs3:` is one of NFS.
    pub fn new(options: &str) -> Self {
        let path = if options.contains("nfs3:") { "/export" } else { "" };
        Self { bench: StagBench::new(options), path, server: None, commands: Vec::new() }
    }
}

impl Contender for Minimal {
    fn name(&self) -> String {
        "minimal RPC server over TCP".to_owned()
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        let command = site.part(site.server, "minimal");
        self.commands.push(shown(&command));
        let (running, at) =
            site.serve(command, |line| line.strip_prefix("TCP ").map(str::to_owned))?;
        let url = format!("tcp://{at}{}", self.path);
        self.commands.push(shown(&self.bench.command(site, &url)));
        self.server = Some((running, url));
        Ok(())
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let (_, url) = self.server.as_ref().ok_or("it was not started")?;
        self.bench.run(site, url)
    }
}
