//! Failures of a cluster's daemons and of gateways, as clients and other gateways see them.

use super::{
    cluster::{Cluster, client, content, create, is_long, until},
    support::{Home, PATIENCE},
};
use rustix::process::Signal;
use stag_client::{ClientConfig, Error, NfsClient};
use stag_engine::clock::Clock;
use stag_iwarp::Iwarp;
use stag_protocol::nfs::v3::{FileHandle, StableHow, Status};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Time after which a metadata server drops a client that is gone, in the tests' clusters: other
/// clients that wait for it wait as long.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn a_gateway_that_is_killed_serves_again_and_keeps_nobody_waiting() {
    let Some(cluster) = Cluster::start("1", "1") else { return };
    let home = Home::new();
    let (mut first, second) = (cluster.gateway(&home, "one"), cluster.gateway(&home, "two"));
    let mut there = client(&second);
    let root = until("the mount", || there.mount("/data"));
    let rounds = if is_long() { 20 } else { 3 };
    for round in 0..rounds {
        let mut here = client(&first);
        assert_eq!(until("the mount", || here.mount("/data")), root, "round {round}");
        let name = format!("f{round}").into_bytes();
        let file = create(&mut here, root, &name);
        here.write(file, 0, b"acknowledged", StableHow::Unstable).unwrap();
        first.signal(Signal::KILL);
        first.wait();
        let began = Instant::now();
        if round % 2 == 0 {
            // The other gateway takes over before the first one is started again.
            let conf = cluster.configuration();
            let name = cluster.name("one");
            let done = home.run(&["cluster", "takeover", &name, "--conf", &conf]);
            assert_eq!(done.status.code(), Some(0), "{done:?}");
            let said = String::from_utf8(done.stdout).unwrap();
            assert!(said.ends_with("its files are free, and it cannot write\n"), "{said}");
            create(&mut there, root, b"beside");
        } else {
            first = cluster.gateway(&home, "one");
            let mut again = client(&first);
            until("the restart", || again.getattr(file));
        }
        let waited = began.elapsed();
        assert!(waited < SESSION_TIMEOUT, "round {round}: {waited:?}: nobody was reclaimed");
        println!("round {round}: {} ms", waited.as_millis());
        let kept = until("the read", || content(&mut there, file));
        assert_eq!(kept, b"acknowledged", "round {round}");
        if round % 2 == 0 {
            first = cluster.gateway(&home, "one");
        }
    }
}

#[test]
fn a_data_daemon_that_stops_keeps_only_its_readers_waiting() {
    let Some(cluster) = Cluster::start("1", "1") else { return };
    let home = Home::new();
    let server = cluster.gateway(&home, "one");
    let [mut reader, mut other] = [client(&server), client(&server)];
    let root = until("the mount", || reader.mount("/data"));
    let file = create(&mut reader, root, b"f");
    reader.write(file, 0, b"octets", StableHow::FileSync).unwrap();
    cluster.daemon("pause", "osd.0");
    let (sender, receiver) = std::sync::mpsc::channel();
    let at = server.line("LISTEN");
    let waiting = thread::spawn(move || {
        let (clock, config) = (Clock::start(), ClientConfig::new(2));
        let fabric = stag_iwarp::IwarpConfig::new(config.limits(), [2; 32], clock.now());
        let mut client =
            NfsClient::new(Iwarp::new(fabric).unwrap(), config, move || clock.now()).unwrap();
        client.connect(&at.parse().unwrap()).unwrap();
        client.limit_timeout(PATIENCE);
        sender.send(()).unwrap();
        until("the read", || content(&mut client, file))
    });
    receiver.recv().unwrap();
    for _ in 0..20 {
        other.null().unwrap();
        assert_eq!(other.getattr(file).unwrap().size, 6, "metadata goes on");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!waiting.is_finished(), "the daemon has the only copy");
    cluster.daemon("resume", "osd.0");
    assert_eq!(waiting.join().unwrap(), b"octets");
}

#[test]
fn another_metadata_daemon_takes_over() {
    if !is_long() {
        return println!("skipped: takes two minutes (fix: set CI)");
    }
    let Some(cluster) = Cluster::start("2", "1") else { return };
    let home = Home::new();
    let server = cluster.gateway(&home, "one");
    let mut client = client(&server);
    let root = until("the mount", || client.mount("/data"));
    let file = create(&mut client, root, b"f");
    client.write(file, 0, b"octets", StableHow::FileSync).unwrap();
    // One of the two is active; with both killed in turn, the active one was.
    for daemon in ["mds.a", "mds.b"] {
        cluster.daemon("kill", daemon);
        until("the other daemon", || {
            let made = client.mkdir(root, daemon.as_bytes(), 0o755);
            if matches!(made, Err(Error::NotConnected(_))) {
                client.connect(&server.line("LISTEN").parse().unwrap())?;
            }
            // The call whose connection was dropped may have been carried out.
            match made {
                Err(Error::Nfs(Status::Exist)) => Ok(()),
                other => other.map(drop),
            }
        });
        cluster.daemon("revive", daemon);
        thread::sleep(Duration::from_secs(2));
    }
    // The client is asked to retry while the new daemon revokes its capabilities.
    assert_eq!(until("the read", || content(&mut client, file)), b"octets");
}

/// Reads each file as the turn before left it, writes it, and reads it again. There are enough
/// files for all data daemons to have some.
fn go_on(client: &mut NfsClient<Iwarp>, files: &[FileHandle], turn: u8) {
    for file in files {
        if turn > 0 {
            let kept = until("the read", || content(client, *file));
            assert_eq!(kept, [turn - 1; 8], "turn {turn}");
        }
        until("the write", || client.write(*file, 0, &[turn; 8], StableHow::FileSync));
        assert_eq!(until("the read", || content(client, *file)), [turn; 8], "turn {turn}");
    }
}

#[test]
fn one_data_daemon_of_three_may_die_or_stop() {
    if !is_long() {
        return println!("skipped: takes a minute (fix: set CI)");
    }
    let Some(cluster) = Cluster::start("1", "3") else { return };
    let home = Home::new();
    let server = cluster.gateway(&home, "one");
    let mut client = client(&server);
    let root = until("the mount", || client.mount("/data"));
    let files: Vec<_> =
        (0..20).map(|number| create(&mut client, root, format!("{number}").as_bytes())).collect();
    go_on(&mut client, &files, 0);
    // Connections to a dead daemon are refused at once.
    cluster.daemon("kill", "osd.1");
    go_on(&mut client, &files, 1);
    cluster.daemon("revive", "osd.1");
    thread::sleep(Duration::from_secs(3));
    // A stopped daemon is declared down by the others after some seconds.
    cluster.daemon("pause", "osd.2");
    let began = Instant::now();
    go_on(&mut client, &files, 2);
    println!("with one that is stopped: {} ms", began.elapsed().as_millis());
    cluster.daemon("resume", "osd.2");
    go_on(&mut client, &files, 3);
}
