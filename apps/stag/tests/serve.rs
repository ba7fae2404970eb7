//! A server of its own for each test: its output, replies and counters, and the files that remain.

use crate::support::{Home, PATIENCE, Server, json, wait_for};
use rustix::process::Signal;
use stag_client::{ClientConfig, NfsClient};
use stag_engine::clock::Clock;
use stag_iwarp::Iwarp;
use stag_protocol::nfs::v3::{CreateHow, SetAttributes, StableHow};
use std::{
    cell::Cell,
    fs,
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    rc::Rc,
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

#[test]
fn the_functional_run_passes_where_helpers_make_all_calls() {
    let home = Home::new();
    let mut server =
        home.serve(&["data", "--slow", "data", "--helpers", "3", "--stats", "stats.json"]);
    let output = home.run(&["check", &format!("{}/data", server.line("LISTEN")), "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    let stats = json(&home.path("stats.json"));
    let count =
        |pointer: &str| stats["total"].pointer(pointer).and_then(|value| value.as_u64()).unwrap();
    let (reads, helped) = (count("/app/nfs3/READ/calls"), count("/app/data/reads_helped"));
    assert!(helped > 0 && helped <= reads, "{helped} of {reads}");
    assert!(count("/app/waiting/put_off") > 1_000, "{stats:#}");
    assert_eq!((count("/app/waiting/under_way"), count("/app/waiting/refused")), (0, 0));
}

#[test]
fn the_functional_run_passes_and_is_counted() {
    let home = Home::new();
    let mut server = home.serve(&["data", "--stats", "stats.json"]);
    let output =
        home.run(&["check", &format!("{}/data", server.line("LISTEN")), "--json", "--seed", "7"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(
        (&report["failed"], &report["skipped"], &report["seed"]),
        (&0.into(), &0.into(), &7.into())
    );
    assert!(report["steps"].as_array().unwrap().iter().all(|step| step["passed"] == true));
    assert_eq!(fs::read_dir(home.path("data")).unwrap().count(), 0, "the run cleans up");

    server.signal(Signal::USR1);
    let file = home.path("stats.json");
    wait_for("the statistics", || file.exists());
    let running = json(&file);
    // One of them asks for the versions of the server.
    assert_eq!(running["total"]["app"]["nfs3"]["NULL"]["calls"], 2);
    fs::remove_file(&file).unwrap();

    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    let stats = json(&file);
    assert_eq!(stats["version"], env!("CARGO_PKG_VERSION"));
    assert!(stats["uptime_s"].as_f64().unwrap() >= running["uptime_s"].as_f64().unwrap());
    assert_eq!(stats["shards"].as_array().unwrap().len(), 1);
    let count =
        |pointer: &str| stats["total"].pointer(pointer).and_then(|value| value.as_u64()).unwrap();
    for pointer in [
        "/app/nfs3/READ/calls",
        "/app/nfs3/WRITE/calls",
        "/app/nfs3/LOOKUP/errors/NFS3ERR_NOENT",
        "/app/mount3/MNT/calls",
        "/app/data/octets_read",
        "/engine/connections/fabric",
        "/engine/responder/calls/chunked",
        "/engine/responder/calls/short",
        "/engine/responder/replies/chunked",
        "/engine/responder/chunks/read_segments",
        "/engine/responder/chunks/write_segments",
        "/engine/responder/chunks/reply_segments",
        "/engine/responder/remote_invalidations",
        "/engine/responder/grant",
        "/engine/disconnects/closed by the peer",
        "/iwarp/fpdus_in",
        "/iwarp/accepted",
        "/iwarp/disconnects/peer",
    ] {
        assert!(count(pointer) > 0, "{pointer} in {stats:#}");
    }
    assert_eq!(count("/iwarp/crc_errors"), 0);
    assert_eq!(stats["total"]["engine"]["peer_faults"], serde_json::json!({}));
    let err = server.err();
    assert!(
        err.contains("connected peer=127.0.0.1:") && err.contains("cause=closed by the peer"),
        "{err}"
    );
}

#[test]
fn two_cores_share_the_ports_and_their_total_is_the_sum() {
    if thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("skipped: one core only");
        return;
    }
    let home = Home::new();
    let mut server = home.serve(&["data", "--cores", "2", "--stats", "stats.json"]);
    let url = format!("{}/data", server.line("LISTEN"));
    for _ in 0..6 {
        let output = home.run(&["check", &url, "--entries", "60"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    }
    server.signal(Signal::INT);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    let stats = json(&home.path("stats.json"));
    let calls = |of: &serde_json::Value| {
        of.pointer("/engine/connections/fabric").unwrap().as_u64().unwrap()
    };
    let shards = stats["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 2);
    assert_eq!(shards.iter().map(calls).sum::<u64>(), 6);
    assert_eq!(calls(&stats["total"]), 6);
    // The kernel may have given every connection to one of them.
    let grant = |of: &serde_json::Value| of["engine"]["responder"]["grant"].as_u64().unwrap();
    assert_eq!(Some(grant(&stats["total"])), shards.iter().map(grant).max());
    assert!(server.err().contains("shard 1, "), "{}", server.err());
}

#[test]
fn the_ready_block_has_the_shortest_line_and_the_control_socket_those_of_version_3() {
    let home = Home::new();
    let server = home.serve(&["data"]);
    let port = |word: &str| server.line(word).rsplit_once(':').unwrap().1.to_owned();
    let (rdma, tcp) = (port("LISTEN"), port("TCP"));
    let out = server.out();
    for line in [
        format!("mount -t nfs -o rdma,port={rdma} 127.0.0.1:/data /mnt/data"),
        format!("127.0.0.1:/data /mnt/data nfs port={tcp},_netdev 0 0"),
        format!("mount -t nfs -o port={tcp} 127.0.0.1:/data /mnt/data"),
        "# mount commands of version 3: 'stag ctl mounts --nfs 3'".to_owned(),
    ] {
        assert!(out.lines().any(|printed| printed == line), "{line} is in {out}");
    }
    assert!(!out.contains("vers=3"), "{out}");
    let asked = |nfs: &[&str]| {
        let output = home.run(&[&["ctl", "mounts"], nfs].concat());
        assert_eq!(output.status.code(), Some(0), "{nfs:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let over_tcp = format!("proto=tcp,port={tcp},vers=3,nolock,mountport={tcp},mountproto=tcp");
    let three = asked(&["--nfs", "3"]);
    assert!(three.contains(&format!("-o {over_tcp} 127.0.0.1:/data /mnt/data\n")), "{three}");
    assert!(!three.contains(&format!("-o port={tcp} ")), "{three}");
    let all = asked(&[]);
    assert!(all.starts_with("# /data\nmount -t nfs -o rdma,"), "{all}");
    assert_eq!(all.matches("vers=3").count(), 4, "{all}");
    drop(server);

    let server = home.serve(&["data", "--nfs", "3"]);
    assert!(server.out().contains("vers=3"), "{}", server.out());
    let output = home.run(&["ctl", "mounts", "--nfs", "4"]);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("version 4 is not served"), "{err}");
}

#[test]
fn what_is_printed_once_ready_can_be_copied() {
    let home = Home::new();
    fs::create_dir(home.path("with space")).unwrap();
    let server = home.serve(&["data:ro", "with space"]);
    let (rdma, tcp) = (server.line("LISTEN"), server.line("TCP"));
    let (rdma, tcp) = (rdma.rsplit_once(':').unwrap().1, tcp.rsplit_once(':').unwrap().1);
    let out = server.out();
    assert!(out.starts_with("READY stag "), "{out}");
    let (options, over_tcp) = (format!("rdma,port={rdma}"), format!("port={tcp}"));
    for line in [
        "EXPORT /data ro".to_owned(),
        "EXPORT /with space rw".to_owned(),
        format!("mount -t nfs -o {options} 127.0.0.1:/data /mnt/data"),
        format!("127.0.0.1:/data /mnt/data nfs {options},_netdev 0 0"),
        format!("mount -t nfs -o {over_tcp} 127.0.0.1:/data /mnt/data"),
        format!("mount -t nfs -o {options} '127.0.0.1:/with space' '/mnt/with space'"),
        format!("127.0.0.1:/with\\040space /mnt/with\\040space nfs {over_tcp},_netdev 0 0"),
    ] {
        assert!(out.lines().any(|printed| printed == line), "{line} is in {out}");
    }
    let err = server.err();
    for part in [
        "every caller acts as the server's own user",
        "to stop: Ctrl-C or SIGTERM",
        "/data (ro)",
        "store files",
        "duplicate request cache: ",
        "RDMA connections",
        "receives",
        "shard 0",
    ] {
        assert!(err.contains(part), "{part} is in {err}");
    }
}

#[test]
fn a_server_without_private_data_passes_the_functional_run() {
    let home = Home::new();
    let server = home.serve(&["data", "--private-data", "no"]);
    let output = home.run(&[
        "check",
        &format!("{}/data", server.line("LISTEN")),
        "--json",
        "--entries",
        "200",
    ]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    let requester = &report["engine"]["requester"];
    assert_eq!(requester["remote_invalidations"], 0);
    assert!(
        requester["local_invalidations"].as_u64() > Some(0)
            && requester["calls"]["long"].as_u64() > Some(0)
    );
}

#[test]
fn the_functional_run_passes_on_version_2() {
    let home = Home::new();
    let server = home.serve(&["data"]);
    let url = format!("{}/data", server.line("LISTEN"));
    for versions in ["2", "1-2"] {
        let output =
            home.run(&["check", &url, "--json", "--entries", "200", "--rdma-version", versions]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{report:#}");
        let requester = &report["engine"]["requester"];
        assert_eq!(requester["versions"]["v1"]["forward"], 0);
        assert!(requester["versions"]["v2"]["forward"].as_u64() > Some(1_000), "{requester:#}");
    }
}

#[test]
fn the_functional_run_passes_over_tcp() {
    let home = Home::new();
    let server = home.serve(&["data"]);
    let output =
        home.run(&["check", &format!("tcp://{}/data", server.line("TCP")), "--entries", "200"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("0 failed, 0 not tried"));
}

#[test]
fn a_read_only_export_and_a_missing_one_fail_the_run_with_exit_code_1() {
    let home = Home::new();
    let server = home.serve(&["data:ro"]);
    let at = server.line("LISTEN");
    let output = home.run(&["check", &format!("{at}/data")]);
    assert_eq!(output.status.code(), Some(1));
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains("FAILED  workspace") && out.contains("read-only"), "{out}");
    let output = home.run(&["check", &format!("{at}/nothing")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("MNT /nothing: expected success"));
}

#[test]
fn a_server_that_is_not_there_is_said_in_one_sentence() {
    let home = Home::new();
    let mut server = home.serve(&["data"]);
    let url = format!("{}/data", server.line("LISTEN"));
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0));
    let output = home.run(&["check", &url]);
    assert_eq!(output.status.code(), Some(1));
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert!(sentence.starts_with("stag: cannot connect to iwarp://127.0.0.1:"), "{sentence}");
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
}

#[test]
fn a_server_stops_while_clients_are_connected() {
    let home = Home::new();
    let mut server = home.serve(&["data", "--stats", "stats.json"]);
    let stream = TcpStream::connect(server.line("TCP")).unwrap();
    wait_for("the log of a TCP connection", || server.err().contains("over=\"tcp\""));
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    assert_eq!(json(&home.path("stats.json"))["total"]["engine"]["connections"]["tcp"], 1);
    assert!(server.err().contains("cause=closed by us"), "{}", server.err());
    drop(stream);
}

/// A client that begins to write a mebibyte, and then neither answers the server's RDMA Reads nor
/// closes its connection. It says by `stuck` when it has got that far.
fn start_a_write_and_get_stuck(at: &str, stuck: Sender<()>) {
    let (clock, config) = (Clock::start(), ClientConfig::new(1));
    let fabric = stag_iwarp::IwarpConfig::new(config.limits(), [1; 32], clock.now());
    // Looks at the clock that are left: in the first pass the call leaves.
    let looks = Rc::new(Cell::new(u32::MAX));
    let left = Rc::clone(&looks);
    let now = move || {
        left.set(left.get() - 1);
        if left.get() == 0 {
            stuck.send(()).unwrap();
            loop {
                thread::park();
            }
        }
        clock.now()
    };
    let mut client = NfsClient::new(Iwarp::new(fabric).unwrap(), config, now).unwrap();
    client.connect(&at.parse().unwrap()).unwrap();
    let root = client.mount("/data").unwrap();
    let how = CreateHow::Guarded(SetAttributes::default());
    let file = client.create(root, b"file", how).unwrap().object.unwrap();
    looks.set(3);
    let _ = client.write(file, 0, &vec![7; 1 << 20], StableHow::Unstable);
}

#[test]
fn a_second_signal_ends_a_server_that_waits_for_a_call() {
    let home = Home::new();
    // The wait is longer than a busy host takes to see both signals.
    let mut server = home.serve(&["data", "--stats", "stats.json", "--drain", "60"]);
    let at = server.line("LISTEN");
    let (sender, receiver) = channel();
    thread::spawn(move || start_a_write_and_get_stuck(&at, sender));
    receiver.recv_timeout(PATIENCE).unwrap();
    // The call is in the server's socket; that its core reads it cannot be seen from here.
    thread::sleep(Duration::from_millis(300));
    server.signal(Signal::TERM);
    // Two that come before the first is seen are one.
    wait_for("the first signal", || {
        let status = home.run(&["ctl", "--json", "status"]);
        !String::from_utf8_lossy(&status.stdout).contains("\"serving\"")
    });
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(1), "{}", server.err());
    assert!(server.err().contains("stopped at once"), "{}", server.err());
    assert!(!home.path("stats.json").exists());
}

#[test]
fn an_idle_server_sleeps() {
    let home = Home::new();
    let server = home.serve(&["data"]);
    // Fields 14 and 15 of proc(5) stat: ticks of a hundredth of a second, in user and in kernel
    // mode.
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
        let behind_name = stat.rsplit_once(')').unwrap().1.to_owned();
        behind_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<u64>().unwrap())
            .sum::<u64>()
    };
    let before = ticks();
    thread::sleep(Duration::from_secs(2));
    let used = ticks() - before;
    assert!(used <= 10, "{used} hundredths of two idle seconds were used");
}

/// The system rings the bell of a shard that sleeps, when a READ that it was given is over.
#[test]
fn a_server_that_sleeps_is_woken_by_the_disk() {
    let home = Home::new();
    let content: Vec<u8> = (0..3_000_000_u32).map(|place| (place % 253) as u8).collect();
    fs::write(home.path("data/cold"), &content).unwrap();
    let file = fs::File::open(home.path("data/cold")).unwrap();
    file.sync_all().unwrap();
    let mut server = home.serve(&["data", "--stats", "stats.json"]);
    for url in [server.line("LISTEN"), format!("tcp://{}", server.line("TCP"))] {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let output = home.run(&["call", &format!("{url}/data/cold"), "cat"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == content);
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    let stats = json(&home.path("stats.json"));
    let data = &stats["total"]["app"]["data"];
    let count = |name: &str| data[name].as_u64().unwrap();
    if server.err().contains("no io_uring") || count("reads_direct") > 0 {
        eprintln!("skipped: no io_uring, or the file was in memory");
    } else {
        assert!(count("reads_brought") > 0, "{data}");
    }
}

#[test]
fn callers_act_as_themselves_and_root_is_squashed_where_the_server_can_see_to_it() {
    let home = Home::new();
    let mut server = home.serve(&["data", "--mode", "auto"]);
    let put = |server: &Server| {
        let url = format!("{}/data/made", server.line("LISTEN"));
        home.run(&["call", &url, "mkdir"]).status.code()
    };
    let is_root = rustix::process::geteuid().is_root();
    if !is_root
        || !server.err().contains("privileged mode:")
        || server.err().contains("unprivileged mode")
    {
        assert!(server.err().contains("unprivileged mode"), "{}", server.err());
        assert!(
            home.refused(&["serve", "data", "--mode", "privileged"])
                .contains("cannot act as its callers")
        );
        return;
    }
    assert_eq!(
        put(&server),
        Some(1),
        "the directory is root's, and root is squashed: {}",
        server.err()
    );
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0));
    let server = home.serve(&["data", "--mode", "privileged", "--squash", "none"]);
    assert_eq!(put(&server), Some(0), "{}", server.err());
}

#[test]
fn the_state_directory_is_made_for_its_owner_only() {
    let home = Home::new();
    let nested = home.text("a/b/state");
    let mut server = home.serve(&["data", "--state-dir", &nested]);
    let mode = |path: &str| fs::metadata(home.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("a/b"), mode("a/b/state"), mode("a/b/state/key")), (0o700, 0o700, 0o600));
    assert!(!home.path("state").exists(), "what is given goes before the environment");
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0));

    let base = home.path("base");
    let mut command = home.stag(&[
        "serve",
        "data",
        "--nfs",
        "3",
        "--listen",
        "iwarp://127.0.0.1:0",
        "--tcp",
        "none",
    ]);
    command.env("STAG_STATE_DIR", &base);
    let server = Server::start(&home, command);
    assert!(base.join("key").exists());
    assert!(
        server
            .out()
            .contains("# no mount command of version 3: Linux asks for the export over TCP"),
        "{}",
        server.out()
    );
    assert!(!server.out().contains("vers=3"), "{}", server.out());
}

#[test]
fn systemd_is_told_when_the_server_is_ready_and_when_it_stops() {
    let home = Home::new();
    let path = home.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command =
        home.stag(&["serve", "data", "--listen", "iwarp://127.0.0.1:0", "--tcp", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", &path);
    let mut server = Server::start(&home, command);
    let told = || {
        let mut octets = [0; 256];
        let len = socket.recv(&mut octets).unwrap();
        String::from_utf8(octets[..len].to_vec()).unwrap().trim().to_owned()
    };
    assert_eq!(told(), "READY=1");
    server.signal(Signal::TERM);
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn two_cores_serve_version_4_and_the_second_forwards_to_the_first() {
    let home = Home::new();
    let mut server = home.serve(&["data", "--cores", "2", "--nfs", "4", "--stats", "stats.json"]);
    let urls = [server.line("LISTEN"), format!("tcp://{}", server.line("TCP"))];
    for url in &urls {
        let output = home.run(&["check", &format!("{url}/data"), "--entries", "30"]);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{err}");
    }
    // The kernel chooses the core of a connection: with 40, each core has some.
    fs::write(home.path("data/file"), "octets of a file").unwrap();
    for url in urls.iter().cycle().take(40) {
        let output = home.run(&["call", &format!("{url}/data/file"), "cat"]);
        assert_eq!(output.stdout, b"octets of a file", "{output:?}\n{}", server.err());
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    let total = &json(&home.path("stats.json"))["total"]["app"]["nfs4"];
    let count = |name: &str| total[name].as_u64().unwrap();
    assert!(count("forwarded") > 0 && count("compounds") > count("forwarded"), "{total:#}");
    assert_eq!(count("asked_home"), 0, "there is no version 3 that would have to ask");
}

#[test]
fn two_cores_give_delegations_where_both_serve_version_3_as_well() {
    let home = Home::new();
    let serve = ["data", "--cores", "2", "--nfs", "3,4", "--delegations", "data=exclusive"];
    let server = home.serve(&serve);
    let urls = [server.line("LISTEN"), format!("tcp://{}", server.line("TCP"))];
    for url in urls.iter().cycle().take(6) {
        let output = home.run(&["check", &format!("{url}/data"), "--nfs", "4", "--entries", "20"]);
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{out}");
        let seen = "4 read delegations recalled; a write delegation";
        assert!(out.contains(seen), "{out}");
    }
}

#[test]
fn files_that_programs_of_the_host_change_are_delegated_to_readers_and_watched() {
    let home = Home::new();
    let watched = ["--nfs", "3,4", "--delegations", "data=watched", "--stats", "stats.json"];
    for cores in ["1", "2"] {
        let mut server = home.serve(&[&["data", "--cores", cores][..], &watched].concat());
        for url in [server.line("LISTEN"), format!("tcp://{}", server.line("TCP"))] {
            let check = ["check", &format!("{url}/data"), "--nfs", "4", "--entries", "20"];
            let output = home.run(&check);
            let out = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(0), "{out}");
            assert!(out.contains("4 read delegations recalled; for writing none"), "{out}");
        }
        server.signal(Signal::TERM);
        assert_eq!(server.wait(), Some(0), "{}", server.err());
        let nfs4 = &json(&home.path("stats.json"))["total"]["app"]["nfs4"];
        assert_eq!(nfs4["watched"], 0, "nothing is left");
    }
}
