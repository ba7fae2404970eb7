//! Parts that the tests of the command share: a home of its own for each, and a server that ends
//! with its test.
#![allow(dead_code)]

use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// Longest time that one test waits for anything. It is no deadline of what is tested: it ends a
/// test that hangs, and a busy machine takes minutes for what takes a quiet one a second.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A directory with `data` to export.
pub struct Home(pub tempfile::TempDir);

impl Home {
    pub fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::create_dir(home.path("data")).unwrap();
        home
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The command, with nothing of this user's in its environment. It takes signals as in the
    /// foreground of a terminal, also when these tests ignore them as a job in the background.
    pub fn stag(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        command
            .args(["--default-signal=HUP,INT,QUIT", env!("CARGO_BIN_EXE_stag")])
            .args(arguments)
            .env_remove("XDG_STATE_HOME")
            .env_remove("NOTIFY_SOCKET")
            .env_remove("STAG_LOG");
        command.env("STAG_STATE_DIR", self.path("state")).current_dir(self.0.path());
        command
    }

    /// `stag serve` on free ports. Standard output and error go to files. Callers act as the user
    /// who runs the tests, even if that is root, whom a privileged server would squash. They may
    /// use any port.
    pub fn serve(&self, arguments: &[&str]) -> Server {
        if arguments.contains(&"--memory") {
            return self.serve_as_given(arguments);
        }
        let is_decided = arguments.contains(&"--mode");
        let mode: &[&str] = if is_decided { &[] } else { &["--mode", "unprivileged"] };
        self.serve_as_given(&[arguments, mode, &["--insecure"]].concat())
    }

    /// The same, with no other arguments than these and the ports.
    pub fn serve_as_given(&self, arguments: &[&str]) -> Server {
        let ports = ["--listen", "iwarp://127.0.0.1:0", "--tcp", "127.0.0.1:0"];
        Server::start(self, self.stag(&[&["serve"], arguments, &ports].concat()))
    }

    /// The command in a shell that says `before`.
    pub fn stag_behind(&self, before: &str, arguments: &[&str]) -> Command {
        let stag = self.stag(arguments);
        // The shell says last how signals are taken.
        let (program, mut arguments) = (stag.get_program(), stag.get_args());
        let mut command = Command::new(program);
        command
            .args(arguments.next())
            .args(["sh", "-c", &format!("{before}; exec \"$0\" \"$@\"")])
            .args(arguments);
        for (name, value) in stag.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.0.path());
        command
    }

    /// Octets that the clients of the server of this home have written.
    pub fn octets_written(&self) -> u64 {
        let done = self.run(&["ctl", "--json", "stats"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let stats: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        stats["total"]["app"]["data"]["octets_written"].as_u64().unwrap()
    }

    /// Runs the command to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let child = self
            .stag(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
        receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let _ = kill_process(pid, Signal::KILL);
            panic!("{arguments:?} does not end")
        })
    }

    /// Runs what has to be refused; gives its sentence.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let sentence = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {sentence}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let last = sentence.lines().last().unwrap_or_default().to_owned();
        assert!(last.starts_with("stag: "), "{arguments:?}: {sentence}");
        last
    }
}

/// A server that is ready.
pub struct Server {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Server {
    pub fn start(home: &Home, mut command: Command) -> Self {
        let number = fs::read_dir(home.0.path()).unwrap().count();
        let (out, err) = (home.path(&format!("out-{number}")), home.path(&format!("err-{number}")));
        command.stdin(Stdio::null());
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        let mut server = Self { child: command.spawn().unwrap(), out, err };
        wait_for("READY … END", || {
            assert_eq!(server.child.try_wait().unwrap(), None, "{}", server.err());
            server.out().ends_with("END\n")
        });
        server
    }

    pub fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    pub fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    /// Waits until standard error has `text`: a log line may be written after the answer that it
    /// is about.
    pub fn wait_for_err(&self, text: &str) {
        wait_for(text, || self.err().contains(text));
    }

    /// Returns the text after `word` in the line of the READY block that begins with it.
    pub fn line(&self, word: &str) -> String {
        let out = self.out();
        let line = out.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{word} is in {out}")).to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end; gives the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let mut code = None;
        wait_for("the end of the server", || match self.child.try_wait().unwrap() {
            Some(status) => {
                code = status.code();
                true
            }
            None => false,
        });
        code
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn json(file: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// A terminal of 80 columns and 24 lines: the end that a person holds, and the one of a command.
pub fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true);
    let theirs = std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NOCTTY.bits().cast_signed(),
    )
    .open(name)
    .unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&theirs, size).unwrap();
    rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK).unwrap();
    (ours.into(), theirs)
}
