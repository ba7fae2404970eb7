//! KerberosTime (RFC 4120 §5.2.3): seconds, in UTC.
#![forbid(unsafe_code)]

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

/// Seconds since 1970-01-01 00:00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KerberosTime(pub u64);

impl KerberosTime {
    /// This host's clock.
    #[must_use]
    pub fn of_this_host() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// Reads `YYYYMMDDhhmmssZ`, from 1970 on.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (b"Z", digits) = text.split_last_chunk().map(|(digits, last)| (last, digits))? else {
            return None;
        };
        if digits.len() != 14 || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let number = |digits: &[u8]| digits.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0'));
        let (year, rest) = digits.split_at(4);
        let mut pairs = rest.chunks_exact(2).map(number);
        let [month, day, hour, minute, second] = std::array::from_fn(|_| pairs.next().unwrap_or(0));
        let year = number(year);
        let is_date = year >= 1970 && (1..=12).contains(&month) && (1..=31).contains(&day);
        if !is_date || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days_before(year, month) + day - 1;
        Some(Self(((days * 24 + hour) * 60 + minute) * 60 + second))
    }
}

/// Days from 1970-01-01 to the first day of a month.
fn days_before(year: u64, month: u64) -> u64 {
    // Years that begin in March: the leap day is their last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5;
    days - 719_468
}

impl fmt::Display for KerberosTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, seconds) = (self.0 / 86_400, self.0 % 86_400);
        let first = |year: u64| days_before(year, 1);
        // At most two years before it: 400 years have 146,097 days.
        let mut year = 1970 + (days * 400 / 146_097).saturating_sub(1);
        while first(year + 1) <= days {
            year += 1;
        }
        let month = (1..=12).rev().find(|month| days_before(year, *month) <= days).unwrap_or(1);
        let day = days - days_before(year, month) + 1;
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days_read_and_print_as_they_are() {
        for (text, seconds, words) in [
            (b"19700101000000Z", 0, "1970-01-01 00:00:00 UTC"),
            (b"20000229235959Z", 951_868_799, "2000-02-29 23:59:59 UTC"),
            (b"20261201154207Z", 1_796_139_727, "2026-12-01 15:42:07 UTC"),
            (b"21000301000000Z", 4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(KerberosTime::parse(text), Some(KerberosTime(seconds)));
            assert_eq!(KerberosTime(seconds).to_string(), words);
        }
    }

    #[test]
    fn every_day_of_two_centuries_is_the_one_after_the_day_before() {
        let mut before = String::new();
        for day in 0..74_000 {
            let text = KerberosTime(day * 86_400 + 3_723).to_string();
            assert!(text > before, "{before} {text}");
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            let read = KerberosTime::parse(format!("{digits}Z").as_bytes());
            assert_eq!(read, Some(KerberosTime(day * 86_400 + 3_723)), "{text}");
            before = text;
        }
    }

    #[test]
    fn the_last_time_prints_at_once() {
        assert!(KerberosTime(u64::MAX).to_string().ends_with(" 07:00:15 UTC"));
    }

    #[test]
    fn other_texts_are_no_time() {
        for text in ["", "Z", "20261201154207", "2026120115420Z", "2026120115420xZ"] {
            assert_eq!(KerberosTime::parse(text.as_bytes()), None, "{text}");
        }
        for text in ["19691231235959Z", "20261301000000Z", "20261232000000Z", "20261201240000Z"] {
            assert_eq!(KerberosTime::parse(text.as_bytes()), None, "{text}");
        }
    }
}
