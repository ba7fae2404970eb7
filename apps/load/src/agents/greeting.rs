//! Connections to an agent that have not yet proved that they have the token. Several are greeted
//! at a time, so that silent ones delay no coordinator. When all places are taken, the oldest
//! connection from the address that has most of them is closed.

use super::wire::{ControlLine, SharedToken};
use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread::{Builder, Scope},
};

/// Connections greeted at a time.
const GREETED_MAX: usize = 16;

/// The outcome of a greeting: the line of a coordinator, or the reason of the refusal.
pub type Greeted = (SocketAddr, Result<ControlLine, String>);

/// Greetings in progress.
#[derive(Debug)]
pub struct Greetings {
    /// The oldest first.
    pending: VecDeque<(SocketAddr, TcpStream)>,
    done: Sender<Greeted>,
    outcomes: Receiver<Greeted>,
}

impl Greetings {
    /// None yet.
    pub fn new() -> Self {
        let (done, outcomes) = channel();
        Self { pending: VecDeque::new(), done, outcomes }
    }

    /// Returns true if none is in progress.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Greets the end of a connection, in a thread of its own.
    ///
    /// # Errors
    /// As cloning a socket and starting a thread do.
    pub fn begin<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        stream: TcpStream,
        from: SocketAddr,
        token: &'scope SharedToken,
    ) -> io::Result<()> {
        if self.pending.len() >= GREETED_MAX {
            self.make_room();
        }
        let kept = stream.try_clone()?;
        let mut line = ControlLine::new(stream)?;
        let done = self.done.clone();
        Builder::new().spawn_scoped(scope, move || {
            let greeted = line.accept(token).map(|()| line);
            // An agent that stops asks for no more.
            let _ = done.send((from, greeted));
        })?;
        self.pending.push_back((from, kept));
        Ok(())
    }

    /// The next outcome, if there is one.
    pub fn next(&mut self) -> Option<Greeted> {
        let (from, greeted) = self.outcomes.try_recv().ok()?;
        self.pending.retain(|(pending, _)| *pending != from);
        Some((from, greeted))
    }

    /// Ends all that are in progress.
    pub fn end(&mut self) {
        while let Some((_, stream)) = self.pending.pop_front() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn make_room(&mut self) {
        let oldest = most_crowded(self.pending.iter().map(|(from, _)| from.ip()));
        if let Some((_, stream)) = oldest.and_then(|place| self.pending.remove(place)) {
            // Its thread reads the end.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// The place of the first entry of the address that has most of them.
fn most_crowded(
    all: impl DoubleEndedIterator<Item = IpAddr> + ExactSizeIterator + Clone,
) -> Option<usize> {
    let count = |ip: &IpAddr| all.clone().filter(|other| other == ip).count();
    all.clone().enumerate().rev().max_by_key(|(_, ip)| count(ip)).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_address_with_most_makes_room() {
        let place =
            |hosts: &[u8]| most_crowded(hosts.iter().map(|it| IpAddr::from([10, 0, 0, *it])));
        assert_eq!(place(&[1, 2, 2, 1, 2]), Some(1));
        assert_eq!(place(&[3, 1, 2]), Some(0), "the oldest of all");
        assert_eq!(place(&[]), None);
    }
}
