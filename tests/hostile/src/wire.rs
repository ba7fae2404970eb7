//! Octets as a defective peer writes them: every field of every layer at will. Its own encoders and
//! its own CRC, so that a mistake in the code under test is not made here a second time.

use std::sync::LazyLock;

/// Key of an MPA Request (RFC 5044 §7.1.1).
pub const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
/// Key of an MPA Reply.
pub const REPLY: &[u8; 16] = b"MPA ID Rep Frame";
/// MPA flag: markers wanted.
pub const M: u8 = 0x80;
/// MPA flag: CRCs wanted.
pub const C: u8 = 0x40;
/// MPA flag: rejected.
pub const R: u8 = 0x20;
/// MPA flag: enhanced set-up data (RFC 6581 §9).
pub const S: u8 = 0x10;

/// XDR as a list of parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xdr(pub Vec<u8>);

impl Xdr {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// A word.
    #[must_use]
    pub fn u32(mut self, word: u32) -> Self {
        self.0.extend_from_slice(&word.to_be_bytes());
        self
    }

    /// Words.
    #[must_use]
    pub fn words(self, words: &[u32]) -> Self {
        words.iter().fold(self, |xdr, word| xdr.u32(*word))
    }

    /// A hyper.
    #[must_use]
    pub fn u64(mut self, hyper: u64) -> Self {
        self.0.extend_from_slice(&hyper.to_be_bytes());
        self
    }

    /// Octets as they are.
    #[must_use]
    pub fn raw(mut self, octets: &[u8]) -> Self {
        self.0.extend_from_slice(octets);
        self
    }

    /// Octets after their length, padded.
    #[must_use]
    pub fn opaque(self, octets: &[u8]) -> Self {
        let mut xdr = self.u32(word(octets.len())).raw(octets);
        xdr.0.resize(xdr.0.len().next_multiple_of(4), 0);
        xdr
    }
}

/// A length as a word.
pub fn word(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// The word at `at`, or zero past the end.
pub fn word_at(octets: &[u8], at: usize) -> u32 {
    octets.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_be_bytes(*four))
}

/// The hyper at `at`, or zero past the end.
pub fn hyper_at(octets: &[u8], at: usize) -> u64 {
    octets
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |eight| u64::from_be_bytes(*eight))
}

/// `octets` with `value` in place of the word at `at`.
pub fn with_word(mut octets: Vec<u8>, at: usize, value: u32) -> Vec<u8> {
    if let Some(slot) = octets.get_mut(at..at + 4) {
        slot.copy_from_slice(&value.to_be_bytes());
    }
    octets
}

/// `octets` with the bits of `mask` flipped at `at`.
pub fn flipped(mut octets: Vec<u8>, at: usize, mask: u8) -> Vec<u8> {
    if let Some(octet) = octets.get_mut(at) {
        *octet ^= mask;
    }
    octets
}

/// The first `len` of `octets`.
pub fn cut(mut octets: Vec<u8>, len: usize) -> Vec<u8> {
    octets.truncate(len);
    octets
}

/// The fields of an MPA frame after its key (RFC 5044 §7.1.1).
#[derive(Clone, Copy)]
pub struct FrameHead {
    /// M, C, R, S and the reserved bits.
    pub flags: u8,
    /// Revision of MPA.
    pub revision: u8,
    /// The length field, right or wrong.
    pub len: u16,
}

/// An MPA frame; `data` is the private data with the words of revision 2.
pub fn frame_of(key: &[u8; 16], head: FrameHead, data: &[u8]) -> Vec<u8> {
    let FrameHead { flags, revision, len } = head;
    [&key[..], &[flags, revision], &len.to_be_bytes(), data].concat()
}

/// An MPA frame whose length field is right.
pub fn frame(key: &[u8; 16], flags: u8, revision: u8, data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(data.len()).unwrap_or(u16::MAX);
    frame_of(key, FrameHead { flags, revision, len }, data)
}

/// IRD and ORD (RFC 6581 §9.1).
pub fn depths(ird: u16, ord: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (ird.to_be_bytes(), ord.to_be_bytes());
    [a, b, c, d]
}

/// CM private data of RPC-over-RDMA (RFC 8797 §4): version, flags, sizes as they are coded.
pub fn offer(version: u8, flags: u8, send: u8, receive: u8) -> [u8; 8] {
    [0xf6, 0xab, 0x0e, 0x18, version, flags, send, receive]
}

static CRC_TABLE: LazyLock<[u32; 256]> = LazyLock::new(|| {
    let bit = |crc: u32, _| crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
    std::array::from_fn(|index| (0..8).fold(index as u32, bit))
});

/// CRC32c as RFC 5044 §4.4 and RFC 3385 define it.
pub fn crc32c(octets: &[u8]) -> u32 {
    let step = |crc: u32, octet: &u8| {
        let low = (crc ^ u32::from(*octet)) & 0xff;
        crc >> 8 ^ CRC_TABLE.get(low as usize).copied().unwrap_or(0)
    };
    !octets.iter().fold(!0, step)
}

/// An FPDU without its CRC field: length, ULPDU, pad.
pub fn open_fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut octets = u16::try_from(ulpdu.len()).unwrap_or(u16::MAX).to_be_bytes().to_vec();
    octets.extend_from_slice(ulpdu);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

/// `octets` and their CRC.
pub fn sealed(mut octets: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&octets);
    octets.extend_from_slice(&crc.to_le_bytes());
    octets
}

/// A whole FPDU (RFC 5044 §4.1).
pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    sealed(open_fpdu(ulpdu))
}

/// Header fields of a tagged segment (RFC 5041 §4.2).
#[derive(Clone, Copy, Debug)]
pub struct RawTagged {
    /// T, L, reserved bits and the DDP version.
    pub ddp: u8,
    /// RDMAP version, reserved bits and opcode.
    pub rdmap: u8,
    /// The buffer.
    pub stag: u32,
    /// The place in it.
    pub to: u64,
}

impl RawTagged {
    /// The last segment of an RDMA Write.
    pub const fn write(stag: u32, to: u64) -> Self {
        Self { ddp: 0xC1, rdmap: 0x40, stag, to }
    }

    /// The last segment of a Read Response.
    pub const fn response(stag: u32, to: u64) -> Self {
        Self { ddp: 0xC1, rdmap: 0x42, stag, to }
    }

    /// The same, more to come.
    #[must_use]
    pub const fn more(self) -> Self {
        Self { ddp: self.ddp & !0x40, ..self }
    }

    /// The ULPDU.
    pub fn with(self, payload: &[u8]) -> Vec<u8> {
        [&[self.ddp, self.rdmap][..], &self.stag.to_be_bytes(), &self.to.to_be_bytes(), payload]
            .concat()
    }
}

/// Header fields of an untagged segment (RFC 5041 §4.3).
#[derive(Clone, Copy, Debug)]
pub struct RawUntagged {
    /// T, L, reserved bits and the DDP version.
    pub ddp: u8,
    /// RDMAP version, reserved bits and opcode.
    pub rdmap: u8,
    /// The STag to invalidate.
    pub invalidate: u32,
    /// Queue number.
    pub queue: u32,
    /// Message sequence number.
    pub msn: u32,
    /// Message offset.
    pub mo: u32,
}

impl RawUntagged {
    /// A segment of this opcode and queue, the last of its message.
    pub const fn of(opcode: u8, queue: u32, msn: u32) -> Self {
        Self { ddp: 0x41, rdmap: 0x40 | opcode, invalidate: 0, queue, msn, mo: 0 }
    }

    /// A Send.
    pub const fn send(msn: u32) -> Self {
        Self::of(3, 0, msn)
    }

    /// A Send with Invalidate.
    pub const fn send_invalidate(msn: u32, stag: u32) -> Self {
        Self { invalidate: stag, ..Self::of(4, 0, msn) }
    }

    /// A Read Request.
    pub const fn read(msn: u32) -> Self {
        Self::of(1, 1, msn)
    }

    /// A Terminate.
    pub const fn terminate() -> Self {
        Self::of(7, 2, 1)
    }

    /// The same, more to come.
    #[must_use]
    pub const fn more(self) -> Self {
        Self { ddp: self.ddp & !0x40, ..self }
    }

    /// The same, at another offset.
    #[must_use]
    pub const fn at(self, mo: u32) -> Self {
        Self { mo, ..self }
    }

    /// The ULPDU.
    pub fn with(self, payload: &[u8]) -> Vec<u8> {
        let words = [self.invalidate, self.queue, self.msn, self.mo];
        Xdr(vec![self.ddp, self.rdmap]).words(&words).raw(payload).0
    }
}

/// The header of a Read Request (RFC 5040 §4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAsk {
    /// Sink of the answer: key and offset.
    pub sink: (u32, u64),
    /// Octets.
    pub len: u32,
    /// Source to read: key and offset.
    pub source: (u32, u64),
}

impl ReadAsk {
    /// Octets of the header.
    pub fn header(self) -> Vec<u8> {
        let sink = Xdr::new().u32(self.sink.0).u64(self.sink.1).u32(self.len);
        sink.u32(self.source.0).u64(self.source.1).0
    }

    /// Parses the payload of a Read Request.
    pub fn parse(payload: &[u8]) -> Self {
        Self {
            sink: (word_at(payload, 0), hyper_at(payload, 4)),
            len: word_at(payload, 12),
            source: (word_at(payload, 16), hyper_at(payload, 20)),
        }
    }
}

/// A segment of a chunk (RFC 8166 §3.4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawSegment {
    /// The STag.
    pub handle: u32,
    /// Octets.
    pub length: u32,
    /// The place in it.
    pub offset: u64,
}

impl RawSegment {
    fn emit(self, xdr: Xdr) -> Xdr {
        xdr.words(&[self.handle, self.length]).u64(self.offset)
    }

    /// Its first `len` octets.
    #[must_use]
    pub const fn of_len(self, length: u32) -> Self {
        Self { length, ..self }
    }

    /// Returns the part of the segment after its first `by` octets.
    #[must_use]
    pub const fn skip(self, by: u32) -> Self {
        Self { length: self.length - by, offset: self.offset + by as u64, ..self }
    }
}

/// A header of RPC-over-RDMA version 1 (RFC 8166 §4.2, §4.3), field by field.
#[derive(Clone, Debug)]
pub struct RawHeader {
    /// The transaction.
    pub xid: u32,
    /// The version word.
    pub version: u32,
    /// Credits.
    pub credits: u32,
    /// The procedure word.
    pub procedure: u32,
    /// Call or reply, and the handle to invalidate: two words that only one dialect of version 2
    /// has.
    pub intent: Option<[u32; 2]>,
    /// Position and segment of each entry of the Read list.
    pub reads: Vec<(u32, RawSegment)>,
    /// The Write list.
    pub writes: Vec<Vec<RawSegment>>,
    /// The Reply chunk.
    pub reply: Option<Vec<RawSegment>>,
}

/// RDMA_MSG.
pub const MSG: u32 = 0;
/// RDMA_NOMSG.
pub const NOMSG: u32 = 1;
/// RDMA_MSGP.
pub const MSGP: u32 = 2;
/// RDMA_DONE.
pub const DONE: u32 = 3;
/// RDMA_ERROR.
pub const ERROR: u32 = 4;

impl RawHeader {
    /// RDMA_MSG of version 1 without chunks.
    pub const fn msg(xid: u32) -> Self {
        Self {
            xid,
            version: 1,
            credits: 32,
            procedure: MSG,
            intent: None,
            reads: Vec::new(),
            writes: Vec::new(),
            reply: None,
        }
    }

    /// RDMA_NOMSG without chunks.
    pub fn nomsg(xid: u32) -> Self {
        Self { procedure: NOMSG, ..Self::msg(xid) }
    }

    /// With one more entry of the Read list.
    #[must_use]
    pub fn read(mut self, position: u32, segment: RawSegment) -> Self {
        self.reads.push((position, segment));
        self
    }

    /// With one more Write chunk.
    #[must_use]
    pub fn write(mut self, segments: &[RawSegment]) -> Self {
        self.writes.push(segments.to_vec());
        self
    }

    /// With a Reply chunk.
    #[must_use]
    pub fn reply(mut self, segments: &[RawSegment]) -> Self {
        self.reply = Some(segments.to_vec());
        self
    }

    /// The four words that all versions have.
    pub fn fixed(&self) -> Xdr {
        Xdr::new().words(&[self.xid, self.version, self.credits, self.procedure])
    }

    /// The header, and `payload` after it.
    pub fn with(&self, payload: &[u8]) -> Vec<u8> {
        let chunk = |xdr: Xdr, segments: &[RawSegment]| {
            segments
                .iter()
                .fold(xdr.u32(1).u32(word(segments.len())), |xdr, segment| segment.emit(xdr))
        };
        let reads = self.reads.iter().fold(
            self.fixed().words(self.intent.as_ref().map_or(&[], |words| &words[..])),
            |xdr, (position, segment)| segment.emit(xdr.words(&[1, *position])),
        );
        let writes =
            self.writes.iter().fold(reads.u32(0), |xdr, segments| chunk(xdr, segments)).u32(0);
        let lists = self
            .reply
            .as_ref()
            .map_or_else(|| writes.clone().u32(0), |segments| chunk(writes.clone(), segments));
        lists.raw(payload).0
    }
}

/// A credential or verifier as it is on the wire, with any length word.
pub fn auth(xdr: Xdr, flavor: u32, len: u32, body: &[u8]) -> Xdr {
    xdr.words(&[flavor, len]).raw(body)
}

/// The body of AUTH_SYS (RFC 5531 Appendix A).
pub fn sys(machine: &[u8], gids: &[u32]) -> Vec<u8> {
    Xdr::new().u32(7).opaque(machine).words(&[0, 0, word(gids.len())]).words(gids).0
}

/// The header of a call with AUTH_SYS of the superuser and AUTH_NONE for a verifier.
pub fn call(xid: u32, program: u32, version: u32, procedure: u32) -> Xdr {
    let body = sys(b"hostile", &[]);
    let fixed = Xdr::new().words(&[xid, 0, 2, program, version, procedure]);
    auth(fixed, 1, word(body.len()), &body).words(&[0, 0])
}

/// The header of a successful reply.
pub fn success(xid: u32) -> Xdr {
    Xdr::new().words(&[xid, 1, 0, 0, 0, 0])
}

/// A record of one fragment (RFC 5531 §11).
pub fn record(message: &[u8]) -> Vec<u8> {
    fragment(message, true)
}

/// A fragment.
pub fn fragment(octets: &[u8], last: bool) -> Vec<u8> {
    let flag = if last { 1 << 31 } else { 0 };
    Xdr::new().u32(word(octets.len()) | flag).raw(octets).0
}

/// NFS (RFC 1813).
pub const NFS: u32 = 100_003;
/// MOUNT.
pub const MOUNT: u32 = 100_005;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_is_the_one_of_the_specification() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        // RFC 3385: 32 octets of zero.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
    }

    #[test]
    fn a_zero_length_write_has_these_octets() {
        let octets = fpdu(&RawTagged::write(1, 0).with(b""));
        let expected = "000ec1400000000100000000000000 00ebd34c5f".replace(' ', "");
        assert_eq!(octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>(), expected);
    }

    #[test]
    fn a_header_without_chunks_has_28_octets() {
        assert_eq!(RawHeader::msg(7).with(b"").len(), 28);
        let segment = RawSegment { handle: 1, length: 2, offset: 3 };
        let full =
            RawHeader::msg(7).read(4, segment).write(&[segment; 2]).reply(&[segment]).with(b"");
        assert_eq!(full.len(), 28 + 24 + 4 + 4 + 32 + 4 + 16);
    }
}
