//! XDR: the cursors against a model, and every type that has a codec.

use stag_protocol::{
    nfs::{
        Bulk, List, acl,
        mount::{self, Export, Flavors, HostName, MntOk, MntResult, Mount, Path},
        v3,
    },
    rpc::{Accepted, Auth, AuthSys, Denied, Gids},
    rpcrdma::option::health,
    xdr::{Codec, Error, Piece, Reader, Writer, pad, padded},
};

use super::{InputVerdict, differs_in_padding_only, emitted, survives};

/// Half of the octets choose the reads, the other half is read: in one piece, and in several.
pub fn cursor(input: &[u8]) -> InputVerdict {
    let (choices, octets) = input.split_at(input.len() / 2);
    let read = walk(choices, &[Piece::Inline(octets)]);
    let (first, second) =
        (choices.first().copied().unwrap_or(0), choices.get(1).copied().unwrap_or(0));
    let (front, rest) = octets.split_at(usize::from(first).min(octets.len()));
    let (middle, back) = rest.split_at(usize::from(second).min(rest.len()));
    walk(
        choices,
        &[Piece::Inline(front), Piece::Chunk(middle), Piece::Inline(&[]), Piece::Inline(back)],
    );
    if read == 0 {
        InputVerdict::refused(&Error::Short)
    } else {
        InputVerdict::accepted(read.min(32))
    }
}

/// Reads as `choices` say; returns the number of items. Each equals its octets, and is written as
/// it was read.
fn walk(choices: &[u8], pieces: &[Piece<'_>]) -> usize {
    let mut reader = Reader::over(pieces);
    let mut items = 0;
    for choice in choices {
        let before = reader.clone();
        let all = before.remaining();
        let mut out = [0xee; 256];
        let mut writer = Writer::new(&mut out);
        let taken = match choice % 8 {
            0 => reader.u32().map(|value| writer.u32(value).map(|()| 4)),
            1 => reader.u64().map(|value| writer.u64(value).map(|()| 8)),
            2 => reader.bool().map(|value| writer.bool(value).map(|()| 4)),
            3 => reader.array::<12>().map(|value| writer.fixed(&value).map(|()| 12)),
            4 | 5 => reader.fixed(usize::from(choice / 8)).map(|value| {
                assert_eq!(value.len(), usize::from(choice / 8));
                writer.fixed(value).map(|()| padded(value.len()))
            }),
            _ => reader.opaque(usize::from(choice / 8)).map(|value| {
                assert!(value.len() <= usize::from(choice / 8));
                writer.opaque(value).map(|()| 4 + padded(value.len()))
            }),
        };
        let Ok(written) = taken else {
            assert!(reader.remaining() <= all);
            reader = before;
            continue;
        };
        let len = written.expect("256 octets are enough for an item");
        assert_eq!(writer.len(), len);
        let consumed = all - reader.remaining();
        // A chunk may end without the padding of its item (RFC 8166 §3.4.5.2).
        assert!(consumed <= len && len - consumed <= 3 && (pieces.len() > 1 || consumed == len));
        let mut again = Reader::new(&out[..len]);
        let same = match choice % 8 {
            0 => again.u32().is_ok(),
            1 => again.u64().is_ok(),
            2 => again.bool().is_ok(),
            3 => again.array::<12>().is_ok(),
            4 | 5 => {
                again.fixed(usize::from(choice / 8))
                    == before.clone().fixed(usize::from(choice / 8))
            }
            _ => {
                again.opaque(usize::from(choice / 8))
                    == before.clone().opaque(usize::from(choice / 8))
            }
        };
        assert!(same && again.finish() == Ok(()));
        items += 1;
    }
    let left = reader.remaining();
    assert_eq!(reader.finish(), if left == 0 { Ok(()) } else { Err(Error::Trailing) });
    assert_eq!(padded(left) - left, pad(left));
    items
}

/// A type, and what has to hold for octets that may be one.
pub type Type = (&'static str, fn(&[u8]) -> InputVerdict);

macro_rules! table {
    ($($type:ty),+ $(,)?) => { &[$((stringify!($type), |octets| survives!(octets, $type))),+] };
}

/// Every type that has a codec.
pub static TYPES: &[Type] = table![
    u32,
    u64,
    bool,
    [u8; 8],
    Option<u32>,
    List<'_, u32>,
    Bulk<'_>,
    Auth<'_>,
    AuthSys<'_>,
    Gids,
    Accepted,
    Denied,
    Path<'_>,
    HostName<'_>,
    Flavors<'_>,
    MntOk<'_>,
    MntResult<'_>,
    Mount<'_>,
    List<'_, Mount<'_>>,
    Export<'_>,
    List<'_, Export<'_>>,
    mount::Status,
    v3::Status,
    v3::FileHandle,
    v3::Name<'_>,
    v3::DirOpArgs<'_>,
    v3::FileKind,
    v3::Time,
    v3::DeviceNumber,
    v3::Attributes,
    v3::WccAttributes,
    v3::WccData,
    v3::SetTime,
    v3::SetAttributes,
    v3::GetAttrArgs,
    v3::GetAttrResult,
    v3::SetAttrArgs,
    v3::SetAttrResult,
    v3::LookupArgs<'_>,
    v3::LookupResult,
    v3::Access,
    v3::AccessArgs,
    v3::AccessResult,
    v3::ReadLinkArgs,
    v3::ReadLinkResult<'_>,
    v3::ReadArgs,
    v3::ReadOk<'_>,
    v3::ReadResult<'_>,
    v3::StableHow,
    v3::WriteArgs<'_>,
    v3::WriteOk,
    v3::WriteResult,
    v3::CreateHow,
    v3::CreateArgs<'_>,
    v3::CreateOk,
    v3::CreateResult,
    v3::MkDirArgs<'_>,
    v3::SymlinkArgs<'_>,
    v3::NodeKind,
    v3::MkNodArgs<'_>,
    v3::RemoveArgs<'_>,
    v3::RemoveResult,
    v3::RenameArgs<'_>,
    v3::RenameResult,
    v3::LinkArgs<'_>,
    v3::LinkResult,
    v3::ReadDirArgs,
    v3::Entry<'_>,
    v3::ReadDirOk<'_>,
    v3::ReadDirResult<'_>,
    v3::ReadDirPlusArgs,
    v3::EntryPlus<'_>,
    v3::ReadDirPlusOk<'_>,
    v3::ReadDirPlusResult<'_>,
    v3::SystemArgs,
    v3::FsStat,
    v3::FsStatResult,
    v3::FsInfo,
    v3::FsInfoResult,
    v3::PathConf,
    v3::PathConfResult,
    v3::CommitArgs,
    v3::CommitResult,
    acl::Parts,
    acl::Tag,
    acl::Entry,
    acl::Entries<'_>,
    acl::Lists<'_>,
    acl::GetAclArgs,
    acl::GetAclOk<'_>,
    acl::GetAclResult<'_>,
    acl::SetAclArgs<'_>,
    acl::SetAclResult,
    health::Reply,
];

/// The first word chooses the type.
pub fn types(input: &[u8]) -> InputVerdict {
    let Some((choice, octets)) = input.split_first_chunk() else {
        return InputVerdict::refused(&Error::Short);
    };
    let choice = u32::from_be_bytes(*choice) as usize % TYPES.len();
    (TYPES[choice].1)(octets).of(choice as u64)
}
