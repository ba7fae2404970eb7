//! Connection set-up: TCP, then MPA Request and Reply (RFC 5044 §7.1, RFC 6581).

use crate::{
    Iwarp, IwarpAddress, close,
    config::FpduMax,
    conn::{IwarpConn, IwarpLink, IwarpShared, IwarpState},
    siw,
    sock::{self, SocketResult, fault},
    transmit::{Stream, Transmit},
};
use rustix::io::Errno;
use stag_protocol::iwarp::{
    fpdu,
    mpa::{
        self, Failure, FpduSize, Frame, Kind, Negotiated, Outcome, PRIVATE_DATA_MAX, Parsed,
        Request,
    },
    rdmap::{Peer, Violation},
};
use stag_verbs::soft::SendQueue;
use stag_verbs::{Cause, Event, FabricFault, Qp, Refusal};
use std::io::IoSlice;

impl Iwarp {
    pub(crate) fn start_connect(
        &mut self,
        to: IwarpAddress,
        private_data: &[u8],
    ) -> Result<Qp, FabricFault> {
        // RFC 5044 §7.1.1 [5044-44]: the Private Data have at most 512 octets
        if private_data.len() > self.shared.config.limits.private_data_len {
            return Err(FabricFault::Os(Errno::MSGSIZE.raw_os_error()));
        }
        if self.shared.census.taken >= self.shared.config.limits.connections {
            return Err(FabricFault::Exhausted);
        }
        let socket = sock::connect(to.0, &self.shared.config).map_err(|error| fault(&error))?;
        let initiator =
            mpa::Initiator::new(self.shared.crc_losers.config(&self.shared.config, to.0));
        let request = Box::new(initiator.request(private_data));
        let deadline = self.shared.now + self.shared.config.reply_timeout;
        let adopted = self.adopt(socket, to, IwarpState::AwaitTcp { initiator, request });
        let conn = adopted.ok_or(FabricFault::Exhausted)?;
        conn.is_known = true;
        conn.deadline = Some(deadline);
        let qp = conn.qp;
        self.settle(qp.0);
        Ok(qp)
    }
}

/// Handles the outcome of TCP's connect.
pub(crate) fn tcp_ready(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    let IwarpState::AwaitTcp { initiator, request } = &conn.state else { return };
    if let Err(error) = sock::connected(&conn.socket) {
        shared.stats.handshakes.lost += 1;
        return close::end_now(conn, shared, Cause::Fabric(FabricFault::from(&error)));
    }
    let (initiator, request) = (*initiator, **request);
    conn.state = IwarpState::AwaitReply { initiator };
    // RFC 5044 §7.1.2 [5044-45]: an initiator sends a valid Request
    send_frame(conn, shared, &request);
}

/// Sends a frame with one call into an empty socket buffer, because siw requires it in one piece.
fn send_frame(conn: &mut IwarpConn, shared: &mut IwarpShared, frame: &[u8]) {
    shared.stats.marked_frames += u64::from(mpa::is_marked(frame));
    match sock::send(&conn.socket, &[IoSlice::new(frame)], false, &mut shared.stats) {
        SocketResult::Octets(octets) if octets == frame.len() => {}
        _ => {
            shared.stats.handshakes.lost += 1;
            close::end_now(conn, shared, Cause::Fabric(FabricFault::Lost));
        }
    }
}

/// Handles set-up octets. Returns true if the connection is established, so that the rest of its
/// input is FPDUs: siw may send directly after its Reply.
pub(crate) fn frame(conn: &mut IwarpConn, shared: &mut IwarpShared) -> bool {
    match conn.state {
        // RFC 5044 §7.1.2 [5044-46]: a responder waits for a whole, valid Request
        IwarpState::AwaitRequest => request(conn, shared),
        // RFC 5044 §7.1.2 [5044-49]: an initiator sends no FPDU before a valid Reply
        IwarpState::AwaitReply { .. } => reply(conn, shared),
        _ => {
            // The peer sends before it has our Reply.
            shared.stats.handshakes.surplus += 1;
            close::end_now(conn, shared, Cause::Handshake);
        }
    }
    conn.may_send()
}

fn request(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    match Request::parse(conn.input.content()) {
        Ok(None) => {}
        Ok(Some(request)) => {
            let limit = shared.config.limits.connections + shared.config.spare;
            // RFC 5042 §6.4.1 [5042-13]: scarce resources are handed out to a limit
            if shared.census.taken + shared.census.waiting >= limit {
                return turn_away(conn, shared);
            }
            conn.private_data = request.frame.private_data.into();
            conn.state = IwarpState::AwaitAnswer { request_len: conn.input.len };
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
            // RFC 5044 §7.1.2, §8 [5044-47]: a malformed Request closes the TCP connection at once
            close::end_now(conn, shared, Cause::Handshake);
        }
    }
}

/// Rejects the peer because a limit is reached.
fn turn_away(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    // RFC 6581 §9.3 [6581-25]: a deviation: limits and timeouts send no Terminate
    shared.stats.handshakes.shed += 1;
    answer_no(conn, shared, &[]);
}

/// Rejects and closes at once. A peer that awaits our Reply has no octets in flight that could
/// cause a reset, and rejected peers hold no places.
fn answer_no(conn: &mut IwarpConn, shared: &mut IwarpShared, private_data: &[u8]) {
    if let Ok(Some(request)) = Request::parse(conn.input.content()) {
        let reply = request.reject(&shared.config.mpa(), private_data);
        send_frame(conn, shared, &reply);
    }
    // RFC 5044 §7.1.2 [5044-48]: a rejection ends MPA and, by our choice, TCP
    close::end_now(conn, shared, Cause::Local);
}

/// Sends the Reply. The connection is established with the initiator's first FPDU, which has a time
/// limit.
pub(crate) fn accept(
    conn: &mut IwarpConn,
    shared: &mut IwarpShared,
    private_data: &[u8],
) -> Result<(), Refusal> {
    // RFC 5044 §7.1.1 [5044-44]: the Private Data have at most 512 octets
    if private_data.len() > shared.config.limits.private_data_len {
        return Err(Refusal::Malformed);
    }
    let IwarpState::AwaitAnswer { request_len } = conn.state else { return Err(Refusal::Gone) };
    if shared.census.taken >= shared.config.limits.connections {
        turn_away(conn, shared);
        return Err(Refusal::Gone);
    }
    let Ok(Some(request)) = Request::parse(conn.input.content()) else { return Err(Refusal::Gone) };
    let (reply, negotiated) = request.accept(&shared.config.mpa(), private_data);
    conn.input.consume(request_len);
    start(conn, shared, &negotiated);
    conn.state = IwarpState::AwaitFpdu;
    conn.deadline = Some(shared.now + shared.config.first_message_timeout);
    send_frame(conn, shared, &reply);
    Ok(())
}

/// Rejects the peer.
pub(crate) fn reject(conn: &mut IwarpConn, shared: &mut IwarpShared, private_data: &[u8]) {
    let IwarpState::AwaitAnswer { .. } = conn.state else { return };
    debug_assert!(
        private_data.len() <= shared.config.limits.private_data_len,
        "the engine keeps the limit"
    );
    let private_data = private_data.get(..PRIVATE_DATA_MAX).unwrap_or(private_data);
    answer_no(conn, shared, private_data);
}

fn reply(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    let IwarpState::AwaitReply { initiator } = conn.state else { return };
    let (frame, len) = match Frame::parse(conn.input.content(), Kind::Reply) {
        Ok(Parsed::NeedMore(_)) => return,
        Ok(Parsed::Frame(frame, len)) => (frame, len),
        // RFC 5044 §7.1.2, §8 [5044-50]: a malformed Reply closes the TCP connection at once
        Err(_) => return refuse(conn, shared),
    };
    conn.deadline = None;
    let outcome = initiator.handle_reply(&frame);
    conn.private_data = frame.private_data.into();
    match outcome {
        Ok(Outcome::Accepted(negotiated, _)) => {
            // RFC 5044 §7.1 [5044-32]: the FPDUs follow directly after Request and Reply
            conn.input.consume(len);
            start(conn, shared, &negotiated);
            conn.state = IwarpState::Established;
            if negotiated.peer == Peer::Siw {
                siw::await_sign(conn, shared);
            }
            conn.wants_flush = true; // the indication
            shared.emit(Event::Established { qp: conn.qp });
        }
        Ok(Outcome::Rejected(..)) => {
            shared.stats.handshakes.rejected += 1;
            // RFC 5044 §7.1.2 [5044-48]: a rejection ends MPA and, by our choice, TCP
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

/// Handles an invalid Reply.
fn refuse(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    shared.stats.handshakes.malformed += 1;
    close::end_now(conn, shared, Cause::Handshake);
}

/// Completes the negotiation: from here on octets are FPDUs.
fn start(conn: &mut IwarpConn, shared: &mut IwarpShared, negotiated: &Negotiated) {
    let config = &shared.config;
    let (size, mulpdu) = match config.fpdu_max {
        FpduMax::Auto => (negotiated.fpdu_size(), None),
        FpduMax::Segment => (FpduSize::Segment, None),
        FpduMax::Full => (FpduSize::Full, None),
        FpduMax::Ulpdu(octets) => {
            (FpduSize::Full, Some(octets.clamp(fpdu::MULPDU_MIN, fpdu::MULPDU_MAX)))
        }
    };
    shared.stats.without_crc += u64::from(!negotiated.crc);
    shared.stats.long_fpdus += u64::from(size == FpduSize::Full && mulpdu.is_none());
    let mulpdu =
        mulpdu.unwrap_or_else(|| negotiated.mulpdu(size, sock::emss(&conn.socket, conn.peer)));
    let mut stream = Stream::new(negotiated);
    let mut transmit = Transmit::new(negotiated, mulpdu, size == FpduSize::Segment);
    transmit.begin_rtr(&mut stream);
    // RFC 5044 §7.1 [5044-33]: a DDP endpoint exists before the first FPDU
    conn.link = Some(Box::new(IwarpLink {
        stream,
        // RFC 5044 §4.4, §7.1.1 [5044-20]: the upper layer does not see if CRC is used
        // RFC 5044 §4.4, §7.1.1 [5044-22]: a CRC that both ends decline is off from the first FPDU
        crc: negotiated.crc,
        peer: negotiated.peer,
        may_read: negotiated.ord > 0,
        queue: SendQueue::new(config.limits.send_queue),
        transmit,
        landing: None,
        is_amid_tagged: false,
        arrival: None,
        headers_first: 0,
        blamed: None,
    }));
}
