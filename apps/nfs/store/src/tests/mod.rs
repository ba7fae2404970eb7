//! Tests of behaviour common to all stores: each test here runs on every one.

mod attributes;
mod behaviour;
mod consistency;
mod helped;
mod model;
mod rfc1813;
mod version4;

use stag_pools::{Class, Pool};
use stag_protocol::nfs::v3::{Access, FileHandle, FileKind, PlusRoom, StableHow};
use tempfile::TempDir;

use crate::{
    ceph::{
        CephSession,
        tests::{CephBench, CephPlace},
    },
    exports::config::ExportConfig,
    files::{self, Files, SharedFiles},
    memory::{self, Memory, MemoryExport},
    *,
};
use helped::Helped;

/// A store with one export, `/data`, and memory to lend.
struct Bench<S> {
    store: S,
    root: FileHandle,
    pool: Pool,
    /// True if a directory's links are counted some time after a change.
    counts_late: bool,
    _home: TempDir,
}

impl<S: Store + Procedures> Bench<S> {
    fn of(mut store: S, home: TempDir) -> Self {
        let root = store.mount(b"/data").unwrap();
        let classes = [Class { slot_len: 4096, count: 64 }, Class { slot_len: 1 << 20, count: 64 }];
        Self { store, root, pool: Pool::new(&classes).unwrap(), counts_late: false, _home: home }
    }

    fn read(&mut self, file: &FileHandle, offset: u64, count: u32) -> Result<ReadDone, Status> {
        let pool = &self.pool;
        let done = self.store.read(&|len| pool.take(len), file, offset, count);
        done.map_err(|failed| failed.status)
    }

    /// All bytes, in as many READs as it takes.
    fn content(&mut self, file: &FileHandle) -> Result<Vec<u8>, Status> {
        let mut content = Vec::new();
        loop {
            let done = self.read(file, content.len() as u64, TRANSFER_MAX)?;
            done.data.iter().for_each(|part| content.extend_from_slice(part));
            if done.eof {
                return Ok(content);
            }
            assert!(!done.data.is_empty(), "a READ that is not at the end goes on");
        }
    }

    fn write(&mut self, file: &FileHandle, offset: u64, data: &[u8]) -> Result<u32, Status> {
        let done = self.store.write(file, offset, data.into(), StableHow::Unstable);
        done.map(|done| done.count).map_err(|failed| failed.status)
    }

    fn file(&mut self, name: &[u8], data: &[u8]) -> FileHandle {
        let root = self.root;
        let file = self.store.create(&root, name, &guarded(0o644)).unwrap().handle;
        assert_eq!(self.write(&file, 0, data), Ok(data.len() as u32));
        file
    }

    fn target(&mut self, link: &FileHandle) -> Result<Vec<u8>, Status> {
        let pool = &self.pool;
        let done = self.store.readlink(&|len| pool.take(len), link);
        done.map(|done| done.target.to_vec()).map_err(|failed| failed.status)
    }

    /// Every name and its file number, in pieces of `piece` entries.
    fn names(
        &mut self,
        directory: &FileHandle,
        piece: usize,
    ) -> Result<Vec<(Vec<u8>, u64)>, Status> {
        let (mut names, mut place) = (Vec::new(), ListingStart::default());
        loop {
            let (mut left, mut cookie) = (piece, place.cookie);
            let listed = self.store.readdir(directory, place, &mut |entry| {
                if left > 0 {
                    left -= 1;
                    cookie = entry.cookie;
                    names.push((entry.name.to_vec(), entry.fileid));
                    return true;
                }
                false
            });
            let listed = listed.map_err(|failed| failed.status)?;
            place = ListingStart {
                cookie,
                verifier: listed.verifier,
                window: 0,
                ..ListingStart::default()
            };
            if listed.eof {
                return Ok(names);
            }
        }
    }
}

fn guarded(mode: u32) -> CreateMode {
    CreateMode::Guarded(NewAttributes { mode: Some(mode), ..NewAttributes::default() })
}

fn files(read_only: bool) -> Bench<Files> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("present"), b"here").unwrap();
    let config = files::FilesConfig {
        state_dir: home.path().join("state"),
        exports: vec![ExportConfig {
            name: "data".to_owned(),
            path,
            read_only,
            is_mountpoint: false,
        }],
        shards: 1,
        sync_directories: false,
        callers: files::Callers::UNPRIVILEGED,
        open_files: Some(64),
        cluster: None,
    };
    Bench::of(Files::open(&SharedFiles::open(&config).unwrap(), 0).unwrap(), home)
}

fn memory(read_only: bool) -> Bench<Memory> {
    memory_of(read_only, 32 << 20)
}

fn memory_of(read_only: bool, capacity: usize) -> Bench<Memory> {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("present"), b"here").unwrap();
    let export =
        MemoryExport { name: "data".to_owned(), copy_of: Some(home.path().to_owned()), read_only };
    let store =
        Memory::new(&memory::MemoryConfig::new(vec![export], capacity), &mut |_| ()).unwrap();
    Bench::of(store, home)
}

fn ceph(read_only: bool) -> Bench<CephSession> {
    let home = tempfile::tempdir().unwrap();
    let bench = CephBench::new(CephPlace::fake(&home), &home, read_only);
    Bench::of(bench.session(), home)
}

/// On a real cluster, if possible.
fn cluster(read_only: bool) -> Option<Bench<CephSession>> {
    let home = tempfile::tempdir().unwrap();
    let bench = CephBench::new(CephPlace::cluster()?, &home, read_only);
    Some(Bench { counts_late: true, ..Bench::of(bench.session(), home) })
}

/// The same store, with all calls executed by a helper.
fn helped<S: FillRoom + Store>(bench: Bench<S>) -> Bench<Helped<S>> {
    let Bench { store, root, pool, counts_late, _home } = bench;
    Bench { store: Helped::new(store), root, pool, counts_late, _home }
}

/// Runs one test on each store, directly and by helpers.
macro_rules! on_every_store {
    ($($(#[$attribute:meta])* fn $name:ident($bench:ident) $body:block)*) => {
        $(mod $name {
            use super::*;
            fn run<S: Store + Procedures + Procedures4>($bench: &mut Bench<S>) $body
            $(#[$attribute])*
            #[test]
            fn files() {
                run(&mut super::super::files(false));
            }
            $(#[$attribute])*
            #[test]
            fn memory() {
                run(&mut super::super::memory(false));
            }
            $(#[$attribute])*
            #[test]
            fn files_by_helpers() {
                run(&mut super::super::helped(super::super::files(false)));
            }
            $(#[$attribute])*
            #[test]
            fn memory_by_helpers() {
                run(&mut super::super::helped(super::super::memory(false)));
            }
            $(#[$attribute])*
            #[test]
            fn ceph() {
                run(&mut super::super::ceph(false));
            }
            $(#[$attribute])*
            #[test]
            fn cluster() {
                super::super::cluster(false).iter_mut().for_each(run);
            }
        })*
    };
}
pub(crate) use on_every_store;
