//! Parts of a plan, each checked by a step of its own. The order of the steps decides which of
//! several mistakes is reported.

use super::{
    KerberosPlan, Plan, PlanPurpose,
    checks::{check_cores, check_memory, check_sharing, notice_of_memory, unreachable},
    client_rules::{self, Reach},
    exports, limits,
    listen::ListenPlan,
    meaningless::{self, Served},
    memory_need::{self, Need},
    nfs4::NfsPlan,
    options::ServeOptions,
    owners::OwnersPlan,
    ready_file,
    stores::{self, ContentPlan, PlannedStore},
};
use crate::{
    Error,
    admission::Clients,
    descriptors::{self, Share},
    replace,
    settings::Merged,
    tls,
};
use stag_nfs::serve::ShardSizes;
use stag_nfs_store::Security;

/// The checked parts.
#[derive(Debug)]
pub struct PlanParts {
    listen: ListenPlan,
    content: ContentPlan,
    sizes: ShardSizes,
    setting_of_users: Option<String>,
    store: Box<dyn PlannedStore>,
    memory: String,
    share: Share,
    nfs: NfsPlan,
    kerberos: Option<KerberosPlan>,
    owners: OwnersPlan,
    notices: Vec<String>,
}

impl PlanParts {
    /// Checks the settings.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn checked(settings: &Merged<ServeOptions>, purpose: PlanPurpose) -> Result<Self, Error> {
        let arguments = &settings.options;
        let listen = ListenPlan::checked(settings)?;
        let content = ContentPlan::checked(settings)?;
        check_parts(settings, &listen, &content)?;
        let sizes = sizes(arguments, &content)?;
        check_files(arguments, purpose)?;
        let setting_of_users = setting_of_users(settings, &content)?;
        let reach = reach(&listen, &content);
        let store = stores::planned(arguments, &content, reach, purpose)?;
        let kerberos = KerberosPlan::checked(arguments, &content, &*store)?;
        let owners = OwnersPlan::checked(arguments, kerberos.as_ref())?;
        let memory = memory(arguments, &listen, &content, &sizes)?;
        let (share, shortage) = share(arguments, &listen, &sizes, &*store)?;
        let nfs = NfsPlan::new(arguments, &content.exports, &settings.origins, &*store)?;
        let mut notices: Vec<_> = shortage.into_iter().collect();
        notices.extend(listen.tls.as_deref().map(tls::sentence));
        let of_kerberos = kerberos.as_ref().map(|it| it.notices(arguments, &listen));
        notices.extend(of_kerberos.unwrap_or_default());
        notices.extend(owners.notice());
        notices.extend(exports::overlaps(&content.exports));
        notices.extend(client_rules::notice(arguments, reach, &*store));
        notices.extend(notice_of_memory(arguments));
        notices.extend(unreachable(&listen.addresses, &listen.networks));
        notices.extend(nfs.notice(&*store));
        Ok(Self {
            listen,
            content,
            sizes,
            setting_of_users,
            store,
            memory,
            share,
            nfs,
            kerberos,
            owners,
            notices,
        })
    }

    /// The plan of these parts.
    pub fn plan(self, arguments: &ServeOptions) -> Plan {
        let clients = self.clients(arguments);
        let Self { listen, content, sizes, setting_of_users, .. } = self;
        Plan {
            exports: content.exports,
            store: self.store,
            kerberos: self.kerberos,
            owners: self.owners,
            fabrics: listen.fabrics,
            shm_allow: arguments.shm_allow.clone(),
            link: arguments.link.settings(),
            tcp: listen.tcp,
            passed: listen.passed,
            tls: listen.tls,
            clients,
            steer: arguments.steer,
            insecure: arguments.insecure,
            is_distrustful: false,
            setting_of_users,
            sizes,
            private_data: arguments.private_data,
            versions: arguments.rdma_version,
            nfs: self.nfs,
            sample: arguments.sample,
            tells_stages: arguments.stages,
            stats: arguments.stats.clone(),
            rpcbind: arguments.rpcbind,
            ready_file: arguments.ready_file.clone(),
            share: self.share,
            memory: self.memory,
            notices: self.notices,
        }
    }

    /// The networks that may connect, and the number of connections that one address may have.
    fn clients(&self, arguments: &ServeOptions) -> Clients {
        let (limits, steer) = (&arguments.limits, arguments.steer);
        let shards = self.listen.shards();
        let per_address = limits::connections_per_address(limits, steer, &self.share, shards);
        Clients::new(self.listen.networks.clone(), per_address)
    }
}

/// Refuses settings of parts that the server does not have, and cores that it cannot have.
fn check_parts(
    settings: &Merged<ServeOptions>,
    listen: &ListenPlan,
    content: &ContentPlan,
) -> Result<(), Error> {
    let served = Served {
        has_shm: listen.has_scheme("shm"),
        has_rdma: listen.has_scheme("rdma"),
        has_ip: !listen.addresses.is_empty(),
        has_tcp: listen.tcp.is_some(),
        is_memory: content.capacity.is_some(),
    };
    meaningless::check_parts(&settings.options, &settings.origins, served)?;
    check_cores(&listen.fabrics)?;
    check_sharing(&listen.fabrics)
}

/// Sizes of each shard.
fn sizes(arguments: &ServeOptions, content: &ContentPlan) -> Result<ShardSizes, Error> {
    let sizes = limits::sizes(&arguments.limits)?;
    if content.capacity.is_some() {
        check_memory(arguments, &content.exports)?;
    }
    Ok(sizes)
}

/// Checks the files that the server is to write.
fn check_files(arguments: &ServeOptions, purpose: PlanPurpose) -> Result<(), Error> {
    if let Some(file) = &arguments.stats {
        replace::check(file, "statistics").map_err(|error| error.of_flag("stats"))?;
    }
    let Some(file) = &arguments.ready_file else { return Ok(()) };
    ready_file::check(file).map_err(|error| error.of_flag("ready-file"))?;
    if purpose == PlanPurpose::Start { ready_file::clear(file) } else { Ok(()) }
}

/// The first setting, if any, that only a server of privileged mode follows.
fn setting_of_users(
    settings: &Merged<ServeOptions>,
    content: &ContentPlan,
) -> Result<Option<String>, Error> {
    let Merged { options, exports, origins, .. } = settings;
    let setting = meaningless::of_users(options, exports, origins);
    if content.is_of_host() {
        meaningless::check_asked(options, setting.as_ref())?;
    }
    Ok(setting)
}

fn reach(listen: &ListenPlan, content: &ContentPlan) -> Reach {
    let rules = || content.exports.iter().map(|export| &export.rules);
    // Only a server all of whose callers are proven by tickets trusts them for that.
    let accepts_words = rules()
        .any(|rules| rules.options.security.is_none_or(|flavors| flavors.accept(Security::Sys)));
    let are_usual = accepts_words && rules().all(|rules| rules.without_security().are_usual());
    Reach {
        is_of_this_host: listen.is_of_this_host(),
        has_addresses: !listen.addresses.is_empty(),
        is_unasked: listen.networks.is_empty() && are_usual,
    }
}

/// A sentence about the memory that the server needs.
fn memory(
    arguments: &ServeOptions,
    listen: &ListenPlan,
    content: &ContentPlan,
    sizes: &ShardSizes,
) -> Result<String, Error> {
    let shards = listen.shards();
    let buffers = sizes.octets() * shards;
    let need = Need { shards, buffers, files: content.capacity.unwrap_or(0) };
    let memory = memory_need::check(need, limits::memory_max(&arguments.limits)?)?;
    limits::check_locked(&listen.fabrics, sizes)?;
    Ok(memory)
}

/// Each shard's part of the descriptors, and a notice if there are too few for all connections.
fn share(
    arguments: &ServeOptions,
    listen: &ListenPlan,
    sizes: &ShardSizes,
    store: &dyn PlannedStore,
) -> Result<(Share, Option<String>), Error> {
    let has_files = store.host_callers().is_some();
    let wanted = limits::wanted(listen.shards(), listen.tcp.is_some(), sizes, has_files);
    let limit = descriptors::raise();
    let share = Share::of(limit, wanted)?;
    limits::check_descriptors(&arguments.limits, &share, limit)?;
    let notice = share.notice(limit, wanted);
    Ok((share, notice))
}
