//! NFS version 4: compounds and their results in both directions, and attributes.

use stag_protocol::{
    nfs::v4::{
        self, AnswerSet, Attribute, CallbackCompound, CallbackReply, Compound, CompoundReply,
        RawAttributes, ReplyLimits, Request, RequestHead, ResultsWriter,
    },
    xdr::{Codec, Error, NoRoom, Reader, Writer},
};

use super::{InputVerdict, differs_in_padding_only};

/// Limits that a server of ours could have.
const LIMITS: ReplyLimits = ReplyLimits {
    read: 1 << 20,
    listing: 64 << 10,
    link: 4096,
    xattr: 65_536,
    flavors: 2,
    handle: 128,
    user: 1024,
};

/// Writes a value that was read from `octets`: it comes out as it went in, but for padding and for
/// numbers in sets that no attribute has.
fn rewritten(octets: &[u8], emit: impl Fn(&mut Writer<'_>) -> Result<(), NoRoom>) -> Vec<u8> {
    let mut out = vec![0xee; octets.len() + 64];
    let mut writer = Writer::new(&mut out);
    assert_eq!(emit(&mut writer), Ok(()), "a value goes where it came from");
    let len = writer.len();
    out.truncate(len);
    if len == octets.len() {
        assert!(differs_in_padding_only(&out, octets));
    } else {
        assert!(len < octets.len(), "only a set becomes shorter");
    }
    out
}

/// The values of attributes are refused, or survive.
fn check_values(raw: &RawAttributes<'_>) -> bool {
    let Ok(values) = raw.values() else { return false };
    let mask = values.mask();
    let mut out = vec![0; raw.octets.len() + mask.wire_len() + 4];
    let mut writer = Writer::new(&mut out);
    values.emit(&mask, &mut writer).expect("values go where they came from");
    let len = writer.len();
    let again: RawAttributes<'_> = Reader::new(&out[..len]).whole().expect("we wrote it");
    assert_eq!(again.values().as_ref(), Ok(&values));
    true
}

fn check_request(request: &Request<'_>) {
    assert!(request.reply_len_max(&LIMITS) >= 8);
    match request {
        Request::SetAttr(arguments) => drop(check_values(&arguments.attributes)),
        Request::Create(arguments) => drop(check_values(&arguments.attributes)),
        Request::Verify(raw) | Request::NVerify(raw) => drop(check_values(raw)),
        _ => {}
    }
}

/// Arguments of COMPOUND: each operation survives; nothing comes after one that is refused.
pub fn compound(input: &[u8]) -> InputVerdict {
    let mut operations = match Compound::parse(Reader::new(input)) {
        Ok(operations) => operations,
        Err(error) => return InputVerdict::refused(&error),
    };
    let head = *operations.head();
    let mut requests = Vec::new();
    for request in operations.by_ref() {
        match request {
            Ok(request) => requests.push(request),
            Err(fault) => {
                let of = fault.operation.map(|operation| operation as u32);
                let status = fault.status as u64;
                assert_eq!((operations.left(), operations.next()), (0, None));
                return InputVerdict::Refused(status << 8 | u64::from(of.unwrap_or(0)));
            }
        }
    }
    requests.iter().for_each(check_request);
    if let Err(error) = operations.finish() {
        return InputVerdict::refused(&error);
    }
    let out = rewritten(input, |writer| {
        head.emit(writer)?;
        requests.iter().try_for_each(|request| request.emit(writer))
    });
    let again = Compound::parse(Reader::new(&out)).expect("we wrote it");
    assert!(again.eq(requests.iter().cloned().map(Ok)));
    let last = requests.last().map(|request| request.operation() as u32);
    InputVerdict::accepted((requests.len().min(4), last))
}

/// Takes results of either direction, and writes them again.
fn check_results<'a, A: AnswerSet<'a>>(
    results: v4::Results<'a, A>,
    octets: &[u8],
) -> Result<(Vec<A>, Vec<u8>), Error> {
    let mut results = results;
    let head = *results.head();
    let answers = results.by_ref().collect::<Result<Vec<_>, Error>>()?;
    results.finish()?;
    // One of ours ends with its first failure, whose status is that of the whole.
    let failed = answers.iter().position(|answer| answer.status() != v4::Status4::Ok);
    let is_sound = failed.is_none_or(|at| at + 1 == answers.len())
        && answers.last().is_none_or(|last| last.status() == head.status)
        && !(answers.is_empty() && head.status == v4::Status4::Ok);
    if !is_sound {
        return Err(Error::BadValue);
    }
    let out = rewritten(octets, |writer| {
        let mut written = ResultsWriter::begin(writer, head.tag)?;
        for answer in &answers {
            written.push(answer)?;
        }
        written.finish_with(head.status);
        Ok(())
    });
    Ok((answers, out))
}

/// Results of COMPOUND.
pub fn reply(input: &[u8]) -> InputVerdict {
    let results = CompoundReply::parse(Reader::new(input));
    match results.and_then(|results| check_results(results, input)) {
        Ok((answers, out)) => {
            let again = CompoundReply::parse(Reader::new(&out)).expect("we wrote it");
            let last = answers.last().map(|answer| answer.status() as u32);
            assert!(again.eq(answers.into_iter().map(Ok)));
            InputVerdict::accepted(last)
        }
        Err(error) => InputVerdict::refused(&error),
    }
}

/// The first word says if arguments or results of CB_COMPOUND follow.
pub fn callback(input: &[u8]) -> InputVerdict {
    let Some((choice, octets)) = input.split_first_chunk() else {
        return InputVerdict::refused(&Error::Short);
    };
    if !u32::from_be_bytes(*choice).is_multiple_of(2) {
        let results = CallbackReply::parse(Reader::new(octets));
        return match results.and_then(|results| check_results(results, octets)) {
            Ok((answers, _)) => InputVerdict::accepted(answers.len().min(4)).of(1),
            Err(error) => InputVerdict::refused(&error).of(1),
        };
    }
    let mut operations = match CallbackCompound::parse(Reader::new(octets)) {
        Ok(operations) => operations,
        Err(error) => return InputVerdict::refused(&error),
    };
    let head = *operations.head();
    let mut requests = Vec::new();
    for request in operations.by_ref() {
        match request {
            Ok(request) => requests.push(request),
            Err(fault) => return InputVerdict::Refused(fault.status as u64),
        }
    }
    if let Err(error) = operations.finish() {
        return InputVerdict::refused(&error);
    }
    assert!(requests.len() as u64 <= u64::from(head.operations()));
    let out = rewritten(octets, |writer| {
        head.emit(writer)?;
        requests.iter().try_for_each(|request| request.emit(writer))
    });
    let again = CallbackCompound::parse(Reader::new(&out)).expect("we wrote it");
    let last = requests.last().map(|request| request.operation() as u32);
    assert!(again.eq(requests.into_iter().map(Ok)));
    InputVerdict::accepted(last)
}

/// Attributes: mask and values.
pub fn attributes(input: &[u8]) -> InputVerdict {
    let raw: RawAttributes<'_> = match Reader::new(input).whole() {
        Ok(raw) => raw,
        Err(error) => return InputVerdict::refused(&error),
    };
    let known = v4::Bitmap::of(Attribute::ALL.iter().map(|attribute| *attribute as u32));
    assert!(v4::attributes_len_max(&raw.mask) >= raw.mask.wire_len() + 4);
    let settable = v4::check_settable(&raw.mask, &known).is_ok();
    assert!(!settable || raw.mask.is_subset(&known));
    match raw.values() {
        Ok(values) => {
            assert_eq!(values.mask(), raw.mask.intersection(&values.mask()));
            assert!(check_values(&raw));
            InputVerdict::accepted((settable, raw.mask.numbers().last()))
        }
        Err(fault) => InputVerdict::refused(&fault),
    }
}
