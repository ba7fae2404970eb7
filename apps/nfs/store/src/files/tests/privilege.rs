use super::*;
use std::os::unix::fs::PermissionsExt;

/// Runs all the tests of this store again, as an unprivileged user.
#[test]
fn everything_works_without_privilege() {
    if !is_root() {
        eprintln!("skipped: already without privilege");
        return;
    }
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let program = std::env::current_exe().unwrap();
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // A copy: the build directory may not be readable for everyone.
    let copy = home.path().join("tests");
    fs::copy(&program, &copy).unwrap();
    let library = "libstag_ceph_fake.so";
    fs::copy(program.with_file_name(library), home.path().join(library)).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command.args(nobody).arg(copy).args(["--skip", "everything_works_without"]);
    let output = match command.env("TMPDIR", home.path()).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: setpriv: {error}");
            return;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn what_the_servers_user_may_not_do_is_refused() {
    if is_root() {
        eprintln!(
            "skipped: root may do everything; runs as nobody in everything_works_without_privilege"
        );
        return;
    }
    let mut lab = Lab::new();
    fs::create_dir(lab.path("d")).unwrap();
    let dir = lab.find("d");
    fs::set_permissions(lab.path("d"), fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(lab.files.create(&dir, b"n", &guarded(0o600)).unwrap_err().status, Status::Acces);
    let listed = lab.files.readdir(&dir, crate::ListingStart::default(), &mut |_| true);
    assert_eq!(listed.unwrap_err().status, Status::Acces);
    fs::set_permissions(lab.path("d"), fs::Permissions::from_mode(0o700)).unwrap();

    // A writable but unreadable directory is synced with its file system.
    let mut lab = Lab::with(|config| config.sync_directories = true);
    fs::create_dir(lab.path("d")).unwrap();
    let dir = lab.find("d");
    fs::set_permissions(lab.path("d"), fs::Permissions::from_mode(0o300)).unwrap();
    lab.files.create(&dir, b"n", &guarded(0o600)).unwrap();
    fs::set_permissions(lab.path("d"), fs::Permissions::from_mode(0o700)).unwrap();

    // A file of root's that all users may read; this test does no harm to it.
    let mut lab = Lab::with(|config| config.exports[0].path = "/etc".into());
    let file = lab.find("passwd");
    assert_eq!(lab.write(&file, 0, b""), Err(Status::Acces));
    let time = NewTime::Client(lab.files.getattr(&file).unwrap().atime);
    let set = NewAttributes { atime: time, ..NewAttributes::default() };
    assert_eq!(lab.files.set_attributes(&file, &set, None).unwrap_err().status, Status::Perm);
}

/// True if the system permits user namespaces to its users.
fn has_namespaces(lab: &Lab) -> bool {
    fs::write(lab.path("probe"), b"").unwrap();
    fs::set_permissions(lab.path("probe"), fs::Permissions::from_mode(0o000)).unwrap();
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = openat(CWD, lab.path("probe"), flags, Mode::empty()).unwrap();
    let opened = stag_nfs_os::owner::open(&file, OFlags::RDWR);
    fs::remove_file(lab.path("probe")).unwrap();
    opened.inspect_err(|error| eprintln!("skipped: no user namespaces here: {error}")).is_ok()
}

#[test]
fn an_owner_reads_and_writes_his_file_whatever_its_mode_and_the_mode_stays() {
    for mode in [0o444, 0o200, 0o000] {
        let mut lab = Lab::with(|config| config.sync_directories = true);
        if !has_namespaces(&lab) {
            return;
        }
        let root = lab.root();
        let file = lab.files.create(&root, b"f", &guarded(mode)).unwrap().handle;
        lab = lab.restart();
        assert_eq!(lab.write(&file, 0, b"hello"), Ok(5));
        lab = lab.restart();
        assert_eq!(lab.content(&file).unwrap(), b"hello");
        lab = lab.restart();
        lab.files.commit(&file).unwrap();
        assert_eq!(lab.files.getattr(&file).unwrap().mode, mode);
    }
}

/// Not even for an instant: each of these calls opens the file again, and a change of the mode
/// would change the ctime.
#[test]
fn opening_a_file_for_its_owner_changes_nothing_of_it() {
    let mut lab = Lab::new();
    if !has_namespaces(&lab) {
        return;
    }
    let (file, other) = (lab.file("f", b"hello"), lab.file("other", b"x"));
    fs::set_permissions(lab.path("f"), fs::Permissions::from_mode(0o000)).unwrap();
    let before = lab.files.getattr(&file).unwrap();
    assert_eq!(lab.content(&file).unwrap(), b"hello");
    lab = lab.restart();
    assert_eq!(lab.write(&file, 0, b""), Ok(0));
    lab = lab.restart();
    lab.files.commit(&file).unwrap();
    let after = lab.files.getattr(&file).unwrap();
    assert_eq!((after.ctime, after.mtime, after.mode), (before.ctime, before.mtime, 0o000));
    lab.config.exports[0].read_only = true;
    lab = lab.restart();
    assert_eq!(
        lab.content(&file).unwrap(),
        b"hello",
        "a read-only export, too: nothing is touched"
    );
    assert_eq!(lab.content(&other).unwrap(), b"x");
}
