//! Keys of the contexts in the captures: the acceptor's subkey where there is an AP-REP, else the
//! initiator's. They were taken once from the tickets, by the keytabs of the captured realms.

use stag_gss::Enctype::{self, Aes256Sha1, Aes256Sha384};

/// The key of one context.
pub struct CapturedKey {
    /// First octet of its handle; three zeros follow.
    pub handle: u8,
    pub enctype: Enctype,
    pub acceptor_subkey: bool,
    /// Its octets in hexadecimal digits.
    pub octets: &'static str,
}

const fn key(handle: u8, enctype: Enctype, octets: &'static str) -> CapturedKey {
    CapturedKey { handle, enctype, acceptor_subkey: false, octets }
}

const fn acceptors(handle: u8, enctype: Enctype, octets: &'static str) -> CapturedKey {
    CapturedKey { handle, enctype, acceptor_subkey: true, octets }
}

pub const LINUX_6_1_KRB5_TCP: &[CapturedKey] = &[
    acceptors(1, Aes256Sha1, "782f01aa8873d7193dbf0f1caf37494004664ecf5afd503a60c6ebf6cfb6584c"),
    acceptors(2, Aes256Sha1, "cb95b2c72e13c83938378ef7b33314d59fb954eab00f69bf59d16a87a68b0413"),
    acceptors(3, Aes256Sha1, "21cf6bd5f7b4b822c80231078e4544c01171c00ef637ff3384d708f0a4ad1e3e"),
];
pub const LINUX_6_1_KRB5I_TCP: &[CapturedKey] = &[
    acceptors(4, Aes256Sha1, "b7e052f08f0880b357ca9f5fa5d6c5c6631e6dedbabdfeb345f8d2e29c966952"),
    acceptors(5, Aes256Sha1, "85ea2ba0590a58b15bd414bfc2cc79fdeec79e5a5062e933e070547b5fe765bc"),
    acceptors(6, Aes256Sha1, "bf84fb108c6f84c76d8a42dee832822cf4c05f19faabd47242c9410134a52bbd"),
];
pub const LINUX_6_1_KRB5P_TCP: &[CapturedKey] = &[
    acceptors(7, Aes256Sha1, "f53b6641bebebd0da7a054c4bfc7b8944c6e311ebf993a07a83baeee76006eb7"),
    acceptors(8, Aes256Sha1, "289a19609c07cdb46e38616c812732956258794509cdd4252a4081b17ab1bb2b"),
    acceptors(9, Aes256Sha1, "88ef5bba51ed374363de82411fec5e0091b9e07cf0f32046cb1e9ac348f97437"),
];
pub const LINUX_6_12_KRB5_SIW: &[CapturedKey] = &[
    key(2, Aes256Sha384, "7d3433129e6f0913f4c2e7957be18a7cbf1d239251898a74a553f4bec44c73f1"),
    key(3, Aes256Sha384, "9abe345f9112be086fd18fedd6768952f0cc7086f1c0014395a6d02f48a3396b"),
    key(4, Aes256Sha384, "ccdde0c28df0df093a25deddbdc1095b06024a4288ef1fa7f41b570528b942a0"),
];
pub const LINUX_6_12_KRB5I_SIW: &[CapturedKey] = &[
    key(5, Aes256Sha384, "1f8bdd20f5ab93d7886bfe58fef2d7a722a2d131d47d5c31749229601e7d9ab4"),
    key(6, Aes256Sha384, "8c617bea883b674ad319cca7cadb1446800d5f88741ef233f16cce3f89d0c5e5"),
    key(7, Aes256Sha384, "fbb5a317ec54ca48ddccf73caebb2b2fa0807a122aceedd5fd132800fe29dde6"),
];
pub const LINUX_6_12_KRB5P_SIW: &[CapturedKey] = &[
    key(8, Aes256Sha384, "fae10cd2f2da18b2b2a21e363ddd9c2ee710bebb043a314927f63bf2e8511cba"),
    key(9, Aes256Sha384, "f156abd0fe56e94f2ec11c257ca88c5d58a585319b627e61bf3eec5592672312"),
    key(10, Aes256Sha384, "f4bbbdf4bd3ed12c5af95ddfa77073a4cd502999b11f9209b581f14e9ef67334"),
];
pub const LINUX_6_12_SYS_SIW: &[CapturedKey] =
    &[key(1, Aes256Sha384, "a823ac90ef13c7a65a2f3387a3d70343cb90a7ee5c666b4738387c53fc90336b")];
pub const LINUX_7_2_KRB5_TCP: &[CapturedKey] = &[
    key(1, Aes256Sha384, "211446400fa027ecea986ba4daa7f3311d85acb1802c6568e08cff6227483c29"),
    key(2, Aes256Sha384, "1174515bedbdcfd14e7266d664e86a667597e6ca7f843a795dc3de136378e1eb"),
    key(3, Aes256Sha384, "c1d6f20957ee992b38f45739c95e522e002c73789b58bffdcc104ab4bcdcb963"),
];
pub const LINUX_7_2_KRB5I_TCP: &[CapturedKey] = &[
    key(4, Aes256Sha384, "259d8475196de13290c35163e62a74b59167536bc206f81d6433e7b4a5acf41d"),
    key(5, Aes256Sha384, "18d815c87208686d2f2b08eb6a84dd18e8b89f299faa403b7aa05b4dffb78342"),
    key(6, Aes256Sha384, "8c5532a181091d462247b44e3b557751adced9345eb2a9873717e87521a93d8d"),
];
pub const LINUX_7_2_KRB5P_TCP: &[CapturedKey] = &[
    key(7, Aes256Sha384, "2a31330e6c68693fa3b47564c97de93cbd156f7c2d2015e2837099fb2440d8e3"),
    key(8, Aes256Sha384, "49b4bc9ea4e467d8942d11129cdf3fe97d2232b94fc1903bdc7e2e33c74c31f3"),
    key(9, Aes256Sha384, "421126dcfe5e94dbd0705fbd5374c527a3a9281b96c4c4e6cb98ae843f0810c1"),
];
pub const LINUX_7_3_KRB5_SIW: &[CapturedKey] = &[
    key(2, Aes256Sha384, "595bcba85d05cf694c2e1831bbc9130f87634389623a1d05b1759c8411f63745"),
    key(3, Aes256Sha384, "695a0f2aede1f7f63e4e4dbf693df6e7a5d604e4f26110e625d63fdb39acea8e"),
    key(4, Aes256Sha384, "826e952471d936108c553e3c8bfc81b23029817d6f7f6842300f445f204b680a"),
];
pub const LINUX_7_3_KRB5I_SIW: &[CapturedKey] = &[
    key(5, Aes256Sha384, "4ad412a895b5be385cf9ee043a525c9b3991a3e928d1c839bd33ce2284fa17fe"),
    key(6, Aes256Sha384, "ac6fef7e3746277c37c4ce4fdb5fc3020b0efa292d8811a6b033a51b90c17ebf"),
    key(7, Aes256Sha384, "6241225bf62732def7d6c0c9806313dd92d637a7a609c1cb763a5f895f975d8c"),
];
pub const LINUX_7_3_KRB5P_SIW: &[CapturedKey] = &[
    key(8, Aes256Sha384, "7b46c572239367e44b692be5bce35e5656260d2d9bea8dda3ec911b277b7eb73"),
    key(9, Aes256Sha384, "1844159d559473de5279f5702ad0d57967964824ee0c7c30956c3853be4d2d6a"),
    key(10, Aes256Sha384, "10dc65ac58931bfe438a60a12214c9786d750952c9b5efc03fc9ff41ca70b252"),
];
pub const LINUX_7_3_SYS_SIW: &[CapturedKey] =
    &[key(1, Aes256Sha384, "5b261b8ae8af8326c4885140d863dd2d02fa600959101d6385834f10a5362ddf")];
