//! Confinement of a server to the files it needs (landlock(7)): exports, state, the system's own
//! files.

use crate::{
    Error,
    args::address::socket_path,
    kerberos,
    serve::plan::{Plan, options::ServeOptions},
};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use rustix::process::geteuid;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The rights that are taken away unless a rule returns them: those of Linux 6.10. Older kernels
/// take the ones they know.
const RIGHTS: ABI = ABI::V5;

/// Directories of the system that a server reads: libraries, settings, the caches of name services,
/// and the kernel's own.
const READ: [&str; 7] = ["/usr", "/lib", "/lib64", "/etc", "/var/lib/sss", "/sys", PROC];
/// Devices that it uses: no disk is among them.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/cpu_dma_latency", "/dev/infiniband"];
/// A child that opens a file for its owner writes the maps of its users there (user_namespaces(7)).
/// Root has no need of it, and could change what the kernel starts.
const PROC: &str = "/proc";

/// Confines this process, and every thread that it starts from now on, to the files that `plan`
/// names and those of the system. To be called while the process has one thread.
///
/// # Errors
/// The kernel cannot, the store needs more, or there is a second thread already.
pub fn confine(plan: &Plan, arguments: &ServeOptions) -> Result<(), Error> {
    if let Some(why) = plan.store.not_confined() {
        return Err(Error::usage(format!(
            "--confine is not for {why}: leave it out, or see CONFINEMENT"
        )));
    }
    // An unconfined thread would share the memory of the confined ones.
    if fs::read_dir("/proc/self/task").map_or(0, Iterator::count) != 1 {
        return Err(Error::failure("--confine comes too late: another thread runs"));
    }
    match restrict(&writable(plan, arguments)?, &readable(plan, arguments)) {
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

fn writable(plan: &Plan, arguments: &ServeOptions) -> Result<Vec<PathBuf>, Error> {
    let mut paths: Vec<PathBuf> = Vec::new();
    if plan.store.host_callers().is_some() {
        let exports = plan.exports.iter().filter(|export| !export.read_only);
        paths.extend(exports.filter_map(|export| export.path.clone()));
        paths.extend(plan.state_dir().map(Path::to_owned));
    }
    let control =
        arguments.observe.monitors(plan.state_dir()).control_path().map_err(Error::usage)?;
    let sockets = plan.fabrics.iter().flat_map(|fabric| fabric.group.addresses());
    let made = sockets.filter_map(socket_path).chain(control);
    let made = made.chain(plan.stats.clone()).chain(plan.ready_file.clone());
    // The library makes it at the first context.
    let replays = plan.kerberos.as_ref().and_then(|it| it.replay_cache.clone());
    let made = made.chain(replays);
    paths.extend(made.map(|file| parent(&file)));
    paths.extend(DEVICES.map(PathBuf::from));
    if !geteuid().is_root() {
        paths.push(PathBuf::from(PROC));
    }
    Ok(paths)
}

fn readable(plan: &Plan, arguments: &ServeOptions) -> Vec<PathBuf> {
    // Writable ones are named twice. A store in memory copies them.
    let exports = plan.exports.iter();
    let mut paths: Vec<PathBuf> = exports.filter_map(|export| export.path.clone()).collect();
    let tls = &arguments.tls;
    // Files that are read again may have been replaced.
    let files = [&arguments.config, &tls.tls_cert, &tls.tls_key, &tls.tls_client_ca];
    paths.extend(files.into_iter().flatten().map(|file| parent(file)));
    if plan.kerberos.is_some() {
        // The keytab is opened by its name for each context.
        let files = [&arguments.kerberos.keytab, &arguments.kerberos.kerberos_map];
        paths.extend(files.into_iter().flatten().map(|file| parent(file)));
        paths.extend(kerberos::configuration_files().iter().map(|file| parent(file)));
    }
    paths.extend(READ.map(PathBuf::from));
    paths
}

/// Takes all rights away but those beneath these paths. Missing paths give none.
fn restrict(writable: &[PathBuf], readable: &[PathBuf]) -> Result<RestrictionStatus, RulesetError> {
    let (all, read) = (AccessFs::from_all(RIGHTS), AccessFs::from_read(RIGHTS));
    let beneath = |paths: &[PathBuf], rights: BitFlags<AccessFs>| {
        let opened: Vec<_> = paths.iter().filter_map(|path| PathFd::new(path).ok()).collect();
        opened.into_iter().map(move |path| Ok::<_, RulesetError>(PathBeneath::new(path, rights)))
    };
    Ruleset::default()
        // Without this right, which is newer than the rest, nothing could be renamed to another
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
    fn no_directory_of_devices_is_among_those_that_are_written_to() {
        assert!(
            DEVICES.iter().all(|path| path.strip_prefix("/dev/").is_some_and(|it| !it.is_empty()))
        );
        assert!(!DEVICES.contains(&PROC) && READ.contains(&PROC));
    }

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
                // Nothing of the system was given here; of it, no disk and no setting ever is.
                let write = |path: &str| fs::OpenOptions::new().write(true).open(path).map(drop);
                assert!(write("/dev/full").is_err() && write("/proc/self/comm").is_err());
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
        // The other threads are not confined.
        assert_eq!(fs::read_to_string(path("outside/file")).unwrap(), "secret");
    }
}
