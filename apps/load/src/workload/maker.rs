//! Arguments of each call.

use super::{Label, LoadFiles, Workload, ask::Ask, block, name};
use stag_echo::driver::Drive;
use stag_engine::{Cx, Request, RequestItem, Token, stages::service};
use stag_protocol::{
    nfs::{
        Bulk, binding,
        v3::{
            self, CreateArgs, CreateHow, DirOpArgs, GetAttrArgs, LookupArgs, Name, ReadArgs,
            RemoveArgs, SetAttributes, StableHow, WriteArgs,
        },
    },
    rpc::{AuthSys, Credential, Gids},
    xdr::{NoRoom, Writer},
};
use stag_rpc::{CallError, RawCall};
use std::{fmt::Write as _, time::Duration};

/// Octets of the longest arguments of a call without their item.
const ARGUMENTS_LEN_MAX: usize = 512;
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
    /// Calls under way on each connection.
    pub depth: usize,
    /// Compare what comes with what was asked for.
    pub verify: bool,
    pub user: (u32, u32),
    pub timeout: Duration,
    /// An export is named.
    pub is_nfs: bool,
    pub files: Option<LoadFiles>,
}

impl Maker {
    /// The call. None when our memory for it is short.
    pub fn request(&self, cx: &Cx<'_>, ask: Ask, token: Token) -> Option<Request> {
        let len32 = u32::try_from(self.len).ok()?;
        let echo = |procedure| RawCall::new(stag_echo::PROGRAM, stag_echo::VERSION, procedure);
        match ask {
            Ask::Null => self.without_items(cx, token, echo(stag_echo::NULL), |_| Ok(())),
            Ask::Echo { place } => {
                let request = self
                    .without_items(cx, token, echo(stag_echo::ECHO), |writer| writer.u32(len32))?;
                with_result(
                    cx,
                    self.with_item(cx, request, stag_echo::part(place, self.len)?)?,
                    self.len,
                )
            }
            Ask::Pull { place } => {
                let said = if self.verify { place } else { stag_echo::UNCHECKED };
                let write =
                    |writer: &mut Writer<'_>| writer.u32(said).and_then(|()| writer.u32(len32));
                let request = self.without_items(cx, token, echo(stag_echo::PULL), write)?;
                self.with_item(cx, request, stag_echo::part(place, self.len)?)
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
            Ask::GetAttr => v3::Call::GetAttr(GetAttrArgs { object: file }),
            Ask::Lookup { .. } | Ask::Find { .. } => v3::Call::Lookup(LookupArgs { what }),
            Ask::Read { block } => {
                v3::Call::Read(ReadArgs { file, offset: block * u64::from(count), count })
            }
            Ask::Write { block } => v3::Call::Write(WriteArgs {
                file,
                offset: block * u64::from(count),
                stable: StableHow::FileSync,
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
            Ask::Null | Ask::NfsNull | Ask::Echo { .. } | Ask::Pull { .. } => return None,
            Ask::Push { .. } | Ask::Drive { .. } => return None,
        })
    }

    fn nfs(&self, cx: &Cx<'_>, token: Token, call: &v3::Call<'_>) -> Option<Request> {
        let (uid, gid) = self.user;
        let gids = Gids::new(&[])?;
        let sys = AuthSys { stamp: 0, machine_name: b"stag-bench", uid, gid, gids };
        let procedure = call.procedure().number();
        let called = RawCall {
            credential: Credential::Sys(sys),
            results_max: binding::result_len_max(call).inline,
            ..RawCall::new(v3::PROGRAM, v3::VERSION, procedure)
        };
        self.without_items(cx, token, called, |writer| call.emit(writer))
    }

    /// A call without items.
    fn without_items(
        &self,
        cx: &Cx<'_>,
        token: Token,
        call: RawCall<'_>,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Option<Request> {
        let results_max = call.results_max.max(RESULTS_LEN_MAX);
        let call = RawCall { arguments_max: ARGUMENTS_LEN_MAX, results_max, ..call };
        let request = call.write(cx, self.timeout, token, write);
        debug_assert_ne!(request.as_ref().err(), Some(&CallError::TooLong), "calls are short");
        request.ok()
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
}

fn with_result(cx: &Cx<'_>, request: Request, len: usize) -> Option<Request> {
    let mut result = cx.take(len)?;
    result.extend(len);
    Some(Request { result: Some(result), ..request })
}

fn label(ask: Ask) -> Label {
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
