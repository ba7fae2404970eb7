//! `stag tune`: host settings that limit Stag, and the commands to change them.

mod change;
pub mod options;
mod show;

use crate::{Error, caller::say};
use options::{TuneCheckOptions, TuneOptions, TunePlanOptions, TuneWhat};
use stag_tuning::{HostCheck, HostFiles, HostPlan, HostReport, Scene, checks, measure};
use std::path::Path;

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");

/// Does what was asked for.
pub fn run(options: &TuneOptions) -> Result<(), Error> {
    match &options.what {
        TuneWhat::Check(options) => check(options),
        TuneWhat::Apply(options) => change::apply(options),
        TuneWhat::Revert(options) => change::revert(options),
    }
}

fn check(options: &TuneCheckOptions) -> Result<(), Error> {
    if let Some(id) = &options.explain {
        let found = checks::all().into_iter().find(|check| check.id.eq_ignore_ascii_case(id));
        say(show::explained(found.ok_or_else(|| unknown(id))?));
        return Ok(());
    }
    let all = if options.client { checks::of_client() } else { checks::of_host() };
    let (scene, chosen) = scene(&options.plan, all)?;
    let report = HostReport::of(&scene, &chosen);
    if options.json {
        let text = serde_json::to_string_pretty(&report);
        say(text.map_err(|error| Error::Refused(error.to_string()))? + "\n");
    } else {
        say(show::table(&report, options.all));
    }
    let sentence = show::verdict(&report);
    match report.exit_code() {
        0 => Ok(()),
        1 => Err(Error::Failure(sentence)),
        _ => Err(Error::NotReady(sentence)),
    }
}

/// The requested scene, and those of the checks `all` that are requested.
fn scene(
    options: &TunePlanOptions,
    all: Vec<&'static HostCheck>,
) -> Result<(Scene, Vec<&'static HostCheck>), Error> {
    let chosen = choose(options, all)?;
    let host = host(options.host.as_deref());
    if let Some(name) = &options.dev {
        let is_plain = !name.contains('/') && !name.starts_with('.');
        let classes = ["infiniband", "net"].map(|class| format!("/sys/class/{class}/{name}"));
        if !is_plain || !classes.iter().any(|at| host.exists(at)) {
            return Err(Error::Refused(format!(
                "{name} is neither an RDMA device nor a network device of this host"
            )));
        }
    }
    Ok((measure(host, plan(options), &chosen), chosen))
}

/// The host that was recorded at `root`, or this one.
fn host(root: Option<&Path>) -> HostFiles {
    root.map_or_else(HostFiles::live, HostFiles::recorded)
}

fn plan(options: &TunePlanOptions) -> HostPlan {
    let cores = options.cores.as_ref().map_or(1, |cores| cores.0.len().max(1));
    let pools =
        options.pools.unwrap_or_else(|| stag_nfs::serve::shard_buffers().saturating_mul(cores));
    HostPlan {
        profile: options.profile,
        cores: options.cores.clone().filter(|cores| !cores.is_empty()),
        device: options.dev.clone(),
        pool_octets: pools as u64,
        connections: options.connections.into(),
        ports: options.ports.clone(),
        directories: options.export.clone(),
        server: options.server,
    }
}

fn choose(
    options: &TunePlanOptions,
    all: Vec<&'static HostCheck>,
) -> Result<Vec<&'static HostCheck>, Error> {
    let is_named = |check: &HostCheck, word: &String| {
        let word = word.to_ascii_uppercase();
        check.id == word || check.id.trim_end_matches(|c: char| c.is_ascii_digit()) == word
    };
    for word in options.only.iter().chain(&options.skip) {
        if !checks::all().into_iter().any(|check| is_named(check, word)) {
            return Err(unknown(word));
        }
    }
    let is_chosen = |check: &&HostCheck| {
        let is_in = |words: &[String]| words.iter().any(|word| is_named(check, word));
        (options.only.is_empty() || is_in(&options.only)) && !is_in(&options.skip)
    };
    Ok(all.into_iter().filter(is_chosen).collect())
}

fn unknown(id: &str) -> Error {
    Error::Refused(format!("no check is called {id}; 'stag tune check --all' lists them"))
}
