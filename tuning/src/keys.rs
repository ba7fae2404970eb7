//! Files that tuning may change: all can be restored while the host runs, and none grants rights.
//! A journal from another source cannot name other files.

/// Patterns of paths: a `*` stands for a part of one name, or of all of it.
const KEYS: [&str; 28] = [
    "/proc/irq/*/smp_affinity_list",
    "/proc/irq/default_smp_affinity",
    "/proc/sys/kernel/nmi_watchdog",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/timer_migration",
    "/proc/sys/net/core/busy_poll",
    "/proc/sys/net/core/busy_read",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/proc/sys/net/ipv4/tcp_wmem",
    "/proc/sys/vm/stat_interval",
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/zone_reclaim_mode",
    "/sys/class/infiniband/*/device/power/control",
    "/sys/class/net/*/device/power/control",
    "/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
    "/sys/devices/system/cpu/cpu*/power/energy_perf_bias",
    "/sys/devices/system/cpu/intel_pstate/min_perf_pct",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages",
    "/sys/devices/virtual/workqueue/cpumask",
    "/sys/devices/virtual/workqueue/writeback/cpumask",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/module/pcie_aspm/parameters/policy",
];

/// Returns true if tuning may change the file at `path`.
#[must_use]
pub fn is_tunable(path: &str) -> bool {
    KEYS.iter().any(|pattern| matches(pattern, path))
}

fn matches(pattern: &str, path: &str) -> bool {
    let (mut patterns, mut names) = (pattern.split('/'), path.split('/'));
    loop {
        match (patterns.next(), names.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if is_name(pattern, name) => {}
            _ => return false,
        }
    }
}

fn is_name(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => {
            !name.starts_with('.')
                && name.len() >= before.len() + after.len()
                && name.starts_with(before)
                && name.ends_with(after)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_gives_rights_can_be_changed() {
        for path in [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/irq/../sys/smp_affinity_list",
            "/proc/irq/1/2/smp_affinity_list",
            "/sys/kernel/mm/transparent_hugepage/../ksm/run",
            "/sys/class/net/../../kernel/device/power/control",
            "proc/sys/vm/swappiness",
            "/proc/sys/vm/swappiness/",
            "",
        ] {
            assert!(!is_tunable(path), "{path}");
        }
        assert!(is_tunable("/proc/irq/64/smp_affinity_list"));
        assert!(is_tunable("/sys/devices/system/cpu/cpu12/cpuidle/state3/disable"));
    }
}
