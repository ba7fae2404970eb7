//! An ONC RPC program that returns the stages of a shard; an app may serve it next to its own.
//!
//! It has NULL and [`ASK`], which takes nothing and returns `opaque<>`, DDP-eligible. In it, all
//! big-endian:
//!
//! ```text
//! unsigned int shard; unsigned int every;
//! { unsigned int count; { unsigned hyper nanos; unsigned hyper calls; } times[count]; } stages[7];
//! ```
//!
//! Each stage of [`Stage::ALL`] lists the times that calls spent in it, and their counts. The
//! program changes nothing, and reveals neither callers nor procedures; it does reveal the server's
//! load.

use super::{Stage, Stages};
use crate::app::{Answer, AnswerItem, Call, Cx};
use stag_pools::Buf;
use stag_protocol::{
    rpc::{Accepted, ReplyHeader},
    xdr::{Error, NoRoom, Reader, Writer},
};

/// The program's number, from the range for local administration (RFC 5531 §8.3).
// draft 004 §6.2.1 [exp-31]: each program has a binding
// RFC 5531 §8.3 [5531-31]: the program number is from the local range
pub const PROGRAM: u32 = 0x2053_5453;
/// Its version.
// RFC 5531 §8.1 [5531-6]: the first version of a program is not zero
pub const VERSION: u32 = 1;
/// Does nothing.
pub const NULL: u32 = 0;
/// Returns the histograms of the shard that answers.
pub const ASK: u32 = 1;
/// Maximum length of the result in octets.
pub const LEN_MAX: usize = 8 + Stage::ALL.len() * (4 + TIMES_MAX * 16);

/// Maximum of distinct times in a histogram.
const TIMES_MAX: usize = 4_096;

/// Maximum of calls that a shard can report: nine years of a million per second.
const CALLS_MAX: u64 = 1 << 48;

const _: () = assert!(LEN_MAX <= crate::config::ITEM_MAX);

/// Answers a call of the program. Returns false for a call of another program, which the app
/// answers itself.
pub fn answer(cx: &mut Cx<'_>, call: &Call<'_>) -> bool {
    let header = &call.header;
    if header.program != PROGRAM {
        return false;
    }
    if cx.deny_other_flavor(call) {
        return true;
    }
    match (header.version, header.procedure) {
        // RFC 5531 §12.1 [5531-25]: procedure 0 takes and gives nothing, for anybody
        (VERSION, NULL) => reply(cx, call, None),
        (VERSION, ASK) => match item(cx) {
            Some(item) => reply(cx, call, Some(item)),
            None => cx.refuse(call, Accepted::SystemErr),
        },
        (VERSION, _) => cx.refuse(call, Accepted::ProcUnavail),
        _ => cx.refuse(call, Accepted::ProgMismatch { low: VERSION, high: VERSION }),
    }
    true
}

fn item(cx: &Cx<'_>) -> Option<Buf> {
    let stages = cx.stages();
    let mut item = cx.take(len(stages))?;
    let mut writer = Writer::new(item.spare_mut());
    emit(stages, &mut writer).ok()?;
    let len = writer.len();
    item.extend(len);
    Some(item)
}

fn reply(cx: &mut Cx<'_>, call: &Call<'_>, item: Option<Buf>) {
    let written = cx.message(ReplyHeader::LEN + 4).and_then(|mut message| {
        let mut writer = Writer::new(message.spare_mut());
        call.header.reply(Accepted::Success).emit(&mut writer).ok()?;
        if let Some(item) = &item {
            writer.u32(u32::try_from(item.len()).ok()?).ok()?;
        }
        let len = writer.len();
        message.extend(len);
        Some(message)
    });
    match written {
        Some(message) => {
            let position = message.len();
            let item = item.map(|item| AnswerItem::new(position, item.freeze()));
            cx.answer(call.id, Answer { message, item });
        }
        None => cx.refuse(call, Accepted::SystemErr),
    }
}

/// Length of the encoded `stages` in octets.
fn len(stages: &Stages) -> usize {
    let times = stages.iter().map(|(_, times)| times.iter_recorded().count());
    8 + Stage::ALL.len() * 4 + times.sum::<usize>() * 16
}

fn emit(stages: &Stages, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
    writer.words([stages.shard(), stages.every()])?;
    for stage in Stage::ALL {
        let Some(times) = stages.times(stage) else {
            writer.u32(0)?;
            continue;
        };
        writer.u32(u32::try_from(times.iter_recorded().count()).map_err(|_| NoRoom)?)?;
        for step in times.iter_recorded() {
            writer.u64(step.value_iterated_to())?;
            writer.u64(step.count_at_value())?;
        }
    }
    Ok(())
}

/// Parses the answer of a shard. Fails if it is truncated, or if it has more calls than a server
/// answers: their sum over many shards must not wrap.
pub fn parse(octets: &[u8]) -> Result<Stages, Error> {
    let mut reader = Reader::new(octets);
    let [shard, every] = reader.words()?;
    let mut stages = Stages::new(every, shard);
    for stage in Stage::ALL {
        let mut all = 0_u64;
        // The loop is limited by the octets that there are.
        for _ in 0..reader.u32()? {
            let (nanos, calls) = (reader.u64()?, reader.u64()?);
            all = all.checked_add(calls).filter(|all| *all <= CALLS_MAX).ok_or(Error::BadValue)?;
            stages.record(stage, nanos, calls);
        }
    }
    reader.finish()?;
    Ok(stages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(stages: &Stages) -> Vec<u8> {
        let mut out = vec![0; len(stages)];
        let mut writer = Writer::new(&mut out);
        emit(stages, &mut writer).unwrap();
        assert_eq!(writer.room(), 0, "the length is known before");
        out
    }

    fn some() -> Stages {
        let mut stages = Stages::new(64, 2);
        for (place, stage) in (0_u32..).zip(Stage::ALL) {
            (0..50_u64).for_each(|step| stages.record(stage, 7_u64.pow(place) * step, step + 1));
        }
        stages
    }

    #[test]
    fn stages_survive_their_octets() {
        for stages in [some(), Stages::new(1, 0), Stages::default()] {
            assert_eq!(parse(&emitted(&stages)), Ok(stages));
        }
    }

    #[test]
    fn every_truncated_answer_is_an_error() {
        let octets = emitted(&some());
        for cut in 0..octets.len() {
            assert!(parse(&octets[..cut]).is_err(), "{cut}");
        }
        assert!(parse(&[octets, vec![0; 4]].concat()).is_err());
    }

    #[test]
    fn an_answer_that_lies_about_counts_is_harmless() {
        let said = |calls: [u64; 2]| {
            let times = calls.map(|calls| [[0xff; 8], calls.to_be_bytes()].concat()).concat();
            parse(&[&[0, 0, 0, 1, 0, 0, 0, 64, 0, 0, 0, 2][..], &times, &[0; 24]].concat())
        };
        for calls in
            [[CALLS_MAX, 1], [1, CALLS_MAX], [u64::MAX, 0], [u64::MAX, 1], [u64::MAX, u64::MAX]]
        {
            assert_eq!(said(calls), Err(Error::BadValue), "{calls:?}");
        }
        let mut sum = said([CALLS_MAX - 1, 1]).unwrap();
        assert_eq!(sum.calls(), CALLS_MAX);
        // The number of shards matches the connections of a run.
        (0..12).for_each(|_| sum.add(&sum.clone()));
        assert_eq!(sum.calls(), CALLS_MAX << 12);
        assert!(sum.times(Stage::Recv).unwrap().value_at_quantile(0.5) >= 60_000_000_000);
        let endless = [&[0, 0, 0, 1, 0, 0, 0, 64][..], &[0xff; 4]].concat();
        assert!(parse(&endless).is_err());
    }

    #[test]
    fn a_full_histogram_fits() {
        let times = Stages::new(1, 0);
        let most = times.times(Stage::App).unwrap().distinct_values();
        assert!(most <= TIMES_MAX, "{most}");
    }
}
