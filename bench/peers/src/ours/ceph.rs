//! Ours on CephFS: `stag serve ceph:/` on the server's core, called by `stag bench` over TCP.

use crate::{
    ceph::SharedCluster,
    contender::{Absence, Contender, Reading},
    site::{MeasuringSite, RunningServer, shown, unique},
    stag::StagBench,
    way::{IWARP, TCP},
};
/// Ours on a cluster.
#[derive(Debug)]
pub struct StagOnCeph {
    cluster: SharedCluster,
    bench: StagBench,
    /// The server, and where it is.
    server: Option<(RunningServer, String)>,
    commands: Vec<String>,
}

impl StagOnCeph {
    /// Called by `bench`.
    pub fn new(cluster: &SharedCluster, bench: StagBench) -> Self {
        Self { cluster: cluster.clone(), bench, server: None, commands: Vec::new() }
    }
}

impl Contender for StagOnCeph {
    fn name(&self) -> String {
        "Stag, ceph:, tcp".to_owned()
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        let configuration = self.cluster.configuration(site)?;
        let mut command = site.on_core(site.server, &site.stag);
        let name = format!("peers-{}-{}", std::process::id(), unique());
        command.arg("serve").arg(format!("ceph:/?conf={}&node={name}", configuration.display()));
        command.args(["--name", "export", "--squash", "none", "--insecure", "--state-dir"]);
        command.arg(site.home().join(&name));
        // A server listens on a fabric in any case.
        let tcp = TCP.listen(site);
        let tcp = tcp.strip_prefix("tcp://").unwrap_or(&tcp);
        command.args(["--listen", &IWARP.listen(site), "--tcp", tcp]);
        self.commands.push(shown(&command));
        let ready = |line: &str| line.strip_prefix("TCP ").map(|at| format!("tcp://{at}/export"));
        let (running, url) = site.serve(command, ready)?;
        self.commands.push(shown(&self.bench.command(site, &url)));
        self.server = Some((running, url));
        Ok(())
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let (running, url) = self.server.as_ref().ok_or("it was not started")?;
        self.bench.run_on(site, url, running)
    }
}
