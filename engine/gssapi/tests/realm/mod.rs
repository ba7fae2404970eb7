//! A realm in a temporary folder: database, keys, a KDC on loopback that ends with it. Nothing of
//! `/etc` is read or changed, and no privilege is needed.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

pub const REALM: &str = "STAG.TEST";
/// Programs that make a realm.
const PROGRAMS: [&str; 4] = ["krb5kdc", "kdb5_util", "kadmin.local", "kinit"];
/// The accepted encryption types.
const ENCTYPES: [&str; 4] = [
    "aes256-cts-hmac-sha384-192",
    "aes128-cts-hmac-sha256-128",
    "aes256-cts-hmac-sha1-96",
    "aes128-cts-hmac-sha1-96",
];

/// Folders of Debian, Fedora and SUSE with programs of administrators.
fn path() -> String {
    let path = env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin:/usr/lib/mit/sbin:/usr/lib/mit/bin")
}

/// The first program that is not here.
fn missing() -> Option<&'static str> {
    let is_here =
        |name: &str| path().split(':').any(|folder| Path::new(folder).join(name).exists());
    PROGRAMS.into_iter().find(|name| !is_here(name))
}

/// A folder of a realm, for the test that made it and for its children.
#[derive(Clone)]
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The name of a credential cache in it.
    pub fn cache(&self, name: &str) -> String {
        format!("FILE:{}", self.path(name).display())
    }

    /// A program that sees this realm and no other.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("PATH", path()).env("KRB5_KDC_PROFILE", self.path("kdc.conf"));
        if env::var_os("KRB5_CONFIG").is_none() {
            command.env("KRB5_CONFIG", self.path("usual.conf"));
        }
        for name in ["KRB5CCNAME", "KRB5_KTNAME", "KRB5_CLIENT_KTNAME", "KRB5RCACHENAME"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a program and returns its output.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let done = self.command(program).args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{program} {arguments:?}: {error}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// Gets a ticket for alice into a cache.
    pub fn kinit(&self, cache: &str, options: &[&str]) {
        let (keytab, cache) = (self.path("alice.keytab"), self.cache(cache));
        let keytab = keytab.to_str().unwrap();
        let usual = ["-k", "-t", keytab, "-c", &cache];
        self.run("kinit", &[&usual[..], options, &["alice"]].concat());
    }

    /// Runs an order of kadmin.local, which reports errors in its output alone.
    pub fn kadmin(&self, order: &str) {
        let output = self.run("kadmin.local", &["-q", order]);
        let has_failed = output.contains("Unable") || output.contains("does not exist");
        assert!(!has_failed, "{order}: {output}");
    }

    fn principal(&self, name: &str, keytab: &str) {
        self.kadmin(&format!("addprinc -randkey {name}"));
        self.kadmin(&format!("ktadd -norandkey -k {} {name}", self.path(keytab).display()));
    }

    /// Writes a krb5.conf.
    fn configure(&self, name: &str, kdc: SocketAddr, default_realm: &str, more: &str) {
        let permitted = ENCTYPES.join(" ");
        let text = format!(
            "[libdefaults]\n default_realm = {default_realm}\n dns_lookup_realm = false\n \
             dns_lookup_kdc = false\n dns_canonicalize_hostname = false\n rdns = false\n \
             qualify_shortname = \"\"\n permitted_enctypes = {permitted}\n \
             udp_preference_limit = 1\n {more}\n[realms]\n {REALM} = {{\n  kdc = {kdc}\n }}\n\
             [domain_realm]\n .test = {REALM}\n"
        );
        fs::write(self.path(name), text).unwrap();
    }

    fn configure_kdc(&self, kdc: SocketAddr) {
        let salted: Vec<String> = ENCTYPES.iter().map(|name| format!("{name}:normal")).collect();
        let (salted, folder) = (salted.join(","), self.0.display());
        let text = format!(
            "[kdcdefaults]\n kdc_listen = {kdc}\n kdc_tcp_listen = {kdc}\n\
             [realms]\n {REALM} = {{\n  \
             database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n  \
             acl_file = {folder}/acl\n  max_life = 10h\n  supported_enctypes = {salted}\n  \
             master_key_type = aes256-cts-hmac-sha1-96\n }}\n[logging]\n \
             kdc = FILE:{folder}/kdc.log\n"
        );
        fs::write(self.path("kdc.conf"), text).unwrap();
    }

    /// Keys that tests use:
    ///
    /// | keytab | principals |
    /// |---|---|
    /// | `alice.keytab` | alice |
    /// | `server.keytab` | nfs/server.test and host/server.test |
    /// | `other.keytab` | nfs/other.test |
    /// | `rekeyed.keytab` | nfs/rekeyed.test |
    /// | `old.keytab` | nfs/server.test, with a key that the KDC no longer has |
    fn fill(&self) {
        self.run("kdb5_util", &["create", "-s", "-r", REALM, "-P", "stag"]);
        self.principal("alice", "alice.keytab");
        self.principal("nfs/server.test", "old.keytab");
        self.kadmin("delprinc -force nfs/server.test");
        self.principal("nfs/server.test", "server.keytab");
        self.principal("host/server.test", "server.keytab");
        self.principal("nfs/other.test", "other.keytab");
        self.principal("nfs/rekeyed.test", "rekeyed.keytab");
    }
}

/// A realm whose KDC runs.
pub struct Realm {
    pub folder: Folder,
    kdc: Child,
    _home: TempDir,
}

impl Realm {
    /// Makes a realm, or says why that is impossible here.
    pub fn start() -> Result<Self, String> {
        if let Some(program) = missing() {
            let packages = "krb5-kdc krb5-admin-server krb5-user";
            return Err(format!("{program} is missing (fix: apt-get install {packages})"));
        }
        let home = tempfile::tempdir().unwrap();
        let folder = Folder(home.path().to_owned());
        let unused = free_address();
        folder.configure("usual.conf", unused, REALM, "");
        folder.configure_kdc(unused);
        folder.fill();
        let kdc = folder.serve();
        Ok(Self { folder, kdc, _home: home })
    }
}

impl Folder {
    /// Starts a KDC at a free port, and writes the krb5.conf of each group of cases.
    fn serve(&self) -> Child {
        /// Ports that another program may take between the choice and the start.
        const ATTEMPTS: usize = 5;
        for _ in 0..ATTEMPTS {
            let address = free_address();
            self.configure("usual.conf", address, REALM, "");
            self.configure("foreign.conf", address, "ELSEWHERE.TEST", "");
            self.configure("impatient.conf", address, REALM, "clockskew = 1");
            self.configure("alone.conf", free_address(), REALM, "");
            fs::write(self.path("broken.conf"), "[libdefaults\n default_realm\n").unwrap();
            self.configure_kdc(address);
            let mut kdc = self.command("krb5kdc");
            let log = fs::File::create(self.path("kdc.out")).unwrap();
            kdc.args(["-n", "-r", REALM]).stdin(Stdio::null()).stdout(log).stderr(Stdio::null());
            let mut kdc = kdc.spawn().unwrap();
            let end = Instant::now() + Duration::from_secs(30);
            while Instant::now() < end && kdc.try_wait().unwrap().is_none() {
                if TcpStream::connect(address).is_ok() {
                    return kdc;
                }
                thread::sleep(Duration::from_millis(10));
            }
            let _ = kdc.kill();
            let _ = kdc.wait();
        }
        panic!("no KDC starts: {:?}", fs::read_to_string(self.path("kdc.log")));
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        let _ = self.kdc.kill();
        let _ = self.kdc.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}
