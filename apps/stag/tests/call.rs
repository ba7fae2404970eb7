//! `stag call` against a server of its own for each test, over both transports.

use crate::support::{Home, Server};
use rustix::fs::{FileType, Mode};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::Path,
    process::Command,
    thread,
};

/// Describes each object of a tree, by its path.
fn tree(root: &Path) -> BTreeMap<Vec<u8>, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            let content = if found.is_file() {
                fs::read(&path).unwrap()
            } else if found.is_symlink() {
                fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else {
                waiting.extend(found.is_dir().then(|| path.clone()));
                Vec::new()
            };
            let mode = if found.is_symlink() { 0 } else { found.permissions().mode() };
            all.insert(
                path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec(),
                (mode, content),
            );
        }
    }
    all
}

/// A tree with all that makes trees difficult.
fn grow(root: &Path) {
    fs::create_dir_all(root.join("deep/er/still")).unwrap();
    fs::create_dir(root.join("nothing in it")).unwrap();
    for (name, len) in [
        (&b"empty"[..], 0),
        (b"one", 1),
        (b"deep/er/still/large", 3_000_001),
        (b"a name with blanks, ? and %41", 5),
        (b"-r", 70_000),
        (b"\xff\xfe no text", 4_096),
        (b"line\nbreak\\", 4_097),
        (b"...", 3),
        ("ä€𐍈".as_bytes(), 1_048_576),
    ] {
        let octets: Vec<_> =
            (0..len).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(root.join(OsStr::from_bytes(name)), octets).unwrap();
    }
    fs::write(root.join("x".repeat(255)), b"long").unwrap();
    fs::set_permissions(root.join("one"), PermissionsExt::from_mode(0o400)).unwrap();
    fs::set_permissions(root.join("empty"), PermissionsExt::from_mode(0o751)).unwrap();
    symlink("../outside", root.join("link")).unwrap();
    symlink("deep", root.join("deep/back")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
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

/// Runs what has to fail with exit code 1; gives its sentence.
fn failed(home: &Home, arguments: &[&str]) -> String {
    let output = home.run(arguments);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    err
}

#[test]
fn a_tree_comes_back_as_it_went_over_both_transports_and_both_stores() {
    let home = Home::new();
    grow(&home.path("tree"));
    let mut expected = tree(&home.path("tree"));
    expected.remove(&b"pipe"[..]);
    for (number, arguments) in
        [&["data"][..], &["--memory", "64M", "--name", "data"]].into_iter().enumerate()
    {
        let server = home.serve(arguments);
        for (place, url) in urls(&server).iter().enumerate() {
            let at = format!("{url}/data/{place}");
            done(&home, &["call", &at, "mkdir"]);
            let (sums, err) = done(&home, &["call", &at, "put", "-r", "--verify", "tree"]);
            assert!(
                err.contains("10 files, 5 directories, 2 symbolic links")
                    && err.contains("skipped: tree/pipe"),
                "{err}"
            );
            let back = format!("back-{number}-{place}");
            fs::create_dir(home.path(&back)).unwrap();
            let (_, err) = done(
                &home,
                &["call", &format!("{at}/tree"), "get", "-r", "--verify", "--depth", "3", &back],
            );
            assert!(err.contains("10 files") && err.contains("read back and compared"), "{err}");
            assert!(tree(&home.path(&back).join("tree")) == expected, "{at}");
            fs::write(home.path("sums"), sums).unwrap();
            let checked = Command::new("sha256sum")
                .args(["-c", "--quiet", "sums"])
                .current_dir(home.0.path())
                .status();
            assert!(checked.is_err() || checked.unwrap().success(), "sha256sum reads the lines");
            done(&home, &["call", &at, "rm", "-r"]);
        }
    }
    assert_eq!(fs::read_dir(home.path("data")).unwrap().count(), 0);
}

#[test]
fn objects_are_listed_shown_and_written_out() {
    let home = Home::new();
    fs::write(home.path("data/b"), b"content\n").unwrap();
    fs::write(home.path("data/a?%41"), b"odd").unwrap();
    fs::create_dir(home.path("data/c")).unwrap();
    symlink("b", home.path("data/d")).unwrap();
    let server = home.serve(&["data"]);
    for url in urls(&server) {
        let at = |path: &str| format!("{url}/data{path}");
        assert_eq!(done(&home, &["call", &at(""), "ls"]).0, b"a?%41\nb\nc\nd\n");
        let long = String::from_utf8(done(&home, &["call", &at("/"), "ls", "-l"]).0).unwrap();
        assert!(
            long.lines().count() == 4 && long.contains(" d -> b\n") && long.contains("\ndrwx"),
            "{long}"
        );
        assert_eq!(done(&home, &["call", &at("/a%3F%2541"), "cat"]).0, b"odd");
        assert_eq!(done(&home, &["call", &at("/b"), "ls"]).0, b"b\n");
        let stat: serde_json::Value =
            serde_json::from_slice(&done(&home, &["call", &at("/b"), "stat", "--json"]).0).unwrap();
        assert_eq!(
            (&stat["size"], &stat["kind"], &stat["name"]),
            (&8.into(), &"file".into(), &"b".into())
        );
        let listed: serde_json::Value =
            serde_json::from_slice(&done(&home, &["call", &at(""), "ls", "--json"]).0).unwrap();
        assert_eq!(listed.as_array().unwrap().len(), 4);
        let mounted: serde_json::Value =
            serde_json::from_slice(&done(&home, &["call", &at(""), "mount", "--json"]).0).unwrap();
        assert_eq!(mounted["exports"], serde_json::json!(["/data"]));
        let full: serde_json::Value =
            serde_json::from_slice(&done(&home, &["call", &at(""), "df", "--json"]).0).unwrap();
        assert!(full["total_octets"].as_u64().unwrap() > 0);
        assert_eq!(
            String::from_utf8(done(&home, &["call", &url, "null", "--count", "3"]).0)
                .unwrap()
                .lines()
                .count(),
            3
        );
        done(&home, &["call", &at("/new/and/newer"), "mkdir", "-p"]);
        done(&home, &["call", &at("/new/and/newer"), "mkdir", "-p"]);
        assert!(home.path("data/new/and/newer").is_dir());
        done(&home, &["call", &at("/new/and/copy"), "put", "data/b"]);
        assert_eq!(fs::read(home.path("data/new/and/copy")).unwrap(), b"content\n");
        done(&home, &["call", &at("/new"), "rm", "-r"]);
        done(&home, &["call", &at("/b"), "get", "elsewhere"]);
        assert_eq!(fs::read(home.path("elsewhere")).unwrap(), b"content\n");
    }
}

#[test]
fn mount_may_be_answered_at_a_port_of_its_own() {
    let home = Home::new();
    fs::write(home.path("data/file"), b"it").unwrap();
    let server = home.serve(&["data"]);
    let port = server.line("TCP").rsplit_once(':').unwrap().1.to_owned();
    for url in urls(&server) {
        let at = format!("{url}/data/file?mountport={port}");
        assert_eq!(done(&home, &["call", &at, "cat"]).0, b"it");
    }
}

#[test]
fn no_name_of_a_server_controls_the_terminal() {
    let home = Home::new();
    let hostile = OsStr::from_bytes(b"\x1b]0;owned\x07\xc2\x9b2J\n\\x1b");
    let shown = r"\u{1b}]0;owned\u{7}\u{9b}2J\n\\x1b";
    fs::create_dir(home.path("data").join(hostile)).unwrap();
    let inner = home.path("data").join(hostile).join(OsStr::from_bytes(b"\x1b[31mpipe"));
    rustix::fs::mknodat(rustix::fs::CWD, inner, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let server = home.serve(&["data"]);
    let is_quiet = |text: &str| !text.contains(|c: char| c.is_control() && c != '\n');
    let at = format!("{}/data", server.line("LISTEN"));
    for what in [&["ls"][..], &["ls", "-l"], &["ls", "--json"]] {
        let (out, _) = done(&home, &[&["call", &at], what].concat());
        let out = String::from_utf8(out).unwrap();
        assert!(is_quiet(&out) && out.contains("owned"), "{out:?}");
        assert!(what[1..] == ["--json"] || out.ends_with(&format!("{shown}\n")), "{out:?}");
    }
    let (_, said) = done(&home, &["call", &at, "get", "-r", "copy"]);
    assert!(is_quiet(&said) && said.contains(r"skipped: \u{1b}[31mpipe: "), "{said:?}");
    // A file is in the way: the error names the path here, which ends with the server's name.
    fs::remove_dir(home.path("copy").join(hostile)).unwrap();
    fs::write(home.path("copy").join(hostile), b"").unwrap();
    let output = home.run(&["call", &at, "get", "-r", "copy"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(is_quiet(&said) && said.contains(&format!("copy/{shown}")), "{said:?}");
}

#[test]
fn what_fails_names_the_call_and_the_status_in_words() {
    let home = Home::new();
    fs::create_dir(home.path("data/full")).unwrap();
    fs::write(home.path("data/full/file"), b"").unwrap();
    fs::write(home.path("local"), b"x").unwrap();
    let server = home.serve(&["data:ro"]);
    for url in urls(&server) {
        let at = |path: &str| format!("{url}/data{path}");
        let lookup = failed(&home, &["call", &at("/none"), "cat"]);
        assert!(lookup.contains("LOOKUP of none: no such file or directory (NoEnt)"), "{lookup}");
        let create = failed(&home, &["call", &at("/new"), "put", "local"]);
        assert!(create.contains("CREATE new: the file system is read-only (RoFs)"), "{create}");
        let remove = failed(&home, &["call", &at("/full/file"), "rm"]);
        assert!(remove.contains("REMOVE of file: the file system is read-only"), "{remove}");
        assert!(
            failed(&home, &["call", &at("/full"), "cat"])
                .contains("full is no file that could be read")
        );
        assert!(
            failed(&home, &["call", &format!("{url}/other/x"), "ls"]).contains("MNT of /other: ")
        );
        assert!(
            failed(&home, &["call", &at("/x"), "put", "missing"])
                .contains("cannot look at missing")
        );
        assert!(
            home.refused(&["call", &at("/full"), "get"]).contains("full is a directory: add -r")
        );
        assert!(
            home.refused(&["call", &at("/full"), "rm"]).contains("full is a directory: add -r")
        );
        assert!(
            home.refused(&["call", &at(""), "rm", "-r"])
                .contains("the root of an export cannot be removed")
        );
    }
    for url in ["iwarp://127.0.0.1:1/x", "tcp://127.0.0.1:1/x"] {
        assert!(failed(&home, &["call", url, "ls"]).contains("cannot connect to "));
    }
}

#[test]
fn a_link_that_a_server_had_us_make_leads_nothing_out_of_the_tree() {
    let home = Home::new();
    fs::create_dir_all(home.path("data/tree/way")).unwrap();
    fs::write(home.path("data/tree/way/file"), b"new").unwrap();
    fs::create_dir_all(home.path("here/tree")).unwrap();
    fs::create_dir(home.path("outside")).unwrap();
    symlink(home.path("outside"), home.path("here/tree/way")).unwrap();
    let server = home.serve(&["data"]);
    let output =
        home.run(&["call", &format!("{}/data/tree", server.line("LISTEN")), "get", "-r", "here"]);
    let err = String::from_utf8(output.stderr).unwrap();
    let last = err.lines().last().unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(last.starts_with("stag: cannot make the directory here/tree/way"), "{err}");
    assert_eq!(fs::read_dir(home.path("outside")).unwrap().count(), 0);
}

/// Passes records of RPC on to a server, but for those of a program that this port does not have.
fn without_mount(to: String, status: u32) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let (mut near, mut far) = (near, TcpStream::connect(&to).unwrap());
            let record = |from: &mut TcpStream| -> Option<Vec<u8>> {
                let mut mark = [0; 4];
                from.read_exact(&mut mark).ok()?;
                let mut record = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
                from.read_exact(&mut record).ok()?;
                Some([&mark[..], &record].concat())
            };
            thread::spawn(move || {
                while let Some(call) = record(&mut near) {
                    let word = |at: usize| u32::from_be_bytes(*call[at..].first_chunk().unwrap());
                    let reply = if word(16) == 100_005 {
                        // PROG_UNAVAIL, or PROG_MISMATCH with the versions that there are.
                        let versions: &[u32] = if status == 2 { &[1, 1] } else { &[] };
                        let words = [&[word(4), 1, 0, 0, 0, status], versions].concat();
                        let mark = 0x8000_0000 | u32::try_from(words.len() * 4).unwrap();
                        [&[mark][..], &words]
                            .concat()
                            .iter()
                            .flat_map(|word| word.to_be_bytes())
                            .collect()
                    } else {
                        far.write_all(&call).unwrap();
                        record(&mut far).unwrap()
                    };
                    near.write_all(&reply).unwrap();
                }
            });
        }
    });
    at
}

#[test]
fn a_port_without_mount_leads_to_the_port_mapper_or_to_a_hint() {
    let home = Home::new();
    fs::write(home.path("data/file"), b"it").unwrap();
    let server = home.serve(&["data"]);
    let port = server.line("TCP").rsplit_once(':').unwrap().1.to_owned();
    for status in [1, 2] {
        let at = format!("tcp://{}", without_mount(server.line("TCP"), status));
        // There is no port mapper here: a hint says what to write instead, and that works.
        for what in
            [&["call", &format!("{at}/data/file"), "cat"][..], &["check", &format!("{at}/data")]]
        {
            let sentence = failed(&home, what);
            assert!(sentence.contains("does not answer MOUNT version 3"), "{sentence}");
            assert!(
                sentence.contains("?mountport=N") && sentence.contains("port mapper"),
                "{sentence}"
            );
        }
        let with = format!("{at}/data/file?mountport={port}");
        assert_eq!(done(&home, &["call", &with, "cat"]).0, b"it");
        done(&home, &["check", &format!("{at}/data?mountport={port}"), "--entries", "20"]);
    }
}

#[test]
fn a_url_without_an_export_lists_what_there_is() {
    let home = Home::new();
    fs::create_dir(home.path("other")).unwrap();
    let server = home.serve(&["data", "other"]);
    for url in urls(&server) {
        assert_eq!(done(&home, &["call", &url, "mount"]).0, b"EXPORT /data\nEXPORT /other\n");
        let listed = done(&home, &["call", &url, "mount", "--json"]).0;
        let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
        assert_eq!(
            listed,
            serde_json::json!({ "export": null, "handle": null, "exports": ["/data", "/other"] })
        );
        assert_eq!(done(&home, &["call", &url, "ls"]).0, b"/data\n/other\n");
        let listed = done(&home, &["call", &url, "ls", "--json"]).0;
        let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
        assert_eq!(listed[1]["url"], format!("{url}/other"));
        let sentence = home.refused(&["call", &url, "stat"]);
        assert!(
            sentence.contains("names no export: put one of these behind it: /data, /other"),
            "{sentence}"
        );
    }
}

#[test]
fn the_functional_run_works_below_an_export_and_says_what_is_not_there() {
    let home = Home::new();
    fs::create_dir_all(home.path("data/sub/dir")).unwrap();
    let server = home.serve(&["data"]);
    for url in urls(&server) {
        done(&home, &["check", &format!("{url}/data/sub/dir"), "--entries", "20"]);
        let sentence = failed(&home, &["check", &format!("{url}/data/none")]);
        assert!(
            sentence.contains("1 steps failed") && sentence.contains("LOOKUP none"),
            "{sentence}"
        );
    }
    assert_eq!(fs::read_dir(home.path("data/sub/dir")).unwrap().count(), 0);
}

#[test]
fn bench_without_an_export_says_so_instead_of_a_table_of_zeros() {
    let home = Home::new();
    let server = home.serve(&["data"]);
    for url in urls(&server) {
        let output = home.run(&["bench", &url, "--warm-up", "0", "--calls", "10"]);
        let sentence = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(1), &b""[..]),
            "{sentence}"
        );
        assert!(sentence.contains("put /NAME behind the URL"), "{sentence}");
    }
}
