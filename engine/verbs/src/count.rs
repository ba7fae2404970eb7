//! Counters of a provider, in a form that every watcher can show.

use std::borrow::Cow;

/// A number, or a group of them with their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// One counter.
    Number(u64),
    /// Counters that belong together, in the order to show them.
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
