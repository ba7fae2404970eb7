//! Calls on files that the store has met allocate nothing.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::IoSlice;

use stag_nfs::export::ExportConfig;
use stag_nfs::store::Place;
use stag_nfs::store::files::{Callers, Config, Files, Shared};
use stag_protocol::nfs::v3::{Access, SetAttributes, StableHow};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn calls_on_known_files_allocate_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("export");
    std::fs::create_dir(&path).unwrap();
    // More files than stay open, so that opening and closing is counted too.
    for number in 0..40 {
        std::fs::write(path.join(format!("file-{number}")), b"content").unwrap();
    }
    let config = Config {
        state_dir: home.path().join("state"),
        exports: vec![ExportConfig { name: "data".to_owned(), path, read_only: false }],
        shards: 2,
        sync_directories: false,
        callers: Callers::UNPRIVILEGED,
        open_files: Some(16),
    };
    let shared = Shared::open(&config).unwrap();
    let mut files = Files::open(&shared, 0).unwrap();
    let root = files.mount(b"/data").unwrap();
    let names: Vec<_> = (0..40).map(|number| format!("file-{number}")).collect();
    let mut room = [0; 4096];
    let mut pass = |files: &mut Files| {
        for name in &names {
            let handle = files.lookup(&root, name.as_bytes()).unwrap().handle;
            files.getattr(&handle).unwrap();
            files.access(&handle, Access::ALL).unwrap();
            files.read(&handle, 0, &mut room).unwrap();
            let mut data = [IoSlice::new(b"more"), IoSlice::new(b" content")];
            files.write(&handle, 0, &mut data, StableHow::Unstable).unwrap();
            files
                .setattr(&handle, &SetAttributes { mode: Some(0o640), ..SetAttributes::default() }, None)
                .unwrap();
        }
        files.readdirplus(&root, Place::default(), &mut |_| true).unwrap();
        files.fsstat(&root).unwrap();
        files.flush().unwrap();
    };
    pass(&mut files);
    let before = ALLOCATIONS.get();
    for _ in 0..20 {
        pass(&mut files);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
