//! Cost of a call of the data path in the gateway: no heap allocation, once its file is known.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::result_large_err,
    dead_code,
    missing_docs
)]

use crate::gateway::{
    client::{Client, Home, LARGEST, pattern},
    wire,
};
use stag_engine::{App, Call, Config, Cx};
use stag_nfs::{Gateway, GatewayReport};
use stag_protocol::nfs::v3::{self, Access, AccessArgs, StableHow};
use std::{cell::RefCell, rc::Rc};

/// A gateway whose every step is weighed.
struct Weighed {
    gateway: Gateway,
    /// Allocations since the last look.
    weight: Rc<RefCell<u64>>,
}

impl Weighed {
    fn weigh(&mut self, step: impl FnOnce(&mut Gateway)) {
        let before = crate::counting::allocations();
        step(&mut self.gateway);
        *self.weight.borrow_mut() += crate::counting::allocations() - before;
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

/// Counts the allocations of ten rounds of `round`, after one round that is not counted.
fn weight(client: &mut Client, weight: &RefCell<u64>, mut round: impl FnMut(&mut Client)) -> u64 {
    round(client);
    weight.replace(0);
    (0..10).for_each(|_| round(client));
    weight.replace(0)
}

fn measure(make: impl FnOnce(Weighed) -> Box<dyn wire::Wire>) {
    let (home, count) = (Home::new(), Rc::new(RefCell::new(0)));
    let weighed = Weighed { gateway: home.gateway(), weight: Rc::clone(&count) };
    let mut client = Client::on(make(weighed), home);
    let root = client.root;
    let file = client.create(root, b"file").unwrap();
    assert_ne!(
        count.replace(0),
        0,
        "the scale works: a file that is seen first is noted in the index"
    );
    let data = pattern(LARGEST, 1);
    client.write(file, 0, &data, StableHow::Unstable).unwrap();

    let access = v3::Call::Access(AccessArgs { object: file, access: Access::ALL });
    assert_eq!(
        weight(&mut client, &count, |client| client.call(&v3::Call::Null, |_| ())),
        0,
        "NULL"
    );
    assert_eq!(
        weight(&mut client, &count, |client| assert!(client.getattr(file).is_ok())),
        0,
        "GETATTR"
    );
    assert_eq!(
        weight(&mut client, &count, |client| assert!(client.lookup(root, b"file").is_ok())),
        0,
        "LOOKUP"
    );
    assert_eq!(weight(&mut client, &count, |client| client.call(&access, |_| ())), 0, "ACCESS");
    for len in [0, 100, 4096, 65_536, LARGEST] {
        let read = |client: &mut Client| {
            assert_eq!(client.read(file, 0, len as u32).unwrap().0.len(), len)
        };
        assert_eq!(weight(&mut client, &count, read), 0, "READ of {len} octets");
        for stable in [StableHow::Unstable, StableHow::FileSync] {
            let write =
                |client: &mut Client| assert!(client.write(file, 0, &data[..len], stable).is_ok());
            assert_eq!(weight(&mut client, &count, write), 0, "WRITE of {len} octets");
        }
    }
}

#[test]
fn a_call_about_a_known_file_allocates_nothing() {
    measure(|weighed| Box::new(wire::OverFabric::new(weighed, Config::small())));
    measure(|weighed| Box::new(wire::OverTcp::new(weighed, Config::small())));
}
