//! Relation of a compound to other shards: the part of it that this shard executes, and the data
//! that the interpreter and the code of several shards exchange. `shards::placement` decides which
//! part that is.

use std::cell::Cell;

use stag_engine::{Answer, AnswerItem, CallId, Cx, ItemLists, PlacedItem};
use stag_protocol::{
    nfs::{
        v3::FileHandle,
        v4::{Bitmap, ChangeInfo, Request},
    },
    rpc::{ReplyHeader, Xid},
};

use crate::v4::session::{BegunSlot, reply_data::take_data_out};
use stag_nfs_store::FileAttributes;
use stag_nfs4_state::StateOther;

/// Limit of compounds that one shard has forwarded without an answer, and of its compounds that the
/// home has not read. Above it, NFS4ERR_DELAY.
pub(in crate::v4) const FORWARDED_MAX: usize = 128;

/// Part of a compound that this shard executes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Placement {
    /// All of it.
    #[default]
    All,
    /// All of it, here. Falls back to the home on NFS4ERR_STALE before the first change (the file
    /// may be open and unlinked), or when a delegation may conflict.
    Here {
        /// Place of the first operation that changes anything: up to it the home can start again.
        /// After it, NFS4ERR_STALE is final, or NFS4ERR_DELAY if the compound has a READ or WRITE.
        first_change: u32,
        /// The home takes one more compound. If not, the client gets NFS4ERR_DELAY.
        has_room: bool,
    },
    /// Its SEQUENCE.
    Begin,
}

/// Facts about a compound at other shards that last while it waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardFacts {
    /// The state by which this shard, not the home, allows it to read or write.
    pub(crate) io: Option<StateOther>,
    /// It asks for attributes of an object that it looks up first.
    pub(crate) looks_up: bool,
    /// The home has a part in it.
    pub(crate) home: Option<OpenAtHome>,
}

/// Relation of a compound to other shards.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardContext<'a> {
    pub(crate) placement: Placement,
    pub(crate) facts: ShardFacts,
    /// Its request was begun by the shard that received it.
    pub(crate) begun: Option<&'a BegunSlot>,
    /// That shard can borrow a session that it creates.
    pub(crate) takes_loans: bool,
    /// It is executed here, at the home, as far as another shard asks.
    pub(crate) asked: Option<&'a HomeRequest>,
}

/// Returns true for operations whose results may be separate from the reply.
pub(in crate::v4) const fn is_apart(request: &Request<'_>) -> bool {
    matches!(request, Request::Read(_) | Request::ReadLink(()))
}

/// The OPEN of a compound that begins at another shard and ends at the home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenAtHome {
    /// Its place.
    pub(in crate::v4) place: u32,
    /// The home also executes all operations after it.
    pub(in crate::v4) is_rest: bool,
}

/// The file of an OPEN, found or created, before its state is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenedFile {
    pub(in crate::v4) handle: FileHandle,
    pub(in crate::v4) attributes: FileAttributes,
    /// The change of the directory by the OPEN.
    pub(in crate::v4) change: ChangeInfo,
    /// Attributes that were set.
    pub(in crate::v4) set: Bitmap,
    /// The caller created it: its mode does not restrict the caller.
    pub(in crate::v4) is_new: bool,
    /// The OPEN has truncated it.
    pub(in crate::v4) is_cut: bool,
}

/// The home's part of a compound, with the data that it needs.
#[derive(Debug)]
pub(crate) struct HomeRequest {
    pub(in crate::v4) part: OpenAtHome,
    /// The file of its OPEN.
    pub(in crate::v4) file: OpenedFile,
    /// The same, while it is pinned for the home and the pin has not been taken over.
    pub(in crate::v4) pinned: Cell<Option<FileHandle>>,
}

/// An OPEN that the home has to complete.
#[derive(Debug)]
pub(crate) struct HomeCall {
    pub(in crate::v4) part: OpenAtHome,
    pub(in crate::v4) file: OpenedFile,
    pub(in crate::v4) is_pinned: bool,
    pub(in crate::v4) begun: BegunSlot,
}

/// The part of a compound that is at the home.
#[derive(Clone, Copy, Debug)]
pub(in crate::v4) struct PendingAtHome {
    /// The name by which the home answers it.
    pub(in crate::v4) call: CallId,
    pub(in crate::v4) file: FileHandle,
}

/// Octets of a reply.
#[derive(Debug)]
pub(crate) struct ForwardedReply {
    message: Box<[u8]>,
    /// The places of its items, and their octets.
    items: Box<[(usize, Box<[u8]>)]>,
}

impl ForwardedReply {
    /// Copies a reply.
    pub(crate) fn of(answer: &Answer) -> Self {
        let items = answer.item.iter().flat_map(AnswerItem::iter).map(|(position, octets)| {
            let parts = octets.iter().map(|part| &**part);
            (position, parts.collect::<Vec<&[u8]>>().concat().into())
        });
        Self { message: answer.message.to_vec().into(), items: items.collect() }
    }

    /// The part that a slot keeps, from the status of the compound on. None for a reply with an
    /// item, which no kept reply has.
    pub(crate) fn kept(&self) -> Option<&[u8]> {
        self.message.get(ReplyHeader::LEN..).filter(|_| self.items.is_empty())
    }

    /// Turns it into the reply to another call.
    pub(crate) fn readdress(&mut self, xid: Xid) {
        if let Some(number) = self.message.first_chunk_mut() {
            *number = xid.0.to_be_bytes();
        }
    }

    /// The reply in memory of this shard; none when memory is short.
    pub(crate) fn answer(&self, cx: &Cx<'_>, lists: &ItemLists) -> Option<Answer> {
        let mut message = cx.message(self.message.len())?;
        message.append(&self.message).ok()?;
        let mut item: Option<AnswerItem> = None;
        for (position, octets) in &self.items {
            let mut copy = cx.take(octets.len())?;
            copy.append(octets).ok()?;
            let octets = copy.freeze().into();
            match &mut item {
                None => item = Some(AnswerItem::new(*position, octets)),
                Some(item) => {
                    if item.more.is_empty() {
                        item.more = lists.take();
                    }
                    item.more.push(PlacedItem { position: *position, octets }).ok()?;
                }
            }
        }
        if item.is_none() {
            item = take_data_out(&mut message, cx, lists);
        }
        Some(Answer { message, item })
    }
}
