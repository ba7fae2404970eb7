//! READDIR and READDIRPLUS fill a reply to the last octet allowed, and never beyond.

use stag_protocol::nfs::v3::*;
use stag_protocol::xdr::{NoRoom, Reader, Writer, padded};

/// Octets of the success arm without entries and without the directory's attributes.
const EMPTY: usize = 4 + 8 + 4 + 4;
const VERIFIER: CookieVerifier = [5; 8];
const NAMES: [&[u8]; 5] = [b".", b"..", b"a-longer-name", b"four", b"x"];

fn entry(at: usize) -> Entry<'static> {
    let number = u64::try_from(at).unwrap() + 1;
    Entry { fileid: number, name: Name(NAMES[at]), cookie: number }
}

fn plus(at: usize) -> EntryPlus<'static> {
    EntryPlus { entry: entry(at), attributes: None, handle: FileHandle::new(&[1; 8]) }
}

/// Octets of an entry of READDIR, with the TRUE in front.
fn entry_len(at: usize) -> usize {
    4 + 8 + 4 + padded(NAMES[at].len()) + 8
}

/// Octets of an entry of [`plus`], with the TRUE in front.
fn plus_len(at: usize) -> usize {
    entry_len(at) + 4 + 4 + 4 + 8
}

/// Number of entries that fit within `limit` if each has these lengths.
fn fitting(lens: impl Fn(usize) -> usize, limit: usize) -> usize {
    (1..=NAMES.len()).take_while(|count| (0..*count).map(&lens).sum::<usize>() <= limit).count()
}

/// The entries that fit, or the status; and the octets.
fn read_dir(out: &mut [u8], room: usize, count: u32) -> (Result<usize, Status>, usize) {
    let mut writer = Writer::new(&mut out[..room]);
    let result = ReadDirWriter::begin(&mut writer, None, VERIFIER, count).and_then(|mut list| {
        let all = (0..NAMES.len()).all(|at| list.push(&entry(at)).is_ok());
        list.finish(all)
    });
    (result, writer.len())
}

fn read_dir_plus(
    out: &mut [u8],
    room: usize,
    limits: PlusLimits,
) -> (Result<usize, Status>, usize) {
    let mut writer = Writer::new(&mut out[..room]);
    let result =
        ReadDirPlusWriter::begin(&mut writer, None, VERIFIER, limits).and_then(|mut list| {
            let all = (0..NAMES.len()).all(|at| list.push(&plus(at)).is_ok());
            list.finish(all)
        });
    (result, writer.len())
}

/// Checks the result if `fits` entries fit: all of them, or TOOSMALL and no octet.
fn check(result: Result<usize, Status>, len: usize, fits: usize, lens: impl Fn(usize) -> usize) {
    if fits == 0 {
        assert_eq!((result, len), (Err(Status::TooSmall), 0));
    } else {
        assert_eq!((result, len), (Ok(fits), 4 + EMPTY + (0..fits).map(lens).sum::<usize>()));
    }
}

#[test]
fn every_count_is_filled_and_none_is_exceeded() {
    let mut out = [0xee; 512];
    for count in 0..300_u32 {
        let limit = usize::try_from(count).unwrap();
        let (result, len) = read_dir(&mut out, 512, count);
        let fits = limit.checked_sub(EMPTY).map_or(0, |left| fitting(entry_len, left));
        check(result, len, fits, entry_len);
        assert!(len <= 4 + limit, "count {count}");
        if let Ok(fits) = result {
            let Ok(Reply::ReadDir(Ok(parsed))) =
                Reply::parse(Procedure::ReadDir, Reader::new(&out[..len]))
            else {
                panic!("what was written is a result, count {count}");
            };
            assert_eq!((parsed.attributes, parsed.verifier), (None, VERIFIER));
            assert_eq!(
                parsed.entries.collect::<Vec<_>>(),
                (0..fits).map(entry).collect::<Vec<_>>()
            );
            assert_eq!(parsed.eof, fits == NAMES.len(), "count {count}");
        }
    }
}

#[test]
fn every_room_is_filled_and_none_is_exceeded() {
    let mut out = [0xee; 512];
    for room in 0..300_usize {
        let fits = room.checked_sub(4 + EMPTY).map_or(0, |left| fitting(entry_len, left));
        let (result, len) = read_dir(&mut out, room, u32::MAX);
        check(result, len, fits, entry_len);
        let fits = room.checked_sub(4 + EMPTY).map_or(0, |left| fitting(plus_len, left));
        let (result, len) =
            read_dir_plus(&mut out, room, PlusLimits { dir_count: u32::MAX, max_count: u32::MAX });
        check(result, len, fits, plus_len);
    }
}

#[test]
fn both_counts_of_readdirplus_are_kept() {
    let mut out = [0xee; 512];
    for dir_count in 0..200_u32 {
        for max_count in 0..300_u32 {
            let (dir_limit, limit) =
                (usize::try_from(dir_count).unwrap(), usize::try_from(max_count).unwrap());
            let by_max = limit.checked_sub(EMPTY).map_or(0, |left| fitting(plus_len, left));
            let fits = by_max.min(fitting(entry_len, dir_limit));
            let (result, len) = read_dir_plus(&mut out, 512, PlusLimits { dir_count, max_count });
            check(result, len, fits, plus_len);
            assert!(len <= 4 + limit);
        }
    }
    let (result, len) = read_dir_plus(&mut out, 512, PlusLimits { dir_count: 512, max_count: 512 });
    assert_eq!(result, Ok(NAMES.len()));
    let Ok(Reply::ReadDirPlus(Ok(parsed))) =
        Reply::parse(Procedure::ReadDirPlus, Reader::new(&out[..len]))
    else {
        panic!("what was written is a result");
    };
    assert_eq!(parsed.entries.collect::<Vec<_>>(), (0..NAMES.len()).map(plus).collect::<Vec<_>>());
    assert!(parsed.eof);
}

#[test]
fn a_directory_read_to_its_end_has_no_entries_and_says_so() {
    let mut out = [0xee; 64];
    let mut writer = Writer::new(&mut out);
    let empty = u32::try_from(EMPTY).unwrap();
    assert_eq!(
        ReadDirWriter::begin(&mut writer, None, VERIFIER, empty - 1).err(),
        Some(Status::TooSmall)
    );
    assert!(writer.is_empty());
    let list = ReadDirWriter::begin(&mut writer, None, VERIFIER, empty).unwrap();
    assert_eq!(list.finish(true), Ok(0));
    let len = writer.len();
    assert_eq!(
        out[..len],
        [0, 0, 0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 0, 0, 0, 0, 0, 0, 0, 1]
    );
}

#[test]
fn nothing_follows_an_entry_that_did_not_fit() {
    let mut out = [0xee; 512];
    let mut writer = Writer::new(&mut out);
    // What stands in front of the results does not count.
    writer.u64(0x0102_0304_0506_0708).unwrap();
    let count = u32::try_from(EMPTY + entry_len(0) + entry_len(4)).unwrap();
    let mut list = ReadDirWriter::begin(&mut writer, None, VERIFIER, count).unwrap();
    assert_eq!(list.push(&entry(0)), Ok(()));
    assert_eq!(list.push(&entry(2)), Err(NoRoom));
    assert_eq!(list.push(&entry(4)), Err(NoRoom), "it would have fit, but its turn is later");
    assert_eq!(list.finish(false), Ok(1));
    let len = writer.len();
    assert_eq!(len, 8 + 4 + EMPTY + entry_len(0));
    assert_eq!(out[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
    let Ok(Reply::ReadDir(Ok(parsed))) =
        Reply::parse(Procedure::ReadDir, Reader::new(&out[8..len]))
    else {
        panic!("what was written is a result");
    };
    assert_eq!(parsed.entries.len(), 1);
    assert!(!parsed.eof);
}

#[test]
fn an_entry_has_these_octets() {
    let mut out = [0xee; 128];
    let mut writer = Writer::new(&mut out);
    let mut list = ReadDirPlusWriter::begin(
        &mut writer,
        None,
        [0; 8],
        PlusLimits { dir_count: 512, max_count: 512 },
    )
    .unwrap();
    let entry = Entry { fileid: 7, name: Name(b"abc"), cookie: 9 };
    list.push(&EntryPlus { entry, attributes: None, handle: FileHandle::new(&[1, 2]) }).unwrap();
    list.finish(true).unwrap();
    let len = writer.len();
    #[rustfmt::skip]
    let expected = [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // status, no attributes, verifier
        0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 3, b'a', b'b', b'c', 0, 0, 0, 0, 0, 0, 0, 0, 9,
        0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 0, 0, // no attributes, a handle
        0, 0, 0, 0, 0, 0, 0, 1, // no more entries, end of the directory
    ];
    assert_eq!(out[..len], expected);
}
