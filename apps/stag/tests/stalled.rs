//! Stopping a server while its helpers hang in a file system that does not answer: it does its part
//! in bounded time, and the remains that the kernel still holds block no other server. Needs root
//! and `/dev/fuse`; skipped, with a message, elsewhere.

use crate::fuse::{self, Fuse};
use crate::support::{Home, PATIENCE, Server, json, wait_for};
use rustix::process::Signal;
use stag_client::{ClientConfig, NfsClient};
use stag_engine::clock::Clock;
use stag_iwarp::Iwarp;
use stag_protocol::nfs::v3::StableHow;

/// A client whose XIDs are its own: calls of one host with the same XID are one call.
fn client(at: &str, number: u8) -> NfsClient<Iwarp> {
    let (clock, config) = (Clock::start(), ClientConfig::new(u32::from(number) << 16));
    let fabric = stag_iwarp::IwarpConfig::new(config.limits(), [number; 32], clock.now());
    let mut client =
        NfsClient::new(Iwarp::new(fabric).unwrap(), config, move || clock.now()).unwrap();
    client.connect(&at.parse().unwrap()).unwrap();
    client.limit_timeout(PATIENCE);
    client
}

/// The state of a process, as proc_pid_stat(5) has it.
fn state(pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ").map(|(_, rest)| rest[..1].to_owned())
}

#[test]
fn a_server_ends_although_its_helpers_hang() {
    let home = Home::new();
    std::fs::create_dir(home.path("slow")).unwrap();
    let Some(fuse) = Fuse::mount(&home.path("slow"), &[("file", b"octets")]) else { return };
    let arguments = ["slow", "data", "--stats", "stats.json", "--state-dir", "first"];
    let mut first = home.serve(&arguments);
    fuse.stall(|opcode| matches!(opcode, fuse::READ | fuse::WRITE));
    let callers = [false, true].map(|writes| {
        let at = first.line("LISTEN");
        std::thread::spawn(move || {
            let mut caller = client(&at, 1 + u8::from(writes));
            let root = caller.mount("/slow").unwrap();
            let file = caller.lookup(root, b"file").unwrap().object;
            match writes {
                true => caller.write(file, 0, b"x", StableHow::Unstable).map(drop),
                false => caller.read(file, 0, &mut [0; 100]).map(drop),
            }
        })
    });
    wait_for("helpers that hang", || fuse.held() == 2);
    first.signal(Signal::TERM);
    // The kernel ends no thread that waits for this file system: the process stays, as a zombie.
    let pid = first.pid();
    wait_for("the end of the server", || state(pid).is_none_or(|state| state == "Z"));
    assert!(json(&home.path("stats.json"))["total"]["app"]["waiting"].is_object());
    let outcomes = callers.map(|caller| caller.join().unwrap());
    assert!(outcomes.iter().all(Result::is_err), "clients are told: {outcomes:?}");
    // Its ports are free.
    let (listen, tcp) = (first.line("LISTEN"), first.line("TCP"));
    let ports = ["--listen", &listen, "--tcp", &tcp];
    let again = ["serve", "data", "--state-dir", "second", "--mode", "unprivileged", "--insecure"];
    let mut second = Server::start(&home, home.stag(&[&again[..], &ports].concat()));
    client(&second.line("LISTEN"), 3).null().unwrap();
    fuse.release();
    assert_eq!(first.wait(), Some(0), "{}", first.err());
    second.signal(Signal::TERM);
    assert_eq!(second.wait(), Some(0), "{}", second.err());
}
