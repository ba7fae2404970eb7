//! Arguments that cannot be carried out are refused with one sentence and exit code 2, before
//! anything is served.

use crate::support::Home;
use std::{fs, net::TcpListener};

const FEATURES: &str =
    if cfg!(feature = "verbs") { "; features: verbs;" } else { "; features: none;" };
const FREE: [&str; 4] = ["--listen", "iwarp://127.0.0.1:0", "--tcp", "127.0.0.1:0"];

#[test]
fn every_bad_argument_has_its_sentence() {
    let home = Home::new();
    fs::write(home.path("file"), b"").unwrap();
    fs::create_dir_all(home.path("other/data")).unwrap();
    for (arguments, expected) in [
        (&[][..], "a command is missing: serve or config or demo or call"),
        (&["ctl"], "a command is missing: "),
        (&["serve", "--cores", "x"], "'x' for '--cores <N>': it has to be a whole number"),
        (&["serv"], "unrecognized subcommand 'serv'"),
        (&["serve"], "the following required arguments were not provided: <[NAME=]DIR[:ro]>"),
        (&["serve", "data", "--frobnicate"], "unexpected argument '--frobnicate' found"),
        (&["serve", "data", "--slow", "nope"], "--slow nope: no export has that name"),
        (
            &["serve", "data", "--nfs", "3", "--delegations", "data=exclusive"],
            "are of version 4: leave --nfs 3 out",
        ),
        (
            &["serve", "data", "--nfs", "4", "--delegations", "nope=exclusive"],
            "--delegations nope=exclusive: no export has that name",
        ),
        (
            &["serve", "data", "--nfs", "4", "--delegations", "data=all"],
            "write exclusive, watched or none behind the name",
        ),
        (
            &["serve", "--memory", "64M", "--nfs", "4", "--delegations", "memory=watched"],
            "--delegations memory=watched: a store in memory gives delegations in any case",
        ),
        (&["serve", "data", "--helpers", "0"], "invalid value '0' for '--helpers <N>'"),
        (&["serve", "data", "--cores", "0"], "invalid value '0' for '--cores <N>'"),
        (&["serve", "data", "--cores", "1024"], "--cores 1024 is more than the "),
        (&["serve", "missing"], "the directory missing does not exist: make it"),
        (&["serve", "missing:ro"], "the directory missing does not exist: make it"),
        (&["serve", "file"], "file is not a directory"),
        (&["serve", "file/x"], "cannot look at the directory file/x: not a directory"),
        (&["serve", "data", "other/data"], "/other/data would both be exported as /data"),
        (&["serve", "data", "data"], "would both be exported as /data"),
        (&["serve", "data", "other", "--name", "x"], "--name is for a single DIR"),
        (&["serve", "data", "--name", "a//b"], "cannot name an export"),
        (&["serve", "/"], "/ has no name that it could be exported by: give one, as NAME=/"),
        (
            &["serve", "data", "--listen", "udp://127.0.0.1:20049"],
            "no scheme udp://, only iwarp://",
        ),
        (&["serve", "data", "--listen", "shm://socket"], "must be absolute"),
        (
            &["serve", "data", "--listen", "127.0.0.1:20049"],
            "has no scheme: this build has iwarp://",
        ),
        (&["serve", "data", "--listen", "iwarp://localhost:1"], "write iwarp://IP:PORT"),
        (&["serve", "data", "--listen", "iwarp://0.0.0.0:0"], "say who may connect with --clients"),
        (&["serve", "data", "--listen", "iwarp://[::]:0"], "say who may connect with --clients"),
        (&["serve", "data", "--tcp", "0.0.0.0:0"], "say who may connect with --clients"),
        (
            &["serve", "data", "--listen", "iwarp://127.0.0.1:7", "--tcp", "127.0.0.1:7"],
            "127.0.0.1:7 is given twice",
        ),
        (&["serve", "data", "--tcp", "2049"], "write IP:PORT"),
        (
            &["serve", "data", "--clients", "10.0.0.0/33"],
            "\"10.0.0.0/33\" in --clients is no network",
        ),
        (&["serve", "data", "--clients", "10.0.0.1/8"], "write 10.0.0.0/8"),
        (&["serve", "data", "--clients", "10.0.0.0/8,host"], "\"host\" in --clients is no network"),
        (
            &["serve", "data", "--clients", "203.0.113.0/24", "--listen", "iwarp://203.0.113.7:0"],
            "no address of this host",
        ),
        (&["serve", "data", "--state-dir", "data/state"], "lies under "),
        (&["serve", "data", "--state-dir", "data"], "lies under "),
        (&["serve", "data", "--state-dir", "file"], "cannot "),
        (&["serve", "data", "--state-dir", "file/x"], "cannot make the state directory"),
        (&["serve", "data", "--stats", "data"], "it is a directory"),
        (&["serve", "data", "--stats", "no/stats"], "its directory does not exist"),
        (&["serve", "--memory", "64"], "less than 1M"),
        (&["serve", "--memory", "lots"], "\"lots\" is no size: write a number with K, M, G or T"),
        (&["serve", "--memory", "100T"], "100T is 104857600 MiB, and this process can have "),
        (&["serve", "--memory", "1M", "--name", "a/b"], "cannot name an export"),
        (&["serve", "--memory", "1M", "--squash", "all"], "--squash means nothing with --memory"),
        (&["serve", "--memory", "1M", "--mode", "auto"], "--mode means nothing with --memory"),
        (&["serve", "--memory", "1M", "--helpers", "4"], "--helpers means nothing with --memory"),
        (
            &["serve", "data", "--nfs", "3", "--lease", "60"],
            "--lease means nothing without version 4: leave --nfs 3 out",
        ),
        (
            &["serve", "data", "--shm-allow", "1000"],
            "--shm-allow means nothing without a listener of shared memory: add --listen shm://",
        ),
        (
            &["serve", "data", "--private-data", "no", "--inline", "4K"],
            "--inline means nothing with --private-data no, which tells no client",
        ),
        (
            &["serve", "data", "--rdma-tos", "104"],
            "--rdma-tos means nothing without a listener of an RDMA device: add --listen rdma://",
        ),
        (
            &["serve", "data", "--tcp", "none", "--tcp-connections", "9"],
            "--tcp-connections means nothing without a listener of TCP",
        ),
        (
            &["serve", "data", "--listen", "shm:///tmp/x", "--tcp", "none", "--steer", "address"],
            "--steer means nothing without a listener of an IP network",
        ),
        (
            &["serve", "data", "--mode", "unprivileged", "--anonuid", "7"],
            "--anonuid means nothing with --mode unprivileged",
        ),
        (&["serve", "data", "--squash", "some"], "write root, none or all instead of \"some\""),
        (&["serve", "data", "--squash", "root,10.0.0.1/8=none"], "write 10.0.0.0/8"),
        (&["serve", "data", "--squash", "host=none"], "\"host\" in --squash is no network"),
        (&["serve", "data", "--squash", "root,all"], "--squash has two rules for all callers"),
        (&["serve", "data", "--squash", "::1=all,::1=none"], "--squash has two rules for ::1"),
        (&["call"], "'stag call' requires a subcommand but one was not provided"),
        (&["call", "iwarp://127.0.0.1:1/x"], "[subcommands: null, health, mount, ls, cat,"),
        (&["call", "127.0.0.1:1/x", "ls"], "write iwarp://HOST:PORT/EXPORT/PATH"),
        (&["call", "shm://x:/data", "ls"], "must be absolute"),
        (&["call", "tcp://127.0.0.1:1/x?port=1", "ls"], "mountport=N, sec="),
        (&["call", "tcp://127.0.0.1:1/x", "put"], "were not provided: <FROM>..."),
        (&["call", "tcp://127.0.0.1:1/x", "cat", "--json"], "leave --json out"),
        (&["demo", "--frobnicate"], "unexpected argument '--frobnicate' found"),
        (&["load", "iwarp://127.0.0.1:20049/data", "--json"], "'stag load' is called 'stag check'"),
        (&["load", "--help"], "'stag load' is called 'stag check'"),
        (&["check"], "the following required arguments were not provided: <URL>"),
        (&["check", "iwarp://127.0.0.1:20049"], "write iwarp://127.0.0.1:20049/NAME"),
        (&["check", "127.0.0.1:20049/x"], "write iwarp://HOST:PORT/EXPORT/PATH"),
        (&["check", "nfs://127.0.0.1/x"], "no scheme nfs://, only iwarp://"),
        (
            &["check", "iwarp://127.0.0.1:1/x", "--entries", "0"],
            "invalid value '0' for '--entries <N>'",
        ),
    ] {
        let mut arguments = arguments.to_vec();
        if arguments.first() == Some(&"serve") {
            // Nothing is served by mistake at ports that others use.
            let given = |flag| arguments.contains(&flag);
            let (listen, tcp) = (given("--listen"), given("--tcp"));
            arguments.extend(if listen { &[][..] } else { &FREE[..2] });
            arguments.extend(if tcp { &[][..] } else { &FREE[2..] });
        }
        let sentence = home.refused(&arguments);
        assert!(sentence.contains(expected), "{arguments:?}: {sentence}");
    }
    assert!(!home.path("data/state").exists(), "no state directory is made under an export");
}

#[test]
fn two_directories_of_one_name_are_both_named() {
    let home = Home::new();
    fs::create_dir_all(home.path("other/data")).unwrap();
    let sentence = home.refused(&["serve", "data", "other/data"]);
    assert!(
        sentence.contains(&home.text("data")) && sentence.contains(&home.text("other/data")),
        "{sentence}"
    );
}

#[test]
fn a_port_that_is_taken_is_named() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let url = format!("iwarp://{at}");
    let cores = std::thread::available_parallelism().unwrap().get().min(2).to_string();
    for cores in ["1", &cores] {
        let sentence =
            home.refused(&["serve", "data", "--cores", cores, "--listen", &url, "--tcp", "none"]);
        assert!(
            sentence.contains(&at) && sentence.contains("another program uses it"),
            "{sentence}"
        );
        let sentence =
            home.refused(&["serve", "data", "--cores", cores, "--listen", FREE[1], "--tcp", &at]);
        assert!(
            sentence.contains(&at) && sentence.contains("another program uses it"),
            "{sentence}"
        );
    }
}

#[test]
fn a_state_directory_has_one_server_at_a_time() {
    let home = Home::new();
    let server = home.serve(&["data"]);
    let sentence = home.refused(&[&["serve", "data"][..], &FREE].concat());
    assert!(sentence.contains("is in use by another server"), "{sentence}");
    drop(server);
    home.serve(&["data"]);
}

#[test]
fn without_home_a_state_directory_has_to_be_given() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root has a state directory of its own");
        return;
    }
    let home = Home::new();
    let output = home
        .stag(&["serve", "data"])
        .env_remove("STAG_STATE_DIR")
        .env_remove("HOME")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("give one with --state-dir"));
}

#[test]
fn help_goes_to_standard_output_and_reads_like_a_manual() {
    let home = Home::new();
    for (arguments, words) in [
        (&["--help"][..], &["EXAMPLES", "EXIT CODES", "STAG_LOG", "serve", "check"][..]),
        (
            &["serve", "--help"],
            &[
                "EXAMPLES",
                "FILES",
                "WHAT IS HELD OPEN",
                "MOUNT POINTS",
                "SIGNALS",
                "SIGXFSZ",
                "STATISTICS",
                "METRICS",
                "CONTROL",
                "LOG",
                "EXIT CODES",
                "--clients",
                "READY",
            ],
        ),
        (&["check", "--help"], &["EXAMPLES", "OUTPUT", "EXIT CODES", "--json"]),
        (
            &["ctl", "--help"],
            &["EXAMPLES", "COLUMNS", "THE SOCKET", "EXIT CODES", "--socket", "top"],
        ),
        (&["--version"], &[env!("CARGO_PKG_VERSION"), "(commit ", FEATURES, "; target: "]),
    ] {
        let output = home.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(output.stderr.is_empty());
        let text = String::from_utf8(output.stdout).unwrap();
        for word in words {
            assert!(text.contains(word), "{arguments:?} says {word}: {text}");
        }
    }
}

#[test]
fn what_is_wrong_names_the_help_that_knows_better() {
    let home = Home::new();
    for (arguments, help) in [
        (&["serve", "data", "--frobnicate"][..], "see 'stag serve --help'"),
        (&["bench", "compare"], "see 'stag bench compare --help'"),
        (&["serv"], "see 'stag --help'"),
        (&["ctl", "drop"], "see 'stag ctl drop --help'"),
    ] {
        let sentence = home.refused(arguments);
        assert!(sentence.ends_with(help), "{sentence}");
    }
}

#[test]
fn a_report_has_all_of_the_host_and_nothing_of_the_environment() {
    let home = Home::new();
    let mut probe = home.stag(&["probe", "--report", "host.json"]);
    let output = probe.env("STAG_SECRET", "do not tell 4711").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = std::fs::read_to_string(home.path("host.json")).unwrap();
    assert!(!text.contains("4711"), "{text}");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["schema"], "stag-report/1");
    assert!(report["stag"].as_str().unwrap().contains("; target: "));
    for part in ["check", "client_check"] {
        assert!(report[part]["checks"].as_array().unwrap().len() > 4, "{part}");
    }
    assert!(report["probe"]["check"]["pass"].as_u64().unwrap() > 0);
    let sentence = home.refused(&["probe", "--report", "no/host.json"]);
    assert!(sentence.contains("its directory does not exist"), "{sentence}");
}

#[test]
fn probe_tells_of_the_others_where_one_fabric_has_no_place() {
    let home = Home::new();
    let probe = |arguments: &[&str]| {
        let output = home
            .stag(&[&["probe", "--json"], arguments].concat())
            .env("TMPDIR", "/no/such")
            .output()
            .unwrap();
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), found, String::from_utf8(output.stderr).unwrap())
    };
    let (code, found, error) = probe(&[]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(
        (&found["fabrics"][0]["works"], &found["fabrics"][1]["works"]),
        (&true.into(), &false.into())
    );
    assert!(found["fabrics"][1]["why"].as_str().unwrap().contains("TMPDIR says where"), "{found}");
    assert_eq!(found["fabrics"][0]["facts"]["needs"], "TCP");
    let (code, _, error) = probe(&["shm"]);
    assert_eq!(code, Some(1), "{error}");
    let (code, found, error) = probe(&["iwrap"]);
    assert_eq!((code, found), (Some(2), serde_json::Value::Null));
    assert!(error.contains("\"iwrap\" is no fabric: there are iwarp, shm, rdma"), "{error}");
}
