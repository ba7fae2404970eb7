//! The back channel of a session: its connection, and its slots (RFC 8881 §2.10.3.1, §2.10.6).
//!
//! A callback stays in its slot until its outcome is known. If the connection is lost before that,
//! the callback is sent again over the next one, in the same slot with the same sequence ID, so
//! that it is executed once.

use stag_engine::Time;

use crate::requester::ShardPeer;
use stag_nfs4_state::{AttributeOrder, ClientKey, LockNotice, RecallOrder};

/// Limit of slots used in a back channel.
const SLOTS: usize = 8;

/// A callback to be sent.
#[derive(Debug)]
pub(in crate::v4) enum Callback {
    /// CB_NOTIFY_LOCK.
    NotifyLock(LockNotice),
    /// CB_GETATTR, and its number.
    GetAttr(AttributeOrder, u64),
    /// CB_RECALL.
    Recall(RecallOrder),
    /// CB_RECALL_ANY.
    RecallAny { client: ClientKey, keep: u32 },
}

/// A back channel.
#[derive(Debug)]
pub(in crate::v4) struct BackChannel {
    /// Program number of the callbacks.
    pub(in crate::v4) program: u32,
    /// User and group of their credential; none for AUTH_NONE.
    pub(in crate::v4) user: Option<(u32, u32)>,
    /// The connection that carries them; none after it was lost.
    pub(in crate::v4) peer: Option<ShardPeer>,
    slots: Vec<BackSlot>,
}

/// A slot of a back channel.
#[derive(Debug)]
struct BackSlot {
    /// Sequence ID of the callback in it, or of the next one.
    sequence: u32,
    callback: Option<Callback>,
    /// Time at which the callback is resent; none while its outcome is awaited.
    again_at: Option<Time>,
}

impl BackChannel {
    /// A back channel on which the client accepts the given number of calls at a time.
    pub(in crate::v4) fn new(
        program: u32,
        user: Option<(u32, u32)>,
        peer: ShardPeer,
        slots: u32,
    ) -> Self {
        let count = usize::try_from(slots).unwrap_or(SLOTS).clamp(1, SLOTS);
        let slot = || BackSlot { sequence: 1, callback: None, again_at: None };
        let slots = std::iter::repeat_with(slot).take(count).collect();
        Self { program, user, peer: Some(peer), slots }
    }

    /// Puts a callback into a free slot. Returns the slot and its sequence ID, or the callback if
    /// no slot is free.
    pub(in crate::v4) fn begin(&mut self, callback: Callback) -> Result<(u32, u32), Callback> {
        let free = self.slots.iter_mut().zip(0..).find(|(slot, _)| slot.callback.is_none());
        let Some((slot, number)) = free else { return Err(callback) };
        slot.callback = Some(callback);
        Ok((number, slot.sequence))
    }

    /// A callback that is due to be resent: its slot and sequence ID.
    pub(in crate::v4) fn due(&mut self, now: Time) -> Option<(u32, u32)> {
        let is_due = |slot: &BackSlot| slot.again_at.is_some_and(|at| at <= now);
        let (slot, number) = self.slots.iter_mut().zip(0..).find(|(slot, _)| is_due(slot))?;
        slot.again_at = None;
        Some((number, slot.sequence))
    }

    /// The callback in a slot.
    pub(in crate::v4) fn callback(&self, slot: u32) -> Option<&Callback> {
        self.slots.get(slot as usize)?.callback.as_ref()
    }

    /// Removes the callback in a slot, which was executed or never will be.
    pub(in crate::v4) fn finish(&mut self, slot: u32) -> Option<Callback> {
        let slot = self.slots.get_mut(slot as usize)?;
        slot.sequence = slot.sequence.wrapping_add(1);
        slot.again_at = None;
        slot.callback.take()
    }

    /// Schedules the callback in a slot to be resent.
    pub(in crate::v4) fn put_off(&mut self, slot: u32, until: Time) {
        if let Some(slot) = self.slots.get_mut(slot as usize)
            && slot.callback.is_some()
        {
            slot.again_at = Some(until);
        }
    }

    /// Removes all callbacks when the session ends.
    pub(in crate::v4) fn drain(&mut self) -> impl Iterator<Item = Callback> {
        self.slots.iter_mut().filter_map(|slot| slot.callback.take())
    }

    /// Returns true if a connection carries callbacks, and a slot is free for one.
    pub(in crate::v4) fn has_room(&self) -> bool {
        self.peer.is_some() && self.slots.iter().any(|slot| slot.callback.is_none())
    }

    /// The earliest time at which a callback has to be resent, if there is one.
    pub(in crate::v4) fn again_at(&self) -> Option<Time> {
        self.slots.iter().filter_map(|slot| slot.again_at).min()
    }
}
