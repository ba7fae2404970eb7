//! Sockets that a service manager has opened (sd_listen_fds(3)). The test is the manager.

use crate::{
    caller::{Caller, NFS},
    caller4::Caller4,
    support::{Home, Server, wait_for},
};
use rustix::{
    io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd},
    process::Signal,
};
use stag_protocol::nfs::v4::*;
use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::{AsFd, IntoRawFd},
        unix::net::UnixListener,
    },
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// The command, to which these descriptors are passed under names.
fn passed(home: &Home, arguments: &[&str], sockets: &[&dyn AsFd]) -> Command {
    let mut script = String::from("exec");
    for (place, socket) in sockets.iter().enumerate() {
        // The shell inherits a descriptor above the ones that it makes itself.
        let socket = fcntl_dupfd_cloexec(socket.as_fd(), 100).unwrap();
        fcntl_setfd(&socket, FdFlags::empty()).unwrap();
        script += &format!(" {}<&{}", place + 3, socket.into_raw_fd());
    }
    script += &format!(
        "; export LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES=first:second; exec \"$0\" \"$@\"",
        sockets.len()
    );
    let stag = home.stag(arguments);
    // A shell that knows descriptors above 9.
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).arg(stag.get_program()).args(stag.get_args());
    for (name, value) in stag.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(home.0.path());
    command
}

/// Sockets that stay open, and a server that is started by them any number of times.
struct Manager {
    home: Home,
    iwarp: TcpListener,
    tcp: TcpListener,
    cores: &'static str,
}

impl Manager {
    fn new(cores: &'static str) -> Self {
        let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
        Self { home: Home::new(), iwarp: bind(), tcp: bind(), cores }
    }

    fn tcp(&self) -> String {
        self.tcp.local_addr().unwrap().to_string()
    }

    fn iwarp(&self) -> String {
        format!("iwarp://{}", self.iwarp.local_addr().unwrap())
    }

    fn arguments(&self) -> Vec<String> {
        let (listen, tcp) = (self.iwarp(), self.tcp());
        let words = ["serve", "data", "--mode", "unprivileged", "--insecure", "--nfs", "3,4"];
        let more = ["--cores", self.cores, "--listen", &listen, "--tcp", &tcp];
        words.iter().chain(&more).map(|word| (*word).to_owned()).collect()
    }

    fn start(&self) -> Server {
        let arguments = self.arguments();
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        Server::start(&self.home, passed(&self.home, &arguments, &[&self.iwarp, &self.tcp]))
    }
}

fn kill(mut server: Server) {
    server.signal(Signal::KILL);
    server.wait();
}

#[test]
fn connects_wait_while_a_server_is_killed_and_started_again() {
    for cores in ["1", "2"] {
        let manager = Manager::new(cores);
        fs::write(manager.home.path("data/f"), b"octets").unwrap();
        let server = manager.start();
        let (iwarp, tcp) = (manager.iwarp(), manager.tcp());
        assert_eq!((server.line("LISTEN"), server.line("TCP")), (iwarp.clone(), tcp.clone()));
        assert!(server.err().contains(&format!("socket of the service manager at {tcp}")));
        assert!(Caller::new(&server).call(NFS, 0, &[]).is_empty());
        kill(server);
        // Nothing listens but the manager.
        let mut waiting = Caller::to(&tcp);
        waiting.send(1, NFS, 0, &[]);
        let url = format!("{iwarp}/data/f");
        let mut reader = manager.home.stag(&["call", &url, "cat"]);
        let reader = reader.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let server = manager.start();
        assert!(waiting.take().1.is_empty());
        let read = reader.wait_with_output().unwrap();
        assert!(read.status.success() && read.stdout == b"octets", "{read:?}");
        kill(server);
    }
}

/// Idle mounts keep no other one waiting, and none has to find the port open first.
#[test]
fn a_client_with_an_open_goes_on_while_ten_idle_mounts_are_silent() {
    let manager = Manager::new("1");
    fs::write(manager.home.path("data/f"), b"octets").unwrap();
    let at = manager.tcp();
    restart_beside_idle_mounts("with socket activation", &at, || manager.start());
}

/// The same where the port is closed meanwhile: a client is refused, and reconnects after the
/// three seconds that Linux' clients wait.
#[test]
fn a_client_that_was_refused_goes_on_after_a_restart_beside_ten_idle_mounts() {
    let home = Home::new();
    fs::write(home.path("data/f"), b"octets").unwrap();
    let at = home.serve(&["data", "--nfs", "3,4"]).line("TCP");
    let arguments = ["serve", "data", "--mode", "unprivileged", "--insecure", "--nfs", "3,4"];
    let ports = ["--listen", "iwarp://127.0.0.1:0", "--tcp", &at];
    let serve = [&arguments[..], &ports].concat();
    restart_beside_idle_mounts("without socket activation", &at, || {
        Server::start(&home, home.stag(&serve))
    });
}

/// Set when it is dropped, so that threads end also where a test fails.
struct IsOver<'a>(&'a AtomicBool);

impl Drop for IsOver<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Connects, and does so again some seconds after it was refused.
fn connect_as_linux(at: &str, is_over: &AtomicBool) -> Option<TcpStream> {
    while !is_over.load(Ordering::Relaxed) {
        match TcpStream::connect(at) {
            Ok(stream) => return Some(stream),
            Err(_) => std::thread::sleep(Duration::from_secs(3)),
        }
    }
    None
}

/// NULL calls without end over connections that are made again when they are lost.
fn call_until(at: &str, is_over: &AtomicBool) {
    let call: Vec<u8> = [0x8000_0028, 1, 0, 2, NFS, 3, 0, 0, 0, 0, 0]
        .into_iter()
        .flat_map(u32::to_be_bytes)
        .collect();
    while let Some(mut stream) = connect_as_linux(at, is_over) {
        while !is_over.load(Ordering::Relaxed) {
            let called = stream.write_all(&call).and_then(|()| stream.read_exact(&mut [0; 28]));
            if called.is_err() {
                break;
            }
        }
    }
}

/// Kills a server and starts it again, with ten idle clients and one that has a file open, while
/// others call: the times up to the first OPEN and READ after the kill are printed.
fn restart_beside_idle_mounts(about: &str, at: &str, start: impl Fn() -> Server) {
    const OPEN: u32 = share::BOTH | share::WANT_NO_DELEGATION;
    let server = start();
    let idle: Vec<_> =
        (0..10).map(|number| Caller4::mounted(at, &format!("idle {number}"))).collect();
    let mut busy = Caller4::mounted(at, "busy");
    let open = |claim, owner| {
        let owner = StateOwner { client_id: 0, owner: Text(owner) };
        let (seqid, how) = (0, OpenHow::NoCreate);
        Request::Open(Open4Args { seqid, share_access: OPEN, share_deny: 0, owner, how, claim })
    };
    let root = [Request::PutRootFh(()), Request::Lookup(Text(b"data"))];
    let by_name = |owner| open(OpenClaim::Null(Text(b"f")), owner);
    let first = busy.run(&[&root[..], &[by_name(b"one"), Request::GetFh(())]].concat());
    let Answer::GetFh(Ok(handle)) = first.last() else { panic!("{:?}", first.last()) };
    let file = handle.0.to_vec();
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = IsOver(is_over);
        for _ in 0..3 {
            scope.spawn(|| call_until(at, is_over));
        }
        let killed = Instant::now();
        kill(server);
        // The client notices, and connects while the server starts.
        let (sender, receiver) = std::sync::mpsc::channel();
        scope.spawn(move || sender.send(connect_as_linux(at, is_over)));
        let server = start();
        let ready = killed.elapsed();
        assert!(server.err().contains("grace period: 1 client"), "{}", server.err());
        busy.take_over(receiver.recv().unwrap().unwrap());
        assert_eq!(busy.run(&[]).status(), Status4::BadSession);
        busy.begin();
        let put = Request::PutFh(Text(&file));
        let claim = OpenClaim::Previous(DelegationType::None);
        assert_eq!(busy.run(&[put.clone(), open(claim, b"one")]).status(), Status4::Ok);
        let complete = [Request::ReclaimComplete(false)];
        assert_eq!(busy.run(&complete).status(), Status4::Ok);
        // The end of the grace period is written to a disk.
        let mut next = None;
        wait_for("the end of the grace period", || {
            let opened = busy.run(&[&root[..], &[by_name(b"two")]].concat());
            match opened.last() {
                Answer::Open(Ok(ok)) => next = Some(ok.stateid),
                _ => assert!(matches!(opened.status(), Status4::Grace | Status4::Delay)),
            }
            next.is_some()
        });
        let opened = killed.elapsed();
        let read = Read4Args { stateid: next.unwrap(), offset: 0, count: 6 };
        let read = busy.run(&[put, Request::Read(read)]);
        let Answer::Read(Ok(done)) = read.last() else { panic!("{:?}", read.last()) };
        assert_eq!(done.data.octets(), Some(&b"octets"[..]));
        let read = killed.elapsed();
        println!("{about}: ready {ready:?}, first OPEN {opened:?}, first READ {read:?}");
        drop(over);
        kill(server);
    });
    drop(idle);
}

#[test]
fn what_is_passed_and_cannot_be_served_is_refused_by_name() {
    let manager = Manager::new("1");
    let home = &manager.home;
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(home.path("socket")).unwrap();
    let (datagrams, file) = (UdpSocket::bind("127.0.0.1:0").unwrap(), fs::File::open("/dev/null"));
    let connected = std::net::TcpStream::connect(other.local_addr().unwrap()).unwrap();
    let file = file.unwrap();
    let not_served = format!("--tcp {}", other.local_addr().unwrap());
    let wrong: [(&dyn AsFd, &str); 5] = [
        (&other, &not_served),
        (&datagrams, "(second, descriptor 4) that is none of TCP"),
        (&unix, "(second, descriptor 4) that has no IP address"),
        (&file, "(second, descriptor 4) that is no socket"),
        (&connected, "(second, descriptor 4) that does not listen"),
    ];
    let arguments = manager.arguments();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    for (socket, part) in wrong {
        let output = passed(home, &arguments, &[&manager.tcp, socket]).output().unwrap();
        let sentence = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{sentence}");
        assert!(sentence.lines().last().unwrap().contains(part), "{part}: {sentence}");
    }
    let twice = passed(home, &arguments, &[&manager.tcp, &manager.tcp]).output().unwrap();
    let sentence = String::from_utf8(twice.stderr).unwrap();
    assert!(sentence.contains("two sockets at"), "{sentence}");
    let steered = [&arguments[..], &["--steer", "address"]].concat();
    let steered = passed(home, &steered, &[&manager.tcp]).output().unwrap();
    let sentence = String::from_utf8(steered.stderr).unwrap();
    assert!(sentence.contains("--steer address needs a socket for each core"), "{sentence}");
    for (count, part) in [("x", "LISTEN_FDS=x is no number"), ("9", "is not open")] {
        let before = format!("export LISTEN_PID=$$ LISTEN_FDS={count}");
        let output = home.stag_behind(&before, &arguments).output().unwrap();
        let sentence = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{sentence}");
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[test]
fn what_is_passed_to_another_process_is_not_taken_and_a_check_shows_what_is() {
    let manager = Manager::new("1");
    let arguments = manager.arguments();
    let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    arguments.push("--check");
    let check = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = check(&mut passed(&manager.home, &arguments, &[&manager.tcp]));
    let line = format!("socket of the service manager at {}", manager.tcp());
    assert_eq!(shown.matches(&line).count(), 1, "{shown}");
    let mut others = manager.home.stag(&arguments);
    let shown = check(others.env("LISTEN_PID", "1").env("LISTEN_FDS", "1"));
    assert!(!shown.contains("socket of the service manager"), "{shown}");
}
