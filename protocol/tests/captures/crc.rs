//! CRC32c by table, in the form that the FPDU codec requires.

use stag_protocol::iwarp::fpdu::Crc32c;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        let (mut value, mut bit) = (octet as u32, 0);
        while bit < 8 {
            value = (value >> 1) ^ (0x82F6_3B78 & (value & 1).wrapping_neg());
            bit += 1;
        }
        table[octet] = value;
        octet += 1;
    }
    table
};

pub struct Table(u32);

impl Crc32c for Table {
    fn start() -> Self {
        Self(u32::MAX)
    }

    fn update(&mut self, octets: &[u8]) {
        self.0 = octets
            .iter()
            .fold(self.0, |crc, octet| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ octet)]);
    }

    fn finish(self) -> u32 {
        !self.0
    }
}

#[test]
fn the_check_value_of_crc32c() {
    let mut crc = Table::start();
    crc.update(b"123456789");
    assert_eq!(crc.finish(), 0xE306_9283);
}
