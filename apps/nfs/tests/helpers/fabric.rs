//! READs that were put off, over a simulated fabric.

use super::*;

/// A gateway whose passes end when all its READs are carried out: time on the simulated fabric
/// waits for the disk.
struct Waiting {
    gateway: Gateway,
    begun: u64,
}

impl App for Waiting {
    type Report = GatewayReport;

    fn report(&self) -> GatewayReport {
        self.gateway.report()
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Inbound<'_>) {
        self.begun += u64::from((call.header.program, call.header.procedure) == (100_003, 6));
        self.gateway.on_call(cx, call);
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        self.gateway.on_peer_down(cx, peer, cause);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        loop {
            self.gateway.on_pass_end(cx);
            if self.report().nfs3.get("READ").map_or(0, |served| served.calls) == self.begun {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// Reads a cold file over a simulated fabric.
fn read_over_fabric(equip: impl FnOnce(Files) -> Files, did: impl Fn(&GatewayReport) -> u64) {
    let home = Home::within(home());
    if !is_on_disk(&home.path("data")) {
        return;
    }
    let content = pattern(1 << 20, 7);
    write_cold(&home.path("data/file"), &content);
    let gateway = Gateway::new(equip(home.store_after(|| ())));
    let wire =
        crate::gateway::wire::OverFabric::new(Waiting { gateway, begun: 0 }, Config::small());
    let mut client = Client::on(Box::new(wire), home);
    let root = client.root;
    let file = client.lookup(root, b"file").unwrap();
    for (offset, len) in [(0, 4096), (500_000, 500_000), (0, 1 << 20)] {
        let (octets, _) = client.read(file, offset, len).unwrap();
        assert!(octets == content[offset as usize..][..len as usize]);
    }
    let report = client.wire.report();
    assert!(did(&report) > 0, "{report:?}");
    assert_eq!(carried_out(&report), 3);
}

#[test]
fn a_read_that_was_put_off_is_pushed_like_any_other() {
    let equip =
        |files: Files| files.with_helpers(Helpers::start(1).unwrap().remove(0)).with_cold_looks(1);
    read_over_fabric(equip, |report| report.data.reads_warmed);
}

#[test]
fn a_read_that_a_ring_carries_out_is_pushed_like_any_other() {
    match Ring::new(4, bell()) {
        Ok(ring) => read_over_fabric(
            |files| files.with_ring(ring).with_cold_looks(1),
            |report| report.data.reads_brought,
        ),
        Err(error) => eprintln!("skipped: no io_uring here ({error})"),
    }
}
