//! Malformed FPDUs at the stream that the whole ones came to.

use std::collections::{BTreeMap, BTreeSet};

use stag_protocol::iwarp::ddp;
use stag_protocol::iwarp::fpdu::{self, CRC_LEN, Crc32c, LENGTH_LEN};
use stag_protocol::iwarp::rdmap::{Peer, Terminate, TerminateForm, Terminated, Violation};
use stag_protocol::iwarp::stream::Inbound;
use stag_protocol::rpcrdma::Side;

use super::samples::{SAMPLES, samples};
use super::{Court, DENSE, Mutation, changes, cuts};
use crate::calls::capture;
use crate::crc::Table;
use crate::wire::{Stream, Visitor, walk};
use crate::{NFS3, NFS41};

/// FPDUs of other kinds than Sends that are malformed, of each kind and capture: those of the first
/// lengths seen.
const OTHERS: usize = 4;
const OPCODE: u8 = 0x0F;

struct Sweep {
    court: Court,
    /// Sends to malform, by their number.
    sends: BTreeSet<usize>,
    sent: usize,
    /// Lengths seen of the other kinds, by opcode.
    others: BTreeMap<u8, BTreeSet<usize>>,
    swept: usize,
    outcomes: BTreeMap<String, usize>,
}

/// Verdict on the octets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    NeedMore,
    Accepted,
    Refused(Terminate),
}

impl Visitor for Sweep {
    fn visit_fpdu(&mut self, _: Side, receiver: &Stream, fpdu: &[u8]) {
        let opcode = fpdu[3] & OPCODE;
        let is_chosen = if (3..=6).contains(&opcode) {
            self.sent += 1;
            assert!(fpdu.len() <= DENSE, "a Send is changed at every octet");
            self.sends.contains(&(self.sent - 1))
        } else {
            let lens = self.others.entry(opcode).or_default();
            lens.len() < OTHERS && lens.insert(fpdu.len())
        };
        if is_chosen {
            self.swept += 1;
            self.sweep(receiver, fpdu);
        }
    }
}

impl Sweep {
    fn sweep(&mut self, receiver: &Stream, fpdu: &[u8]) {
        let opcode = fpdu[3] & OPCODE;
        let name = format!("FPDU of {} octets, opcode {opcode}", fpdu.len());
        let ulpdu_len = usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]]));
        let header_len = LENGTH_LEN + ddp::header_len(fpdu[2]);
        let original = &fpdu[LENGTH_LEN..LENGTH_LEN + ulpdu_len];
        let mut plain = fpdu.to_vec();
        let mut judge = |octets: &[u8], mutation: Mutation| {
            let outcome = self.court.hear(&name, mutation, || {
                let outcome = judge_fpdu(receiver, octets, original);
                // With CRC off nothing past the headers is looked at, and no cut is taken for
                // whole.
                match mutation.at() {
                    _ if mutation.is_cut() => assert!(outcome == Outcome::NeedMore),
                    at if at >= header_len => assert!(outcome == Outcome::Accepted),
                    _ => {}
                }
                outcome
            });
            self.count(outcome);
        };
        cuts(fpdu, &mut judge);
        changes(&mut plain, fpdu.len(), &mut judge);
        // The same length in the frame and in what it holds.
        cuts(original, |ulpdu, mutation| {
            let outcome =
                self.court.hear(&name, mutation, || judge_ulpdu(receiver, ulpdu, original));
            self.count(outcome);
        });
        // Longer ones take too long.
        if fpdu.len() <= DENSE {
            self.sweep_with_crc(&name, fpdu);
        }
    }

    /// With CRC on nothing that was changed is accepted.
    fn sweep_with_crc(&mut self, name: &str, fpdu: &[u8]) {
        let mut sealed = fpdu.to_vec();
        let covered = fpdu.len() - CRC_LEN;
        let mut crc = Table::start();
        crc.update(&fpdu[..covered]);
        sealed[covered..].copy_from_slice(&crc.finish().to_le_bytes());
        assert!(matches!(fpdu::parse::<Table>(&sealed, true), Ok(fpdu::Parsed::Fpdu { .. })));
        let whole = sealed.clone();
        changes(&mut sealed, fpdu.len(), |octets, mutation| {
            if octets == whole {
                return;
            }
            self.court.hear(name, mutation, || match fpdu::parse::<Table>(octets, true) {
                Ok(fpdu::Parsed::NeedMore(len)) => assert!(len > octets.len()),
                Ok(fpdu::Parsed::Fpdu { .. }) => panic!("accepted"),
                Err(cause) => assert!([Terminate::MPA_CRC, Terminate::MPA_LENGTH].contains(&cause)),
            });
        });
    }

    fn count(&mut self, outcome: Option<Outcome>) {
        let class = match outcome {
            None => return,
            Some(Outcome::NeedMore) => "more needed".to_string(),
            Some(Outcome::Accepted) => "accepted".to_string(),
            Some(Outcome::Refused(cause)) => cause.to_string(),
        };
        *self.outcomes.entry(class).or_default() += 1;
    }
}

fn be32(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..at + 4].try_into().unwrap())
}

fn be64(octets: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(octets[at..at + 8].try_into().unwrap())
}

fn judge_fpdu(receiver: &Stream, octets: &[u8], original: &[u8]) -> Outcome {
    match fpdu::parse::<Table>(octets, false) {
        Ok(fpdu::Parsed::NeedMore(len)) => {
            assert!(len > octets.len() && len <= fpdu::FPDU_MAX);
            Outcome::NeedMore
        }
        Ok(fpdu::Parsed::Fpdu { ulpdu, consumed }) => {
            assert!(
                ulpdu.start == LENGTH_LEN
                    && ulpdu.end + CRC_LEN <= consumed
                    && consumed <= octets.len()
            );
            judge_ulpdu(receiver, &octets[ulpdu], original)
        }
        Err(cause) => {
            assert_eq!(cause, Terminate::MPA_LENGTH);
            let mut stream = receiver.clone();
            let violation = stream.refuse_fpdu(cause);
            // A responder sends nothing before a valid FPDU (RFC 5044 §7.1.2).
            end(stream, &violation, receiver.may_send())
        }
    }
}

fn judge_ulpdu(receiver: &Stream, ulpdu: &[u8], original: &[u8]) -> Outcome {
    let mut stream = receiver.clone();
    match stream.handle_ulpdu(ulpdu) {
        Ok(inbound) => {
            check_accepted(&inbound, ulpdu, original);
            Outcome::Accepted
        }
        Err(violation) => {
            // The header goes back as it came, unless it is MPA that complains (RFC 5040 Figure
            // 10).
            if violation.terminate.layer != 2 {
                let (segment_len, header) = violation.payload()[4..].split_at(2);
                assert_eq!(
                    (violation.payload()[2], header),
                    (0xC0, &ulpdu[..ddp::header_len(ulpdu[0])])
                );
                assert_eq!(segment_len, (ulpdu.len() as u16).to_be_bytes());
            }
            end(stream, &violation, true)
        }
    }
}

/// A violation is one that the RFCs name; it ends the stream, with one Terminate that says so, if
/// any, and nothing else.
fn end(mut stream: Stream, violation: &Violation, is_told: bool) -> Outcome {
    let cause = violation.terminate;
    assert!(Terminate::ALL.contains(&cause) && stream.is_ended() && !stream.may_send());
    let told = Terminated::parse(violation.payload(), Peer::Stag).unwrap();
    assert_eq!((told.cause, told.form), (cause, TerminateForm::Rfc));
    assert_eq!(stream.handle_ulpdu(&[]), Ok(Inbound::Dropped));
    let message = stream.begin_terminate(violation);
    assert_eq!(message.is_some(), is_told);
    if let Some(mut message) = message {
        let segment = stream.poll_segment(&mut message, fpdu::MULPDU_MIN).unwrap();
        assert!(segment.last && segment.header.ends_with(violation.payload()));
        assert!(stream.poll_segment(&mut message, fpdu::MULPDU_MIN).is_none());
    }
    assert!(stream.begin_terminate(violation).is_none());
    Outcome::Refused(cause)
}

/// Checks that an accepted ULPDU says what its octets say, read here without the codecs (RFC 5040
/// §4, RFC 5041 §4).
fn check_accepted(inbound: &Inbound<'_>, ulpdu: &[u8], original: &[u8]) {
    let (tagged, last, opcode) = (ulpdu[0] & 0x80 != 0, ulpdu[0] & 0x40 != 0, ulpdu[1] & OPCODE);
    assert_eq!((ulpdu[0] & 0x03, ulpdu[1] & 0xC0), (0x01, 0x40), "both versions");
    let untagged_at = |queue| {
        assert_eq!((tagged, be32(ulpdu, 6), be32(ulpdu, 14)), (false, queue, 0));
        be32(ulpdu, 10)
    };
    match inbound {
        Inbound::Send(segment) => {
            assert_eq!((segment.msn, segment.offset, segment.last), (untagged_at(0), 0, last));
            assert!(segment.msn == be32(original, 10) && (3..=6).contains(&opcode));
            assert_eq!(segment.invalidate, matches!(opcode, 4 | 6).then(|| be32(ulpdu, 2)));
            assert_eq!(segment.solicited, opcode >= 5);
            assert_eq!(segment.payload, &ulpdu[18..]);
        }
        Inbound::Write(segment) => {
            assert_eq!((tagged, opcode), (true, 0));
            assert_eq!(
                (segment.stag, segment.to, segment.last),
                (be32(ulpdu, 2), be64(ulpdu, 6), last)
            );
            assert_eq!(segment.payload, &ulpdu[14..]);
            assert!(
                segment.to.checked_add((segment.payload.len() as u64).saturating_sub(1)).is_some()
            );
        }
        Inbound::ReadRequest => {
            assert!(untagged_at(1) == be32(original, 10) && last);
            assert_eq!((opcode, ulpdu.len()), (1, 46));
        }
        Inbound::ReadResponse(segment) => {
            assert_eq!((tagged, opcode, segment.last), (true, 2, last));
            // Neither is looked at when there is nothing to place (RFC 5041 §5.2).
            assert!(
                segment.payload.is_empty() || ulpdu[2..14] == original[2..14],
                "the place asked for"
            );
            assert_eq!(segment.payload, &ulpdu[14..]);
        }
        Inbound::Terminated(_) => {
            assert_eq!((untagged_at(2), opcode), (1, 7));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn their_fpdus_and_those_of_reads_and_writes_malformed_at_every_octet_do_no_harm() {
    let samples = samples();
    let mut outcomes = BTreeMap::new();
    let mut swept = 0;
    for (index, file) in [NFS3, NFS41].into_iter().enumerate() {
        let chosen = samples.iter().filter(|sample| sample.capture == index);
        let mut sweep = Sweep {
            court: Court::default(),
            sends: chosen.map(|sample| sample.message.number).collect(),
            sent: 0,
            others: BTreeMap::new(),
            swept: 0,
            outcomes: std::mem::take(&mut outcomes),
        };
        walk(&capture(file).conversation, &mut sweep);
        sweep.court.close();
        println!("{} judgements; others by opcode: {:?}", sweep.court.judgements, sweep.others);
        swept += sweep.swept;
        outcomes = sweep.outcomes;
    }
    for (class, count) in &outcomes {
        println!("{count:8}  {class}");
    }
    assert!(swept > SAMPLES);
    assert!(outcomes.len() > 9, "{outcomes:?}");
}
