//! `stag serve --confine`: exports work, and the rest of the machine is out of reach.

use crate::support::{Home, wait_for};
use rustix::process::Signal;
use std::{fs, path::Path};

/// True where the kernel has no Landlock, which a start that cannot succeed says.
fn is_impossible(home: &Home) -> bool {
    let arguments = ["serve", "data", "--confine", "--mode", "unprivileged", "--tcp", "none"];
    let nowhere = ["--listen", "shm:///nowhere/at/all"];
    let done = home.stag(&[&arguments[..], &nowhere].concat()).output().unwrap();
    String::from_utf8_lossy(&done.stderr).contains("needs Landlock")
}

#[test]
fn what_confinement_would_break_is_refused() {
    let home = Home::new();
    // Without root, the mode alone is refused already.
    let privileged = if rustix::process::geteuid().is_root() {
        "--mode unprivileged"
    } else {
        "cannot act as its callers"
    };
    for (arguments, part) in [
        (&["serve", "data", "--confine", "--mode", "privileged"][..], privileged),
        (&["serve", "ceph:/data", "--confine"], "--confine is not for CephFS"),
    ] {
        let done = home.stag(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && text.contains(part), "{text}");
    }
}

#[test]
fn a_confined_server_serves_everything_and_writes_nowhere_else() {
    let home = Home::new();
    fs::create_dir(home.path("out")).unwrap();
    let stats = home.text("out/stats.json");
    if is_impossible(&home) {
        return println!("skipped: this kernel has no Landlock");
    }
    for version in ["3", "4"] {
        let server = home.serve(&["data", "--confine", "--nfs", version]);
        let url = format!("tcp://{}/data", server.line("TCP"));
        let done = home.stag(&["check", &url, "--entries", "50"]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    }
    let server = home.serve(&["data", "--confine", "--stats", &stats]);
    server.signal(Signal::USR1);
    wait_for("statistics", || Path::new(&stats).exists());
    // Another directory of the same name is none that the server was given.
    fs::rename(home.path("out"), home.path("before")).unwrap();
    fs::create_dir(home.path("out")).unwrap();
    server.signal(Signal::USR1);
    wait_for("the kernel's refusal", || server.err().contains("Permission denied"));
    assert!(!Path::new(&stats).exists());
}
