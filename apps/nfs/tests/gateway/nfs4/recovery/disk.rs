//! A place for records that outlives the server, fails on demand, and can be cut short.

use stag_nfs::records::{LogHome, RecordError};
use std::{
    collections::BTreeMap,
    io::ErrorKind,
    sync::{Arc, Mutex, MutexGuard},
};

/// Octets under names. Clones have the same.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<DiskContent>>);

#[derive(Debug, Default)]
pub struct DiskContent {
    pub files: BTreeMap<String, Vec<u8>>,
    /// Nothing more can be written.
    pub is_full: bool,
    /// Times that octets were added to a file.
    pub writes: u64,
}

impl Disk {
    pub fn content(&self) -> MutexGuard<'_, DiskContent> {
        self.0.lock().unwrap()
    }

    pub fn log(&self) -> Vec<u8> {
        self.content().files.get("clients").cloned().unwrap_or_default()
    }

    pub fn set_log(&self, octets: &[u8]) {
        self.content().files.insert("clients".to_owned(), octets.to_vec());
    }

    fn check(&self) -> Result<(), RecordError> {
        match self.content().is_full {
            true => Err(std::io::Error::from(ErrorKind::StorageFull).into()),
            false => Ok(()),
        }
    }
}

impl LogHome for Disk {
    fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, RecordError> {
        Ok(self.content().files.get(name).cloned())
    }

    fn append(&mut self, name: &str, at: u64, octets: &[u8]) -> Result<(), RecordError> {
        let is_full = self.check();
        let mut content = self.content();
        content.writes += 1;
        let file = content.files.get_mut(name).expect("a log is made before it grows");
        file.truncate(at as usize);
        // A disk that is full takes the half of it.
        let kept = if is_full.is_err() { octets.len() / 2 } else { octets.len() };
        file.extend_from_slice(&octets[..kept]);
        is_full
    }

    fn replace(&mut self, name: &str, octets: &[u8]) -> Result<(), RecordError> {
        self.check()?;
        self.content().files.insert(name.to_owned(), octets.to_vec());
        Ok(())
    }

    fn create(&mut self, name: &str, octets: &[u8]) -> Result<bool, RecordError> {
        self.check()?;
        let mut content = self.content();
        let is_new = !content.files.contains_key(name);
        if is_new {
            content.files.insert(name.to_owned(), octets.to_vec());
        }
        Ok(is_new)
    }

    fn remove(&mut self, name: &str) -> Result<(), RecordError> {
        self.check()?;
        self.content().files.remove(name);
        Ok(())
    }
}
