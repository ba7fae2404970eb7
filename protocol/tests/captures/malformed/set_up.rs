//! Malformed MPA Requests and Replies.

use stag_protocol::iwarp::mpa::{
    Config, FRAME_MAX, Frame, FrameError, Initiator, Kind, NOT_NEGOTIATED, Negotiated, Outcome,
    PRIVATE_DATA_MAX, Parsed, Request,
};
use stag_protocol::rpcrdma::{PrivateData, Side};

use super::{Court, Mutation, changes, cuts};
use crate::calls::capture;
use crate::{NFS3, NFS41};

/// Configuration that Linux' client asks for.
const CONFIG: Config = Config {
    crc: stag_protocol::iwarp::mpa::Crc::Never,
    revision: stag_protocol::iwarp::mpa::Revision::Two,
    rtr: None,
    ird: 128,
    ord: 0,
};
const KEY_LEN: usize = 16;

/// Returns true if the octets are accepted as a frame.
fn judge(octets: &[u8], kind: Kind, mutation: Mutation) -> bool {
    let frame = match Frame::parse(octets, kind) {
        Ok(Parsed::Frame(frame, len)) => {
            assert!(len <= octets.len());
            frame
        }
        Ok(Parsed::NeedMore(len)) => {
            assert!(len > octets.len() && len <= FRAME_MAX);
            return false;
        }
        Err(error) => {
            assert!(!mutation.is_cut(), "what is there is right");
            let in_key = mutation.at() < KEY_LEN;
            assert_eq!(matches!(error, FrameError::NotMpa | FrameError::WrongKind), in_key);
            return false;
        }
    };
    assert!(mutation.at() >= KEY_LEN && !mutation.is_cut());
    PrivateData::find(frame.private_data);
    if frame.private_data.len() <= PRIVATE_DATA_MAX {
        let again = frame.emit();
        assert_eq!(Frame::parse(&again, kind), Ok(Parsed::Frame(frame, again.len())));
    }
    match kind {
        Kind::Request => accept(octets, &frame),
        Kind::Reply => adopt(&frame),
    }
    true
}

/// The Reply answers the Request in its own terms, and promises no more than we have (RFC 6581 §9,
/// §10).
fn accept(octets: &[u8], asked: &Frame<'_>) {
    let Ok(Some(request)) = Request::parse(octets) else { return };
    let config = Config { ird: 16, ord: 16, ..CONFIG };
    let (reply, negotiated) = request.accept(&config, b"hello");
    let Ok(Parsed::Frame(reply, _)) = Frame::parse(&reply, Kind::Reply) else {
        panic!("our own Reply")
    };
    assert_eq!(
        (reply.revision, reply.crc, reply.private_data),
        (asked.revision, asked.crc, &b"hello"[..])
    );
    assert_eq!(reply.enhanced.is_some(), asked.enhanced.is_some());
    check_depths(&negotiated, &config);
    if let Some(words) = asked.enhanced {
        assert_eq!(words.rtr.is_some(), negotiated.rtr.is_some());
        assert!(words.ird == NOT_NEGOTIATED || negotiated.ord <= words.ird);
    }
}

fn adopt(reply: &Frame<'_>) {
    match Initiator::new(CONFIG).handle_reply(reply) {
        Ok(Outcome::Accepted(negotiated, private_data)) => {
            assert!(
                !reply.reject && reply.enhanced.is_some() && private_data == reply.private_data
            );
            check_depths(&negotiated, &CONFIG);
        }
        Ok(Outcome::Rejected(..)) => assert!(reply.reject),
        Err(_) => assert!(!reply.reject || reply.enhanced.is_none()),
    }
}

fn check_depths(negotiated: &Negotiated, config: &Config) {
    assert!(negotiated.ird <= config.ird && negotiated.ord <= config.ord);
}

#[test]
fn set_up_frames_malformed_at_every_octet_are_refused_or_negotiated_within_our_means() {
    let mut court = Court::default();
    let mut taken = [0; 2];
    for file in [NFS3, NFS41] {
        let conversation = capture(file).conversation;
        for (side, kind) in [(Side::Client, Kind::Request), (Side::Server, Kind::Reply)] {
            let (from, frame) = &conversation[usize::from(side == Side::Server)];
            assert_eq!(*from, side);
            let mut hear = |octets: &[u8], mutation| {
                let is_taken =
                    court.hear(&format!("{kind:?}"), mutation, || judge(octets, kind, mutation));
                taken[usize::from(is_taken == Some(true))] += 1;
            };
            cuts(frame, &mut hear);
            changes(&mut frame.clone(), frame.len(), &mut hear);
        }
    }
    println!("{} refused, {} taken", taken[0], taken[1]);
    court.close();
    assert!(taken.iter().all(|count| *count > 100));
}
