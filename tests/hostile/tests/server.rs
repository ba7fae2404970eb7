//! Every defect against a server of ours: the class of answer is the specification's, others are
//! served, and nothing is lost.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_hostile::{
    HostileWorld, ServerUnderTest, defects,
    ours::{EXPORT, OurServer},
    run,
};
use std::{collections::BTreeSet, time::Duration};

const PATIENCE: Duration = Duration::from_secs(10);

fn target(server: &OurServer) -> ServerUnderTest {
    ServerUnderTest {
        rdma: server.rdma,
        tcp: server.tcp,
        mount: server.tcp,
        export: EXPORT.to_owned(),
        crc: true,
        is_siw: false,
        patience: PATIENCE,
        pause: Duration::from_millis(30),
        grace: Duration::ZERO,
    }
}

#[test]
fn every_defect_gets_its_answer_others_are_served_and_nothing_stays_behind() {
    let server = OurServer::start().unwrap();
    let (empty, _) = server.look().unwrap();
    let world = HostileWorld::build(target(&server)).unwrap();
    let table = defects::all();
    let outcomes = run(&world, &table.iter().collect::<Vec<_>>()).unwrap();
    let mut wrong = Vec::new();
    for (defect, outcome) in table.iter().zip(&outcomes) {
        if !outcome.passed() {
            let seen = outcome.seen.as_ref().map_or_else(Clone::clone, ToString::to_string);
            let others = if outcome.others_served { "" } else { "; others are not served" };
            wrong.push(format!(
                "{}: {seen}, instead of {} ({}){others}",
                defect.name, defect.expect, defect.clause
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), table.len(), wrong.join("\n"));
    world.tear_down().unwrap();
    let settled = server.settle(empty, PATIENCE).unwrap();
    assert_eq!(settled, empty, "buffers, calls, grants and connections are what they were");
    server.stop().unwrap();
}

#[test]
fn names_are_unique_and_there_are_enough() {
    let table = defects::all();
    let names: BTreeSet<_> = table.iter().map(|defect| &defect.name).collect();
    assert_eq!(names.len(), table.len());
    assert!(table.len() >= 200, "{}", table.len());
    let unsafe_ones =
        table.iter().filter(|defect| !defect.is_kernel_safe && defect.name.ends_with("of-nothing"));
    assert!(unsafe_ones.count() >= 3, "what ends a kernel's thread is not played against one");
}
