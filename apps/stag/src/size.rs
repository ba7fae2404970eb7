//! Sizes and rates as they are given: a number, with K, M, G or T behind it.

/// A number with a unit behind it: how much of it, where `kilo` is what K means.
pub fn scaled(text: &str, kilo: f64) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let power = match text.strip_prefix(digits)? {
        "" => 0,
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        "t" | "T" => 4,
        _ => return None,
    };
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit() || digit == b'.');
    let number: f64 = if is_number { digits.parse().ok()? } else { return None };
    let scaled = number * kilo.powi(power);
    scaled.is_finite().then_some(scaled)
}

/// Octets: units are powers of 1,024.
///
/// # Errors
/// A sentence that says what to write instead.
pub fn octets(text: &str) -> Result<usize, String> {
    match scaled(text, 1024.0) {
        Some(octets) if octets.fract() == 0.0 && octets <= 1e15 => Ok(octets as usize),
        _ => Err(format!("{text:?} is no size: write a number with K, M, G or T behind it, powers of 1,024")),
    }
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
        ] {
            assert_eq!(octets(text), Ok(expected), "{text}");
        }
        for text in [
            "", "M", ".", "-1M", "+1M", "1MM", "1 M", "1KM", "4KB", "4KiB", "1e3K", "nan", "inf", "0.3",
            "9999T", "1µ",
        ] {
            assert!(octets(text).is_err(), "{text}");
        }
    }
}
