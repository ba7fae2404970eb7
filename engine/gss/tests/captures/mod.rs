//! Every message of Linux clients and Linux servers is verified, opened, and made again octet for
//! octet; see `README.md` next to this file.

mod corpora;
mod keys;
mod messages;

use std::collections::BTreeMap;

use stag_gss::{AcceptorContext, CallFault, ContextKey, InitiatorContext, VerifiedCall};
use stag_protocol::{
    rpc::{
        Accepted, Auth, CallHeader, Credential, Outcome, ReplyHeader,
        gss::{
            GssCredential, GssProcedure, GssService, InitArguments, InitResults, MajorStatus,
            signed_header,
        },
    },
    xdr::{Codec, Reader, Writer},
};

use keys::CapturedKey;
use messages::Exchange;

/// Messages of one capture: calls, each with its reply.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Without RPCSEC_GSS, the reverse direction included.
    other: usize,
    /// That create a context.
    init: usize,
    /// That end a context.
    destroy: usize,
    /// By service: none, integrity, privacy.
    data: [usize; 3],
    /// Octets of arguments and of results under integrity or privacy.
    octets: [usize; 2],
}

struct Ends {
    client: InitiatorContext,
    server: AcceptorContext,
}

/// The number in a checksum token or a sealed token.
fn token_sequence(token: &[u8]) -> u64 {
    u64::from_be_bytes(token[8..16].try_into().unwrap())
}

/// The token of a body: its checksum under integrity, all of it under privacy.
fn body_token(service: GssService, body: &[u8]) -> &[u8] {
    let word = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().unwrap()) as usize;
    match service {
        GssService::None => &[0; 16],
        GssService::Integrity => &body[4 + word(0).next_multiple_of(4) + 4..],
        GssService::Privacy => &body[4..4 + word(0)],
    }
}

/// The random octets of a sealed body that was opened in place.
fn confounder(service: GssService, opened: &[u8]) -> [u8; 16] {
    match service {
        GssService::Privacy => opened[4 + 16..4 + 32].try_into().unwrap(),
        _ => [0; 16],
    }
}

/// Arguments or results with room around them for `service`.
fn with_room(ends: &Ends, service: GssService, inner: &[u8]) -> Vec<u8> {
    let room = ends.server.keys().room(service);
    [&vec![0xEE; room.front], inner, &vec![0xEE; room.back]].concat()
}

fn emitted(emit: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = vec![0; 4096];
    let mut writer = Writer::new(&mut out);
    emit(&mut writer);
    writer.written().to_vec()
}

/// Arguments are opened, found to be what is expected of them, and protected again.
fn check_arguments(ends: &Ends, call: &VerifiedCall, body: &[u8], seen: &mut Seen) {
    let service = call.service();
    let mut opened = body.to_vec();
    let arguments = ends.server.open_arguments(call, &mut opened).unwrap();
    let sequence = token_sequence(body_token(service, body));
    let mut again = with_room(ends, service, &opened[arguments.clone()]);
    let confounder = confounder(service, &opened);
    ends.client.protect_arguments(&call.protection(sequence), &mut again, &confounder).unwrap();
    assert!(again == body, "the client's {} octets", body.len());
    if service != GssService::None {
        seen.octets[0] += arguments.len();
    }
}

fn check_results(ends: &Ends, call: VerifiedCall, body: &[u8], seen: &mut Seen) {
    let service = call.service();
    let mut opened = body.to_vec();
    let results = ends.client.open_results(service, call.sequence(), &mut opened).unwrap();
    let sequence = token_sequence(body_token(service, body));
    let mut again = with_room(ends, service, &opened[results.clone()]);
    let confounder = confounder(service, &opened);
    ends.server.protect_results(&call, sequence, &mut again, &confounder).unwrap();
    assert!(again == body, "the server's {} octets", body.len());
    if service != GssService::None {
        seen.octets[1] += results.len();
    }
}

/// A call inside a context, and the header of its reply; returns the octets of the results.
fn check_call<'e>(
    ends: &Ends,
    credential: &GssCredential<'_>,
    exchange: &'e Exchange,
    seen: &mut Seen,
) -> (VerifiedCall, &'e [u8]) {
    let (GssCredential::Data(data) | GssCredential::Destroy(data)) = credential else { panic!() };
    let mut reader = Reader::new(&exchange.call);
    let header = signed_header(&reader).unwrap();
    let call = CallHeader::parse(&mut reader).unwrap();
    let body = &exchange.call[exchange.call.len() - reader.remaining()..];
    let again = ends.client.sign_call(header, token_sequence(call.verifier.body));
    assert_eq!(*again, *call.verifier.body);
    let verified = ends.server.verify_call(header, &call.verifier).unwrap();
    let twice = ends.server.verify_call(header, &call.verifier);
    assert_eq!(twice, Err(CallFault::Replayed));
    match credential.procedure() {
        GssProcedure::Data => check_arguments(ends, &verified, body, seen),
        _ => assert_eq!(body, [], "Linux' client protects no arguments where there are none"),
    }

    let mut reader = Reader::new(&exchange.reply);
    let reply = ReplyHeader::parse(&mut reader).unwrap();
    let Outcome::Accepted { verifier, status: Accepted::Success } = reply.outcome else {
        panic!("{reply:?}")
    };
    let outstanding = [data.sequence + 2, data.sequence + 1, data.sequence];
    assert_eq!(ends.client.verify_reply(&verifier, &outstanding), Ok(data.sequence));
    assert!(ends.client.verify_reply(&verifier, &outstanding[..2]).is_err());
    let again = ends.server.sign_reply(&verified, token_sequence(verifier.body));
    assert_eq!(*again, *verifier.body);
    (verified, &exchange.reply[exchange.reply.len() - reader.remaining()..])
}

fn check_init(contexts: &BTreeMap<Vec<u8>, Ends>, exchange: &Exchange) {
    let mut reader = Reader::new(&exchange.call);
    let call = CallHeader::parse(&mut reader).unwrap();
    assert_eq!((call.procedure, call.verifier), (0, Auth::NONE));
    let body = &exchange.call[exchange.call.len() - reader.remaining()..];
    let arguments: InitArguments<'_> = reader.whole().unwrap();
    assert_eq!(emitted(|writer| arguments.emit(writer).unwrap()), body);

    let mut reader = Reader::new(&exchange.reply);
    let reply = ReplyHeader::parse(&mut reader).unwrap();
    let Outcome::Accepted { verifier, status: Accepted::Success } = reply.outcome else {
        panic!("{reply:?}")
    };
    let body = &exchange.reply[exchange.reply.len() - reader.remaining()..];
    let results: InitResults<'_> = reader.whole().unwrap();
    assert_eq!(emitted(|writer| results.emit(writer).unwrap()), body);
    assert_eq!((results.major, results.window), (MajorStatus::COMPLETE, 128));
    let ends = &contexts[results.handle];
    ends.client.verify_window(results.window, &verifier).unwrap();
    assert!(ends.client.verify_window(results.window + 1, &verifier).is_err());
    let window = results.window.to_be_bytes();
    let again = ends.server.keys().mic(token_sequence(verifier.body), [&window[..]]);
    assert_eq!(*again, *verifier.body);
}

/// Follows a capture to its end.
fn follow(file: &[u8], keys: &[CapturedKey], grant: u32) -> Seen {
    let contexts: BTreeMap<Vec<u8>, Ends> = keys
        .iter()
        .map(|captured| {
            let CapturedKey { handle, enctype, acceptor_subkey, octets } = *captured;
            let octets = crate::hex(octets);
            let key = ContextKey { enctype, octets: &octets, acceptor_subkey };
            let (client, server) = crate::contexts(&key);
            (vec![handle, 0, 0, 0], Ends { client, server })
        })
        .collect();
    let mut seen = Seen::default();
    for exchange in messages::exchanges(file, grant) {
        let mut reader = Reader::new(&exchange.call);
        let call = CallHeader::parse(&mut reader).unwrap();
        let header = emitted(|writer| call.emit(writer).unwrap());
        assert_eq!(header, exchange.call[..header.len()]);
        let Some(credential) = call.credential.gss() else {
            seen.other += 1;
            continue;
        };
        let credential = credential.unwrap();
        let mut room = [0; stag_protocol::rpc::gss::CREDENTIAL_MAX];
        let body = credential.emit(&mut room).unwrap();
        assert_eq!(call.credential, Credential::Other(Auth::gss(body)));
        match credential {
            GssCredential::Init => {
                check_init(&contexts, &exchange);
                seen.init += 1;
            }
            GssCredential::Data(data) => {
                let ends = &contexts[data.handle];
                let (call, results) = check_call(ends, &credential, &exchange, &mut seen);
                check_results(ends, call, results, &mut seen);
                seen.data[data.service as usize - 1] += 1;
            }
            GssCredential::Destroy(data) => {
                let (_, results) =
                    check_call(&contexts[data.handle], &credential, &exchange, &mut seen);
                assert_eq!(results, [], "Linux' server has no results to protect");
                seen.destroy += 1;
            }
            GssCredential::ContinueInit { .. } => panic!("Kerberos needs one round"),
        }
    }
    seen
}

#[test]
fn linux_6_1_krb5_tcp() {
    let seen = follow(include_bytes!("linux-6.1-krb5-tcp.pcap"), keys::LINUX_6_1_KRB5_TCP, 64);
    assert_eq!(
        seen,
        Seen { other: 2, init: 3, destroy: 0, data: [27, 10, 0], octets: [1244, 1164] }
    );
}

#[test]
fn linux_6_1_krb5i_tcp() {
    let seen = follow(include_bytes!("linux-6.1-krb5i-tcp.pcap"), keys::LINUX_6_1_KRB5I_TCP, 64);
    assert_eq!(
        seen,
        Seen { other: 2, init: 3, destroy: 3, data: [0, 40, 0], octets: [104464, 107888] }
    );
}

#[test]
fn linux_6_1_krb5p_tcp() {
    let seen = follow(include_bytes!("linux-6.1-krb5p-tcp.pcap"), keys::LINUX_6_1_KRB5P_TCP, 64);
    assert_eq!(
        seen,
        Seen { other: 2, init: 3, destroy: 3, data: [0, 13, 27], octets: [104464, 108548] }
    );
}

#[test]
fn linux_6_12_krb5_siw() {
    let seen = follow(include_bytes!("linux-6.12-krb5-siw.pcap"), keys::LINUX_6_12_KRB5_SIW, 64);
    assert_eq!(
        seen,
        Seen { other: 2, init: 3, destroy: 2, data: [31, 12, 0], octets: [1368, 1200] }
    );
}

#[test]
fn linux_6_12_krb5i_siw() {
    let seen = follow(include_bytes!("linux-6.12-krb5i-siw.pcap"), keys::LINUX_6_12_KRB5I_SIW, 64);
    assert_eq!(
        seen,
        Seen { other: 2, init: 3, destroy: 3, data: [0, 47, 0], octets: [104936, 108416] }
    );
}

#[test]
fn linux_6_12_krb5p_siw() {
    let seen = follow(include_bytes!("linux-6.12-krb5p-siw.pcap"), keys::LINUX_6_12_KRB5P_SIW, 64);
    assert_eq!(
        seen,
        Seen { other: 2, init: 3, destroy: 3, data: [0, 12, 39], octets: [105296, 109312] }
    );
}

#[test]
fn linux_6_12_sys_siw() {
    let seen = follow(include_bytes!("linux-6.12-sys-siw.pcap"), keys::LINUX_6_12_SYS_SIW, 64);
    assert_eq!(seen, Seen { other: 46, init: 1, destroy: 0, data: [0, 4, 0], octets: [656, 396] });
}

#[test]
fn linux_7_2_krb5_tcp() {
    let seen = follow(include_bytes!("linux-7.2-krb5-tcp.pcap"), keys::LINUX_7_2_KRB5_TCP, 64);
    assert_eq!(seen, Seen { other: 2, init: 3, destroy: 0, data: [38, 7, 0], octets: [908, 868] });
}

#[test]
fn linux_7_2_krb5i_tcp() {
    let seen = follow(include_bytes!("linux-7.2-krb5i-tcp.pcap"), keys::LINUX_7_2_KRB5I_TCP, 64);
    assert_eq!(
        seen,
        Seen { other: 1, init: 3, destroy: 0, data: [0, 21, 0], octets: [102528, 3664] }
    );
}

#[test]
fn linux_7_2_krb5p_tcp() {
    let seen = follow(include_bytes!("linux-7.2-krb5p-tcp.pcap"), keys::LINUX_7_2_KRB5P_TCP, 64);
    assert_eq!(
        seen,
        Seen { other: 2, init: 3, destroy: 2, data: [0, 13, 43], octets: [106000, 110136] }
    );
}

#[test]
fn linux_7_3_krb5_siw() {
    let seen = follow(include_bytes!("linux-7.3-krb5-siw.pcap"), keys::LINUX_7_3_KRB5_SIW, 128);
    assert_eq!(
        seen,
        Seen { other: 2, init: 3, destroy: 2, data: [28, 12, 0], octets: [1508, 1412] }
    );
}

#[test]
fn linux_7_3_krb5i_siw() {
    let seen = follow(include_bytes!("linux-7.3-krb5i-siw.pcap"), keys::LINUX_7_3_KRB5I_SIW, 128);
    assert_eq!(
        seen,
        Seen { other: 2, init: 3, destroy: 0, data: [0, 45, 0], octets: [104812, 108036] }
    );
}

#[test]
fn linux_7_3_krb5p_siw() {
    let seen = follow(include_bytes!("linux-7.3-krb5p-siw.pcap"), keys::LINUX_7_3_KRB5P_SIW, 128);
    assert_eq!(
        seen,
        Seen { other: 2, init: 3, destroy: 2, data: [0, 12, 36], octets: [105124, 108956] }
    );
}

#[test]
fn linux_7_3_sys_siw() {
    let seen = follow(include_bytes!("linux-7.3-sys-siw.pcap"), keys::LINUX_7_3_SYS_SIW, 128);
    assert_eq!(seen, Seen { other: 38, init: 1, destroy: 0, data: [0, 5, 0], octets: [712, 700] });
}
