use super::*;
use std::os::unix::fs::PermissionsExt;

/// All the tests of this store once more, as nobody.
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
    // A copy: the build directory need not be readable by everyone.
    let copy = home.path().join("tests");
    fs::copy(program, &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command.args(nobody).arg(copy).args([
        "--skip",
        "everything_works_without",
        "store::",
        "index::",
        "state::",
        "export::",
    ]);
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
        eprintln!("skipped: root may do everything; runs as nobody in everything_works_without_privilege");
        return;
    }
    let mut lab = Lab::new();
    fs::create_dir(lab.path("d")).unwrap();
    let (file, dir) = (lab.file("f", b"x"), lab.find("d"));
    fs::set_permissions(lab.path("f"), fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(lab.content(&file), Err(Status::Acces));
    assert_eq!(lab.write(&file, 0, b"y"), Err(Status::Acces));
    fs::set_permissions(lab.path("f"), fs::Permissions::from_mode(0o200)).unwrap();
    assert_eq!(lab.write(&file, 0, b"y"), Ok(1));
    lab.files.commit(&file).unwrap();
    assert_eq!(lab.content(&file), Err(Status::Acces));
    assert_eq!(lab.write(&file, 0, b"z"), Ok(1));
    fs::set_permissions(lab.path("d"), fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(lab.files.create(&dir, b"n", &guarded(0o600)).unwrap_err().status, Status::Acces);
    let listed = lab.files.readdir(&dir, crate::store::Place::default(), &mut |_| true);
    assert_eq!(listed.unwrap_err().status, Status::Acces);
    fs::set_permissions(lab.path("d"), fs::Permissions::from_mode(0o700)).unwrap();
}
