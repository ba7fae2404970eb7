//! `stag-hostile`: plays defects against a server, and prints each answer next to the one that
//! the specification requires.
#![forbid(unsafe_code)]

use clap::Parser;
use serde_json::json;
use stag_hostile::{
    Defect, DefectLayer, DefectOutcome, HostileWorld, ServerUnderTest, defects,
    ours::{EXPORT, OurServer},
    requester, run,
};
use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    process::ExitCode,
    time::Duration,
};

/// Number of retries before an unexpected answer of a kernel counts.
const RETRIES: u32 = 2;

/// Play a defective peer at every layer, and compare the answers with what the specifications want.
#[derive(Debug, Parser)]
#[command(name = "stag-hostile", version, max_term_width = 80)]
struct HostileCli {
    /// The RDMA address of the server under test [default: a server of ours in this process]
    #[arg(long, value_name = "HOST:PORT", requires = "tcp")]
    target: Option<String>,
    /// Its address of NFS over TCP
    #[arg(long, value_name = "HOST:PORT")]
    tcp: Option<String>,
    /// Its address of MOUNT over TCP [default: that of --tcp]
    #[arg(long, value_name = "HOST:PORT")]
    mount: Option<String>,
    /// Export to mount there
    #[arg(long, default_value = EXPORT)]
    export: String,
    /// Defects of this layer only: mpa, ddp, rdmap, rpcrdma, rpc, nfs
    #[arg(long)]
    layer: Option<String>,
    /// Defects with this text in their name only
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only what is safe for a kernel; no CRCs, slower answers are waited for
    #[arg(long)]
    kernel: bool,
    /// With --kernel: what may stop it, too
    #[arg(long, requires = "kernel")]
    even_unsafe: bool,
    /// Say each name before it is played
    #[arg(long)]
    verbose: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Print differences only, as rows of a table in Markdown
    #[arg(long, conflicts_with = "json")]
    differences: bool,
    /// Play the server instead, for our own calling side
    #[arg(long, conflicts_with_all = ["target", "layer", "kernel", "json", "differences"])]
    requester: bool,
    /// Print the table of defects and stop
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let cli = HostileCli::parse();
    match play(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("stag-hostile: {error}");
            ExitCode::from(2)
        }
    }
}

/// True when everything went as the specifications want it.
fn play(cli: &HostileCli) -> io::Result<bool> {
    if let Some(layer) = &cli.layer
        && !DefectLayer::ALL.iter().any(|known| known.name() == layer)
    {
        return Err(io::Error::other(format!("there is no layer '{layer}'")));
    }
    if cli.requester {
        return Ok(play_server(cli));
    }
    let table = defects::all();
    let chosen: Vec<&Defect> = table.iter().filter(|defect| is_chosen(cli, defect)).collect();
    if cli.list {
        chosen.iter().for_each(|defect| {
            println!("{:<64} {:<44} {}", defect.name, defect.expect, defect.clause)
        });
        println!("{} defects", chosen.len());
        return Ok(true);
    }
    let server = if cli.target.is_none() { Some(OurServer::start()?) } else { None };
    let world = HostileWorld::build(target(cli, server.as_ref())?)?;
    let mut outcomes = Vec::new();
    if cli.verbose {
        for defect in &chosen {
            eprintln!("{}", defect.name);
            outcomes.extend(run(&world, &[*defect])?);
            // An emulated guest may be late: what differs has to differ every time.
            for _ in 0..if cli.kernel { RETRIES } else { 0 } {
                if outcomes.last().is_some_and(|last| !last.passed()) {
                    outcomes.pop();
                    outcomes.extend(run(&world, &[*defect])?);
                }
            }
        }
    } else {
        outcomes = run(&world, &chosen)?;
    }
    show(cli, &chosen, &outcomes);
    // Whether what was made can be removed is no question of defects.
    if let Err(error) = world.tear_down() {
        eprintln!("stag-hostile: {} stays behind: {error}", String::from_utf8_lossy(&world.name));
    }
    Ok(outcomes.iter().all(DefectOutcome::passed))
}

/// The other role, against the client that `stag call` uses.
fn play_server(cli: &HostileCli) -> bool {
    let table = requester::all();
    let is_named = |name: &str| cli.only.as_ref().is_none_or(|text| name.contains(text));
    let (mut played, mut differences) = (0, 0);
    for defect in table.iter().filter(|defect| is_named(&defect.name)) {
        played += 1;
        if cli.list {
            println!("{:<64} {:<44} {}", defect.name, defect.expect, defect.clause);
            continue;
        }
        let (passed, seen) = match defect.play() {
            Ok(seen) => (seen.is_in(defect.expect), seen.to_string()),
            Err(error) => (false, error.to_string()),
        };
        println!("{:<8}{:<64} {seen}", if passed { "ok" } else { "DIFFERS" }, defect.name);
        if !passed {
            differences += 1;
            println!("        wanted: {} ({})", defect.expect, defect.clause);
        }
    }
    println!("{played} defects, {differences} differences");
    differences == 0
}

fn is_chosen(cli: &HostileCli, defect: &Defect) -> bool {
    cli.layer.as_ref().is_none_or(|layer| defect.layer.name() == layer)
        && cli.only.as_ref().is_none_or(|text| defect.name.contains(text))
        && (defect.is_kernel_safe || !cli.kernel || cli.even_unsafe)
        && (!defect.needs_key || cli.target.is_none())
}

fn target(cli: &HostileCli, server: Option<&OurServer>) -> io::Result<ServerUnderTest> {
    let resolve = |text: &str| -> io::Result<SocketAddr> {
        text.to_socket_addrs()?
            .next()
            .ok_or_else(|| io::Error::other(format!("'{text}' has no address")))
    };
    let (rdma, tcp) = match (server, &cli.target, &cli.tcp) {
        (Some(server), ..) => (server.rdma, server.tcp),
        (None, Some(rdma), Some(tcp)) => (resolve(rdma)?, resolve(tcp)?),
        _ => return Err(io::Error::other("--target needs --tcp")),
    };
    let mount = cli.mount.as_deref().map_or(Ok(tcp), resolve)?;
    let (patience, pause, grace) = if cli.kernel { (30, 1_000, 1_000) } else { (10, 30, 0) };
    Ok(ServerUnderTest {
        rdma,
        tcp,
        mount,
        export: cli.export.clone(),
        crc: !cli.kernel,
        is_siw: cli.kernel,
        patience: Duration::from_secs(patience),
        pause: Duration::from_millis(pause),
        grace: Duration::from_millis(grace),
    })
}

fn seen(outcome: &DefectOutcome) -> String {
    outcome
        .seen
        .as_ref()
        .map_or_else(|error| format!("cannot be played: {error}"), ToString::to_string)
}

fn show(cli: &HostileCli, defects: &[&Defect], outcomes: &[DefectOutcome]) {
    let failed = outcomes.iter().filter(|outcome| !outcome.passed()).count();
    if cli.json {
        let rows = defects.iter().zip(outcomes).map(|(defect, outcome)| {
            json!({
                "name": defect.name,
                "layer": defect.layer.name(),
                "clause": defect.clause,
                "expected": defect.expect,
                "seen": seen(outcome),
                "passed": outcome.passed(),
                "others_served": outcome.others_served,
            })
        });
        println!("{:#}", json!({ "defects": rows.collect::<Vec<_>>(), "differences": failed }));
        return;
    }
    if cli.differences {
        println!("| defect | wanted | seen | clause |\n|---|---|---|---|");
    }
    for (defect, outcome) in defects.iter().zip(outcomes) {
        let others = if outcome.others_served { "" } else { "; OTHERS ARE NOT SERVED" };
        let (name, seen) = (&defect.name, seen(outcome));
        if cli.differences {
            if !outcome.passed() {
                println!(
                    "| {name} | {} | {seen}{others} | {} |",
                    defect.expect.replace('|', "or"),
                    defect.clause
                );
            }
        } else {
            let verdict = if outcome.passed() { "ok" } else { "DIFFERS" };
            println!("{verdict:<8}{name:<64} {seen}{others}");
            if !outcome.passed() {
                println!("        wanted: {} ({})", defect.expect, defect.clause);
            }
        }
    }
    for layer in DefectLayer::ALL {
        let of = defects.iter().zip(outcomes).filter(|(defect, _)| defect.layer == layer);
        let (all, good) = of.fold((0, 0), |(all, good), (_, outcome)| {
            (all + 1, good + usize::from(outcome.passed()))
        });
        if all > 0 && !cli.differences {
            println!("{:<8} {good} of {all} as the specification wants", layer.name());
        }
    }
    eprintln!("{} defects, {failed} differences", outcomes.len());
}
