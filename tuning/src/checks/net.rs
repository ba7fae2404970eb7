//! Checks of networks below RDMA: links, ports of TCP, queues and buffers of sockets.

use crate::{
    Finding, HostCheck, Judged, Scene,
    check::{ALL, FAST, FixClass, LATENCY, Severity},
    host::Reached,
    scene::field_of,
};

/// The checks of this family.
pub(super) const CHECKS: &[HostCheck] = &[
    HostCheck {
        id: "NET02",
        name: "links",
        severity: Severity::Fail,
        class: FixClass::Nobody,
        profiles: ALL,
        why: "Nothing goes over a port that is not ACTIVE: no cable, no subnet manager \
              (InfiniBand), or the network device is down (RoCE, iWARP).",
        source: "/sys/class/infiniband/*/ports/*/{state,phys_state,rate}, \
                 /sys/class/net/*/{carrier,speed}; kernel sysfs-class-infiniband",
        judge: links,
    },
    HostCheck {
        id: "NET09",
        name: "server reachable",
        severity: Severity::Fail,
        class: FixClass::Nobody,
        profiles: ALL,
        why: "iWARP needs TCP port 20049 through every firewall, RoCE UDP port 4791. A connection \
              over TCP is tried, which a server ends at once whose --clients leave this host out; \
              nothing answers on UDP, so RoCE is shown by 'stag call' only.",
        source: "a connection to --server; Red Hat: configuring NFS over RDMA",
        judge: reachable,
    },
    HostCheck {
        id: "NET10",
        name: "busy polling of sockets",
        severity: Severity::Info,
        class: FixClass::Runtime,
        profiles: LATENCY,
        why: "A socket that is waited for asks its device for packets for some microseconds \
              before it sleeps. It helps TCP and iWARP in user space only.",
        source: "/proc/sys/net/core/busy_{poll,read}; kernel sysctl/net.rst; tuned profile \
                 network-latency",
        judge: busy_polling,
    },
    HostCheck {
        id: "NET11",
        name: "largest TCP buffers",
        severity: Severity::Info,
        class: FixClass::Runtime,
        profiles: FAST,
        why: "A stream carries at most one buffer per round trip: at 40 Gb/s, 6 MiB last for \
              1.2 ms.",
        source: "/proc/sys/net/ipv4/tcp_{rmem,wmem}, /sys/class/net/*/speed; tcp(7)",
        judge: tcp_buffers,
    },
    HostCheck {
        id: "NET12",
        name: "copies past the cache when sending",
        severity: Severity::Info,
        class: FixClass::Operator,
        profiles: FAST,
        why: "With tx-nocache-copy the device reads what the processor just wrote from memory \
              instead of from its cache.",
        source: "ethtool -k; mlnx_tune",
        judge: cached_copies,
    },
];

fn links(scene: &Scene) -> Judged {
    let wanted = "ACTIVE, LinkUp";
    let mut shown = Vec::new();
    for (device, port) in scene.rdma_ports().unwrap_or_default() {
        let read = |name: &str| scene.host.text(&format!("{port}/{name}")).unwrap_or_default();
        let word =
            |text: String| text.split_once(": ").map_or(text.clone(), |(_, word)| word.to_owned());
        let (state, physical) = (word(read("state")), word(read("phys_state")));
        let measured = format!("{device}: {state}, {physical}, {}", read("rate"));
        if state != "ACTIVE" || physical != "LinkUp" {
            return Ok(Finding::judge(false, measured, wanted)
                .fix("the cable, the subnet manager (opensm), or: ip link set DEV up"));
        }
        shown.push(measured);
    }
    if let [first, ..] = shown.as_slice() {
        return Ok(Finding::judge(true, first, wanted));
    }
    let devices = scene.net_devices()?;
    let has_link = |device: &&String| {
        scene.host.number(&format!("/sys/class/net/{device}/carrier")).is_ok_and(|link| link == 1)
    };
    let up: Vec<_> = devices.iter().filter(has_link).cloned().collect();
    let is_met = match scene.plan.device {
        Some(_) => up.len() == devices.len(),
        None => !up.is_empty(),
    };
    let measured = match up.as_slice() {
        [] => format!("{} has no link", devices.join(", ")),
        up => format!("{} up", up.join(", ")),
    };
    let down = devices.first().map_or("DEV", String::as_str);
    Ok(Finding::judge(is_met, measured, "a link").fix(format!("ip link set {down} up")))
}

fn reachable(scene: &Scene) -> Judged {
    let server = scene.plan.server;
    let server = server.ok_or_else(|| Finding::not_applicable("name a server with --server"))?;
    let reached = scene.host.reaches(server);
    let words = match reached {
        Reached::Stays => "accepts",
        Reached::Closed => "accepts, and ends the connection at once",
        Reached::No => "does not answer",
    };
    let port = server.port();
    let fix = match reached {
        Reached::Closed => {
            "add this host to the server's --clients; its log says why: refused: …".to_owned()
        }
        _ => format!(
            "is the server up? on it: firewall-cmd --add-port={port}/tcp, or nft add rule inet \
             filter input tcp dport {port} accept"
        ),
    };
    let is_met = reached == Reached::Stays;
    Ok(Finding::judge(is_met, format!("{server} {words}"), "accepts TCP").fix(fix))
}

fn busy_polling(scene: &Scene) -> Judged {
    let paths = ["busy_poll", "busy_read"].map(|name| format!("/proc/sys/net/core/{name}"));
    let [poll, read] = &paths;
    let (poll, read) = (scene.host.number(poll)?, scene.host.number(read)?);
    Ok(Finding::judge(poll > 0 && read > 0, format!("{poll} us, {read} us"), "50 us")
        .set_all(paths, "50"))
}

fn tcp_buffers(scene: &Scene) -> Judged {
    const WANTED: u64 = 16 << 20;
    let speeds = scene.net_devices()?.into_iter().filter_map(|device| {
        scene.host.number(&format!("/sys/class/net/{device}/speed")).ok().filter(|mbit| *mbit > 0)
    });
    match speeds.max() {
        None => return Err(Finding::not_applicable("no device tells its speed")),
        Some(mbit) if mbit < 40_000 => {
            return Err(Finding::not_applicable(format!("links of {mbit} Mb/s need no more")));
        }
        Some(_) => {}
    }
    let mut finding = None;
    let mut least = u64::MAX;
    let mut changes = Vec::new();
    for name in ["tcp_rmem", "tcp_wmem"] {
        let path = format!("/proc/sys/net/ipv4/{name}");
        let text = scene.host.text(&path)?;
        let words: Vec<_> = text.split_whitespace().collect();
        let [low, usual, most] = words.as_slice() else { continue };
        let most: u64 = most.parse().unwrap_or(0);
        least = least.min(most);
        if most < WANTED {
            changes.push((path, format!("{low} {usual} {WANTED}")));
        }
        let shown = format!("{} MiB", least >> 20);
        finding = Some(Finding::judge(least >= WANTED, shown, "16 MiB"));
    }
    let finding = finding.ok_or_else(|| Finding::not_applicable("no TCP here"))?;
    Ok(changes.into_iter().fold(finding, |all, (path, value)| all.set(path, value)))
}

fn cached_copies(scene: &Scene) -> Judged {
    let mut answer = Finding::not_applicable("no device tells");
    for device in scene.net_devices()? {
        match scene.host.output(&["ethtool", "-k", &device]) {
            Err(none) => answer = none,
            Ok(text) => {
                let value = field_of(&text, "tx-nocache-copy").unwrap_or_default();
                let is_met = !value.starts_with("on");
                answer = Finding::judge(is_met, format!("{device}: {value}"), "off")
                    .fix(format!("ethtool -K {device} tx-nocache-copy off"));
                if !is_met {
                    break;
                }
            }
        }
    }
    Ok(answer)
}
