//! Inputs of the fuzz targets of RPCSEC_GSS (`tests/fuzz/corpus/gss_*`), to write and to compare.
//! They are cut from the captures.
//!
//! `STAG_WRITE_CORPORA=1 cargo test -p stag-gss corpora` writes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use stag_protocol::{
    rpc::{
        CallHeader, ReplyHeader,
        gss::{GssCredential, GssService},
    },
    xdr::Reader,
};

use super::messages::{Exchange, exchanges};

/// Octets of the longest input that is worth sweeping.
const INPUT_MAX: usize = 1024;

/// A protected call of every length of token: enctypes 18 and 20.
const FILES: [(&str, &[u8], u32); 4] = [
    ("18-integrity", include_bytes!("linux-6.1-krb5i-tcp.pcap"), 0),
    ("18-privacy", include_bytes!("linux-6.1-krb5p-tcp.pcap"), 0),
    ("20-integrity", include_bytes!("linux-6.12-krb5i-siw.pcap"), 64),
    ("20-privacy", include_bytes!("linux-6.12-krb5p-siw.pcap"), 64),
];

/// Inputs by target and name. The first of a name is kept.
#[derive(Default)]
struct Corpora(BTreeMap<(&'static str, String), Vec<u8>>);

impl Corpora {
    fn add(&mut self, target: &'static str, name: String, input: Vec<u8>) {
        if input.len() <= INPUT_MAX {
            self.0.entry((target, name)).or_insert(input);
        }
    }

    /// A body, and the token in it.
    fn add_body(
        &mut self,
        file: &str,
        name: &str,
        service: GssService,
        sequence: u32,
        body: &[u8],
    ) {
        let choice = u32::from(service == GssService::Privacy);
        let input = [&choice.to_be_bytes()[..], &sequence.to_be_bytes(), body].concat();
        self.add("gss_body", format!("{file}-{name}"), input);
        let (how, token) = match service {
            GssService::Privacy => (1, super::body_token(service, body)),
            _ => (0, super::body_token(service, body)),
        };
        let enctype = if file.starts_with("18") { 1 } else { 3 };
        let subkey = token[2] >> 2 & 1;
        let input = [&[how, enctype, subkey, 63][..], token].concat();
        self.add("gss_token", format!("{file}-{name}"), input);
    }

    fn add_exchange(&mut self, file: &str, exchange: &Exchange) {
        let mut call = Reader::new(&exchange.call);
        let header = CallHeader::parse(&mut call).unwrap();
        let Some(Ok(credential)) = header.credential.gss() else { return };
        let arguments = &exchange.call[exchange.call.len() - call.remaining()..];
        let mut reply = Reader::new(&exchange.reply);
        ReplyHeader::parse(&mut reply).unwrap();
        let results = &exchange.reply[exchange.reply.len() - reply.remaining()..];
        let body_at = 32..32 + exchange.call[31] as usize;
        let name = format!("{:?}", credential.procedure()).to_lowercase();
        self.add("gss_credential", format!("{file}-{name}"), exchange.call[body_at].to_vec());
        match credential {
            GssCredential::Init => {
                self.add("gss_init", format!("{file}-call"), [&[0; 4], arguments].concat());
                self.add("gss_init", format!("{file}-reply"), [&[0, 0, 0, 1], results].concat());
            }
            GssCredential::Data(data) if file.ends_with(&name_of(data.service)) => {
                self.add_body(file, "call", data.service, data.sequence, arguments);
                self.add_body(file, "reply", data.service, data.sequence, results);
            }
            _ => {}
        }
    }
}

fn name_of(service: GssService) -> String {
    format!("{service:?}").to_lowercase()
}

#[test]
fn the_corpora_of_the_fuzz_targets_are_what_the_captures_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus");
    let mut corpora = Corpora::default();
    for (name, file, grant) in FILES {
        exchanges(file, grant).iter().for_each(|exchange| corpora.add_exchange(name, exchange));
    }
    for ((target, name), input) in &corpora.0 {
        let file = folder.join(target).join(name);
        if std::env::var_os("STAG_WRITE_CORPORA").is_some() {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, input).unwrap();
        }
        assert!(fs::read(&file).is_ok_and(|kept| kept == *input), "{}", file.display());
    }
    let targets: BTreeSet<_> = corpora.0.keys().map(|(target, _)| *target).collect();
    assert_eq!(targets.len(), 4, "{targets:?}");
}
