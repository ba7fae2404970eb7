//! Seats of shards: the parts that each shard's thread takes with it, dealt out in the order of
//! their start.

use super::{
    nfs4_start,
    sources::{helpers, memory_mail},
};
use crate::{
    Error,
    admission::AdmissionTable,
    serve::plan::{Plan, options::SteerOption, shards::FabricShards},
};
use stag_engine::{
    RestListener,
    clock::Clock,
    launch::{self, CoreId},
};
use stag_fabrics::FabricGroup;
use stag_nfs::{
    ConnectionPolicy, MountList, Nfs4Link, Nfs4Records,
    reply_cache::CacheHandle,
    serve::{ConnectionShare, NfsVersions, ServeShard, StoreSource},
};
use stag_nfs_store::{helpers::Helpers, memory::MemoryMail};
use stag_verbs::Outages;
use std::{net::SocketAddr, sync::Arc, vec};

/// The parts of all shards that have not started.
pub struct Seats {
    source: StoreSource,
    cores: Vec<CoreId>,
    clock: Clock,
    mounts: Arc<MountList>,
    caches: vec::IntoIter<CacheHandle>,
    links: vec::IntoIter<Nfs4Link>,
    helpers: vec::IntoIter<Helpers>,
    memory: vec::IntoIter<MemoryMail>,
    versions: NfsVersions,
    /// Records of clients, which the first shard keeps.
    records: Option<Nfs4Records>,
    admission: Arc<AdmissionTable>,
    rest: Option<Arc<dyn RestListener>>,
    outages: Outages,
}

/// The place of one shard.
pub struct SeatPlace {
    /// Its number among all shards.
    pub index: usize,
    /// Its number among those of its fabric.
    pub place: usize,
    /// Shards of its fabric.
    pub places: usize,
    /// Its addresses over its fabric.
    pub fabric: FabricGroup,
    /// Its address over TCP.
    pub tcp: Option<SocketAddr>,
}

impl Seats {
    /// Makes the parts of all shards of `plan`, with the ones that they share with its server.
    ///
    /// # Errors
    /// A sentence about a part that cannot be made.
    pub fn new(
        plan: &Plan,
        source: &StoreSource,
        admission: &Arc<AdmissionTable>,
        rest: Option<Arc<dyn RestListener>>,
        outages: Outages,
    ) -> Result<Self, Error> {
        let wanted: Vec<_> = plan.fabrics.iter().flat_map(FabricShards::nodes).collect();
        let (cores, clock) = (launch::near(launch::cores(), &wanted), Clock::start());
        let helpers = helpers(source, plan, &cores)?.into_iter();
        let (versions, records) = nfs4_start::versions(plan, source)?;
        Ok(Self {
            source: source.clone(),
            cores,
            clock,
            mounts: Arc::default(),
            caches: CacheHandle::all(plan.shards()).into_iter(),
            links: nfs4_start::links(plan).into_iter(),
            helpers,
            memory: memory_mail(plan).into_iter(),
            versions,
            records,
            admission: Arc::clone(admission),
            rest,
            outages,
        })
    }

    /// The seat of the next shard, and its core.
    pub fn next(&mut self, plan: &Plan, at: SeatPlace) -> (ServeShard, Option<CoreId>) {
        let SeatPlace { index, place, places, fabric, tcp } = at;
        let steers = plan.steer == SteerOption::Address;
        let admission = Arc::clone(&self.admission);
        let seat = ServeShard {
            index,
            place,
            fabric,
            shm_allow: plan.shm_allow.clone(),
            rdma: plan.link,
            tcp,
            passed: plan.passed.clone(),
            tls: plan.tls.clone(),
            gss: plan.kerberos.as_ref().and_then(|it| it.contexts.clone()),
            places,
            steered: u32::try_from(places).ok().filter(|places| *places > 1 && steers),
            sizes: plan.sizes,
            admission: Arc::new(move |over| Arc::clone(&admission).admission(over)),
            policy: Arc::clone(&self.admission) as Arc<dyn ConnectionPolicy>,
            mounts: Arc::clone(&self.mounts),
            share: share(plan),
            private_data: plan.private_data,
            versions: plan.versions,
            sample: plan.sample,
            tells_stages: plan.tells_stages,
            source: self.source.clone(),
            nfs: self.versions,
            records: self.records.take(),
            exclusive: plan.nfs.delegations.exclusive.clone(),
            watched: plan.nfs.delegations.watched.clone(),
            owner_names: plan.owners.names.clone(),
            link: self.links.next(),
            branch: self.caches.next().expect("one for each shard"),
            helpers: self.helpers.next(),
            memory: self.memory.next(),
            clock: self.clock,
            rest: self.rest.clone(),
            outage: self.outages.of_shard(index),
        };
        (seat, self.cores.get(index).copied())
    }
}

/// Connections that one shard may have.
const fn share(plan: &Plan) -> ConnectionShare {
    let share = &plan.share;
    ConnectionShare {
        connections: share.connections,
        streams: share.streams,
        half_open: share.half_open,
        spare: share.spare,
        links: share.links,
    }
}
