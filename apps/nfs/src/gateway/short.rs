//! Replies that are written in place in the send buffer.

use stag_engine::{Answer, CallId, Cx};
use stag_protocol::{
    rpc::{Accepted, CallHeader, ReplyHeader},
    xdr::NoRoom,
};

use super::NoMessage;

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
