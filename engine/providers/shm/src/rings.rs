//! The two rings between two processes: ours to write, theirs to read.

use crate::{
    ring::{Broken, Consumer, Front, Producer, RecordParts, RingSource, WORD, Word, must_wake},
    segment::{OwnSegment, PeerSegment},
};

/// Both directions of a link on which both sides may say everything.
#[derive(Debug)]
pub(crate) struct LinkRings {
    producer: Producer,
    own: OwnSegment,
    consumer: Consumer,
    theirs: PeerSegment,
    /// Octets of the longest message that is returned by a look.
    message_max: usize,
    /// The sleep of the peer that was ended by a wake-up.
    woken: u64,
}

impl LinkRings {
    /// The rings in both files, which follow everything else there, for messages that fit receives
    /// of `receive_len` octets.
    pub(crate) fn new(own: OwnSegment, theirs: PeerSegment, receive_len: usize) -> Self {
        let producer = Producer::new(own.ring_len());
        let consumer = Consumer::new(theirs.ring_len());
        let message_max = receive_len.min(consumer.record_max() - WORD);
        Self { producer, own, consumer, theirs, message_max, woken: 0 }
    }

    /// The file that this side writes.
    pub(crate) const fn own(&self) -> &OwnSegment {
        &self.own
    }

    /// The file that the peer writes.
    pub(crate) const fn theirs(&self) -> &PeerSegment {
        &self.theirs
    }

    pub(crate) const fn producer(&self) -> &Producer {
        &self.producer
    }

    #[cfg(test)]
    pub(crate) const fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    /// Publishes one record, as [`Producer::put`] does.
    pub(crate) fn put(
        &mut self,
        word: Word,
        parts: RecordParts<'_>,
    ) -> Result<Option<u64>, Broken> {
        self.producer.put(&self.own, &self.theirs, word, parts)
    }

    /// Reads the peer's read position. Returns true if it has moved.
    pub(crate) fn look_for_room(&mut self) -> Result<bool, Broken> {
        self.producer.look(&self.theirs)
    }

    /// Returns true if the peer seems to have read on.
    pub(crate) fn has_room_moved(&self) -> bool {
        self.producer.has_moved(&self.theirs)
    }

    /// Says that the record which begins at `position` is void.
    pub(crate) fn retract(&self, position: u64) {
        self.producer.retract(&self.own, position);
    }

    /// Publishes a record whose octets are `body`, if they are few and there is room at once.
    #[inline(always)]
    pub(crate) fn put_short(&mut self, word: Word, body: &[u8]) -> bool {
        debug_assert_eq!(word.len(), body.len());
        let Some(at) = self.producer.place_at_once(word) else { return false };
        if !self.own.copy_in_short(at + WORD, body) {
            return false;
        }
        self.producer.publish(&self.own, word);
        true
    }

    /// The word in front of the peer's ring, unchecked.
    #[inline]
    pub(crate) fn peek(&self) -> Word {
        self.consumer.peek(&self.theirs)
    }

    /// Returns true if the octets after the word in front are there, and no more than a message
    /// has.
    #[inline]
    pub(crate) const fn holds_message(&self, word: Word) -> bool {
        self.consumer.holds(word, self.message_max)
    }

    /// Copies the record in front by whole lines. False if `to` has no room for those, or if there
    /// are many.
    #[inline(always)]
    pub(crate) fn copy_lines(&self, word: Word, to: &mut [u8]) -> bool {
        self.theirs.copy_lines(self.consumer.at(), word, to)
    }

    /// Copies the octets of the record in front, as many as `to` has.
    pub(crate) fn copy_front(&self, to: &mut [u8]) {
        self.theirs.copy_out(self.consumer.at() + WORD, to);
    }

    /// The peer's next record, if there is one.
    #[inline]
    pub(crate) fn front(&mut self) -> Result<Option<Front>, Broken> {
        self.consumer.front(&self.theirs)
    }

    /// Returns true if the peer said something.
    pub(crate) fn is_fruitful(&self) -> bool {
        self.consumer.is_fruitful(&self.theirs)
    }

    /// Returns true if the record in front is unchanged after memory that it names was copied.
    pub(crate) fn is_still(&self, word: Word) -> bool {
        self.consumer.is_still(&self.theirs, word)
    }

    /// Copies octets of the peer's file.
    pub(crate) fn copy_out(&self, at: usize, to: &mut [u8]) {
        self.theirs.copy_out(at, to);
    }

    /// Steps past the record in front. Returns true if the peer should be sent our read position.
    /// Prefetches the line of the next record, which arrives while this one is handled. Lines past
    /// it are not: the writer has cleared them for itself, and would have to fetch them again.
    #[inline]
    pub(crate) fn advance(&mut self, word: Word) -> bool {
        self.consumer.advance(word);
        self.theirs.prefetch(self.consumer.at());
        self.consumer.is_due()
    }

    /// Publishes our read position to the peer. Returns true if it changed.
    pub(crate) fn tell_progress(&mut self) -> bool {
        self.consumer.publish(&self.own)
    }

    /// Returns true if the peer sleeps, and was not woken from that sleep.
    #[inline]
    pub(crate) fn must_wake(&mut self) -> bool {
        must_wake(&self.theirs, &mut self.woken)
    }
}
