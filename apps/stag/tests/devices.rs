//! RDMA devices on hosts where libibverbs cannot be loaded: a server of other fabrics starts and
//! serves, and `rdma://` is refused with a sentence.
#![cfg(feature = "verbs")]

use crate::support::{Home, Server};
use std::{fs, process::Command};

/// The refusal of `rdma://`, before and after the reason that the dynamic loader gives.
const SENTENCE: [&str; 2] = [
    "no RDMA here: libibverbs.so.1 cannot be loaded (",
    "); fix: install it (Debian: apt install libibverbs1 librdmacm1 ibverbs-providers)",
];

/// A command that cannot load libibverbs and librdmacm: the loader finds empty files first.
fn without_libraries(home: &Home, arguments: &[&str]) -> Command {
    fs::create_dir_all(home.path("empty")).unwrap();
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        fs::write(home.path("empty").join(name), b"").unwrap();
    }
    let mut command = home.stag(arguments);
    command.env("LD_LIBRARY_PATH", home.path("empty"));
    command
}

/// Exit code and last line of standard error of a command.
fn end_of(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn a_server_of_other_fabrics_starts_without_the_libraries_of_devices_and_serves() {
    let home = Home::new();
    let listen = ["--listen", "iwarp://127.0.0.1:0", "--tcp", "127.0.0.1:0"];
    let arguments = [&["serve", "--memory", "64M"][..], &listen].concat();
    let server = Server::start(&home, without_libraries(&home, &arguments));
    let url = format!("{}/memory", server.line("LISTEN"));
    assert_eq!(end_of(without_libraries(&home, &["call", &url, "ls"])), (Some(0), String::new()));
}

#[test]
fn a_server_of_other_fabrics_loads_no_library_of_devices() {
    let home = Home::new();
    let server = home.serve(&["--memory", "64M"]);
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid())).unwrap();
    assert!(maps.contains("libc.so"), "{maps}");
    for name in ["libibverbs", "librdmacm"] {
        assert!(!maps.contains(name), "{maps}");
    }
}

#[test]
fn a_device_without_its_libraries_is_refused_with_the_packages_to_install() {
    let home = Home::new();
    let url = "rdma://127.0.0.1:20049";
    for arguments in [
        &["serve", "--memory", "64M", "--listen", url][..],
        &["call", "rdma://127.0.0.1:20049/memory", "ls"],
        &["probe", "rdma"],
    ] {
        let (code, line) = end_of(without_libraries(&home, arguments));
        // Buffers that this process may not lock are refused before a library is loaded.
        if arguments.contains(&"serve") && line.contains("RLIMIT_MEMLOCK") {
            continue;
        }
        assert!(line.starts_with("stag: "), "{arguments:?}: {line}");
        for part in SENTENCE {
            assert!(line.contains(part), "{arguments:?}: {line}");
        }
        assert!(matches!(code, Some(1 | 2)), "{arguments:?}: {code:?}");
    }
}
