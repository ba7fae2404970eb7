//! Counters of a provider, as a tree of named numbers that any monitor can show.

use std::borrow::Cow;

/// A number, or a group of them with their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// One counter.
    Number(u64),
    /// Related counters, in display order.
    Group(Vec<(Cow<'static, str>, Count)>),
}

impl Count {
    /// A group of counters with fixed names.
    pub fn group<const LEN: usize>(members: [(&'static str, Self); LEN]) -> Self {
        Self::Group(members.into_iter().map(|(name, count)| (Cow::Borrowed(name), count)).collect())
    }
}

impl From<u64> for Count {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}
