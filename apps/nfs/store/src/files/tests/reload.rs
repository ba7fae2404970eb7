//! Tests of replacing exports while they are served, and of their rules for clients.

use stag_engine::PeerAddress;
use stag_protocol::nfs::v3::{Access, Status};

use super::*;
use crate::{
    Caller, User,
    exports::client_rules::{ClientOptions, ClientRule, ExportRules},
    files::{ExportChanges, ExportSet, RuledExport, SlowExports},
};

fn set(exports: Vec<RuledExport>) -> ExportSet {
    ExportSet { exports, slow: SlowExports::ByFileSystem, is_insecure: false }
}

fn ruled(config: &ExportConfig, rules: ExportRules) -> RuledExport {
    RuledExport { config: config.clone(), rules }
}

fn clients(network: &str, options: ClientOptions) -> ExportRules {
    let clients = vec![ClientRule { network: network.parse().unwrap(), options }];
    ExportRules { clients, ..ExportRules::default() }
}

fn from(address: &str, is_proven: bool) -> Caller {
    let address = PeerAddress::Ip(address.parse().unwrap());
    Caller { is_proven, ..Caller::trusted(User::Anyone, address) }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A store, the configuration of its export, and a second directory next to it.
fn world() -> (Lab, ExportConfig, ExportConfig) {
    let lab = Lab::new();
    let first = lab.config.exports[0].clone();
    let path = lab.home.path().join("second");
    std::fs::create_dir(&path).unwrap();
    let second =
        ExportConfig { name: "p/second".to_owned(), path, read_only: false, is_mountpoint: false };
    (lab, first, second)
}

#[test]
fn exports_come_and_go_and_those_that_stay_keep_their_open_files() {
    let (mut lab, first, second) = world();
    let files = &mut lab.files;
    let shared = Arc::clone(files.shared());
    let root = files.mount(b"/data").unwrap();
    let usual = ExportRules::default;
    let both = set(vec![ruled(&first, usual()), ruled(&second, usual())]);
    let added = ExportChanges { added: names(&["p/second"]), ..ExportChanges::default() };
    assert_eq!(shared.replace_exports(&both), Ok(added));
    assert!(shared.replace_exports(&both).unwrap().are_none());
    files.renew();
    let inner = files.mount(b"/p/second").unwrap();
    assert!(files.getattr(&root).is_ok() && files.getattr(&inner).is_ok());
    assert_eq!(files.mount(b"/p"), Err(Status::NoEnt));
    let only = set(vec![ruled(&second, usual())]);
    let removed = ExportChanges { removed: names(&["data"]), ..ExportChanges::default() };
    assert_eq!(shared.replace_exports(&only), Ok(removed));
    files.renew();
    assert_eq!(files.getattr(&root), Err(Status::Stale));
    assert!(files.getattr(&inner).is_ok());
    shared.replace_exports(&both).unwrap();
    files.renew();
    assert!(files.getattr(&root).is_ok(), "its handles are good again");
}

#[test]
fn an_exchange_that_fails_changes_nothing() {
    let (mut lab, first, second) = world();
    let files = &mut lab.files;
    let shared = Arc::clone(files.shared());
    let root = files.mount(b"/data").unwrap();
    let gone = ExportConfig { path: second.path.join("gone"), ..second.clone() };
    let usual = ExportRules::default;
    let twice = ExportConfig { name: "data".to_owned(), ..second.clone() };
    for (bad, part) in [(gone, "cannot open the directory"), (twice, "two exports have the name")] {
        let bad = set(vec![ruled(&first, usual()), ruled(&bad, usual())]);
        let error = shared.replace_exports(&bad).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        files.renew();
        assert!(files.getattr(&root).is_ok());
        assert_eq!(files.mount(b"/p/second"), Err(Status::NoEnt));
    }
    let many = vec![ruled(&first, usual()); 100_000];
    let error = shared.replace_exports(&set(many)).unwrap_err().to_string();
    assert!(error.starts_with("100000 exports are more than the "), "{error}");
}

#[test]
fn an_export_becomes_read_only_and_writable_again() {
    let (mut lab, first, _) = world();
    let files = &mut lab.files;
    let shared = Arc::clone(files.shared());
    let root = files.mount(b"/data").unwrap();
    for read_only in [true, false] {
        let config = ExportConfig { read_only, ..first.clone() };
        let changes = shared.replace_exports(&set(vec![ruled(&config, ExportRules::default())]));
        assert_eq!(changes.unwrap().reopened, names(&["data"]));
        files.renew();
        let made = files.mkdir(&root, b"made", &Default::default()).map_err(|it| it.status);
        assert_eq!(made.map(drop), if read_only { Err(Status::RoFs) } else { Ok(()) });
    }
}

#[test]
fn clients_of_an_export_are_admitted_by_address_and_each_by_its_own_options() {
    let (mut lab, first, second) = world();
    let files = &mut lab.files;
    let shared = Arc::clone(files.shared());
    let root = files.mount(b"/data").unwrap();
    let read_only = ClientOptions { read_only: Some(true), ..ClientOptions::default() };
    let rules = ExportRules {
        read_max: Some(65_536),
        write_max: Some(4_096),
        ..clients("10.0.0.0/8", read_only)
    };
    let ruled = set(vec![ruled(&first, rules), ruled(&second, ExportRules::default())]);
    assert!(shared.replace_exports(&ruled).unwrap().removed.is_empty());
    files.renew();
    assert_eq!(files.getattr(&root), Err(Status::Jukebox), "its caller was not asked for");
    files.act_as_caller(&from("10.1.1.1:700", true));
    assert!(files.getattr(&root).is_ok());
    let made = files.mkdir(&root, b"made", &Default::default()).map_err(|it| it.status);
    assert_eq!(made.map(drop), Err(Status::RoFs));
    let (granted, _) = files.access(&root, Access::MODIFY | Access::READ).unwrap();
    assert_eq!(granted, Access::READ);
    let (fsinfo, _) = files.fsinfo(&root).unwrap();
    assert_eq!((fsinfo.read_max, fsinfo.write_max), (65_536, 4_096));
    files.act_as_caller(&from("192.0.2.1:700", true));
    assert_eq!(files.getattr(&root), Err(Status::Acces));
    assert_eq!(files.mount(b"/data"), Err(Status::Acces));
    files.act_as_caller(&from("192.0.2.1:700", true));
    let other = files.mount(b"/p/second").unwrap();
    files.act_as_caller(&from("192.0.2.1:700", true));
    assert!(files.getattr(&other).is_ok(), "the other export admits everybody");
    files.act_as_caller(&from("10.1.1.1:7000", false));
    assert_eq!(files.getattr(&root), Err(Status::Perm), "any user can take that port");
}

#[test]
fn the_first_mount_of_a_directory_that_was_made_again_judges_its_caller() {
    let (mut lab, first, _) = world();
    let files = &mut lab.files;
    let shared = Arc::clone(files.shared());
    let listed = clients("10.0.0.0/8", ClientOptions::default());
    shared.replace_exports(&set(vec![ruled(&first, listed)])).unwrap();
    files.renew();
    let [client, stranger] =
        ["10.1.2.3", "192.0.2.1"].map(|address| from(&format!("{address}:700"), true));
    let again = || {
        std::fs::remove_dir(&first.path).unwrap();
        std::fs::create_dir(&first.path).unwrap();
    };
    files.act_as_caller(&client);
    let old = files.mount(b"/data").unwrap();
    again();
    files.act_as_caller(&client);
    let new = files.mount(b"/data").unwrap();
    assert_ne!(new, old);
    again();
    files.act_as_caller(&stranger);
    assert_eq!(files.mount(b"/data"), Err(Status::Acces));
}
