//! Data of READs and READLINKs in replies that slots keep (RFC 8881 §2.10.6.1.3). A kept reply is
//! one message with all data in it. Before it is sent, for the first time or in answer to a retry,
//! the data are taken out so that each goes to its Write chunk (RFC 8267 §6.4.1).

use stag_engine::{AnswerItem, Cx, Extents, ItemLists, PlacedItem};
use stag_pools::Buf;
use stag_protocol::{
    nfs::v4::{Answer, CompoundReply},
    rpc::ReplyHeader,
    rpcrdma::responder::ITEMS_MAX,
    xdr::{Reader, padded},
};

/// Data in a message.
#[derive(Clone, Copy, Debug, Default)]
struct DataSpan {
    at: usize,
    len: usize,
}

/// Takes the data of the first operations out of a whole reply. Returns none, and changes nothing,
/// when it has no data, or there is no memory for the first ones.
pub(crate) fn take_data_out(
    message: &mut Buf,
    cx: &Cx<'_>,
    lists: &ItemLists,
) -> Option<AnswerItem> {
    let (spans, count) = find_data(message)?;
    let (mut item, mut removed): (Option<AnswerItem>, usize) = (None, 0);
    for DataSpan { at, len } in spans.into_iter().take(count) {
        let position = at.checked_sub(removed)?;
        let octets = if len == 0 {
            Extents::default()
        } else {
            let Some(mut copy) = cx.take(len) else { break };
            if copy.append(message.get(position..position + len)?).is_err() {
                break;
            }
            let (end, whole) = (position + padded(len), message.len());
            message.copy_within(end..whole, position);
            message.truncate(whole - padded(len));
            removed += padded(len);
            copy.freeze().into()
        };
        match &mut item {
            None => item = Some(AnswerItem::new(position, octets)),
            Some(item) => {
                if item.more.is_empty() {
                    item.more = lists.take();
                }
                let pushed = item.more.push(PlacedItem { position, octets });
                debug_assert!(pushed.is_ok(), "no more spans are looked for than items fit");
            }
        }
    }
    item.filter(|_| removed > 0)
}

/// Finds the data in a reply, in order; none when all are empty.
fn find_data(message: &[u8]) -> Option<([DataSpan; ITEMS_MAX], usize)> {
    let results = message.get(ReplyHeader::LEN..)?;
    let (mut spans, mut count, mut end) = ([DataSpan::default(); ITEMS_MAX], 0, ReplyHeader::LEN);
    for answer in CompoundReply::parse(Reader::new(results)).ok()? {
        let data = match answer.ok()? {
            Answer::Read(Ok(read)) => read.data.octets(),
            Answer::ReadLink(Ok(path)) => path.0.octets(),
            _ => None,
        };
        let (Some(octets), Some(span)) = (data, spans.get_mut(count)) else { continue };
        if !octets.is_empty() {
            end = (octets.as_ptr() as usize).checked_sub(message.as_ptr() as usize)?;
        }
        *span = DataSpan { at: end, len: octets.len() };
        end += padded(octets.len());
        count += 1;
    }
    spans.iter().any(|span| span.len > 0).then_some((spans, count))
}
