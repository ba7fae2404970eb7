//! Checks of interrupts: the services that move them, and the cores that handle them.

use crate::{
    CoreList, Finding, HostCheck, Judged, Scene,
    check::{FAST, FixClass, LATENCY, Severity},
};

/// The checks of this family.
pub(super) const CHECKS: &[HostCheck] = &[
    HostCheck {
        id: "IRQ01",
        name: "irqbalance",
        severity: Severity::Warn,
        class: FixClass::Operator,
        profiles: FAST,
        why: "The daemon spreads interrupts over all cores again, every ten seconds, unless it is \
              told which to spare.",
        source: "processes named irqbalance, /etc/default/irqbalance, /etc/sysconfig/irqbalance; \
                 irqbalance(1)",
        judge: irqbalance,
    },
    HostCheck {
        id: "IRQ02",
        name: "device interrupts off our cores",
        severity: Severity::Warn,
        class: FixClass::Runtime,
        profiles: FAST,
        why: "An interrupt and the packet processing behind it stop a loop for 5 to 50 us.",
        source: "device/msi_irqs, /proc/irq/*/{effective_affinity_list,smp_affinity_list}; kernel \
                 irq-affinity.rst",
        judge: device_interrupts,
    },
    HostCheck {
        id: "IRQ03",
        name: "new interrupts and kernel workers",
        severity: Severity::Info,
        class: FixClass::Runtime,
        profiles: LATENCY,
        why: "Interrupts of devices that come later, and workers that are bound to no core, run \
              wherever these masks allow.",
        source: "/proc/irq/default_smp_affinity, /sys/devices/virtual/workqueue/**/cpumask; \
                 kernel workqueue.rst",
        judge: default_masks,
    },
    HostCheck {
        id: "IRQ04",
        name: "interrupt coalescing",
        severity: Severity::Warn,
        class: FixClass::Operator,
        profiles: LATENCY,
        why: "Where sockets or completions are waited for by interrupts (iWARP, TCP, a loop that \
              sleeps), the device delays them to save some: up to 100 us.",
        source: "ethtool -c; AMD Onload guide UG1586",
        judge: coalescing,
    },
];

fn irqbalance(scene: &Scene) -> Judged {
    if scene.is_container() || scene.host.text("/proc/1/comm").is_err() {
        return Err(Finding::not_applicable("processes of the host cannot be seen"));
    }
    let is_process = |name: &String| name.bytes().all(|octet| octet.is_ascii_digit());
    let runs = scene.host.names("/proc").iter().filter(|name| is_process(name)).any(|id| {
        scene.host.text(&format!("/proc/{id}/comm")).is_ok_and(|comm| comm == "irqbalance")
    });
    if !runs {
        return Ok(Finding::judge(true, "does not run", "does not run, or spares our cores"));
    }
    let cores = scene.cores()?;
    let text = ["/etc/default/irqbalance", "/etc/sysconfig/irqbalance"]
        .map(|path| scene.host.text(path).unwrap_or_default())
        .join("\n");
    let value = |name: &str| {
        let line = text.lines().rev().find_map(|line| line.trim().strip_prefix(name))?;
        Some(line.trim_matches('"').to_owned())
    };
    let banned = value("IRQBALANCE_BANNED_CPULIST=").and_then(|list| list.parse().ok());
    let banned: CoreList = banned
        .or_else(|| CoreList::of_mask(&value("IRQBALANCE_BANNED_CPUS=")?))
        .unwrap_or_default();
    let open = cores.without(&banned);
    let measured = match open.is_empty() {
        true => format!("runs, spares {banned}"),
        false => format!("runs, may use {open}"),
    };
    Ok(Finding::judge(open.is_empty(), measured, "does not run, or spares our cores").fix(format!(
        "echo 'IRQBALANCE_BANNED_CPULIST={cores}' >> /etc/default/irqbalance; systemctl restart \
         irqbalance"
    )))
}

/// Numbers of the interrupts of our devices.
fn device_numbers(scene: &Scene) -> Vec<String> {
    let rdma = scene.rdma_devices().unwrap_or_default();
    let rdma = rdma.iter().map(|name| format!("/sys/class/infiniband/{name}/device"));
    let net = scene.net_devices().unwrap_or_default();
    let net = net.iter().map(|name| format!("/sys/class/net/{name}/device"));
    let mut numbers = Vec::new();
    for device in rdma.chain(net) {
        let own = scene.host.names(&format!("{device}/msi_irqs"));
        // A virtio device has those of the PCI device above it.
        let found =
            if own.is_empty() { scene.host.names(&format!("{device}/../msi_irqs")) } else { own };
        numbers.extend(found);
    }
    numbers.sort();
    numbers.dedup();
    numbers
}

fn device_interrupts(scene: &Scene) -> Judged {
    let cores = scene.cores()?;
    let online = scene.core_file("/sys/devices/system/cpu/online")?;
    let numbers = device_numbers(scene);
    let (mut seen, mut ours) = (0, Vec::new());
    for number in &numbers {
        let at = format!("/proc/irq/{number}");
        let effective = scene.core_file(&format!("{at}/effective_affinity_list"));
        let allowed = match effective {
            Ok(list) if !list.is_empty() => list,
            _ => scene.core_file(&format!("{at}/smp_affinity_list"))?,
        };
        seen += 1;
        if !allowed.both(cores).is_empty() {
            ours.push(format!("{at}/smp_affinity_list"));
        }
    }
    if seen == 0 {
        return Err(Finding::not_applicable("no interrupts of a device are shown"));
    }
    let rest = online.without(cores);
    let measured = match ours.len() {
        0 => format!("none of {seen}"),
        len => format!("{len} of {seen} on our cores"),
    };
    let finding = Finding::judge(ours.is_empty(), measured, "none on our cores");
    match rest.is_empty() {
        true => Ok(finding.fix("leave a core to interrupts: name fewer in --cores")),
        false => Ok(finding.set_all(ours, &rest.to_string())),
    }
}

fn default_masks(scene: &Scene) -> Judged {
    let cores = scene.cores()?;
    let online = scene.core_file("/sys/devices/system/cpu/online")?;
    let rest = online.without(cores);
    let workqueue = "/sys/devices/virtual/workqueue";
    let paths = [
        "/proc/irq/default_smp_affinity".to_owned(),
        format!("{workqueue}/cpumask"),
        format!("{workqueue}/writeback/cpumask"),
    ];
    let mut open = Vec::new();
    let mut has_any = false;
    for path in paths {
        let Ok(text) = scene.host.text(&path) else { continue };
        let Some(allowed) = CoreList::of_mask(&text) else { continue };
        has_any = true;
        if !allowed.both(cores).is_empty() {
            let width = text.chars().filter(char::is_ascii_hexdigit).count();
            open.push((path, rest.mask(width)));
        }
    }
    if !has_any {
        return Err(Finding::not_applicable("no such masks here"));
    }
    let measured = match open.len() {
        0 => "our cores are spared".to_owned(),
        len => format!("{len} masks allow our cores"),
    };
    let finding = Finding::judge(open.is_empty(), measured, "our cores are spared");
    match rest.is_empty() {
        true => Ok(finding.fix("leave a core to the kernel: name fewer in --cores")),
        false => Ok(open.into_iter().fold(finding, |all, (path, mask)| all.set(path, mask))),
    }
}

fn coalescing(scene: &Scene) -> Judged {
    let mut answer = Finding::not_applicable("no device tells");
    for device in scene.net_devices()? {
        let text = match scene.host.output(&["ethtool", "-c", &device]) {
            Ok(text) => text,
            Err(none) => {
                answer = none;
                continue;
            }
        };
        let field = |name: &str| crate::scene::field_of(&text, name).unwrap_or_default();
        let is_adaptive = field("Adaptive RX").split_whitespace().next() == Some("on");
        let delay = field("rx-usecs").parse::<u32>().unwrap_or(0);
        let adaptive = if is_adaptive { "on" } else { "off" };
        let measured = format!("{device}: adaptive {adaptive}, {delay} us");
        let is_met = !is_adaptive && delay == 0;
        answer = Finding::judge(is_met, measured, "adaptive off, 0 us")
            .fix(format!("ethtool -C {device} adaptive-rx off rx-usecs 0"));
        if !is_met {
            break;
        }
    }
    Ok(answer)
}
