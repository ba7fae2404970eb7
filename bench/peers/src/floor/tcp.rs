//! The floors of everything over TCP: octets there and back between two threads that poll, and a
//! stream as wide as it gets.

use crate::{
    contender::{Contender, Reading},
    floor,
    site::{MeasuringSite, Seats},
};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::{
    hint::spin_loop,
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// Octets of a ping, as of a small call.
const PING: usize = 64;
/// Polls of an empty socket before the thread yields its core.
const LOOKS: u32 = 4_096;
/// Time without octets after which the other end is taken for gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// Octets that the reader of a stream takes at a time.
const ROOM: usize = 1 << 20;
/// Sizes with which a stream is tried.
#[derive(Clone, Copy, Debug)]
pub struct StreamShape {
    /// Octets of a write.
    pub write: usize,
    /// Octets of both ends' buffers; `None` is the system's own choice.
    pub buffers: Option<usize>,
}

const SHAPES: [StreamShape; 4] = [
    StreamShape { write: 1 << 20, buffers: None },
    StreamShape { write: 256 << 10, buffers: None },
    StreamShape { write: 1 << 20, buffers: Some(4 << 20) },
    StreamShape { write: 256 << 10, buffers: Some(4 << 20) },
];

/// Two ends over loopback that never block and never wait for more to send.
///
/// # Errors
/// As sockets fail.
pub fn ends(buffers: Option<usize>) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    if let Some(octets) = buffers {
        // Before they are connected: the window's scale is settled then.
        set_socket_recv_buffer_size(&listener, octets)?;
    }
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    for end in [&one, &other] {
        end.set_nodelay(true)?;
        end.set_nonblocking(true)?;
    }
    if let Some(octets) = buffers {
        set_socket_send_buffer_size(&one, octets)?;
    }
    Ok((one, other))
}

/// Repeats an attempt that would block, and yields the core every [`LOOKS`] attempts.
fn polled<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let (mut looks, mut since) = (0_u32, None);
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
            done => return done,
        }
        looks += 1;
        if looks.is_multiple_of(LOOKS) {
            thread::yield_now();
            if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }
}

fn send_all(mut to: &TcpStream, mut octets: &[u8]) -> io::Result<()> {
    while !octets.is_empty() {
        let sent = polled(|| to.write(octets))?;
        octets = octets.get(sent..).unwrap_or_default();
    }
    Ok(())
}

/// Fills `room`. False when the other end has closed.
fn take_all(mut from: &TcpStream, room: &mut [u8]) -> io::Result<bool> {
    let mut taken = 0;
    while let Some(rest) = room.get_mut(taken..).filter(|rest| !rest.is_empty()) {
        match polled(|| from.read(rest))? {
            0 => return Ok(false),
            more => taken += more,
        }
    }
    Ok(true)
}

/// Sends back what comes, until the other end closes.
fn echo(end: &TcpStream) -> io::Result<()> {
    let mut room = [0; PING];
    while take_all(end, &mut room)? {
        send_all(end, &room)?;
    }
    Ok(())
}

/// Round trips of 64 octets, in nanoseconds, for `time`.
///
/// # Errors
/// As sockets fail, and when a core cannot be taken.
pub fn trips(seats: Seats, time: Duration) -> Result<Vec<f64>, String> {
    let (here, there) = ends(None).map_err(|error| format!("no TCP over loopback: {error}"))?;
    let ask = move || {
        let (mut samples, mut room) = (Vec::with_capacity(1 << 20), [0; PING]);
        let began = Instant::now();
        let mut last = began;
        while last.duration_since(began) < time {
            send_all(&here, &[0x5a; PING])?;
            if !take_all(&here, &mut room)? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let now = Instant::now();
            samples.push(now.duration_since(last).as_nanos() as f64);
            last = now;
        }
        Ok(samples)
    };
    // The other end sees the end of this one, whose thread has it.
    let samples: io::Result<Vec<f64>> = floor::pair(seats, || drop(echo(&there)), ask)?;
    samples.map_err(|error| format!("TCP over loopback: {error}"))
}

/// Octets per second that one end takes from the other, for `time`.
///
/// # Errors
/// As [`trips`].
pub fn stream(seats: Seats, time: Duration, shape: StreamShape) -> Result<f64, String> {
    let (here, there) =
        ends(shape.buffers).map_err(|error| format!("no TCP over loopback: {error}"))?;
    let give = move || {
        let octets = vec![0x5a; shape.write];
        while send_all(&here, &octets).is_ok() {}
    };
    let take = move || {
        let (mut room, mut taken) = (vec![1; ROOM], 0_u64);
        let began = Instant::now();
        while began.elapsed() < time {
            taken += polled(|| (&there).read(&mut room))? as u64;
        }
        Ok(taken as f64 / began.elapsed().as_secs_f64())
    };
    let rate: io::Result<f64> = floor::pair(seats, give, take)?;
    rate.map_err(|error| format!("TCP over loopback: {error}"))
}

/// The round trip as one side of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct TcpPing;

impl Contender for TcpPing {
    fn name(&self) -> String {
        "busy-polled TCP ping-pong".to_owned()
    }

    fn commands(&self) -> Vec<String> {
        vec![format!(
            "two threads of stag-peers: {PING} octets there and back over loopback, sockets that \
             never block"
        )]
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        Ok(Reading::of_trips(&mut trips(site.seats(), site.turn / 2)?))
    }
}

/// The stream as one side of a comparison: the best of several shapes.
#[derive(Clone, Copy, Debug)]
pub struct TcpStreamFloor;

impl Contender for TcpStreamFloor {
    fn name(&self) -> String {
        "busy-polled TCP stream".to_owned()
    }

    fn commands(&self) -> Vec<String> {
        let shapes = SHAPES.map(|StreamShape { write, buffers }| {
            let buffers = buffers.map_or_else(
                || "the system's".to_owned(),
                |octets| format!("{} MiB", octets >> 20),
            );
            format!("writes of {} KiB with {buffers} buffers", write >> 10)
        });
        vec![format!("two threads of stag-peers over loopback, the best of: {}", shapes.join(", "))]
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let time = site.turn / SHAPES.len() as u32;
        let mut best = 0.0_f64;
        for shape in SHAPES {
            best = best.max(stream(site.seats(), time, shape)?);
        }
        Ok(Reading { octets_per_s: Some(best), ..Reading::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_comes_back_whole() {
        let (here, there) = ends(Some(1 << 20)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| echo(&there).unwrap());
            for round in 0..100 {
                send_all(&here, &[round; PING]).unwrap();
                let mut room = [0; PING];
                assert!(take_all(&here, &mut room).unwrap());
                assert_eq!(room, [round; PING]);
            }
            here.shutdown(std::net::Shutdown::Write).unwrap();
        });
    }

    #[test]
    fn more_than_the_buffers_hold_passes_in_parts() {
        let (here, there) = ends(None).unwrap();
        let octets: Vec<u8> = (0..8 << 20).map(|place: u32| (place % 251) as u8).collect();
        thread::scope(|scope| {
            scope.spawn(|| send_all(&here, &octets).unwrap());
            let mut room = vec![0; octets.len()];
            assert!(take_all(&there, &mut room).unwrap());
            assert_eq!(room, octets);
        });
    }
}
