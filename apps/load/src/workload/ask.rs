//! Choice of the next call.

use super::{COMMIT_EVERY, NAMES, Workload, maker::Maker};
use crate::schedule::Random;

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Null,
    NfsNull,
    Echo { place: u32 },
    Pull { place: u32 },
    Push { place: u32 },
    Drive { first: u32 },
    GetAttr,
    Lookup { number: u64 },
    Read { block: u64 },
    Write { block: u64 },
    Create { slot: u32 },
    Find { slot: u32 },
    Remove { slot: u32 },
    Commit,
    ReadDirPlus { slot: u32 },
}

impl Ask {
    /// The procedure that is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null | Self::NfsNull => "NULL",
            Self::Echo { .. } => "ECHO",
            Self::Pull { .. } => "PULL",
            Self::Push { .. } => "PUSH",
            Self::Drive { .. } => "DRIVE",
            Self::GetAttr => "GETATTR",
            Self::Lookup { .. } | Self::Find { .. } => "LOOKUP",
            Self::Read { .. } => "READ",
            Self::Write { .. } => "WRITE",
            Self::Create { .. } => "CREATE",
            Self::Remove { .. } => "REMOVE",
            Self::Commit => "COMMIT",
            Self::ReadDirPlus { .. } => "READDIRPLUS",
        }
    }
}

impl Maker {
    /// Chooses the next call of slot `slot`, which has made `step` calls.
    pub fn ask(&self, random: &mut Random, slot: u32, step: u32) -> Ask {
        let blocks = self.files.map_or(0, |files| files.blocks);
        let half = blocks / 2;
        match self.workload {
            Workload::Null | Workload::ConnStorm if self.is_nfs => Ask::NfsNull,
            Workload::Null | Workload::ConnStorm => Ask::Null,
            // The first reply settles the version, which decides how much fits inline.
            Workload::Reverse if step == 0 => Ask::Null,
            Workload::Reverse => Ask::Drive {
                first: slot.saturating_mul(u32::try_from(self.depth).unwrap_or(u32::MAX)),
            },
            Workload::Echo => Ask::Echo { place: place(random) },
            Workload::Pull => Ask::Pull { place: place(random) },
            Workload::Push => Ask::Push { place: place(random) },
            Workload::Mixed => match random.below(6) {
                0 => Ask::Echo { place: place(random) },
                1 => Ask::Pull { place: place(random) },
                2 => Ask::Push { place: place(random) },
                _ => Ask::Null,
            },
            Workload::GetAttr | Workload::GetAttr4 => Ask::GetAttr,
            Workload::Lookup | Workload::Lookup4 => Ask::Lookup { number: random.below(NAMES) },
            Workload::Read | Workload::Read4 => Ask::Read { block: random.below(blocks) },
            Workload::Write | Workload::Write4 => Ask::Write { block: random.below(blocks) },
            Workload::Commit if step % COMMIT_EVERY == COMMIT_EVERY - 1 => Ask::Commit,
            Workload::Commit => Ask::Write { block: random.below(blocks) },
            Workload::ReadDirPlus => Ask::ReadDirPlus { slot },
            // Blocks that are read are never written, so that their octets are known.
            Workload::ReadWrite | Workload::ReadWrite4 => match random.below(10) {
                0..7 => Ask::Read { block: random.below(half) },
                _ => Ask::Write { block: half + random.below(blocks - half) },
            },
            Workload::Meta | Workload::Meta4 => match step % 3 {
                0 => Ask::Create { slot },
                1 => Ask::Find { slot },
                _ => Ask::Remove { slot },
            },
        }
    }
}

/// Any multiple of 8.
fn place(random: &mut Random) -> u32 {
    (random.below(stag_echo::PLACES as u64 / 8) * 8) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoadFiles;
    use stag_protocol::{
        nfs::v3::FileHandle,
        rpc::{AuthSys, Gids},
    };
    use std::time::Duration;

    #[test]
    fn the_mixture_reads_and_writes_apart() {
        let handle = FileHandle::new(&[1]).unwrap();
        let maker = Maker {
            workload: Workload::ReadWrite,
            len: 4_096,
            depth: 1,
            verify: true,
            user: AuthSys { stamp: 0, machine_name: b"", uid: 0, gid: 0, gids: Gids::default() },
            timeout: Duration::ZERO,
            is_nfs: true,
            files: Some(LoadFiles { dir: handle, file: handle, blocks: 11, names: 0 }),
            read: None,
        };
        let (mut random, mut reads) = (Random::new(1), 0);
        for step in 0..10_000 {
            match maker.ask(&mut random, 0, step) {
                Ask::Read { block } => {
                    reads += 1;
                    assert!(block < 5);
                }
                Ask::Write { block } => assert!((5..11).contains(&block)),
                other => panic!("{other:?}"),
            }
        }
        assert!((6_800..7_200).contains(&reads), "{reads}");
    }
}
