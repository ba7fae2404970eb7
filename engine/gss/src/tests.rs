//! Vectors of RFC 3962 and RFC 8009.

use aes::Block;

use crate::{
    Enctype,
    cipher::{DecryptKey, EncryptKey, tail_len},
    derive::KeyPurpose::{Checksum, Encryption, Integrity},
    mac::Mac,
};

/// The octets of hexadecimal digits.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Encrypts a message, which is more than a block or exactly one.
fn encrypt(key: &[u8], message: &mut [u8]) {
    let key = EncryptKey::new(key).unwrap();
    let mut last = Block::default();
    if message.len() == 16 {
        return key.blocks(&mut last, message);
    }
    let (whole, tail) = message.split_at_mut(message.len() - tail_len(message.len()));
    key.blocks(&mut last, whole);
    key.tail(last, tail);
}

fn decrypt(key: &[u8], message: &mut [u8]) {
    let key = DecryptKey::new(key).unwrap();
    let mut last = Block::default();
    if message.len() == 16 {
        return key.blocks(&mut last, message);
    }
    let (whole, tail) = message.split_at_mut(message.len() - tail_len(message.len()));
    key.blocks(&mut last, whole);
    key.tail(last, tail);
}

#[test]
fn ciphertext_is_that_of_rfc_3962() {
    let key = b"chicken teriyaki";
    let text = b"I would like the General Gau's Chicken, please, and wonton soup.";
    for (len, expected) in [
        (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
        (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
        (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
        (
            47,
            "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e\
             39312523a78662d5be7fcbcc98ebf5",
        ),
        (
            48,
            "97687268d6ecccc0c07b25e25ecfe5849dad8bbb96c4cdc03bc103e1a194bbd8\
             39312523a78662d5be7fcbcc98ebf5a8",
        ),
        (
            64,
            "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a8\
             4807efe836ee89a526730dbc2f7bc8409dad8bbb96c4cdc03bc103e1a194bbd8",
        ),
    ] {
        let mut message = text[..len].to_vec();
        encrypt(key, &mut message);
        assert_eq!(message, hex(expected), "{len} octets");
        decrypt(key, &mut message);
        assert_eq!(message, text[..len], "{len} octets");
    }
}

#[test]
fn encryption_and_checksums_are_those_of_rfc_8009() {
    let key128 = hex("3705D96080C17728A0E800EAB6E0D23C");
    let key256 = hex("6D404D37FAF79F9DF0D33568D320669800EB4836472EA8A026D16B7182460C52");
    let plain: Vec<u8> = (0..0x15).collect();
    for (enctype, key, len, confounder, expected) in [
        (
            Enctype::Aes128Sha256,
            &key128,
            0,
            "7E5895EAF2672435BAD817F545A37148",
            "EF85FB890BB8472F4DAB20394DCA781DAD877EDA39D50C870C0D5A0A8E48C718",
        ),
        (
            Enctype::Aes128Sha256,
            &key128,
            6,
            "7BCA285E2FD4130FB55B1A5C83BC5B24",
            "84D7F30754ED987BAB0BF3506BEB09CFB55402CEF7E6877CE99E247E52D16ED4421DFDF8976C",
        ),
        (
            Enctype::Aes128Sha256,
            &key128,
            16,
            "56AB21713FF62C0A1457200F6FA9948F",
            "3517D640F50DDC8AD3628722B3569D2AE07493FA8263254080EA65C1008E8FC2\
             95FB4852E7D83E1E7C48C37EEBE6B0D3",
        ),
        (
            Enctype::Aes128Sha256,
            &key128,
            21,
            "A7A4E29A4728CE10664FB64E49AD3FAC",
            "720F73B18D9859CD6CCB4346115CD336C70F58EDC0C4437C5573544C31C813BC\
             E1E6D072C186B39A413C2F92CA9B8334A287FFCBFC",
        ),
        (
            Enctype::Aes256Sha384,
            &key256,
            0,
            "F764E9FA15C276478B2C7D0C4E5F58E4",
            "41F53FA5BFE7026D91FAF9BE959195A058707273A96A40F0A01960621AC61274\
             8B9BBFBE7EB4CE3C",
        ),
        (
            Enctype::Aes256Sha384,
            &key256,
            6,
            "B80D3251C1F6471494256FFE712D0B9A",
            "4ED7B37C2BCAC8F74F23C1CF07E62BC7B75FB3F637B9F559C7F664F69EAB7B60\
             92237526EA0D1F61CB20D69D10F2",
        ),
        (
            Enctype::Aes256Sha384,
            &key256,
            16,
            "53BF8A0D105265D4E276428624CE5E63",
            "BC47FFEC7998EB91E8115CF8D19DAC4BBBE2E163E87DD37F49BECA92027764F6\
             8CF51F14D798C2273F35DF574D1F932E40C4FF255B36A266",
        ),
        (
            Enctype::Aes256Sha384,
            &key256,
            21,
            "763E65367E864F02F55153C7E3B58AF1",
            "40013E2DF58E8751957D2878BCD2D6FE101CCFD556CB1EAE79DB3C3EE86429F2\
             B2A602AC86FEF6ECB647D6295FAE077A1FEB517508D2C16B4192E01F62",
        ),
    ] {
        let mut message = [&hex(confounder)[..], &plain[..len]].concat();
        encrypt(enctype.derive(key, 2, Encryption).octets(), &mut message);
        let mut mac = Mac::new(enctype, enctype.derive(key, 2, Integrity).octets());
        mac.update(&[0; 16]);
        mac.update(&message);
        let mut checksum = vec![0; enctype.checksum_len()];
        mac.finish(&mut checksum);
        assert_eq!([message, checksum].concat(), hex(expected), "{enctype:?}, {len} octets");
    }
    for (enctype, key, expected) in [
        (Enctype::Aes128Sha256, &key128, "D78367186643D67B411CBA9139FC1DEE"),
        (Enctype::Aes256Sha384, &key256, "45EE791567EEFCA37F4AC1E0222DE80D43C3BFA06699672A"),
    ] {
        let mut mac = Mac::new(enctype, enctype.derive(key, 2, Checksum).octets());
        mac.update(&plain);
        let mut checksum = vec![0; enctype.checksum_len()];
        mac.finish(&mut checksum);
        assert_eq!(checksum, hex(expected), "{enctype:?}");
    }
}

#[test]
fn every_length_is_decrypted_to_what_it_was() {
    for key in [&[1; 16][..], &[2; 32]] {
        for len in 16..700 {
            let message: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut octets = message.clone();
            encrypt(key, &mut octets);
            assert_ne!(octets, message);
            decrypt(key, &mut octets);
            assert_eq!(octets, message, "{len} octets");
        }
    }
}

#[test]
fn encryption_and_checksums_of_rfc_3962_are_those_of_other_implementations() {
    let key = hex("9062430C8CDA3388922E6D6A509F5B7A");
    let enctype = Enctype::Aes128Sha1;
    let mut message = [&hex("94B491F481485B9A0678CD3C4EA386AD")[..], b"9 bytesss"].concat();
    let mut mac = Mac::new(enctype, enctype.derive(&key, 2, Integrity).octets());
    mac.update(&message);
    let mut checksum = [0; 12];
    mac.finish(&mut checksum);
    encrypt(enctype.derive(&key, 2, Encryption).octets(), &mut message);
    let expected = "68FB9679601F45C78857B2BF820FD6E53ECA8D42FD4B1D7024A09205ABB7CD2EC26C355D2F";
    assert_eq!([&message[..], &checksum].concat(), hex(expected));
    let key256 = hex("B1AE4CD8462AFF1677053CC9279AAC30B796FB81CE21474DD3DDBCFEA4EC76D7");
    for (enctype, key, usage, text, expected) in [
        (
            enctype,
            key,
            3,
            &b"eight nine ten eleven twelve thirteen"[..],
            "01A4B088D45628F6946614E3",
        ),
        (Enctype::Aes256Sha1, key256, 4, b"fourteen", "E08739E3279E2903EC8E3836"),
    ] {
        let mut mac = Mac::new(enctype, enctype.derive(&key, usage, Checksum).octets());
        mac.update(text);
        assert!(mac.verify(&hex(expected)), "{enctype:?}");
    }
}
