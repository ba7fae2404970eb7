//! Heap allocations of a call and its reply: none at either end, for all services and enctypes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[path = "../../../tests/counting/mod.rs"]
mod counting;
mod header;

use counting::allocations;
use stag_gss::{AcceptorContext, ContextKey, Enctype, InitiatorContext, Protection};
use stag_protocol::rpc::{
    Auth,
    gss::{GssCredential, GssData, GssService},
};

#[test]
fn a_call_and_its_reply_allocate_nothing() {
    const LEN: usize = 100_000;
    let mut body = vec![0; LEN + 200];
    for enctype in Enctype::ALL {
        let octets = vec![7; enctype.key_len()];
        let key = ContextKey { enctype, octets: &octets, acceptor_subkey: true };
        let client = InitiatorContext::new(&key, 0).unwrap();
        let server = AcceptorContext::new(&key).unwrap();
        for service in [GssService::None, GssService::Integrity, GssService::Privacy] {
            let before = allocations();
            let sequence = client.next_sequence().unwrap();
            let mut octets = [0; header::ROOM];
            let data = GssData { sequence, service, handle: &[1] };
            let header = header::header(&GssCredential::Data(data), &mut octets);
            let verifier = client.sign_call(header, 1);
            let room = client.keys().room(service);
            let body = &mut body[..room.front + LEN + room.back];
            let protection = Protection { service, sequence, token_sequence: 1 };
            client.protect_arguments(&protection, body, &[2; 16]).unwrap();
            let call = server.verify_call(header, &Auth::gss(&verifier)).unwrap();
            let arguments = server.open_arguments(&call, body).unwrap();
            assert_eq!(arguments.len(), LEN);
            let verifier = server.sign_reply(&call, 1);
            server.protect_results(&call, 1, body, &[3; 16]).unwrap();
            client.verify_reply(&Auth::gss(&verifier), &[sequence]).unwrap();
            client.open_results(service, sequence, body).unwrap();
            assert_eq!(allocations(), before, "{enctype:?} {service:?}");
        }
    }
}
