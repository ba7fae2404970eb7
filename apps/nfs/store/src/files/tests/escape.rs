use super::*;
use crate::NameIn;
use std::sync::atomic::{AtomicBool, Ordering};

fn secret(lab: &Lab) -> PathBuf {
    let path = lab.home.path().join("outside/secret");
    fs::write(&path, b"secret").unwrap();
    path
}

#[test]
fn symbolic_links_are_never_followed() {
    let mut lab = Lab::new();
    secret(&lab);
    let root = lab.root();
    std::os::unix::fs::symlink("../outside", lab.path("dir")).unwrap();
    std::os::unix::fs::symlink("../outside/secret", lab.path("file")).unwrap();
    std::os::unix::fs::symlink("/proc/self/root", lab.path("magic")).unwrap();
    for name in ["dir", "file", "magic"] {
        let handle = lab.find(name);
        assert_eq!(lab.files.getattr(&handle).unwrap().kind, FileKind::Symlink);
        assert_eq!(lab.files.lookup(&handle, b"secret").unwrap_err().status, Status::NotDir);
        assert_eq!(lab.content(&handle), Err(Status::Inval));
        assert_eq!(
            lab.files.create(&handle, b"n", &guarded(0o600)).unwrap_err().status,
            Status::NotDir
        );
        let how =
            CreateMode::Unchecked(NewAttributes { size: Some(0), ..NewAttributes::default() });
        assert_eq!(
            lab.files.create(&root, name.as_bytes(), &how).unwrap_err().status,
            Status::Exist
        );
    }
    assert_eq!(fs::read(lab.home.path().join("outside/secret")).unwrap(), b"secret");
}

#[test]
fn an_open_directory_moved_out_of_the_export_leads_nowhere_above() {
    let mut lab = Lab::new();
    secret(&lab);
    fs::create_dir(lab.path("d")).unwrap();
    let dir = lab.find("d");
    lab.files.getattr(&dir).unwrap();
    fs::rename(lab.path("d"), lab.home.path().join("outside/d")).unwrap();
    assert_eq!(lab.files.lookup(&dir, b"..").unwrap_err().status, Status::Stale);
    assert_eq!(lab.restart().files.getattr(&dir), Err(Status::Stale));
}

#[test]
fn what_is_moved_out_of_the_export_is_stale_at_once_and_served_when_it_is_back() {
    let mut lab = Lab::new();
    fs::create_dir_all(lab.path("m/deep/er")).unwrap();
    fs::write(lab.path("mf"), b"mf").unwrap();
    fs::write(lab.path("m/inner"), b"inner").unwrap();
    let paths = ["m", "m/deep", "m/inner", "mf"];
    let [m, deep, inner, mf] = paths.map(|path| lab.find(path));
    // All are open, and were checked in this step.
    for file in [&inner, &mf] {
        lab.write(file, 0, b"x").unwrap();
        lab.content(file).unwrap();
    }
    lab.files.lookup(&m, b"inner").unwrap();
    lab.files.lookup(&deep, b"er").unwrap();
    let outside = |name: &str| lab.home.path().join("outside").join(name);
    let [m_out, mf_out] = ["m", "mf"].map(outside);
    fs::rename(lab.path("m"), &m_out).unwrap();
    fs::rename(lab.path("mf"), &mf_out).unwrap();
    let set = NewAttributes::default();
    let guarded = CreateMode::Guarded(set);
    for directory in [&m, &deep] {
        assert_eq!(lab.files.mkdir(directory, b"n", &set).unwrap_err().status, Status::Stale);
        let made = lab.files.create(directory, b"n", &guarded);
        assert_eq!(made.unwrap_err().status, Status::Stale);
        let made = lab.files.symlink(directory, b"n", b"target", &set);
        assert_eq!(made.unwrap_err().status, Status::Stale);
        assert_eq!(lab.files.link(&inner, directory, b"n").unwrap_err().status, Status::Stale);
    }
    assert_eq!(lab.files.lookup(&m, b"inner").unwrap_err().status, Status::Stale);
    assert_eq!(lab.files.lookup(&deep, b"er").unwrap_err().status, Status::Stale);
    assert_eq!(lab.files.remove(&m, b"inner").unwrap_err().status, Status::Stale);
    for file in [&inner, &mf] {
        assert_eq!(lab.write(file, 0, b"y"), Err(Status::Stale));
        assert_eq!(lab.files.set_attributes(file, &set, None).unwrap_err().status, Status::Stale);
    }
    // Its own ctime differs.
    assert_eq!(lab.content(&mf), Err(Status::Stale));
    lab.files.inside.begin_step();
    assert_eq!(lab.content(&inner), Err(Status::Stale));
    assert_eq!(fs::read(m_out.join("inner")).unwrap(), b"xnner");
    assert_eq!(fs::read_dir(&m_out).unwrap().count(), 2, "nothing was made outside");
    fs::rename(&m_out, lab.path("m")).unwrap();
    lab.files.inside.begin_step();
    assert_eq!(lab.content(&inner).unwrap(), b"xnner");
    lab.files.mkdir(&deep, b"n", &set).unwrap();
}

#[test]
fn a_read_of_a_file_that_was_moved_out_is_refused_in_the_same_step() {
    let mut lab = Lab::new();
    let file = lab.file("f", b"content");
    assert_eq!(lab.content(&file).unwrap(), b"content");
    fs::rename(lab.path("f"), lab.home.path().join("outside/f")).unwrap();
    assert_eq!(lab.content(&file), Err(Status::Stale));
    assert_eq!(lab.files.getattr(&file), Err(Status::Stale));
}

#[test]
fn a_file_with_another_name_inside_is_found_by_that() {
    let mut lab = Lab::new();
    let file = lab.file("f", b"content");
    fs::hard_link(lab.path("f"), lab.path("g")).unwrap();
    assert_eq!(lab.find("g"), file);
    lab.content(&file).unwrap();
    fs::rename(lab.path("f"), lab.home.path().join("outside/f")).unwrap();
    lab.files.inside.begin_step();
    assert_eq!(lab.content(&file).unwrap(), b"content");
    lab.write(&file, 0, b"C").unwrap();
}

#[test]
fn an_export_that_is_renamed_as_a_whole_is_served_on() {
    let mut lab = Lab::new();
    fs::create_dir(lab.path("d")).unwrap();
    let (file, directory) = (lab.file("f", b"content"), lab.find("d"));
    lab.write(&file, 0, b"C").unwrap();
    fs::rename(lab.path(""), lab.home.path().join("elsewhere")).unwrap();
    lab.write(&file, 1, b"O").unwrap();
    lab.files.mkdir(&directory, b"n", &NewAttributes::default()).unwrap();
    assert_eq!(lab.content(&file).unwrap(), b"COntent");
}

/// Stops the other thread even when an assertion fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_directory_swapped_for_a_link_while_calls_run_never_leads_outside() {
    let mut lab = Lab::with(|config| config.open_files = Some(OPEN_FILES_MIN));
    secret(&lab);
    fs::create_dir(lab.path("d")).unwrap();
    fs::write(lab.path("d/secret"), b"inside").unwrap();
    for number in 0..40 {
        fs::write(lab.path(&format!("f{number}")), b"").unwrap();
    }
    let (root, dir, file) = (lab.root(), lab.find("d"), lab.find("d/secret"));
    let others: Vec<_> = (0..40).map(|number| lab.find(&format!("f{number}"))).collect();
    let (path, parked) = (lab.path("d"), lab.path("parked"));
    let stop = AtomicBool::new(false);
    let (mut reads, mut misses) = (0, 0);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs::rename(&path, &parked).unwrap();
                std::os::unix::fs::symlink("../outside", &path).unwrap();
                std::thread::yield_now();
                fs::remove_file(&path).unwrap();
                fs::rename(&parked, &path).unwrap();
            }
        });
        let give_up_at = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut round = 0_usize;
        while round < 2000
            || ((reads == 0 || misses == 0) && std::time::Instant::now() < give_up_at)
        {
            round += 1;
            // Evicts directory and file from the cache, so that they are opened by name again.
            for step in 0..OPEN_FILES_MIN + 2 {
                lab.files.getattr(&others[(round + step) % others.len()]).unwrap();
            }
            match lab.content(&file) {
                Ok(content) => {
                    assert_eq!(content, b"inside");
                    reads += 1;
                }
                Err(status) => {
                    assert_eq!(status, Status::Stale);
                    misses += 1;
                }
            }
            if let Ok(found) = lab.files.lookup(&root, b"d") {
                assert!(found.handle == dir || found.attributes.kind == FileKind::Symlink);
                if let Ok(below) = lab.files.lookup(&found.handle, b"secret") {
                    assert_eq!(below.handle, file);
                }
            }
        }
    });
    assert!(
        reads > 0 && misses > 0,
        "both sides of the swap were seen: {reads} reads, {misses} misses"
    );
}

#[test]
fn mount_points_inside_an_export_are_not_crossed() {
    let ran =
        run_under(&["unshare", "-rm"], "files::tests::escape::with_a_mount_inside", "mount-inside");
    if !ran {
        eprintln!("skipped: no mount namespace");
    }
}

/// Runs in its own mount namespace.
#[test]
#[ignore = "started by mount_points_inside_an_export_are_not_crossed"]
fn with_a_mount_inside() {
    if std::env::var("STAG_TEST_MARKER").as_deref() != Ok("mount-inside") {
        return;
    }
    let mut lab = Lab::new();
    let root = lab.root();
    fs::create_dir(lab.path("tmpfs")).unwrap();
    fs::create_dir(lab.path("bind")).unwrap();
    let before = lab.find("tmpfs");
    lab.files.flush().unwrap();
    data::mount_tmpfs(&lab.path("tmpfs"), "size=64k");
    fs::write(lab.path("tmpfs/secret"), b"secret").unwrap();
    let mut bind = std::process::Command::new("mount");
    bind.arg("--bind").arg(lab.home.path().join("outside")).arg(lab.path("bind"));
    assert!(bind.status().unwrap().success());
    for name in [b"tmpfs".as_slice(), b"bind"] {
        assert_eq!(lab.files.lookup(&root, name).unwrap_err().status, Status::Acces);
        assert_eq!(lab.files.rmdir(&root, name).unwrap_err().status, Status::Acces);
        assert_eq!(
            lab.files
                .rename(NameIn::new(&root, name), NameIn::new(&root, b"x"))
                .unwrap_err()
                .status,
            Status::Acces
        );
        let made = lab.files.mkdir(&root, name, &NewAttributes::default());
        assert_eq!(made.unwrap_err().status, Status::Exist);
    }
    assert_eq!(
        lab.files.getattr(&before),
        Err(Status::Acces),
        "the directory below the mount point"
    );
    let mut plain = 0;
    let mut visit = |entry: &crate::ListedEntry<'_>| {
        plain += usize::from(entry.object.is_none());
        true
    };
    lab.files.readdirplus(&root, crate::ListingStart::default(), &mut visit).unwrap();
    assert_eq!(plain, 2, "listed, without handle and attributes");
}

#[test]
fn the_state_directory_is_not_served_wherever_it_shows_up() {
    let mut lab = Lab::new();
    fs::rename(lab.home.path().join("state"), lab.path("state")).unwrap();
    let root = lab.root();
    assert_eq!(lab.files.lookup(&root, b"state").unwrap_err().status, Status::Acces);
    fs::rename(lab.path("state"), lab.home.path().join("state")).unwrap();
}
