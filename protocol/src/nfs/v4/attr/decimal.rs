//! Owners and groups as the decimal numbers of users and groups (RFC 8881 §5.9).

use crate::xdr::{NoRoom, Writer};

/// Numbers of users and groups as text (RFC 8881 §5.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    /// The digits, followed by zeros.
    octets: [u8; 12],
    len: u32,
}

impl Decimal {
    /// A number without leading zeros.
    pub fn of(number: u32) -> Self {
        const EIGHT_DIGITS: u32 = 100_000_000;
        let (high, low) = (number / EIGHT_DIGITS, number % EIGHT_DIGITS);
        let zeros = u64::from_le_bytes([b'0'; 8]);
        let digits = eight_digits(low);
        let mut text = u128::from(digits | zeros);
        // The first digit is in the lowest octet.
        let mut leading = digits.trailing_zeros() / 8;
        let mut all = 8;
        if high > 0 {
            let above = eight_digits(high);
            text = text << 64 | u128::from(above | zeros);
            (leading, all) = (above.trailing_zeros() / 8, 16);
        }
        // A zero has one digit.
        leading = leading.min(all - 1);
        let [octets @ .., _, _, _, _] = (text >> (8 * leading)).to_le_bytes();
        Self { octets, len: all - leading }
    }

    /// The digits.
    pub fn text(&self) -> &[u8] {
        self.octets.get(..self.len as usize).unwrap_or_default()
    }

    /// Octets of [`emit`](Self::emit).
    pub const fn wire_len(&self) -> u32 {
        4 + self.len.next_multiple_of(4)
    }

    /// Writes the text as opaque data, padding included.
    #[inline]
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self.len {
            ..=4 => self.emit_in::<4>(writer),
            5..=8 => self.emit_in::<8>(writer),
            _ => self.emit_in::<12>(writer),
        }
    }

    #[inline]
    fn emit_in<const N: usize>(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(self.len)?;
        writer.array::<N>(self.octets.first_chunk().ok_or(NoRoom)?)
    }

    /// Parses a number. None for a name, and for a number written in any other way than
    /// [`of`](Self::of) writes it.
    pub fn parse(text: &[u8]) -> Option<u32> {
        let is_plain = match text {
            [] | [b'0', _, ..] => false,
            digits => digits.iter().all(u8::is_ascii_digit),
        };
        core::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
    }
}

/// The digits of a number below 10⁸, the first one in the lowest octet: parts of a word are divided
/// at a time, by multiplication.
const fn eight_digits(number: u32) -> u64 {
    let fours = (number / 10_000) as u64 | ((number % 10_000) as u64) << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (twos - 10 * tens) << 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString as _;

    #[test]
    fn owners_are_decimal_numbers_and_nothing_else_is_an_owner() {
        let numbers = [
            (0, "0"),
            (7, "7"),
            (1_000, "1000"),
            (9, "9"),
            (10, "10"),
            (99, "99"),
            (100, "100"),
            (65_534, "65534"),
            (99_999_999, "99999999"),
            (100_000_000, "100000000"),
            (4_000_000_000, "4000000000"),
            (10_000_000, "10000000"),
            (123_456_789, "123456789"),
            (u32::MAX, "4294967295"),
        ];
        for (number, text) in numbers {
            assert_eq!(Decimal::of(number).text(), text.as_bytes());
            let (mut octets, mut expected) = ([0; 16], [0; 16]);
            let mut writer = Writer::new(&mut octets);
            Decimal::of(number).emit(&mut writer).unwrap();
            let len = writer.len();
            let mut writer = Writer::new(&mut expected);
            writer.opaque(text.as_bytes()).unwrap();
            assert_eq!((len, octets), (writer.len(), expected));
            assert_eq!(Decimal::parse(text.as_bytes()), Some(number));
        }
        for number in (0..120_000).chain((0..u32::MAX - 99_991).step_by(99_991)) {
            assert_eq!(Decimal::of(number).text(), number.to_string().as_bytes());
        }
        for text in ["", "00", "07", "root", "1@domain", "4294967296", "-1", "+1", " 1"] {
            assert_eq!(Decimal::parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
