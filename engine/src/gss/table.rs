//! The table of contexts, which the threads of a server share under a lock.
//!
//! Under the lock nothing is searched but the contexts of one principal and of one host, and all of
//! them seldom: a sixteenth of a full table makes room at once.

use super::contexts::{ContextCounts, ContextLimits, GssContext};
use crate::peer_view::ClientHost;
use stag_protocol::rpc::PrincipalId;
use std::{collections::HashMap, hash::Hash, sync::Arc};

/// The part of a full table that makes room.
const ROOM: usize = 16;
/// Slots that are looked at in one go while the contexts are listed.
const PART: usize = 256;

#[derive(Debug, Default)]
pub(super) struct ContextTable {
    slots: Vec<ContextSlot>,
    /// Slots without a context.
    free: Vec<usize>,
    of_principal: HashMap<PrincipalId, Vec<usize>>,
    of_host: HashMap<ClientHost, Vec<usize>>,
    /// Times that all contexts were forgotten.
    edition: u64,
    pub(super) counts: ContextCounts,
}

#[derive(Debug, Default)]
struct ContextSlot {
    context: Option<Arc<GssContext>>,
    /// Contexts that it has had: part of the handle.
    uses: u32,
}

impl ContextTable {
    /// The context of a slot.
    pub(super) fn get(&self, slot: usize) -> Option<&Arc<GssContext>> {
        self.slots.get(slot)?.context.as_ref()
    }

    /// The contexts in one part of the slots; none beyond the last part.
    pub(super) fn part(&self, number: usize) -> Option<Vec<Arc<GssContext>>> {
        let slots = self.slots.chunks(PART).nth(number)?;
        Some(slots.iter().filter_map(|slot| slot.context.clone()).collect())
    }

    /// Contexts that exist.
    pub(super) fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Contexts that a slot has had.
    pub(super) fn uses_of(&self, slot: usize) -> u32 {
        self.slots.get(slot).map_or(0, |slot| slot.uses)
    }

    /// Ends all contexts.
    pub(super) fn forget_all(&mut self) {
        self.edition += 1;
        for slot in 0..self.slots.len() {
            self.end_slot(slot);
        }
    }

    /// Changes whenever all contexts are forgotten.
    pub(super) const fn edition(&self) -> u64 {
        self.edition
    }

    /// Ends a context, unless its slot has another one already.
    pub(super) fn end(&mut self, context: &GssContext) {
        context.end();
        let slot = context.slot();
        if self.get(slot).is_some_and(|kept| kept.handle == context.handle) {
            self.end_slot(slot);
        }
    }

    fn end_slot(&mut self, slot: usize) {
        let context = self.slots.get_mut(slot).and_then(|slot| slot.context.take());
        let Some(context) = context else { return };
        context.end();
        forget(&mut self.of_principal, &context.identity, slot);
        forget(&mut self.of_host, &context.host, slot);
        self.free.push(slot);
    }

    /// Ends the contexts that were unused for longest, until one more has a place among those of
    /// its principal, those of its host, and all.
    pub(super) fn make_room(
        &mut self,
        limits: &ContextLimits,
        identity: PrincipalId,
        host: ClientHost,
    ) {
        // RFC 2203 §5.4 [2203-32]: the context that was unused for longest makes room
        let crowd = |slots: Option<&Vec<usize>>, limit: usize| {
            slots.filter(|slots| slots.len() >= limit.max(1)).cloned().unwrap_or_default()
        };
        let of_principal = crowd(self.of_principal.get(&identity), limits.each_principal);
        self.displace(of_principal, 1);
        let of_host = crowd(self.of_host.get(&host), limits.each_address);
        self.displace(of_host, 1);
        if self.live() >= limits.contexts.max(1) {
            let all = (0..self.slots.len()).filter(|slot| self.get(*slot).is_some()).collect();
            self.displace(all, limits.contexts.div_ceil(ROOM).max(1));
        }
    }

    /// Ends the `count` contexts of these slots that were unused for longest.
    fn displace(&mut self, mut slots: Vec<usize>, count: usize) {
        slots.sort_by_key(|slot| self.get(*slot).map(|context| context.used()));
        for slot in slots.into_iter().take(count) {
            self.counts.displaced += 1;
            self.end_slot(slot);
        }
    }

    /// A slot without a context, for [`ContextTable::put`].
    pub(super) fn take_slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(ContextSlot::default());
            self.slots.len() - 1
        })
    }

    /// Puts a context in the slot that was taken for it.
    pub(super) fn put(&mut self, slot: usize, context: Arc<GssContext>) {
        let Some(place) = self.slots.get_mut(slot) else { return };
        self.of_principal.entry(context.identity).or_default().push(slot);
        self.of_host.entry(context.host).or_default().push(slot);
        (place.uses, place.context) = (place.uses.wrapping_add(1), Some(context));
        self.counts.accepted += 1;
    }
}

/// Takes a slot off the list of its principal or host.
fn forget<K: Eq + Hash>(lists: &mut HashMap<K, Vec<usize>>, key: &K, slot: usize) {
    if let Some(slots) = lists.get_mut(key) {
        slots.retain(|other| *other != slot);
        if slots.is_empty() {
            lists.remove(key);
        }
    }
}
