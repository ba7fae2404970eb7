//! Confinement to what a server needs (landlock(7)): exports, state, the system's own files.

use super::{
    options::ServeOptions,
    plan::{Plan, StorePlan},
};
use crate::Error;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use std::path::{Path, PathBuf};

/// The rights that are taken away, where they are not given back: those of Linux 6.10. Older
/// kernels take those that they know.
const RIGHTS: ABI = ABI::V5;

/// Directories of the system that a server reads: programs and libraries, settings, the caches of
/// name services, what the kernel says.
const READ: [&str; 8] = ["/usr", "/lib", "/lib64", "/etc", "/run", "/var/lib/sss", "/sys", "/opt"];
/// Those that it writes to as well: devices, and what the kernel is told for this process.
const WRITTEN: [&str; 2] = ["/dev", "/proc"];

/// Keeps this process, and every thread that it starts from now on, to the files that `plan` names
/// and those of the system. To be called while the process has one thread.
///
/// # Errors
/// The kernel cannot, or what is served needs more.
pub fn confine(plan: &Plan, arguments: &ServeOptions) -> Result<(), Error> {
    let unfit = |what: &str| {
        Err(Error::usage(format!("--confine is not for {what}: leave it out, or see CONFINEMENT")))
    };
    if matches!(plan.store, StorePlan::Ceph { .. }) {
        return unfit("CephFS, whose library opens what nobody lists");
    }
    match restrict(&writable(plan, arguments), &readable(plan, arguments)) {
        Ok(RestrictionStatus { ruleset: RulesetStatus::NotEnforced, .. }) => Err(Error::usage(
            "--confine needs Landlock, which this kernel does not have: give it in its command \
             line (lsm=landlock,…), or leave --confine out",
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(Error::usage(format!(
            "--confine needs Landlock as Linux has it since 5.19: {error}; leave it out"
        ))),
    }
}

/// Refuses what confinement would break.
pub fn check(is_privileged: bool) -> Result<(), Error> {
    match is_privileged {
        true => Err(Error::usage(
            "--confine is not for privileged mode, which opens files by their handles, and the \
             kernel knows no path of those: give --mode unprivileged, or leave --confine out",
        )),
        false => Ok(()),
    }
}

/// The directory that a file is made in.
fn parent(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The socket of an address of processes.
fn socket_of(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("shm://")?;
    Some(PathBuf::from(path.split_once('?').map_or(path, |(path, _)| path)))
}

fn writable(plan: &Plan, arguments: &ServeOptions) -> Vec<PathBuf> {
    let exports = plan.exports.iter().filter(|export| !export.read_only);
    let mut paths: Vec<PathBuf> = exports.filter_map(|export| export.path.clone()).collect();
    if let StorePlan::Files { state_dir, .. } = &plan.store {
        paths.push(state_dir.clone());
    }
    let control = arguments.observe.control.as_ref().map(PathBuf::from);
    let made = [&plan.stats, &plan.ready_file, &control];
    paths.extend(made.into_iter().flatten().map(|file| parent(file)));
    let urls = plan.fabrics.iter().flat_map(|fabric| fabric.group.addresses());
    paths.extend(urls.filter_map(|at| socket_of(&at.to_string())).map(|socket| parent(&socket)));
    paths.extend(WRITTEN.map(PathBuf::from));
    paths
}

fn readable(plan: &Plan, arguments: &ServeOptions) -> Vec<PathBuf> {
    let exports = plan.exports.iter().filter(|export| export.read_only);
    let mut paths: Vec<PathBuf> = exports.filter_map(|export| export.path.clone()).collect();
    let tls = &arguments.tls;
    // Files that are read again may have been replaced.
    let files = [&arguments.config, &tls.tls_cert, &tls.tls_key, &tls.tls_client_ca];
    paths.extend(files.into_iter().flatten().map(|file| parent(file)));
    paths.extend(READ.map(PathBuf::from));
    paths
}

/// Takes all rights away but those beneath these paths. Paths that are not there give none.
fn restrict(writable: &[PathBuf], readable: &[PathBuf]) -> Result<RestrictionStatus, RulesetError> {
    let (all, read) = (AccessFs::from_all(RIGHTS), AccessFs::from_read(RIGHTS));
    let beneath = |paths: &[PathBuf], rights: BitFlags<AccessFs>| {
        let opened: Vec<_> = paths.iter().filter_map(|path| PathFd::new(path).ok()).collect();
        opened.into_iter().map(move |path| Ok::<_, RulesetError>(PathBeneath::new(path, rights)))
    };
    Ruleset::default()
        // Without this right, which is younger than the rest, nothing could be renamed to another
        // directory.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?
        .add_rules(beneath(writable, all & !AccessFs::Execute))?
        .add_rules(beneath(readable, read & !AccessFs::Execute))?
        .restrict_self()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::ErrorKind, thread};

    #[test]
    fn a_confined_thread_reaches_what_it_was_given_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["export/a", "export/b", "readonly", "outside"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::write(path("readonly/file"), "read").unwrap();
        fs::write(path("outside/file"), "secret").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                match restrict(&[path("export")], &[path("readonly"), path("missing")]) {
                    Ok(status) if status.ruleset != RulesetStatus::NotEnforced => {}
                    outcome => return println!("skipped: no Landlock here: {outcome:?}"),
                }
                fs::write(path("export/a/file"), "written").unwrap();
                fs::rename(path("export/a/file"), path("export/b/file")).unwrap();
                fs::hard_link(path("export/b/file"), path("export/a/link")).unwrap();
                assert_eq!(fs::read_to_string(path("readonly/file")).unwrap(), "read");
                for refused in [
                    fs::write(path("readonly/file"), "written"),
                    fs::read(path("outside/file")).map(drop),
                    fs::write(path("outside/other"), "written"),
                    fs::rename(path("export/b/file"), path("outside/moved")),
                    fs::remove_file(path("outside/file")),
                ] {
                    let kind = refused.unwrap_err().kind();
                    let kinds = [ErrorKind::PermissionDenied, ErrorKind::CrossesDevices];
                    assert!(kinds.contains(&kind), "{kind:?}");
                }
            });
        });
        // Nobody else is.
        assert_eq!(fs::read_to_string(path("outside/file")).unwrap(), "secret");
    }
}
