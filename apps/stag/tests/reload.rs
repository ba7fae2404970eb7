//! Settings that are read again while calls are in flight.

use crate::caller::{Caller, MOUNT, NFS, NFS3_OK, opaque, word, words};
use crate::support::{Home, PATIENCE, Server, wait_for};
use rustix::process::Signal;
use stag_client::{ClientConfig, Error, NfsClient};
use stag_engine::clock::Clock;
use stag_iwarp::{Iwarp, IwarpConfig};
use stag_protocol::nfs::v3::FileHandle;
use std::{
    env, fs,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Times that the settings are read again under load.
const RELOADS: usize = 1_000;
/// Reloads after which memory is measured again.
const SPAN: usize = 125;
/// Octets of memory that each reload may leak.
const LEAK_MAX: usize = 512;
/// Calls in flight.
const CALLS: u32 = 64;
/// Octets of a WRITE, and WRITEs that fill a file.
const BLOCK: usize = 4_096;
const BLOCKS: u32 = 1_024;

const HEAD: &str = "listen = [\"iwarp://127.0.0.1:0\"]\ntcp = \"127.0.0.1:0\"\n\
                    mode = \"unprivileged\"\ninsecure = true\n";
const DATA: &str = "[[export]]\npath = \"data\"\n";

fn settings(home: &Home, text: &str) {
    // As a whole: a file that is half written is another test.
    fs::write(home.path("new.toml"), text).unwrap();
    fs::rename(home.path("new.toml"), home.path("stag.toml")).unwrap();
}

fn server(home: &Home, text: &str) -> Server {
    fs::create_dir_all(home.path("more")).unwrap();
    settings(home, text);
    Server::start(home, home.stag(&["serve", "--config", "stag.toml"]))
}

/// A client over iWARP, from a port that any user can take.
fn client(server: &Server) -> NfsClient<Iwarp> {
    client_of(server, 1)
}

/// One whose XIDs are its own: calls of one host with the same XID are one call.
fn client_of(server: &Server, number: u8) -> NfsClient<Iwarp> {
    let (clock, mut config) = (Clock::start(), ClientConfig::new(u32::from(number) << 16));
    (config.timeout, config.shard.reserved_port) = (PATIENCE, false);
    let fabric = IwarpConfig::new(config.limits(), [number; 32], clock.now());
    let mut client =
        NfsClient::new(Iwarp::new(fabric).unwrap(), config, move || clock.now()).unwrap();
    client.connect(&server.line("LISTEN").parse().unwrap()).unwrap();
    client
}

fn said(server: &Server, text: &str) -> usize {
    server.err().matches(text).count()
}

/// Has the settings read again, and waits until the log says `expected` once more.
fn reload(server: &Server, expected: &str) {
    let before = said(server, expected);
    server.signal(Signal::HUP);
    wait_for(expected, || said(server, expected) > before);
}

/// Mounts an export as soon as the shard has the new ones.
fn mounts(client: &mut NfsClient<Iwarp>, path: &str) -> FileHandle {
    let mut root = None;
    wait_for(path, || {
        root = client.mount(path).ok();
        root.is_some()
    });
    root.unwrap()
}

fn descriptors(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

fn threads(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().count()
}

#[test]
fn exports_come_and_go_while_others_are_used_and_a_bad_file_changes_nothing() {
    let home = Home::new();
    let mut server = server(&home, &format!("{HEAD}{DATA}"));
    let mut client = client(&server);
    let data = client.mount("/data").unwrap();
    settings(&home, &format!("{HEAD}{DATA}[[export]]\npath = \"more\"\nname = \"p/more\"\n"));
    reload(&server, "settings read again: added /p/more");
    let more = mounts(&mut client, "/p/more");
    for (text, why) in [
        ("cores = \n", "stag.toml:10: "),
        ("access = \"no\"\n", "stag.toml:10: write \"ro\" or \"rw\""),
        ("[[export]]\npath = \"gone\"\n", "stag.toml:10: the directory gone does not exist"),
        ("[limits]\ncredits = 7\n", "stag.toml:11: --credits cannot change while the server runs"),
        ("[limits]\nmemory-max = \"9G\"\n", "stag.toml:11: --memory-max cannot change while"),
    ] {
        let good = fs::read_to_string(home.path("stag.toml")).unwrap();
        settings(&home, &format!("{good}{text}"));
        reload(&server, &format!("settings stay as they are: {why}"));
        settings(&home, &good);
        assert!(client.getattr(data).is_ok() && client.getattr(more).is_ok(), "{text}");
    }
    settings(&home, &format!("{HEAD}{DATA}access = \"ro\"\n"));
    reload(&server, "settings read again: removed /p/more; changed /data");
    wait_for("the end of an export", || client.getattr(more).is_err());
    wait_for("a read-only export", || client.mkdir(data, b"made", 0o755).is_err());
    assert!(client.getattr(data).is_ok());
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
}

#[test]
fn times_of_shards_change_and_exports_that_come_to_lie_in_each_other_are_told_once() {
    let home = Home::new();
    let mut server = server(&home, &format!("{HEAD}{DATA}"));
    fs::create_dir(home.path("data/inner")).unwrap();
    let inner = format!("{HEAD}{DATA}[[export]]\npath = \"data/inner\"\n");
    settings(&home, &inner);
    reload(&server, "settings read again: added /inner");
    let told = "exports overlap";
    assert_eq!(said(&server, told), 1, "{}", server.err());
    settings(&home, &format!("{inner}[timeouts]\ndrain = 3600\n[idle]\nspin = 0\n"));
    reload(&server, "settings read again: drain and spin as they are there");
    assert_eq!(said(&server, told), 1, "it was told: {}", server.err());
    settings(&home, &format!("{inner}[timeouts]\ndrain = 0\n[idle]\nspin = \"auto\"\n"));
    let changes = ctl(&home, "reload").unwrap();
    assert_eq!(changes["times_changed"], true);
    assert_eq!(ctl(&home, "reload").unwrap()["times_changed"], false);
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
}

#[test]
fn every_shard_takes_up_what_was_read() {
    if stag_engine::launch::cores().len() < 2 {
        return eprintln!("skipped: there is one core");
    }
    let home = Home::new();
    let head = format!("cores = 2\n{HEAD}");
    let server = server(&home, &format!("{head}{DATA}"));
    // The system spreads connections over the shards.
    let mut clients: Vec<_> = (1..9).map(|number| client_of(&server, number)).collect();
    let roots: Vec<_> = clients.iter_mut().map(|it| it.mount("/data").unwrap()).collect();
    settings(&home, &format!("{head}{DATA}access = \"ro\"\n[[export]]\npath = \"more\"\n"));
    reload(&server, "settings read again: added /more; changed /data");
    for (client, root) in clients.iter_mut().zip(&roots) {
        mounts(client, "/more");
        assert!(client.getattr(*root).is_ok());
        wait_for("a read-only export", || client.mkdir(*root, b"made", 0o755).is_err());
    }
    settings(&home, &format!("{head}[[export]]\npath = \"more\"\n"));
    reload(&server, "settings read again: removed /data");
    for (client, root) in clients.iter_mut().zip(&roots) {
        wait_for("the end of an export", || client.getattr(*root).is_err());
        mounts(client, "/more");
    }
}

#[test]
fn who_is_no_client_any_more_is_disconnected_and_cannot_come_back() {
    let home = Home::new();
    let with = |clients: &str| format!("clients = [{clients}]\n{HEAD}{DATA}");
    let server = server(&home, &with("\"127.0.0.0/8\""));
    let mut first = client(&server);
    let data = first.mount("/data").unwrap();
    settings(&home, &with("\"10.0.0.0/8\""));
    reload(&server, "other clients may connect");
    wait_for("the end of the connection", || first.getattr(data).is_err());
    let again = first.connect(&server.line("LISTEN").parse().unwrap());
    assert!(matches!(again, Err(Error::NotConnected(_))), "{again:?}");
    server.wait_for_err("not a client any more");
    settings(&home, &with("\"10.0.0.0/8\", \"127.0.0.1\""));
    reload(&server, "other clients may connect");
    assert!(client(&server).getattr(data).is_ok());
}

/// Octets of the server's own that are in memory: pages of the program's file come by themselves.
fn resident(server: &Server) -> usize {
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", server.pid())).unwrap();
    let line = rollup.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// The handle of what an export has by this name, as an argument.
fn handle(caller: &mut Caller, export: &str, name: &str) -> Vec<u8> {
    let root = caller.handle(MOUNT, 1, &opaque(export.as_bytes()));
    caller.handle(NFS, 3, &[root, opaque(name.as_bytes())].concat())
}

/// WRITEs of a file, of which [`CALLS`] are always in flight.
struct Writes {
    caller: Caller,
    file: Vec<u8>,
    sent: u32,
}

impl Writes {
    fn new(mut caller: Caller, name: &str) -> Self {
        let file = handle(&mut caller, "/data", name);
        let mut writes = Self { caller, file, sent: 0 };
        (0..CALLS).for_each(|_| writes.send());
        writes
    }

    /// Content of the file when all of its blocks are written.
    fn content() -> Vec<u8> {
        (0..BLOCKS).flat_map(Self::block).collect()
    }

    fn block(number: u32) -> Vec<u8> {
        words(&[number]).repeat(BLOCK / 4)
    }

    fn send(&mut self) {
        let block = self.sent % BLOCKS;
        // Offset, count, UNSTABLE.
        let place = words(&[0, block * BLOCK as u32, BLOCK as u32, 0]);
        let arguments = [self.file.clone(), place, opaque(&Self::block(block))].concat();
        self.caller.send(self.sent, NFS, 7, &arguments);
        self.sent += 1;
    }

    /// Takes a reply and makes another call.
    fn turn(&mut self) {
        self.take();
        self.send();
    }

    fn take(&mut self) {
        let (_, results) = self.caller.take();
        assert_eq!(word(&results, 0), NFS3_OK, "no call fails");
    }

    /// Takes the replies to all calls, at least one for each block, and commits the data: until
    /// then the server keeps the file open.
    fn finish(mut self) {
        while self.sent < BLOCKS {
            self.turn();
        }
        (0..CALLS).for_each(|_| self.take());
        let commit = [self.file, words(&[0, 0, 0])].concat();
        assert_eq!(word(&self.caller.call(NFS, 21, &commit), 0), NFS3_OK);
    }
}

#[test]
fn a_thousand_reloads_under_load_lose_no_call_and_leak_nothing() {
    let home = Home::new();
    let files = [
        format!("{HEAD}{DATA}"),
        format!("{HEAD}{DATA}[[export]]\npath = \"more\"\nclients = [\"10.0.0.0/8\"]\n"),
    ];
    fs::write(home.path("data/file"), "").unwrap();
    let server = server(&home, &files[0]);
    let mut client = client(&server);
    let data = client.mount("/data").unwrap();
    let mut writes = Writes::new(Caller::new(&server), "file");
    let mut round = |number: usize| {
        settings(&home, &files[(number + 1) % 2]);
        let before = said(&server, "settings read again");
        server.signal(Signal::HUP);
        client.getattr(data).unwrap();
        (0..CALLS).for_each(|_| writes.turn());
        while said(&server, "settings read again") == before {
            writes.turn();
        }
    };
    // The first rounds open what stays open.
    (0..2).for_each(&mut round);
    let before = (descriptors(&server), threads(&server));
    let mut marks = Vec::new();
    for number in 0..RELOADS {
        if number % SPAN == 0 {
            marks.push(resident(&server));
        }
        round(number);
    }
    marks.push(resident(&server));
    println!("octets in memory after each {SPAN} reloads: {marks:?}");
    // The allocator takes more at once now and then; a leak grows in every span.
    let least = marks.windows(2).map(|ends| ends[1].saturating_sub(ends[0])).min().unwrap();
    assert!(least <= SPAN * LEAK_MAX, "{marks:?}");
    assert_eq!(said(&server, "settings stay as they are"), 0, "{}", server.err());
    wait_for("no more descriptors and threads than before", || {
        descriptors(&server) <= before.0 && threads(&server) <= before.1
    });
    writes.finish();
    assert!(fs::read(home.path("data/file")).unwrap() == Writes::content());
}

/// Ends what others do, also when a test fails.
struct EndAtDrop<'a>(&'a AtomicBool);

impl Drop for EndAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes a file over iWARP, 64 calls at a time, until `is_over` is set.
fn put_until(home: &Home, url: &str, is_over: &AtomicBool) {
    let octets = Writes::content().repeat(8);
    fs::write(home.path("file"), &octets).unwrap();
    while !is_over.load(Ordering::Relaxed) {
        let mut put = home.stag(&["call", url, "put", "--depth", "64", "file"]);
        let done = put.stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(fs::read(home.path("data/file")).unwrap() == octets, "every octet is there");
    }
}

#[test]
fn a_sighup_twice_a_second_loses_none_of_64_calls_in_flight() {
    // A minute where the gate runs.
    let signals = if env::var_os("CI").is_some() { 120 } else { 10 };
    let home = Home::new();
    let files = [format!("{HEAD}{DATA}"), format!("{HEAD}{DATA}[[export]]\npath = \"more\"\n")];
    fs::write(home.path("data/written"), "").unwrap();
    let server = server(&home, &files[0]);
    let url = format!("{}/data", server.line("LISTEN"));
    let reload_after = |number: usize| {
        thread::sleep(Duration::from_millis(500));
        settings(&home, &files[(number + 1) % 2]);
        reload(&server, "settings read again");
    };
    // The first ones open what stays open.
    (0..2).for_each(reload_after);
    let before = (descriptors(&server), threads(&server));
    let is_over = AtomicBool::new(false);
    let mut writes = Writes::new(Caller::new(&server), "written");
    thread::scope(|scope| {
        let _end = EndAtDrop(&is_over);
        scope.spawn(|| put_until(&home, &url, &is_over));
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                writes.turn();
            }
            writes.finish();
        });
        (2..signals).for_each(reload_after);
    });
    assert!(fs::read(home.path("data/written")).unwrap() == Writes::content());
    assert_eq!(said(&server, "settings stay as they are"), 0, "{}", server.err());
    // Those of the connections and of the files close.
    wait_for("no more descriptors and threads than before", || {
        descriptors(&server) <= before.0 && threads(&server) <= before.1
    });
    let mut client = client(&server);
    assert!(client.mount("/data").is_ok(), "it still answers");
}

/// The JSON that `stag ctl` prints, or the text of its complaint.
fn ctl(home: &Home, command: &str) -> Result<serde_json::Value, String> {
    let output = home.run(&["ctl", "--json", command]);
    match output.status.code() {
        Some(0) => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        _ => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

fn listed(home: &Home) -> Vec<String> {
    let exports = ctl(home, "exports").unwrap();
    let exports = exports["exports"].as_array().unwrap();
    exports.iter().map(|export| export["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_controller_has_the_settings_read_again_and_sees_the_exports_of_that_moment() {
    let home = Home::new();
    let server = server(&home, &format!("{HEAD}{DATA}"));
    let mut client = client(&server);
    let data = client.mount("/data").unwrap();
    assert_eq!(listed(&home), ["/data"]);
    let more = format!("{HEAD}{DATA}[[export]]\npath = \"more\"\n");
    settings(&home, &more);
    let changes = ctl(&home, "reload").unwrap();
    assert_eq!(changes["summary"], "added /more");
    assert_eq!(
        (&changes["added"][0], &changes["clients_changed"]),
        (&"/more".into(), &false.into())
    );
    assert_eq!(listed(&home), ["/data", "/more"]);
    mounts(&mut client, "/more");
    settings(&home, &format!("{more}access = \"no\"\n"));
    let refused = ctl(&home, "reload").unwrap_err();
    assert!(refused.contains("stay as they are: stag.toml:9: write \"ro\" or \"rw\""), "{refused}");
    assert_eq!(listed(&home), ["/data", "/more"], "nothing changed");
    settings(&home, &format!("{more}[log]\nlevel = \"trace\"\n"));
    ctl(&home, "reload").unwrap();
    wait_for("calls in the log", || {
        client.getattr(data).unwrap();
        server.err().contains("procedure=GETATTR")
    });
    assert!(client.getattr(data).is_ok());
    let logged = "settings read again: added /more";
    assert!(server.err().contains(logged), "{}", server.err());
}
