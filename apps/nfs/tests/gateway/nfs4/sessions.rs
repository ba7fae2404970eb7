//! Clients, sessions, slots and replays (RFC 8881 §2.10, §18.35–§18.37, §18.46).

use super::client::{CONFIG, Client4, ServedExport, memory, session_args};
use crate::gateway::wire::OverTcp;
use stag_engine::Config;
use stag_nfs::{Gateway, Nfs4Config};
use stag_protocol::{
    nfs::v4::*,
    rpc::{AuthSys, Credential, Gids},
};
use std::time::Duration;

fn make_directory(name: &[u8]) -> Request<'_> {
    Request::Create(Create4Args {
        kind: CreateKind::Directory,
        name: Text(name),
        attributes: RawAttributes::default(),
    })
}

#[test]
fn a_session_has_the_sizes_that_linux_checks() {
    let mut client = Client4::in_memory();
    let (id, sequence) = client.exchange_id(b"another", 1).unwrap();
    let asked = session_args(id, sequence);
    let ok = client.create_session_of(asked.clone()).unwrap();
    assert!(ok.fore.operations_max >= 8 && ok.fore.operations_max <= asked.fore.operations_max);
    assert_eq!(ok.fore.request_max, asked.fore.request_max);
    assert_eq!(ok.fore.response_max, asked.fore.response_max);
    assert_eq!(
        (ok.back.request_max, ok.back.response_max),
        (asked.back.request_max, asked.back.response_max),
        "neither more nor less"
    );
    assert_eq!(ok.flags, session_flag::CONN_BACK_CHAN, "replies do not survive a restart");
}

#[test]
fn a_call_that_comes_again_gets_its_reply_and_is_not_carried_out_again() {
    for mut client in Client4::all() {
        let export = client.export();
        let requests = [
            client.sequence(true),
            Request::PutRootFh(()),
            Request::Lookup(Text(export)),
            make_directory(b"d"),
            Request::GetFh(()),
        ];
        let first = client.send(&requests);
        assert_eq!(first.status(), Status4::Ok);
        assert_eq!(client.send(&requests), first);
        assert_eq!(client.send(&requests), first);
        let next = client.at_export(&[make_directory(b"d")]);
        assert_eq!(next.status(), Status4::Exist, "it was made once");
        assert_eq!(client.wire.report().nfs4.replayed, 2);
    }
}

#[test]
fn a_failure_is_replayed_as_well() {
    let mut client = Client4::in_memory();
    let requests = [client.sequence(true), Request::PutRootFh(()), Request::Lookup(Text(b"no"))];
    let first = client.send(&requests);
    assert_eq!(first.status(), Status4::NoEnt);
    assert_eq!(client.send(&requests), first);
}

#[test]
fn a_reply_that_was_not_kept_is_not_made_again() {
    let mut client = Client4::in_memory();
    let export = client.export();
    let requests = [
        client.sequence(false),
        Request::PutRootFh(()),
        Request::Lookup(Text(export)),
        make_directory(b"d"),
    ];
    assert_eq!(client.send(&requests).status(), Status4::Ok);
    let again = client.send(&requests);
    assert_eq!(again.status(), Status4::RetryUncachedRep);
    let answers = again.answers();
    assert!(matches!(answers[..], [Answer::Sequence(Ok(_)), _]), "{answers:?}");
    let alone = [client.sequence(false)];
    let first = client.send(&alone);
    assert_eq!(client.send(&alone), first, "SEQUENCE alone can always be made again");
}

#[test]
fn a_retry_that_differs_is_a_false_one() {
    let mut client = Client4::in_memory();
    let sequence = client.sequence(true);
    let first = client.send(&[sequence.clone(), Request::PutRootFh(()), Request::GetFh(())]);
    assert_eq!(first.status(), Status4::Ok);
    let other = [sequence.clone(), Request::PutRootFh(())];
    assert_eq!(client.send(&other).status(), Status4::SeqFalseRetry);
    let gids = Gids::new(&[]).unwrap();
    let stranger = AuthSys { stamp: 1, machine_name: b"client", uid: 7, gid: 7, gids };
    let own = std::mem::replace(&mut client.credential, Credential::Sys(stranger));
    let same = [sequence.clone(), Request::PutRootFh(()), Request::GetFh(())];
    assert_eq!(client.send(&same).status(), Status4::SeqFalseRetry, "another user");
    client.credential = own;
    let twin = [sequence.clone(), Request::PutPubFh(()), Request::GetFh(())];
    assert_eq!(client.send(&twin).status(), Status4::SeqFalseRetry, "no octet but one differs");
    assert_eq!(client.send(&same), first, "nothing of it touched the slot");
}

#[test]
fn an_error_of_sequence_leaves_its_slot_as_it_was() {
    let mut client = Client4::in_memory();
    let next = client.sequences[0] + 1;
    for (sequence, expected) in [
        (client.sequence_of(0, next + 1, true), Status4::SeqMisordered),
        (client.sequence_of(64, 1, true), Status4::BadSlot),
        (client.sequence_of(5, 2, true), Status4::SeqMisordered),
    ] {
        assert_eq!(client.send(&[sequence]).status(), expected);
    }
    let Request::Sequence(args) = client.sequence_of(0, next, true) else { unreachable!() };
    let unknown = SequenceArgs { session: [9; 16], ..args };
    assert_eq!(client.send(&[Request::Sequence(unknown)]).status(), Status4::BadSession);
    let high = SequenceArgs { highest_slot: 64, ..args };
    assert_eq!(client.send(&[Request::Sequence(high)]).status(), Status4::BadHighSlot);
    let many: Vec<_> = std::iter::once(Request::Sequence(args))
        .chain(std::iter::repeat_n(Request::PutRootFh(()), 16))
        .collect();
    assert_eq!(client.send(&many).status(), Status4::TooManyOps);
    assert_eq!(client.send(&[Request::Sequence(args)]).status(), Status4::Ok);
}

#[test]
fn a_reply_that_would_be_too_long_is_refused_before_its_operation() {
    let mut client = Client4::in_memory();
    let (id, sequence) = client.exchange_id(b"narrow", 1).unwrap();
    let mut args = session_args(id, sequence);
    (args.fore.response_max, args.fore.response_cached_max) = (600, 300);
    client.session = client.create_session_of(args).unwrap().session;
    client.sequences = [0; 64];
    let complete = client.run(&[Request::ReclaimComplete(false)]);
    assert_eq!(complete.status(), Status4::Ok);
    let all = Bitmap::of((0..=55).filter(|number| ![12, 48, 54].contains(number)));
    let getattr = [Request::PutRootFh(()), Request::GetAttr(all)];
    assert_eq!(client.run(&getattr).status(), Status4::RepTooBig);
    let export = client.export();
    let cached = [
        client.sequence(true),
        Request::PutRootFh(()),
        Request::Lookup(Text(export)),
        make_directory(b"d"),
        Request::GetAttr(Bitmap::of([1, 3, 4, 8, 20, 33, 35, 36, 37])),
    ];
    let refused = client.send(&cached);
    assert_eq!(refused.status(), Status4::RepTooBigToCache);
    assert_eq!(client.send(&cached), refused, "what was done before is not done again");
}

#[test]
fn create_session_has_a_reply_cache_of_its_own() {
    let mut client = Client4::in_memory();
    let (id, sequence) = client.exchange_id(b"another", 1).unwrap();
    let args = session_args(id, sequence);
    let first = client.create_session_of(args.clone()).unwrap();
    assert_eq!(client.create_session_of(args.clone()).unwrap(), first);
    let late = CreateSessionArgs { sequence: sequence + 2, ..args.clone() };
    assert_eq!(client.create_session_of(late).unwrap_err(), Status4::SeqMisordered);
    let second = CreateSessionArgs { sequence: sequence + 1, ..args };
    assert_ne!(client.create_session_of(second).unwrap().session, first.session);
    let stale = session_args(id + 1, 1);
    assert_eq!(client.create_session_of(stale).unwrap_err(), Status4::StaleClientid);
}

#[test]
fn a_client_that_restarted_loses_its_sessions_when_it_is_confirmed_again() {
    let mut client = Client4::in_memory();
    let (again, sequence) = client.exchange_id(b"client", 2).unwrap();
    assert_ne!(again, client.id);
    assert_eq!(client.run(&[]).status(), Status4::Ok, "nothing is confirmed yet");
    let args = session_args(again, sequence);
    client.create_session_of(args).unwrap();
    assert_eq!(client.run(&[]).status(), Status4::BadSession);
    assert_eq!(client.wire.report().nfs4.clients, 1);
}

#[test]
fn another_user_cannot_take_over_a_client() {
    let mut client = Client4::in_memory();
    let gids = Gids::new(&[]).unwrap();
    let stranger = AuthSys { stamp: 1, machine_name: b"client", uid: 7, gid: 7, gids };
    client.credential = Credential::Sys(stranger);
    assert_eq!(client.exchange_id(b"client", 1), Err(Status4::ClidInUse));
    assert_eq!(client.exchange_id(b"client", 2), Err(Status4::ClidInUse));
}

#[test]
fn what_is_destroyed_is_gone_and_what_is_in_use_stays() {
    let mut client = Client4::in_memory();
    let id = client.id;
    let destroy = [Request::DestroyClientid(id)];
    assert_eq!(client.send(&destroy).status(), Status4::ClientidBusy);
    let session = client.session;
    let behind = [Request::DestroySession(session), Request::PutRootFh(())];
    assert_eq!(client.run(&behind).status(), Status4::NotOnlyOp);
    assert_eq!(client.run(&[Request::DestroySession(session)]).status(), Status4::Ok);
    assert_eq!(client.run(&[]).status(), Status4::BadSession);
    assert_eq!(client.send(&destroy).status(), Status4::Ok);
    assert_eq!(client.send(&destroy).status(), Status4::StaleClientid);
    let report = client.wire.report().nfs4;
    assert_eq!((report.clients, report.sessions, report.slots), (0, 0, 0));
}

#[test]
fn reclaims_are_complete_once() {
    let mut client = Client4::in_memory();
    let again = client.run(&[Request::ReclaimComplete(false)]);
    assert_eq!(again.status(), Status4::CompleteAlready);
    let one = client.run(&[Request::PutRootFh(()), Request::ReclaimComplete(true)]);
    assert_eq!(one.status(), Status4::Ok);
}

#[test]
fn a_flag_of_minor_version_2_is_none_of_minor_version_1() {
    for (minor, expected) in [(1, Status4::Inval), (2, Status4::Ok)] {
        let mut client = Client4::in_memory();
        client.minor = minor;
        let args = ExchangeIdArgs {
            client: ClientOwner { verifier: [1; 8], owner: Text(b"fencing") },
            flags: exchange_flag::SUPP_FENCE_OPS,
            protection: StateProtection::None,
            implementation: None,
        };
        assert_eq!(client.send(&[Request::ExchangeId(args)]).status(), expected);
    }
}

/// A client whose server takes connections of many hosts.
fn over_tcp() -> Client4 {
    // Its clock is the machine's: on a busy one no client's lease ends before the last one comes.
    let nfs4 = Nfs4Config { lease: Duration::from_secs(3_600), ..CONFIG };
    let gateway = Gateway::new(memory()).with_nfs4(nfs4);
    let wire = OverTcp::new(gateway, Config { streams: 128, ..Config::small() });
    Client4::on(Box::new(wire), ServedExport::new(b"memory", ()), 2)
}

#[test]
fn one_host_makes_a_quarter_of_all_clients_and_another_finds_room() {
    let mut client = over_tcp();
    let mut count = 1_u32;
    let refused = loop {
        let made = client.exchange_id(&count.to_be_bytes(), 1);
        let made = made.and_then(|(id, sequence)| {
            client.create_session_of(session_args(id, sequence)).map(|ok| ok.fore.requests_max)
        });
        match made {
            Ok(slots) => assert!(slots >= 1, "each session has a slot"),
            Err(status) => break status,
        }
        count += 1;
    };
    assert_eq!((count, refused), (2_688, Status4::Delay));
    assert_eq!(client.run(&[]).status(), Status4::Ok, "its clients are served on");
    client.wire.connect_from(9);
    let (id, sequence) = client.exchange_id(b"of another host", 1).unwrap();
    let ok = client.create_session_of(session_args(id, sequence)).unwrap();
    assert_eq!(ok.fore.requests_max, session_args(id, sequence).fore.requests_max);
}

#[test]
fn ten_thousand_clients_have_a_session_each() {
    let mut client = over_tcp();
    let mut slots = 0;
    for number in 0..10_000_u32 {
        if number % 100 == 0 {
            client.wire.connect_from(10 + (number / 100) as u8);
        }
        let owner = format!("client {number} of a large cluster");
        let (id, sequence) = client.exchange_id(owner.as_bytes(), 1).unwrap();
        let ok = client.create_session_of(session_args(id, sequence)).unwrap();
        assert!(ok.fore.requests_max >= 1, "everybody gets a slot");
        slots = ok.fore.requests_max;
    }
    assert!(slots < 64, "the later ones get fewer");
    let report = client.wire.report().nfs4;
    assert_eq!((report.clients, report.sessions), (10_001, 10_001));
    client.wire.call_over(0);
    assert_eq!(client.run(&[]).status(), Status4::Ok, "the first is served on");
}
