//! Checks of memory: limits, huge pages, and the kernel's background work on a process's memory.

use crate::{
    Finding, HostCheck, Judged, Scene,
    check::{ALL, FAST, FixClass, LATENCY, Severity, TuneProfile},
    host::chosen,
    scene::{IPC_LOCK, MIB, mib},
};

/// Octets of a huge page of the usual size.
const HUGE: u64 = 2 * MIB;
const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// The checks of this family.
pub(super) const CHECKS: &[HostCheck] = &[
    HostCheck {
        id: "MEM01",
        name: "locked memory limit",
        severity: Severity::Fail,
        class: FixClass::Boot,
        profiles: ALL,
        why: "An RDMA device locks every page that it may reach. Shells, systemd, containerd and \
              slurmd start processes with 8 MiB, and registering buffers then fails with ENOMEM: \
              the most frequent reason why RDMA programs do not start. The need is that of the \
              pools, 64 KiB of queues for each connection, and 64 MiB. iWARP in user space, \
              shared memory and TCP lock nothing.",
        source: "/proc/self/limits, CapEff; getrlimit(2); UCX issue 8229",
        judge: locked_memory,
    },
    HostCheck {
        id: "MEM02",
        name: "locked memory in a container",
        severity: Severity::Fail,
        class: FixClass::Boot,
        profiles: ALL,
        why: "A capability that a container was given is only in the bounding set of a process \
              that is not root: CAP_IPC_LOCK does nothing then, and the limit of the runtime \
              counts. Kubernetes cannot set that limit for a pod.",
        source: "/proc/self/status, /proc/self/limits; capabilities(7); \
                 nvidia-container-toolkit issue 2037",
        judge: locked_memory_in_container,
    },
    HostCheck {
        id: "MEM03",
        name: "free huge pages of 2 MiB",
        severity: Severity::Warn,
        class: FixClass::Runtime,
        profiles: FAST,
        why: "With 4 KiB pages a pool of a GiB has 262,144 translations, in the processor and in \
              the device, and misses cost microseconds. Pools take huge pages that are reserved, \
              on the node of the device, and others where none are free.",
        source: "/sys/devices/system/node/*/hugepages; kernel hugetlbpage.rst",
        judge: huge_pages,
    },
    HostCheck {
        id: "MEM04",
        name: "huge pages of 1 GiB",
        severity: Severity::Info,
        class: FixClass::Boot,
        profiles: FAST,
        why: "Pools above 8 GiB miss translations even with pages of 2 MiB. Pages of 1 GiB are \
              found reliably at boot only.",
        source: "/sys/kernel/mm/hugepages/hugepages-1048576kB; kernel hugetlbpage.rst",
        judge: giant_pages,
    },
    HostCheck {
        id: "MEM05",
        name: "transparent huge pages",
        severity: Severity::Warn,
        class: FixClass::Runtime,
        profiles: LATENCY,
        why: "With 'always' the kernel compacts memory in page faults of every process and moves \
              pages beneath it: stalls of milliseconds. With 'madvise' only those that ask for it \
              pay, and pools do ask where no reserved pages are free.",
        source: "/sys/kernel/mm/transparent_hugepage/{enabled,defrag}; kernel transhuge.rst; \
                 tuned profile network-latency",
        judge: transparent_huge_pages,
    },
    HostCheck {
        id: "MEM06",
        name: "merging of equal pages (KSM)",
        severity: Severity::Warn,
        class: FixClass::Runtime,
        profiles: FAST,
        why: "KSM scans memory on some core and write-protects pages that it merges; a later \
              write faults.",
        source: "/sys/kernel/mm/ksm/run; kernel ksm.rst",
        judge: |scene| zero(scene, "/sys/kernel/mm/ksm/run"),
    },
    HostCheck {
        id: "MEM07",
        name: "automatic NUMA balancing",
        severity: Severity::Warn,
        class: FixClass::Runtime,
        profiles: FAST,
        why: "The kernel unmaps pages at intervals to learn who uses them, so that threads that \
              are pinned beside their memory take faults for nothing.",
        source: "/proc/sys/kernel/numa_balancing; kernel sysctl/kernel.rst; tuned profile \
                 network-latency",
        judge: |scene| zero(scene, "/proc/sys/kernel/numa_balancing"),
    },
    HostCheck {
        id: "MEM08",
        name: "swapping",
        severity: Severity::Warn,
        class: FixClass::Runtime,
        profiles: FAST,
        why: "A page that comes back from swap costs what a disk costs.",
        source: "/proc/sys/vm/swappiness, VmSwap, SwapTotal; kernel sysctl/vm.rst",
        judge: swapping,
    },
    HostCheck {
        id: "MEM09",
        name: "zone reclaim",
        severity: Severity::Info,
        class: FixClass::Runtime,
        profiles: LATENCY,
        why: "The kernel frees page cache of a node before it takes memory of another one, inside \
              of the allocation that asked. Profiles for computing switch it on: a conflict of \
              purposes.",
        source: "/proc/sys/vm/zone_reclaim_mode; tuned profiles network-latency, hpc-compute",
        judge: |scene| zero(scene, "/proc/sys/vm/zone_reclaim_mode"),
    },
    HostCheck {
        id: "MEM10",
        name: "interval of memory statistics",
        severity: Severity::Info,
        class: FixClass::Runtime,
        profiles: LATENCY,
        why: "Every second a worker of the kernel runs on each core to fold counters.",
        source: "/proc/sys/vm/stat_interval; tuned profile network-latency",
        judge: stat_interval,
    },
    HostCheck {
        id: "MEM11",
        name: "memory limits of control groups",
        severity: Severity::Fail,
        class: FixClass::Boot,
        profiles: ALL,
        why: "A process above the limit of its group is killed, and a huge page above it is a \
              SIGBUS at the first touch.",
        source: "memory.max, hugetlb.2MB.max (version 1: memory.limit_in_bytes, \
                 hugetlb.2MB.limit_in_bytes); kernel cgroup-v2.rst",
        judge: group_memory,
    },
    HostCheck {
        id: "MEM12",
        name: "free memory",
        severity: Severity::Fail,
        class: FixClass::Nobody,
        profiles: ALL,
        why: "Pools are mapped and touched when the server starts. Free huge pages count for \
              them and are no part of the memory that is available otherwise.",
        source: "/proc/meminfo: MemAvailable, HugePages_Free, Hugepagesize",
        judge: free_memory,
    },
];

/// A file that should hold 0.
pub(super) fn zero(scene: &Scene, path: &str) -> Judged {
    let value = scene.host.number(path)?;
    Ok(Finding::judge(value == 0, value.to_string(), "0").set(path, "0"))
}

fn locked_memory(scene: &Scene) -> Judged {
    scene.rdma_devices().map_err(|_| {
        Finding::not_applicable("no RDMA device: iwarp, shm and tcp lock no memory")
    })?;
    let (soft, _) = scene.limits("Max locked memory")?;
    let need = scene.locked_octets();
    if scene.has_capability("CapEff", IPC_LOCK)? {
        let measured = format!("{}, not applied: CAP_IPC_LOCK", mib(soft));
        return Ok(Finding::judge(true, measured, mib(need)));
    }
    let fix = match scene.host.exists("/proc/self/environ") && is_slurm(scene) {
        true => {
            "LimitMEMLOCK=infinity in slurmd.service, PropagateResourceLimitsExcept=MEMLOCK in \
             slurm.conf"
        }
        false => {
            "LimitMEMLOCK=infinity in the unit (systemctl edit stag), or '* - memlock unlimited' \
             in /etc/security/limits.d/rdma.conf and a new login"
        }
    };
    Ok(Finding::judge(soft >= need, mib(soft), format!("{} or more", mib(need))).fix(fix))
}

fn is_slurm(scene: &Scene) -> bool {
    let environment = scene.host.text("/proc/self/environ").unwrap_or_default();
    environment.split('\0').any(|entry| entry.starts_with("SLURM_JOB_ID="))
}

fn locked_memory_in_container(scene: &Scene) -> Judged {
    if !scene.is_container() {
        return Err(Finding::not_applicable("not in a container"));
    }
    scene.rdma_devices()?;
    let (soft, _) = scene.limits("Max locked memory")?;
    let is_inert = scene.has_capability("CapBnd", IPC_LOCK)?
        && !scene.has_capability("CapEff", IPC_LOCK)?
        && soft < scene.locked_octets();
    let measured = match is_inert {
        true => format!("CAP_IPC_LOCK is only in the bounding set; limit {}", mib(soft)),
        false => format!("limit {}", mib(soft)),
    };
    Ok(Finding::judge(!is_inert, measured, "the capability in effect, or the limit raised").fix(
        "--ulimit memlock=-1 (docker, podman), or LimitMEMLOCK=infinity in a drop-in of \
         containerd.service",
    ))
}

/// Nodes of the host's memory: those of the named device, or else all.
fn memory_nodes(scene: &Scene) -> Vec<String> {
    let nodes = scene.host.names("/sys/devices/system/node");
    let mut nodes: Vec<_> = nodes
        .into_iter()
        .filter(|name| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok()))
        .collect();
    if scene.plan.device.is_some()
        && let Some(node) = super::placement::device_node(scene)
    {
        nodes.retain(|name| *name == format!("node{node}"));
    }
    nodes
}

fn huge_pages(scene: &Scene) -> Judged {
    let pages = i64::try_from(scene.plan.pool_octets.div_ceil(HUGE)).unwrap_or(i64::MAX);
    let nodes = memory_nodes(scene);
    let folders: Vec<_> = match nodes.as_slice() {
        [] => vec!["/sys/kernel/mm/hugepages/hugepages-2048kB".to_owned()],
        nodes => nodes
            .iter()
            .map(|node| format!("/sys/devices/system/node/{node}/hugepages/hugepages-2048kB"))
            .collect(),
    };
    let mut best: Option<(i64, &String)> = None;
    for folder in &folders {
        let free = scene.host.number(&format!("{folder}/free_hugepages"))?;
        if best.is_none_or(|(most, _)| free > most) {
            best = Some((free, folder));
        }
    }
    let (free, folder) = best.ok_or_else(|| Finding::not_applicable("no huge pages here"))?;
    let key = format!("{folder}/nr_hugepages");
    let missing = pages.saturating_sub(free);
    let wanted = scene.host.number(&key)?.saturating_add(missing);
    let finding = Finding::judge(missing <= 0, format!("{free} free"), format!("{pages} free"));
    // Reserving must leave the host most of its memory.
    let octets = u64::try_from(missing).unwrap_or(0).saturating_mul(HUGE);
    match octets <= scene.meminfo("MemAvailable")? / 2 {
        true => Ok(finding.set(key, wanted.to_string())),
        false => Ok(finding.fix("too little memory is free to reserve them: smaller pools")),
    }
}

fn giant_pages(scene: &Scene) -> Judged {
    if scene.plan.pool_octets <= 8 << 30 {
        return Err(Finding::not_applicable("pools are not above 8 GiB"));
    }
    let free = scene.host.number("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages")?;
    let pages = scene.plan.pool_octets.div_ceil(1 << 30);
    Ok(Finding::judge(free >= 1, format!("{free} free"), "1 or more")
        .fix(format!("kernel command line: hugepagesz=1G default_hugepagesz=1G hugepages={pages}")))
}

fn transparent_huge_pages(scene: &Scene) -> Judged {
    let read = |name: &str| -> Result<String, Finding> {
        let text = scene.host.text(&format!("{THP}/{name}"))?;
        Ok(chosen(&text).unwrap_or(&text).to_owned())
    };
    let (enabled, defrag) = (read("enabled")?, read("defrag")?);
    let is_calm = enabled != "always" && defrag != "always";
    let mut finding = Finding::judge(
        is_calm || scene.plan.profile != TuneProfile::Latency,
        format!("{enabled}, defrag {defrag}"),
        "madvise or never, defrag not always",
    );
    if enabled == "always" {
        finding = finding.set(format!("{THP}/enabled"), "madvise");
    }
    if defrag == "always" {
        finding = finding.set(format!("{THP}/defrag"), "madvise");
    }
    Ok(finding)
}

fn swapping(scene: &Scene) -> Judged {
    if scene.meminfo("SwapTotal")? == 0 {
        return Err(Finding::not_applicable("no swap space"));
    }
    let path = "/proc/sys/vm/swappiness";
    let value = scene.host.number(path)?;
    Ok(Finding::judge(value <= 10, value.to_string(), "10 or less").set(path, "10"))
}

fn stat_interval(scene: &Scene) -> Judged {
    let path = "/proc/sys/vm/stat_interval";
    let value = scene.host.number(path)?;
    Ok(Finding::judge(value >= 10, format!("{value} s"), "10 s or more").set(path, "10"))
}

fn group_memory(scene: &Scene) -> Judged {
    let smallest = |files: Result<Vec<String>, Finding>| {
        let files = files.unwrap_or_default();
        files.iter().filter_map(|text| text.parse::<u64>().ok()).min().unwrap_or(u64::MAX)
    };
    let memory = scene.cgroup_files("memory", "memory.max", "memory.limit_in_bytes");
    let huge = scene.cgroup_files("hugetlb", "hugetlb.2MB.max", "hugetlb.2MB.limit_in_bytes");
    if let (Err(none), Err(_)) = (&memory, &huge) {
        return Err(none.clone());
    }
    let (memory, huge) = (smallest(memory), smallest(huge));
    let need = scene.plan.pool_octets;
    // A group without huge pages is served with others, and MEM03 says so.
    let is_enough = memory >= need && (huge == 0 || huge >= need);
    // Version 1 writes the greatest number of pages where there is no limit.
    let shown = |limit: u64| if limit >= 1 << 60 { "no limit".to_owned() } else { mib(limit) };
    let measured = format!("{}, huge pages {}", shown(memory), shown(huge));
    Ok(Finding::judge(is_enough, measured, format!("{} or more", mib(need))).fix(
        "MemoryMax= of the unit; resources.limits (memory, hugepages-2Mi) of the pod; --mem of \
         the job",
    ))
}

fn free_memory(scene: &Scene) -> Judged {
    let available = scene.meminfo("MemAvailable")?;
    let text = scene.host.text("/proc/meminfo")?;
    let free: u64 = crate::scene::field_of(&text, "HugePages_Free")
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    let huge = free.saturating_mul(scene.meminfo("Hugepagesize").unwrap_or(0));
    let rest = scene.plan.pool_octets.saturating_sub(huge);
    let need = rest.saturating_add(rest / 5);
    Ok(Finding::judge(
        available >= need,
        format!("{} and {} of huge pages", mib(available), mib(huge)),
        format!("{} beside huge pages", mib(need)),
    )
    .fix("smaller pools, or fewer cores (stag serve --cores)"))
}
