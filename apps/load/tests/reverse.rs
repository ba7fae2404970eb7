//! Calls of the server, as the load generator measures them, on the simulated fabric in virtual
//! time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_client::Error;
use stag_echo::{DRIVE, Echo, driver::Lap};
use stag_engine::{App, Call, Cx, Outcome, PeerId, Token};
use stag_load::{LoadPlan, Pace, RunSpan, Workload};
use stag_protocol::{
    rpc::Accepted,
    rpcrdma::{Version2, Versions},
};
use stag_sim::Faults;
use stag_verbs::Time;
use std::time::Duration;
use world::{MILLI, World, calls, sum};

mod world;

const TWO: Versions = Versions::Two(Version2::Directed);

fn reverse(len: usize, depth: usize) -> LoadPlan {
    LoadPlan::new(Workload::Reverse, len, depth)
}

#[test]
fn every_call_of_the_server_is_counted_with_the_time_that_it_took() {
    let faults = Faults { delay: 20_000..60_000, ..Faults::DELAYS };
    for (versions, sizes) in
        [(Versions::One, &[0, 1, 1_000, 3_000][..]), (TWO, &[1_000, 5_000, 70_000, 1 << 20])]
    {
        for (len, depth, connections) in sizes.iter().flat_map(|len| [(*len, 1, 1), (*len, 4, 2)]) {
            let mut world = World::new(
                &LoadPlan { versions, connections, ..reverse(len, depth) },
                faults.clone(),
            );
            let from = world.now.0 + 10 * MILLI;
            let count = if len > 10_000 { 50 } else { 500 };
            let measured = sum(&world.run(Pace::Closed, calls(from, count)));
            assert_eq!((measured.calls, measured.failed), (count, 0), "{len} {depth}");
            assert_eq!(measured.octets, 2 * len as u64 * count);
            assert_eq!((measured.service.len(), measured.response.len()), (count, count));
            // There and back, and with chunks some more of both.
            assert!(measured.service.min() >= 40_000, "{}", measured.service.min());
            assert!(len > 3_000 || measured.service.max() <= 160_000, "{}", measured.service.max());
            let (began, ended) = world.load.generator().measured();
            let under_way =
                count as f64 * measured.service.mean() / ended.since(began).as_nanos() as f64;
            let places = (depth * connections) as f64;
            assert!(
                (0.8..1.2).contains(&(under_way / places)),
                "{under_way} of {places} calls are always under way"
            );
            assert_eq!(world.load.version(), Some(if versions == TWO { 2 } else { 1 }));
            assert_eq!(world.server.app().places_in_use(), 0);
            world.assert_idle();
        }
    }
}

#[test]
fn the_server_calls_until_the_end_of_the_span_and_each_second_has_its_calls() {
    let mut world = World::new(&reverse(100, 2), Faults::DELAYS);
    let from = world.now + Duration::from_secs(1);
    let until = from + Duration::from_secs(3);
    let seconds = world.run(Pace::Closed, RunSpan { from, until, calls: None });
    assert!((3..=4).contains(&seconds.len()), "{}", seconds.len());
    let mean = seconds[..3].iter().map(|second| second.calls).sum::<u64>() / 3;
    for second in &seconds[..3] {
        assert!(second.calls.abs_diff(mean) < mean / 10, "{} of {mean}", second.calls);
    }
    assert!(world.now.since(until) < Duration::from_secs(1));
    world.assert_idle();
}

#[test]
fn a_run_that_is_stopped_ends_the_calls_of_the_server() {
    let mut world = World::new(&reverse(100, 8), Faults::DELAYS);
    world.load.begin(
        world.now,
        Pace::Closed,
        RunSpan { from: world.now, until: Time(u64::MAX), calls: None },
    );
    let end = world.now + Duration::from_millis(20);
    while world.now < end {
        world.turn();
    }
    assert_eq!(world.server.app().places_in_use(), 8);
    let now = world.now;
    world.load.with_generator(|generator| generator.stop(now));
    while !world.load.generator().is_over() {
        world.turn();
    }
    assert_eq!((world.load.generator().failure(), world.server.app().places_in_use()), (None, 0));
    world.assert_idle();
}

#[test]
fn a_caller_that_goes_away_takes_its_places_with_it() {
    let mut world = World::new(&reverse(100, 8), Faults::DELAYS);
    world.load.begin(
        world.now,
        Pace::Closed,
        RunSpan { from: world.now, until: Time(u64::MAX), calls: None },
    );
    let end = world.now + Duration::from_millis(20);
    while world.now < end {
        world.turn();
    }
    let World { fabric, mut server, load, now, .. } = world;
    drop(load);
    let end = now + Duration::from_secs(60);
    let mut now = now;
    while server.app().places_in_use() > 0 && now < end {
        if !server.pass(now) {
            now = fabric
                .next_due()
                .filter(|due| *due > now)
                .unwrap_or(now + Duration::from_millis(1));
        }
    }
    assert_eq!((server.app().places_in_use(), server.calls_in_progress()), (0, (0, 0)));
}

#[test]
fn calls_that_do_not_fit_inline_are_refused_on_version_1_with_what_to_do() {
    let mut world = World::new(&reverse(5_000, 2), Faults::DELAYS);
    world.try_run(Pace::Closed, calls(0, 10));
    let (what, error) = world.load.generator().failure().unwrap();
    assert!(what == "DRIVE" && error.to_string().contains("--rdma-version 2"), "{what}: {error}");
    world.assert_idle();
}

#[test]
fn more_calls_than_the_server_has_places_for_are_refused() {
    // As many places as the server has, and a connection more.
    let mut world = World::new(&LoadPlan { connections: 9, ..reverse(10, 128) }, Faults::DELAYS);
    world.try_run(Pace::Closed, calls(0, 10));
    let (what, error) = world.load.generator().failure().unwrap();
    assert!(
        what == "DRIVE" && error.to_string().contains("no room for so many calls"),
        "{what}: {error}"
    );
}

#[test]
fn a_server_that_does_not_call_is_named_as_such() {
    let mut world = World::with(Echo::default(), &reverse(10, 1), Faults::DELAYS);
    world.try_run(Pace::Closed, calls(0, 10));
    let failure = world.load.generator().failure();
    assert_eq!(failure, Some(("DRIVE", Error::Rejected(Accepted::ProcUnavail))));
}

/// A server whose calls are defective.
#[derive(Default)]
struct Liar {
    echo: Echo,
    peer: Option<PeerId>,
    /// LAPs name this place.
    place: u32,
    /// Octets of a LAP.
    len: usize,
    /// It never calls.
    is_silent: bool,
}

impl App for Liar {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        if call.header.procedure != DRIVE {
            return self.echo.on_call(cx, call);
        }
        cx.ready(call.peer);
        self.peer = Some(call.peer);
        if !self.is_silent {
            let lap = Lap { place: self.place, took: 0, at: 0 };
            cx.call(call.peer, lap.request(cx, self.len, Token(0)).unwrap());
        }
    }

    fn on_reply(&mut self, _cx: &mut Cx<'_>, _outcome: Outcome<'_>) {}
}

#[test]
fn defective_calls_of_a_server_and_their_absence_end_the_run_with_the_reason() {
    for (place, len, is_silent, reason) in [
        (0, 99, false, "shorter than what was asked for"),
        (0, 101, false, "cannot be decoded"),
        (1, 100, false, "a place that it was not given"),
        (u32::MAX, 100, false, "a place that it was not given"),
        (0, 100, true, "no reply came in time"),
        // One good LAP, and no more.
        (0, 100, false, "no reply came in time"),
    ] {
        let liar = Liar { place, len, is_silent, ..Liar::default() };
        let mut world = World::with(liar, &reverse(100, 1), Faults::DELAYS);
        let began = world.now;
        world.load.begin(world.now, Pace::Closed, calls(0, 10));
        while !world.load.generator().is_over() && world.load.generator().failure().is_none() {
            world.turn();
            if world.fabric.next_due().is_none() {
                world.now = world.now + Duration::from_millis(100);
            }
            assert!(world.now.since(began) < Duration::from_secs(100), "{reason}");
        }
        let (what, error) = world.load.generator().failure().unwrap();
        assert!(what == "LAP" && error.to_string().contains(reason), "{reason}: {what}: {error}");
    }
}
