//! Share reservations of a file: access and denial of its opens (RFC 8881 §9.7–§9.10, §18.16,
//! §18.18).

use crate::nfs::v4::share::{BOTH, WANTS};

/// Access and denial of one open. Opens are the caller's numbers: one for each open-owner and file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenShare {
    /// The open.
    pub open: u64,
    access: u8,
    deny: u8,
    /// Bit `n` says that an OPEN asked for the access `n`.
    accesses: u8,
    /// Bit `n` says that an OPEN asked for the denial `n`.
    denials: u8,
}

impl OpenShare {
    /// Access of the open.
    pub const fn access(&self) -> u32 {
        self.access as u32
    }

    /// Denial of the open.
    pub const fn deny(&self) -> u32 {
        self.deny as u32
    }
}

/// Reason for not changing an open; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareFault {
    /// The bits are not defined, or no OPENs asked for them: NFS4ERR_INVAL.
    Invalid,
    /// An open conflicts: NFS4ERR_SHARE_DENIED. Its number.
    Denied(u64),
    /// There is no such open: NFS4ERR_BAD_STATEID.
    Unknown,
    /// The table is full: NFS4ERR_DELAY.
    Full,
}

/// The opens of a file. `S` is memory of the caller's, an array, a slice or a box.
#[derive(Debug)]
pub struct ShareTable<S> {
    table: S,
    len: usize,
}

impl<S: AsRef<[OpenShare]> + AsMut<[OpenShare]>> ShareTable<S> {
    /// A table without opens, of at most as many as `table` has places.
    pub const fn new(table: S) -> Self {
        Self { table, len: 0 }
    }

    /// The opens, in no order.
    pub fn opens(&self) -> &[OpenShare] {
        self.table.as_ref().get(..self.len).unwrap_or_default()
    }

    /// The opens that do not let this access and denial be. I/O by a special stateid denies nothing
    /// (RFC 8881 §9.1.2).
    pub fn conflicts(&self, access: u32, deny: u32) -> impl Iterator<Item = u64> {
        let conflicts = move |other: &&OpenShare| {
            // RFC 8881 §9.7 [8881-44]: nobody gets what an open denies, or denies what it has; the
            // opens of the same open-owner count, too
            access & other.deny() != 0 || deny & other.access() != 0
        };
        self.opens().iter().filter(conflicts).map(|other| other.open)
    }

    /// The memory of the table, to be made longer. What it has stays where it is.
    pub const fn table_mut(&mut self) -> &mut S {
        &mut self.table
    }

    /// The open of that number.
    pub fn get(&self, open: u64) -> Option<&OpenShare> {
        self.opens().iter().find(|share| share.open == open)
    }

    /// Opens the file, or adds to an open of the same owner.
    pub fn open(&mut self, open: u64, access: u32, deny: u32) -> Result<(), ShareFault> {
        let (access_bits, deny_bits) = bits(access, deny)?;
        let (access, deny) = (u32::from(access_bits), u32::from(deny_bits));
        if let Some(other) = self.conflicts(access, deny).next() {
            return Err(ShareFault::Denied(other));
        }
        let place = match self.place(open) {
            Some(place) => place,
            None => self.add(open)?,
        };
        // RFC 8881 §9.9 [8881-45]: opens of one owner are one, with all of their bits
        place.access |= access_bits;
        place.deny |= deny_bits;
        place.accesses |= 1 << access_bits;
        place.denials |= 1 << deny_bits;
        Ok(())
    }

    /// Takes access and denial of an open away.
    pub fn downgrade(&mut self, open: u64, access: u32, deny: u32) -> Result<(), ShareFault> {
        let (access, deny) = bits(access, deny)?;
        let place = self.place(open).ok_or(ShareFault::Unknown)?;
        // RFC 8881 §18.18.3 [8881-46]: what stays is what some of the OPENs asked for
        let accesses = within(place.accesses, access).ok_or(ShareFault::Invalid)?;
        let denials = within(place.denials, deny).ok_or(ShareFault::Invalid)?;
        *place = OpenShare { access, deny, accesses, denials, ..*place };
        Ok(())
    }

    /// Closes the file.
    pub fn close(&mut self, open: u64) -> Result<(), ShareFault> {
        let at = self.opens().iter().position(|share| share.open == open);
        let at = at.ok_or(ShareFault::Unknown)?;
        self.len -= 1;
        let len = self.len;
        self.table.as_mut().swap(at, len);
        Ok(())
    }

    fn place(&mut self, open: u64) -> Option<&mut OpenShare> {
        let len = self.len;
        let opens = self.table.as_mut().get_mut(..len)?;
        opens.iter_mut().find(|share| share.open == open)
    }

    fn add(&mut self, open: u64) -> Result<&mut OpenShare, ShareFault> {
        let place = self.table.as_mut().get_mut(self.len).ok_or(ShareFault::Full)?;
        *place = OpenShare { open, ..OpenShare::default() };
        self.len += 1;
        Ok(place)
    }
}

/// The bits without wants, if they are defined.
fn bits(access: u32, deny: u32) -> Result<(u8, u8), ShareFault> {
    // RFC 8881 §18.16.3 [8881-47]: access is read, write or both; denial also none
    match (access & !WANTS, deny) {
        (access @ 1..=BOTH, deny @ 0..=BOTH) => Ok((access as u8, deny as u8)),
        _ => Err(ShareFault::Invalid),
    }
}

/// Of the bits that OPENs asked for, those within `kept`; `None` if they do not make it up.
fn within(asked: u8, kept: u8) -> Option<u8> {
    let inside = (0..4_u8).filter(|bits| asked >> bits & 1 == 1 && bits & !kept == 0);
    let (stay, union) = inside.fold((0, 0), |(stay, union), bits| (stay | 1 << bits, union | bits));
    (union == kept).then_some(stay)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn all() -> Vec<(u32, u32)> {
        (1..4).flat_map(|access| (0..4).map(move |deny| (access, deny))).collect()
    }

    fn table<const N: usize>() -> ShareTable<[OpenShare; N]> {
        ShareTable::new([OpenShare::default(); N])
    }

    #[test]
    fn any_two_opens_conflict_if_one_denies_what_the_other_has() {
        for (access, deny) in all() {
            for (other_access, other_deny) in all() {
                let mut shares = table::<2>();
                shares.open(1, access, deny).unwrap();
                let denied = access & other_deny != 0 || deny & other_access != 0;
                let expected = if denied { Err(ShareFault::Denied(1)) } else { Ok(()) };
                assert_eq!(shares.open(2, other_access, other_deny), expected);
                assert_eq!(shares.opens().len(), if denied { 1 } else { 2 });
                let io: Vec<u64> = shares.conflicts(other_access, 0).collect();
                let denies = |share: &&OpenShare| share.deny() & other_access != 0;
                let denying = shares.opens().iter().filter(denies).map(|share| share.open);
                assert_eq!(io, denying.collect::<Vec<_>>());
                shares.close(2).unwrap_or_else(|fault| assert_eq!(fault, ShareFault::Unknown));
                let again = shares.open(1, other_access, other_deny);
                assert_eq!(again, expected, "an owner keeps to what it denies itself");
            }
        }
    }

    #[test]
    fn a_downgrade_keeps_what_some_opens_asked_for_and_nothing_else() {
        for first in all() {
            for second in all() {
                for (access, deny) in all() {
                    let mut shares = table::<1>();
                    shares.open(7, first.0, first.1).unwrap();
                    if shares.open(7, second.0, second.1).is_err() {
                        continue; // the owner denies itself the second
                    }
                    // Access and denial are each a union of some OPENs'.
                    let is_union = |values: [u32; 2], kept: u32| {
                        let some = [vec_of(&[]), vec_of(&[0]), vec_of(&[1]), vec_of(&[0, 1])];
                        some.iter().any(|some| some.iter().fold(0, |u, at| u | values[*at]) == kept)
                    };
                    let fits = is_union([first.0, second.0], access)
                        && is_union([first.1, second.1], deny);
                    let expected = if fits { Ok(()) } else { Err(ShareFault::Invalid) };
                    assert_eq!(shares.downgrade(7, access, deny), expected);
                    let share = shares.opens()[0];
                    let kept = if fits {
                        (access, deny)
                    } else {
                        (first.0 | second.0, first.1 | second.1)
                    };
                    assert_eq!((share.access(), share.deny()), kept);
                }
            }
        }
    }

    fn vec_of(items: &[usize]) -> Vec<usize> {
        items.to_vec()
    }

    #[test]
    fn a_downgrade_forgets_the_opens_that_it_took_away() {
        let mut shares = table::<1>();
        shares.open(1, 1, 0).unwrap();
        shares.open(1, 2, 0).unwrap();
        shares.downgrade(1, 1, 0).unwrap();
        assert_eq!(shares.downgrade(1, 2, 0), Err(ShareFault::Invalid));
        assert_eq!(shares.downgrade(1, 1, 0), Ok(()));
    }

    #[test]
    fn bits_that_are_not_defined_are_refused_and_wants_are_not_looked_at() {
        let mut shares = table::<1>();
        for (access, deny) in [(0, 0), (4, 0), (1, 4), (u32::MAX, 0), (1, u32::MAX)] {
            assert_eq!(shares.open(1, access, deny), Err(ShareFault::Invalid));
        }
        shares.open(1, 3 | 0x0300 | 0x1_0000 | 0x2_0000, 0).unwrap();
        assert_eq!(shares.get(1).map(OpenShare::access), Some(3));
        assert_eq!(shares.get(2), None);
        assert_eq!(shares.downgrade(1, 0, 0), Err(ShareFault::Invalid));
    }

    #[test]
    fn opens_end_once_and_a_full_table_refuses() {
        let mut shares = table::<2>();
        shares.open(1, 1, 0).unwrap();
        shares.open(2, 1, 0).unwrap();
        assert_eq!(shares.open(3, 1, 0), Err(ShareFault::Full));
        assert_eq!(shares.open(2, 2, 0), Ok(()), "an open that is there needs no place");
        assert_eq!(shares.table_mut().len(), 2);
        assert_eq!(shares.close(1), Ok(()));
        assert_eq!(shares.close(1), Err(ShareFault::Unknown));
        assert_eq!(shares.downgrade(1, 1, 0), Err(ShareFault::Unknown));
        assert_eq!(shares.open(3, 1, 0), Ok(()));
        assert_eq!(shares.opens().iter().map(|share| share.open).collect::<Vec<_>>(), [2, 3]);
    }
}
