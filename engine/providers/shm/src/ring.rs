//! A ring of records in memory that one process writes and another reads.
//!
//! A record begins at a line (64 octets) with a word that says what it is, how long, and for which
//! connection: whoever finds it there has the whole record behind it, and a short message has
//! nothing else in front, so that a NULL reply is one line and its call two. Before a record is
//! published the word behind it is cleared, so that nothing that an earlier lap left there passes
//! for the next one. A record does not wrap around: what is left at the end is skipped ([`PAD`]).
//! The reader says in its own memory how far it is; the writer looks there only when it believes
//! the ring full. So a record costs the lines that it fills, and no locked instruction.

/// Octets of a line.
pub(crate) const LINE: usize = 64;
/// Octets of the word in front of every record.
pub(crate) const WORD: usize = 8;
/// In each file: how far its owner has read the other's ring.
pub(crate) const HEAD: usize = 64;
/// In each file: not 0 while its owner sleeps; another number with each sleep.
pub(crate) const ASLEEP: usize = 128;
/// In each file: where its ring begins.
pub(crate) const RING: usize = 4096;
/// Longest record as a part of its ring, so that one always fits behind what is skipped.
pub(crate) const PART: usize = 4;
/// The kind of what is skipped at the end of the ring.
pub(crate) const PAD: u8 = 0xfe;
/// The kind that a record gets whose memory is no longer there.
pub(crate) const RETRACTED: u8 = 0xff;

/// The word in front of every record. 0: none is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    const NONE: u64 = 0;

    /// A record of `kind` with `len` octets behind this word, for connection `to`.
    #[inline]
    pub(crate) const fn new(kind: u8, len: usize, to: u32) -> Self {
        debug_assert!(
            kind != 0 && len < 1 << 24,
            "no record is longer than a part of the longest ring"
        );
        Self((to as u64) << 32 | (len as u64) << 8 | kind as u64)
    }

    /// As it stands in memory.
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
        (WORD + self.len() + LINE - 1) & !(LINE - 1)
    }

    /// The same word with another kind.
    pub(crate) const fn become_kind(self, kind: u8) -> Self {
        Self(self.0 & !0xff | kind as u64)
    }
}

/// Shared memory, as its reader sees it. Offsets are from the beginning of the file.
pub(crate) trait RingSource {
    /// Loads an aligned word; what was written before it was stored is seen behind it.
    fn word(&self, at: usize) -> u64;
    /// Copies octets that the writer may be changing: each is one that stood there meanwhile, and
    /// no more is promised.
    fn copy_out(&self, at: usize, to: &mut [u8]);
}

/// Shared memory, as its writer sees it.
pub(crate) trait RingTarget: RingSource {
    /// Stores an aligned word with Release.
    fn set_word(&self, at: usize, word: u64);
    /// Copies octets in.
    fn copy_in(&self, at: usize, from: &[u8]);
}

/// The other process broke the ring's rules: nothing it says can be understood any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The octets of a record behind its word.
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
    len: usize,
    tail: u64,
    /// Position up to which the reader is known to have read.
    head: u64,
}

impl Producer {
    /// For a ring of `len` octets: a power of two.
    pub(crate) const fn new(len: usize) -> Self {
        assert!(len.is_power_of_two() && len >= PART * LINE, "positions are masked");
        Self { len, tail: 0, head: 0 }
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

    const fn offset(&self, position: u64) -> usize {
        position as usize & (self.len - 1)
    }

    /// Looks how far the reader is. True when it has got further.
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
        memory.copy_in(at, head);
        memory.copy_in(at + head.len(), body);
        Ok(Some(self.publish(memory, word)))
    }

    /// Reserves room for the octets behind `word`, before the record is [published](Self::publish);
    /// `None` if the record has to wait for the reader.
    ///
    /// # Panics
    /// When it is longer than [`record_max`](Self::record_max).
    #[inline]
    pub(crate) fn reserve(
        &mut self,
        memory: &impl RingTarget,
        reader: &impl RingSource,
        word: Word,
    ) -> Result<Option<usize>, Broken> {
        let len = word.span();
        assert!(len <= self.record_max(), "senders cut what is long");
        let is_ready = len <= self.to_end() && self.fits(len);
        if !is_ready && !self.make_room(len, memory, reader)? {
            return Ok(None);
        }
        Ok(Some(RING + self.offset(self.tail) + WORD))
    }

    /// The record whose octets were put where [`reserve`](Self::reserve) said is there for the
    /// reader. Its end.
    #[inline]
    pub(crate) fn publish(&mut self, memory: &impl RingTarget, word: Word) -> u64 {
        let at = RING + self.offset(self.tail);
        let end = self.tail + word.span() as u64;
        memory.set_word(RING + self.offset(end), Word::NONE);
        memory.set_word(at, word.0);
        self.tail = end;
        end
    }

    /// Octets up to the end of the ring.
    const fn to_end(&self) -> usize {
        self.len - self.offset(self.tail)
    }

    /// Returns true if `len` octets are free. The word behind them is cleared, so that line must be
    /// free, too.
    const fn fits(&self, len: usize) -> bool {
        self.tail + (len + LINE) as u64 <= self.head + self.len as u64
    }

    /// Asks the reader for room, and goes on at the beginning of the ring where a record of `len`
    /// octets does not fit in front of its end. False when it has to wait.
    #[cold]
    fn make_room(
        &mut self,
        len: usize,
        memory: &impl RingTarget,
        reader: &impl RingSource,
    ) -> Result<bool, Broken> {
        let skipped = if len > self.to_end() { self.to_end() } else { 0 };
        if !self.fits(skipped + len) {
            self.look(reader)?;
        }
        if !self.fits(skipped + len) {
            return Ok(false);
        }
        if skipped > 0 {
            memory.set_word(RING, Word::NONE);
            memory.set_word(RING + self.offset(self.tail), Word::new(PAD, 0, 0).0);
            self.tail += skipped as u64;
        }
        Ok(true)
    }

    /// Says that the record which begins at `position` is void, if the reader is not known to be
    /// beyond it. To be called before the memory that it names is used for anything else.
    pub(crate) fn retract(&self, memory: &impl RingTarget, position: u64) {
        if position >= self.head {
            let at = RING + self.offset(position);
            // Only this side writes there: what it says of the record is still what was said.
            memory.set_word(at, Word(memory.word(at)).become_kind(RETRACTED).0);
            // What is written to that memory must not be seen earlier.
            std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        }
    }
}

/// The record that is next: what the writer said, and no more of it than the ring holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) word: Word,
    /// Place in the file at which the octets behind the word begin.
    pub(crate) at: usize,
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Consumer {
    len: usize,
    head: u64,
    /// Position that the writer was told last.
    published: u64,
    /// From where on it should hear again.
    due: u64,
}

impl Consumer {
    /// For a ring of `len` octets: a power of two.
    pub(crate) const fn new(len: usize) -> Self {
        assert!(len.is_power_of_two() && len >= PART * LINE, "positions are masked");
        Self { len, head: 0, published: 0, due: (len / PART) as u64 }
    }

    /// Everything up to here was read.
    #[cfg(test)]
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    const fn offset(&self) -> usize {
        self.head as usize & (self.len - 1)
    }

    /// The word at `head`, if one is there.
    #[inline]
    fn word(&self, memory: &impl RingSource) -> Option<Word> {
        let word = memory.word(RING + self.offset());
        (word != Word::NONE).then_some(Word(word))
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
        let (offset, len) = (self.offset(), WORD + word.len());
        if len > self.len / PART || len > self.len - offset {
            return Err(Broken);
        }
        Ok(Front { word, at: RING + offset + WORD })
    }

    /// The writer went on at the beginning of the ring.
    #[cold]
    fn skip(&mut self, memory: &impl RingSource) -> Result<Option<Front>, Broken> {
        let offset = self.offset();
        if offset == 0 {
            return Err(Broken); // a whole ring of nothing
        }
        self.head += (self.len - offset) as u64;
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

    /// The record in front is done; `word` is what it began with.
    #[inline]
    pub(crate) const fn advance(&mut self, word: Word) {
        self.head += word.span() as u64;
    }

    /// Returns true if the writer should be told the reader's position: a part of the ring was read
    /// since the last time.
    #[inline]
    pub(crate) const fn is_due(&self) -> bool {
        self.head >= self.due
    }

    /// Tells the writer how far we are. True when that is news.
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
/// from its own. `woken` is the sleep that was ended last. There is no fence here: the sleeper's
/// barrier stands for it.
pub(crate) fn must_wake(theirs: &impl RingSource, woken: &mut u64) -> bool {
    // The barrier orders what the processor does; the compiler must not look first either.
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    let sleep = theirs.word(ASLEEP);
    sleep != 0 && std::mem::replace(woken, sleep) != sleep
}

#[cfg(test)]
mod tests;
