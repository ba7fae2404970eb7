//! Announcements of a server about itself: on standard error for people, and once ready on standard
//! output for people and scripts.

use super::{addresses::Addresses, watching};
use crate::{
    serve::plan::{Plan, proofs::proofs},
    system::OF_HOST,
};
use rustix::process::geteuid;
use stag_nfs::serve::{Copied, Started};
use stag_operate::metrics::ShardPlace;
use stag_pools::Budget;
use std::{fmt::Write, fs, os::unix::fs::MetadataExt};

/// Describes the store that serves the files, the users that callers act as, and the exports.
pub fn introduction(plan: &Plan, notices: &[String]) -> String {
    let store = &plan.store;
    let mut text = format!("stag {}: store {}\n", env!("CARGO_PKG_VERSION"), store.headline());
    let mut notices = notices.iter();
    // The first says which mode it is.
    if let Some(mode) = store.host_callers().and_then(|_| notices.next()) {
        let _ = writeln!(text, "{mode}{}", named());
    }
    if let Some(directory) = store.records_dir() {
        let _ = writeln!(text, "state directory {}", directory.display());
    }
    if let Some(cluster) = store.cluster() {
        let _ = writeln!(text, "cluster {}", cluster.name());
    }
    let _ = writeln!(text, "{}", plan.memory);
    for export in &plan.exports {
        let (name, mode) = (&export.name, mode(export.read_only));
        let _ = writeln!(text, "export /{name} = {} ({mode})", store.described(export));
    }
    for at in plan.passed.addresses() {
        let _ = writeln!(text, "socket of the service manager at {at}");
    }
    if let Some(kerberos) = &plan.kerberos {
        let _ = writeln!(text, "{}", kerberos.line(plan.tcp));
    }
    if let Some(line) = plan.owners.line() {
        let _ = writeln!(text, "{line}");
    }
    for line in proofs(plan) {
        let _ = writeln!(text, "{line}");
    }
    for notice in notices.chain(&plan.notices) {
        let _ = writeln!(text, "notice: {notice}");
    }
    text
}

/// Names the user who runs this server, because the sentence of the mode ends with a number.
fn named() -> String {
    format!(" (this server runs as {})", user(geteuid().as_raw()))
}

/// The last line of `--check`: the user for whom it holds. Access to files, and the mode of the
/// server, depend on that user.
pub fn checked() -> String {
    let own = geteuid().as_raw();
    let mut text = format!(
        "checked as {}: nothing stands in the way that can be seen without a start\n",
        user(own)
    );
    let of_service = fs::metadata(OF_HOST).map_or(own, |found| found.uid());
    if own == 0 && of_service != 0 {
        let _ = writeln!(
            text,
            "a service that runs as {0} is checked as that user: runuser -u {0} -- stag serve \
             --config FILE --check",
            user(of_service)
        );
    }
    text
}

/// Describes the parts of one shard. `core` is none when its thread could not be pinned.
pub fn shard(index: usize, core: Option<usize>, started: &Started) -> String {
    let Started {
        budgets: [buffers, receives],
        connections,
        receives: count,
        grant,
        duplicates,
        ..
    } = started;
    let over_tcp =
        started.tcp.map_or_else(String::new, |_| format!(", {} over TCP", started.streams));
    let mut text = String::new();
    if let Some(Copied { objects, octets, left_out }) = &started.copied {
        let _ = writeln!(
            text,
            "copied {objects} objects, {octets} octets of files; left out: {left_out}"
        );
    }
    text.push_str(&placed(index, core, &watching::place(started)));
    let _ = write!(
        text,
        "shard {index}: at most {connections} RDMA connections ({count} receives, 1 to \
         {grant} for each){over_tcp}\n\
         shard {index} buffers: {buffers}\nshard {index} receives: {receives}\n\
         shard {index} duplicate request cache: {duplicates}\n"
    );
    if let Some(memory) = &started.memory {
        let _ = writeln!(text, "shard {index} files: {memory}");
    }
    text
}

/// Says where a shard runs, where its memory is, and where it listens.
fn placed(index: usize, core: Option<usize>, place: &ShardPlace) -> String {
    let core = core.map_or_else(|| "not pinned".to_owned(), |core| format!("core {core}"));
    let node = place.node.map_or_else(String::new, |node| format!(", node {node}"));
    let device = place.device.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
    format!("shard {index}, {core}{node}: {}{device}\n", place.listen.join(" "))
}

/// Lists the steps that would put all shards' memory on larger pages, each step once; empty when no
/// step would.
pub fn pages(budgets: &[Budget]) -> String {
    let notice = |budget: &Budget| {
        Some(format!("notice: buffers are on {}; {}\n", budget.pages, budget.advice()?))
    };
    let mut notices: Vec<_> = budgets.iter().filter_map(notice).collect();
    notices.sort();
    notices.dedup();
    notices.concat()
}

/// A line that says how the server is stopped.
pub const STOPPING: &str = "to stop: Ctrl-C or SIGTERM; calls in progress are finished first\n";

/// The block that says where to go: from READY to END.
pub fn ready(plan: &Plan, found: &Addresses) -> String {
    let mut text = format!("READY stag {} pid {}\n", env!("CARGO_PKG_VERSION"), std::process::id());
    for at in &found.listen {
        let _ = writeln!(text, "LISTEN {at}");
    }
    if let Some(at) = found.tcp {
        let _ = writeln!(text, "TCP {at}");
    }
    if let Some(at) = found.watched.metrics {
        let _ = writeln!(text, "METRICS http://{at}/metrics");
    }
    if let Some(socket) = &found.watched.control {
        let _ = writeln!(text, "CONTROL {}", socket.display());
    }
    let mounts = watching::mounts(plan, found);
    for export in &plan.exports {
        let _ = writeln!(text, "EXPORT /{} {}", export.name, mode(export.read_only));
        text.push_str(&mounts.shortest(&export.name, watching::sec(export)));
    }
    if mounts.leaves_out_3() {
        text.push_str("# mount commands of version 3: 'stag ctl mounts --nfs 3'\n");
    }
    if found.tcp.is_some() && found.listen.iter().any(|at| at.ip().is_some()) {
        text.push_str("# if a mount over RDMA fails: 'stag tune check --client', on the client\n");
    }
    text.push_str("END\n");
    text
}

const fn mode(read_only: bool) -> &'static str {
    if read_only { "ro" } else { "rw" }
}

/// The name of a user, if `/etc/passwd` has one.
fn user(uid: u32) -> String {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    };
    passwd.lines().find_map(entry).unwrap_or_else(|| uid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_pools::Pages;

    #[test]
    fn a_shard_says_its_core_its_node_and_its_device_where_these_are_known() {
        let listen = vec!["iwarp://127.0.0.1:20049".to_owned()];
        let place = ShardPlace { node: None, listen, device: None };
        assert_eq!(placed(0, None, &place), "shard 0, not pinned: iwarp://127.0.0.1:20049\n");
        let listen = vec!["rdma://10.0.0.1:20049".to_owned(), "rdma://10.0.1.1:20049".to_owned()];
        let place = ShardPlace { node: Some(1), listen, device: Some("mlx5_0".to_owned()) };
        let expected =
            "shard 3, core 12, node 1: rdma://10.0.0.1:20049 rdma://10.0.1.1:20049 on mlx5_0\n";
        assert_eq!(placed(3, Some(12), &place), expected);
        assert!(expected.trim_end().len() <= 80);
    }

    #[test]
    fn larger_pages_are_advised_once_and_only_where_they_help() {
        let on = |pages| Budget { classes: Vec::new(), octets: 4 << 20, pages, node: None };
        assert_eq!(pages(&[on(Pages::HugeMemfd), on(Pages::HugePrivate)]), "");
        assert_eq!(pages(&[Budget { octets: 4096, ..on(Pages::Base) }]), "");
        let transparent = on(Pages::Transparent);
        let text = pages(&[on(Pages::HugeMemfd), transparent.clone(), transparent.clone()]);
        // A kernel without huge pages has no command for them.
        let line = |advice| format!("notice: buffers are on transparent huge pages; {advice}\n");
        assert_eq!(text, transparent.advice().map(line).unwrap_or_default());
    }

    #[test]
    fn the_superuser_has_a_name_and_nobody_knows_the_rest() {
        assert_eq!(user(0), "root");
        assert_eq!(user(4_000_000_001), "4000000001");
    }
}
