//! The memory store below the gateway: the cost of a READ and a WRITE there, and the data that is
//! sent while it is overwritten.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::result_large_err,
    dead_code,
    missing_docs
)]

use crate::gateway::{
    client::{Client, Home, LARGEST, encode, pattern},
    wire::{Message, OverFabric, OverTcp, Wire},
};
use stag_engine::{App, Call, Config, Cx};
use stag_nfs::{Gateway, GatewayReport};
use stag_nfs_store::memory::{self, Memory, MemoryExport};
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{self, Access, AccessArgs, ReadArgs, ReadOk, StableHow, Status, WriteArgs},
    },
    rpc::ReplyHeader,
};
use stag_sim::{Fabric, Faults};
use std::{cell::RefCell, rc::Rc};

fn store() -> Memory {
    let export =
        |name: &str, read_only| MemoryExport { name: name.to_owned(), copy_of: None, read_only };
    let exports = vec![export("data", false), export("fixed", true)];
    Memory::new(&memory::MemoryConfig::new(exports, 32 << 20), &mut |_| ()).unwrap()
}

/// A gateway whose every step is weighed.
struct Weighed {
    gateway: Gateway<Memory>,
    /// Allocations since the last look.
    weight: Rc<RefCell<u64>>,
}

impl Weighed {
    fn weigh<T>(&mut self, step: impl FnOnce(&mut Gateway<Memory>) -> T) -> T {
        let before = crate::counting::allocations();
        let value = step(&mut self.gateway);
        *self.weight.borrow_mut() += crate::counting::allocations() - before;
        value
    }
}

impl App for Weighed {
    type Report = GatewayReport;

    fn report(&self) -> GatewayReport {
        self.gateway.report()
    }

    fn sink(&mut self, len: usize) -> Option<stag_pools::Buf> {
        self.weigh(|gateway| gateway.sink(len))
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.weigh(|gateway| gateway.on_call(cx, call));
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.weigh(|gateway| gateway.on_pass_end(cx));
    }
}

/// Counts the allocations of ten rounds of `round`, after one round that is not counted.
fn weight(client: &mut Client, weight: &RefCell<u64>, mut round: impl FnMut(&mut Client)) -> u64 {
    round(client);
    weight.replace(0);
    (0..10).for_each(|_| round(client));
    weight.replace(0)
}

fn measure(make: impl FnOnce(Weighed) -> Box<dyn Wire>) {
    let count = Rc::new(RefCell::new(0));
    let weighed = Weighed { gateway: Gateway::new(store()), weight: Rc::clone(&count) };
    let mut client = Client::on(make(weighed), Home::new());
    let root = client.root;
    count.replace(0);
    let file = client.create(root, b"file").unwrap();
    assert_ne!(count.replace(0), 0, "the scale works: a name is kept on the heap");
    let data = pattern(LARGEST, 1);
    client.write(file, 0, &data, StableHow::Unstable).unwrap();
    let link = client.symlink(root, b"link", b"target").unwrap();

    let access = v3::Call::Access(AccessArgs { object: file, access: Access::ALL });
    let readlink = v3::Call::ReadLink(v3::ReadLinkArgs { symlink: link });
    let mut weigh = |name: &str, round: &mut dyn FnMut(&mut Client)| {
        assert_eq!(weight(&mut client, &count, round), 0, "{name}");
    };
    weigh("GETATTR", &mut |client| assert!(client.getattr(file).is_ok()));
    weigh("LOOKUP", &mut |client| assert!(client.lookup(root, b"file").is_ok()));
    weigh("LOOKUP in vain", &mut |client| assert!(client.lookup(root, b"none").is_err()));
    weigh("ACCESS", &mut |client| client.call(&access, |_| ()));
    weigh("READLINK", &mut |client| client.call(&readlink, |_| ()));
    for len in [0, 100, 4096, 65_536, LARGEST] {
        weigh("READ", &mut |client| {
            assert_eq!(client.read(file, 0, len as u32).unwrap().0.len(), len)
        });
        weigh("READ from anywhere", &mut |client| {
            assert!(client.read(file, 77_777, len as u32).is_ok())
        });
        for stable in [StableHow::Unstable, StableHow::FileSync] {
            weigh("WRITE", &mut |client| {
                assert!(client.write(file, 0, &data[..len], stable).is_ok())
            });
            weigh("WRITE to anywhere", &mut |client| {
                assert!(client.write(file, 7_777, &data[..len.min(900_000)], stable).is_ok());
            });
        }
    }
}

#[test]
fn a_call_about_a_known_file_allocates_nothing() {
    measure(|weighed| Box::new(OverFabric::new(weighed, Config::small())));
    measure(|weighed| Box::new(OverTcp::new(weighed, Config::small())));
}

fn clients() -> [Client; 2] {
    let gateway = || Gateway::new(store());
    [
        Client::on(Box::new(OverFabric::new(gateway(), Config::small())), Home::new()),
        Client::on(Box::new(OverTcp::new(gateway(), Config::small())), Home::new()),
    ]
}

#[test]
fn octets_of_every_interesting_size_survive() {
    for mut client in clients() {
        let root = client.root;
        let file = client.create(root, b"file").unwrap();
        let near = |n: usize| n.saturating_sub(3)..n + 4;
        for len in
            near(0).chain(near(4096)).chain(near(65_536)).chain(near(131_072)).chain([LARGEST])
        {
            for offset in [0, 1, 4_095, 65_535, 65_536] {
                let data = pattern(len, len + offset);
                let done = client.write(file, offset as u64, &data, StableHow::FileSync).unwrap();
                assert_eq!((done.count as usize, done.committed), (len, StableHow::FileSync));
                let (read, _) = client.read(file, offset as u64, len as u32).unwrap();
                assert!(read == data, "{len} octets at {offset}");
            }
        }
        let report = client.wire.report();
        assert_eq!((report.data.short_of_memory, report.failed_syncs), (0, 0));
    }
}

/// The READ in a shard that has no buffers except for messages: the data is sent from the store.
#[test]
fn a_large_read_needs_no_buffer_of_the_shard() {
    let config = Config { slots: [64, 0, 0], ..Config::small() };
    let wire = Box::new(OverFabric::new(Gateway::new(store()), config));
    let mut client = Client::on(wire, Home::new());
    let root = client.root;
    let file = client.create(root, b"file").unwrap();
    let data = pattern(LARGEST, 3);
    // Blocks are pulled to the store's own memory.
    for (at, block) in data.chunks(65_536).enumerate() {
        client.write(file, at as u64 * 65_536, block, StableHow::Unstable).unwrap();
    }
    let (read, eof) = client.read(file, 0, LARGEST as u32).unwrap();
    assert!(eof && read == data);
    let (pulled, pushed) = client.wire.moved();
    assert_eq!((pulled, pushed), (LARGEST as u64, LARGEST as u64));
}

#[test]
fn handles_of_an_earlier_life_are_stale() {
    for mut client in clients() {
        let root = client.root;
        let file = client.create(root, b"file").unwrap();
        client.wire = Box::new(OverFabric::new(Gateway::new(store()), Config::small()));
        for handle in [root, file] {
            assert_eq!(client.getattr(handle), Err(Status::Stale));
            assert_eq!(client.read(handle, 0, 10), Err(Status::Stale));
        }
        assert_ne!(client.mount("/data").unwrap(), root);
    }
}

/// READs and WRITEs of the same blocks at the same time, with every delay that the fabric knows:
/// each block of 64 KiB that a READ brings is all of one WRITE's.
#[test]
fn a_read_while_the_file_is_written_brings_old_or_new_blocks() {
    const BLOCK: usize = 65_536;
    let mut mixed = 0;
    for seed in 0..40 {
        let wire = OverFabric::with(
            Fabric::new(seed, Faults::DELAYS),
            Gateway::new(store()),
            Config { grant: 4, slots: [512, 64, 64], ..Config::small() },
        );
        let mut client = Client::on(Box::new(wire), Home::new());
        let root = client.root;
        let (file, other) =
            (client.create(root, b"f").unwrap(), client.create(root, b"g").unwrap());
        client.write(file, 0, &vec![1; 4 * BLOCK], StableHow::Unstable).unwrap();
        client.write(other, 0, &vec![200; 4 * BLOCK], StableHow::Unstable).unwrap();
        let write = |file, offset: usize, data: &'static [u8]| {
            let (offset, data) = (offset as u64, Bulk::Inline(data));
            v3::Call::Write(WriteArgs { file, offset, stable: StableHow::Unstable, data })
        };
        let read = v3::Call::Read(ReadArgs { file, offset: 0, count: 4 * BLOCK as u32 });
        let mut calls = Vec::new();
        for value in [2, 3, 4] {
            let octets: &'static [u8] = vec![value; 4 * BLOCK].leak();
            calls.push((encode(&read), 4 * BLOCK));
            calls.push((encode(&write(file, 0, octets)), 0));
            calls.push((encode(&read), 4 * BLOCK));
            calls.push((encode(&write(file, BLOCK, vec![50 + value; BLOCK].leak())), 0));
            calls.push((encode(&read), 4 * BLOCK));
            calls.push((encode(&write(other, 0, vec![200 + value; 4 * BLOCK].leak())), 0));
        }
        let messages: Vec<_> = calls
            .iter()
            .map(|((octets, item), result_max)| Message {
                octets,
                item: *item,
                reply_max: 1024,
                result_max: *result_max,
            })
            .collect();
        let replies: Vec<_> =
            client.wire.exchange_all(&messages).into_iter().map(Result::unwrap).collect();
        let reads = replies.iter().filter(|reply| reply.len() > 4 * BLOCK);
        assert_eq!(reads.clone().count(), 9);
        for reply in reads {
            let blocks = &reply[ReplyHeader::LEN + ReadOk::HEAD_LEN..][..4 * BLOCK];
            for block in blocks.chunks(BLOCK) {
                assert!(block.iter().all(|octet| *octet == block[0]), "seed {seed}: a mixed block");
                assert!(matches!(block[0], 1..=4 | 52..=54), "seed {seed}: another file's octets");
            }
            mixed += usize::from(blocks.chunks(BLOCK).any(|block| block[0] != blocks[0]));
        }
    }
    assert!(mixed > 0, "READs and WRITEs met");
}
