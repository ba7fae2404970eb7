//! Requests for contexts that wait for the acceptor. Each host has its turn, so that a client waits
//! for one request of each other host at most, however many others send.

use super::contexts::{ContextLimits, InitRequest};
use crate::peer_view::ClientHost;
use std::collections::VecDeque;

/// Requests that wait, by host, in the order of the hosts' turns.
#[derive(Debug, Default)]
pub(super) struct InitQueue {
    hosts: VecDeque<HostRequests>,
    /// Requests of all hosts.
    len: usize,
}

#[derive(Debug)]
struct HostRequests {
    host: ClientHost,
    /// At least one.
    requests: VecDeque<InitRequest>,
}

/// Outcome of queueing a request.
#[derive(Debug)]
pub(super) enum Queued {
    /// It waits.
    Waits,
    /// It waits, in place of a request of another host.
    InPlaceOf(InitRequest),
    /// There is no place for it.
    NoPlace(InitRequest),
}

impl InitQueue {
    /// Requests that wait.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Queues a request, unless its host has as many as it may have. Where all places are taken,
    /// the latest one of the host that has most makes room.
    pub(super) fn push(
        &mut self,
        host: ClientHost,
        request: InitRequest,
        limits: &ContextLimits,
    ) -> Queued {
        let of_host =
            self.hosts.iter().find(|it| it.host == host).map_or(0, |it| it.requests.len());
        if of_host >= limits.waiting_each_address {
            return Queued::NoPlace(request);
        }
        let mut queued = Queued::Waits;
        if self.len >= limits.waiting {
            let most = self.hosts.iter_mut().max_by_key(|it| it.requests.len());
            // A host with a single request more would only change places with this one.
            let Some(most) = most.filter(|it| it.requests.len() > of_host + 1) else {
                return Queued::NoPlace(request);
            };
            if let Some(displaced) = most.requests.pop_back() {
                queued = Queued::InPlaceOf(displaced);
                self.len -= 1;
            }
        }
        self.len += 1;
        match self.hosts.iter_mut().find(|it| it.host == host) {
            Some(own) => own.requests.push_back(request),
            None => self.hosts.push_back(HostRequests { host, requests: [request].into() }),
        }
        queued
    }

    /// The next request, of the host whose turn it is.
    pub(super) fn pop(&mut self) -> Option<InitRequest> {
        let mut of_host = self.hosts.pop_front()?;
        let request = of_host.requests.pop_front();
        if !of_host.requests.is_empty() {
            self.hosts.push_back(of_host);
        }
        self.len -= usize::from(request.is_some());
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{app::CallId, gss::contexts::Mailbox};
    use stag_pools::table::Key;
    use stag_verbs::PeerAddress;
    use std::{sync::Arc, time::Instant};

    const LIMITS: ContextLimits = ContextLimits {
        contexts: 1,
        each_principal: 1,
        each_address: 1,
        waiting: 128,
        waiting_each_address: 8,
    };

    /// Queues a request with this number, of this host. Returns the number that has no place.
    fn push(queue: &mut InitQueue, host: u32, number: u64) -> Option<u64> {
        let request = InitRequest {
            token: Vec::new(),
            from: PeerAddress::Simulated,
            call: CallId(Key::from_bits(number)),
            came_at: number,
            asked_at: Instant::now(),
            mailbox: Arc::<Mailbox>::default(),
        };
        match queue.push(ClientHost::User(host), request, &LIMITS) {
            Queued::Waits => None,
            Queued::InPlaceOf(displaced) => Some(displaced.came_at),
            Queued::NoPlace(refused) => Some(refused.came_at),
        }
    }

    fn pop(queue: &mut InitQueue) -> Option<u64> {
        queue.pop().map(|request| request.came_at)
    }

    /// Set-ups until the request with this number has had its own.
    fn turns_until(queue: &mut InitQueue, number: u64) -> usize {
        let mut turns = 1;
        while pop(queue).expect("it waits") != number {
            turns += 1;
        }
        turns
    }

    #[test]
    fn a_host_waits_for_one_request_of_each_other_host() {
        let mut queue = InitQueue::default();
        for number in 0..8 {
            assert_eq!(push(&mut queue, 1, number), None);
        }
        assert_eq!(push(&mut queue, 1, 8), Some(8), "a ninth of one host");
        assert_eq!(push(&mut queue, 2, 100), None);
        assert_eq!(turns_until(&mut queue, 100), 2);
        // The flood goes on: each that was judged is replaced at once.
        for number in 200..300 {
            push(&mut queue, 1, number);
            push(&mut queue, 1, number + 100);
            assert_eq!(push(&mut queue, 2, 1_000 + number), None);
            assert!(turns_until(&mut queue, 1_000 + number) <= 2, "{number}");
        }
    }

    #[test]
    fn requests_of_a_host_keep_their_order() {
        let mut queue = InitQueue::default();
        for (host, number) in [(1, 10), (1, 11), (2, 20), (1, 12), (2, 21)] {
            push(&mut queue, host, number);
        }
        assert_eq!(queue.len(), 5);
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue)).collect();
        assert_eq!((order, queue.len()), (vec![10, 20, 11, 21, 12], 0));
    }

    #[test]
    fn where_all_places_are_taken_the_host_with_most_requests_makes_room() {
        let mut queue = InitQueue::default();
        for number in 0..128 {
            assert_eq!(push(&mut queue, number as u32 / 8, number), None);
        }
        assert_eq!(queue.len(), 128);
        let displaced = push(&mut queue, 100, 1_000).expect("one makes room");
        assert_eq!(displaced % 8, 7, "the latest of its host");
        assert_eq!(queue.len(), 128);
        // Sixteen hosts are before it.
        assert_eq!(turns_until(&mut queue, 1_000), 17);
    }

    #[test]
    fn a_host_takes_no_place_from_hosts_that_have_one_each() {
        let mut queue = InitQueue::default();
        for number in 0..128 {
            assert_eq!(push(&mut queue, number as u32, number), None);
        }
        assert_eq!(push(&mut queue, 200, 1_000), Some(1_000));
        assert_eq!(push(&mut queue, 5, 1_001), Some(1_001));
        assert_eq!(turns_until(&mut queue, 127), 128, "none of them lost its place");
    }
}
