//! Checks of the rest of the system: its clock, its namespaces, and other tuning in force.

use crate::{
    Finding, HostCheck, Judged, Scene,
    check::{ALL, FAST, FixClass, Severity},
    scene::field_of,
};

/// The checks of this family.
pub(super) const CHECKS: &[HostCheck] = &[
    HostCheck {
        id: "NET13",
        name: "RDMA and network namespaces",
        severity: Severity::Fail,
        class: FixClass::Operator,
        profiles: ALL,
        why: "In exclusive mode a device is seen in one network namespace only: a container has \
              none unless it was moved there.",
        source: "rdma system show; rdma-system(8)",
        judge: namespaces,
    },
    HostCheck {
        id: "SYS01",
        name: "time of several hosts",
        severity: Severity::Warn,
        class: FixClass::Operator,
        profiles: FAST,
        why: "Runs on several nodes start at a time of day, and their results are laid beside \
              each other.",
        source: "chronyc -n tracking, or timedatectl; chronyc(1)",
        judge: clocks,
    },
    HostCheck {
        id: "SYS02",
        name: "profile of tuned",
        severity: Severity::Info,
        class: FixClass::Operator,
        profiles: FAST,
        why: "The daemon tuned sets many of these values by itself, and again after each restart \
              of it.",
        source: "/etc/tuned/active_profile; tuned-adm(8)",
        judge: tuned,
    },
];

fn namespaces(scene: &Scene) -> Judged {
    let text = scene.host.output(&["rdma", "system", "show"])?;
    let is_shared = text.contains("netns shared");
    let devices = scene.host.names("/sys/class/infiniband");
    if !is_shared && devices.is_empty() && !scene.is_container() {
        return Err(Finding::not_applicable("no RDMA device, and not in a container"));
    }
    let mode = if is_shared { "shared" } else { "exclusive" };
    let measured = format!("{mode}, {} devices here", devices.len());
    Ok(Finding::judge(is_shared || !devices.is_empty(), measured, "shared, or a device here").fix(
        "on the host: rdma dev set DEVICE netns NAME, or rdma system set netns shared before any \
         namespace is made",
    ))
}

fn clocks(scene: &Scene) -> Judged {
    if let Ok(text) = scene.host.output(&["chronyc", "-n", "tracking"]) {
        let offset = field_of(&text, "System time").unwrap_or_default();
        let seconds: f64 = offset
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| Finding::unknown("chronyc says nothing about the offset"))?;
        let is_synchronised = field_of(&text, "Leap status").is_some_and(|leap| leap == "Normal");
        let word = if is_synchronised { "" } else { ", not synchronised" };
        let measured = format!("{:.3} ms away{word}", seconds * 1e3);
        return Ok(Finding::judge(is_synchronised && seconds <= 1e-3, measured, "1 ms or less")
            .fix("systemctl restart chrony; chronyc waitsync"));
    }
    let text = scene.host.output(&["timedatectl", "show"])?;
    let is_met = text.lines().any(|line| line == "NTPSynchronized=yes");
    let measured = if is_met { "synchronised" } else { "not synchronised" };
    Ok(Finding::judge(is_met, measured, "synchronised").fix("apt-get install chrony"))
}

fn tuned(scene: &Scene) -> Judged {
    let profile = scene.host.text("/etc/tuned/active_profile")?;
    let fitting = ["network-latency", "cpu-partitioning", "network-throughput", ""];
    let is_met = fitting.contains(&profile.as_str());
    let measured = if profile.is_empty() { "none" } else { &profile };
    Ok(Finding::judge(is_met, measured, "network-latency or cpu-partitioning, or none")
        .fix("tuned-adm profile network-latency"))
}
