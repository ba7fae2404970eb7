//! Settings that cannot change while a server runs.

use crate::serve::plan::{Plan, options::ServeOptions};

/// Settings that shards are built of, by their flags.
pub fn fixed(plan: &Plan, options: &ServeOptions) -> Vec<(&'static str, String)> {
    let sizes = plan.sizes;
    let own = vec![
        ("listen", format!("{:?}", plan.fabrics)),
        ("tcp", format!("{:?}", plan.tcp)),
        ("tls", format!("{:?}", plan.tls.as_ref().map(|tls| tls.is_required()))),
        (
            "tls-client-ca",
            format!("{:?}", plan.tls.as_ref().map(|tls| tls.asks_for_certificates())),
        ),
        ("tls-records", format!("{:?}", plan.tls.as_ref().map(|tls| tls.kernel().is_some()))),
        ("keytab", format!("{:?}", plan.kerberos.as_ref().map(|it| &it.keytab))),
        ("kerberos-principal", format!("{:?}", plan.kerberos.as_ref().map(|it| &it.served))),
        ("replay-cache", format!("{:?}", plan.kerberos.as_ref().map(|it| &it.replay_cache))),
        ("steer", format!("{:?}", plan.steer)),
        (
            "confine, with which exports stay as they are,",
            format!("{:?}", options.confine.then(|| plan.directories())),
        ),
        ("shm-allow", format!("{:?}", plan.shm_allow)),
        ("rdma-tos, rdma-ack-timeout and rdma-retry", format!("{:?}", plan.link)),
        ("buffers", format!("{:?}", sizes.slots)),
        ("receives", format!("{:?}", sizes.receives)),
        ("inline", format!("{:?}", sizes.receive_len)),
        ("connections", format!("{:?}", sizes.connections)),
        ("tcp-connections", format!("{:?}", sizes.streams)),
        ("credits", format!("{:?}", sizes.credits)),
        ("calls", format!("{:?}", sizes.calls)),
        ("memory-max", format!("{:?}", options.limits.memory_max)),
        ("awake", format!("{:?}", options.limits.awake)),
        ("private-data", format!("{:?}", plan.private_data)),
        ("rdma-version", format!("{:?}", plan.versions)),
        ("sample", format!("{:?}", plan.sample)),
        ("stages", format!("{:?}", plan.tells_stages)),
        ("nfs", format!("{:?}", (plan.nfs.three, plan.nfs.four.is_some()))),
        ("lease", format!("{:?}", plan.nfs.four)),
        ("delegations", format!("{:?}", plan.nfs.delegations)),
        ("id-domain", format!("{:?}", options.id_domain)),
        ("id-names", format!("{:?}", options.id_names)),
        ("metrics", format!("{:?}", options.observe.metrics)),
        ("control", format!("{:?}", options.observe.control)),
        ("control-group", format!("{:?}", options.observe.control_group)),
        ("log-format", format!("{:?}", options.observe.log_format)),
        ("exit-with", format!("{:?}", options.exit_with)),
        ("stats", format!("{:?}", plan.stats)),
        ("rpcbind", format!("{:?}", plan.rpcbind)),
        ("ready-file", format!("{:?}", plan.ready_file)),
    ];
    own.into_iter().chain(plan.store.fixed_settings()).chain(of_flavors(plan)).collect()
}

/// Security flavors, where the store keeps them.
fn of_flavors(plan: &Plan) -> Option<(&'static str, String)> {
    let flavors = plan.exports.iter().map(|export| export.rules.options.security);
    let is_of_host = plan.store.host_callers().is_some();
    (!is_of_host).then(|| ("sec", format!("{:?}", flavors.collect::<Vec<_>>())))
}
