//! One transport header of every form, as meaning and as octets, for counts and timings.

use stag_protocol::{
    rpcrdma::{
        Body, ChunkLists, Connection, Credits, ErrorBody, Header, Intent, MessageType, Position,
        PrivateData, Segment, Setup, Side, Versions, Xid, v1, v2,
    },
    xdr::NoRoom,
};

/// Version in which a header is written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderVersion {
    /// RFC 8166.
    One,
    /// Draft 000 with the chunk lists of draft 001.
    Two,
}

/// A header with its name, its meaning and its octets.
#[derive(Clone, Debug)]
pub struct HeaderForm {
    /// Name of the form in the counts.
    pub name: &'static str,
    /// The version that it is written in.
    pub version: HeaderVersion,
    /// Its fixed fields.
    pub header: Header,
    /// Its chunks.
    pub lists: ChunkLists,
    /// Octets of the header on the wire.
    pub octets: Vec<u8>,
}

impl HeaderForm {
    fn new(name: &'static str, version: HeaderVersion, body: Body, lists: ChunkLists) -> Self {
        let header = Header { xid: Xid(0x0102_0304), credits: Credits(32), body };
        let mut form = Self { name, version, header, lists, octets: vec![0; 1024] };
        let mut octets = std::mem::take(&mut form.octets);
        let len = form.emit(&mut octets).expect("a header is no longer than that");
        octets.truncate(len);
        Self { octets, ..form }
    }

    /// Writes it; its length.
    ///
    /// # Errors
    /// When `out` is too short.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        match self.version {
            HeaderVersion::One => v1::emit(&self.header, &self.lists, out),
            HeaderVersion::Two => v2::emit::<v2::Directed>(&self.header, &self.lists, out),
        }
    }

    /// Reads it, with everything checked; its length.
    ///
    /// # Panics
    /// When it has no meaning.
    #[inline]
    pub fn parse(&self, octets: &[u8], lists: &mut ChunkLists) -> (Header, usize) {
        let parsed = match self.version {
            HeaderVersion::One => v1::parse(octets, lists),
            HeaderVersion::Two => v2::parse::<v2::Directed>(octets, lists),
        };
        parsed.expect("it was written by us")
    }
}

fn segment(handle: u32, length: u32) -> Segment {
    Segment { handle, length, offset: 0x7f00_0000_1000 }
}

/// One of each form.
///
/// # Panics
/// Never: what is put together here fits.
pub fn forms() -> Vec<HeaderForm> {
    let none = ChunkLists::new();
    let mut read = ChunkLists::new();
    read.begin_write().expect("the first chunk fits");
    read.push_write(segment(0x100, 65_536)).expect("the first segment fits");
    let mut write = ChunkLists::new();
    write
        .push_read(Position::new(116).expect("a multiple of four"), segment(0x200, 65_536))
        .expect("fits");
    let mut long_call = ChunkLists::new();
    long_call.push_read(Position::ZERO, segment(0x300, 9_000)).expect("fits");
    let mut long_reply = ChunkLists::new();
    long_reply.begin_reply();
    long_reply.push_reply(segment(0x400, 65_536)).expect("fits");
    let called = |lists: &ChunkLists, inv_handle| {
        let mut lists = lists.clone();
        lists.set_intent(Some(Intent { message_type: MessageType::Call, inv_handle }));
        lists
    };
    let versions = Body::Error(ErrorBody::Version { low: 1, high: 2 });
    let (directed_none, directed_read) = (called(&none, 0), called(&read, 0x100));
    vec![
        HeaderForm::new("null", HeaderVersion::One, Body::Msg, none.clone()),
        HeaderForm::new("read", HeaderVersion::One, Body::Msg, read),
        HeaderForm::new("write", HeaderVersion::One, Body::Msg, write),
        HeaderForm::new("long-call", HeaderVersion::One, Body::NoMsg, long_call),
        HeaderForm::new("long-reply", HeaderVersion::One, Body::Msg, long_reply),
        HeaderForm::new("error-version", HeaderVersion::One, versions, none.clone()),
        HeaderForm::new("error-chunk", HeaderVersion::One, Body::Error(ErrorBody::Chunk), none),
        HeaderForm::new("v2-null", HeaderVersion::Two, Body::Msg, directed_none),
        HeaderForm::new("v2-read", HeaderVersion::Two, Body::Msg, directed_read),
    ]
}

/// A caller's connection of version 1, which writes and reads short messages: those without chunks.
pub fn short() -> Connection {
    let setup = Setup {
        side: Side::Client,
        own: PrivateData::SILENT,
        peer: PrivateData::SILENT,
        calls_max: 32,
        grant: 0,
    };
    Connection::speaking(setup, Versions::One)
}

/// Returns the octets that are read of a short message: its header, then the XID and the type of
/// the reply.
pub fn short_reply() -> Vec<u8> {
    let form = form("null").expect("there is a form of this name");
    let words = [form.header.xid.0, 1];
    form.octets.into_iter().chain(words.into_iter().flat_map(u32::to_be_bytes)).collect()
}

/// The form of this name.
pub fn form(name: &str) -> Option<HeaderForm> {
    forms().into_iter().find(|form| form.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::rpcrdma::{ShortMessage, short};

    #[test]
    fn a_short_header_is_the_one_of_its_form() {
        let form = form("null").unwrap();
        let mut out = [0; short::HEADER_LEN];
        assert!(super::short().emit_short(MessageType::Call, form.header.xid, &mut out));
        assert_eq!(out, form.octets[..]);
        let read = super::short().handle_short(&short_reply());
        assert_eq!(
            read,
            Some(ShortMessage::Reply { xid: form.header.xid, credits: form.header.credits })
        );
    }

    #[test]
    fn every_form_reads_as_what_was_written() {
        for form in forms() {
            let mut lists = ChunkLists::new();
            assert_eq!(
                form.parse(&form.octets, &mut lists),
                (form.header, form.octets.len()),
                "{}",
                form.name
            );
            if !matches!(form.header.body, Body::Error(_)) {
                assert_eq!(lists, form.lists, "{}", form.name);
            }
        }
    }
}
