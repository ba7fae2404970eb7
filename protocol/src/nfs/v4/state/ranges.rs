//! Byte ranges of locks (RFC 8881 §9.1–§9.3, §18.10–§18.12).

use crate::nfs::v4::Status4;

/// A range of octets: never empty, its ends included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockRange {
    first: u64,
    last: u64,
}

impl LockRange {
    /// The range of an offset and a length, which is all ones for a range without an end.
    pub fn new(offset: u64, length: u64) -> Result<Self, Status4> {
        let last = match length {
            // RFC 8881 §18.10.3 [8881-39]: a lock of no octets is refused
            0 => None,
            // RFC 8881 §18.10.3 [8881-40]: all ones reach to the end, however long the file gets
            u64::MAX => Some(u64::MAX),
            // RFC 8881 §18.10.3 [8881-41]: a range beyond 64 bits is refused
            _ => offset.checked_add(length).map(|end| end - 1),
        };
        last.map(|last| Self { first: offset, last }).ok_or(Status4::Inval)
    }

    /// The range of these two octets and all between them; `None` if `last` is below `first`.
    pub const fn between(first: u64, last: u64) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// Offset of the last octet; all ones if the range has no end.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Offset of the first octet.
    pub const fn offset(&self) -> u64 {
        self.first
    }

    /// Number of octets as the wire has it: all ones if the range has no end.
    pub const fn length(&self) -> u64 {
        if self.last == u64::MAX { u64::MAX } else { self.last - self.first + 1 }
    }

    /// Returns true if the ranges have an octet in common.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Returns true if the ranges overlap, or no octet is between them.
    pub const fn touches(&self, other: &Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    /// The range from the first octet of both to the last.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// The part of this range in front of the other.
    pub fn before(&self, other: &Self) -> Option<Self> {
        let last = other.first.checked_sub(1).filter(|last| self.first <= *last)?;
        Some(Self { first: self.first, last: last.min(self.last) })
    }

    /// The part of this range past the last octet of the other.
    pub fn behind(&self, other: &Self) -> Option<Self> {
        let first = other.last.checked_add(1).filter(|first| *first <= self.last)?;
        Some(Self { first: first.max(self.first), last: self.last })
    }
}

/// A lock that is held. Owners are the caller's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldLock {
    /// The lock-owner.
    pub owner: u64,
    /// The octets.
    pub range: LockRange,
    /// True for a write lock.
    pub exclusive: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_at_the_ends_of_the_file_are_what_the_wire_says() {
        assert_eq!(LockRange::new(0, 0), Err(Status4::Inval));
        assert_eq!(LockRange::new(1, u64::MAX).unwrap().length(), u64::MAX);
        assert_eq!(LockRange::new(2, u64::MAX - 1), Err(Status4::Inval));
        let whole = LockRange::new(0, u64::MAX).unwrap();
        assert_eq!((whole.offset(), whole.length()), (0, u64::MAX));
        assert_eq!(LockRange::new(u64::MAX, 1), Err(Status4::Inval));
        assert_eq!(LockRange::new(u64::MAX - 1, 1).unwrap().length(), 1);
        let last = LockRange::new(u64::MAX, u64::MAX).unwrap();
        assert_eq!((last.offset(), last.length()), (u64::MAX, u64::MAX));
        let octet = LockRange::new(7, 1).unwrap();
        assert_eq!((octet.offset(), octet.length(), octet.last()), (7, 1, 7));
        assert_eq!(LockRange::between(7, 7), Some(octet));
        assert_eq!(LockRange::between(8, 7), None);
        let inner = LockRange { first: 1, last: u64::MAX - 1 };
        assert_eq!(whole.before(&inner), LockRange::new(0, 1).ok());
        assert_eq!(whole.behind(&inner), Some(last));
        assert_eq!((inner.before(&whole), inner.behind(&whole)), (None, None));
        assert_eq!(inner.joined(&last), LockRange { first: 1, last: u64::MAX });
        assert!(inner.touches(&last) && !inner.overlaps(&last) && !octet.touches(&last));
    }
}
