//! Exports: directories under a name (`/NAME` in MOUNT), each with an id that every file handle
//! carries.
//!
//! An id is assigned once per name and directory (inode and birth time of its root) and stored in
//! the file `exports` of the state directory. It is the same after a restart, whatever the file
//! system's device number, and never reused for another export. A name that gets another directory
//! gets another id, so the handles into the first are stale.

use std::{
    collections::HashSet,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Statx, StatxAttributes, StatxFlags, makedev, openat, statx,
};
use stag_protocol::nfs::{mount::Path as MountPath, v3::FileHandle};

use super::{
    blocking_probe::{START_LIMIT, within},
    cluster::Cluster,
    file_system_limits::FileSystemLimits,
    handle::{Birth, FileId, Identity},
    register::{Register, RegisterLine},
    state_dir::{StateDirectory, cannot},
};
use crate::{ExportRoot, start_error::StartError};

/// Id of an export; carried by every file handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExportId(pub u32);

/// An inode of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostInode {
    /// The device, as `makedev` packs it.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
}

impl HostInode {
    /// Returns the device and the inode of an open file.
    pub(crate) fn of(fd: impl AsFd) -> rustix::io::Result<Self> {
        stat(fd).map(|stat| Self::in_stat(&stat))
    }

    /// Returns the device and the inode of the file with these attributes.
    pub(crate) fn in_stat(stat: &Statx) -> Self {
        Self { device: makedev(stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino }
    }
}

/// Fields that the gateway requests about a file.
pub(crate) const STAT_MASK: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

/// The attributes of an open file, opened by path only or not.
pub(crate) fn stat(fd: impl AsFd) -> rustix::io::Result<Statx> {
    statx(fd, c"", AtFlags::EMPTY_PATH, STAT_MASK)
}

/// A directory to export.
#[derive(Clone, Debug)]
pub struct ExportConfig {
    /// The name clients mount it by, without the leading slash.
    pub name: String,
    /// The directory.
    pub path: PathBuf,
    /// True if every change is refused with NFS3ERR_ROFS.
    pub read_only: bool,
    /// True if the directory is a mount point, and is refused while nothing is mounted there.
    pub is_mountpoint: bool,
}

/// An exported directory.
#[derive(Debug)]
pub struct Export {
    id: ExportId,
    config: ExportConfig,
    root: OwnedFd,
    identity: Identity,
    place: HostInode,
    mount: u64,
    fsid: u64,
    limits: FileSystemLimits,
}

impl Export {
    /// Its id: the same after a restart.
    pub fn id(&self) -> ExportId {
        self.id
    }

    /// Its `fsid` (RFC 1813 §2.6): the same after a restart, and at all gateways of a cluster.
    pub(crate) fn fsid(&self) -> u64 {
        self.fsid
    }

    /// Its name, without a slash.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// All that a pseudo file system shows of it.
    pub(crate) fn root_with(&self, root: Option<FileHandle>) -> ExportRoot {
        let (name, id, is_read_only) = (self.config.name.clone(), self.id.0, self.is_read_only());
        ExportRoot { name, id, fsid: self.fsid, is_read_only, root }
    }

    /// Returns true if changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.config.read_only
    }

    /// The device and the inode of its root.
    pub(crate) fn place(&self) -> HostInode {
        self.place
    }

    /// The exported directory, opened by path only.
    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// True if both are the same directory under the same name and path, with the same access.
    fn is_same_as(&self, other: &Self) -> bool {
        let key = |export: &Self| (export.id, export.place, export.mount, export.is_read_only());
        let are_alike = self.config.is_mountpoint == other.config.is_mountpoint;
        are_alike && key(self) == key(other) && self.path() == other.path()
    }

    /// The limits of the export's file system.
    pub(crate) fn limits(&self) -> FileSystemLimits {
        self.limits
    }

    /// The path under which the directory was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.config.path
    }

    /// The exported directory's own identity.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns true if a file is on the export's file system and mount. Others are refused: their
    /// inode numbers mean other files.
    pub(crate) fn holds(&self, stat: &Statx) -> bool {
        HostInode::in_stat(stat).device == self.place.device && mount_of(stat) == self.mount
    }
}

/// Returns the id of the mount that a file was reached through; zero on kernels before 5.8, where
/// `openat2` alone guards mount points.
fn mount_of(stat: &Statx) -> u64 {
    if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 { 0 } else { stat.stx_mnt_id }
}

/// Every export, in the order of the configuration.
#[derive(Debug)]
pub struct Exports {
    present: Vec<Arc<Export>>,
    /// Exports that are refused until something is mounted at their paths.
    absent: Vec<ExportConfig>,
}

impl Exports {
    /// Opens the directories and finds or assigns their ids.
    ///
    /// # Errors
    ///
    /// A sentence when a name is invalid or used twice, a directory cannot be opened, or the state
    /// directory is inside one.
    pub fn open(
        configs: &[ExportConfig],
        state: &StateDirectory,
        cluster: Option<&Cluster>,
    ) -> Result<Self, StartError> {
        Self { present: Vec::new(), absent: Vec::new() }.replaced(configs, state, cluster)
    }

    /// The exports to serve instead of these. An unchanged one is the same object as before.
    ///
    /// # Errors
    /// As in [`open`](Self::open).
    pub(crate) fn replaced(
        &self,
        configs: &[ExportConfig],
        state: &StateDirectory,
        cluster: Option<&Cluster>,
    ) -> Result<Self, StartError> {
        let mut names = HashSet::new();
        let mut register = Register::read(state, cluster)?;
        let mut present = Vec::with_capacity(configs.len());
        let mut absent = Vec::new();
        for config in configs {
            path_of_name(&config.name)?;
            if !names.insert(config.name.as_str()) {
                return Err(StartError(format!("two exports have the name {}", config.name)));
            }
            match open(config, state, &mut register)? {
                Some(opened) => {
                    let same = self.present.iter().find(|known| known.is_same_as(&opened));
                    present.push(same.map_or_else(|| Arc::new(opened), Arc::clone));
                }
                None => absent.push(config.clone()),
            }
        }
        register.save(state)?;
        Ok(Self { present, absent })
    }

    /// The exports after the directory of one was opened again by its path; `None` when it cannot
    /// be served. An export that requires a mount, and has none at its path, is absent from then
    /// on.
    pub(crate) fn reopened(
        &self,
        config: &ExportConfig,
        opened: OpenedRoot,
        state: &StateDirectory,
        cluster: Option<&Cluster>,
    ) -> Option<Self> {
        let mut register = Register::read(state, cluster).ok()?;
        let opened = adopt(config, opened, state, &mut register).ok()?;
        // An id that is not stored could be reused for another export after a restart.
        register.save(state).ok()?;
        let Some(export) = opened else { return Some(self.ended(config)) };
        let mut exports = Self { present: self.present.clone(), absent: self.absent.clone() };
        exports.absent.retain(|other| other.name != config.name);
        match exports.present.iter_mut().find(|known| known.name() == config.name) {
            Some(known) => *known = Arc::new(export),
            None => exports.present.push(Arc::new(export)),
        }
        Some(exports)
    }

    /// The exports without one, which is refused until its path is checked again.
    pub(crate) fn ended(&self, config: &ExportConfig) -> Self {
        let mut present = self.present.clone();
        present.retain(|export| export.name() != config.name);
        let mut absent = self.absent.clone();
        absent.retain(|other| other.name != config.name);
        absent.push(config.clone());
        Self { present, absent }
    }

    /// Exports that are refused until something is mounted at their paths.
    pub(crate) fn absent(&self) -> &[ExportConfig] {
        &self.absent
    }

    /// Names of all exports, also of absent ones.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let absent = self.absent.iter().map(|config| config.name.as_str());
        self.iter().map(Export::name).chain(absent)
    }

    /// The export, present or absent, that a path of MOUNT leads to.
    pub(crate) fn config_by_path(&self, path: &[u8]) -> Option<&ExportConfig> {
        let present = self.present.iter().map(|export| &export.config);
        let found = present.chain(&self.absent).filter(|config| rest(config, path).is_some());
        found.max_by_key(|config| config.name.len())
    }

    /// The export with this id.
    pub fn by_id(&self, id: ExportId) -> Option<&Export> {
        self.iter().find(|export| export.id == id)
    }

    /// The export with this name.
    pub fn by_name(&self, name: &[u8]) -> Option<&Export> {
        self.iter().find(|export| export.name().as_bytes() == name)
    }

    /// The export that a path of MOUNT leads to, and the rest of the path. If the path begins with
    /// the names of several, the longest one counts.
    pub fn by_path<'p>(&self, path: &'p [u8]) -> Option<(&Export, Components<'p>)> {
        let found = self.iter().filter_map(|export| Some((export, rest(&export.config, path)?)));
        found.max_by_key(|(export, _)| export.name().len())
    }

    /// All exports, shared.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.present.iter()
    }

    /// All exports that are served.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.present.iter().map(|export| &**export)
    }
}

/// The rest of a path after an export's name, if it begins with that.
fn rest<'p>(config: &ExportConfig, path: &'p [u8]) -> Option<Components<'p>> {
    let mut rest = components(path);
    config.name.split('/').all(|name| rest.next() == Some(name.as_bytes())).then_some(rest)
}

/// Components of a path.
pub type Components<'p> =
    core::iter::Filter<core::slice::Split<'p, u8, fn(&u8) -> bool>, fn(&&'p [u8]) -> bool>;

fn components(path: &[u8]) -> Components<'_> {
    let is_slash: fn(&u8) -> bool = |octet| *octet == b'/';
    let is_name: fn(&&[u8]) -> bool = |name| !name.is_empty();
    path.split(is_slash).filter(is_name)
}

pub(crate) fn check_name(name: &str) -> Result<(), StartError> {
    if is_component(name) {
        return Ok(());
    }
    Err(StartError(format!(
        "{name:?} cannot name an export: 1 to 255 octets, no slash, no control character"
    )))
}

fn is_component(name: &str) -> bool {
    let unfit = name.is_empty() || name.len() > 255 || matches!(name, "." | "..");
    !unfit && !name.contains('/') && !name.contains(char::is_control)
}

/// Checks the name of an exported directory, such as `projects/alpha`, by whose path it is mounted;
/// returns the number of its components.
///
/// # Errors
/// A sentence when no client could mount it.
pub fn path_of_name(name: &str) -> Result<usize, StartError> {
    if name.len() < MountPath::MAX && name.split('/').all(is_component) {
        return Ok(name.split('/').count());
    }
    Err(StartError(format!(
        "{name:?} cannot name an export: components of 1 to 255 octets with a slash between them, \
         no control character, and {} octets at most",
        MountPath::MAX - 1
    )))
}

/// An opened directory.
#[derive(Debug)]
pub(crate) struct OpenedRoot {
    root: OwnedFd,
    found: Statx,
    limits: FileSystemLimits,
}

/// Opens a directory and queries its file system's limits, which may block.
pub(crate) fn open_root(path: &Path, is_read_only: bool) -> Result<OpenedRoot, StartError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root =
        openat(CWD, path, flags, Mode::empty()).map_err(cannot("open the directory", path))?;
    let found = stat(&root).map_err(cannot("look at the directory", path))?;
    let limits = FileSystemLimits::of(&root, &found, is_read_only);
    Ok(OpenedRoot { root, found, limits })
}

/// Returns true if something is mounted at an open directory. A kernel before 5.8 does not report
/// that: then the parent directory has to be on another file system.
fn is_mount_root(root: impl AsFd, found: &Statx) -> bool {
    if found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    }
    let above = statx(root, c"..", AtFlags::empty(), STAT_MASK);
    above.is_ok_and(|above| HostInode::in_stat(&above).device != HostInode::in_stat(found).device)
}

/// Opens an export's directory; none if a required mount is missing.
fn open(
    config: &ExportConfig,
    state: &StateDirectory,
    register: &mut Register<'_>,
) -> Result<Option<Export>, StartError> {
    let (path, is_read_only) = (config.path.clone(), config.read_only);
    let opened = within(START_LIMIT, &config.path, move || open_root(&path, is_read_only))??;
    adopt(config, opened, state, register)
}

/// Makes an export of an open directory; none as in [`open`].
fn adopt(
    config: &ExportConfig,
    opened: OpenedRoot,
    state: &StateDirectory,
    register: &mut Register<'_>,
) -> Result<Option<Export>, StartError> {
    let path = &config.path;
    let OpenedRoot { root, found, limits } = opened;
    if config.is_mountpoint && !is_mount_root(&root, &found) {
        return Ok(None);
    }
    let place = HostInode::in_stat(&found);
    if state.lies_under(place)? {
        return Err(StartError(format!(
            "the state directory {} lies under the exported directory {}: whoever mounts it could \
             read the key",
            state.path().display(),
            path.display()
        )));
    }
    let line = RegisterLine {
        id: ExportId(0),
        inode: found.stx_ino,
        birth: Birth::of(&found),
        name: config.name.clone(),
    };
    let id = register.id_of(line)?;
    let handles = register.cluster.map_or_else(|| state.handles(), Cluster::handles);
    Ok(Some(Export {
        fsid: handles.fsid(id),
        id,
        config: config.clone(),
        limits,
        root,
        identity: Identity {
            file: FileId { export: id, inode: found.stx_ino },
            birth: Birth::of(&found),
        },
        place,
        mount: mount_of(&found),
    }))
}

/// Finds or assigns the ids of exports that are not directories of this host: each has a name, and
/// a text for what it refers to. A name that comes to refer to something else gets another id.
///
/// # Errors
/// As in [`Exports::open`].
pub(crate) fn ids_by_name(
    exports: &[(&str, String)],
    state: &StateDirectory,
    cluster: Option<&Cluster>,
) -> Result<Vec<ExportId>, StartError> {
    let mut register = Register::read(state, cluster)?;
    let id = |(name, place): &(&str, String)| {
        // No inode of a host is 0, and no name has a slash.
        let line = RegisterLine {
            id: ExportId(0),
            inode: 0,
            birth: Birth::default(),
            name: if cluster.is_some() { (*name).to_owned() } else { format!("{name}/{place}") },
        };
        register.id_of(line)
    };
    let ids = exports.iter().map(id).collect::<Result<_, _>>()?;
    register.save(state)?;
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, path: PathBuf) -> ExportConfig {
        ExportConfig { name: name.to_owned(), path, read_only: false, is_mountpoint: false }
    }

    fn ids(state: &StateDirectory, configs: &[ExportConfig]) -> Vec<u32> {
        Exports::open(configs, state, None).unwrap().iter().map(|export| export.id().0).collect()
    }

    #[test]
    fn ids_are_distinct_and_the_same_after_a_restart() {
        let home = tempfile::tempdir().unwrap();
        let (a, b) = (home.path().join("a"), home.path().join("b"));
        std::fs::create_dir(&a).unwrap();
        std::fs::create_dir(&b).unwrap();
        let open = || StateDirectory::open(&home.path().join("state")).unwrap();
        let first = ids(
            &open(),
            &[config("one", a.clone()), config("two", a.clone()), config("three", b.clone())],
        );
        assert_eq!(first, [1, 2, 3]);
        assert_eq!(ids(&open(), &[config("three", b.clone()), config("one", a)]), [3, 1]);
        assert_eq!(ids(&open(), &[config("one", b)]), [4], "another directory under the same name");
    }

    #[test]
    fn a_name_that_cannot_be_mounted_stops_the_start() {
        let home = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&home.path().join("state")).unwrap();
        for name in ["", ".", "..", "a//b", "/a", "a/", "a\nb", "a\0b", &"x".repeat(256)] {
            std::fs::create_dir_all(home.path().join("a")).unwrap();
            assert!(
                Exports::open(&[config(name, home.path().join("a"))], &state, None).is_err(),
                "{name:?}"
            );
        }
        let twice = [config("a", home.path().join("a")), config("a", home.path().join("a"))];
        assert!(
            Exports::open(&twice, &state, None).unwrap_err().to_string().contains("two exports")
        );
    }

    #[test]
    fn a_state_directory_under_an_export_stops_the_start() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("a/b")).unwrap();
        for (exported, state) in [("a", "a/b/state"), ("a", "a/state"), ("a/b", "a/b")] {
            let state = StateDirectory::open(&home.path().join(state)).unwrap();
            let error = Exports::open(&[config("x", home.path().join(exported))], &state, None)
                .unwrap_err();
            assert!(error.to_string().contains("lies under the exported directory"), "{error}");
        }
        let state = StateDirectory::open(&home.path().join("a/other")).unwrap();
        Exports::open(&[config("x", home.path().join("a/b"))], &state, None).unwrap();
    }

    #[test]
    fn a_damaged_list_of_exports_stops_the_start() {
        let home = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(home.path()).unwrap();
        std::fs::write(home.path().join("exports"), "1 2 3\n").unwrap();
        assert!(Exports::open(&[], &state, None).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn a_missing_directory_or_a_file_stops_the_start() {
        let home = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&home.path().join("state")).unwrap();
        std::fs::write(home.path().join("file"), b"").unwrap();
        for path in ["missing", "file"] {
            let error =
                Exports::open(&[config("x", home.path().join(path))], &state, None).unwrap_err();
            assert!(error.to_string().starts_with("cannot open the directory"), "{error}");
        }
    }
}
