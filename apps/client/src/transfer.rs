//! Transfer of whole files, several READs or WRITEs at a time (RFC 1813 §3.3.6, §3.3.7, §3.3.21).
//!
//! Data written UNSTABLE is only promised until COMMIT answers with the verifier of the WRITEs:
//! data whose WRITE had another verifier is written again, from its source.

mod reading;

pub use reading::{FileRest, get, get_rest};

use crate::{CallTicket, Error, NfsClient};
use stag_protocol::nfs::v3::{FileHandle, StableHow, Status, Verifier};
use stag_rpc::Provider;
use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
};

/// Data losses of a server in one transfer, after which the transfer fails.
const LOSSES_MAX: u32 = 100;

/// Amount of data moved at a time.
#[derive(Clone, Copy, Debug)]
pub struct TransferFlow {
    /// Calls outstanding.
    pub depth: usize,
    /// Octets of one call: at most the limits of the server and the engine.
    pub piece: u32,
}

impl TransferFlow {
    /// `depth` calls of at most `most` octets each, limited by [`stag_rpc::ITEM_MAX`].
    pub fn new(depth: usize, most: u32) -> Self {
        let item_max = u32::try_from(stag_rpc::ITEM_MAX).unwrap_or(u32::MAX);
        Self { depth: depth.max(1), piece: most.clamp(1, item_max) }
    }
}

/// Reason for which a transfer ended early.
#[derive(Debug)]
pub struct TransferFailure {
    /// Description of the attempted step: the procedure, length and offset.
    pub step: String,
    /// Cause of the failure.
    pub why: TransferFault,
}

/// Cause of a failed transfer, by the side that failed.
#[derive(Debug)]
pub enum TransferFault {
    /// The server's, or on the way to it.
    Call(Error),
    /// Ours: where the octets come from or go to.
    Local(io::Error),
    /// The server keeps losing written data.
    Unsettled,
}

impl TransferFailure {
    /// A call that failed.
    pub fn call(step: impl Into<String>, error: Error) -> Self {
        Self { step: step.into(), why: TransferFault::Call(error) }
    }

    fn local(step: impl Into<String>, error: io::Error) -> Self {
        Self { step: step.into(), why: TransferFault::Local(error) }
    }
}

impl fmt::Display for TransferFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.step)?;
        match &self.why {
            TransferFault::Call(error) => error.fmt(f),
            TransferFault::Local(error) => error.fmt(f),
            TransferFault::Unsettled => write!(f, "the write verifier changed {LOSSES_MAX} times"),
        }
    }
}

impl std::error::Error for TransferFailure {}

/// Totals of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferTotals {
    /// Octets of the file.
    pub octets: u64,
    /// READs, WRITEs and COMMITs.
    pub calls: u64,
    /// Octets that were written again because the verifier changed.
    pub replayed: u64,
}

/// Returns the octets that begin at an offset. Called in order, and again for octets that have to
/// be written again.
pub type FileSource<'a> = dyn FnMut(u64, &mut [u8]) -> io::Result<()> + 'a;
/// Takes the octets of a file, in order.
pub type FileSink<'a> = dyn FnMut(u64, &[u8]) -> io::Result<()> + 'a;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// Octets in front of it.
    pub offset: u64,
    /// Its octets.
    pub len: u64,
}

/// A file, and its octets as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizedFile {
    /// Its handle.
    pub file: FileHandle,
    /// Its octets.
    pub len: u64,
}

/// Writes a file, and tracks the ranges that are not yet on stable storage.
#[derive(Debug)]
pub struct FileWriter {
    file: FileHandle,
    flow: TransferFlow,
    to_write: VecDeque<FileRange>,
    outstanding: HashMap<CallTicket, FileRange>,
    /// Written UNSTABLE, each with the verifier that its WRITE was answered with.
    uncommitted: Vec<(FileRange, Verifier)>,
    verifier: Option<Verifier>,
    /// Times that it changed.
    losses: u32,
    moved: TransferTotals,
    room: Vec<u8>,
}

impl FileWriter {
    /// Nothing is written yet.
    pub fn new(file: FileHandle, flow: TransferFlow) -> Self {
        Self {
            file,
            flow,
            to_write: VecDeque::new(),
            outstanding: HashMap::new(),
            uncommitted: Vec::new(),
            verifier: None,
            losses: 0,
            moved: TransferTotals::default(),
            room: vec![0; usize::try_from(flow.piece).unwrap_or(0)],
        }
    }

    /// Writes the octets of `range` and has them committed. `progress` is called after each WRITE
    /// with the number of octets the server took in all, including octets that it lost.
    ///
    /// # Errors
    ///
    /// [`TransferFailure`] names the step. The client has calls outstanding then: what they give
    /// is dropped.
    pub fn write<P: Provider>(
        &mut self,
        client: &mut NfsClient<P>,
        range: FileRange,
        source: &mut FileSource<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<TransferTotals, TransferFailure> {
        self.moved = TransferTotals { octets: range.len, ..TransferTotals::default() };
        self.to_write.push_back(range);
        let mut taken = 0;
        self.losses = 0;
        client.end_wait();
        loop {
            while self.begin(client, source)? {
                taken += self.finish(client)?;
                progress(taken);
            }
            if self.uncommitted.is_empty() {
                return Ok(self.moved);
            }
            self.commit(client)?;
            if self.to_write.is_empty() {
                return Ok(self.moved);
            }
        }
    }

    /// Begins as many WRITEs as may be outstanding. False when everything is written.
    fn begin<P: Provider>(
        &mut self,
        client: &mut NfsClient<P>,
        source: &mut FileSource<'_>,
    ) -> Result<bool, TransferFailure> {
        while self.outstanding.len() < self.flow.depth
            && let Some(range) = self.to_write.pop_front()
        {
            let len = range.len.min(self.flow.piece.into());
            if len == 0 {
                continue;
            }
            if range.len > len {
                self.to_write
                    .push_front(FileRange { offset: range.offset + len, len: range.len - len });
            }
            let piece = self.room.get_mut(..usize::try_from(len).unwrap_or(0)).unwrap_or_default();
            let local = |error| {
                TransferFailure::local(
                    format!("reading {len} octets at {} to send", range.offset),
                    error,
                )
            };
            source(range.offset, piece).map_err(local)?;
            let begun = client.begin_write(self.file, range.offset, piece, StableHow::Unstable);
            let ticket = match begun {
                Err(error) if client.recovers(error) => {
                    self.to_write.push_front(FileRange { offset: range.offset, len });
                    continue;
                }
                begun => begun.map_err(|error| {
                    TransferFailure::call(step("WRITE", range.offset, len), error)
                })?,
            };
            self.moved.calls += 1;
            self.outstanding.insert(ticket, FileRange { offset: range.offset, len });
        }
        Ok(!self.outstanding.is_empty())
    }

    /// Waits for one WRITE. Returns the number of octets that it wrote.
    fn finish<P: Provider>(&mut self, client: &mut NfsClient<P>) -> Result<u64, TransferFailure> {
        let finished = client.finish().map_err(|error| TransferFailure::call("WRITE", error))?;
        let Some(range) = self.outstanding.remove(&finished.ticket()) else { return Ok(0) };
        let failed = |error| TransferFailure::call(step("WRITE", range.offset, range.len), error);
        let asked = usize::try_from(range.len).unwrap_or(0);
        let wrote = match client.finish_write(finished, asked, StableHow::Unstable) {
            // RFC 1813 §2.6 [1813-10]: after NFS3ERR_JUKEBOX a client waits, then calls again
            Err(Error::Nfs(Status::Jukebox)) if client.waits() => {
                self.to_write.push_front(range);
                return Ok(0);
            }
            Err(error) if client.recovers(error) => {
                self.to_write.push_front(range);
                return Ok(0);
            }
            wrote => wrote.map_err(failed)?,
        };
        client.end_wait();
        let count = u64::from(wrote.count);
        if count == 0 {
            return Err(failed(Error::Nonsense("the server wrote nothing and gave no reason")));
        }
        if count < range.len {
            // RFC 1813 §3.3.7 [1813-52]: after a short WRITE a client writes the rest
            self.to_write
                .push_front(FileRange { offset: range.offset + count, len: range.len - count });
        }
        self.settle(wrote.verifier)?;
        // RFC 1813 §3.3.7 [1813-54]: data that a WRITE made stable needs no COMMIT
        if wrote.committed == StableHow::Unstable {
            self.uncommitted.push((FileRange { offset: range.offset, len: count }, wrote.verifier));
        }
        Ok(count)
    }

    fn commit<P: Provider>(&mut self, client: &mut NfsClient<P>) -> Result<(), TransferFailure> {
        debug_assert!(
            self.outstanding.is_empty(),
            "a wait for COMMIT would drop the outcome of a WRITE"
        );
        let committed = client.commit(self.file, 0, 0);
        let committed = committed.map_err(|error| TransferFailure::call("COMMIT", error))?;
        self.moved.calls += 1;
        self.settle(committed.verifier)?;
        self.uncommitted.clear();
        Ok(())
    }

    /// Handles an answer with `verifier`: data under another verifier may be lost, and has to be
    /// written again.
    fn settle(&mut self, verifier: Verifier) -> Result<(), TransferFailure> {
        if self.verifier.replace(verifier).is_none_or(|known| known == verifier) {
            return Ok(());
        }
        self.losses += 1;
        if self.losses == LOSSES_MAX {
            return Err(TransferFailure {
                step: "keeping what is written".to_owned(),
                why: TransferFault::Unsettled,
            });
        }
        let (kept, lost): (Vec<_>, Vec<_>) =
            self.uncommitted.drain(..).partition(|(_, known)| *known == verifier);
        self.uncommitted = kept;
        for (range, _) in lost {
            self.moved.replayed += range.len;
            // RFC 1813 §3.3.7 [1813-53]: a changed verifier makes a client write again
            self.to_write.push_back(range);
        }
        Ok(())
    }
}

/// Writes `file` from its beginning on, with the octets of `source`, and has them committed.
///
/// # Errors
/// [`TransferFailure`] names the step.
pub fn put<P: Provider>(
    client: &mut NfsClient<P>,
    file: SizedFile,
    flow: TransferFlow,
    source: &mut FileSource<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<TransferTotals, TransferFailure> {
    let range = FileRange { offset: 0, len: file.len };
    FileWriter::new(file.file, flow).write(client, range, source, progress)
}

/// Returns true if a server that needs more time (NFS3ERR_JUKEBOX, RFC 1813 §2.6) is to be asked
/// again; waits before that.
fn step(procedure: &str, offset: u64, len: u64) -> String {
    format!("{procedure} of {len} octets at {offset}")
}
