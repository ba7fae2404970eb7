//! Replies that are written in place in the send buffer.

use stag_engine::{Answer, CallId, Cx};
use stag_nfs_store::{Procedures as _, Store};
use stag_protocol::{
    nfs::v3::{self, GetAttrArgs, Procedure, Status},
    rpc::{Accepted, CallHeader, ReplyHeader},
    xdr::NoRoom,
};

use super::{Gateway, NoMessage, write_index};
use crate::{reply::ShortResults, requester::CallSource};

/// Returns the outcome of a call whose reply was written in place in the send buffer. Results that
/// did not fit, which is a bug of ours, are answered with SYSTEM_ERR.
#[inline]
pub(super) fn conclude_short(
    cx: &mut Cx<'_>,
    id: CallId,
    header: &CallHeader<'_>,
    written: Result<bool, NoRoom>,
) -> Result<Answer, NoMessage> {
    debug_assert_ne!(written, Err(NoRoom), "small results fit");
    Err(match written {
        Ok(true) => NoMessage::Sent,
        Ok(false) => NoMessage::Dropped,
        Err(NoRoom) => write_header(cx, id, header.reply(Accepted::SystemErr)),
    })
}

/// Answers with a header without results.
pub(super) fn write_header(cx: &mut Cx<'_>, id: CallId, header: ReplyHeader<'_>) -> NoMessage {
    let written = cx.try_answer_short(id, header, |_| Ok(()));
    if written.expect("a header fits") { NoMessage::Sent } else { NoMessage::Dropped }
}

impl<S: Store> Gateway<S> {
    /// Answers a call whose results are [small](crate::v3::is_small): they are written in place in
    /// the send buffer.
    pub(super) fn nfs_small(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        header: &CallHeader<'_>,
        call: &v3::Call<'_>,
    ) -> Result<Answer, NoMessage> {
        let (id, caller) = (source.id, self.caller(source, header));
        self.store.now().act_as(&caller);
        let Self { store, counters, is_flush_failing, .. } = self;
        let mut status = Status::Ok;
        let written = cx.try_answer_short(id, header.reply(Accepted::Success), |writer| {
            let mut results = ShortResults::new(writer);
            status = crate::v3::answer_small(store.now(), &mut counters.data, call, &mut results);
            // The reply may be sent at once, with a handle in it.
            write_index(store, counters, is_flush_failing);
            results.finish()
        });
        counters.count_nfs(call.procedure(), status);
        conclude_short(cx, id, header, written)
    }

    /// [`nfs_small`](Self::nfs_small) of a GETATTR.
    pub(super) fn getattr(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        header: &CallHeader<'_>,
        args: &GetAttrArgs,
    ) -> Result<Answer, NoMessage> {
        let (id, caller) = (source.id, self.caller(source, header));
        self.store.now().act_as(&caller);
        let mut status = Status::Ok;
        let written = cx.try_answer_short(id, header.reply(Accepted::Success), |writer| {
            let mut results = ShortResults::new(writer);
            status = crate::v3::getattr(self.store.now(), args, &mut results);
            results.finish()
        });
        self.counters.count_nfs(Procedure::GetAttr, status);
        conclude_short(cx, id, header, written)
    }
}
