//! Parses short compounds in one go.

use super::{Asked, ShortAction, ShortCompound, ShortHead, number};
use crate::v4::{
    attributes::needs_file_system,
    context::{filehandle::Node, status},
    op::access::AskedRights,
};
use stag_protocol::{
    nfs::v4::{
        Access4Args, Bitmap, Handle4, Name4, Operation, Read4Args, STAT_WORDS, SequenceArgs,
        Write4Args, check_readable,
    },
    xdr::{Codec as _, Reader},
};

impl ShortHead {
    /// Parses the arguments of COMPOUND up to PUTFH. None for a compound that has not these
    /// operations first, or asks for more than the usual.
    #[inline(always)]
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        const SEQUENCE: u32 = number(Operation::Sequence);
        const PUT_FH: u32 = number(Operation::PutFh);
        // Without a tag.
        let [_, minor_version, operations, _] =
            reader.words_if(|words| matches!(words, [0, 1 | 2, 3..=5, SEQUENCE]))?;
        let session = reader.array().ok()?;
        // The reply is not kept.
        let is_next = |words: &[u32; 5]| matches!(words, [_, _, _, 0, PUT_FH]);
        let [sequence, slot, highest_slot, _, _] = reader.words_if(is_next)?;
        let sequence = SequenceArgs { session, sequence, slot, highest_slot, cache_this: false };
        let object = Node::object_of(&Handle4::parse(reader).ok()?)?;
        Some(Self { sequence, minor_version, operations, object })
    }

    /// Returns true if only a GETATTR of the attributes of a stat() follows, the shortest and most
    /// frequent of all.
    #[inline(always)]
    pub(crate) fn is_stat(&self, mut reader: Reader<'_>) -> bool {
        let [count, first, second] = STAT_WORDS;
        let get = [number(Operation::GetAttr), count, first, second];
        self.operations == 3
            && reader.words_if(|words| *words == get).is_some()
            && reader.finish().is_ok()
    }
}

impl<'a> ShortCompound<'a> {
    /// Parses the rest of the arguments. None for a compound of any other shape, including
    /// malformed ones.
    #[inline]
    pub(crate) fn parse(head: ShortHead, mut reader: Reader<'a>) -> Option<Self> {
        const GET_FH: u32 = number(Operation::GetFh);
        const GET_ATTR: u32 = number(Operation::GetAttr);
        let ShortHead { minor_version, operations, .. } = head;
        // The number of the next operation; none at the end of the compound.
        let mut next = Some(reader.u32().ok()?);
        let mut left = operations - 2;
        let mut go_on = |reader: &mut Reader<'a>| {
            left -= 1;
            if left == 0 { Ok(None) } else { reader.u32().map(Some) }
        };
        let mut action = ShortAction::None;
        if let Some(operation) = next.filter(|operation| *operation != GET_ATTR) {
            action = ShortAction::parse(operation, minor_version, &mut reader)?;
            next = go_on(&mut reader).ok()?;
        }
        let has_handle = next == Some(GET_FH) && matches!(action, ShortAction::Lookup(_));
        if has_handle {
            next = go_on(&mut reader).ok()?;
        }
        let mut asked = Asked::None;
        if next == Some(GET_ATTR) {
            asked = Asked::parse(&mut reader)?;
            next = go_on(&mut reader).ok()?;
        }
        // The data of a READ are the last item of its reply.
        let is_last = matches!(asked, Asked::None);
        if next.is_some() || (matches!(action, ShortAction::Read(_)) && !is_last) {
            return None;
        }
        reader.finish().ok()?;
        Some(Self { head, action, has_handle, asked, is_named: false })
    }
}

impl<'a> ShortAction<'a> {
    /// Parses the arguments of an operation. None for any other operation.
    #[inline]
    fn parse(operation: u32, minor_version: u32, reader: &mut Reader<'a>) -> Option<Self> {
        const LOOKUP: u32 = number(Operation::Lookup);
        const ACCESS: u32 = number(Operation::Access);
        const READ: u32 = number(Operation::Read);
        const WRITE: u32 = number(Operation::Write);
        Some(match operation {
            LOOKUP => {
                let name = Name4::parse(reader).ok()?.0;
                status::check_name(name).ok()?;
                Self::Lookup(name)
            }
            ACCESS => {
                let rights = Access4Args::parse(reader).ok()?.rights;
                let asked = AskedRights { rights, minor_version };
                Self::Access(Some(asked).filter(|asked| !asked.are_invalid())?)
            }
            READ => Self::Read(Read4Args::parse(reader).ok()?),
            WRITE => Self::Write(Write4Args::parse(reader).ok()?),
            _ => return None,
        })
    }
}

impl Asked {
    /// Parses the argument of GETATTR. None if other facts than those of the object are asked for,
    /// or attributes that cannot be read.
    #[inline]
    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        if reader.words_if(|words| *words == STAT_WORDS).is_some() {
            return Some(Self::Usual);
        }
        let asked = Bitmap::parse(reader).ok()?;
        let is_known = check_readable(&asked).is_ok() && !needs_file_system(&asked);
        is_known.then_some(Self::Others(asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::nfs::{
        Bulk,
        v3::StableHow,
        v4::{Close4Args, CompoundHead, Request, STAT_ATTRIBUTES, Stateid, Text},
    };
    use stag_protocol::xdr::Writer;

    const SEQUENCE: SequenceArgs =
        SequenceArgs { session: [1; 16], sequence: 2, slot: 3, highest_slot: 4, cache_this: false };

    fn put() -> Request<'static> {
        Request::PutFh(Text(&[7; 32]))
    }

    fn encoded(tag: &[u8], requests: &[Request<'_>]) -> Vec<u8> {
        let mut octets = [0; 1_024];
        let mut writer = Writer::new(&mut octets);
        let operations = requests.len() as u32;
        CompoundHead { tag: Text(tag), minor_version: 2, operations }.emit(&mut writer).unwrap();
        requests.iter().try_for_each(|request| request.emit(&mut writer)).unwrap();
        let len = writer.len();
        octets[..len].to_vec()
    }

    /// Returns true if arguments are parsed here.
    fn is_short(octets: &[u8]) -> bool {
        let mut reader = Reader::new(octets);
        ShortHead::parse(&mut reader).is_some_and(|head| {
            head.is_stat(reader.clone()) || ShortCompound::parse(head, reader).is_some()
        })
    }

    #[test]
    fn the_compounds_that_linux_sends_most_are_short_ones() {
        let cache_consistency = Bitmap::of([3, 4, 52, 53]);
        let [attributes, consistent] = [STAT_ATTRIBUTES, cache_consistency].map(Request::GetAttr);
        let (stateid, offset, count) = (Stateid::ANONYMOUS, 5, 6);
        let (stable, data) = (StableHow::Unstable, Bulk::Inline(b"octets"));
        let read = Request::Read(Read4Args { stateid, offset, count });
        let write = Request::Write(Write4Args { stateid, offset, stable, data });
        let lookup = Request::Lookup(Text(b"name"));
        let access = Request::Access(Access4Args { rights: 0x1f });
        for shape in [
            vec![attributes.clone()],
            vec![consistent.clone()],
            vec![lookup, Request::GetFh(()), attributes.clone()],
            vec![access, consistent.clone()],
            vec![read.clone()],
            vec![write.clone(), consistent],
            vec![write],
        ] {
            let shape = &shape[..];
            let all = [&[Request::Sequence(SEQUENCE), put()], shape].concat();
            let octets = encoded(b"", &all);
            assert!(is_short(&octets), "{shape:?}");
            // Neither with another end, nor with a tag.
            for len in 0..octets.len() {
                assert!(!is_short(&octets[..len]), "{shape:?}");
            }
            assert!(!is_short(&[&octets[..], &[0; 4]].concat()), "{shape:?}");
            // Nor with more operations than these, whose number may be 0.
            for more in 1..=2 {
                let mut counted = octets.clone();
                counted[11] += more;
                for rest in [&[][..], &[0; 4], &[0; 8]] {
                    assert!(!is_short(&[&counted[..], rest].concat()), "{shape:?} and {more}");
                }
            }
            assert!(!is_short(&encoded(b"tag", &all)), "{shape:?}");
            let kept = Request::Sequence(SequenceArgs { cache_this: true, ..SEQUENCE });
            assert!(!is_short(&encoded(b"", &[&[kept, put()], shape].concat())), "{shape:?}");
        }
        let close = Request::Close(Close4Args { seqid: 0, open: stateid });
        for shape in [
            &[][..],
            &[close],
            &[read, attributes.clone()],
            &[attributes.clone(), attributes],
            &[Request::Lookup(Text(b".."))],
            &[Request::GetAttr(Bitmap::of([43]))],
        ] {
            let all = [&[Request::Sequence(SEQUENCE), put()], shape].concat();
            assert!(!is_short(&encoded(b"", &all)), "{shape:?}");
        }
    }
}
