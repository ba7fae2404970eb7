//! A hostile peer against `stag serve` as it is run: the same answers as from a shard in the test's
//! own process, over the files store.

use crate::support::{Home, json};
use rustix::process::Signal;
use stag_hostile::{Defect, HostileWorld, ServerUnderTest, defects, run};
use std::time::Duration;

/// A removed file works on while the files store has it open, and until then its handle is not
/// stale.
const WORKS_ON: &str = "nfs-handle-of-a-removed-file";

#[test]
fn every_defect_gets_its_answer_from_the_command_and_it_stops_in_order() {
    let home = Home::new();
    // Some defects are one octet longer than the receives of a kernel.
    let mut server = home.serve(&["data", "--inline", "4K", "--stats", "stats.json"]);
    let tcp = server.line("TCP").parse().unwrap();
    let world = HostileWorld::build(ServerUnderTest {
        rdma: server.line("LISTEN").strip_prefix("iwarp://").unwrap().parse().unwrap(),
        tcp,
        mount: tcp,
        export: "/data".to_owned(),
        crc: true,
        is_siw: false,
        patience: Duration::from_secs(10),
        pause: Duration::from_millis(30),
        // A READ that waits for the disk is answered after the next call.
        grace: Duration::from_millis(50),
    })
    .unwrap();
    let table = defects::all();
    // Defects that wait for a deadline of the server are played by `stag-hostile`'s own tests.
    // Contexts need keys that both ends have, which a server of the command has from Kerberos only.
    let is_played = |defect: &&Defect| !defect.is_slow && !defect.needs_key;
    let chosen: Vec<_> = table.iter().filter(is_played).collect();
    let mut wrong = Vec::new();
    for (defect, outcome) in chosen.iter().zip(run(&world, &chosen).unwrap()) {
        let works_on =
            defect.name == WORKS_ON && outcome.seen.as_ref().is_ok_and(|seen| seen.is_in("OK"));
        if !outcome.passed() && !works_on {
            wrong.push(format!("{}: {outcome:?}, instead of {}", defect.name, defect.expect));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), chosen.len(), wrong.join("\n"));
    world.tear_down().unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    assert!(!server.err().contains("panicked"), "{}", server.err());
    let stats = json(&home.path("stats.json"));
    assert_eq!(stats["total"]["engine"]["connections"]["live"], 0);
    assert_eq!(
        std::fs::read_dir(home.path("data")).unwrap().count(),
        0,
        "nothing is left in the export"
    );
}
