//! The floors of a call that finds its server asleep. In one, a thread sleeps until an eventfd is
//! written, then sets a word in memory that the other thread polls. In the other, a thread sleeps
//! until an octet comes over TCP, then sends it back to a thread that polls its socket.

use crate::{
    contender::{Contender, Reading},
    floor::{self, tcp},
    site::{MeasuringSite, Seats},
};
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::{
    hint::spin_loop,
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Time that the other thread sleeps before it is woken: as long as the time between two calls of
/// the other side.
pub const PAUSE: Duration = Duration::from_millis(10);

/// Times from the write to the word, in nanoseconds.
///
/// # Errors
/// As `eventfd(2)`, and when a core cannot be taken.
pub fn trips(seats: Seats, samples: usize) -> Result<Vec<f64>, String> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| format!("no eventfd: {error}"))?;
    let awake = AtomicU64::new(0);
    let sleep = || {
        for number in 1..=samples as u64 {
            let mut count = [0; 8];
            // An eventfd gives all eight octets, or is not written.
            let read = rustix::io::read(&bell, &mut count);
            awake.store(if read.is_ok() { number } else { u64::MAX }, Ordering::Release);
        }
    };
    let wake = || {
        let mut trips = Vec::with_capacity(samples);
        for number in 1..=samples as u64 {
            pause();
            let began = Instant::now();
            if rustix::io::write(&bell, &1_u64.to_ne_bytes()).is_err() {
                break;
            }
            let mut looks = 0_u32;
            while awake.load(Ordering::Acquire) < number {
                spin_loop();
                looks += 1;
                if looks.is_multiple_of(1 << 20) {
                    thread::yield_now();
                }
            }
            trips.push(began.elapsed().as_nanos() as f64);
        }
        trips
    };
    floor::pair(seats, sleep, wake)
}

/// Lets the other thread fall asleep, as a caller does that is due soon: this core stays awake.
fn pause() {
    let until = Instant::now() + PAUSE;
    while Instant::now() < until {
        spin_loop();
    }
}

/// Times from the write of one octet to a socket until it is back, in nanoseconds. The other end
/// sleeps in `epoll_wait(2)`, as a server with several sockets does.
///
/// # Errors
/// As sockets fail, and when a core cannot be taken.
pub fn socket_trips(seats: Seats, samples: usize) -> Result<Vec<f64>, String> {
    let failed = |error: io::Error| format!("TCP over loopback: {error}");
    let (here, there) = tcp::ends(None).map_err(failed)?;
    let ask = move || (0..samples).map(|_| socket_trip(&here)).collect::<io::Result<Vec<f64>>>();
    // The other end sees the end of this one, whose thread has it.
    floor::pair(seats, || drop(sleep_and_echo(&there)), ask)?.map_err(failed)
}

/// Sends back each octet that ends a sleep, until the other end closes.
fn sleep_and_echo(mut end: &TcpStream) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, end, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    let mut events = Vec::with_capacity(1);
    let mut octet = [0];
    loop {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        match end.read(&mut octet) {
            Ok(0) => return Ok(()),
            Ok(_) => end.write_all(&octet)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

fn socket_trip(mut end: &TcpStream) -> io::Result<f64> {
    pause();
    let began = Instant::now();
    end.write_all(&[0x5a])?;
    let mut looks = 0_u32;
    loop {
        match end.read(&mut [0]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(began.elapsed().as_nanos() as f64),
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
            Err(error) => return Err(error),
        }
        looks += 1;
        if looks.is_multiple_of(1 << 12) {
            thread::yield_now();
        }
    }
}

/// The wake-up by a socket as one side of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct SocketWakeFloor;

impl Contender for SocketWakeFloor {
    fn name(&self) -> String {
        "socket's wake-up".to_owned()
    }

    fn commands(&self) -> Vec<String> {
        vec![format!(
            "two threads of stag-peers: one sleeps in epoll_wait(2) for {} ms and sends back the \
             octet that comes over loopback TCP, the other one sends it and polls its socket",
            PAUSE.as_millis()
        )]
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        Ok(Reading::of_trips(&mut socket_trips(site.seats(), samples(site))?))
    }
}

/// Wake-ups of one turn.
fn samples(site: &MeasuringSite) -> usize {
    (site.turn.as_nanos() / PAUSE.as_nanos()).max(20) as usize
}

/// The wake-up as one side of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct WakeFloor;

impl Contender for WakeFloor {
    fn name(&self) -> String {
        "eventfd wake-up".to_owned()
    }

    fn commands(&self) -> Vec<String> {
        vec![format!(
            "two threads of stag-peers: one sleeps in read(2) of an eventfd for {} ms, the other \
             one writes it and looks at a word",
            PAUSE.as_millis()
        )]
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        Ok(Reading::of_trips(&mut trips(site.seats(), samples(site))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wake_up_is_seen() {
        let cores = site::cores();
        let (Some(first), Some(last)) = (cores.first(), cores.last()) else { return };
        let seats = Seats { server: *first, client: *last };
        for trips in [trips(seats, 3).unwrap(), socket_trips(seats, 3).unwrap()] {
            assert!(trips.len() == 3 && trips.iter().all(|nanos| *nanos > 0.0), "{trips:?}");
        }
    }

    use crate::site;
}
