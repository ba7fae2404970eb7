//! `stag load`: the functional run against a server.

use crate::{Error, address, cli};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::json;
use stag_engine::clock::Clock;
use stag_iwarp::Iwarp;
use stag_load::{
    Client, Config,
    functional::{self, Plan, Report, Step},
};
use std::io::{self, Write};

/// Calls the server until everything is checked.
pub fn run(arguments: &cli::Load) -> Result<(), Error> {
    let target = address::target(&arguments.url)?;
    let random = random()?;
    let mut client = client(random)?;
    client.connect(&target.server).map_err(|error| {
        Error::failure(format!(
            "cannot connect to {}: {error}; is 'stag serve' running there?",
            target.server
        ))
    })?;
    let seed = arguments.seed.unwrap_or_else(|| random.first_chunk().copied().map_or(1, u64::from_ne_bytes));
    // The name differs from run to run also when the seed does not.
    let directory =
        format!("stag-functional-{:016x}", random.last_chunk().copied().map_or(1, u64::from_ne_bytes));
    let plan = Plan { seed, entries: arguments.entries, directory };
    let is_text = !arguments.json;
    let mut progress = |step: &Step| {
        if is_text {
            say(&line(step));
        }
    };
    let report = functional::run(&mut client, &target.export, &plan, &mut progress);
    client.disconnect();
    say(&if is_text { summary(&report) } else { object(&arguments.url, &report)? });
    if report.is_success() {
        return Ok(());
    }
    let Report { failed, skipped, passed, .. } = report;
    Err(Error::failure(format!(
        "{failed} steps failed, {skipped} were not tried, {passed} passed (seed {seed})"
    )))
}

fn random() -> Result<[u8; 48], Error> {
    let mut random = [0; 48];
    getrandom(&mut random, GetRandomFlags::empty())
        .map_err(|error| Error::failure(format!("the system gives no random numbers: {error}")))?;
    Ok(random)
}

fn client(random: [u8; 48]) -> Result<Client<Iwarp>, Error> {
    let short = |error: io::Error| Error::failure(format!("no memory or descriptors to call with: {error}"));
    let clock = Clock::start();
    let config = Config::new(random.first_chunk().copied().map_or(0, u32::from_ne_bytes));
    let seed = random.last_chunk().copied().unwrap_or([0; 32]);
    let fabric = Iwarp::new(stag_iwarp::Config::new(config.limits(), seed, clock.now())).map_err(short)?;
    Client::new(fabric, config, move || clock.now()).map_err(short)
}

/// Whoever reads may be gone; the exit code still says how it went.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn line(step: &Step) -> String {
    let Step { name, calls, octets, elapsed_us, failure, .. } = step;
    let millis = *elapsed_us as f64 / 1_000.0;
    match failure {
        None => format!("ok      {name:<20} {calls:>6} calls {octets:>10} octets {millis:>10.1} ms\n"),
        Some(failure) => format!("FAILED  {name:<20} {failure}\n"),
    }
}

fn summary(report: &Report) -> String {
    let Report { passed, failed, skipped, calls, octets, elapsed_us, seed, engine, .. } = report;
    let chunks = &engine.requester.chunks;
    format!(
        "{passed} passed, {failed} failed, {skipped} not tried: {calls} calls, {octets} octets in {:.1} s, seed {seed}\n\
         chunks offered: {} Read, {} Write, {} Reply; keys invalidated by the server: {}, by us: {}\n",
        *elapsed_us as f64 / 1e6,
        chunks.read,
        chunks.write,
        chunks.reply,
        engine.requester.remote_invalidations,
        engine.requester.local_invalidations,
    )
}

fn object(url: &str, report: &Report) -> Result<String, Error> {
    let failed = |error: serde_json::Error| Error::failure(format!("the report cannot be written: {error}"));
    let mut value = serde_json::to_value(report).map_err(failed)?;
    if let Some(members) = value.as_object_mut() {
        members.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        members.insert("url".to_owned(), json!(url));
    }
    serde_json::to_string_pretty(&value).map(|text| text + "\n").map_err(failed)
}
