//! Headers with one chunk of one segment: an RDMA_MSG that offers a Write chunk, as the call of a
//! READ of NFS does, or a Read chunk, as that of a WRITE does, or a Reply chunk; and the replies
//! that return them.
//!
//! [`wire`](super::wire) reads and writes every header. For these common ones the functions of this
//! file do the same by comparison with constant words, and leave all others to it.

use super::{
    Body, ChunkLists, Credits, Header, Intent, MessageType, Position, ReadSegment, Segment, Xid,
    short::Layout,
    wire::{Dialect, FIXED_LEN, MSG, NOMSG, put_words, take_words},
};
use crate::xdr::{NoRoom, padded};

/// Octets that a Read chunk or a Write chunk of one segment adds to a header without chunks: the
/// former has a position, the latter a count.
const ONE_CHUNK_LEN: usize = 8 + SEGMENT_LEN;
/// Octets of a segment.
const SEGMENT_LEN: usize = 16;
/// Octets of the three lists, with a Read chunk or a Write chunk, and with a Reply chunk.
const LISTS_LEN: usize = 20 + SEGMENT_LEN;
const REPLY_LISTS_LEN: usize = 16 + SEGMENT_LEN;

/// Octets around the segment of a Write chunk: no Read list; one Write chunk, of one segment; no
/// other, and no Reply chunk.
const WRITE_FRONT: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
const WRITE_BACK: [u8; 8] = [0; 8];
/// Octets around position and segment of a Read chunk: one read segment; no other, no Write list,
/// and no Reply chunk.
const READ_FRONT: [u8; 4] = [0, 0, 0, 1];
const READ_BACK: [u8; 12] = [0; 12];
/// Octets in front of the segment of a Reply chunk: no Read list, no Write list, one segment.
const REPLY_FRONT: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];

/// Octets of a header with a Read chunk or a Write chunk of one segment.
pub(super) const fn header_len<D: Dialect>() -> usize {
    lists_at::<D>() + LISTS_LEN
}

/// Octets of a header with a Reply chunk of one segment.
pub(super) const fn reply_header_len<D: Dialect>() -> usize {
    lists_at::<D>() + REPLY_LISTS_LEN
}

const fn lists_at<D: Dialect>() -> usize {
    FIXED_LEN + if D::INTENT { Intent::LEN } else { 0 }
}

/// Reads a header with one Write chunk of one segment, at the front of `message`. Returns `None`
/// for any other header, or if a rule is broken; `lists` then is unchanged.
#[inline(always)]
pub(super) fn parse_write<D: Dialect>(message: &[u8], lists: &mut ChunkLists) -> Option<Header> {
    let (header, intent, octets) = parse_front::<D, LISTS_LEN>(message, &[MSG])?;
    let (front, rest) = octets.split_first_chunk()?;
    let (segment, back) = rest.split_first_chunk()?;
    if *front != WRITE_FRONT || back != WRITE_BACK {
        return None;
    }
    lists.set_only_write(parse_segment(segment)?);
    lists.set_intent(intent);
    Some(header)
}

/// The same with one Read chunk, which may be the whole message.
#[inline(always)]
pub(super) fn parse_read<D: Dialect>(message: &[u8], lists: &mut ChunkLists) -> Option<Header> {
    let (header, intent, octets) = parse_front::<D, LISTS_LEN>(message, &[MSG, NOMSG])?;
    let (front, rest) = octets.split_first_chunk()?;
    let (position, rest) = rest.split_first_chunk()?;
    let (segment, back) = rest.split_first_chunk()?;
    if *front != READ_FRONT || back != READ_BACK {
        return None;
    }
    let position = Position::new(u32::from_be_bytes(*position))?;
    lists.set_only_read(ReadSegment { position, segment: parse_segment(segment)? });
    lists.set_intent(intent);
    Some(header)
}

/// The same with a Reply chunk, in either kind of message.
#[inline(always)]
pub(super) fn parse_reply<D: Dialect>(message: &[u8], lists: &mut ChunkLists) -> Option<Header> {
    let (header, intent, octets) = parse_front::<D, REPLY_LISTS_LEN>(message, &[MSG, NOMSG])?;
    let (front, rest) = octets.split_first_chunk()?;
    if *front != REPLY_FRONT {
        return None;
    }
    lists.set_only_reply(parse_segment(rest.first_chunk()?)?);
    lists.set_intent(intent);
    Some(header)
}

/// The fields in front of the lists, and the octets of the lists. `None` if it is none of these
/// `procedures`, or too short.
#[inline(always)]
fn parse_front<'a, D: Dialect, const LISTS: usize>(
    message: &'a [u8],
    procedures: &[u32],
) -> Option<(Header, Option<Intent>, &'a [u8; LISTS])> {
    // One comparison for all that follow.
    let mut rest = message.get(..lists_at::<D>() + LISTS)?;
    let [xid, version, credits, procedure] = take_words(&mut rest)?;
    if version != D::VERSION || !procedures.contains(&procedure) {
        return None;
    }
    let mut intent = None;
    if D::INTENT {
        let [message_type, inv_handle] = take_words(&mut rest)?;
        let message_type = MessageType::from_word(message_type)?;
        intent = Some(Intent { message_type, inv_handle });
    }
    let body = if procedure == MSG { Body::Msg } else { Body::NoMsg };
    let header = Header { xid: Xid(xid), credits: Credits(credits), body };
    Some((header, intent, rest.first_chunk()?))
}

#[inline(always)]
fn parse_segment(octets: &[u8; SEGMENT_LEN]) -> Option<Segment> {
    let (mut front, offset) = octets.split_last_chunk()?;
    let [handle, length] = take_words(&mut front)?;
    Segment { handle, length, offset: u64::from_be_bytes(*offset) }.check().ok()
}

/// Writes the header of an RDMA_MSG with one Write chunk, which has this segment.
#[inline(always)]
pub(super) fn emit_write<D: Dialect>(
    header: &Header,
    intent: Option<Intent>,
    segment: Segment,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    let octets = emit_front::<D>(header, intent, out)?;
    let (front, rest) = octets.split_first_chunk_mut().ok_or(NoRoom)?;
    let (octets, back) = rest.split_first_chunk_mut().ok_or(NoRoom)?;
    *front = WRITE_FRONT;
    back.copy_from_slice(&WRITE_BACK);
    emit_segment(segment, octets);
    Ok(header_len::<D>())
}

/// The same with one Read chunk.
#[inline(always)]
pub(super) fn emit_read<D: Dialect>(
    header: &Header,
    intent: Option<Intent>,
    chunk: ReadSegment,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    let octets = emit_front::<D>(header, intent, out)?;
    let (front, rest) = octets.split_first_chunk_mut().ok_or(NoRoom)?;
    let (position, rest) = rest.split_first_chunk_mut().ok_or(NoRoom)?;
    let (octets, back) = rest.split_first_chunk_mut().ok_or(NoRoom)?;
    *front = READ_FRONT;
    back.copy_from_slice(&READ_BACK);
    *position = chunk.position.octets().to_be_bytes();
    emit_segment(chunk.segment, octets);
    Ok(header_len::<D>())
}

/// Writes the fields in front of the lists; returns the room of the lists.
#[inline(always)]
fn emit_front<'a, D: Dialect>(
    header: &Header,
    intent: Option<Intent>,
    out: &'a mut [u8],
) -> Result<&'a mut [u8; LISTS_LEN], NoRoom> {
    let out = out.get_mut(..header_len::<D>()).ok_or(NoRoom)?;
    let (fixed, mut rest) = out.split_at_mut(FIXED_LEN);
    put_words([header.xid.0, D::VERSION, header.credits.0, MSG], fixed);
    if let (true, Some(Intent { message_type, inv_handle })) = (D::INTENT, intent) {
        let (octets, behind) = rest.split_at_mut(Intent::LEN);
        put_words([message_type as u32, inv_handle], octets);
        rest = behind;
    }
    rest.first_chunk_mut().ok_or(NoRoom)
}

#[inline(always)]
fn emit_segment(segment: Segment, octets: &mut [u8; SEGMENT_LEN]) {
    let Segment { handle, length, offset } = segment;
    let (front, back) = octets.split_at_mut(8);
    put_words([handle, length], front);
    back.copy_from_slice(&offset.to_be_bytes());
}

impl Layout {
    /// Returns true if the call has a Write chunk of one segment, and no other chunk: an RPC call
    /// message of `call` octets, whose reply has `rest` octets at most in addition to a result of
    /// `item` octets at most. Decides as [`plan_call`](super::form::plan_call).
    #[inline]
    pub const fn needs_write_chunk(&self, call: usize, rest: usize, item: usize) -> bool {
        // RFC 8166 §3.4.6 [8166-21]: a Write chunk has room for the longest result
        let (send, receive) = (self.send_max as usize, self.receive_max as usize);
        self.header_len != 0
            && rest.saturating_add(padded(item)) > receive
            && item > 0
            && item <= u32::MAX as usize
            && rest.saturating_add(ONE_CHUNK_LEN) <= receive
            && call.saturating_add(ONE_CHUNK_LEN) <= send
    }

    /// Returns true if the call has a Read chunk of one segment, and no other chunk: an RPC call
    /// message of `call` octets, without its argument of `item` octets, and a reply of `reply`
    /// octets at most. Decides as [`plan_call`](super::form::plan_call).
    #[inline]
    pub const fn needs_read_chunk(&self, call: usize, item: usize, reply: usize) -> bool {
        let send = self.send_max as usize;
        self.header_len != 0
            && reply <= self.receive_max as usize
            && call.saturating_add(padded(item)) > send
            && item <= u32::MAX as usize
            && call.saturating_add(ONE_CHUNK_LEN) <= send
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpcrdma::form::{CallOffer, CallPlan, CallSizes, Item, ReplyOffer, plan_call};
    use crate::rpcrdma::short::tests::{DIALECTS, connection, settled_client};
    use crate::rpcrdma::{
        Connection, InlineSize, PrivateData, Setup, Side, Versions, v1::Rfc8166, v2, wire,
    };
    use fastrand::Rng;
    use std::vec::Vec;

    /// Words with a meaning somewhere in a header, and some without.
    const WORDS: [u32; 10] = [0, 1, 2, 3, 4, 5, 64, 116, u32::MAX, 0x8000_0000];

    /// Lists of another message, of every kind.
    fn used() -> ChunkLists {
        let segment = Segment { handle: 5, length: 6, offset: 7 };
        let mut lists = ChunkLists::new();
        for position in [0, 8, 64] {
            lists.push_read(Position::new(position).unwrap(), segment).unwrap();
        }
        for _ in 0..2 {
            lists.begin_write().unwrap();
            lists.push_write(segment).unwrap();
        }
        lists.begin_reply();
        lists.push_reply(segment).unwrap();
        lists.set_intent(Some(Intent { message_type: MessageType::Reply, inv_handle: 8 }));
        lists
    }

    /// Reads `message` both ways. Returns true if it has one chunk of one segment.
    fn compare<D: Dialect>(message: &[u8]) -> bool {
        let (mut quick, mut slow) = (used(), used());
        let plain = parse_write::<D>(message, &mut quick)
            .or_else(|| parse_read::<D>(message, &mut quick))
            .or_else(|| parse_reply::<D>(message, &mut quick));
        if plain.is_none() {
            assert_eq!(quick, used(), "{message:02x?}");
        }
        // Empty lists and errors have ways of their own, too.
        let (read, any) =
            (wire::parse::<D>(message, &mut quick), wire::parse_any::<D>(message, &mut slow));
        assert_eq!((read, &quick), (any, &slow), "{message:02x?}");
        let mut copy = used();
        copy.clone_from(&quick);
        assert_eq!(copy, quick);
        let [reads, writes] = [slow.reads().count(), slow.writes().count()];
        let may_be = any.is_ok_and(|(header, _)| match header.body {
            Body::Msg => true,
            Body::NoMsg => writes == 0,
            Body::Error(_) | Body::Optional { .. } => false,
        });
        let chunks = reads + writes + slow.reply().iter().count();
        let is_plain = may_be && (chunks, slow.segments().len()) == (1, 1);
        assert_eq!(plain.is_some(), is_plain, "{message:02x?}");
        is_plain
    }

    fn octets(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// Headers with one chunk, followed by some octets.
    fn headers<D: Dialect>(random: &mut Rng) -> [Vec<u8>; 3] {
        let [xid, credits, handle, length, high, low] = std::array::from_fn(|_| random.u32(..));
        let fixed = [xid, D::VERSION, credits, MSG];
        let intent = [random.u32(..2), handle];
        let intent = if D::INTENT { &intent[..] } else { &[] };
        let position = 4 * random.u32(..64);
        let lists = [
            [0, 1, 1, handle, length, high, low, 0, 0],
            [1, position, handle, length, high, low, 0, 0, 0],
            // A Reply chunk takes a word less.
            [0, 0, 1, 1, handle, length, high, low, xid],
        ];
        lists.map(|lists| octets(&[&fixed, intent, &lists[..], &[xid, 0, 2]].concat()))
    }

    /// Reads headers both ways, with each cut and change; returns the number that still have one
    /// chunk.
    fn compare_changes<D: Dialect>(random: &mut Rng) -> usize {
        let mut plain = 0;
        for mut header in headers::<D>(random) {
            assert!(compare::<D>(&header));
            for cut in 0..header.len() {
                plain += usize::from(compare::<D>(&header[..cut]));
            }
            for at in 0..header.len() {
                let before = header[at];
                for value in [0, 1, 2, 3, 4, 5, 0x80, 0xff] {
                    header[at] = value;
                    plain += usize::from(compare::<D>(&header));
                }
                header[at] = before;
            }
            let words = header.len() / 4;
            let mut empty = header.clone();
            empty[if D::INTENT { 24 } else { 16 }..].fill(0);
            assert!(!compare::<D>(&empty));
            for procedure in 0..7 {
                empty[15] = procedure;
                (0..empty.len()).for_each(|cut| assert!(!compare::<D>(&empty[..cut])));
                for code in 0..5 {
                    empty[19] = code;
                    compare::<D>(&empty);
                }
                empty[19] = 0;
            }
            for _ in 0..2_000 {
                let mut changed = header.clone();
                for _ in 0..random.usize(1..4) {
                    let at = 4 * random.usize(..words);
                    changed[at..at + 4]
                        .copy_from_slice(&random.choice(WORDS).unwrap().to_be_bytes());
                }
                plain += usize::from(compare::<D>(&changed));
            }
            // A segment that ends with the address space, and one that wraps around it.
            let lists = if D::INTENT { 24 } else { 16 };
            let (length, offset) = match (header[lists + 3], header[lists + 7]) {
                (0, 1) => (16, 20),
                (1, _) => (12, 16),
                _ => (20, 24),
            };
            header[lists + length..][..4].copy_from_slice(&[0, 0, 0, 1]);
            header[lists + offset..][..8].fill(0xff);
            assert!(!compare::<D>(&header));
            header[lists + offset + 7] = 0xfe;
            assert!(compare::<D>(&header));
        }
        plain
    }

    #[test]
    fn a_header_with_one_chunk_reads_as_by_the_long_way_whatever_changes() {
        let mut random = Rng::with_seed(5);
        let mut plain = [0; 3];
        for _ in 0..20 {
            plain[0] += compare_changes::<Rfc8166>(&mut random);
            plain[1] += compare_changes::<v2::Undirected>(&mut random);
            plain[2] += compare_changes::<v2::Directed>(&mut random);
        }
        assert!(plain.iter().all(|count| *count > 10_000), "{plain:?} have one chunk");
    }

    /// Writes random lists of at most two segments both ways; returns how many have one chunk.
    fn compare_written<D: Dialect>(random: &mut Rng) -> usize {
        let mut lists = ChunkLists::new();
        let mut segment =
            || Segment { handle: random.u32(..), length: random.u32(..), offset: random.u64(..) };
        let segments = [segment(), segment()];
        match random.u32(..6) {
            0 => lists.set_only_write(segments[0]),
            1 => {
                let position = Position::new(4 * random.u32(..50)).unwrap();
                lists.set_only_read(ReadSegment { position, segment: segments[0] });
            }
            2 => lists.begin_write().unwrap(),
            3 => lists.begin_reply(),
            4 => lists.push_read(Position::ZERO, segments[0]).unwrap(),
            _ => {}
        }
        match random.u32(..6) {
            0 if lists.writes().count() > 0 => lists.push_write(segments[1]).unwrap(),
            1 if lists.reply().is_some() => lists.push_reply(segments[1]).unwrap(),
            2 => lists.push_read(Position::ZERO, segments[1]).unwrap(),
            _ => {}
        }
        let message_type =
            random.choice([MessageType::Call, MessageType::Reply]).expect("one of two");
        lists.set_intent(D::INTENT.then_some(Intent { message_type, inv_handle: random.u32(..) }));
        let header =
            Header { xid: Xid(random.u32(..)), credits: Credits(random.u32(..)), body: Body::Msg };
        let len = wire::header_len(&lists);
        for room in [0, len - 1, len, len + 7] {
            let (mut quick, mut slow) = ([0xee; 200], [0xee; 200]);
            let emitted = wire::emit::<D>(&header, &lists, &mut quick[..room]);
            assert_eq!(emitted, wire::emit_any::<D>(&header, &lists, &mut slow[..room]));
            assert_eq!(emitted.is_ok(), room >= len);
            if emitted.is_ok() {
                assert_eq!(quick, slow);
            }
        }
        let is_plain = lists.segments().len() == 1
            && lists.reads().count() + lists.writes().count() == 1
            && lists.reply().is_none();
        assert_eq!(is_plain, lists.only_write().is_some() || lists.only_read().is_some());
        usize::from(is_plain)
    }

    #[test]
    fn a_header_with_one_chunk_is_written_as_by_the_long_way() {
        let mut random = Rng::with_seed(6);
        let mut plain = [0; 3];
        for _ in 0..5_000 {
            plain[0] += compare_written::<Rfc8166>(&mut random);
            plain[1] += compare_written::<v2::Undirected>(&mut random);
            plain[2] += compare_written::<v2::Directed>(&mut random);
        }
        assert!(plain.iter().all(|count| *count > 1_000), "{plain:?} have one chunk");
    }

    #[test]
    fn a_call_with_one_chunk_is_the_one_that_is_planned() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut writes, mut reads) = (0, 0);
        // One that is sent longer messages than it may send.
        let receive = InlineSize::at_most(4096);
        let own = PrivateData { receive, ..PrivateData::SILENT };
        let peer = PrivateData { send: receive, ..PrivateData::SILENT };
        let setup = Setup { side: Side::Client, own, peer, calls_max: 4, grant: 2 };
        let uneven = Connection::speaking(setup, Versions::One);
        for connection in [connection(Side::Client, Versions::One), uneven]
            .into_iter()
            .chain(DIALECTS.map(settled_client))
        {
            let (layout, path) = (*connection.short(), connection.path(1));
            let most = path.call.octets();
            for _ in 0..20_000 {
                let mut near = |middle: usize| middle.saturating_sub(40) + random.usize(..80);
                let (call, rest) = (near(most - 60), near(path.reply.octets() - 60));
                let (call, rest) = if random.bool() { (call / 2, rest / 2) } else { (call, rest) };
                let item = if random.bool() { random.usize(..200) } else { 4 * most };
                let len = item as u32;
                let sizes = CallSizes {
                    call,
                    item: None,
                    reply_rest_max: rest,
                    reply_item_max: len,
                    reply_items: 1,
                };
                let plan = plan_call(&sizes, &path).unwrap();
                let is_planned = plan
                    == CallPlan { call: CallOffer::Nothing, reply: ReplyOffer::WriteChunk(len) };
                assert_eq!(layout.needs_write_chunk(call, rest, item), is_planned, "{sizes:?}");
                writes += usize::from(is_planned);
                let position = Position::new(8).expect("a multiple of four");
                let item = Some(Item { position, len });
                let whole = call + padded(len as usize);
                let sizes = CallSizes { call: whole, item, reply_item_max: 0, ..sizes };
                let plan = plan_call(&sizes, &path).unwrap();
                let is_planned = matches!(
                    plan,
                    CallPlan { call: CallOffer::ReadChunk(_), reply: ReplyOffer::Nothing }
                );
                assert_eq!(
                    layout.needs_read_chunk(call, len as usize, rest),
                    is_planned,
                    "{sizes:?}"
                );
                reads += usize::from(is_planned);
            }
        }
        assert!(writes > 1_000 && reads > 1_000, "{writes} and {reads} have one chunk");
        assert!(!Layout::default().needs_write_chunk(0, 0, 9_000));
        assert!(!Layout::default().needs_read_chunk(0, 9_000, 0));
    }
}
