//! Files in the memory of a server: its bound, its copies, and several shards that serve them.

use crate::support::{Home, json};
use rustix::process::Signal;
use std::{fs, thread};

#[test]
fn a_memory_store_passes_the_functional_run_keeps_its_bound_and_leaves_the_directory_alone() {
    let home = Home::new();
    fs::write(home.path("data/file"), b"content").unwrap();
    let mut server = home.serve(&["data", "--memory", "48M"]);
    let url = format!("{}/data", server.line("LISTEN"));
    let output = home.run(&["check", &url, "--entries", "60"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(home.run(&["call", &format!("{url}/file"), "cat"]).stdout, b"content");
    assert_eq!(home.run(&["call", &format!("{url}/file"), "rm"]).status.code(), Some(0));
    assert_eq!(fs::read(home.path("data/file")).unwrap(), b"content", "what is served is a copy");
    fs::write(home.path("large"), vec![7; 50 << 20]).unwrap();
    let full = String::from_utf8(home.run(&["call", &url, "put", "large"]).stderr).unwrap();
    assert!(full.contains("no space is left (NoSpc)"), "{full}");
    let err = server.err();
    for part in [
        "store memory, 48 MiB",
        "a restart loses it",
        "a copy of ",
        "copied 1 objects, 7 octets",
        "shard 0 files: ",
    ] {
        assert!(err.contains(part), "{part} is in {err}");
    }
    assert!(!home.path("state").exists(), "nothing has to survive");
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
}

#[test]
fn a_memory_store_without_a_directory_is_empty_and_has_a_name() {
    let home = Home::new();
    let server = home.serve(&["--memory", "8M"]);
    assert!(server.out().contains("EXPORT /memory rw"), "{}", server.out());
    let server = home.serve(&["--memory", "8M", "--name", "scratch"]);
    let output = home.run(&["call", &format!("{}/scratch", server.line("LISTEN")), "ls"]);
    assert_eq!((output.status.code(), output.stdout), (Some(0), Vec::new()));
}

/// Runs the functional tests on an export.
fn check(home: &Home, url: &str) {
    let output = home.run(&["check", url, "--entries", "60"]);
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!(output.status.code(), Some(0), "{url}: {texts:?}");
}

#[test]
fn a_second_fabric_serves_the_memory_of_the_first_one() {
    let home = Home::new();
    fs::write(home.path("data/file"), b"content").unwrap();
    let shm = format!("shm://{}", home.text("socket"));
    // That of processes is named first, and its shard has the files.
    let serve = ["data", "--memory", "48M", "--nfs", "3,4", "--stats", "stats.json", "--listen"];
    let mut server = home.serve(&[&serve[..], &[&shm]].concat());
    let at = |scheme: &str| {
        let out = server.out();
        let line = out.lines().find_map(|line| line.strip_prefix(&format!("LISTEN {scheme}")));
        format!("{scheme}{}", line.unwrap())
    };
    let urls = [format!("{}:/data", at("shm://")), format!("{}/data", at("iwarp://"))];
    // Both have the same files, whichever of them made one.
    fs::write(home.path("three"), (0..3_000_000_u32).map(|at| (at / 7) as u8).collect::<Vec<_>>())
        .unwrap();
    for (number, url) in urls.iter().enumerate() {
        let other = &urls[1 - number];
        assert_eq!(home.run(&["call", &format!("{url}/file"), "cat"]).stdout, b"content");
        let put = home.run(&["call", url, "put", "--verify", "three"]);
        assert_eq!(put.status.code(), Some(0), "{put:?}");
        let got = home.run(&["call", &format!("{other}/three"), "cat"]).stdout;
        assert!(got == fs::read(home.path("three")).unwrap(), "{url} and {other} differ");
        assert_eq!(home.run(&["call", &format!("{other}/three"), "rm"]).status.code(), Some(0));
        let gone = home.run(&["call", &format!("{url}/three"), "cat"]);
        assert_ne!(gone.status.code(), Some(0), "{url} has what {other} removed");
    }
    urls.iter().for_each(|url| check(&home, url));
    // More calls at a time than the home carries out in a pass, or than have tickets.
    let bench = ["bench", &urls[1], "--workload", "nfs3:getattr", "--connections", "8"];
    let more = ["--depth", "48", "--calls", "20000", "--warm-up", "0"];
    let output = home.run(&[&bench[..], &more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    // A full store is full for both.
    fs::write(home.path("large"), vec![7; 50 << 20]).unwrap();
    let full = String::from_utf8(home.run(&["call", &urls[1], "put", "large"]).stderr).unwrap();
    assert!(full.contains("no space is left (NoSpc)"), "{full}");
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    let stats = json(&home.path("stats.json"));
    let waiting = |shard: usize| stats["shards"][shard]["app"]["waiting"]["put_off"].as_u64();
    assert_eq!(waiting(0), Some(0), "the first shard has the files");
    assert!(waiting(1) > Some(500), "the second asks it: {:?}", waiting(1));
    let app = &stats["total"]["app"]["waiting"];
    assert_eq!((&app["refused"], &app["withdrawn"]), (&0.into(), &0.into()), "{app}");
}

#[test]
fn two_cores_share_the_memory_and_the_ports_by_every_version() {
    if thread::available_parallelism().unwrap().get() < 2 {
        return eprintln!("skipped: one core only");
    }
    for (version, asked) in [("3", "/waiting/put_off"), ("4", "/nfs4/forwarded")] {
        let home = Home::new();
        let serve = ["--memory", "32M", "--cores", "2", "--stats", "stats.json", "--nfs", version];
        let mut server = home.serve(&serve);
        let urls = [server.line("LISTEN"), format!("tcp://{}", server.line("TCP"))];
        let urls = urls.map(|url| format!("{url}/memory"));
        fs::write(home.path("file"), "octets of a file").unwrap();
        let put = home.run(&["call", &urls[0], "put", "file"]);
        assert_eq!(put.status.code(), Some(0), "{put:?}");
        // The kernel chooses the core of a connection: with 40, each core has some.
        for url in urls.iter().cycle().take(40) {
            let output = home.run(&["call", &format!("{url}/file"), "cat"]);
            assert_eq!(output.stdout, b"octets of a file");
        }
        urls.iter().for_each(|url| check(&home, url));
        server.signal(Signal::TERM);
        assert_eq!(server.wait(), Some(0), "{}", server.err());
        let total = &json(&home.path("stats.json"))["total"]["app"];
        assert!(total.pointer(asked).unwrap().as_u64() > Some(0), "{total}");
    }
}

#[test]
fn a_server_in_memory_with_a_state_directory_has_its_control_socket_there() {
    let home = Home::new();
    let server = home.serve(&["--memory", "8M", "--state-dir", "named"]);
    let socket = home.path("named").join("control.sock");
    assert_eq!(server.line("CONTROL"), socket.display().to_string());
    let output = home.run(&["ctl", "--socket", socket.to_str().unwrap(), "status"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
