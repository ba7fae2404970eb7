//! Mounts: their settings, their names, their loss.

use super::{Place, cases, name};
use stag_ceph::{
    Errno, MountSettings, OpenFlags, PreparedMount, Reclaimed, StatMask, SyncKind, Vino,
};

cases! {
    every_mount_has_the_settings_that_safety_needs,
    settings_that_lead_nowhere_are_refused,
    a_name_is_one_clients_until_somebody_reclaims_it,
    an_evicted_client_stores_nothing_more_and_hears_of_it,
    a_reference_outlives_its_mount,
}

fn every_mount_has_the_settings_that_safety_needs(place: &Place) {
    let mount = place.mount();
    for (option, value) in [
        ("client_oc", "false"),
        ("client_mount_timeout", "10"),
        ("rados_mon_op_timeout", "10"),
        ("admin_socket", ""),
        ("client_acl_type", "posix_acl"),
        ("fuse_default_permissions", "false"),
    ] {
        let found = mount.option(option).unwrap();
        let is_same = found == value || found.parse::<f64>().ok() == value.parse().ok();
        assert!(is_same, "{option} is {found}");
    }
    if place.is_real {
        for option in ["debug_client", "debug_objecter", "debug_rados", "debug_monc"] {
            assert_eq!(mount.option(option).as_deref(), Ok("0/0"), "{option} costs time");
        }
    }
    assert_eq!(mount.option("fsid").unwrap().len(), 36);
    assert!(mount.file_system().is_some());
    assert!(mount.option("no_such_option").is_err());
}

fn settings_that_lead_nowhere_are_refused(place: &Place) {
    let nowhere = place.configuration.with_file_name("none.conf");
    let settings = MountSettings { configuration: Some(&nowhere), ..MountSettings::default() };
    let error = PreparedMount::new(place.library, &settings).map(drop).unwrap_err();
    assert_eq!((error.step, error.errno), ("read the configuration of Ceph", Errno::NOENT));
    let settings = MountSettings {
        configuration: Some(&place.configuration),
        file_system: Some("none"),
        ..MountSettings::default()
    };
    let mounted =
        PreparedMount::new(place.library, &settings).and_then(|prepared| prepared.mount("/", None));
    assert_eq!(mounted.map(drop).unwrap_err().errno, Errno::NOENT);
}

fn a_name_is_one_clients_until_somebody_reclaims_it(place: &Place) {
    let first = place.prepare().mount("/", Some("stag-one")).unwrap();
    let inode = first.root().unwrap();
    let second = place.prepare().mount("/", Some("stag-one")).map(drop).unwrap_err();
    assert_eq!(second.errno, Errno::PERM);
    assert!(inode.attributes(StatMask::ALL, &place.root()).is_ok() && !first.is_lost());

    let heir = place.prepare();
    assert_eq!(heir.reclaim("stag-nobody"), Ok(Reclaimed::NotThere));
    assert_eq!(heir.reclaim("stag-one"), Ok(Reclaimed::Ended));
    let heir = heir.mount("/", Some("stag-one")).unwrap();
    assert!(heir.root().is_ok());
    let fails = || inode.make_directory(&name("x"), 0o700, &place.root()).map(drop);
    assert_eq!(fails(), Err(Errno::SHUTDOWN));
    assert!(first.is_lost() && !heir.is_lost());
}

fn an_evicted_client_stores_nothing_more_and_hears_of_it(place: &Place) {
    let mount = place.prepare().mount("/", Some("stag-two")).unwrap();
    let (directory, root) = (place.directory(&mount), place.root());
    let (inode, file, stat) = directory.create(&name("f"), 0o600, true, &root).unwrap();
    assert_eq!(file.write_at(0, b"kept"), Ok(4));
    assert_eq!(place.prepare().reclaim("stag-two"), Ok(Reclaimed::Ended));
    assert_eq!(file.write_at(0, b"lost"), Err(Errno::SHUTDOWN));
    let _may_lie = file.sync(SyncKind::All);
    assert_eq!(inode.attributes(StatMask::ALL, &root).map(drop), Err(Errno::SHUTDOWN));
    assert!(mount.is_lost());

    let fresh = place.mount();
    assert!(fresh.generation() > mount.generation());
    let same = fresh.inode(Vino::live(stat.inode)).unwrap();
    let mut back = [0; 8];
    let open = same.open(OpenFlags::Read, &root).unwrap();
    assert_eq!(open.read_at(0, &mut back), Ok(4));
    assert_eq!(back.get(..4), Some(&b"kept"[..]), "what was acknowledged");
}

fn a_reference_outlives_its_mount(place: &Place) {
    let mount = place.mount();
    let (directory, root) = (place.directory(&mount), place.root());
    drop(mount);
    assert!(directory.create(&name("f"), 0o600, true, &root).is_ok());
}
