//! Cost of a compound that waits for nothing, on the memory store: no heap allocation.

use super::{
    client::{CONFIG, Client4, ServedExport, memory, read_args, write_args},
    owner_names::FakeNames,
};
use crate::{
    counting::allocations,
    gateway::wire::{OverFabric, OverTcp},
};
use stag_engine::{App, Call, Config, Cx};
use stag_nfs::{Gateway, GatewayReport, owner_names::NamedCallers};
use stag_nfs_store::memory::Memory;
use stag_protocol::nfs::v4::*;
use std::{cell::Cell, rc::Rc};

/// A gateway whose every step is weighed.
struct Weighed {
    gateway: Gateway<Memory>,
    /// Allocations since the last look.
    weight: Rc<Cell<u64>>,
}

impl Weighed {
    fn weigh(&mut self, step: impl FnOnce(&mut Gateway<Memory>)) {
        let before = allocations();
        step(&mut self.gateway);
        self.weight.set(self.weight.get() + allocations() - before);
    }
}

impl App for Weighed {
    type Report = GatewayReport;

    fn report(&self) -> GatewayReport {
        self.gateway.report()
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.weigh(|gateway| gateway.on_call(cx, call));
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.weigh(|gateway| gateway.on_pass_end(cx));
    }
}

#[test]
fn a_compound_that_waits_for_nothing_allocates_nothing() {
    let weight = Rc::new(Cell::new(0));
    let gateway = Gateway::new(memory()).with_nfs4(CONFIG);
    let weighed = Weighed { gateway, weight: Rc::clone(&weight) };
    let wire = Box::new(OverFabric::new(weighed, Config::small()));
    let mut client = Client4::on(wire, ServedExport::new(b"memory", ()), 1);
    assert_ne!(weight.replace(0), 0, "the scale works: a session is allocated");
    let (stateid, handle) = client.open(b"file");
    let put = Request::PutFh(Text(&handle));
    for offset in (0..65_536).step_by(16_384) {
        let written = client.run(&[put.clone(), write_args(stateid, offset, &[7; 16_384])]);
        assert_eq!(written.status(), Status4::Ok);
    }
    // Attributes that Linux asks for each time.
    let linux = Bitmap::of([1, 3, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53, 55]);
    client.result_max = 65_536;
    for last in [Request::GetAttr(linux), read_args(stateid, 0, 65_536)] {
        let mut round = || {
            assert_eq!(client.run(&[put.clone(), last.clone()]).status(), Status4::Ok);
        };
        round();
        weight.set(0);
        (0..10).for_each(|_| round());
        assert_eq!(weight.get(), 0, "{last:?}");
    }
    assert!(client.wire.moved().1 >= 11 * 65_536, "a READ is pushed");
    let read = |place: u64| read_args(stateid, place * 8_192, 8_192);
    let requests = [put.clone(), read(0), read(1), read(2), read(3)];
    let mut round = || {
        let (_, filled) = client.run_in_rooms(false, &requests, &[8_192; 4]).unwrap();
        assert!(filled.iter().all(|octets| octets.len() == 8_192), "each has its chunk");
    };
    round();
    weight.set(0);
    (0..10).for_each(|_| round());
    assert_eq!(weight.get(), 0, "several READs");
}

/// Pages that this thread was given so far.
fn pages_taken() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The name in parentheses may have spaces; minflt is the eighth field after it.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

#[test]
fn names_of_owners_that_are_known_allocate_nothing() {
    let weight = Rc::new(Cell::new(0));
    let names = FakeNames::default().names(NamedCallers::All);
    let gateway = Gateway::new(memory()).with_nfs4(CONFIG).with_owner_names(names);
    let weighed = Weighed { gateway, weight: Rc::clone(&weight) };
    let wire = Box::new(OverTcp::new(weighed, Config::small()));
    let mut client = Client4::on(wire, ServedExport::new(b"memory", ()), 1);
    let (_, handle) = client.open(b"file");
    let mut octets = [&15_u32.to_be_bytes()[..], b"alice@stag.test"].concat();
    octets.push(0);
    let owner = RawAttributes { mask: Bitmap::of([36]), octets: &octets };
    let put = Request::PutFh(Text(&handle));
    let stateid = Stateid::ANONYMOUS;
    let set = Request::SetAttr(SetAttr4Args { stateid, attributes: owner });
    let list = Request::GetAttr(Bitmap::of([36, 37]));
    for last in [set, Request::GetAttr(STAT_ATTRIBUTES), list, Request::Verify(owner)] {
        let mut round = || {
            assert_eq!(client.run(&[put.clone(), last.clone()]).status(), Status4::Ok);
        };
        round();
        weight.set(0);
        (0..10).for_each(|_| round());
        assert_eq!(weight.get(), 0, "{last:?}");
    }
}

#[test]
fn a_gateway_takes_the_pages_of_its_tables_when_it_writes_to_them() {
    let before = pages_taken();
    let gateway = Gateway::new(memory()).with_nfs4(CONFIG);
    let pages = pages_taken() - before;
    drop(gateway);
    assert!(pages < 8_000, "{pages} pages, of 4 KiB each; the replies of all slots are 32,768");
}
