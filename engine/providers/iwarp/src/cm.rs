//! Connection set-up: TCP, then MPA Request and Reply (RFC 5044 §7.1, RFC 6581).

use crate::{
    close,
    config::FpduMax,
    conn::{Conn, Link, Shared, State, Stream},
    rx, siw,
    sock::{self, Moved},
    tx::Transmit,
};
use stag_protocol::iwarp::{
    fpdu,
    mpa::{self, Failure, FpduSize, Frame, Kind, Negotiated, Outcome, PRIVATE_DATA_MAX, Parsed, Request},
    rdmap::{Peer, Violation},
};
use stag_verbs::soft::SendQueue;
use stag_verbs::{Cause, Event, FabricFault, Refusal};
use std::io::IoSlice;

/// TCP has decided about our connect.
pub(crate) fn tcp_ready(conn: &mut Conn, shared: &mut Shared) {
    let State::AwaitTcp { initiator, request } = &conn.state else { return };
    if let Err(error) = sock::connected(&conn.socket) {
        shared.stats.handshakes.lost += 1;
        return close::end_now(conn, shared, Cause::Fabric(FabricFault::from(&error)));
    }
    let (initiator, request) = (*initiator, **request);
    conn.state = State::AwaitReply { initiator };
    // RFC 5044 §7.1.2 [5044-45]
    send_frame(conn, shared, &request);
}

/// Frames go out with one call into an empty socket buffer; siw wants them whole.
fn send_frame(conn: &mut Conn, shared: &mut Shared, frame: &[u8]) {
    shared.stats.marked_frames += u64::from(mpa::is_marked(frame));
    match sock::send(&conn.socket, &[IoSlice::new(frame)], false, &mut shared.stats) {
        Moved::Octets(octets) if octets == frame.len() => {}
        _ => {
            shared.stats.handshakes.lost += 1;
            close::end_now(conn, shared, Cause::Fabric(FabricFault::Lost));
        }
    }
}

/// Set-up octets arrived.
pub(crate) fn frame(conn: &mut Conn, shared: &mut Shared) {
    match conn.state {
        // RFC 5044 §7.1.2 [5044-46]
        State::AwaitRequest => request(conn, shared),
        // RFC 5044 §7.1.2 [5044-49]
        State::AwaitReply { .. } => reply(conn, shared),
        _ => {
            // The peer talks before it has our Reply.
            shared.stats.handshakes.surplus += 1;
            close::end_now(conn, shared, Cause::Handshake);
        }
    }
}

fn request(conn: &mut Conn, shared: &mut Shared) {
    match Request::parse(conn.input.content()) {
        Ok(None) => {}
        Ok(Some(request)) => {
            let limit = shared.config.limits.connections + shared.config.spare;
            // RFC 5042 §6.4.1 [5042-13]
            if shared.census.taken + shared.census.waiting >= limit {
                return turn_away(conn, shared);
            }
            conn.private_data = request.frame.private_data.into();
            conn.state = State::AwaitAnswer { request_len: conn.input.len };
            conn.deadline = None;
            conn.is_known = true;
            shared.emit(Event::ConnectRequest { qp: conn.qp });
        }
        Err(error) => {
            use stag_protocol::iwarp::mpa::FrameError;
            let handshakes = &mut shared.stats.handshakes;
            let count = match error {
                FrameError::Surplus => &mut handshakes.surplus,
                _ => &mut handshakes.malformed,
            };
            *count += 1;
            // RFC 5044 §7.1.2, §8 [5044-47]
            close::end_now(conn, shared, Cause::Handshake);
        }
    }
}

/// Rejects the peer because a limit is reached.
fn turn_away(conn: &mut Conn, shared: &mut Shared) {
    // RFC 6581 §9.3 [6581-25]
    shared.stats.handshakes.shed += 1;
    answer_no(conn, shared, &[]);
}

/// Says no, and closes at once: a peer that awaits our Reply has nothing on its way that could make a reset of it, and
/// those turned away hold no places.
fn answer_no(conn: &mut Conn, shared: &mut Shared, private_data: &[u8]) {
    if let Ok(Some(request)) = Request::parse(conn.input.content()) {
        let reply = request.reject(&shared.config.mpa(), private_data);
        send_frame(conn, shared, &reply);
    }
    // RFC 5044 §7.1.2 [5044-48]
    close::end_now(conn, shared, Cause::Local);
}

/// Sends the Reply. The connection is established with the initiator's first FPDU, which has to come in time.
pub(crate) fn accept(conn: &mut Conn, shared: &mut Shared, private_data: &[u8]) -> Result<(), Refusal> {
    // RFC 5044 §7.1.1 [5044-44]
    if private_data.len() > shared.config.limits.private_data_len {
        return Err(Refusal::Malformed);
    }
    let State::AwaitAnswer { request_len } = conn.state else { return Err(Refusal::Gone) };
    if shared.census.taken >= shared.config.limits.connections {
        turn_away(conn, shared);
        return Err(Refusal::Gone);
    }
    let Ok(Some(request)) = Request::parse(conn.input.content()) else { return Err(Refusal::Gone) };
    let (reply, negotiated) = request.accept(&shared.config.mpa(), private_data);
    conn.input.consume(request_len);
    start(conn, shared, &negotiated);
    conn.state = State::AwaitFpdu;
    conn.deadline = Some(shared.now + shared.config.first_message_timeout);
    send_frame(conn, shared, &reply);
    Ok(())
}

/// Turns the peer away.
pub(crate) fn reject(conn: &mut Conn, shared: &mut Shared, private_data: &[u8]) {
    let State::AwaitAnswer { .. } = conn.state else { return };
    debug_assert!(private_data.len() <= shared.config.limits.private_data_len, "the engine keeps the limit");
    let private_data = private_data.get(..PRIVATE_DATA_MAX).unwrap_or(private_data);
    answer_no(conn, shared, private_data);
}

fn reply(conn: &mut Conn, shared: &mut Shared) {
    let State::AwaitReply { initiator } = conn.state else { return };
    let (frame, len) = match Frame::parse(conn.input.content(), Kind::Reply) {
        Ok(Parsed::NeedMore(_)) => return,
        Ok(Parsed::Frame(frame, len)) => (frame, len),
        // RFC 5044 §7.1.2, §8 [5044-50]
        Err(_) => return refuse(conn, shared),
    };
    conn.deadline = None;
    let outcome = initiator.handle_reply(&frame);
    conn.private_data = frame.private_data.into();
    match outcome {
        Ok(Outcome::Accepted(negotiated, _)) => {
            // RFC 5044 §7.1 [5044-32]
            conn.input.consume(len);
            start(conn, shared, &negotiated);
            conn.state = State::Established;
            if negotiated.peer == Peer::Siw {
                siw::await_sign(conn, shared);
            }
            conn.wants_flush = true; // the indication
            shared.emit(Event::Established { qp: conn.qp });
            // siw may send behind its Reply at once.
            rx::use_input(conn, shared);
        }
        Ok(Outcome::Rejected(..)) => {
            shared.stats.handshakes.rejected += 1;
            // RFC 5044 §7.1.2 [5044-48]
            close::end_gently(conn, shared, Cause::Rejected);
        }
        Err(Failure::Close(_)) => refuse(conn, shared),
        Err(Failure::Terminate(cause, negotiated)) => {
            shared.stats.handshakes.unsuitable += 1;
            conn.input.consume(len);
            start(conn, shared, &negotiated);
            close::violate(conn, shared, Violation::new(cause));
        }
    }
}

/// The peer's Reply is none.
fn refuse(conn: &mut Conn, shared: &mut Shared) {
    shared.stats.handshakes.malformed += 1;
    close::end_now(conn, shared, Cause::Handshake);
}

/// Both sides agree: from here on octets are FPDUs.
fn start(conn: &mut Conn, shared: &mut Shared, negotiated: &Negotiated) {
    let config = &shared.config;
    let (size, mulpdu) = match config.fpdu_max {
        FpduMax::Auto => (negotiated.fpdu_size(), None),
        FpduMax::Segment => (FpduSize::Segment, None),
        FpduMax::Full => (FpduSize::Full, None),
        FpduMax::Ulpdu(octets) => (FpduSize::Full, Some(octets.clamp(fpdu::MULPDU_MIN, fpdu::MULPDU_MAX))),
    };
    shared.stats.without_crc += u64::from(!negotiated.crc);
    shared.stats.long_fpdus += u64::from(size == FpduSize::Full && mulpdu.is_none());
    let mulpdu = mulpdu.unwrap_or_else(|| negotiated.mulpdu(size, sock::emss(&conn.socket, conn.peer)));
    let mut stream = Stream::new(negotiated);
    let mut transmit = Transmit::new(negotiated, mulpdu, size == FpduSize::Segment);
    transmit.begin_rtr(&mut stream);
    // RFC 5044 §7.1 [5044-33]
    conn.link = Some(Box::new(Link {
        stream,
        // RFC 5044 §4.4, §7.1.1 [5044-20] [5044-22]
        crc: negotiated.crc,
        peer: negotiated.peer,
        may_read: negotiated.ord > 0,
        queue: SendQueue::new(config.limits.send_queue),
        transmit,
        landing: None,
        is_amid_tagged: false,
        blamed: None,
    }));
}
