//! Process metrics from Linux (proc(5)).

use rustix::{
    param::clock_ticks_per_second,
    process::{Resource, getrlimit},
};
use serde_json::{Map, Value, json};
use std::fs;

/// Memory, time and descriptors. What cannot be read is left out.
pub fn read() -> Value {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64);
    let numbers = [
        ("resident_bytes", kib(&status, "VmRSS:")),
        ("locked_bytes", kib(&status, "VmLck:")),
        ("cpu_ms", cpu_ms(&stat, clock_ticks_per_second())),
        ("open_fds", open),
        ("max_fds", getrlimit(Resource::Nofile).current),
    ];
    let known = numbers.into_iter().filter_map(|(name, number)| Some((name, number?)));
    let members = known.map(|(name, number)| (name.to_owned(), json!(number)));
    Value::Object(members.collect::<Map<_, _>>())
}

/// Octets of a line such as `VmRSS:  1234 kB`.
fn kib(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// Milliseconds in user space and in the kernel: fields 14 and 15. The name of the process, which
/// may have any character, ends with the last parenthesis.
fn cpu_ms(stat: &str, ticks_per_second: u64) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    (ticks * 1_000).checked_div(ticks_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_understood() {
        assert_eq!(kib("Name:\tx\nVmRSS:\t    12 kB\n", "VmRSS:"), Some(12_288));
        assert_eq!(kib("VmRSS: much\n", "VmRSS:"), None);
        let stat = "7 (a ) b) S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 3 0";
        assert_eq!(cpu_ms(stat, 100), Some(3_000));
        assert_eq!(cpu_ms("7 (x", 100), None);
    }

    #[test]
    fn this_process_has_memory_time_and_descriptors() {
        let known = read();
        assert!(known["resident_bytes"].as_u64().unwrap() > 0, "{known}");
        assert!(known["open_fds"].as_u64().unwrap() <= known["max_fds"].as_u64().unwrap());
        assert!(known["cpu_ms"].is_u64());
    }
}
