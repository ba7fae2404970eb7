//! Arguments of calls that travel in chunks.

use stag_engine::{Cx, Request, RequestItem};
use stag_pools::Buf;

/// Buffers of calls that have ended. Where octets are not compared, the next calls send them as
/// they are: a copy of each argument would be the generator's own time, and for long ones as much
/// as a server needs.
#[derive(Debug)]
pub(crate) struct SpareItems {
    list: Vec<Buf>,
    /// Octets are compared, so each call needs its own.
    is_verified: bool,
}

impl SpareItems {
    /// None yet, for `places` calls at a time.
    pub fn new(is_verified: bool, places: usize) -> Self {
        let list = Vec::with_capacity(if is_verified { 0 } else { places });
        Self { list, is_verified }
    }

    /// Takes the buffer of a call that has ended.
    #[inline]
    pub fn give(&mut self, item: Buf) {
        if !self.is_verified && self.list.len() < self.list.capacity() {
            self.list.push(item);
        }
    }

    /// Adds an argument to a call: `octets`, or as many others if they are not compared. None when
    /// our memory for it is short.
    pub fn add(&mut self, cx: &Cx<'_>, request: Request, octets: &[u8]) -> Option<Request> {
        if octets.is_empty() {
            return Some(request);
        }
        // All arguments of a run have one length.
        let spare = self.list.pop().filter(|spare| spare.len() == octets.len());
        let item = match spare {
            Some(spare) => spare,
            None => {
                let mut item = cx.take(octets.len())?;
                item.append(octets).ok()?;
                item
            }
        };
        let position = request.message.len();
        Some(Request { item: Some(RequestItem { position, octets: item }), ..request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_echo::Caller;
    use stag_engine::{Config, Shard, Token};
    use stag_sim::{Fabric, Faults};
    use std::time::Duration;

    #[test]
    fn an_argument_is_sent_again_only_where_octets_are_not_compared() {
        let config = Config::small();
        let end = Fabric::new(1, Faults::NONE).end("client", config.limits(64));
        let mut shard = Shard::new(end, Caller::default(), config, Box::new(|_| true)).unwrap();
        shard.with_app(|_, cx| {
            let request = || Request {
                message: cx.message(8).unwrap(),
                item: None,
                reply_max: 8,
                result: None,
                timeout: Duration::ZERO,
                token: Token(1),
            };
            let sent = |items: &mut SpareItems, octets: &[u8]| {
                let request = items.add(cx, request(), octets).unwrap();
                request.item.unwrap().octets
            };
            for is_verified in [true, false] {
                let mut items = SpareItems::new(is_verified, 1);
                for (octets, kept) in [(b"first", b"first"), (b"other", b"first")] {
                    let item = sent(&mut items, octets);
                    assert_eq!(&item[..], if is_verified { octets } else { kept });
                    items.give(item);
                }
                // One that is too many, and one of another length.
                items.give(sent(&mut SpareItems::new(false, 0), b"third"));
                assert_eq!(items.list.len(), usize::from(!is_verified));
                assert_eq!(&sent(&mut items, b"longer")[..], b"longer");
                assert!(items.add(cx, request(), b"").unwrap().item.is_none());
            }
        });
    }
}
