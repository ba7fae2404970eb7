use super::*;

fn make(lab: &mut Lab, user: User, name: &str) -> Result<(u32, u32), Status> {
    let root = lab.root();
    let made = lab.by(user, |lab| lab.files.create(&root, name.as_bytes(), &guarded(0o644)));
    made.map(|made| {
        assert_eq!((made.attributes.uid, made.attributes.gid), lab.owner(name));
        lab.owner(name)
    })
    .map_err(|failed| failed.status)
}

#[test]
fn root_is_squashed_into_an_export_that_everyone_may_write() {
    let Some(mut lab) = lab(|_| {}) else { return };
    assert_eq!(make(&mut lab, user(0), "root"), Ok((65_534, 65_534)));
    assert_eq!(make(&mut lab, User::Anyone, "none"), Ok((65_534, 65_534)));
    assert_eq!(make(&mut lab, user(u32::MAX), "nobody"), Ok((65_534, 65_534)));
    assert_eq!(make(&mut lab, member(ALICE, 0, &[0]), "wheel"), Ok((ALICE, 65_534)));
    assert_eq!(make(&mut lab, member(ALICE, STAFF, &[]), "alice"), Ok((ALICE, STAFF)));
    lab.give("secret", 0, 0, 0o600);
    let secret = lab.by(user(0), |lab| lab.find("secret"));
    for squashed in [user(0), member(ALICE, ALICE, &[0]), User::Anyone] {
        assert_eq!(lab.by(squashed, |lab| lab.content(&secret)), Err(Status::Acces));
    }
    lab.own("", 0, 0, 0o755);
    assert_eq!(make(&mut lab, user(0), "more"), Err(Status::Acces));
}

#[test]
fn root_is_root_when_nobody_is_squashed() {
    let Some(mut lab) = lab(|config| config.callers.squash = Squash::None) else { return };
    lab.own("", ALICE, ALICE, 0o700);
    assert_eq!(make(&mut lab, user(0), "root"), Ok((0, 0)));
    assert_eq!(make(&mut lab, User::Anyone, "none"), Err(Status::Acces));
    assert_eq!(make(&mut lab, user(BOB), "bob"), Err(Status::Acces));
    lab.give("secret", ALICE, ALICE, 0o000);
    let secret = lab.by(user(0), |lab| lab.find("secret"));
    assert_eq!(lab.by(user(0), |lab| lab.content(&secret)).unwrap(), b"x");
    let give = NewAttributes { uid: Some(BOB), gid: Some(STAFF), ..NewAttributes::default() };
    lab.by(user(0), |lab| lab.files.set_attributes(&secret, &give, None)).unwrap();
    assert_eq!(lab.owner("secret"), (BOB, STAFF));
}

#[test]
fn everyone_is_the_anonymous_user_when_all_are_squashed() {
    let change = |config: &mut FilesConfig| {
        config.callers = Callers {
            squash: Squash::All,
            anon_uid: 4_001,
            anon_gid: 4_002,
            ..config.callers.clone()
        };
    };
    let Some(mut lab) = lab(change) else { return };
    let callers = [user(0), user(ALICE), member(BOB, STAFF, &[0, 7]), User::Anyone];
    for (number, caller) in callers.into_iter().enumerate() {
        assert_eq!(make(&mut lab, caller, &format!("f{number}")), Ok((4_001, 4_002)));
    }
    assert_eq!(
        lab.files.counts().switches,
        callers.len() as u64,
        "the tests leave after each call"
    );
}

#[test]
fn a_device_is_made_by_root_unless_he_is_squashed() {
    let device = stag_protocol::nfs::v3::DeviceNumber { major: 1, minor: 3 };
    for (squash, expected) in [(Squash::Root, Err(Status::Perm)), (Squash::None, Ok(device))] {
        let Some(mut lab) = lab(|config| config.callers.squash = squash) else { return };
        let root = lab.root();
        for (name, kind) in [(b"c", FileKind::Character), (b"b", FileKind::Block)] {
            let set = NewAttributes { mode: Some(0o666), ..NewAttributes::default() };
            let node = crate::DeviceNode { kind, device };
            for uid in [ALICE, 0] {
                let made = lab.by(user(uid), |lab| lab.files.mknod(&root, name, node, &set));
                let made = made.map(|made| (made.attributes.kind, made.attributes.device));
                let expected = if uid == 0 { expected } else { Err(Status::Perm) };
                assert_eq!(
                    made.map_err(|failed| failed.status),
                    expected.map(|device| (kind, device)),
                    "{kind:?} by {uid}"
                );
            }
        }
    }
}

#[test]
fn the_start_says_which_mode_it_is_and_what_that_means() {
    let Some(lab) = lab(|_| {}) else { return };
    let notices = lab.files.shared().notices();
    assert!(notices[0].starts_with("privileged mode: each caller acts as"), "{notices:?}");
    assert!(notices[0].ends_with("root as 65534:65534"), "{notices:?}");
    assert!(lab.files.shared().is_privileged());
    let lab = Lab::new();
    let notices = lab.files.shared().notices();
    assert!(notices[0].starts_with("unprivileged mode: every caller acts as"), "{notices:?}");
    assert!(!lab.files.shared().is_privileged());
}

#[test]
fn a_mount_needs_no_right_on_the_way_and_gives_none() {
    let Some(mut lab) = lab(|_| {}) else { return };
    fs::create_dir_all(lab.path("closed/open")).unwrap();
    lab.give("closed/open/f", ALICE, ALICE, 0o600);
    lab.own("closed", 0, 0, 0o700);
    let handle = lab.by(User::Anyone, |lab| lab.files.mount(b"/data/closed/open")).unwrap();
    let found = lab.by(user(ALICE), |lab| lab.files.lookup(&handle, b"f")).unwrap();
    assert_eq!(lab.by(user(BOB), |lab| lab.content(&found.handle)), Err(Status::Acces));
    assert_eq!(lab.by(user(ALICE), |lab| lab.try_find("closed/open")), Err(Status::Acces));
}

#[test]
fn whoever_may_write_may_cut_and_have_the_time_set_as_o_trunc_does() {
    let Some(mut lab) = lab(|_| {}) else { return };
    lab.give("shared", ALICE, ALICE, 0o666);
    lab.give("closed", ALICE, ALICE, 0o644);
    let (shared, closed) = lab.by(user(ALICE), |lab| (lab.find("shared"), lab.find("closed")));
    let cut = NewAttributes { size: Some(0), mtime: NewTime::Server, ..NewAttributes::default() };
    let touch = NewAttributes { mtime: NewTime::Server, ..NewAttributes::default() };
    let set = |lab: &mut Lab, file: &FileHandle, set: &NewAttributes| {
        lab.by(user(BOB), |lab| lab.files.set_attributes(file, set, None).map(drop))
            .map_err(|failed| failed.status)
    };
    assert_eq!(set(&mut lab, &shared, &cut), Ok(()));
    assert_eq!(lab.by(user(ALICE), |lab| lab.content(&shared)).unwrap(), b"");
    // Setting one time alone is for the owner, as in the file system itself.
    assert_eq!(set(&mut lab, &shared, &touch), Err(Status::Perm));
    assert_eq!(set(&mut lab, &closed, &cut), Err(Status::Acces));
}
