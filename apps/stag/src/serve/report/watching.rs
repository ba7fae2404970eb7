//! Facts of a plan for monitoring, and the sockets of the monitors.

use super::addresses::Addresses;
use crate::{
    Error,
    caller::aside,
    replace,
    serve::plan::{Plan, exports::Exported, observe_options::ObserveOptions},
};
use stag_fabrics::FabricAddress;
use stag_nfs::serve::Started;
use stag_nfs_store::{
    Security,
    exports::client_rules::{ClientOptions, ClientRule, Squash},
};
use stag_operate::{
    control::answers::Facts,
    exports::{ExportFacts, ExportList},
    metrics::{Gathered, ShardPlace, object},
    mounts::Mounts,
    observe::Bound,
};
use std::path::Path;

/// Binds the sockets for monitoring.
///
/// # Errors
/// A sentence about a requested socket that cannot be used.
pub fn bind(options: &ObserveOptions, plan: &Plan) -> Result<Bound, Error> {
    let first = plan.fabrics.iter().flat_map(|fabric| fabric.group.ips()).next();
    let free_ports = first.is_some_and(|at| at.port() == 0);
    let bound = Bound::new(&options.monitors(plan.state_dir()), free_ports);
    let bound = bound.map_err(Error::usage)?;
    for notice in bound.notices() {
        aside(format!("notice: {notice}\n"));
    }
    Ok(bound)
}

/// The exports of a plan, for controllers.
pub fn exports(plan: &Plan) -> ExportList {
    let export = |export: &Exported| ExportFacts {
        name: format!("/{}", export.name),
        source: plan.store.source(export),
        mode: if export.read_only { "ro" } else { "rw" },
        options: options(&export.rules.options),
        sec: sec(export),
        directory: export.path.clone(),
        clients: export.rules.clients.iter().map(client).collect(),
    };
    ExportList::new(plan.exports.iter().map(export).collect())
}

/// A network with its options, as `10.0.0.0/8(ro,squash=none)`.
fn client(rule: &ClientRule) -> String {
    match options(&rule.options) {
        of if of.is_empty() => rule.network.to_string(),
        of => format!("{}({of})", rule.network),
    }
}

/// The options that are set, as `ro,squash=none,insecure`.
fn options(options: &ClientOptions) -> String {
    let ClientOptions { read_only, squash, anon_uid, anon_gid, insecure, security } = *options;
    let squash = squash.map(|squash| match squash {
        Squash::Root => "squash=root",
        Squash::None => "squash=none",
        Squash::All => "squash=all",
    });
    let words = [
        read_only.map(|it| if it { "ro" } else { "rw" }.to_owned()),
        squash.map(str::to_owned),
        anon_uid.map(|uid| format!("anonuid={uid}")),
        anon_gid.map(|gid| format!("anongid={gid}")),
        insecure.map(|it| if it { "insecure" } else { "secure" }.to_owned()),
        security.map(|flavors| format!("sec={flavors}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(",")
}

/// The ways to mount from the addresses at which the server listens.
pub fn mounts(plan: &Plan, found: &Addresses) -> Mounts {
    Mounts {
        rdma: found.listen.iter().filter_map(FabricAddress::ip).collect(),
        tcp: found.tcp,
        three: plan.nfs.three,
        four: plan.nfs.four.is_some(),
        needs_low_port: plan.clients.must_be_privileged,
    }
}

/// The flavor that a mount of an export has to name: its first, unless it accepts AUTH_SYS.
pub fn sec(export: &Exported) -> Option<&'static str> {
    let flavors = export.rules.options.security?;
    (!flavors.accept(Security::Sys)).then(|| flavors.first().word())
}

/// Facts for controllers.
pub fn facts(plan: &Plan, found: &Addresses, exports: ExportList) -> Facts {
    Facts {
        listen: found.listen.iter().map(ToString::to_string).collect(),
        tcp: found.tcp.map(|at| at.to_string()),
        metrics: None,
        exports,
        mounts: mounts(plan, found),
        contexts: plan.kerberos.as_ref().and_then(|kerberos| kerberos.contexts.clone()),
    }
}

/// Octets that a shard took at start, by what they are for.
pub fn memory(started: &Started) -> Vec<(&'static str, usize)> {
    let [buffers, receives] = &started.budgets;
    let files = started.memory.as_ref().map(|files| ("files", files.octets));
    [("buffers", buffers.octets), ("receives", receives.octets)].into_iter().chain(files).collect()
}

/// The place of a shard, shown next to its core.
pub fn place(started: &Started) -> ShardPlace {
    let [buffers, _] = &started.budgets;
    ShardPlace {
        node: buffers.node,
        listen: started.fabric.addresses().map(ToString::to_string).collect(),
        device: started.device.clone(),
    }
}

/// Writes statistics to `file`, as a whole.
///
/// # Errors
/// A sentence about the file.
pub fn write(file: &Path, gathered: &Gathered) -> Result<(), Error> {
    let statistics = object::object(gathered);
    let written = replace::write_unsynced(file, |out| {
        serde_json::to_writer_pretty(&mut *out, &statistics)?;
        out.write_all(b"\n")
    });
    written.map_err(|error| {
        Error::failure(format!("cannot write statistics to {}: {error}", file.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_nfs_store::exports::security::SecurityFlavors;

    #[test]
    fn a_client_is_shown_with_the_options_that_it_has() {
        let network = "10.0.0.0/8".parse().unwrap();
        let none = ClientOptions::default();
        assert_eq!(client(&ClientRule { network, options: none }), "10.0.0.0/8");
        let own = ClientOptions {
            read_only: Some(true),
            squash: Some(Squash::None),
            anon_uid: Some(7),
            insecure: Some(false),
            security: SecurityFlavors::of(&[Security::Krb5p, Security::Sys]).unwrap(),
            ..none
        };
        let shown = client(&ClientRule { network, options: own });
        assert_eq!(shown, "10.0.0.0/8(ro,squash=none,anonuid=7,secure,sec=krb5p:sys)");
    }
}
