//! The start of a server, step by step; its supervision and its end are in [`server`].

mod confine;
mod core_sleep;
mod jitter;
mod kerberos_start;
mod nfs4_start;
mod outages;
mod privileges;
mod seats;
mod server;
mod sources;
mod stop_events;
mod watchdog;

use super::{
    plan::{Plan, PlanPurpose, options::ServeOptions, ready_file::ReadyFile},
    reload::{Reloader, Reloading},
    report::{addresses::Addresses, startup_text, systemd::tell_systemd, watching},
};
use crate::{
    Error,
    admission::AdmissionTable,
    caller::{aside, say, settle},
    settings::Merged,
};
use rustix::thread::set_no_new_privs;
use sd_notify::NotifyState;
use server::{Server, ServerEvents};
use stag_nfs::serve::StoreSource;
use stag_operate::{observe::Bound, trace};
use std::{ffi::OsString, sync::Arc, time::Duration};

/// Time that the end of a store's session with its cluster may take.
const PARTING: Duration = Duration::from_secs(3);

/// Serves by these settings until a signal comes. `words` are the command line after `stag serve`.
pub fn serve(settings: &Merged<ServeOptions>, words: Vec<OsString>) -> Result<(), Error> {
    let placed = |error| settings.origins.placed(error);
    let (arguments, observe) = (&settings.options, &settings.options.observe);
    let mut plan = Plan::new(settings, PlanPurpose::Start)?;
    restrict(arguments, &mut plan).map_err(placed)?;
    let log = trace::start_server(observe.log.as_deref(), observe.log_format.into());
    let _log = log.map_err(Error::usage)?;
    jitter::wait(arguments.start_jitter);
    let source = open_store(arguments, &mut plan).map_err(placed)?;
    kerberos_start::start(&mut plan).map_err(placed)?;
    plan.owners.start().map_err(placed)?;
    let bound = watching::bind(observe, &plan).map_err(placed)?;
    aside(startup_text::introduction(&plan, source.notices()));
    let settled = Arc::new(settle());
    let rest = core_sleep::listener(arguments.limits.awake.unwrap_or_default(), &settled);
    let events = ServerEvents::new();
    stop_events::forward_all(arguments, &events.sender).map_err(placed)?;
    let admission = Arc::new(AdmissionTable::new(plan.clients.clone()));
    let reloader = Reloader::of(settings, words, &source, &admission, &plan);
    let reloads = reloader.is_some();
    let server = Server::new(plan, admission, rest, reloads, events);
    let (server, found) = server.started(&source).map_err(placed)?;
    let (server, _registration) = server.registered(&found).map_err(placed)?;
    serve_started(server, &source, found, bound, reloader)
}

/// Takes rights away from this process that the server does not need.
fn restrict(arguments: &ServeOptions, plan: &mut Plan) -> Result<(), Error> {
    // No program that this process might execute gets more rights than it has.
    if let Err(error) = set_no_new_privs(true).and_then(|()| privileges::give_up(plan)) {
        plan.notices.push(format!("privileges that are not needed stay: {error}"));
    }
    if arguments.confine { confine::confine(plan, arguments) } else { Ok(()) }
}

/// Opens the store, and decides what connections have to prove where callers could act as more than
/// they are.
fn open_store(arguments: &ServeOptions, plan: &mut Plan) -> Result<StoreSource, Error> {
    let source = plan.store.open(plan)?;
    let is_privileged = source.is_privileged();
    plan.distrust_claims(is_privileged)?;
    confine::check(arguments.confine && is_privileged)?;
    let replaced = source.replace_exports(&plan.export_set()).transpose();
    replaced.map_err(|error| Error::usage(error.to_string()))?;
    Ok(source)
}

/// Announces a server whose shards are ready, and supervises it until its end.
fn serve_started(
    mut server: Server,
    source: &StoreSource,
    mut found: Addresses,
    bound: Bound,
    reloader: Option<Reloader>,
) -> Result<(), Error> {
    let exports = watching::exports(&server.plan);
    let shards = Arc::new(server.shards().with_exports(exports.clone()));
    let reloading = reloader.map(|it| Reloading::new(it, &shards, &exports));
    let reload = reloading.clone().map(Reloading::for_controllers);
    let facts = watching::facts(&server.plan, &found, exports);
    let admission = Arc::clone(&server.admission);
    let started = bound.start(&shards, facts, reload, move || admission.settle_with_the_log());
    let (watched, _watching) =
        started.map_err(|error| Error::failure(format!("cannot be watched: {error}")))?;
    found.watched = watched;
    watchdog::start(&shards)?;
    outages::watch(&shards)?;
    let _ready_file = announce(&mut server.plan, &found)?;
    let ended = server.watch(&shards, reloading.as_deref());
    if !source.close(PARTING) {
        tracing::warn!(target: "stag", "calls to CephFS are blocked: its session is not ended");
    }
    ended
}

/// Says that the server is ready, in all ways. The file lasts as long as the returned value.
fn announce(plan: &mut Plan, found: &Addresses) -> Result<Option<ReadyFile>, Error> {
    let block = startup_text::ready(plan, found);
    let ready_file = plan.ready_file.take().map(|file| ReadyFile::write(file, &block));
    let ready_file = ready_file.transpose()?;
    say(block);
    aside(startup_text::STOPPING);
    tell_systemd(&NotifyState::Ready);
    Ok(ready_file)
}
