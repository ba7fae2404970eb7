//! Sizes and rates as they are given: a number, followed by k, M, G or T, of either case.
//!
//! One grammar for both, that of `parse-size`: `1.5G`, `4Ki`, `1_000`, `2e6`. A trailing `B` is
//! refused: half of the world takes `KB` for 1,000, and half for 1,024.

use parse_size::{ByteSuffix, Config};

/// Units of sizes are powers of 1,024.
const SIZE: Config = Config::new().with_binary().with_byte_suffix(ByteSuffix::Deny);
/// Units of rates are powers of 1,000.
const RATE: Config = Config::new().with_decimal().with_byte_suffix(ByteSuffix::Deny);
/// Octets that no flag takes more of.
const SIZE_MAX: u64 = 1_000_000_000_000_000;

/// Octets: units are powers of 1,024.
///
/// # Errors
/// A sentence that says what to write instead.
pub fn octets(text: &str) -> Result<usize, String> {
    let octets = SIZE.parse_size(text).ok().filter(|octets| *octets <= SIZE_MAX);
    octets.and_then(|octets| usize::try_from(octets).ok()).ok_or_else(|| {
        format!("{text:?} is no size: write a number with K, M, G or T behind it, powers of 1,024")
    })
}

/// A number per second: units are powers of 1,000. None for what is no number.
pub fn rate(text: &str) -> Option<f64> {
    let whole = RATE.parse_size(text).ok()?;
    // The grammar has whole numbers. A rate without a unit may have a fraction.
    Some(text.parse().unwrap_or(whole as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_a_power_of_1024() {
        for (text, expected) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("1024K", 1 << 20),
            ("512M", 512 << 20),
            ("512m", 512 << 20),
            ("3G", 3 << 30),
            ("1.5G", 3 << 29),
            ("1t", 1 << 40),
            ("4Ki", 4_096),
        ] {
            assert_eq!(octets(text), Ok(expected), "{text}");
        }
        for text in
            ["", "M", ".", "-1M", "1MM", "1KM", "4KB", "4KiB", "nan", "inf", "9999T", "1µ", "1 / 2"]
        {
            assert!(octets(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_numbers_with_a_power_of_1000() {
        for (text, expected) in
            [("7", 7.0), ("2k", 2_000.0), ("1.5M", 1_500_000.0), ("0.25", 0.25), ("1G", 1e9)]
        {
            assert_eq!(rate(text), Some(expected), "{text}");
        }
        for text in ["", "k", "-5", "5/s", "nan", "inf", "1kk"] {
            assert_eq!(rate(text), None, "{text}");
        }
    }
}
