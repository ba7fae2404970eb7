//! The cases with MIT's library and a KDC of this host, which the test starts and ends
//! (`realm/mod.rs`). Where there can be none, it says why and passes; with `STAG_NO_SKIP` in the
//! environment, it fails.
//!
//! The library reads the location of krb5.conf from the environment, so that a child process runs
//! each group of cases.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, missing_docs, reason = "tests")]

#[path = "kerberos_cases/mod.rs"]
mod cases;
#[path = "../../gss/tests/header/mod.rs"]
mod header;
mod realm;

use realm::{Folder, Realm};
use stag_gssapi::GssLibrary;
use std::{
    env,
    process::{Child, Stdio},
    time::Instant,
};

const GROUP: &str = "STAG_GSSAPI_GROUP";
const FOLDER: &str = "STAG_GSSAPI_FOLDER";

#[test]
fn every_case_passes_with_a_kdc() {
    let made = GssLibrary::load().map_err(|error| error.to_string()).and_then(|_| Realm::start());
    let realm = match made {
        Ok(realm) => realm,
        Err(why) => {
            assert!(env::var_os("STAG_NO_SKIP").is_none(), "must not be skipped: {why}");
            return println!("skipped: {why}");
        }
    };
    realm.folder.kinit("alice.cache", &[]);
    realm.folder.kinit(cases::ALONE_CACHE, &[]);
    let cache = realm.folder.cache(cases::ALONE_CACHE);
    realm.folder.run("kvno", &["-c", &cache, "nfs/other.test@STAG.TEST"]);
    // Most groups wait for clocks.
    let children: Vec<_> =
        cases::GROUPS.iter().map(|group| (group.name, start(&realm, group))).collect();
    let mut failed = Vec::new();
    for (name, child) in children {
        let done = child.wait_with_output().unwrap();
        println!("{name}: {}", String::from_utf8_lossy(&done.stdout));
        if !done.status.success() {
            println!("{}", String::from_utf8_lossy(&done.stderr));
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "groups of cases that failed: {failed:?}");
}

/// Starts a child process for a group of cases.
fn start(realm: &Realm, group: &cases::Group) -> Child {
    let program = env::current_exe().unwrap();
    let mut child = realm.folder.command(program.to_str().unwrap());
    child.args(["--exact", "cases_of_a_child", "--nocapture"]).env(GROUP, group.name);
    child.env(FOLDER, &realm.folder.0);
    child.env("KRB5_CONFIG", realm.folder.path(group.configuration));
    child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The cases of one group, if this process is a child of the test above.
#[test]
fn cases_of_a_child() {
    let (Some(group), Some(folder)) = (env::var_os(GROUP), env::var_os(FOLDER)) else { return };
    let place =
        cases::Place { library: GssLibrary::load().unwrap(), folder: Folder(folder.into()) };
    let group = cases::GROUPS.iter().find(|known| group == known.name).unwrap();
    for (name, case) in group.cases {
        let began = Instant::now();
        case(&place);
        println!("{name}: {} ms", began.elapsed().as_millis());
    }
}
