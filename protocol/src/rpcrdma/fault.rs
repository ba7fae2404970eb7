//! Faults of a peer: one variant for each rule it can break.

use core::fmt;

/// The rule that the peer broke. The function that returns it says if the answer is silence,
/// RDMA_ERROR or the end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerFault {
    /// The message is shorter than the shortest header of its kind (RFC 8166 §4.5).
    ShortHeader {
        /// Octets that arrived.
        len: u32,
    },
    /// We do not speak the version (RFC 8166 §4.5.1).
    Version(u32),
    /// The procedure number is reserved or unknown, RDMA_MSGP among them (RFC 8166 §4.2.4, §4.6.1).
    Procedure(u32),
    /// RDMA_DONE, which no peer sends (RFC 8166 §4.6.2).
    Done,
    /// RDMA_ERROR at a side that made no call (RFC 8166 §4.2.4).
    ErrorAtResponder,
    /// RDMA_ERROR whose content means nothing (RFC 8166 §4.5).
    UnreadableError,
    /// The message ends inside its chunk lists (RFC 8166 §4.5.2).
    CutLists,
    /// The word before an optional item is neither 0 nor 1 (RFC 4506 §4.19).
    Discriminator(u32),
    /// A Read chunk's position is no multiple of four (RFC 8166 §3.4.5).
    Position(u32),
    /// A segment reaches beyond the end of the address space.
    OffsetWraps,
    /// More segments than [`SEGMENTS_MAX`](super::chunk::SEGMENTS_MAX) in one message (RFC 8267
    /// §6.4.2).
    TooManySegments,
    /// More chunks than one list of ours holds (RFC 8267 §6.4.2).
    TooManyChunks,
    /// RDMA_NOMSG without any chunk (RFC 8166 §4.5.2).
    NoLists,
    /// The transaction differs between the header and the RPC message (RFC 8166 §4.2.1).
    XidMismatch,
    /// The message carries no RPC message at all (RFC 8166 §4.2.4).
    NoPayload,
    /// The RPC message is neither a call nor a reply (RFC 5531 §9).
    MessageType(u32),
    /// The RPC message is both after the header and in a chunk, or follows RDMA_NOMSG (RFC 8166
    /// §3.5.3, §4.2.4).
    PayloadTwice,
    /// A Read chunk is beyond the payload, or inside another one (RFC 8166 §3.4.5).
    PositionOutside(u32),
    /// The chunks of a call hold more than our limit (RFC 8166 §3.4.4).
    TooLong,
    /// A call with integrity or privacy of RPCSEC_GSS has chunks for arguments or results (RFC 8166
    /// §8.2.2.3).
    ReducedProtected,
    /// A reply at a side that made no call.
    UnexpectedReply,
    /// A call at a side that does not serve this direction (RFC 8167 §5).
    UnexpectedCall,
    /// Chunks in a reverse-direction call, which we do not accept (RFC 8167 §5.3).
    ReverseChunks,
    /// A reply carries a Read list (RFC 8166 §4.3.1).
    ReadListInReply,
    /// A reply returns another number of chunks than the call offered (RFC 8166 §3.4.6, §4.3.3).
    ChunkCount,
    /// A returned chunk has another number of segments than was offered (RFC 8166 §3.4.6).
    SegmentCount,
    /// A returned segment has another handle or offset than was offered (RFC 8166 §3.4.6).
    SegmentMoved,
    /// A returned segment is longer than was offered (RFC 8166 §3.4.6).
    SegmentGrew,
    /// A returned chunk is not filled in order: a segment follows one that is not full (RFC 8166
    /// §3.4.6).
    SegmentGap,
    /// RDMA_MSG that says the Reply chunk was written too (RFC 8166 §4.3.3).
    ReplyChunkUsed,
    /// The chunk offered for a result is too small for it (RFC 8166 §3.4.6).
    WriteChunkTooSmall,
    /// The Reply chunk is too small for the reply (RFC 8166 §4.3.3, §4.5.3).
    ReplyChunkTooSmall,
    /// The reply does not fit inline, and no Reply chunk was offered (RFC 8166 §4.3.3).
    NoReplyChunk,
    /// More calls outstanding than were granted (RFC 8166 §3.3.1).
    CreditsExceeded,
    /// The header says call and the RPC message reply, or the other way round (draft 001 §4.1).
    TypeMismatch,
    /// An option that we do not know, or do not use (draft 000 §3.1).
    UnknownOption(u32),
    /// The content of an option cannot be read, or a payload follows where none belongs (draft 000
    /// §3.2).
    BadOption(u32),
    /// The answer to an option that was not requested.
    UnexpectedOption(u32),
}

const _: () = assert!(size_of::<PeerFault>() <= 8);

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::ShortHeader { len } => {
                return write!(f, "the message of {len} octets is shorter than its header");
            }
            Self::Version(version) => {
                return write!(f, "the peer speaks version {version}, which we do not");
            }
            Self::Procedure(number) => return write!(f, "procedure {number} is not to be sent"),
            Self::Discriminator(word) => {
                return write!(f, "the word before an optional item is {word}, neither 0 nor 1");
            }
            Self::Position(position) => {
                return write!(f, "read position {position} is no multiple of four");
            }
            Self::MessageType(word) => {
                return write!(f, "RPC message type {word} is neither call nor reply");
            }
            Self::PositionOutside(position) => {
                return write!(f, "read position {position} lies outside the payload");
            }
            Self::UnknownOption(opttype) => {
                return write!(f, "option {opttype:#x} is none that we use");
            }
            Self::BadOption(opttype) => {
                return write!(f, "option {opttype:#x} has unreadable content");
            }
            Self::UnexpectedOption(opttype) => {
                return write!(f, "option {opttype:#x} answers no request");
            }
            Self::TypeMismatch => {
                "the header and the RPC message differ on being a call or a reply"
            }
            Self::Done => "RDMA_DONE is not to be sent",
            Self::ErrorAtResponder => "an RDMA_ERROR came to a side that made no call",
            Self::UnreadableError => "the RDMA_ERROR has no known error code",
            Self::CutLists => "the message ends inside its chunk lists",
            Self::OffsetWraps => "a segment reaches beyond the end of the address space",
            Self::TooManySegments => "the chunk lists hold more segments than we take",
            Self::TooManyChunks => "a chunk list holds more chunks than we take",
            Self::NoLists => "RDMA_NOMSG came without any chunk",
            Self::XidMismatch => "the header and the RPC message name different transactions",
            Self::NoPayload => "the message carries no RPC message",
            Self::PayloadTwice => "the RPC message came both inline and in a chunk",
            Self::TooLong => "the chunks of the call hold more than we take",
            Self::ReducedProtected => {
                "the call protects its arguments and results, and would have them in chunks"
            }
            Self::UnexpectedReply => "a reply came to a side that made no call",
            Self::UnexpectedCall => "a call came to a side that does not serve its direction",
            Self::ReverseChunks => "a reverse-direction call carries chunks",
            Self::ReadListInReply => "a reply carries a Read list",
            Self::ChunkCount => "a reply returns another number of chunks than were offered",
            Self::SegmentCount => {
                "a returned chunk has another number of segments than was offered"
            }
            Self::SegmentMoved => "a returned segment names other memory than was offered",
            Self::SegmentGrew => "a returned segment is longer than was offered",
            Self::SegmentGap => "a returned chunk is not filled in order",
            Self::ReplyChunkUsed => "an inline reply says that the Reply chunk was written",
            Self::WriteChunkTooSmall => "the Write chunk is too small for its result",
            Self::ReplyChunkTooSmall => "the Reply chunk is too small for the reply",
            Self::NoReplyChunk => {
                "the reply is too long to go inline and no Reply chunk was offered"
            }
            Self::CreditsExceeded => "the peer has more calls outstanding than were granted",
        })
    }
}

impl core::error::Error for PeerFault {}
