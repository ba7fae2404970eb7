//! Computed defaults: they follow from other settings, from the environment, and from this host.

use super::{
    kerberos::REPLAY_CACHE,
    limits::{self, wanted},
    listen::tcp_beside,
    options::ServeOptions,
    shards::FabricShards,
};
use crate::{
    args::address,
    descriptors::{self, Share},
    settings::{ListenEntry, Origins},
    system,
};
use stag_engine::Spin;
use stag_fabrics::FabricAddress;
use stag_nfs::serve::ShardSizes;
use stag_nfs_store::memory::MemoryConfig;
use stag_operate::{observe, trace};
use std::{net::SocketAddr, path::Path};

/// A default that was worked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputedDefault {
    /// Long name of the flag.
    pub flag: &'static str,
    /// Value, as the flag takes it.
    pub value: String,
    /// The environment variable that it comes from, if it comes from one.
    pub variable: Option<&'static str>,
}

impl ComputedDefault {
    fn new(flag: &'static str, value: impl ToString) -> Self {
        Self { flag, value: value.to_string(), variable: None }
    }
}

/// Works out the defaults of a server with these options, without starting anything. Leaves out
/// defaults that need a value that is missing.
pub fn computed(
    options: &ServeOptions,
    entries: &[ListenEntry],
    origins: &Origins,
) -> Vec<ComputedDefault> {
    let listen: Vec<_> =
        options.listen.iter().filter_map(|url| address::listen(url).ok()).collect();
    let first = listen.iter().find_map(FabricAddress::ip);
    let cores = usize::from(options.cores);
    let fabrics = FabricShards::all(listen, entries, cores, origins).unwrap_or_default();
    let shards = fabrics.iter().map(|fabric| fabric.cores).sum();
    let has_tcp = options.tcp.as_deref().map_or(first.is_some(), |tcp| tcp != "none");
    let mut all = of_places(options, first);
    all.push(log());
    all.extend(of_limits(options, shards, has_tcp));
    all
}

/// Addresses, the state directory, and the mode.
fn of_places(options: &ServeOptions, first: Option<SocketAddr>) -> Vec<ComputedDefault> {
    let tcp = first.map_or_else(|| "none".to_owned(), |first| tcp_beside(first).to_string());
    let metrics = observe::usual_metrics(first.is_some_and(|at| at.port() == 0));
    let mut all = vec![ComputedDefault::new("tcp", tcp), ComputedDefault::new("metrics", metrics)];
    let mut state_dir = options.state_dir.clone();
    if options.memory.is_none() {
        if let Ok((directory, variable)) = system::usual_state_dir() {
            let value = directory.display().to_string();
            all.push(ComputedDefault { flag: "state-dir", value, variable });
            state_dir = state_dir.or(Some(directory));
        }
        all.push(ComputedDefault::new("mode", "auto"));
    }
    let state_dir = state_dir.and_then(|directory| std::path::absolute(directory).ok());
    if options.kerberos.keytab.is_some()
        && let Some(directory) = &state_dir
    {
        let cache = directory.join(REPLAY_CACHE);
        all.push(ComputedDefault::new("replay-cache", cache.display()));
    }
    let control = options.observe.monitors(state_dir.as_deref()).control_path().ok().flatten();
    let control = control.as_deref().map_or(Path::new("none"), |path| path);
    all.push(ComputedDefault::new("control", control.display()));
    all
}

/// The level of the log.
fn log() -> ComputedDefault {
    match trace::from_environment() {
        text if text.trim().is_empty() => ComputedDefault::new("log", "info"),
        value => ComputedDefault { flag: "log", value, variable: Some(trace::VARIABLE) },
    }
}

/// Sizes of each core, and its waiting times.
fn of_limits(options: &ServeOptions, shards: usize, has_tcp: bool) -> Vec<ComputedDefault> {
    let Ok(sizes) = limits::sizes(&options.limits) else { return Vec::new() };
    let ShardSizes { credits, receives, receive_len, calls, drain, spin, .. } = sizes;
    let spin = match spin {
        Spin::For(time) => time.as_micros().to_string(),
        Spin::Learned => "auto".to_owned(),
    };
    let mut all = vec![
        ComputedDefault::new("credits", credits),
        ComputedDefault::new("calls", calls),
        ComputedDefault::new("receives", receives),
        ComputedDefault::new("inline", size(receive_len)),
        ComputedDefault::new("buffers", size(sizes.slot_octets())),
        ComputedDefault::new("memory-max", size(MemoryConfig::host_memory() >> 20 << 20)),
        ComputedDefault::new("drain", drain.as_secs_f64()),
        ComputedDefault::new("spin", spin),
        ComputedDefault::new("awake", "busy"),
    ];
    let wanted = wanted(shards, has_tcp, &sizes, options.memory.is_none());
    if let Ok(share) = Share::of(descriptors::raise(), wanted) {
        all.push(ComputedDefault::new("connections", share.connections));
        let streams = if has_tcp { share.streams } else { sizes.streams };
        all.push(ComputedDefault::new("tcp-connections", streams));
        let (limits, steer) = (&options.limits, options.steer);
        let per_address = limits::connections_per_address(limits, steer, &share, shards);
        all.push(ComputedDefault::new("connections-per-address", per_address.unwrap_or(0)));
    }
    all
}

/// Octets as a size, in MiB where they are whole ones.
fn size(octets: usize) -> String {
    if octets.is_multiple_of(1 << 20) { format!("{}M", octets >> 20) } else { octets.to_string() }
}
