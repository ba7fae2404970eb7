//! MOUNT and NFS: arguments and results of every procedure, and this server's file handles.

use siphasher::sip128::SipHasher24;
use stag_nfs_store::exports::handle::{HandleKey, Named};
use stag_protocol::{
    nfs::{binding, mount, v3},
    xdr::{Error, Piece, Reader, padded},
};
use std::mem::discriminant;

use super::{InputVerdict, differs_in_padding_only, emitted};

/// A value of MOUNT or NFS, all of the octets: it survives.
macro_rules! body {
    ($octets:expr, $procedure:expr, $type:ident :: $name:ident) => {{
        let octets: &[u8] = $octets;
        match $type::$name::parse($procedure, Reader::new(octets)) {
            Err(error) => Err(error),
            Ok(value) => {
                let out = emitted(octets.len(), |writer| value.emit(writer));
                assert!(differs_in_padding_only(&out, octets));
                assert_eq!($type::$name::parse($procedure, Reader::new(&out)).as_ref(), Ok(&value));
                for cut in out.len().saturating_sub(4)..out.len() {
                    assert!($type::$name::parse($procedure, Reader::new(&out[..cut])).is_err());
                }
                Ok(value)
            }
        }
    }};
}

/// The first word: bit 0 says call or reply, the rest chooses the procedure.
pub fn mount(input: &[u8]) -> InputVerdict {
    let Some((choice, octets)) = input.split_first_chunk() else {
        return InputVerdict::refused(&Error::Short);
    };
    let choice = u32::from_be_bytes(*choice);
    let procedure = mount::Procedure::new(choice / 2 % 6).expect("below 6");
    let verdict = if choice.is_multiple_of(2) {
        match body!(octets, procedure, mount::Call) {
            Ok(_) => InputVerdict::accepted(0),
            Err(error) => InputVerdict::refused(&error),
        }
    } else {
        match body!(octets, procedure, mount::Reply) {
            Ok(_) => InputVerdict::accepted(octets.len().min(64)),
            Err(error) => InputVerdict::refused(&error),
        }
    };
    verdict.of(u64::from(choice % 12))
}

/// Content of the first word of an input to [`call`] and [`reply`].
struct Choice {
    procedure: v3::Procedure,
    /// Offset at which the octets are cut in two: the second piece is a chunk.
    at: usize,
    /// Octets that the chunk lacks at its end.
    without: usize,
}

impl Choice {
    fn of(input: &[u8]) -> Option<(Self, &[u8])> {
        let ([high, low, without, procedure], octets) = input.split_first_chunk()?;
        let number = usize::from(*procedure) % v3::Procedure::ALL.len();
        let procedure = v3::Procedure::new(number as u32).expect("below their number");
        let at = usize::from(u16::from_be_bytes([*high, *low])) * 4;
        Some((Self { procedure, at, without: usize::from(without % 4) }, octets))
    }

    /// The octets in two pieces, and what they are in one.
    fn pieces<'a>(&self, octets: &'a [u8]) -> Option<([Piece<'a>; 2], Vec<u8>)> {
        let (inline, chunk) = octets.split_at_checked(self.at)?;
        let chunk = &chunk[..chunk.len().checked_sub(self.without)?];
        let mut whole = octets[..self.at + chunk.len()].to_vec();
        whole.resize(self.at + padded(chunk.len()), 0);
        Some(([Piece::Inline(inline), Piece::Chunk(chunk)], whole))
    }
}

/// Arguments of NFS 3, in one piece and with the last of them in a chunk.
pub fn call(input: &[u8]) -> InputVerdict {
    let Some((choice, octets)) = Choice::of(input) else {
        return InputVerdict::refused(&Error::Short);
    };
    let Choice { procedure, .. } = choice;
    if let Some((pieces, whole)) = choice.pieces(octets)
        && let Ok(call) = v3::Call::parse(procedure, Reader::over(&pieces))
    {
        assert_eq!(v3::Call::parse(procedure, Reader::new(&whole)), Ok(call));
    }
    let verdict = match body!(octets, procedure, v3::Call) {
        Ok(call) => {
            assert_eq!(call.procedure(), procedure);
            let room = binding::result_len_max(&call);
            assert!(room.whole() >= room.inline.max(room.item));
            InputVerdict::accepted(octets.len().min(128))
        }
        Err(error) => InputVerdict::refused(&error),
    };
    verdict.of(u64::from(procedure.number()))
}

/// Results of NFS 3, in one piece and with the last of them in a chunk.
pub fn reply(input: &[u8]) -> InputVerdict {
    let Some((choice, octets)) = Choice::of(input) else {
        return InputVerdict::refused(&Error::Short);
    };
    let Choice { procedure, .. } = choice;
    if let Some((pieces, whole)) = choice.pieces(octets)
        && let Ok(reply) = v3::Reply::parse(procedure, Reader::over(&pieces))
    {
        assert_eq!(v3::Reply::parse(procedure, Reader::new(&whole)), Ok(reply));
    }
    let verdict = match body!(octets, procedure, v3::Reply) {
        Ok(_) => InputVerdict::accepted(octets.len().min(256)),
        Err(error) => InputVerdict::refused(&error),
    };
    verdict.of(u64::from(procedure.number()))
}

/// The key of the target `file_handle`.
pub const HANDLE_KEY: [u8; HandleKey::LEN] = *b"a key for a test";

/// A file handle: as it comes, and with the tag that would be right. Only with that is it opened,
/// and then it is the handle that the file has.
pub fn file_handle(input: &[u8]) -> InputVerdict {
    let key = HandleKey::new(&HANDLE_KEY);
    let Some(raw) = v3::FileHandle::new(input) else {
        assert!(input.len() > v3::FileHandle::MAX);
        return InputVerdict::refused(&Error::TooLong);
    };
    let opened = open(&key, &raw);
    let tag = SipHasher24::new_with_key(&HANDLE_KEY).hash(input).as_bytes();
    let Some(tagged) = v3::FileHandle::new(&[input, &tag].concat()) else {
        return if opened.is_some() {
            InputVerdict::accepted(0)
        } else {
            InputVerdict::refused(&Error::TooLong)
        };
    };
    match (open(&key, &tagged), opened) {
        (Some(named), _) => InputVerdict::accepted((1, discriminant(&named))),
        (None, Some(named)) => InputVerdict::accepted((2, discriminant(&named))),
        (None, None) => InputVerdict::refused(&Error::BadValue),
    }
}

fn open(key: &HandleKey, handle: &v3::FileHandle) -> Option<Named> {
    let named = key.open(handle).ok()?;
    assert_eq!(key.seal(&named), *handle);
    let other = HandleKey::new(b"a different key.");
    assert!(other.open(handle).is_err(), "another server's handle");
    Some(named)
}
