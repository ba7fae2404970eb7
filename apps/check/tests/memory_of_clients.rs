//! The memory that a server of version 4 has for each client (RFC 8881 §2.10): its record, its
//! session with a back channel, one slot that was used, and one open. They are as many as one host
//! gets, a quarter of all.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../../../tests/counting/mod.rs"]
mod counting;

use stag_client::{ClientConfig, Error, NfsClient};
use stag_engine::Shard;
use stag_nfs::{Gateway, Nfs4Config};
use stag_nfs_store::memory::{Memory, MemoryConfig, MemoryExport};
use stag_nfs4_state::DelegationPolicy;
use stag_protocol::nfs::{
    v3::{CreateHow, FileHandle, SetAttributes},
    v4::{
        AnswerSet as _, Open4Args, OpenClaim, OpenHow, Request, StateOwner, Status4, Text, share,
    },
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::{cell::Cell, rc::Rc, time::Duration};

const CLIENTS: usize = 2_600;
/// Octets for each of them at most.
const EACH_MAX: i64 = 8_192;
/// Port at which the server listens.
const AT: Port = Port(700);

const NFS4: Nfs4Config = Nfs4Config {
    lease: Duration::from_secs(100_000),
    epoch: 1,
    identity: [5; 16],
    delegations: DelegationPolicy::ReadWrite,
    started: 1_000,
    key: [3; 16],
    cluster: None,
};

/// A client of a server in memory, and the octets that the server's shard has allocated.
fn pair() -> (NfsClient<Sim>, Rc<Cell<i64>>) {
    let fabric = Fabric::new(1, Faults::NONE);
    let export = MemoryExport { name: "data".to_owned(), copy_of: None, read_only: false };
    let store = Memory::new(&MemoryConfig::new(vec![export], 64 << 20), &mut |_| ()).unwrap();
    let gateway = Gateway::new(store).with_nfs4(NFS4).without_nfs3();
    let limits = Limits { windows: 256, receives: 256, ..stag_sim::LIMITS };
    let shard = stag_engine::Config { grant: 8, ..stag_engine::Config::small() };
    let mut server =
        Shard::new(fabric.end("server", limits), gateway, shard, Box::new(|_| true)).unwrap();
    server.listen(&AT).unwrap();
    let config = ClientConfig { user: (1, 1), ..ClientConfig::new(7) };
    let end = fabric.end("client", config.limits());
    let held = Rc::new(Cell::new(0));
    let holds = Rc::clone(&held);
    let mut time = 0;
    let now = move || {
        time += 500;
        let before = counting::live_octets();
        server.pass(Time(time));
        holds.set(holds.get() + counting::live_octets() - before);
        Time(time)
    };
    let mut client = NfsClient::new(end, config, now).unwrap();
    client.connect(&AT).unwrap();
    client.begin_version4(2).unwrap();
    (client, held)
}

/// Octets of this process that are in memory.
fn resident() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: i64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as i64
}

fn open(file: &FileHandle) -> [Request<'_>; 2] {
    let open = Open4Args {
        seqid: 0,
        share_access: share::READ | share::WANT_NO_DELEGATION,
        share_deny: 0,
        owner: StateOwner { client_id: 0, owner: Text(b"opener") },
        how: OpenHow::NoCreate,
        claim: OpenClaim::Fh,
    };
    [Request::PutFh(Text(file.octets())), Request::Open(open)]
}

#[test]
fn clients_with_a_session_each_take_no_more_than_eight_kibibytes_apiece() {
    let (mut client, held) = pair();
    let root = client.mount("/data").unwrap();
    let how = CreateHow::Guarded(SetAttributes { mode: Some(0o644), ..SetAttributes::default() });
    let file = client.create(root, b"file", how).unwrap().object.unwrap();
    // The server's tables are as long as they ever get, and not in memory before they are used.
    let (was_resident, had, held_before) = (resident(), counting::live_octets(), held.get());
    let mut others = Vec::with_capacity(CLIENTS);
    for number in 0..CLIENTS {
        let mut other = client
            .other_client_with_callbacks(2)
            .unwrap_or_else(|error| panic!("client {number}: {error}"));
        assert!(other.is_called(), "client {number}");
        let opened = client.compound(&mut other, &open(&file), |reply| {
            for answer in reply {
                let status = answer.map_err(Error::Garbled)?.status();
                assert_eq!(status, Status4::Ok, "client {number}");
            }
            Ok(())
        });
        opened.unwrap();
        others.push(other);
    }
    let held = || held.get() - held_before;
    // The calling side's own is no server's.
    let callers = counting::live_octets() - had - held();
    let each = (resident() - was_resident - callers) / CLIENTS as i64;
    let allocated = held() / CLIENTS as i64;
    println!("{each} octets in memory for each of {CLIENTS} clients, {allocated} beside tables");
    assert!(allocated > 256 && each > allocated, "the scale works: {each}, {allocated}");
    // A kernel that gives huge pages unasked has more in memory than anybody has touched.
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let has_huge = rollup.lines().any(|line| {
        line.starts_with("AnonHugePages:") && !line.split_whitespace().any(|word| word == "0")
    });
    assert!(each <= EACH_MAX || has_huge, "{each} octets for each client");
    for other in others {
        client.abandon_client(other).unwrap();
    }
    let left = held() / CLIENTS as i64;
    assert!(left * 2 < allocated, "{left} of {allocated} octets are left for each that has ended");
}
