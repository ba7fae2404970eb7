//! The start of version 4: links between shards, and the records of clients, whose boot begins.

use crate::{
    Error,
    caller::aside,
    serve::{
        plan::{Plan, nfs4::NfsPlan},
        report::sentences::cannot_serve,
    },
};
use stag_nfs::{
    Nfs4Link, Nfs4Records,
    serve::{NfsVersions, StoreSource, nfs4_config, start_records},
};
use stag_nfs_store::exports::cluster::Cluster;
use std::{fmt::Write as _, time::Duration};

/// The parts of all shards in version 4, where several serve it.
pub fn links(plan: &Plan) -> Vec<Nfs4Link> {
    match plan.nfs.four {
        Some(_) if plan.shards() > 1 => Nfs4Link::all(plan.shards()),
        _ => Vec::new(),
    }
}

/// The versions of a server that starts, and its client records, whose boot begins.
pub fn versions(
    plan: &Plan,
    source: &StoreSource,
) -> Result<(NfsVersions, Option<Nfs4Records>), Error> {
    let NfsPlan { three, four, .. } = plan.nfs;
    let Some(lease) = four else { return Ok((NfsVersions { three, four: None }, None)) };
    let start = |directory| start_records(directory, Duration::from_secs(lease.into()));
    let records = plan.store.records_dir().map(start).transpose().map_err(cannot_serve)?;
    if let Some(records) = &records {
        aside(recovery(records));
    }
    let epoch = records.as_ref().map(|records| records.boot.epoch);
    let mut four = nfs4_config(source, lease, epoch).map_err(cannot_serve)?;
    four.cluster = plan.store.cluster().map(Cluster::session_secret);
    Ok((NfsVersions { three, four: Some(four) }, records))
}

/// Describes for people what the last boot left.
fn recovery(records: &Nfs4Records) -> String {
    let Nfs4Records { boot, grace, .. } = records;
    let mut text = String::new();
    match boot.clients.len() {
        0 => {}
        count => {
            let _ = writeln!(
                text,
                "grace period: {count} clients of version 4 take back what they had open and \
                 locked; until all have, {} seconds at most, nobody opens or locks anything else",
                grace.as_secs()
            );
        }
    }
    if boot.torn_octets > 0 {
        let _ = writeln!(
            text,
            "notice: the last {} octets of the records of clients were not whole: the server ended \
             while it wrote them, and had acknowledged nothing of that",
            boot.torn_octets
        );
    }
    text
}
