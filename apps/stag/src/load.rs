//! `stag load`: the functional run against a server.

use crate::{
    Error,
    bench::stop::Stop,
    call::{Url, connect, meet_mount, split},
    caller::{self, say},
    cli,
};
use serde_json::json;
use stag_load::functional::{self, Plan, Report, Step};
use std::time::Duration;

/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Calls the server until everything is checked.
pub fn run(arguments: &cli::Load) -> Result<(), Error> {
    let url = Url::parse(&arguments.url)?;
    let path = String::from_utf8(url.path.clone()).ok().filter(|path| path != "/").ok_or_else(|| {
        Error::usage(format!(
            "{:?} names no export: write {url}/NAME as 'stag call {url} mount' shows it",
            arguments.url
        ))
    })?;
    let (mut client, _) = caller::client(url.server.fabric(), 8, TIMEOUT, arguments.rdma_version)?;
    let elsewhere = meet_mount(&mut client, &url)?;
    let known = client.exports().unwrap_or_default();
    let mut mount = None;
    if elsewhere {
        mount = Some(std::mem::replace(
            &mut client,
            caller::client(url.server.fabric(), 8, TIMEOUT, arguments.rdma_version)?.0,
        ));
        connect(&mut client, &url)?;
    }
    let (export, below) = split(&url.path, &known);
    let export = match String::from_utf8(export) {
        // A server that does not tell what it exports, or not this, says so in the run.
        Ok(export) if known.iter().any(|known| known == export.as_bytes()) => export,
        _ => path.clone(),
    };
    let below = if export == path { Vec::new() } else { below };
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => u64::from_ne_bytes(caller::random()?),
    };
    // The name differs from run to run also when the seed does not.
    let directory = format!("stag-functional-{:016x}", u64::from_ne_bytes(caller::random()?));
    let stop = Stop::by_signals()?;
    let plan = Plan { seed, entries: arguments.entries, directory, below, stop: stop.flag() };
    let is_text = !arguments.json;
    let mut progress = |step: &Step| {
        if is_text {
            say(line(step));
        }
    };
    let report = functional::run_apart(&mut client, mount.as_mut(), &export, &plan, &mut progress);
    client.disconnect();
    say(&if is_text { summary(&report) } else { object(&arguments.url, &report)? });
    if report.is_success() {
        return Ok(());
    }
    if stop.is_asked() && report.failed == 0 {
        return Err(Error::Stopped("stopped by a signal; what was made is removed".to_owned()));
    }
    let Report { failed, skipped, passed, .. } = report;
    let first = report.steps.iter().find_map(|step| Some((step.name, step.failure.as_ref()?)));
    let first = first.map_or_else(String::new, |(name, failure)| format!("; the first: {name}: {failure}"));
    Err(Error::failure(format!(
        "{failed} steps failed, {skipped} were not tried, {passed} passed (seed {seed}){first}"
    )))
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
    let Report { passed, failed, skipped, calls, octets, elapsed_us, losses, seed, engine, .. } = report;
    let requester = &engine.requester;
    let (chunks, forms, versions) = (&requester.chunks, &requester.calls, &requester.versions);
    format!(
        "{passed} passed, {failed} failed, {skipped} not tried: {calls} calls, {octets} octets in {:.1} s, seed {seed}\n\
         calls over RDMA: {} short, {} chunked, {} long; connections lost: {losses}\n\
         calls by version: {} of 1, {} of 2; answered by ERR_VERS: {}\n\
         chunks offered: {} Read, {} Write, {} Reply; keys invalidated by the server: {}, by us: {}\n",
        *elapsed_us as f64 / 1e6,
        forms.short,
        forms.chunked,
        forms.long,
        versions.v1.forward,
        versions.v2.forward,
        requester.version_errors,
        chunks.read,
        chunks.write,
        chunks.reply,
        requester.remote_invalidations,
        requester.local_invalidations,
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
