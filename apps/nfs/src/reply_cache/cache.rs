//! The cached replies of one shard: bounded, with lookup in constant time.
//!
//! Clients are grouped in slots by the hash of their addresses. A full cache evicts the oldest
//! reply of the new one's own slot if that has its share: the capacity divided by the number of
//! slots with replies. Otherwise it evicts the oldest reply of the largest slot. So one host may
//! fill the cache, but evicts no other host's share.

use std::time::Duration;

use stag_engine::Time;

use super::{key::CallKey, report::Duplicates};

/// Bytes of the longest reply that is cached, its RPC header included: that of a CREATE has 304.
pub(crate) const REPLY_MAX: usize = 320;
/// The longest time for which a reply is cached, as with Linux' server. A client retries for as
/// long as the network is down. But a client that was rebooted, and repeats calls under the same
/// XIDs, must not get replies from before.
pub const AGE_MAX: Duration = Duration::from_secs(120);

/// No entry.
const NONE: u32 = u32::MAX;

/// Verdict on a call.
#[derive(Debug)]
pub(crate) enum CacheVerdict<'a> {
    /// It is the first: execute it and [`finish`](ReplyCache::finish).
    Execute(ReplyTicket),
    /// It was executed; this is the reply.
    Replay(&'a [u8]),
    /// It is being executed.
    Busy,
}

/// A reply, and the time from which its age counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptAt<'a> {
    pub(crate) octets: &'a [u8],
    pub(crate) now: Time,
}

/// The right to execute a call.
#[derive(Debug)]
#[must_use]
pub(crate) struct ReplyTicket {
    place: u32,
    key: CallKey,
}

/// A reply in transit to another shard.
#[derive(Clone, Debug)]
pub(crate) struct MovedReply {
    key: CallKey,
    born: Time,
    reply: KeptReply,
}

/// A reply; empty while the call is being executed.
#[derive(Clone, Debug)]
struct KeptReply {
    len: u16,
    octets: [u8; REPLY_MAX],
}

impl KeptReply {
    const EMPTY: Self = Self { len: 0, octets: [0; REPLY_MAX] };

    fn octets(&self) -> &[u8] {
        self.octets.get(..self.len.into()).unwrap_or_default()
    }
}

/// An entry of the cache: in the chain of its bucket, and in its slot's list from newest to oldest.
/// Free entries are chained too.
#[derive(Clone, Debug)]
struct ReplyEntry {
    key: Option<CallKey>,
    slot: usize,
    born: Time,
    chained: u32,
    older: u32,
    newer: u32,
    reply: KeptReply,
}

/// The replies of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotLine {
    newest: u32,
    oldest: u32,
    len: u32,
}

impl SlotLine {
    const EMPTY: Self = Self { newest: NONE, oldest: NONE, len: 0 };
}

/// See the module. Allocates nothing after its creation, except when replies move.
#[derive(Debug)]
pub(crate) struct ReplyCache {
    entries: Box<[ReplyEntry]>,
    buckets: Box<[u32]>,
    /// Entries by slot of their client.
    lines: Box<[SlotLine]>,
    /// Slots with entries.
    slots_in_use: usize,
    /// The next slot to check for expired replies.
    next_slot: usize,
    free: u32,
    len: usize,
    /// Calls being executed.
    busy: usize,
}

impl ReplyCache {
    /// A cache with room for `capacity` replies of clients in `slots` groups.
    ///
    /// # Panics
    /// When `capacity` is zero, or more than 2³⁰.
    pub(crate) fn new(capacity: usize, slots: usize) -> Self {
        assert!(
            (1..=1 << 30).contains(&capacity),
            "a cache holds something, and is numbered by 32 bits"
        );
        let free = |place: usize| ReplyEntry {
            key: None,
            slot: 0,
            born: Time(0),
            chained: if place + 1 < capacity { place as u32 + 1 } else { NONE },
            older: NONE,
            newer: NONE,
            reply: KeptReply::EMPTY,
        };
        Self {
            entries: (0..capacity).map(free).collect(),
            buckets: vec![NONE; Self::buckets(capacity)].into(),
            lines: vec![SlotLine::EMPTY; slots].into(),
            slots_in_use: 0,
            next_slot: 0,
            free: 0,
            len: 0,
            busy: 0,
        }
    }

    const fn buckets(capacity: usize) -> usize {
        capacity.next_power_of_two() * 2
    }

    /// Bytes of a cache with this capacity.
    pub(crate) const fn octets(capacity: usize, slots: usize) -> usize {
        capacity * size_of::<ReplyEntry>()
            + Self::buckets(capacity) * size_of::<u32>()
            + slots * size_of::<SlotLine>()
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if a call is being executed.
    pub(crate) const fn is_busy(&self) -> bool {
        self.busy > 0
    }

    /// Classifies a call as a duplicate or an original; registers an original. `slot` is the slot
    /// of the call's client.
    pub(crate) fn judge(
        &mut self,
        key: &CallKey,
        slot: usize,
        now: Time,
        counts: &mut Duplicates,
    ) -> CacheVerdict<'_> {
        match self.find(key) {
            Some(place) if self.entry(place).reply.len == 0 => {
                counts.busy += 1;
                CacheVerdict::Busy
            }
            Some(place) if now.since(self.entry(place).born) < AGE_MAX => {
                counts.replayed += 1;
                CacheVerdict::Replay(self.entry(place).reply.octets())
            }
            outdated => {
                if let Some(place) = outdated {
                    self.remove(place);
                }
                self.make_room(slot, now, counts);
                let place = self.insert(*key, slot, now, NONE);
                self.busy += 1;
                CacheVerdict::Execute(ReplyTicket { place, key: *key })
            }
        }
    }

    /// The reply of an executed call.
    pub(crate) fn replay(
        &mut self,
        key: &CallKey,
        now: Time,
        counts: &mut Duplicates,
    ) -> Option<&[u8]> {
        let place = self.find(key)?;
        let entry = self.entry(place);
        if entry.reply.len == 0 || now.since(entry.born) >= AGE_MAX {
            return None;
        }
        counts.replayed += 1;
        Some(self.entry(place).reply.octets())
    }

    /// Caches a reply, with its time, of a call that was not submitted to this cache.
    pub(crate) fn keep(
        &mut self,
        key: &CallKey,
        slot: usize,
        reply: KeptAt<'_>,
        counts: &mut Duplicates,
    ) {
        if let Some(place) = self.find(key) {
            self.remove(place);
        }
        self.make_room(slot, reply.now, counts);
        let place = self.insert(*key, slot, reply.now, NONE);
        self.busy += 1;
        self.finish(ReplyTicket { place, key: *key }, reply.octets);
    }

    /// Caches the reply of an executed call.
    pub(crate) fn finish(&mut self, ticket: ReplyTicket, reply: &[u8]) {
        let entry = self.entry_mut(ticket.place);
        if entry.key != Some(ticket.key) {
            return; // It was pushed out meanwhile.
        }
        debug_assert!((1..=REPLY_MAX).contains(&reply.len()), "{} octets of reply", reply.len());
        match entry.reply.octets.get_mut(..reply.len()) {
            Some(octets) if !reply.is_empty() => {
                octets.copy_from_slice(reply);
                entry.reply.len = reply.len() as u16;
                self.busy -= 1;
            }
            _ => self.remove(ticket.place),
        }
    }

    /// Removes the replies of a slot, the oldest first.
    pub(crate) fn take(&mut self, slot: usize) -> Vec<MovedReply> {
        debug_assert_eq!(
            self.busy, 0,
            "no call is being carried out while its shard sorts its mail"
        );
        let mut taken = Vec::with_capacity(self.line(slot).len as usize);
        while self.line(slot).oldest != NONE {
            let place = self.line(slot).oldest;
            let entry = self.entry(place);
            let (born, reply) = (entry.born, entry.reply.clone());
            taken.extend(entry.key.map(|key| MovedReply { key, born, reply }));
            self.remove(place);
        }
        taken
    }

    /// Merges replies of a slot into its own, by age. Those too old for a full cache in which the
    /// slot has its share are dropped.
    pub(crate) fn put(&mut self, slot: usize, moved: Vec<MovedReply>, counts: &mut Duplicates) {
        // From the newest backwards, so that one walk finds all positions.
        let mut newer = NONE;
        for moved in moved.into_iter().rev() {
            if self.find(&moved.key).is_some() {
                // Executed twice, because its reply came too late: the later one counts.
                continue;
            }
            if self.free == NONE {
                counts.evicted += 1;
                let victim = self.victim(slot);
                let entry = self.entry(victim);
                if entry.slot == slot && entry.born >= moved.born {
                    continue;
                }
                if newer == victim {
                    newer = entry.newer;
                }
                self.remove(victim);
            }
            let mut older =
                if newer == NONE { self.line(slot).newest } else { self.entry(newer).older };
            while older != NONE && self.entry(older).born > moved.born {
                newer = older;
                older = self.entry(older).older;
            }
            let place = self.insert(moved.key, slot, moved.born, newer);
            self.entry_mut(place).reply = moved.reply;
            newer = place;
        }
    }

    /// Makes room for one more reply of a slot.
    fn make_room(&mut self, slot: usize, now: Time, counts: &mut Duplicates) {
        if self.free == NONE {
            counts.evicted += 1;
            let victim = self.next_outdated(now).unwrap_or_else(|| self.victim(slot));
            self.remove(victim);
        }
    }

    /// An expired reply, if the next slot has one. A slot without one is skipped until the next
    /// round.
    fn next_outdated(&mut self, now: Time) -> Option<u32> {
        let oldest = self.line(self.next_slot).oldest;
        if oldest != NONE && now.since(self.entry(oldest).born) >= AGE_MAX {
            return Some(oldest);
        }
        self.next_slot = (self.next_slot + 1) % self.lines.len();
        None
    }

    /// The entry of a full cache to evict for this slot: the slot's own oldest one if it has its
    /// share, else the oldest of the largest slot.
    fn victim(&self, slot: usize) -> u32 {
        let own = self.line(slot);
        if own.len as usize * self.slots_in_use >= self.len {
            return own.oldest;
        }
        let most = self.lines.iter().max_by_key(|line| line.len);
        most.expect("a cache has slots").oldest
    }

    fn find(&self, key: &CallKey) -> Option<u32> {
        let mut place = *self.buckets.get(self.bucket(key))?;
        while place != NONE {
            let entry = self.entry(place);
            if entry.key.as_ref() == Some(key) {
                return Some(place);
            }
            place = entry.chained;
        }
        None
    }

    /// Turns a free entry into its slot's next older one than `newer`, or the newest.
    fn insert(&mut self, key: CallKey, slot: usize, born: Time, newer: u32) -> u32 {
        let place = self.free;
        let older = if newer == NONE { self.line(slot).newest } else { self.entry(newer).older };
        let bucket = self.bucket(&key);
        let chained = std::mem::replace(self.head(bucket), place);
        let entry = self.entry_mut(place);
        let free = std::mem::replace(&mut entry.chained, chained);
        (entry.key, entry.slot, entry.born) = (Some(key), slot, born);
        (entry.older, entry.newer, entry.reply.len) = (older, newer, 0);
        *self.link_to_older(slot, newer) = place;
        *self.link_to_newer(slot, older) = place;
        self.free = free;
        self.len += 1;
        let line = self.line_mut(slot);
        line.len += 1;
        let is_first = line.len == 1;
        self.slots_in_use += usize::from(is_first);
        place
    }

    fn remove(&mut self, place: u32) {
        let entry = self.entry_mut(place);
        let key = entry.key.take().expect("only entries in use are removed");
        let (chained, older, newer, slot) = (entry.chained, entry.older, entry.newer, entry.slot);
        self.busy -= usize::from(entry.reply.len == 0);
        let bucket = self.bucket(&key);
        let mut link = *self.head(bucket);
        if link == place {
            *self.head(bucket) = chained;
        } else {
            while self.entry(link).chained != place {
                link = self.entry(link).chained;
            }
            self.entry_mut(link).chained = chained;
        }
        *self.link_to_older(slot, newer) = older;
        *self.link_to_newer(slot, older) = newer;
        self.entry_mut(place).chained = std::mem::replace(&mut self.free, place);
        self.len -= 1;
        let line = self.line_mut(slot);
        line.len -= 1;
        let is_last = line.len == 0;
        self.slots_in_use -= usize::from(is_last);
    }

    fn line(&self, slot: usize) -> SlotLine {
        *self.lines.get(slot).expect("a client has one of the slots")
    }

    fn line_mut(&mut self, slot: usize) -> &mut SlotLine {
        self.lines.get_mut(slot).expect("a client has one of the slots")
    }

    const fn bucket(&self, key: &CallKey) -> usize {
        let [low, _] = key.digest;
        low as usize & (self.buckets.len() - 1)
    }

    fn head(&mut self, bucket: usize) -> &mut u32 {
        self.buckets.get_mut(bucket).expect("a bucket is masked by their number")
    }

    /// Returns the link to the next older entry of a slot: that of `place`, or the line's start.
    fn link_to_older(&mut self, slot: usize, place: u32) -> &mut u32 {
        match place {
            NONE => &mut self.line_mut(slot).newest,
            _ => &mut self.entry_mut(place).older,
        }
    }

    /// Returns the link to the next newer entry of a slot: that of `place`, or the line's end.
    fn link_to_newer(&mut self, slot: usize, place: u32) -> &mut u32 {
        match place {
            NONE => &mut self.line_mut(slot).oldest,
            _ => &mut self.entry_mut(place).newer,
        }
    }

    fn entry(&self, place: u32) -> &ReplyEntry {
        self.entries.get(place as usize).expect("places come from the cache itself")
    }

    fn entry_mut(&mut self, place: u32) -> &mut ReplyEntry {
        self.entries.get_mut(place as usize).expect("places come from the cache itself")
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
