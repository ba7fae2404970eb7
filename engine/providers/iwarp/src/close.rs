//! The end of a connection: by a Terminate of either side, a FIN, a reset, or a request of this
//! side.
//!
//! Every end passes through [`end`]: work completes, windows are returned, and the engine gets the
//! cause last. The socket may stay open for a while so that a reset does not overtake sent octets.

use crate::{
    conn::{IwarpConn, IwarpLink, IwarpShared, IwarpState, terminate},
    sock,
    transmit::RTR_TOKEN,
};
use stag_protocol::iwarp::{
    rdmap::{self, Terminated, Violation},
    stream::OutstandingRead,
};
use stag_verbs::soft::Landing;
use stag_verbs::{Cause, Event, FabricFault, Status};

/// Handles a violation by the peer: the Terminate is the last thing we send. The caller flushes.
pub(crate) fn violate(conn: &mut IwarpConn, shared: &mut IwarpShared, violation: Violation) {
    let Some(link) = &mut conn.link else { return };
    if link.transmit.terminate(&mut link.stream, &violation) {
        shared.stats.terminates_sent.count(violation.terminate);
    }
    // RFC 5041 §6.2.2 [5041-36]: the upper layer names the error before the teardown
    // RFC 5044 §8 [5044-57]: a Terminate says why before TCP is closed
    conn.state =
        IwarpState::AwaitTerminateSent { cause: Cause::PeerFault(terminate(violation.terminate)) };
    conn.deadline = Some(shared.now + shared.config.linger);
    conn.wants_flush = true;
}

/// Handles the peer's Terminate.
pub(crate) fn terminated(conn: &mut IwarpConn, shared: &mut IwarpShared, message: &Terminated) {
    shared.stats.terminates_received.count(message.cause);
    if let Some(link) = &mut conn.link {
        shared.crc_losers.note(link.peer, message.cause, conn.peer);
        let blamed = link.stream.blamed_read(message).or_else(|| oldest_read(link, message.cause));
        let seq = blamed.map(|read| read.token).filter(|token| *token != RTR_TOKEN);
        let status =
            if is_access(message.cause) { Status::RemoteAccess } else { Status::RemoteOperation };
        link.blamed = seq.map(|seq| (seq, status));
    }
    // RFC 5040 §5.4 [5040-41]: a Terminate is reported to the upper layer
    end(conn, shared, Cause::Terminated(terminate(message.cause)));
    conn.state = IwarpState::Dead;
}

/// Finds the Read that a Terminate is about: only a Read's responder reports RDMAP protection
/// errors, and without further information it is the oldest Read.
fn oldest_read(link: &IwarpLink, cause: rdmap::Terminate) -> Option<&OutstandingRead> {
    link.stream.outstanding_reads().next().filter(|_| is_access(cause))
}

const fn is_access(cause: rdmap::Terminate) -> bool {
    cause.layer == 0 && cause.error_type == 1
}

/// Handles the peer's FIN: nothing more can arrive.
// RFC 5041 §6.2.1 [5041-34]: an orderly close of the peer is answered by one
// RFC 5044 §8 [5044-55]: the end or loss of the TCP connection is reported
pub(crate) fn finished(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    let cause = match &conn.state {
        IwarpState::AwaitTcp { .. } | IwarpState::AwaitReply { .. } => {
            Cause::Fabric(FabricFault::Lost)
        }
        IwarpState::AwaitTerminateSent { cause } => *cause,
        // RFC 5041 §3 [5041-6]: an orderly end of the stream is reported
        _ if conn.is_clean() => Cause::Peer,
        _ => Cause::Fabric(FabricFault::Lost),
    };
    if !conn.is_established() && conn.is_live() {
        shared.stats.handshakes.lost += 1;
    }
    end(conn, shared, cause);
    conn.state = IwarpState::Dead;
}

/// Ends the connection, sends our FIN, and keeps the socket open for a while.
pub(crate) fn end_gently(conn: &mut IwarpConn, shared: &mut IwarpShared, cause: Cause) {
    // RFC 5040 §7 [5040-50]: an error ends the stream and closes its connection
    sock::finish(&conn.socket);
    end(conn, shared, cause);
    conn.state = IwarpState::AwaitEnd;
    conn.input.len = 0;
    conn.deadline = Some(shared.now + shared.config.linger);
}

/// Ends the connection at once.
pub(crate) fn end_now(conn: &mut IwarpConn, shared: &mut IwarpShared, cause: Cause) {
    end(conn, shared, cause);
    conn.state = IwarpState::Dead;
}

/// Returns all resources and reports the end, once. The caller decides what happens to the socket.
pub(crate) fn end(conn: &mut IwarpConn, shared: &mut IwarpShared, cause: Cause) {
    if !conn.is_live() {
        return;
    }
    conn.deadline = None;
    conn.wants_out = false;
    conn.wants_flush = false;
    conn.is_stalled = false;
    (conn.output.len, conn.output_sent) = (0, 0);
    shared.output_spares.take_back(&mut conn.output);
    let qp = conn.qp;
    if let Some(link) = conn.link.take() {
        if let Some(key) = link.landing_window() {
            shared.windows.doubt(qp.scope(), key);
        }
        let landing = flush_queue(*link, conn, shared, cause);
        let events = &mut shared.events;
        shared.receives.forget(qp, |fenced| events.push_back(Event::Unbound { qp, fenced }));
        shared.windows.close(qp.scope(), |fenced| events.push_back(Event::Unbound { qp, fenced }));
        if let Some(event) = landing.and_then(|landing| shared.receives.abandon(landing)) {
            shared.emit(event); // of another connection, whose message waited for a receive
        }
        shared.may_resume = true;
    }
    if conn.is_known {
        shared.stats.disconnects.count(cause);
        // RFC 5040 §7.1 [5040-51]: an error is reported to our own upper layer
        // RFC 5041 §6.2.2 [5041-35]: loss, errors and invalid headers are reported
        shared.emit(Event::Disconnected { qp, cause });
    }
}

/// Completes pending work, in order. The Read that the peer refused, or the oldest work if the
/// fabric failed, gets the matching status.
fn flush_queue(
    link: IwarpLink,
    conn: &IwarpConn,
    shared: &mut IwarpShared,
    cause: Cause,
) -> Option<Landing> {
    let IwarpLink { mut queue, landing, blamed, .. } = link;
    let lost = || Some((queue.oldest_pending()?, Status::Lost));
    let marked = if matches!(cause, Cause::Fabric(_)) { lost() } else { blamed };
    let qp = conn.qp;
    for fenced in queue.flush(qp, marked, |event| shared.events.push_back(event)) {
        shared.emit(Event::Unbound { qp, fenced });
    }
    queue.give_back(&mut shared.spare_works);
    landing
}
