//! The whole path of one received message: transport header, chunks, RPC header, NFS arguments or
//! results. Nothing on it allocates. For any octets, the outcome is one that the specifications
//! allow; the assertions here say which.

use stag_protocol::nfs::{binding, v3};
use stag_protocol::rpc::{
    Accepted, CallHeader, Credential, Outcome as RpcOutcome, Refusal, ReplyHeader,
};
use stag_protocol::rpcrdma::chunk::{READS_MAX, WRITES_MAX};
use stag_protocol::rpcrdma::requester::{ReplyPayload, check_reply};
use stag_protocol::rpcrdma::responder::{
    ReplyParts, ReplyPolicy, check_xid, plan_pull, plan_reply,
};
use stag_protocol::rpcrdma::{
    Body, ChunkLists, Connection, Credits, Direction, ErrorBody, ErrorReply, Header, Incoming,
    PeerFault, Side, Xid, v1,
};
use stag_protocol::xdr::{Piece, Reader, Writer, pad};

use crate::calls::{CLIENT_GRANT, SERVER_GRANT};

/// Octets that a server of ours pulls for one call.
pub const PULL_MAX: u32 = (1 << 20) + 4096;

/// Content of a chunk of which nothing is known.
static ZEROS: [u8; PULL_MAX as usize] = [0; PULL_MAX as usize];

/// A procedure: program, version, number.
pub type Called = (u32, u32, u32);

/// Context of a message that its receiver knows.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The call that is outstanding at a requester.
    pub direction: Direction,
    pub xid: Xid,
    pub called: Called,
    pub offered: &'a ChunkLists,
    /// Content of the message's first chunk; at least [`PULL_MAX`] octets.
    pub memory: &'a [u8],
}

/// Fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Forgotten, and counted.
    Discarded(PeerFault),
    /// Answered by an RDMA_ERROR.
    Answered(ErrorBody, PeerFault),
    /// A call that RPC refuses: the answer is a reply without results.
    Refused,
    /// A call to carry out.
    Called(Called),
    /// A reply to another call than the one outstanding.
    Unmatched,
    /// A call of ours failed by RDMA_ERROR.
    Error(ErrorBody),
    /// A call of ours failed, because its reply makes no sense.
    Failed,
    /// A call of ours failed at the other end's RPC.
    Denied,
    /// A call of ours has its results.
    Replied,
}

/// Room for what comes out.
pub struct Scratch {
    lists: ChunkLists,
    returned: ChunkLists,
    /// The parsed message, emitted again: RPC header, and with it arguments or results of NFS 3.
    out: Vec<u8>,
    len: usize,
    /// Octets of it that are the RPC header.
    header_len: usize,
    /// True if names may contain zero octets: a changed word may then look like padding.
    pub zeros_in_names: bool,
}

impl Scratch {
    pub fn new() -> Self {
        let out = vec![0; PULL_MAX as usize + 4096];
        Self {
            lists: ChunkLists::new(),
            returned: ChunkLists::new(),
            out,
            len: 0,
            header_len: 0,
            zeros_in_names: false,
        }
    }

    /// Returns the octets that the meaning of the last message was emitted as.
    pub fn emitted(&self) -> &[u8] {
        &self.out[..self.len]
    }

    /// Of that, the arguments or results.
    pub fn emitted_body(&self) -> &[u8] {
        &self.out[self.header_len..self.len]
    }
}

/// Takes `message` at `end`.
pub fn receive(
    end: &mut Connection,
    message: &[u8],
    context: &Context<'_>,
    scratch: &mut Scratch,
) -> Outcome {
    let side = end.side();
    let mut lists = std::mem::take(&mut scratch.lists);
    scratch.len = 0;
    let incoming = end.handle_message(message, &mut lists);
    check_class(side, message, &incoming);
    let outcome = match incoming {
        Incoming::Call { header, direction, payload_at } => {
            assert_eq!(direction, side.serves());
            check_transport(&header, &lists, message, payload_at);
            let call = Received { header, lists: &lists, inline: &message[payload_at..] };
            serve(end, &call, context.memory, scratch)
        }
        Incoming::Reply { header, direction, payload_at } => {
            assert_eq!(direction, side.calls());
            check_transport(&header, &lists, message, payload_at);
            if (direction, header.xid) == (context.direction, context.xid) {
                let reply = Received { header, lists: &lists, inline: &message[payload_at..] };
                complete(&reply, context, scratch)
            } else {
                Outcome::Unmatched
            }
        }
        Incoming::Error { error, .. } => Outcome::Error(error),
        Incoming::Answer(reply, fault) => answer(message, &reply, fault),
        Incoming::Discard(fault) => Outcome::Discarded(fault),
        Incoming::Close(fault) => panic!("one message never exceeds the grant: {fault}"),
        other => panic!("version 1 has nothing like it: {other:?}"),
    };
    scratch.lists = lists;
    outcome
}

fn word(octets: &[u8], index: usize) -> u32 {
    u32::from_be_bytes(octets[index * 4..index * 4 + 4].try_into().unwrap())
}

/// Checks that RFC 8166 §4.2.4, §4.5 and §4.6 allow the outcome, judged by the four fixed words
/// alone.
fn check_class(side: Side, message: &[u8], incoming: &Incoming) {
    let discarded = matches!(incoming, Incoming::Discard(_));
    if message.len() < v1::FIXED_LEN {
        assert!(discarded, "{incoming:?}");
        return;
    }
    let (version, procedure) = (word(message, 1), word(message, 3));
    let allowed = match (procedure, version, side) {
        (4, ..) => discarded || matches!(incoming, Incoming::Error { .. }),
        _ if message.len() < v1::HEADER_LEN_MIN => discarded,
        (_, 1, _) if procedure == 3 => discarded,
        (_, 1, Side::Server) if procedure > 1 => {
            matches!(
                incoming,
                Incoming::Answer(
                    ErrorReply { error: ErrorBody::Chunk, .. },
                    PeerFault::Procedure(_)
                )
            )
        }
        (_, 1, Side::Client) if procedure > 1 => discarded,
        (_, 1, Side::Server) => true,
        // RFC 8167 §5.3 is all that a client ever answers.
        (_, 1, Side::Client) => {
            !matches!(incoming, Incoming::Answer(_, fault) if !is_of_call(*fault))
        }
        (.., Side::Server) => matches!(
            incoming,
            Incoming::Answer(
                ErrorReply { error: ErrorBody::Version { low: 1, high: 1 }, .. },
                PeerFault::Version(_)
            )
        ),
        (.., Side::Client) => discarded,
    };
    assert!(allowed, "{incoming:?}");
}

/// Faults found where the message is known to be a call.
fn is_of_call(fault: PeerFault) -> bool {
    matches!(fault, PeerFault::ReverseChunks | PeerFault::XidMismatch)
}

/// The header comes out as the octets that it came in, unless segments of two Read chunks were
/// mixed.
fn check_transport(header: &Header, lists: &ChunkLists, message: &[u8], payload_at: usize) {
    assert_eq!(header.xid.0, word(message, 0));
    assert_eq!(v1::header_len(lists), payload_at);
    let mut out = [0; 2048];
    assert_eq!(v1::emit(header, lists, &mut out), Ok(payload_at));
    if lists.reads().count() <= 1 {
        assert_eq!(out[..payload_at], message[..payload_at]);
    }
    let mut again = ChunkLists::new();
    assert_eq!(v1::parse(&out[..payload_at], &mut again), Ok((*header, payload_at)));
    assert_eq!(again, *lists);
}

/// An RDMA_ERROR names the message that it answers (RFC 8166 §4.5), and can be read.
fn answer(message: &[u8], reply: &ErrorReply, fault: PeerFault) -> Outcome {
    assert_eq!((reply.xid.0, reply.version), (word(message, 0), word(message, 1)));
    assert!([SERVER_GRANT, CLIENT_GRANT].map(Credits).contains(&reply.credits));
    let mut out = [0; v1::ERROR_LEN_MAX];
    let len = v1::emit_error(reply, &mut out).unwrap();
    let (header, _) = v1::parse(&out[..len], &mut ChunkLists::new()).unwrap();
    assert_eq!(
        header,
        Header { xid: reply.xid, credits: reply.credits, body: Body::Error(reply.error) }
    );
    Outcome::Answered(reply.error, fault)
}

/// A message whose header was read.
#[derive(Clone, Copy)]
struct Received<'a> {
    header: Header,
    lists: &'a ChunkLists,
    inline: &'a [u8],
}

fn serve(end: &Connection, call: &Received<'_>, memory: &[u8], scratch: &mut Scratch) -> Outcome {
    let Received { ref header, lists, inline } = *call;
    let refuse = |fault| Outcome::Answered(end.chunk_error(header.xid).error, fault);
    let pull = match plan_pull(header, lists, inline.len(), PULL_MAX) {
        Ok(pull) => pull,
        Err(fault) => return refuse(fault),
    };
    assert!(pull.total() <= PULL_MAX);
    let mut contents = std::iter::once(memory).chain(std::iter::repeat(&ZEROS[..]));
    let mut content = |len: u32| &contents.next().expect("it never ends")[..len as usize];
    let base = pull.position_zero().map_or(inline, &mut content);
    if pull.position_zero().is_some()
        && let Err(fault) = check_xid(header, base)
    {
        return refuse(fault);
    }
    let mut items = [&[][..]; READS_MAX];
    for (content_of, item) in items.iter_mut().zip(pull.items()) {
        *content_of = content(item.len);
    }
    let pieces = pull.assemble(base, &items[..pull.items().len()]);
    let mut reader = Reader::over(pieces.as_slice());
    let call = match CallHeader::parse(&mut reader) {
        Ok(call) => call,
        Err(Refusal::Answer(reply)) => return refuse_rpc(&reply, header.xid),
        Err(Refusal::Discard) => {
            let first = pull.chunks().first().expect("an inline message was seen to be a call");
            assert!(first.position.octets() < 8, "the chunk decides what the message is");
            return Outcome::Discarded(PeerFault::NoPayload);
        }
    };
    assert_eq!(call.xid, header.xid);
    end.invalidates(lists);
    check_replies(end, lists, scratch);
    let called = (call.program, call.version, call.procedure);
    let outcome = serve_call(&call, called, reader, scratch);
    // The body of an AUTH_NONE credential is ignored.
    if matches!(outcome, Outcome::Called(_)) && call.credential != Credential::None {
        check_same(scratch, pieces.as_slice(), called);
    }
    outcome
}

/// All that was received is in what was understood: the same octets come out, but for padding,
/// which becomes zero.
fn check_same(scratch: &Scratch, pieces: &[Piece<'_>], called: Called) {
    let is_v3 = (called.0, called.1) == (v3::PROGRAM, v3::VERSION);
    let mut emitted = scratch.emitted();
    for piece in pieces {
        let octets = piece.octets();
        let len = if is_v3 { octets.len() } else { octets.len().min(emitted.len()) };
        let at = scratch.len - emitted.len();
        let (front, back) = emitted.split_at(len);
        let mut words = front.chunks(4).zip(octets.chunks(4)).zip((at..).step_by(4));
        assert!(
            front == &octets[..len]
                || words.all(|((new, old), at)| differs_in_padding(
                    new,
                    old,
                    scratch.zeros_in_names || at < scratch.header_len
                ))
        );
        let padding = match piece {
            Piece::Inline(_) => 0,
            Piece::Chunk(_) => pad(len).min(back.len()),
        };
        emitted = &back[padding..];
    }
    assert!(emitted.is_empty());
}

/// Zeros at the end of a word where others came. The octet in front of padding is one of a name,
/// and no name has a zero, unless it was put there with the whole word; a verifier in the header
/// may have one.
fn differs_in_padding(new: &[u8], old: &[u8], may_be_zero: bool) -> bool {
    let is_named = new[0] == old[0] && (may_be_zero || new[0] != 0 || old == [0, 0, 0, 1]);
    new == old || is_named && new.iter().zip(old).all(|(new, old)| new == old || *new == 0)
}

/// Every answer of RPC names the call and can be read.
fn refuse_rpc(reply: &ReplyHeader<'_>, xid: Xid) -> Outcome {
    assert_eq!(reply.xid, xid);
    let mut out = [0; ReplyHeader::REFUSAL_LEN_MAX];
    let mut writer = Writer::new(&mut out);
    reply.emit(&mut writer).unwrap();
    let len = writer.len();
    assert_eq!(ReplyHeader::parse(&mut Reader::new(&out[..len])).as_ref(), Ok(reply));
    Outcome::Refused
}

/// The meaning of a call survives being emitted.
fn serve_call(
    call: &CallHeader<'_>,
    called: Called,
    reader: Reader<'_>,
    scratch: &mut Scratch,
) -> Outcome {
    let mut writer = Writer::new(&mut scratch.out);
    call.emit(&mut writer).unwrap();
    let header_len = writer.len();
    (scratch.len, scratch.header_len) = (header_len, header_len);
    let mut again = Reader::new(&scratch.out[..header_len]);
    assert_eq!(CallHeader::parse(&mut again).as_ref(), Ok(call));
    if (called.0, called.1) != (v3::PROGRAM, v3::VERSION) {
        return Outcome::Called(called);
    }
    let Some(procedure) = v3::Procedure::new(called.2) else {
        return refuse_rpc(&call.reply(Accepted::ProcUnavail), call.xid);
    };
    let Ok(arguments) = v3::Call::parse(procedure, reader) else {
        return refuse_rpc(&call.reply(Accepted::GarbageArgs), call.xid);
    };
    let _ = binding::result_len_max(&arguments).whole();
    let mut writer = Writer::new(&mut scratch.out[header_len..]);
    arguments.emit(&mut writer).unwrap();
    let len = writer.len();
    scratch.len += len;
    let again = v3::Call::parse(procedure, Reader::new(&scratch.out[header_len..header_len + len]));
    assert_eq!(again, Ok(arguments));
    Outcome::Called(called)
}

/// Whatever memory a call offers, a reply never leaves it.
fn check_replies(end: &Connection, lists: &ChunkLists, scratch: &mut Scratch) {
    for (head, item, tail) in [(24, 0, 0), (128, 1001, 8), (9000, 0, 0)] {
        for policy in [ReplyPolicy::Inline, ReplyPolicy::Chunk] {
            let parts = ReplyParts::with_item(head, item, tail);
            let Ok(plan) =
                plan_reply(lists, parts, end.send_threshold(), policy, &mut scratch.returned)
            else {
                continue;
            };
            for push in plan.pushes(&scratch.returned) {
                let (from, len) = (push.target.offset, u64::from(push.target.length));
                assert!(len > 0);
                assert!(lists.writes().chain(lists.reply()).flat_map(|chunk| chunk.segments).any(
                    |offered| {
                        offered.handle == push.target.handle
                            && offered.offset <= from
                            && from + len <= offered.offset + u64::from(offered.length)
                    }
                ));
            }
        }
    }
}

fn complete(reply: &Received<'_>, context: &Context<'_>, scratch: &mut Scratch) -> Outcome {
    let Received { ref header, lists, inline } = *reply;
    let shape = match check_reply(context.offered, header, lists, inline.len()) {
        Ok(shape) => shape,
        Err(fault) => return Outcome::Discarded(fault),
    };
    check_returned(context.offered, lists);
    let mut contents = std::iter::once(context.memory).chain(std::iter::repeat(&ZEROS[..]));
    let mut content = |len: u64, room: u64| {
        assert!(len <= room, "nobody says to have written beyond what was offered");
        &contents.next().expect("it never ends")[..len as usize]
    };
    let payload = match shape.payload {
        ReplyPayload::Inline(len) => &inline[..len],
        ReplyPayload::ReplyChunk(len) => content(len, context.offered.reply().unwrap().total()),
    };
    let mut pieces = [Piece::Inline(&[]); 1 + WRITES_MAX];
    pieces[0] = Piece::Inline(payload);
    for ((piece, written), offered) in
        pieces[1..].iter_mut().zip(shape.written()).zip(context.offered.writes())
    {
        *piece = Piece::Chunk(content(*written, offered.total()));
    }
    let outcome = complete_call(header.xid, Reader::over(&pieces), context.called, scratch);
    if outcome == Outcome::Replied {
        check_same(scratch, &pieces, context.called);
    }
    outcome
}

/// An accepted reply returns the offered chunks, and no length grew (RFC 8166 §3.4.6, §4.3).
fn check_returned(offered: &ChunkLists, returned: &ChunkLists) {
    let chunks = |lists: &ChunkLists| (lists.writes().count(), lists.reply().is_some());
    assert_eq!(chunks(offered), chunks(returned));
    assert_eq!(returned.reads().count(), 0);
    let offered = offered.writes().chain(offered.reply());
    for (offered, returned) in offered.zip(returned.writes().chain(returned.reply())) {
        assert_eq!(offered.segments.len(), returned.segments.len());
        for (offered, returned) in offered.segments.iter().zip(returned.segments) {
            assert_eq!((offered.handle, offered.offset), (returned.handle, returned.offset));
            assert!(returned.length <= offered.length);
        }
    }
}

/// The meaning of a reply survives being emitted.
fn complete_call(
    xid: Xid,
    mut reader: Reader<'_>,
    called: Called,
    scratch: &mut Scratch,
) -> Outcome {
    let Ok(reply) = ReplyHeader::parse(&mut reader) else { return Outcome::Failed };
    if reply.xid != xid {
        return Outcome::Failed;
    }
    let mut writer = Writer::new(&mut scratch.out);
    reply.emit(&mut writer).unwrap();
    let header_len = writer.len();
    (scratch.len, scratch.header_len) = (header_len, header_len);
    let again = ReplyHeader::parse(&mut Reader::new(&scratch.out[..header_len]));
    assert_eq!(again.as_ref(), Ok(&reply));
    if !matches!(reply.outcome, RpcOutcome::Accepted { status: Accepted::Success, .. }) {
        return Outcome::Denied;
    }
    if (called.0, called.1) != (v3::PROGRAM, v3::VERSION) {
        return Outcome::Replied;
    }
    let procedure = v3::Procedure::new(called.2).expect("we called it");
    let Ok(results) = v3::Reply::parse(procedure, reader) else { return Outcome::Failed };
    let mut writer = Writer::new(&mut scratch.out[header_len..]);
    results.emit(&mut writer).unwrap();
    let len = writer.len();
    scratch.len += len;
    let again =
        v3::Reply::parse(procedure, Reader::new(&scratch.out[header_len..header_len + len]));
    assert_eq!(again.as_ref(), Ok(&results));
    Outcome::Replied
}
