//! Share reservations of a file: access and denial of its opens (RFC 8881 §9.7–§9.10, §18.16,
//! §18.18).

use crate::nfs::v4::share::{BOTH, WANTS};

/// Access and denial of one open: that of an open-owner of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenShare {
    access: u8,
    deny: u8,
    /// Bit `n` says that an OPEN asked for the access `n`.
    accesses: u8,
    /// Bit `n` says that an OPEN asked for the denial `n`.
    denials: u8,
}

/// Undefined bits, or bits that no OPENs asked for: NFS4ERR_INVAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidShare;

/// Access and denial: opens of one class conflict with the same opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareClass(u8);

impl ShareClass {
    /// Number of classes.
    pub const COUNT: usize = 16;

    /// All classes, in the order of their numbers.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// Its number, below [`ShareClass::COUNT`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Access of its opens.
    pub const fn access(self) -> u32 {
        self.0 as u32 & BOTH
    }

    /// Denial of its opens.
    pub const fn deny(self) -> u32 {
        self.0 as u32 >> 2
    }

    /// Returns true if an open of this class forbids this access and denial. I/O by a special
    /// stateid denies nothing (RFC 8881 §9.1.2).
    pub const fn conflicts(self, access: u32, deny: u32) -> bool {
        // RFC 8881 §9.7 [8881-44]: an open gets no access that another denies, and denies none
        // that another has; opens of the same open-owner count, too
        access & self.deny() != 0 || deny & self.access() != 0
    }
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

    /// Class of the open.
    pub const fn class(&self) -> ShareClass {
        ShareClass(self.deny << 2 | self.access)
    }

    /// Opens the file, or adds to an open of the same owner. The caller has looked for conflicts.
    ///
    /// # Errors
    /// For undefined bits; nothing changed.
    pub fn open(&mut self, access: u32, deny: u32) -> Result<(), InvalidShare> {
        let (access, deny) = bits(access, deny)?;
        // RFC 8881 §9.9 [8881-45]: opens of one owner are one, with all of their bits
        self.access |= access;
        self.deny |= deny;
        self.accesses |= 1 << access;
        self.denials |= 1 << deny;
        Ok(())
    }

    /// Takes access and denial away.
    ///
    /// # Errors
    /// For bits that no OPENs asked for; nothing changed.
    pub fn downgrade(&mut self, access: u32, deny: u32) -> Result<(), InvalidShare> {
        let (access, deny) = bits(access, deny)?;
        // RFC 8881 §18.18.3 [8881-46]: what stays is what some of the OPENs asked for
        let accesses = within(self.accesses, access).ok_or(InvalidShare)?;
        let denials = within(self.denials, deny).ok_or(InvalidShare)?;
        *self = Self { access, deny, accesses, denials };
        Ok(())
    }
}

/// The bits without wants, if they are defined.
fn bits(access: u32, deny: u32) -> Result<(u8, u8), InvalidShare> {
    // RFC 8881 §18.16.3 [8881-47]: access is read, write or both; denial also none
    match (access & !WANTS, deny) {
        (access @ 1..=BOTH, deny @ 0..=BOTH) => Ok((access as u8, deny as u8)),
        _ => Err(InvalidShare),
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

    fn opened(access: u32, deny: u32) -> OpenShare {
        let mut share = OpenShare::default();
        share.open(access, deny).unwrap();
        share
    }

    #[test]
    fn any_two_opens_conflict_if_one_denies_what_the_other_has() {
        for (access, deny) in all() {
            let class = opened(access, deny).class();
            assert_eq!((class.access(), class.deny()), (access, deny));
            assert!(ShareClass::all().nth(class.index()) == Some(class));
            for (other_access, other_deny) in all() {
                let denied = access & other_deny != 0 || deny & other_access != 0;
                assert_eq!(class.conflicts(other_access, other_deny), denied);
                assert_eq!(class.conflicts(other_access, 0), deny & other_access != 0);
            }
        }
        assert_eq!(ShareClass::all().count(), ShareClass::COUNT);
    }

    #[test]
    fn a_downgrade_keeps_what_some_opens_asked_for_and_nothing_else() {
        for first in all() {
            for second in all() {
                for (access, deny) in all() {
                    let mut share = opened(first.0, first.1);
                    share.open(second.0, second.1).unwrap();
                    // Access and denial are each a union of some OPENs'.
                    let is_union = |values: [u32; 2], kept: u32| {
                        let some = [vec_of(&[]), vec_of(&[0]), vec_of(&[1]), vec_of(&[0, 1])];
                        some.iter().any(|some| some.iter().fold(0, |u, at| u | values[*at]) == kept)
                    };
                    let fits = is_union([first.0, second.0], access)
                        && is_union([first.1, second.1], deny);
                    let expected = if fits { Ok(()) } else { Err(InvalidShare) };
                    assert_eq!(share.downgrade(access, deny), expected);
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
        let mut share = opened(1, 0);
        share.open(2, 0).unwrap();
        share.downgrade(1, 0).unwrap();
        assert_eq!(share.downgrade(2, 0), Err(InvalidShare));
        assert_eq!(share.downgrade(1, 0), Ok(()));
    }

    #[test]
    fn bits_that_are_not_defined_are_refused_and_wants_are_not_looked_at() {
        let mut share = OpenShare::default();
        for (access, deny) in [(0, 0), (4, 0), (1, 4), (u32::MAX, 0), (1, u32::MAX)] {
            assert_eq!(share.open(access, deny), Err(InvalidShare));
        }
        share.open(3 | 0x0300 | 0x1_0000 | 0x2_0000, 0).unwrap();
        assert_eq!(share.access(), 3);
        assert_eq!(share.downgrade(1, 0), Err(InvalidShare));
    }
}
