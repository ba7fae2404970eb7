//! Calls on files that the store has met allocate nothing.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::{io::IoSlice, os::unix::fs::PermissionsExt};

use stag_nfs_store::{
    ListingStart, NewAttributes, User,
    exports::config::ExportConfig,
    files::{CallerMode, Callers, Files, FilesConfig, SharedFiles},
};
use stag_protocol::{
    nfs::v3::{Access, StableHow},
    rpc::Gids,
};

/// Alice owns every file; anyone may read and write it.
fn users() -> [User; 3] {
    let user = |uid| User::Unix { uid, gid: uid, gids: Gids::default() };
    [user(1_001), user(1_002), User::Anyone]
}

#[test]
fn calls_on_known_files_allocate_nothing() {
    assert_eq!(allocations(Callers::UNPRIVILEGED), Some(0));
}

#[test]
fn nor_do_calls_of_several_users_in_turn() {
    let callers = Callers { mode: CallerMode::Privileged, ..Callers::default() };
    match allocations(callers) {
        Some(count) => assert_eq!(count, 0),
        None => eprintln!("skipped: no privilege"),
    }
}

/// Counts the allocations of twenty rounds of calls after the first round; none where the calls
/// cannot be made.
fn allocations(callers: Callers) -> Option<u64> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("export");
    std::fs::create_dir(&path).unwrap();
    // More files than stay open, so that opening and closing is counted too.
    for number in 0..40 {
        let file = path.join(format!("file-{number}"));
        std::fs::write(&file, b"content").unwrap();
        if callers.mode == CallerMode::Privileged {
            std::os::unix::fs::chown(&file, Some(1_001), None).ok()?;
        }
    }
    let world = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(home.path(), world.clone()).unwrap();
    std::fs::set_permissions(&path, world).unwrap();
    let config = FilesConfig {
        state_dir: home.path().join("state"),
        exports: vec![ExportConfig {
            name: "data".to_owned(),
            path,
            read_only: false,
            is_mountpoint: false,
        }],
        shards: 2,
        sync_directories: false,
        callers,
        open_files: Some(16),
        cluster: None,
    };
    let shared = SharedFiles::open(&config).ok()?;
    let mut files = Files::open(&shared, 0).unwrap();
    let root = files.mount(b"/data").unwrap();
    let names: Vec<_> = (0..40).map(|number| format!("file-{number}")).collect();
    let users = users();
    let mut room = [0; 4096];
    let mut pass = |files: &mut Files| {
        for name in &names {
            files.act_as(&users[0]);
            let handle = files.lookup(&root, name.as_bytes()).unwrap().handle;
            files
                .set_attributes(
                    &handle,
                    &NewAttributes { mode: Some(0o666), ..NewAttributes::default() },
                    None,
                )
                .unwrap();
            for user in &users {
                files.act_as(user);
                files.getattr(&handle).unwrap();
                files.access(&handle, Access::ALL).unwrap();
                files.read(&handle, 0, &mut room).unwrap();
                let mut data = [IoSlice::new(b"more"), IoSlice::new(b" content")];
                files.write_slices(&handle, 0, &mut data, StableHow::Unstable).unwrap();
            }
        }
        files.readdirplus(&root, ListingStart::default(), &mut |_| true).unwrap();
        files.fsstat(&root).unwrap();
        files.flush().unwrap();
    };
    pass(&mut files);
    let before = crate::counting::allocations();
    for _ in 0..20 {
        pass(&mut files);
    }
    let count = crate::counting::allocations() - before;
    // The temporary directory is not for these users to remove.
    stag_nfs_os::user::leave().unwrap();
    Some(count)
}
