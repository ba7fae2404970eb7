//! Directories are listed whole, in pages as small as the caller requests.

use crate::gateway::client::{Client, encode};
use crate::gateway::wire::Message;
use stag_protocol::{
    nfs::v3::{Call, FileHandle, FileKind, Procedure, ReadDirArgs, ReadDirPlusArgs, Reply, Status},
    rpc::ReplyHeader,
    xdr::Reader,
};
use std::collections::BTreeMap;

const NAMES: usize = 2_000;

/// `.`, `..`, and 2,000 files in `/data/many`.
fn fill(client: &mut Client) -> FileHandle {
    let path = client.home.path("data/many");
    std::fs::create_dir(&path).unwrap();
    for i in 0..NAMES {
        std::fs::write(path.join(format!("{:0width$}", i, width = 4 + i % 60)), b"").unwrap();
    }
    let root = client.root;
    client.lookup(root, b"many").unwrap()
}

struct Piece {
    names: Vec<(Vec<u8>, u64, Option<FileHandle>)>,
    cookie: u64,
    verifier: [u8; 8],
    eof: bool,
}

/// One call; checks that the result keeps to `count`.
fn piece(client: &mut Client, call: &Call<'_>, count: u32) -> Result<Piece, Status> {
    let (octets, _) = encode(call);
    let reply_max = ReplyHeader::LEN + 4 + (count as usize).max(96);
    let reply = client
        .wire
        .exchange(Message { octets: &octets, item: None, reply_max, result_max: 0 })
        .unwrap();
    let results = &reply[ReplyHeader::LEN..];
    let parsed = Reply::parse(call.procedure(), Reader::new(results)).unwrap();
    if parsed.status() == Status::Ok {
        assert!(results.len() <= 4 + count as usize, "{} octets for {count}", results.len() - 4);
    }
    match parsed {
        Reply::ReadDir(Ok(listed)) => {
            let names = listed
                .entries
                .clone()
                .map(|entry| (entry.name.0.to_vec(), entry.fileid, None))
                .collect();
            let cookie = listed.entries.last().map_or(0, |entry| entry.cookie);
            Ok(Piece { names, cookie, verifier: listed.verifier, eof: listed.eof })
        }
        Reply::ReadDirPlus(Ok(listed)) => {
            for plus in listed.entries.clone() {
                let attributes = plus.attributes.filter(|_| plus.entry.name.0 != b"..");
                assert!(attributes.is_none_or(|attributes| attributes.fileid == plus.entry.fileid));
            }
            let name = |plus: stag_protocol::nfs::v3::EntryPlus<'_>| {
                (plus.entry.name.0.to_vec(), plus.entry.fileid, plus.handle)
            };
            let cookie = listed.entries.clone().last().map_or(0, |plus| plus.entry.cookie);
            Ok(Piece {
                names: listed.entries.map(name).collect(),
                cookie,
                verifier: listed.verifier,
                eof: listed.eof,
            })
        }
        Reply::ReadDir(Err(failure)) | Reply::ReadDirPlus(Err(failure)) => {
            assert!(
                failure.attributes.is_some_and(|attributes| attributes.kind == FileKind::Directory)
            );
            Err(failure.status)
        }
        other => panic!("{other:?}"),
    }
}

/// The place where a listing goes on.
#[derive(Clone, Copy)]
struct Cookie {
    cookie: u64,
    verifier: [u8; 8],
}

fn call(
    procedure: Procedure,
    dir: FileHandle,
    Cookie { cookie, verifier }: Cookie,
    count: u32,
) -> Call<'static> {
    match procedure {
        Procedure::ReadDir => Call::ReadDir(ReadDirArgs { dir, cookie, verifier, count }),
        _ => Call::ReadDirPlus(ReadDirPlusArgs {
            dir,
            cookie,
            verifier,
            dir_count: count,
            max_count: count,
        }),
    }
}

#[test]
fn two_thousand_names_come_once_each_in_pieces_of_any_size() {
    for mut client in Client::both() {
        let directory = fill(&mut client);
        for procedure in [Procedure::ReadDir, Procedure::ReadDirPlus] {
            for count in [512, 1024, 4000, 4096, 8192, 32_768, 65_536, 1_000_000] {
                let (mut seen, mut from, mut pieces) =
                    (BTreeMap::new(), Cookie { cookie: 0, verifier: [0; 8] }, 0);
                loop {
                    let found = piece(&mut client, &call(procedure, directory, from, count), count)
                        .unwrap();
                    assert!(!found.names.is_empty() || found.eof, "a listing goes on");
                    for (name, fileid, handle) in found.names {
                        assert_ne!(fileid, 0);
                        assert_eq!(
                            handle.is_some(),
                            procedure == Procedure::ReadDirPlus && name != b".."
                        );
                        assert_eq!(seen.insert(name, handle), None, "a name comes once");
                    }
                    from = Cookie { cookie: found.cookie, verifier: found.verifier };
                    pieces += 1;
                    if found.eof {
                        break;
                    }
                }
                assert_eq!(seen.len(), NAMES + 2, "{procedure:?} in pieces of {count}");
                assert!(pieces > NAMES * 30 / count as usize, "{pieces} pieces of {count}");
                if let Some(handle) = seen.iter().next_back().and_then(|(_, handle)| *handle) {
                    assert_eq!(client.getattr(handle).unwrap().kind, FileKind::Regular);
                }
            }
        }
    }
}

#[test]
fn a_count_too_small_for_one_entry_is_told() {
    for mut client in Client::both() {
        let directory = fill(&mut client);
        for procedure in [Procedure::ReadDir, Procedure::ReadDirPlus] {
            for count in 0..=104 {
                let found = piece(
                    &mut client,
                    &call(procedure, directory, Cookie { cookie: 0, verifier: [0; 8] }, count),
                    count,
                );
                assert_eq!(found.err(), Some(Status::TooSmall), "{procedure:?}, {count} octets");
            }
        }
        let names_only = Call::ReadDirPlus(ReadDirPlusArgs {
            dir: directory,
            cookie: 0,
            verifier: [0; 8],
            dir_count: 100,
            max_count: 8192,
        });
        let found = piece(&mut client, &names_only, 8192).unwrap();
        assert!((1..=3).contains(&found.names.len()), "28 octets of each short name count");
    }
}

#[test]
fn an_empty_directory_has_itself_and_the_one_above() {
    for mut client in Client::both() {
        let root = client.root;
        let found = piece(
            &mut client,
            &call(Procedure::ReadDirPlus, root, Cookie { cookie: 0, verifier: [0; 8] }, 4096),
            4096,
        )
        .unwrap();
        let mut names = found.names.into_iter().map(|(name, ..)| name).collect::<Vec<_>>();
        names.sort();
        assert!(names == [b".".to_vec(), b"..".to_vec()] && found.eof);
        let file = client.create(root, b"f").unwrap();
        let call = call(Procedure::ReadDir, file, Cookie { cookie: 0, verifier: [0; 8] }, 4096);
        let status = client.call(&call, |reply| reply.status());
        assert_eq!(status, Status::NotDir);
    }
}

#[test]
fn the_verifier_is_the_stores_and_guards_its_cookies() {
    for mut client in Client::both() {
        let root = client.root;
        for procedure in [Procedure::ReadDir, Procedure::ReadDirPlus] {
            let found = piece(
                &mut client,
                &call(procedure, root, Cookie { cookie: 0, verifier: [9; 8] }, 4096),
                4096,
            )
            .unwrap();
            assert_ne!(found.verifier, [9; 8], "the caller's means nothing at the beginning");
            let went_on = piece(
                &mut client,
                &call(
                    procedure,
                    root,
                    Cookie { cookie: found.cookie, verifier: found.verifier },
                    4096,
                ),
                4096,
            );
            assert!(went_on.unwrap().names.is_empty());
            let strange =
                call(procedure, root, Cookie { cookie: found.cookie, verifier: [9; 8] }, 4096);
            assert_eq!(piece(&mut client, &strange, 4096).err(), Some(Status::BadCookie));
        }
    }
}
