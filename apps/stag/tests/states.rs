//! Clients and states of version 4 in `stag ctl`, and the end of a client, at a running server.

use crate::{
    caller4::{Caller4, Results},
    support::{Home, PATIENCE, Server},
};
use serde_json::{Value, json};
use stag_protocol::nfs::v4::*;

/// The value that `stag ctl … --json` prints.
fn ctl(home: &Home, arguments: &[&str]) -> Value {
    let output = home.run(&[&["ctl", "--json"], arguments].concat());
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {err}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The sentence of `stag ctl …`, which the server refuses.
fn refused(home: &Home, arguments: &[&str]) -> String {
    let output = home.run(&[&["ctl"], arguments].concat());
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn list(home: &Home, what: &str, more: &[&str]) -> Vec<Value> {
    let all = ctl(home, &[&[what], more].concat());
    assert_eq!(all.get("next"), None, "all pages are joined");
    all[what].as_array().unwrap().clone()
}

/// The client of this name.
fn client(home: &Home, name: &str) -> Option<Value> {
    list(home, "clients4", &[]).into_iter().find(|client| client["name"] == name)
}

fn id(home: &Home, name: &str) -> String {
    client(home, name).unwrap()["id"].as_str().unwrap().to_owned()
}

/// A file that a client has open.
struct Opened {
    handle: Vec<u8>,
    stateid: Stateid,
}

fn open(client: &mut Caller4, name: &[u8], deny: u32) -> Opened {
    let open = Open4Args {
        seqid: 0,
        share_access: share::BOTH | share::WANT_NO_DELEGATION,
        share_deny: deny,
        owner: StateOwner { client_id: 0, owner: Text(b"owner") },
        how: OpenHow::Create(CreateHow4::Unchecked(RawAttributes::default())),
        claim: OpenClaim::Null(Text(name)),
    };
    let to = [Request::PutRootFh(()), Request::Lookup(Text(b"data"))];
    let opened = client.run(&[&to[..], &[Request::Open(open)]].concat());
    let Answer::Open(Ok(ok)) = opened.last() else { panic!("{:?}", opened.last()) };
    let found = client.run(&[&to[..], &[Request::Lookup(Text(name)), Request::GetFh(())]].concat());
    let Answer::GetFh(Ok(handle)) = found.last() else { panic!("{:?}", found.last()) };
    Opened { handle: handle.0.to_vec(), stateid: ok.stateid }
}

/// A write lock on 10 bytes from the fifth on.
fn lock(client: &mut Caller4, file: &Opened) -> Results {
    let owner = NewLockOwner {
        open_seqid: 0,
        open: file.stateid,
        lock_seqid: 0,
        owner: StateOwner { client_id: 0, owner: Text(b"locker") },
    };
    let (kind, locker) = (LockType::Write, Locker::New(owner));
    let args = Lock4Args { kind, reclaim: false, offset: 5, length: 10, locker };
    client.run(&[Request::PutFh(Text(&file.handle)), Request::Lock(args)])
}

fn hexadecimal(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn serve(home: &Home, cores: &str) -> Server {
    home.serve(&["data", "--cores", cores, "--nfs", "4"])
}

/// With several clients the kernel spreads their connections over the cores.
fn crowd(server: &Server) -> Vec<Caller4> {
    let at = server.line("TCP");
    (0..6).map(|number| Caller4::mounted(&at, &format!("crowd {number}"))).collect()
}

#[test]
fn each_client_is_shown_with_its_lease_and_its_states() {
    for cores in ["1", "2"] {
        let home = Home::new();
        let server = serve(&home, cores);
        let _crowd = crowd(&server);
        let mut one = Caller4::mounted(&server.line("TCP"), "one \u{1b}[2J");
        let file = open(&mut one, b"file", share::WRITE);
        assert_eq!(lock(&mut one, &file).status(), Status4::Ok);
        let shown = client(&home, r"one \u{1b}[2J").expect("control characters are escaped");
        for (part, value) in [
            ("principal", json!("none")),
            ("minor_version", json!(2)),
            ("sessions", json!(1)),
            ("callbacks", json!("none")),
            ("opens", json!(1)),
            ("locks", json!(1)),
            ("delegations", json!(0)),
        ] {
            assert_eq!(shown[part], value, "{part} of {shown}");
        }
        assert!(shown["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{shown}");
        let [age, left] = ["age_s", "left_s"].map(|it| shown["lease"][it].as_f64().unwrap());
        let lease = shown["lease_s"].as_f64().unwrap();
        assert!(age < lease && (age + left - lease).abs() < 0.001, "{shown}");
        assert_eq!(list(&home, "clients4", &[]).len(), 7);
        let text = home.run(&["ctl", "clients4"]);
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.contains("4.2") && text.lines().all(|line| line.len() <= 80), "{text}");
    }
}

#[test]
fn states_are_listed_by_client_and_by_file() {
    for cores in ["1", "2"] {
        let home = Home::new();
        let server = serve(&home, cores);
        let mut crowd = crowd(&server);
        let files: Vec<_> = (crowd.iter_mut().enumerate())
            .map(|(number, client)| open(client, format!("file{number}").as_bytes(), 0))
            .collect();
        let handle = hexadecimal(&files[3].handle);
        let owner = id(&home, "crowd 3");
        assert_eq!(list(&home, "opens", &[]).len(), 6);
        for filter in [["--client", &owner], ["--file", &handle]] {
            let opens = list(&home, "opens", &filter);
            let [open] = &opens[..] else { panic!("{filter:?}: {opens:?}") };
            assert_eq!((&open["access"], &open["deny"]), (&json!("rw"), &json!("-")));
            assert_eq!((&open["client"], &open["file"]), (&json!(owner), &json!(handle)));
            assert_eq!((&open["export"], &open["owner"]), (&json!("/data"), &json!("owner")));
            assert_eq!(open["state"], json!(hexadecimal(&files[3].stateid.other)));
        }
        assert!(list(&home, "locks", &[]).is_empty());
        assert_eq!(lock(&mut crowd[3], &files[3]).status(), Status4::Ok);
        let locks = list(&home, "locks", &["--client", &owner]);
        let range = json!({ "first": 5, "last": 14, "type": "write" });
        assert_eq!((&locks[0]["ranges"], &locks[0]["count"]), (&json!([range]), &json!(1)));
        assert!(list(&home, "delegations", &[]).is_empty());
        let text = home.run(&["ctl", "locks"]);
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.contains("write      5    14") && text.contains(&handle), "{text}");
        let stranger = refused(&home, &["opens", "--client", "0000000000000001"]);
        assert!(stranger.contains("no client of NFS version 4 is"), "{stranger}");
        assert!(refused(&home, &["opens", "--client", "one"]).contains("no client ID"));
        assert!(refused(&home, &["locks", "--file", "xyz"]).contains("no file handle"));
    }
}

#[test]
fn the_states_of_a_client_that_is_ended_are_free_for_others() {
    for cores in ["1", "2"] {
        let home = Home::new();
        let server = serve(&home, cores);
        let _crowd = crowd(&server);
        let at = server.line("TCP");
        let [mut one, mut two] = ["one", "two"].map(|name| Caller4::mounted(&at, name));
        let held = open(&mut one, b"file", 0);
        let wanted = open(&mut two, b"file", 0);
        assert_eq!(lock(&mut one, &held).status(), Status4::Ok);
        assert_eq!(lock(&mut two, &wanted).status(), Status4::Denied);
        let name = id(&home, "one");
        assert_eq!(ctl(&home, &["expire", &name]), json!({ "expired": name }));
        assert_eq!(client(&home, "one"), None);
        server.wait_for_err("a client's lease was ended");
        assert_eq!(lock(&mut two, &wanted).status(), Status4::Ok, "on {cores} cores");
        assert_eq!(one.run(&[Request::PutRootFh(())]).status(), Status4::BadSession);
        assert!(refused(&home, &["expire", &name]).contains("no client of NFS version 4 is"));
        // It may come again, without anything that it had.
        let mut again = Caller4::mounted(&at, "one");
        let opened = open(&mut again, b"file", 0);
        assert_eq!(lock(&mut again, &opened).status(), Status4::Denied);
    }
}

#[test]
fn a_client_that_was_ended_is_not_awaited_by_the_next_server() {
    let home = Home::new();
    let mut server = serve(&home, "1");
    let at = server.line("TCP");
    let mut clients = ["one", "two"].map(|name| Caller4::mounted(&at, name));
    for client in &mut clients {
        open(client, b"file", 0);
    }
    ctl(&home, &["expire", &id(&home, "one")]);
    server.signal(rustix::process::Signal::KILL);
    server.wait();
    let server = serve(&home, "1");
    let at = server.line("TCP");
    let [mut one, mut two] = clients;
    assert_eq!(reclaim(&mut one, &at), Status4::NoGrace);
    assert_eq!(reclaim(&mut two, &at), Status4::Ok);
}

/// Comes back to a server that was started again, and reclaims its open of the file.
fn reclaim(client: &mut Caller4, at: &str) -> Status4 {
    client.reconnect(at);
    client.begin();
    reopen(client)
}

/// Reclaims the open of the file.
fn reopen(client: &mut Caller4) -> Status4 {
    let owner = StateOwner { client_id: 0, owner: Text(b"owner") };
    let open = Open4Args {
        seqid: 0,
        share_access: share::BOTH,
        share_deny: 0,
        owner,
        how: OpenHow::NoCreate,
        claim: OpenClaim::Previous(DelegationType::None),
    };
    let find = [Request::PutRootFh(()), Request::Lookup(Text(b"data"))];
    let to = [&find[..], &[Request::Lookup(Text(b"file")), Request::Open(open)]].concat();
    client.run(&to).status()
}

#[test]
fn a_grace_period_names_the_clients_that_are_awaited_and_ends_when_it_is_asked_to() {
    for cores in ["1", "2"] {
        let home = Home::new();
        let mut server = serve(&home, cores);
        assert_eq!(ctl(&home, &["grace"])["grace"], Value::Null);
        assert!(refused(&home, &["grace", "--end"]).contains("there is no grace period"));
        let at = server.line("TCP");
        let mut clients = ["here", "gone", "back"].map(|name| Caller4::mounted(&at, name));
        for client in &mut clients {
            open(client, b"file", 0);
        }
        server.signal(rustix::process::Signal::KILL);
        server.wait();
        let server = serve(&home, cores);
        let at = server.line("TCP");
        let [mut here, mut gone, mut back] = clients;
        assert_eq!(reclaim(&mut here, &at), Status4::Ok);
        back.reconnect(&at);
        back.begin();
        let shown = ctl(&home, &["grace"]);
        let left = shown["grace"]["left_s"].as_f64().unwrap();
        assert!(left > 0.0 && left <= 120.0, "{shown}");
        let gone_only = json!([{ "name": "gone", "principal": "none" }]);
        assert_eq!(
            (&shown["grace"]["awaited"], &shown["grace"]["absent"], &shown["ended"]),
            (&json!(3), &gone_only, &json!(false)),
            "{shown}"
        );
        // Another one waits for all of them.
        let mut new = Caller4::mounted(&at, "new");
        assert_eq!(create(&mut new), Status4::Grace);
        let ended = ctl(&home, &["grace", "--end"]);
        assert_eq!(
            (&ended["grace"]["absent"], &ended["ended"]),
            (&gone_only, &json!(true)),
            "{ended}"
        );
        server.wait_for_err("the grace period was ended");
        // Its end is recorded first.
        let began = std::time::Instant::now();
        loop {
            match create(&mut new) {
                Status4::Ok => break,
                Status4::Grace | Status4::Delay if began.elapsed() < PATIENCE => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ctl(&home, &["grace"])["grace"], Value::Null);
        // No awaited client gets anything back, and the one that had reclaimed keeps its open.
        assert_eq!(reopen(&mut back), Status4::NoGrace);
        assert_eq!(reclaim(&mut gone, &at), Status4::NoGrace);
        assert_eq!(here.run(&[Request::PutRootFh(())]).status(), Status4::Ok);
        assert_eq!(client(&home, "here").unwrap()["opens"], json!(1), "on {cores} cores");
    }
}

/// Opens a file of its own.
fn create(client: &mut Caller4) -> Status4 {
    let open = Open4Args {
        seqid: 0,
        share_access: share::BOTH | share::WANT_NO_DELEGATION,
        share_deny: 0,
        owner: StateOwner { client_id: 0, owner: Text(b"owner") },
        how: OpenHow::Create(CreateHow4::Unchecked(RawAttributes::default())),
        claim: OpenClaim::Null(Text(b"own")),
    };
    let to = [Request::PutRootFh(()), Request::Lookup(Text(b"data")), Request::Open(open)];
    client.run(&to).status()
}

#[test]
fn a_server_of_version_3_alone_says_that_it_has_no_clients_of_version_4() {
    let home = Home::new();
    let _server = home.serve(&["data", "--nfs", "3"]);
    let sentence = refused(&home, &["clients4"]);
    assert!(sentence.contains("does not serve NFS version 4"), "{sentence}");
}
