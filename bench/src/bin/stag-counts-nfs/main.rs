//! Program whose process is counted: calls of NFS and of the load generator, both ends in one
//! thread, of which one is counted. A program of its own, as `stag-counts-typed` is.
//!
//! Usage: `stag-counts-nfs SUBJECT CALLS [ENCTYPE]`: CALLS calls. What one side costs is what its
//! loop costs, passes that find nothing included. ENCTYPE is that of contexts, by default
//! `aes256-cts-hmac-sha384-192`. SUBJECT is one of:
//! - `iwarp|shm-trusted/read-4k|write-4k|getattr|lookup|names[-chunk]/server|client`: READ, WRITE,
//!   GETATTR, LOOKUP, or CREATE, LOOKUP and REMOVE in turn, of version 3 on the memory store, 32 at
//!   a time; with `-chunk` both ends take messages of 4 KiB, as Linux does, so that payload is in
//!   chunks; `read4-4k`, `write4-4k`, `getattr4`, `lookup4` and `names4` are the same by version 4;
//! - `iwarp|shm-trusted/getattr|read-64k/nfs3|nfs4`: the server's side of one question by either
//!   version of NFS, 32 at a time;
//! - `shm-trusted/null|getattr|read-64k|write-64k|read-1m|write-1m/sys|krb5|krb5i|krb5p`: the
//!   server's side of calls of version 3 under this security flavor, 8 at a time;
//! - `floor`: prints, not counts, the times of NULL and GETATTR under AUTH_SYS and krb5, and the
//!   rates of READ and WRITE of 1 MiB under krb5i and krb5p at the server, next to those of their
//!   protection alone, on the same core;
//! - `load-iwarp|load-shm[/DEPTH]`: the generator's side of NULL, DEPTH at a time (1 when it is not
//!   said).

mod load;
mod secured;
mod versions;

use stag_bench::{
    compounds::NFS4,
    ends,
    loaded::{CountedSide, LoadEnds},
};
use stag_engine::{Config, Shard, clock::Clock, config::INLINE_LEN};
use stag_gss::Enctype;
use stag_iwarp::{Iwarp, IwarpConfig};
use stag_load::{
    Load, LoadFiles, LoadPlan, Workload,
    workload::{NAMES, name},
};
use stag_nfs::Gateway;
use stag_nfs_store::{
    Procedures as _, Store as _, WritePayload,
    memory::{Memory, MemoryConfig, MemoryExport},
};
use stag_protocol::nfs::v3::{CreateHow, SetAttributes, StableHow};
use stag_shm::{Shm, ShmAddress, ShmConfig};
use stag_verbs::{Limits, Provider};
use std::{io, process::ExitCode};

/// Calls in flight at a time.
const DEPTH: usize = 32;
/// Calls that the server lets the client have in flight.
const GRANT: u32 = 64;
/// Octets of one READ.
const LEN: usize = 4096;
/// Blocks of [`LEN`] octets in the file.
const BLOCKS: usize = 1024;
/// Key from which both fabrics make theirs.
const KEY: [u8; 32] = [7; 32];

/// A store with one file, and the calls of it.
#[derive(Debug)]
struct Stored {
    store: Memory,
    plan: LoadPlan,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let calls = arguments.get(1).and_then(|text| text.parse().ok());
    let named = |enctype: &Enctype| arguments.get(2).is_some_and(|name| name == enctype.name());
    let enctype = match arguments.get(2) {
        None => Some(Enctype::Aes256Sha384),
        Some(_) => Enctype::ALL.into_iter().find(named),
    };
    let (Some(subject), Some(calls), Some(enctype)) = (arguments.first(), calls, enctype) else {
        eprintln!(
            "stag-counts-nfs: say what (FABRIC/read-4k/server, load-FABRIC), how often, and for \
             calls with a context its enctype as in krb5.conf"
        );
        return ExitCode::from(2);
    };
    match count_subject(subject, calls, enctype) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stag-counts-nfs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn count_subject(subject: &str, calls: u64, enctype: Enctype) -> io::Result<()> {
    let (fabric, question) = subject.split_once('/').unwrap_or((subject, ""));
    if fabric.starts_with("load-") {
        let depth = question.parse().unwrap_or(1).clamp(1, ends::DEPTH_MAX);
        return load::count(fabric, depth, calls);
    }
    if fabric == "floor" {
        return secured::print_rates(enctype, calls);
    }
    if let Ok(call) = question.parse() {
        return secured::count(fabric, call, enctype, calls);
    }
    if let Ok(question) = question.parse() {
        return versions::count(fabric, question, calls);
    }
    let (workload, side) = question.split_once('/').unwrap_or((question, ""));
    let (workload, receive_len) = match workload.strip_suffix("-chunk") {
        Some(workload) => (workload, Config::default().receive_len),
        None => (workload, INLINE_LEN),
    };
    let workload = match workload {
        "getattr" => Some(Workload::GetAttr),
        "lookup" => Some(Workload::Lookup),
        "read-4k" => Some(Workload::Read),
        "write-4k" => Some(Workload::Write),
        "names" => Some(Workload::Meta),
        "getattr4" => Some(Workload::GetAttr4),
        "lookup4" => Some(Workload::Lookup4),
        "read4-4k" => Some(Workload::Read4),
        "write4-4k" => Some(Workload::Write4),
        "names4" => Some(Workload::Meta4),
        _ => None,
    };
    match (workload, side.parse()) {
        (Some(workload), Ok(side)) => {
            count(fabric, &CountedCalls { workload, receive_len, side, calls })
        }
        _ => Err(io::Error::other(format!("{subject:?} is nothing that is counted"))),
    }
}

/// Calls of which one side is counted.
#[derive(Clone, Copy, Debug)]
struct CountedCalls {
    workload: Workload,
    /// Octets of the longest message that both ends take.
    receive_len: usize,
    side: CountedSide,
    calls: u64,
}

fn count(fabric: &str, counted: &CountedCalls) -> io::Result<()> {
    let CountedCalls { workload, receive_len, side, calls } = *counted;
    let clock = Clock::start();
    let mut stored = stored(workload, fabric == "shm-trusted")?;
    stored.plan.receive_len = receive_len;
    match fabric {
        "iwarp" => {
            let provider = |limits| Iwarp::new(IwarpConfig::new(limits, KEY, clock.now()));
            let at = "iwarp://127.0.0.1:0".parse().expect("an address");
            connect(provider, &at, stored, clock)?.run(side, calls)
        }
        "shm-trusted" => {
            let home = tempfile::tempdir()?;
            let at = ShmAddress::new(home.path().join("socket")).map_err(io::Error::other)?;
            let provider = |limits| {
                Shm::new(ShmConfig { trust: true, ..ShmConfig::new(limits, KEY, clock.now()) })
            };
            connect(provider, &at.trusting(), stored, clock)?.run(side, calls)
        }
        _ => Err(io::Error::other(format!("{fabric:?} is no fabric"))),
    }
}

/// A store with one file of [`BLOCKS`], for LOOKUP also many empty ones, and the calls of it.
fn stored(workload: Workload, shared: bool) -> io::Result<Stored> {
    let failed = |status| io::Error::other(format!("the store says {status:?}"));
    let exports = vec![MemoryExport { name: "memory".to_owned(), copy_of: None, read_only: false }];
    let config = MemoryConfig { shared, ..MemoryConfig::new(exports, 16 << 20) };
    let mut store = Memory::new(&config, &mut |_| ()).map_err(io::Error::other)?;
    let dir = store.mount(b"/memory").map_err(failed)?;
    let how = CreateHow::Guarded(SetAttributes::default());
    let made = store.create(&dir, b"data", &(&how).into()).map_err(|made| failed(made.status))?;
    for block in 0..BLOCKS {
        let octets = [block as u8 | 1; LEN];
        let payload = WritePayload::from(&octets[..]);
        let offset = (block * LEN) as u64;
        store
            .write(&made.handle, offset, payload, StableHow::FileSync)
            .map_err(|done| failed(done.status))?;
    }
    if workload.by_nfs3() == Workload::Lookup {
        for number in 0..NAMES {
            let created = store.create(&dir, name(number).octets(), &(&how).into());
            created.map_err(|made| failed(made.status))?;
        }
    }
    let mut plan = LoadPlan::new(workload, LEN, DEPTH);
    (plan.verify, plan.is_nfs) = (false, true);
    plan.files = Some(LoadFiles { dir, file: made.handle, blocks: BLOCKS as u64, names: 0 });
    Ok(Stored { store, plan })
}

fn connect<P: Provider>(
    provider: impl Fn(Limits) -> io::Result<P>,
    at: &P::Address,
    stored: Stored,
    clock: Clock,
) -> io::Result<LoadEnds<P, Gateway<Memory>>> {
    let Stored { store, plan } = stored;
    let config = Config {
        grant: GRANT,
        receives: 512,
        inbound: 512,
        peers: 16,
        outbound: 64,
        // A quarter of the large buffers bounds the chunks that a peer has pulled at a time.
        slots: [1024, 32, 4 * DEPTH],
        receive_len: plan.receive_len,
        ..Config::default()
    };
    let pool = store.pool().cloned();
    let mut gateway = Gateway::new(store);
    if plan.workload.is_nfs4() {
        gateway = gateway.with_nfs4(NFS4);
    }
    let fabric = provider(config.limits(256))?;
    let mut server = Shard::new(fabric, gateway, config, Box::new(|_| true))?;
    if let Some(pool) = &pool {
        server.register(pool)?;
    }
    let load = Load::new(provider(plan.limits())?, &plan)?;
    LoadEnds::connect(server, at, load, clock)
}
