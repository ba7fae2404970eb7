//! Kind of calls that a run makes.
//!
//! `ask` chooses the next call, `maker` writes it (a READ by its `template`), `check` reads its
//! reply, and an `outlet` sends it, protected or not. `compound` does both by version 4.1 of NFS,
//! `progress` for calls that depend on earlier replies: the next page of a `listing`, and writes
//! that are committed later.

mod ask;
mod check;
mod compound;
mod items;
mod listing;
mod maker;
mod outlet;
mod progress;
mod template;

pub(crate) use ask::Ask;
pub use check::CORRUPT;
pub(crate) use check::stages;
pub(crate) use compound::{MINOR_VERSION, OTHER, SessionPlace, opening};
pub(crate) use items::SpareItems;
pub(crate) use maker::Maker;
pub(crate) use outlet::{CallOutlet, ProtectedOutlet};
pub(crate) use progress::CallProgress;

use serde::{Deserialize, Serialize};
use stag_protocol::nfs::v3::FileHandle;
use std::{fmt, fmt::Write as _, str::FromStr};

/// Names in the directory of [`Workload::Lookup`].
pub const NAMES: u64 = 128;
/// Calls of a slot of [`Workload::Commit`] from one COMMIT to the next, it included.
const COMMIT_EVERY: u32 = 16;
/// Places between the first content of a file's block and the content that a WRITE gives it.
const WRITTEN: u64 = stag_echo::PLACES as u64 / 2;

/// Kind of calls that a run makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Workload {
    /// NULL: of NFS when an export is named, else of the echo program.
    Null,
    /// The echo program: octets there and back.
    Echo,
    /// The echo program: octets there. The server pulls them from a Read chunk when they do not fit
    /// inline.
    Pull,
    /// The echo program: octets back. The server pushes them into a Write chunk when they do not
    /// fit inline.
    Push,
    /// The echo program: half NULL, the rest ECHO, PULL and PUSH alike.
    Mixed,
    /// The server calls (RFC 8167), over the connections that were made to it: octets there and
    /// back. Served by [`stag_echo::Driver`].
    Reverse,
    /// A connection, NULL, and its end.
    ConnStorm,
    /// GETATTR of a file.
    GetAttr,
    /// LOOKUP of names that are there.
    Lookup,
    /// READs of whole blocks, at random.
    Read,
    /// WRITEs of whole blocks, at random, FILE_SYNC.
    Write,
    /// 70 READs to 30 WRITEs.
    ReadWrite,
    /// CREATE, LOOKUP, REMOVE, and again.
    Meta,
    /// WRITEs of whole blocks, at random, UNSTABLE; every 16th call of a slot is a COMMIT
    /// of the whole file.
    Commit,
    /// READDIRPLUS of a directory from its start to its end, and again.
    ReadDirPlus,
    /// As [`Workload::GetAttr`], by version 4.1.
    GetAttr4,
    /// As [`Workload::Lookup`], by version 4.1.
    Lookup4,
    /// As [`Workload::Read`], by version 4.1 and with an open.
    Read4,
    /// As [`Workload::Write`], by version 4.1 and with an open.
    Write4,
    /// As [`Workload::ReadWrite`], by version 4.1 and with an open.
    ReadWrite4,
    /// As [`Workload::Meta`], by version 4.1: OPEN and CLOSE, LOOKUP, REMOVE.
    Meta4,
}

/// All of them, by name.
const WORKLOADS: [(&str, Workload); 21] = [
    ("null", Workload::Null),
    ("echo", Workload::Echo),
    ("pull", Workload::Pull),
    ("push", Workload::Push),
    ("mixed", Workload::Mixed),
    ("reverse", Workload::Reverse),
    ("connstorm", Workload::ConnStorm),
    ("nfs3:getattr", Workload::GetAttr),
    ("nfs3:lookup", Workload::Lookup),
    ("nfs3:read", Workload::Read),
    ("nfs3:write", Workload::Write),
    ("nfs3:mixed", Workload::ReadWrite),
    ("nfs3:meta", Workload::Meta),
    ("nfs3:commit", Workload::Commit),
    ("nfs3:readdirplus", Workload::ReadDirPlus),
    ("nfs4:getattr", Workload::GetAttr4),
    ("nfs4:lookup", Workload::Lookup4),
    ("nfs4:read", Workload::Read4),
    ("nfs4:write", Workload::Write4),
    ("nfs4:mixed", Workload::ReadWrite4),
    ("nfs4:meta", Workload::Meta4),
];

impl Workload {
    /// Returns the name of the workload, as it is written.
    pub fn name(self) -> &'static str {
        WORKLOADS.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Returns true if the workload needs an export.
    pub const fn is_nfs(self) -> bool {
        use Workload::{Commit, GetAttr, Lookup, Meta, Read, ReadDirPlus, ReadWrite, Write};
        matches!(
            self.by_nfs3(),
            GetAttr | Lookup | Read | Write | ReadWrite | Meta | Commit | ReadDirPlus
        )
    }

    /// Returns true if the calls are compounds of NFS version 4.1, in sessions.
    pub const fn is_nfs4(self) -> bool {
        use Workload::{GetAttr4, Lookup4, Meta4, Read4, ReadWrite4, Write4};
        matches!(self, GetAttr4 | Lookup4 | Read4 | Write4 | ReadWrite4 | Meta4)
    }

    /// Returns the equivalent workload of NFS version 3; a workload that is not of version 4.1
    /// returns itself.
    pub const fn by_nfs3(self) -> Self {
        match self {
            Self::GetAttr4 => Self::GetAttr,
            Self::Lookup4 => Self::Lookup,
            Self::Read4 => Self::Read,
            Self::Write4 => Self::Write,
            Self::ReadWrite4 => Self::ReadWrite,
            Self::Meta4 => Self::Meta,
            other => other,
        }
    }

    /// Returns true if the calls of the workload move payload.
    pub const fn has_payload(self) -> bool {
        use Workload::{ConnStorm, GetAttr, Lookup, Meta, Null, ReadDirPlus};
        !matches!(self.by_nfs3(), Null | ConnStorm | GetAttr | Lookup | Meta | ReadDirPlus)
    }

    /// Returns true if calls of the workload have a size: that of their payload, or the longest
    /// page of a listing.
    pub const fn has_size(self) -> bool {
        self.has_payload() || matches!(self, Self::ReadDirPlus)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = WORKLOADS.iter().find(|(name, _)| *name == text);
        known.map(|(_, workload)| *workload).ok_or_else(|| {
            let names: Vec<_> = WORKLOADS.iter().map(|(name, _)| *name).collect();
            format!("no workload is called {text:?}, only {}", names.join(", "))
        })
    }
}

impl From<Workload> for &'static str {
    fn from(workload: Workload) -> Self {
        workload.name()
    }
}

impl TryFrom<String> for Workload {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Objects on the server that one generator works on.
#[derive(Clone, Copy, Debug)]
pub struct LoadFiles {
    /// A directory of its own: with [`NAMES`] files for LOOKUP, with `names` of them for
    /// READDIRPLUS, and place for those of CREATE.
    pub dir: FileHandle,
    /// A file of its own.
    pub file: FileHandle,
    /// Blocks of that file.
    pub blocks: u64,
    /// Names in the directory of [`Workload::ReadDirPlus`], without `.` and `..`.
    pub names: u32,
}

/// Returns the name of file `number` in a directory for LOOKUP or READDIRPLUS.
pub fn name(number: u64) -> Label {
    let mut label = Label::default();
    let _ = write!(label, "f{number}");
    label
}

/// A short name, without memory of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Label([u8; 24], usize);

impl Label {
    /// Its octets.
    pub fn octets(&self) -> &[u8] {
        self.0.get(..self.1).unwrap_or_default()
    }
}

impl fmt::Write for Label {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.1 + text.len();
        self.0.get_mut(self.1..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.1 = end;
        Ok(())
    }
}

/// The octets of a block of a file, in its initial state, or after a WRITE of ours.
pub fn block(number: u64, len: usize, is_written: bool) -> &'static [u8] {
    let place = number.wrapping_mul(8).wrapping_add(if is_written { WRITTEN } else { 0 });
    let place = (place % stag_echo::PLACES as u64) as u32;
    stag_echo::part(place, len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_read_as_they_are_written() {
        for (name, workload) in WORKLOADS {
            assert_eq!((name.parse(), workload.name()), (Ok(workload), name));
        }
        let wrong = "nfs2:read".parse::<Workload>().unwrap_err();
        assert!(wrong.contains("\"nfs2:read\"") && wrong.contains("nfs3:read"), "{wrong}");
    }

    #[test]
    fn each_workload_of_version_4_has_its_twin_of_version_3() {
        for (name, workload) in WORKLOADS {
            let twin = name.replace("nfs4:", "nfs3:");
            assert_eq!((workload.is_nfs4(), workload.by_nfs3().name()), (twin != name, &*twin));
            assert_eq!(workload.is_nfs(), workload.by_nfs3().is_nfs());
            assert_eq!(workload.has_payload(), workload.by_nfs3().has_payload());
        }
    }

    #[test]
    fn blocks_differ_from_their_neighbours_and_from_what_is_written_there() {
        for number in 0..1_000 {
            let first = block(number, 4_096, false);
            assert_eq!(first.len(), 4_096);
            assert_ne!(first, block(number, 4_096, true));
            assert_ne!(first, block(number + 1, 4_096, false));
        }
        assert_eq!(block(511, 1 << 20, true).len(), 1 << 20);
    }
}
