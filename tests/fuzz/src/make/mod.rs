//! Inputs made from a structure: messages that a peer that keeps the rules may send, sometimes
//! with small violations.

mod compound;
mod gateway;
mod gss;
mod iwarp;
mod kerberos;
mod nfs4;
mod shm;

use stag_protocol::{
    nfs::{mount, v3},
    rpc::{
        Accepted, Auth, AuthStatus, AuthSys, Credential, Denied, Gids, Outcome, ReplyHeader,
        record::Fragment,
    },
    rpcrdma::{
        Body, ChunkLists, Credits, Dialects, ErrorBody, Header, InlineSize, Intent, MessageType,
        Position, PrivateData, Segment, Xid,
        chunk::{READS_MAX, SEGMENTS_MAX, WRITES_MAX},
        option::{self, Exchange, Message, health},
        v1, v2,
    },
    xdr::{Codec, Error, Reader},
};

use crate::{
    mutate::push_part,
    octets::{Called, written},
    random::FuzzRandom,
    targets::{InputVerdict, TYPES},
};

pub use crate::octets::emitted;
pub use compound::{compound, huge_hole};
pub use gateway::{replies, shard, tcp};
pub use gss::{gss_body, gss_credential, gss_init, gss_token};
pub use iwarp::{fpdus, iwarp_connection, mpa, terminate, ulpdu};
pub use kerberos::{keytab, krb_token};
pub use nfs4::{nfs4_attributes, nfs4_callback, nfs4_compound, nfs4_reply, nfs4_state};
pub use shm::shm;

/// Up to 64 words, as fields have them.
pub fn words(random: &mut FuzzRandom) -> Vec<u8> {
    (0..random.below(64)).flat_map(|_| random.word().to_be_bytes()).collect()
}

/// Makes the report of a server about its stages.
pub fn stages(random: &mut FuzzRandom) -> Vec<u8> {
    let mut octets = some_words(random, 2);
    for _ in 0..7 {
        let count = random.below(4);
        octets.extend((count as u32).to_be_bytes());
        for _ in 0..count {
            octets.extend(some_words(random, 2));
            // What is more is refused.
            octets.extend((random.below(1 << 16) as u64).to_be_bytes());
        }
    }
    octets
}

/// `count` random words, encoded.
fn some_words(random: &mut FuzzRandom, count: usize) -> Vec<u8> {
    (0..count).flat_map(|_| random.word().to_be_bytes()).collect()
}

/// Octets of one of the types with a codec, after the type's number. Any value of a type has octets
/// that parse to it: so values are drawn by parsing.
pub fn typed(random: &mut FuzzRandom) -> Vec<u8> {
    let choice = random.below(TYPES.len());
    let mut input = Vec::new();
    for _ in 0..16 {
        input = (choice as u32).to_be_bytes().to_vec();
        input.extend(some_words(random, 100));
        let check = std::panic::catch_unwind(|| (TYPES[choice].1)(&input[4..]));
        // An input that panics is left to the caller.
        if !matches!(check, Ok(InputVerdict::Refused(_))) {
            break;
        }
    }
    input
}

/// Makes a credential and a verifier, and hands them to `with`.
fn with_credential<T>(
    random: &mut FuzzRandom,
    with: impl FnOnce(Credential<'_>, Auth<'_>) -> T,
) -> T {
    let (machine, body) = (random.below(20), random.below(40));
    let (machine, body) = (random.octets(machine), random.octets(body));
    let gids: Vec<_> = (0..random.below(17)).map(|_| random.u32()).collect();
    let (gids, uid, gid) = (Gids::new(&gids).expect("at most 16"), random.word(), random.word());
    let verifier = if random.one_in(4) { Auth { flavor: 6, body: &body } } else { Auth::NONE };
    let credential = match random.below(4) {
        0 => Credential::None,
        1 => Credential::Other(Auth { flavor: 6, body: &body }),
        _ => Credential::Sys(AuthSys {
            stamp: random.word(),
            machine_name: &machine,
            uid,
            gid,
            gids,
        }),
    };
    with(credential, verifier)
}

/// The header of a call to this procedure.
fn call_header(random: &mut FuzzRandom, xid: u32, called: Called) -> Vec<u8> {
    with_credential(random, |credential, verifier| {
        let header = called.header(xid, credential, verifier);
        written(|writer| header.emit(writer))
    })
}

/// A call with arguments.
pub fn rpc_call(random: &mut FuzzRandom) -> Vec<u8> {
    let (xid, program, procedure) = (random.u32(), random.word(), random.word());
    let mut call = call_header(random, xid, Called { program, version: 3, procedure });
    call.extend(words(random));
    call
}

/// A reply with results.
pub fn rpc_reply(random: &mut FuzzRandom) -> Vec<u8> {
    let body = random.octets(12);
    let verifier = if random.one_in(3) { Auth { flavor: 6, body: &body } } else { Auth::NONE };
    let (low, high) = (random.word(), random.word());
    let accepted = [
        Accepted::Success,
        Accepted::ProgUnavail,
        Accepted::ProgMismatch { low, high },
        Accepted::ProcUnavail,
        Accepted::GarbageArgs,
        Accepted::SystemErr,
    ];
    let outcome = match random.below(4) {
        0 => Outcome::Denied(Denied::RpcMismatch { low, high }),
        1 => Outcome::Denied(Denied::AuthError(AuthStatus(low))),
        _ => Outcome::Accepted { verifier, status: random.pick(&accepted) },
    };
    let header = ReplyHeader { xid: Xid(random.u32()), outcome };
    let mut reply = written(|writer| header.emit(writer));
    reply.extend(words(random));
    reply
}

/// A credential.
pub fn rpc_auth(random: &mut FuzzRandom) -> Vec<u8> {
    with_credential(random, |credential, _| written(|writer| credential.emit(writer)))
}

/// Records in fragments, after two octets that say how they arrive.
pub fn record_stream(random: &mut FuzzRandom) -> Vec<u8> {
    let mut input = vec![random.u8(), random.u8()];
    for _ in 0..random.below(12) {
        let len = random.pick(&[0, 0, 1, 4, 20, 63, 64, 128]);
        let fragment = Fragment::new(len, !random.one_in(3)).expect("it is short");
        input.extend(fragment.emit());
        input.extend(random.octets(len as usize));
    }
    input
}

/// An offer among other octets.
pub fn private_data(random: &mut FuzzRandom) -> Vec<u8> {
    let (before, behind) = (random.below(20), random.below(20));
    let mut input = random.octets(before);
    input.extend(offer(random));
    if random.one_in(2) {
        let mut out = [0; Dialects::LEN];
        Dialects { directed: !random.one_in(4) }.emit(&mut out);
        input.extend(out);
    }
    input.extend(random.octets(behind));
    input
}

fn offer(random: &mut FuzzRandom) -> [u8; PrivateData::LEN] {
    let mut out = [0; PrivateData::LEN];
    let (send, receive) =
        (InlineSize::at_most(random.u32() >> 14), InlineSize::at_most(random.u32() >> 14));
    PrivateData { remote_invalidation: random.one_in(2), send, receive }.emit(&mut out);
    out
}

/// A segment of any content.
fn segment(random: &mut FuzzRandom) -> Segment {
    let length = random.pick(&[0, 1, 3, 4, 100, 4096, 1 << 20, u32::MAX]);
    Segment { handle: random.u32(), length, offset: random.u64() >> random.below(64) }
        .check()
        .unwrap_or(Segment { handle: 1, length, offset: 0 })
}

/// Chunk lists of any shape that we take.
pub fn lists(random: &mut FuzzRandom) -> ChunkLists {
    let mut lists = ChunkLists::new();
    let most = if random.one_in(8) { SEGMENTS_MAX } else { 6 };
    for _ in 0..random.below(most) {
        let position =
            Position::new(random.below(READS_MAX) as u32 * 4).expect("a multiple of four");
        lists.push_read(position, segment(random)).expect("there is room");
    }
    let mut left = SEGMENTS_MAX - lists.segments().len();
    for _ in 0..random.pick(&[0, 0, 1, 1, 2, WRITES_MAX]) {
        lists.begin_write().expect("there is room");
        let count = random.below(5).min(left);
        (0..count).for_each(|_| lists.push_write(segment(random)).expect("there is room"));
        left -= count;
    }
    if random.one_in(3) {
        lists.begin_reply();
        (0..random.below(5).min(left))
            .for_each(|_| lists.push_reply(segment(random)).expect("there is room"));
    }
    lists
}

/// A valid header of version 1, and its lists: those of an error are empty.
pub fn v1_header(random: &mut FuzzRandom) -> (Header, ChunkLists) {
    let mut lists = lists(random);
    let body = match random.below(8) {
        0 => Body::Error(ErrorBody::Chunk),
        1 => Body::Error(ErrorBody::Version { low: random.word(), high: random.word() }),
        2 | 3 if !lists.is_empty() => Body::NoMsg,
        _ => Body::Msg,
    };
    if matches!(body, Body::Error(_)) {
        lists.clear();
    }
    (Header { xid: Xid(random.u32()), credits: Credits(random.word()), body }, lists)
}

/// A message of version 1.
pub fn v1_message(random: &mut FuzzRandom) -> Vec<u8> {
    let (header, lists) = v1_header(random);
    let mut message = emitted(&header, &lists);
    if header.body == Body::Msg {
        message.extend(header.xid.0.to_be_bytes());
        message.extend(u32::from(random.one_in(3)).to_be_bytes());
        message.extend(words(random));
    }
    message
}

/// A message of version 2, after a word that says in which dialect.
pub fn v2_message(random: &mut FuzzRandom) -> Vec<u8> {
    let dialect = random.below(2) as u32;
    let mut input = dialect.to_be_bytes().to_vec();
    input.extend(v2_of(random, dialect == 0));
    input
}

/// A message of version 2, in the dialect that says where it goes, or in the other.
fn v2_of(random: &mut FuzzRandom, directed: bool) -> Vec<u8> {
    let (header, mut lists) = v1_header(random);
    let (xid, credits) = (header.xid, header.credits);
    if random.one_in(4) {
        let reply = health::Reply { credits_granted: random.word(), credits_in_use: random.word() };
        let exchange = if random.one_in(2) {
            Exchange::Request(health::Request)
        } else {
            Exchange::Reply(reply)
        };
        let mut out = [0; 64];
        let len =
            option::emit(xid, credits, &Message::Health(exchange), &mut out).expect("it is short");
        return out[..len].to_vec();
    }
    let mut out = vec![0; v1::header_len(&lists) + 64];
    let len = if directed {
        let message_type = random.pick(&[MessageType::Call, MessageType::Reply]);
        let inv_handle = lists.segments().first().map_or(0, |segment| segment.handle);
        lists.set_intent(Some(Intent { message_type, inv_handle }));
        v2::emit::<v2::Directed>(&header, &lists, &mut out)
    } else {
        v2::emit::<v2::Undirected>(&header, &lists, &mut out)
    };
    out.truncate(len.expect("there is room"));
    if header.body == Body::Msg {
        let message_type = lists.intent().map_or(0, |intent| intent.message_type as u32);
        out.extend([xid.0, message_type].iter().flat_map(|word| word.to_be_bytes()));
        out.extend(words(random));
    }
    out
}

/// The sizes of a reply, then a call.
pub fn responder(random: &mut FuzzRandom) -> Vec<u8> {
    let mut input = some_words(random, 4);
    input.extend(v1_message(random));
    input
}

/// A call and its reply, each after four octets.
pub fn exchange(random: &mut FuzzRandom) -> Vec<u8> {
    let (xid, credits) = (Xid(random.u32()), Credits(random.word()));
    let lists = lists(random);
    let header = Header { xid, credits, body: Body::Msg };
    let (procedure, arguments) = nfs3_arguments(random);
    let mut call = vec![0; 4];
    call.extend(emitted(&header, &lists));
    call.extend(call_header(random, xid.0, Called::nfs3(procedure)));
    call.extend(arguments);
    let mut returned = ChunkLists::new();
    returned.return_unused(&lists);
    for (index, chunk) in lists.writes().enumerate() {
        returned.fill_write(index, chunk, chunk.total().min(random.below(200) as u64));
    }
    let in_chunk = lists.reply().filter(|chunk| chunk.total() > 0 && random.one_in(2));
    let body = if in_chunk.is_some() { Body::NoMsg } else { Body::Msg };
    if let Some(chunk) = in_chunk {
        returned.fill_reply(chunk, chunk.total().min(1 + random.below(200) as u64));
    }
    let mut reply = vec![0, 0, 0, random.pick(&[0, 0, 0, 1, 2, 3])];
    reply.extend(emitted(&Header { body, ..header }, &returned));
    if in_chunk.is_none() {
        let header = ReplyHeader { xid, outcome: Outcome::accepted(Accepted::Success) };
        reply.extend(written(|writer| header.emit(writer)));
        reply.extend(nfs3_results(random, procedure));
    }
    let mut input = Vec::new();
    push_part(&mut input, &call);
    push_part(&mut input, &reply);
    input
}

/// Both ends' settings, then messages and actions.
pub fn connection(random: &mut FuzzRandom) -> Vec<u8> {
    let mut input = Vec::new();
    let mut set_up: [u8; 8] =
        [0, 2, 4, 64, 64, 0, 0, 0].map(|octet: u8| octet.wrapping_add(random.u8() % 4));
    set_up[5] = random.u8() % 5;
    push_part(&mut input, &set_up);
    let versions = set_up[5];
    for _ in 0..random.below(24) {
        let part = if random.one_in(2) {
            vec![random.u8() % 6, random.u8() % 16]
        } else {
            let is_two = versions > 0 && !random.one_in(4);
            let mut message = if is_two { v2_of(random, versions < 3) } else { v1_message(random) };
            // Small numbers are those of our own calls.
            if random.one_in(2) {
                message[..4].copy_from_slice(&(random.u32() % 16).to_be_bytes());
            }
            message.truncate(2048);
            message
        };
        push_part(&mut input, &part);
    }
    input
}

/// Draws words until some number from their front has a meaning that ends there; a few words when
/// none has.
fn drawn(random: &mut FuzzRandom, parse: impl Fn(&[u8]) -> Result<(), Error>) -> Vec<u8> {
    for _ in 0..24 {
        let words = some_words(random, 80);
        for len in (0..=words.len()).step_by(4) {
            match parse(&words[..len]) {
                Ok(()) => return words[..len].to_vec(),
                Err(Error::Short) => {}
                Err(_) => break,
            }
        }
    }
    some_words(random, 8)
}

fn nfs3_arguments(random: &mut FuzzRandom) -> (v3::Procedure, Vec<u8>) {
    let procedure = random.pick(&v3::Procedure::ALL);
    (procedure, drawn(random, |octets| v3::Call::parse(procedure, Reader::new(octets)).map(drop)))
}

fn nfs3_results(random: &mut FuzzRandom, procedure: v3::Procedure) -> Vec<u8> {
    drawn(random, |octets| v3::Reply::parse(procedure, Reader::new(octets)).map(drop))
}

/// Puts the choice of the procedure, and of the chunk's start, in front of arguments or results.
fn chosen(random: &mut FuzzRandom, number: u32, body: &[u8]) -> Vec<u8> {
    let at = random.below(body.len() / 4 + 1) as u32;
    let mut input = (at << 16 | (random.u32() % 4) << 8 | number).to_be_bytes().to_vec();
    input.extend(body);
    input
}

/// Arguments of NFS 3.
pub fn nfs3_call(random: &mut FuzzRandom) -> Vec<u8> {
    let (procedure, arguments) = nfs3_arguments(random);
    chosen(random, procedure.number(), &arguments)
}

/// Results of NFS 3.
pub fn nfs3_reply(random: &mut FuzzRandom) -> Vec<u8> {
    let procedure = random.pick(&v3::Procedure::ALL);
    let results = nfs3_results(random, procedure);
    chosen(random, procedure.number(), &results)
}

/// Arguments or results of MOUNT.
pub fn mount(random: &mut FuzzRandom) -> Vec<u8> {
    let choice = random.below(12) as u32;
    let procedure = mount::Procedure::new(choice / 2).expect("below 6");
    let body = drawn(random, |octets| match choice % 2 {
        0 => mount::Call::parse(procedure, Reader::new(octets)).map(drop),
        _ => mount::Reply::parse(procedure, Reader::new(octets)).map(drop),
    });
    let mut input = choice.to_be_bytes().to_vec();
    input.extend(body);
    input
}

/// Makes the body of a file handle, without the tag.
pub fn file_handle(random: &mut FuzzRandom) -> Vec<u8> {
    let len = random.below(33);
    let mut body =
        if random.one_in(2) { vec![1, 0, 0, 0] } else { vec![2, random.u8(), len as u8, 0] };
    body.extend(random.octets(12));
    let rest = if body[0] == 1 { 12 } else { len };
    body.extend(random.octets(rest));
    body
}
