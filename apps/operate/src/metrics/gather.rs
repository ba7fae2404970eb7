//! Snapshots of all shards at one moment, taken from any thread but a shard's.

use crate::{
    exports::{ExportList, Space, SpaceQuestion},
    trace,
};
use serde_json::{Map, Value, json};
use stag_engine::{
    Spin,
    control::{Command, Handle, Order},
    stages::Procedures,
    stats::Snapshot,
};
use stag_nfs::{GatewayReport, StateAnswer, StateDesk, StateQuestion};
use stag_verbs::{OutageTable, Outages};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Time that a shard may take to answer for its counters.
const PATIENCE: Duration = Duration::from_secs(2);
/// The answer to an order to end a client that takes longer.
const ENDING: &str = "the client is being ended: its record is not removed yet, or another core \
                      has its slots ('stag ctl clients4' shows when it is gone)";

/// The way to a shard that runs.
pub type ShardHandle = Arc<Handle<Snapshot<GatewayReport>>>;

/// One shard, as seen by those who watch it.
#[derive(Clone, Debug)]
pub struct ShardEnd {
    /// The way to it.
    pub handle: ShardHandle,
    /// The core that it is pinned to.
    pub core: Option<usize>,
    /// The place of its memory, and where it listens.
    pub place: ShardPlace,
    /// Octets that it took at start, by what they are for.
    pub memory: Vec<(&'static str, usize)>,
    /// It may poll without work, for a time that can be set.
    pub may_spin: bool,
    /// The place for questions about clients and states of version 4.
    pub states: Option<Arc<StateDesk>>,
}

impl ShardEnd {
    /// A shard that starts.
    pub fn new(handle: Handle<Snapshot<GatewayReport>>, core: Option<usize>) -> Self {
        let (place, memory) = (ShardPlace::default(), Vec::new());
        Self { handle: Arc::new(handle), core, place, memory, may_spin: true, states: None }
    }
}

/// The place of a shard in its host, but for its core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardPlace {
    /// The NUMA node of its memory, where the host has more than one.
    pub node: Option<u32>,
    /// URLs of its addresses over RDMA and shared memory.
    pub listen: Vec<String>,
    /// The name of its RDMA device, on a fabric of devices.
    pub device: Option<String>,
}

/// All shards of a server.
#[derive(Debug)]
pub struct Shards {
    began: Instant,
    commit: &'static str,
    ends: Vec<ShardEnd>,
    outages: Outages,
    exports: ExportList,
    is_draining: AtomicBool,
}

/// A shard that did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer(pub usize);

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "shard {} does not answer within {} s: ", self.0, PATIENCE.as_secs())?;
        f.write_str("it has stopped, or waits for a file system ('stag help re-export')")
    }
}

impl Shards {
    /// The shards of a server of the build `commit` that began at `began`. They report their
    /// outages to `outages`.
    pub fn new(
        began: Instant,
        commit: &'static str,
        ends: Vec<ShardEnd>,
        outages: Outages,
    ) -> Self {
        let (exports, is_draining) = (ExportList::default(), AtomicBool::new(false));
        Self { began, commit, ends, outages, exports, is_draining }
    }

    /// The same, with the exports whose space is counted.
    #[must_use]
    pub fn with_exports(self, exports: ExportList) -> Self {
        Self { exports, ..self }
    }

    /// The commit of the build.
    pub const fn commit(&self) -> &'static str {
        self.commit
    }

    /// Asks all shards for a snapshot; with `command` [`Command::Detail`] for their peers, too.
    ///
    /// # Errors
    /// The first shard that does not answer in time.
    pub fn gather(&self, command: Command) -> Result<Gathered, NoAnswer> {
        // Details are about peers and calls alone.
        let space = (command == Command::Snapshot).then(|| self.exports.ask_space());
        let questions: Vec<_> =
            self.ends.iter().map(|end| (end.core, end.handle.ask(command))).collect();
        let until = Instant::now() + PATIENCE;
        let mut shards = Vec::with_capacity(questions.len());
        for (index, (core, question)) in questions.into_iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            shards.push((core, question.answer(left).ok_or(NoAnswer(index))?));
        }
        let exports = space.map(SpaceQuestion::answer).unwrap_or_default();
        Ok(Gathered { exports, ..self.gathered(shards) })
    }

    /// Counters of shards that were taken some other way.
    pub fn gathered(&self, shards: Vec<(Option<usize>, Snapshot<GatewayReport>)>) -> Gathered {
        let mut memory = Map::new();
        for (part, octets) in self.ends.iter().flat_map(|end| &end.memory) {
            let sum = memory.get(*part).and_then(Value::as_u64).unwrap_or(0);
            memory.insert((*part).to_owned(), json!(sum + *octets as u64));
        }
        Gathered {
            uptime: self.began.elapsed(),
            commit: self.commit,
            is_draining: self.is_draining(),
            outages: self.outages.now().by_shard.len(),
            memory: Value::Object(memory),
            log: trace::counted(),
            exports: BTreeMap::new(),
            shards,
        }
    }

    /// Asks the shard that has all clients and states of version 4.
    ///
    /// # Errors
    /// A sentence when version 4 is not served, or there is no answer in time.
    pub fn ask_states(&self, question: StateQuestion) -> Result<StateAnswer, String> {
        let home = self.ends.first().and_then(|end| Some((end, end.states.as_ref()?)));
        let (end, states) = home.ok_or("this server does not serve NFS version 4 (--nfs)")?;
        let late = match question {
            StateQuestion::Expire { .. } => ENDING.to_owned(),
            _ => NoAnswer(0).to_string(),
        };
        let answer = states.ask(question).ok_or("too many questions wait: try again")?;
        end.handle.tell(Command::Look);
        answer.recv_timeout(PATIENCE).map_err(|_| late)
    }

    /// Sends one shard an order. False when there is no such shard, or it does not accept it.
    pub fn order(&self, shard: usize, order: Order) -> bool {
        self.ends.get(shard).is_some_and(|end| end.handle.order(order))
    }

    /// Sends all shards the order to drain, or to resume.
    ///
    /// # Errors
    /// The first shard that does not take it.
    pub fn drain(&self, drains: bool) -> Result<(), NoAnswer> {
        self.is_draining.store(drains, Ordering::Relaxed);
        let order = if drains { Order::Drain } else { Order::Resume };
        let refused = (0..self.ends.len()).find(|index| !self.order(*index, order));
        refused.map_or(Ok(()), |index| Err(NoAnswer(index)))
    }

    /// Sets the drain time and the spin policy of all shards.
    ///
    /// # Errors
    /// The first shard that does not take it.
    pub fn set_times(&self, drain: Duration, spin: Spin) -> Result<(), NoAnswer> {
        for (index, end) in self.ends.iter().enumerate() {
            let is_taken = end.handle.order(Order::SetDrain(drain))
                && (!end.may_spin || end.handle.order(Order::SetSpin(spin)));
            if !is_taken {
                return Err(NoAnswer(index));
            }
        }
        Ok(())
    }

    /// True after [`drain`](Self::drain) until it is revoked.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Shards whose RDMA device cannot be reached at the moment.
    pub const fn outages(&self) -> &Outages {
        &self.outages
    }

    /// Sentences about missing parts, and whether clients can connect: the answer to `GET /ready`.
    /// With several devices, one that is left is enough.
    pub fn readiness(&self) -> Readiness {
        let OutageTable { by_shard, .. } = self.outages.now();
        let on_devices = self.ends.iter().filter(|end| end.place.device.is_some()).count();
        let is_cut_off = on_devices > 0 && by_shard.len() >= on_devices;
        let outages = by_shard.iter().map(|(shard, why)| format!("shard {shard}: {why}"));
        let draining = self.is_draining().then(|| "draining: no connections are taken".to_owned());
        let missing: Vec<_> = outages.chain(draining).collect();
        Readiness { is_ready: !is_cut_off && !self.is_draining(), missing }
    }

    /// The shards.
    pub fn ends(&self) -> &[ShardEnd] {
        &self.ends
    }
}

/// Result of [`Shards::readiness`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Clients can connect.
    pub is_ready: bool,
    /// A sentence for each thing that is missing.
    pub missing: Vec<String>,
}

/// Counters of all shards.
#[derive(Debug)]
pub struct Gathered {
    /// Time since the server's start.
    pub uptime: Duration,
    /// The commit of the build.
    pub commit: &'static str,
    /// The server takes no connections.
    pub is_draining: bool,
    /// Shards whose RDMA device cannot be reached.
    pub outages: usize,
    /// Octets of the shards, by what they are for.
    pub memory: Value,
    /// Events that were logged and lost.
    pub log: Value,
    /// Space of exports, by name.
    pub exports: BTreeMap<String, Space>,
    /// Of each shard its core and its counters.
    pub shards: Vec<(Option<usize>, Snapshot<GatewayReport>)>,
}

impl Gathered {
    /// The times of all procedures, of all shards together.
    pub fn procedures(&self) -> Procedures {
        let mut all = Procedures::default();
        for (_, counted) in &self.shards {
            all.add(&counted.procedures);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_engine::control;

    fn shards(devices: &[Option<&str>]) -> Shards {
        let end = |device: &Option<&str>| {
            let (_, handle) = control::pair().unwrap();
            let mut end = ShardEnd::new(handle, None);
            end.place.device = device.map(str::to_owned);
            end
        };
        Shards::new(Instant::now(), "", devices.iter().map(end).collect(), Outages::default())
    }

    #[test]
    fn a_server_is_ready_while_one_of_its_devices_is_there() {
        let two = shards(&[Some("mlx5_0"), Some("mlx5_1"), None]);
        let gone = |shard| two.outages().of_shard(shard).set(Some("gone".to_owned()));
        assert_eq!(two.readiness(), Readiness { is_ready: true, missing: Vec::new() });
        gone(1);
        let missing = vec!["shard 1: gone".to_owned()];
        assert_eq!(two.readiness(), Readiness { is_ready: true, missing });
        gone(0);
        let readiness = two.readiness();
        assert!(!readiness.is_ready && readiness.missing.len() == 2, "{readiness:?}");
        two.outages().of_shard(0).set(None);
        assert!(two.readiness().is_ready);
        let without = shards(&[None]);
        assert!(without.readiness().is_ready);
        without.is_draining.store(true, Ordering::Relaxed);
        assert!(!without.readiness().is_ready);
    }
}
