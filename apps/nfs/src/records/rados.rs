//! Client records in objects of RADOS, visible to all gateways of a Ceph cluster.

use stag_ceph::{Errno, Existence, RadosPool};

use super::{LogHome, RecordError};

/// Bytes of the longest object that is read: far above the size of any log.
const OBJECT_MAX: usize = 256 << 20;

/// A namespace of a pool with an object per name.
#[derive(Debug)]
pub struct RadosHome {
    pool: RadosPool,
}

impl RadosHome {
    /// Uses the namespace, which must be reserved for gateways.
    pub const fn new(pool: RadosPool) -> Self {
        Self { pool }
    }
}

fn failed(errno: Errno) -> RecordError {
    RecordError::Storage(errno.into())
}

impl LogHome for RadosHome {
    fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, RecordError> {
        match self.pool.read(name, OBJECT_MAX) {
            Ok(octets) => Ok(Some(octets)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn append(&mut self, name: &str, at: u64, octets: &[u8]) -> Result<(), RecordError> {
        self.pool.write(name, octets, Some(at), Existence::Needed).map_err(failed)
    }

    fn replace(&mut self, name: &str, octets: &[u8]) -> Result<(), RecordError> {
        self.pool.write(name, octets, None, Existence::Any).map_err(failed)
    }

    fn create(&mut self, name: &str, octets: &[u8]) -> Result<bool, RecordError> {
        match self.pool.write(name, octets, None, Existence::Refused) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn remove(&mut self, name: &str) -> Result<(), RecordError> {
        match self.pool.remove(name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }
}
