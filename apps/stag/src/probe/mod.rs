//! `stag probe`: the fabrics that work here, and their limits on this host.
//!
//! A fabric counts as working only if two ends of it have just exchanged a message on this host.

pub mod options;
mod ports;
mod report;

use crate::{Error, caller};
use rustix::process::{Resource, getrlimit};
use serde::{Serialize, Serializer};
use stag_engine::{clock::Clock, launch};
use stag_fabrics::{
    ABSENT, Absent, AnyProvider, FabricAddress, FabricInfo, Here, Notation, Settings,
};
use stag_pools::{Class, Pool};
use stag_tuning::{HostDigest, HostPlan};
use stag_verbs::{Cause, Event, Limits, Provider, Tag};
use std::{
    env,
    fmt::Write,
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");
/// Time that two ends may take to meet.
const PATIENCE: Duration = Duration::from_secs(3);
/// The fabric that works everywhere.
const USUAL: &str = "iwarp";
/// The fabric whose ports the kernel shows.
const WITH_PORTS: &str = "rdma";
/// Octets of the message that has to arrive.
const MESSAGE: usize = 64;

/// Limits that two ends need to meet.
const LIMITS: Limits = Limits {
    connections: 4,
    send_queue: 16,
    receives: 16,
    receives_each: None,
    receive_len: 4096,
    windows: 16,
    read_spans: 64,
    private_data_len: 56,
    sends_invalidation: true,
    bears_invalidation: true,
};

/// Findings of the probe.
#[derive(Debug, Serialize)]
struct Found {
    version: &'static str,
    fabrics: Vec<FabricFound>,
    host: Host,
    /// State of the host's settings, by the checks that need no time.
    check: HostDigest,
}

/// One fabric.
#[derive(Debug, Serialize)]
struct FabricFound {
    scheme: &'static str,
    works: bool,
    /// Why it does not.
    why: Option<String>,
    /// From the connect to the arrival of the first message, in microseconds.
    first_message_us: Option<f64>,
    /// Longest private data, work requests pending, Read spans of one work request.
    limits: Option<LimitsFound>,
    /// Anything else, by name.
    #[serde(serialize_with = "by_name")]
    facts: Vec<(&'static str, String)>,
    /// The ports of its devices, as the kernel shows them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ports: Vec<String>,
}

/// An object with a member for each fact.
fn by_name<S: Serializer>(facts: &[(&'static str, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(facts.iter().map(|(name, fact)| (name.replace(' ', "_"), fact)))
}

/// Limits of the fabric's provider.
#[derive(Debug, Serialize)]
struct LimitsFound {
    private_data_octets: usize,
    sends_invalidation: bool,
    bears_invalidation: bool,
    windows: bool,
}

/// Resources that the host offers.
#[derive(Debug, Serialize)]
struct Host {
    /// Cores that this process may use.
    cores: usize,
    /// Reserved huge pages of the default size.
    huge_pages: HugePages,
    /// Policy for transparent huge pages: always, madvise or never.
    transparent_huge_pages: Option<String>,
    /// Octets that may be locked; none without a limit.
    locked_memory_limit: Option<u64>,
    /// Octets of buffers of one shard of 'stag serve': a device needs them locked.
    shard_buffers: u64,
}

#[derive(Debug, Default, Serialize)]
struct HugePages {
    size: u64,
    total: u64,
    free: u64,
}

/// Probes, and prints the result. An error when a required fabric does not work.
pub fn run(arguments: &options::ProbeOptions) -> Result<(), Error> {
    let wanted: Vec<_> = arguments.schemes.iter().map(String::as_str).collect();
    let schemes: Vec<_> = FabricInfo::real()
        .map(|info| info.scheme)
        .chain(ABSENT.iter().map(|it| it.scheme))
        .collect();
    if let Some(other) = wanted.iter().find(|scheme| !schemes.contains(scheme)) {
        return Err(Error::usage(format!(
            "{other:?} is no fabric: there are {}",
            schemes.join(", ")
        )));
    }
    let mut fabrics: Vec<_> =
        FabricInfo::real().map(look).chain(ABSENT.iter().copied().map(not_built)).collect();
    if let Some(fabric) = fabrics.iter_mut().find(|fabric| fabric.scheme == WITH_PORTS) {
        fabric.ports = self::ports();
    }
    let check = HostDigest::of_this_host(HostPlan::default());
    let found = Found { version: env!("CARGO_PKG_VERSION"), fabrics, host: Host::here(), check };
    if let Some(file) = &arguments.report {
        report::write(file, &found)?;
        caller::aside(format!("{} is written: attach it\n", file.display()));
    }
    if arguments.json {
        let text = serde_json::to_string_pretty(&found);
        caller::say(text.map_err(|error| Error::failure(error.to_string()))? + "\n");
    } else {
        caller::say(found.text());
    }
    let is_wanted = |fabric: &&FabricFound| match wanted.as_slice() {
        [] => fabric.scheme == USUAL,
        wanted => wanted.contains(&fabric.scheme),
    };
    match found.fabrics.iter().filter(is_wanted).find(|fabric| !fabric.works) {
        Some(FabricFound { scheme, why, .. }) => {
            let why = why.as_deref().unwrap_or("no reason is known");
            Err(Error::failure(format!("{scheme} does not work here: {why}")))
        }
        None => Ok(()),
    }
}

/// Returns true if the fabric `scheme` works here, for callers that need no more.
pub fn works(scheme: &str) -> bool {
    FabricInfo::named(scheme).is_some_and(|info| look(info).works)
}

/// The ports of all RDMA devices, as the kernel shows them.
pub fn ports() -> Vec<String> {
    ports::here().iter().map(ToString::to_string).collect()
}

fn not_built(Absent { scheme, name, feature }: Absent) -> FabricFound {
    absent(scheme, format!("this build has no {name} (cargo build --features {feature})"))
}

fn look(info: FabricInfo) -> FabricFound {
    look_in(info, &env::temp_dir())
}

/// The same, by a socket in `directory` where the fabric needs one.
fn look_in(info: FabricInfo, directory: &Path) -> FabricFound {
    let scheme = info.scheme;
    if info.notation != Notation::Path {
        return judge(scheme, FabricAddress::here(scheme, directory));
    }
    match tempfile::Builder::new().prefix("stag-probe-").tempdir_in(directory) {
        Ok(home) => {
            let here = FabricAddress::here(scheme, &home.path().join("socket"));
            judge(
                scheme,
                here.map_err(|why| format!("{}: {why} (TMPDIR says where)", home.path().display())),
            )
        }
        Err(error) => absent(
            scheme,
            format!(
                "no socket can be made in {}: {error} (TMPDIR says where)",
                directory.display()
            ),
        ),
    }
}

/// A fabric that does not work.
fn absent(scheme: &'static str, why: String) -> FabricFound {
    let (facts, ports) = Default::default();
    FabricFound {
        scheme,
        works: false,
        why: Some(why),
        first_message_us: None,
        limits: None,
        facts,
        ports,
    }
}

fn judge(scheme: &'static str, here: Result<Here<FabricAddress>, String>) -> FabricFound {
    let Here { at, facts } = match here {
        Ok(here) => here,
        Err(why) => return absent(scheme, why),
    };
    match meet(&at) {
        Ok((took, limits)) => FabricFound {
            scheme,
            works: true,
            why: None,
            first_message_us: Some(took.as_secs_f64() * 1e6),
            limits: Some(limits),
            facts,
            ports: Vec::new(),
        },
        Err(why) => FabricFound { facts, ..absent(scheme, why) },
    }
}

/// Two ends in this thread: one listens at `at`, the other connects and says something.
fn meet(at: &FabricAddress) -> Result<(Duration, LimitsFound), String> {
    let clock = Clock::start();
    let shown = |error: io::Error| error.to_string();
    let end = |seed: u8| -> Result<(AnyProvider, Pool), String> {
        let settings = Settings {
            reserved_port: stag_client::takes_reserved_ports(),
            ..Settings::new(LIMITS, [seed; 32], clock.now())
        };
        let mut fabric = AnyProvider::for_connecting(settings, Some(at)).map_err(shown)?;
        let classes = [Class { slot_len: LIMITS.receive_len, count: 32 }];
        let pool =
            if fabric.wants_shared_pools() { Pool::shared(&classes) } else { Pool::new(&classes) };
        let pool = pool.map_err(shown)?;
        fabric.register(&pool).map_err(shown)?;
        for _ in 0..4 {
            let buf = pool.take(LIMITS.receive_len).ok_or("no memory")?;
            fabric.post_receive(buf).map_err(|_| "no receive is taken")?;
        }
        Ok((fabric, pool))
    };
    let ((mut server, _at_server), (mut client, at_client)) = (end(1)?, end(2)?);
    let at = server.listen(at).map_err(|fault| fault.to_string())?;
    let began = Instant::now();
    let qp = client.connect(&at, b"probe").map_err(|fault| fault.to_string())?;
    while began.elapsed() < PATIENCE {
        match server.poll(clock.now()) {
            Some(Event::ConnectRequest { qp }) => {
                server
                    .accept(qp, b"")
                    .map_err(|refusal| format!("accept is refused: {refusal:?}"))?;
            }
            Some(Event::Received { buf, .. }) if buf.len() == MESSAGE => {
                let limits = server.limits();
                let found = LimitsFound {
                    private_data_octets: limits.private_data_len,
                    sends_invalidation: limits.sends_invalidation,
                    bears_invalidation: limits.bears_invalidation,
                    windows: limits.windows > 0,
                };
                return Ok((began.elapsed(), found));
            }
            Some(Event::Disconnected { cause, .. }) => return Err(cause.to_string()),
            _ => {}
        }
        match client.poll(clock.now()) {
            Some(Event::Established { .. }) => {
                let mut message = at_client.take(MESSAGE).ok_or("no memory")?;
                message.spare_mut().iter_mut().take(MESSAGE).for_each(|octet| *octet = b'p');
                message.extend(MESSAGE);
                client
                    .post_send(qp, Tag(1), message, None)
                    .map_err(|refused| format!("{:?}", refused.why))?;
            }
            Some(Event::Disconnected { cause: Cause::Local, .. }) | None => {}
            Some(Event::Disconnected { cause, .. }) => return Err(cause.to_string()),
            Some(_) => {}
        }
        server.ring();
        client.ring();
        std::thread::yield_now();
    }
    Err(format!("two ends did not meet within {} s", PATIENCE.as_secs()))
}

impl Host {
    fn here() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let of = |name: &str| {
            let line =
                meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        };
        let huge_pages = HugePages {
            size: of("Hugepagesize").unwrap_or(0) << 10,
            total: of("HugePages_Total").unwrap_or(0),
            free: of("HugePages_Free").unwrap_or(0),
        };
        let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok();
        let chosen =
            enabled.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned()));
        Self {
            cores: launch::cores().len(),
            huge_pages,
            transparent_huge_pages: chosen,
            locked_memory_limit: getrlimit(Resource::Memlock).current,
            shard_buffers: stag_nfs::serve::shard_buffers() as u64,
        }
    }
}

impl Found {
    fn text(&self) -> String {
        let mut text = String::new();
        for fabric in &self.fabrics {
            let _ = match (&fabric.why, fabric.first_message_us) {
                (None, Some(took)) => {
                    writeln!(
                        text,
                        "{:<7} works: the first message took {took:.0} us",
                        fabric.scheme
                    )
                }
                (why, _) => {
                    writeln!(
                        text,
                        "{:<7} does not work: {}",
                        fabric.scheme,
                        why.as_deref().unwrap_or("?")
                    )
                }
            };
            if let Some(limits) = &fabric.limits {
                let yes = |is: bool| if is { "yes" } else { "no" };
                let _ = writeln!(
                    text,
                    "        windows {}, invalidation sent {}, borne {}, private data {} octets",
                    yes(limits.windows),
                    yes(limits.sends_invalidation),
                    yes(limits.bears_invalidation),
                    limits.private_data_octets
                );
            }
            for (name, fact) in &fabric.facts {
                let _ = writeln!(text, "        {name}: {fact}");
            }
            for port in &fabric.ports {
                let _ = writeln!(text, "        port: {port}");
            }
        }
        let Host { cores, huge_pages, transparent_huge_pages, locked_memory_limit, shard_buffers } =
            &self.host;
        let _ = writeln!(text, "host    cores: {cores} that this process may use");
        let HugePages { size, total, free } = huge_pages;
        let _ = writeln!(
            text,
            "        huge pages: {free} of {total} are free ({} KiB each)",
            size >> 10
        );
        let transparent = transparent_huge_pages.as_deref().unwrap_or("the kernel has none");
        let _ = writeln!(text, "        transparent huge pages: {transparent}");
        let limit = locked_memory_limit
            .map_or_else(|| "no limit".to_owned(), |octets| format!("{} KiB", octets >> 10));
        let _ = writeln!(
            text,
            "        locked memory: {limit}; a shard of 'stag serve' has {} KiB of buffers, which \
             a device needs locked",
            shard_buffers >> 10
        );
        if locked_memory_limit.is_some_and(|limit| limit < *shard_buffers) {
            let _ = writeln!(
                text,
                "        for rdma://: 'ulimit -l unlimited', or LimitMEMLOCK=infinity in the \
                 systemd unit"
            );
        }
        let _ = writeln!(text, "        settings: {}; 'stag tune check' says more", self.check);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_device_works_and_says_so() {
        for found in ["iwarp", "shm"].map(|scheme| look(FabricInfo::named(scheme).unwrap())) {
            assert!(found.works, "{found:?}");
            assert!(found.limits.unwrap().bears_invalidation && found.first_message_us.is_some());
        }
        assert!(works("shm") && works("iwarp"));
    }

    #[test]
    fn without_a_place_for_sockets_only_that_fabric_is_said_not_to_work() {
        let found = look_in(FabricInfo::named("shm").unwrap(), Path::new("/no/such/directory"));
        let why = found.why.unwrap();
        assert!(
            !found.works && why.contains("/no/such/directory") && why.contains("TMPDIR"),
            "{why}"
        );
    }

    #[test]
    fn facts_are_members_of_an_object() {
        let facts = vec![("memory windows", "yes".to_owned()), ("needs", "TCP".to_owned())];
        let found =
            FabricFound { facts, ports: vec!["a/1".to_owned()], ..absent("rdma", String::new()) };
        let object = serde_json::to_value(&found).unwrap();
        assert_eq!(object["facts"], serde_json::json!({ "memory_windows": "yes", "needs": "TCP" }));
        assert_eq!(object["ports"], serde_json::json!(["a/1"]));
    }

    #[test]
    fn an_address_where_nobody_can_listen_is_said_with_its_reason() {
        let at = crate::args::address::listen("shm:///no/such/directory/socket").unwrap();
        let found = judge("shm", Ok(Here { at, facts: Vec::new() }));
        assert!(!found.works && found.limits.is_none());
        let (fabrics, host, check) = (vec![found], Host::here(), HostDigest::default());
        let found = Found { version: "x", fabrics, host, check };
        assert!(found.text().starts_with("shm     does not work: "), "{}", found.text());
    }

    #[test]
    fn the_host_says_what_it_offers() {
        let host = Host::here();
        assert!(host.cores > 0 && host.shard_buffers > 1 << 20);
        let (fabrics, check) = (Vec::new(), HostDigest::default());
        let found = Found { version: "x", fabrics, host, check };
        assert!(found.text().contains("cores") && found.text().contains("locked memory"));
    }
}
