//! Windows: keys that open a span of a buffer to one peer, for a while (DESIGN D1, D2; RFC 5040 §6,
//! RFC 5042 §6).
//!
//! The table is the memory protection of every provider that has no device to do it: a peer's
//! access names a key, an offset and a length, and everything else is checked here, in the order
//! RFC 5041 §7.1 asks for. A window is valid for one [`Scope`] (one connection) and one direction
//! of access; its key is unpredictable, is never 0, and is used again as late as possible. There is
//! no way from a bound window back to its [`Buf`] but [`Fenced`].

#[cfg(test)]
mod tests;

use crate::{buf::Buf, pool::PoolPlace};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::{collections::VecDeque, fmt, ops::Range};

/// Names exposed memory to a peer (iWARP: STag; verbs: rkey; RPC-over-RDMA: handle). Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteKey(pub u32);

/// The connection a window belongs to: only accesses that arrive there can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope(pub u64);

/// Right of a peer to exposed memory: read or write, never both (RFC 8166 §8.1.2: no more rights
/// than needed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The peer may fetch the octets.
    RemoteRead,
    /// The peer may store octets.
    RemoteWrite,
}

/// Why an access or an invalidation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessViolation {
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

impl fmt::Display for AccessViolation {
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

/// A buffer a peer may reach. It has no accessor; dropping it keeps its slot out of use for good
/// (quarantine).
#[derive(Debug)]
#[must_use = "exposed memory stays open to the peer until its window is fenced"]
pub struct Exposed {
    buf: std::mem::ManuallyDrop<Buf>,
    span: Range<usize>,
    access: Access,
    /// Octets at the front of the span that hold nothing of an earlier owner.
    filled: usize,
    /// Octets of unknown origin may have replaced what the peer wrote.
    is_doubtful: bool,
}

impl Exposed {
    pub(crate) fn new(buf: Buf, span: Range<usize>, access: Access) -> Self {
        // RFC 5042 §A [5042-24]: a buffer holds nothing stale before a peer may read it
        assert!(span.start <= span.end && span.end <= buf.len(), "only content can be exposed");
        Self { buf: std::mem::ManuallyDrop::new(buf), span, access, filled: 0, is_doubtful: false }
    }

    /// The same, but clears all octets that a peer may write, except the first `known`. Returns the
    /// number cleared.
    pub(crate) fn new_cleared(
        buf: Buf,
        span: Range<usize>,
        access: Access,
        known: usize,
    ) -> (Self, usize) {
        let mut exposed = Self::new(buf, span, access);
        if access == Access::RemoteRead {
            return (exposed, 0);
        }
        exposed.filled = known.min(exposed.len());
        let cleared = exposed.len() - exposed.filled;
        exposed.fill_to(exposed.len());
        (exposed, cleared)
    }

    /// Clears the octets between the filled front and octet `end` of the span, and counts them as
    /// filled.
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

    /// Returns true if no octet is exposed.
    pub fn is_empty(&self) -> bool {
        self.span.is_empty()
    }

    /// Place of the first exposed octet, for a device that opens a window to it.
    pub fn place(&self) -> PoolPlace {
        let place = self.buf.place();
        PoolPlace { at: place.at + self.span.start, ..place }
    }

    /// Returns the right that the peer has.
    pub const fn access(&self) -> Access {
        self.access
    }

    /// The buffer again, if a device, and not [`Windows`], had opened it as `key`.
    ///
    /// # Safety
    /// No peer can reach the octets any more: the device reported that `key` was invalidated, or
    /// its window was freed, or it was never opened.
    pub unsafe fn fence(self, key: RemoteKey) -> Fenced {
        let Self { filled, is_doubtful, .. } = self;
        Fenced { key, filled, is_doubtful, buf: self.withdraw() }
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
    /// Offset of the first octet as the peer names it: opaque, not an address.
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
    is_doubtful: bool,
    buf: Buf,
}

impl Fenced {
    /// The key, which is no longer valid.
    pub const fn key(&self) -> RemoteKey {
        self.key
    }

    /// Octets at the front of a window for writing that the peer wrote, or that are zero. Octets
    /// past them may be an earlier owner's, whatever the peer claims.
    pub const fn filled(&self) -> usize {
        self.filled
    }

    /// Returns true if octets of unknown origin may have replaced what the peer wrote: the
    /// connection ended while a segment was landing there whose check was not done, or failed. The
    /// peer's statements about the content are then worthless.
    pub const fn is_doubtful(&self) -> bool {
        self.is_doubtful
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
    bound: Option<BoundBuf>,
}

#[derive(Debug)]
struct BoundBuf {
    key: RemoteKey,
    scope: Scope,
    offset: u64,
    // RFC 5042 §6.3.6 [5042-12]: a buffer is never writable through two STags
    exposed: Exposed,
}

/// Keys have an index and random bits above an 8-bit variant.
const VARIANT_BITS: u32 = 8;
/// Fewest random bits a key has in addition to its variant.
const RANDOM_BITS_MIN: u32 = 8;

impl Windows {
    /// A table of `capacity` windows whose keys depend on `seed` (RFC 5042 §6.4: unpredictable to
    /// the peer, so take it from the operating system's generator outside of simulations).
    ///
    /// # Panics
    /// When `capacity` is above 65,536.
    pub fn new(capacity: usize, seed: [u8; 32]) -> Self {
        let index_bits = capacity.max(2).next_power_of_two().trailing_zeros();
        assert!(
            index_bits + VARIANT_BITS + RANDOM_BITS_MIN <= u32::BITS,
            "a key keeps some random bits"
        );
        let entry = |_| Entry { variant: 0, bound: None };
        // RFC 8166 §8.1.2 [8166-75]: a handle cannot be guessed
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
        // RFC 5042 §6.4.1 [5042-13]: scarce resources are handed out to a limit
        let Some(index) = self.idle.pop_front() else { return Err(exposed.withdraw()) };
        let random = self.random.next_u64();
        let entry =
            self.entries.get_mut(index as usize).expect("the idle list names entries of the table");
        assert!(entry.bound.is_none(), "an idle window is not bound");
        entry.variant = entry.variant.wrapping_add(1);
        // RFC 5040 §8.1.1 [5040-68]: an STag is hard to predict
        let high = (random as u32) << self.index_bits | index;
        let key = high << VARIANT_BITS | u32::from(entry.variant);
        let key = RemoteKey(if key == 0 { 1 << (VARIANT_BITS + self.index_bits) } else { key });
        // Page aligned and far from 2^64, so that the end of the longest window does not wrap.
        let offset = (random >> 1) & !0xfff;
        let window = Window {
            key,
            offset,
            len: u32::try_from(exposed.len()).expect("slots are shorter than 2^32"),
        };
        // RFC 5040 §8.1.1 [5040-64]: an STag is bound to a buffer and a range of it
        // RFC 5041 §8.3, §8.3.1 [5041-51]: bind and release decide when an STag opens its range
        entry.bound = Some(BoundBuf { key, scope, offset, exposed });
        Ok(window)
    }

    /// The octets at which a peer's RDMA Write of `len` octets lands. The caller fills all of them.
    pub fn target(
        &mut self,
        scope: Scope,
        key: RemoteKey,
        offset: u64,
        len: usize,
    ) -> Result<&mut [u8], AccessViolation> {
        self.target_front(scope, key, offset, len, len)
    }

    /// The first `part` octets at which an RDMA Write of `len` octets lands. The caller fills
    /// exactly these.
    pub fn target_front(
        &mut self,
        scope: Scope,
        key: RemoteKey,
        offset: u64,
        len: usize,
        part: usize,
    ) -> Result<&mut [u8], AccessViolation> {
        let bound = self.bound_mut(scope, key)?;
        let span = bound.check(Access::RemoteWrite, offset, len)?;
        let exposed = &mut bound.exposed;
        let at = span.start - exposed.span.start;
        let end = at + part.min(len);
        // Nearly all peers write from the front on. A gap that a peer leaves is cleared when it
        // writes past it.
        if at > exposed.filled && end > at {
            exposed.fill_to(at);
        }
        if at <= exposed.filled {
            exposed.filled = exposed.filled.max(end);
        }
        let target = exposed.buf.get_mut(span.start..exposed.span.start + end);
        Ok(target.expect("`check` keeps inside the exposed span"))
    }

    /// Returns the octets at which a peer's RDMA Write of `len` octets lands as it arrives, part by
    /// part. The caller reports each part that it has filled by calling [`target`](Self::target)
    /// for it.
    pub fn landing(
        &mut self,
        scope: Scope,
        key: RemoteKey,
        offset: u64,
        len: usize,
    ) -> Result<&mut [u8], AccessViolation> {
        let bound = self.bound_mut(scope, key)?;
        // It keeps inside the exposed span.
        let span = bound.check(Access::RemoteWrite, offset, len)?;
        let (_, behind) = bound.exposed.buf.split_at_mut(span.start);
        Ok(behind.split_at_mut(len).0)
    }

    /// Notes that the content of a window is [doubtful](Fenced::is_doubtful), because its
    /// connection ends while something lands there.
    pub fn doubt(&mut self, scope: Scope, key: RemoteKey) {
        if let Ok(bound) = self.bound_mut(scope, key) {
            bound.exposed.is_doubtful = true;
        }
    }

    /// Returns the octets that a peer's RDMA Read of `len` octets fetches.
    pub fn source(
        &mut self,
        scope: Scope,
        key: RemoteKey,
        offset: u64,
        len: usize,
    ) -> Result<&[u8], AccessViolation> {
        let bound = self.bound_mut(scope, key)?;
        let span = bound.check(Access::RemoteRead, offset, len)?;
        Ok(bound.exposed.buf.get(span).expect("`check` keeps inside the exposed span"))
    }

    /// Returns the place in its pool of the octets that a peer's RDMA Read fetches, for a peer that
    /// maps the pool.
    pub fn source_place(
        &mut self,
        scope: Scope,
        key: RemoteKey,
        offset: u64,
        len: usize,
    ) -> Result<PoolPlace, AccessViolation> {
        let bound = self.bound_mut(scope, key)?;
        let span = bound.check(Access::RemoteRead, offset, len)?;
        let place = bound.exposed.buf.place();
        Ok(PoolPlace { at: place.at + span.start, ..place })
    }

    /// Makes `key` invalid, on behalf of the peer or of ourselves. From here on no access can use
    /// it.
    // RFC 8166 §8.1 [8166-66]: the provider keeps the rules of RFC 5042
    pub fn invalidate(&mut self, scope: Scope, key: RemoteKey) -> Result<Fenced, AccessViolation> {
        // RFC 5040 §8.1.1 [5040-67]: a peer invalidates only STags of its own stream
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

    // RFC 8166 §8.1.1 [8166-74]: a handle is valid on its own connection only
    fn bound_mut(
        &mut self,
        scope: Scope,
        key: RemoteKey,
    ) -> Result<&mut BoundBuf, AccessViolation> {
        let index = self.index(key);
        let bound = self.entries.get_mut(index).and_then(|entry| entry.bound.as_mut());
        // RFC 5040 §7.2 [5040-59]: the source STag of a Read is valid for its stream
        // RFC 5041 §7.1 [5041-42]: the STag of a tagged segment is valid for its stream
        let bound = bound.filter(|bound| bound.key == key).ok_or(AccessViolation::InvalidKey)?;
        // RFC 5040 §7.2, §8.1.1 [5040-59]: the source STag of a Read is valid for its stream
        // RFC 5040 §7.2, §8.1.1 [5040-62]: an STag of another domain or stream is refused
        // RFC 5041 §8.2, §8.3.1 [5041-49]: an STag of another domain or stream places nothing
        // RFC 5041 §8.2, §8.3.1 [5041-50]: an STag belongs to one stream
        // [5041-53]: an STag is good in its own domain and stream only
        // RFC 5042 §6.1.1 [5042-6]: each STag is limited to one stream
        // RFC 5042 §6.1.1 [5042-7]: an STag of another protection domain is refused
        // RFC 5042 §6.1.1 [5042-8]: an STag limited to one stream is refused on others
        if bound.scope == scope { Ok(bound) } else { Err(AccessViolation::OtherScope) }
    }

    fn release(&mut self, index: usize) -> Fenced {
        // RFC 5040 §8.1.1 [5040-66], RFC 5041 §8.3, §8.3.1 [5041-51] [5041-56], RFC 5042 §6.2.2
        // [5042-10]: no octet that arrives after a revocation is placed
        let bound = self.entries.get_mut(index).and_then(|entry| entry.bound.take());
        let bound = bound.expect("only bound windows are released");
        self.idle.push_back(index as u32);
        let Exposed { filled, is_doubtful, .. } = bound.exposed;
        Fenced { key: bound.key, filled, is_doubtful, buf: bound.exposed.withdraw() }
    }
}

impl BoundBuf {
    /// The octets of the buffer that the access reaches (RFC 5041 §7.1, RFC 5040 §7.2).
    // RFC 8166 §8.1 [8166-65]: a key reaches only the octets that were bound
    fn check(
        &self,
        access: Access,
        offset: u64,
        len: usize,
    ) -> Result<Range<usize>, AccessViolation> {
        // RFC 5040 §8.1.1 [5040-65], RFC 5041 §7.1, §8.3.1 [5041-43] [5041-55], RFC 5042 §6.3.5
        // [5042-11]: a buffer is opened only for the access it needs
        if self.exposed.access != access {
            return Err(AccessViolation::Access);
        }
        // RFC 5040 §7.2 [5040-61]: source TO plus length does not wrap
        let end = offset.checked_add(len as u64).ok_or(AccessViolation::Wrap)?;
        // RFC 5040 §7.2, §8.1.1 [5040-60]: the source of a Read is inside the range of its STag
        // RFC 5040 §7.2, §8.1.1 [5040-63]: a peer reaches only the buffer that the STag opens
        // RFC 5041 §7.1, §8.3.1 [5041-44]: a tagged segment is inside the range of its STag
        // RFC 5041 §7.1, §8.3.1 [5041-54]: a peer reaches no memory outside the buffer of an STag
        // RFC 5042 §6.2.1 [5042-9]: a peer reaches no memory outside the buffer it was given
        if offset < self.offset || end > self.offset + self.exposed.len() as u64 {
            return Err(AccessViolation::Bounds);
        }
        // RFC 5042 §6.2.1 [5042-9]: a peer reaches no memory outside the buffer it was given
        let start = self.exposed.span.start + (offset - self.offset) as usize;
        Ok(start..start + len)
    }
}
