//! Admission by ports and networks, and the check that the manual begins with.

use crate::support::{Home, PATIENCE, Server, wait_for};
use rustix::{
    process::{Gid, Uid},
    thread::{set_thread_res_gid, set_thread_res_uid},
};
use stag_client::{ClientConfig, Error, NfsClient};
use stag_engine::clock::Clock;
use stag_iwarp::Iwarp;
use stag_protocol::nfs::v3::Status;
use stag_verbs::Cause;
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    process::Command,
    thread,
    time::Duration,
};

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root serves callers as themselves");
    }
    is_root
}

/// Connects over iWARP from a port that any user can take.
fn knock(server: &Server) -> Result<(), Error> {
    let (clock, mut config) = (Clock::start(), ClientConfig::new(1));
    (config.timeout, config.shard.reserved_port) = (PATIENCE, false);
    let fabric = stag_iwarp::IwarpConfig::new(config.limits(), [1; 32], clock.now());
    let mut client =
        NfsClient::new(Iwarp::new(fabric).unwrap(), config, move || clock.now()).unwrap();
    client.connect(&server.line("LISTEN").parse().unwrap())?;
    client.null()
}

/// Calls NULL of `program` over TCP from such a port. False when the server closes the connection
/// instead of answering.
fn is_answered(server: &Server, program: u32) -> bool {
    let mut stream = TcpStream::connect(server.line("TCP")).unwrap();
    assert!(stream.local_addr().unwrap().port() >= 1_024);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let call = [0x8000_0028, 7, 0, 2, program, 3, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    // A server that closed already resets the connection on a write.
    let sent = stream.write_all(&call);
    let mut reply = Vec::new();
    let read = (&stream).take(28).read_to_end(&mut reply);
    sent.is_ok() && read.is_ok() && reply.len() == 28
}

/// Capabilities that are effective or can be made so, of each thread (proc_pid_status(5)).
fn capabilities(server: &Server) -> Vec<u64> {
    let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let of = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:\t")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    // A thread may end meanwhile.
    let texts =
        threads.filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("status")).ok());
    texts.map(of).collect()
}

#[test]
fn insecure_is_a_notice_where_memory_is_served() {
    let home = Home::new();
    let server = home.serve_as_given(&["--memory", "16M", "--insecure"]);
    assert!(server.err().contains("notice: --insecure changes nothing"), "{}", server.err());
}

#[test]
fn a_server_of_root_keeps_the_capabilities_that_it_needs_and_no_other() {
    if !is_root() {
        return;
    }
    // capabilities(7): files, then CAP_SETGID and CAP_SETUID, CAP_NET_BIND_SERVICE, CAP_IPC_LOCK.
    const FILES: u64 = 0x1f | 1 << 9 | 1 << 14 | 1 << 24 | 1 << 27 | 1 << 32;
    const USERS: u64 = 1 << 6 | 1 << 7;
    const LOW_PORTS: u64 = 1 << 10;
    let home = Home::new();
    for (arguments, more) in [
        (&["data", "--mode", "unprivileged", "--insecure"][..], 0),
        (&["data", "--mode", "privileged", "--insecure"], USERS),
        (&["--memory", "8M"], 0),
    ] {
        let server = home.serve_as_given(arguments);
        let all = capabilities(&server);
        assert!(!all.is_empty());
        for kept in all {
            // A container may have fewer to begin with.
            assert_eq!(kept & !(FILES | more), 0, "{arguments:?}: {kept:x}");
        }
    }
    let arguments = ["serve", "data", "--mode", "unprivileged", "--insecure", "--tcp", "none"];
    let server = Server::start(&home, home.stag(&[&arguments[..], &["--listen", LOW]].concat()));
    assert!(capabilities(&server).iter().all(|kept| kept & !(FILES | LOW_PORTS) == 0));
}

/// A port that only root can take, of a loopback address of its own.
const LOW: &str = "iwarp://127.77.0.1:1023";
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

#[test]
fn where_callers_could_act_as_others_they_need_a_reserved_port_over_every_transport() {
    if !is_root() {
        return;
    }
    for mode in ["privileged", "unprivileged"] {
        let home = Home::new();
        let server = home.serve_as_given(&["data", "--mode", mode]);
        assert_eq!(
            (is_answered(&server, NFS), is_answered(&server, MOUNT)),
            (false, false),
            "{mode}"
        );
        assert_eq!(knock(&server), Err(Error::NotConnected(Some(Cause::Rejected))), "{mode}");
        let err = server.err();
        assert!(err.contains("refused: its port is above 1023"), "{err}");
        assert!(err.contains("refused: it calls from this host, by a port above 1023"), "{err}");
        assert!(err.contains("notice: callers have to connect from ports below 1024"), "{err}");
        assert!(
            server.out().contains("# Linux mounts over RDMA from a port above 1023"),
            "{}",
            server.out()
        );
        for url in [server.line("LISTEN"), format!("tcp://{}", server.line("TCP"))] {
            let output = home.run(&["call", &format!("{url}/data"), "ls"]);
            let err = String::from_utf8_lossy(&output.stderr);
            assert_eq!(
                output.status.code(),
                Some(0),
                "our own calls as root come from such a port: {err}"
            );
        }
        let server = home.serve_insecurely(mode);
        assert_eq!(
            (is_answered(&server, NFS), is_answered(&server, MOUNT)),
            (true, true),
            "{mode}"
        );
        assert_eq!(knock(&server), Ok(()), "{mode}");
        assert!(
            server.err().contains("notice: --insecure: every user of a client's host can act as ")
        );
    }
}

trait Insecure {
    fn serve_insecurely(&self, mode: &str) -> Server;
}

impl Insecure for Home {
    fn serve_insecurely(&self, mode: &str) -> Server {
        self.serve_as_given(&[
            "data",
            "--mode",
            mode,
            "--insecure",
            "--state-dir",
            &self.text("other"),
        ])
    }
}

#[test]
fn processes_of_other_users_are_let_in_only_where_that_is_said() {
    let home = Home::new();
    let shm = format!("shm://{}", home.text("socket"));
    let serve = ["serve", "data", "--listen", &shm, "--tcp", "none", "--shm-allow", "1000"];
    if is_root() {
        let sentence = home.refused(&serve);
        assert!(
            sentence.contains("--shm-allow 1000: ") && sentence.contains("add --insecure"),
            "{sentence}"
        );
        Server::start(&home, home.stag(&[&serve[..], &["--insecure"]].concat()));
    }
}

#[test]
fn loopback_is_no_exception_to_a_list_of_clients() {
    let home = Home::new();
    let server = home.serve(&["data", "--clients", "10.0.0.0/8,fd00::/8"]);
    assert!(!is_answered(&server, NFS));
    assert_eq!(knock(&server), Err(Error::NotConnected(Some(Cause::Rejected))));
    server.wait_for_err("refused: not in --clients");
    for url in [server.line("LISTEN"), format!("tcp://{}", server.line("TCP"))] {
        let output = home.run(&["call", &format!("{url}/data"), "ls"]);
        let sentence = String::from_utf8(output.stderr).unwrap();
        assert!(
            sentence.contains("the server's log says why: is this host in its --clients"),
            "{sentence}"
        );
    }
    let server = home.serve(&[
        "data",
        "--clients",
        "10.0.0.0/8,127.0.0.0/8",
        "--state-dir",
        &home.text("other"),
    ]);
    assert_eq!((is_answered(&server, NFS), knock(&server)), (true, Ok(())));
}

#[test]
fn the_first_check_of_the_manual_passes_whoever_runs_it() {
    let home = Home::new();
    // A server that root starts without `--mode` lets no client write.
    let mode: &[&str] = if rustix::process::geteuid().is_root() {
        &["data", "--mode", "privileged"]
    } else {
        &["data"]
    };
    let server = home.serve_as_given(mode);
    let output =
        home.run(&["check", &format!("{}/data", server.line("LISTEN")), "--entries", "60"]);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert_eq!(fs::read_dir(home.path("data")).unwrap().count(), 0);
}

#[test]
fn a_run_that_is_squashed_says_so_where_it_happens() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let server = home.serve_as_given(&["data", "--squash", "root"]);
    let url = format!("{}/data", server.line("LISTEN"));
    let output = home.run(&["check", &url]);
    let out = String::from_utf8(output.stdout).unwrap();
    let failed = out.lines().find(|line| line.starts_with("FAILED  workspace")).unwrap();
    assert!(failed.contains("we call as uid 0") && failed.contains("--squash none"), "{failed}");
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert!(
        sentence.contains("were not tried") && sentence.contains("; the first: workspace: MKDIR"),
        "{sentence}"
    );
    let output = home.run(&["bench", &url, "--workload", "nfs3:getattr"]);
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert!(sentence.contains("MKDIR") && sentence.contains("--squash none"), "{sentence}");
}

#[test]
fn settings_of_users_are_refused_where_the_process_cannot_act_as_others() {
    let home = Home::new();
    fs::set_permissions(home.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(home.path("stag.toml"), "[[export]]\npath = \"data\"\nsquash = \"all\"\n").unwrap();
    for (arguments, part) in [
        (&["data", "--squash", "root"][..], "--squash means nothing where every caller acts as"),
        (&["data", "--anonuid", "7"], "--anonuid means nothing where every caller acts as"),
        (&["--config", "stag.toml"], "stag.toml:3: squash of an export means nothing where every"),
        (&["data"], ""),
    ] {
        let ports = ["--listen", "iwarp://127.0.0.1:0", "--tcp", "127.0.0.1:0", "--check"];
        let mut command = home.stag(&[&["serve"], arguments, &ports].concat());
        if rustix::process::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        let Ok(output) = command.output() else {
            eprintln!("skipped: the command is out of reach of another user");
            return;
        };
        let sentence = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), part.is_empty(), "{arguments:?}: {sentence}");
        assert!(sentence.contains(part), "{arguments:?}: {sentence}");
    }
}

#[test]
fn root_is_squashed_unless_only_root_of_this_host_can_say_that_it_is_root() {
    if !is_root() {
        return;
    }
    for (arguments, expected) in [
        (&[][..], "root as root"),
        (&["--insecure"], "root as 65534:65534"),
        (&["--squash", "root"], "root as 65534:65534"),
        (&["--squash", "all"], "but all as 65534:65534"),
        (&["--anonuid", "7"], "root as 7:65534"),
        (&["--listen", "iwarp://0.0.0.0:0", "--clients", "127.0.0.0/8"], "root as 65534:65534"),
    ] {
        let home = Home::new();
        let server = home.serve_as_given(&[&["data", "--mode", "privileged"], arguments].concat());
        assert!(server.err().contains(expected), "{arguments:?}: {}", server.err());
    }
}

#[test]
fn an_address_of_both_families_is_served_and_mounted_by_either() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this host has no IPv6");
        return;
    }
    let home = Home::new();
    let arguments =
        ["serve", "data", "--mode", "unprivileged", "--insecure", "--clients", "127.0.0.0/8,::1"];
    let at = ["--listen", "iwarp://[::]:0", "--tcp", "[::]:0"];
    let server = Server::start(&home, home.stag(&[&arguments[..], &at].concat()));
    let port = |word: &str| server.line(word).rsplit_once(':').unwrap().1.to_owned();
    let (rdma, tcp) = (port("LISTEN"), port("TCP"));
    for host in ["127.0.0.1", "[::1]"] {
        for url in [format!("iwarp://{host}:{rdma}/data"), format!("tcp://{host}:{tcp}/data")] {
            let output = home.run(&["call", &url, "ls"]);
            assert_eq!(
                output.status.code(),
                Some(0),
                "{url}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    for options in [
        format!("-o rdma,port={rdma} "),
        format!("-o proto=rdma6,port={rdma} "),
        format!("-o port={tcp} "),
    ] {
        assert!(server.out().contains(&options), "{options} is in {}", server.out());
    }
    let output = home.run(&["ctl", "mounts", "--nfs", "3"]);
    let three = String::from_utf8(output.stdout).unwrap();
    for options in [
        format!("-o rdma,port={rdma},vers=3,nolock,mountport={tcp},mountproto=tcp "),
        format!("-o proto=rdma6,port={rdma},vers=3,nolock,mountport={tcp},mountproto=tcp6 "),
        format!("-o proto=tcp,port={tcp},vers=3,nolock,mountport={tcp},mountproto=tcp "),
        format!("-o proto=tcp6,port={tcp},vers=3,nolock,mountport={tcp},mountproto=tcp6 "),
    ] {
        assert!(three.contains(&options), "{options} is in {three}");
    }
}

/// Reads `/data/file` over iWARP as a user in no group but the first, from a thread that is his.
fn read_as(uid: u32, server: &Server) -> Result<(), Error> {
    let at = server.line("LISTEN").parse().unwrap();
    let read = move || {
        set_thread_res_gid(Gid::from_raw(uid), Gid::from_raw(uid), Gid::from_raw(uid)).unwrap();
        set_thread_res_uid(Uid::from_raw(uid), Uid::from_raw(uid), Uid::from_raw(uid)).unwrap();
        let (clock, mut config) = (Clock::start(), ClientConfig::new(uid));
        (config.timeout, config.shard.reserved_port) = (PATIENCE, false);
        let fabric = stag_iwarp::IwarpConfig::new(config.limits(), [1; 32], clock.now());
        let mut client =
            NfsClient::new(Iwarp::new(fabric).unwrap(), config, move || clock.now()).unwrap();
        client.connect(&at)?;
        let mut read = || {
            let root = client.mount("/data")?;
            let file = client.lookup(root, b"file")?.object;
            client.read(file, 0, &mut [0; 16]).map(drop)
        };
        loop {
            match read() {
                Err(Error::Nfs(Status::Jukebox)) => thread::sleep(Duration::from_millis(5)),
                done => return done,
            }
        }
    };
    thread::spawn(read).join().unwrap()
}

#[test]
fn a_user_in_thirty_groups_of_this_host_reads_what_the_last_of_them_may_read() {
    if !is_root() {
        return;
    }
    let namespace = Command::new("unshare").args(["--mount", "true"]).output();
    if !namespace.is_ok_and(|done| done.status.success()) {
        return eprintln!("skipped: no mount namespace can be made here");
    }
    const READER: u32 = 61_777;
    const GROUP: u32 = 62_029;
    let home = Home::new();
    // A name service that knows one user more, for the server alone.
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let user = format!("stag-reader:x:{READER}:{READER}::/:/bin/false\n");
    fs::write(home.path("passwd"), passwd + &user).unwrap();
    let group = |number: u32| format!("stag-{number}:x:{number}:stag-reader\n");
    let groups: String = (62_000..=GROUP).map(group).collect();
    fs::write(home.path("group"), fs::read_to_string("/etc/group").unwrap() + &groups).unwrap();
    fs::write(home.path("data/file"), "for the last group").unwrap();
    chown(home.path("data/file"), None, Some(GROUP)).unwrap();
    for (name, mode) in [("", 0o755), ("data", 0o755), ("data/file", 0o640)] {
        fs::set_permissions(home.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (source, expected) in [("host", Ok(())), ("client", Err(Error::Nfs(Status::Acces)))] {
        let arguments = ["serve", "data", "--mode", "privileged", "--insecure", "--groups", source];
        let ports = ["--listen", "iwarp://127.0.0.1:0", "--tcp", "none"];
        let inner = home.stag(&[&arguments[..], &ports].concat());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec"]);
        command.arg(
            "mount --bind passwd /etc/passwd; mount --bind group /etc/group; exec \"$0\" \"$@\"",
        );
        command.arg(inner.get_program()).args(inner.get_args()).current_dir(home.path(""));
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let server = Server::start(&home, command);
        assert_eq!(read_as(READER, &server), expected, "{source}: {}", server.err());
        assert_eq!(
            server.err().contains("with the groups that it knows them by"),
            source == "host"
        );
    }
    let refused = home.refused(&["serve", "data", "--mode", "unprivileged", "--groups", "host"]);
    assert!(refused.contains("--groups host means nothing with --mode unprivileged"), "{refused}");
}

#[test]
fn an_address_has_as_many_connections_as_it_may() {
    let home = Home::new();
    let server = home.serve(&["data", "--connections-per-address", "2"]);
    let at = server.line("TCP");
    let is_ended = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        match stream.read(&mut [0]) {
            Ok(octets) => octets == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    };
    let held = [(); 2].map(|()| TcpStream::connect(&at).unwrap());
    assert!(is_ended(TcpStream::connect(&at).unwrap()));
    server.wait_for_err("its address has 2 connections already (--connections-per-address)");
    drop(held);
    wait_for("a place", || home.run(&["call", &format!("tcp://{at}/data"), "ls"]).status.success());
}
