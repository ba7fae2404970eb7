//! Comparison with Wireshark's dissector: it reads from valid random messages of version 1 the
//! fixed header and the three lists that were written.
//!
//! Needs `tshark` (Debian: `apt-get install tshark`); skipped with a message without.
//! `STAG_FUZZ_SEED` and `STAG_FUZZ_RUNS` as in `mutations.rs`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::{fmt::Write as _, fs, path::PathBuf, process::Command};

use stag_fuzz::{
    FuzzRandom,
    make::{emitted, v1_header},
    targets::append_fpdu,
};
use stag_protocol::{
    iwarp::{
        ddp::Untagged,
        fpdu::Framer,
        mpa::{Config, Initiator, Request},
        rdmap::Opcode,
    },
    rpcrdma::{Body, ChunkLists, ErrorBody, Header},
};

/// Messages compared.
const MESSAGES: u64 = 600;
/// The columns that tshark prints.
const FIELDS: [&str; 15] = [
    "frame.number",
    "rpcordma.xid",
    "rpcordma.version",
    "rpcordma.flow_control",
    "rpcordma.msg_type",
    "rpcordma.reads_count",
    "rpcordma.writes_count",
    "rpcordma.reply_count",
    "rpcordma.position",
    "rpcordma.segment_count",
    "rpcordma.rdma_handle",
    "rpcordma.rdma_length",
    "rpcordma.rdma_offset",
    "rpcordma.errcode",
    "rpcordma.vers_low",
];

/// TCP segments between two hosts, as a libpcap file (link layer "raw IP").
struct Capture {
    file: Vec<u8>,
    frames: usize,
    /// The next sequence number of each side.
    sequence: [u32; 2],
}

impl Capture {
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    const PORTS: [u16; 2] = [50_000, 20_049];

    fn new() -> Self {
        let words = [0xA1B2_C3D4, 0x0004_0002, 0, 0, 0x0004_0000, 101_u32];
        let file = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Self { file, frames: 0, sequence: [1000, 2000] }
    }

    /// One segment from this side; the number of its frame.
    fn push(&mut self, side: usize, flags: u8, payload: &[u8]) -> usize {
        let other = 1 - side;
        let mut packet = vec![0x45, 0];
        packet.extend((40 + payload.len() as u16).to_be_bytes());
        packet.extend([
            0,
            0,
            0x40,
            0,
            64,
            6,
            0,
            0,
            10,
            0,
            0,
            1 + side as u8,
            10,
            0,
            0,
            1 + other as u8,
        ]);
        packet.extend(Self::PORTS[side].to_be_bytes());
        packet.extend(Self::PORTS[other].to_be_bytes());
        packet.extend(self.sequence[side].to_be_bytes());
        packet.extend(self.sequence[other].to_be_bytes());
        packet.extend([0x50, flags, 0xFF, 0xFF, 0, 0, 0, 0]);
        packet.extend(payload);
        let syn = u32::from(flags & Self::SYN != 0);
        self.sequence[side] = self.sequence[side].wrapping_add(payload.len() as u32 + syn);
        let (time, len) = (self.frames as u32, packet.len() as u32);
        self.file.extend([time, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
        self.file.extend(packet);
        self.frames += 1;
        self.frames
    }
}

/// The messages on one connection over software iWARP, and the frame of each.
fn capture(messages: &[(Header, ChunkLists)]) -> (Vec<u8>, Vec<usize>) {
    let mut capture = Capture::new();
    capture.push(0, Capture::SYN, &[]);
    capture.push(1, Capture::SYN | Capture::ACK, &[]);
    capture.push(0, Capture::ACK, &[]);
    let config = Config::default();
    let initiator = Initiator::new(config);
    let request = initiator.request(b"");
    let (reply, negotiated) = Request::parse(&request).unwrap().unwrap().accept(&config, b"");
    capture.push(0, Capture::ACK, &request);
    capture.push(1, Capture::ACK, &reply);
    let mut framer = Framer::with(negotiated.crc, false);
    let frames = (1..).zip(messages).map(|(msn, (header, lists))| {
        let control = Opcode::Send.control();
        let segment = Untagged { last: true, control, invalidate: 0, queue: 0, msn, mo: 0 };
        let mut ulpdu = segment.emit().to_vec();
        ulpdu.extend(emitted(header, lists));
        if header.body == Body::Msg {
            // A call, so that nothing after the header is waited for.
            ulpdu.extend(header.xid.0.to_be_bytes());
            ulpdu.extend([0, 0, 0, 0, 0, 0, 0, 2].iter().chain(&[0; 32]));
        }
        let mut fpdu = Vec::new();
        append_fpdu(&mut framer, &ulpdu, &mut fpdu);
        capture.push(0, Capture::ACK, &fpdu)
    });
    let frames = frames.collect();
    (capture.file, frames)
}

/// A column of numbers.
fn column(values: impl IntoIterator<Item = u64>) -> String {
    let mut column = String::new();
    for value in values {
        let comma = if column.is_empty() { "" } else { "," };
        write!(column, "{comma}{value}").unwrap();
    }
    column
}

/// Returns the fields that tshark should print, in the order of [`FIELDS`].
fn expected(frame: usize, header: &Header, lists: &ChunkLists) -> [String; 15] {
    let (procedure, error) = match header.body {
        Body::Msg => (0, None),
        Body::NoMsg => (1, None),
        Body::Error(ErrorBody::Version { low, .. }) => (4, Some((1, Some(low)))),
        Body::Error(ErrorBody::Chunk) => (4, Some((2, None))),
        Body::Error(ErrorBody::Option) | Body::Optional { .. } => {
            panic!("version 1 has no options")
        }
    };
    let is_error = error.is_some();
    let count = |count: usize| column((!is_error).then_some(count as u64));
    let segments = || lists.segments().iter();
    let positions = lists.reads().flat_map(|chunk| {
        let position = u64::from(chunk.position.octets());
        chunk.segments.iter().map(move |_| position)
    });
    let counts = lists.writes().chain(lists.reply()).map(|chunk| chunk.segments.len() as u64);
    [
        column([frame as u64]),
        column([u64::from(header.xid.0)]),
        column([1]),
        column([u64::from(header.credits.0)]),
        column([procedure]),
        count(lists.reads().map(|chunk| chunk.segments.len()).sum()),
        count(lists.writes().count()),
        count(lists.reply().iter().count()),
        column(positions),
        column(counts),
        column(segments().map(|segment| u64::from(segment.handle))),
        column(segments().map(|segment| u64::from(segment.length))),
        column(segments().map(|segment| segment.offset)),
        column(error.map(|(code, _)| code)),
        column(error.and_then(|(_, low)| low).map(u64::from)),
    ]
}

/// Numbers as tshark prints them: decimal, or hexadecimal after 0x.
fn normal(column: &str) -> String {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap_or_else(|_| panic!("tshark prints {text}")),
    };
    self::column(column.split(',').filter(|text| !text.is_empty()).map(number))
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// Returns the output of tshark for a capture file; `None` without tshark.
fn tshark(file: &PathBuf) -> Option<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-Y", "rpcordma", "-T", "fields"]);
    command.args(["-E", "separator=;", "-E", "occurrence=a", "-E", "aggregator=,"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn tshark_reads_in_random_messages_what_was_written() {
    let mut random = FuzzRandom::new(variable("STAG_FUZZ_SEED", 1));
    let messages: Vec<_> =
        (0..variable("STAG_FUZZ_RUNS", MESSAGES)).map(|_| v1_header(&mut random)).collect();
    let (octets, frames) = capture(&messages);
    let file = std::env::temp_dir().join(format!("stag-fuzz-{}.pcap", std::process::id()));
    fs::write(&file, octets).unwrap();
    let printed = tshark(&file);
    fs::remove_file(&file).unwrap();
    let Some(printed) = printed else {
        println!("skipped: tshark is missing (fix: apt-get install tshark)");
        return;
    };
    let mut lines = printed.lines();
    for (frame, (header, lists)) in frames.iter().zip(&messages) {
        let line = lines
            .next()
            .unwrap_or_else(|| panic!("tshark saw no message in frame {frame}: {header:?}"));
        let columns: Vec<_> = line.split(';').map(normal).collect();
        let expected = expected(*frame, header, lists);
        for (field, (columns, expected)) in FIELDS.iter().zip(columns.iter().zip(&expected)) {
            assert_eq!(columns, expected, "{field} of frame {frame}: {header:?} {lists:?}\n{line}");
        }
    }
    assert_eq!(lines.next(), None);
    println!("{} messages are the same to tshark", messages.len());
}
