//! Checks of NFS: ports, descriptors, file systems, and mounts of this host.

use crate::{
    Finding, HostCheck, Judged, Scene,
    check::{ALL, FAST, FixClass, Severity},
};

/// The number of CAP_DAC_READ_SEARCH (linux/capability.h).
const READ_SEARCH: u32 = 2;

/// The checks of this family.
pub(super) const CHECKS: &[HostCheck] = &[
    HostCheck {
        id: "NFS01",
        name: "ports that are free",
        severity: Severity::Fail,
        class: FixClass::Operator,
        profiles: ALL,
        why: "The kernel's NFS server, or a gateway that runs already, holds the ports of NFS.",
        source: "/proc/net/tcp, /proc/net/tcp6: sockets that listen; proc_net(5)",
        judge: ports,
    },
    HostCheck {
        id: "NFS02",
        name: "file descriptors",
        severity: Severity::Warn,
        class: FixClass::Boot,
        profiles: ALL,
        why: "Connections and files in use take one each. A server raises its soft limit to the \
              hard one by itself; the hard one is the host's.",
        source: "/proc/self/limits; getrlimit(2)",
        judge: descriptors,
    },
    HostCheck {
        id: "NFS03",
        name: "file systems that can be served",
        severity: Severity::Fail,
        class: FixClass::Nobody,
        profiles: ALL,
        why: "A server that runs as root finds files by the kernel's handles, which some file \
              systems do not have; one that runs as another user finds them by an index of its \
              own.",
        source: "/proc/self/mountinfo, CapEff; open_by_handle_at(2)",
        judge: file_systems,
    },
    HostCheck {
        id: "NFS04",
        name: "mounts of NFS on this host",
        severity: Severity::Info,
        class: FixClass::Operator,
        profiles: FAST,
        why: "A mount without proto=rdma goes over TCP, and says so nowhere else. A small rsize \
              splits READs; few slots leave credits unused.",
        source: "/proc/self/mounts, /proc/sys/sunrpc/rdma_slot_table_entries; nfs(5)",
        judge: mounts,
    },
    HostCheck {
        id: "NFS05",
        name: "errors of NFS mounts",
        severity: Severity::Warn,
        class: FixClass::Nobody,
        profiles: FAST,
        why: "Calls that could not be marshalled, replies that could not be read, and replies \
              that match no call are defects of one of both sides.",
        source: "/proc/self/mountstats: line 'xprt: rdma'; Linux net/sunrpc/xprtrdma/transport.c",
        judge: mount_errors,
    },
];

/// Ports of a table of sockets (/proc/net/tcp) that listen.
fn listening(table: &str) -> impl Iterator<Item = u16> + '_ {
    table.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        let port = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
        (state == "0A").then_some(port)
    })
}

fn ports(scene: &Scene) -> Judged {
    let mut table = scene.host.text("/proc/net/tcp")?;
    table.push('\n');
    // The head of the second table is skipped as a line that does not listen.
    table.push_str(&scene.host.text("/proc/net/tcp6").unwrap_or_default());
    let mut taken: Vec<_> =
        listening(&table).filter(|port| scene.plan.ports.contains(port)).collect();
    taken.sort_unstable();
    taken.dedup();
    let list = |ports: &[u16]| {
        let words: Vec<_> = ports.iter().map(ToString::to_string).collect();
        words.join(", ")
    };
    let measured = match taken.is_empty() {
        true => "free".to_owned(),
        false => format!("{} in use", list(&taken)),
    };
    let first = taken.first().copied().unwrap_or_default();
    Ok(Finding::judge(taken.is_empty(), measured, format!("{} free", list(&scene.plan.ports)))
        .fix(format!("ss -ltnp 'sport = {first}' shows who; other ports: --listen, --tcp")))
}

fn descriptors(scene: &Scene) -> Judged {
    let (soft, hard) = scene.limits("Max open files")?;
    Ok(Finding::judge(hard >= 65_536, format!("{soft}, can be raised to {hard}"), "65536")
        .fix("LimitNOFILE=1048576 in the unit, or '* hard nofile 1048576' in limits.d"))
}

/// The type of the file system that `directory` is on, from /proc/self/mountinfo.
fn type_of(mounts: &str, directory: &str) -> Option<String> {
    let lies_below = |point: &str| {
        directory
            .strip_prefix(point.trim_end_matches('/'))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let (Some(point), Some((_, after))) = (line.split(' ').nth(4), line.split_once(" - "))
        else {
            continue;
        };
        let kind = after.split(' ').next().unwrap_or_default();
        // Of two mounts at one place the later one is seen.
        if lies_below(point) && best.is_none_or(|(len, _)| point.len() >= len) {
            best = Some((point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind.to_owned())
}

fn file_systems(scene: &Scene) -> Judged {
    if scene.plan.directories.is_empty() {
        return Err(Finding::not_applicable("name directories with --export"));
    }
    if !scene.has_capability("CapEff", READ_SEARCH)? {
        let reason = "not root: files are found by an index, on any file system";
        return Err(Finding::not_applicable(reason));
    }
    let mounts = scene.host.text("/proc/self/mountinfo")?;
    let without = ["overlay", "proc", "sysfs", "devpts", "cgroup", "cgroup2", "ramfs"];
    let mut shown = Vec::new();
    for directory in &scene.plan.directories {
        let kind = type_of(&mounts, directory).unwrap_or_else(|| "nothing".to_owned());
        let has_none = without.contains(&kind.as_str()) || kind.starts_with("fuse");
        shown.push(format!("{directory}: {kind}"));
        if has_none {
            let measured = format!("{directory}: {kind} may have no handles");
            return Ok(Finding::judge(false, measured, "a file system with handles").fix(
                "serve the directory beneath it, or run 'stag serve' as the user of the files",
            ));
        }
    }
    Ok(Finding::judge(true, shown.join(", "), "a file system with handles"))
}

fn mounts(scene: &Scene) -> Judged {
    let text = scene.host.text("/proc/self/mounts")?;
    let mut shown = None;
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, point, kind, options, ..] = words.as_slice() else { continue };
        if *kind != "nfs" && *kind != "nfs4" {
            continue;
        }
        let value = |name: &str| options.split(',').find_map(|option| option.strip_prefix(name));
        let protocol = value("proto=").unwrap_or_default();
        let size: u64 = value("rsize=").and_then(|size| size.parse().ok()).unwrap_or(0);
        let is_met = protocol.starts_with("rdma") && size >= 1 << 20;
        let measured = format!("{point}: proto={protocol}, rsize={size}");
        if !is_met {
            return Ok(Finding::judge(false, measured, "proto=rdma, rsize=1048576")
                .fix("mount -t nfs -o vers=3,rdma,port=20049,rsize=1048576,wsize=1048576 ..."));
        }
        shown = Some(measured);
    }
    let shown = shown.ok_or_else(|| Finding::not_applicable("no mount of NFS"))?;
    let path = "/proc/sys/sunrpc/rdma_slot_table_entries";
    let slots = scene.host.number(path).unwrap_or(128);
    Ok(Finding::judge(slots >= 64, format!("{shown}, {slots} slots"), "64 slots or more")
        .fix("sysctl -w sunrpc.rdma_slot_table_entries=128, before the mount"))
}

/// Counters of errors among the numbers after `xprt: rdma`, by their places.
const ERRORS: [(usize, &str); 3] = [(7, "bad_xids"), (18, "failed_marshal"), (19, "bad_reply")];

fn mount_errors(scene: &Scene) -> Judged {
    let text = scene.host.text("/proc/self/mountstats")?;
    let mut found = Vec::new();
    let mut seen = 0;
    for line in text.lines() {
        let Some(numbers) = line.trim().strip_prefix("xprt:").map(str::trim_start) else {
            continue;
        };
        let Some(numbers) = numbers.strip_prefix("rdma ") else { continue };
        seen += 1;
        let numbers: Vec<_> = numbers.split_whitespace().collect();
        for (place, name) in ERRORS {
            match numbers.get(place) {
                Some(&"0") | None => {}
                Some(count) => found.push(format!("{name} {count}")),
            }
        }
    }
    if seen == 0 {
        return Err(Finding::not_applicable("no mount over RDMA"));
    }
    let shown = if found.is_empty() { format!("{seen} mounts, none") } else { found.join(", ") };
    Ok(Finding::judge(found.is_empty(), shown, "none")
        .fix("the log of the server (STAG_LOG=debug) and dmesg of this host, with both versions"))
}
