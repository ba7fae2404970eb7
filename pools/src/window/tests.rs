//! Tests of windows: they open the exposed span, to one peer, for as long as they are bound.

use super::*;
use crate::{Class, Pool, Writer};

const A: Scope = Scope(1);
const B: Scope = Scope(2);

fn pool() -> Pool {
    Pool::new(&[Class { slot_len: 64, count: 8 }]).unwrap()
}

fn exposed(pool: &Pool, access: Access) -> Exposed {
    let mut buf = pool.take(64).unwrap();
    buf.append(&[b'.'; 32]).unwrap();
    buf.expose(8..24, access)
}

#[test]
fn an_access_reaches_exactly_the_exposed_span() {
    let pool = pool();
    let mut windows = Windows::new(4, [1; 32]);
    let window = windows.bind(A, exposed(&pool, Access::RemoteWrite)).unwrap();
    assert_eq!(window.len, 16);
    windows.target(A, window.key, window.offset, 16).unwrap().fill(b'w');
    windows.target(A, window.key, window.offset + 16, 0).unwrap();
    for (offset, len) in
        [(window.offset - 1, 1), (window.offset, 17), (window.offset + 16, 1), (0, 1)]
    {
        assert_eq!(
            windows.target(A, window.key, offset, len).unwrap_err(),
            AccessViolation::Bounds
        );
    }
    assert_eq!(windows.target(A, window.key, u64::MAX, 1).unwrap_err(), AccessViolation::Wrap);
    assert_eq!(
        windows.source(A, window.key, window.offset, 1).unwrap_err(),
        AccessViolation::Access
    );
    assert_eq!(
        windows.target(B, window.key, window.offset, 1).unwrap_err(),
        AccessViolation::OtherScope
    );
    let buf = windows.invalidate(A, window.key).unwrap().into_buf();
    assert_eq!(&buf[..], b"........wwwwwwwwwwwwwwww........");
    assert_eq!(
        windows.target(A, window.key, window.offset, 1).unwrap_err(),
        AccessViolation::InvalidKey
    );
}

#[test]
fn what_a_peer_leaves_out_is_cleared_or_not_counted_as_filled() {
    let pool = pool();
    let mut windows = Windows::new(4, [1; 32]);
    let writes = |windows: &mut Windows, spans: &[(u64, usize)]| {
        let window = windows.bind(A, exposed(&pool, Access::RemoteWrite)).unwrap();
        for (at, len) in spans {
            windows.target(A, window.key, window.offset + at, *len).unwrap().fill(b'w');
        }
        let fenced = windows.invalidate(A, window.key).unwrap();
        let filled = fenced.filled();
        (filled, String::from_utf8(fenced.into_buf()[8..24].to_vec()).unwrap())
    };
    for (spans, filled, content) in [
        (&[][..], 0, "................"),
        (&[(0, 5)], 5, "wwwww..........."),
        (&[(0, 5), (5, 3), (2, 1)], 8, "wwwwwwww........"),
        (&[(12, 4)], 16, "\0\0\0\0\0\0\0\0\0\0\0\0wwww"),
        (&[(12, 2), (0, 5)], 14, "wwwww\0\0\0\0\0\0\0ww.."),
        (&[(4, 0), (16, 0)], 0, "................"),
    ] {
        assert_eq!(writes(&mut windows, spans), (filled, content.to_owned()), "{spans:?}");
    }
    // A part of a Write counts by itself, regardless of the rest.
    let window = windows.bind(A, exposed(&pool, Access::RemoteWrite)).unwrap();
    assert_eq!(windows.target_front(A, window.key, window.offset, 16, 6).unwrap().len(), 6);
    assert_eq!(
        windows.target_front(A, window.key, window.offset, 17, 6),
        Err(AccessViolation::Bounds)
    );
    assert_eq!(windows.invalidate(A, window.key).unwrap().filled(), 6);
}

#[test]
fn what_is_opened_to_a_device_for_writing_is_zero_and_what_is_opened_for_reading_stays() {
    let pool = pool();
    for (access, content) in [(Access::RemoteWrite, [0; 8]), (Access::RemoteRead, [b'.'; 8])] {
        let mut buf = pool.take(64).unwrap();
        buf.append(&[b'.'; 32]).unwrap();
        let (exposed, cleared) = buf.expose_cleared(8..16, access, Writer(1));
        assert_eq!(cleared, if access == Access::RemoteWrite { 8 } else { 0 });
        // SAFETY: no peer could ever reach it.
        let fenced = unsafe { exposed.fence(RemoteKey(7)) };
        assert_eq!(fenced.filled(), if access == Access::RemoteWrite { 8 } else { 0 });
        let buf = fenced.into_buf();
        assert_eq!(
            (&buf[..8], &buf[8..16], &buf[16..]),
            (&[b'.'; 8][..], &content[..], &[b'.'; 16][..])
        );
    }
}

/// Opens a slot's first octets to a writer, which writes `octets` to their beginning. Returns the
/// content afterwards, and the number of octets cleared.
fn written(pool: &Pool, is_room: bool, len: usize, writer: u64, octets: &[u8]) -> (Vec<u8>, usize) {
    let taken = if is_room { pool.take_room(len) } else { pool.take(len) };
    let mut buf = taken.unwrap();
    buf.extend(len);
    let (exposed, cleared) = buf.expose_cleared(0..len, Access::RemoteWrite, Writer(writer));
    // SAFETY: no peer can reach it: this writes in its place.
    let mut buf = unsafe { exposed.fence(RemoteKey(7)) }.into_buf();
    buf[..octets.len()].copy_from_slice(octets);
    (buf.to_vec(), cleared)
}

#[test]
fn a_room_that_a_peer_wrote_is_not_cleared_for_it_and_shows_it_to_no_other_reader() {
    let pool = Pool::new(&[Class { slot_len: 8_192, count: 1 }]).unwrap();
    let first = written(&pool, true, 5_000, 1, b"first of one");
    assert_eq!((&first.0[..12], first.1), (&b"first of one"[..], 5_000));
    // Its own octets again; the part past them is cleared.
    let second = written(&pool, true, 6_000, 1, b"second");
    assert_eq!((&second.0[..12], second.1), (&b"secondof one"[..], 1_000));
    let other = written(&pool, true, 4_000, 2, b"");
    assert!(other.0.iter().all(|octet| *octet == 0) && other.1 == 4_000);
    // The rest of the first writer's octets is cleared for the second.
    assert_eq!(written(&pool, true, 8_192, 2, b"").1, 4_192);
    written(&pool, true, 8_192, 2, &[7; 8_192]);
    assert_eq!(written(&pool, true, 100, 2, b"").1, 0);
    assert_eq!(written(&pool, true, 8_192, 2, b"").1, 0);
    // Any other use in between erases the record of the writer.
    drop(pool.take(1));
    assert_eq!(written(&pool, true, 8_192, 2, b""), (vec![0; 8_192], 8_192));
    assert_eq!(written(&pool, false, 8_192, 2, b"").1, 8_192);
    // So is what comes by a window that is not a device's.
    let mut room = pool.take_room(8_192).unwrap();
    room.extend(8_192);
    let mut windows = Windows::new(1, [1; 32]);
    let window = windows.bind(A, room.expose(0..8_192, Access::RemoteWrite)).unwrap();
    windows.target(A, window.key, window.offset, 8).unwrap().fill(b's');
    drop(windows.invalidate(A, window.key).unwrap());
    assert_eq!(written(&pool, true, 8_192, 2, b""), (vec![0; 8_192], 8_192));
}

#[test]
fn the_window_that_has_been_idle_for_longest_is_bound_first() {
    let pool = pool();
    let mut windows = Windows::new(3, [1; 32]);
    // No key is used again as soon as it is dead: a peer that is late with it finds nothing.
    for place in [0, 1, 2, 0, 1, 2] {
        let window = windows.bind(A, exposed(&pool, Access::RemoteWrite)).unwrap();
        assert_eq!(windows.index(window.key), place);
        drop(windows.invalidate(A, window.key).unwrap());
    }
    // The order in which they became idle counts, not that in which they were bound.
    let bound = [0, 1, 2].map(|place| {
        let window = windows.bind(A, exposed(&pool, Access::RemoteWrite)).unwrap();
        assert_eq!(windows.index(window.key), place);
        window.key
    });
    for place in [1, 2, 0] {
        drop(windows.invalidate(A, bound[place]).unwrap());
    }
    for place in [1, 2, 0] {
        let window = windows.bind(A, exposed(&pool, Access::RemoteWrite)).unwrap();
        assert_eq!(windows.index(window.key), place);
    }
}

#[test]
fn a_source_window_cannot_be_written() {
    let pool = pool();
    let mut windows = Windows::new(4, [1; 32]);
    let window = windows.bind(A, exposed(&pool, Access::RemoteRead)).unwrap();
    assert_eq!(windows.source(A, window.key, window.offset + 15, 1).unwrap(), b".");
    assert_eq!(
        windows.target(A, window.key, window.offset, 1).unwrap_err(),
        AccessViolation::Access
    );
}

#[test]
fn every_wrong_bit_of_a_key_is_refused() {
    let pool = pool();
    let mut windows = Windows::new(4, [1; 32]);
    let window = windows.bind(A, exposed(&pool, Access::RemoteWrite)).unwrap();
    for bit in 0..32 {
        let key = RemoteKey(window.key.0 ^ 1 << bit);
        assert_eq!(
            windows.target(A, key, window.offset, 1).unwrap_err(),
            AccessViolation::InvalidKey
        );
        assert_eq!(windows.invalidate(A, key).unwrap_err(), AccessViolation::InvalidKey);
    }
    assert_eq!(windows.invalidate(B, window.key).unwrap_err(), AccessViolation::OtherScope);
}

#[test]
fn keys_are_fresh_and_windows_rotate() {
    let pool = pool();
    let mut windows = Windows::new(3, [1; 32]);
    let mut seen = std::collections::HashSet::new();
    for use_number in 0..1_000 {
        let window = windows.bind(A, exposed(&pool, Access::RemoteRead)).unwrap();
        assert_ne!(window.key.0, 0);
        assert!(seen.insert(window.key), "use {use_number} repeats a key");
        assert_eq!(windows.index(window.key), use_number % 3);
        drop(windows.invalidate(A, window.key).unwrap());
    }
    assert_eq!(pool.taken(), 0);
}

#[test]
fn keys_are_sparse_and_another_seed_makes_others() {
    let pool = pool();
    let keys = |seed| {
        let mut windows = Windows::new(4, [seed; 32]);
        let mut next = || {
            let window = windows.bind(A, exposed(&pool, Access::RemoteRead)).unwrap();
            drop(windows.invalidate(A, window.key).unwrap());
            window.key.0
        };
        (0..64).map(|_| next()).collect::<Vec<_>>()
    };
    let (one, other) = (keys(1), keys(2));
    assert_eq!(one, keys(1));
    assert!(one.iter().all(|key| !other.contains(key)));
    // The bits above the index and the variant take every value of their range, and no difference
    // comes twice.
    let high = |key: &u32| key >> 10;
    for bit in 0..22 {
        let set = one.iter().filter(|key| high(key) >> bit & 1 == 1).count();
        assert!((8..=56).contains(&set), "bit {bit} is set in {set} of 64 keys");
    }
    let steps = one.windows(2).map(|pair| high(&pair[1]).wrapping_sub(high(&pair[0])));
    assert_eq!(steps.collect::<std::collections::HashSet<_>>().len(), 63);
}

#[test]
fn every_key_opens_memory_of_its_own() {
    let pool = pool();
    let mut windows = Windows::new(8, [1; 32]);
    let bound: Vec<_> =
        (0..8).map(|_| windows.bind(A, exposed(&pool, Access::RemoteWrite)).unwrap()).collect();
    assert_eq!(pool.available(64), 0, "all of the pool is open");
    for (number, window) in (0..).zip(&bound) {
        windows.target(A, window.key, window.offset, 16).unwrap().fill(number);
    }
    for (number, window) in (0..).zip(&bound) {
        let buf = windows.invalidate(A, window.key).unwrap().into_buf();
        assert_eq!(buf[8..24], [number; 16]);
    }
}

#[test]
#[should_panic(expected = "only content can be exposed")]
fn what_an_earlier_owner_left_behind_the_content_cannot_be_exposed() {
    let pool = pool();
    let mut buf = pool.take(64).unwrap();
    buf.append(&[b'.'; 32]).unwrap();
    let _ = buf.expose(8..33, Access::RemoteRead);
}

#[test]
fn a_full_table_gives_the_buffer_back() {
    let pool = pool();
    let mut windows = Windows::new(1, [1; 32]);
    let _window = windows.bind(A, exposed(&pool, Access::RemoteRead)).unwrap();
    let buf = windows.bind(A, exposed(&pool, Access::RemoteRead)).unwrap_err();
    assert_eq!(buf.len(), 32);
}

#[test]
fn closing_a_connection_fences_its_windows_and_no_others() {
    let pool = pool();
    let mut windows = Windows::new(4, [1; 32]);
    let ours = windows.bind(A, exposed(&pool, Access::RemoteRead)).unwrap();
    let other = windows.bind(B, exposed(&pool, Access::RemoteRead)).unwrap();
    let mut fenced = Vec::new();
    windows.close(A, |proof| fenced.push(proof.key()));
    assert_eq!(fenced, [ours.key]);
    assert!(windows.source(B, other.key, other.offset, 1).is_ok());
    assert_eq!((windows.bound(), pool.taken()), (1, 1));
}

#[test]
fn dropped_exposed_memory_is_never_used_again() {
    let pool = pool();
    drop(exposed(&pool, Access::RemoteRead));
    assert_eq!((pool.taken(), pool.available(1)), (1, 7));
    let mut windows = Windows::new(4, [1; 32]);
    let _window = windows.bind(A, exposed(&pool, Access::RemoteRead)).unwrap();
    drop(windows);
    assert_eq!(pool.taken(), 2);
}
