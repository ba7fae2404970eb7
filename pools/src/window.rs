//! Windows: keys that open a span of a buffer to one peer, for a while (DESIGN D1, D2; RFC 5040 §6, RFC 5042 §6).
//!
//! The table is the memory protection of every provider that has no device to do it: a peer's access names a key, an
//! offset and a length, and everything else is checked here, in the order RFC 5041 §7.1 asks for. A window is valid for
//! one [`Scope`] (one connection) and one direction of access; its key is unpredictable, is never 0, and is used again as
//! late as possible. There is no way from a bound window back to its [`Buf`] but [`Fenced`].

use crate::{buf::Buf, pool::Place};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::{collections::VecDeque, fmt, ops::Range};

/// Names exposed memory to a peer (iWARP: STag; verbs: rkey; RPC-over-RDMA: handle). Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteKey(pub u32);

/// The connection a window belongs to: only accesses that arrive there can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope(pub u64);

/// What a peer may do with exposed memory; never both (RFC 8166 §8.1.2: no more rights than needed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The peer may fetch the octets.
    RemoteRead,
    /// The peer may store octets.
    RemoteWrite,
}

/// Why an access or an invalidation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// No valid window has this key.
    InvalidKey,
    /// The window belongs to another connection.
    OtherScope,
    /// The window does not grant this kind of access.
    Access,
    /// Offset and length add up to more than 64 bits hold.
    Wrap,
    /// The span is not inside the window.
    Bounds,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidKey => "no valid window has this key",
            Self::OtherScope => "the window belongs to another connection",
            Self::Access => "the window does not grant this access",
            Self::Wrap => "offset and length wrap around",
            Self::Bounds => "the span is not inside the window",
        })
    }
}

/// A buffer a peer may reach. It has no accessor; dropping it keeps its slot out of use for good (quarantine).
#[derive(Debug)]
#[must_use = "exposed memory stays open to the peer until its window is fenced"]
pub struct Exposed {
    buf: std::mem::ManuallyDrop<Buf>,
    span: Range<usize>,
    access: Access,
    /// Octets at the front of the span that hold nothing of an earlier owner.
    filled: usize,
}

impl Exposed {
    pub(crate) fn new(buf: Buf, span: Range<usize>, access: Access) -> Self {
        // RFC 5042 §A [5042-24]
        assert!(span.start <= span.end && span.end <= buf.len(), "only content can be exposed");
        Self { buf: std::mem::ManuallyDrop::new(buf), span, access, filled: 0 }
    }

    /// The same; what a peer may write is zero when it is opened.
    pub(crate) fn new_cleared(buf: Buf, span: Range<usize>, access: Access) -> Self {
        let mut exposed = Self::new(buf, span, access);
        if access == Access::RemoteWrite {
            exposed.fill_to(exposed.len());
        }
        exposed
    }

    /// Clears what lies between the filled front and octet `end` of the span, and counts it as filled.
    fn fill_to(&mut self, end: usize) {
        let gap = self.span.start + self.filled..self.span.start + end;
        if let Some(octets) = self.buf.get_mut(gap) {
            octets.fill(0);
        }
        self.filled = self.filled.max(end);
    }

    /// Octets a peer may reach.
    pub fn len(&self) -> usize {
        self.span.len()
    }

    /// Whether no octet is exposed.
    pub fn is_empty(&self) -> bool {
        self.span.is_empty()
    }

    /// Where its first octet is, for a device that opens it.
    pub fn place(&self) -> Place {
        let place = self.buf.place();
        Place { at: place.at + self.span.start, ..place }
    }

    /// What the peer may do with it.
    pub const fn access(&self) -> Access {
        self.access
    }

    /// The buffer again, when a device and not [`Windows`] had opened it as `key`.
    ///
    /// # Safety
    /// No peer can reach the octets any more: the device reported that `key` was invalidated, or its window was freed, or
    /// it was never opened.
    pub unsafe fn fence(self, key: RemoteKey) -> Fenced {
        Fenced { key, filled: self.filled, buf: self.withdraw() }
    }

    /// The buffer of an exposure that no window ever named.
    fn withdraw(self) -> Buf {
        std::mem::ManuallyDrop::into_inner(self.buf)
    }
}

/// A window as its owner advertises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its key.
    pub key: RemoteKey,
    /// Where its first octet is for the peer: opaque, not an address.
    pub offset: u64,
    /// Octets.
    pub len: u32,
}

/// Proof that a key is dead, with the buffer it had opened.
#[derive(Debug)]
#[must_use = "it holds the buffer"]
pub struct Fenced {
    key: RemoteKey,
    filled: usize,
    buf: Buf,
}

impl Fenced {
    /// The key nobody can use any more.
    pub const fn key(&self) -> RemoteKey {
        self.key
    }

    /// Octets at the front of a window for writing that the peer wrote, or that are zero. What lies behind them may be an earlier
    /// owner's, whatever the peer says of it.
    pub const fn filled(&self) -> usize {
        self.filled
    }

    /// The buffer, ours alone again.
    pub fn into_buf(self) -> Buf {
        self.buf
    }
}

/// All windows of one shard. Their number is fixed when the table is made.
#[derive(Debug)]
pub struct Windows {
    entries: Box<[Entry]>,
    /// Idle entries, the one idle for longest first.
    idle: VecDeque<u32>,
    index_bits: u32,
    random: StdRng,
}

#[derive(Debug)]
struct Entry {
    /// Counts the uses of this entry; its low 8 bits are the key's variant.
    variant: u8,
    bound: Option<Bound>,
}

#[derive(Debug)]
struct Bound {
    key: RemoteKey,
    scope: Scope,
    offset: u64,
    // RFC 5042 §6.3.6 [5042-12]
    exposed: Exposed,
}

/// Keys have an index and random bits above an 8-bit variant.
const VARIANT_BITS: u32 = 8;
/// Fewest random bits a key keeps beside its variant.
const RANDOM_BITS_MIN: u32 = 8;

impl Windows {
    /// A table of `capacity` windows whose keys depend on `seed` (RFC 5042 §6.4: unpredictable to the peer, so
    /// take it from the operating system's generator outside of simulations).
    ///
    /// # Panics
    /// When `capacity` is above 65,536.
    pub fn new(capacity: usize, seed: [u8; 32]) -> Self {
        let index_bits = capacity.max(2).next_power_of_two().trailing_zeros();
        assert!(index_bits + VARIANT_BITS + RANDOM_BITS_MIN <= u32::BITS, "a key keeps some random bits");
        let entry = |_| Entry { variant: 0, bound: None };
        // RFC 8166 §8.1.2 [8166-75]
        let random = StdRng::from_seed(seed);
        Self {
            entries: (0..capacity).map(entry).collect(),
            idle: (0..capacity as u32).collect(),
            index_bits,
            random,
        }
    }

    /// Opens `exposed` to the peer of `scope`. When every window is bound the buffer comes back.
    pub fn bind(&mut self, scope: Scope, exposed: Exposed) -> Result<Window, Buf> {
        // RFC 5042 §6.4.1 [5042-13]
        let Some(index) = self.idle.pop_front() else { return Err(exposed.withdraw()) };
        let random = self.random.next_u64();
        let entry = self.entries.get_mut(index as usize).expect("the idle list names entries of the table");
        assert!(entry.bound.is_none(), "an idle window is not bound");
        entry.variant = entry.variant.wrapping_add(1);
        // RFC 5040 §8.1.1 [5040-68]
        let high = (random as u32) << self.index_bits | index;
        let key = high << VARIANT_BITS | u32::from(entry.variant);
        let key = RemoteKey(if key == 0 { 1 << (VARIANT_BITS + self.index_bits) } else { key });
        // Page aligned and far from 2^64, so that the end of the longest window does not wrap.
        let offset = (random >> 1) & !0xfff;
        let window =
            Window { key, offset, len: u32::try_from(exposed.len()).expect("slots are shorter than 2^32") };
        // RFC 5040 §8.1.1 [5040-64], RFC 5041 §8.3, §8.3.1 [5041-51]
        entry.bound = Some(Bound { key, scope, offset, exposed });
        Ok(window)
    }

    /// The octets at which a peer's RDMA Write of `len` octets lands. The caller fills all of them.
    pub fn target(
        &mut self,
        scope: Scope,
        key: RemoteKey,
        offset: u64,
        len: usize,
    ) -> Result<&mut [u8], Violation> {
        self.target_front(scope, key, offset, len, len)
    }

    /// The first `part` octets at which an RDMA Write of `len` octets lands. The caller fills them, and no more.
    pub fn target_front(
        &mut self,
        scope: Scope,
        key: RemoteKey,
        offset: u64,
        len: usize,
        part: usize,
    ) -> Result<&mut [u8], Violation> {
        let bound = self.bound_mut(scope, key)?;
        let span = bound.check(Access::RemoteWrite, offset, len)?;
        let exposed = &mut bound.exposed;
        let at = span.start - exposed.span.start;
        let end = at + part.min(len);
        // Nearly all peers write from the front on. What one leaves out is cleared when it writes behind it.
        if at > exposed.filled && end > at {
            exposed.fill_to(at);
        }
        if at <= exposed.filled {
            exposed.filled = exposed.filled.max(end);
        }
        let target = exposed.buf.get_mut(span.start..exposed.span.start + end);
        Ok(target.expect("`check` keeps inside the exposed span"))
    }

    /// What a peer's RDMA Read of `len` octets fetches.
    pub fn source(
        &mut self,
        scope: Scope,
        key: RemoteKey,
        offset: u64,
        len: usize,
    ) -> Result<&[u8], Violation> {
        let bound = self.bound_mut(scope, key)?;
        let span = bound.check(Access::RemoteRead, offset, len)?;
        Ok(bound.exposed.buf.get(span).expect("`check` keeps inside the exposed span"))
    }

    /// Where in its pool that is, for a peer that maps the pool.
    pub fn source_place(
        &mut self,
        scope: Scope,
        key: RemoteKey,
        offset: u64,
        len: usize,
    ) -> Result<Place, Violation> {
        let bound = self.bound_mut(scope, key)?;
        let span = bound.check(Access::RemoteRead, offset, len)?;
        let place = bound.exposed.buf.place();
        Ok(Place { at: place.at + span.start, ..place })
    }

    /// Makes `key` invalid, on behalf of the peer or of ourselves. From here on no access can use it.
    // RFC 8166 §8.1 [8166-66]
    pub fn invalidate(&mut self, scope: Scope, key: RemoteKey) -> Result<Fenced, Violation> {
        // RFC 5040 §8.1.1 [5040-67]
        self.bound_mut(scope, key)?;
        Ok(self.release(self.index(key)))
    }

    /// Makes every window of `scope` invalid, because its connection is gone.
    pub fn close(&mut self, scope: Scope, mut fenced: impl FnMut(Fenced)) {
        for index in 0..self.entries.len() {
            let bound = self.entries.get(index).and_then(|entry| entry.bound.as_ref());
            if bound.is_some_and(|bound| bound.scope == scope) {
                fenced(self.release(index));
            }
        }
    }

    /// Windows a peer can use.
    pub fn bound(&self) -> usize {
        self.entries.len() - self.idle.len()
    }

    /// All windows.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    fn index(&self, key: RemoteKey) -> usize {
        (key.0 >> VARIANT_BITS) as usize & ((1 << self.index_bits) - 1)
    }

    // RFC 8166 §8.1.1 [8166-74]
    fn bound_mut(&mut self, scope: Scope, key: RemoteKey) -> Result<&mut Bound, Violation> {
        let index = self.index(key);
        let bound = self.entries.get_mut(index).and_then(|entry| entry.bound.as_mut());
        // RFC 5040 §7.2 [5040-59], RFC 5041 §7.1 [5041-42]
        let bound = bound.filter(|bound| bound.key == key).ok_or(Violation::InvalidKey)?;
        // RFC 5040 §7.2, §8.1.1 [5040-59] [5040-62], RFC 5041 §8.2, §8.3.1 [5041-49] [5041-50] [5041-53],
        // RFC 5042 §6.1.1 [5042-6] [5042-7] [5042-8]
        if bound.scope == scope { Ok(bound) } else { Err(Violation::OtherScope) }
    }

    fn release(&mut self, index: usize) -> Fenced {
        // RFC 5040 §8.1.1 [5040-66], RFC 5041 §8.3, §8.3.1 [5041-51] [5041-56], RFC 5042 §6.2.2 [5042-10]
        let bound = self.entries.get_mut(index).and_then(|entry| entry.bound.take());
        let bound = bound.expect("only bound windows are released");
        self.idle.push_back(index as u32);
        // RFC 5042 §A [5042-23]
        Fenced { key: bound.key, filled: bound.exposed.filled, buf: bound.exposed.withdraw() }
    }
}

impl Bound {
    /// The octets of the buffer that the access reaches (RFC 5041 §7.1, RFC 5040 §7.2).
    // RFC 8166 §8.1 [8166-65]
    fn check(&self, access: Access, offset: u64, len: usize) -> Result<Range<usize>, Violation> {
        // RFC 5040 §8.1.1 [5040-65], RFC 5041 §7.1, §8.3.1 [5041-43] [5041-55], RFC 5042 §6.3.5 [5042-11]
        if self.exposed.access != access {
            return Err(Violation::Access);
        }
        // RFC 5040 §7.2 [5040-61]
        let end = offset.checked_add(len as u64).ok_or(Violation::Wrap)?;
        // RFC 5040 §7.2, §8.1.1 [5040-60] [5040-63], RFC 5041 §7.1, §8.3.1 [5041-44] [5041-54],
        // RFC 5042 §6.2.1 [5042-9]
        if offset < self.offset || end > self.offset + self.exposed.len() as u64 {
            return Err(Violation::Bounds);
        }
        // RFC 5042 §6.2.1 [5042-9]
        let start = self.exposed.span.start + (offset - self.offset) as usize;
        Ok(start..start + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Pool};

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
        for (offset, len) in [(window.offset - 1, 1), (window.offset, 17), (window.offset + 16, 1), (0, 1)] {
            assert_eq!(windows.target(A, window.key, offset, len).unwrap_err(), Violation::Bounds);
        }
        assert_eq!(windows.target(A, window.key, u64::MAX, 1).unwrap_err(), Violation::Wrap);
        assert_eq!(windows.source(A, window.key, window.offset, 1).unwrap_err(), Violation::Access);
        assert_eq!(windows.target(B, window.key, window.offset, 1).unwrap_err(), Violation::OtherScope);
        let buf = windows.invalidate(A, window.key).unwrap().into_buf();
        assert_eq!(&buf[..], b"........wwwwwwwwwwwwwwww........");
        assert_eq!(windows.target(A, window.key, window.offset, 1).unwrap_err(), Violation::InvalidKey);
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
        // A part of a Write counts alone, whatever is to follow.
        let window = windows.bind(A, exposed(&pool, Access::RemoteWrite)).unwrap();
        assert_eq!(windows.target_front(A, window.key, window.offset, 16, 6).unwrap().len(), 6);
        assert_eq!(windows.target_front(A, window.key, window.offset, 17, 6), Err(Violation::Bounds));
        assert_eq!(windows.invalidate(A, window.key).unwrap().filled(), 6);
    }

    #[test]
    fn what_is_opened_to_a_device_for_writing_is_zero_and_what_is_opened_for_reading_stays() {
        let pool = pool();
        for (access, content) in [(Access::RemoteWrite, [0; 8]), (Access::RemoteRead, [b'.'; 8])] {
            let mut buf = pool.take(64).unwrap();
            buf.append(&[b'.'; 32]).unwrap();
            let exposed = buf.expose_cleared(8..16, access);
            // SAFETY: no peer could ever reach it.
            let fenced = unsafe { exposed.fence(RemoteKey(7)) };
            assert_eq!(fenced.filled(), if access == Access::RemoteWrite { 8 } else { 0 });
            let buf = fenced.into_buf();
            assert_eq!((&buf[..8], &buf[8..16], &buf[16..]), (&[b'.'; 8][..], &content[..], &[b'.'; 16][..]));
        }
    }

    #[test]
    fn a_source_window_cannot_be_written() {
        let pool = pool();
        let mut windows = Windows::new(4, [1; 32]);
        let window = windows.bind(A, exposed(&pool, Access::RemoteRead)).unwrap();
        assert_eq!(windows.source(A, window.key, window.offset + 15, 1).unwrap(), b".");
        assert_eq!(windows.target(A, window.key, window.offset, 1).unwrap_err(), Violation::Access);
    }

    #[test]
    fn every_wrong_bit_of_a_key_is_refused() {
        let pool = pool();
        let mut windows = Windows::new(4, [1; 32]);
        let window = windows.bind(A, exposed(&pool, Access::RemoteWrite)).unwrap();
        for bit in 0..32 {
            let key = RemoteKey(window.key.0 ^ 1 << bit);
            assert_eq!(windows.target(A, key, window.offset, 1).unwrap_err(), Violation::InvalidKey);
            assert_eq!(windows.invalidate(A, key).unwrap_err(), Violation::InvalidKey);
        }
        assert_eq!(windows.invalidate(B, window.key).unwrap_err(), Violation::OtherScope);
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
        // What stands above the index and the variant takes every part of its range, and no difference comes twice.
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
}
