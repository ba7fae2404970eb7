//! `stag call` by a ticket of Kerberos against NFS-Ganesha, with a KDC that the test starts. Where
//! one of them is missing, the test says so and passes; with `STAG_NO_SKIP` in the environment, it
//! fails. Ganesha needs root. It serves version 4 alone, because version 3 needs a port mapper.

use crate::support::{Home, wait_for};
use std::{
    env, fs,
    path::Path,
    process::{Child, Command, Stdio},
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
    let realm = Realm::start()?;
    realm.folder.kadmin("addprinc -randkey nfs/localhost");
    let keytab = realm.folder.path("localhost.keytab");
    realm.folder.kadmin(&format!("ktadd -norandkey -k {} nfs/localhost", keytab.display()));
    realm.folder.kinit("cache", &[]);
    let port = free_port();
    let server = start(home, &realm.folder, &keytab, port);
    Ok((realm, server, port))
}

#[test]
fn files_go_both_ways_by_a_ticket_under_every_protection() {
    let home = Home::new();
    let (realm, _server, port) = match prepared(&home) {
        Ok(prepared) => prepared,
        Err(why) => {
            assert!(env::var_os("STAG_NO_SKIP").is_none(), "must not be skipped: {why}");
            return println!("skipped: {why}");
        }
    };
    let content: Vec<u8> = (0..300_000_u32).map(|place| (place * 7 + place / 251) as u8).collect();
    fs::write(home.path("file"), &content).unwrap();
    let run = |arguments: &[&str], cache: &str| {
        let mut command = home.stag(arguments);
        command
            .env("KRB5_CONFIG", realm.folder.path("usual.conf"))
            .env("KRB5CCNAME", realm.folder.cache(cache))
            .env_remove("KRB5_CLIENT_KTNAME");
        command.output().unwrap()
    };
    let server = format!("tcp://localhost:{port}/m");
    for sec in ["krb5", "krb5i", "krb5p"] {
        let url = format!("{server}/{sec}?sec={sec}");
        let put = run(&["call", &url, "put", "--verify", "file"], "cache");
        assert!(put.status.success(), "{sec}: {}", String::from_utf8_lossy(&put.stderr));
        let url = format!("{server}/{sec}");
        let read = run(&["call", &url, "--sec", sec, "cat"], "cache");
        assert!(read.status.success(), "{sec}: {}", String::from_utf8_lossy(&read.stderr));
        assert!(read.stdout == content, "{sec}: {} octets", read.stdout.len());
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
        (&["bench", "tcp://127.0.0.1:1/x?sec=krb5"], "AUTH_SYS alone"),
    ] {
        let sentence = home.refused(arguments);
        assert!(sentence.contains(part), "{sentence}");
    }
}
