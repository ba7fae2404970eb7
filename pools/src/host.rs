//! Pages that this host offers for large mappings: reserved huge pages, transparent ones, NUMA
//! nodes (`/sys`).

use crate::arena::Pages;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Octets of a huge page, on every rung that uses them.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// Nodes that memory can be bound to: the bits of one mask.
pub(crate) const NODES_MAX: u32 = u64::BITS;

const THP: &str = "sys/kernel/mm/transparent_hugepage";

/// Huge pages that arenas of this process would fill and do not have, by node. Used only at start,
/// at the end and for advice.
static MISSING: [AtomicUsize; NODES_MAX as usize] =
    [const { AtomicUsize::new(0) }; NODES_MAX as usize];

fn missing_on(node: Option<u32>) -> &'static AtomicUsize {
    let node = node.unwrap_or(0) as usize;
    MISSING.get(node).expect("`HostMemory::node` names nodes below `NODES_MAX` only")
}

/// Counts huge pages that an arena lacks, as long as it lives.
#[derive(Debug)]
pub(crate) struct MissingPages {
    pages: usize,
    node: Option<u32>,
}

impl MissingPages {
    pub(crate) fn count(pages: usize, node: Option<u32>) -> Self {
        missing_on(node).fetch_add(pages, Ordering::Relaxed);
        Self { pages, node }
    }
}

impl Drop for MissingPages {
    fn drop(&mut self) {
        let before = missing_on(self.node).fetch_sub(self.pages, Ordering::Relaxed);
        debug_assert!(before >= self.pages, "what is missing was counted before");
    }
}

/// Reserved huge pages, of the host or of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Supply {
    /// Pages reserved by the administrator.
    total: usize,
    /// Pages that are neither in use nor promised.
    free: usize,
}

/// Page sizes and nodes of the host. Read once per process; only the supply of reserved huge pages
/// is read again, and only if the administrator reserved some.
#[derive(Debug)]
pub(crate) struct HostMemory {
    /// `/`, or a test's copy.
    root: PathBuf,
    has_reserved: bool,
    /// True if the default size of reserved huge pages, the only one for hugepage-rs and
    /// `vm.nr_hugepages`, is ours.
    is_default_size: bool,
    /// True if transparent huge pages are given on request; `None` if the kernel has none.
    transparent: Option<bool>,
    has_nodes: bool,
}

impl HostMemory {
    /// The host of this process.
    pub(crate) fn here() -> &'static Self {
        static HERE: OnceLock<HostMemory> = OnceLock::new();
        HERE.get_or_init(|| Self::read(Path::new("/")))
    }

    pub(crate) fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        let meminfo = text("proc/meminfo").unwrap_or_default();
        let default_size = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:"));
        // Linux 6.8 and later have a switch for each size, which may refer to the general one.
        let transparent = text(&format!("{THP}/hugepages-2048kB/enabled"))
            .filter(|chosen| !chosen.contains("[inherit]"))
            .or_else(|| text(&format!("{THP}/enabled")))
            .map(|chosen| !chosen.contains("[never]"));
        let mut host = Self {
            root: root.to_owned(),
            has_reserved: false,
            is_default_size: default_size.is_some_and(|size| size.trim() == "2048 kB"),
            transparent,
            has_nodes: text("sys/devices/system/node/online")
                .is_some_and(|list| list.contains(['-', ','])),
        };
        host.has_reserved = host.supply(None).is_some_and(|supply| supply.total > 0);
        host
    }

    /// The NUMA node of the core that this thread runs on, where there is more than one.
    pub(crate) fn node(&self) -> Option<u32> {
        let (mut cpu, mut node) = (0_u32, 0_u32);
        if !self.has_nodes {
            return None;
        }
        // SAFETY: both pointers are to live integers of the type that getcpu(2) writes; the third
        // one is unused.
        let failed = unsafe {
            libc::syscall(
                libc::SYS_getcpu,
                &raw mut cpu,
                &raw mut node,
                std::ptr::null_mut::<libc::c_void>(),
            )
        };
        (failed == 0 && node < NODES_MAX).then_some(node)
    }

    /// Returns true if `rung` is worth a try for `len` octets on `node`. Reserved pages are tried
    /// only if enough are free for the whole mapping.
    pub(crate) fn offers(&self, rung: Pages, len: usize, node: Option<u32>) -> bool {
        let has_pages = || {
            let is_enough = |supply: Supply| supply.free >= len.div_ceil(HUGE_PAGE);
            self.has_reserved && self.supply(node).is_some_and(is_enough)
        };
        match rung {
            Pages::HugeMemfd => has_pages(),
            // hugepage-rs rounds up to the default size, and panics where there is none.
            Pages::HugePrivate => self.is_default_size && has_pages(),
            Pages::Transparent => self.transparent == Some(true),
            Pages::Memfd | Pages::Base => true,
        }
    }

    /// Reserved huge pages of `node`, or of the whole host; none where the kernel has no such
    /// pages.
    fn supply(&self, node: Option<u32>) -> Option<Supply> {
        let number = |directory: &Path, file: &str| -> Option<usize> {
            fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()
        };
        let host = self.root.join("sys/kernel/mm/hugepages/hugepages-2048kB");
        let promised = number(&host, "resv_hugepages").unwrap_or(0);
        let free = number(&host, "free_hugepages")?.saturating_sub(promised);
        let total = number(&host, "nr_hugepages")?;
        let Some(node) = node else { return Some(Supply { total, free }) };
        let local = self.root.join(reserve_of(node));
        // Promises are counted for the host only, so the host's rest bounds the node's.
        let free = number(&local, "free_hugepages")?.min(free);
        Some(Supply { total: number(&local, "nr_hugepages")?, free })
    }

    /// Returns the commands that would lift an arena of `pages` on `node`, and all others of this
    /// process on that node.
    pub(crate) fn advice(&self, pages: Pages, node: Option<u32>) -> Option<String> {
        self.lift(pages, node, missing_on(node).load(Ordering::Relaxed))
    }

    fn lift(&self, pages: Pages, node: Option<u32>, missing: usize) -> Option<String> {
        match pages {
            Pages::HugeMemfd | Pages::HugePrivate => None,
            Pages::Transparent | Pages::Memfd => self.reserve(missing, node),
            Pages::Base => {
                let allow = (self.transparent == Some(false)).then(|| {
                    format!("`echo madvise > /{THP}/enabled` allows transparent huge pages")
                });
                let lines: Vec<_> = allow.into_iter().chain(self.reserve(missing, node)).collect();
                (!lines.is_empty()).then(|| lines.join("; "))
            }
        }
    }

    /// Returns the command that reserves `missing` more pages.
    fn reserve(&self, missing: usize, node: Option<u32>) -> Option<String> {
        let Supply { total, free } = self.supply(node)?;
        if missing <= free {
            return Some(format!(
                "{free} huge pages are free: start again, or raise the hugetlb limit of the \
                 control group"
            ));
        }
        let wanted = total.saturating_add(missing - free);
        let command = match node {
            None if self.is_default_size => format!("sysctl vm.nr_hugepages={wanted}"),
            None => {
                format!("echo {wanted} > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
            }
            Some(node) => format!("echo {wanted} > /{}/nr_hugepages", reserve_of(node)),
        };
        Some(format!("`{command}` reserves huge pages for the next start"))
    }
}

fn reserve_of(node: u32) -> String {
    format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of the files that describe a host; removed on drop.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root =
                std::env::temp_dir().join(format!("stag-pools-{}-{name}", std::process::id()));
            let this = Self(root);
            files.iter().for_each(|(path, text)| this.write(path, text));
            this
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn reserve(&self, directory: &str, [total, free, promised]: [usize; 3]) {
            self.write(&format!("{directory}/nr_hugepages"), &format!("{total}\n"));
            self.write(&format!("{directory}/free_hugepages"), &format!("{free}\n"));
            self.write(&format!("{directory}/resv_hugepages"), &format!("{promised}\n"));
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const RESERVE: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";
    const ENABLED: &str = "sys/kernel/mm/transparent_hugepage/enabled";
    const OURS: (&str, &str) = ("proc/meminfo", "MemTotal: 1 kB\nHugepagesize:       2048 kB\n");
    const ONE_NODE: (&str, &str) = ("sys/devices/system/node/online", "0\n");
    const TWO_NODES: (&str, &str) = ("sys/devices/system/node/online", "0-1\n");

    #[test]
    fn a_host_that_says_nothing_offers_base_pages_and_no_advice() {
        let files = Files::new("nothing", &[]);
        let host = HostMemory::read(&files.0);
        for rung in [Pages::HugeMemfd, Pages::HugePrivate, Pages::Transparent] {
            assert!(!host.offers(rung, HUGE_PAGE, None), "{rung}");
        }
        assert!(host.offers(Pages::Base, usize::MAX, None));
        assert_eq!(host.node(), None);
        for pages in [Pages::HugeMemfd, Pages::HugePrivate, Pages::Transparent, Pages::Base] {
            assert_eq!(host.advice(pages, None), None, "{pages}");
        }
    }

    #[test]
    fn reserved_pages_are_offered_while_enough_are_free_and_not_promised() {
        let files = Files::new("enough", &[OURS, ONE_NODE]);
        files.reserve(RESERVE, [10, 7, 3]);
        let host = HostMemory::read(&files.0);
        for rung in [Pages::HugeMemfd, Pages::HugePrivate] {
            assert!(host.offers(rung, 4 * HUGE_PAGE, None));
            assert!(!host.offers(rung, 4 * HUGE_PAGE + 1, None));
        }
        files.reserve(RESERVE, [10, 3, 4]);
        assert!(!host.offers(Pages::HugeMemfd, HUGE_PAGE, None), "more are promised than free");
    }

    #[test]
    fn a_host_without_reserved_pages_is_asked_once() {
        let files = Files::new("once", &[OURS, ONE_NODE]);
        files.reserve(RESERVE, [0, 0, 0]);
        let host = HostMemory::read(&files.0);
        files.reserve(RESERVE, [10, 10, 0]);
        assert!(!host.has_reserved);
        assert!(!host.offers(Pages::HugeMemfd, HUGE_PAGE, None));
    }

    #[test]
    fn hugepage_rs_is_used_only_where_its_page_is_ours() {
        for (name, meminfo) in
            [("without", "MemTotal: 1 kB\n"), ("large", "Hugepagesize: 1048576 kB\n")]
        {
            let files = Files::new(name, &[("proc/meminfo", meminfo)]);
            files.reserve(RESERVE, [10, 10, 0]);
            let host = HostMemory::read(&files.0);
            assert!(host.offers(Pages::HugeMemfd, HUGE_PAGE, None));
            assert!(!host.offers(Pages::HugePrivate, HUGE_PAGE, None), "{name}");
            let advice = host.reserve(12, None).unwrap();
            assert!(
                advice.starts_with(&format!("`echo 12 > /{RESERVE}/nr_hugepages`")),
                "{advice}"
            );
        }
    }

    #[test]
    fn transparent_pages_follow_the_size_s_switch_and_then_the_general_one() {
        let by_size = "sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";
        for (name, general, size, expected) in [
            ("always", "[always] madvise never", None, true),
            ("madvise", "always [madvise] never", None, true),
            ("never", "always madvise [never]", None, false),
            ("inherit", "always madvise [never]", Some("always [inherit] madvise never"), false),
            ("size", "always madvise [never]", Some("always inherit [madvise] never"), true),
            ("size-never", "[always] madvise never", Some("always inherit madvise [never]"), false),
        ] {
            let files = Files::new(name, &[(ENABLED, general)]);
            if let Some(text) = size {
                files.write(by_size, text);
            }
            let host = HostMemory::read(&files.0);
            assert_eq!(host.offers(Pages::Transparent, HUGE_PAGE, None), expected, "{name}");
        }
    }

    #[test]
    fn a_node_offers_what_it_has_itself() {
        let files = Files::new("nodes", &[OURS, TWO_NODES]);
        files.reserve(RESERVE, [20, 20, 0]);
        files.reserve(&reserve_of(0), [20, 20, 0]);
        files.reserve(&reserve_of(1), [2, 2, 0]);
        let host = HostMemory::read(&files.0);
        assert!(host.has_nodes);
        assert!(host.offers(Pages::HugeMemfd, 20 * HUGE_PAGE, Some(0)));
        assert!(!host.offers(Pages::HugeMemfd, 3 * HUGE_PAGE, Some(1)));
        assert!(
            !host.offers(Pages::HugeMemfd, HUGE_PAGE, Some(2)),
            "a node that says nothing has none"
        );
        assert_eq!(
            host.reserve(5, Some(1)).unwrap(),
            "`echo 5 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages` \
             reserves huge \
             pages for the next start"
        );
        let node = host.node().unwrap();
        assert!(node < NODES_MAX);
    }

    #[test]
    fn advice_names_the_command_and_the_number() {
        let files = Files::new("advice", &[OURS, ONE_NODE, (ENABLED, "always madvise [never]")]);
        files.reserve(RESERVE, [10, 6, 2]);
        let host = HostMemory::read(&files.0);
        // 4 of 10 can be had.
        assert_eq!(
            host.reserve(100, None).unwrap(),
            "`sysctl vm.nr_hugepages=106` reserves huge pages for the next start"
        );
        assert_eq!(
            host.reserve(4, None).unwrap(),
            "4 huge pages are free: start again, or raise the hugetlb limit of the control group"
        );
        let reserve = host.reserve(100, None);
        assert_eq!(host.lift(Pages::Transparent, None, 100), reserve);
        let allow = "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` allows \
            transparent huge pages; ";
        assert_eq!(
            host.lift(Pages::Base, None, 100),
            reserve.map(|reserve| format!("{allow}{reserve}"))
        );
        assert_eq!(host.advice(Pages::HugeMemfd, None), None);
        assert_eq!(host.advice(Pages::HugePrivate, None), None);
    }

    #[test]
    fn what_is_missing_is_counted_by_node_while_it_is_missing() {
        // A node that no other test's pool can be on.
        let node = Some(NODES_MAX - 1);
        let (one, other) = (MissingPages::count(3, node), MissingPages::count(4, node));
        assert_eq!(missing_on(node).load(Ordering::Relaxed), 7);
        drop(one);
        assert_eq!(missing_on(node).load(Ordering::Relaxed), 4);
        drop(other);
        assert_eq!(missing_on(node).load(Ordering::Relaxed), 0);
    }
}
