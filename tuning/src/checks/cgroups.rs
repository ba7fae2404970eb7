//! The CPU quota of control groups, in both versions.

use crate::{Finding, Judged, Scene};

/// Judges the quota of this process's control group and its parents.
pub(super) fn quota(scene: &Scene) -> Judged {
    let files = scene.cgroup_files("cpu", "cpu.max", "cpu.cfs_quota_us")?;
    let limit = files.iter().find(|text| !text.starts_with("max") && !text.starts_with('-'));
    let measured = match limit {
        Some(text) => format!("quota {text} us"),
        None => "no quota".to_owned(),
    };
    Ok(Finding::judge(limit.is_none(), measured, "no quota").fix(
        "CPUQuota= of the unit (empty); QoS class Guaranteed with whole CPUs (Kubernetes); --cpus \
         not given (docker)",
    ))
}
