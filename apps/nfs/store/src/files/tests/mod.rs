//! Tests of the store on real directories. Every test runs as the user who started it;
//! [`privilege`] runs them again as an unprivileged user.

mod copying;
mod create;
mod data;
mod descriptors;
mod directory;
mod escape;
mod faults;
mod identity;
mod idle;
mod namespace;
mod object;
mod paths;
mod privilege;
mod privileged;
mod reload;
mod rfc1813;
mod ring;
mod space;
mod watch;

use crate::{
    CreateMode, FileTime, NewAttributes, NewTime,
    exports::{config::ExportConfig, handle::Named},
};
use std::{
    fs,
    io::IoSlice,
    path::{Path, PathBuf},
};

use stag_protocol::nfs::v3::{FileHandle, FileKind, StableHow};
use tempfile::TempDir;

use rustix::fs::{CWD, openat};

use super::*;

/// A directory `export`, its state directory, and the store that serves it.
struct Lab {
    home: TempDir,
    config: FilesConfig,
    files: Files,
    /// The time of the last pass.
    clock: u64,
}

impl Lab {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn read_only() -> Self {
        Self::with(|config| config.exports[0].read_only = true)
    }

    fn with(change: impl FnOnce(&mut FilesConfig)) -> Self {
        let home = tempfile::tempdir().unwrap();
        Self::at(home, change)
    }

    fn at(home: TempDir, change: impl FnOnce(&mut FilesConfig)) -> Self {
        for name in ["export", "outside"] {
            fs::create_dir_all(home.path().join(name)).unwrap();
        }
        let export = ExportConfig {
            name: "data".to_owned(),
            path: home.path().join("export"),
            read_only: false,
            is_mountpoint: false,
        };
        let mut config = FilesConfig {
            state_dir: home.path().join("state"),
            exports: vec![export],
            shards: 1,
            sync_directories: false,
            callers: Callers::UNPRIVILEGED,
            open_files: Some(64),
            cluster: None,
        };
        change(&mut config);
        let files = Files::open(&SharedFiles::open(&config).unwrap(), 0).unwrap();
        Self { home, config, files, clock: 0 }
    }

    /// Restarts the server.
    fn restart(self) -> Self {
        let Self { home, config, files, clock } = self;
        drop(files);
        let files = Files::open(&SharedFiles::open(&config).unwrap(), 0).unwrap();
        Self { home, config, files, clock }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join("export").join(name)
    }

    fn root(&self) -> FileHandle {
        let shared = self.files.shared();
        shared.root(shared.exports().iter().next().unwrap())
    }

    fn find(&mut self, path: &str) -> FileHandle {
        self.try_find(path).unwrap()
    }

    fn try_find(&mut self, path: &str) -> Result<FileHandle, Status> {
        let mut handle = self.root();
        for name in path.split('/') {
            handle =
                self.files.lookup(&handle, name.as_bytes()).map_err(|failed| failed.status)?.handle;
        }
        Ok(handle)
    }

    /// Makes a file with content, and looks it up.
    fn file(&mut self, name: &str, content: &[u8]) -> FileHandle {
        fs::write(self.path(name), content).unwrap();
        self.find(name)
    }

    fn content(&mut self, handle: &FileHandle) -> Result<Vec<u8>, Status> {
        let mut content = vec![0; 4096];
        let done = self.files.read(handle, 0, &mut content).map_err(|failed| failed.status)?;
        content.truncate(done.count as usize);
        Ok(content)
    }

    /// Repeats a call while the kernel says "later" because another program makes or frees the
    /// inode at that moment.
    fn settled<T>(
        &mut self,
        mut ask: impl FnMut(&mut Self) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let mut answer = ask(self);
        for _ in 0..500 {
            if !matches!(answer, Err(Status::Jukebox)) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            answer = ask(self);
        }
        answer
    }

    fn write(&mut self, handle: &FileHandle, offset: u64, data: &[u8]) -> Result<u32, Status> {
        let outcome =
            self.files.write_slices(handle, offset, &mut [IoSlice::new(data)], StableHow::Unstable);
        outcome.map(|done| done.count).map_err(|failed| failed.status)
    }
}

fn guarded(mode: u32) -> CreateMode {
    CreateMode::Guarded(NewAttributes { mode: Some(mode), ..NewAttributes::default() })
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs one test of this program again under another command; returns true if it could run.
fn run_under(command: &[&str], test: &str, marker: &str) -> bool {
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(command[0])
        .args(&command[1..])
        .arg(program)
        .args([test, "--exact", "--include-ignored", "--nocapture"])
        .env("STAG_TEST_MARKER", marker)
        .output();
    let Ok(output) = output else { return false };
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    if text.contains("test result: ok. 1 passed") {
        return true;
    }
    assert!(!text.contains("test result"), "{text}");
    false
}
