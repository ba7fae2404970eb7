//! Octet streams do not depend on the order, the number and the cuts of their TCP segments.

use stag_protocol::rpcrdma::Side;

use super::NFS3;
use super::pcap::{Segment, conversations, segments};

fn streams(segments: &[Segment]) -> [Vec<u8>; 2] {
    let conversations = conversations(segments);
    let [conversation] = &conversations[..] else { panic!() };
    [Side::Client, Side::Server].map(|side| {
        conversation
            .iter()
            .filter(|(from, _)| *from == side)
            .flat_map(|(_, octets)| octets.clone())
            .collect()
    })
}

#[test]
fn segments_that_come_twice_late_or_cut_otherwise_give_the_same_streams() {
    let segments = segments(NFS3);
    let expected = streams(&segments);
    let (handshake, data) = segments.split_at(2);
    let mut disordered = handshake.to_vec();
    for group in data.chunks(7) {
        disordered.extend(group.iter().rev().cloned());
        disordered.extend(group.iter().filter(|segment| segment.payload.len() > 3).map(
            |segment| {
                let mut cut = segment.clone();
                cut.sequence = cut.sequence.wrapping_add(3);
                cut.payload.drain(..3);
                cut
            },
        ));
    }
    assert_eq!(streams(&disordered), expected);
    // Sequence numbers wrap.
    for segment in &mut disordered {
        segment.sequence =
            segment.sequence.wrapping_add(0xFFFF_0000_u32.wrapping_sub(segments[0].sequence));
    }
    assert_eq!(streams(&disordered), expected);
}
