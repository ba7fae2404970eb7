//! Checks of placement: cores of the poll loops, their siblings, and the node of the device.

use super::cgroups::quota;
use crate::{
    CoreList, Finding, HostCheck, Judged, Scene,
    check::{ALL, FAST, FixClass, PLACED, Severity},
};

/// The checks of this family.
pub(super) const CHECKS: &[HostCheck] = &[
    HostCheck {
        id: "CPU05",
        name: "isolated cores",
        severity: Severity::Warn,
        class: FixClass::Boot,
        profiles: FAST,
        why: "Other threads run on any core that is not isolated, and each time slice of theirs \
              is a stall of milliseconds for a loop that polls.",
        source: "/sys/devices/system/cpu/{isolated,nohz_full}; kernel kernel-parameters.txt: \
                 isolcpus",
        judge: isolation,
    },
    HostCheck {
        id: "CPU06",
        name: "preemptions of a pinned thread",
        severity: Severity::Warn,
        class: FixClass::Nobody,
        profiles: PLACED,
        why: "A count of how often the scheduler gave the core to somebody else while a thread \
              of ours wanted it, whatever the settings say.",
        source: "nonvoluntary_ctxt_switches of the stall probe's threads; proc_pid_status(5)",
        judge: preemptions,
    },
    HostCheck {
        id: "CPU07",
        name: "stalls of a polling loop",
        severity: Severity::Warn,
        class: FixClass::Nobody,
        profiles: PLACED,
        why: "The sum of all that keeps a core from its loop: interrupts, other threads, the \
              hypervisor, the firmware. A thread on each core reads the clock for a second. A \
              gap is above 10 us; at most 0.1 % of the time may be lost in gaps, and none may be \
              above 100 us.",
        source: "measured; the same idea as hwlat and oslat (rt-tests)",
        judge: stalls,
    },
    HostCheck {
        id: "CPU08",
        name: "second threads of our cores",
        severity: Severity::Warn,
        class: FixClass::Operator,
        profiles: FAST,
        why: "Two hardware threads share the units and the first cache of one core: a neighbour \
              costs a loop a third of its speed, and its time is no longer constant.",
        source: "/sys/devices/system/cpu/cpu*/topology/thread_siblings_list; kernel \
                 cputopology.rst",
        judge: siblings,
    },
    HostCheck {
        id: "CPU09",
        name: "cores left for the rest",
        severity: Severity::Fail,
        class: FixClass::Nobody,
        profiles: PLACED,
        why: "Loops that poll leave nothing to the kernel's threads and to interrupts on their \
              cores; somewhere these have to run.",
        source: "/sys/devices/system/cpu/online, --cores",
        judge: housekeeping,
    },
    HostCheck {
        id: "CPU10",
        name: "cores on the device's node",
        severity: Severity::Warn,
        class: FixClass::Process,
        profiles: PLACED,
        why: "From another node every doorbell and every completion crosses the link between \
              sockets: several hundred nanoseconds each way.",
        source: "/sys/class/{infiniband,net}/*/device/numa_node, /sys/devices/system/node",
        judge: nodes,
    },
    HostCheck {
        id: "CPU11",
        name: "cores that are allowed",
        severity: Severity::Fail,
        class: FixClass::Nobody,
        profiles: ALL,
        why: "A process cannot pin a thread to a core outside of its cpuset.",
        source: "Cpus_allowed_list in /proc/self/status; cpuset(7)",
        judge: allowed,
    },
    HostCheck {
        id: "CPU12",
        name: "CPU quota",
        severity: Severity::Fail,
        class: FixClass::Nobody,
        profiles: ALL,
        why: "A loop that polls uses up its quota in every period, and is then stopped until the \
              next one: tens of milliseconds.",
        source: "cpu.max (version 1: cpu.cfs_quota_us) of the control group and its parents; \
                 kernel cgroup-v2.rst",
        judge: |scene| quota(scene),
    },
];

fn isolation(scene: &Scene) -> Judged {
    let cores = scene.cores()?;
    let isolated = scene.core_file("/sys/devices/system/cpu/isolated")?;
    let quiet = scene.core_file("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    let open = cores.without(&isolated);
    let measured = match open.is_empty() {
        true if cores.without(&quiet).is_empty() => "all isolated, without ticks".to_owned(),
        true => "all isolated, with ticks".to_owned(),
        false => format!("not isolated: {open}"),
    };
    let fix = format!("kernel command line: isolcpus={cores} nohz_full={cores} rcu_nocbs={cores}");
    Ok(Finding::judge(open.is_empty(), measured, format!("{cores} isolated")).fix(fix))
}

fn preemptions(scene: &Scene) -> Judged {
    let gaps = scene.gaps.as_deref().unwrap_or_default();
    let counted = gaps.iter().filter_map(|gap| {
        let rate = gap.preempted?.saturating_mul(1000);
        Some((rate / u64::try_from(gap.watched.as_millis()).unwrap_or(1).max(1), gap.core))
    });
    let (rate, core) =
        counted.max().ok_or_else(|| Finding::not_applicable("the stall probe was not run"))?;
    Ok(Finding::judge(rate < 10, format!("{rate}/s on core {core}"), "below 10/s")
        .fix("isolate the cores (CPU05), or move what else runs there"))
}

fn stalls(scene: &Scene) -> Judged {
    let gaps = scene.gaps.as_deref().unwrap_or_default();
    let worst = gaps.iter().max_by_key(|gap| (gap.longest, gap.lost));
    let worst = worst.ok_or_else(|| Finding::not_applicable("the stall probe was not run"))?;
    let is_calm = |gap: &&crate::CoreGap| {
        gap.longest.as_micros() <= 100 && gap.lost.as_nanos() * 1000 <= gap.watched.as_nanos()
    };
    let seconds = worst.watched.as_secs_f64().max(f64::MIN_POSITIVE);
    let measured = format!(
        "core {}: {} gaps/s, longest {} us, {:.2} % lost",
        worst.core,
        crate::checks::per_second(worst.gaps, worst.watched),
        worst.longest.as_micros(),
        worst.lost.as_secs_f64() / seconds * 100.0
    );
    Ok(Finding::judge(gaps.iter().all(|gap| is_calm(&gap)), measured, "100 us, 0.1 %")
        .fix("CPU03, CPU05 and IRQ02 name the usual reasons; else the firmware (SMI) or the host"))
}

/// The hardware threads that share the core `core`.
fn siblings_of(scene: &Scene, core: usize) -> Result<CoreList, Finding> {
    let at = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    Ok(scene.core_file(&at)?.without(&CoreList([core].into())))
}

fn siblings(scene: &Scene) -> Judged {
    let cores = scene.cores()?;
    let online = scene.core_file("/sys/devices/system/cpu/online")?;
    let isolated = scene.core_file("/sys/devices/system/cpu/isolated").unwrap_or_default();
    let mut shared = CoreList::default();
    for &core in &cores.0 {
        shared.0.extend(siblings_of(scene, core)?.both(&online).0);
    }
    // A sibling that is isolated and not ours runs nothing.
    let used = shared.both(cores).0.into_iter().chain(shared.without(&isolated).0);
    let used = CoreList(used.collect());
    let offline = used.without(cores);
    let measured = match used.is_empty() {
        true => "unused".to_owned(),
        false => format!("{used} can be used"),
    };
    let fix = match offline.0.first() {
        Some(first) if offline.0.len() == 1 => {
            format!("echo 0 > /sys/devices/system/cpu/cpu{first}/online")
        }
        Some(_) => format!(
            "for n in {}; do echo 0 > /sys/devices/system/cpu/cpu$n/online; done",
            offline.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        ),
        None => "name one thread of each core in --cores".to_owned(),
    };
    Ok(Finding::judge(used.is_empty(), measured, "unused").fix(fix))
}

fn housekeeping(scene: &Scene) -> Judged {
    let cores = scene.cores()?;
    let left = scene.core_file("/sys/devices/system/cpu/online")?.without(cores);
    let measured = match left.is_empty() {
        true => "none".to_owned(),
        false => format!("cores {left}"),
    };
    Ok(Finding::judge(!left.is_empty(), measured, "1 or more").fix("name fewer cores in --cores"))
}

/// The node of the device, if it has one.
pub(super) fn device_node(scene: &Scene) -> Option<i64> {
    let rdma = scene.rdma_devices().unwrap_or_default();
    let rdma = rdma.iter().map(|name| format!("/sys/class/infiniband/{name}/device/numa_node"));
    let net = scene.net_devices().unwrap_or_default();
    let net = net.iter().map(|name| format!("/sys/class/net/{name}/device/numa_node"));
    rdma.chain(net).find_map(|at| scene.host.number(&at).ok()).filter(|node| *node >= 0)
}

fn nodes(scene: &Scene) -> Judged {
    let cores = scene.cores()?;
    let node = device_node(scene)
        .ok_or_else(|| Finding::not_applicable("the device belongs to no node"))?;
    let near = scene.core_file(&format!("/sys/devices/system/node/node{node}/cpulist"))?;
    let far = cores.without(&near);
    let measured = match far.is_empty() {
        true => format!("all on node {node}"),
        false => format!("cores {far} are on another node"),
    };
    Ok(Finding::judge(far.is_empty(), measured, format!("node {node}"))
        .fix(format!("--cores out of {near}")))
}

fn allowed(scene: &Scene) -> Judged {
    let cores = scene.cores()?;
    let text = scene.status("Cpus_allowed_list")?;
    let allowed: CoreList = text.parse().map_err(Finding::not_applicable)?;
    let missing = cores.without(&allowed);
    let measured = format!("{allowed} allowed");
    Ok(Finding::judge(missing.is_empty(), measured, format!("{cores} allowed")).fix(
        "the cpuset: --cpu-bind=none (Slurm), the static CPU manager (Kubernetes), AllowedCPUs= \
         of the unit",
    ))
}
