//! Delegations and their recalls, in the reverse direction of the connection (RFC 8881
//! §10.2, §20; RFC 8267 §6.5.2).

use super::client::{Client4, open_args, write_args};
use crate::gateway::wire::Callback;
use stag_protocol::nfs::v4::*;

/// Opens a file: its stateid, its delegation, its handle.
fn open(client: &mut Client4, access: u32) -> (Stateid, Option<Stateid>, Vec<u8>) {
    let open = Request::Open(open_args(b"f", access, true));
    let reply = client.at_export(&[open, Request::GetFh(())]);
    let answers = reply.answers();
    let [.., Answer::Open(Ok(open)), Answer::GetFh(Ok(handle))] = &answers[..] else {
        panic!("{answers:?}")
    };
    let delegation = match &open.delegation {
        OpenDelegation::Read(read) => Some(read.stateid),
        OpenDelegation::Write(write) => Some(write.stateid),
        _ => None,
    };
    (open.stateid, delegation, handle.0.to_vec())
}

/// A recall. Its stateid has no sequence ID (RFC 8881 §8.2.2).
fn recall(delegation: Stateid) -> Callback {
    (CallbackOperation::Recall, Some(Stateid { seqid: 0, ..delegation }))
}

#[test]
fn a_delegation_is_recalled_in_a_short_message_and_returned_before_another_client_goes_on() {
    for minor in [1, 2] {
        let mut client = Client4::delegated(minor);
        let (stateid, delegation, handle) = open(&mut client, share::BOTH);
        let delegation = delegation.expect("nobody else has the file");
        let put = Request::PutFh(Text(&handle));
        let written = client.run(&[put.clone(), write_args(delegation, 0, b"under it")]);
        assert_eq!(written.status(), Status4::Ok, "a delegation covers it");
        let mut other = None;
        client.swap(&mut other);
        assert!(client.wire.called().is_empty());
        let conflict = Request::Open(open_args(b"f", share::READ, false));
        let refused = client.at_export(std::slice::from_ref(&conflict));
        assert_eq!(refused.status(), Status4::Delay);
        assert_eq!(client.wire.called(), [recall(delegation)]);
        assert_eq!(client.at_export(std::slice::from_ref(&conflict)).status(), Status4::Delay);
        assert!(client.wire.called().is_empty(), "it is recalled once");
        client.swap(&mut other);
        let back = [put.clone(), Request::DelegReturn(delegation)];
        assert_eq!(client.run(&back).status(), Status4::Ok);
        assert_eq!(client.run(&back).status(), Status4::BadStateid);
        let close = Request::Close(Close4Args { seqid: 0, open: stateid });
        assert_eq!(client.run(&[put, close]).status(), Status4::Ok);
        client.swap(&mut other);
        assert_eq!(client.at_export(&[conflict]).status(), Status4::Ok);
        let report = client.wire.report().nfs4;
        assert_eq!((report.callbacks, report.failed_callbacks), (1, 0));
    }
}

#[test]
fn what_changes_a_file_or_its_names_recalls_its_delegations_and_those_of_the_caller_stay() {
    let mut client = Client4::delegated(2);
    let (stateid, delegation, handle) = open(&mut client, share::READ);
    let delegation = delegation.unwrap();
    let put = Request::PutFh(Text(&handle));
    let mode = 0o600_u32.to_be_bytes();
    let attributes = RawAttributes { mask: Bitmap::of([33]), octets: &mode };
    let set = SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes };
    let by_open = Request::SetAttr(SetAttr4Args { stateid, ..set });
    assert_eq!(client.run(&[put.clone(), by_open]).status(), Status4::Ok);
    let close = Request::Close(Close4Args { seqid: 0, open: stateid });
    assert_eq!(client.run(&[put.clone(), close]).status(), Status4::Ok);
    // RFC 8881 §8.2.6: the stateid of a SETATTR is checked, whatever is set.
    for (stateid, expected) in [
        (Stateid::ANONYMOUS, Status4::Ok),
        (delegation, Status4::Ok),
        (stateid, Status4::BadStateid),
        (Stateid::INVALID, Status4::BadStateid),
        (Stateid::CURRENT, Status4::BadStateid),
    ] {
        let set = Request::SetAttr(SetAttr4Args { stateid, ..set });
        let own = client.run(&[put.clone(), set]);
        assert_eq!(own.status(), expected, "its holder may, by {stateid:?}");
    }
    let mut other = None;
    client.swap(&mut other);
    let foreign = Request::SetAttr(SetAttr4Args { stateid: delegation, ..set });
    assert_eq!(client.run(&[put, foreign]).status(), Status4::BadStateid);
    assert!(client.wire.called().is_empty(), "what is refused recalls nothing");
    let names = Rename4Args { old: Text(b"f"), new: Text(b"g") };
    for requests in [
        vec![Request::Lookup(Text(b"f")), Request::SetAttr(set)],
        vec![Request::SaveFh(()), Request::Rename(names)],
        vec![Request::Remove(Text(b"f"))],
        vec![Request::Open(open_args(b"f", share::WRITE, false))],
    ] {
        assert_eq!(client.at_export(&requests).status(), Status4::Delay, "{requests:?}");
    }
    let reading = Request::Open(open_args(b"f", share::READ, false));
    assert_ne!(client.at_export(&[reading]).status(), Status4::ShareDenied);
    assert_eq!(client.wire.called(), [recall(delegation)]);
}

#[test]
fn a_lock_that_waits_is_told_when_it_may_be_free() {
    let mut client = Client4::in_memory();
    let (stateid, handle) = client.open(b"f");
    let put = Request::PutFh(Text(&handle));
    let lock = |open, kind| {
        let owner = StateOwner { client_id: 0, owner: Text(b"locker") };
        let new = NewLockOwner { open_seqid: 0, open, lock_seqid: 0, owner };
        let (reclaim, locker) = (false, Locker::New(new));
        Request::Lock(Lock4Args { kind, reclaim, offset: 0, length: 10, locker })
    };
    let locked = client.run(&[put.clone(), lock(stateid, LockType::Write)]);
    let Answer::Lock(Ok(held)) = locked.last() else { panic!("{:?}", locked.last()) };
    let mut other = None;
    client.swap(&mut other);
    let (stateid, _) = client.open(b"f");
    let waits = client.run(&[put.clone(), lock(stateid, LockType::WriteWait)]);
    assert_eq!(waits.status(), Status4::Denied);
    assert!(client.wire.called().is_empty());
    client.swap(&mut other);
    let unlock =
        LockU4Args { kind: LockType::Write, seqid: 0, stateid: held, offset: 0, length: 10 };
    assert_eq!(client.run(&[put.clone(), Request::LockU(unlock)]).status(), Status4::Ok);
    assert_eq!(client.wire.called(), [(CallbackOperation::NotifyLock, None)]);
    client.swap(&mut other);
    let again = client.run(&[put, lock(stateid, LockType::WriteWait)]);
    assert_eq!(again.status(), Status4::Ok);
}

/// Change attribute and size, by GETATTR.
fn look(client: &mut Client4, handle: &[u8]) -> Result<(u64, u64), Status4> {
    let asked = Request::GetAttr(Bitmap::of([3, 4]));
    let reply = client.run(&[Request::PutFh(Text(handle)), asked]);
    match reply.last() {
        Answer::GetAttr(Ok(attributes)) => {
            let values = attributes.values().unwrap();
            Ok((values.change.unwrap(), values.size.unwrap()))
        }
        _ => Err(reply.status()),
    }
}

#[test]
fn the_holder_of_a_write_delegation_is_asked_for_change_attribute_and_size() {
    let mut client = Client4::delegated(2);
    let (_, delegation, handle) = open(&mut client, share::BOTH);
    assert!(delegation.is_some());
    let (change, size) = look(&mut client, &handle).unwrap();
    assert!(client.wire.called().is_empty(), "the holder asks the store");
    let mut other = None;
    client.swap(&mut other);
    client.wire.hold(Some((change, size)));
    assert_eq!(look(&mut client, &handle), Ok((change, size)), "nothing was changed");
    client.wire.hold(Some((change + 1_000, 5)));
    assert_eq!(look(&mut client, &handle), Ok((change + 1, 5)), "its size, and a change of ours");
    assert_eq!(look(&mut client, &handle), Ok((change + 2, 5)), "each is another one");
    assert_eq!(client.wire.called(), [(CallbackOperation::GetAttr, None); 3]);
    let report = client.wire.report().nfs4;
    assert_eq!((report.callbacks, report.failed_callbacks, report.suspended), (3, 0, 0));
}

#[test]
fn a_delegation_whose_holder_does_not_tell_attributes_is_recalled() {
    let mut client = Client4::delegated(1);
    let (_, delegation, handle) = open(&mut client, share::BOTH);
    let delegation = delegation.unwrap();
    let mut other = None;
    client.swap(&mut other);
    assert_eq!(look(&mut client, &handle), Err(Status4::Delay));
    assert_eq!(client.wire.called(), [(CallbackOperation::GetAttr, None), recall(delegation)]);
    client.swap(&mut other);
    let back = [Request::PutFh(Text(&handle)), Request::DelegReturn(delegation)];
    assert_eq!(client.run(&back).status(), Status4::Ok);
    client.swap(&mut other);
    assert!(look(&mut client, &handle).is_ok());
}

#[test]
fn attributes_that_the_holder_does_not_change_are_told_without_asking_it() {
    let mut client = Client4::delegated(2);
    let (_, delegation, handle) = open(&mut client, share::BOTH | share::WANT_TIMESTAMPS);
    assert!(delegation.is_some());
    let mut other = None;
    client.swap(&mut other);
    let asked = Request::GetAttr(Bitmap::of([1, 33, 86]));
    let reply = client.run(&[Request::PutFh(Text(&handle)), asked]);
    let Answer::GetAttr(Ok(attributes)) = reply.last() else { panic!("{:?}", reply.last()) };
    let options = attributes.values().unwrap().open_arguments.unwrap();
    assert!(options.share_access_want.contains(3), "delegations may be wanted");
    assert!(!options.share_access_want.contains(20), "with no timestamps");
    assert!(client.wire.called().is_empty());
}

/// Attributes of the file that READDIR has.
fn listed(client: &mut Client4, asked: &Bitmap) -> AttributeValues<'static> {
    let (cookie, verifier, max_count) = (0, [0; 8], 1_000);
    let attributes = *asked;
    let args = ReadDir4Args { cookie, verifier, dir_count: max_count, max_count, attributes };
    let reply = client.at_export(&[Request::ReadDir(args)]);
    let Answer::ReadDir(Ok(listing)) = reply.last() else { panic!("{:?}", reply.last()) };
    let entry = listing.entries.clone().find(|entry| entry.name.0 == b"f").unwrap();
    let AttributeValues { kind, change, size, rdattr_error, fsid, fileid, mode, .. } =
        entry.attributes.values().unwrap();
    let all = AttributeValues::default();
    AttributeValues { kind, change, size, rdattr_error, fsid, fileid, mode, ..all }
}

/// A client that lists the file asks for them by GETATTR, as Linux does.
#[test]
fn what_the_holder_of_a_write_delegation_may_have_changed_is_not_listed() {
    let mut client = Client4::delegated(2);
    let (_, read, handle) = open(&mut client, share::READ);
    let linux = Bitmap::of([1, 3, 4, 8, 11, 20, 33]);
    let whole = listed(&mut client, &linux);
    assert!(whole.size == Some(0) && whole.rdattr_error == Some(Status4::Ok), "to read");
    let back = |client: &mut Client4, given| {
        let back = [Request::PutFh(Text(&handle)), Request::DelegReturn(given)];
        assert_eq!(client.run(&back).status(), Status4::Ok);
    };
    back(&mut client, read.expect("nobody else has it open"));
    let (_, write, _) = open(&mut client, share::BOTH);
    let write = write.expect("nobody else has it open");
    let mut other = None;
    client.swap(&mut other);
    let unknown = listed(&mut client, &linux);
    let AttributeValues { kind, fileid, .. } = whole;
    let rdattr_error = Some(Status4::Delay);
    assert_eq!(
        unknown,
        AttributeValues { kind, fileid, rdattr_error, ..AttributeValues::default() }
    );
    // Nothing of that changes, or the entry could not be refused.
    for asked in [Bitmap::of([1, 11, 20, 33]), Bitmap::of([1, 4, 20])] {
        let values = listed(&mut client, &asked);
        assert_eq!(values.rdattr_error.unwrap_or(Status4::Ok), Status4::Ok);
        assert_eq!(values.size.is_some(), asked.contains(4));
    }
    assert!(client.wire.called().is_empty());
    client.swap(&mut other);
    back(&mut client, write);
    client.swap(&mut other);
    assert_eq!(listed(&mut client, &linux).size, Some(0));
}

#[test]
fn files_are_delegated_again_after_another_directory_has_come_to_the_path_of_their_export() {
    let home = crate::gateway::client::Home::new();
    let (path, aside) = (home.path("data"), home.path("aside"));
    let mut client = Client4::on_exclusive_files(home);
    let (_, delegation, handle) = open(&mut client, share::READ);
    assert!(delegation.is_some());
    std::fs::rename(&path, &aside).unwrap();
    std::fs::create_dir(&path).unwrap();
    // It is found by one compound, and served by the next.
    assert_eq!(client.at_export(&[Request::GetFh(())]).status(), Status4::Ok);
    let (_, delegation, other) = open(&mut client, share::READ);
    assert_ne!(handle, other, "it is a file of another directory");
    assert!(delegation.is_some(), "the export has delegations, whatever is served for it");
}
