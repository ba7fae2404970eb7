//! Arguments of each call.

use super::{
    CallOutlet, Label, LoadFiles, Workload, ask::Ask, block, items::SpareItems, name,
    template::ReadTemplate,
};
use stag_echo::driver::Drive;
use stag_engine::{Cx, Request, Token, stages::service};
use stag_protocol::{
    nfs::{
        Bulk, binding,
        v3::{
            self, Attributes, CommitArgs, CreateArgs, CreateHow, DirOpArgs, LookupArgs, Name,
            Procedure, RemoveArgs, SetAttributes, StableHow, WriteArgs,
        },
    },
    rpc::{AuthSys, Credential},
    xdr::{Codec, NoRoom, Writer},
};
use stag_rpc::{CallError, RawCall};
use std::{fmt::Write as _, time::Duration};

/// Octets of the longest arguments of a call without their item: a handle, a name of ours, and
/// attributes.
const ARGUMENTS_LEN_MAX: usize = 256;
/// Octets of the results of GETATTR: a status, and attributes.
const ATTRIBUTES_LEN: usize = 4 + Attributes::LEN;
/// Octets of the longest results of an echo without their item.
const RESULTS_LEN_MAX: usize = 12;
/// Time for which the server may call. It is practically unlimited, because the calls themselves
/// show that the server still makes them.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365);

/// Settings from which calls are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maker {
    pub workload: Workload,
    /// Octets of payload.
    pub len: usize,
    /// Calls outstanding on each connection.
    pub depth: usize,
    /// Compare what comes with what was asked for.
    pub verify: bool,
    /// The user that AUTH_SYS names.
    pub user: AuthSys<'static>,
    pub timeout: Duration,
    /// An export is named.
    pub is_nfs: bool,
    pub files: Option<LoadFiles>,
    /// READs of the file; see [`Maker::prepared`].
    pub read: Option<ReadTemplate>,
}

impl Maker {
    /// The same, with its READs prepared.
    pub fn prepared(self) -> Self {
        Self { read: ReadTemplate::new(&self), ..self }
    }

    /// Makes the call; one of only a few octets is sent at once if allowed. None if our memory for
    /// it is short.
    #[inline]
    pub fn make(
        &self,
        cx: &mut Cx<'_>,
        mut to: impl CallOutlet,
        ask: Ask,
        token: Token,
        items: &mut SpareItems,
    ) -> Option<()> {
        if ask == Ask::Null {
            return self.send_short(cx, &mut to, token, echo(stag_echo::NULL), |_| Ok(()));
        }
        self.make_any(cx, &mut to, ask, token, items)
    }

    /// The same for any call.
    // A separate function, so that the shortest calls save no registers for all the others.
    #[inline(never)]
    fn make_any(
        &self,
        cx: &mut Cx<'_>,
        to: &mut impl CallOutlet,
        ask: Ask,
        token: Token,
        items: &mut SpareItems,
    ) -> Option<()> {
        match ask {
            Ask::Null => self.send_short(cx, to, token, echo(stag_echo::NULL), |_| Ok(())),
            Ask::GetAttr => {
                let called = self.nfs(Procedure::GetAttr, ATTRIBUTES_LEN);
                let file = &self.files.as_ref()?.file;
                self.send_short(cx, to, token, called, |writer| file.emit(writer))
            }
            Ask::Echo { .. }
            | Ask::Pull { .. }
            | Ask::Push { .. }
            | Ask::Drive { .. }
            | Ask::Read { .. }
            | Ask::Write { .. } => {
                let request = self.request(cx, ask, token, items)?;
                to.send(cx, request)
            }
            _ => {
                let label = label(ask);
                let call = self.call(ask, label.octets())?;
                let called = self.nfs_call(&call);
                self.send_short(cx, to, token, called, |writer| call.emit(writer))
            }
        }
    }

    /// A call with an item, or one that waits for longer than others. None when our memory for it
    /// is short.
    fn request(
        &self,
        cx: &Cx<'_>,
        ask: Ask,
        token: Token,
        items: &mut SpareItems,
    ) -> Option<Request> {
        let len32 = u32::try_from(self.len).ok()?;
        match ask {
            Ask::Echo { place } => {
                let request = self
                    .without_items(cx, token, echo(stag_echo::ECHO), |writer| writer.u32(len32))?;
                with_result(
                    cx,
                    items.add(cx, request, stag_echo::part(place, self.len)?)?,
                    self.len,
                )
            }
            Ask::Pull { place } => {
                let said = if self.verify { place } else { stag_echo::UNCHECKED };
                let write =
                    |writer: &mut Writer<'_>| writer.u32(said).and_then(|()| writer.u32(len32));
                let request = self.without_items(cx, token, echo(stag_echo::PULL), write)?;
                items.add(cx, request, stag_echo::part(place, self.len)?)
            }
            Ask::Push { place } => {
                let write =
                    |writer: &mut Writer<'_>| writer.u32(place).and_then(|()| writer.u32(len32));
                let request = self.without_items(cx, token, echo(stag_echo::PUSH), write)?;
                with_result(cx, request, self.len)
            }
            Ask::Drive { first } => {
                let depth = u32::try_from(self.depth).ok()?;
                let drive = Drive { first, depth, len: len32, verify: self.verify };
                let request = self.without_items(cx, token, echo(stag_echo::DRIVE), |writer| {
                    drive.emit(writer)
                })?;
                Some(Request { timeout: FOR_EVER, ..request })
            }
            Ask::Read { block } => {
                let read = self.read.as_ref()?;
                let message = read.message(cx, block * u64::from(len32))?;
                let (reply_max, timeout) = (read.reply_max, self.timeout);
                let (item, result) = (None, Some(cx.room(self.len)?));
                Some(Request { message, item, reply_max, result, timeout, token })
            }
            _ => {
                let call = self.call(ask, &[])?;
                let request =
                    self.without_items(cx, token, self.nfs_call(&call), |to| call.emit(to))?;
                let Ask::Write { block: number } = ask else { return None };
                items.add(cx, request, block(number, self.len, true))
            }
        }
    }

    /// Asks a server for the stages of its calls.
    pub fn ask_stages(&self, cx: &Cx<'_>, token: Token) -> Option<Request> {
        let called = RawCall::new(service::PROGRAM, service::VERSION, service::ASK);
        with_result(cx, self.without_items(cx, token, called, |_| Ok(()))?, service::LEN_MAX)
    }

    /// A call of NFS.
    fn call<'a>(&self, ask: Ask, name: &'a [u8]) -> Option<v3::Call<'a>> {
        if ask == Ask::NfsNull {
            return Some(v3::Call::Null);
        }
        let LoadFiles { dir, file, .. } = self.files?;
        let count = u32::try_from(self.len).ok()?;
        let what = DirOpArgs { dir, name: Name(name) };
        Some(match ask {
            Ask::Lookup { .. } | Ask::Find { .. } => v3::Call::Lookup(LookupArgs { what }),
            Ask::Write { block } => v3::Call::Write(WriteArgs {
                file,
                offset: block * u64::from(count),
                stable: self.stability(),
                data: Bulk::Apart(count),
            }),
            Ask::Create { .. } => {
                let how = CreateHow::Unchecked(SetAttributes {
                    mode: Some(0o600),
                    ..SetAttributes::default()
                });
                v3::Call::Create(CreateArgs { place: what, how })
            }
            Ask::Remove { .. } => v3::Call::Remove(RemoveArgs { object: what }),
            // The whole file.
            Ask::Commit => v3::Call::Commit(CommitArgs { file, offset: 0, count: 0 }),
            Ask::Null | Ask::NfsNull | Ask::GetAttr | Ask::Echo { .. } => return None,
            Ask::Pull { .. } | Ask::Push { .. } | Ask::Drive { .. } => return None,
            Ask::Read { .. } | Ask::ReadDirPlus { .. } => return None,
        })
    }

    /// The stability that WRITEs ask for.
    pub(super) const fn stability(&self) -> StableHow {
        match self.workload {
            Workload::Commit => StableHow::Unstable,
            _ => StableHow::FileSync,
        }
    }

    /// A call of NFS, for the user.
    pub(super) fn nfs_call(&self, call: &v3::Call<'_>) -> RawCall<'static> {
        self.nfs(call.procedure(), Self::results_max(call))
    }

    /// Octets of the longest results of a call, without their item.
    pub(super) fn results_max(call: &v3::Call<'_>) -> usize {
        binding::result_len_max(call).inline
    }

    /// A call of this procedure, for the user.
    #[inline]
    fn nfs(&self, procedure: Procedure, results_max: usize) -> RawCall<'static> {
        let credential = Credential::Sys(self.user);
        let called = RawCall::new(v3::PROGRAM, v3::VERSION, procedure.number());
        RawCall { credential, results_max, ..called }
    }

    /// A call that is nothing but a few octets.
    // Always inlined: for NULL it is a quarter of the generator's work otherwise.
    #[inline(always)]
    fn send_short(
        &self,
        cx: &mut Cx<'_>,
        to: &mut impl CallOutlet,
        token: Token,
        call: RawCall<'_>,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Option<()> {
        let sent = to.send_short(cx, self.timeout, token, &bounded(call), write);
        debug_assert_eq!(sent, Ok(()), "calls are short");
        sent.ok()
    }

    /// A call without items.
    pub(super) fn without_items(
        &self,
        cx: &Cx<'_>,
        token: Token,
        call: RawCall<'_>,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Option<Request> {
        let request = bounded(call).write(cx, self.timeout, token, write);
        debug_assert_ne!(request.as_ref().err(), Some(&CallError::TooLong), "calls are short");
        request.ok()
    }
}

/// A call of the echo program.
const fn echo(procedure: u32) -> RawCall<'static> {
    RawCall::new(stag_echo::PROGRAM, stag_echo::VERSION, procedure)
}

/// A call whose arguments and results are not longer than ours are.
#[inline]
fn bounded(call: RawCall<'_>) -> RawCall<'_> {
    let results_max = call.results_max.max(RESULTS_LEN_MAX);
    RawCall { arguments_max: ARGUMENTS_LEN_MAX, results_max, ..call }
}

pub(super) fn with_result(cx: &Cx<'_>, request: Request, len: usize) -> Option<Request> {
    Some(Request { result: Some(cx.room(len)?), ..request })
}

pub(super) fn label(ask: Ask) -> Label {
    let mut label = Label::default();
    let _ = match ask {
        Ask::Create { slot } | Ask::Find { slot } | Ask::Remove { slot } => {
            write!(label, "m{slot}")
        }
        Ask::Lookup { number } => return name(number),
        _ => Ok(()),
    };
    label
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_echo::Caller;
    use stag_engine::{Config, Shard};
    use stag_protocol::{
        nfs::v3::{FileHandle, ReadArgs},
        rpc::Gids,
    };
    use stag_sim::{Fabric, Faults};

    #[test]
    fn a_prepared_read_is_the_call_that_a_read_is() {
        let config = Config::small();
        let end = Fabric::new(1, Faults::NONE).end("client", config.limits(64));
        let mut shard = Shard::new(end, Caller::default(), config, Box::new(|_| true)).unwrap();
        let dir = FileHandle::new(&[]).unwrap();
        let (gids, machine_name) = (Gids::default(), &b"a-host"[..]);
        for (handle_len, len) in [(0, 1), (30, 4_096), (31, 512), (64, 1 << 20)] {
            let file = FileHandle::new(&vec![7; handle_len]).unwrap();
            let maker = Maker {
                workload: Workload::Read,
                len,
                depth: 1,
                verify: true,
                user: AuthSys { stamp: 0, machine_name, uid: 1, gid: 2, gids },
                timeout: Duration::from_secs(3),
                is_nfs: true,
                files: Some(LoadFiles { dir, file, blocks: 1 << 40, names: 0 }),
                read: None,
            };
            let maker = maker.prepared();
            for block in [0, 1, 77, 1 << 33] {
                shard.with_app(|_, cx| {
                    let prepared = maker
                        .request(cx, Ask::Read { block }, Token(5), &mut SpareItems::new(true, 0))
                        .unwrap();
                    let offset = block * len as u64;
                    let call = v3::Call::Read(ReadArgs { file, offset, count: len as u32 });
                    let called = maker.nfs_call(&call);
                    let written = maker.without_items(cx, Token(5), called, |to| call.emit(to));
                    let written = with_result(cx, written.unwrap(), len).unwrap();
                    assert_eq!(*prepared.message, *written.message);
                    assert_eq!(prepared.result.unwrap().len(), len);
                    let rest = |request: &Request| (request.reply_max, request.timeout);
                    let prepared = (prepared.reply_max, prepared.timeout);
                    assert_eq!((prepared, Token(5)), (rest(&written), written.token));
                });
            }
        }
    }
}
