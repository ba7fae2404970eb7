//! Tests of two gateways of a cluster on one directory: each has its own state directory, and a
//! client's handles from one are valid at the other.

use super::*;
use crate::{ListingStart, exports::cluster::Cluster};
use std::collections::BTreeSet;

/// Two gateways; none if callers cannot act as themselves.
fn gateways() -> Option<(Lab, Files)> {
    let cluster = Cluster::new("blue", &["data".to_owned()]).unwrap();
    let lab = lab(|config| config.cluster = Some(cluster))?;
    let state_dir = lab.home.path().join("other-state");
    let config = FilesConfig { state_dir, ..lab.config.clone() };
    let other = Files::open(&SharedFiles::open(&config).unwrap(), 0).unwrap();
    Some((lab, other))
}

#[test]
fn what_a_client_has_of_one_gateway_is_good_at_the_other() {
    let Some((mut lab, other)) = gateways() else { return };
    fs::create_dir_all(lab.path("a/b")).unwrap();
    lab.give("a/b/f", ALICE, ALICE, 0o600);
    let there = other.shared().clone();
    assert_eq!(lab.root(), there.root(there.exports().iter().next().unwrap()));
    let (dir, file) = lab.by(user(ALICE), |lab| (lab.find("a/b"), lab.find("a/b/f")));
    let here = lab.by(user(ALICE), |lab| lab.files.getattr(&file).unwrap());

    let mut moved = Lab { files: other, ..lab };
    moved.by(user(ALICE), |lab| {
        assert_eq!(lab.files.getattr(&file).unwrap(), here);
        assert_eq!(lab.content(&file).unwrap(), b"x");
        assert_eq!(lab.find("a/b/f"), file);
        assert_eq!(lab.files.lookup(&dir, b"f").unwrap().handle, file);
    });
    // Its rights are checked there as they are here.
    assert_eq!(moved.by(user(BOB), |lab| lab.content(&file)), Err(Status::Acces));
}

#[test]
fn a_listing_that_one_gateway_began_goes_on_at_the_other() {
    let Some((mut lab, mut other)) = gateways() else { return };
    let names: BTreeSet<_> = (0..304).map(|number| format!("file-{number:04}")).collect();
    for name in &names {
        fs::write(lab.path(name), b"").unwrap();
    }
    let root = lab.root();
    let (mut seen, mut place, mut turn) = (Vec::new(), ListingStart::default(), 0);
    loop {
        let (mut cookie, mut taken) = (place.cookie, 0);
        let mut visit = |entry: &crate::ListedEntry<'_>| {
            if taken == 7 {
                return false;
            }
            taken += 1;
            cookie = entry.cookie;
            seen.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        };
        let files = if turn % 2 == 0 { &mut lab.files } else { &mut other };
        files.act_as(&user(ALICE));
        let listed = files.readdir(&root, place, &mut visit).unwrap();
        stag_nfs_os::user::leave().unwrap();
        (place.cookie, place.verifier) = (cookie, listed.verifier);
        turn += 1;
        if listed.eof {
            break;
        }
    }
    seen.retain(|name| name != "." && name != "..");
    assert_eq!(seen.len(), names.len(), "no name comes twice");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), names);
}

#[test]
fn exports_that_only_one_gateway_could_serve_are_refused() {
    let refused = |change: fn(&mut FilesConfig), cluster: &[&str]| {
        let home = tempfile::tempdir().unwrap();
        let names: Vec<_> = cluster.iter().map(|name| (*name).to_owned()).collect();
        fs::create_dir(home.path().join("data")).unwrap();
        let path = home.path().join("data");
        let mut config = FilesConfig {
            state_dir: home.path().join("state"),
            exports: vec![ExportConfig {
                name: "data".to_owned(),
                path,
                read_only: false,
                is_mountpoint: false,
            }],
            shards: 1,
            sync_directories: false,
            callers: Callers::UNPRIVILEGED,
            open_files: Some(64),
            cluster: Some(Cluster::new("blue", &names).unwrap()),
        };
        change(&mut config);
        SharedFiles::open(&config).map(drop).unwrap_err().to_string()
    };
    let indexed = refused(|_| {}, &["data"]);
    assert!(indexed.contains("several gateways of the cluster blue"), "{indexed}");
    let unknown = refused(|_| {}, &["other"]);
    assert!(unknown.contains("stag cluster add FILE data"), "{unknown}");
}
