//! Tests of privileged mode: callers act as themselves. They need root, and are skipped without.

mod cluster;
mod counted;
mod flexfiles;
mod groups;
mod handles;
mod rights;
mod ring;
mod squash;
mod table;

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use stag_protocol::rpc::Gids;

const ALICE: u32 = 1_001;
const BOB: u32 = 1_002;
const STAFF: u32 = 2_001;

/// A user who is only in the group with the same number.
fn user(uid: u32) -> User {
    member(uid, uid, &[])
}

fn member(uid: u32, gid: u32, groups: &[u32]) -> User {
    User::Unix { uid, gid, gids: Gids::new(groups).unwrap() }
}

/// A store that acts as its callers; none if that is not possible.
pub(super) fn lab(change: impl FnOnce(&mut FilesConfig)) -> Option<Lab> {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    lab_at(home, change)
}

fn lab_at(home: TempDir, change: impl FnOnce(&mut FilesConfig)) -> Option<Lab> {
    if let Err(lack) = stag_nfs_os::user::check(&stag_nfs_os::User::new(ALICE, ALICE, [])) {
        eprintln!("skipped: {lack}");
        return None;
    }
    if chown(home.path(), Some(ALICE), None)
        .and_then(|()| chown(home.path(), Some(own_uid()), None))
        .is_err()
    {
        eprintln!("skipped: these tests give files to others");
        return None;
    }
    let lab = Lab::at(home, |config| {
        config.callers.mode = CallerMode::Privileged;
        change(config);
    });
    fs::set_permissions(lab.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    Some(lab)
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Runs all these tests again, as a user that is not root and has root's capabilities on files: the
/// kernel then does not drop them by itself.
#[test]
fn everything_works_with_capabilities_alone() {
    if !is_root() {
        eprintln!("skipped: only root can give them");
        return;
    }
    let capabilities =
        "+setuid,+setgid,+dac_read_search,+dac_override,+chown,+fowner,+fsetid,+mknod";
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = home.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=1005", "--regid=1005", "--clear-groups"]);
    command.args([format!("--inh-caps={capabilities}"), format!("--ambient-caps={capabilities}")]);
    command.arg(copy).args(["privileged::", "--skip", "everything_works", "--nocapture"]);
    match command.env("TMPDIR", home.path()).output() {
        Ok(output) => {
            let (out, err) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            if err.contains("setpriv: ") {
                eprintln!("skipped: {err}");
                return;
            }
            assert!(output.status.success(), "{out}{err}");
            assert!(!err.contains("is missing") && !err.contains("give files to others"), "{err}");
        }
        Err(error) => eprintln!("skipped: setpriv: {error}"),
    }
}

impl Lab {
    /// Makes calls for a user; the thread is its own again afterwards.
    fn by<T>(&mut self, user: User, calls: impl FnOnce(&mut Self) -> T) -> T {
        self.files.act_as(&user);
        let outcome = calls(self);
        stag_nfs_os::user::leave().unwrap();
        outcome
    }

    /// Makes a file with this owner and mode.
    fn give(&self, name: &str, uid: u32, gid: u32, mode: u32) {
        fs::write(self.path(name), b"x").unwrap();
        self.own(name, uid, gid, mode);
    }

    fn own(&self, name: &str, uid: u32, gid: u32, mode: u32) {
        chown(self.path(name), Some(uid), Some(gid)).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn owner(&self, name: &str) -> (u32, u32) {
        let found = fs::symlink_metadata(self.path(name)).unwrap();
        (found.uid(), found.gid())
    }
}
