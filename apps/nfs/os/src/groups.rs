//! Lists of groups that are longer than those of AUTH_SYS.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use rustix::process::Gid;

/// Groups in all lists of a process, at most: 8 MiB.
const KEPT_MAX: usize = 2 << 20;

/// Groups of a user, of any number. A list is stored until the process ends, once for all users
/// with the same groups, so that a user is copied and compared like a number.
#[derive(Clone, Copy, Debug)]
pub struct GroupList(&'static [Gid]);

/// Equal if they are the same list: equal groups are stored once.
impl PartialEq for GroupList {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self.0, other.0)
    }
}

impl Eq for GroupList {}

impl GroupList {
    /// Stores these groups, in numerical order; a number that is all ones is no group. None when
    /// the lists of this process have too many already.
    pub fn keep(groups: impl IntoIterator<Item = u32>) -> Option<Self> {
        static KEPT: Mutex<Option<HashSet<&'static [Gid]>>> = Mutex::new(None);
        let mut groups: Vec<u32> = groups.into_iter().filter(|group| *group != u32::MAX).collect();
        groups.sort_unstable();
        groups.dedup();
        let groups: Vec<Gid> = groups.into_iter().map(Gid::from_raw).collect();
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.get_or_insert_default();
        if let Some(known) = kept.get(groups.as_slice()) {
            return Some(Self(known));
        }
        let sum: usize = kept.iter().map(|list| list.len()).sum();
        if sum + groups.len() > KEPT_MAX {
            return None;
        }
        let list: &'static [Gid] = groups.leak();
        kept.insert(list);
        Some(Self(list))
    }

    /// Their numbers.
    pub fn numbers(self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|group| group.as_raw())
    }

    pub(crate) fn ids(self) -> &'static [Gid] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_groups_are_kept_once() {
        let list = GroupList::keep([7, 5, u32::MAX, 7]).unwrap();
        assert_eq!(list.numbers().collect::<Vec<_>>(), [5, 7]);
        assert_eq!(GroupList::keep([5, 7]), Some(list));
        assert_ne!(GroupList::keep([5]), Some(list));
        assert_eq!(GroupList::keep(0..=KEPT_MAX as u32), None, "too many");
    }
}
