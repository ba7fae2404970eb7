//! Attributes of the store as version 4's attributes of a stat(), which most calls of its clients
//! ask for (RFC 8881 §5), in this one place. Every object has a value for each of them, so they are
//! written in few steps.

use stag_protocol::{
    nfs::v4::{Decimal, FileKind4, STAT_WORDS, StatOctets, Time4},
    xdr::{NoRoom, Writer},
};

use crate::{FileAttributes, FileTime};

impl From<&FileAttributes> for StatOctets {
    /// As of an object that nothing is mounted on.
    fn from(object: &FileAttributes) -> Self {
        Self::of(|writer| emit_stat(object, object.fileid, writer))
            .expect("owner and group are numbers of 32 bits")
    }
}

/// Writes the [attributes of a stat()](stag_protocol::nfs::v4::STAT_ATTRIBUTES): their bitmap,
/// their length, and their values in rising order (`fattr4`, RFC 8881 §3.3.7). `above` is the
/// number of the directory entry on which the object is mounted.
pub fn emit_stat(
    object: &FileAttributes,
    above: u64,
    writer: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    let owner = Decimal::of(object.uid);
    // They are usually the same number.
    let group = if object.gid == object.uid { owner } else { Decimal::of(object.gid) };
    let len = 4 * (1 + 2 + 2 + 4 + 2 + 1 + 1)
        + owner.wire_len()
        + group.wire_len()
        + 4 * (2 + 2 + 3 * 3 + 2);
    let [count, first, second] = STAT_WORDS;
    let [change_high, change] = halves(object.change);
    let [size_high, size] = halves(object.size);
    let [fsid_high, fsid] = halves(object.fsid);
    let [fileid_high, fileid] = halves(object.fileid);
    writer.words([
        count,
        first,
        second,
        len,
        FileKind4::from(object.kind) as u32,
        change_high,
        change,
        size_high,
        size,
        fsid_high,
        fsid,
        // The minor part of the file system's ID.
        0,
        0,
        fileid_high,
        fileid,
        object.mode,
        object.nlink,
    ])?;
    owner.emit(writer)?;
    group.emit(writer)?;
    let [used_high, used] = halves(object.used);
    let [accessed_high, accessed, accessed_nanos] = time(object.atime);
    let [changed_high, changed, changed_nanos] = time(object.ctime);
    let [modified_high, modified, modified_nanos] = time(object.mtime);
    let [above_high, above] = halves(above);
    writer.words([
        object.device.major,
        object.device.minor,
        used_high,
        used,
        accessed_high,
        accessed,
        accessed_nanos,
        changed_high,
        changed,
        changed_nanos,
        modified_high,
        modified,
        modified_nanos,
        above_high,
        above,
    ])
}

const fn halves(number: u64) -> [u32; 2] {
    [(number >> 32) as u32, number as u32]
}

const fn time(time: FileTime) -> [u32; 3] {
    let [high, low] = halves(time.seconds.cast_unsigned());
    [high, low, time.nanos]
}

impl From<FileTime> for Time4 {
    fn from(time: FileTime) -> Self {
        Self { seconds: time.seconds, nanoseconds: time.nanos }
    }
}
