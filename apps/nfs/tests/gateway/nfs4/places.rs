//! Places for state, and what a client sees when it finds none (docs/security.md).

use super::client::{Client4, open_args};
use stag_protocol::nfs::v4::*;

/// One more open of the current file.
fn open_again(owner: &[u8]) -> Request<'_> {
    let owner = StateOwner { client_id: 0, owner: Text(owner) };
    let args = open_args(b"", share::READ, false);
    Request::Open(Open4Args { claim: OpenClaim::Fh, owner, ..args })
}

/// Opens files that exist until one is not opened: the number of opens, and the status then.
fn take_opens(client: &mut Client4, files: &[(Stateid, Vec<u8>)]) -> (u32, Status4) {
    let mut count = 0_u32;
    for (_, handle) in files.iter().cycle() {
        let owners: Vec<[u8; 4]> = (count..count + 8).map(u32::to_be_bytes).collect();
        let opens = owners.iter().map(|owner| open_again(owner));
        let all: Vec<_> = std::iter::once(Request::PutFh(Text(handle))).chain(opens).collect();
        let reply = client.run(&all);
        let opened = reply.answers().iter().filter(|it| matches!(it, Answer::Open(Ok(_)))).count();
        count += opened as u32;
        if reply.status() != Status4::Ok {
            return (count, reply.status());
        }
    }
    unreachable!("a cycle has no end")
}

#[test]
fn an_open_without_a_place_creates_no_file() {
    let mut client = Client4::in_memory();
    let files = [client.open(b"f"), client.open(b"g")];
    let (count, status) = take_opens(&mut client, &files);
    assert_eq!(status, Status4::Delay);
    assert_eq!(count + 2, 65_536_u32.div_ceil(3), "a third of all places");
    let create = |client: &mut Client4| {
        let open = Request::Open(open_args(b"new", share::READ, true));
        client.at_export(&[open]).status()
    };
    assert_eq!(create(&mut client), Status4::Delay);
    let found = client.at_export(&[Request::Lookup(Text(b"new"))]);
    assert_eq!(found.status(), Status4::NoEnt, "it was not made");
    let [(open, handle), _] = files;
    let close = Request::Close(Close4Args { seqid: 0, open });
    assert_eq!(client.run(&[Request::PutFh(Text(&handle)), close]).status(), Status4::Ok);
    assert_eq!(create(&mut client), Status4::Ok);
}
