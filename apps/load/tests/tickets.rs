//! Calls of the load generator in contexts of RPCSEC_GSS, against a server that verifies them and
//! misbehaves on demand.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[path = "../../../tests/counting/mod.rs"]
mod counting;
#[allow(dead_code)] // Of what it can do, some is for tests of the library.
#[path = "../../../engine/rpc/tests/gss_server/mod.rs"]
mod gss_server;
mod world;

use counting::allocations;
use gss_server::{Defect, Server, State, Tickets as Granted};
use stag_client::Error;
use stag_gss as _; // of the server
use stag_load::{LoadPlan, Pace, Workload};
use stag_protocol::rpc::gss::{GssService, MAXSEQ};
use stag_rpc::gss::{ContextFault, Tickets};
use stag_sim::Faults;
use stag_verbs::Time;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    time::Duration,
};
use world::{World, calls, sum};

const SERVICES: [GssService; 3] = [GssService::None, GssService::Integrity, GssService::Privacy];

fn plan(service: GssService, connections: usize, depth: usize, first: u32) -> LoadPlan {
    let open = move || Ok(Box::new(Granted(first)) as Box<_>);
    LoadPlan {
        connections,
        is_nfs: true,
        tickets: Some(Tickets::new(service, open)),
        contexts_max: 3,
        timeout: Duration::from_secs(2),
        ..LoadPlan::new(Workload::Null, 0, depth)
    }
}

struct Tried {
    world: World<Server>,
    state: Rc<RefCell<State>>,
}

impl Tried {
    /// A generator whose contexts are made.
    fn new(plan: &LoadPlan, defect: Defect) -> (Self, Result<(), ContextFault>) {
        let state = Rc::<RefCell<State>>::default();
        state.borrow_mut().defect = defect;
        let world = World::with(Server(Rc::clone(&state)), plan, Faults::NONE);
        let mut tried = Self { world, state };
        let ready = tried.passing(|load, now| load.begin_contexts(now, || false));
        (tried, ready)
    }

    fn ready(plan: &LoadPlan) -> Self {
        let (tried, ready) = Self::new(plan, Defect::None);
        ready.unwrap();
        tried
    }

    /// Runs something that waits, while the server works and time advances.
    fn passing<R>(
        &mut self,
        run: impl FnOnce(&mut stag_load::Load<stag_sim::Sim>, &dyn Fn() -> Time) -> R,
    ) -> R {
        let World { server, load, now, .. } = &mut self.world;
        let (server, time) = (RefCell::new(server), Cell::new(now.0));
        let pass = || {
            time.set(time.get() + 500);
            server.borrow_mut().pass(Time(time.get()));
            Time(time.get())
        };
        let ran = run(load, &pass);
        *now = Time(time.get());
        ran
    }

    fn end(&mut self) {
        self.passing(|load, now| load.end_contexts(now));
    }

    fn contexts(&self) -> usize {
        self.state.borrow().contexts.len()
    }
}

#[test]
fn calls_have_a_context_for_each_connection_up_to_a_limit() {
    for service in SERVICES {
        for (connections, contexts) in [(1, 1), (2, 2), (7, 3)] {
            let mut tried = Tried::ready(&plan(service, connections, 8, 1));
            assert_eq!((tried.contexts(), tried.state.borrow().seen.len()), (contexts, 0));
            let span = calls(tried.world.now.0, 500);
            let measured = sum(&tried.world.run(Pace::Closed, span));
            assert_eq!((measured.calls, measured.failed), (500, 0), "{service:?}");
            let counts = tried.world.load.generator().context_counts().unwrap();
            assert_eq!((counts.created, counts.renewed), (contexts as u64, 0));
            tried.end();
            assert_eq!(tried.state.borrow().destroyed, contexts);
            assert!(tried.state.borrow().seen.len() >= 500 + contexts);
            tried.world.assert_idle();
        }
    }
}

#[test]
fn calls_of_a_lost_context_are_made_again_in_another_one() {
    for service in SERVICES {
        let mut tried = Tried::ready(&plan(service, 2, 8, 1));
        let span = calls(tried.world.now.0, 200);
        tried.world.run(Pace::Closed, span);
        // The server forgets one of two; all calls of it outstanding at a time get another one.
        tried.state.borrow_mut().contexts[0] = None;
        let span = calls(tried.world.now.0, 400);
        let measured = sum(&tried.world.run(Pace::Closed, span));
        assert_eq!((measured.calls, measured.failed), (200, 0), "{service:?}");
        let counts = tried.world.load.generator().context_counts().unwrap();
        assert_eq!((counts.created, counts.renewed, tried.contexts()), (3, 1, 3));
        tried.end();
        assert_eq!(tried.state.borrow().destroyed, 2);
    }
}

#[test]
fn a_context_is_renewed_before_its_numbers_end() {
    // 8,192 numbers are left to retransmissions.
    let mut tried = Tried::ready(&plan(GssService::Integrity, 1, 4, MAXSEQ - 8_192 - 100));
    let span = calls(tried.world.now.0, 350);
    let measured = sum(&tried.world.run(Pace::Closed, span));
    assert_eq!((measured.calls, measured.failed, tried.contexts()), (350, 0, 4));
    let numbers: BTreeSet<_> = tried.state.borrow().seen.iter().map(|(_, seen)| *seen).collect();
    assert!(numbers.iter().all(|number| *number < MAXSEQ - 8_192), "{numbers:?}");
}

#[test]
fn without_a_context_no_call_is_made_and_the_reason_is_a_sentence() {
    for (defect, depth, part) in [
        (Defect::RefusedContext, 1, "the clock is wrong"),
        (Defect::OtherWindow, 1, "does not prove its identity"),
        (Defect::None, 600, "remembers 512 sequence numbers of a context, and 600 calls"),
    ] {
        let (tried, ready) = Tried::new(&plan(GssService::None, 1, depth, 1), defect);
        let sentence = ready.unwrap_err().to_string();
        assert!(sentence.contains(part), "{sentence}");
        assert!(tried.state.borrow().seen.is_empty());
    }
}

#[test]
fn calls_that_are_rejected_or_unproven_are_counted() {
    for service in SERVICES {
        let mut tried = Tried::ready(&plan(service, 1, 4, 1));
        tried.state.borrow_mut().defect = Defect::WrongMic;
        let measured = sum(&tried.world.try_run(Pace::Closed, calls(tried.world.now.0, 20)));
        assert_eq!((measured.calls, measured.failed), (0, 20), "{service:?}");
        let failure = tried.world.load.generator().failure();
        assert!(matches!(failure, Some((_, Error::Unproven(_)))), "{failure:?}");
        // A server that never has the context is asked twice for each call.
        let mut tried = Tried::ready(&plan(service, 1, 1, 1));
        tried.state.borrow_mut().defect =
            Defect::NoContext(stag_rpc::AuthStatus::GSS_CREDENTIAL_PROBLEM);
        let measured = sum(&tried.world.try_run(Pace::Closed, calls(tried.world.now.0, 5)));
        assert_eq!((measured.calls, measured.failed), (0, 5), "{service:?}");
        let failure = tried.world.load.generator().failure();
        assert!(matches!(failure, Some((_, Error::Denied(_)))), "{failure:?}");
        assert_eq!(tried.contexts(), 1 + 5);
    }
}

#[test]
fn a_run_ends_when_the_server_grants_no_other_context() {
    let mut tried = Tried::ready(&plan(GssService::Privacy, 1, 4, 1));
    let span = calls(tried.world.now.0, 10);
    tried.world.run(Pace::Closed, span);
    tried.state.borrow_mut().contexts[0] = None;
    tried.state.borrow_mut().defect = Defect::RefusedContext;
    let measured = sum(&tried.world.try_run(Pace::Closed, calls(tried.world.now.0, 1_000)));
    assert!((1..=4).contains(&measured.failed), "{}", measured.failed);
    assert_eq!(tried.world.load.generator().failure().unwrap().1, Error::NoContext);
}

#[test]
fn no_protected_call_allocates() {
    for service in SERVICES {
        let mut tried = Tried::ready(&plan(service, 2, 4, 1));
        let mut run = |until: u64| {
            let mut allocated = 0;
            let world = &mut tried.world;
            world.load.begin(world.now, Pace::Closed, calls(world.now.0, until));
            while !world.load.generator().is_over() {
                world.server.pass(world.now);
                let before = allocations();
                world.load.step(world.now);
                allocated += allocations() - before;
                world.now = Time(world.now.0 + 1_000);
            }
            allocated
        };
        run(200);
        assert_eq!(run(1_200), 0, "{service:?}");
    }
}
