//! In privileged mode a call acts as the user that its credential names.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::gateway::{
    client::{Client, Home},
    wire::OverFabric,
};
use stag_engine::Config;
use stag_nfs_store::files::{CallerMode, Callers};
use stag_protocol::nfs::v3::{StableHow, Status};

/// Opens what the temporary directory closes to others.
fn open_to_all(home: &Home) {
    for (name, mode) in [("", 0o755), ("data", 0o777), ("fixed", 0o755)] {
        std::fs::set_permissions(home.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn a_call_acts_as_whom_its_credential_names_and_as_nobody_else() {
    let callers = Callers { mode: CallerMode::Privileged, ..Callers::default() };
    if let Err(lack) = stag_nfs_os::user::check(&stag_nfs_os::User::new(1000, 1000, [])) {
        eprintln!("skipped: {lack}");
        return;
    }
    let mut home = Home::new();
    home.callers = callers;
    open_to_all(&home);
    std::fs::write(home.path("data/roots"), b"secret").unwrap();
    std::fs::set_permissions(home.path("data/roots"), std::fs::Permissions::from_mode(0o600))
        .unwrap();
    let mut client = Client::on(Box::new(OverFabric::new(home.gateway(), Config::small())), home);
    let root = client.root;
    let made = client.create(root, b"made").unwrap();
    let attributes = client.getattr(made).unwrap();
    assert_eq!((attributes.uid, attributes.gid), (1000, 1000));
    assert_eq!(client.write(made, 0, b"hello", StableHow::FileSync).unwrap().count, 5);
    assert_eq!(client.read(made, 0, 9).unwrap(), (b"hello".to_vec(), true));
    let roots = client.lookup(root, b"roots").unwrap();
    assert_eq!(client.read(roots, 0, 9), Err(Status::Acces));
    assert_eq!(client.write(roots, 0, b"x", StableHow::Unstable).map(drop), Err(Status::Acces));
    let mut client = client.restart();
    assert_eq!(client.read(made, 0, 9).unwrap().0, b"hello");
    // The simulated shard ran in this thread.
    stag_nfs_os::user::leave().unwrap();
    assert_eq!(std::fs::metadata(client.home.path("data/made")).unwrap().uid(), 1000);
    assert_eq!(std::fs::read(client.home.path("data/roots")).unwrap(), b"secret");
}
