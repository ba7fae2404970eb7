//! Windows, RDMA Writes and Reads, invalidation.

use crate::{
    A, B, Fixture, World,
    connections::assert_refused,
    world::{Joined, LIMITS, assert_unwritten, pattern, span},
};
use stag_pools::{Access, RemoteKey, Window};
use stag_verbs::{Layer, Limits, Provider, Qp, Refusal, RemoteSpan, Status, Tag, Terminate};

const fn ddp(code: u8) -> Terminate {
    Terminate { layer: Layer::Ddp, etype: 1, code }
}

const fn rdmap(etype: u8, code: u8) -> Terminate {
    Terminate { layer: Layer::Rdmap, etype, code }
}

/// Shows that all Writes which a sender posted before a message are in place when the message is
/// received.
pub fn a_write_is_placed_before_the_message_behind_it<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    for len in [1_usize, 100, 4096, 65_536] {
        let window = w.open(B, b, &vec![b'.'; len], Access::RemoteWrite);
        let octets = pattern(len, 5);
        let half = len / 2;
        let behind = RemoteSpan { offset: window.offset + half as u64, ..span(window) };
        w.post_write(A, a, &octets[half..], behind);
        w.post_write(A, a, &octets[..half], span(window));
        w.send(A, a, b"written", Some(window.key));
        let message = w.message(B, b);
        let written = message.invalidated.unwrap();
        assert_eq!(written.key(), window.key);
        assert!(written.into_buf()[..] == octets[..], "{len} octets are in place");
        w.repost(B, message.buf);
    }
}

/// Writes whose targets follow each other may travel as one: each completes by itself, in order,
/// and work posted between them keeps its place.
pub fn writes_side_by_side_are_in_place_and_complete_each<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    let octets = pattern(65_536, 8);
    for lens in [&[16_384; 4][..], &[10_000, 1, 0, 7, 20_000, 35_528], &[9_000, 1, 1, 1, 1, 1, 1]] {
        let windows = [0, 1].map(|_| w.open(B, b, &[b'.'; 65_536], Access::RemoteWrite));
        let mut at = 0;
        for (place, len) in lens.iter().enumerate() {
            // Every third goes to both windows, so that neighbours differ by their key, too.
            for window in &windows[..1 + usize::from(place % 3 == 2)] {
                let to = RemoteSpan { offset: window.offset + at as u64, ..span(*window) };
                w.post_write(A, a, &octets[at..at + len], to);
            }
            at += len;
        }
        // The target of this one follows no other.
        w.post_write(A, a, &octets[..lens[0]], span(windows[0]));
        w.send(A, a, b"written", Some(windows[0].key));
        let message = w.message(B, b);
        let written = message.invalidated.unwrap().into_buf();
        assert!(written[..at] == octets[..at], "{lens:?}");
        w.repost(B, message.buf);
        w.send(A, a, b"written", Some(windows[1].key));
        let message = w.message(B, b);
        let written = message.invalidated.unwrap().into_buf();
        let third = lens[..2].iter().sum()..lens[..lens.len().min(3)].iter().sum();
        assert!(written[third.clone()] == octets[third], "{lens:?}");
        w.repost(B, message.buf);
        let done = std::mem::take(&mut w.seats[A].done);
        assert!(done.iter().all(|done| done.status == Status::Success), "{lens:?}");
    }
}

/// Shares of time are found by the octets that this process moves for each connection.
pub fn data_that_this_process_moves_are_counted_once<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let (busy, idle) = (w.join(&at), w.join(&at));
    let window = w.open(B, busy.b, &[b'.'; 50_000], Access::RemoteWrite);
    let moved = |w: &mut World<F>, end: usize, qp: Qp| {
        let mut sum = 0;
        w.end(end).take_moved(&mut |of, octets| sum += if of == qp { octets } else { 0 });
        sum
    };
    for (end, qp) in [(A, busy.a), (B, busy.b)] {
        moved(w, end, qp);
    }
    w.post_write(A, busy.a, &[b'w'; 50_000], span(window));
    w.send(A, busy.a, b"after it", None);
    w.message(B, busy.b);
    let sent = moved(w, A, busy.a);
    let placed = moved(w, B, busy.b);
    if F::MOVES_DATA {
        // The peer of an end that trusts it fetches them.
        assert!(sent < 1_000 || (50_000..60_000).contains(&sent), "{sent} sent");
        assert!((50_000..60_000).contains(&placed), "{placed} placed");
    } else {
        assert_eq!((sent, placed), (0, 0), "a device moves them");
    }
    for (end, qp) in [(A, busy.a), (B, busy.b), (A, idle.a), (B, idle.b)] {
        assert_eq!(moved(w, end, qp), 0, "once");
    }
}

/// The last of Writes whose targets follow each other reaches beyond the window: it is refused as
/// it would be alone, and each of them completes once.
pub fn a_write_behind_its_neighbours_keeps_to_its_window<F: Fixture>(w: &mut World<F>) {
    if !F::CHECKS_BOUNDS {
        return;
    }
    let at = w.ends_with(LIMITS);
    for beyond in [1, 9_000] {
        let Joined { a, b } = w.join(&at);
        let buf = w.buf(&[b'.'; 50_000]);
        let window = w.open_span(B, b, buf, 100..40_100, Access::RemoteWrite);
        let lens = [10_000, 10_000, 10_000, 10_000 + beyond];
        let mut tags = Vec::new();
        for (place, len) in lens.into_iter().enumerate() {
            let offset = window.offset + 10_000 * place as u64;
            let octets = vec![b'w'; len];
            tags.push(w.post_write(A, a, &octets, RemoteSpan { offset, ..span(window) }));
        }
        w.send(A, a, b"never seen", None);
        let causes = w.end_of(Joined { a, b });
        w.assert_fault(causes, ddp(1));
        let done: Vec<Tag> = w.seats[A].done.drain(..).map(|done| done.tag).collect();
        assert_eq!(done[..4], tags, "{beyond} octets beyond");
        let (_, fenced) = w.seats[B].unbound.pop().unwrap();
        let buf = fenced.into_buf();
        assert!(buf[..100].iter().chain(&buf[40_100..]).all(|octet| *octet == b'.'));
        assert!(w.seats[B].received.is_empty(), "{beyond} octets beyond");
    }
}

/// A window reports how much of its front holds nothing of an earlier owner, however the peer
/// wrote: believing a peer that claims more than it wrote exposes no other owner's octets.
pub fn a_window_tells_what_is_not_an_earlier_owners<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    let writes: [&[(usize, usize)]; 6] = [
        &[],
        &[(0, 1)],
        &[(0, 40_000)],
        &[(0, 100), (100, 50_000), (30, 7)],
        &[(9_000, 1_000)],
        &[(60_000, 5_536), (0, 10)],
    ];
    for spans in writes {
        let window = w.open(B, b, &[b'.'; 65_536], Access::RemoteWrite);
        for (at, len) in spans {
            let to = RemoteSpan { offset: window.offset + *at as u64, ..span(window) };
            w.post_write(A, a, &vec![b'w'; *len], to);
        }
        w.send(A, a, b"written", Some(window.key));
        let message = w.message(B, b);
        let fenced = message.invalidated.unwrap();
        let filled = fenced.filled();
        let buf = fenced.into_buf();
        let end = spans.iter().map(|(at, len)| at + len).max().unwrap_or(0);
        assert!(filled >= end, "{filled} octets of {spans:?}");
        let is_written =
            |octet: usize| spans.iter().any(|(at, len)| (*at..at + len).contains(&octet));
        let is_right = |(at, octet): (usize, &u8)| *octet == if is_written(at) { b'w' } else { 0 };
        assert!(buf[..filled].iter().enumerate().all(is_right), "{spans:?}");
        w.repost(B, message.buf);
    }
}

/// A Write changes the octets its window opens, from the first to the last, and none outside.
pub fn a_write_reaches_exactly_its_window<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    let buf = w.buf(&[b'.'; 32]);
    let window = w.open_span(B, b, buf, 8..24, Access::RemoteWrite);
    w.post_write(A, a, &[b'w'; 16], span(window));
    w.post_write(A, a, b"F", span(window));
    w.post_write(A, a, b"L", RemoteSpan { offset: window.offset + 15, ..span(window) });
    w.send(A, a, b"written", Some(window.key));
    let written = w.message(B, b).invalidated.unwrap().into_buf();
    assert_eq!(&written[..], b"........FwwwwwwwwwwwwwwL........");
}

/// The key of a Write of no octets is not looked at (RFC 5041 §5.2).
pub fn a_write_of_nothing_needs_no_window<F: Fixture>(w: &mut World<F>) {
    let pair = w.pair();
    w.post_write(A, pair.a, b"", RemoteSpan { key: RemoteKey(0xdead_be00), offset: 77, len: 0 });
    w.end(A).ring();
    assert_eq!(w.completion(A, pair.a).status, Status::Success);
    w.assert_works(pair);
}

/// Spans of several windows, an empty one among them, come one after the other, and the sink around
/// them stays as it was.
pub fn a_read_fetches_its_spans_in_order<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    let first = w.open(B, b, &pattern(5000, 6), Access::RemoteRead);
    let second = w.open(B, b, &pattern(300, 7), Access::RemoteRead);
    let part = |window: Window, from: u64, len| RemoteSpan {
        offset: window.offset + from,
        len,
        ..span(window)
    };
    let spans = [part(first, 1, 4999), part(first, 7, 0), part(second, 0, 300), part(first, 0, 1)];
    assert_eq!(spans.len(), w.end(A).limits().read_spans);
    let tag = w.post_read(A, a, 3, &spans);
    w.end(A).ring();
    let done = w.work(A, a, tag);
    assert_eq!(done.status, Status::Success);
    let mut expected = b"...".to_vec();
    expected.extend_from_slice(&pattern(5000, 6)[1..]);
    expected.extend_from_slice(&pattern(300, 7));
    expected.extend_from_slice(&pattern(5000, 6)[..1]);
    expected.extend_from_slice(b"....");
    assert!(done.buf()[..] == expected[..]);
}

/// A Read of no octets completes, whatever it names.
pub fn a_read_of_nothing_completes<F: Fixture>(w: &mut World<F>) {
    let pair = w.pair();
    let nothing = RemoteSpan { key: RemoteKey(0xdead_be00), offset: 77, len: 0 };
    for spans in [&[][..], &[nothing], &[nothing, nothing]] {
        let tag = w.post_read(A, pair.a, 2, spans);
        w.end(A).ring();
        let done = w.work(A, pair.a, tag);
        assert_eq!(done.status, Status::Success);
        assert_eq!(&done.buf()[..], b"......");
    }
    w.assert_works(pair);
}

/// More Reads than a fabric has outstanding at a time wait for each other and complete in order,
/// with Sends between them.
pub fn many_reads_complete_in_order<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair_with(Limits { send_queue: 320, ..LIMITS });
    let octets = pattern(1024, 8);
    let window = w.open(B, b, &octets, Access::RemoteRead);
    let mut tags = Vec::new();
    for number in 0..300_u32 {
        if number % 30 == 0 {
            w.post_send(A, a, &number.to_be_bytes(), None);
        }
        let from = RemoteSpan {
            offset: window.offset + u64::from(number),
            len: number % 7 + 100,
            ..span(window)
        };
        tags.push((number as usize, w.post_read(A, a, 0, &[from])));
    }
    w.end(A).ring();
    for (from, tag) in tags {
        let done = w.work(A, a, tag);
        let len = from % 7 + 100;
        assert_eq!(done.status, Status::Success);
        assert!(done.buf()[..len] == octets[from..from + len], "Read {from}");
    }
}

/// The peer's invalidation comes with its message and carries the buffer; from then on the key
/// opens nothing.
pub fn an_invalidated_window_is_dead_at_once<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    for access in [Access::RemoteWrite, Access::RemoteRead] {
        let Joined { a, b } = w.join(&at);
        let window = w.open(B, b, b"mine again", access);
        let other = w.open(B, b, b"untouched", access);
        w.send(A, a, b"done", Some(window.key));
        let message = w.message(B, b);
        let fenced = message.invalidated.unwrap();
        assert_eq!((fenced.key(), fenced.filled() > 10), (window.key, false));
        assert_unwritten(&fenced.into_buf(), b"mine again");
        assert_eq!(w.windows_bound(B), 1);
        w.repost(B, message.buf);
        w.completion(A, a);
        match access {
            Access::RemoteWrite => w.post_write(A, a, b"late", span(window)),
            Access::RemoteRead => w.post_read(A, a, 0, &[span(window)]),
        };
        w.end(A).ring();
        let causes = w.end_of(Joined { a, b });
        let fault = if access == Access::RemoteWrite { ddp(0) } else { rdmap(1, 0) };
        w.assert_fault(causes, fault);
        assert_eq!(w.seats[B].unbound.last().map(|(_, fenced)| fenced.key()), Some(other.key));
    }
}

/// An invalidation of a key that is not bound, or is bound to another connection, kills the
/// connection it arrives on, takes no receive, and leaves the window of the other connection as it
/// was.
pub fn keys_that_are_not_the_peers_cannot_be_invalidated<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let bystander = w.join(&at);
    let theirs = w.open(B, bystander.b, b"out of reach", Access::RemoteRead);
    let wrong = |key: RemoteKey, bit: u32| RemoteKey(key.0 ^ 1 << bit);
    let cases = [
        (theirs.key, rdmap(1, 9)),
        (wrong(theirs.key, 0), rdmap(2, 9)),
        (wrong(theirs.key, 31), rdmap(2, 9)),
        (RemoteKey(0), rdmap(2, 9)),
    ];
    for (key, fault) in cases {
        let pair = w.join(&at);
        let receives = w.end(B).receives_posted();
        w.send(A, pair.a, b"die", Some(key));
        let causes = w.end_of(pair);
        w.assert_fault(causes, fault);
        assert_eq!(w.end(B).receives_posted(), receives);
        w.assert_works(bystander);
    }
    let tag = w.post_read(A, bystander.a, 0, &[span(theirs)]);
    w.end(A).ring();
    assert_eq!(&w.work(A, bystander.a, tag).buf()[..12], b"out of reach");
}

/// Our own invalidation completes with the proof and the buffer; from then on the key opens
/// nothing.
pub fn a_local_invalidation_gives_the_buffer_back<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    let windows =
        [w.open(B, b, b"first", Access::RemoteRead), w.open(B, b, b"second", Access::RemoteRead)];
    let tags = [w.post_invalidate(B, b, windows[1].key), w.post_invalidate(B, b, windows[0].key)];
    w.end(B).ring();
    assert_eq!(&w.work(B, b, tags[0]).buf()[..], b"second");
    assert_eq!(&w.work(B, b, tags[1]).buf()[..], b"first");
    assert_eq!(w.windows_bound(B), 0);
    w.post_read(A, a, 0, &[span(windows[0])]);
    w.end(A).ring();
    let causes = w.end_of(Joined { a, b });
    w.assert_fault(causes, rdmap(1, 0));
}

/// A key that names no window of this connection cannot be posted for invalidation.
pub fn unknown_keys_are_not_invalidated<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let (pair, other) = (w.join(&at), w.join(&at));
    let window = w.open(B, pair.b, b"dies once", Access::RemoteRead);
    let refuses = |w: &mut World<F>, qp, key| {
        assert_eq!(w.end(B).post_local_invalidate(qp, Tag(0), key), Err(Refusal::NoSuchKey));
    };
    refuses(w, pair.b, RemoteKey(window.key.0 ^ 1));
    refuses(w, other.b, window.key);
    let tag = w.post_invalidate(B, pair.b, window.key);
    refuses(w, pair.b, window.key);
    w.end(B).ring();
    assert_eq!(&w.work(B, pair.b, tag).buf()[..], b"dies once");
    refuses(w, pair.b, window.key);
    w.assert_works(pair);
    w.assert_works(other);
}

/// One window more than [`Limits::windows`] is refused with its buffer; each that ends makes room
/// for one.
pub fn one_window_too_many_is_refused<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair_with(Limits { windows: 3, ..LIMITS });
    let windows = [0, 1, 2].map(|_| w.open(B, b, b"open", Access::RemoteRead));
    let surplus = w.buf(b"surplus");
    let refused = w.end(B).bind(b, surplus, 0..7, Access::RemoteRead).unwrap_err();
    assert_eq!((refused.why, &refused.token[..]), (Refusal::NoWindow, &b"surplus"[..]));
    w.send(A, a, b"done", Some(windows[1].key));
    drop(w.message(B, b));
    w.open(B, b, b"again", Access::RemoteRead);
    let refused = w.end(B).bind(b, refused.token, 0..7, Access::RemoteRead).unwrap_err();
    assert_eq!(refused.why, Refusal::NoWindow);
}

/// Spans outside of their buffer, lengths that differ, too many spans: refused with the memory, and
/// nothing happens.
pub fn work_that_contradicts_itself_is_refused<F: Fixture>(w: &mut World<F>) {
    let pair = w.pair();
    let Joined { a, b } = pair;
    let window = w.open(B, b, &[b'.'; 64], Access::RemoteRead);
    for (start, end) in [(0, 5), (4, 5), (5, 5), (3, 2), (0, usize::MAX), (usize::MAX, usize::MAX)]
    {
        let buf = w.buf(b"four");
        let refused = w.end(A).bind(a, buf, start..end, Access::RemoteRead).unwrap_err();
        assert_eq!((refused.why, &refused.token[..]), (Refusal::Malformed, &b"four"[..]));
    }
    for len in [3, 5, u32::MAX] {
        let source = w.buf(b"four").freeze();
        let refused =
            w.end(A).post_write(a, Tag(0), source, RemoteSpan { len, ..span(window) }).unwrap_err();
        assert_eq!((refused.why, &refused.token[..]), (Refusal::Malformed, &b"four"[..]));
    }
    let whole = span(window);
    let longest = RemoteSpan { len: u32::MAX, ..whole };
    let too_many = vec![RemoteSpan { len: 0, ..whole }; w.end(A).limits().read_spans + 1];
    let reads: [(usize, &[RemoteSpan]); 6] = [
        (1, &[whole]),
        (0, &[whole, whole]),
        (65, &[]),
        (usize::MAX, &[whole]),
        (0, &[longest]),
        (0, &too_many),
    ];
    for (at, from) in reads {
        let sink = w.buf(&[b'.'; 64]);
        let refused = w.end(A).post_read(a, Tag(0), sink, at, from).unwrap_err();
        assert_eq!((refused.why, refused.token.len()), (Refusal::Malformed, 64));
    }
    w.end(A).ring();
    w.assert_works(pair);
}

/// Returns the ways in which a peer can misuse a window of 16 octets: key, span; and the codes for
/// a Write and for a Read.
fn violations(window: Window) -> [(RemoteSpan, Terminate, Terminate); 7] {
    let at = |offset, len| RemoteSpan { key: window.key, offset, len };
    let key = |key| RemoteSpan { key: RemoteKey(key), offset: window.offset, len: 16 };
    [
        (key(window.key.0 ^ 1), ddp(0), rdmap(1, 0)),
        (key(0), ddp(0), rdmap(1, 0)),
        (at(window.offset.wrapping_sub(1), 1), ddp(1), rdmap(1, 1)),
        (at(window.offset, 17), ddp(1), rdmap(1, 1)),
        (at(window.offset + 16, 1), ddp(1), rdmap(1, 1)),
        (at(window.offset + 15, 2), ddp(1), rdmap(1, 1)),
        (at(u64::MAX - 2, 8), ddp(3), rdmap(1, 4)),
    ]
}

/// Those among them that are about the window's bounds.
const BOUNDS: std::ops::RangeInclusive<usize> = 2..=5;

/// A Write with a wrong key, outside of the bounds or without the right kills its connection and
/// changes nothing.
pub fn a_write_that_breaks_a_rule_changes_nothing<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    for case in (0..=7).filter(|case| F::CHECKS_BOUNDS || !BOUNDS.contains(case)) {
        let Joined { a, b } = w.join(&at);
        let access = if case < 7 { Access::RemoteWrite } else { Access::RemoteRead };
        let buf = w.buf(&[b'.'; 48]);
        let window = w.open_span(B, b, buf, 16..32, access);
        let violation = violations(window).get(case).map(|(to, fault, _)| (*to, *fault));
        let (to, fault) = violation.unwrap_or((span(window), ddp(0)));
        w.post_write(A, a, &pattern(to.len as usize, case), to);
        w.send(A, a, b"never seen", None);
        let causes = w.end_of(Joined { a, b });
        w.assert_fault(causes, fault);
        let (qp, fenced) = w.seats[B].unbound.pop().unwrap();
        assert_eq!(qp, b, "case {case}");
        let buf = fenced.into_buf();
        assert_eq!((&buf[..16], &buf[32..]), (&[b'.'; 16][..], &[b'.'; 16][..]), "case {case}");
        assert_unwritten(&buf[16..32], &[b'.'; 16]);
        assert!(
            w.seats[B].received.is_empty(),
            "the message behind the violation is not delivered"
        );
    }
}

/// A Read that breaks a rule does not succeed, gives its sink back and kills its connection.
pub fn a_read_that_breaks_a_rule_fails<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    for case in (0..=7).filter(|case| F::CHECKS_BOUNDS || !BOUNDS.contains(case)) {
        let Joined { a, b } = w.join(&at);
        let access = if case < 7 { Access::RemoteRead } else { Access::RemoteWrite };
        let buf = w.buf(&[b's'; 48]);
        let window = w.open_span(B, b, buf, 16..32, access);
        let violation = violations(window).get(case).map(|(from, _, fault)| (*from, *fault));
        let (from, fault) = violation.unwrap_or((span(window), rdmap(1, 2)));
        let tag = w.post_read(A, a, 0, &[from]);
        w.end(A).ring();
        let causes = w.end_of(Joined { a, b });
        w.assert_fault(causes, fault);
        let done = w.work(A, a, tag);
        assert_ne!(done.status, Status::Success);
        assert!(
            done.buf().iter().all(|octet| *octet == b'.'),
            "nothing was fetched in case {case}"
        );
    }
}

/// A window answers on its own connection only, whichever peer is at the other end.
pub fn a_window_of_another_connection_is_out_of_reach<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let owner = w.join(&at);
    let windows = [Access::RemoteWrite, Access::RemoteRead]
        .map(|access| w.open(B, owner.b, &[b'o'; 16], access));
    let try_it = |w: &mut World<F>, is_write: bool| -> Joined {
        let pair = w.join(&at);
        if is_write {
            w.post_write(A, pair.a, &[b'x'; 16], span(windows[0]));
        } else {
            w.post_read(A, pair.a, 0, &[span(windows[1])]);
        }
        w.end(A).ring();
        pair
    };
    let pair = try_it(w, true);
    let causes = w.end_of(pair);
    w.assert_fault(causes, ddp(2));
    let pair = try_it(w, false);
    let causes = w.end_of(pair);
    w.assert_fault(causes, rdmap(1, 3));
    assert_refused(w, A, pair.a, Refusal::Gone);
    let tag = w.post_read(A, owner.a, 0, &[span(windows[1])]);
    w.end(A).ring();
    assert_eq!(w.work(A, owner.a, tag).buf()[..16], [b'o'; 16]);
    w.send(A, owner.a, b"back to you", Some(windows[0].key));
    assert_unwritten(&w.message(B, owner.b).invalidated.unwrap().into_buf(), &[b'o'; 16]);
}
