//! Tests of each kind of pages, and of the fallback between them. Tests of reserved huge pages need
//! some: `cargo test -p stag-pools -- --ignored` as root reserves a few and returns them. These
//! tests exclude each other, but other programs may take the pages.

use super::*;
use std::{
    fs,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

const HUGE: libc::c_uint = libc::MFD_HUGETLB | libc::MFD_HUGE_2MB;
const RESERVE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

fn number(file: &str) -> Option<usize> {
    fs::read_to_string(format!("{RESERVE}/{file}")).ok()?.trim().parse().ok()
}

/// The lines of `/proc/self/<file>` for the mapping that holds `address`.
fn mapping(file: &str, address: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let mut found = None;
    for line in text.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let hex = |text| usize::from_str_radix(text, 16).ok();
        if let Some((start, end)) = range.and_then(|(start, end)| Some((hex(start)?, hex(end)?))) {
            if found.is_some() {
                break;
            }
            if (start..end).contains(&address) {
                found = Some(String::new());
            }
        }
        if let Some(lines) = &mut found {
            lines.push_str(line);
            lines.push('\n');
        }
    }
    found
}

fn address(arena: &Arena) -> usize {
    arena.base.as_ptr() as usize
}

/// Base pages of the arena that are in memory.
fn resident(arena: &Arena) -> usize {
    let pagemap = File::open("/proc/self/pagemap").unwrap();
    let mut entries = vec![0; arena.len / BASE_PAGE * 8];
    pagemap.read_exact_at(&mut entries, (address(arena) / BASE_PAGE * 8) as u64).unwrap();
    entries.chunks_exact(8).filter(|entry| entry.last().unwrap() & 0x80 != 0).count()
}

fn octets(arena: &mut Arena) -> &mut [u8] {
    // SAFETY: the arena maps `len` octets, zero at first, and is borrowed alone as long as the
    // slice.
    unsafe { std::slice::from_raw_parts_mut(arena.base.as_ptr(), arena.len) }
}

fn is_zero_and_keeps_what_is_written(arena: &mut Arena) {
    assert!(octets(arena).iter().all(|octet| *octet == 0));
    octets(arena).fill(0xa5);
    assert!(octets(arena).iter().all(|octet| *octet == 0xa5));
}

/// Some reserved huge pages, returned at the end; no other test uses them in the meantime.
struct Reserved {
    before: usize,
    _alone: MutexGuard<'static, ()>,
}

impl Reserved {
    fn new(pages: usize) -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // Pages still in use when they were returned count as surplus, and go when their holder
        // frees them.
        let before = number("nr_hugepages")?.saturating_sub(number("surplus_hugepages")?);
        let _ = fs::write(format!("{RESERVE}/nr_hugepages"), (before + pages).to_string());
        let this = Self { before, _alone: alone };
        let found = number("nr_hugepages")?;
        if found == before + pages && number("free_hugepages")? == pages {
            return Some(this);
        }
        eprintln!(
            "skipped: {pages} free huge pages cannot be reserved here ({found}, {before} before)"
        );
        None
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = fs::write(format!("{RESERVE}/nr_hugepages"), self.before.to_string());
    }
}

#[test]
fn the_first_rung_that_holds_is_taken_whichever_others_fail() {
    for failing in 0..16_u32 {
        let fails = |rung: Pages| failing & (1 << rung as u32) != 0;
        let mut tried = Vec::new();
        let found = first(Pages::LADDER, |rung| {
            tried.push(rung);
            if fails(rung) { Err(io::Error::from_raw_os_error(rung as i32 + 1)) } else { Ok(rung) }
        });
        let best = Pages::LADDER.into_iter().find(|rung| !fails(*rung));
        match best {
            Some(best) => assert_eq!(found.unwrap(), best),
            None => assert_eq!(found.unwrap_err().raw_os_error(), Some(Pages::Base as i32 + 1)),
        }
        let expected: Vec<_> =
            Pages::LADDER.into_iter().take_while(|rung| Some(*rung) != best).chain(best).collect();
        assert_eq!(tried, expected);
    }
    assert!(Pages::LADDER.is_sorted(), "better is less");
}

#[test]
fn no_rung_at_all_is_no_memory() {
    assert_eq!(first::<()>([], |_| Ok(())).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
}

#[test]
fn memory_that_nobody_reserved_is_zero_and_untouched_at_first() {
    for rung in [Pages::Base, Pages::Transparent] {
        let mut arena = match Arena::on(rung, 3 * HUGE_PAGE, None) {
            Ok(arena) => arena,
            Err(error) => {
                assert_eq!(rung, Pages::Transparent, "base pages always work: {error}");
                eprintln!("skipped: no transparent huge pages here: {error}");
                continue;
            }
        };
        assert_eq!((arena.pages(), arena.len(), arena.node()), (rung, 3 * HUGE_PAGE, None));
        assert_eq!(resident(&arena), 0, "{rung}");
        is_zero_and_keeps_what_is_written(&mut arena);
        assert_eq!(resident(&arena), arena.len / BASE_PAGE, "{rung}");
    }
}

#[test]
fn less_than_a_huge_page_stays_on_base_pages_and_wastes_nothing() {
    for (len, octets) in [(0, 4096), (1, 4096), (4097, 8192), (HUGE_PAGE - 4096, HUGE_PAGE - 4096)]
    {
        let arena = Arena::map(len).unwrap();
        assert_eq!((arena.pages(), arena.len()), (Pages::Base, octets));
        assert!(arena._missing.is_none());
    }
}

#[test]
fn what_lacks_huge_pages_is_counted_once() {
    let arena = Arena::map(5 * HUGE_PAGE + 1).unwrap();
    assert_eq!(arena._missing.is_none(), arena.pages.is_reserved());
    let whole = if arena.pages == Pages::Base { 5 * HUGE_PAGE + BASE_PAGE } else { 6 * HUGE_PAGE };
    assert_eq!(arena.len(), whole);
}

#[test]
fn lengths_that_cannot_be_mapped_are_errors() {
    for len in [usize::MAX, usize::MAX - HUGE_PAGE, usize::MAX / 2] {
        assert!(Arena::map(len).is_err());
        for rung in Pages::LADDER {
            assert!(Arena::on(rung, len, None).is_err() || !rung.is_reserved(), "{rung}");
        }
    }
}

#[test]
fn nothing_is_mapped_after_the_end() {
    // Long, so that no other thread's mapping is placed in the middle.
    let arena = Arena::on(Pages::Base, 512 << 20, None).unwrap();
    let middle = address(&arena) + arena.len / 2;
    assert!(mapping("maps", middle).is_some());
    drop(arena);
    assert_eq!(mapping("maps", middle), None);
}

#[test]
fn a_node_is_preferred_and_one_that_does_not_exist_changes_nothing() {
    let arena = Arena::on(Pages::Base, 2 * HUGE_PAGE, Some(0)).unwrap();
    let maps = fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
    if arena.node() == Some(0) && !maps.is_empty() {
        let start = format!("{:08x} ", address(&arena));
        let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
        assert!(line.contains("prefer:0") || line.contains("prefer=0"), "{line}");
    } else {
        eprintln!("skipped: no NUMA policies here");
    }
    for node in [NODES_MAX - 1, NODES_MAX, u32::MAX] {
        let mut arena = Arena::on(Pages::Base, BASE_PAGE, Some(node)).unwrap();
        assert_eq!(arena.node(), None, "{node}");
        is_zero_and_keeps_what_is_written(&mut arena);
    }
}

#[test]
fn a_rung_without_pages_is_an_error_and_no_signal() {
    // No host reserves as much as this.
    for rung in [Pages::HugeMemfd, Pages::HugePrivate] {
        if rung == Pages::HugePrivate
            && !fs::read_to_string("/proc/meminfo").unwrap().contains("Hugepagesize:")
        {
            continue;
        }
        assert!(Arena::on(rung, 1 << 40, None).is_err(), "{rung}");
    }
}

#[test]
#[ignore = "reserves huge pages of the host, as root"]
fn reserved_pages_are_all_there_at_first_and_given_back_at_the_end() {
    let Some(_reserved) = Reserved::new(6) else { return };
    let free = number("free_hugepages").unwrap();
    for (rung, node) in [
        (Pages::HugeMemfd, None),
        (Pages::HugePrivate, None),
        (Pages::HugeMemfd, Some(0)),
        (Pages::HugePrivate, Some(0)),
    ] {
        let mut arena = Arena::on(rung, 4 * HUGE_PAGE - 1, node).unwrap();
        assert_eq!((arena.pages(), arena.len(), arena.node()), (rung, 4 * HUGE_PAGE, node));
        assert_eq!(address(&arena) % HUGE_PAGE, 0);
        assert_eq!(number("free_hugepages"), Some(free - 4), "{rung} takes its pages at once");
        let smaps = mapping("smaps", address(&arena)).unwrap();
        assert!(
            smaps
                .lines()
                .any(|line| line.starts_with("KernelPageSize:") && line.ends_with(" 2048 kB")),
            "{smaps}"
        );
        let sharing = if rung == Pages::HugeMemfd { " rw-s " } else { " rw-p " };
        assert!(smaps.lines().next().unwrap().contains(sharing), "{smaps}");
        let flags = smaps.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.contains(" dc"), "a child process gets no copy: {flags}");
        is_zero_and_keeps_what_is_written(&mut arena);
        let start = address(&arena);
        drop(arena);
        assert!(
            mapping("maps", start)
                .is_none_or(|line| !line.contains("huge") && !line.contains("stag-pool"))
        );
        assert_eq!(number("free_hugepages"), Some(free), "{rung} gives its pages back");
    }
}

#[test]
#[ignore = "reserves huge pages of the host, as root"]
fn exhausted_pages_lead_down_the_ladder() {
    let Some(_reserved) = Reserved::new(4) else { return };
    let host = HostMemory::read(Path::new("/"));
    let lower = if host.offers(Pages::Transparent, HUGE_PAGE, None) {
        Pages::Transparent
    } else {
        Pages::Base
    };
    let large = Arena::climb(&host, 3 * HUGE_PAGE, &Pages::LADDER).unwrap();
    assert_eq!(large.pages(), Pages::HugeMemfd);
    for rung in [Pages::HugeMemfd, Pages::HugePrivate] {
        assert!(Arena::on(rung, 2 * HUGE_PAGE, None).is_err(), "{rung}: one page is left");
    }
    assert_eq!(Arena::climb(&host, 2 * HUGE_PAGE, &Pages::LADDER).unwrap().pages(), lower);
    assert_eq!(Arena::climb(&host, 64, &Pages::LADDER).unwrap().pages(), Pages::Base);
    let rest = Arena::climb(&host, HUGE_PAGE, &Pages::LADDER).unwrap();
    assert_eq!(rest.pages(), Pages::HugeMemfd, "others' failures took nothing");
    assert_eq!(Arena::climb(&host, HUGE_PAGE, &Pages::LADDER).unwrap().pages(), lower);
    drop(large);
    assert_eq!(
        Arena::climb(&host, 3 * HUGE_PAGE, &Pages::LADDER).unwrap().pages(),
        Pages::HugeMemfd
    );
}

#[test]
#[ignore = "reserves huge pages of the host, as root"]
fn a_page_that_is_refused_after_it_was_mapped_is_an_error_and_no_signal() {
    let Some(_reserved) = Reserved::new(1) else { return };
    let _all = Arena::on(Pages::HugeMemfd, HUGE_PAGE, None).unwrap();
    // As with a control group's limit, the mapping succeeds, and the first write would be a SIGBUS.
    let file = memory_file(HUGE_PAGE, HUGE).unwrap();
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    let arena = Arena::mmap(Pages::HugeMemfd, HUGE_PAGE, flags, Some(&file)).unwrap();
    assert!(arena.touch().is_err());
    assert!(fill(&file, HUGE_PAGE).is_err());
}

#[test]
#[ignore = "reserves huge pages of the host, as root"]
fn nobody_cuts_memory_off_a_living_arena() {
    let Some(_reserved) = Reserved::new(2) else { return };
    let mut arena = Arena::on(Pages::HugeMemfd, 2 * HUGE_PAGE, None).unwrap();
    let (start, end) = (address(&arena), address(&arena) + arena.len);
    match File::options().write(true).open(format!("/proc/self/map_files/{start:x}-{end:x}")) {
        Ok(file) => {
            assert!(file.set_len(HUGE_PAGE as u64).is_err());
            assert!(file.set_len(0).is_err());
            assert!(file.set_len(3 * HUGE_PAGE as u64).is_err());
        }
        Err(error) => eprintln!("skipped: the mapping's file cannot be opened: {error}"),
    }
    is_zero_and_keeps_what_is_written(&mut arena);
}

#[test]
#[ignore = "reserves huge pages of the host, as root"]
fn a_file_is_filled_where_the_kernel_cannot_touch_pages_for_us() {
    let Some(_reserved) = Reserved::new(2) else { return };
    let file = memory_file(2 * HUGE_PAGE, HUGE).unwrap();
    fill(&file, 2 * HUGE_PAGE).unwrap();
    assert_eq!(number("free_hugepages"), Some(0));
    assert!(fill(&memory_file(HUGE_PAGE, HUGE).unwrap(), HUGE_PAGE).is_err());
}
