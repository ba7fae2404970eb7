//! Wire format common to all versions: four fixed words (RFC 8166 §4.2), errors, and three lists.
//!
//! A [`Dialect`] is a type: one reader and one writer serve all of them, and the compiler makes a
//! copy for every dialect, so that version 1 does not pay for version 2.

use super::{
    Body, ChunkLists, Credits, ErrorBody, ErrorReply, Header, Intent, MessageType, PeerFault,
    Position, Segment, Xid, one_chunk, option,
    short::{ShortHeader, emit_short, emit_short_directed, parse_short, parse_short_directed},
};
use crate::xdr::{NoRoom, Reader, Writer};

/// Octets of the four fixed fields, the same in all versions (RFC 8166 §4.2).
pub const FIXED_LEN: usize = 16;
/// Octets of the shortest RDMA_MSG or RDMA_NOMSG header of version 1: no chunks (RFC 8166 §4.5).
pub const HEADER_LEN_MIN: usize = 28;
/// Octets of the shortest RDMA_MSG header with an [`Intent`] (draft 001 §4.1).
pub const DIRECTED_LEN_MIN: usize = HEADER_LEN_MIN + Intent::LEN;
/// Octets of the longest error message: ERR_VERS.
pub const ERROR_LEN_MAX: usize = 28;
/// Octets before the content of an RDMA_OPTIONAL: the fixed fields, its type, its length (draft 000
/// §4.2).
pub const OPTION_AT: usize = 24;

// RFC 8166 §4.6.1, §4.6.2 [8166-56]: an RDMA_MSGP is never sent
// RFC 8166 §4.6.1, §4.6.2 [8166-59]: an RDMA_DONE is never sent
// draft 004 §7.1.3.1 [exp-42]: an RDMA_MSGP is not sent
pub(super) const MSG: u32 = 0;
pub(super) const NOMSG: u32 = 1;
const DONE: u32 = 3;
// RFC 8166 §4.5 [8166-49]: the procedure of an error is RDMA_ERROR
const ERROR: u32 = 4;
// draft 000 §4.2 [v2-16]: the header begins with XID, version, credits, procedure
const OPTIONAL: u32 = 5;
const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;
// draft 000 §4.2 [v2-18]: errors are 1 (versions), 2 (header) and 3 (option)
const ERR_INVAL_OPTION: u32 = 3;

/// One layout of headers.
pub trait Dialect {
    /// The version word.
    const VERSION: u32;
    /// True if an [`Intent`] precedes the lists.
    const INTENT: bool;
    /// True if RDMA_OPTIONAL exists (draft 000 §3.1).
    const OPTIONS: bool = Self::VERSION >= 2;
    /// Octets of the shortest RDMA_MSG header.
    const HEADER_LEN_MIN: usize = HEADER_LEN_MIN + if Self::INTENT { Intent::LEN } else { 0 };
}

/// Reason for which a message has no meaning, and a responder's reaction (RFC 8166 §4.5). A
/// requester discards either kind.
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
        /// Content of the RDMA_ERROR.
        error: ErrorBody,
        /// Rule that the message breaks.
        fault: PeerFault,
    },
}

/// Octets that the header of an RDMA_MSG or RDMA_NOMSG with these lists takes.
pub const fn header_len(lists: &ChunkLists) -> usize {
    FIXED_LEN + lists.encoded_len()
}

/// Writes words over octets that are as long.
#[inline]
pub(super) fn put_words<const WORDS: usize>(words: [u32; WORDS], out: &mut [u8]) {
    for (octets, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
        *octets = word.to_be_bytes();
    }
}

#[inline]
pub(super) fn parse<D: Dialect>(
    message: &[u8],
    lists: &mut ChunkLists,
) -> Result<(Header, usize), Malformed> {
    // Each in a function of its own, the most common first, so that rare cases occupy no register
    // here.
    if let Some(header) = one_chunk::parse_write::<D>(message, lists) {
        return Ok((header, one_chunk::header_len::<D>()));
    }
    match parse_empty::<D>(message, lists) {
        Some(header) => Ok((header, D::HEADER_LEN_MIN)),
        None => parse_others::<D>(message, lists),
    }
}

/// Reads an RDMA_MSG with three empty lists. `None`: it is something else.
#[inline]
fn parse_empty<D: Dialect>(message: &[u8], lists: &mut ChunkLists) -> Option<Header> {
    let (short, intent) = if D::INTENT {
        let (short, message_type) = parse_short_directed(message.first_chunk()?, D::VERSION)?;
        (short, Some(Intent { message_type, inv_handle: 0 }))
    } else {
        (parse_short(message.first_chunk()?, D::VERSION)?, None)
    };
    lists.clear_chunks();
    lists.set_intent(intent);
    Some(Header { xid: short.xid, credits: short.credits, body: Body::Msg })
}

#[inline(never)]
fn parse_others<D: Dialect>(
    message: &[u8],
    lists: &mut ChunkLists,
) -> Result<(Header, usize), Malformed> {
    if message.get(FIXED_LEN - 4..FIXED_LEN) == Some(&ERROR.to_be_bytes()) {
        lists.clear();
        return parse_error::<D>(message);
    }
    if let Some(header) = one_chunk::parse_read::<D>(message, lists) {
        return Ok((header, one_chunk::header_len::<D>()));
    }
    match one_chunk::parse_reply::<D>(message, lists) {
        Some(header) => Ok((header, one_chunk::reply_header_len::<D>())),
        None => parse_any::<D>(message, lists),
    }
}

/// Reads any header.
#[inline(never)]
pub(super) fn parse_any<D: Dialect>(
    message: &[u8],
    lists: &mut ChunkLists,
) -> Result<(Header, usize), Malformed> {
    lists.clear();
    let short = too_short(message);
    let mut rest = message;
    let [xid, version, credits, procedure] = take_words(&mut rest).ok_or(short)?;
    let (xid, credits) = (Xid(xid), Credits(credits));
    if procedure == ERROR {
        return parse_error::<D>(message);
    }
    // RFC 8166 §4.5 [8166-44]: a message shorter than any header is discarded unread
    let least = match procedure {
        _ if !D::OPTIONS || version != D::VERSION => HEADER_LEN_MIN,
        MSG | NOMSG | DONE => HEADER_LEN_MIN,
        // draft 000 §3.1 [v2-3]: a type is enough to refuse an option by
        OPTIONAL => OPTION_AT - 4,
        // Draft 000 has four words in each header; the rest of this one is unknown.
        _ => FIXED_LEN,
    };
    if message.len() < least {
        return Err(short);
    }
    let answer = |error, fault| Malformed::Answer { xid, version, error, fault };
    if version != D::VERSION {
        let spoken = ErrorBody::Version { low: D::VERSION, high: D::VERSION };
        return Err(answer(spoken, PeerFault::Version(version)));
    }
    let body = match procedure {
        MSG => Body::Msg,
        NOMSG => Body::NoMsg,
        // RFC 8166 §4.6.2 [8166-60]: an RDMA_DONE is discarded
        // draft 004 §7.1.2.1 [exp-41]: an RDMA_DONE is ignored
        DONE => return Err(Malformed::Discard(PeerFault::Done)),
        OPTIONAL if D::OPTIONS => {
            let mut reader = Reader::new(rest);
            let body = parse_option(&mut reader).map_err(|(error, fault)| answer(error, fault))?;
            return Ok((Header { xid, credits, body }, message.len() - reader.remaining()));
        }
        // RFC 8166 §4.6.1 [8166-57]: an RDMA_MSGP gets ERR_CHUNK
        other => return Err(answer(ErrorBody::Chunk, PeerFault::Procedure(other))),
    };
    let parsed = parse_lists::<D>(&mut rest, lists).and_then(|()| {
        // RFC 8166 §4.2.4 [8166-33]: an RDMA_NOMSG has a list that holds its payload
        if body == Body::NoMsg && lists.is_empty() { Err(PeerFault::NoLists) } else { Ok(()) }
    });
    if let Err(fault) = parsed {
        lists.clear_chunks();
        // RFC 8166 §4.5.2 [8166-52]: a header that cannot be parsed gets ERR_CHUNK
        // draft 000 §4.2 [v2-20]: a header that cannot be parsed gets ERR_BAD_HEADER
        return Err(answer(ErrorBody::Chunk, fault));
    }
    Ok((Header { xid, credits, body }, message.len() - rest.len()))
}

/// Takes words from the front. A header is in one piece and is read once for each message, so
/// [`Reader`], which handles several pieces, is not needed.
#[inline]
pub(super) fn take_words<const N: usize>(rest: &mut &[u8]) -> Option<[u32; N]> {
    let mut words = [0; N];
    let (octets, behind) = rest.split_at_checked(4 * N)?;
    for (word, octets) in words.iter_mut().zip(octets.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*octets);
    }
    *rest = behind;
    Some(words)
}

/// Reads an RDMA_ERROR. If it has another version, only ERR_VERS is read, which is the same in all
/// versions.
#[inline]
fn parse_error<D: Dialect>(message: &[u8]) -> Result<(Header, usize), Malformed> {
    let mut rest = message;
    let [xid, version, credits, _] = take_words(&mut rest).ok_or_else(|| too_short(message))?;
    // The layout is the same in all versions, and an error never answers an error.
    // RFC 8166 §4.5 [8166-50]: an RDMA_ERROR that cannot be parsed is discarded
    let unreadable = Malformed::Discard(PeerFault::UnreadableError);
    let [code] = take_words(&mut rest).ok_or(unreadable)?;
    let error = match code {
        ERR_VERS => {
            let [low, high] = take_words(&mut rest).ok_or(unreadable)?;
            ErrorBody::Version { low, high }
        }
        ERR_CHUNK if version == D::VERSION => ErrorBody::Chunk,
        ERR_INVAL_OPTION if D::OPTIONS && version == D::VERSION => ErrorBody::Option,
        _ => return Err(unreadable),
    };
    let header = Header { xid: Xid(xid), credits: Credits(credits), body: Body::Error(error) };
    Ok((header, message.len() - rest.len()))
}

fn too_short(message: &[u8]) -> Malformed {
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
    Malformed::Discard(PeerFault::ShortHeader { len })
}

fn parse_option(reader: &mut Reader<'_>) -> Result<Body, (ErrorBody, PeerFault)> {
    let opttype = reader.u32().map_err(|_| (ErrorBody::Chunk, PeerFault::CutLists))?;
    // draft 000 §4.2 [v2-19]: an option is its type and counted octets
    let info = reader.opaque(usize::MAX).map_err(|_| {
        if option::is_known(opttype) {
            (ErrorBody::Chunk, PeerFault::BadOption(opttype))
        } else {
            (ErrorBody::Option, PeerFault::UnknownOption(opttype))
        }
    })?;
    Ok(Body::Optional { opttype, len: u32::try_from(info.len()).unwrap_or(u32::MAX) })
}

/// Reads the three lists (RFC 8166 §4.3). No count is trusted: each segment is read before it is
/// counted.
fn parse_lists<D: Dialect>(rest: &mut &[u8], lists: &mut ChunkLists) -> Result<(), PeerFault> {
    if D::INTENT {
        lists.set_intent(Some(parse_intent(rest)?));
    }
    // draft 000 §4.2 [v2-17]: the three lists are encoded as in version 1
    while parse_present(rest)? {
        let position = parse_word(rest)?;
        let segment = parse_segment(rest)?;
        let position = Position::new(position).ok_or(PeerFault::Position(position))?;
        lists.push_read(position, segment)?;
    }
    while parse_present(rest)? {
        lists.begin_write()?;
        for _ in 0..parse_word(rest)? {
            lists.push_write(parse_segment(rest)?)?;
        }
    }
    if parse_present(rest)? {
        lists.begin_reply();
        for _ in 0..parse_word(rest)? {
            lists.push_reply(parse_segment(rest)?)?;
        }
    }
    Ok(())
}

fn parse_intent(rest: &mut &[u8]) -> Result<Intent, PeerFault> {
    let word = parse_word(rest)?;
    let message_type = MessageType::from_word(word).ok_or(PeerFault::MessageType(word))?;
    Ok(Intent { message_type, inv_handle: parse_word(rest)? })
}

#[inline]
fn parse_present(rest: &mut &[u8]) -> Result<bool, PeerFault> {
    match parse_word(rest)? {
        0 => Ok(false),
        1 => Ok(true),
        word => Err(PeerFault::Discriminator(word)),
    }
}

#[inline]
fn parse_word(rest: &mut &[u8]) -> Result<u32, PeerFault> {
    let [word] = take_words(rest).ok_or(PeerFault::CutLists)?;
    Ok(word)
}

#[inline]
fn parse_segment(rest: &mut &[u8]) -> Result<Segment, PeerFault> {
    // RFC 8166 §2.3.2 [8166-1]: a segment is handle (32 bits), length, offset (64 bits)
    let [handle, length, high, low] = take_words(rest).ok_or(PeerFault::CutLists)?;
    Segment { handle, length, offset: u64::from(high) << 32 | u64::from(low) }.check()
}

#[inline]
pub(super) fn emit<D: Dialect>(
    header: &Header,
    lists: &ChunkLists,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    if header.body == Body::Msg {
        if let Some(emitted) = emit_empty::<D>(header, lists, out) {
            return emitted;
        }
        if let Some(segment) = lists.only_write()
            && lists.intent().is_some() == D::INTENT
        {
            // Nearly all others: a call for octets, and its reply.
            return one_chunk::emit_write::<D>(header, lists.intent(), segment, out);
        }
    }
    emit_others::<D>(header, lists, out)
}

/// Writes the header of an RDMA_MSG with three empty lists, as most messages have. `None`: it is
/// something else.
#[inline]
fn emit_empty<D: Dialect>(
    header: &Header,
    lists: &ChunkLists,
    out: &mut [u8],
) -> Option<Result<usize, NoRoom>> {
    if !lists.is_empty() {
        return None;
    }
    let short = ShortHeader { xid: header.xid, credits: header.credits };
    if !D::INTENT {
        let Some(out) = out.first_chunk_mut::<HEADER_LEN_MIN>() else { return Some(Err(NoRoom)) };
        emit_short(short, D::VERSION, out);
        return Some(Ok(HEADER_LEN_MIN));
    }
    let Some(Intent { message_type, inv_handle: 0 }) = lists.intent() else { return None };
    let Some(out) = out.first_chunk_mut::<DIRECTED_LEN_MIN>() else { return Some(Err(NoRoom)) };
    emit_short_directed(short, D::VERSION, message_type, out);
    Some(Ok(DIRECTED_LEN_MIN))
}

/// Writes a header that is less common.
#[inline(never)]
fn emit_others<D: Dialect>(
    header: &Header,
    lists: &ChunkLists,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    match (lists.intent(), lists.only_read()) {
        // A call that brings octets.
        (intent, Some(chunk)) if intent.is_some() == D::INTENT && header.body == Body::Msg => {
            one_chunk::emit_read::<D>(header, intent, chunk, out)
        }
        _ => emit_any::<D>(header, lists, out),
    }
}

/// Writes any header.
#[inline(never)]
pub(super) fn emit_any<D: Dialect>(
    header: &Header,
    lists: &ChunkLists,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    let procedure = match header.body {
        Body::Msg => MSG,
        Body::NoMsg => NOMSG,
        Body::Error(error) => {
            let (xid, credits) = (header.xid, header.credits);
            return emit_error(&ErrorReply { xid, version: D::VERSION, credits, error }, out);
        }
        Body::Optional { .. } => unreachable!("`option::emit` writes options"),
    };
    debug_assert!(
        header.body == Body::Msg || !lists.is_empty(),
        "RDMA_NOMSG names a chunk (RFC 8166 §4.2.4)"
    );
    debug_assert_eq!(lists.intent().is_some(), D::INTENT, "`Connection::mark_call` goes before");
    let room = out.len();
    let mut words = Words(out);
    // RFC 8166 §4 [8166-30]: the transport header is XDR
    // draft 004 §3.1.1 [exp-1]: the header of version 1 is unchanged on the wire
    words.put([header.xid.0, D::VERSION, header.credits.0, procedure])?;
    if let (true, Some(intent)) = (D::INTENT, lists.intent()) {
        words.put([intent.message_type as u32, intent.inv_handle])?;
    }
    let (reads, writes, reply) = lists.counts();
    let mut segments = lists.segments();
    let mut next = |count: u8| {
        let (these, others) = segments.split_at_checked(count.into()).ok_or(NoRoom)?;
        segments = others;
        Ok(these)
    };
    for (count, position) in reads {
        for segment in next(*count)? {
            words.put([1, position.octets()])?;
            words.segment(segment)?;
        }
    }
    words.put([0])?;
    for count in writes {
        words.counted(next(*count)?)?;
    }
    words.put([0])?;
    match reply {
        None => words.put([0])?,
        Some(count) => words.counted(next(count)?)?,
    }
    Ok(room - words.0.len())
}

/// The words of a header that are not written yet. A header consists of words and is written once
/// for each message, so [`Writer`], which checks place and room for each of them, is not used.
struct Words<'a>(&'a mut [u8]);

/// Writes an RDMA_ERROR, whose layout is the same in all versions, and returns its length: 28
/// octets for ERR_VERS, 20 for any other.
pub fn emit_error(reply: &ErrorReply, out: &mut [u8]) -> Result<usize, NoRoom> {
    let mut writer = Writer::new(out);
    // RFC 8166 §4.5 [8166-47]: an RDMA_ERROR has the XID of its call
    // RFC 8166 §4.5 [8166-48]: an RDMA_ERROR has the version word of its call
    writer.words([reply.xid.0, reply.version, reply.credits.0, ERROR])?;
    match reply.error {
        ErrorBody::Version { low, high } => writer.words([ERR_VERS, low, high])?,
        ErrorBody::Chunk => writer.u32(ERR_CHUNK)?,
        ErrorBody::Option => writer.u32(ERR_INVAL_OPTION)?,
    }
    Ok(writer.len())
}

/// Writes an RDMA_OPTIONAL, its content by `info`, and returns its length.
pub(super) fn emit_option<D: Dialect>(
    xid: Xid,
    credits: Credits,
    opttype: u32,
    out: &mut [u8],
    info: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
) -> Result<usize, NoRoom> {
    const { assert!(D::OPTIONS) };
    let mut writer = Writer::new(out);
    writer.words([xid.0, D::VERSION, credits.0, OPTIONAL, opttype, 0])?;
    info(&mut writer)?;
    let len = u32::try_from(writer.len() - OPTION_AT).map_err(|_| NoRoom)?;
    writer.patch_u32(OPTION_AT - 4, len)?;
    Ok(writer.len())
}

impl Words<'_> {
    #[inline]
    fn put<const N: usize>(&mut self, words: [u32; N]) -> Result<(), NoRoom> {
        let (octets, rest) =
            core::mem::take(&mut self.0).split_at_mut_checked(4 * N).ok_or(NoRoom)?;
        for (octets, word) in octets.as_chunks_mut().0.iter_mut().zip(words) {
            *octets = word.to_be_bytes();
        }
        self.0 = rest;
        Ok(())
    }

    #[inline]
    fn segment(&mut self, segment: &Segment) -> Result<(), NoRoom> {
        let (high, low) = ((segment.offset >> 32) as u32, segment.offset as u32);
        self.put([segment.handle, segment.length, high, low])
    }

    /// A Write chunk or a Reply chunk, with the word that says that it is there.
    #[inline]
    fn counted(&mut self, segments: &[Segment]) -> Result<(), NoRoom> {
        self.put([1, u32::try_from(segments.len()).map_err(|_| NoRoom)?])?;
        segments.iter().try_for_each(|segment| self.segment(segment))
    }
}
