//! A server that is killed and started again, over the same files and the same records.

use super::disk::Disk;
use crate::gateway::{
    client::Home,
    nfs4::client::{CONFIG, Reply4, encode},
    wire::{Message, OverFabric, Wire as _},
};
use stag_engine::Config;
use stag_nfs::{
    Gateway, Nfs4Config, Nfs4Records, Nfs4Report,
    records::{RecordKeeper, RecordLog, Records as _},
};
use stag_nfs4_state::DelegationPolicy;
use stag_protocol::{
    nfs::{v3, v4::Request},
    rpc::{Accepted, AuthSys, Credential, Gids, Outcome, ReplyHeader},
    xdr::{Codec as _, Reader},
};
use std::time::Duration;

pub const LEASE: Duration = CONFIG.lease;

pub struct World {
    delegations: DelegationPolicy,
    home: Home,
    pub disk: Disk,
    wire: Option<OverFabric<Gateway>>,
}

impl World {
    pub fn new() -> Self {
        Self::with(DelegationPolicy::Never)
    }

    /// One whose exports allow these delegations.
    pub fn with(delegations: DelegationPolicy) -> Self {
        let (home, disk) = (Home::new(), Disk::default());
        let mut world = Self { delegations, home, disk, wire: None };
        world.restart();
        world
    }

    /// A file of the export, opened by a program of the server's host.
    pub fn program(&self, name: &str) -> std::fs::File {
        let path = self.home.path("data").join(name);
        std::fs::File::options().read(true).write(true).open(path).unwrap()
    }

    /// Returns true if the export has a file of this name.
    pub fn has_file(&self, name: &str) -> bool {
        self.home.path("data").join(name).exists()
    }

    /// Kills the server.
    pub fn stop(&mut self) {
        self.wire = None;
    }

    /// Kills the server and starts another one.
    pub fn restart(&mut self) {
        self.stop();
        self.wire = Some(self.start());
    }

    fn start(&self) -> OverFabric<Gateway> {
        let mut records = RecordLog::new(self.disk.clone());
        let boot = records.begin().unwrap();
        let config = Nfs4Config { epoch: boot.epoch, delegations: self.delegations, ..CONFIG };
        let keeper = RecordKeeper::without_thread(Box::new(records));
        let records = Nfs4Records { boot, keeper, grace: LEASE };
        let gateway = self.home.gateway().with_nfs4(config).with_records(records);
        let mut wire = OverFabric::new(gateway, Config::small());
        // The grace period begins with the first look at the clock.
        wire.wait(Duration::ZERO);
        wire
    }

    fn wire(&mut self) -> &mut OverFabric<Gateway> {
        self.wire.as_mut().expect("a server runs")
    }

    pub fn wait(&mut self, time: Duration) {
        self.wire().wait(time);
    }

    pub fn report(&mut self) -> Nfs4Report {
        self.wire().report().nfs4
    }

    /// Makes a call of version 3: its status.
    pub fn call3(&mut self, call: &v3::Call<'_>) -> v3::Status {
        let (octets, item) = crate::gateway::client::encode(call);
        let message = Message { octets: &octets, item, reply_max: 2_000, result_max: 0 };
        let reply = self.wire().exchange(message).unwrap();
        let mut reader = Reader::new(&reply);
        let outcome = ReplyHeader::parse(&mut reader).unwrap().outcome;
        assert_eq!(outcome, Outcome::accepted(Accepted::Success));
        v3::Status::parse(&mut reader).unwrap()
    }

    /// Sends a compound as a user.
    pub fn send(&mut self, uid: u32, requests: &[Request<'_>]) -> Reply4 {
        let gids = Gids::new(&[]).unwrap();
        let sys = AuthSys { stamp: 1, machine_name: b"client", uid, gid: uid, gids };
        let octets = encode(Credential::Sys(sys), 2, requests);
        let message = Message { octets: &octets, item: None, reply_max: 20_000, result_max: 0 };
        let reply = self.wire().exchange(message).unwrap();
        let mut reader = Reader::new(&reply);
        let outcome = ReplyHeader::parse(&mut reader).unwrap().outcome;
        assert_eq!(outcome, Outcome::accepted(Accepted::Success));
        Reply4(reply[ReplyHeader::LEN..].to_vec())
    }
}
