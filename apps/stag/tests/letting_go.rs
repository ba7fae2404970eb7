//! A gateway releases resources of its host: space, descriptors, programs, the core.

use crate::support::{Home, Server, wait_for};
use rustix::process::Signal;
use stag_client::{ClientConfig, Error, NfsClient};
use stag_engine::clock::Clock;
use stag_iwarp::Iwarp;
use stag_protocol::nfs::v3::{CreateHow, FileHandle, SetAttributes, StableHow, Status};
use std::{fs, os::unix::fs::PermissionsExt, process::Command, thread, time::Duration};

/// A client over software iWARP, and the root of `/data`.
fn client(server: &Server) -> (NfsClient<Iwarp>, FileHandle) {
    let (clock, config) = (Clock::start(), ClientConfig::new(1));
    let fabric = stag_iwarp::IwarpConfig::new(config.limits(), [1; 32], clock.now());
    let mut client =
        NfsClient::new(Iwarp::new(fabric).unwrap(), config, move || clock.now()).unwrap();
    client.connect(&server.line("LISTEN").parse().unwrap()).unwrap();
    let root = client.mount("/data").unwrap();
    (client, root)
}

fn create(client: &mut NfsClient<Iwarp>, root: FileHandle, name: &[u8]) -> FileHandle {
    let how = CreateHow::Unchecked(SetAttributes { mode: Some(0o755), ..SetAttributes::default() });
    client.create(root, name, how).unwrap().object.unwrap()
}

/// Files of the export that the server has open, but for its root.
fn open_files(home: &Home, server: &Server) -> Vec<String> {
    let below = format!("{}/", home.path("data").display());
    let entries = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let paths = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    paths
        .filter_map(|path| path.to_string_lossy().strip_prefix(&below).map(str::to_owned))
        .collect()
}

#[test]
fn a_file_size_limit_is_an_answer_and_no_end() {
    let home = Home::new();
    let ports = [
        "--listen",
        "iwarp://127.0.0.1:0",
        "--tcp",
        "127.0.0.1:0",
        "--mode",
        "unprivileged",
        "--insecure",
    ];
    let command = home.stag(&[&["serve", "data"], &ports[..]].concat());
    let mut limited = Command::new("sh");
    limited.args(["-c", r#"ulimit -f 2048; exec "$0" "$@""#]).arg(command.get_program());
    limited.args(command.get_args()).current_dir(home.path(""));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let mut server = Server::start(&home, limited);
    let (mut client, root) = client(&server);
    let file = create(&mut client, root, b"file");
    let size = SetAttributes { size: Some(1 << 30), ..SetAttributes::default() };
    let is_too_big = |error: Error| matches!(error, Error::Nfs(Status::FBig));
    assert!(client.setattr(file, size, None).is_err_and(is_too_big));
    assert!(client.write(file, 1 << 30, b"x", StableHow::Unstable).is_err_and(is_too_big));
    assert_eq!(client.write(file, 0, b"x", StableHow::FileSync).unwrap().count, 1);
    assert_eq!(client.getattr(file).unwrap().size, 1);
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
}

#[test]
fn what_is_removed_is_closed_by_every_core_and_stale() {
    if thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("skipped: one core only");
        return;
    }
    let home = Home::new();
    let server = home.serve(&["data", "--cores", "2"]);
    // With eight connections, each core has some.
    let mut clients: Vec<_> = (0..8).map(|_| client(&server)).collect();
    let root = clients[0].1;
    let (first, _) = &mut clients[0];
    let files = [b"removed".as_slice(), b"replaced", b"new"].map(|name| create(first, root, name));
    for file in files {
        first.write(file, 0, &vec![7; 1 << 20], StableHow::FileSync).unwrap();
    }
    let mut room = [0; 100];
    thread::sleep(Duration::from_millis(60));
    for (client, _) in &mut clients {
        for file in files {
            assert_eq!(client.read(file, 0, &mut room).unwrap().count, 100);
        }
    }
    assert!(open_files(&home, &server).len() >= 6);
    let (first, _) = &mut clients[0];
    first.remove(root, b"removed").unwrap();
    first.rename(root, b"new", root, b"replaced").unwrap();
    wait_for("the end of what is removed", || {
        !open_files(&home, &server).iter().any(|name| name.ends_with(" (deleted)"))
    });
    for (client, _) in &mut clients {
        for file in &files[..2] {
            assert!(
                client
                    .getattr(*file)
                    .is_err_and(|error| matches!(error, Error::Nfs(Status::Stale)))
            );
        }
        assert_eq!(client.getattr(files[2]).unwrap().size, 1 << 20);
    }
}

#[test]
fn a_program_stored_over_nfs_runs_while_a_client_reads_it() {
    let home = Home::new();
    let server = home.serve(&["data"]);
    let (mut client, root) = client(&server);
    let program = fs::read("/bin/true").unwrap();
    let file = create(&mut client, root, b"program");
    for (number, part) in program.chunks(1 << 16).enumerate() {
        client.write(file, (number as u64) << 16, part, StableHow::Unstable).unwrap();
    }
    client.commit(file, 0, 0).unwrap();
    let path = home.path("data/program");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
    let mut room = [0; 100];
    wait_for("an execution", || {
        client.read(file, 0, &mut room).unwrap();
        thread::sleep(Duration::from_millis(100));
        Command::new(&path).status().is_ok_and(|status| status.success())
    });
}

#[test]
fn a_gateway_that_nobody_calls_has_nothing_open_and_sleeps() {
    let home = Home::new();
    let server = home.serve(&["data"]);
    let (mut client, root) = client(&server);
    for number in 0..500 {
        let file = create(&mut client, root, format!("file-{number}").as_bytes());
        client.write(file, 0, b"content", StableHow::FileSync).unwrap();
    }
    // The files written first may be closed already if this took long.
    assert!(!open_files(&home, &server).is_empty());
    // A local process makes room; the gateway gets no notification.
    for number in 0..250 {
        fs::remove_file(home.path(&format!("data/file-{number}"))).unwrap();
    }
    wait_for("the end of what nobody uses", || open_files(&home, &server).is_empty());

    // Fields 14 and 15 of proc(5) stat: ticks of a hundredth of a second, in user and in kernel
    // mode.
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
        let behind_name = stat.rsplit_once(')').unwrap().1;
        let ticks = behind_name.split_whitespace().skip(11).take(2);
        ticks.map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>()
    };
    let (before, switches) = (ticks(), context_switches(&server));
    thread::sleep(Duration::from_secs(3));
    let used = ticks() - before;
    assert!(used <= 10, "{used} hundredths of three idle seconds were used");
    // Its core wakes once a second by itself, as it always did.
    let woken = context_switches(&server) - switches;
    assert!(woken <= 12, "{woken} times woken in three idle seconds");
    assert_eq!(client.getattr(root).unwrap().nlink, 2);
}

/// Waits of all threads of the server since its start.
fn context_switches(server: &Server) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let status = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    let count = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    status.map(count).sum()
}
