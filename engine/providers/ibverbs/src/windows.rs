//! Table of windows: the buffer that each one opens, and the connection that may use it. The device
//! checks every access; this table keeps the buffers.
//!
//! A key is the device's index above 8 bits that change with every bind, so that a stale key opens
//! nothing. Windows are used oldest first, which makes a key come back as late as possible. Which
//! window is the first, and in which order the 8 bits of one go through all their values, is drawn
//! by lot for each shard: a peer cannot count on from a key that it knows. The index is the
//! device's, so that there is no more to guess than one of all windows and one of 256 values; a
//! wrong guess ends the connection of the guessing peer, and a right one opens nothing to it,
//! because
//! a window is bound to one connection.

use crate::device::{Domain, MadeAgain, MemoryWindow};
use stag_pools::{Exposed, Fenced, RemoteKey, Scope};
use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, RandomState},
    io,
    sync::Arc,
};

/// All windows of one shard.
#[derive(Debug)]
pub(crate) struct DeviceWindows {
    entries: Box<[DeviceWindowEntry]>,
    /// Idle entries, the one idle for longest first.
    idle: VecDeque<u32>,
    /// The entry that has a key's device index.
    by_index: HashMap<u32, u32>,
    variants: Variants,
    lot: Lot,
    domain: Arc<Domain>,
}

#[derive(Debug)]
struct DeviceWindowEntry {
    /// None: it is being made again, or could not be.
    window: Option<MemoryWindow>,
    /// Place of its last key in the order of variants.
    turn: u8,
    bound: Option<BoundWindow>,
}

impl DeviceWindowEntry {
    fn is_of(&self, scope: Scope) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.scope == scope)
    }
}

#[derive(Debug)]
struct BoundWindow {
    key: RemoteKey,
    scope: Scope,
    exposed: Exposed,
    /// Our own invalidation is posted.
    is_ending: bool,
    /// The peer of another connection has invalidated it: some devices do not check a window's
    /// owner.
    is_dead: bool,
}

/// Bits of a key that change with every bind.
const VARIANT_BITS: u32 = 8;

/// Numbers that no peer can know: the keys of the standard library's hash tables are the system's
/// random numbers.
#[derive(Debug, Default)]
struct Lot {
    state: RandomState,
    drawn: u64,
}

impl Lot {
    fn below(&mut self, bound: usize) -> usize {
        self.drawn += 1;
        usize::try_from(self.state.hash_one(self.drawn)).unwrap_or(usize::MAX) % bound.max(1)
    }

    /// Puts `items` in an order drawn by lot.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// The order in which the changing bits of keys go through their values.
#[derive(Debug)]
struct Variants(Box<[u8]>);

impl Variants {
    fn new(lot: &mut Lot) -> Self {
        let mut values: Box<[u8]> = (0..=u8::MAX).collect();
        lot.shuffle(&mut values);
        Self(values)
    }

    /// The key of the next bind of the window whose last key was `key`, and which is at `turn` of
    /// the order. Never 0.
    fn next(&self, key: u32, turn: &mut u8) -> u32 {
        loop {
            *turn = turn.wrapping_add(1);
            let variant = self.0.get(usize::from(*turn)).copied().unwrap_or(0);
            let next = (key & !0xff) | u32::from(variant);
            if next != key && next != 0 {
                return next;
            }
        }
    }
}

impl DeviceWindows {
    /// `capacity` windows. Fails when the device gives fewer.
    pub(crate) fn new(domain: &Arc<Domain>, capacity: usize) -> io::Result<Self> {
        let mut windows = Self::empty(domain, capacity);
        for index in 0..capacity {
            windows.make(index)?;
        }
        windows.lot.shuffle(windows.idle.make_contiguous());
        Ok(windows)
    }

    fn empty(domain: &Arc<Domain>, capacity: usize) -> Self {
        let mut lot = Lot::default();
        let variants = Variants::new(&mut lot);
        Self {
            entries: (0..capacity)
                .map(|_| DeviceWindowEntry { window: None, turn: 0, bound: None })
                .collect(),
            idle: VecDeque::with_capacity(capacity),
            by_index: HashMap::with_capacity(capacity),
            variants,
            lot,
            domain: Arc::clone(domain),
        }
    }

    fn make(&mut self, index: usize) -> io::Result<()> {
        let window = MemoryWindow::new(&self.domain)?;
        self.put(index, window);
        Ok(())
    }

    /// Has entry `index` use a window that was just made.
    fn put(&mut self, index: usize, window: MemoryWindow) {
        let place = u32::try_from(index).expect("a table's size fits 32 bits");
        self.by_index.insert(window.key() >> VARIANT_BITS, place);
        let entry = self.entries.get_mut(index).expect("the caller counts entries");
        entry.window = Some(window);
        entry.turn = self.lot.below(256) as u8;
        self.idle.push_back(place);
    }

    /// Takes the oldest idle window for `exposed`. The caller posts its bind with the returned key.
    pub(crate) fn bind(&mut self, scope: Scope, exposed: Exposed) -> RemoteKey {
        let index = self.idle.pop_front().expect("the caller looked whether one is idle");
        let entry =
            self.entries.get_mut(index as usize).expect("the idle list names entries of the table");
        let window = entry.window.as_ref().expect("an idle window is there");
        assert!(entry.bound.is_none(), "an idle window is not bound");
        let key = RemoteKey(self.variants.next(window.key(), &mut entry.turn));
        entry.bound = Some(BoundWindow { key, scope, exposed, is_ending: false, is_dead: false });
        key
    }

    /// Returns true if a window is idle.
    pub(crate) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    fn entry(&mut self, key: RemoteKey) -> Option<(u32, &mut DeviceWindowEntry)> {
        let index = *self.by_index.get(&(key.0 >> VARIANT_BITS))?;
        let entry = self.entries.get_mut(index as usize)?;
        let is_it = entry.bound.as_ref().is_some_and(|bound| bound.key == key);
        is_it.then_some((index, entry))
    }

    /// Returns the window and the exposed memory for the bind of `key`.
    pub(crate) fn bound(&mut self, key: RemoteKey) -> Option<(&mut MemoryWindow, &Exposed)> {
        let (_, entry) = self.entry(key)?;
        Some((entry.window.as_mut()?, &entry.bound.as_ref()?.exposed))
    }

    /// Notes that our own invalidation of `key` is posted on its connection. False: no such window
    /// can be invalidated there.
    pub(crate) fn begin_end(&mut self, scope: Scope, key: RemoteKey) -> bool {
        let bound = self.entry(key).and_then(|(_, entry)| entry.bound.as_mut());
        match bound.filter(|bound| bound.scope == scope && !bound.is_ending) {
            Some(bound) => {
                bound.is_ending = true;
                true
            }
            None => false,
        }
    }

    /// Returns true if the key is invalid already. A second invalidation of it would be an error,
    /// and on some devices worse.
    pub(crate) fn is_dead(&mut self, key: RemoteKey) -> bool {
        self.entry(key)
            .and_then(|(_, entry)| entry.bound.as_ref())
            .is_some_and(|bound| bound.is_dead)
    }

    /// The device reported that the peer of `scope` invalidated `key`: the proof, if it was that
    /// peer's to invalidate.
    pub(crate) fn invalidated_by_peer(&mut self, scope: Scope, key: RemoteKey) -> Option<Fenced> {
        let (index, entry) = self.entry(key)?;
        let bound = entry.bound.as_mut()?;
        bound.is_dead = true;
        if bound.scope != scope || bound.is_ending {
            return None;
        }
        Some(self.release(index))
    }

    /// The device reported that our own invalidation of `key` is done, or needed none.
    pub(crate) fn invalidated(&mut self, key: RemoteKey) -> Fenced {
        let (index, _) =
            self.entry(key).expect("a window stays bound while its invalidation is posted");
        self.release(index)
    }

    fn release(&mut self, index: u32) -> Fenced {
        let entry = self.entries.get_mut(index as usize).expect("the caller found it");
        let bound = entry.bound.take().expect("only bound windows are released");
        self.idle.push_back(index);
        // RFC 5042 §A [5042-23]: a buffer is used only after its STag is dead
        // SAFETY: the callers have the device's report that the key was invalidated.
        unsafe { bound.exposed.fence(bound.key) }
    }

    /// Takes every window of `scope`, whose queue pair has stopped, to be freed and made again:
    /// their state is not known. They have to be freed before the queue pair, which bound ones
    /// hold.
    pub(crate) fn withdraw(&mut self, scope: Scope) -> Vec<(u32, MemoryWindow)> {
        let of_scope = (0..).zip(&mut self.entries).filter(|(_, entry)| entry.is_of(scope));
        of_scope.filter_map(|(index, entry)| Some((index, entry.window.take()?))).collect()
    }

    /// Returns a withdrawn window to the table. Returns the proof that its key is dead, unless the
    /// device keeps the window: then it stays bound, with its memory, and can be withdrawn again.
    pub(crate) fn restore(&mut self, index: u32, window: MadeAgain) -> Option<Fenced> {
        let place = index as usize;
        let entry = self.entries.get_mut(place).expect("it was withdrawn from there");
        let window = match window {
            MadeAgain::Freed(window) => window,
            MadeAgain::Kept(kept) => {
                entry.window = Some(kept);
                return None;
            }
        };
        let bound = entry.bound.take().expect("a window that is withdrawn is bound");
        self.by_index.remove(&(bound.key.0 >> VARIANT_BITS));
        // When the device has none left, there is one window fewer.
        if let Some(window) = window {
            self.put(place, window);
        }
        // SAFETY: the window is freed: the device knows its key no more.
        Some(unsafe { bound.exposed.fence(bound.key) })
    }

    /// Windows a peer can use.
    pub(crate) fn in_use(&self) -> usize {
        self.entries.iter().filter(|entry| entry.bound.is_some()).count()
    }
}

impl Drop for DeviceWindows {
    fn drop(&mut self) {
        for entry in &mut self.entries {
            let is_freed = entry.window.take().is_none_or(|window| window.free().is_ok());
            // A buffer exposed by a window that the device keeps is leaked: dropping it does not
            // give its memory back.
            if let Some(bound) = entry.bound.take_if(|_| is_freed) {
                // SAFETY: the window was freed.
                drop(unsafe { bound.exposed.fence(bound.key) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::{ANSWER, ONE_AT_A_TIME, domain, window};
    use stag_pools::{Access, Class, Pool};
    use std::{collections::HashSet, sync::atomic::Ordering};

    #[test]
    fn keys_change_with_every_bind_and_none_is_zero() {
        let variants = Variants::new(&mut Lot::default());
        for index in [0, 1, 0xff_ffff] {
            let (mut key, mut turn) = (index << VARIANT_BITS, 0);
            for _ in 0..1_000 {
                let next = variants.next(key, &mut turn);
                assert!(next != key && next != 0);
                assert_eq!(next >> VARIANT_BITS, index);
                key = next;
            }
        }
    }

    #[test]
    fn a_key_comes_back_after_all_others_and_does_not_follow_from_the_last_one() {
        let orders: Vec<Vec<u32>> = (0..4)
            .map(|_| {
                let (variants, mut key, mut turn) = (Variants::new(&mut Lot::default()), 0x500, 0);
                let mut order: Vec<u32> = Vec::new();
                // The first one may differ from what the device began with and be skipped.
                for _ in 0..255 {
                    key = variants.next(key, &mut turn);
                    order.push(key);
                }
                assert_eq!(order.iter().collect::<HashSet<_>>().len(), 255);
                order
            })
            .collect();
        let steps = |order: &[u32]| {
            order
                .windows(2)
                .map(|pair| pair[1].wrapping_sub(pair[0]) as u8)
                .collect::<HashSet<_>>()
                .len()
        };
        // One that counts has a single step; of 254 drawn by lot most values occur.
        assert!(orders.iter().all(|order| steps(order) > 100));
        assert!(orders.windows(2).all(|pair| pair[0] != pair[1]), "each shard has its own order");
    }

    /// Windows of a device that does nothing.
    fn windows(count: u32) -> DeviceWindows {
        let domain = domain();
        let mut windows = DeviceWindows::empty(&domain, count as usize);
        for index in 0..count {
            windows.put(index as usize, window(&domain, (index + 1) << VARIANT_BITS));
        }
        windows
    }

    #[test]
    fn memory_of_a_window_that_the_device_keeps_is_kept_until_it_is_freed() {
        let _one = ONE_AT_A_TIME.lock();
        let pool = Pool::new(&[Class { slot_len: 64, count: 4 }]).unwrap();
        let exposed = || {
            let mut buf = pool.take(64).unwrap();
            buf.append(b"lent").unwrap();
            buf.expose(0..4, Access::RemoteWrite)
        };
        let mut windows = windows(2);
        let (key, _) = (windows.bind(Scope(1), exposed()), windows.bind(Scope(2), exposed()));
        ANSWER.store(libc::EBUSY, Ordering::Relaxed);
        let mut fenced = Vec::new();
        let mut close = |windows: &mut DeviceWindows| {
            let withdrawn = windows.withdraw(Scope(1));
            assert_eq!(withdrawn.len(), 1);
            for (index, window) in withdrawn {
                fenced.extend(windows.restore(index, window.make_again()));
            }
            fenced.pop()
        };
        assert!(close(&mut windows).is_none());
        assert_eq!((windows.in_use(), pool.taken()), (2, 2));
        ANSWER.store(0, Ordering::Relaxed);
        assert_eq!(close(&mut windows).map(|proof| proof.key()), Some(key));
        assert_eq!((windows.in_use(), pool.taken()), (1, 1));
        // At the end of the shard nothing aborts, and memory that a peer may still reach is not
        // reused.
        ANSWER.store(libc::EBUSY, Ordering::Relaxed);
        drop(windows);
        ANSWER.store(0, Ordering::Relaxed);
        assert_eq!(pool.taken(), 1);
    }
}
