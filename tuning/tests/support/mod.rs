//! Recorded hosts, unpacked into a directory.

#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing)]

use stag_tuning::{
    ChangeEnd, ChangeJournal, CoreGap, HostFiles, HostPlan, HostReport, PlannedChange, Scene,
    apply_change, checks, plan_changes, revert_changes,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

/// A recorded host in a directory that goes away with it.
pub struct UnpackedHost {
    pub home: TempDir,
}

impl UnpackedHost {
    /// Unpacks `tests/hosts/NAME.host`: each file follows a line `== PATH`; one of octets, sparse
    /// and in hexadecimal, follows `== PATH LENGTH`.
    pub fn named(name: &str) -> Self {
        let at = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/hosts/{name}.host"));
        let text = fs::read_to_string(at).unwrap();
        let host = Self { home: TempDir::new().unwrap() };
        for part in format!("\n{text}").split("\n== ").skip(1) {
            let (head, body) = part.split_once('\n').unwrap_or((part, ""));
            match head.split_once(' ').and_then(|(path, len)| Some((path, len.parse().ok()?))) {
                Some((path, len)) => host.put_octets(path, &octets(body, len)),
                None => host.put(head, body),
            }
        }
        host
    }

    /// Writes one file.
    pub fn put(&self, path: &str, text: &str) {
        let end = if text.is_empty() { "" } else { "\n" };
        self.put_octets(path, format!("{}{end}", text.trim_end_matches('\n')).as_bytes());
    }

    fn put_octets(&self, path: &str, octets: &[u8]) {
        let at = self.home.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, octets).unwrap();
    }

    /// The host as checks see it, with `plan`.
    pub fn scene(&self, plan: HostPlan, gaps: Option<Vec<CoreGap>>) -> Scene {
        Scene { host: HostFiles::recorded(self.home.path()), plan, gaps }
    }
}

fn octets(body: &str, len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    for line in body.lines() {
        let (at, values) = line.split_once(": ").unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        for (place, value) in values.split(' ').enumerate() {
            octets[at + place] = u8::from_str_radix(value, 16).unwrap();
        }
    }
    octets
}

/// A plan for cores 2 and 3 and 12 GiB of buffers.
pub fn plan(device: Option<&str>) -> HostPlan {
    HostPlan {
        cores: Some("2-3".parse().unwrap()),
        device: device.map(str::to_owned),
        pool_octets: 12 << 30,
        connections: 1024,
        ports: vec![2049, 20049],
        directories: vec!["/srv/data".to_owned()],
        server: Some("10.0.0.1:20049".parse().unwrap()),
        ..HostPlan::default()
    }
}

/// Stalls of a core: `gaps` of `each`, in a second.
pub fn gaps(gaps: u32, each: Duration, preempted: u64) -> Vec<CoreGap> {
    vec![CoreGap {
        core: 2,
        watched: Duration::from_secs(1),
        gaps: gaps.into(),
        lost: each * gaps,
        longest: each,
        preempted: Some(preempted),
    }]
}

/// Everything below `root`, by its path, but for a file that its writer left when it died.
pub fn snapshot(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(snapshot(&entry.path())),
            false => drop(found.insert(entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
    found.remove(&root.join(".writing"));
    found
}

/// Asserts that everything below `root` is as it was.
pub fn assert_as_before(root: &Path, before: &BTreeMap<PathBuf, Vec<u8>>, when: &str) {
    let after = snapshot(root);
    let differs = |path: &&PathBuf| before.get(*path) != after.get(*path);
    let other: Vec<_> = before.keys().chain(after.keys()).filter(differs).collect();
    assert!(other.is_empty(), "{when}: {other:?}");
}

/// The untuned host with enough memory for huge pages, and the changes that it needs.
pub fn untuned() -> (UnpackedHost, Vec<PlannedChange>) {
    let unpacked = UnpackedHost::named("metal-untuned");
    unpacked.put("/proc/sys/kernel/random/boot_id", "0b1c");
    unpacked.put("/proc/meminfo", "MemAvailable: 100000000 kB\nSwapTotal: 1 kB");
    let scene = unpacked.scene(plan(Some("mlx5_0")), None);
    let changes = HostReport::of(&scene, &checks::of_host()).changes();
    let planned = plan_changes(&scene.host, &changes);
    assert_eq!(planned.len(), changes.len(), "whatever checks want can be changed");
    (unpacked, planned)
}

pub fn apply_all(root: &Path, journal: &Path, changes: &[PlannedChange]) {
    let host = HostFiles::recorded(root);
    let mut journal = ChangeJournal::open(journal).unwrap();
    for change in changes {
        let end = apply_change(&host, &mut journal, change).unwrap();
        assert!(matches!(end, ChangeEnd::Done), "{change:?}: {end:?}");
    }
}

/// Undoes everything; gives the words of all ends.
pub fn revert_all(root: &Path, journal: &Path) -> Vec<String> {
    let mut journal = ChangeJournal::open(journal).unwrap();
    let mut ends = Vec::new();
    let tell = |key: &str, _: &str, end: &ChangeEnd| ends.push(format!("{key} {end:?}"));
    revert_changes(&HostFiles::recorded(root), &mut journal, tell).unwrap();
    ends
}
