//! Stateids of operations: what they say of an access to a file (RFC 8881 §8.2).

use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Stateid, Status4},
};

use super::turn::{Done, Turn};
use crate::store::Store;

/// Direction of an access to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IoAccess {
    /// READ and its like.
    Read,
    /// WRITE and its like.
    Write,
}

impl<S: Store> Turn<'_, '_, S> {
    /// Judges an access to a file by a stateid. The store judges the caller's rights in any case.
    pub(super) fn check_io(
        &mut self,
        _file: &FileHandle,
        stateid: Stateid,
        access: IoAccess,
    ) -> Done {
        match (self.stateid(stateid)?, access) {
            (Stateid::ANONYMOUS, _) | (Stateid::READ_BYPASS, _) => Ok(()),
            _ => Err(Status4::BadStateid.into()),
        }
    }
}
