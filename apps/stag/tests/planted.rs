//! Links that another user plants where the command writes its files. Each option that names a file
//! is tried with each kind of link, in a directory that all users can write to: the file that the
//! link leads to stays as it is.

use crate::support::{self, Home, Server, wait_for};
use rustix::fs::{AtFlags, CWD, Gid, Uid, chownat};
use rustix::process::{Signal, geteuid};
use std::fs::{self, Permissions, hard_link};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const KEPT: &str = "READY for years\n";

/// A way to plant a link at the second path that leads to the first.
type Plant = fn(&Path, &Path);

/// A command that writes the file at the path.
type WritingCommand<'a> = (&'a str, &'a dyn Fn(&Home, &str));

const PLANTS: [(&str, Plant); 3] = [
    ("symbolic link", |victim, at| symlink(victim, at).unwrap()),
    ("hard link", |victim, at| hard_link(victim, at).unwrap()),
    ("link to nothing", |victim, at| {
        symlink(victim.with_file_name("made"), at).unwrap();
    }),
];

/// A home with a file to protect, and with the directory `shared` that all users can write to.
fn home() -> Home {
    let home = Home::new();
    fs::write(home.path("victim"), KEPT).unwrap();
    fs::create_dir(home.path("shared")).unwrap();
    fs::set_permissions(home.path("shared"), Permissions::from_mode(0o777)).unwrap();
    home
}

/// A server to measure.
fn echo(home: &Home) -> Server {
    Server::start(home, home.stag(&["echo", "--listen", "iwarp://127.0.0.1:0"]))
}

fn plant(home: &Home, plant: Plant, at: &Path) {
    plant(&home.path("victim"), at);
    if geteuid().is_root() {
        let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
        let is_link = fs::symlink_metadata(at).unwrap().is_symlink();
        if is_link {
            chownat(CWD, at, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }
}

fn assert_kept(home: &Home, what: &str) {
    assert_eq!(fs::read_to_string(home.path("victim")).unwrap(), KEPT, "{what}");
    assert!(!home.path("made").exists(), "{what}: the target of the link was made");
}

#[test]
fn no_option_that_names_a_file_follows_a_planted_link() {
    let maker = home();
    let result = maker.text("result.json");
    let server = echo(&maker);
    let url = server.line("LISTEN");
    let run = |home: &Home, to: &str| {
        let short = ["--duration", "0.1", "--warm-up", "0", "--workload", "null"];
        home.run(&[&["bench", &url, "--json", to], &short[..]].concat());
    };
    run(&maker, &result);
    let report = |option: &'static str| {
        let result = result.clone();
        move |home: &Home, to: &str| {
            home.run(&["bench", "report", &result, option, to]);
        }
    };
    let (html, hgrm, log) = (report("--html"), report("--hgrm"), report("--hdr-log"));
    let commands: [WritingCommand<'_>; 7] = [
        ("bench --json", &run),
        ("bench report --html", &html),
        ("bench report --hgrm", &hgrm),
        ("bench report --hdr-log", &log),
        ("probe --report", &|home, to| {
            home.run(&["probe", "--report", to]);
        }),
        ("man", &|home, to| {
            let directory = Path::new(to).parent().unwrap().to_str().unwrap();
            home.run(&["man", directory]);
        }),
        ("serve --stats, --ready-file", &|home, to| {
            let ports = ["--listen", "iwarp://127.0.0.1:0", "--tcp", "none"];
            let serve = ["serve", "--memory", "1M", "--name", "data", "--while-stdin"];
            for option in ["--stats", "--ready-file"] {
                home.run(&[&serve[..], &ports, &[option, to]].concat());
            }
        }),
    ];
    for (name, command) in commands {
        for (kind, way) in PLANTS {
            let home = home();
            let at = home.path("shared/stag-serve.1");
            plant(&home, way, &at);
            command(&home, at.to_str().unwrap());
            assert_kept(&home, &format!("{name}, {kind}"));
        }
    }
}

#[test]
fn statistics_follow_no_link_whose_name_was_guessed() {
    for (kind, way) in PLANTS {
        let home = home();
        let stats = home.path("shared/stats.json");
        let server = home.serve(&["--memory", "1M", "--stats", stats.to_str().unwrap()]);
        server.signal(Signal::USR1);
        wait_for("statistics", || stats.exists());
        // The number of the process is public.
        for name in [format!("stats.json.{}.tmp", server.pid()), "stats.json.tmp".to_owned()] {
            plant(&home, way, &home.path("shared").join(name));
        }
        let before = fs::metadata(&stats).unwrap().modified().unwrap();
        server.signal(Signal::USR1);
        let written = || fs::metadata(&stats).is_ok_and(|it| it.modified().unwrap() > before);
        wait_for("other statistics", written);
        assert_kept(&home, kind);
    }
}

#[test]
fn results_go_to_devices_and_to_links_of_the_user() {
    let home = home();
    let server = echo(&home);
    let url = server.line("LISTEN");
    let short = ["--duration", "0.1", "--warm-up", "0", "--workload", "null"];
    let run = |to: &str| home.run(&[&["bench", &url, "--json", to], &short[..]].concat());
    for device in ["/dev/null", "/dev/stdout"] {
        let output = run(device);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{device}: {error}");
        if device == "/dev/stdout" {
            // The table for people is on standard output as well.
            assert!(String::from_utf8(output.stdout).unwrap().contains("stag-bench/1"));
        }
    }
    // A directory that only this user can write to.
    fs::create_dir(home.path("own")).unwrap();
    fs::set_permissions(home.path("own"), Permissions::from_mode(0o755)).unwrap();
    fs::write(home.path("own/target"), "old").unwrap();
    symlink("target", home.path("own/link")).unwrap();
    assert!(run(&home.text("own/link")).status.success());
    support::json(&home.path("own/target"));
    assert!(fs::symlink_metadata(home.path("own/link")).unwrap().is_symlink());
    let planted = home.text("shared/link");
    plant(&home, PLANTS[0].1, Path::new(&planted));
    let sentence = home.refused(&["bench", &url, "--json", &planted]);
    assert!(sentence.contains("another user"), "{sentence}");
}
