//! RPCSEC_GSS: credentials, creation of contexts, protected bodies and tokens.

use stag_protocol::{
    rpc::gss::{
        CREDENTIAL_MAX, GssCredential, GssData, GssService, InitArguments, InitResults, MAXSEQ,
        MajorStatus,
    },
    xdr::Codec,
};

use crate::{octets::written, random::FuzzRandom};

/// The body of a credential.
pub fn gss_credential(random: &mut FuzzRandom) -> Vec<u8> {
    let len = 1 + random.below(32);
    let handle = random.octets(len);
    let service = random.pick(&[GssService::None, GssService::Integrity, GssService::Privacy]);
    let data = GssData { sequence: random.word() % MAXSEQ, service, handle: &handle };
    let credential = match random.below(8) {
        0 => GssCredential::Init,
        1 => GssCredential::ContinueInit { handle: &handle },
        2 => GssCredential::Destroy(data),
        _ => GssCredential::Data(data),
    };
    credential.emit(&mut [0; CREDENTIAL_MAX]).unwrap().to_vec()
}

/// Arguments or results of the creation of a context.
pub fn gss_init(random: &mut FuzzRandom) -> Vec<u8> {
    let (len, handle_len) = (random.below(200), random.below(33));
    let (token, handle) = (random.octets(len), random.octets(handle_len));
    let which = random.below(2) as u32;
    let octets = if which == 0 {
        written(|writer| InitArguments { token: &token }.emit(writer))
    } else if random.one_in(4) {
        let failed = InitResults::failed(MajorStatus::FAILURE, random.word(), &token);
        written(|writer| failed.emit(writer))
    } else {
        let (minor, window) = (random.word(), random.word());
        let major = MajorStatus::COMPLETE;
        let results = InitResults { handle: &handle, major, minor, window, token: &token };
        written(|writer| results.emit(writer))
    };
    [&which.to_be_bytes()[..], &octets].concat()
}

/// A protected body.
pub fn gss_body(random: &mut FuzzRandom) -> Vec<u8> {
    let (len, checksum_len) = (4 * random.below(50), random.below(48));
    let (arguments, checksum) = (random.octets(len), random.octets(checksum_len));
    let (sequence, service) = (random.word(), random.below(2) as u32);
    let inner = [&sequence.to_be_bytes()[..], &arguments].concat();
    let octets = written(|writer| {
        if service == 0 {
            writer.opaque(&inner)?;
            writer.opaque(&checksum)
        } else {
            writer.opaque(&[inner, checksum].concat())
        }
    });
    [&service.to_be_bytes()[..], &sequence.to_be_bytes(), &octets].concat()
}

/// A token: mostly the header and plaintext of a sealed one.
pub fn gss_token(random: &mut FuzzRandom) -> Vec<u8> {
    let (how, subkey) = (random.below(4) as u8, random.below(2) as u8);
    let mut input = vec![how, random.below(4) as u8, subkey, random.below(256) as u8];
    let is_mic = how % 3 == 0;
    let extra = if random.one_in(2) { random.below(18) as u8 } else { 0 };
    let mut header = if is_mic {
        [4, 4, subkey << 2, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 9]
    } else {
        [5, 4, subkey << 2 | 2, 0xFF, 0, extra, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]
    };
    let copied = header;
    if random.one_in(4) && !is_mic {
        header[6..8].copy_from_slice(&(random.word() as u16).to_be_bytes());
    }
    let len = if is_mic { [12, 16, 24][random.below(3)] } else { 16 + random.below(200) };
    input.extend(header);
    input.extend(random.octets(len));
    if !is_mic {
        input.extend(copied);
    }
    input
}
