//! Compares every operation of the store, for a user, with the same operation of a local process of
//! that user.
//!
//! Two equal trees are made. A child process, started as the user by `setpriv`, works on one by
//! path. The store, acting as the user, works on the other by handles. Then outcomes are compared
//! one by one, and both trees as a whole.

use super::*;
use crate::NameIn;
use std::{collections::BTreeMap, path::Path};

use rustix::{
    fs as os,
    fs::{AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid},
};
use stag_protocol::nfs::v3::Access;

/// (uid, gid, other groups)
type Identity = (u32, u32, &'static [u32]);

const IDENTITIES: [Identity; 6] = [
    (ALICE, ALICE, &[]),
    (ALICE, ALICE, &[STAFF]),
    (BOB, STAFF, &[]),
    (BOB, BOB, &[7, STAFF]),
    (BOB, BOB, &[]),
    (0, 0, &[]),
];

/// Directories in addition to those of each mode: sticky ones and ones that pass on their group.
const SPECIAL: [u32; 8] = [0o1777, 0o1770, 0o1707, 0o1077, 0o2777, 0o2775, 0o2070, 0o3777];

fn file_modes() -> impl Iterator<Item = u32> {
    0..=0o777
}

fn directory_modes() -> impl Iterator<Item = u32> {
    (0..=0o777).chain(SPECIAL)
}

/// Makes a tree: a file and a directory of each mode that belong to Alice and the staff, and a
/// directory for links.
fn plant(tree: &Path) {
    let give = |path: &Path, mode: u32, uid: u32| {
        chown(path, Some(uid), Some(STAFF)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir(tree).unwrap();
    for mode in file_modes() {
        let file = tree.join(format!("f{mode:o}"));
        fs::write(&file, b"x").unwrap();
        give(&file, mode, ALICE);
    }
    for mode in directory_modes() {
        let directory = tree.join(format!("d{mode:o}"));
        fs::create_dir(&directory).unwrap();
        for (name, uid) in [("alices", ALICE), ("bobs", BOB), ("roots", 0)] {
            fs::write(directory.join(name), b"x").unwrap();
            give(&directory.join(name), 0o644, uid);
        }
        give(&directory, mode, ALICE);
    }
    fs::create_dir(tree.join("links")).unwrap();
    give(&tree.join("links"), 0o777, 0);
    fs::write(tree.join("common"), b"x").unwrap();
    give(&tree.join("common"), 0o666, ALICE);
    fs::set_permissions(tree, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Status of each operation, by its name.
type Outcomes = BTreeMap<String, Status>;

/// Operations to try, by path or by handle.
trait Doer {
    fn on_file(&mut self, operation: &str, file: &str) -> Result<(), Status>;
    fn on_directory(&mut self, operation: &str, directory: &str) -> Result<(), Status>;
}

const ON_FILE: [&str; 14] = [
    "may-read",
    "may-write",
    "may-execute",
    "read",
    "write",
    "truncate",
    "touch",
    "set-times",
    "chmod",
    "chmod-set-group",
    "chgrp",
    "chown",
    "link",
    "read-again",
];
const ON_DIRECTORY: [&str; 17] = [
    "may-list",
    "may-search",
    "may-change",
    "lookup",
    "above",
    "list",
    "create",
    "create-set-group",
    "mkdir",
    "symlink",
    "fifo",
    "link-into",
    "rename",
    "remove-alices",
    "remove-bobs",
    "remove-roots",
    "rmdir",
];

fn all(doer: &mut impl Doer) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let mut note = |name: String, outcome: Result<(), Status>| {
        outcomes.insert(name, outcome.err().unwrap_or(Status::Ok));
    };
    for operation in ON_FILE {
        for mode in file_modes() {
            let file = format!("f{mode:o}");
            note(format!("{operation} {file}"), doer.on_file(operation, &file));
        }
    }
    for operation in ON_DIRECTORY {
        for mode in directory_modes() {
            let directory = format!("d{mode:o}");
            note(format!("{operation} {directory}"), doer.on_directory(operation, &directory));
        }
    }
    outcomes
}

/// The tree of the child process.
struct Local<'a>(&'a Path);

impl Local<'_> {
    fn open(&self, file: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        os::open(file, flags, Mode::from(0o640))
    }
}

fn now() -> Timestamps {
    let now = Timespec { tv_sec: 0, tv_nsec: os::UTIME_NOW };
    Timestamps { last_access: now, last_modification: now }
}

impl Doer for Local<'_> {
    fn on_file(&mut self, operation: &str, name: &str) -> Result<(), Status> {
        let file = self.0.join(name);
        let asked = |need| os::accessat(CWD, &file, need, AtFlags::EACCESS);
        let at = Timespec { tv_sec: 1_000, tv_nsec: 0 };
        let outcome = match operation {
            "may-read" => asked(os::Access::READ_OK),
            "may-write" => asked(os::Access::WRITE_OK),
            "may-execute" => asked(os::Access::EXEC_OK),
            "read" | "read-again" => self.open(&file, OFlags::RDONLY).map(drop),
            "write" => self
                .open(&file, OFlags::WRONLY)
                .and_then(|fd| rustix::io::write(fd, b"x"))
                .map(drop),
            "truncate" => self.open(&file, OFlags::WRONLY).and_then(|fd| os::ftruncate(fd, 1)),
            "touch" => os::utimensat(CWD, &file, &now(), AtFlags::empty()),
            "set-times" => os::utimensat(
                CWD,
                &file,
                &Timestamps { last_access: at, last_modification: at },
                AtFlags::empty(),
            ),
            "chmod" => os::chmod(&file, Mode::from(mode_of(name))),
            "chmod-set-group" => os::chmod(&file, Mode::from(mode_of(name) | 0o2000)),
            "chgrp" => os::chown(&file, None, Some(Gid::from_raw(STAFF))),
            "chown" => os::chown(&file, Some(Uid::from_raw(BOB)), None),
            "link" => os::link(&file, self.0.join("links").join(name)),
            _ => unreachable!(),
        };
        outcome.map_err(errno::status)
    }

    fn on_directory(&mut self, operation: &str, name: &str) -> Result<(), Status> {
        let directory = self.0.join(name);
        let asked = |need| os::accessat(CWD, &directory, need, AtFlags::EACCESS);
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let outcome = match operation {
            "may-list" => asked(os::Access::READ_OK),
            "may-search" => asked(os::Access::EXEC_OK),
            "may-change" => asked(os::Access::WRITE_OK | os::Access::EXEC_OK),
            "lookup" => os::lstat(directory.join("alices")).map(drop),
            "above" => os::lstat(directory.join("..")).map(drop),
            "list" => self.open(&directory, OFlags::RDONLY | OFlags::DIRECTORY).map(drop),
            "create" => self.open(&directory.join("new"), new).map(drop),
            "create-set-group" => {
                os::open(directory.join("group"), new, Mode::from(0o2755)).map(drop)
            }
            "mkdir" => os::mkdir(directory.join("dir"), Mode::from(0o750)),
            "symlink" => os::symlink("target", directory.join("link")),
            "fifo" => {
                os::mknodat(CWD, directory.join("fifo"), os::FileType::Fifo, Mode::from(0o640), 0)
            }
            "link-into" => os::link(self.0.join("common"), directory.join("common")),
            "rename" => os::rename(directory.join("roots"), directory.join("renamed")),
            "remove-alices" => os::unlink(directory.join("alices")),
            "remove-bobs" => os::unlink(directory.join("bobs")),
            "remove-roots" => os::unlink(directory.join("renamed")),
            "rmdir" => os::rmdir(directory.join("dir")),
            _ => unreachable!(),
        };
        outcome.map_err(errno::status)
    }
}

fn mode_of(name: &str) -> u32 {
    u32::from_str_radix(&name[1..], 8).unwrap()
}

/// The tree of the store.
struct ServedTree<'a> {
    lab: &'a mut Lab,
    handles: BTreeMap<String, FileHandle>,
}

impl ServedTree<'_> {
    fn may(&mut self, file: &FileHandle, right: Access) -> Result<(), Status> {
        let granted = self.lab.files.access(file, right).map_err(|failed| failed.status)?.0;
        if granted == right { Ok(()) } else { Err(Status::Acces) }
    }

    fn set(&mut self, file: &FileHandle, set: NewAttributes) -> Result<(), Status> {
        self.lab.files.set_attributes(file, &set, None).map(drop).map_err(|failed| failed.status)
    }
}

impl Doer for ServedTree<'_> {
    fn on_file(&mut self, operation: &str, name: &str) -> Result<(), Status> {
        let (file, none) = (self.handles[name], NewAttributes::default());
        let at = NewTime::Client(FileTime { seconds: 1_000, nanos: 0 });
        match operation {
            "may-read" => self.may(&file, Access::READ),
            "may-write" => self.may(&file, Access::MODIFY),
            "may-execute" => self.may(&file, Access::EXECUTE),
            "read" | "read-again" => self.lab.content(&file).map(drop),
            "write" => self.lab.write(&file, 0, b"x").map(drop),
            "truncate" => self.set(&file, NewAttributes { size: Some(1), ..none }),
            "touch" => self.set(
                &file,
                NewAttributes { atime: NewTime::Server, mtime: NewTime::Server, ..none },
            ),
            "set-times" => self.set(&file, NewAttributes { atime: at, mtime: at, ..none }),
            "chmod" => self.set(&file, NewAttributes { mode: Some(mode_of(name)), ..none }),
            "chmod-set-group" => {
                self.set(&file, NewAttributes { mode: Some(mode_of(name) | 0o2000), ..none })
            }
            "chgrp" => self.set(&file, NewAttributes { gid: Some(STAFF), ..none }),
            "chown" => self.set(&file, NewAttributes { uid: Some(BOB), ..none }),
            "link" => {
                let links = self.handles["links"];
                self.lab
                    .files
                    .link(&file, &links, name.as_bytes())
                    .map(drop)
                    .map_err(|failed| failed.status)
            }
            _ => unreachable!(),
        }
    }

    fn on_directory(&mut self, operation: &str, name: &str) -> Result<(), Status> {
        let (dir, common) = (self.handles[name], self.handles["common"]);
        let files = &mut self.lab.files;
        let set = |mode| NewAttributes { mode: Some(mode), ..NewAttributes::default() };
        match operation {
            "may-list" => self.may(&dir, Access::READ),
            "may-search" => self.may(&dir, Access::LOOKUP),
            "may-change" => self.may(&dir, Access::MODIFY | Access::EXTEND | Access::DELETE),
            "lookup" => files.lookup(&dir, b"alices").map(drop).map_err(|failed| failed.status),
            "above" => files.lookup(&dir, b"..").map(drop).map_err(|failed| failed.status),
            "list" => files
                .readdir(&dir, crate::ListingStart::default(), &mut |_| true)
                .map(drop)
                .map_err(|failed| failed.status),
            "create" => files
                .create(&dir, b"new", &guarded(0o640))
                .map(drop)
                .map_err(|failed| failed.status),
            "create-set-group" => files
                .create(&dir, b"group", &guarded(0o2755))
                .map(drop)
                .map_err(|failed| failed.status),
            "mkdir" => {
                files.mkdir(&dir, b"dir", &set(0o750)).map(drop).map_err(|failed| failed.status)
            }
            "symlink" => files
                .symlink(&dir, b"link", b"target", &NewAttributes::default())
                .map(drop)
                .map_err(|failed| failed.status),
            "fifo" => files
                .mknod(&dir, b"fifo", FileKind::Fifo.into(), &set(0o640))
                .map(drop)
                .map_err(|failed| failed.status),
            "link-into" => {
                files.link(&common, &dir, b"common").map(drop).map_err(|failed| failed.status)
            }
            "rename" => files
                .rename(NameIn::new(&dir, b"roots"), NameIn::new(&dir, b"renamed"))
                .map(drop)
                .map_err(|failed| failed.status),
            "remove-alices" => {
                files.remove(&dir, b"alices").map(drop).map_err(|failed| failed.status)
            }
            "remove-bobs" => files.remove(&dir, b"bobs").map(drop).map_err(|failed| failed.status),
            "remove-roots" => {
                files.remove(&dir, b"renamed").map(drop).map_err(|failed| failed.status)
            }
            "rmdir" => files.rmdir(&dir, b"dir").map(drop).map_err(|failed| failed.status),
            _ => unreachable!(),
        }
    }
}

/// Returns the outcomes for a process of the user; `None` if no such process can be started.
fn locally(program: &Path, tree: &Path, (uid, gid, groups): Identity) -> Option<Outcomes> {
    let groups: Vec<_> = groups.iter().map(u32::to_string).collect();
    let groups = if groups.is_empty() {
        "--clear-groups".into()
    } else {
        format!("--groups={}", groups.join(","))
    };
    let report = tree.with_extension("report");
    fs::write(&report, b"").unwrap();
    chown(&report, Some(uid), Some(gid)).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command.args([format!("--reuid={uid}"), format!("--regid={gid}"), groups]);
    // Without the rights of this process itself.
    command.args(["--ambient-caps=-all", "--inh-caps=-all"]).arg(program);
    command.args(["files::tests::privileged::table::as_the_user", "--exact", "--include-ignored"]);
    let output = command.env("STAG_TEST_TREE", tree).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let report = fs::read_to_string(report).unwrap();
    let statuses: BTreeMap<_, _> =
        STATUSES.iter().map(|status| (format!("{status:?}"), *status)).collect();
    Some(
        report
            .lines()
            .map(|line| {
                let (name, status) = line.rsplit_once(' ').unwrap();
                (name.to_owned(), statuses[status])
            })
            .collect(),
    )
}

const STATUSES: [Status; 7] = [
    Status::Ok,
    Status::Perm,
    Status::Acces,
    Status::NoEnt,
    Status::Exist,
    Status::NotEmpty,
    Status::Io,
];

/// Runs as the user.
#[test]
#[ignore = "started by every_operation_ends_as_it_does_locally"]
fn as_the_user() {
    let Ok(tree) = std::env::var("STAG_TEST_TREE") else { return };
    let tree = Path::new(&tree);
    rustix::process::umask(Mode::empty());
    let outcomes = all(&mut Local(tree));
    let lines: String =
        outcomes.iter().map(|(name, status)| format!("{name} {status:?}\n")).collect();
    fs::write(tree.with_extension("report"), lines).unwrap();
}

/// Every object of a tree: kind and mode, owner, group, names, bytes.
fn survey(tree: &Path) -> BTreeMap<PathBuf, (u32, u32, u32, u64, u64)> {
    let mut found = BTreeMap::new();
    let mut directories = vec![tree.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            if about.is_dir() {
                directories.push(path.clone());
            }
            let size = if about.is_dir() { 0 } else { about.size() };
            let name = path.strip_prefix(tree).unwrap().to_owned();
            found.insert(name, (about.mode(), about.uid(), about.gid(), about.nlink(), size));
        }
    }
    found
}

/// Returns the expected status over NFS, which grants more than a file's mode: to its owner, who
/// had the right when the file was opened, and to users who may execute it.
fn expected(name: &str, local: &Outcomes, uid: u32) -> Status {
    let (operation, object) = name.split_once(' ').unwrap();
    let is_content = matches!(operation, "read" | "read-again" | "write" | "truncate");
    // By then Alice may have given the file away.
    let is_owner = uid == ALICE && is_content;
    let may_execute = || {
        matches!(operation, "read" | "read-again")
            && local[&format!("may-execute {object}")] == Status::Ok
    };
    match local[name] {
        Status::Acces if is_owner || may_execute() => Status::Ok,
        status => status,
    }
}

#[test]
fn every_operation_ends_as_it_does_locally() {
    let Some(lab) = lab(|config| config.callers.squash = Squash::None) else { return };
    let program = lab.home.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut lab = lab;
    for (number, identity) in IDENTITIES.into_iter().enumerate() {
        let name = format!("tree{number}");
        let (here, there) = (lab.home.path().join(&name), lab.path(&name));
        plant(&here);
        plant(&there);
        let Some(local) = locally(&program, &here, identity) else {
            eprintln!("skipped: no setpriv");
            return;
        };
        let handles = lab.by(user(0), |lab| {
            let tree = lab.find(&name);
            let files = file_modes().map(|mode| format!("f{mode:o}"));
            let directories = directory_modes().map(|mode| format!("d{mode:o}"));
            let others = ["links", "common"].map(str::to_owned);
            let names = files.chain(directories).chain(others);
            let found = |name: String| {
                let handle = lab.files.lookup(&tree, name.as_bytes()).unwrap().handle;
                (name, handle)
            };
            names.map(found).collect()
        });
        let (uid, gid, groups) = identity;
        let served = lab.by(member(uid, gid, groups), |lab| all(&mut ServedTree { lab, handles }));
        let wrong: Vec<_> = served
            .iter()
            .filter(|(name, status)| **status != expected(name, &local, uid))
            .map(|(name, status)| format!("{name}: {status:?}, locally {:?}", local[name]))
            .collect();
        assert!(
            wrong.is_empty(),
            "{identity:?}: {} differ: {:#?}",
            wrong.len(),
            &wrong[..wrong.len().min(40)]
        );
        assert_eq!(served.len(), 14 * 512 + 17 * (512 + SPECIAL.len()));
        assert_eq!(served.len(), local.len());
        let (a, b) = (survey(&here), survey(&there));
        for (path, about) in &a {
            assert_eq!(b.get(path), Some(about), "{identity:?}: {}", path.display());
        }
        assert_eq!(a.len(), b.len());
        for status in [Status::Ok, Status::Acces, Status::Perm] {
            let is_root = uid == 0;
            let seen = served.values().any(|found| *found == status);
            assert!(seen || is_root, "{status:?} is never seen: the table shows nothing");
        }
    }
}
