//! The statuses by which operations refuse what they cannot do (RFC 8881 §15, §18).

use super::client::{Client4, open_args, read_args, session_args, write_args};
use stag_protocol::{
    nfs::{Bulk, v4::*},
    rpc::{AuthSys, Credential, Gids},
};

fn make(kind: CreateKind<'static>, name: &'static [u8]) -> Request<'static> {
    Request::Create(Create4Args { kind, name: Text(name), attributes: RawAttributes::default() })
}

/// A directory `d` with a file `in` in it, a file `f`, a pipe `p`, a link `l`.
fn furnish(client: &mut Client4) {
    client.open(b"f");
    let path = Bulk::Inline(b"f");
    for request in [
        make(CreateKind::Directory, b"d"),
        make(CreateKind::Fifo, b"p"),
        make(CreateKind::Link(path), b"l"),
    ] {
        assert_eq!(client.at_export(&[request]).status(), Status4::Ok);
    }
    let open = Request::Open(open_args(b"in", share::BOTH, true));
    let reply = client.at_export(&[Request::Lookup(Text(b"d")), open]);
    assert_eq!(reply.status(), Status4::Ok);
}

#[test]
fn data_of_what_is_no_file_says_what_it_is() {
    for mut client in Client4::newest() {
        furnish(&mut client);
        for (name, expected) in
            [(&b"d"[..], Status4::IsDir), (b"p", Status4::WrongType), (b"l", Status4::Symlink)]
        {
            for request in [
                read_args(Stateid::ANONYMOUS, 0, 1),
                write_args(Stateid::ANONYMOUS, 0, b"x"),
                Request::Commit(Commit4Args { offset: 0, count: 0 }),
                Request::LockT(LockT4Args {
                    kind: LockType::Read,
                    offset: 0,
                    length: 1,
                    owner: StateOwner { client_id: 0, owner: Text(b"o") },
                }),
            ] {
                let reply = client.at_export(&[Request::Lookup(Text(name)), request.clone()]);
                assert_eq!(reply.status(), expected, "{request:?}");
            }
        }
    }
}

#[test]
fn what_is_no_link_has_no_path() {
    for mut client in Client4::newest() {
        furnish(&mut client);
        for name in [&b"d"[..], b"f", b"p"] {
            let reply = client.at_export(&[Request::Lookup(Text(name)), Request::ReadLink(())]);
            assert_eq!(reply.status(), Status4::WrongType);
        }
        let reply = client.run(&[Request::PutRootFh(()), Request::ReadLink(())]);
        assert_eq!(reply.status(), Status4::WrongType);
        let empty = CreateKind::Link(Bulk::Inline(b""));
        let reply = client.at_export(&[make(empty, b"empty")]);
        assert_eq!(reply.status(), Status4::Inval, "a link leads somewhere");
    }
}

#[test]
fn names_in_what_is_no_directory_are_refused() {
    for mut client in Client4::newest() {
        furnish(&mut client);
        for (name, expected) in [(&b"f"[..], Status4::NotDir), (b"l", Status4::Symlink)] {
            for request in [
                Request::Lookup(Text(b"x")),
                Request::LookupP(()),
                Request::Remove(Text(b"x")),
                make(CreateKind::Fifo, b"x"),
                Request::Open(open_args(b"x", share::READ, true)),
            ] {
                let reply = client.at_export(&[Request::Lookup(Text(name)), request.clone()]);
                assert_eq!(reply.status(), expected, "{request:?}");
            }
            let list = ReadDir4Args {
                cookie: 0,
                verifier: [0; 8],
                dir_count: 1_000,
                max_count: 1_000,
                attributes: Bitmap::EMPTY,
            };
            let reply = client.at_export(&[Request::Lookup(Text(name)), Request::ReadDir(list)]);
            assert_eq!(reply.status(), Status4::NotDir);
        }
    }
}

#[test]
fn a_name_takes_the_place_of_another_of_its_kind_only() {
    for mut client in Client4::newest() {
        furnish(&mut client);
        assert_eq!(client.at_export(&[make(CreateKind::Directory, b"e")]).status(), Status4::Ok);
        let mut rename = |old: &'static [u8], new: &'static [u8]| {
            let names = Rename4Args { old: Text(old), new: Text(new) };
            client.at_export(&[Request::SaveFh(()), Request::Rename(names)]).status()
        };
        assert_eq!(rename(b"f", b"e"), Status4::Exist, "a file over a directory");
        assert!([Status4::Exist, Status4::NotDir].contains(&rename(b"e", b"f")));
        assert!([Status4::Exist, Status4::NotEmpty].contains(&rename(b"e", b"d")));
        assert_eq!(rename(b"none", b"other"), Status4::NoEnt);
        assert_eq!(rename(b"f", b"f"), Status4::Ok, "its own name");
        assert_eq!(rename(b"d", b"e"), Status4::Ok, "an empty directory makes way");
    }
}

#[test]
fn what_is_not_empty_or_not_there_is_not_removed() {
    for mut client in Client4::newest() {
        furnish(&mut client);
        for (name, expected) in [
            (&b"d"[..], Status4::NotEmpty),
            (b"none", Status4::NoEnt),
            (b"f", Status4::Ok),
            (b"f", Status4::NoEnt),
        ] {
            assert_eq!(client.at_export(&[Request::Remove(Text(name))]).status(), expected);
        }
    }
}

#[test]
fn rights_are_told_that_mean_something_for_the_object() {
    for mut client in Client4::newest() {
        furnish(&mut client);
        for (name, supported) in [(&b"d"[..], 0x1f), (b"f", 0x2d)] {
            let rights = Request::Access(Access4Args { rights: 0x3f });
            let reply = client.at_export(&[Request::Lookup(Text(name)), rights]);
            let Answer::Access(Ok(ok)) = reply.last() else { panic!("{:?}", reply.last()) };
            assert_eq!(ok.supported, supported);
            assert_eq!(ok.granted & !ok.supported, 0);
        }
        let unknown = Request::Access(Access4Args { rights: 1 << 20 });
        assert_eq!(client.at_export(&[unknown]).status(), Status4::Inval);
    }
}

#[test]
fn a_handle_that_nobody_made_is_a_bad_one() {
    let mut client = Client4::in_memory();
    for handle in [&b""[..], &[7; 40], &[7; 65], &[7; 128]] {
        let put = [Request::PutFh(Text(handle)), Request::GetAttr(Bitmap::of([1]))];
        let status = client.run(&put).status();
        assert!([Status4::BadHandle, Status4::Stale].contains(&status), "{status:?}");
        let alone = client.run(&put[..1]).status();
        assert!([Status4::BadHandle, Status4::Stale].contains(&alone), "{alone:?}");
    }
}

#[test]
fn attributes_that_cannot_be_set_are_refused_one_by_one() {
    for mut client in Client4::newest() {
        furnish(&mut client);
        let owner = |text: &[u8]| {
            let mut octets = (text.len() as u32).to_be_bytes().to_vec();
            octets.extend(text);
            octets.resize(octets.len().next_multiple_of(4), 0);
            octets
        };
        let size = u64::MAX.to_be_bytes();
        for (mask, octets, expected) in [
            (24, vec![0; 4], Status4::AttrNotSupp),
            (3, vec![0; 8], Status4::Inval),
            (36, owner(b"root@domain"), Status4::BadOwner),
            (36, owner(b"007"), Status4::BadOwner),
            (33, 0x1_0000_u32.to_be_bytes().to_vec(), Status4::Inval),
            (33, vec![0; 8], Status4::BadXdr),
            (33, vec![], Status4::BadXdr),
            (4, size.to_vec(), Status4::FBig),
        ] {
            let attributes = RawAttributes { mask: Bitmap::of([mask]), octets: &octets };
            let set = SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes };
            let reply = client.at_export(&[Request::Lookup(Text(b"f")), Request::SetAttr(set)]);
            assert_eq!(reply.status(), expected, "{mask} {octets:?}");
        }
    }
}

#[test]
fn a_session_that_would_be_good_for_nothing_is_not_made() {
    let mut client = Client4::in_memory();
    let (id, sequence) = client.exchange_id(b"narrow", 1).unwrap();
    let asked = session_args(id, sequence);
    let fore = |fore| CreateSessionArgs { fore, ..asked.clone() };
    let back = |back| CreateSessionArgs { back, ..asked.clone() };
    for (args, expected) in [
        (fore(ChannelAttributes { request_max: 100, ..asked.fore }), Status4::TooSmall),
        (fore(ChannelAttributes { response_max: 100, ..asked.fore }), Status4::TooSmall),
        (fore(ChannelAttributes { operations_max: 0, ..asked.fore }), Status4::Inval),
        (back(ChannelAttributes { request_max: 100, ..asked.back }), Status4::TooSmall),
        (back(ChannelAttributes { operations_max: 1, ..asked.back }), Status4::TooSmall),
        (CreateSessionArgs { flags: 1 << 9, ..asked.clone() }, Status4::Inval),
    ] {
        assert_eq!(client.create_session_of(args.clone()).unwrap_err(), expected, "{args:?}");
    }
    client.create_session_of(asked).expect("nothing of it left a trace");
}

#[test]
fn only_the_user_that_made_a_record_confirms_it() {
    let mut client = Client4::in_memory();
    let (id, sequence) = client.exchange_id(b"another", 1).unwrap();
    let gids = Gids::new(&[]).unwrap();
    let stranger = AuthSys { stamp: 1, machine_name: b"client", uid: 7, gid: 7, gids };
    let own = std::mem::replace(&mut client.credential, Credential::Sys(stranger));
    let args = session_args(id, sequence);
    assert_eq!(client.create_session_of(args.clone()).unwrap_err(), Status4::ClidInUse);
    client.credential = own;
    client.create_session_of(args).expect("the record is still its maker's");
}

#[test]
fn a_session_without_a_back_channel_has_none_to_bind() {
    let mut client = Client4::in_memory();
    let (id, sequence) = client.exchange_id(b"another", 1).unwrap();
    let args = CreateSessionArgs { flags: 0, ..session_args(id, sequence) };
    let session = client.create_session_of(args).unwrap().session;
    for (wish, expected) in [
        (ChannelWish::Back, Err(Status4::Inval)),
        (ChannelWish::Fore, Ok(ChannelGrant::Fore)),
        (ChannelWish::ForeOrBoth, Ok(ChannelGrant::Fore)),
    ] {
        let bind = BindConnArgs { session, wish, rdma_mode: false };
        let reply = client.send(&[Request::BindConnToSession(bind)]);
        let Answer::BindConnToSession(bound) = reply.last() else { panic!("{:?}", reply.last()) };
        assert_eq!(bound.map(|ok| ok.grant), expected, "{wish:?}");
    }
}

#[test]
fn attributes_that_are_only_set_are_not_told() {
    for mut client in Client4::newest() {
        for attribute in [48, 54] {
            let asked = Request::GetAttr(Bitmap::of([attribute]));
            assert_eq!(client.at_export(&[asked]).status(), Status4::Inval);
        }
    }
}
