//! Receives of the shard, and messages that wait for one (DESIGN D8).

use crate::{Event, Qp};
use stag_pools::{Buf, Class, Fenced, Pool};
use std::{collections::VecDeque, io};

/// The receive that an arriving message is assembled in.
#[derive(Debug)]
pub struct Landing {
    buf: Buf,
    /// The message has to wait for a receive once it is complete.
    is_parked: bool,
}

impl Landing {
    /// Appends to the message. Returns false if it gets longer than a receive may be.
    pub fn append(&mut self, octets: &[u8], limit: usize) -> bool {
        self.append_with(octets.len(), limit, |to| to.copy_from_slice(octets))
    }

    /// Appends `len` octets that `fill` writes. Returns false, without writing, if the message gets
    /// longer than a receive may be.
    pub fn append_with(&mut self, len: usize, limit: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let is_short = self.buf.len() + len <= limit;
        let Some(to) = self.buf.spare_mut().get_mut(..len).filter(|_| is_short) else {
            return false;
        };
        fill(to);
        // RFC 5041 §5.4 [5041-31]: the length of an untagged message is delivered with it
        self.buf.extend(len);
        true
    }
}

/// A complete message without a receive.
#[derive(Debug)]
struct Parked {
    qp: Qp,
    message: Buf,
    invalidated: Option<Fenced>,
}

/// The shared receive queue with its parking lot.
#[derive(Debug)]
pub struct Receives {
    /// The receive posted last is used first, because its cache lines are warmest. Its old content
    /// is cleared on use, not on posting, so that posting and taking a buffer at once takes just
    /// two copies.
    posted: Vec<Buf>,
    /// Receives that hold part of a message.
    landing: usize,
    capacity: usize,
    receive_len: usize,
    /// Complete messages in order of arrival.
    waiting: VecDeque<Parked>,
    lot: Pool,
}

impl Receives {
    /// A queue of at most `capacity` receives of `receive_len` octets, with `parking` places for
    /// messages without one. Fails as [`Pool::new`] does.
    pub fn new(capacity: usize, receive_len: usize, parking: usize) -> io::Result<Self> {
        let lot = Pool::new(&[Class { slot_len: receive_len.max(1), count: parking.max(1) }])?;
        Ok(Self {
            posted: Vec::with_capacity(capacity),
            landing: 0,
            capacity,
            receive_len,
            waiting: VecDeque::with_capacity(parking.max(1)),
            lot,
        })
    }

    /// Octets of the longest message.
    pub const fn receive_len(&self) -> usize {
        self.receive_len
    }

    /// Receives that wait for a message or hold part of one.
    pub const fn posted(&self) -> usize {
        self.posted.len() + self.landing
    }

    /// Messages that can begin to arrive before a connection has to wait.
    pub fn room(&self) -> usize {
        self.posted.len() + self.lot.available(1)
    }

    /// Adds a receive. A waiting message takes it at once; then its event is returned.
    ///
    /// # Errors
    /// The buffer is returned if the queue is full or if it is too short.
    pub fn post(&mut self, buf: Buf) -> Result<Option<Event>, Buf> {
        if self.is_waited_for() {
            return self.check(buf).map(|buf| self.fill_waiting(buf));
        }
        self.add(buf).map(|()| None)
    }

    /// Returns true if a message waits for the next receive.
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds a receive that no message waits for.
    ///
    /// # Errors
    /// The buffer is returned if the queue is full or if it is too short.
    #[inline]
    pub fn add(&mut self, buf: Buf) -> Result<(), Buf> {
        debug_assert!(!self.is_waited_for(), "a message that waits goes first");
        self.posted.push(self.check(buf)?);
        Ok(())
    }

    #[inline]
    const fn check(&self, buf: Buf) -> Result<Buf, Buf> {
        let is_taken = self.posted() < self.capacity && buf.capacity() >= self.receive_len;
        if is_taken { Ok(buf) } else { Err(buf) }
    }

    fn fill_waiting(&mut self, buf: Buf) -> Option<Event> {
        let parked = self.waiting.pop_front()?;
        Some(received(parked.qp, copy(&parked.message, buf), parked.invalidated))
    }

    /// An empty receive for a message that has arrived completely; `None` if the message has to
    /// [`land`](Self::land) elsewhere.
    #[inline]
    pub fn take_ready(&mut self) -> Option<Buf> {
        let mut buf = self.posted.pop()?;
        buf.reset(0);
        Some(buf)
    }

    /// Returns true if a message can be reported by a [look](crate::Provider::look): there is a
    /// receive for it, and no earlier message waits for one.
    #[inline]
    pub fn is_ready(&self) -> bool {
        !self.posted.is_empty() && self.waiting.is_empty()
    }

    /// Returns a receive for the next message of a connection; `None` if there is none, so that the
    /// connection has to wait.
    pub fn land(&mut self) -> Option<Landing> {
        if let Some(buf) = self.take_ready() {
            self.landing += 1;
            return Some(Landing { buf, is_parked: false });
        }
        let buf = self.lot.take(1)?;
        Some(Landing { buf, is_parked: true })
    }

    /// Completes a message: returns its event, or `None` if it waits for a receive.
    pub fn landed(
        &mut self,
        qp: Qp,
        landing: Landing,
        invalidated: Option<Fenced>,
    ) -> Option<Event> {
        let Landing { buf, is_parked } = landing;
        if !is_parked {
            self.landing -= 1;
            return Some(received(qp, buf, invalidated));
        }
        match self.take_ready() {
            Some(receive) => Some(received(qp, copy(&buf, receive), invalidated)),
            None => {
                // RFC 5040 §5.3, §5.5 [5040-36]: sends are delivered in the order they were sent
                self.waiting.push_back(Parked { qp, message: buf, invalidated });
                None
            }
        }
    }

    /// Abandons a message whose connection died: its receive is posted again. A waiting message
    /// takes it at once; then its event is returned.
    pub fn abandon(&mut self, landing: Landing) -> Option<Event> {
        let Landing { buf, is_parked } = landing;
        if is_parked {
            return None;
        }
        self.landing -= 1;
        self.post(buf).expect("the receive had its place before")
    }

    /// Drops the waiting messages of a dead connection; `fenced` gets the windows that they had
    /// invalidated.
    pub fn forget(&mut self, qp: Qp, mut fenced: impl FnMut(Fenced)) {
        self.waiting.retain_mut(|parked| {
            if parked.qp == qp
                && let Some(invalidated) = parked.invalidated.take()
            {
                fenced(invalidated);
            }
            parked.qp != qp
        });
    }
}

fn received(qp: Qp, buf: Buf, invalidated: Option<Fenced>) -> Event {
    Event::Received { qp, buf, invalidated }
}

fn copy(message: &[u8], mut receive: Buf) -> Buf {
    receive.reset(0);
    receive.append(message).expect("every receive is as long as the longest message");
    receive
}
