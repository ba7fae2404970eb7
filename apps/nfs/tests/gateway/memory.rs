//! Tests of short memory and of broken connections. With little memory, READ and READDIR return
//! less before they return nothing. A broken connection leaves no resources in use.

use crate::gateway::client::{Client, Home, LARGEST, encode, pattern};
use crate::gateway::wire::{Message, OverFabric, OverTcp, Wire};
use stag_engine::{Config, config};
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{
            Call, FileHandle, Procedure, ReadArgs, ReadDirPlusArgs, ReadOk, Reply, StableHow,
            Status, WriteArgs,
        },
    },
    rpc::ReplyHeader,
    xdr::Reader,
};
use stag_sim::{Fabric, Faults};

/// A server with these numbers of message, medium and large slots, and with a file of 300,000
/// octets.
fn short_of(
    slots: [usize; 3],
    wire: impl FnOnce(stag_nfs::Gateway, Config) -> Box<dyn Wire>,
) -> (Client, FileHandle) {
    let home = Home::new();
    std::fs::write(home.path("data/file"), pattern(300_000, 1)).unwrap();
    let config = Config { slots, ..Config::small() };
    let mut client = Client::on(wire(home.gateway(), config), home);
    let root = client.root;
    let file = client.lookup(root, b"file").unwrap();
    (client, file)
}

fn fabric(gateway: stag_nfs::Gateway, config: Config) -> Box<dyn Wire> {
    Box::new(OverFabric::new(gateway, config))
}

#[test]
fn a_read_gets_as_much_as_the_largest_buffer_that_is_free() {
    for (slots, len) in
        [([64, 4, 0], config::MEDIUM_LEN), ([64, 0, 0], config::INLINE_LEN), ([64, 0, 4], 300_000)]
    {
        let (mut client, file) = short_of(slots, fabric);
        let (read, eof) = client.read(file, 0, LARGEST as u32).unwrap();
        assert!(
            read == pattern(300_000, 1)[..len] && eof == (len == 300_000),
            "{} octets",
            read.len()
        );
        let (read, eof) = client.read(file, 299_000, LARGEST as u32).unwrap();
        assert!(read == pattern(300_000, 1)[299_000..] && eof);
        let short = client.wire.report().data.short_of_memory;
        assert_eq!(short, if len == 300_000 { 0 } else { 2 });
    }
}

#[test]
fn a_read_without_any_buffer_is_put_off() {
    let (mut client, file) =
        short_of([1, 0, 0], |gateway, config| Box::new(OverTcp::new(gateway, config)));
    assert_eq!(client.read(file, 0, 10), Err(Status::Jukebox));
    assert_eq!(client.getattr(file).unwrap().size, 300_000);
    assert_eq!(client.wire.report().nfs3["READ"].errors["NFS3ERR_JUKEBOX"], 1);
}

#[test]
fn without_memory_for_any_reply_the_connection_ends() {
    let home = Home::new();
    let config = Config { slots: [0, 0, 0], ..Config::small() };
    let mut wire = OverTcp::new(home.gateway(), config);
    let (octets, _) = encode(&Call::Null);
    let message = Message { octets: &octets, item: None, reply_max: 1024, result_max: 0 };
    assert!(wire.exchange(message).is_err());
    assert_eq!(wire.report().unanswered, 1);
}

#[test]
fn a_listing_in_a_small_buffer_has_fewer_entries() {
    let (mut client, _) = short_of([64, 0, 0], fabric);
    for i in 0..200 {
        std::fs::write(client.home.path("data").join(format!("name-{i:03}")), b"").unwrap();
    }
    let dir = client.root;
    let (mut cookie, mut names) = (0, 0);
    loop {
        let args =
            ReadDirPlusArgs { dir, cookie, verifier: [0; 8], dir_count: 65_536, max_count: 65_536 };
        let (last, count, eof) = client.call(&Call::ReadDirPlus(args), |reply| match reply {
            Reply::ReadDirPlus(results) => {
                let listed = results.unwrap();
                let last = listed.entries.clone().last().unwrap().entry.cookie;
                (last, listed.entries.count(), listed.eof)
            }
            other => panic!("{other:?}"),
        });
        assert!(count < 60, "{count} entries in 8,192 octets");
        (cookie, names) = (last, names + count);
        if eof {
            break;
        }
    }
    assert_eq!(names, 203);
}

#[test]
fn many_reads_at_once_share_what_there_is() {
    let (mut client, file) = short_of([64, 2, 1], fabric);
    let (octets, _) = encode(&Call::Read(ReadArgs { file, offset: 0, count: 200_000 }));
    let message = Message { octets: &octets, item: None, reply_max: 1024, result_max: 200_000 };
    let whole = pattern(300_000, 1);
    let mut lens = vec![];
    for reply in client.wire.exchange_all(&[message; 8]) {
        let reply = reply.unwrap();
        match Reply::parse(Procedure::Read, Reader::new(&reply[ReplyHeader::LEN..])).unwrap() {
            Reply::Read(Ok(read)) => {
                let octets = read.data.octets().unwrap();
                assert!(octets == &whole[..octets.len()] && !read.eof);
                lens.push(octets.len());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lens.len(), 8, "every READ is answered");
    assert!(
        lens.contains(&200_000) && lens.iter().all(|len| *len >= config::INLINE_LEN),
        "{lens:?}"
    );
}

#[test]
fn a_connection_that_breaks_costs_neither_memory_nor_data() {
    let faults = Faults { lost: 40_000, ..Faults::DELAYS };
    let mut broken = 0;
    for seed in 0..60 {
        let home = Home::new();
        std::fs::write(home.path("data/file"), b"").unwrap();
        let fabric = Fabric::new(seed, Faults::DELAYS);
        let wire = OverFabric::with(fabric.clone(), home.gateway(), Config::small());
        let mut client = Client::on(Box::new(wire), home);
        let root = client.root;
        let file = client.lookup(root, b"file").unwrap();
        fabric.set_faults(faults.clone());
        let whole = pattern(350_000, seed as usize);
        for (at, part) in whole.chunks(70_000).enumerate() {
            let offset = at as u64 * 70_000;
            let write =
                WriteArgs { file, offset, stable: StableHow::Unstable, data: Bulk::Inline(part) };
            let (octets, item) = encode(&Call::Write(write));
            let message = Message { octets: &octets, item, reply_max: 1024, result_max: 0 };
            // The wire checks after each try that neither end holds a buffer.
            while client.wire.exchange(message).is_err() {
                broken += 1;
            }
            let (octets, _) = encode(&Call::Read(ReadArgs { file, offset, count: 70_000 }));
            let message =
                Message { octets: &octets, item: None, reply_max: 1024, result_max: 70_000 };
            let reply = loop {
                match client.wire.exchange(message) {
                    Ok(reply) => break reply,
                    Err(_) => broken += 1,
                }
            };
            assert!(reply[ReplyHeader::LEN + ReadOk::HEAD_LEN..][..70_000] == *part, "seed {seed}");
        }
        assert!(std::fs::read(client.home.path("data/file")).unwrap() == whole, "seed {seed}");
    }
    assert!(broken > 20, "{broken} calls were cut off");
}
