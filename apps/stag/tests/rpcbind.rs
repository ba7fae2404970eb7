//! Registration with a real rpcbind, in namespaces of its own, as `showmount` and `rpcinfo` see it.

use crate::support::Home;
use std::{fs, process::Command};

/// Run in new namespaces of the network and of mounts: rpcbind with its sockets in an empty /run, a
/// server, and the tools that query it; then the server's end.
const SCRIPT: &str = r#"
set -eu
ip link set lo up
mount -t tmpfs none /run
rpcbind -w -f & rpcbind=$!
for _ in $(seq 200); do [ -S /run/rpcbind.sock ] && break; sleep 0.05; done
[ -S /run/rpcbind.sock ] || { echo "skipped: rpcbind does not start"; exit 0; }
"$STAG" serve --config stag.toml --ready-file ready & server=$!
for _ in $(seq 400); do [ -e ready ] && break; sleep 0.05; done
[ -e ready ]
echo "== registered"; rpcinfo
echo "== exports"; showmount --no-headers -e 127.0.0.1
"$STAG" call "tcp://127.0.0.1/data" ls
echo "== mounts"; showmount --no-headers -a 127.0.0.1
kill "$server"; wait "$server"
echo "== afterwards"; rpcinfo
kill "$rpcbind"; wait "$rpcbind" || true
echo "== done"
"#;

#[test]
fn a_real_rpcbind_knows_the_server_as_long_as_it_runs_and_showmount_works() {
    let has = |tool: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
        found.is_ok_and(|found| found.status.success())
    };
    let tools = ["unshare", "ip", "rpcbind", "rpcinfo", "showmount"];
    let missing = tools.into_iter().find(|tool| !has(tool));
    if !rustix::process::geteuid().is_root() || missing.is_some() {
        eprintln!("skipped: needs root and {}", missing.unwrap_or("nothing else"));
        return;
    }
    let home = Home::new();
    let settings = "listen = [\"iwarp://127.0.0.1:20049\"]\ntcp = \"127.0.0.1:2049\"\n\
                    rpcbind = true\n[[export]]\npath = \"data\"\n\
                    clients = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n";
    fs::write(home.path("stag.toml"), settings).unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount", "--", "sh", "-c", SCRIPT]).current_dir(home.0.path());
    unshare.env("STAG", env!("CARGO_BIN_EXE_stag")).env("STAG_STATE_DIR", home.path("state"));
    unshare.env_remove("NOTIFY_SOCKET").env_remove("STAG_LOG").env_remove("STAG_RPCBIND_SOCKET");
    let output = unshare.output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if out.contains("skipped: ") || err.contains("unshare failed") {
        eprintln!("skipped: {out}{err}");
        return;
    }
    assert!(output.status.success() && out.ends_with("== done\n"), "{out}{err}");
    let part = |name: &str| out.split(name).nth(1).unwrap().split("== ").next().unwrap().to_owned();
    let registered = part("== registered");
    for (program, netid, address) in [
        ("100003", "tcp", "127.0.0.1.8.1"),
        ("100005", "tcp", "127.0.0.1.8.1"),
        ("100003", "rdma", "127.0.0.1.78.81"),
        ("100005", "rdma", "127.0.0.1.78.81"),
    ] {
        let is_it = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.len() > 3 && words[..4] == [program, "3", netid, address]
        };
        assert!(registered.lines().any(is_it), "{program} {netid}: {registered}");
    }
    let listed = part("== exports");
    let is_listed = ["/data", "127.0.0.0/8", "10.0.0.0/8"].iter().all(|it| listed.contains(it));
    assert!(is_listed, "{listed}");
    assert!(part("== mounts").contains("127.0.0.1:/data"), "{out}");
    let after = part("== afterwards");
    assert!(!after.contains("100003") && !after.contains("100005"), "{after}");
}
