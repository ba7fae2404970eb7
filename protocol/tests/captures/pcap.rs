//! The octet streams of the TCP connections in a capture: libpcap's file format with Linux'
//! "cooked" link layers and with Ethernet, IPv4 (RFC 791) and TCP (RFC 9293).

use std::collections::BTreeMap;

use stag_protocol::rpcrdma::Side;

/// Link layers (tcpdump.org/linktypes.html) and the octets of their headers.
const LINK_LAYERS: [(u32, usize); 3] = [(1, 14), (113, 16), (276, 20)];
const MAGIC: u32 = 0xA1B2_C3D4;
const TCP: u8 = 6;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// An address and a port.
type Endpoint = ([u8; 4], u16);

/// One TCP segment.
#[derive(Clone, Debug)]
pub struct Segment {
    from: Endpoint,
    to: Endpoint,
    pub sequence: u32,
    flags: u8,
    pub payload: Vec<u8>,
}

/// Octets of one connection in order, and who sent them: in the order in which their last missing
/// octet was captured.
pub type Conversation = Vec<(Side, Vec<u8>)>;

fn be16(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(octets[at..at + 2].try_into().unwrap())
}

fn be32(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..at + 4].try_into().unwrap())
}

fn le32(octets: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(octets[at..at + 4].try_into().unwrap())
}

/// The TCP segments of a capture file.
pub fn segments(file: &[u8]) -> Vec<Segment> {
    assert_eq!(le32(file, 0), MAGIC, "a libpcap file of a little-endian host, with microseconds");
    let link_layer = le32(file, 20);
    let (_, link_len) = LINK_LAYERS.into_iter().find(|(number, _)| *number == link_layer).unwrap();
    let mut rest = &file[24..];
    let mut segments = Vec::new();
    while !rest.is_empty() {
        let (captured, original) = (le32(rest, 8), le32(rest, 12));
        assert_eq!(captured, original, "whole frames");
        let (frame, behind) = rest[16..].split_at(captured as usize);
        segments.push(parse_ip(&frame[link_len..]));
        rest = behind;
    }
    segments
}

fn parse_ip(packet: &[u8]) -> Segment {
    assert_eq!((packet[0] >> 4, packet[9]), (4, TCP));
    assert_eq!(be16(packet, 6) & 0x3FFF, 0, "not a fragment");
    let tcp = &packet[usize::from(packet[0] & 15) * 4..usize::from(be16(packet, 2))];
    Segment {
        from: (packet[12..16].try_into().unwrap(), be16(tcp, 0)),
        to: (packet[16..20].try_into().unwrap(), be16(tcp, 2)),
        sequence: be32(tcp, 4),
        flags: tcp[13],
        payload: tcp[usize::from(tcp[12] >> 4) * 4..].to_vec(),
    }
}

/// The conversations in these segments, each from its first SYN.
pub fn conversations(segments: &[Segment]) -> Vec<Conversation> {
    let mut all: Vec<(Endpoint, Endpoint, Conversation)> = Vec::new();
    let mut halves: BTreeMap<(Endpoint, Endpoint), Reassembly> = BTreeMap::new();
    for segment in segments {
        let (from, to) = (segment.from, segment.to);
        if segment.flags & SYN != 0 {
            halves
                .entry((from, to))
                .or_insert_with(|| Reassembly::new(segment.sequence.wrapping_add(1)));
            if segment.flags & ACK == 0
                && !all.iter().any(|(client, server, _)| (*client, *server) == (from, to))
            {
                all.push((from, to, Vec::new()));
            }
            continue;
        }
        let octets = halves
            .get_mut(&(from, to))
            .expect("a SYN first")
            .push(segment.sequence, &segment.payload);
        let (client, .., conversation) = all
            .iter_mut()
            .find(|(a, b, _)| (*a, *b) == (from, to) || (*b, *a) == (from, to))
            .unwrap();
        if !octets.is_empty() {
            conversation.push((if *client == from { Side::Client } else { Side::Server }, octets));
        }
    }
    for (half, reassembly) in halves {
        assert!(reassembly.held.is_empty(), "{half:?} has a gap");
    }
    all.into_iter().map(|(.., conversation)| conversation).collect()
}

/// One direction of a connection.
struct Reassembly {
    start: u32,
    /// Octets delivered.
    delivered: u64,
    /// Segments that came too early, by their place in the stream.
    held: BTreeMap<u64, Vec<u8>>,
}

impl Reassembly {
    fn new(start: u32) -> Self {
        Self { start, delivered: 0, held: BTreeMap::new() }
    }

    /// The octets that `payload` completes.
    fn push(&mut self, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let next = self.start.wrapping_add(self.delivered as u32);
        let distance = sequence.wrapping_sub(next) as i32;
        let place = self.delivered as i64 + i64::from(distance);
        if !payload.is_empty() {
            // Of two segments with the same start the longer one says more.
            let held = self.held.entry(u64::try_from(place).expect("behind the SYN")).or_default();
            if held.len() < payload.len() {
                *held = payload.to_vec();
            }
        }
        let mut octets = Vec::new();
        while let Some(first) =
            self.held.first_entry().filter(|first| *first.key() <= self.delivered)
        {
            let (place, held) = first.remove_entry();
            let known = (self.delivered - place) as usize;
            if let Some(fresh) = held.get(known..) {
                octets.extend_from_slice(fresh);
                self.delivered += fresh.len() as u64;
            }
        }
        octets
    }
}
