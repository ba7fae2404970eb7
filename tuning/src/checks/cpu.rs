//! Checks of the processor: frequency, sleep states, clocks, and time lost to other work.

use crate::{
    Finding, HostCheck, Judged, Scene,
    check::{ALL, FAST, FixClass, LATENCY, PLACED, Severity},
};

const CPU: &str = "/sys/devices/system/cpu";
/// Longest exit latency of a sleep state that a poll loop tolerates: that of C1, in microseconds.
const EXIT_US: i64 = 2;

/// The checks of this family.
pub(super) const CHECKS: &[HostCheck] = &[
    HostCheck {
        id: "CPU01",
        name: "frequency governor",
        severity: Severity::Warn,
        class: FixClass::Runtime,
        profiles: FAST,
        why: "Governors that follow the load start low and need milliseconds to rise.",
        source: "cpu*/cpufreq/scaling_governor; kernel cpufreq.rst; mlnx_tune",
        judge: governor,
    },
    HostCheck {
        id: "CPU02",
        name: "preference of energy",
        severity: Severity::Info,
        class: FixClass::Runtime,
        profiles: LATENCY,
        why: "The processor itself trades speed for energy as this hint says, beneath the \
              governor.",
        source: "cpufreq/energy_performance_preference, power/energy_perf_bias; kernel \
                 intel_pstate.rst",
        judge: energy,
    },
    HostCheck {
        id: "CPU03",
        name: "deep sleep states",
        severity: Severity::Warn,
        class: FixClass::Runtime,
        profiles: LATENCY,
        why: "A core that slept deeply needs 100 us and more to wake up, and its caches are \
              empty. Only loops that may sleep (and the cores of interrupts) are concerned.",
        source: "cpu*/cpuidle/state*/{latency,disable}, cpu*/power/pm_qos_resume_latency_us; \
                 kernel cpuidle.rst",
        judge: sleep_states,
    },
    HostCheck {
        id: "CPU04",
        name: "polling before sleep in a guest",
        severity: Severity::Info,
        class: FixClass::Nobody,
        profiles: LATENCY,
        why: "Each sleep of a virtual core is an exit to the host. The driver haltpoll waits for \
              a moment first; with 0 ns it does not.",
        source: "cpuidle/current_driver, /sys/module/haltpoll/parameters/guest_halt_poll_ns; \
                 kernel haltpoll.rst",
        judge: haltpoll,
    },
    HostCheck {
        id: "CPU13",
        name: "throttling of real-time threads",
        severity: Severity::Info,
        class: FixClass::Operator,
        profiles: LATENCY,
        why: "A thread with a real-time policy that polls is stopped for 50 ms of each second. \
              Stag uses no such policy by itself; chrt may have given it one. Without the limit \
              a loop can starve the kernel's threads: isolate cores instead.",
        source: "/proc/sys/kernel/sched_rt_runtime_us, policy in /proc/self/stat; sched(7)",
        judge: real_time,
    },
    HostCheck {
        id: "CPU14",
        name: "clock source",
        severity: Severity::Warn,
        class: FixClass::Boot,
        profiles: PLACED,
        why: "Clocks that user space cannot read by itself cost a system call and a device read \
              each time, microseconds instead of 20 ns; loops and histograms read one per event.",
        source: "clocksource0/current_clocksource, flags in /proc/cpuinfo; vdso(7)",
        judge: clock,
    },
    HostCheck {
        id: "CPU15",
        name: "time stolen by the hypervisor",
        severity: Severity::Warn,
        class: FixClass::Nobody,
        profiles: ALL,
        why: "A virtual core that is not running answers nobody: results measure the neighbours.",
        source: "/proc/stat twice, a second apart: field steal; proc_stat(5)",
        judge: steal,
    },
    HostCheck {
        id: "CPU16",
        name: "watchdog and timers",
        severity: Severity::Info,
        class: FixClass::Runtime,
        profiles: LATENCY,
        why: "The watchdog interrupts each core at intervals and takes a performance counter; \
              timers that migrate end on cores that are busy with something else.",
        source: "/proc/sys/kernel/{nmi_watchdog,timer_migration}; tuned profile network-latency",
        judge: watchdogs,
    },
    HostCheck {
        id: "CPU17",
        name: "mitigations",
        severity: Severity::Info,
        class: FixClass::Nobody,
        profiles: ALL,
        why: "Mitigations make system calls dearer, so that results of two hosts compare only \
              with equal ones. Loops that poll make few system calls; nothing here is a reason \
              to switch a mitigation off.",
        source: "/sys/devices/system/cpu/vulnerabilities; kernel hw-vuln/index.rst",
        judge: mitigations,
    },
    HostCheck {
        id: "CPU18",
        name: "range of frequencies",
        severity: Severity::Info,
        class: FixClass::Runtime,
        profiles: LATENCY,
        why: "With a minimum below the maximum the processor still slows down; without turbo it \
              stays at its base frequency.",
        source: "intel_pstate/{no_turbo,min_perf_pct}; kernel intel_pstate.rst",
        judge: frequencies,
    },
    HostCheck {
        id: "CPU19",
        name: "load of the host",
        severity: Severity::Warn,
        class: FixClass::Nobody,
        profiles: PLACED,
        why: "Whatever runs beside a measurement is part of its result.",
        source: "/proc/loadavg; proc_loadavg(5)",
        judge: load,
    },
];

fn governor(scene: &Scene) -> Judged {
    let mut other = Vec::new();
    let mut found = String::new();
    for core in scene.cores_or_all()?.0 {
        let path = format!("{CPU}/cpu{core}/cpufreq/scaling_governor");
        let governor = scene.host.text(&path)?;
        if governor != "performance" {
            other.push(path);
            found = governor;
        }
    }
    let measured = match other.len() {
        0 => "performance".to_owned(),
        len => format!("{found} on {len} cores"),
    };
    Ok(Finding::judge(other.is_empty(), measured, "performance").set_all(other, "performance"))
}

fn energy(scene: &Scene) -> Judged {
    let mut other = Vec::new();
    let mut found = String::new();
    let mut new = "performance";
    for core in scene.cores_or_all()?.0 {
        let preference = format!("{CPU}/cpu{core}/cpufreq/energy_performance_preference");
        let (path, fast) = match scene.host.exists(&preference) {
            true => (preference, "performance"),
            false => (format!("{CPU}/cpu{core}/power/energy_perf_bias"), "0"),
        };
        let value = scene.host.text(&path)?;
        if value != fast {
            other.push(path);
            (found, new) = (value, fast);
        }
    }
    let measured = match other.len() {
        0 => new.to_owned(),
        len => format!("{found} on {len} cores"),
    };
    Ok(Finding::judge(other.is_empty(), measured, new).set_all(other, new))
}

fn sleep_states(scene: &Scene) -> Judged {
    let mut deep = Vec::new();
    let mut longest = 0;
    let mut has_states = false;
    for core in scene.cores_or_all()?.0 {
        let limit = scene.host.text(&format!("{CPU}/cpu{core}/power/pm_qos_resume_latency_us"));
        let is_held = limit.is_ok_and(|limit| {
            // "n/a" allows no latency at all, 0 any.
            limit == "n/a" || limit.parse::<i64>().is_ok_and(|us| us > 0 && us <= EXIT_US)
        });
        for state in scene.host.names(&format!("{CPU}/cpu{core}/cpuidle")) {
            let at = format!("{CPU}/cpu{core}/cpuidle/{state}");
            let Ok(exit) = scene.host.number(&format!("{at}/latency")) else { continue };
            has_states = true;
            let is_off = scene.host.number(&format!("{at}/disable"))? != 0;
            if !is_off && !is_held && exit > EXIT_US {
                longest = longest.max(exit);
                deep.push(format!("{at}/disable"));
            }
        }
    }
    if !has_states {
        return Err(Finding::not_applicable("no sleep states: the hypervisor has them"));
    }
    let measured = match longest {
        0 => format!("{EXIT_US} us or less"),
        longest => format!("up to {longest} us to wake up"),
    };
    let finding = Finding::judge(deep.is_empty(), measured, format!("{EXIT_US} us or less"));
    // Without names of cores the whole host would run hot.
    match scene.plan.cores.is_some() {
        true => Ok(finding.set_all(deep, "1")),
        false => Ok(finding.fix(format!("cpupower -c CORES idle-set -D {EXIT_US}"))),
    }
}

fn haltpoll(scene: &Scene) -> Judged {
    let driver = scene.host.text(&format!("{CPU}/cpuidle/current_driver"))?;
    if driver != "haltpoll" {
        return Err(Finding::not_applicable(format!("the idle driver is {driver}")));
    }
    let polled = scene.host.number("/sys/module/haltpoll/parameters/guest_halt_poll_ns")?;
    Ok(Finding::judge(polled > 0, format!("haltpoll for {polled} ns"), "more than 0 ns")
        .fix("echo 200000 > /sys/module/haltpoll/parameters/guest_halt_poll_ns"))
}

fn real_time(scene: &Scene) -> Judged {
    let stat = scene.host.text("/proc/self/stat")?;
    // Field 41 of proc_pid_stat(5); the name in field 2 may hold anything.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let policy = rest.split_whitespace().nth(38).unwrap_or_default();
    if policy != "1" && policy != "2" {
        return Err(Finding::not_applicable("no real-time policy is in use"));
    }
    let path = "/proc/sys/kernel/sched_rt_runtime_us";
    let value = scene.host.number(path)?;
    Ok(Finding::judge(value == -1, format!("{value} us of each second"), "-1, no limit")
        .fix("sysctl -w kernel.sched_rt_runtime_us=-1"))
}

fn clock(scene: &Scene) -> Judged {
    let at = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = scene.host.text(at)?;
    let in_user_space = ["kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
    let (is_met, measured) = match source.as_str() {
        "tsc" => {
            let cpu = scene.host.text("/proc/cpuinfo")?;
            let flags = crate::scene::field_of(&cpu, "flags").unwrap_or_default();
            let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
            match has("constant_tsc") && has("nonstop_tsc") {
                true => (true, "tsc, constant and never stopped".to_owned()),
                false => {
                    (true, "tsc, which the kernel trusts and the processor does not".to_owned())
                }
            }
        }
        other => (in_user_space.contains(&other), other.to_owned()),
    };
    Ok(Finding::judge(is_met, measured, "a clock that is read in user space")
        .fix("kernel command line: clocksource=tsc tsc=reliable (if the hardware's is)"))
}

/// Stolen and all ticks of the first line of /proc/stat.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // The last two fields are parts of the first two.
    Some((*fields.get(7)?, fields.iter().take(8).fold(0, |sum, ticks| sum.saturating_add(*ticks))))
}

fn steal(scene: &Scene) -> Judged {
    let now = scene.host.text("/proc/stat")?;
    let before = scene.host.earlier("/proc/stat").and_then(|text| ticks(&text));
    let both = before.zip(ticks(&now));
    let ((stolen_before, all_before), (stolen, all)) =
        both.ok_or_else(|| Finding::not_applicable("/proc/stat was not read twice"))?;
    let stolen = stolen.saturating_sub(stolen_before);
    let all = all.saturating_sub(all_before).max(1);
    let permille = stolen.saturating_mul(1000) / all;
    let measured = format!("{}.{} %", permille / 10, permille % 10);
    Ok(Finding::judge(permille < 5, measured, "below 0.5 %")
        .fix("the hypervisor: fewer virtual cores than real ones, or pinned ones"))
}

fn watchdogs(scene: &Scene) -> Judged {
    let mut on = Vec::new();
    let mut has_any = false;
    for name in ["nmi_watchdog", "timer_migration"] {
        let path = format!("/proc/sys/kernel/{name}");
        let Ok(value) = scene.host.number(&path) else { continue };
        has_any = true;
        if value != 0 {
            on.push((name, path));
        }
    }
    if !has_any {
        return Err(Finding::not_applicable("no such settings in this kernel"));
    }
    let names: Vec<_> = on.iter().map(|(name, _)| *name).collect();
    let measured = if on.is_empty() { "off".to_owned() } else { names.join(" and ") + " on" };
    let paths = on.iter().map(|(_, path)| path.clone());
    Ok(Finding::judge(names.is_empty(), measured, "off").set_all(paths, "0"))
}

fn mitigations(scene: &Scene) -> Judged {
    let at = format!("{CPU}/vulnerabilities");
    let names = scene.host.names(&at);
    if names.is_empty() {
        return Err(Finding::not_applicable(format!("no {at} here")));
    }
    let is_open = |name: &&String| {
        scene.host.text(&format!("{at}/{name}")).is_ok_and(|text| text.starts_with("Vulnerable"))
    };
    let open: Vec<_> = names.iter().filter(is_open).cloned().collect();
    let measured = match open.len() {
        0 => format!("{} known, none open", names.len()),
        len => format!("{len} open: {}", open.join(", ")),
    };
    Ok(Finding::judge(open.is_empty(), measured, "none open")
        .fix("an update of the kernel or of the microcode"))
}

fn frequencies(scene: &Scene) -> Judged {
    let at = format!("{CPU}/intel_pstate");
    let (no_turbo, least) = (format!("{at}/no_turbo"), format!("{at}/min_perf_pct"));
    let (slow, percent) = (scene.host.number(&no_turbo)?, scene.host.number(&least)?);
    let turbo = if slow == 0 { "turbo" } else { "no turbo" };
    let mut finding = Finding::judge(
        slow == 0 && percent >= 100,
        format!("{turbo}, minimum {percent} %"),
        "turbo, minimum 100 %",
    );
    if slow != 0 {
        finding = finding.set(no_turbo, "0");
    }
    if percent < 100 {
        finding = finding.set(least, "100");
    }
    Ok(finding)
}

fn load(scene: &Scene) -> Judged {
    let text = scene.host.text("/proc/loadavg")?;
    let load: f64 =
        text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    let cores = scene.core_file(&format!("{CPU}/online"))?.0.len();
    let limit = 0.3 * u32::try_from(cores).map_or(0.0, f64::from);
    Ok(Finding::judge(load < limit, format!("{load:.2}"), format!("below {limit:.1}"))
        .fix("wait, or stop what else runs"))
}
