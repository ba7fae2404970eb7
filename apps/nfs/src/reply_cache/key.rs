//! Key of a call, by which retransmissions are recognised.

use std::net::IpAddr;

use siphasher::sip128::SipHasher13;
use stag_engine::PeerAddress;
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{Call, FileHandle, PATH_MAX, WriteArgs},
    },
    rpc::{AuthSys, CallHeader, Credential},
    rpcrdma::Xid,
    xdr::{NoRoom, Writer},
};

/// A client: its address, without port and transport, because a client that reconnects may use
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheClient {
    Ip(IpAddr),
    /// A user of this host: a restarted process has another number.
    User(u32),
    Simulated,
}

impl From<PeerAddress> for CacheClient {
    /// An IPv4 address equals its IPv4-mapped IPv6 form.
    fn from(address: PeerAddress) -> Self {
        match address {
            PeerAddress::Ip(at) => Self::Ip(at.ip().to_canonical()),
            PeerAddress::Process { uid, .. } => Self::User(uid),
            PeerAddress::Simulated => Self::Simulated,
        }
    }
}

impl CacheClient {
    /// The address as 16 octets; a simulated one is no host's.
    fn octets(self) -> [u8; 16] {
        match self {
            Self::Ip(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
            Self::Ip(IpAddr::V6(address)) => address.octets(),
            // In ::/64 no host has such an address.
            Self::User(uid) => {
                let [a, b, c, d] = uid.to_be_bytes();
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, a, b, c, d]
            }
            Self::Simulated => [0; 16],
        }
    }
}

/// One call. Program and version are NFS version 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallKey {
    pub(crate) xid: Xid,
    /// Keyed hash over the whole call, arguments included, and the client. No client can construct
    /// two calls with the same key, and an XID reused after a restart, or by another host behind
    /// the same address, identifies another call.
    pub(crate) digest: [u64; 2],
}

/// Bytes of the longest arguments: two handles and two names, or one of each, attributes and a
/// path. Names are parsed up to the length of a path.
const ARGUMENTS_MAX: usize = 2 * (4 + FileHandle::MAX + 4 + PATH_MAX) + 128;
/// Bytes of a WRITE's payload that are hashed, at each end.
pub(crate) const SAMPLE_LEN: usize = 512;
const _: () = assert!(2 * (SAMPLE_LEN + 4 + FileHandle::MAX + 20) < ARGUMENTS_MAX);
/// Bytes of client, XID, procedure and credential.
const HEADER_MAX: usize = 16 + 3 * 4 + 4 * 20 + 4 + AuthSys::MACHINE_NAME_MAX.next_multiple_of(4);

/// Makes keys. Shards that share a cache make equal ones.
pub(crate) struct CallKeys {
    hasher: SipHasher13,
    scratch: Box<[u8]>,
}

impl std::fmt::Debug for CallKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CallKeys")
    }
}

impl CallKeys {
    pub(crate) fn new(secret: &[u8; 16]) -> Self {
        let scratch = vec![0; HEADER_MAX + ARGUMENTS_MAX].into_boxed_slice();
        Self { hasher: SipHasher13::new_with_key(secret), scratch }
    }

    /// A number for the client that is the same on all shards.
    pub(crate) fn client(&self, client: CacheClient) -> u64 {
        self.hasher.hash(&client.octets()).h1
    }

    /// The key of a call. Arguments are hashed in their inline form: a retransmission may come in
    /// another form (RFC 8166 §3.5), with other padding.
    ///
    /// Of a WRITE's payload only [`SAMPLE_LEN`] bytes at both ends are hashed, with its length:
    /// such a key only has to distinguish calls that are in flight at the same time.
    ///
    /// # Panics
    /// When `call` was not parsed, and is longer than a parsed one.
    pub(crate) fn key(
        &mut self,
        client: CacheClient,
        header: &CallHeader<'_>,
        call: &Call<'_>,
    ) -> CallKey {
        let mut writer = Writer::new(&mut self.scratch);
        write(&mut writer, client, header, call).expect("there is room for the longest arguments");
        let len = writer.len();
        let digest = self.hasher.hash(self.scratch.get(..len).unwrap_or_default());
        // RFC 5531 §5 [5531-3]: an XID is compared for equality only
        CallKey { xid: header.xid, digest: [digest.h1, digest.h2] }
    }
}

fn write(
    writer: &mut Writer<'_>,
    client: CacheClient,
    header: &CallHeader<'_>,
    call: &Call<'_>,
) -> Result<(), NoRoom> {
    writer.fixed(&client.octets())?;
    writer.u32(header.xid.0)?;
    writer.u32(call.procedure().number())?;
    // The user and its host: several hosts may share one address. The stamp is left out: some
    // clients put the time there, even in a retransmission.
    match header.credential {
        Credential::Sys(user) => {
            writer.u32(1)?;
            writer.opaque(user.machine_name)?;
            writer.u32(user.uid)?;
            writer.u32(user.gid)?;
            writer.u32(user.gids.list().len() as u32)?;
            user.gids.list().iter().try_for_each(|gid| writer.u32(*gid))?;
        }
        Credential::Proven(user) => {
            writer.u32(2)?;
            writer.fixed(&user.identity.0)?;
        }
        // No other credential reaches a cached procedure.
        Credential::None | Credential::Other(_) => writer.u32(0)?,
    }
    match call {
        Call::Write(args) => write_sample(writer, args),
        call => call.emit(writer),
    }
}

/// Writes a WRITE's arguments without the middle of its payload.
fn write_sample(writer: &mut Writer<'_>, args: &WriteArgs<'_>) -> Result<(), NoRoom> {
    let octets = args.data.octets().unwrap_or_default();
    writer.u64(octets.len() as u64)?;
    let head = octets.get(..SAMPLE_LEN).unwrap_or(octets);
    let tail = octets.len().checked_sub(SAMPLE_LEN).and_then(|at| octets.get(at..));
    for data in [head, tail.unwrap_or_default()] {
        Call::Write(WriteArgs { data: Bulk::Inline(data), ..*args }).emit(writer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::{
        nfs::v3::{
            DirOpArgs, Name, Procedure, RemoveArgs, RenameArgs, SetAttributes, SetTime,
            SymlinkArgs, Time,
        },
        rpc::{Auth, Gids},
        xdr::{Piece, Reader},
    };

    fn sys(uid: u32, gid: u32, gids: &[u32], stamp: u32) -> Credential<'static> {
        of(b"m", uid, gid, gids, stamp)
    }

    fn of<'a>(
        machine_name: &'a [u8],
        uid: u32,
        gid: u32,
        gids: &[u32],
        stamp: u32,
    ) -> Credential<'a> {
        Credential::Sys(AuthSys { stamp, machine_name, uid, gid, gids: Gids::new(gids).unwrap() })
    }

    fn header(xid: u32, credential: Credential<'_>) -> CallHeader<'_> {
        CallHeader {
            xid: Xid(xid),
            program: 100_003,
            version: 3,
            procedure: 12,
            credential,
            verifier: Auth::NONE,
        }
    }

    fn place(name: &[u8]) -> DirOpArgs<'_> {
        DirOpArgs { dir: FileHandle::new(&[7; 44]).unwrap(), name: Name(name) }
    }

    fn ip(address: &str) -> CacheClient {
        PeerAddress::Ip(address.parse().unwrap()).into()
    }

    #[test]
    fn a_client_is_an_address_without_port() {
        assert_eq!(ip("10.0.0.1:700"), ip("10.0.0.1:900"));
        assert_eq!(ip("10.0.0.1:700"), ip("[::ffff:10.0.0.1]:2049"));
        assert_ne!(ip("10.0.0.1:700"), ip("10.0.0.2:700"));
        assert_ne!(ip("10.0.0.1:700"), CacheClient::Simulated);
        let keys = CallKeys::new(&[1; 16]);
        assert_eq!(keys.client(ip("10.0.0.1:1")), keys.client(ip("[::ffff:10.0.0.1]:2")));
    }

    #[test]
    fn everything_but_the_stamp_makes_another_call() {
        let mut keys = CallKeys::new(&[1; 16]);
        let call = Call::Remove(RemoveArgs { object: place(b"name") });
        let mut key = |client, xid, credential, call: &Call<'_>| {
            keys.key(client, &header(xid, credential), call)
        };
        let here = ip("10.0.0.1:1");
        let first = key(here, 1, sys(1, 2, &[3], 4), &call);
        assert_eq!(first, key(here, 1, sys(1, 2, &[3], 5), &call), "the stamp");
        for other in [
            key(ip("10.0.0.2:1"), 1, sys(1, 2, &[3], 4), &call),
            key(here, 2, sys(1, 2, &[3], 4), &call),
            key(here, 1, sys(9, 2, &[3], 4), &call),
            key(here, 1, sys(1, 9, &[3], 4), &call),
            key(here, 1, sys(1, 2, &[9], 4), &call),
            key(here, 1, sys(1, 2, &[], 4), &call),
            key(here, 1, of(b"n", 1, 2, &[3], 4), &call),
            key(here, 1, Credential::None, &call),
            key(here, 1, sys(1, 2, &[3], 4), &Call::RmDir(RemoveArgs { object: place(b"name") })),
            key(here, 1, sys(1, 2, &[3], 4), &Call::Remove(RemoveArgs { object: place(b"nome") })),
        ] {
            assert_ne!(first.digest, other.digest);
            assert_ne!(first, other);
        }
        assert_ne!(first, CallKeys::new(&[2; 16]).key(here, &header(1, sys(1, 2, &[3], 4)), &call));
    }

    #[test]
    fn the_form_of_a_call_makes_no_difference() {
        let mut keys = CallKeys::new(&[1; 16]);
        let attributes = SetAttributes::default();
        let path = &b"a path that needs padding"[..];
        let args = SymlinkArgs { place: place(b"link"), attributes, path: Bulk::Inline(path) };
        let mut octets = vec![0; 512];
        let mut writer = Writer::new(&mut octets);
        Call::Symlink(args).emit(&mut writer).unwrap();
        let len = writer.len();
        let whole = &octets[..len];
        let (head, _) = whole.split_at(whole.len() - 28);
        let chunked = [Piece::Inline(head), Piece::Chunk(path)];
        let header = CallHeader { procedure: 10, ..header(1, Credential::None) };
        let mut key = |reader| {
            let call = Call::parse(Procedure::Symlink, reader).unwrap();
            keys.key(CacheClient::Simulated, &header, &call)
        };
        assert_eq!(key(Reader::new(whole)), key(Reader::over(&chunked)));
    }

    #[test]
    fn the_longest_calls_have_keys() {
        let mut keys = CallKeys::new(&[1; 16]);
        let gids = [9; Gids::MAX];
        let header = header(1, of(&[b'm'; AuthSys::MACHINE_NAME_MAX], 1, 2, &gids, 3));
        let path = [b'p'; PATH_MAX];
        let dir = FileHandle::new(&[7; FileHandle::MAX]).unwrap();
        let place = DirOpArgs { dir, name: Name(&path) };
        let time = SetTime::Client(Time::default());
        let attributes = SetAttributes {
            mode: Some(1),
            uid: Some(1),
            gid: Some(1),
            size: Some(1),
            atime: time,
            mtime: time,
        };
        let link = Call::Symlink(SymlinkArgs { place, attributes, path: Bulk::Inline(&path) });
        let rename = Call::Rename(RenameArgs { from: place, to: place });
        for call in [link, rename] {
            let mut writer = Writer::new(&mut keys.scratch);
            assert_eq!(write(&mut writer, CacheClient::Simulated, &header, &call), Ok(()));
            assert!(writer.len() > 2 * PATH_MAX);
        }
    }
}
