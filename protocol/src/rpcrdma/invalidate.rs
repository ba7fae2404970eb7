//! Choice of the one key of a call that its reply invalidates (RFC 8797 §4.1).

use super::chunk::{ChunkLists, Segment};

/// The longest segment that is only padding: Linux ends a Write chunk of odd length with one, whose
/// key all its calls share.
const PAD_SEGMENT_MAX: u32 = 4;

/// The handle that a reply to a call with these lists invalidates by Send With Invalidate: the
/// longest segment's; among equals a Write chunk's, then the Reply chunk's, then a Read chunk's.
///
/// Never that of a segment of at most four octets at the end of a Write chunk of several segments,
/// nor that of an empty one. Only for replies, never with an RDMA_ERROR, and only if both sides
/// announced remote invalidation: ask [`Connection::invalidates`](super::Connection::invalidates).
#[inline]
pub fn choose(call: &ChunkLists) -> Option<u32> {
    match call.only_write() {
        Some(segment) => (segment.length > 0).then_some(segment.handle),
        None => choose_among(call),
    }
}

fn choose_among(call: &ChunkLists) -> Option<u32> {
    let writes = call.writes().flat_map(|chunk| without_pad(chunk.segments));
    let reply = call.reply().into_iter().flat_map(|chunk| chunk.segments);
    let reads = call.reads().flat_map(|chunk| chunk.segments);
    // RFC 8797 §4.1 [8797-4]: the key that a reply invalidates belongs to its call
    let candidates = writes.chain(reply).chain(reads).filter(|segment| segment.length > 0);
    // `max_by_key` would keep the last of equals.
    candidates
        .reduce(|best, next| if next.length > best.length { next } else { best })
        .map(|best| best.handle)
}

fn without_pad(segments: &[Segment]) -> &[Segment] {
    match segments {
        // draft 001 §2.2 [reminv-9]: a key of padding is shared, and is never chosen
        [others @ .., last] if !others.is_empty() && last.length <= PAD_SEGMENT_MAX => others,
        all => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_only_segment_is_chosen_as_among_others() {
        for length in [0, 1, 4, 5, u32::MAX] {
            let mut lists = ChunkLists::new();
            lists.set_only_write(Segment { handle: 7, length, offset: 0 });
            assert_eq!(choose(&lists), choose_among(&lists));
            assert_eq!(choose(&lists), (length > 0).then_some(7));
        }
    }
}
