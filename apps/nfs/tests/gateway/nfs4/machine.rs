//! Clients whose state is protected by the credential of their machine (SP4_MACH_CRED, RFC 8881
//! §2.10.8.3, §18.35.3).

use super::{
    client::{Client4, ServedExport, session_args},
    flavors::on_files,
};
use crate::gateway::flavors::{credential, memory, over_tcp};
use stag_nfs_store::Security;
use stag_protocol::nfs::v4::*;

const OWNER: &[u8] = b"machine";

/// The operations that Linux asks for.
fn asked() -> ProtectedOperations {
    let enforce = Bitmap::of([41, 42, 43, 44, 57]);
    ProtectedOperations { enforce, allow: Bitmap::of([4, 5, 8, 14, 21, 38, 45, 55]) }
}

fn client() -> Client4 {
    let store = memory(&[Security::Krb5p]);
    Client4::on(over_tcp(store), ServedExport::new(b"data", ()), 2)
}

fn exchange(
    client: &mut Client4,
    by: Security,
    protection: StateProtection<'_>,
) -> Result<(u64, u32, Option<ProtectedOperations>), Status4> {
    client.credential = credential(by);
    let owner = ClientOwner { verifier: [1; 8], owner: Text(OWNER) };
    let args = ExchangeIdArgs { client: owner, flags: 0, protection, implementation: None };
    match client.send(&[Request::ExchangeId(args)]).last() {
        Answer::ExchangeId(done) => done.map(|ok| {
            let granted = match ok.protection {
                GrantedProtection::MachineCredential(operations) => Some(operations),
                _ => None,
            };
            (ok.client_id, ok.sequence, granted)
        }),
        other => panic!("{other:?}"),
    }
}

fn status(client: &mut Client4, by: Security, request: Request<'_>) -> Status4 {
    client.credential = credential(by);
    client.send(&[request]).status()
}

/// A client that is protected, and its ID.
fn protected() -> (Client4, u64) {
    protect(client())
}

fn protect(mut client: Client4) -> (Client4, u64) {
    let machine = StateProtection::MachineCredential(asked());
    let (id, sequence, granted) = exchange(&mut client, Security::Krb5i, machine).unwrap();
    let granted = granted.expect("it is granted");
    assert_eq!(granted.enforce, asked().enforce);
    assert_eq!(granted.allow, Bitmap::of([4, 8, 14, 21, 45, 55]), "no writes by the machine");
    for weak in [Security::Sys, Security::Krb5] {
        let refused = status(&mut client, weak, Request::CreateSession(session_args(id, sequence)));
        assert_eq!(refused, Status4::WrongCred, "{weak:?}");
    }
    client.credential = credential(Security::Krb5i);
    client.id = id;
    client.session = client.create_session(sequence).unwrap().session;
    client.sequences = [0; 64];
    assert_eq!(client.run(&[Request::ReclaimComplete(false)]).status(), Status4::Ok);
    (client, id)
}

#[test]
fn it_is_asked_for_by_a_ticket_with_integrity() {
    let mut client = client();
    for weak in [Security::None, Security::Sys, Security::Krb5] {
        let asks = StateProtection::MachineCredential(asked());
        assert_eq!(exchange(&mut client, weak, asks), Err(Status4::Inval), "{weak:?}");
    }
    let (_, _, granted) = exchange(&mut client, Security::Krb5p, StateProtection::None).unwrap();
    assert_eq!(granted, None, "only to those who ask");
}

#[test]
fn what_ends_a_client_needs_the_credential_of_its_machine() {
    let (mut client, id) = protected();
    let session = client.session;
    let wish = ChannelWish::Fore;
    let bind = || Request::BindConnToSession(BindConnArgs { session, wish, rdma_mode: false });
    for weak in [Security::None, Security::Sys, Security::Krb5] {
        for request in [Request::DestroySession(session), Request::DestroyClientid(id), bind()] {
            assert_eq!(status(&mut client, weak, request), Status4::WrongCred, "{weak:?}");
        }
    }
    assert_eq!(
        exchange(&mut client, Security::Krb5, StateProtection::None),
        Err(Status4::WrongCred)
    );
    assert_eq!(status(&mut client, Security::Krb5p, bind()), Status4::Ok);
    let end = [Request::DestroySession(session), Request::DestroyClientid(id)];
    for request in end {
        assert_eq!(status(&mut client, Security::Krb5i, request), Status4::Ok);
    }
}

#[test]
fn its_session_is_used_over_connections_that_are_bound_to_it() {
    let (mut client, _) = protected();
    let session = client.session;
    client.credential = credential(Security::Krb5p);
    assert_eq!(client.run(&[]).status(), Status4::Ok);
    client.wire.connect_from(1);
    let sequence = client.sequence_of(0, 2, false);
    assert_eq!(
        client.send(std::slice::from_ref(&sequence)).status(),
        Status4::ConnNotBoundToSession
    );
    let wish = ChannelWish::Fore;
    let bind = Request::BindConnToSession(BindConnArgs { session, wish, rdma_mode: false });
    assert_eq!(status(&mut client, Security::Krb5i, bind), Status4::Ok);
    assert_eq!(client.send(&[sequence]).status(), Status4::Ok);
}

#[test]
fn the_machine_lets_state_go_whatever_the_export_asks_for() {
    let (on_files, ..) = on_files([&[Security::Krb5p], &[]]);
    for client in [client(), on_files] {
        let (mut client, _) = protect(client);
        client.credential = credential(Security::Krb5p);
        let (stateid, handle) = client.open(b"file");
        let put = || Request::PutFh(Text(&handle));
        client.credential = credential(Security::Krb5i);
        let read = client.run(&[put(), Request::GetAttr(Bitmap::of([1]))]);
        assert_eq!(read.status(), Status4::WrongSec, "the export asks for privacy");
        let close = client.run(&[put(), Request::Close(Close4Args { seqid: 0, open: stateid })]);
        assert_eq!(close.status(), Status4::Ok);
    }
}

#[test]
fn what_is_not_enforced_needs_a_host_of_the_client() {
    for enforced in [&[43, 57][..], &[41], &[]] {
        let mut client = client();
        let operations =
            ProtectedOperations { enforce: Bitmap::of(enforced.to_vec()), allow: Bitmap::EMPTY };
        let machine = StateProtection::MachineCredential(operations);
        let (id, sequence, _) = exchange(&mut client, Security::Krb5i, machine).unwrap();
        client.id = id;
        client.session = client.create_session_of(session_args(id, sequence)).unwrap().session;
        let session = client.session;
        client.wire.connect_from(9);
        let wish = ChannelWish::ForeOrBoth;
        let bind = || Request::BindConnToSession(BindConnArgs { session, wish, rdma_mode: false });
        for _ in 0..2 {
            for request in [bind(), Request::DestroySession(session), client.sequence(false)] {
                let refused = status(&mut client, Security::None, request);
                assert_ne!(refused, Status4::Ok, "{enforced:?}");
            }
        }
        client.wire.call_over(0);
        client.sequences = [0; 64];
        client.credential = credential(Security::Krb5p);
        assert_eq!(client.run(&[]).status(), Status4::Ok, "{enforced:?}");
    }
}
