//! Conversion between attributes of the store and those of version 3 (RFC 1813 §2.5–2.6), in this
//! one place.
//!
//! A time outside 32 unsigned bits of seconds becomes the nearest one within
//! ([`FileTime::in_32_bits`]), as with Linux' server. The change attribute and the birth time are
//! dropped: version 3 has neither.

use stag_protocol::nfs::v3::{
    AttributeOctets, Attributes, CreateHow, DeviceNumber, Failure, FileKind, LinkWcc, NodeKind,
    RenameWcc, SetAttributes, SetTime, Time, WccAttributes, WccData,
};

use crate::{
    BeforeChange, CreateMode, DeviceNode, Failed, FileAttributes, FileTime, Linked, NewAttributes,
    NewTime, ObjectChange, Renamed, SetDone,
};

impl From<FileTime> for Time {
    #[inline]
    fn from(time: FileTime) -> Self {
        let FileTime { seconds, nanos } = time.in_32_bits();
        Self { seconds: u32::try_from(seconds).unwrap_or(u32::MAX), nanos }
    }
}

impl From<Time> for FileTime {
    fn from(Time { seconds, nanos }: Time) -> Self {
        Self { seconds: seconds.into(), nanos }
    }
}

impl From<&FileAttributes> for Attributes {
    fn from(found: &FileAttributes) -> Self {
        let FileAttributes { kind, mode, nlink, uid, gid, size, used, .. } = *found;
        let FileAttributes { device, fsid, fileid, atime, mtime, ctime, .. } = *found;
        let [atime, mtime, ctime] = [atime, mtime, ctime].map(Time::from);
        Self { kind, mode, nlink, uid, gid, size, used, device, fsid, fileid, atime, mtime, ctime }
    }
}

impl From<FileAttributes> for Attributes {
    fn from(found: FileAttributes) -> Self {
        Self::from(&found)
    }
}

impl From<&FileAttributes> for AttributeOctets {
    fn from(found: &FileAttributes) -> Self {
        Self::from(&Attributes::from(found))
    }
}

impl From<BeforeChange> for WccAttributes {
    fn from(BeforeChange { size, mtime, ctime, .. }: BeforeChange) -> Self {
        Self { size, mtime: mtime.into(), ctime: ctime.into() }
    }
}

impl From<ObjectChange> for WccData {
    fn from(ObjectChange { before, after }: ObjectChange) -> Self {
        Self { before: before.map(Into::into), after: after.map(Into::into) }
    }
}

impl From<SetTime> for NewTime {
    fn from(time: SetTime) -> Self {
        match time {
            SetTime::Keep => Self::Keep,
            SetTime::Server => Self::Server,
            SetTime::Client(time) => Self::Client(time.into()),
        }
    }
}

impl From<NewTime> for SetTime {
    fn from(time: NewTime) -> Self {
        match time {
            NewTime::Keep => Self::Keep,
            NewTime::Server => Self::Server,
            NewTime::Client(time) => Self::Client(time.into()),
        }
    }
}

impl From<&SetAttributes> for NewAttributes {
    fn from(set: &SetAttributes) -> Self {
        let SetAttributes { mode, uid, gid, size, atime, mtime } = *set;
        Self { mode, uid, gid, size, umask: 0, atime: atime.into(), mtime: mtime.into() }
    }
}

impl From<&NewAttributes> for SetAttributes {
    fn from(set: &NewAttributes) -> Self {
        let NewAttributes { mode, uid, gid, size, atime, mtime, .. } = *set;
        Self { mode, uid, gid, size, atime: atime.into(), mtime: mtime.into() }
    }
}

impl From<&CreateHow> for CreateMode {
    fn from(how: &CreateHow) -> Self {
        match how {
            CreateHow::Unchecked(set) => Self::Unchecked(set.into()),
            CreateHow::Guarded(set) => Self::Guarded(set.into()),
            CreateHow::Exclusive(verifier) => Self::exclusive(*verifier),
        }
    }
}

impl From<&CreateMode> for CreateHow {
    /// Drops the attributes of an exclusive mode: version 3 has none there.
    fn from(how: &CreateMode) -> Self {
        match how {
            CreateMode::Unchecked(set) => Self::Unchecked(set.into()),
            CreateMode::Guarded(set) => Self::Guarded(set.into()),
            CreateMode::Exclusive { verifier, .. } => Self::Exclusive(*verifier),
        }
    }
}

impl From<&NodeKind> for DeviceNode {
    fn from(what: &NodeKind) -> Self {
        let device = match what {
            NodeKind::Character(_, device) | NodeKind::Block(_, device) => *device,
            _ => DeviceNumber::default(),
        };
        Self { kind: what.kind(), device }
    }
}

impl From<&NodeKind> for NewAttributes {
    fn from(what: &NodeKind) -> Self {
        match what {
            NodeKind::Character(set, _)
            | NodeKind::Block(set, _)
            | NodeKind::Socket(set)
            | NodeKind::Fifo(set) => set.into(),
            // Stores refuse these with NFS3ERR_BADTYPE.
            NodeKind::Regular | NodeKind::Directory | NodeKind::Symlink => Self::default(),
        }
    }
}

impl DeviceNode {
    /// The same as an argument of version 3, with attributes.
    pub(crate) fn with(&self, set: &SetAttributes) -> NodeKind {
        match self.kind {
            FileKind::Character => NodeKind::Character(*set, self.device),
            FileKind::Block => NodeKind::Block(*set, self.device),
            FileKind::Socket => NodeKind::Socket(*set),
            FileKind::Fifo => NodeKind::Fifo(*set),
            FileKind::Regular => NodeKind::Regular,
            FileKind::Directory => NodeKind::Directory,
            FileKind::Symlink => NodeKind::Symlink,
        }
    }
}

impl From<Renamed> for RenameWcc {
    fn from(about: Renamed) -> Self {
        Self { from_dir: about.from.into(), to_dir: about.to.into() }
    }
}

impl From<Linked> for LinkWcc {
    fn from(about: Linked) -> Self {
        Self { attributes: about.file.map(Into::into), dir_wcc: about.directory.into() }
    }
}

/// The failure of a procedure whose reply has attributes of an object before and after.
impl From<Failed<ObjectChange>> for Failure<WccData> {
    fn from(failed: Failed<ObjectChange>) -> Self {
        Self { status: failed.status, attributes: failed.about.into() }
    }
}

impl From<Failed<SetDone>> for Failure<WccData> {
    fn from(failed: Failed<SetDone>) -> Self {
        Self { status: failed.status, attributes: failed.about.object.into() }
    }
}

/// The failure of a procedure whose reply has attributes.
impl From<Failed<Option<FileAttributes>>> for Failure<Option<Attributes>> {
    fn from(failed: Failed<Option<FileAttributes>>) -> Self {
        Self { status: failed.status, attributes: failed.about.map(Into::into) }
    }
}

impl From<Failed<Renamed>> for Failure<RenameWcc> {
    fn from(failed: Failed<Renamed>) -> Self {
        Self { status: failed.status, attributes: failed.about.into() }
    }
}

impl From<Failed<Linked>> for Failure<LinkWcc> {
    fn from(failed: Failed<Linked>) -> Self {
        Self { status: failed.status, attributes: failed.about.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_version_3_cannot_tell_are_told_as_the_nearest() {
        let last = u32::MAX;
        for (time, seconds, nanos) in [
            (FileTime { seconds: i64::MIN, nanos: 5 }, 0, 0),
            (FileTime { seconds: -1, nanos: 999_999_999 }, 0, 0),
            (FileTime { seconds: 0, nanos: 7 }, 0, 7),
            (FileTime { seconds: i64::from(last), nanos: 7 }, last, 7),
            (FileTime { seconds: i64::from(last) + 1, nanos: 0 }, last, 999_999_999),
            (FileTime { seconds: i64::MAX, nanos: 0 }, last, 999_999_999),
        ] {
            assert_eq!(Time::from(time), Time { seconds, nanos }, "{time:?}");
            assert_eq!(FileTime::from(Time { seconds, nanos }), time.in_32_bits());
        }
    }

    #[test]
    fn what_a_client_sets_is_what_the_store_sets() {
        let time = Time { seconds: 5, nanos: 6 };
        for (atime, mtime) in
            [(SetTime::Keep, SetTime::Server), (SetTime::Client(time), SetTime::Keep)]
        {
            let set = SetAttributes {
                mode: Some(1),
                uid: Some(2),
                gid: Some(3),
                size: Some(4),
                atime,
                mtime,
            };
            let new = NewAttributes::from(&set);
            assert_eq!(
                (new.mode, new.uid, new.gid, new.size),
                (Some(1), Some(2), Some(3), Some(4))
            );
            assert_eq!(SetAttributes::from(&new), set);
            for how in
                [CreateHow::Unchecked(set), CreateHow::Guarded(set), CreateHow::Exclusive([7; 8])]
            {
                assert_eq!(CreateHow::from(&CreateMode::from(&how)), how);
            }
        }
    }
}
