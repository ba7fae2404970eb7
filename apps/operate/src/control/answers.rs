//! Answers of a server to its controllers, as JSON.

use super::{
    contexts, sessions, states,
    wire::{Reply, Request},
};
use crate::{
    exports::{ExportFacts, ExportList},
    metrics::{Shards, object},
    mounts::Mounts,
    trace,
};
use serde_json::{Value, json};
use stag_engine::{
    Command, Drained, Order, Over, PeerId, Stage,
    detail::{Detail, PeerState, RdmaState},
    gss::GssContexts,
    stages::WatchedCall,
};
use stag_protocol::rpcrdma::{Invalidation, Version};
use stag_verbs::Time;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// Calls that `trace` shows, at most.
const TRACED_MAX: usize = 4_096;

/// Time that shards may take to serve again.
const RESUME_LIMIT: Duration = Duration::from_secs(10);

/// Reads the configuration again; returns the changes, or the reason why there are none.
pub type Reload = Box<dyn Fn() -> Result<Value, String> + Send + Sync>;

/// Facts about a server, of which only the list of exports changes while it runs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// URLs over RDMA and shared memory.
    pub listen: Vec<String>,
    /// Address over TCP.
    pub tcp: Option<String>,
    /// URL of the metrics.
    pub metrics: Option<String>,
    /// Exports: name, source, and whether changes are refused.
    pub exports: ExportList,
    /// Ways to mount them.
    pub mounts: Mounts,
    /// The contexts of Kerberos, where a keytab is configured.
    pub contexts: Option<Arc<GssContexts>>,
}

/// Everything that answers come from.
pub struct Answers {
    /// The shards.
    pub shards: Arc<Shards>,
    /// Facts.
    pub facts: Facts,
    /// Reads the configuration again, if that is possible.
    pub reload: Option<Reload>,
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Answers {
    /// Does what `request` asks for.
    pub fn answer(&self, request: &Request) -> Reply {
        let done = match request {
            Request::Status => self.status(),
            Request::Exports => Ok(self.exports()),
            Request::Mounts { nfs } => self.mounts(*nfs),
            Request::Reload => self.reload.as_ref().map_or_else(|| Err(no_reload()), |it| it()),
            Request::Clients => self.clients(),
            Request::Contexts => self.contexts(),
            Request::Drop { client } => self.drop(client),
            Request::Clients4 { from } => states::clients(&self.shards, *from),
            Request::Expire { client } => states::expire(&self.shards, client),
            Request::Grace { end } => states::grace(&self.shards, *end),
            Request::Opens(page) => states::opens(&self.shards, page),
            Request::Locks(page) => states::locks(&self.shards, page),
            Request::Delegations(page) => states::delegations(&self.shards, page),
            Request::Drain => self.drain(true),
            Request::Resume => self.drain(false),
            Request::Stats => self.stats(),
            Request::Hist => self.hist(),
            Request::Log { filter } => trace::change(filter.as_deref()),
            Request::Memory => self.memory(),
            Request::Trace { last } => self.trace(*last),
        };
        done.map_or_else(Reply::Error, Reply::Ok)
    }

    fn status(&self) -> Result<Value, String> {
        let whole = self.stats()?;
        let of = |pointer: &str| whole.pointer(pointer).cloned().unwrap_or(Value::Null);
        let flag = if self.shards.is_draining() { "draining" } else { "serving" };
        let shards = whole.get("shards").and_then(Value::as_array).into_iter().flatten();
        let shards = shards.zip(self.shards.ends()).map(|(shard, end)| {
            let of = |pointer: &str| shard.pointer(pointer).cloned().unwrap_or(Value::Null);
            json!({
                "core": of("/core"),
                "node": end.place.node,
                "listen": end.place.listen,
                "device": end.place.device,
                "connections": of("/engine/connections/live"),
                "passes": of("/engine/passes/total"),
                "sleeps": of("/engine/passes/sleeps"),
            })
        });
        Ok(json!({
            "version": of("/version"),
            "commit": self.shards.commit(),
            "pid": std::process::id(),
            "uptime_s": of("/uptime_s"),
            "state": flag,
            "listen": self.facts.listen,
            "tcp": self.facts.tcp,
            "metrics": self.facts.metrics,
            "exports": self.facts.exports.all().len(),
            "connections": of("/total/engine/connections/live"),
            "waiting_calls": of("/total/app/waiting/under_way"),
            "kerberos": {
                "contexts": of("/total/engine/gss/live"),
                "waiting": of("/total/engine/gss/waiting"),
                "crowded": of("/total/engine/gss/crowded"),
                "displaced": of("/total/engine/gss/displaced"),
            },
            "log": trace::filter_text(),
            "shards": shards.collect::<Vec<_>>(),
        }))
    }

    /// The exports, with the space of their file systems.
    fn exports(&self) -> Value {
        let spaces = self.facts.exports.ask_space().answer();
        let with_space = |export: ExportFacts| {
            let mut shown = json!(export);
            if let Value::Object(members) = &mut shown {
                members.insert("space".to_owned(), json!(spaces.get(&export.name)));
            }
            shown
        };
        let exports: Vec<_> = self.facts.exports.all().into_iter().map(with_space).collect();
        json!({ "exports": exports })
    }

    /// The ways to mount each export, by version `nfs` or by all that are served.
    fn mounts(&self, nfs: Option<u8>) -> Result<Value, String> {
        let mut mounts = Vec::new();
        for export in self.facts.exports.all() {
            let of = self.facts.mounts.of(export.name.trim_start_matches('/'), export.sec);
            let of: Vec<_> =
                of.into_iter().filter(|it| nfs.is_none_or(|nfs| nfs == it.nfs)).collect();
            mounts.push(json!({ "export": export.name, "mounts": of }));
        }
        match nfs {
            Some(nfs) if !self.facts.mounts.has(nfs) => Err(self.facts.mounts.no_mount(nfs)),
            _ => Ok(json!({ "exports": mounts })),
        }
    }

    fn stats(&self) -> Result<Value, String> {
        let gathered = self.shards.gather(Command::Snapshot).map_err(|it| it.to_string())?;
        Ok(object::object(&gathered))
    }

    fn hist(&self) -> Result<Value, String> {
        let whole = self.stats()?;
        let every = whole.pointer("/total/stages/every").cloned().unwrap_or(Value::Null);
        let procedures = whole.get("procedures").cloned().unwrap_or(Value::Null);
        let operations = whole.get("operations").cloned().unwrap_or(Value::Null);
        Ok(json!({ "every": every, "procedures": procedures, "operations": operations }))
    }

    fn memory(&self) -> Result<Value, String> {
        let whole = self.stats()?;
        let shards = self.shards.ends().iter().map(|end| {
            let parts = end.memory.iter().map(|(part, octets)| ((*part).to_owned(), json!(octets)));
            Value::Object(parts.collect())
        });
        let limits = rustix::process::getrlimit(rustix::process::Resource::Memlock);
        Ok(json!({
            "process": whole.get("process"),
            "shards": shards.collect::<Vec<_>>(),
            "memlock_limit_bytes": limits.current,
            "duplicates_kept": whole.pointer("/total/app/duplicates/kept"),
        }))
    }

    /// The peers and the latest calls of each shard, with the scheme of its fabric.
    fn details(&self) -> Result<Vec<(&'static str, Detail)>, String> {
        let gathered = self.shards.gather(Command::Detail).map_err(|it| it.to_string())?;
        let details = gathered.shards.into_iter().filter_map(|(_, counted)| {
            let (scheme, _) = counted.fabric;
            Some((scheme, *counted.detail?))
        });
        Ok(details.collect())
    }

    fn clients(&self) -> Result<Value, String> {
        let gathered = self.shards.gather(Command::Detail).map_err(|it| it.to_string())?;
        let sessions = sessions::by_connection(&gathered);
        let mut all = Vec::new();
        for (shard, (_, counted)) in gathered.shards.iter().enumerate() {
            let (scheme, _) = counted.fabric;
            let peers = counted.detail.iter().flat_map(|detail| &detail.peers);
            all.extend(peers.map(|peer| {
                let sessions = sessions.get(&(shard, peer.id)).map_or(&[][..], Vec::as_slice);
                client(&name(shard, peer.id), scheme, peer, sessions)
            }));
        }
        Ok(json!({ "clients": all }))
    }

    /// The contexts of Kerberos. Only the thread of this request looks at them.
    fn contexts(&self) -> Result<Value, String> {
        let Some(all) = &self.facts.contexts else { return Err(contexts::NO_KERBEROS.to_owned()) };
        let times = self.details()?.into_iter().map(|(_, detail)| detail.now);
        Ok(contexts::listed(all.by_principal(), times.max().unwrap_or(Time(0)), SystemTime::now()))
    }

    fn trace(&self, last: usize) -> Result<Value, String> {
        let mut calls = Vec::new();
        for (shard, (_, detail)) in self.details()?.iter().enumerate() {
            calls.extend(
                detail.calls.iter().map(|call| (call.came_at, traced(shard, detail, call))),
            );
        }
        calls.sort_by_key(|(came_at, _)| came_at.0);
        let skipped = calls.len().saturating_sub(last.min(TRACED_MAX));
        let calls: Vec<_> = calls.into_iter().skip(skipped).map(|(_, call)| call).collect();
        Ok(json!({ "calls": calls }))
    }

    fn drop(&self, client: &str) -> Result<Value, String> {
        let mut dropped = Vec::new();
        for (shard, (_, detail)) in self.details()?.iter().enumerate() {
            for peer in detail.peers.iter().filter(|peer| is_meant(client, shard, peer)) {
                let id = name(shard, peer.id);
                if !self.shards.order(shard, Order::Drop(peer.id)) {
                    return Err(format!("shard {shard} takes no order to drop {id}: try again"));
                }
                let by = "stag ctl drop";
                tracing::info!(target: "stag", peer = %peer.address, id, by, "dropped");
                dropped.push(id);
            }
        }
        if dropped.is_empty() {
            return Err(format!("no connection is {client:?}: 'stag ctl clients' lists them"));
        }
        Ok(json!({ "dropped": dropped }))
    }

    fn drain(&self, drains: bool) -> Result<Value, String> {
        self.shards.drain(drains).map_err(|silent| silent.to_string())?;
        if drains {
            tracing::info!(target: "stag", by = "stag ctl drain", "draining");
            // Shards answer while they drain; when one answers the next question, the drain has
            // begun.
            let details = self.details()?;
            let left = details.iter().map(|(_, detail)| detail.peers.len()).sum::<usize>();
            let ends: Option<Vec<_>> = details.iter().map(|(_, detail)| detail.drained).collect();
            let drained = ends.map(|ends| drained(&ends));
            return Ok(json!({ "state": "draining", "connections": left, "drained": drained }));
        }
        tracing::info!(target: "stag", by = "stag ctl resume", "serving again");
        // Connections from here on are served.
        let until = Instant::now() + RESUME_LIMIT;
        while self.details()?.iter().any(|(_, detail)| detail.is_draining) {
            if Instant::now() > until {
                return Err("a core still drains: look again with 'stag ctl status'".to_owned());
            }
        }
        Ok(json!({ "state": "serving" }))
    }
}

/// The drain of all shards together: the longest time, and the calls that were lost.
fn drained(ends: &[Drained]) -> Value {
    let seconds = ends.iter().map(|end| end.took.as_secs_f64()).fold(0.0, f64::max);
    let unanswered = ends.iter().map(|end| end.unanswered).sum::<usize>();
    let is_cut = ends.iter().any(|end| end.is_cut);
    json!({ "seconds": seconds, "unanswered": unanswered, "cut": is_cut })
}

fn no_reload() -> String {
    "this server was started without a configuration file, so there is nothing to read again: \
     restart it with other options"
        .to_owned()
}

/// The name of a connection: shard, place, and the number of uses of that place.
fn name(shard: usize, peer: PeerId) -> String {
    let bits = peer.to_bits();
    format!("{shard}.{}.{}", bits & 0xffff_ffff, bits >> 32)
}

/// True if `client` names this connection, or all connections of its host.
fn is_meant(client: &str, shard: usize, peer: &PeerState) -> bool {
    let address = peer.address.to_string();
    let host = address.parse::<std::net::SocketAddr>().map(|at| at.ip());
    client == name(shard, peer.id)
        || client == address
        || host.is_ok_and(|host| {
            client
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.to_canonical() == host.to_canonical())
        })
}

pub(super) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn client(id: &str, scheme: &str, peer: &PeerState, sessions: &[Value]) -> Value {
    let over = if peer.over == Over::Tcp { "tcp" } else { scheme };
    let rdma = peer.rdma.as_ref().map(rdma);
    json!({
        "id": id,
        "peer": peer.address.to_string(),
        "via": over,
        "rdma": rdma,
        "sessions": sessions,
        "calls": peer.calls,
        "oldest_ms": peer.oldest.map(millis),
        "silent_ms": (peer.over == Over::Fabric).then(|| millis(peer.silent)),
        "octets": peer.moved,
        "held": peer.held,
    })
}

fn rdma(state: &RdmaState) -> Value {
    let version = match state.version {
        Some(Version::One) => json!(1),
        Some(Version::Two(_)) => json!(2),
        None => Value::Null,
    };
    let invalidation = match state.invalidation {
        Invalidation::None => "none",
        Invalidation::Chosen => "any",
        Invalidation::Named => "named",
    };
    json!({
        "version": version,
        "credits": {
            "requested": state.requested, "granted": state.granted, "used": state.used,
        },
        "inline": { "send": state.send_threshold, "receive": state.receive_threshold },
        "invalidation": invalidation,
    })
}

fn traced(shard: usize, detail: &Detail, call: &WatchedCall) -> Value {
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    let stages = Stage::ALL
        .into_iter()
        .filter_map(|stage| Some((stage.name().to_owned(), json!(micros(call.spent(stage)?)))));
    let named = call.name.map(|name| (name.program, name.version, name.procedure));
    let (program, procedure) = object::name(named);
    let operation = call.operation.map(stag_nfs::v4::operation_name);
    json!({
        "shard": shard,
        "age_ms": millis(detail.now.since(call.came_at)),
        "peer": call.name.map(|name| name.from.to_string()),
        "program": program,
        "procedure": procedure,
        "operation": operation,
        "xid": call.name.map(|name| format!("{:08x}", name.xid)),
        "total_us": micros(call.total()),
        "stages_us": Value::Object(stages.collect()),
    })
}
