//! A ring of records in memory that one process writes and another reads.
//!
//! A record begins at a line (64 octets) with a word that says which line it is, counted from the beginning of time, and of what
//! kind: whoever finds the word it waits for has the whole record behind it. Before a record is published the word behind
//! it is cleared, so that nothing that an earlier lap left there passes for the next one. A record does not wrap
//! around: what is left at the end is skipped ([`PAD`]). The reader says in its own memory how far it is; the writer looks there only when
//! it believes the ring full. So a record costs one line that changes owners, and no locked instruction.

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
pub(crate) const PAD: u8 = 0;
/// The kind that a record gets whose memory is no longer there.
pub(crate) const RETRACTED: u8 = 0xff;

/// Bits of the word below the number of its line.
const KIND_BITS: u32 = 8;

/// Shared memory, as its reader sees it. Offsets are from the beginning of the file.
pub(crate) trait Source {
    /// Loads an aligned word with Acquire.
    fn word(&self, at: usize) -> u64;
    /// Copies octets that the writer may be changing.
    fn copy_out(&self, at: usize, to: &mut [u8]);
}

/// Shared memory, as its writer sees it.
pub(crate) trait Target: Source {
    /// Stores an aligned word with Release.
    fn set_word(&self, at: usize, word: u64);
    /// Copies octets in.
    fn copy_in(&self, at: usize, from: &[u8]);
}

/// The other process broke the ring's rules: nothing it says can be understood any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

const fn stamp(position: u64, kind: u8) -> u64 {
    (position / LINE as u64 + 1) << KIND_BITS | kind as u64
}

/// The writing end. `tail` and `head` count octets from the beginning of time.
#[derive(Debug)]
pub(crate) struct Producer {
    len: usize,
    tail: u64,
    /// How far the reader is known to be.
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
    pub(crate) fn look(&mut self, reader: &impl Source) -> Result<bool, Broken> {
        let head = reader.word(HEAD);
        if head < self.head || head > self.tail {
            return Err(Broken);
        }
        let has_moved = head != self.head;
        self.head = head;
        Ok(has_moved)
    }

    /// Whether the reader got further than is known. What it says is judged by [`look`](Self::look).
    pub(crate) fn has_moved(&self, reader: &impl Source) -> bool {
        reader.word(HEAD) != self.head
    }

    /// Whether a record of `len` octets has room, word included, with the end of the ring skipped if it must be.
    fn has_room(&mut self, len: usize, reader: &impl Source) -> Result<bool, Broken> {
        let to_end = self.len - self.offset(self.tail);
        let skipped = if len > to_end { to_end } else { 0 };
        // The word behind the record is cleared, so that line must be free, too.
        let needed = (skipped + len + LINE) as u64;
        let fits = |this: &Self| this.tail + needed <= this.head + this.len as u64;
        Ok(fits(self) || (self.look(reader)? && fits(self)))
    }

    /// Publishes one record made of `head` and `body`. Its end, or none when it has to wait for the reader.
    ///
    /// # Panics
    /// When it is longer than [`record_max`](Self::record_max).
    pub(crate) fn put(
        &mut self,
        memory: &impl Target,
        reader: &impl Source,
        kind: u8,
        (head, body): (&[u8], &[u8]),
    ) -> Result<Option<u64>, Broken> {
        let len = (WORD + head.len() + body.len()).next_multiple_of(LINE);
        assert!(len <= self.record_max(), "senders cut what is long");
        if !self.has_room(len, reader)? {
            return Ok(None);
        }
        let to_end = self.len - self.offset(self.tail);
        if len > to_end {
            memory.set_word(RING, 0);
            memory.set_word(RING + self.offset(self.tail), stamp(self.tail, PAD));
            self.tail += to_end as u64;
        }
        let at = RING + self.offset(self.tail);
        // A copy of a length that the compiler knows is no call.
        match head.first_chunk::<{ crate::record::SHORT }>() {
            Some(short) if head.len() == short.len() => memory.copy_in(at + WORD, short),
            _ => memory.copy_in(at + WORD, head),
        }
        memory.copy_in(at + WORD + head.len(), body);
        let end = self.tail + len as u64;
        memory.set_word(RING + self.offset(end), 0);
        memory.set_word(at, stamp(self.tail, kind));
        self.tail = end;
        Ok(Some(end))
    }

    /// Says that the record which begins at `position` is void, if the reader is not known to be beyond it. To be called
    /// before the memory that it names is used for anything else.
    pub(crate) fn retract(&self, memory: &impl Target, position: u64) {
        if position >= self.head {
            memory.set_word(RING + self.offset(position), stamp(position, RETRACTED));
            // What is written to that memory must not be seen earlier.
            std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        }
    }
}

/// The record that is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    /// As the writer said.
    pub(crate) kind: u8,
    /// Where in the file what follows its word begins.
    pub(crate) at: usize,
    /// Octets that may follow its word.
    pub(crate) room: usize,
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Consumer {
    len: usize,
    head: u64,
    /// What the writer was told.
    published: u64,
}

impl Consumer {
    /// For a ring of `len` octets: a power of two.
    pub(crate) const fn new(len: usize) -> Self {
        assert!(len.is_power_of_two() && len >= PART * LINE, "positions are masked");
        Self { len, head: 0, published: 0 }
    }

    /// Everything up to here was read.
    #[cfg(test)]
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    const fn offset(&self) -> usize {
        self.head as usize & (self.len - 1)
    }

    /// The kind of the record at `head`, if it is there.
    fn kind(&self, memory: &impl Source) -> Option<u8> {
        let word = memory.word(RING + self.offset());
        (word >> KIND_BITS == stamp(self.head, 0) >> KIND_BITS).then_some(word as u8)
    }

    /// The next record, if there is one.
    pub(crate) fn front(&mut self, memory: &impl Source) -> Result<Option<Front>, Broken> {
        let Some(mut kind) = self.kind(memory) else { return Ok(None) };
        if kind == PAD {
            let offset = self.offset();
            if offset == 0 {
                return Err(Broken); // a whole ring of nothing
            }
            self.head += (self.len - offset) as u64;
            match self.kind(memory) {
                Some(PAD) => return Err(Broken),
                Some(next) => kind = next,
                None => return Ok(None),
            }
        }
        let offset = self.offset();
        let room = (self.len - offset).min(self.len / PART) - WORD;
        Ok(Some(Front { kind, at: RING + offset + WORD, room }))
    }

    /// Whether a record is there, or something else that has to be looked at.
    pub(crate) fn is_fruitful(&self, memory: &impl Source) -> bool {
        self.kind(memory).is_some()
    }

    /// Whether the record in front is still what it was, after memory that it names was copied.
    pub(crate) fn is_still(&self, memory: &impl Source, kind: u8) -> bool {
        // The copy must not be done after this look.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        self.kind(memory) == Some(kind)
    }

    /// The record in front, with `len` octets behind its word, is done.
    pub(crate) const fn advance(&mut self, len: usize) {
        self.head += (WORD + len).next_multiple_of(LINE) as u64;
    }

    /// Whether the writer should hear how far we are: a part of the ring was read since it did.
    pub(crate) const fn is_due(&self) -> bool {
        self.head - self.published >= (self.len / PART) as u64
    }

    /// Tells the writer how far we are. True when that is news.
    pub(crate) fn publish(&mut self, own: &impl Target) -> bool {
        if self.published == self.head {
            return false;
        }
        own.set_word(HEAD, self.head);
        self.published = self.head;
        true
    }
}

/// Says that the owner of `own` sleeps from here on, for the time with this number; 0: it is awake. After it, a barrier that
/// the other process takes part in, and another look at its ring.
pub(crate) fn set_asleep(own: &impl Target, sleep: u64) {
    own.set_word(ASLEEP, sleep);
}

/// Whether the other process has to be woken after something was put in our ring or read from its own. `woken` is the
/// sleep that was ended last. There is no fence here: the sleeper's barrier stands for it.
pub(crate) fn must_wake(theirs: &impl Source, woken: &mut u64) -> bool {
    let sleep = theirs.word(ASLEEP);
    sleep != 0 && std::mem::replace(woken, sleep) != sleep
}

#[cfg(test)]
mod tests;
