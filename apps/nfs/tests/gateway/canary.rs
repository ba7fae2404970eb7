//! Memory is overwritten before it changes owner: one user's files, names and links are made of one
//! octet that no other user has. Whatever else is asked for, by either version, with results or
//! without, no reply has a run of it. Unwritten parts of a file that grows are zero.

use crate::gateway::client::{encode, header, place, user, written};
use crate::gateway::nfs4::client::Client4;
use crate::gateway::wire::Message;
use stag_protocol::{
    nfs::{
        Bulk,
        binding::result_len_max,
        mount,
        v3::{
            Access, AccessArgs, Call, CommitArgs, CreateArgs, CreateHow, DirOpArgs, FileHandle,
            GetAttrArgs, LinkArgs, LookupArgs, ReadArgs, ReadDirArgs, ReadDirPlusArgs,
            ReadLinkArgs, RemoveArgs, Reply, SetAttrArgs, SetAttributes, StableHow, SymlinkArgs,
            SystemArgs, WriteArgs,
        },
        v4::{Bitmap, ReadDir4Args, Request, Text},
    },
    rpc::ReplyHeader,
    xdr::Reader,
};

/// The octet that secrets are made of.
const CANARY: u8 = 0xc7;
/// Octets in a row that are no accident.
const RUN: usize = 8;
/// Octets of the files at most.
const LEN: usize = 200_000;

/// Replies that are looked at.
fn replies() -> usize {
    if std::env::var_os("CI").is_some() { 300_000 } else { 10_000 }
}

fn has_canary(octets: &[u8]) -> bool {
    let mut run = 0;
    octets.iter().any(|octet| {
        run = if *octet == CANARY { run + 1 } else { 0 };
        run >= RUN
    })
}

/// Numbers that look like chance, the same each time (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % end as u64) as usize
    }

    /// A length: small ones, those of each class of buffers, and all between.
    fn len(&mut self) -> usize {
        let most = [4, 100, 1_000, 5_000, 70_000, LEN][self.below(6)];
        1 + self.below(most)
    }
}

struct World {
    client: Client4,
    chance: Chance,
    /// Of the user with secrets: directory, file, link.
    secret: [FileHandle; 3],
    /// Of the others: the same.
    open: [FileHandle; 3],
    /// Content of the others' file.
    content: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let none = FileHandle::new(&[]).unwrap();
        let mut world = Self {
            client: Client4::in_memory(),
            chance: Chance(1),
            secret: [none; 3],
            open: [none; 3],
            content: Vec::new(),
        };
        let root = world.mount("/memory");
        world.secret = world.objects(root, &[CANARY; 100]);
        world.open = world.objects(root, b"open");
        world
    }

    /// The octets of a reply to `octets`.
    fn exchange(&mut self, octets: &[u8]) -> Vec<u8> {
        let message = Message { octets, item: None, reply_max: 3_000, result_max: 0 };
        self.client.wire.exchange(message).unwrap()
    }

    fn call(&mut self, call: &Call<'_>) -> Vec<u8> {
        let (octets, item) = encode(call);
        let len = result_len_max(call);
        let reply_max = (ReplyHeader::LEN + len.inline).max(ReplyHeader::REFUSAL_LEN_MAX);
        let message = Message { octets: &octets, item, reply_max, result_max: len.item.min(LEN) };
        self.client.wire.exchange(message).unwrap()
    }

    fn results<T>(&mut self, call: &Call<'_>, judge: impl FnOnce(Reply<'_>) -> T) -> T {
        let reply = self.call(call);
        let reader = Reader::new(&reply[ReplyHeader::LEN..]);
        judge(Reply::parse(call.procedure(), reader).unwrap())
    }

    fn mount(&mut self, path: &str) -> FileHandle {
        let call = mount::Call::Mnt(mount::Path(path.as_bytes()));
        let reply = self.exchange(&mount_call(&call));
        let reader = Reader::new(&reply[ReplyHeader::LEN..]);
        match mount::Reply::parse(call.procedure(), reader).unwrap() {
            mount::Reply::Mnt(mounted) => mounted.unwrap().handle,
            other => panic!("{other:?}"),
        }
    }

    /// A directory of this name with a file and a link in it, all of the same name.
    fn objects(&mut self, root: FileHandle, name: &[u8]) -> [FileHandle; 3] {
        let attributes = SetAttributes::default();
        let made = |reply: Reply<'_>| match reply {
            Reply::Create(made) | Reply::MkDir(made) | Reply::Symlink(made) => {
                made.unwrap().object.unwrap()
            }
            other => panic!("{other:?}"),
        };
        let directory =
            Call::MkDir(stag_protocol::nfs::v3::MkDirArgs { place: place(root, name), attributes });
        let directory = self.results(&directory, made);
        let file = self.results(&create(directory, b"file"), made);
        let link = self.results(&symlink(directory, b"link", name), made);
        [directory, file, link]
    }

    /// One thing that the user with secrets does.
    fn keep_secret(&mut self) {
        let name = &[CANARY; 200][..RUN + self.chance.below(192)];
        let [directory, file, link] = self.secret;
        match self.chance.below(9) {
            0..=2 => {
                let len = self.chance.len();
                let offset = self.chance.below(LEN - len + 1) as u64;
                let data = Bulk::Inline(&[CANARY; LEN][..len]);
                let stable = StableHow::Unstable;
                let write = Call::Write(WriteArgs { file, offset, stable, data });
                self.results(&write, |reply| match reply {
                    Reply::Write(done) => assert_eq!(done.unwrap().count, len as u32),
                    other => panic!("{other:?}"),
                });
            }
            3 => {
                let count = self.chance.len() as u32;
                self.call(&Call::Read(ReadArgs { file, offset: 0, count }));
            }
            4 => {
                self.call(&create(directory, name));
                self.call(&plus(directory, 4_096));
                self.call(&Call::Remove(RemoveArgs { object: place(directory, name) }));
            }
            5 => {
                self.call(&symlink(directory, name, &[CANARY; 1_000]));
                self.call(&Call::ReadLink(ReadLinkArgs { symlink: link }));
                self.call(&Call::Remove(RemoveArgs { object: place(directory, name) }));
            }
            6 => {
                let size = Some(self.chance.below(LEN) as u64);
                let attributes = SetAttributes { size, ..SetAttributes::default() };
                self.call(&Call::SetAttr(SetAttrArgs { object: file, attributes, guard: None }));
            }
            7 => {
                let look = [Request::PutFh(Text(directory.octets())), Request::Lookup(Text(name))];
                self.client.run(&look);
            }
            // The tag comes back.
            _ => {
                self.exchange(&tagged(&[CANARY; 1_000]));
            }
        }
    }

    /// The reply to one request of another user.
    fn ask(&mut self) -> Vec<u8> {
        let [directory, file, link] = self.open;
        let [_, secret, _] = self.secret;
        let nowhere = FileHandle::new(&[7; 40]).unwrap();
        let name: &[u8] = [&b"file"[..], b"link", b"missing"][self.chance.below(3)];
        let object = [directory, file, link, nowhere][self.chance.below(4)];
        let what: DirOpArgs<'_> = place([directory, file, nowhere][self.chance.below(3)], name);
        let verifier = Default::default();
        match self.chance.below(22) {
            0 => self.call(&Call::GetAttr(GetAttrArgs { object })),
            1 => self.call(&Call::GetAttr(GetAttrArgs { object: secret })),
            2 => self.call(&Call::Lookup(LookupArgs { what })),
            3 => self.call(&Call::Access(AccessArgs { object, access: Access(0x3f) })),
            4 => self.call(&Call::ReadLink(ReadLinkArgs { symlink: object })),
            5..=7 => self.read(),
            8..=9 => self.write(),
            10 => self.cut(),
            11 => {
                let object = place(directory, b"n");
                let mut all = self.call(&create(directory, b"n"));
                all.extend(self.call(&Call::Link(LinkArgs { file, link: object })));
                all.extend(self.call(&Call::Remove(RemoveArgs { object })));
                all
            }
            12 => self.call(&Call::Remove(RemoveArgs { object: place(directory, b"missing") })),
            13 => self.call(&plus(object, 4_096)),
            14 => self.call(&Call::ReadDir(ReadDirArgs {
                dir: object,
                cookie: 0,
                verifier,
                count: 512,
            })),
            15 => self.call(&Call::FsStat(SystemArgs { object })),
            16 => self.call(&Call::FsInfo(SystemArgs { object })),
            17 => self.call(&Call::PathConf(SystemArgs { object })),
            18 => self.call(&Call::Commit(CommitArgs { file: object, offset: 0, count: 0 })),
            19 => {
                let calls = [
                    mount_call(&mount::Call::Null),
                    mount_call(&mount::Call::Mnt(mount::Path(b"/missing"))),
                    mount_call(&mount::Call::Dump),
                    mount_call(&mount::Call::Export),
                    // Calls that are not served, and calls that cannot be decoded.
                    written(|writer| header(100_003, 3, 99, user()).emit(writer).unwrap()),
                    written(|writer| header(100_003, 2, 0, user()).emit(writer).unwrap()),
                    written(|writer| header(400_000, 1, 0, user()).emit(writer).unwrap()),
                    written(|writer| header(100_003, 3, 6, user()).emit(writer).unwrap()),
                    tagged(b"tag"),
                ];
                let place = self.chance.below(calls.len());
                self.exchange(&calls[place])
            }
            20 => {
                let at = Request::PutFh(Text(object.octets()));
                let all: Vec<u32> = vec![1, 3, 4, 8, 20, 33, 36, 37, 45, 53];
                self.client.run(&[at, Request::GetAttr(Bitmap::of(all)), Request::GetFh(())]).0
            }
            _ => {
                let list = ReadDir4Args {
                    cookie: 0,
                    verifier: [0; 8],
                    dir_count: 1_000,
                    max_count: 1_000,
                    attributes: Bitmap::of([1, 20]),
                };
                self.client
                    .run(&[Request::PutFh(Text(directory.octets())), Request::ReadDir(list)])
                    .0
            }
        }
    }

    fn read(&mut self) -> Vec<u8> {
        let (count, offset) = (self.chance.len(), self.chance.below(LEN));
        let args = ReadArgs { file: self.open[1], offset: offset as u64, count: count as u32 };
        let reply = self.call(&Call::Read(args));
        let reader = Reader::new(&reply[ReplyHeader::LEN..]);
        let Ok(Reply::Read(Ok(read))) =
            Reply::parse(stag_protocol::nfs::v3::Procedure::Read, reader)
        else {
            panic!("a READ of {count} octets at {offset}")
        };
        let octets = read.data.octets().unwrap();
        let end = (offset + count).min(self.content.len());
        let expected = self.content.get(offset..end).unwrap_or_default();
        assert!(octets == expected, "{count} octets at {offset} are as they were written, or zero");
        reply
    }

    fn write(&mut self) -> Vec<u8> {
        let len = self.chance.len();
        let offset = self.chance.below(LEN - len + 1);
        let octets = vec![b'o'; len];
        let end = self.content.len().max(offset + len);
        self.content.resize(end, 0);
        self.content[offset..offset + len].copy_from_slice(&octets);
        self.call(&Call::Write(WriteArgs {
            file: self.open[1],
            offset: offset as u64,
            stable: StableHow::Unstable,
            data: Bulk::Inline(&octets),
        }))
    }

    /// Gives the file another size.
    fn cut(&mut self) -> Vec<u8> {
        let size = self.chance.below(LEN);
        self.content.resize(size, 0);
        let attributes = SetAttributes { size: Some(size as u64), ..SetAttributes::default() };
        self.call(&Call::SetAttr(SetAttrArgs { object: self.open[1], attributes, guard: None }))
    }
}

fn mount_call(call: &mount::Call<'_>) -> Vec<u8> {
    written(|writer| {
        let number = call.procedure().number();
        header(mount::PROGRAM, mount::VERSION, number, user()).emit(writer).unwrap();
        call.emit(writer).unwrap();
    })
}

/// An empty compound with a tag.
fn tagged(tag: &[u8]) -> Vec<u8> {
    written(|writer| {
        header(100_003, 4, 1, user()).emit(writer).unwrap();
        writer.opaque(tag).unwrap();
        writer.words([1, 0]).unwrap();
    })
}

fn create(directory: FileHandle, name: &[u8]) -> Call<'_> {
    let how = CreateHow::Unchecked(SetAttributes::default());
    Call::Create(CreateArgs { place: place(directory, name), how })
}

fn symlink<'a>(directory: FileHandle, name: &'a [u8], path: &'a [u8]) -> Call<'a> {
    let attributes = SetAttributes::default();
    Call::Symlink(SymlinkArgs {
        place: place(directory, name),
        attributes,
        path: Bulk::Inline(path),
    })
}

fn plus(dir: FileHandle, count: u32) -> Call<'static> {
    let verifier = Default::default();
    Call::ReadDirPlus(ReadDirPlusArgs {
        dir,
        cookie: 0,
        verifier,
        dir_count: count,
        max_count: count,
    })
}

#[test]
fn no_reply_has_an_octet_of_another_users_secrets() {
    let mut world = World::new();
    let [directory, ..] = world.secret;
    let shown = world.call(&plus(directory, 4_096));
    let link = world.call(&Call::ReadLink(ReadLinkArgs { symlink: world.secret[2] }));
    assert!(!has_canary(&shown) && has_canary(&link), "secrets are found where they belong");
    for number in 0..replies() {
        world.keep_secret();
        let reply = world.ask();
        assert!(!has_canary(&reply), "reply {number}: {reply:02x?}");
    }
}
