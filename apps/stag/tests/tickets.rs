//! `stag call` and `stag bench` by a ticket of Kerberos against `stag serve` and NFS-Ganesha, with
//! a KDC that the test starts. Where one of them is missing, the test says so and passes; with
//! `STAG_NO_SKIP` in the environment, it fails. Ganesha needs root. It serves version 4 alone,
//! because version 3 needs a port mapper.

use crate::support::{Home, Server, wait_for};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
};

#[allow(dead_code)] // Of what it can do, some is for tests of the library.
#[path = "../../../engine/gssapi/tests/realm/mod.rs"]
mod realm;
use realm::{Folder, Realm};

const GANESHA: &str = "/usr/bin/ganesha.nfsd";
const MEMORY: &str = "/usr/lib/x86_64-linux-gnu/ganesha/libfsalmem.so";

/// A server that ends with its test.
struct Ganesha(Child);

impl Drop for Ganesha {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Port of a server of version 4 alone, which needs no port mapper.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn start(home: &Home, realm: &Folder, keytab: &Path, port: u16) -> Ganesha {
    let (folder, keytab) = (home.0.path().display(), keytab.display());
    let text = format!(
        "NFS_CORE_PARAM {{ NFS_Port = {port}; Protocols = 4; Enable_NLM = false; \
         Enable_RQUOTA = false; Enable_UDP = false; }}\n\
         NFSv4 {{ Graceless = true; Minor_Versions = 1,2; Only_Numeric_Owners = true; \
         RecoveryBackend = fs; RecoveryRoot = {folder}; }}\n\
         NFS_KRB5 {{ PrincipalName = \"nfs\"; KeytabPath = {keytab}; CCacheDir = {folder}; \
         Active_krb5 = true; }}\n\
         EXPORT {{ Export_Id = 1; Path = /m; Pseudo = /m; Access_Type = RW; Squash = none; \
         SecType = krb5,krb5i,krb5p; FSAL {{ Name = MEM; }} }}\n\
         MEM {{ Inode_Size = 2097152; }}\nLOG {{ Default_Log_Level = EVENT; }}\n"
    );
    fs::write(home.path("ganesha.conf"), text).unwrap();
    fs::write(home.path("ganesha.log"), "").unwrap();
    let mut command = Command::new(GANESHA);
    command
        .args(["-F", "-L", &home.text("ganesha.log"), "-f", &home.text("ganesha.conf")])
        .args(["-p", &home.text("ganesha.pid"), "-N", "EVENT"])
        .env("KRB5RCACHENAME", "none:")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.env("KRB5_CONFIG", realm.path("usual.conf")).env("KRB5_KTNAME", keytab.to_string());
    let server = Ganesha(command.spawn().unwrap());
    let log = home.path("ganesha.log");
    wait_for("Ganesha", || fs::read_to_string(&log).unwrap().contains("NFS SERVER INITIALIZED"));
    server
}

/// A realm and Ganesha, or the reason why there is none.
fn prepared(home: &Home) -> Result<(Realm, Ganesha, u16), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("Ganesha needs root".to_owned());
    }
    for file in [GANESHA, MEMORY] {
        if !Path::new(file).exists() {
            let packages = "nfs-ganesha nfs-ganesha-mem";
            return Err(format!("{file} is missing (fix: apt-get install {packages})"));
        }
    }
    let (realm, keytab) = realm_of_localhost()?;
    let port = free_port();
    let server = start(home, &realm.folder, &keytab, port);
    Ok((realm, server, port))
}

/// A realm, a ticket of alice in its cache, and the keys of `nfs/localhost`.
fn realm_of_localhost() -> Result<(Realm, PathBuf), String> {
    let realm = Realm::start()?;
    realm.folder.kadmin("addprinc -randkey nfs/localhost");
    let keytab = realm.folder.path("localhost.keytab");
    realm.folder.kadmin(&format!("ktadd -norandkey -k {} nfs/localhost", keytab.display()));
    realm.folder.kinit("cache", &[]);
    Ok((realm, keytab))
}

/// Runs the command in the realm.
fn run_in(home: &Home, realm: &Folder, arguments: &[&str], cache: &str) -> Output {
    let mut command = home.stag(arguments);
    command
        .env("KRB5_CONFIG", realm.path("usual.conf"))
        .env("KRB5CCNAME", realm.cache(cache))
        .env_remove("KRB5_CLIENT_KTNAME");
    command.output().unwrap()
}

/// `stag serve` with these keys, at ports of the host; alice is the user of the tests.
fn serve(home: &Home, realm: &Folder, keytab: &Path, ports: [u16; 2]) -> Server {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let map = format!("alice@{} = {}:{}\n", realm::REALM, uid.as_raw(), gid.as_raw());
    fs::write(home.path("users"), map).unwrap();
    let [rdma, tcp] = ports;
    let (rdma, tcp) = (format!("iwarp://127.0.0.1:{rdma}"), format!("127.0.0.1:{tcp}"));
    let keytab = keytab.to_str().unwrap();
    let kerberos = ["--keytab", keytab, "--kerberos-map", "users", "--sec", "krb5,krb5i,krb5p"];
    let usual = ["serve", "data", "--mode", "unprivileged", "--insecure"];
    let at = ["--listen", &rdma, "--tcp", &tcp];
    let mut command = home.stag(&[&usual[..], &kerberos, &at].concat());
    command.env("KRB5_CONFIG", realm.path("usual.conf"));
    Server::start(home, command)
}

/// The result of a run of `stag bench` that succeeds.
fn measured(home: &Home, realm: &Folder, arguments: &[&str]) -> serde_json::Value {
    let short = ["--warm-up", "0.1", "--json", "-"];
    let done = run_in(home, realm, &[&["bench"], arguments, &short].concat(), "cache");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// A server over RDMA and TCP, for which alice has a ticket.
struct Served {
    home: Home,
    realm: Realm,
    keytab: PathBuf,
    ports: [u16; 2],
    server: Server,
}

/// Starts it. None where there is no KDC.
fn served() -> Option<Served> {
    let home = Home::new();
    let (realm, keytab) = match realm_of_localhost() {
        Ok(realm) => realm,
        Err(why) => {
            skip(&why);
            return None;
        }
    };
    let ports = [free_port(), free_port()];
    let server = serve(&home, &realm.folder, &keytab, ports);
    Some(Served { home, realm, keytab, ports, server })
}

/// The reason, if a test cannot run here.
fn skip(why: &str) {
    assert!(env::var_os("STAG_NO_SKIP").is_none(), "must not be skipped: {why}");
    println!("skipped: {why}");
}

#[test]
fn a_load_is_made_by_tickets_under_every_protection() {
    let Some(Served { home, realm, ports, server: _server, .. }) = served() else { return };
    let of_each = ["--connections", "2", "--depth", "2", "--calls", "40", "--file-size", "64K"];
    let rdma = (format!("iwarp://localhost:{}", ports[0]), ["null", "nfs3:mixed", "nfs4:meta"]);
    let tcp = format!("tcp://localhost:{}", ports[1]);
    for (at, workloads) in [rdma, (tcp, ["nfs3:meta", "nfs3:readdirplus", "nfs4:mixed"])] {
        for sec in ["krb5", "krb5i", "krb5p"] {
            let url = format!("{at}/data?sec={sec}");
            for workload in workloads {
                let names: &[&str] = match workload {
                    "nfs3:readdirplus" => &["--names", "100"],
                    _ => &["--size", "20000"],
                };
                let which = [&url, "--workload", workload];
                let result =
                    measured(&home, &realm.folder, &[&which[..], &of_each, names].concat());
                let counts = [&result["calls"], &result["failed"], &result["contexts"]["created"]];
                assert_eq!(counts, [40, 0, 2], "{url} {workload}");
                assert_eq!(result["setup"]["sec"], sec);
            }
        }
    }
    // A ladder of rates from two cores; a ticket of a wrong name; no ticket.
    let url = format!("tcp://localhost:{}/data", ports[1]);
    let cores = if stag_cores() > 1 { "2" } else { "1" };
    let rates = ["--sec", "krb5i", "--rate", "100,200", "--duration", "0.5", "--cores", cores];
    let ladder = ["--workload", "nfs3:getattr", "--connections", "3"];
    let result = measured(&home, &realm.folder, &[&[&*url], &rates[..], &ladder].concat());
    for run in result.as_array().unwrap() {
        assert!(run["calls"].as_u64() > Some(10) && run["contexts"]["created"] == 3, "{run}");
    }
    let other = format!("tcp://127.0.0.1:{}/data?sec=krb5", ports[1]);
    for (url, cache, part) in
        [(&*other, "cache", "nfs@127.0.0.1"), (&format!("{url}?sec=krb5"), "no cache", "kinit")]
    {
        let failed = run_in(&home, &realm.folder, &["bench", url, "--calls", "1"], cache);
        let sentence = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert_eq!(failed.status.code(), Some(1), "{sentence}");
        assert!(sentence.contains(part), "{sentence}");
    }
}

/// Cores that the tests may use.
fn stag_cores() -> usize {
    thread::available_parallelism().map_or(1, Into::into)
}

#[test]
fn a_run_gets_other_contexts_from_a_server_that_was_started_again() {
    let Some(Served { home, realm, keytab, ports, mut server }) = served() else { return };
    let url = format!("iwarp://localhost:{}/data?sec=krb5p", ports[0]);
    let result = thread::scope(|scope| {
        let run = scope.spawn(|| {
            let what = ["--workload", "nfs3:write", "--size", "8K", "--file-size", "64K"];
            let how = ["--depth", "4", "--duration", "4", "--reconnect"];
            measured(&home, &realm.folder, &[&[&*url], &what[..], &how].concat())
        });
        // Far more than the set-up writes: the run measures.
        wait_for("WRITEs of the run", || home.octets_written() > 1 << 20);
        server.signal(rustix::process::Signal::KILL);
        server.wait();
        server = serve(&home, &realm.folder, &keytab, ports);
        run.join().unwrap()
    });
    // A call outstanding at the end of the server is made again, in another context.
    assert_eq!((&result["failed"], result["outages"].as_array().unwrap().len()), (&0.into(), 1));
    assert_eq!(result["contexts"], serde_json::json!({ "created": 2, "renewed": 1 }));
}

#[test]
fn contexts_are_listed_by_principal_while_a_load_uses_them() {
    let Some(Served { home, realm, ports, server: _server, .. }) = served() else { return };
    let listed = || {
        let done = home.run(&["ctl", "--json", "contexts"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice::<serde_json::Value>(&done.stdout).unwrap()
    };
    assert_eq!(listed(), serde_json::json!({ "contexts": 0, "principals": [], "left_out": 0 }));
    let url = format!("iwarp://localhost:{}/data?sec=krb5i", ports[0]);
    let what = [&*url, "--workload", "nfs3:getattr", "--connections", "2", "--duration", "3"];
    let all = thread::scope(|scope| {
        let run = scope.spawn(|| measured(&home, &realm.folder, &what));
        let has_both = |all: &serde_json::Value| {
            let alice = &all["principals"][0];
            alice["contexts"].as_u64() >= Some(2) && alice["sec"] == "krb5i"
        };
        wait_for("two contexts", || has_both(&listed()));
        let all = listed();
        run.join().unwrap();
        all
    });
    let [alice] = &all["principals"].as_array().unwrap()[..] else { panic!("{all}") };
    assert_eq!(alice["principal"], format!("alice@{}", realm::REALM));
    assert!(alice["host"] == "127.0.0.1" || alice["host"] == "::1", "{alice}");
    assert!(alice["idle_ms"].as_f64().unwrap() < 2_000.0, "{alice}");
    assert!(alice["expires_in_s"].as_u64() > Some(60), "{alice}");
    // The load has destroyed them at its end.
    assert!(listed()["contexts"].as_u64() < all["contexts"].as_u64());
}

#[test]
fn files_go_both_ways_by_a_ticket_under_every_protection() {
    let home = Home::new();
    let (realm, _server, port) = match prepared(&home) {
        Ok(prepared) => prepared,
        Err(why) => return skip(&why),
    };
    let content: Vec<u8> = (0..300_000_u32).map(|place| (place * 7 + place / 251) as u8).collect();
    fs::write(home.path("file"), &content).unwrap();
    let run = |arguments: &[&str], cache: &str| run_in(&home, &realm.folder, arguments, cache);
    let server = format!("tcp://localhost:{port}/m");
    for sec in ["krb5", "krb5i", "krb5p"] {
        let url = format!("{server}/{sec}?sec={sec}");
        let put = run(&["call", &url, "put", "--verify", "file"], "cache");
        assert!(put.status.success(), "{sec}: {}", String::from_utf8_lossy(&put.stderr));
        let url = format!("{server}/{sec}");
        let read = run(&["call", &url, "--sec", sec, "cat"], "cache");
        assert!(read.status.success(), "{sec}: {}", String::from_utf8_lossy(&read.stderr));
        assert!(read.stdout == content, "{sec}: {} octets", read.stdout.len());
        // Its window has 32 numbers, which the depth of 8 does not reach.
        let what = ["--workload", "nfs4:mixed", "--size", "20000", "--file-size", "256K"];
        let how = ["--sec", sec, "--depth", "8", "--connections", "2", "--calls", "200"];
        let result = measured(&home, &realm.folder, &[&[&*server], &what[..], &how].concat());
        assert_eq!([&result["calls"], &result["failed"]], [200, 0], "{sec}");
    }
    // Without Kerberos the export is closed; without a ticket there is no call.
    let closed = run(&["call", &format!("{server}/krb5"), "cat"], "cache");
    assert_eq!(closed.status.code(), Some(1));
    let without = run(&["call", &server, "--sec", "krb5", "ls"], "no cache");
    let sentence = String::from_utf8_lossy(&without.stderr).into_owned();
    assert_eq!(without.status.code(), Some(1));
    assert!(sentence.contains("kinit"), "{sentence}");
}

#[test]
fn a_credential_that_cannot_be_had_is_refused_with_what_to_write() {
    let home = Home::new();
    for (arguments, part) in [
        (&["call", "tcp://127.0.0.1:1/x?sec=krb6", "ls"][..], "sec=krb5"),
        (&["call", "tcp://127.0.0.1:1/x?sec=krb5", "--sec", "sys", "ls"], "contradict"),
        (&["call", "shm:///run/x.sock:/x", "--sec", "krb5", "ls"], "needs the server's name"),
        (&["bench", "tcp://127.0.0.1:1/x?sec=krb5", "--workload", "connstorm"], "outlasts them"),
        (&["bench", "tcp://127.0.0.1:1", "--sec", "krb5"], "name an export"),
        (&["bench", "tcp://127.0.0.1:1", "--sec", "krb5i", "--workload", "pull"], "no Kerberos"),
        (&["bench", "tcp://127.0.0.1:1/x?sec=krb5", "--sec", "sys"], "contradict"),
    ] {
        let sentence = home.refused(arguments);
        assert!(sentence.contains(part), "{sentence}");
    }
}
