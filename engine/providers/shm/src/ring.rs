//! A ring of records in memory that one process writes and another reads.
//!
//! A record begins at a line (64 octets) with a word that holds its kind, its length and its
//! connection. A reader that finds the word there has the whole record after it. A short message
//! has nothing else in front, so a NULL reply is one line and its call two. Before a record is
//! published, the word after it is cleared, so that remains of an earlier lap are not taken for the
//! next record. A record does not wrap around: the rest at the end of the ring is skipped
//! ([`PAD`]). The reader publishes its position in its own memory; the writer reads that only when
//! the ring seems full. So a record costs the lines that it fills, and no locked instruction.

/// Octets of a line.
pub(crate) const LINE: usize = 64;
/// Octets of the word in front of every record.
pub(crate) const WORD: usize = 8;
/// In each file: its owner's position in the other's ring.
pub(crate) const HEAD: usize = 64;
/// In each file: not 0 while its owner sleeps; another number with each sleep.
pub(crate) const ASLEEP: usize = 128;
/// In each file: where its ring begins.
pub(crate) const RING: usize = 4096;
/// Longest record as a part of its ring, so that one always fits after the skipped end.
pub(crate) const PART: usize = 4;
/// The kind of the skipped end of the ring.
pub(crate) const PAD: u8 = 0xfe;
/// The kind that a record gets whose memory is no longer there.
pub(crate) const RETRACTED: u8 = 0xff;

/// The word in front of every record. 0: none is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    const NONE: u64 = 0;

    /// Returns true if no record is there.
    #[inline]
    pub(crate) const fn is_none(self) -> bool {
        self.0 == Self::NONE
    }

    /// A record of `kind` with `len` octets after this word, for connection `to`.
    #[inline]
    pub(crate) const fn new(kind: u8, len: usize, to: u32) -> Self {
        debug_assert!(
            kind != 0 && len < 1 << 24,
            "no record is longer than a part of the longest ring"
        );
        Self((to as u64) << 32 | (len as u64) << 8 | kind as u64)
    }

    /// Its value in memory.
    #[cfg(test)]
    pub(crate) const fn octets(self) -> u64 {
        self.0
    }

    /// Returns the kind of the record that follows.
    pub(crate) const fn kind(self) -> u8 {
        self.0 as u8
    }

    /// Octets that follow.
    pub(crate) const fn len(self) -> usize {
        (self.0 as u32 >> 8) as usize
    }

    /// The connection that it is about, by its number at the reader.
    pub(crate) const fn to(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Octets of the record, this word and the rest of its last line included.
    pub(crate) const fn span(self) -> usize {
        Self::span_of(self.len())
    }

    /// Octets of a record with `len` octets after its word.
    pub(crate) const fn span_of(len: usize) -> usize {
        (WORD + len + LINE - 1) & !(LINE - 1)
    }

    /// The same word with another kind.
    pub(crate) const fn become_kind(self, kind: u8) -> Self {
        Self(self.0 & !0xff | kind as u64)
    }
}

/// Shared memory, as its reader sees it. Offsets are from the beginning of the file.
pub(crate) trait RingSource {
    /// Loads an aligned word; everything written before it was stored is visible after the load.
    fn word(&self, at: usize) -> u64;
    /// Copies octets that the writer may be changing: each is a value that was there at some moment
    /// meanwhile, and no more is promised.
    fn copy_out(&self, at: usize, to: &mut [u8]);
}

/// Shared memory, as its writer sees it.
pub(crate) trait RingTarget: RingSource {
    /// Stores an aligned word with Release.
    fn set_word(&self, at: usize, word: u64);
    /// Copies octets in.
    fn copy_in(&self, at: usize, from: &[u8]);
}

/// The other process broke the ring's rules: its ring can no longer be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The octets of a record after its word.
#[derive(Clone, Copy)]
pub(crate) struct RecordParts<'a> {
    /// The fields of its kind.
    pub(crate) head: &'a [u8],
    /// Content of the record.
    pub(crate) body: &'a [u8],
}

/// The writing end. `tail` and `head` count octets from the beginning of time.
#[derive(Debug)]
pub(crate) struct Producer {
    /// Place of `tail` in the file.
    at: usize,
    /// Octets from there on that are free for whole records; neither the ring's end nor the line
    /// that stays free is among them. There may be more.
    room: usize,
    tail: u64,
    /// Position up to which the reader is known to have read.
    head: u64,
    /// Position up to which all lines after the last record begin with a word that says that no
    /// record is there. A record is published once this is beyond the record's end.
    cleared: u64,
    len: usize,
}

/// Octets past the last record whose lines are cleared once it is published. A line to be written
/// was last in the reader's cache, one lap ago. Cleared ahead, all lines of the next record but the
/// first, which the reader polls, are in the writer's cache before a peer may wait for it.
const AHEAD: u64 = 4 * LINE as u64;

impl Producer {
    /// For a ring of `len` octets, all zero: a power of two.
    pub(crate) const fn new(len: usize) -> Self {
        assert!(len.is_power_of_two() && len >= PART * LINE, "positions are masked");
        Self { at: RING, room: 0, tail: 0, head: 0, cleared: len as u64, len }
    }

    /// Octets of the longest record, its word included.
    pub(crate) const fn record_max(&self) -> usize {
        self.len / PART
    }

    /// Everything that ends at or before this position was read.
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Everything up to here was said.
    #[cfg(test)]
    pub(crate) const fn tail(&self) -> u64 {
        self.tail
    }

    /// The place in the file of a position.
    const fn place(&self, position: u64) -> usize {
        RING + (position as usize & (self.len - 1))
    }

    /// Reads the reader's position. Returns true if it has moved.
    pub(crate) fn look(&mut self, reader: &impl RingSource) -> Result<bool, Broken> {
        let head = reader.word(HEAD);
        if head < self.head || head > self.tail {
            return Err(Broken);
        }
        let has_moved = head != self.head;
        self.head = head;
        Ok(has_moved)
    }

    /// Returns true if the reader's position has changed since the latest look.
    /// [`look`](Self::look) validates that position.
    pub(crate) fn has_moved(&self, reader: &impl RingSource) -> bool {
        reader.word(HEAD) != self.head
    }

    /// Place of the next record in the file, if `word` begins one for which there is room at once.
    #[inline]
    pub(crate) const fn place_at_once(&self, word: Word) -> Option<usize> {
        if word.span() <= self.room { Some(self.at) } else { None }
    }

    /// Publishes one record: its word, `head` and `body`. Its end, or none when it has to wait for
    /// the reader.
    ///
    /// # Panics
    /// When it is longer than [`record_max`](Self::record_max).
    pub(crate) fn put(
        &mut self,
        memory: &impl RingTarget,
        reader: &impl RingSource,
        word: Word,
        parts: RecordParts<'_>,
    ) -> Result<Option<u64>, Broken> {
        let RecordParts { head, body } = parts;
        debug_assert_eq!(word.len(), head.len() + body.len());
        let Some(at) = self.reserve(memory, reader, word)? else { return Ok(None) };
        // A message has none, and a copy of nothing is a call all the same.
        if !head.is_empty() {
            memory.copy_in(at, head);
        }
        memory.copy_in(at + head.len(), body);
        Ok(Some(self.publish(memory, word)))
    }

    /// Reserves room for the octets after `word`, before the record is [published](Self::publish);
    /// `None` if the record has to wait for the reader.
    ///
    /// # Panics
    /// When it is longer than [`record_max`](Self::record_max).
    pub(crate) fn reserve(
        &mut self,
        memory: &impl RingTarget,
        reader: &impl RingSource,
        word: Word,
    ) -> Result<Option<usize>, Broken> {
        let len = word.span();
        if len > self.room && !self.make_room(len, memory, reader)? {
            return Ok(None);
        }
        Ok(Some(self.at + WORD))
    }

    /// Shows the reader the record whose octets were put where [`reserve`](Self::reserve) said.
    /// Returns its end.
    #[inline(always)]
    pub(crate) fn publish(&mut self, memory: &impl RingTarget, word: Word) -> u64 {
        let span = word.span();
        let end = self.tail + span as u64;
        if self.cleared <= end {
            // The lines before have the record's own octets.
            self.cleared = end;
            self.clear_until(memory, end + LINE as u64);
        }
        memory.set_word(self.at, word.0);
        self.at = self.after(span);
        self.room -= span;
        self.tail = end;
        if self.cleared < end + AHEAD {
            self.clear_until(memory, (end + AHEAD).min(self.head + self.len as u64));
        }
        end
    }

    /// Clears the first words of all lines up to a position, which the reader has read when the
    /// ring was there the last time.
    #[inline(always)]
    fn clear_until(&mut self, memory: &impl RingTarget, until: u64) {
        debug_assert!(until <= self.head + self.len as u64, "nothing is cleared that is not read");
        while self.cleared < until {
            memory.set_word(self.place(self.cleared), Word::NONE);
            self.cleared += LINE as u64;
        }
    }

    /// The place after `span` octets that are there before the ring's end.
    #[inline]
    const fn after(&self, span: usize) -> usize {
        let next = self.at + span;
        if next < RING + self.len { next } else { RING }
    }

    /// Octets up to the end of the ring.
    const fn to_end(&self) -> usize {
        RING + self.len - self.at
    }

    /// Octets that are free for records. The word after a record is cleared, so a line stays free.
    const fn free(&self) -> usize {
        let taken = (self.tail - self.head) as usize;
        (self.len - taken).saturating_sub(LINE)
    }

    /// Checks the reader's position for room, and continues at the beginning of the ring where a
    /// record of `len` octets does not fit before its end. False when it has to wait.
    #[cold]
    fn make_room(
        &mut self,
        len: usize,
        memory: &impl RingTarget,
        reader: &impl RingSource,
    ) -> Result<bool, Broken> {
        assert!(len <= self.record_max(), "senders cut what is long");
        let skipped = if len > self.to_end() { self.to_end() } else { 0 };
        if skipped + len > self.free() {
            self.look(reader)?;
        }
        if skipped + len > self.free() {
            return Ok(false);
        }
        if skipped > 0 {
            let beginning = self.tail + skipped as u64;
            // No record is looked for in the lines that are skipped.
            self.cleared = self.cleared.max(beginning);
            self.clear_until(memory, beginning + LINE as u64);
            memory.set_word(self.at, Word::new(PAD, 0, 0).0);
            self.at = RING;
            self.tail = beginning;
        }
        self.room = self.free().min(self.to_end()).min(self.record_max());
        Ok(true)
    }

    /// Says that the record which begins at `position` is void, if the reader is not known to be
    /// beyond it. To be called before the memory that it names is used for anything else.
    pub(crate) fn retract(&self, memory: &impl RingTarget, position: u64) {
        if position >= self.head {
            let at = self.place(position);
            // Only this side writes there: its word of the record is unchanged.
            memory.set_word(at, Word(memory.word(at)).become_kind(RETRACTED).0);
            // What is written to that memory must not be seen earlier.
            std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        }
    }
}

/// The next record: its word, whose length fits the ring, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) word: Word,
    /// Place in the file at which the octets after the word begin.
    pub(crate) at: usize,
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Consumer {
    /// Place of `head` in the file.
    at: usize,
    len: usize,
    head: u64,
    /// Position last published to the writer.
    published: u64,
    /// Position at which the next publication is due.
    due: u64,
}

impl Consumer {
    /// For a ring of `len` octets: a power of two.
    pub(crate) const fn new(len: usize) -> Self {
        assert!(len.is_power_of_two() && len >= PART * LINE, "positions are masked");
        Self { at: RING, len, head: 0, published: 0, due: (len / PART) as u64 }
    }

    /// Octets of the longest record, its word included.
    pub(crate) const fn record_max(&self) -> usize {
        self.len / PART
    }

    /// Everything up to here was read.
    #[cfg(test)]
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Octets up to the end of the ring.
    #[inline]
    const fn to_end(&self) -> usize {
        RING + self.len - self.at
    }

    /// The word in front, unchecked.
    #[inline]
    pub(crate) fn peek(&self, memory: &impl RingSource) -> Word {
        Word(memory.word(self.at))
    }

    /// The word in front, if a record is there.
    #[inline]
    fn word(&self, memory: &impl RingSource) -> Option<Word> {
        Some(self.peek(memory)).filter(|word| !word.is_none())
    }

    /// Place in the file of the word in front.
    #[inline]
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Returns true if the octets after the word in front are there before the ring's end, and no
    /// more than `longest`, which is at most the length of a record.
    #[inline]
    pub(crate) const fn holds(&self, word: Word, longest: usize) -> bool {
        word.len() <= longest && word.len() <= self.to_end() - WORD
    }

    /// The next record, if there is one.
    #[inline]
    pub(crate) fn front(&mut self, memory: &impl RingSource) -> Result<Option<Front>, Broken> {
        match self.word(memory) {
            Some(word) if word.kind() != PAD => self.judge(word).map(Some),
            Some(_) => self.skip(memory),
            None => Ok(None),
        }
    }

    #[inline]
    fn judge(&self, word: Word) -> Result<Front, Broken> {
        let len = WORD + word.len();
        if len > self.record_max() || len > self.to_end() {
            return Err(Broken);
        }
        Ok(Front { word, at: self.at + WORD })
    }

    /// The writer went on at the beginning of the ring.
    #[cold]
    fn skip(&mut self, memory: &impl RingSource) -> Result<Option<Front>, Broken> {
        if self.at == RING {
            return Err(Broken); // a whole ring of nothing
        }
        self.head += self.to_end() as u64;
        self.at = RING;
        match self.word(memory) {
            Some(word) if word.kind() == PAD => Err(Broken),
            Some(word) => self.judge(word).map(Some),
            None => Ok(None),
        }
    }

    /// Returns true if there is a record, or anything else that has to be looked at.
    pub(crate) fn is_fruitful(&self, memory: &impl RingSource) -> bool {
        self.word(memory).is_some()
    }

    /// Returns true if the record in front is unchanged after memory that it names was copied.
    pub(crate) fn is_still(&self, memory: &impl RingSource, word: Word) -> bool {
        // The copy must not be done after this look.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        self.word(memory) == Some(word)
    }

    /// Steps past the record in front, which began with `word`.
    #[inline]
    pub(crate) const fn advance(&mut self, word: Word) {
        let next = self.at + word.span();
        self.at = if next < RING + self.len { next } else { RING };
        self.head += word.span() as u64;
    }

    /// Returns true if the reader's position should be published: a part of the ring was read since
    /// the last time.
    #[inline]
    pub(crate) const fn is_due(&self) -> bool {
        self.head >= self.due
    }

    /// Publishes our position to the writer. Returns true if it changed.
    pub(crate) fn publish(&mut self, own: &impl RingTarget) -> bool {
        if self.published == self.head {
            return false;
        }
        own.set_word(HEAD, self.head);
        self.published = self.head;
        self.due = self.head + (self.len / PART) as u64;
        true
    }
}

/// Says that the owner of `own` sleeps from here on, for the time with this number; 0: it is awake.
/// After it, a barrier that the other process takes part in, and another look at its ring.
pub(crate) fn set_asleep(own: &impl RingTarget, sleep: u64) {
    own.set_word(ASLEEP, sleep);
}

/// Returns true if the other process has to be woken after a record was put in our ring or read
/// from its own. `woken` is the sleep that was ended last. No fence is needed here: the sleeper's
/// barrier replaces it.
pub(crate) fn must_wake(theirs: &impl RingSource, woken: &mut u64) -> bool {
    // The barrier orders what the processor does; the compiler must not look first either.
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    let sleep = theirs.word(ASLEEP);
    sleep != 0 && std::mem::replace(woken, sleep) != sleep
}

#[cfg(test)]
mod tests;
