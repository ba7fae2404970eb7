//! Sending: gathers the waiting FPDUs from their sources and passes them to the kernel.

use super::SendResult;
use crate::{
    conn::{IwarpLink, IwarpShared},
    sock::{self, SocketResult},
    stats::IwarpStats,
    transmit::{FPDUS, Fpdu, FpduPayload, Pieces, Transmit},
};
use stag_pools::{RemoteKey, Scope, Windows};
use stag_protocol::iwarp::fpdu::Part;
use stag_verbs::{Status, soft::SendQueue};
use std::{io::IoSlice, iter::once, os::fd::OwnedFd};

/// Pieces of memory that one system call gathers: header, payload and trailer of each FPDU. If
/// payload is in several pieces, the excess is left to the next call.
pub(super) const PIECES: usize = 3 * FPDUS;
/// Pieces that suffice for most calls: six FPDUs, one for each Write of 64 KiB and the reply after
/// them.
const FEW: usize = 24;

const _: () = assert!(PIECES <= 1024, "the kernel's limit (UIO_MAXIOV)");

impl IwarpLink {
    /// Passes waiting FPDUs to the kernel, once.
    pub(super) fn send(
        &mut self,
        socket: &OwnedFd,
        scope: Scope,
        shared: &mut IwarpShared,
    ) -> SendResult {
        let IwarpShared { windows, stats, scratch, .. } = shared;
        let (moved, offered) = if self.transmit.has_markers {
            self.send_marked(socket, scope, windows, scratch, stats)
        } else {
            self.send_gathered(socket, scope, windows, stats)
        };
        let taken = match moved {
            SocketResult::Octets(taken) => taken,
            SocketResult::WouldBlock | SocketResult::End => 0,
            SocketResult::Broken(_) => return SendResult::Broken,
        };
        self.consume(taken, stats);
        if taken < offered {
            stats.sendmsg_short += 1;
            return SendResult::Part;
        }
        SendResult::All
    }

    /// Sends header, payload and trailer of each FPDU from their places in memory.
    fn send_gathered(
        &self,
        socket: &OwnedFd,
        scope: Scope,
        windows: &mut Windows,
        stats: &mut IwarpStats,
    ) -> (SocketResult, usize) {
        let (window, whole) = self.transmit.window_run(scope, windows);
        let pieces = self.transmit.fpdus.iter().take(whole).map(|fpdu| 2 + fpdu.pieces);
        // Unused pieces cost as much as used ones.
        if pieces.sum::<usize>() <= FEW {
            self.send_pieces::<FEW>(socket, &window, whole, stats)
        } else {
            self.send_pieces::<PIECES>(socket, &window, whole, stats)
        }
    }

    fn send_pieces<const N: usize>(
        &self,
        socket: &OwnedFd,
        window: &WindowRun<'_>,
        whole: usize,
        stats: &mut IwarpStats,
    ) -> (SocketResult, usize) {
        let mut pieces = [IoSlice::new(&[]); N];
        let (used, offered) = self.gather(window, whole, &mut pieces);
        let pieces = pieces.get(..used).unwrap_or_default();
        (sock::send(socket, pieces, self.transmit.ends_segments, stats), offered)
    }

    /// The pieces of the first `whole` FPDUs that the kernel does not have, with their number and
    /// octets.
    pub(super) fn gather<'a>(
        &'a self,
        window: &WindowRun<'a>,
        whole: usize,
        pieces: &mut [IoSlice<'a>],
    ) -> (usize, usize) {
        let mut free = pieces.iter_mut();
        let (mut skip, mut offered, mut used) = (self.transmit.sent, 0, 0);
        for fpdu in self.transmit.fpdus.iter().take(whole) {
            let payload = window.pieces(fpdu, &self.queue);
            let (head, tail) = (once(&fpdu.header[..]), once(&fpdu.framed.trailer[..]));
            for octets in head.chain(payload).chain(tail) {
                let dropped = skip.min(octets.len());
                skip -= dropped;
                let octets = octets.get(dropped..).unwrap_or_default();
                if !octets.is_empty()
                    && let Some(piece) = free.next()
                {
                    *piece = IoSlice::new(octets);
                    offered += octets.len();
                    used += 1;
                }
            }
        }
        (used, offered)
    }
}

impl IwarpLink {
    /// Sends with markers, which come every 512 octets: the FPDUs are assembled in one buffer.
    fn send_marked(
        &self,
        socket: &OwnedFd,
        scope: Scope,
        windows: &mut Windows,
        scratch: &mut Vec<u8>,
        stats: &mut IwarpStats,
    ) -> (SocketResult, usize) {
        let (window, whole) = self.transmit.window_run(scope, windows);
        scratch.clear();
        for fpdu in self.transmit.fpdus.iter().take(whole) {
            let payload = window.pieces(fpdu, &self.queue);
            for part in fpdu.framed.parts() {
                match part {
                    Part::Marker(marker) => scratch.extend_from_slice(&marker),
                    Part::Header(range) => {
                        scratch.extend_from_slice(fpdu.header.get(range).unwrap_or_default())
                    }
                    Part::Payload(range) => {
                        stats.octets_gathered += range.len() as u64;
                        payload
                            .clone()
                            .part(range)
                            .for_each(|part| scratch.extend_from_slice(part));
                    }
                    Part::Trailer(range) => {
                        scratch
                            .extend_from_slice(fpdu.framed.trailer.get(range).unwrap_or_default());
                    }
                }
            }
        }
        let rest = scratch.get(self.transmit.sent..).unwrap_or_default();
        (sock::send(socket, &[IoSlice::new(rest)], self.transmit.ends_segments, stats), rest.len())
    }

    /// Handles that the kernel accepted `octets` more: completely sent work is done.
    pub(super) fn consume(&mut self, octets: usize, stats: &mut IwarpStats) {
        let Self { queue, transmit, .. } = self;
        transmit.sent += octets;
        while let Some(fpdu) = transmit.fpdus.front() {
            // RFC 5040 §5.5 [5040-45]: a Send or Write completes only once all of it is sent
            if transmit.sent < fpdu.wire_len {
                return;
            }
            transmit.sent -= fpdu.wire_len;
            transmit.queued -= fpdu.wire_len;
            stats.fpdus_out += 1;
            for seq in fpdu.ends.clone() {
                queue.complete(seq, Status::Success, None);
            }
            transmit.fpdus.pop_front();
        }
        debug_assert_eq!(
            (transmit.sent, transmit.queued),
            (0, 0),
            "nothing waits, nothing is half sent"
        );
    }
}

/// The part of one window that a system call sends from.
pub(super) struct WindowRun<'a> {
    offset: u64,
    octets: &'a [u8],
}

impl<'a> WindowRun<'a> {
    /// The payload of `fpdu`, which is in this run if it comes from a window.
    fn pieces(&self, fpdu: &Fpdu, queue: &'a SendQueue) -> Pieces<'a> {
        match fpdu.payload {
            FpduPayload::Nothing => Pieces::one(&[]),
            FpduPayload::Work { from, len } => Pieces::of_work(queue, from, len),
            FpduPayload::Window { offset, len, .. } => {
                let at = (offset - self.offset) as usize;
                let octets = self.octets.get(at..at + len);
                Pieces::one(octets.expect("the run spans the FPDUs it was made for"))
            }
        }
    }
}

impl Transmit {
    /// The octets of a window that the waiting FPDUs carry, and the number of FPDUs that can be
    /// sent with it: the table of windows lends one window at a time.
    pub(super) fn window_run<'w>(
        &self,
        scope: Scope,
        windows: &'w mut Windows,
    ) -> (WindowRun<'w>, usize) {
        let mut run: Option<(RemoteKey, u64, u64)> = None;
        let mut whole = 0;
        for fpdu in &self.fpdus {
            if let FpduPayload::Window { key, offset, len } = fpdu.payload {
                run = match run {
                    None => Some((key, offset, offset + len as u64)),
                    Some((of, start, end)) if of == key && end == offset => {
                        Some((of, start, end + len as u64))
                    }
                    Some(_) => break,
                };
            }
            whole += 1;
        }
        let Some((key, offset, end)) = run else {
            return (WindowRun { offset: 0, octets: &[] }, whole);
        };
        let octets = windows.source(scope, key, offset, (end - offset) as usize);
        (WindowRun { offset, octets: octets.expect("a window stays while FPDUs carry it") }, whole)
    }
}
