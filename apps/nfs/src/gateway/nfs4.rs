//! Version 4 at the gateway: NULL and COMPOUND (RFC 8881 §16).

use stag_engine::{Answer, Call, Cx};
use stag_protocol::{
    nfs::v3::{self, Procedure},
    rpc::{Accepted, ReplyHeader},
};

use super::{CallTarget, Gateway, NoMessage, caller, write_header};
use crate::drc::CallSource;
use crate::reply::ReplyWriter;
use crate::store::{Procedures as _, Store};
use crate::v4::{CompoundCall, Nfs4, Nfs4Config, Nfs4Records, NoReply};

impl<S: Store> Gateway<S> {
    /// Serves version 4, too. Its clients are this shard's alone.
    #[must_use]
    pub fn with_nfs4(mut self, config: Nfs4Config) -> Self {
        self.nfs4 = Some(Box::new(Nfs4::new(config, self.store.exports())));
        self
    }

    /// Begins version 4, which is served already, with records of its clients.
    #[must_use]
    pub fn with_records(mut self, records: Nfs4Records) -> Self {
        if let Some(nfs4) = &mut self.nfs4 {
            nfs4.recover(records);
        }
        self
    }

    /// Gives delegations of files of these exports, which nobody but this server changes. After
    /// [`with_nfs4`](Self::with_nfs4).
    #[must_use]
    pub fn with_exclusive(mut self, exports: &[String]) -> Self {
        let roots = self.store.export_roots();
        let named = roots.into_iter().filter(|root| exports.contains(&root.name));
        if let Some(nfs4) = &mut self.nfs4 {
            nfs4.set_exclusive(named.map(|root| root.fsid).collect());
        }
        self
    }

    /// Does not serve version 3.
    #[must_use]
    pub const fn without_nfs3(mut self) -> Self {
        self.serves_3 = false;
        self
    }

    /// Refuses a call of version 3 that what clients of version 4 have is in the way of.
    #[inline]
    pub(super) fn refuse_beside(
        &mut self,
        cx: &Cx<'_>,
        call: &Call<'_>,
        target: &Result<CallTarget, ReplyHeader<'_>>,
    ) -> Option<Result<Answer, NoMessage>> {
        let is_beside = self.nfs4.as_ref().is_some_and(|nfs4| nfs4.is_beside());
        match target {
            Ok(CallTarget::Nfs(procedure)) if is_beside => self.judge_beside(cx, call, *procedure),
            _ => None,
        }
    }

    fn judge_beside(
        &mut self,
        cx: &Cx<'_>,
        call: &Call<'_>,
        procedure: Procedure,
    ) -> Option<Result<Answer, NoMessage>> {
        // Arguments that cannot be decoded are refused where they always are.
        let nfs = v3::Call::parse(procedure, call.arguments.clone()).ok()?;
        let nfs4 = self.nfs4.as_mut()?;
        self.store.now().act_as(&caller(&call.header.credential, call.from));
        let status = nfs4.judge_beside(&mut self.store, &nfs, cx.now()).err()?;
        let Some(mut reply) = ReplyWriter::begin(cx, call.header.xid, 0) else {
            return Some(Err(NoMessage::Dropped));
        };
        let status = crate::v3::refuse(procedure, status, &mut reply);
        self.counters.count_nfs(procedure, status);
        Some(Ok(reply.finish()))
    }

    /// NULL of version 4.
    pub(super) fn null4(&mut self, cx: &mut Cx<'_>, call: &Call<'_>) -> Result<Answer, NoMessage> {
        match call.arguments.clone().finish() {
            Ok(()) => Err(write_header(cx, call.id, call.header.reply(Accepted::Success))),
            Err(_) => self.refuse(cx, call.id, call.header.reply(Accepted::GarbageArgs)),
        }
    }

    /// Carries out a compound of version 4.
    pub(super) fn compound(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        call: Call<'_>,
    ) -> Result<Answer, NoMessage> {
        let Call { id, header, arguments, pulled, .. } = call;
        let Some(nfs4) = &mut self.nfs4 else { return Err(NoMessage::Dropped) };
        let caller = caller(&header.credential, source.from);
        let call = CompoundCall { source, header: &header, arguments, pulled, caller };
        match nfs4.compound(cx, &mut self.store, &mut self.counters.data, call) {
            Ok(answer) => Ok(answer),
            Err(NoReply::Garbage) => self.refuse(cx, id, header.reply(Accepted::GarbageArgs)),
            Err(NoReply::NoMemory) => Err(NoMessage::Dropped),
            Err(NoReply::Held) => {
                // It may carry handles.
                self.write_index();
                Err(NoMessage::Waits)
            }
        }
    }
}
