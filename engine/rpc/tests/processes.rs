//! Examples as processes: a server and clients over every fabric, and what they say when something
//! is wrong.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

/// The program of an example, which `cargo test` builds beside the tests.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let profile = own.ancestors().nth(2).expect("a test lies in TARGET/PROFILE/deps");
    let program = profile.join("examples").join(name);
    if !program.exists() {
        let arguments = ["build", "--profile", "test", "--package", "stag-rpc", "--example", name];
        assert!(Command::new(env!("CARGO")).args(arguments).status().unwrap().success());
    }
    program
}

fn run(name: &str, words: &[&str]) -> Output {
    Command::new(example(name)).args(words).output().unwrap()
}

/// A server that ends with the test.
struct Serving {
    child: Child,
    urls: Vec<String>,
    /// Open, so that the server can go on writing.
    _stdout: BufReader<ChildStdout>,
}

impl Serving {
    fn start(name: &str, urls: &[&str]) -> Self {
        let mut child = Command::new(example(name))
            .arg("serve")
            .args(urls)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let urls = line.strip_prefix("serving at ").unwrap_or_else(|| panic!("{line:?}"));
        let urls = urls.split_whitespace().map(str::to_owned).collect();
        Self { child, urls, _stdout: stdout }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory of this test alone.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("stag-rpc-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).unwrap();
    path
}

fn succeeds(name: &str, words: &[&str]) -> String {
    let Output { status, stdout, stderr } = run(name, words);
    assert!(status.success(), "{words:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn values_go_in_over_one_fabric_and_come_out_over_every_other() {
    let directory = directory("kv-processes");
    let shm = format!("shm://{}", text(&directory.join("kv.sock")));
    let server = Serving::start("kv", &[&shm, "iwarp://127.0.0.1:0", "tcp://127.0.0.1:0"]);
    assert_eq!(server.urls.len(), 3);
    let (file, copy) = (directory.join("value"), directory.join("copy"));
    for (place, put) in server.urls.iter().enumerate() {
        let value: Vec<u8> = (0..1 << 20).map(|octet: usize| (octet * 7 + place) as u8).collect();
        std::fs::write(&file, &value).unwrap();
        assert_eq!(succeeds("kv", &["put", put, "name", text(&file)]), "kept\n");
        for get in &server.urls {
            succeeds("kv", &["get", get, "name", text(&copy)]);
            assert!(std::fs::read(&copy).unwrap() == value, "put at {put}, got at {get}");
        }
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_other_examples_serve_and_call_as_processes() {
    let calculator = Serving::start("calculator", &["tcp://127.0.0.1:0"]);
    assert_eq!(succeeds("calculator", &[&calculator.urls[0], "84", "/", "2"]), "42\n");
    let progress = Serving::start("progress", &["iwarp://127.0.0.1:0"]);
    let told = succeeds("progress", &[&progress.urls[0], "2"]);
    assert_eq!(told, "1 of 2\n2 of 2\ndone, 2 steps were told\n");
}

#[test]
fn an_error_is_a_sentence_that_says_what_to_do() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("tcp://{}", holder.local_addr().unwrap());
    for (words, says) in [
        (&["serve", &taken][..], "stop the program that uses it, or choose another one"),
        (&["serve", "tcp://localhost"], "write tcp://IP:PORT"),
        (&["serve", "shm:///nowhere/kv.sock"], "make its directory first"),
        (&["serve"], "call listen with a URL"),
        (&["get", "tcp://127.0.0.1:1", "name", "/dev/null"], "start the server first"),
        (&["get", "shm:///nowhere/kv.sock", "name", "/dev/null"], "start the server first"),
        (&[], "usage: kv serve URL"),
    ] {
        let Output { status, stderr, .. } = run("kv", words);
        let stderr = String::from_utf8(stderr).unwrap();
        assert!(!status.success() && stderr.contains(says), "{words:?}: {stderr}");
        assert!(!stderr.contains(['{', '\\']), "{stderr}");
    }
}
