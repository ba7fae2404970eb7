//! Replies, written in place.

use stag_engine::{Answer, AnswerItem, Cx, Extents, ItemLists, ItemsFull, PlacedItem, config};
use stag_pools::Buf;
use stag_protocol::{
    nfs::v3::{Failure, Status},
    rpc::{Accepted, Outcome, ReplyHeader, Xid},
    xdr::{Codec, NoRoom, Writer, padded},
};

/// Bytes of the longest reply without item, listings excepted: it then also has room for an item
/// that travels inline.
const MESSAGE_LEN: usize = config::INLINE_LEN;

/// A reply being written in place. Its message already holds the header of a success.
#[derive(Debug)]
pub(crate) struct ReplyWriter {
    answer: Answer,
    xid: Xid,
    /// Bytes of the message before the first item, which is not in the answer while it is empty and
    /// the only one; 0 without an item.
    first_item: u32,
    /// Bytes of the items, each padded.
    items_len: u32,
}

impl ReplyWriter {
    /// A reply with room for `len` bytes of results if there is memory for it, and for all but long
    /// listings in any case.
    #[inline]
    pub(crate) fn begin(cx: &Cx<'_>, xid: Xid, len: usize) -> Option<Self> {
        let len = len.saturating_add(ReplyHeader::LEN).max(MESSAGE_LEN);
        let message = cx.message(len).or_else(|| cx.message(MESSAGE_LEN))?;
        Some(Self::over(message, xid))
    }

    /// A message that fits any reply without a long listing, to be reserved before its procedure
    /// runs.
    pub(crate) fn message_of(cx: &Cx<'_>) -> Option<Buf> {
        cx.message(MESSAGE_LEN)
    }

    /// A reply in such a message.
    pub(crate) fn over(message: Buf, xid: Xid) -> Self {
        let mut reply =
            Self { answer: Answer { message, item: None }, xid, first_item: 0, items_len: 0 };
        reply.put_header(Accepted::Success);
        reply
    }

    /// Adds the header of this outcome to an empty message.
    #[inline]
    fn put_header(&mut self, status: Accepted) {
        debug_assert!(self.answer.message.is_empty(), "a header is in front");
        let header = ReplyHeader { xid: self.xid, outcome: Outcome::accepted(status) };
        self.write(|writer| header.emit(writer)).expect("a message has room for the header");
    }

    /// Adds the output of `write`, or nothing if that fails.
    pub(crate) fn write<T, E>(
        &mut self,
        write: impl FnOnce(&mut Writer<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut writer = Writer::new(self.answer.message.spare_mut());
        let value = write(&mut writer)?;
        let len = writer.len();
        self.answer.message.extend(len);
        Ok(value)
    }

    /// Adds results. If they do not fit, which is a bug of ours, the call is answered with
    /// SYSTEM_ERR.
    pub(crate) fn put<'a>(&mut self, results: &impl Codec<'a>) {
        let written: Result<(), NoRoom> = self.write(|writer| results.emit(writer));
        debug_assert_eq!(written, Ok(()), "results have room in their message");
        if written.is_err() {
            self.fail();
        }
    }

    /// Adds the first item, whose length word was written last. An empty one is no item (RFC 8166
    /// §3.4.6), and keeps its Write chunk.
    #[inline]
    pub(crate) fn put_item(&mut self, octets: Extents) {
        let (position, len) = (self.answer.message.len(), octets.len());
        self.first_item = position as u32;
        if len > 0 {
            self.answer.item = Some(AnswerItem::new(position, octets));
            self.items_len = padded(len) as u32;
        }
    }

    /// Adds an item in the same way, not necessarily the first. `lists` have room for others.
    ///
    /// # Errors
    /// Returns the bytes when the reply has as many items as a call has Write chunks.
    #[inline]
    pub(crate) fn put_any_item(
        &mut self,
        octets: Extents,
        lists: &ItemLists,
    ) -> Result<(), ItemsFull> {
        if self.first_item > 0 {
            return self.put_later_item(octets, lists);
        }
        self.put_item(octets);
        Ok(())
    }

    /// Adds an item after the first one.
    #[cold]
    fn put_later_item(&mut self, octets: Extents, lists: &ItemLists) -> Result<(), ItemsFull> {
        let first = self.first_item as usize;
        let (position, len) = (self.answer.message.len(), padded(octets.len()));
        let items =
            self.answer.item.get_or_insert_with(|| AnswerItem::new(first, Extents::default()));
        if items.more.is_empty() {
            items.more = lists.take();
        }
        items.more.push(PlacedItem { position, octets })?;
        self.items_len += len as u32;
        Ok(())
    }

    /// Returns the XID that it answers.
    pub(crate) const fn xid(&self) -> Xid {
        self.xid
    }

    /// Readdresses it to a retransmission of the same call.
    pub(crate) fn readdress(&mut self, xid: Xid) {
        self.xid = xid;
        // RFC 5531 §9: the XID is the first word of a message.
        self.patch_u32(0, xid.0);
    }

    /// Bytes of the message so far.
    pub(crate) fn len(&self) -> usize {
        self.answer.message.len()
    }

    /// The same plus the bytes of the items.
    #[inline]
    pub(crate) fn len_with_items(&self) -> usize {
        self.answer.message.len() + self.items_len as usize
    }

    /// Returns true if it has an item.
    pub(crate) const fn has_item(&self) -> bool {
        self.answer.item.is_some()
    }

    /// Removes everything after the first `len` bytes of the message.
    pub(crate) fn truncate(&mut self, len: usize) {
        debug_assert!(len >= ReplyHeader::LEN, "the header stays");
        self.answer.message.truncate(len);
        if self.first_item > 0 {
            self.truncate_items(len);
        }
    }

    /// Removes the items after byte `len` of the message.
    #[cold]
    fn truncate_items(&mut self, len: usize) {
        if self.first_item as usize > len {
            (self.first_item, self.answer.item) = (0, None);
        }
        if let Some(item) = &mut self.answer.item {
            item.more.retain(|item| item.position <= len);
        }
        let items = self.answer.item.iter().flat_map(AnswerItem::iter);
        self.items_len = items.map(|(_, octets)| padded(octets.len()) as u32).sum();
    }

    /// Overwrites the word at byte `at` of the message.
    pub(crate) fn patch_u32(&mut self, at: usize, value: u32) {
        let word = self.answer.message.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>);
        *word.expect("the word was written") = value.to_be_bytes();
    }

    /// Makes room for `len` more bytes, in a longer message if needed. False when there is no
    /// memory for one.
    pub(crate) fn ensure(&mut self, cx: &Cx<'_>, len: usize) -> bool {
        if self.answer.message.spare_len() >= len {
            return true;
        }
        let Some(mut longer) = cx.message(self.answer.message.len().saturating_add(len)) else {
            return false;
        };
        longer.append(&self.answer.message).expect("it was taken for as many octets and more");
        self.answer.message = longer;
        true
    }

    /// Replaces it with a cached reply.
    pub(crate) fn replace(&mut self, octets: &[u8]) {
        self.answer.message.truncate(0);
        self.answer.message.append(octets).expect("a message has room for any reply that is kept");
    }

    /// Turns it into the reply of a failed server.
    pub(crate) fn fail(&mut self) {
        (self.answer.item, self.first_item, self.items_len) = (None, 0, 0);
        self.answer.message.truncate(0);
        self.put_header(Accepted::SystemErr);
    }

    pub(crate) fn finish(self) -> Answer {
        self.answer
    }

    /// Ends a reply that a slot caches: `take_data_out` removes its data from the message.
    pub(crate) fn finish_kept(
        mut self,
        take_data_out: impl FnOnce(&mut Buf) -> Option<AnswerItem>,
    ) -> Answer {
        if self.answer.item.is_none() {
            self.answer.item = take_data_out(&mut self.answer.message);
        }
        self.finish()
    }

    /// The message, without its item.
    pub(crate) fn message(&self) -> &[u8] {
        &self.answer.message
    }
}

/// Receiver of the results and status of a procedure.
pub(crate) trait Results {
    /// Adds results.
    fn results<'a, T: Codec<'a>, About: Codec<'a>>(
        &mut self,
        results: &Result<T, Failure<About>>,
    ) -> Status;
}

impl Results for ReplyWriter {
    fn results<'a, T: Codec<'a>, About: Codec<'a>>(
        &mut self,
        results: &Result<T, Failure<About>>,
    ) -> Status {
        self.put(results);
        status(results)
    }
}

/// Results written in their final place.
#[derive(Debug)]
pub(crate) struct ShortResults<'w, 'o> {
    writer: &'w mut Writer<'o>,
    written: Result<(), NoRoom>,
}

impl<'w, 'o> ShortResults<'w, 'o> {
    /// Starts without results.
    #[inline]
    pub(crate) const fn new(writer: &'w mut Writer<'o>) -> Self {
        Self { writer, written: Ok(()) }
    }

    /// Fails if there was no room for them.
    #[inline]
    pub(crate) const fn finish(self) -> Result<(), NoRoom> {
        self.written
    }
}

impl Results for ShortResults<'_, '_> {
    #[inline]
    fn results<'a, T: Codec<'a>, About: Codec<'a>>(
        &mut self,
        results: &Result<T, Failure<About>>,
    ) -> Status {
        self.written = results.emit(self.writer);
        status(results)
    }
}

/// The status with which a procedure ended.
#[inline]
fn status<T, About>(results: &Result<T, Failure<About>>) -> Status {
    results.as_ref().err().map_or(Status::Ok, |failure| failure.status)
}
