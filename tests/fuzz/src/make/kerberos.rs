//! Keytabs and tokens of Kerberos.

use crate::random::FuzzRandom;

/// A text with its length.
fn counted(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text].concat()
}

/// A keytab with a few entries and holes.
pub fn keytab(random: &mut FuzzRandom) -> Vec<u8> {
    let mut file = vec![5, 2];
    for _ in 0..random.below(6) {
        if random.one_in(4) {
            let len = random.below(40);
            file.extend((-(len as i32)).to_be_bytes());
            file.extend(random.octets(len));
            continue;
        }
        let names: [&[u8]; 4] = [b"nfs", b"host", b"a.example", b"\xff\n"];
        let components = random.below(4);
        let mut entry = (components as u16).to_be_bytes().to_vec();
        entry.extend(counted(b"REALM"));
        for _ in 0..components {
            entry.extend(counted(random.pick(&names)));
        }
        // The name's type, the time, the version.
        entry.extend(random.octets(9));
        entry.extend([0, random.pick(&[17, 18, 19, 20, 23])]);
        let len = random.pick(&[0, 16, 32]);
        entry.extend(counted(&random.octets(len)));
        if random.one_in(2) {
            entry.extend(random.word().to_be_bytes());
        }
        file.extend((entry.len() as i32).to_be_bytes());
        file.extend(entry);
    }
    file
}

/// An element of DER with a length of two octets.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    [&[tag, 0x82][..], &counted(content)].concat()
}

/// A token: an AP-REQ or a KRB-ERROR in its frame.
pub fn krb_token(random: &mut FuzzRandom) -> Vec<u8> {
    const MECHANISM: [u8; 11] = [0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
    let (kind, message) = if random.one_in(3) {
        let len = random.below(300);
        (1, der(0x6e, &random.octets(len)))
    } else {
        let mut fields = der(0xa0, &[2, 1, 5]);
        for tag in [0xa2, 0xa4] {
            if tag == 0xa4 || random.one_in(2) {
                let hour = random.below(26);
                let time = format!("20261201{hour:02}4207Z");
                fields.extend(der(tag, &der(0x18, time.as_bytes())));
            }
        }
        let code = random.below(128) as u8;
        fields.extend(der(0xa6, &[2, 1, code]));
        (3, der(0x7e, &der(0x30, &fields)))
    };
    der(0x60, &[&MECHANISM[..], &[kind, 0], &message].concat())
}
