//! Every check, on recorded hosts: states, measured values and fixes are as `hosts/*.expected` has
//! them, each check passes on some host and finds a defect on another.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod support;

use stag_tuning::{CheckState, HostPlan, HostReport, TuneProfile, checks};
use std::{collections::BTreeMap, env, fmt::Write, fs, path::Path, time::Duration};
use support::{UnpackedHost, gaps, plan};

/// Each recorded host, the plan for it, and its report of all checks.
fn reports() -> Vec<(&'static str, HostReport)> {
    let calm = Some(gaps(3, Duration::from_micros(20), 0));
    let stalled = Some(gaps(250, Duration::from_micros(4000), 240));
    let small = HostPlan { pool_octets: 512 << 20, ..plan(None) };
    let container = HostPlan { profile: TuneProfile::Container, ..small.clone() };
    let vm = HostPlan { cores: Some("0-1".parse().unwrap()), ..small.clone() };
    let hosts = [
        ("metal", plan(Some("mlx5_0")), calm.clone()),
        ("metal-untuned", plan(Some("mlx5_0")), stalled),
        ("vm", vm, calm),
        ("soft", small, None),
        ("container", container.clone(), None),
        ("pod", container, None),
    ];
    hosts
        .into_iter()
        .map(|(name, plan, gaps)| {
            let host = UnpackedHost::named(name);
            (name, HostReport::of(&host.scene(plan, gaps), &checks::all()))
        })
        .collect()
}

fn lines(report: &HostReport) -> String {
    let mut text = String::new();
    for row in &report.checks {
        let fix = row.fix.as_ref().map(|fix| format!(" | {fix}")).unwrap_or_default();
        let state = row.state.name();
        let _ = writeln!(text, "{} {state} {} | {}{fix}", row.id, row.measured, row.wanted);
    }
    text
}

/// With `STAG_TUNING_EXPECT=1` in the environment the expectations are written instead.
#[test]
fn every_host_is_judged_as_expected() {
    for (name, report) in reports() {
        let at = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/hosts/{name}.expected"));
        let found = lines(&report);
        if env::var_os("STAG_TUNING_EXPECT").is_some() {
            fs::write(&at, &found).unwrap();
        }
        let expected = fs::read_to_string(&at).unwrap();
        for (found, expected) in found.lines().zip(expected.lines()) {
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(found.lines().count(), expected.lines().count(), "{name}");
    }
}

#[test]
fn every_check_passes_on_one_host_and_finds_a_defect_on_another() {
    let mut seen: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
    for (_, report) in reports() {
        for row in report.checks {
            let (passes, finds) = seen.entry(row.id).or_default();
            *passes |= row.state == CheckState::Pass;
            *finds |= matches!(row.state, CheckState::Info | CheckState::Warn | CheckState::Fail);
        }
    }
    assert_eq!(seen.len(), 69 + 6);
    let weak: Vec<_> = seen.iter().filter(|(_, both)| **both != (true, true)).collect();
    assert_eq!(weak, []);
}

#[test]
fn every_defect_has_a_fix_and_every_reason_words() {
    for (name, report) in reports() {
        for row in report.checks {
            let is_defect =
                matches!(row.state, CheckState::Info | CheckState::Warn | CheckState::Fail);
            assert_eq!(row.fix.is_some(), is_defect, "{name}: {}", row.id);
            assert!(!row.measured.is_empty(), "{name}: {}", row.id);
        }
    }
}

#[test]
fn an_empty_host_passes_nothing() {
    let home = tempfile::TempDir::new().unwrap();
    let host = UnpackedHost { home };
    let report = HostReport::of(&host.scene(HostPlan::default(), None), &checks::all());
    let passes: Vec<_> = report.checks.iter().filter(|row| row.state == CheckState::Pass).collect();
    let ids: Vec<_> = passes.iter().map(|row| row.id).collect();
    assert!(ids.is_empty(), "{passes:?}");
}

#[test]
fn a_file_that_needs_root_is_unknown() {
    let host = UnpackedHost::named("metal");
    let denied = "/proc/self/mountstats\n/sys/kernel/mm/ksm/run";
    host.put(".denied", denied);
    let report = HostReport::of(&host.scene(plan(None), None), &checks::all());
    for id in ["NFS05", "MEM06"] {
        let row = report.checks.iter().find(|row| row.id == id).unwrap();
        assert_eq!(row.state, CheckState::Unknown, "{id}: {}", row.measured);
    }
}

#[test]
fn checks_have_ids_of_their_own_in_order_and_say_why() {
    let all = checks::all();
    let ids: std::collections::BTreeSet<_> = all.iter().map(|check| check.id).collect();
    assert_eq!(ids.len(), all.len());
    assert!(all.iter().all(|check| check.why.len() > 40 && check.source.len() > 10));
    assert_eq!(checks::of_host().len(), 69);
}

#[test]
fn exit_codes_tell_warnings_from_failures() {
    let codes: Vec<_> = reports().iter().map(|(_, report)| report.exit_code()).collect();
    assert_eq!(codes[1], 2, "the untuned host fails");
    let host = UnpackedHost::named("metal");
    let report = HostReport::of(&host.scene(plan(None), None), &checks::of_host());
    assert_eq!(report.exit_code(), 0, "{}", lines(&report));
    host.put("/proc/sys/kernel/numa_balancing", "1");
    let report = HostReport::of(&host.scene(plan(None), None), &checks::of_host());
    assert_eq!(report.exit_code(), 1);
}
