//! READs of whole files, several at a time, delivered in order (RFC 1813 §3.3.6).

use super::{FileRange, FileSink, SizedFile, TransferFailure, TransferFlow, TransferTotals, step};
use crate::{CallTicket, Error, NfsClient};
use stag_protocol::nfs::v3::Status;
use stag_rpc::Provider;
use std::collections::{BTreeMap, HashMap};

/// Outstanding READs, and pieces that arrived out of order.
struct IncomingReads {
    outstanding: HashMap<CallTicket, FileRange>,
    /// Pieces whose predecessors are still outstanding, by offset: at most as many as may be
    /// outstanding.
    early: BTreeMap<u64, Vec<u8>>,
    /// Remainders of short READs, by offset. The first is requested first, because the pieces that
    /// wait for it take the places of further READs.
    missing: BTreeMap<u64, u64>,
    spare: Vec<Vec<u8>>,
    /// Offset of the next READ, number of octets that the sink has, and the known end of the file.
    next: u64,
    delivered: u64,
    end: Option<u64>,
}

/// Reads `file` to its present end, and gives it to `sink` in order. `progress` is called with the
/// number of octets that the sink has.
///
/// # Errors
/// [`TransferFailure`] names the step.
pub fn get<P: Provider>(
    client: &mut NfsClient<P>,
    file: SizedFile,
    flow: TransferFlow,
    sink: &mut FileSink<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<TransferTotals, TransferFailure> {
    get_rest(client, FileRest { file, from: 0 }, flow, sink, progress)
}

/// The end of a file whose beginning is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRest {
    /// The file.
    pub file: SizedFile,
    /// Octets of its beginning.
    pub from: u64,
}

/// Reads the end of a file as [`get`] reads all of it. `progress` counts the beginning, too; the
/// totals do not.
///
/// # Errors
/// [`TransferFailure`] names the step.
pub fn get_rest<P: Provider>(
    client: &mut NfsClient<P>,
    rest: FileRest,
    flow: TransferFlow,
    sink: &mut FileSink<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<TransferTotals, TransferFailure> {
    let FileRest { file: SizedFile { file, len }, from } = rest;
    let mut incoming = IncomingReads {
        outstanding: HashMap::new(),
        early: BTreeMap::new(),
        missing: BTreeMap::new(),
        spare: Vec::new(),
        next: from,
        delivered: from,
        end: None,
    };
    let mut moved = TransferTotals::default();
    loop {
        while incoming.outstanding.len() + incoming.early.len() < flow.depth
            && let Some(range) = incoming.wanted(len, flow)
        {
            let count = u32::try_from(range.len).unwrap_or(flow.piece);
            let ticket = match client.begin_read(file, range.offset, count) {
                Err(error) if client.recovers(error) => {
                    incoming.missing.insert(range.offset, range.len);
                    continue;
                }
                begun => begun.map_err(|error| {
                    TransferFailure::call(step("READ", range.offset, range.len), error)
                })?,
            };
            moved.calls += 1;
            incoming.outstanding.insert(ticket, range);
        }
        if incoming.outstanding.is_empty() {
            debug_assert!(
                incoming.early.is_empty() && incoming.missing.is_empty(),
                "a READ brings what is next"
            );
            moved.octets = incoming.delivered - from;
            return Ok(moved);
        }
        incoming.finish(client)?;
        incoming.deliver(sink)?;
        progress(incoming.delivered);
    }
}

impl IncomingReads {
    /// Returns the next range to ask for. Past the known length one READ at a time looks for the
    /// end.
    fn wanted(&mut self, len: u64, flow: TransferFlow) -> Option<FileRange> {
        if let Some((offset, len)) = self.missing.pop_first() {
            return Some(FileRange { offset, len });
        }
        let is_within = self.next < len || self.outstanding.is_empty() && self.early.is_empty();
        if self.end.is_some() || !is_within {
            return None;
        }
        let range = FileRange { offset: self.next, len: flow.piece.into() };
        self.next += range.len;
        Some(range)
    }

    fn finish<P: Provider>(&mut self, client: &mut NfsClient<P>) -> Result<(), TransferFailure> {
        let finished = client.finish().map_err(|error| TransferFailure::call("READ", error))?;
        let Some(FileRange { offset, len }) = self.outstanding.remove(&finished.ticket()) else {
            return Ok(());
        };
        let mut room = self.spare.pop().unwrap_or_default();
        room.resize(usize::try_from(len).unwrap_or(0), 0);
        let failed = |error| TransferFailure::call(step("READ", offset, len), error);
        let read = match client.finish_read(finished, &mut room) {
            Err(Error::Nfs(Status::Jukebox)) if client.waits() => {
                self.missing.insert(offset, len);
                self.spare.push(room);
                return Ok(());
            }
            Err(error) if client.recovers(error) => {
                self.missing.insert(offset, len);
                self.spare.push(room);
                return Ok(());
            }
            read => read.map_err(failed)?,
        };
        client.end_wait();
        let count = read.count as u64;
        room.truncate(read.count);
        if read.eof {
            self.end = Some(self.end.map_or(offset + count, |end| end.min(offset + count)));
        } else if count == 0 {
            return Err(failed(Error::Nonsense(
                "the server read nothing, and it is not the end of the file",
            )));
        } else if count < len {
            // RFC 1813 §3.3.6 [1813-40]: after a short READ without eof a client reads the rest
            self.missing.insert(offset + count, len - count);
        }
        self.early.insert(offset, room);
        Ok(())
    }

    /// Gives the sink what is next.
    fn deliver(&mut self, sink: &mut FileSink<'_>) -> Result<(), TransferFailure> {
        while let Some(room) = self.early.remove(&self.delivered) {
            let offset = self.delivered;
            self.delivered += room.len() as u64;
            if !room.is_empty() {
                let local = |error| {
                    TransferFailure::local(
                        format!("storing {} octets at {offset}", room.len()),
                        error,
                    )
                };
                sink(offset, &room).map_err(local)?;
            }
            let is_over = room.is_empty();
            self.spare.push(room);
            if is_over {
                break;
            }
        }
        // A READ that began past the end is not awaited.
        if self.end.is_some_and(|end| self.delivered >= end) {
            self.early.clear();
            self.missing.clear();
        }
        Ok(())
    }
}
