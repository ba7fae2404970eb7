//! The server under test, and the objects that are made in it first, for defects to use.

use crate::{
    peer::{HostileFabric, Opening},
    record::RecordStream,
    wire::{MOUNT, NFS, Xdr, call, word_at},
};
use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Entries of the large directory; each name is 200 octets, so that its listing fits no inline
/// message.
const ENTRIES: u32 = 40;
/// Octets of the file.
pub const FILE_LEN: u32 = 131_072;

/// Addresses of the server, and its properties.
#[derive(Clone, Debug)]
pub struct ServerUnderTest {
    /// RPC-over-RDMA over iWARP.
    pub rdma: SocketAddr,
    /// NFS over TCP.
    pub tcp: SocketAddr,
    /// MOUNT over TCP.
    pub mount: SocketAddr,
    /// Export to mount, as MOUNT names it.
    pub export: String,
    /// True if CRCs are asked for: siw loses its place if an FPDU's end arrives in two TCP
    /// segments.
    pub crc: bool,
    /// True for Linux' siw, which writes the fields of a Terminate in another order.
    pub is_siw: bool,
    /// Time limit for an answer.
    pub patience: Duration,
    /// Time to wait for an answer before a call tests if the connection goes on.
    pub pause: Duration,
    /// Time to wait for an answer after that of a later call.
    pub grace: Duration,
}

/// A server with objects in it.
#[derive(Debug)]
pub struct HostileWorld {
    /// Addresses of the server.
    pub target: ServerUnderTest,
    /// The export's root.
    pub root: Vec<u8>,
    /// A directory, in which all others are.
    pub dir: Vec<u8>,
    /// Its name in the root.
    pub name: Vec<u8>,
    /// A file of [`FILE_LEN`] octets.
    pub file: Vec<u8>,
    /// A symbolic link.
    pub link: Vec<u8>,
    /// A directory whose listing is long.
    pub large: Vec<u8>,
    /// A handle of a file that is gone.
    pub gone: Vec<u8>,
    xid: AtomicU32,
}

/// A `diropargs3`.
pub fn place(dir: &[u8], name: &[u8]) -> Xdr {
    Xdr::new().opaque(dir).opaque(name)
}

/// A `sattr3` that sets the mode only.
pub fn mode(xdr: Xdr, mode: u32) -> Xdr {
    xdr.words(&[1, mode, 0, 0, 0, 0, 0])
}

impl HostileWorld {
    /// Mounts, and makes the objects.
    pub fn build(target: ServerUnderTest) -> io::Result<Self> {
        let mut random = [0; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let seed = u32::from_ne_bytes(random);
        let xid = AtomicU32::new(seed & 0x3FFF_FFFF | 0x4000_0000);
        let name = format!("hostile-{seed:08x}").into_bytes();
        let empty = Vec::new;
        let mut world = Self {
            target,
            root: empty(),
            dir: empty(),
            name,
            file: empty(),
            link: empty(),
            large: empty(),
            gone: empty(),
            xid,
        };
        let patience = world.target.patience;
        let mut mount = RecordStream::open(world.target.mount, patience)?;
        let path = Xdr::new().opaque(world.target.export.as_bytes());
        let mounted = mount.results(&call(world.xid(), MOUNT, 3, 1).raw(&path.0).0, patience)?;
        world.root = opaque_at(&mounted, 0)
            .ok_or_else(|| io::Error::other("the export cannot be mounted"))?;
        let mut nfs = RecordStream::open(world.target.tcp, patience)?;
        world.dir = world.make(&mut nfs, 9, mode(place(&world.root, &world.name), 0o777))?;
        world.file = world.make(&mut nfs, 8, mode(place(&world.dir, b"file").u32(0), 0o666))?;
        let octets: Vec<u8> = (0..FILE_LEN).map(|index| (index % 251) as u8).collect();
        let write = Xdr::new().opaque(&world.file).u64(0).words(&[FILE_LEN, 2]).opaque(&octets);
        world.succeed(&mut nfs, 7, &write)?;
        let link = place(&world.dir, b"link").words(&[0, 0, 0, 0, 0, 0]).opaque(b"file");
        world.link = world.make(&mut nfs, 10, link)?;
        world.large = world.make(&mut nfs, 9, mode(place(&world.dir, b"large"), 0o777))?;
        for entry in 0..ENTRIES {
            world.make(&mut nfs, 8, mode(place(&world.large, &entry_name(entry)).u32(0), 0o666))?;
        }
        world.gone = world.make(&mut nfs, 8, mode(place(&world.dir, b"gone").u32(0), 0o666))?;
        world.succeed(&mut nfs, 12, &place(&world.dir, b"gone"))?;
        Ok(world)
    }

    /// Removes the objects.
    pub fn tear_down(&self) -> io::Result<()> {
        let mut nfs = RecordStream::open(self.target.tcp, self.target.patience)?;
        for entry in 0..ENTRIES {
            self.succeed(&mut nfs, 12, &place(&self.large, &entry_name(entry)))?;
        }
        self.succeed(&mut nfs, 13, &place(&self.dir, b"large"))?;
        // Defects may have made or removed these.
        for name in [&b"link"[..], b"file", b"made", b"twice"] {
            let _ = self.succeed(&mut nfs, 12, &place(&self.dir, name));
        }
        self.succeed(&mut nfs, 13, &place(&self.root, &self.name)).map(drop)
    }

    /// An XID that was not used before.
    pub fn xid(&self) -> u32 {
        self.xid.fetch_add(1, Ordering::Relaxed)
    }

    /// The results of a procedure of NFS, which has to succeed.
    pub fn succeed(
        &self,
        nfs: &mut RecordStream,
        procedure: u32,
        arguments: &Xdr,
    ) -> io::Result<Vec<u8>> {
        let message = call(self.xid(), NFS, 3, procedure).raw(&arguments.0).0;
        let results = nfs.results(&message, self.target.patience)?;
        match word_at(&results, 0) {
            0 => Ok(results),
            status => Err(io::Error::other(format!(
                "procedure {procedure} of a good call ends with status {status}"
            ))),
        }
    }

    fn make(&self, nfs: &mut RecordStream, procedure: u32, arguments: Xdr) -> io::Result<Vec<u8>> {
        let results = self.succeed(nfs, procedure, &arguments)?;
        opaque_at(&results, 4).ok_or_else(|| io::Error::other("a new object has no handle"))
    }

    /// A good connection over the fabric.
    pub fn fabric(&self) -> io::Result<HostileFabric> {
        let opened = HostileFabric::open(
            self.target.rdma,
            &Opening::new(self.target.crc),
            self.target.patience,
        )?;
        let mut fabric =
            opened.map_err(|answer| io::Error::other(format!("a good connection is {answer}")))?;
        fabric.is_siw = self.target.is_siw;
        Ok(fabric)
    }

    /// A good connection over TCP.
    pub fn stream(&self) -> io::Result<RecordStream> {
        RecordStream::open(self.target.tcp, self.target.patience)
    }
}

/// The opaque after the word at `at`, which says whether there is one (or is a status).
fn opaque_at(results: &[u8], at: usize) -> Option<Vec<u8>> {
    let len = word_at(results, at + 4) as usize;
    if at == 4 && word_at(results, at) != 1 || at == 0 && word_at(results, at) != 0 {
        return None;
    }
    results.get(at + 8..at + 8 + len).map(<[u8]>::to_vec).filter(|handle| !handle.is_empty())
}

fn entry_name(entry: u32) -> Vec<u8> {
    format!("{entry:0>200}").into_bytes()
}
