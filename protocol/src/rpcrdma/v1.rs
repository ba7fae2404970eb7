//! Version 1 of RPC-over-RDMA: the header as bytes (RFC 8166 §4.1.2).

use super::{Body, ChunkLists, Credits, ErrorBody, ErrorReply, Header, PeerFault, Position, Segment, Xid};
use crate::xdr::{NoRoom, Reader, Writer};

/// The version number.
pub const VERSION: u32 = 1;
/// Octets of the four fixed fields (RFC 8166 §4.2).
pub const FIXED_LEN: usize = 16;
/// Octets of the shortest RDMA_MSG or RDMA_NOMSG header: no chunks (RFC 8166 §4.5).
pub const HEADER_LEN_MIN: usize = 28;
/// Octets of the longest error message: ERR_VERS.
pub const ERROR_LEN_MAX: usize = 28;

const MSG: u32 = 0;
const NOMSG: u32 = 1;
const DONE: u32 = 3;
const ERROR: u32 = 4;
const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;

/// Why a message has no meaning, and what a responder does about it (RFC 8166 §4.5). A requester discards either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Nothing is answered.
    Discard(PeerFault),
    /// An RDMA_ERROR goes back, with the same XID and the same version word.
    Answer {
        /// The message's XID.
        xid: Xid,
        /// The message's version word.
        version: u32,
        /// What the RDMA_ERROR says.
        error: ErrorBody,
        /// What is wrong.
        fault: PeerFault,
    },
}

/// Octets that the header of an RDMA_MSG or RDMA_NOMSG with these lists takes.
pub const fn header_len(lists: &ChunkLists) -> usize {
    FIXED_LEN + lists.encoded_len()
}

/// Parses the header at the front of `message`: its meaning and its length in octets; the payload of RDMA_MSG begins there.
///
/// `lists` is overwritten: with the message's chunks, or with none when it carries none or has no meaning.
pub fn parse(message: &[u8], lists: &mut ChunkLists) -> Result<(Header, usize), Malformed> {
    lists.clear();
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let short = Malformed::Discard(PeerFault::ShortHeader { len });
    let mut reader = Reader::new(message);
    let [xid, version, credits, procedure] = fixed_fields(&mut reader).ok_or(short)?;
    let (xid, credits) = (Xid(xid), Credits(credits));
    if procedure == ERROR {
        // The layout is the same in all versions, and an error never answers an error.
        let error = parse_error(version, &mut reader).map_err(Malformed::Discard)?;
        return Ok((Header { xid, credits, body: Body::Error(error) }, message.len() - reader.remaining()));
    }
    if message.len() < HEADER_LEN_MIN {
        return Err(short);
    }
    let answer = |error, fault| Malformed::Answer { xid, version, error, fault };
    if version != VERSION {
        let spoken = ErrorBody::Version { low: VERSION, high: VERSION };
        return Err(answer(spoken, PeerFault::Version(version)));
    }
    let body = match procedure {
        MSG => Body::Msg,
        NOMSG => Body::NoMsg,
        DONE => return Err(Malformed::Discard(PeerFault::Done)),
        other => return Err(answer(ErrorBody::Chunk, PeerFault::Procedure(other))),
    };
    let parsed = parse_lists(&mut reader, lists).and_then(|()| {
        if body == Body::NoMsg && lists.is_empty() { Err(PeerFault::NoLists) } else { Ok(()) }
    });
    if let Err(fault) = parsed {
        lists.clear();
        return Err(answer(ErrorBody::Chunk, fault));
    }
    Ok((Header { xid, credits, body }, message.len() - reader.remaining()))
}

fn fixed_fields(reader: &mut Reader<'_>) -> Option<[u32; 4]> {
    Some([reader.u32().ok()?, reader.u32().ok()?, reader.u32().ok()?, reader.u32().ok()?])
}

fn parse_error(version: u32, reader: &mut Reader<'_>) -> Result<ErrorBody, PeerFault> {
    let mut word = || reader.u32().map_err(|_| PeerFault::UnreadableError);
    match word()? {
        ERR_VERS => Ok(ErrorBody::Version { low: word()?, high: word()? }),
        ERR_CHUNK if version == VERSION => Ok(ErrorBody::Chunk),
        _ => Err(PeerFault::UnreadableError),
    }
}

/// Reads the three lists (RFC 8166 §4.3). No count is trusted: each segment is read before it is counted.
fn parse_lists(reader: &mut Reader<'_>, lists: &mut ChunkLists) -> Result<(), PeerFault> {
    while parse_present(reader)? {
        let position = parse_word(reader)?;
        let segment = parse_segment(reader)?;
        let position = Position::new(position).ok_or(PeerFault::Position(position))?;
        lists.push_read(position, segment)?;
    }
    while parse_present(reader)? {
        lists.begin_write()?;
        for _ in 0..parse_word(reader)? {
            lists.push_write(parse_segment(reader)?)?;
        }
    }
    if parse_present(reader)? {
        lists.begin_reply();
        for _ in 0..parse_word(reader)? {
            lists.push_reply(parse_segment(reader)?)?;
        }
    }
    Ok(())
}

fn parse_present(reader: &mut Reader<'_>) -> Result<bool, PeerFault> {
    match parse_word(reader)? {
        0 => Ok(false),
        1 => Ok(true),
        word => Err(PeerFault::Discriminator(word)),
    }
}

fn parse_word(reader: &mut Reader<'_>) -> Result<u32, PeerFault> {
    reader.u32().map_err(|_| PeerFault::CutLists)
}

fn parse_segment(reader: &mut Reader<'_>) -> Result<Segment, PeerFault> {
    let handle = parse_word(reader)?;
    let length = parse_word(reader)?;
    let offset = reader.u64().map_err(|_| PeerFault::CutLists)?;
    Segment { handle, length, offset }.check()
}

/// Writes the header at the front of `out` and says how long it is; an RDMA_ERROR ignores `lists`.
pub fn emit(header: &Header, lists: &ChunkLists, out: &mut [u8]) -> Result<usize, NoRoom> {
    let procedure = match header.body {
        Body::Msg => MSG,
        Body::NoMsg => NOMSG,
        Body::Error(error) => {
            let (xid, credits) = (header.xid, header.credits);
            return emit_error(&ErrorReply { xid, version: VERSION, credits, error }, out);
        }
    };
    debug_assert!(
        header.body == Body::Msg || !lists.is_empty(),
        "RDMA_NOMSG names a chunk (RFC 8166 §4.2.4)"
    );
    let mut writer = Writer::new(out);
    emit_fixed(&mut writer, [header.xid.0, VERSION, header.credits.0, procedure])?;
    for chunk in lists.reads() {
        for segment in chunk.segments {
            writer.u32(1)?;
            writer.u32(chunk.position.octets())?;
            emit_segment(&mut writer, segment)?;
        }
    }
    writer.u32(0)?;
    for chunk in lists.writes() {
        writer.u32(1)?;
        emit_counted(&mut writer, chunk.segments)?;
    }
    writer.u32(0)?;
    match lists.reply() {
        None => writer.u32(0)?,
        Some(chunk) => {
            writer.u32(1)?;
            emit_counted(&mut writer, chunk.segments)?;
        }
    }
    Ok(writer.len())
}

/// Writes an RDMA_ERROR, whose layout is the same in all versions, and says how long it is: 20 octets for ERR_CHUNK, 28 for
/// ERR_VERS.
pub fn emit_error(reply: &ErrorReply, out: &mut [u8]) -> Result<usize, NoRoom> {
    let mut writer = Writer::new(out);
    emit_fixed(&mut writer, [reply.xid.0, reply.version, reply.credits.0, ERROR])?;
    match reply.error {
        ErrorBody::Chunk => writer.u32(ERR_CHUNK)?,
        ErrorBody::Version { low, high } => emit_fixed(&mut writer, [ERR_VERS, low, high])?,
    }
    Ok(writer.len())
}

fn emit_fixed<const N: usize>(writer: &mut Writer<'_>, words: [u32; N]) -> Result<(), NoRoom> {
    words.into_iter().try_for_each(|word| writer.u32(word))
}

fn emit_counted(writer: &mut Writer<'_>, segments: &[Segment]) -> Result<(), NoRoom> {
    writer.u32(u32::try_from(segments.len()).map_err(|_| NoRoom)?)?;
    segments.iter().try_for_each(|segment| emit_segment(writer, segment))
}

fn emit_segment(writer: &mut Writer<'_>, segment: &Segment) -> Result<(), NoRoom> {
    writer.u32(segment.handle)?;
    writer.u32(segment.length)?;
    writer.u64(segment.offset)
}
