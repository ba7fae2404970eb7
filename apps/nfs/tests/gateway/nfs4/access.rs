//! Rules of exports for their clients hold for version 4 as for version 3: to a client that an
//! export's list excludes, the root of all exports does not show it, and its handles open nothing
//! (RFC 8881 §7.3, §15.1.6.1).

use super::client::{CONFIG, Client4, ServedExport, open_args};
use crate::gateway::{client::Home, wire::OverTcp};
use stag_engine::{Config, Over, PeerAddress};
use stag_nfs::{ConnectionPolicy, Gateway};
use stag_nfs_store::{
    exports::{
        client_rules::{ClientOptions, ClientRule, ExportRules, Squash},
        config::ExportConfig,
    },
    files::{CallerMode, Callers, ExportSet, Files, RuledExport, SharedFiles, SlowExports},
};
use stag_protocol::nfs::v4::*;
use std::{
    os::unix::fs::{MetadataExt, PermissionsExt},
    sync::Arc,
    time::{Duration, Instant},
};

/// Any host may connect, and a source port proves nothing.
struct OpenPorts;

impl ConnectionPolicy for OpenPorts {
    fn edition(&self) -> u64 {
        0
    }

    fn admits(&self, _: PeerAddress, _: Over) -> bool {
        true
    }

    fn is_proven(&self, _: PeerAddress, _: Over) -> bool {
        false
    }

    fn opened(&self, _: PeerAddress) -> bool {
        true
    }

    fn closed(&self, _: PeerAddress) {}
}

/// A server of `/data` and the read-only `/fixed`, whose rules may change, and a client of it over
/// TCP from 127.0.0.1.
struct Ruled {
    client: Client4,
    shared: Arc<SharedFiles>,
    places: [ExportConfig; 2],
}

impl Ruled {
    fn new(data: ExportRules) -> Self {
        Self::within(Home::new(), data)
    }

    fn within(home: Home, data: ExportRules) -> Self {
        Self::named(home, ["data", "fixed"], data)
    }

    /// The same two directories by these names.
    fn named(home: Home, names: [&str; 2], data: ExportRules) -> Self {
        let shared = home.shared();
        let place = |name: &str, directory: &str, read_only| ExportConfig {
            name: name.to_owned(),
            path: home.path(directory),
            read_only,
            is_mountpoint: false,
        };
        let [first, second] = names;
        let places = [place(first, "data", false), place(second, "fixed", true)];
        shared.replace_exports(&set(&places, data)).unwrap();
        let gateway: Gateway<Files> = Gateway::new(Files::open(&shared, 0).unwrap());
        let gateway = gateway.with_policy(Arc::new(OpenPorts)).with_nfs4(CONFIG);
        let wire = Box::new(OverTcp::new(gateway, Config::small()));
        Self { client: Client4::on(wire, ServedExport::new(b"data", home), 2), shared, places }
    }

    /// Serves `/data` by other rules, and waits until the shard does.
    fn change(&mut self, data: ExportRules, is_there: impl Fn(&mut Client4) -> bool) {
        // The simulated shard runs in this thread, still as the user of its last call.
        stag_nfs_os::user::leave().unwrap();
        self.shared.replace_exports(&set(&self.places, data)).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while !is_there(&mut self.client) {
            assert!(Instant::now() < until, "the rules do not change within twenty seconds");
        }
    }
}

/// `/data` by these rules, and `/fixed` for everybody.
fn set(places: &[ExportConfig; 2], data: ExportRules) -> ExportSet {
    let [first, second] = places.clone();
    let open = ExportRules { options: insecure(true), ..ExportRules::default() };
    let exports = vec![
        RuledExport { config: first, rules: data },
        RuledExport { config: second, rules: open },
    ];
    ExportSet { exports, slow: SlowExports::None, is_insecure: false }
}

fn insecure(is_insecure: bool) -> ClientOptions {
    ClientOptions { insecure: Some(is_insecure), ..ClientOptions::default() }
}

/// Clients of one network, from any port.
fn only(network: &str, options: ClientOptions) -> ExportRules {
    let clients = vec![ClientRule { network: network.parse().unwrap(), options }];
    ExportRules { clients, options: insecure(true), ..ExportRules::default() }
}

fn here(options: ClientOptions) -> ExportRules {
    only("127.0.0.0/8", options)
}

fn elsewhere() -> ExportRules {
    only("192.0.2.0/24", ClientOptions::default())
}

fn listed(client: &mut Client4) -> Vec<Vec<u8>> {
    listed_at(client, b"")
}

/// The names at the end of a path.
fn listed_at(client: &mut Client4, path: &[u8]) -> Vec<Vec<u8>> {
    let list = Request::ReadDir(ReadDir4Args {
        cookie: 0,
        verifier: [0; 8],
        dir_count: 4_096,
        max_count: 4_096,
        attributes: Bitmap::of([1, 20]),
    });
    let reply = client.run(&[walk(path), vec![list]].concat());
    let Answer::ReadDir(Ok(ok)) = reply.last() else { panic!("{:?}", reply.last()) };
    let mut names: Vec<_> = ok.entries.map(|entry| entry.name.0.to_vec()).collect();
    names.sort();
    names
}

fn lookup(client: &mut Client4, path: &[u8]) -> Status4 {
    client.run(&walk(path)).status()
}

/// The way from the root of all exports along a path.
fn walk(path: &[u8]) -> Vec<Request<'_>> {
    let names = path.split(|octet| *octet == b'/').filter(|name| !name.is_empty());
    let steps = names.map(|name| Request::Lookup(Text(name)));
    std::iter::once(Request::PutRootFh(())).chain(steps).collect()
}

/// The handle of the object at the end of a path.
fn handle_at(client: &mut Client4, path: &[u8]) -> Vec<u8> {
    let reply = client.run(&[walk(path), vec![Request::GetFh(())]].concat());
    let Answer::GetFh(Ok(handle)) = reply.last() else { panic!("{:?}", reply.last()) };
    handle.0.to_vec()
}

/// File system, number, and number of the entry that an object is mounted on.
fn place_of(client: &mut Client4, way: &[Request<'_>]) -> (u64, u64, u64) {
    let reply = client.run(&[way, &[Request::GetAttr(Bitmap::of([8, 20, 55]))]].concat());
    let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!("{:?}", reply.last()) };
    let values = raw.values().unwrap();
    let fsid = values.fsid.unwrap();
    (fsid.major, values.fileid.unwrap(), values.mounted_on_fileid.unwrap())
}

fn at(client: &mut Client4, handle: &[u8], request: Request<'_>) -> Status4 {
    client.run(&[Request::PutFh(Text(handle)), request]).status()
}

fn getattr() -> Request<'static> {
    Request::GetAttr(Bitmap::of([1, 3, 4]))
}

fn directory(name: &[u8]) -> Create4Args<'_> {
    let attributes = RawAttributes::default();
    Create4Args { kind: CreateKind::Directory, name: Text(name), attributes }
}

#[test]
fn an_export_is_not_there_for_whom_its_list_does_not_hold() {
    let mut ruled = Ruled::new(elsewhere());
    let client = &mut ruled.client;
    assert_eq!(listed(client), [b"fixed".to_vec()]);
    assert_eq!(lookup(client, b"fixed"), Status4::Ok);
    assert_eq!(lookup(client, b"data"), Status4::NoEnt);
    for request in
        [Request::SecInfo(Text(b"data")), Request::Open(open_args(b"data", share::READ, false))]
    {
        let reply = client.run(&[Request::PutRootFh(()), request.clone()]);
        assert_eq!(reply.status(), Status4::NoEnt, "{request:?}");
    }
    ruled.change(here(ClientOptions::default()), |client| lookup(client, b"data") == Status4::Ok);
    assert_eq!(listed(&mut ruled.client), [b"data".to_vec(), b"fixed".to_vec()]);
}

#[test]
fn directories_lead_to_exports_with_names_of_several_components_and_back() {
    let names = ["projects/x/alpha", "projects/beta"];
    let mut ruled = Ruled::named(Home::new(), names, here(ClientOptions::default()));
    let client = &mut ruled.client;
    assert_eq!(listed(client), [b"projects".to_vec()]);
    assert_eq!(listed_at(client, b"projects"), [b"beta".to_vec(), b"x".to_vec()]);
    assert_eq!(listed_at(client, b"projects/x"), [b"alpha".to_vec()]);
    let root = place_of(client, &walk(b""));
    let above = place_of(client, &walk(b"projects"));
    let between = place_of(client, &walk(b"projects/x"));
    let export = place_of(client, &walk(b"projects/x/alpha"));
    assert!(root.0 == above.0 && root.0 == between.0, "directories are one file system");
    assert_ne!(export.0, root.0, "an export is a file system of its own");
    for (_, number, mounted_on) in [root, above, between] {
        assert_eq!(number, mounted_on);
    }
    assert!(root.1 != above.1 && above.1 != between.1 && export.2 != between.1);
    assert_ne!(export.1, export.2, "it lies over an entry");
    let mut back = walk(b"projects/x/alpha");
    for expected in [between, above, root] {
        back.push(Request::LookupP(()));
        assert_eq!(place_of(client, &back), expected);
    }
    back.push(Request::LookupP(()));
    assert_eq!(client.run(&back).status(), Status4::NoEnt);
    let make = Request::Create(directory(b"d"));
    let open = Request::Open(open_args(b"x", share::READ, false));
    for (request, status) in [(make, Status4::RoFs), (open, Status4::IsDir)] {
        let reply = client.run(&[walk(b"projects"), vec![request.clone()]].concat());
        assert_eq!(reply.status(), status, "{request:?}");
    }
}

#[test]
fn a_directory_is_there_for_whom_an_export_beneath_it_is() {
    let mut ruled = Ruled::named(Home::new(), ["a/b/data", "a/fixed"], elsewhere());
    let client = &mut ruled.client;
    assert_eq!(listed_at(client, b"a"), [b"fixed".to_vec()]);
    assert_eq!(lookup(client, b"a/b"), Status4::NoEnt);
    let open = Request::Open(open_args(b"b", share::READ, false));
    assert_eq!(client.run(&[walk(b"a"), vec![open]].concat()).status(), Status4::NoEnt);
    ruled.change(here(ClientOptions::default()), |client| lookup(client, b"a/b") == Status4::Ok);
    let between = handle_at(&mut ruled.client, b"a/b");
    assert_eq!(at(&mut ruled.client, &between, getattr()), Status4::Ok);
    ruled.change(elsewhere(), |client| lookup(client, b"a/b") == Status4::NoEnt);
    for request in [getattr(), Request::Lookup(Text(b"data")), Request::LookupP(())] {
        let status = at(&mut ruled.client, &between, request.clone());
        assert_eq!(status, Status4::Access, "{request:?}");
    }
}

#[test]
fn directories_come_and_go_with_the_exports_that_they_lead_to() {
    let mut ruled = Ruled::named(Home::new(), ["a/b/data", "a/fixed"], here(insecure(true)));
    let (above, between) =
        (handle_at(&mut ruled.client, b"a"), handle_at(&mut ruled.client, b"a/b"));
    ruled.places[0].name = "c/data".to_owned();
    ruled.change(here(insecure(true)), |client| lookup(client, b"c/data") == Status4::Ok);
    let client = &mut ruled.client;
    assert_eq!(at(client, &between, getattr()), Status4::Stale);
    assert_eq!(at(client, &above, getattr()), Status4::Ok, "another export is beneath it");
    assert_eq!(listed(client), [b"a".to_vec(), b"c".to_vec()]);
    assert_eq!(listed_at(client, b"a"), [b"fixed".to_vec()]);
    ruled.places[0].name = "a/b/data".to_owned();
    ruled.change(here(insecure(true)), |client| lookup(client, b"a/b/data") == Status4::Ok);
    assert_eq!(handle_at(&mut ruled.client, b"a/b"), between, "the handle is that of the path");
    assert_eq!(lookup(&mut ruled.client, b"c"), Status4::NoEnt);
}

#[test]
fn handles_and_opens_of_an_export_end_with_its_list() {
    let mut ruled = Ruled::new(here(ClientOptions::default()));
    let (stateid, file) = ruled.client.open(b"f");
    let write = super::client::write_args(stateid, 0, b"hello");
    assert_eq!(at(&mut ruled.client, &file, write.clone()), Status4::Ok);
    ruled.change(elsewhere(), |client| lookup(client, b"data") == Status4::NoEnt);
    let client = &mut ruled.client;
    for request in [
        getattr(),
        write,
        super::client::read_args(stateid, 0, 5),
        Request::Access(Access4Args { rights: 1 }),
        Request::Open(Open4Args { claim: OpenClaim::Fh, ..open_args(b"", share::READ, false) }),
    ] {
        assert_eq!(at(client, &file, request.clone()), Status4::Access, "{request:?}");
    }
    // A way into another export is none into this one.
    let other = [Request::PutRootFh(()), Request::Lookup(Text(b"fixed"))];
    let there = [Request::PutFh(Text(&file)), getattr()];
    assert_eq!(client.run(&[&other[..], &there[..]].concat()).status(), Status4::Access);
    ruled.change(here(ClientOptions::default()), |client| lookup(client, b"data") == Status4::Ok);
    let read = super::client::read_args(stateid, 0, 5);
    assert_eq!(at(&mut ruled.client, &file, read), Status4::Ok, "the open was never closed");
}

#[test]
fn a_client_that_may_only_read_changes_nothing() {
    let read_only = ClientOptions { read_only: Some(true), ..ClientOptions::default() };
    let mut ruled = Ruled::new(here(read_only));
    let client = &mut ruled.client;
    for request in [
        Request::Create(directory(b"d")),
        Request::Open(open_args(b"f", share::BOTH, true)),
        Request::Remove(Text(b"x")),
    ] {
        assert_eq!(
            client.at_export(std::slice::from_ref(&request)).status(),
            Status4::RoFs,
            "{request:?}"
        );
    }
    let rights = Request::Access(Access4Args { rights: 0x1f });
    let reply = client.at_export(std::slice::from_ref(&rights));
    let Answer::Access(Ok(ok)) = reply.last() else { panic!("{:?}", reply.last()) };
    assert_eq!(ok.granted & 0x1c, 0, "no right to modify, extend or delete");
    ruled.change(here(ClientOptions::default()), |client| {
        client.at_export(&[Request::Open(open_args(b"f", share::BOTH, true))]).status()
            == Status4::Ok
    });
}

#[test]
fn a_port_of_anybody_is_refused_unless_the_export_is_insecure() {
    let rules = ExportRules { options: insecure(false), ..here(ClientOptions::default()) };
    let mut ruled = Ruled::new(rules.clone());
    assert_eq!(lookup(&mut ruled.client, b"data"), Status4::Perm);
    assert_eq!(listed(&mut ruled.client), [b"fixed".to_vec()], "what cannot be entered");
    ruled.change(here(ClientOptions::default()), |client| lookup(client, b"data") == Status4::Ok);
    let (_, file) = ruled.client.open(b"f");
    ruled.change(rules, |client| lookup(client, b"data") == Status4::Perm);
    assert_eq!(at(&mut ruled.client, &file, getattr()), Status4::Perm);
}

#[test]
fn callers_are_squashed_as_the_export_says() {
    if let Err(lack) = stag_nfs_os::user::check(&stag_nfs_os::User::new(1000, 1000, [])) {
        return eprintln!("skipped: {lack}");
    }
    let mut home = Home::new();
    home.callers = Callers { mode: CallerMode::Privileged, ..Callers::default() };
    for (name, mode) in [("", 0o755), ("data", 0o777), ("fixed", 0o755)] {
        std::fs::set_permissions(home.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let data = home.path("data");
    let all = ClientOptions {
        squash: Some(Squash::All),
        anon_uid: Some(4_711),
        anon_gid: Some(4_712),
        ..ClientOptions::default()
    };
    let mut ruled = Ruled::within(home, here(all));
    ruled.client.open(b"squashed");
    let none = ClientOptions { squash: Some(Squash::None), ..ClientOptions::default() };
    ruled.change(here(none), |client| {
        client.at_export(&[Request::Create(directory(b"own"))]);
        stag_nfs_os::user::leave().unwrap();
        // A call during which the rules change is asked to retry, and makes nothing.
        let made = std::fs::metadata(data.join("own"));
        let is_own = made.is_ok_and(|made| made.uid() == 1_000);
        let _ = std::fs::remove_dir(data.join("own"));
        is_own
    });
    let squashed = std::fs::metadata(data.join("squashed")).unwrap();
    assert_eq!((squashed.uid(), squashed.gid()), (4_711, 4_712));
}

#[test]
fn whom_the_list_leaves_out_gives_no_state_up() {
    let mut ruled = Ruled::new(here(ClientOptions::default()));
    let (open, handle) = ruled.client.open(b"f");
    ruled.change(elsewhere(), |client| lookup(client, b"data") != Status4::Ok);
    let close = || Request::Close(Close4Args { seqid: 0, open });
    let (share_access, share_deny) = (share::READ, 0);
    let downgrade = OpenDowngrade4Args { open, seqid: 0, share_access, share_deny };
    let (kind, seqid, offset, length) = (LockType::Write, 0, 0, 1);
    let unlock = LockU4Args { kind, seqid, stateid: open, offset, length };
    let requests = [
        close(),
        Request::OpenDowngrade(downgrade),
        Request::LockU(unlock),
        Request::DelegReturn(open),
    ];
    for request in requests {
        assert_eq!(at(&mut ruled.client, &handle, request), Status4::Access);
    }
    let again = here(ClientOptions::default());
    ruled.change(again, |client| lookup(client, b"data") == Status4::Ok);
    assert_eq!(at(&mut ruled.client, &handle, close()), Status4::Ok);
}
