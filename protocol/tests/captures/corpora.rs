//! The corpora of the fuzz targets (`tests/fuzz/corpus`), cut from the captures: writes them, and
//! checks the stored ones.
//!
//! `STAG_WRITE_CORPORA=1 cargo test -p stag-protocol --test captures corpora` writes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use stag_protocol::iwarp::fpdu;
use stag_protocol::nfs::v3;
use stag_protocol::rpcrdma::{Body, ChunkLists, Segment, Side, v1};

use crate::calls::{Call, capture};
use crate::crc::Table;
use crate::pcap::Conversation;
use crate::receive::{Called, Scratch};
use crate::understood::{name, shape, understand_call};
use crate::{NFS3, NFS41};

/// Octets of the longest input that is worth sweeping.
const INPUT_MAX: usize = 1024;
/// Messages of one connection.
const MESSAGES: usize = 8;

/// Inputs by target and name.
#[derive(Default)]
struct Corpora(BTreeMap<(&'static str, String), Vec<u8>>);

impl Corpora {
    fn add(&mut self, target: &'static str, name: &str, input: Vec<u8>) {
        let name = name.replace(": ", "-").replace(' ', "-").replace(',', "").to_lowercase();
        if input.len() <= INPUT_MAX {
            self.0.entry((target, name)).or_insert(input);
        }
    }

    /// A call and its reply.
    fn add_call(&mut self, call: &Call, called: Called) {
        let name = format!("{} {} {}", name(called), shape(&call.call), shape(&call.reply));
        let (asked, answered) = (&call.call, &call.reply);
        let who =
            [0, 0, 0, u8::from(call.direction != stag_protocol::rpcrdma::Direction::Forward) * 3];
        let exchange = parts(&[
            &[&[0; 4], &asked.octets[..]].concat(),
            &[&who, &answered.octets[..]].concat(),
        ]);
        self.add("rpcrdma_v1", &format!("{name} call"), asked.octets.clone());
        self.add("rpcrdma_v1", &format!("{name} reply"), answered.octets.clone());
        self.add("rpcrdma_requester", &name, exchange.clone());
        self.add("rpcrdma_message", &name, exchange);
        let sizes = [0, 0, 0, 96, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        self.add("rpcrdma_responder", &name, [&sizes, &asked.octets[..]].concat());
        self.add("rpc_call", &name, asked.inline().to_vec());
        if answered.header.body == Body::Msg {
            self.add("rpc_reply", &name, answered.inline().to_vec());
        }
    }
}

/// The call at a gateway: its first handle is the stand-in for that of the export, and its chunks
/// are the stand-ins for memory.
fn add_gateway_call(
    corpora: &mut Corpora,
    name: &str,
    call: &Call,
    number: [u8; 4],
    arguments: &[u8],
) {
    let message = &call.call;
    let header_len = message.inline().len().checked_sub(arguments.len());
    let (Some(header_len), true) = (header_len, message.lists.reads().next().is_none()) else {
        return;
    };
    let arguments = match arguments.first_chunk::<4>() {
        Some(len) => {
            let behind = 4 + (u32::from_be_bytes(*len) as usize).next_multiple_of(4);
            [&40_u32.to_be_bytes()[..], &[b'R'; 40], &arguments[behind..]].concat()
        }
        None => Vec::new(),
    };
    let payload = [&message.inline()[..header_len], &arguments].concat();
    assert_eq!(payload[20..24], number);
    let own = |segment: &Segment| Segment { handle: 0xF000_0000, offset: 0, ..*segment };
    let mut lists = ChunkLists::new();
    for chunk in message.lists.writes() {
        lists.begin_write().unwrap();
        chunk.segments.iter().for_each(|segment| lists.push_write(own(segment)).unwrap());
    }
    if let Some(chunk) = message.lists.reply() {
        lists.begin_reply();
        chunk.segments.iter().for_each(|segment| lists.push_reply(own(segment)).unwrap());
    }
    let mut header = vec![0; v1::header_len(&lists)];
    v1::emit(&message.header, &lists, &mut header).unwrap();
    let offer = [0xF6, 0xAB, 0x0E, 0x18, 1, 1, 3, 3];
    corpora.add("shard", name, parts(&[&offer, &[&[1, 0, 0, 0], &header[..], &payload].concat()]));
    let word = 0x8000_0000 | payload.len() as u32;
    corpora.add("shard_tcp", name, [&word.to_be_bytes(), &payload[..]].concat());
}

fn parts(parts: &[&[u8]]) -> Vec<u8> {
    let with_len = |part: &&[u8]| [&(part.len() as u16).to_be_bytes()[..], part].concat();
    parts.iter().flat_map(with_len).collect()
}

fn fpdus(conversation: &Conversation, side: Side) -> Vec<Vec<u8>> {
    let frames = conversation.iter().skip(2).filter(|(from, _)| *from == side);
    let stream: Vec<u8> = frames.flat_map(|(_, octets)| octets.clone()).collect();
    let mut rest = &stream[..];
    let mut all = Vec::new();
    while let Ok(fpdu::Parsed::Fpdu { consumed, .. }) = fpdu::parse::<Table>(rest, false) {
        all.push(rest[..consumed].to_vec());
        rest = &rest[consumed..];
    }
    all
}

/// Set-up, FPDUs, and two connections at the end that answers and at the end that called.
fn add_wire(corpora: &mut Corpora, version: &str, conversation: &Conversation) {
    let [(_, request), (_, reply)] = &conversation[..2] else { panic!("two frames come first") };
    for (kind, frame) in [(0, request), (1, reply)] {
        let input = [&[kind, 0x01, 0, 0], &frame[..]].concat();
        corpora.add("mpa", &format!("{version} {kind}"), input);
        corpora.add("cm_private", &format!("{version} {kind}"), frame.clone());
    }
    let mut kinds = BTreeSet::new();
    for side in [Side::Client, Side::Server] {
        let all = fpdus(conversation, side);
        for fpdu in &all {
            let opcode = fpdu[3] & 15;
            if fpdu.len() <= 512 && kinds.insert((fpdu[2], opcode)) {
                let name = format!("{version} opcode {opcode} control {:02x}", fpdu[2]);
                corpora.add("fpdu", &name, [&[0, 1], &fpdu[..]].concat());
                let len = usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]]));
                corpora.add("ddp", &name, fpdu[2..2 + len].to_vec());
            }
        }
        // Octets of the stream as they are: no CRC, memory that takes anything, four Reads either
        // way.
        let (who, frame) = if side == Side::Client { (0, request) } else { (1, reply) };
        let own = 0x01;
        let mut connection = parts(&[&[own, who, 0, 0], frame]);
        for fpdu in all.iter().filter(|fpdu| fpdu.len() < 250 && fpdu[3] & 15 != 2) {
            let part = parts(&[&[&[0], &fpdu[..]].concat()]);
            if connection.len() + part.len() > INPUT_MAX {
                break;
            }
            connection.extend(part);
        }
        corpora.add("iwarp_connection", &format!("{version} from {side:?}"), connection);
    }
}

/// The first messages at each end of a connection, with its actions.
fn add_connections(corpora: &mut Corpora, version: &str, calls: &[Call]) {
    for (side, name) in [(0, "server"), (1, "client")] {
        let mut all = vec![vec![side, 4, 16, 64, 64, 0, 0, 0]];
        let mut octets = 0;
        for call in calls {
            let message = if side == 0 { &call.call } else { &call.reply };
            octets += message.octets.len();
            if all.len() > 2 * MESSAGES || octets > 700 {
                break;
            }
            if side == 0 {
                all.extend([message.octets.clone(), vec![2, 0]]);
            } else {
                all.extend([vec![0, 0], message.octets.clone(), vec![1, 0]]);
            }
        }
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        corpora.add("rpcrdma_connection", &format!("{version} {name}"), parts(&all));
    }
}

fn corpora() -> Corpora {
    let mut corpora = Corpora::default();
    let mut scratch = Scratch::new();
    for (version, file) in [("nfs3", NFS3), ("nfs4", NFS41)] {
        let capture = capture(file);
        add_wire(&mut corpora, version, &capture.conversation);
        add_connections(&mut corpora, version, &capture.calls);
        for call in &capture.calls {
            let called = understand_call(&capture, call, &mut scratch);
            corpora.add_call(call, called);
            let arguments = scratch.emitted_body().to_vec();
            crate::nfs4::add_compound(call, |target, name, input| corpora.add(target, name, input));
            if (called.0, called.1) != (v3::PROGRAM, v3::VERSION) {
                continue;
            }
            let number = called.2.to_be_bytes();
            corpora.add("nfs3_call", &name(called), [&number, &arguments[..]].concat());
            if call.reply.header.body == Body::Msg && call.written.is_empty() {
                let results = &call.reply.inline()[24..];
                corpora.add("nfs3_reply", &name(called), [&number, results].concat());
            }
            add_gateway_call(&mut corpora, &name(called), call, number, &arguments);
            // The credential follows the six words of a call.
            corpora.add("rpc_auth", &name(called), call.call.inline()[24..].to_vec());
        }
    }
    // One caller, and so one credential.
    let auth: Vec<_> =
        corpora.0.keys().filter(|(target, _)| *target == "rpc_auth").skip(3).cloned().collect();
    auth.iter().for_each(|key| drop(corpora.0.remove(key)));
    corpora
}

#[test]
fn the_corpora_of_the_fuzz_targets_are_what_the_captures_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus");
    let corpora = corpora();
    for ((target, name), input) in &corpora.0 {
        let file = folder.join(target).join(name);
        if std::env::var_os("STAG_WRITE_CORPORA").is_some() {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, input).unwrap();
        }
        assert!(fs::read(&file).is_ok_and(|kept| kept == *input), "{}", file.display());
    }
    let targets: BTreeSet<_> = corpora.0.keys().map(|(target, _)| *target).collect();
    assert_eq!(targets.len(), 20, "{targets:?}");
}
