//! Calls that reach no procedure are answered as RPC requires (RFC 5531 §9).

use crate::gateway::client::{Client, encode, header, user, written};
use crate::gateway::wire::Message;
use stag_protocol::{
    nfs::{
        mount,
        v3::{Call, Procedure, StableHow, SystemArgs},
    },
    rpc::{Accepted, Auth, AuthStatus, Credential, Denied, Outcome, ReplyHeader, flavor},
    xdr::{Codec, Reader},
};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

fn ask(client: &mut Client, octets: &[u8]) -> Outcome<'static> {
    let message = Message { octets, item: None, reply_max: 1024, result_max: 0 };
    let reply = client.wire.exchange(message).unwrap();
    let mut reader = Reader::new(&reply);
    let outcome = ReplyHeader::parse(&mut reader).unwrap().outcome;
    if outcome != Outcome::accepted(Accepted::Success) {
        reader.finish().expect("nothing is behind a refusal");
    }
    match outcome {
        Outcome::Accepted { verifier, status } => {
            assert_eq!(verifier, Auth::NONE);
            Outcome::accepted(status)
        }
        Outcome::Denied(denied) => Outcome::Denied(denied),
    }
}

/// The numbers of a call.
#[derive(Clone, Copy)]
struct Called {
    program: u32,
    version: u32,
    procedure: u32,
}

fn called(program: u32, version: u32, procedure: u32) -> Called {
    Called { program, version, procedure }
}

fn ask_header(client: &mut Client, called: Called, credential: Credential<'_>) -> Outcome<'static> {
    let header = header(called.program, called.version, called.procedure, credential);
    ask(client, &written(|writer| header.emit(writer).unwrap()))
}

#[test]
fn only_these_programs_versions_and_procedures_exist() {
    for mut client in Client::both() {
        for program in [0, 100_000, 100_002, 100_021, 100_024, 100_227, u32::MAX] {
            let outcome = ask_header(&mut client, called(program, 3, 0), user());
            assert_eq!(outcome, Outcome::accepted(Accepted::ProgUnavail), "{program}");
        }
        for (program, version) in [NFS, MOUNT]
            .into_iter()
            .flat_map(|program| [0, 1, 2, 4, u32::MAX].map(|v| (program, v)))
        {
            let outcome = ask_header(&mut client, called(program, version, 0), user());
            assert_eq!(outcome, Outcome::accepted(Accepted::ProgMismatch { low: 3, high: 3 }));
        }
        for (program, procedure) in [(NFS, 22), (NFS, u32::MAX), (MOUNT, 6), (MOUNT, u32::MAX)] {
            let outcome = ask_header(&mut client, called(program, 3, procedure), user());
            assert_eq!(outcome, Outcome::accepted(Accepted::ProcUnavail));
        }
        for program in [NFS, MOUNT] {
            let outcome = ask_header(&mut client, called(program, 3, 0), Credential::None);
            assert_eq!(outcome, Outcome::accepted(Accepted::Success));
        }
        let refused = client.wire.report().refused;
        assert_eq!((refused.program, refused.version, refused.procedure), (7, 10, 4));
    }
}

#[test]
fn a_flavor_we_do_not_know_is_too_weak_for_every_procedure() {
    for mut client in Client::both() {
        // A control message of RPCSEC_GSS is a call of procedure 0 with arguments.
        for flavor in [flavor::SHORT, flavor::DH, flavor::GSS, flavor::TLS, u32::MAX] {
            let credential = Credential::Other(Auth { flavor, body: b"body" });
            let too_weak = Outcome::Denied(Denied::AuthError(AuthStatus::TOO_WEAK));
            for (program, procedures) in [(NFS, 22), (MOUNT, 6)] {
                for procedure in 0..procedures {
                    assert_eq!(
                        ask_header(&mut client, called(program, 3, procedure), credential),
                        too_weak
                    );
                }
            }
        }
        assert_eq!(client.wire.report().refused.credential, 5 * (22 + 6));
    }
}

/// A call of each procedure that changes nothing.
fn harmless(client: &Client) -> Vec<Vec<u8>> {
    use stag_protocol::nfs::{Bulk, v3::*};
    let object = client.root;
    let missing = FileHandle::new(&[7; 30]).unwrap();
    let place = DirOpArgs { dir: missing, name: Name(b"name") };
    let attributes = SetAttributes { size: Some(1), ..SetAttributes::default() };
    let (cookie, verifier, count) = (0, [0; 8], 4096);
    [
        Call::Null,
        Call::GetAttr(GetAttrArgs { object }),
        Call::SetAttr(SetAttrArgs { object: missing, attributes, guard: Some(Time::default()) }),
        Call::Lookup(LookupArgs { what: place }),
        Call::Access(AccessArgs { object, access: Access::ALL }),
        Call::ReadLink(ReadLinkArgs { symlink: object }),
        Call::Read(ReadArgs { file: missing, offset: 0, count: 10 }),
        Call::Write(WriteArgs {
            file: missing,
            offset: 0,
            stable: StableHow::Unstable,
            data: Bulk::Inline(b"12345"),
        }),
        Call::Create(CreateArgs { place, how: CreateHow::Unchecked(attributes) }),
        Call::MkDir(MkDirArgs { place, attributes }),
        Call::Symlink(SymlinkArgs { place, attributes, path: Bulk::Inline(b"path!") }),
        Call::MkNod(MkNodArgs { place, what: NodeKind::Fifo(attributes) }),
        Call::Remove(RemoveArgs { object: place }),
        Call::RmDir(RemoveArgs { object: place }),
        Call::Rename(RenameArgs { from: place, to: place }),
        Call::Link(LinkArgs { file: missing, link: place }),
        Call::ReadDir(ReadDirArgs { dir: missing, cookie, verifier, count }),
        Call::ReadDirPlus(ReadDirPlusArgs {
            dir: missing,
            cookie,
            verifier,
            dir_count: count,
            max_count: count,
        }),
        Call::FsStat(SystemArgs { object }),
        Call::FsInfo(SystemArgs { object }),
        Call::PathConf(SystemArgs { object }),
        Call::Commit(CommitArgs { file: missing, offset: 0, count: 0 }),
    ]
    .iter()
    .map(|call| {
        let header = header(NFS, 3, call.procedure().number(), user());
        written(|writer| {
            header.emit(writer).unwrap();
            call.emit(writer).unwrap();
        })
    })
    .collect()
}

#[test]
fn no_result_but_octets_and_paths_goes_into_a_write_chunk() {
    let mut client = Client::over_fabric();
    let calls = harmless(&client);
    for (procedure, octets) in Procedure::ALL.into_iter().zip(&calls) {
        let message = Message { octets, item: None, reply_max: 4_000, result_max: 65_536 };
        let reply = client.wire.exchange(message).unwrap();
        assert!(reply.len() >= ReplyHeader::LEN, "{procedure:?} is answered inline");
        assert_eq!(client.wire.moved().1, 0, "{procedure:?} offers a Write chunk for nothing");
    }
    let root = client.root;
    let file = client.create(root, b"f").unwrap();
    client.write(file, 0, &[7; 9_000], StableHow::Unstable).unwrap();
    client.read(file, 0, 9_000).unwrap();
    assert_eq!(client.wire.moved().1, 9_000);
}

#[test]
fn arguments_cut_anywhere_or_followed_by_anything_are_garbage() {
    let garbage = Outcome::accepted(Accepted::GarbageArgs);
    let header_len = written(|writer| header(NFS, 3, 0, user()).emit(writer).unwrap()).len();
    for mut client in Client::both() {
        let calls = harmless(&client);
        assert_eq!(calls.len(), Procedure::ALL.len());
        for (number, whole) in calls.iter().enumerate() {
            assert_eq!(
                ask(&mut client, whole),
                Outcome::accepted(Accepted::Success),
                "procedure {number}"
            );
            for len in header_len..whole.len() {
                assert_eq!(
                    ask(&mut client, &whole[..len]),
                    garbage,
                    "procedure {number} cut at {len}"
                );
            }
            for extra in [4, 8, 400] {
                let mut longer = whole.clone();
                longer.resize(whole.len() + extra, 0);
                assert_eq!(
                    ask(&mut client, &longer),
                    garbage,
                    "procedure {number} and {extra} octets"
                );
            }
        }
        let path = written(|writer| {
            header(MOUNT, 3, 1, user()).emit(writer).unwrap();
            writer.opaque(&[b'p'; mount::Path::MAX + 1]).unwrap();
        });
        assert_eq!(ask(&mut client, &path), garbage, "a path longer than MOUNT has");
    }
}

#[test]
fn a_write_whose_count_is_not_that_of_its_data_is_garbage() {
    for mut client in Client::both() {
        let root = client.root;
        let file = client.create(root, b"file").unwrap();
        for (count, len) in [(4_u32, 5_usize), (6, 5), (0, 5), (5, 0), (u32::MAX, 5)] {
            let octets = written(|writer| {
                header(NFS, 3, Procedure::Write.number(), user()).emit(writer).unwrap();
                file.emit(writer).unwrap();
                writer.u64(0).unwrap();
                writer.u32(count).unwrap();
                StableHow::FileSync.emit(writer).unwrap();
                writer.opaque(&vec![1; len]).unwrap();
            });
            assert_eq!(
                ask(&mut client, &octets),
                Outcome::accepted(Accepted::GarbageArgs),
                "{count} of {len}"
            );
        }
        assert_eq!(client.getattr(file).unwrap().size, 0);
    }
}

#[test]
fn a_wrong_version_of_rpc_and_a_bad_credential_are_denied() {
    for mut client in Client::both() {
        let (whole, _) = encode(&Call::FsInfo(SystemArgs { object: client.root }));
        let mut octets = whole.clone();
        octets[11] = 3;
        let mismatch = Denied::RpcMismatch { low: 2, high: 2 };
        assert_eq!(ask(&mut client, &octets), Outcome::Denied(mismatch));
        let mut octets = whole;
        octets[31] ^= 4; // The credential's length.
        let denied = Denied::AuthError(AuthStatus::BAD_CREDENTIAL);
        assert_eq!(ask(&mut client, &octets), Outcome::Denied(denied));
    }
}
