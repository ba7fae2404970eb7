//! Several READs in one COMPOUND, each with a Write chunk of its own (RFC 8267 §6.4.1).

use super::client::{Client4, read_args, write_args};
use stag_engine::CallFault;
use stag_protocol::{
    nfs::{Bulk, v4::*},
    rpcrdma::{ErrorBody, chunk::WRITES_MAX},
    xdr::{Reader, padded},
};

const FILE_LEN: usize = 250_000;

/// A file with content, opened: its stateid, its handle, and the content.
fn make_file(client: &mut Client4) -> (Stateid, Vec<u8>, Vec<u8>) {
    let (stateid, handle) = client.open(b"file");
    let content = crate::gateway::client::pattern(FILE_LEN, 5);
    for (number, part) in content.chunks(50_000).enumerate() {
        let offset = number as u64 * 50_000;
        let put = Request::PutFh(Text(&handle));
        let written = client.run(&[put, write_args(stateid, offset, part)]);
        assert_eq!(written.status(), Status4::Ok);
    }
    (stateid, handle, content)
}

/// Finds each result where it belongs, and returns the status of the compound: `results` are the
/// octets that READs and READLINKs give, in order.
fn check(message: &[u8], filled: &[Vec<u8>], rooms: &[u32], results: &[&[u8]]) -> u32 {
    let mut reader = Reader::new(message);
    let (status, tag, count) = (reader.u32(), reader.u32(), reader.u32());
    assert_eq!(tag, Ok(0), "no tag");
    let mut place = 0;
    for _ in 0..count.unwrap() {
        let operation = reader.u32().unwrap();
        if reader.u32() != Ok(0) {
            break;
        }
        match Operation::new(operation).unwrap() {
            Operation::Sequence => drop(reader.fixed(36).unwrap()),
            operation @ (Operation::Read | Operation::ReadLink) => {
                let at = |result: &&[u8]| result.len() as u32;
                if operation == Operation::Read {
                    reader.u32().unwrap();
                }
                assert_eq!(reader.u32().ok(), results.get(place).map(at), "result {place}");
                let octets = match rooms.get(place) {
                    Some(_) => &filled[place][..],
                    None => reader.fixed(padded(results[place].len())).unwrap(),
                };
                assert!(octets.starts_with(results[place]), "result {place} in {rooms:?}");
                place += 1;
            }
            _ => {}
        }
    }
    assert_eq!((reader.remaining(), place), (0, results.len()));
    for unused in filled.iter().skip(place) {
        assert!(unused.is_empty(), "a chunk without a result comes back with length zero");
    }
    status.unwrap()
}

/// READs by offset and count, and the lengths of the Write chunks.
type ReadCase<'a> = (&'a [(u64, u32)], &'a [u32]);

#[test]
fn every_read_of_a_compound_has_the_write_chunk_of_its_place() {
    for mut client in Client4::over_fabric() {
        let (stateid, handle, content) = make_file(&mut client);
        let end = FILE_LEN as u64;
        // Offset and count of each READ, and the rooms for their data.
        let cases: [ReadCase<'_>; 9] = [
            (&[(0, 100_000), (100_000, 100_000)], &[100_000, 100_000]),
            // The first one would fit inline.
            (&[(7, 5), (100_000, 70_001)], &[5, 70_001]),
            (&[(0, 3), (1, 90_000), (2, 2)], &[3, 100_000, 2]),
            // Short at the end of the file, and nothing after it.
            (&[(end - 9, 50_000), (end, 50_000), (end - 1, 7)], &[50_000, 50_000, 50_000]),
            (&[(end + 7, 50_000), (0, 50_000)], &[50_000, 50_000]),
            // More READs than chunks.
            (&[(0, 60_000), (5, 100), (9, 7), (end, 9)], &[60_000]),
            (&[(0, 60_000), (5, 9_000), (9, 7)], &[60_000, 9_000]),
            // More chunks than READs.
            (&[(0, 60_000)], &[60_000, 9_000, 0, 5]),
            // A READ of nothing, with a chunk that has no room.
            (&[(9, 0), (9, 30_000)], &[0, 30_000]),
        ];
        for (spans, rooms) in cases {
            let reads = spans.iter().map(|(offset, count)| read_args(stateid, *offset, *count));
            let put = Request::PutFh(Text(&handle));
            let requests: Vec<_> = std::iter::once(put).chain(reads).collect();
            let results: Vec<&[u8]> = spans
                .iter()
                .map(|(offset, count)| {
                    let from = (*offset as usize).min(FILE_LEN);
                    &content[from..FILE_LEN.min(from + *count as usize)]
                })
                .collect();
            let before = client.wire.moved().1;
            let (message, filled) = client.run_in_rooms(false, &requests, rooms).unwrap();
            assert_eq!(check(&message, &filled, rooms, &results), 0);
            let in_rooms: usize = results.iter().zip(rooms).map(|(octets, _)| octets.len()).sum();
            assert_eq!(client.wire.moved().1 - before, in_rooms as u64, "{spans:?} {rooms:?}");
        }
    }
}

#[test]
fn reads_beyond_the_chunks_that_a_message_can_have_are_inline() {
    for mut client in Client4::over_fabric() {
        let (stateid, handle, content) = make_file(&mut client);
        let put = Request::PutFh(Text(&handle));
        let read = |place: u64| read_args(stateid, place * 1_000, 900);
        let requests: Vec<_> = std::iter::once(put).chain((0..10).map(read)).collect();
        let results: Vec<&[u8]> = (0..10).map(|place| &content[place * 1_000..][..900]).collect();
        let rooms = [900; WRITES_MAX];
        let (message, filled) = client.run_in_rooms(false, &requests, &rooms).unwrap();
        assert_eq!(check(&message, &filled, &rooms, &results), 0);
    }
}

#[test]
fn a_read_that_fails_leaves_its_chunk_and_those_after_it_empty() {
    for mut client in Client4::over_fabric() {
        let (stateid, handle, content) = make_file(&mut client);
        let foreign = Stateid { seqid: 1, other: [0xab; 12] };
        let requests = [
            Request::PutFh(Text(&handle)),
            read_args(stateid, 0, 40_000),
            read_args(foreign, 0, 40_000),
            read_args(stateid, 0, 40_000),
        ];
        let rooms = [40_000; 3];
        let (message, filled) = client.run_in_rooms(false, &requests, &rooms).unwrap();
        let status = check(&message, &filled, &rooms, &[&content[..40_000]]);
        assert_eq!(status, Status4::BadStateid as u32);
    }
}

#[test]
fn a_symbolic_link_has_the_chunk_of_its_place_among_reads() {
    for mut client in Client4::over_fabric() {
        let (stateid, handle, content) = make_file(&mut client);
        let make = Request::Create(Create4Args {
            kind: CreateKind::Link(Bulk::Inline(b"a/long/path")),
            name: Text(b"link"),
            attributes: RawAttributes::default(),
        });
        let reply = client.at_export(&[make, Request::GetFh(())]);
        let Answer::GetFh(Ok(link)) = reply.last() else { panic!("{:?}", reply.last()) };
        let link = link.0.to_vec();
        let requests = [
            Request::PutFh(Text(&handle)),
            read_args(stateid, 0, 40_000),
            Request::PutFh(Text(&link)),
            Request::ReadLink(()),
            Request::PutFh(Text(&handle)),
            read_args(stateid, 1, 40_000),
        ];
        let rooms = [40_000, 4_096, 40_000];
        let results: [&[u8]; 3] = [&content[..40_000], b"a/long/path", &content[1..40_001]];
        let (message, filled) = client.run_in_rooms(false, &requests, &rooms).unwrap();
        assert_eq!(check(&message, &filled, &rooms, &results), 0);
    }
}

#[test]
fn a_reply_that_a_slot_keeps_has_its_data_in_chunks_each_time() {
    for mut client in Client4::over_fabric() {
        let (stateid, handle, content) = make_file(&mut client);
        let put = || Request::PutFh(Text(&handle));
        let read = |offset, count| read_args(stateid, offset, count);
        let requests = [
            client.sequence(true),
            put(),
            read(FILE_LEN as u64, 9),
            read(1, 333),
            read(2, 401),
            read(3, 5),
        ];
        // So much room that no reply could be inline with it.
        let rooms = [9_000; 3];
        let results: [&[u8]; 4] = [&[], &content[1..334], &content[2..403], &content[3..8]];
        for time in ["first", "second", "third"] {
            let before = client.wire.moved().1;
            let (message, filled) = client.send_in_rooms(&requests, &rooms).unwrap();
            assert_eq!(check(&message, &filled, &rooms, &results), 0, "the {time} time");
            assert_eq!(client.wire.moved().1 - before, 333 + 401, "the {time} time");
        }
        let (message, filled) = client.send_in_rooms(&requests, &[]).unwrap();
        assert_eq!(check(&message, &filled, &[], &results), 0, "all inline without chunks");
    }
}

#[test]
fn a_chunk_too_small_for_its_read_refuses_the_reply_and_the_session_goes_on() {
    for mut client in Client4::over_fabric() {
        let (stateid, handle, content) = make_file(&mut client);
        let put = || Request::PutFh(Text(&handle));
        let requests = [put(), read_args(stateid, 0, 40_000), read_args(stateid, 0, 40_000)];
        for rooms in [[40_000, 39_999], [39_999, 40_000], [0, 40_000]] {
            let got = client.run_in_rooms(false, &requests, &rooms);
            assert_eq!(got, Err(CallFault::Refused(ErrorBody::Chunk)));
        }
        let rooms = [40_000; 2];
        let (message, filled) = client.run_in_rooms(false, &requests, &rooms).unwrap();
        assert_eq!(check(&message, &filled, &rooms, &[&content[..40_000]; 2]), 0);
    }
}
