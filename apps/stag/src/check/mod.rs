//! `stag check`: the functional run against a server.

pub mod options;

use crate::{
    Error,
    call::{Url, client_of, connect, meet_mount, split},
    caller::{self, say},
    stop::Stop,
    ticket,
    tls::explained,
};
use serde_json::json;
use stag_check::{CheckPlan, CheckReport, CheckStep};
use std::time::Duration;

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");
/// Time that a call may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The sentence that answers the earlier name of this command.
pub fn renamed() -> Error {
    Error::usage("'stag load' is called 'stag check': give the same arguments to that")
}

/// Calls the server until everything is checked.
pub fn run(arguments: &options::CheckOptions) -> Result<(), Error> {
    let url = Url::parse(&arguments.url)?.with_sec(arguments.sec)?;
    let path =
        String::from_utf8(url.path.clone()).ok().filter(|path| path != "/").ok_or_else(|| {
            Error::usage(format!(
                "{:?} names no export: write {url}/NAME as 'stag call {url} mount' shows it",
                arguments.url
            ))
        })?;
    let tls = arguments.tls.open(&url.server, url.host.as_deref())?;
    let client = || client_of(&url, 8, TIMEOUT, arguments.rdma_version, tls.as_ref());
    let mut calling = client()?;
    let elsewhere = explained(tls.as_ref(), meet_mount(&mut calling, &url, arguments.nfs))?;
    let known = calling.exports().unwrap_or_default();
    let mut mount = None;
    if elsewhere {
        mount = Some(std::mem::replace(&mut calling, client()?));
        connect(&mut calling, &url)?;
    }
    let (export, below) = split(&url.path, &known);
    let export = match String::from_utf8(export) {
        // If the server does not list its exports, or not this one, the run reports that.
        Ok(export) if known.iter().any(|known| known == export.as_bytes()) => export,
        _ => path.clone(),
    };
    let below = if export == path { Vec::new() } else { below };
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => u64::from_ne_bytes(caller::random()?),
    };
    // The name differs between runs even with the same seed.
    let directory = format!("stag-functional-{:016x}", u64::from_ne_bytes(caller::random()?));
    let stop = Stop::by_signals()?;
    let plan = CheckPlan { seed, entries: arguments.entries, directory, below, stop: stop.flag() };
    let is_text = !arguments.json;
    let mut progress = |step: &CheckStep| {
        if is_text {
            say(line(step));
        }
    };
    let report = stag_check::run_apart(&mut calling, mount.as_mut(), &export, &plan, &mut progress);
    calling.disconnect();
    say(&if is_text { summary(&report) } else { object(&arguments.url, &report)? });
    if report.is_success() {
        return Ok(());
    }
    if stop.is_asked() && report.failed == 0 {
        return Err(Error::Stopped("stopped by a signal; what was made is removed".to_owned()));
    }
    let CheckReport { failed, skipped, passed, .. } = report;
    let first = report.steps.iter().find_map(|step| Some((step.name, step.failure.as_ref()?)));
    let first =
        first.map_or_else(String::new, |(name, failure)| format!("; the first: {name}: {failure}"));
    // A step that has no context says only that.
    let no_context = ticket::take_fault().map_or_else(String::new, |fault| format!("; {fault}"));
    Err(Error::failure(format!(
        "{failed} steps failed, {skipped} were not tried, {passed} passed (seed \
         {seed}){first}{no_context}"
    )))
}

fn line(step: &CheckStep) -> String {
    let CheckStep { name, calls, octets, elapsed_us, failure, note, .. } = step;
    let millis = *elapsed_us as f64 / 1_000.0;
    let note = note.as_ref().map_or_else(String::new, |note| format!("        {note}\n"));
    match failure {
        None => {
            let did = format!("{calls:>6} calls {octets:>10} octets {millis:>10.1} ms");
            format!("ok      {name:<20} {did}\n{note}")
        }
        Some(failure) => format!("FAILED  {name:<20} {failure}\n"),
    }
}

fn summary(report: &CheckReport) -> String {
    let CheckReport {
        passed,
        failed,
        skipped,
        calls,
        octets,
        elapsed_us,
        losses,
        seed,
        engine,
        ..
    } = report;
    let requester = &engine.requester;
    let (chunks, forms, versions) = (&requester.chunks, &requester.calls, &requester.versions);
    format!(
        "{passed} passed, {failed} failed, {skipped} not tried: {calls} calls, {octets} octets in \
         {:.1} s, seed {seed}\n\
         calls over RDMA: {} short, {} chunked, {} long; connections lost: {losses}\n\
         calls by version: {} of 1, {} of 2; answered by ERR_VERS: {}\n\
         chunks offered: {} Read, {} Write, {} Reply; keys invalidated by the server: {}, by us: \
         {}\n",
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

fn object(url: &str, report: &CheckReport) -> Result<String, Error> {
    let failed =
        |error: serde_json::Error| Error::failure(format!("the report cannot be written: {error}"));
    let mut value = serde_json::to_value(report).map_err(failed)?;
    if let Some(members) = value.as_object_mut() {
        members.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        members.insert("url".to_owned(), json!(url));
    }
    serde_json::to_string_pretty(&value).map(|text| text + "\n").map_err(failed)
}
