//! Cases on the end of connections: pending work completes, windows come back, and no event
//! follows.

use crate::{
    A, B, Fixture, World,
    connections::assert_refused,
    world::{Causes, Joined, LIMITS, span},
};
use stag_pools::{Access, RemoteKey};
use stag_verbs::{Cause, Memory, Provider, Refusal, RemoteSpan, Status};

/// Gives B work of every kind, part of it rung out, and returns how much.
fn load<F: Fixture>(w: &mut World<F>, pair: Joined) -> usize {
    let Joined { a, b } = pair;
    let theirs = w.open(A, a, &[b'r'; 4096], Access::RemoteRead);
    let sink = w.open(A, a, &[b'.'; 4096], Access::RemoteWrite);
    let own = [0, 1].map(|_| w.open(B, b, b"mine", Access::RemoteRead));
    let before = w.seats[B].done.len();
    for key in own.map(|window| window.key) {
        w.post_send(B, b, b"message", None);
        w.post_write(B, b, &[b'w'; 4096], span(sink));
        w.post_read(B, b, 0, &[span(theirs), span(theirs)]);
        w.post_invalidate(B, b, key);
        w.post_send(B, b, b"message", None);
        if key == own[0].key {
            w.end(B).ring();
        }
    }
    before + 10
}

/// The peer disconnects: everything we posted completes once and in order, rung out or not.
pub fn all_work_completes_when_the_peer_disconnects<F: Fixture>(w: &mut World<F>) {
    let pair = w.pair();
    let expected = load(w, pair);
    w.disconnect(A, pair.a);
    let causes = w.end_of(pair);
    assert_eq!(causes, Causes { a: Cause::Local, b: Cause::Peer });
    assert_eq!(w.seats[B].done.len(), expected);
}

/// We disconnect: the same.
pub fn all_work_completes_when_we_disconnect<F: Fixture>(w: &mut World<F>) {
    let pair = w.pair();
    let expected = load(w, pair);
    w.disconnect(B, pair.b);
    assert_eq!(w.end_of(pair), Causes { a: Cause::Peer, b: Cause::Local });
    assert_eq!(w.seats[B].done.len(), expected);
}

/// The peer breaks a rule: the same, and nothing that was not rung out has succeeded.
pub fn all_work_completes_when_the_peer_breaks_a_rule<F: Fixture>(w: &mut World<F>) {
    let pair = w.pair();
    let expected = load(w, pair);
    w.post_write(A, pair.a, b"x", RemoteSpan { key: RemoteKey(0), offset: 0, len: 1 });
    w.end(A).ring();
    let Causes { b: ours, .. } = w.end_of(pair);
    assert!(matches!(ours, Cause::PeerFault(_)), "{ours:?}");
    assert_eq!(w.seats[B].done.len(), expected);
    let last = w.seats[B].done.iter().rev().take(5);
    assert!(last.into_iter().all(|done| done.status != Status::Success));
}

/// Windows not invalidated come back, with their buffers, before `Disconnected`; those of other
/// connections stay.
pub fn windows_end_with_their_connection<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let (pair, other) = (w.join(&at), w.join(&at));
    let keys = [0, 1, 2].map(|_| w.open(B, pair.b, b"dying", Access::RemoteRead).key);
    let ours = w.open(A, pair.a, b"dying too", Access::RemoteWrite).key;
    let stays = w.open(B, other.b, b"stays", Access::RemoteRead);
    w.disconnect(A, pair.a);
    w.end_of(pair);
    let mut ended: Vec<_> = w.seats[B].unbound.iter().map(|(_, fenced)| fenced.key()).collect();
    ended.sort_by_key(|key| keys.iter().position(|other| other == key));
    assert_eq!(ended, keys);
    assert_eq!(
        w.seats[A].unbound.iter().map(|(_, fenced)| fenced.key()).collect::<Vec<_>>(),
        [ours]
    );
    assert_eq!((w.windows_bound(A), w.windows_bound(B)), (0, 1));
    let (_, fenced) = w.seats[B].unbound.pop().unwrap();
    assert_eq!(&fenced.into_buf()[..], b"dying");
    let tag = w.post_read(A, other.a, 0, &[span(stays)]);
    w.end(A).ring();
    assert_eq!(&w.work(A, other.a, tag).buf()[..5], b"stays");
}

/// A local invalidation that was flushed says nothing: the buffer comes with `Unbound`.
pub fn a_flushed_invalidation_proves_nothing<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    let window = w.open(B, b, b"not yet", Access::RemoteRead);
    let tag = w.post_invalidate(B, b, window.key);
    w.disconnect(A, a);
    w.end_of(Joined { a, b });
    let done = w.work(B, b, tag);
    match done.memory {
        Memory::Bound => {
            assert_ne!(done.status, Status::Success);
            let (qp, fenced) = w.seats[B].unbound.pop().unwrap();
            assert_eq!(
                (qp, fenced.key(), &fenced.into_buf()[..]),
                (b, window.key, &b"not yet"[..])
            );
        }
        Memory::Fenced(fenced) => assert_eq!(fenced.key(), window.key),
        memory => panic!("{memory:?}"),
    }
}

/// From `disconnect` on, and from `Disconnected` on, everything is refused as gone, with its
/// memory.
pub fn nothing_is_posted_to_what_has_ended<F: Fixture>(w: &mut World<F>) {
    let pair = w.pair();
    w.disconnect(A, pair.a);
    assert_refused(w, A, pair.a, Refusal::Gone);
    assert_eq!(w.end(A).send_room(pair.a), 0);
    w.disconnect(A, pair.a);
    w.end_of(pair);
    for (end, qp) in [(A, pair.a), (B, pair.b)] {
        assert_refused(w, end, qp, Refusal::Gone);
        assert_eq!(w.end(end).send_room(qp), 0);
        w.disconnect(end, qp);
    }
    w.quiet();
}

/// A last message, an answer to a broken header for one, reaches the peer although we disconnect
/// right after it.
pub fn what_was_posted_before_a_disconnect_arrives<F: Fixture>(w: &mut World<F>) {
    let Joined { a, b } = w.pair();
    let window = w.open(A, a, &[b'.'; 4096], Access::RemoteWrite);
    w.post_write(B, b, &[b'w'; 4096], span(window));
    w.post_send(B, b, b"last", Some(window.key));
    w.disconnect(B, b);
    w.end(B).ring();
    let message = w.message(A, a);
    assert_eq!(&message.buf[..], b"last");
    assert_eq!(message.invalidated.unwrap().into_buf()[..], [b'w'; 4096]);
    assert_eq!(w.end_of(Joined { a, b }), Causes { a: Cause::Peer, b: Cause::Local });
}

/// Both sides may end a connection at the same time; each side has ended it.
pub fn both_sides_may_disconnect_at_once<F: Fixture>(w: &mut World<F>) {
    let pair = w.pair();
    load(w, pair);
    w.disconnect(A, pair.a);
    w.disconnect(B, pair.b);
    assert_eq!(w.end_of(pair), Causes { a: Cause::Local, b: Cause::Local });
}

/// The peers of an end that goes away without a word notice, and lose nothing of their own.
pub fn a_dropped_end_is_missed<F: Fixture>(w: &mut World<F>) {
    let pair = w.pair();
    load(w, pair);
    w.open(A, pair.a, b"mine", Access::RemoteRead);
    w.post_send(A, pair.a, b"into the void", None);
    w.end(A).ring();
    w.drop_end(B);
    w.until("the peer notices", |w| w.cause(A, pair.a).is_some());
    let cause = w.cause(A, pair.a).unwrap();
    assert!(matches!(cause, Cause::Peer | Cause::Fabric(_)), "{cause:?}");
}
