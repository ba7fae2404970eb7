//! The union of all locks of a file, by which a store shows them to local processes.

use super::{FileId, StateTables};
use stag_protocol::nfs::v4::state::LockRange;
use std::{iter::Peekable, vec::IntoIter};

/// A part of a file and the strongest lock that somebody has of all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowPart {
    /// The octets.
    pub range: LockRange,
    /// True for a write lock, false for a read lock, `None` for no lock.
    pub lock: Option<bool>,
}

impl StateTables {
    /// The strongest locks of all octets of `range`, as parts that follow each other. `also` is a
    /// lock of the whole range that is about to be made.
    ///
    /// A store applies them to its one description of the file (`F_OFD_SETLK`): before LOCK with
    /// the lock that [`StateTables::check_lock`] found possible, and for each range of
    /// [`StateTables::next_weakened`].
    pub fn lock_shadow(
        &self,
        file: FileId,
        range: LockRange,
        also: Option<bool>,
    ) -> impl Iterator<Item = ShadowPart> + use<> {
        let held = self.file(file).map_or(&[][..], |file| file.locks.held());
        let (first, end) = (range.offset(), range.last());
        let mut edges = Vec::new();
        for lock in held.iter().filter(|lock| lock.range.overlaps(&range)) {
            let exclusive = lock.exclusive;
            edges.push(Edge { at: lock.range.offset().max(first), exclusive, is_begin: true });
            if let Some(at) = lock.range.last().checked_add(1).filter(|at| *at <= end) {
                edges.push(Edge { at, exclusive, is_begin: false });
            }
        }
        edges.sort_unstable_by_key(|edge| edge.at);
        let edges = edges.into_iter().peekable();
        Parts { edges, next: Some(first), end, also, held: [0; 2] }
    }

    /// A range of a file of which a lock went or became weaker: once for each time.
    pub fn next_weakened(&mut self) -> Option<(FileId, LockRange)> {
        while let Some((file, range)) = self.weakened.pop() {
            if let Some(file) = self.files.get(file) {
                return Some((file.id, range));
            }
        }
        None
    }

    /// Has a range be told by [`next_weakened`](Self::next_weakened).
    pub fn note_weakened(&mut self, file: FileId, range: LockRange) {
        self.weakened.extend(self.find_file(file).map(|file| (file, range)));
    }

    /// The handle that a file had when the first state of it was given.
    pub fn handle_of(&self, file: FileId) -> Option<&[u8]> {
        self.file(file).map(|file| &*file.handle)
    }
}

/// A begin of a lock, or the octet behind its end.
struct Edge {
    at: u64,
    exclusive: bool,
    is_begin: bool,
}

/// Walks over a range, one change of the strongest lock at a time.
struct Parts {
    edges: Peekable<IntoIter<Edge>>,
    /// The first octet of the next part.
    next: Option<u64>,
    /// The last octet of the range.
    end: u64,
    also: Option<bool>,
    /// Read locks and write locks of the octet that the walk is at.
    held: [usize; 2],
}

impl Parts {
    /// Takes the edges at an octet.
    fn pass(&mut self, octet: u64) {
        while let Some(edge) = self.edges.next_if(|edge| edge.at <= octet) {
            if let Some(held) = self.held.get_mut(usize::from(edge.exclusive)) {
                *held = if edge.is_begin { *held + 1 } else { held.saturating_sub(1) };
            }
        }
    }

    /// The strongest lock here.
    fn strongest(&self) -> Option<bool> {
        let [read, write] = self.held;
        let held = if write > 0 { Some(true) } else { (read > 0).then_some(false) };
        held.max(self.also)
    }
}

impl Iterator for Parts {
    type Item = ShadowPart;

    fn next(&mut self) -> Option<ShadowPart> {
        let first = self.next.take()?;
        self.pass(first);
        let lock = self.strongest();
        let mut last = self.end;
        while let Some(at) = self.edges.peek().map(|edge| edge.at) {
            self.pass(at);
            if self.strongest() != lock {
                // Each edge here lies behind `first`.
                last = at.saturating_sub(1);
                self.next = Some(at);
                break;
            }
        }
        Some(ShadowPart { range: LockRange::between(first, last)?, lock })
    }
}
