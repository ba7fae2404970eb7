//! The load generator on the simulated fabric, in virtual time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use stag_load::{
    Arrivals, CallRecord, LoadPlan, Pace, RunOutcome, RunSpan, Schedule, SchedulePart, Times,
    Workload,
    compare::{Rules, Verdict, compare, is_worse},
    report::{
        export,
        model::{ClientSide, HostFacts, RunSetup, SCHEMA, SecondFigures, VERSUS_SCHEMA},
    },
    versus::{self, Round},
};
use stag_sim::Faults;
use stag_verbs::Time;
use std::time::Duration;
use world::{MILLI, World, calls, sum};

mod world;

#[test]
fn one_stall_of_the_server_shows_in_the_open_loop_and_hides_from_the_closed_one() {
    let faults = Faults { delay: 20_000..60_000, ..Faults::DELAYS };
    let mut open = World::new(&LoadPlan::new(Workload::Null, 0, 32), faults.clone());
    open.stall = 2_000 * MILLI..2_200 * MILLI;
    let start = open.now;
    let pace = Pace::Open(Schedule::new(start, 2_000.0, Arrivals::Poisson, 1, SchedulePart::ALL));
    let span = RunSpan { from: Time(500 * MILLI), until: Time(5_500 * MILLI), calls: None };
    let measured = sum(&open.run(pace, span));
    assert!((9_500..10_500).contains(&measured.calls), "{}", measured.calls);
    assert_eq!(measured.calls, measured.response.len());
    let at = |record: &CallRecord, quantile| record.response.value_at_quantile(quantile) / MILLI;
    // About 400 of 10,000 calls were meant for the 200 ms, and each waited for the rest of them.
    assert!(
        at(&measured, 0.999) >= 180 && at(&measured, 0.999) <= 202,
        "{} ms",
        at(&measured, 0.999)
    );
    assert!(at(&measured, 0.98) >= 60 && at(&measured, 0.95) == 0, "{} ms", at(&measured, 0.98));
    // The generator was never late, so it caused none of that.
    assert!(measured.lag.max() <= 100_000, "{} ns", measured.lag.max());

    let mut closed = World::new(&LoadPlan::new(Workload::Null, 0, 1), faults);
    closed.stall = 2_000 * MILLI..2_200 * MILLI;
    let measured = sum(&closed.run(
        Pace::Closed,
        RunSpan { from: Time(500 * MILLI), until: Time(5_500 * MILLI), calls: None },
    ));
    assert!(measured.calls > 20_000, "{}", measured.calls);
    assert_eq!(at(&measured, 0.9999), 0, "a closed loop makes one call while the server stalls");
    assert_eq!(measured.response.max(), measured.service.max());
    assert!(measured.service.max() >= 199 * MILLI);
}

#[test]
fn the_warm_up_is_handed_over_without_a_pause() {
    let mut world = World::new(&LoadPlan::new(Workload::Echo, 100, 4), Faults::DELAYS);
    let from = world.now.0 + 50 * MILLI;
    let seconds = world.run(Pace::Closed, calls(from, 10_000));
    let measured = sum(&seconds);
    assert_eq!((measured.calls, measured.failed, measured.octets), (10_000, 0, 2_000_000));
    assert_eq!(measured.service.len(), 10_000);
    // The first call that counts goes out while three of the warm-up are outstanding: it has no
    // better time than the others.
    let (began, ended) = world.load.generator().measured();
    assert_eq!(began, Time(from));
    let rate = 10_000.0 / ended.since(began).as_secs_f64();
    let mean = measured.service.mean() / 1e9;
    assert!(
        (rate * mean / 4.0 - 1.0).abs() < 0.02,
        "four calls are always under way: {}",
        rate * mean
    );
}

#[test]
fn calls_for_which_there_is_no_time_are_counted_with_what_they_waited() {
    // A depth of 1 and about 80 us a call: 12,000 calls a second at most.
    let faults = Faults { delay: 30_000..50_000, ..Faults::DELAYS };
    let mut world = World::new(&LoadPlan::new(Workload::Null, 0, 1), faults);
    let start = world.now;
    let pace = Pace::Open(Schedule::new(start, 50_000.0, Arrivals::Uniform, 1, SchedulePart::ALL));
    let span = RunSpan { from: start, until: start + Duration::from_secs(1), calls: None };
    let measured = sum(&world.run(pace, span));
    let unsent = world.load.generator().watch().unsent;
    assert_eq!(measured.calls + unsent, 50_000);
    assert_eq!(measured.response.len(), 50_000);
    assert!(unsent > 30_000, "{unsent}");
    assert!(measured.response.value_at_quantile(0.5) > 200 * MILLI);
    assert!(
        measured.service.value_at_quantile(0.99) < MILLI,
        "the service time tells nothing of that"
    );
}

/// The server is gone at 1.2 s of 2 s: 480 of 800 calls were due before that, and 320 after.
#[test]
fn calls_that_are_due_when_the_server_is_gone_are_counted() {
    for connections in [1, 3] {
        let plan = LoadPlan { connections, ..LoadPlan::new(Workload::Null, 0, 8) };
        let mut world = World::new(&plan, Faults { delay: 20_000..60_000, ..Faults::DELAYS });
        let start = world.now;
        world.gone_at = Some(start + Duration::from_millis(1_200));
        let pace = Pace::Open(Schedule::new(start, 400.0, Arrivals::Uniform, 1, SchedulePart::ALL));
        let span = RunSpan { from: start, until: start + Duration::from_secs(2), calls: None };
        let measured = sum(&world.try_run(pace, span));
        let generator = world.load.generator();
        assert_eq!(measured.calls + measured.failed + generator.watch().unsent, 800);
        assert!((318..=320).contains(&generator.watch().unsent), "{:?}", generator.watch());
        assert_eq!(measured.response.len(), measured.calls + generator.watch().unsent);
        let gave_up = generator.watch().gave_up.unwrap().since(start).as_secs_f64();
        assert!((gave_up - 1.2).abs() < 0.01, "{gave_up}");
        assert!(generator.failure().is_some());
        // Two calls in five wait for up to 0.8 s: the median of what users see is that of the
        // living, p90 is not.
        let p90 = measured.response.value_at_quantile(0.9) as f64 / 1e9;
        assert!((0.5..0.7).contains(&p90), "{p90}");
    }
}

#[test]
fn calls_under_way_when_the_server_goes_count_as_failed() {
    let mut world = World::new(
        &LoadPlan::new(Workload::Null, 0, 8),
        Faults { delay: 900_000..1_000_000, ..Faults::DELAYS },
    );
    let start = world.now;
    world.gone_at = Some(start + Duration::from_millis(100));
    let measured = sum(&world.try_run(Pace::Closed, calls(start.0, 1_000_000)));
    assert_eq!(measured.failed, 8, "a closed loop has all its places under way");
    let (_, ended) = world.load.generator().measured();
    assert!(ended <= start + Duration::from_millis(110), "{ended:?}");
}

#[test]
fn every_workload_of_the_echo_program_moves_what_it_says() {
    for (workload, per_call) in [
        (Workload::Null, 0),
        (Workload::Echo, 2),
        (Workload::Pull, 1),
        (Workload::Push, 1),
        (Workload::Mixed, 3),
    ] {
        for len in [1, 8, 1_000, 3_000, 5_000, 70_000, 1 << 20] {
            let count = if len > 10_000 { 40 } else { 500 };
            let mut world = World::new(&LoadPlan::new(workload, len, 2), Faults::DELAYS);
            let measured = sum(&world.run(Pace::Closed, calls(world.now.0, count)));
            assert_eq!((measured.calls, measured.failed), (count, 0), "{workload} {len}");
            match workload {
                Workload::Mixed => assert!(measured.octets > 0),
                _ => assert_eq!(measured.octets, per_call * len as u64 * count, "{workload} {len}"),
            }
            assert_eq!(world.load.shard().calls_in_progress(), (0, 0));
        }
    }
}

#[test]
fn octets_that_do_not_fit_inline_are_pulled_and_pushed() {
    for (workload, pulled, pushed) in
        [(Workload::Pull, 20_000 * 100, 0), (Workload::Push, 0, 20_000 * 100)]
    {
        let mut world = World::new(&LoadPlan::new(workload, 20_000, 2), Faults::DELAYS);
        world.run(Pace::Closed, calls(world.now.0, 100));
        let responder = world.server.snapshot().engine.responder;
        assert_eq!((responder.pulled, responder.pushed), (pulled, pushed), "{workload}");
    }
}

#[test]
fn seconds_are_kept_apart() {
    let mut world = World::new(&LoadPlan::new(Workload::Null, 0, 4), Faults::DELAYS);
    let start = world.now;
    let pace = Pace::Open(Schedule::new(start, 1_000.0, Arrivals::Uniform, 1, SchedulePart::ALL));
    let span = RunSpan {
        from: start + Duration::from_secs(1),
        until: start + Duration::from_secs(4),
        calls: None,
    };
    let seconds = world.run(pace, span);
    let counts: Vec<_> = seconds.iter().map(|second| second.calls).collect();
    // The last reply of a second may come in the next one.
    assert!(counts[..3].iter().all(|count| (998..=1_001).contains(count)), "{counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), 3_000);
}

/// A run of `seconds` in virtual time, as a result. Its faults are those of the seed; `slower`
/// stretches every delay.
fn result(seed: u64, seconds: u64, slower: f64) -> RunOutcome {
    let of = |nanos: u64| (nanos as f64 * slower) as u64;
    let faults = Faults {
        delay: of(80_000)..of(240_000),
        completion_delay: of(100)..of(5_000),
        ..Faults::DELAYS
    };
    let mut world = World::new(&LoadPlan { seed, ..LoadPlan::new(Workload::Null, 0, 1) }, faults);
    let from = world.now + Duration::from_millis(100);
    let until = from + Duration::from_secs(seconds);
    let records = world.run(Pace::Closed, RunSpan { from, until, calls: None });
    let all = sum(&records);
    let setup = RunSetup {
        url: "sim".to_owned(),
        workload: Workload::Null,
        size: 0,
        connections: 1,
        depth: 1,
        cores: 1,
        rate: None,
        arrivals: None,
        warm_up_s: 0.1,
        duration_s: Some(seconds as f64),
        calls: None,
        verified: false,
        seed,
        names: None,
        rdma_version: None,
        sec: None,
    };
    RunOutcome {
        schema: SCHEMA.to_owned(),
        version: String::new(),
        began_unix_s: 0.0,
        setup,
        rdma_version: None,
        host: HostFacts { floors_ns: [Some(100.0); 2], ..HostFacts::default() },
        elapsed_s: seconds as f64,
        calls: all.calls,
        failed: 0,
        failure: None,
        gave_up_s: None,
        stopped: false,
        unsent: 0,
        left_behind: None,
        calls_per_s: all.calls as f64 / seconds as f64,
        octets_per_s: 0.0,
        service: Times::new(&all.service),
        response: Times::new(&all.response),
        connected: None,
        client: ClientSide::default(),
        check: None,
        server_cores: None,
        outages: Vec::new(),
        gaps: Vec::new(),
        turns: None,
        contexts: None,
        stages: None,
        seconds: (0..)
            .zip(&records)
            .map(|(number, record)| SecondFigures::new(number, record, None))
            .collect(),
    }
}

#[test]
fn a_tenth_slower_is_found_and_ten_runs_of_the_same_are_not_told_apart() {
    let same: Vec<_> = (1..=10).map(|seed| result(seed, 6, 1.0)).collect();
    for (number, one) in same.iter().enumerate() {
        for other in &same[number + 1..] {
            let changes = compare(one, other, Rules::default()).unwrap();
            assert_eq!(changes.len(), 3);
            assert!(changes.iter().all(|change| change.verdict == Verdict::Same), "{changes:?}");
        }
    }
    let slow = result(11, 6, 1.1);
    for one in &same {
        let changes = compare(one, &slow, Rules::default()).unwrap();
        assert!(is_worse(&changes), "{changes:?}");
        let p50 = &changes[0];
        assert!(p50.verdict == Verdict::Worse && (0.08..0.12).contains(&p50.change), "{p50:?}");
        let back = compare(&slow, one, Rules::default()).unwrap();
        assert!(!is_worse(&back) && back[0].verdict == Verdict::Better, "{back:?}");
    }
}

/// Rounds of two servers on a host whose state changes between rounds; the second server stretches
/// every delay by `slower`.
fn rounds(count: u64, slower: f64) -> Vec<Round> {
    let round = |number: u64| {
        let state = [1.0, 2.0, 1.5][number as usize % 3];
        let mut sides = [1.0, slower].map(|by| result(number + 1, 1, state * by));
        sides.iter_mut().for_each(|side| side.host.floors_ns = [Some(100.0 * state); 2]);
        let [before, after] = sides;
        Round { before, after }
    };
    (0..count).map(round).collect()
}

#[test]
fn a_tenth_slower_is_found_by_turns_on_a_host_whose_state_changes() {
    let rules = Rules { interleaved: true, ..Rules::default() };
    let slow = versus::ratios(&rounds(9, 1.1), rules).unwrap();
    assert_eq!(slow.len(), 3);
    let p50 = &slow[0];
    assert!(
        p50.verdict == Verdict::Worse && (1.08..1.12).contains(&p50.ratio) && p50.rounds == 9,
        "{p50:?}"
    );
    assert!(p50.lowest <= p50.ratio && p50.ratio <= p50.highest && p50.highest < 1.2, "{p50:?}");
    assert!(versus::is_worse(&slow));
    let fast = versus::ratios(&rounds(9, 0.9), rules).unwrap();
    assert!(
        !versus::is_worse(&fast) && fast.iter().any(|ratio| ratio.verdict == Verdict::Better),
        "{fast:?}"
    );
    let mut same = rounds(9, 1.0);
    // The second runs of other rounds in the same state.
    let afters: Vec<_> = same.iter().map(|round| round.after.clone()).collect();
    (0..9).for_each(|number| same[number].after = afters[(number + 3) % 9].clone());
    let same = versus::ratios(&same, rules).unwrap();
    assert!(same.iter().all(|ratio| ratio.verdict == Verdict::Same), "{same:?}");
}

#[test]
fn rounds_in_which_the_floor_moved_are_left_out_and_too_few_are_refused() {
    let mut all = rounds(9, 1.0);
    all[3].after.host.floors_ns[0] = Some(1.0);
    assert!(!all[3].is_steady() && all[2].is_steady());
    assert_eq!(versus::ratios(&all, Rules::default()).unwrap()[0].rounds, 8);
    all[4].before.host.floors_ns[1] = Some(10_000.0);
    let refused = versus::ratios(&all, Rules::default()).unwrap_err();
    assert!(refused.contains("7 of 9 rounds") && refused.contains("8 are needed"), "{refused}");
    all[4] = all[5].clone();
    (all[5].after.calls, all[5].after.calls_per_s) = (0, 0.0);
    let refused = versus::ratios(&all, Rules::default()).unwrap_err();
    assert!(
        refused.contains("7 of 9 rounds") && refused.contains("no call was answered"),
        "{refused}"
    );
    all[0].after.failed = 1;
    assert!(versus::ratios(&all, Rules::default()).unwrap_err().contains("second server failed"));
}

#[test]
fn runs_that_took_turns_are_one_result_and_compared_whatever_their_floors() {
    let rounds = rounds(6, 1.0);
    let of = |turns: &str| {
        let before =
            versus::merged(rounds.iter().map(|round| &round.before), turns).unwrap().unwrap();
        (before, versus::merged(rounds.iter().map(|round| &round.after), "1").unwrap().unwrap())
    };
    let (before, after) = of("1");
    assert_eq!(before.calls, rounds.iter().map(|round| round.before.calls).sum::<u64>());
    assert_eq!((before.service.samples, before.elapsed_s), (before.calls, 6.0));
    let numbers: Vec<_> = before.seconds.iter().map(|second| second.second).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    assert_eq!(before.host.floors_ns, [Some(100.0), Some(150.0)]);
    assert!(compare(&before, &after, Rules::default()).is_ok());
    let (stranger, _) = of("2");
    assert!(
        compare(&stranger, &after, Rules::default()).unwrap_err().contains("stag bench versus")
    );
    let text =
        serde_json::json!({ "schema": VERSUS_SCHEMA, "results": [before, after], "more": {} });
    assert_eq!(RunOutcome::parse_all(&text.to_string()), Ok(vec![before, after]));
    assert_eq!(versus::merged([].iter(), "1"), Ok(None));
}

#[test]
fn a_workload_of_version_4_is_compared_with_its_twin_of_version_3() {
    let (mut one, mut other) = (result(1, 6, 1.0), result(2, 6, 1.0));
    (one.setup.workload, other.setup.workload) = (Workload::Read, Workload::Read4);
    assert!(compare(&one, &other, Rules::default()).is_ok());
    other.setup.workload = Workload::Write4;
    let refused = compare(&one, &other, Rules::default()).unwrap_err();
    assert!(refused.contains("workload is nfs3:read and nfs4:write"), "{refused}");
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_reason() {
    let one = result(1, 6, 1.0);
    let refused = |change: fn(&mut RunOutcome)| {
        let mut other = one.clone();
        change(&mut other);
        compare(&one, &other, Rules::default()).unwrap_err()
    };
    assert!(refused(|other| other.setup.depth = 2).contains("depth is 1 and 2"));
    assert!(refused(|other| other.setup.rate = Some(5.0)).contains("rate"));
    assert!(refused(|other| other.failed = 1).contains("second run failed"));
    assert!(refused(|other| other.elapsed_s = 4.9).contains("4 whole seconds"));
    assert!(refused(|other| other.host.floors_ns[1] = Some(131.0)).contains("--interleaved"));
    let mut other = one.clone();
    other.host.floors_ns = [Some(129.0), None];
    assert!(compare(&one, &other, Rules::default()).is_ok());
    other.host.floors_ns = [Some(500.0); 2];
    assert!(compare(&one, &other, Rules { interleaved: true, ..Rules::default() }).is_ok());
}

#[test]
fn a_result_survives_its_text() {
    let one = result(1, 5, 1.0);
    assert_eq!(RunOutcome::parse(&serde_json::to_string(&one).unwrap()), Ok(one));
}

#[test]
fn other_tools_read_what_is_exported() {
    let one = result(1, 5, 1.0);
    let log = export::log(&one).unwrap();
    let entries = IntervalLogIterator::new(&log).filter_map(|entry| match entry.unwrap() {
        LogEntry::Interval(interval) => Some(interval),
        _ => None,
    });
    let mut sums = std::collections::BTreeMap::new();
    for interval in entries {
        let histogram = stag_load::latency::decode(interval.encoded_histogram()).unwrap();
        *sums.entry(interval.tag().unwrap().as_str().to_owned()).or_insert(0) += histogram.len();
    }
    let sums: Vec<_> = sums.into_iter().collect();
    assert_eq!(sums, [("response".to_owned(), one.calls), ("service".to_owned(), one.calls)]);

    let hgrm = export::hgrm(&one.response).unwrap();
    let rows: Vec<Vec<f64>> = hgrm
        .lines()
        .map(|line| line.split_whitespace().map_while(|word| word.parse().ok()).collect::<Vec<_>>())
        .filter(|row| row.len() >= 3)
        .collect();
    assert!(
        rows.windows(2).all(|pair| pair[0][0] <= pair[1][0] && pair[0][2] <= pair[1][2]),
        "{hgrm}"
    );
    let last = rows.last().unwrap();
    assert_eq!((last[1], last[2]), (1.0, one.calls as f64));
    let middle = rows.iter().find(|row| row[1] >= 0.5).unwrap();
    assert!((middle[0] / one.response.percentile("p50").unwrap() - 1.0).abs() < 0.01);

    let perftest = export::perftest(std::slice::from_ref(&one));
    let line: Vec<&str> = perftest.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((line.len(), line[1].parse()), (9, Ok(one.service.samples)));
    let half = one.service.percentile("p50").unwrap() / 2.0;
    assert!((line[4].parse::<f64>().unwrap() - half).abs() < 0.01, "{perftest}");

    let fio = export::fio(std::slice::from_ref(&one));
    let read = &fio["jobs"][0]["read"];
    assert_eq!(
        (read["total_ios"].as_u64(), read["lat_ns"]["N"].as_u64()),
        (Some(one.calls), Some(one.calls))
    );
    let p99 = read["clat_ns"]["percentile"]["99.000000"].as_f64().unwrap();
    assert!((p99 / 1e3 - one.service.percentile("p99").unwrap()).abs() < 0.01);
}
