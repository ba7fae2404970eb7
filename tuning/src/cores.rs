//! Lists of cores as the kernel writes them: `0-3,8`, and as masks: `0000010f`.

use std::{collections::BTreeSet, fmt, str::FromStr};

/// Cores are numbered below this, so that a list from any source has a limit.
const CORES_MAX: usize = 8192;

/// A set of cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreList(pub BTreeSet<usize>);

impl CoreList {
    /// Cores of `self` that are in `other`, too.
    #[must_use]
    pub fn both(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Cores of `self` that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Returns true if there is no core in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The cores as a mask of 32-bit words, `width` digits wide in all, as the kernel shows it.
    #[must_use]
    pub fn mask(&self, width: usize) -> String {
        let digit = |place: usize| {
            let bits = (0..4).filter(|bit| self.0.contains(&(place * 4 + bit)));
            let value = bits.fold(0_u32, |sum, bit| sum | 1 << bit);
            char::from_digit(value, 16).unwrap_or('0')
        };
        let mut text = String::new();
        for place in (0..width).rev() {
            text.push(digit(place));
            if place % 8 == 0 && place > 0 {
                text.push(',');
            }
        }
        text
    }

    /// The cores of a mask.
    #[must_use]
    pub fn of_mask(text: &str) -> Option<Self> {
        let mut cores = BTreeSet::new();
        let digits = text.trim().chars().rev().filter(|c| *c != ',');
        for (place, digit) in digits.enumerate().take(CORES_MAX / 4) {
            let digit = digit.to_digit(16)?;
            cores.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| place * 4 + bit));
        }
        Some(Self(cores))
    }
}

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no list of cores: write 2-5,8");
        let mut cores = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().map_err(|_| wrong())?;
            let last: usize = last.trim().parse().map_err(|_| wrong())?;
            if first > last || last >= CORES_MAX {
                return Err(wrong());
            }
            cores.extend(first..=last);
        }
        Ok(Self(cores))
    }
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cores = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = cores.next() {
            let mut last = first;
            while let Some(next) = cores.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_as_they_are_read() {
        for text in ["", "0", "0-3", "0-1,3,5-7", "8191"] {
            assert_eq!(text.parse::<CoreList>().unwrap().to_string(), text);
        }
        for wrong in ["a", "3-1", "1-", "8192", "0-99999999999", "-"] {
            assert!(wrong.parse::<CoreList>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn masks_are_the_same_sets() {
        let cores: CoreList = "0-3,8,33".parse().unwrap();
        assert_eq!(cores.mask(9), "2,0000010f");
        assert_eq!(CoreList::of_mask("2,0000010f"), Some(cores));
        assert_eq!(CoreList::of_mask("x"), None);
    }
}
