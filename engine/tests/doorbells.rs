//! Doorbells: what a long pass has to send leaves in parts, so that the peer works meanwhile.

use crate::support::{pattern, refusing::Refusing};
use stag_echo::{Caller, Echo};
use stag_engine::{Config, PeerId, Shard, Token};
use stag_sim::{Fabric, Faults, Port};
use stag_verbs::{Limits, Time};
use std::{cell::RefCell, rc::Rc};

const LIMITS: Limits = Limits { send_queue: 512, windows: 512, receives: 512, ..stag_sim::LIMITS };
/// Calls that arrive in one pass.
const CALLS: u64 = 40;
/// Receives of each end.
const RECEIVES: usize = 256;

type Rings = Rc<RefCell<Vec<usize>>>;

/// A server and a client. Both note the receives that are posted at each of their doorbells.
struct World {
    fabric: Fabric,
    server: Shard<Refusing, Echo>,
    client: Shard<Refusing, Caller>,
    peer: PeerId,
    now: Time,
    /// The doorbells of the server and of the client.
    rings: [Rings; 2],
}

impl World {
    /// The client takes the short ways, or the path of all messages.
    fn new(short_ways: bool) -> Self {
        let fabric = Fabric::new(5, Faults::NONE);
        let config = || Config {
            receives: RECEIVES,
            grant_first: 64,
            slots: [512, 128, 16],
            ..crate::support::small()
        };
        let rings: [Rings; 2] = Default::default();
        let end = |name, rings: &Rings| Refusing::noting(fabric.end(name, LIMITS), rings.clone());
        let admit = || Box::new(|_| true) as Box<_>;
        let at = end("server", &rings[0]);
        let mut server = Shard::new(at, Echo::default(), config(), admit()).unwrap();
        let caller = Caller::with_capacity(CALLS as usize);
        let own = Config { short_ways, ..config() };
        let mut client = Shard::new(end("client", &rings[1]), caller, own, admit()).unwrap();
        let port = server.listen(&Port(0)).unwrap();
        client.connect(&port).unwrap();
        let mut now = Time(0);
        crate::support::settle(&fabric, &mut now, &mut server, &mut client);
        let peer = client.app().peers()[0];
        let mut world = Self { fabric, server, client, peer, now, rings };
        // The version is settled, and the grant is known.
        world.call(1, None);
        world.settle();
        assert!(world.client.with_app(|app, _| app.take()).is_some());
        world
    }

    fn settle(&mut self) {
        let Self { fabric, now, server, client, .. } = self;
        crate::support::settle(fabric, now, server, client);
    }

    fn call(&mut self, calls: u64, octets: Option<&[u8]>) {
        let peer = self.peer;
        for token in 0..calls {
            let made = self.client.with_app(|_, cx| Caller::call(cx, peer, Token(token), octets));
            assert!(made, "call {token}");
        }
    }

    /// Goes on until all calls have come back; returns the messages of each pass of the server and
    /// of the client, with the receives posted at each of its doorbells.
    fn finish(&mut self) -> [Vec<(usize, Vec<usize>)>; 2] {
        let mut passes = <[Vec<_>; 2]>::default();
        let mut done = 0;
        while done < CALLS {
            self.rings.iter().for_each(|rings| rings.borrow_mut().clear());
            let before = self.arrived();
            let worked = self.server.pass(self.now) | self.client.pass(self.now);
            let messages = self.arrived().into_iter().zip(before).map(|(now, before)| now - before);
            for ((passes, messages), rings) in passes.iter_mut().zip(messages).zip(&self.rings) {
                if messages > 0 {
                    passes.push((messages as usize, rings.borrow().clone()));
                }
            }
            while let Some(outcome) = self.client.with_app(|app, _| app.take()) {
                outcome.echo.unwrap();
                done += 1;
            }
            if !worked {
                self.now = self.fabric.next_due().expect("a call is on its way");
            }
        }
        passes
    }

    /// Calls that have reached the server, and replies that have reached the client.
    fn arrived(&self) -> [u64; 2] {
        let calls = self.server.snapshot().engine.responder.calls;
        let replies = self.client.snapshot().engine.requester.replies;
        [calls.short + calls.chunked, replies.short + replies.chunked]
    }
}

#[test]
fn the_replies_of_a_long_pass_leave_after_each_sixteen_calls() {
    // A reply with an item is not sent at once, and counts twice.
    for (octets, work) in [(None, 1), (Some(pattern(100)), 2)] {
        let mut world = World::new(true);
        world.call(CALLS, octets.as_deref());
        let [served, _] = world.finish();
        assert!(served.iter().any(|(calls, _)| *calls > 16), "{served:?}");
        for (calls, rings) in &served {
            assert_eq!(rings.len(), calls * work / 16 + 1, "{served:?}");
        }
    }
}

/// draft 002 §4.3 [bidir-10]: a receive is posted before the message that it is for can arrive.
#[test]
fn the_receives_of_handled_messages_are_posted_at_each_doorbell_of_a_long_pass() {
    for short_ways in [true, false] {
        let mut world = World::new(short_ways);
        world.call(CALLS, None);
        let [_, passes] = world.finish();
        assert!(passes.iter().any(|(replies, _)| *replies > 16), "{passes:?}");
        for (replies, rings) in passes {
            // Messages take their receives when they arrive, before the first of them is handled.
            for (place, posted) in rings.into_iter().enumerate() {
                let handled = (16 * (place + 1)).min(replies);
                assert_eq!(posted, RECEIVES - replies + handled, "{replies} replies, {place}");
            }
        }
    }
}
