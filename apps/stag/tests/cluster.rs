//! Two gateways of a cluster before one directory, each a process with a state directory of its
//! own: a client goes from one to the other and finds the same files there.

use crate::{
    caller4::Caller4,
    support::{Home, Server, json},
};
use rustix::process::geteuid;
use stag_client::{ClientConfig, NfsClient};
use stag_engine::clock::Clock;
use stag_iwarp::Iwarp;
use stag_protocol::nfs::v4::Status4;
use std::{fs, os::unix::fs::PermissionsExt};

/// A client of a server over its fabric, as root from a port below 1024.
fn client(server: &Server) -> NfsClient<Iwarp> {
    let (clock, config) = (Clock::start(), ClientConfig::new(1));
    let fabric = stag_iwarp::IwarpConfig::new(config.limits(), [1; 32], clock.now());
    let mut client =
        NfsClient::new(Iwarp::new(fabric).unwrap(), config, move || clock.now()).unwrap();
    client.connect(&server.line("LISTEN").parse().unwrap()).unwrap();
    client
}

/// A gateway with a state directory of this name.
fn gateway(home: &Home, state: &str, more: &[&str]) -> Server {
    let arguments = ["data", "--cluster", "blue.toml", "--insecure", "--state-dir", state];
    home.serve_as_given(&[&arguments[..], more].concat())
}

#[test]
fn a_client_finds_the_same_files_at_the_next_gateway() {
    if !geteuid().is_root() {
        return println!("skipped: gateways of a cluster run as root");
    }
    let home = Home::new();
    let made = home.run(&["cluster", "init", "blue.toml", "--name", "blue", "data"]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let privileged = ["--squash", "none", "--mode", "privileged"];
    let mut first = gateway(&home, "state-1", &privileged);
    let second = gateway(&home, "state-2", &privileged);
    assert!(first.err().contains("\ncluster blue\n"), "{}", first.err());

    let mut here = client(&first);
    let root = here.mount("/data").unwrap();
    let made = here.mkdir(root, b"d", 0o755).unwrap().object.unwrap();
    fs::write(home.path("data/d/f"), b"octets").unwrap();
    let file = here.lookup(made, b"f").unwrap().object;
    let (root_there, file_there) = (here.getattr(root).unwrap(), here.getattr(file).unwrap());
    first.signal(rustix::process::Signal::KILL);
    first.wait();

    let mut there = client(&second);
    assert_eq!(there.getattr(root).unwrap().fsid, root_there.fsid);
    assert_eq!(there.getattr(file).unwrap(), file_there);
    assert_eq!(there.mount("/data").unwrap(), root);
    assert_eq!(there.lookup(made, b"f").unwrap().object, file);
    assert!(there.readdir(made, 4_096).unwrap().iter().any(|entry| entry.name == b"f"));
}

/// Gateways do not share what clients of version 4 have open.
#[test]
fn a_client_of_version_4_that_moves_to_the_next_gateway_is_logged_there_by_its_name() {
    const MOVED: &str = "a client has moved here from another gateway of the cluster";
    if !geteuid().is_root() {
        return println!("skipped: gateways of a cluster run as root");
    }
    let home = Home::new();
    home.run(&["cluster", "init", "blue.toml", "--name", "blue", "data"]);
    let options = ["--squash", "none", "--mode", "privileged", "--nfs", "3,4"];
    let mut first = gateway(&home, "state-1", &options);
    let second = gateway(&home, "state-2", &options);
    let warning = "notice: version 4 with --cluster: the gateways do not share";
    assert!(first.err().contains(warning), "{}", first.err());

    let mut client = Caller4::mounted(&first.line("TCP"), "the one that moves");
    Caller4::mounted(&second.line("TCP"), "the one that stays");
    // Its own gateway is started again.
    first.signal(rustix::process::Signal::KILL);
    first.wait();
    let first = gateway(&home, "state-1", &options);
    client.reconnect(&first.line("TCP"));
    assert_eq!(client.run(&[]).status(), Status4::BadSession);
    client.begin();
    assert_eq!(client.run(&[]).status(), Status4::Ok);
    client.reconnect(&second.line("TCP"));
    assert_eq!(client.run(&[]).status(), Status4::BadSession);
    client.begin();
    second.wait_for_err(MOVED);
    let log = second.err();
    let line = log.lines().find(|line| line.contains(MOVED)).unwrap();
    assert!(line.contains("the one that moves") && line.contains("127.0.0.1"), "{line}");
    assert_eq!(log.matches(MOVED).count(), 1, "{log}");
    assert!(!first.err().contains(MOVED), "{}", first.err());
}

#[test]
fn a_cluster_file_is_made_shown_and_grows() {
    let home = Home::new();
    let run = |arguments: &[&str]| {
        let output = home.run(&[&["cluster"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["init", "blue.toml", "--name", "blue", "data", "home"]);
    let mode = fs::metadata(home.path("blue.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let text = run(&["show", "blue.toml"]);
    assert!(text.starts_with("cluster blue\ndigest  "), "{text}");
    assert!(text.contains("export     1  fsid 0x") && text.ends_with("  /home\n"), "{text}");
    let key = fs::read_to_string(home.path("blue.toml")).unwrap();
    let key = key.lines().find_map(|line| line.strip_prefix("key = ")).unwrap().trim_matches('"');
    assert!(!text.contains(key), "the key is not shown");

    fs::copy(home.path("blue.toml"), home.path("copy.toml")).unwrap();
    assert_eq!(run(&["show", "copy.toml"]), text);
    run(&["add", "blue.toml", "more"]);
    fs::write(home.path("shown.json"), run(&["show", "blue.toml", "--json"])).unwrap();
    let shown = json(&home.path("shown.json"));
    assert_eq!((&shown["name"], &shown["exports"][2]["id"]), (&"blue".into(), &3.into()));
    assert_eq!(shown["exports"][2]["name"], "more");
    assert!(!text.contains(shown["digest"].as_str().unwrap()), "another copy, another digest");
}

#[test]
fn what_cannot_be_a_gateway_of_a_cluster_is_refused() {
    let home = Home::new();
    for (arguments, part) in [
        (&["cluster", "init", "no/blue.toml", "--name", "blue", "data"][..], "cannot write"),
        (&["cluster", "init", "b.toml", "--name", "b b", "data"], "cannot name a cluster"),
        (&["cluster", "init", "b.toml", "--name", "b", "a/b"], "cannot name an export"),
        (&["cluster", "init", "b.toml", "--name", "b", "a", "a"], "an export a already"),
        (&["cluster", "init", "b.toml", "--name", "b"], "<EXPORT>"),
        (&["cluster", "show", "b.toml"], "cannot read b.toml"),
    ] {
        let sentence = home.refused(arguments);
        assert!(sentence.contains(part), "{arguments:?}: {sentence}");
    }
    home.run(&["cluster", "init", "blue.toml", "--name", "blue", "other"]);
    let again = home.refused(&["cluster", "init", "blue.toml", "--name", "red", "other"]);
    assert!(again.contains("blue.toml exists"), "{again}");
    let serve = ["serve", "data", "--listen", "iwarp://127.0.0.1:0", "--cluster", "blue.toml"];
    let unknown = home.refused(&serve);
    assert!(unknown.contains("stag cluster add FILE data"), "{unknown}");
    home.run(&["cluster", "add", "blue.toml", "data"]);
    let unprivileged = home.refused(&[&serve[..], &["--mode", "unprivileged"]].concat());
    assert!(unprivileged.contains("several gateways of the cluster blue"), "{unprivileged}");
    fs::rename(home.path("blue.toml"), home.path("data/blue.toml")).unwrap();
    let exported = home.refused(&[&serve[..4], &["--cluster", "data/blue.toml"]].concat());
    assert!(exported.contains("clients could read its key"), "{exported}");
    fs::rename(home.path("data/blue.toml"), home.path("blue.toml")).unwrap();
    let memory = ["serve", "--memory", "2M", "--cluster", "blue.toml"];
    assert!(home.refused(&memory).contains("cannot be used with"));
    fs::set_permissions(home.path("blue.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(home.refused(&serve).contains("mode 0600"));
}
