//! READs whose data a disk has to supply: of version 3, and of compounds (`deferred`).

use stag_engine::{Answer, Cx};
use stag_protocol::{
    nfs::v3::{Procedure, ReadArgs},
    rpc::{CallHeader, Xid},
};

use super::{Gateway, NoMessage};
use crate::{
    deferred::{Deferred, DeferredCall, DeferredRead},
    drc::CallSource,
    reply::ReplyWriter,
    v3::{ReadAttempt, Turn},
    v4::WaitResult,
};
use stag_nfs_store::{self, Procedures as _, Store};

impl<S: Store> Gateway<S> {
    /// As [`nfs`](Self::nfs), but a READ whose data are not in memory is deferred.
    pub(super) fn read(
        &mut self,
        cx: &Cx<'_>,
        source: CallSource,
        header: &CallHeader<'_>,
        args: &ReadArgs,
    ) -> Result<Answer, NoMessage> {
        let CallSource { id, peer, .. } = source;
        let (xid, caller) = (header.xid, self.caller(source, header));
        let attempt = ReadAttempt { args, turn: Turn::First(self.reads.next_ticket()) };
        let answer = self.attempt(cx, xid, &caller, attempt);
        if let Err(NoMessage::Waits) = answer {
            let call = DeferredCall { id, peer, xid, args: *args, caller };
            self.reads.put(Deferred { read: DeferredRead::Call(call), began: cx.now() });
        }
        answer
    }

    fn attempt(
        &mut self,
        cx: &Cx<'_>,
        xid: Xid,
        caller: &stag_nfs_store::Caller,
        attempt: ReadAttempt<'_>,
    ) -> Result<Answer, NoMessage> {
        let mut reply = ReplyWriter::begin(cx, xid, 0).ok_or(NoMessage::Dropped)?;
        self.store.now().act_as(caller);
        let data = &mut self.counters.data;
        let status = crate::v3::read(self.store.now(), data, cx, attempt, &mut reply);
        self.counters.count_nfs(Procedure::Read, status.ok_or(NoMessage::Waits)?);
        Ok(reply.finish())
    }

    /// Resumes the READs whose data were fetched.
    pub(super) fn resume_reads(&mut self, cx: &mut Cx<'_>) {
        while let Some(fetched) = self.store.next_fetched() {
            match self.reads.take(fetched.ticket).map(|deferred| deferred.read) {
                Some(DeferredRead::Call(read)) => {
                    let turn = Turn::Again(fetched.brought);
                    let attempt = ReadAttempt { args: &read.args, turn };
                    let answer = self.attempt(cx, read.xid, &read.caller, attempt);
                    debug_assert!(
                        !matches!(answer, Err(NoMessage::Waits)),
                        "a READ that was put off once is carried out"
                    );
                    self.conclude(cx, read.id, read.peer, answer);
                    cx.end_turn(read.peer);
                }
                Some(DeferredRead::Compound(id)) => {
                    self.resume_compound(cx, id, WaitResult::Fetched(fetched.brought));
                }
                None => {}
            }
        }
    }
}
