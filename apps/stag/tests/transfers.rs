//! `stag call get` and `put` as tools that people trust: failures, transfers that are cut off, and
//! the effects of a server's restart.

use crate::support::{Home, Server, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    ffi::OsStr,
    fs::{self, FileTimes},
    io::{Read, Write},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Octets that depend on their position, so that misplaced ones show.
fn octets(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at as u32).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// The URLs of a server, without a path.
fn urls(server: &Server) -> [String; 2] {
    [server.line("LISTEN"), format!("tcp://{}", server.line("TCP"))]
}

/// Runs what has to succeed; gives standard output and error.
fn done(home: &Home, arguments: &[&str]) -> (Vec<u8>, String) {
    let output = home.run(arguments);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {err}");
    (output.stdout, err)
}

/// A server on the same ports as one that is gone.
fn again(home: &Home, urls: &[String; 2], more: &[&str]) -> Server {
    let tcp = urls[1].strip_prefix("tcp://").unwrap();
    let arguments = ["serve", "data", "--mode", "unprivileged", "--insecure"];
    let ports = ["--listen", &urls[0], "--tcp", tcp];
    Server::start(home, home.stag(&[&arguments[..], more, &ports].concat()))
}

/// The part of a file that is being written in `directory`.
fn part(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.find(|path| {
        path.file_name().unwrap().as_bytes().starts_with(b".stag-part-")
            && fs::metadata(path).is_ok_and(|found| found.len() > 0)
    })
}

/// Starts the command, and kills it when a part of a file is in `directory`, or when it is done.
fn cut_off(home: &Home, arguments: &[&str], directory: &Path) {
    let mut child =
        home.stag(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("a part of the file", || {
        part(directory).is_some() || child.try_wait().unwrap().is_some()
    });
    let _ = kill_process(Pid::from_child(&child), Signal::KILL);
    child.wait().unwrap();
}

#[test]
fn an_entry_that_fails_is_named_at_the_end_and_stops_no_other() {
    let home = Home::new();
    fs::create_dir_all(home.path("tree/sub")).unwrap();
    for name in ["a", "b", "sub/c", "d"] {
        fs::write(home.path("tree").join(name), name).unwrap();
    }
    let server = home.serve(&["data"]);
    for (number, url) in urls(&server).iter().enumerate() {
        let at = format!("{url}/data/{number}");
        done(&home, &["call", &at, "mkdir"]);
        // Directories stand where files belong.
        for name in ["tree/b", "tree/sub/c"] {
            done(&home, &["call", &format!("{at}/{name}"), "mkdir", "-p"]);
        }
        let put = home.run(&["call", &at, "put", "-r", "tree"]);
        let err = String::from_utf8(put.stderr).unwrap();
        assert_eq!(put.status.code(), Some(1), "{err}");
        assert!(err.contains("failed: tree/b: RENAME to b: "), "{err}");
        assert!(err.contains("failed: tree/sub/c: RENAME to c: "), "{err}");
        assert!(err.lines().last().unwrap().starts_with("stag: 2 entries failed: tree/b"), "{err}");
        assert_eq!(put.stdout.iter().filter(|octet| **octet == b'\n').count(), 2);
        let there = home.path(&format!("data/{number}/tree"));
        assert_eq!(fs::read(there.join("d")).unwrap(), b"d");
        assert_eq!(part(&there), None, "nothing is left behind");
        assert_eq!(part(&there.join("sub")), None, "nothing is left behind");

        let back = home.path(&format!("back-{number}"));
        fs::create_dir_all(back.join("tree/a")).unwrap();
        let arguments =
            ["call", &format!("{at}/tree"), "get", "-r", "--json", back.to_str().unwrap()];
        let got = home.run(&arguments);
        assert_eq!(got.status.code(), Some(1));
        let value: serde_json::Value = serde_json::from_slice(&got.stdout).unwrap();
        let failures = value["failures"].as_array().unwrap();
        assert!(
            failures.len() == 1 && failures[0].as_str().unwrap().contains("no regular file"),
            "{value}"
        );
        assert_eq!(value["files"][0]["url"], format!("{at}/tree/d"));
        assert_eq!(fs::read(back.join("tree/d")).unwrap(), b"d");
    }
}

#[test]
fn what_was_cut_off_is_gone_on_with_in_both_directions() {
    let home = Home::new();
    let content = octets(24 << 20);
    fs::write(home.path("large"), &content).unwrap();
    fs::create_dir(home.path("here")).unwrap();
    let server = home.serve(&["data"]);
    for url in urls(&server) {
        let at = format!("{url}/data");
        let data = home.path("data");
        cut_off(&home, &["call", &at, "put", "large", "--depth", "1"], &data);
        let cut = part(&data);
        if let Some(part) = &cut {
            // As WRITEs that were cut off leave it: a hole before the end.
            let mut hurt = fs::read(part).unwrap();
            let middle = hurt.len() / 2;
            hurt[middle] ^= 1;
            fs::write(part, hurt).unwrap();
        }
        let (_, err) = done(&home, &["call", &at, "put", "large", "--resume", "--verify"]);
        assert_eq!(err.contains("octets were there from an earlier run"), cut.is_some(), "{err}");
        assert!(fs::read(data.join("large")).unwrap() == content);
        assert_eq!(part(&data), None);

        let (from, here) = (format!("{at}/large"), home.path("here"));
        cut_off(&home, &["call", &from, "get", "here", "--depth", "1"], &here);
        let is_cut = part(&here).is_some();
        let (_, err) = done(&home, &["call", &from, "get", "here", "--resume", "--verify"]);
        assert_eq!(err.contains("octets were there from an earlier run"), is_cut, "{err}");
        assert!(fs::read(here.join("large")).unwrap() == content);

        // A second time there is nothing to do.
        for arguments in
            [["call", &from, "get", "here", "--resume"], ["call", &at, "put", "large", "--resume"]]
        {
            let (sums, err) = done(&home, &arguments);
            assert!(sums.is_empty() && err.contains("1 files were there and are left"), "{err}");
        }
        fs::remove_file(here.join("large")).unwrap();
        fs::remove_file(data.join("large")).unwrap();
    }
}

#[test]
fn a_part_of_other_content_is_not_gone_on_with() {
    let home = Home::new();
    fs::write(home.path("data/file"), octets(24 << 20)).unwrap();
    fs::create_dir(home.path("here")).unwrap();
    let server = home.serve(&["data"]);
    let from = format!("{}/data/file", urls(&server)[1]);
    cut_off(&home, &["call", &from, "get", "here", "--depth", "1"], &home.path("here"));
    fs::write(home.path("data/file"), b"another content").unwrap();
    done(&home, &["call", &from, "get", "here", "--resume"]);
    assert_eq!(fs::read(home.path("here/file")).unwrap(), b"another content");
}

#[test]
fn standard_input_and_output_survive_a_server_that_starts_again() {
    survive_a_server_that_starts_again(&[]);
}

#[test]
fn they_survive_it_by_version_4_with_a_session_that_is_made_again() {
    survive_a_server_that_starts_again(&["--nfs", "4"]);
}

fn survive_a_server_that_starts_again(more: &[&str]) {
    let home = Home::new();
    let content = octets(24 << 20);
    let mut server = home.serve(&[&["data"], more].concat());
    let urls = urls(&server);
    for url in &urls {
        let at = format!("{url}/data/stream");
        let spawn = |what: &[&str]| -> Child {
            let mut command = home.stag(&[&["call", &at], what].concat());
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let mut put = spawn(&["put", "-", "--verify"]);
        let mut input = put.stdin.take().unwrap();
        // More than is kept for a server that loses it.
        let (first, rest) = content.split_at(9 << 20);
        input.write_all(first).unwrap();
        server.signal(Signal::KILL);
        server.wait();
        server = again(&home, &urls, more);
        input.write_all(rest).unwrap();
        drop(input);
        let output = put.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{at}: {err}");
        assert!(output.stdout.ends_with(b"  -\n"));
        assert!(fs::read(home.path("data/stream")).unwrap() == content, "{at}");

        let mut get = spawn(&["get", "-"]);
        let mut out = get.stdout.take().unwrap();
        let mut came = vec![0; 1 << 20];
        out.read_exact(&mut came).unwrap();
        server.signal(Signal::KILL);
        server.wait();
        server = again(&home, &urls, more);
        out.read_to_end(&mut came).unwrap();
        let output = get.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{at}: {err}");
        assert!(came == content, "{at}");
        assert!(err.ends_with("  -\n"), "{err}");
        fs::remove_file(home.path("data/stream")).unwrap();
    }
}

#[test]
fn times_and_modes_are_kept_when_that_is_asked_for() {
    let home = Home::new();
    let at_second = |seconds| UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    fs::create_dir_all(home.path("tree/closed")).unwrap();
    fs::write(home.path("tree/closed/file"), b"it").unwrap();
    let times: [(&str, SystemTime, u32); 3] = [
        ("closed/file", at_second(1_000_000_000), 0o640),
        ("closed", at_second(1_100_000_000), 0o555),
        (".", at_second(1_200_000_000), 0o750),
    ];
    for (name, time, mode) in times {
        let path = home.path("tree").join(name);
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        fs::File::open(&path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    }
    let server = home.serve(&["data"]);
    for (number, url) in urls(&server).iter().enumerate() {
        let at = format!("{url}/data/{number}");
        done(&home, &["call", &at, "mkdir"]);
        done(&home, &["call", &at, "put", "-r", "-p", "tree"]);
        let back = format!("back-{number}");
        fs::create_dir(home.path(&back)).unwrap();
        done(&home, &["call", &format!("{at}/tree"), "get", "-r", "--preserve", &back]);
        for root in [home.path(&format!("data/{number}/tree")), home.path(&back).join("tree")] {
            for (name, time, mode) in times {
                let found = fs::metadata(root.join(name)).unwrap();
                assert_eq!(found.modified().unwrap(), time, "{}/{name}", root.display());
                assert_eq!(found.permissions().mode() & 0o777, mode, "{}/{name}", root.display());
            }
            fs::set_permissions(root.join("closed"), PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
    fs::set_permissions(home.path("tree/closed"), PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn names_of_any_octets_come_back_as_urls() {
    let home = Home::new();
    let names = [&b"a?%41 b"[..], b"\xff\xfe", b"line\nbreak", "ä€".as_bytes(), b"-"];
    for name in names {
        fs::write(home.path("data").join(OsStr::from_bytes(name)), name).unwrap();
    }
    let server = home.serve(&["data"]);
    for url in urls(&server) {
        let (listed, _) = done(&home, &["call", &format!("{url}/data"), "ls", "--json"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
        let mut read: Vec<_> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| done(&home, &["call", entry["url"].as_str().unwrap(), "cat"]).0)
            .collect();
        read.sort();
        let mut expected: Vec<_> = names.map(<[u8]>::to_vec).into();
        expected.sort();
        assert_eq!(read, expected);
    }
}

#[test]
fn streams_are_of_one_file_and_leave_out_what_they_cannot_keep() {
    let home = Home::new();
    fs::write(home.path("data/file"), b"it").unwrap();
    let server = home.serve(&["data"]);
    for url in urls(&server) {
        let (at, file) = (format!("{url}/data"), format!("{url}/data/file"));
        for (arguments, part) in [
            (["call", &file, "get", "-", "--resume"], "leave -r, -p"),
            (["call", &file, "get", "-", "--json"], "leave --json out"),
            (["call", &file, "put", "-", "-p"], "standard input has no times"),
            (["call", &at, "put", "-", "--verify"], "is a directory: put the name"),
        ] {
            assert!(home.refused(&arguments).contains(part), "{arguments:?}");
        }
    }
}
