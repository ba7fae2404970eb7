//! Link-local IPv6 addresses with their interface, in a network namespace of the test's own: each
//! option and URL that takes an address takes one.

use crate::support::{Home, Server};
use std::{
    fs,
    io::{Read, Write},
    net::{Ipv6Addr, SocketAddrV6, TcpStream},
    process::Command,
};

const TEST: &str = "scoped::a_server_at_a_link_local_address_is_called_with_its_interface";
/// Two ends of a cable; the server is at one of them.
const NETWORK: &str = "ip link set lo up && ip link add stag0 type veth peer name stag1 \
                       && ip -6 addr add fe80::7/64 dev stag0 nodad \
                       && ip link set stag0 up && ip link set stag1 up";

/// Runs the test again in a namespace. Returns false in that process.
fn in_namespace() -> bool {
    if std::env::var_os("STAG_TEST_MARKER").is_some_and(|marker| marker == "scoped") {
        return false;
    }
    let script = format!("{NETWORK} || {{ echo 'skipped: no veth'; exit 0; }}; exec \"$0\" \"$@\"");
    let output = Command::new("unshare")
        .args(["-rn", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .args([TEST, "--exact", "--nocapture"])
        .env("STAG_TEST_MARKER", "scoped")
        .output();
    let Ok(output) = output else {
        eprintln!("skipped: no unshare");
        return true;
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if text.contains("test result: ") {
        assert!(text.contains("test result: ok. 1 passed"), "{text}");
    } else {
        eprintln!("skipped: this process may not make a network of its own: {text}");
    }
    true
}

/// The index of the server's interface.
fn scope() -> u32 {
    let link = Command::new("ip").args(["-o", "link", "show", "stag0"]).output().unwrap();
    let text = String::from_utf8(link.stdout).unwrap();
    text.split(':').next().unwrap().parse().unwrap()
}

#[test]
fn a_server_at_a_link_local_address_is_called_with_its_interface() {
    if in_namespace() {
        return;
    }
    let home = Home::new();
    fs::write(home.path("data/f"), b"octets").unwrap();
    let serve = home.stag(&[
        "serve",
        "data",
        "--mode",
        "unprivileged",
        "--insecure",
        "--clients",
        "fe80::/10",
        "--listen",
        "iwarp://[fe80::7%stag0]:20049",
        "--metrics",
        "[fe80::7%stag0]:9464",
    ]);
    let server = Server::start(&home, serve);
    let scope = scope();
    assert_eq!(server.line("LISTEN"), format!("iwarp://[fe80::7%{scope}]:20049"));
    assert_eq!(server.line("TCP"), format!("[fe80::7%{scope}]:2049"));
    for host in ["[fe80::7%stag0]", "[fe80::7%25stag0]", &format!("[fe80::7%{scope}]")] {
        for url in [format!("tcp://{host}:2049/data/f"), format!("iwarp://{host}:20049/data/f")] {
            let read = home.run(&["call", &url, "cat"]);
            assert_eq!(read.stdout, b"octets", "{url}: {read:?}");
        }
    }
    let address: Ipv6Addr = "fe80::7".parse().unwrap();
    let mut client = TcpStream::connect(SocketAddrV6::new(address, 9464, 0, scope)).unwrap();
    write!(client, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    // The address for TCP was that of RDMA; it may be given.
    let beside = ["--listen", "iwarp://[fe80::7%stag0]:0", "--metrics", "none"];
    let tcp = ["--tcp", "[fe80::7%25stag0]:0"];
    let other = ["serve", "data", "--mode", "unprivileged", "--insecure", "--clients", "fe80::/10"];
    let other = [&other[..], &beside, &tcp].concat();
    let second = Home::new();
    let other = Server::start(&second, second.stag(&other));
    let prefix = format!("[fe80::7%{scope}]:");
    assert!(other.line("TCP").starts_with(&prefix), "{}", other.line("TCP"));
    // Without its interface, and with one that is not there, each option says what is missing.
    for (option, address) in [("--listen", "iwarp://[fe80::7]:1"), ("--tcp", "[fe80::7]:1")] {
        let refused = home.refused(&["serve", "data", "--clients", "fe80::/10", option, address]);
        assert!(refused.contains("needs its interface"), "{refused}");
    }
    let metrics = ["--metrics", "[fe80::7]:1", "--listen", "iwarp://[fe80::7%stag0]:1"];
    let serve = [&["serve", "data", "--clients", "fe80::/10"][..], &metrics].concat();
    let refused = home.refused(&serve);
    assert!(refused.contains("needs its interface"), "{refused}");
}
