//! Actors that write, commit, read, make and remove, each one thing after the other.

use crate::losses::{
    pair::Pair,
    pieces::{Piece, PieceState},
};
use fastrand::Rng;
use stag_engine::Token;
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{
            Call, CommitArgs, CreateArgs, CreateHow, DirOpArgs, FileHandle, MkDirArgs, Name,
            Procedure, ReadArgs, RemoveArgs, RenameArgs, Reply, SetAttrArgs, SetAttributes,
            StableHow, Status, WriteArgs,
        },
    },
    rpc::ReplyHeader,
    xdr::{Codec, Reader},
};

/// Task that an actor carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    Write { piece: usize, stable: StableHow },
    Commit { file: usize },
    Read { piece: usize },
    Create { name: String },
    MkDir { name: String },
    Remove { name: String, is_dir: bool },
    Rename { from: String, to: String, is_dir: bool },
    SetMode,
}

impl Task {
    /// Returns true if a second execution fails or does harm.
    pub const fn is_once(&self) -> bool {
        !matches!(self, Self::Write { .. } | Self::Commit { .. } | Self::Read { .. })
    }

    const fn procedure(&self) -> Procedure {
        match self {
            Self::Write { .. } => Procedure::Write,
            Self::Commit { .. } => Procedure::Commit,
            Self::Read { .. } => Procedure::Read,
            Self::Create { .. } => Procedure::Create,
            Self::MkDir { .. } => Procedure::MkDir,
            Self::Remove { is_dir: false, .. } => Procedure::Remove,
            Self::Remove { is_dir: true, .. } => Procedure::RmDir,
            Self::Rename { .. } => Procedure::Rename,
            Self::SetMode => Procedure::SetAttr,
        }
    }
}

/// Counters over all seeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub calls: u64,
    /// Calls that are carried out once.
    pub once: u64,
    /// Versions that an actor knew to be lost, and wrote again.
    pub rewritten: u64,
    /// Calls with a result that says they were carried out before the server was killed.
    pub again: u64,
}

/// One thing after the other.
pub struct Actor {
    number: usize,
    pub pieces: Vec<Piece>,
    /// Names that are there, and whether they are directories.
    pub names: Vec<(String, bool)>,
    fresh: usize,
    /// Tasks that are left before it only makes stable what it wrote.
    left: usize,
    pub task: Option<Task>,
    /// True if the server was killed since the task began.
    pub is_in_doubt: bool,
}

impl Actor {
    pub fn new(number: usize, left: usize, dice: &mut Rng) -> Self {
        let piece = |file| {
            let len = [1, 700, 3_000, 4_096, 9_000][dice.usize(..5)] + dice.usize(..64);
            Piece { file, place: number, len, version: 0, durable: 0, known: PieceState::Stable }
        };
        let pieces = (0..2).map(piece).collect();
        Self { number, pieces, names: vec![], fresh: 0, left, task: None, is_in_doubt: false }
    }

    /// Begins its next task, if there is one.
    pub fn begin(
        &mut self,
        pair: &mut Pair,
        handles: &[FileHandle],
        dice: &mut Rng,
        counts: &mut Counts,
    ) {
        let Some(task) = self.choose(dice) else { return };
        counts.calls += 1;
        counts.once += u64::from(task.is_once());
        if let Task::Write { piece, .. } = task {
            let piece = &mut self.pieces[piece];
            counts.rewritten += u64::from(piece.known == PieceState::Lost);
            // A version that was lost is written again as it was.
            piece.version += u32::from(piece.known != PieceState::Lost);
        }
        self.send(pair, handles, &task);
        (self.task, self.is_in_doubt) = (Some(task), false);
    }

    fn choose(&mut self, dice: &mut Rng) -> Option<Task> {
        let unsettled =
            (0..self.pieces.len()).find(|piece| self.pieces[*piece].known != PieceState::Stable);
        if self.left == 0 {
            let piece = unsettled?;
            return Some(match self.pieces[piece].known {
                PieceState::Lost => Task::Write { piece, stable: StableHow::FileSync },
                PieceState::Unstable(_) | PieceState::Stable => {
                    Task::Commit { file: self.pieces[piece].file }
                }
            });
        }
        self.left -= 1;
        let piece = dice.usize(..self.pieces.len());
        Some(match dice.usize(..12) {
            0 => Task::Write { piece, stable: StableHow::FileSync },
            1 => Task::Write { piece, stable: StableHow::DataSync },
            2..5 => Task::Write { piece, stable: StableHow::Unstable },
            5 => Task::Commit { file: self.pieces[piece].file },
            6 if self.pieces[piece].known == PieceState::Stable => Task::Read { piece },
            7 => Task::SetMode,
            8 => Task::Create { name: self.fresh_name() },
            9 => Task::MkDir { name: self.fresh_name() },
            _ if self.names.is_empty() => Task::Create { name: self.fresh_name() },
            roll => {
                let (name, is_dir) = self.names.swap_remove(dice.usize(..self.names.len()));
                match roll {
                    11 => Task::Rename { from: name, to: self.fresh_name(), is_dir },
                    _ => Task::Remove { name, is_dir },
                }
            }
        })
    }

    fn fresh_name(&mut self) -> String {
        self.fresh += 1;
        format!("name-{}-{}", self.number, self.fresh)
    }

    fn send(&self, pair: &mut Pair, handles: &[FileHandle], task: &Task) {
        let root = pair.root;
        let place = |name| DirOpArgs { dir: root, name };
        let attributes = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
        let octets;
        let call = match task {
            Task::Write { piece, stable } => {
                let piece = &self.pieces[*piece];
                octets = piece.octets(piece.version);
                Call::Write(WriteArgs {
                    file: handles[piece.file],
                    offset: piece.offset() as u64,
                    stable: *stable,
                    data: Bulk::Inline(&octets),
                })
            }
            Task::Commit { file } => {
                Call::Commit(CommitArgs { file: handles[*file], offset: 0, count: 0 })
            }
            Task::Read { piece } => {
                let piece = &self.pieces[*piece];
                Call::Read(ReadArgs {
                    file: handles[piece.file],
                    offset: piece.offset() as u64,
                    count: piece.len as u32,
                })
            }
            Task::Create { name } => Call::Create(CreateArgs {
                place: place(Name(name.as_bytes())),
                how: CreateHow::Guarded(attributes),
            }),
            Task::MkDir { name } => {
                Call::MkDir(MkDirArgs { place: place(Name(name.as_bytes())), attributes })
            }
            Task::Remove { name, is_dir: false } => {
                Call::Remove(RemoveArgs { object: place(Name(name.as_bytes())) })
            }
            Task::Remove { name, is_dir: true } => {
                Call::RmDir(RemoveArgs { object: place(Name(name.as_bytes())) })
            }
            Task::Rename { from, to, .. } => Call::Rename(RenameArgs {
                from: place(Name(from.as_bytes())),
                to: place(Name(to.as_bytes())),
            }),
            Task::SetMode => Call::SetAttr(SetAttrArgs { object: root, attributes, guard: None }),
        };
        pair.call(Token(self.number as u64), &call);
    }

    /// Takes the reply to its task.
    pub fn conclude(&mut self, reply: &[u8], counts: &mut Counts) {
        let task = self.task.take().expect("it has called");
        let results = Reader::new(&reply[ReplyHeader::LEN..]);
        let status = match Reply::parse(task.procedure(), results).unwrap() {
            Reply::Write(Ok(done)) => {
                let Task::Write { piece, stable } = &task else { unreachable!() };
                let piece = &mut self.pieces[*piece];
                assert_eq!(done.count as usize, piece.len, "all of it was written");
                assert!(*stable == StableHow::Unstable || done.committed != StableHow::Unstable);
                piece.known = PieceState::Unstable(done.verifier);
                if done.committed != StableHow::Unstable {
                    (piece.known, piece.durable) = (PieceState::Stable, piece.version);
                }
                Status::Ok
            }
            Reply::Commit(Ok(done)) => {
                let Task::Commit { file } = &task else { unreachable!() };
                for piece in self.pieces.iter_mut().filter(|piece| piece.file == *file) {
                    match piece.known {
                        PieceState::Unstable(verifier) if verifier == done.verifier => {
                            (piece.known, piece.durable) = (PieceState::Stable, piece.version);
                        }
                        PieceState::Unstable(_) => piece.known = PieceState::Lost,
                        PieceState::Stable | PieceState::Lost => {}
                    }
                }
                Status::Ok
            }
            Reply::Read(Ok(done)) => {
                let Task::Read { piece } = &task else { unreachable!() };
                let piece = &self.pieces[*piece];
                let mut octets = done.data.octets().unwrap().to_vec();
                // A file that was not written to its end.
                octets.resize(piece.len, 0);
                assert!(octets == piece.octets(piece.version), "what is stable is read: {piece:?}");
                Status::Ok
            }
            _ => Status::parse(&mut Reader::new(&reply[ReplyHeader::LEN..])).unwrap(),
        };
        counts.again += u64::from(status != Status::Ok);
        self.note(task, status);
    }

    /// Keeps the books of names. Only a server that was killed may have forgotten that it did a
    /// thing.
    fn note(&mut self, task: Task, status: Status) {
        let is_fine = match (&task, status) {
            (_, Status::Ok) => true,
            (Task::Create { .. } | Task::MkDir { .. }, Status::Exist)
            | (Task::Remove { .. } | Task::Rename { .. }, Status::NoEnt) => self.is_in_doubt,
            _ => false,
        };
        assert!(is_fine, "{task:?}: {status:?}");
        match task {
            Task::Create { name } => self.names.push((name, false)),
            Task::MkDir { name } => self.names.push((name, true)),
            Task::Rename { to, is_dir, .. } => self.names.push((to, is_dir)),
            _ => {}
        }
    }
}
