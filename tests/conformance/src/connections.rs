//! Cases on connecting, accepting and rejecting, and on the operations allowed in each phase.

use crate::{
    A, B, Fixture, World,
    world::{Causes, Joined, LIMITS, pattern},
};
use stag_pools::{Access, RemoteKey};
use stag_verbs::{Cause, FabricFault, Limits, Provider, Qp, Refusal, RemoteSpan, Status, Tag};

/// Private data of 0, 8 and the most octets goes both ways.
pub fn private_data_reaches_both_sides<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let longest = w.end(A).limits().private_data_len;
    for len in [0, 8, longest] {
        let (ours, theirs) = (pattern(len, 1), pattern(len, 2));
        let a = w.connect(A, &at, &ours);
        assert_eq!(w.end(A).private_data(a), b"", "the peer has said nothing yet");
        w.until("the connect request arrives", |w| !w.seats[B].requests.is_empty());
        let b = w.seats[B].requests.pop_front().unwrap();
        assert_heard::<F>(w.end(B).private_data(b), &ours);
        w.end(B).accept(b, &theirs).unwrap();
        w.until("the connector is established", |w| w.is_established(A, a));
        assert_heard::<F>(w.end(A).private_data(a), &theirs);
        w.disconnect(A, a);
        w.end_of(Joined { a, b });
    }
}

/// More private data than [`Limits::private_data_len`] is refused, and the connection to be is as
/// it was.
pub fn too_much_private_data_is_refused<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let too_much = pattern(w.end(A).limits().private_data_len + 1, 1);
    assert!(w.end(A).connect(&at, &too_much).is_err());
    let Joined { a, b } = w.meet(A, &at);
    assert_eq!(w.end(B).accept(b, &too_much), Err(Refusal::Malformed));
    w.end(B).accept(b, b"fits").unwrap();
    w.until("the connector is established", |w| w.is_established(A, a));
    assert_heard::<F>(w.end(A).private_data(a), b"fits");
}

/// Asserts that the received private data are those sent, followed by zeros where the fabric pads.
fn assert_heard<F: Fixture>(heard: &[u8], said: &[u8]) {
    let padding = heard.strip_prefix(said).expect("what was said is heard");
    assert!(padding.is_empty() || F::PADS_PRIVATE_DATA, "nothing else is heard");
    assert!(padding.iter().all(|octet| *octet == 0));
}

/// A rejected connector finds the reason in the private data until it polls again.
pub fn a_rejected_peer_hears_why<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    for len in [0, 8, w.end(A).limits().private_data_len] {
        let why = pattern(len, 3);
        let Joined { a, b } = w.meet(A, &at);
        w.end(B).reject(b, &why);
        assert_eq!(w.end_of(Joined { a, b }), Causes { a: Cause::Rejected, b: Cause::Local });
        assert_heard::<F>(w.last_words(A, a), &why);
    }
}

/// A connect to an address without a listener ends with [`FabricFault::Refused`].
pub fn nobody_at_an_address_refuses<F: Fixture>(w: &mut World<F>) {
    w.ends_with(LIMITS);
    let nowhere = w.fixture.nowhere();
    let qp = w.connect(A, &nowhere, b"anyone?");
    w.until("the connect fails", |w| w.cause(A, qp).is_some());
    assert_eq!(w.cause(A, qp), Some(Cause::Fabric(FabricFault::Refused)));
    let again = w.connect(A, &nowhere, b"");
    assert_ne!(qp, again);
}

/// The connector sends first; the acceptor is established before the message is there.
pub fn a_connector_may_send_when_it_is_established<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let Joined { a, b } = w.meet(A, &at);
    w.end(B).accept(b, b"").unwrap();
    w.until("the connector is established", |w| w.is_established(A, a));
    assert_eq!(w.end(A).send_room(a), w.end(A).limits().send_queue);
    w.send(A, a, b"first", None);
    assert_eq!(&w.message(B, b).buf[..], b"first");
    assert!(w.is_established(B, b));
}

/// Whatever the acceptor posts right after `Established` reaches the connector.
pub fn an_acceptor_may_send_when_it_is_established<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let Joined { a, b } = w.meet(A, &at);
    w.end(B).accept(b, b"").unwrap();
    w.until("the connector is established", |w| w.is_established(A, a));
    w.post_send(A, a, b"first", None);
    w.end(A).ring();
    w.until("the acceptor is established", |w| w.is_established(B, b));
    w.send(B, b, b"answer", None);
    assert_eq!(&w.message(A, a).buf[..], b"answer");
    assert_eq!(w.completion(B, b).status, Status::Success);
}

/// A connection that is being set up takes no work and gives memory back.
pub fn nothing_is_posted_before_it_is_established<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let Joined { a, b } = w.meet(A, &at);
    for (end, qp) in [(A, a), (B, b)] {
        assert_refused(w, end, qp, Refusal::NotEstablished);
        assert_eq!(w.end(end).send_room(qp), 0);
    }
    w.end(B).accept(b, b"").unwrap();
    w.until("the connector is established", |w| w.is_established(A, a));
}

/// Every kind of work is refused because of `why`, with its memory.
pub(crate) fn assert_refused<F: Fixture>(w: &mut World<F>, end: usize, qp: Qp, why: Refusal) {
    let nothing = RemoteSpan { key: RemoteKey(1 << 20), offset: 0, len: 4 };
    let buf = w.buf(b"four");
    let refused = w.end(end).bind(qp, buf, 0..4, Access::RemoteRead).unwrap_err();
    assert_eq!((refused.why, &refused.token[..]), (why, &b"four"[..]));
    let refused = w.end(end).post_send(qp, Tag(0), refused.token, None).unwrap_err();
    assert_eq!((refused.why, &refused.token[..]), (why, &b"four"[..]));
    let refused = w.end(end).post_read(qp, Tag(0), refused.token, 0, &[nothing]).unwrap_err();
    assert_eq!((refused.why, &refused.token[..]), (why, &b"four"[..]));
    let refused = w.end(end).post_write(qp, Tag(0), refused.token.freeze(), nothing).unwrap_err();
    assert_eq!((refused.why, &refused.token[..]), (why, &b"four"[..]));
    assert_eq!(w.end(end).post_local_invalidate(qp, Tag(0), nothing.key), Err(why));
    assert!(!w.end(end).send_inline(qp, b"four", None), "a copy is refused without a word");
}

/// After `stop_listening` new connections are refused, and existing ones live on.
pub fn a_closed_door_keeps_its_guests<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let pair = w.join(&at);
    w.end(B).stop_listening();
    let late = w.connect(A, &at, b"");
    w.until("the connect fails", |w| w.cause(A, late).is_some());
    assert_eq!(w.cause(A, late), Some(Cause::Fabric(FabricFault::Refused)));
    w.assert_works(pair);
}

/// An address that another end listens at is in use.
pub fn an_address_is_listened_to_once<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    assert_eq!(w.end(A).listen(&at).unwrap_err(), FabricFault::AddressInUse);
    let pair = w.join(&at);
    w.assert_works(pair);
}

/// `peer_address` is there from the connect request on, and goes with the connection.
pub fn a_peer_has_an_address_as_long_as_it_is_there<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let Joined { a, b } = w.meet(A, &at);
    assert!(w.end(B).peer_address(b).is_some(), "an acceptor may judge its peer by the address");
    w.end(B).accept(b, b"").unwrap();
    w.until("the connector is established", |w| w.is_established(A, a));
    assert!(w.end(A).peer_address(a).is_some_and(|peer| !peer.to_string().is_empty()));
    w.disconnect(A, a);
    w.end_of(Joined { a, b });
    w.pump();
    assert_eq!((w.end(A).peer_address(a), w.end(B).peer_address(b)), (None, None));
}

/// [`Limits::connections`] counts connections that are being set up too, and an end gives its place
/// back.
pub fn one_connection_too_many_is_refused<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(Limits { connections: 1, ..LIMITS });
    let pair = w.join(&at);
    assert_eq!(w.end(A).connect(&at, b""), Err(FabricFault::Exhausted));
    let third = w.add_end(LIMITS);
    let late = w.connect(third, &at, b"");
    w.until("the connect fails", |w| w.cause(third, late).is_some());
    w.assert_works(pair);
    w.disconnect(A, pair.a);
    w.end_of(pair);
    w.pump();
    let again = w.join(&at);
    w.assert_works(again);
}

/// The name of a connection that has ended names nothing, also when there are others in its place.
pub fn names_of_connections_go_stale<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let mut gone = Vec::new();
    for _ in 0..10 {
        let pair = w.join(&at);
        for Joined { a, b } in &gone {
            assert_refused(w, A, *a, Refusal::Gone);
            assert_refused(w, B, *b, Refusal::Gone);
            w.disconnect(A, *a);
            w.end(B).reject(*b, b"");
            assert_eq!(w.end(B).accept(*b, b""), Err(Refusal::Gone));
            assert_eq!(w.end(A).private_data(*a), b"");
        }
        w.assert_works(pair);
        w.disconnect(B, pair.b);
        assert_eq!(w.end_of(pair), Causes { a: Cause::Peer, b: Cause::Local });
        w.pump();
        gone.push(pair);
    }
}

/// A connect that is given up before it is answered ends as ours, and the acceptor does not keep
/// half of it.
pub fn a_connect_can_be_given_up<F: Fixture>(w: &mut World<F>) {
    let at = w.ends_with(LIMITS);
    let Joined { a, b } = w.meet(A, &at);
    w.disconnect(A, a);
    let Causes { a: ours, .. } = w.end_of(Joined { a, b });
    assert_eq!(ours, Cause::Local);
    let unseen = w.connect(A, &at, b"");
    w.disconnect(A, unseen);
    w.until("it ends", |w| w.cause(A, unseen).is_some());
    assert_eq!(w.cause(A, unseen), Some(Cause::Local));
    w.quiet();
    let pair = w.join(&at);
    w.assert_works(pair);
}
