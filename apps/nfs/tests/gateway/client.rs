//! A caller of MOUNT and NFS that trusts replies and checks only that they can be decoded.

use crate::gateway::wire::{Message, OverFabric, OverTcp, Wire};
use stag_engine::Config;
use stag_nfs::Gateway;
use stag_nfs_store::{
    exports::config::ExportConfig,
    files::{self, Files, SharedFiles},
};
use stag_protocol::{
    nfs::{
        Bulk,
        binding::result_len_max,
        mount,
        v3::{
            Attributes, Call, CreateArgs, CreateHow, DirOpArgs, FileHandle, GetAttrArgs,
            LookupArgs, Name, ReadArgs, Reply, SetAttributes, StableHow, Status, SymlinkArgs,
            WriteArgs, WriteOk,
        },
    },
    rpc::{Accepted, Auth, AuthSys, CallHeader, Credential, Gids, Outcome, ReplyHeader},
    rpcrdma::Xid,
    xdr::{Reader, Writer},
};
use std::{path::PathBuf, sync::Arc};
use tempfile::TempDir;

/// One user's credential, as a Linux client sends it.
pub fn user() -> Credential<'static> {
    let gids = Gids::new(&[1000, 27]).unwrap();
    Credential::Sys(AuthSys { stamp: 1, machine_name: b"client", uid: 1000, gid: 1000, gids })
}

pub const LARGEST: usize = 1 << 20;

/// Two exports, `/data` and the read-only `/fixed`, and their state.
pub struct Home {
    directory: TempDir,
    pub callers: files::Callers,
}

impl Home {
    pub fn new() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    pub fn within(directory: TempDir) -> Self {
        let home = Self { directory, callers: files::Callers::UNPRIVILEGED };
        for name in ["data", "fixed", "state"] {
            std::fs::create_dir(home.path(name)).unwrap();
        }
        std::fs::write(home.path("fixed/file"), b"fixed").unwrap();
        home
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn gateway(&self) -> Gateway {
        self.gateway_after(|| ())
    }

    /// A gateway whose shard is opened after `between` was done to the state directory.
    pub fn gateway_after(&self, between: impl FnOnce()) -> Gateway {
        Gateway::new(self.store_after(between))
    }

    /// The store of such a gateway.
    pub fn store_after(&self, between: impl FnOnce()) -> Files {
        let shared = self.shared();
        between();
        Files::open(&shared, 0).unwrap()
    }

    /// The parts that the stores of all shards have in common.
    pub fn shared(&self) -> Arc<SharedFiles> {
        let export = |name: &str, read_only| ExportConfig {
            name: name.to_owned(),
            path: self.path(name),
            read_only,
            is_mountpoint: false,
        };
        let config = files::FilesConfig {
            state_dir: self.path("state"),
            exports: vec![export("data", false), export("fixed", true)],
            shards: 1,
            sync_directories: false,
            callers: self.callers.clone(),
            open_files: Some(64),
            cluster: None,
        };
        SharedFiles::open(&config).unwrap()
    }
}

pub struct Client {
    pub wire: Box<dyn Wire>,
    pub home: Home,
    pub root: FileHandle,
}

impl Client {
    pub fn over_fabric() -> Self {
        let home = Home::new();
        let wire = Box::new(OverFabric::new(home.gateway(), Config::small()));
        Self::on(wire, home)
    }

    pub fn over_tcp() -> Self {
        let home = Home::new();
        let wire = Box::new(OverTcp::new(home.gateway(), Config::small()));
        Self::on(wire, home)
    }

    /// One over each transport.
    pub fn both() -> [Self; 2] {
        [Self::over_fabric(), Self::over_tcp()]
    }

    pub fn on(wire: Box<dyn Wire>, home: Home) -> Self {
        let mut client = Self { wire, home, root: FileHandle::new(&[]).unwrap() };
        client.root = client.mount("/data").unwrap();
        client
    }

    /// Stops the server and starts it again; handles live on.
    pub fn restart(self) -> Self {
        let Self { wire, home, root } = self;
        drop(wire);
        let wire = Box::new(OverFabric::new(home.gateway(), Config::small()));
        Self { wire, home, root }
    }

    /// The results of a call that reached its procedure, as octets.
    fn results(&mut self, message: Message<'_>) -> Vec<u8> {
        let mut reply = self.wire.exchange(message).unwrap();
        let mut reader = Reader::new(&reply);
        let header = ReplyHeader::parse(&mut reader).unwrap();
        assert_eq!(header.outcome, Outcome::accepted(Accepted::Success));
        reply.drain(..ReplyHeader::LEN);
        reply
    }

    pub fn call<T>(&mut self, call: &Call<'_>, judge: impl FnOnce(Reply<'_>) -> T) -> T {
        let procedure = call.procedure();
        let (octets, item) = encode(call);
        let len = result_len_max(call);
        let reply_max = (ReplyHeader::LEN + len.inline).max(ReplyHeader::REFUSAL_LEN_MAX);
        let message =
            Message { octets: &octets, item, reply_max, result_max: len.item.min(LARGEST) };
        let results = self.results(message);
        judge(Reply::parse(procedure, Reader::new(&results)).unwrap())
    }

    pub fn call_mount<T>(
        &mut self,
        call: &mount::Call<'_>,
        judge: impl FnOnce(mount::Reply<'_>) -> T,
    ) -> T {
        let header = header(mount::PROGRAM, mount::VERSION, call.procedure().number(), user());
        let octets = written(|writer| {
            header.emit(writer).unwrap();
            call.emit(writer).unwrap();
        });
        let results =
            self.results(Message { octets: &octets, item: None, reply_max: 2048, result_max: 0 });
        judge(mount::Reply::parse(call.procedure(), Reader::new(&results)).unwrap())
    }

    pub fn mount(&mut self, path: &str) -> Result<FileHandle, mount::Status> {
        self.call_mount(&mount::Call::Mnt(mount::Path(path.as_bytes())), |reply| match reply {
            mount::Reply::Mnt(mounted) => mounted.map(|mounted| {
                assert!(mounted.flavors.iter().eq([1, 0]), "AUTH_SYS, AUTH_NONE");
                mounted.handle
            }),
            other => panic!("{other:?}"),
        })
    }

    pub fn getattr(&mut self, object: FileHandle) -> Result<Attributes, Status> {
        self.call(&Call::GetAttr(GetAttrArgs { object }), |reply| match reply {
            Reply::GetAttr(results) => results.map_err(|failure| failure.status),
            other => panic!("{other:?}"),
        })
    }

    pub fn lookup(&mut self, dir: FileHandle, name: &[u8]) -> Result<FileHandle, Status> {
        self.call(&Call::Lookup(LookupArgs { what: place(dir, name) }), |reply| match reply {
            Reply::Lookup(Ok(found)) => {
                assert!(found.attributes.is_some() && found.dir_attributes.is_some());
                Ok(found.object)
            }
            Reply::Lookup(Err(failure)) => Err(failure.status),
            other => panic!("{other:?}"),
        })
    }

    /// CREATE, MKDIR, SYMLINK or MKNOD.
    pub fn make(&mut self, call: &Call<'_>) -> Result<FileHandle, Status> {
        self.call(call, |reply| match reply {
            Reply::Create(made)
            | Reply::MkDir(made)
            | Reply::Symlink(made)
            | Reply::MkNod(made) => match made {
                Ok(made) => {
                    let after = made.dir_wcc.after.expect("the directory can be looked at");
                    assert!(made.dir_wcc.before.is_none_or(|before| after.mtime >= before.mtime));
                    Ok(made.object.expect("what was made has a handle"))
                }
                Err(failure) => Err(failure.status),
            },
            other => panic!("{other:?}"),
        })
    }

    pub fn create(&mut self, dir: FileHandle, name: &[u8]) -> Result<FileHandle, Status> {
        let how =
            CreateHow::Guarded(SetAttributes { mode: Some(0o644), ..SetAttributes::default() });
        self.make(&Call::Create(CreateArgs { place: place(dir, name), how }))
    }

    pub fn symlink(
        &mut self,
        dir: FileHandle,
        name: &[u8],
        path: &[u8],
    ) -> Result<FileHandle, Status> {
        let attributes = SetAttributes::default();
        self.make(&Call::Symlink(SymlinkArgs {
            place: place(dir, name),
            attributes,
            path: Bulk::Inline(path),
        }))
    }

    pub fn write(
        &mut self,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Result<WriteOk, Status> {
        self.call(
            &Call::Write(WriteArgs { file, offset, stable, data: Bulk::Inline(data) }),
            |reply| match reply {
                Reply::Write(results) => results.map_err(|failure| failure.status),
                other => panic!("{other:?}"),
            },
        )
    }

    /// The octets, and whether the file ends with them.
    pub fn read(
        &mut self,
        file: FileHandle,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), Status> {
        self.call(&Call::Read(ReadArgs { file, offset, count }), |reply| match reply {
            Reply::Read(Ok(read)) => {
                assert!(read.attributes.is_some(), "READ always returns attributes");
                Ok((read.data.octets().unwrap().to_vec(), read.eof))
            }
            Reply::Read(Err(failure)) => Err(failure.status),
            other => panic!("{other:?}"),
        })
    }
}

pub fn place(dir: FileHandle, name: &[u8]) -> DirOpArgs<'_> {
    DirOpArgs { dir, name: Name(name) }
}

pub fn header(
    program: u32,
    version: u32,
    procedure: u32,
    credential: Credential<'_>,
) -> CallHeader<'_> {
    CallHeader { xid: Xid(0), program, version, procedure, credential, verifier: Auth::NONE }
}

/// Returns the octets that `write` writes.
pub fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut octets = vec![0; 16_384];
    let mut writer = Writer::new(&mut octets);
    write(&mut writer);
    let len = writer.len();
    octets.truncate(len);
    octets
}

/// The message of a call without its DDP-eligible argument, and that argument.
pub fn encode<'a>(call: &Call<'a>) -> (Vec<u8>, Option<&'a [u8]>) {
    let apart = |bulk: Bulk<'a>| {
        (Bulk::Apart(bulk.len() as u32), bulk.octets().filter(|octets| !octets.is_empty()))
    };
    let (call, item) = match *call {
        Call::Write(args) => {
            let (data, item) = apart(args.data);
            (Call::Write(WriteArgs { data, ..args }), item)
        }
        Call::Symlink(args) => {
            let (path, item) = apart(args.path);
            (Call::Symlink(SymlinkArgs { path, ..args }), item)
        }
        call => (call, None),
    };
    let header = header(100_003, 3, call.procedure().number(), user());
    let octets = written(|writer| {
        header.emit(writer).unwrap();
        call.emit(writer).unwrap();
    });
    (octets, item)
}

pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + seed * 7) as u8).collect()
}
