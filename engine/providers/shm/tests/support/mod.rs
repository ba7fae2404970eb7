//! Support shared by the tests of this crate.
#![allow(dead_code)]

use stag_shm::ShmAddress;
use stag_verbs::Time;
use std::{
    fs,
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// A directory for sockets; gone with the value.
pub struct Place {
    directory: PathBuf,
    next: u64,
}

impl Place {
    pub fn new() -> Self {
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("stag-shm-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Self { directory, next: 0 }
    }

    /// An address without a listener.
    pub fn address(&mut self) -> ShmAddress {
        self.next += 1;
        ShmAddress::new(self.directory.join(self.next.to_string())).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The time since the first question.
pub fn now() -> Time {
    static START: OnceLock<Instant> = OnceLock::new();
    Time(START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
}
