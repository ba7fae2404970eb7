//! Two ends on the loopback device.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod support;

use stag_pools::Access;
use stag_verbs::{Event, Memory, Provider, RemoteSpan, Status, Tag};
use support::{End, config, join, pattern, until};

fn span(window: stag_pools::Window) -> RemoteSpan {
    RemoteSpan { key: window.key, offset: window.offset, len: window.len }
}

#[test]
fn messages_writes_and_reads_of_many_lengths_arrive() {
    let (mut b, at) = End::listening(config());
    let mut a = End::new(config());
    b.post_receives(8);
    let (qa, qb) = join(&mut a, &mut b, at);
    for len in [0, 1, 2, 3, 4, 1000, 4096, 65_535, 65_536, 1 << 20] {
        let octets = pattern(len, len);
        let target = b.iwarp.bind(qb, b.buf(&vec![0; len]), 0..len, Access::RemoteWrite).unwrap();
        let source = b.iwarp.bind(qb, b.buf(&octets), 0..len, Access::RemoteRead).unwrap();
        a.iwarp.post_write(qa, Tag(1), a.buf(&octets).freeze(), span(target)).unwrap();
        a.iwarp.post_read(qa, Tag(2), a.buf(&vec![0; len]), 0, &[span(source)]).unwrap();
        let short = &octets[..len.min(4096)];
        a.iwarp.post_send(qa, Tag(3), a.buf(short), Some(target.key)).unwrap();
        a.iwarp.ring();
        until([&mut a, &mut b], |[a, b]| a.events.len() == 3 && b.events.len() == 1);
        for expected in 1..=3 {
            let Some(Event::Completed { tag, status: Status::Success, memory, .. }) = a.events.pop_front()
            else {
                panic!("work completes");
            };
            assert_eq!(tag, Tag(expected));
            if let (2, Memory::Buf(sink)) = (expected, memory) {
                assert_eq!(sink[..], octets, "read of {len}");
            }
        }
        let Some(Event::Received { buf, invalidated, .. }) = b.events.pop_front() else {
            panic!("a message")
        };
        assert_eq!(buf[..], *short);
        assert_eq!(invalidated.unwrap().into_buf()[..], octets, "write of {len}");
        b.iwarp.post_receive(buf).unwrap();
        b.iwarp.post_local_invalidate(qb, Tag(4), source.key).unwrap();
        b.iwarp.ring();
        let Event::Completed { memory: Memory::Fenced(_), .. } = b.next() else { panic!("fenced") };
    }
    assert_eq!((a.iwarp.windows_bound(), b.iwarp.windows_bound()), (0, 0));
}
