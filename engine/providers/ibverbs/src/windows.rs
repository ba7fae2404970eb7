//! Which window opens which buffer, to whom. The device checks every access; this table keeps the buffers.
//!
//! A key is the device's index above 8 bits that change with every bind, so that a stale key opens nothing. Windows are used oldest
//! first, which makes a key come back as late as possible.

use crate::device::{Domain, MemoryWindow};
use stag_pools::{Exposed, Fenced, RemoteKey, Scope};
use std::{
    collections::{HashMap, VecDeque},
    io,
    rc::Rc,
};

/// All windows of one shard.
#[derive(Debug)]
pub(crate) struct Windows {
    entries: Box<[Entry]>,
    /// Idle entries, the one idle for longest first.
    idle: VecDeque<u32>,
    /// The entry that has a key's device index.
    by_index: HashMap<u32, u32>,
    domain: Rc<Domain>,
}

#[derive(Debug)]
struct Entry {
    /// None: it could not be made again.
    window: Option<MemoryWindow>,
    bound: Option<Bound>,
}

#[derive(Debug)]
struct Bound {
    key: RemoteKey,
    scope: Scope,
    exposed: Exposed,
    /// Our own invalidation is posted.
    is_ending: bool,
    /// A peer it does not belong to has invalidated it: some devices do not look whose a window is.
    is_dead: bool,
}

/// Bits of a key that change with every bind.
const VARIANT_BITS: u32 = 8;

/// The key of the next bind of the window whose last key was `key`. Never 0.
fn next_key(key: u32) -> u32 {
    let variant = |by: u8| (key & !0xff) | u32::from((key as u8).wrapping_add(by));
    match variant(1) {
        0 => variant(2),
        key => key,
    }
}

impl Windows {
    /// `capacity` windows. Fails when the device gives fewer.
    pub(crate) fn new(domain: &Rc<Domain>, capacity: usize) -> io::Result<Self> {
        let mut windows = Self {
            entries: (0..capacity).map(|_| Entry { window: None, bound: None }).collect(),
            idle: VecDeque::with_capacity(capacity),
            by_index: HashMap::with_capacity(capacity),
            domain: Rc::clone(domain),
        };
        for index in 0..capacity {
            windows.make(index)?;
        }
        Ok(windows)
    }

    fn make(&mut self, index: usize) -> io::Result<()> {
        let window = MemoryWindow::new(&self.domain)?;
        let place = u32::try_from(index).expect("a table's size fits 32 bits");
        self.by_index.insert(window.key() >> VARIANT_BITS, place);
        let entry = self.entries.get_mut(index).expect("the caller counts entries");
        entry.window = Some(window);
        self.idle.push_back(place);
        Ok(())
    }

    /// Takes the oldest idle window for `exposed`. The caller posts its bind with the key that comes back.
    pub(crate) fn bind(&mut self, scope: Scope, exposed: Exposed) -> RemoteKey {
        let index = self.idle.pop_front().expect("the caller looked whether one is idle");
        let entry = self.entries.get_mut(index as usize).expect("the idle list names entries of the table");
        let window = entry.window.as_ref().expect("an idle window is there");
        assert!(entry.bound.is_none(), "an idle window is not bound");
        let key = RemoteKey(next_key(window.key()));
        entry.bound = Some(Bound { key, scope, exposed, is_ending: false, is_dead: false });
        key
    }

    /// Whether one is idle.
    pub(crate) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    fn entry(&mut self, key: RemoteKey) -> Option<(u32, &mut Entry)> {
        let index = *self.by_index.get(&(key.0 >> VARIANT_BITS))?;
        let entry = self.entries.get_mut(index as usize)?;
        let is_it = entry.bound.as_ref().is_some_and(|bound| bound.key == key);
        is_it.then_some((index, entry))
    }

    /// What a bind of `key` needs: the window, and the exposed memory.
    pub(crate) fn bound(&mut self, key: RemoteKey) -> Option<(&mut MemoryWindow, &Exposed)> {
        let (_, entry) = self.entry(key)?;
        Some((entry.window.as_mut()?, &entry.bound.as_ref()?.exposed))
    }

    /// Notes that our own invalidation of `key` is posted on its connection. False: no such window can be invalidated there.
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

    /// Whether the key is dead already: to invalidate it once more would be an error, and on some devices worse.
    pub(crate) fn is_dead(&mut self, key: RemoteKey) -> bool {
        self.entry(key).and_then(|(_, entry)| entry.bound.as_ref()).is_some_and(|bound| bound.is_dead)
    }

    /// The device reported that the peer of `scope` invalidated `key`: the proof, if it was that peer's to invalidate.
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
        let (index, _) = self.entry(key).expect("a window stays bound while its invalidation is posted");
        self.release(index)
    }

    fn release(&mut self, index: u32) -> Fenced {
        let entry = self.entries.get_mut(index as usize).expect("the caller found it");
        let bound = entry.bound.take().expect("only bound windows are released");
        self.idle.push_back(index);
        // SAFETY: the callers have the device's report that the key was invalidated.
        unsafe { bound.exposed.fence(bound.key) }
    }

    /// Frees every window of `scope`, whose queue pair has stopped, and makes new ones: their state is not known. It takes system
    /// calls, as everything at the end of a connection does: no call waits for it but those of other connections that are
    /// being polled at that moment. They have to be freed before the queue pair, which bound ones hold.
    pub(crate) fn close(&mut self, scope: Scope, mut fenced: impl FnMut(Fenced)) -> u64 {
        let mut count = 0;
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(index) else { break };
            let Some(bound) = entry.bound.take_if(|bound| bound.scope == scope) else { continue };
            if let Some(window) = entry.window.take() {
                self.by_index.remove(&(window.key() >> VARIANT_BITS));
            }
            // SAFETY: the window is freed: the device knows its key no more.
            fenced(unsafe { bound.exposed.fence(bound.key) });
            count += 1;
            // When the device has none left, there is one window fewer.
            let _ = self.make(index);
        }
        count
    }

    /// Windows a peer can use.
    pub(crate) fn in_use(&self) -> usize {
        self.entries.iter().filter(|entry| entry.bound.is_some()).count()
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        for entry in &mut self.entries {
            entry.window = None;
            if let Some(bound) = entry.bound.take() {
                // SAFETY: the window was freed.
                drop(unsafe { bound.exposed.fence(bound.key) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_with_every_bind_and_none_is_zero() {
        for index in [0, 1, 0xff_ffff] {
            let mut key = index << VARIANT_BITS;
            for _ in 0..1_000 {
                let next = next_key(key);
                assert!(next != key && next != 0);
                assert_eq!(next >> VARIANT_BITS, index);
                key = next;
            }
        }
        assert_eq!(next_key(u32::MAX), 0xffff_ff00, "it does not overflow");
    }
}
