//! Reload of settings while the server runs: exports, their clients, and who may connect. A file is
//! applied as a whole or not at all.

mod changes;
mod fixed;

use super::{
    plan::{
        KerberosPlan, Plan, PlanPurpose,
        exports::{Exported, overlaps},
        options::ServeOptions,
    },
    report::{systemd::tell_systemd, watching},
};
use crate::{
    admission::AdmissionTable,
    settings::{self, Merged},
};
use changes::{Changes, Refused, ShardTimes};
use fixed::fixed;
use sd_notify::NotifyState;
use stag_engine::tls::ServerTls;
use stag_nfs::{owner_names::OwnerNames, serve::StoreSource};
use stag_nfs_store::files::ExportChanges;
use stag_operate::{control::answers::Reload, exports::ExportList, metrics::Shards, trace};
use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

/// Reload of a running server's settings, for signals and for controllers: one at a time.
#[derive(Debug)]
pub struct Reloading {
    reloader: Mutex<Reloader>,
    shards: Arc<Shards>,
    exports: ExportList,
}

impl Reloading {
    /// A reload for `shards`, whose exports controllers see in `exports`.
    pub fn new(reloader: Reloader, shards: &Arc<Shards>, exports: &ExportList) -> Arc<Self> {
        let (shards, exports) = (Arc::clone(shards), exports.clone());
        Arc::new(Self { reloader: Mutex::new(reloader), shards, exports })
    }

    /// Reads the file of settings again, and logs the changes.
    ///
    /// # Errors
    /// As [`Reloader::reload`].
    pub fn reload(&self) -> Result<Changes, Refused> {
        let mut reloader = self.reloader.lock().unwrap_or_else(PoisonError::into_inner);
        tell_systemd(&NotifyState::Reloading);
        let outcome = reloader.reload(&self.exports);
        match &outcome {
            Ok(changes) => {
                self.shards.ends().iter().for_each(|end| end.handle.waker().wake());
                if let Some(ShardTimes { drain, spin }) = changes.times
                    && let Err(why) = self.shards.set_times(drain, spin)
                {
                    tracing::warn!(target: "stag", %why, "not all cores have the new times");
                    reloader.times = None;
                }
                tracing::info!(target: "stag", "settings read again: {changes}");
            }
            Err(refused) => {
                tracing::error!(target: "stag", "settings stay as they are: {refused}");
            }
        }
        tell_systemd(&NotifyState::Ready);
        outcome
    }

    /// The same as controllers ask for it.
    pub fn for_controllers(self: Arc<Self>) -> Reload {
        Box::new(move || match self.reload() {
            Ok(changes) => Ok(changes.json()),
            Err(refused) => Err(format!("settings stay as they are: {refused}")),
        })
    }
}

/// Reader of a settings file for a running server.
#[derive(Debug)]
pub struct Reloader {
    file: PathBuf,
    /// The command line, which overrides the file as it did at the start.
    words: Vec<OsString>,
    source: StoreSource,
    admission: Arc<AdmissionTable>,
    /// The log's level, as the file and the command line had it last.
    log: Option<String>,
    /// Settings that cannot change, as they were at the start.
    fixed: Vec<(&'static str, String)>,
    exports: Vec<String>,
    clients: String,
    /// TLS on TCP, which shards share.
    tls: Option<Arc<ServerTls>>,
    /// Kerberos, whose users shards share.
    kerberos: Option<KerberosPlan>,
    /// Names of owners, which shards share.
    owner_names: Option<Arc<OwnerNames>>,
    /// Sentences about nested exports that were already reported.
    overlaps: Vec<String>,
    /// Times that shards keep to; none if not all of them accepted those of the file.
    times: Option<ShardTimes>,
}

impl Reloader {
    /// One for a server that was started with these settings; none without a file.
    pub fn of(
        settings: &Merged<ServeOptions>,
        words: Vec<OsString>,
        source: &StoreSource,
        admission: &Arc<AdmissionTable>,
        plan: &Plan,
    ) -> Option<Self> {
        let file = settings.options.config.clone()?;
        Some(Self {
            file,
            words,
            source: source.clone(),
            admission: Arc::clone(admission),
            fixed: fixed(plan, &settings.options),
            log: settings.options.observe.log.clone(),
            exports: copies(plan),
            clients: format!("{:?}", plan.clients),
            tls: plan.tls.clone(),
            kerberos: plan.kerberos.clone(),
            owner_names: plan.owners.names.clone(),
            overlaps: overlaps(&plan.exports),
            times: Some(ShardTimes::of(plan)),
        })
    }

    /// Reads the file, and serves by it from here on; `listed` then lists the exports. Shards apply
    /// the changes in one of their next passes; nothing waits for them.
    ///
    /// # Errors
    /// The reason, with the file's name and line if it is there. Nothing has changed then.
    fn reload(&mut self, listed: &ExportList) -> Result<Changes, Refused> {
        let settings = settings::merge::<ServeOptions>(&self.words, Some(&self.file))?;
        let mut plan = Plan::new(&settings, PlanPurpose::Reload)?;
        let before = self.fixed.iter().zip(fixed(&plan, &settings.options));
        if let Some((_, (name, _))) = before.into_iter().find(|(old, new)| *old != new) {
            let sentence = format!(
                "--{name} cannot change while the server runs: start it again, or write what it \
                 was started with"
            );
            return Err(Refused(settings.origins.place(&sentence)));
        }
        plan.distrust_claims(self.source.is_privileged())
            .map_err(|error| settings.origins.placed(error))?;
        let exports = match self.source.replace_exports(&plan.export_set()) {
            Some(changes) => {
                changes.map_err(|error| Refused(format!("{}: {error}", self.file.display())))?
            }
            None if copies(&plan) != self.exports => {
                return Err(Refused(
                    "exports in memory and on CephFS are those of the start: start the server \
                     again"
                        .to_owned(),
                ));
            }
            None => ExportChanges::default(),
        };
        listed.become_like(&watching::exports(&plan));
        let overlaps = overlaps(&plan.exports);
        for overlap in overlaps.iter().filter(|it| !self.overlaps.contains(it)) {
            tracing::warn!(target: "stag", overlap, "exports overlap");
        }
        self.overlaps = overlaps;
        let new = Some(ShardTimes::of(&plan));
        let times = new.filter(|_| new != self.times);
        self.times = new;
        let clients = format!("{:?}", plan.clients);
        let has_changed = clients != self.clients;
        if has_changed {
            self.admission.replace(plan.clients);
            self.clients = clients;
        }
        // The plan has read and checked the files.
        let tls = self.tls.as_ref().zip(plan.tls.as_ref());
        tls.inspect(|(now, new)| now.follow(new));
        let kerberos = self.kerberos.as_ref().zip(plan.kerberos.as_ref());
        let principals = kerberos.is_some_and(|(now, new)| now.follow(new));
        if let Some(names) = &self.owner_names {
            names.forget();
        }
        let log = settings.options.observe.log;
        if log != self.log {
            // The plan's checks accept only usable filters.
            let _ = trace::change(Some(log.as_deref().unwrap_or("info")));
            self.log = log;
        }
        Ok(Changes { exports, clients: has_changed, tls: tls.is_some(), principals, times })
    }
}

/// The exports, for stores that cannot exchange them.
fn copies(plan: &Plan) -> Vec<String> {
    let copy =
        |export: &Exported| format!("{} {:?} {}", export.name, export.path, export.read_only);
    plan.exports.iter().map(copy).collect()
}
