//! What is called, and how each call and its reply look.

use super::schedule::Random;
use crate::{Error, client, nfs3};
use serde::{Deserialize, Serialize};
use stag_echo::driver::{Drive, Driven};
use stag_engine::{Cx, Request, RequestItem, Stages, Token, stages::service};
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{self, CreateArgs, CreateHow, DirOpArgs, FileHandle, GetAttrArgs, LookupArgs, Name, ReadArgs},
        v3::{RemoveArgs, SetAttributes, StableHow, WriteArgs},
    },
    rpc::{Auth, AuthSys, CallHeader, Credential, Gids, ReplyHeader},
    rpcrdma::Xid,
    xdr::{NoRoom, Piece, Reader, Writer},
};
use std::{fmt, fmt::Write as _, str::FromStr, time::Duration};

/// Octets of the longest call without its item.
const CALL_LEN_MAX: usize = 640;
/// How long the server may call: whether it still does is seen by its calls.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365);
/// Names in the directory of [`Workload::Lookup`].
pub const NAMES: u64 = 128;
/// Places between the first content of a file's block and the content that a WRITE gives it.
const WRITTEN: u64 = stag_echo::PLACES as u64 / 2;

/// What a run calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Workload {
    /// NULL: of NFS when an export is named, else of the echo program.
    Null,
    /// The echo program: octets there and back.
    Echo,
    /// The echo program: octets there. The server pulls them from a Read chunk when they do not fit inline.
    Pull,
    /// The echo program: octets back. The server pushes them into a Write chunk when they do not fit inline.
    Push,
    /// The echo program: half NULL, the rest ECHO, PULL and PUSH alike.
    Mixed,
    /// The server calls (RFC 8167), over the connections that were made to it: octets there and back. Served by
    /// [`stag_echo::Driver`].
    Reverse,
    /// A connection, NULL, and its end.
    ConnStorm,
    /// GETATTR of a file.
    GetAttr,
    /// LOOKUP of names that are there.
    Lookup,
    /// READs of whole blocks, at random.
    Read,
    /// WRITEs of whole blocks, at random, FILE_SYNC.
    Write,
    /// 70 READs to 30 WRITEs.
    ReadWrite,
    /// CREATE, LOOKUP, REMOVE, and again.
    Meta,
}

/// All of them, by name.
const WORKLOADS: [(&str, Workload); 13] = [
    ("null", Workload::Null),
    ("echo", Workload::Echo),
    ("pull", Workload::Pull),
    ("push", Workload::Push),
    ("mixed", Workload::Mixed),
    ("reverse", Workload::Reverse),
    ("connstorm", Workload::ConnStorm),
    ("nfs3:getattr", Workload::GetAttr),
    ("nfs3:lookup", Workload::Lookup),
    ("nfs3:read", Workload::Read),
    ("nfs3:write", Workload::Write),
    ("nfs3:mixed", Workload::ReadWrite),
    ("nfs3:meta", Workload::Meta),
];

impl Workload {
    /// How it is written.
    pub fn name(self) -> &'static str {
        WORKLOADS.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Whether it needs an export.
    pub const fn is_nfs(self) -> bool {
        use Workload::{GetAttr, Lookup, Meta, Read, ReadWrite, Write};
        matches!(self, GetAttr | Lookup | Read | Write | ReadWrite | Meta)
    }

    /// Whether its calls move payload.
    pub const fn has_payload(self) -> bool {
        use Workload::{ConnStorm, GetAttr, Lookup, Meta, Null};
        !matches!(self, Null | ConnStorm | GetAttr | Lookup | Meta)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = WORKLOADS.iter().find(|(name, _)| *name == text);
        known.map(|(_, workload)| *workload).ok_or_else(|| {
            let names: Vec<_> = WORKLOADS.iter().map(|(name, _)| *name).collect();
            format!("no workload is called {text:?}, only {}", names.join(", "))
        })
    }
}

impl From<Workload> for &'static str {
    fn from(workload: Workload) -> Self {
        workload.name()
    }
}

impl TryFrom<String> for Workload {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What is on the server for one generator.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    /// A directory of its own: with [`NAMES`] files for LOOKUP, and place for those of CREATE.
    pub dir: FileHandle,
    /// A file of its own.
    pub file: FileHandle,
    /// Blocks of that file.
    pub blocks: u64,
}

/// How a file of [`NAMES`] is called.
pub fn name(number: u64) -> Label {
    let mut label = Label::default();
    let _ = write!(label, "f{number}");
    label
}

/// A short name, without memory of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Label([u8; 24], usize);

impl Label {
    /// Its octets.
    pub fn octets(&self) -> &[u8] {
        self.0.get(..self.1).unwrap_or_default()
    }
}

impl fmt::Write for Label {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.1 + text.len();
        self.0.get_mut(self.1..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.1 = end;
        Ok(())
    }
}

/// The octets of a block of a file, as they are first, or as a WRITE of ours leaves them.
pub fn block(number: u64, len: usize, is_written: bool) -> &'static [u8] {
    let place = number.wrapping_mul(8).wrapping_add(if is_written { WRITTEN } else { 0 });
    let place = (place % stag_echo::PLACES as u64) as u32;
    stag_echo::part(place, len).unwrap_or_default()
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Null,
    NfsNull,
    Echo { place: u32 },
    Pull { place: u32 },
    Push { place: u32 },
    Drive { first: u32 },
    GetAttr,
    Lookup { number: u64 },
    Read { block: u64 },
    Write { block: u64 },
    Create { slot: u32 },
    Find { slot: u32 },
    Remove { slot: u32 },
}

impl Ask {
    /// The procedure that is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null | Self::NfsNull => "NULL",
            Self::Echo { .. } => "ECHO",
            Self::Pull { .. } => "PULL",
            Self::Push { .. } => "PUSH",
            Self::Drive { .. } => "DRIVE",
            Self::GetAttr => "GETATTR",
            Self::Lookup { .. } | Self::Find { .. } => "LOOKUP",
            Self::Read { .. } => "READ",
            Self::Write { .. } => "WRITE",
            Self::Create { .. } => "CREATE",
            Self::Remove { .. } => "REMOVE",
        }
    }
}

/// What calls are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maker {
    pub workload: Workload,
    /// Octets of payload.
    pub len: usize,
    /// Calls under way on each connection.
    pub depth: usize,
    /// Compare what comes with what was asked for.
    pub verify: bool,
    pub user: (u32, u32),
    pub timeout: Duration,
    /// An export is named.
    pub is_nfs: bool,
    pub files: Option<Files>,
}

impl Maker {
    /// What slot `slot` calls next; `step` is how many calls it made.
    pub fn ask(&self, random: &mut Random, slot: u32, step: u32) -> Ask {
        let blocks = self.files.map_or(0, |files| files.blocks);
        let half = blocks / 2;
        match self.workload {
            Workload::Null | Workload::ConnStorm if self.is_nfs => Ask::NfsNull,
            Workload::Null | Workload::ConnStorm => Ask::Null,
            // The first reply settles the version, which decides how much fits inline.
            Workload::Reverse if step == 0 => Ask::Null,
            Workload::Reverse => {
                Ask::Drive { first: slot.saturating_mul(u32::try_from(self.depth).unwrap_or(u32::MAX)) }
            }
            Workload::Echo => Ask::Echo { place: place(random) },
            Workload::Pull => Ask::Pull { place: place(random) },
            Workload::Push => Ask::Push { place: place(random) },
            Workload::Mixed => match random.below(6) {
                0 => Ask::Echo { place: place(random) },
                1 => Ask::Pull { place: place(random) },
                2 => Ask::Push { place: place(random) },
                _ => Ask::Null,
            },
            Workload::GetAttr => Ask::GetAttr,
            Workload::Lookup => Ask::Lookup { number: random.below(NAMES) },
            Workload::Read => Ask::Read { block: random.below(blocks) },
            Workload::Write => Ask::Write { block: random.below(blocks) },
            // What is read is never written, so that its octets are known.
            Workload::ReadWrite => match random.below(10) {
                0..7 => Ask::Read { block: random.below(half) },
                _ => Ask::Write { block: half + random.below(blocks - half) },
            },
            Workload::Meta => match step % 3 {
                0 => Ask::Create { slot },
                1 => Ask::Find { slot },
                _ => Ask::Remove { slot },
            },
        }
    }

    /// The call. None when our memory for it is short.
    pub fn request(&self, cx: &Cx<'_>, ask: Ask, token: Token) -> Option<Request> {
        let len32 = u32::try_from(self.len).ok()?;
        let echo = |procedure| (stag_echo::PROGRAM, stag_echo::VERSION, procedure);
        match ask {
            Ask::Null => self.plain(cx, token, echo(stag_echo::NULL), |_| Ok(())),
            Ask::Echo { place } => {
                let request = self.plain(cx, token, echo(stag_echo::ECHO), |writer| writer.u32(len32))?;
                with_result(cx, self.with_item(cx, request, stag_echo::part(place, self.len)?)?, self.len)
            }
            Ask::Pull { place } => {
                let said = if self.verify { place } else { stag_echo::UNCHECKED };
                let write = |writer: &mut Writer<'_>| writer.u32(said).and_then(|()| writer.u32(len32));
                let request = self.plain(cx, token, echo(stag_echo::PULL), write)?;
                self.with_item(cx, request, stag_echo::part(place, self.len)?)
            }
            Ask::Push { place } => {
                let write = |writer: &mut Writer<'_>| writer.u32(place).and_then(|()| writer.u32(len32));
                let request = self.plain(cx, token, echo(stag_echo::PUSH), write)?;
                with_result(cx, request, self.len)
            }
            Ask::Drive { first } => {
                let depth = u32::try_from(self.depth).ok()?;
                let drive = Drive { first, depth, len: len32, verify: self.verify };
                let request = self.plain(cx, token, echo(stag_echo::DRIVE), |writer| drive.emit(writer))?;
                Some(Request { timeout: FOR_EVER, ..request })
            }
            Ask::Write { block: number } => {
                let request = self.nfs(cx, token, &self.call(ask, &[])?)?;
                self.with_item(cx, request, block(number, self.len, true))
            }
            Ask::Read { .. } => {
                let request = self.nfs(cx, token, &self.call(ask, &[])?)?;
                with_result(cx, request, self.len)
            }
            _ => {
                let label = label(ask);
                self.nfs(cx, token, &self.call(ask, label.octets())?)
            }
        }
    }

    /// Asks a server for the stages of its calls.
    pub fn ask_stages(&self, cx: &Cx<'_>, token: Token) -> Option<Request> {
        let what = (service::PROGRAM, service::VERSION, service::ASK);
        with_result(cx, self.plain(cx, token, what, |_| Ok(()))?, service::LEN_MAX)
    }

    /// A call of NFS.
    fn call<'a>(&self, ask: Ask, name: &'a [u8]) -> Option<v3::Call<'a>> {
        if ask == Ask::NfsNull {
            return Some(v3::Call::Null);
        }
        let Files { dir, file, .. } = self.files?;
        let count = u32::try_from(self.len).ok()?;
        let what = DirOpArgs { dir, name: Name(name) };
        Some(match ask {
            Ask::GetAttr => v3::Call::GetAttr(GetAttrArgs { object: file }),
            Ask::Lookup { .. } | Ask::Find { .. } => v3::Call::Lookup(LookupArgs { what }),
            Ask::Read { block } => v3::Call::Read(ReadArgs { file, offset: block * u64::from(count), count }),
            Ask::Write { block } => v3::Call::Write(WriteArgs {
                file,
                offset: block * u64::from(count),
                stable: StableHow::FileSync,
                data: Bulk::Apart(count),
            }),
            Ask::Create { .. } => {
                let how =
                    CreateHow::Unchecked(SetAttributes { mode: Some(0o600), ..SetAttributes::default() });
                v3::Call::Create(CreateArgs { place: what, how })
            }
            Ask::Remove { .. } => v3::Call::Remove(RemoveArgs { object: what }),
            Ask::Null | Ask::NfsNull | Ask::Echo { .. } | Ask::Pull { .. } => return None,
            Ask::Push { .. } | Ask::Drive { .. } => return None,
        })
    }

    fn nfs(&self, cx: &Cx<'_>, token: Token, call: &v3::Call<'_>) -> Option<Request> {
        let parts = nfs3::parts(call, None);
        let what = (parts.program, parts.version, parts.procedure);
        let mut request = self.plain(cx, token, what, |writer| call.emit(writer))?;
        request.reply_max = (ReplyHeader::LEN + parts.results.0).max(ReplyHeader::REFUSAL_LEN_MAX);
        Some(request)
    }

    /// A call without items.
    fn plain(
        &self,
        cx: &Cx<'_>,
        token: Token,
        (program, version, procedure): (u32, u32, u32),
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Option<Request> {
        let (uid, gid) = self.user;
        let gids = Gids::new(&[])?;
        let sys = Credential::Sys(AuthSys { stamp: 0, machine_name: b"stag-bench", uid, gid, gids });
        let credential = if program == v3::PROGRAM { sys } else { Credential::None };
        let header =
            CallHeader { xid: Xid(0), program, version, procedure, credential, verifier: Auth::NONE };
        let mut message = cx.message(CALL_LEN_MAX)?;
        let mut writer = Writer::new(message.spare_mut());
        let written = header.emit(&mut writer).and_then(|()| write(&mut writer));
        debug_assert_eq!(written, Ok(()), "a call without its item has few octets");
        let len = writer.len();
        message.extend(len);
        let (reply_max, timeout) = (ReplyHeader::REFUSAL_LEN_MAX + 8, self.timeout);
        Some(Request { message, item: None, reply_max, result: None, timeout, token })
    }

    fn with_item(&self, cx: &Cx<'_>, request: Request, octets: &[u8]) -> Option<Request> {
        if octets.is_empty() {
            return Some(request);
        }
        let mut item = cx.take(octets.len())?;
        item.append(octets).ok()?;
        let position = request.message.len();
        Some(Request { item: Some(RequestItem { position, octets: item }), ..request })
    }

    /// The octets of payload that a call moved, when its reply is the one that it should have.
    pub fn check(&self, ask: Ask, reply: &[u8], result: &[u8]) -> Result<u64, Error> {
        let pieces = [Piece::Inline(reply), Piece::Chunk(result)];
        let results = client::results(Reader::over(&pieces))?;
        let len = self.len as u64;
        match ask {
            Ask::Null => results.finish().map(|()| 0).map_err(Error::Garbled),
            Ask::Echo { place } => self.payload(results, stag_echo::part(place, self.len)).map(|()| 2 * len),
            Ask::Push { place } => self.payload(results, stag_echo::part(place, self.len)).map(|()| len),
            Ask::Pull { .. } => pulled(results).map(|()| len),
            Ask::Drive { .. } => driven(results).map(|()| 0),
            _ => self.check_nfs(ask, results).map(|moved| if moved { len } else { 0 }),
        }
    }

    fn check_nfs(&self, ask: Ask, results: Reader<'_>) -> Result<bool, Error> {
        let procedure = match ask {
            Ask::GetAttr => v3::Procedure::GetAttr,
            Ask::Lookup { .. } | Ask::Find { .. } => v3::Procedure::Lookup,
            Ask::Read { .. } => v3::Procedure::Read,
            Ask::Write { .. } => v3::Procedure::Write,
            Ask::Create { .. } => v3::Procedure::Create,
            Ask::Remove { .. } => v3::Procedure::Remove,
            _ => v3::Procedure::Null,
        };
        let status = match v3::Reply::parse(procedure, results).map_err(Error::Garbled)? {
            v3::Reply::Null => Ok(()),
            v3::Reply::GetAttr(reply) => reply.map(drop).map_err(|failure| failure.status),
            v3::Reply::Lookup(reply) => reply.map(drop).map_err(|failure| failure.status),
            v3::Reply::Create(reply) => reply.map(drop).map_err(|failure| failure.status),
            v3::Reply::Remove(reply) => reply.map(drop).map_err(|failure| failure.status),
            v3::Reply::Write(Ok(done)) if done.count as usize != self.len => {
                return Err(Error::Nonsense("WRITE took less than was sent"));
            }
            v3::Reply::Write(Ok(done)) if done.committed != StableHow::FileSync => {
                return Err(Error::Nonsense("WRITE is less stable than was asked for"));
            }
            v3::Reply::Write(reply) => reply.map(drop).map_err(|failure| failure.status),
            v3::Reply::Read(Ok(done)) => {
                let Ask::Read { block: number } = ask else { return Ok(false) };
                return self.same(done.data.octets().unwrap_or_default(), block(number, self.len, false));
            }
            v3::Reply::Read(Err(failure)) => Err(failure.status),
            _ => return Err(Error::Nonsense("the reply is one of another procedure")),
        };
        status.map_err(Error::Nfs)?;
        Ok(matches!(ask, Ask::Write { .. }))
    }

    fn payload(&self, mut results: Reader<'_>, expected: Option<&[u8]>) -> Result<(), Error> {
        let octets = results.item(self.len).map_err(Error::Garbled)?;
        self.same(octets, expected.unwrap_or_default())?;
        results.finish().map_err(Error::Garbled)
    }

    /// Octets of payload are those that they should be.
    pub fn same(&self, octets: &[u8], expected: &[u8]) -> Result<bool, Error> {
        if octets.len() != expected.len() {
            return Err(Error::Nonsense("the payload is shorter than what was asked for"));
        }
        if self.verify && octets != expected {
            return Err(CORRUPT);
        }
        Ok(true)
    }
}

fn with_result(cx: &Cx<'_>, request: Request, len: usize) -> Option<Request> {
    let mut result = cx.take(len)?;
    result.extend(len);
    Some(Request { result: Some(result), ..request })
}

/// What a server says of the stages of its calls.
pub(super) fn stages(reply: &[u8], result: &[u8]) -> Result<Stages, Error> {
    let pieces = [Piece::Inline(reply), Piece::Chunk(result)];
    let mut results = client::results(Reader::over(&pieces))?;
    let octets = results.item(service::LEN_MAX).map_err(Error::Garbled)?;
    service::parse(octets).map_err(Error::Garbled)
}

/// The payload is wrong.
pub const CORRUPT: Error = Error::Nonsense("the payload is not what it should be");

fn pulled(mut results: Reader<'_>) -> Result<(), Error> {
    let is_same = results.u32().map_err(Error::Garbled)?;
    if is_same != 1 { Err(CORRUPT) } else { results.finish().map_err(Error::Garbled) }
}

/// How the calls of the server ended.
fn driven(mut results: Reader<'_>) -> Result<(), Error> {
    let end = results.u32().map_err(Error::Garbled)?;
    results.finish().map_err(Error::Garbled)?;
    Err(Error::Nonsense(match Driven::from_number(end) {
        Driven::Stopped => return Ok(()),
        Driven::Corrupt => return Err(CORRUPT),
        Driven::TooLong => {
            "calls of the server have to fit inline on version 1 of RPC-over-RDMA (RFC 8167): give a lower --size, or \
             --rdma-version 2"
        }
        Driven::Full => {
            "the server has no room for so many calls: give a lower --depth, --connections or --size"
        }
        Driven::Failed => "a call of the server failed",
    }))
}

/// Any multiple of 8.
fn place(random: &mut Random) -> u32 {
    (random.below(stag_echo::PLACES as u64 / 8) * 8) as u32
}

fn label(ask: Ask) -> Label {
    let mut label = Label::default();
    let _ = match ask {
        Ask::Create { slot } | Ask::Find { slot } | Ask::Remove { slot } => write!(label, "m{slot}"),
        Ask::Lookup { number } => return name(number),
        _ => Ok(()),
    };
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_read_as_they_are_written() {
        for (name, workload) in WORKLOADS {
            assert_eq!((name.parse(), workload.name()), (Ok(workload), name));
        }
        let wrong = "nfs4:read".parse::<Workload>().unwrap_err();
        assert!(wrong.contains("\"nfs4:read\"") && wrong.contains("nfs3:read"), "{wrong}");
    }

    #[test]
    fn blocks_differ_from_their_neighbours_and_from_what_is_written_there() {
        for number in 0..1_000 {
            let first = block(number, 4_096, false);
            assert_eq!(first.len(), 4_096);
            assert_ne!(first, block(number, 4_096, true));
            assert_ne!(first, block(number + 1, 4_096, false));
        }
        assert_eq!(block(511, 1 << 20, true).len(), 1 << 20);
    }

    #[test]
    fn the_mixture_reads_and_writes_apart() {
        let handle = FileHandle::new(&[1]).unwrap();
        let maker = Maker {
            workload: Workload::ReadWrite,
            len: 4_096,
            depth: 1,
            verify: true,
            user: (0, 0),
            timeout: Duration::ZERO,
            is_nfs: true,
            files: Some(Files { dir: handle, file: handle, blocks: 11 }),
        };
        let (mut random, mut reads) = (Random::new(1), 0);
        for step in 0..10_000 {
            match maker.ask(&mut random, 0, step) {
                Ask::Read { block } => {
                    reads += 1;
                    assert!(block < 5);
                }
                Ask::Write { block } => assert!((5..11).contains(&block)),
                other => panic!("{other:?}"),
            }
        }
        assert!((6_800..7_200).contains(&reads), "{reads}");
    }
}
