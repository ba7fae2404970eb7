//! NFS-Ganesha with files in memory, in a directory or on CephFS, over TCP, called by `stag bench`.
//!
//! It does not start unless it can register with a port mapper. It is therefore started where it
//! finds one of ours ([`Mapper`]) in the place of the host's: in a mount namespace of its own,
//! whose `/run` and `/var/lib/nfs` are empty. That takes root, or namespaces that users may make.

use super::{free_port, mapper::Mapper};
use crate::{
    ceph::SharedCluster,
    contender::{Absence, Contender, Reading},
    files_place::{FilesDirectory, FilesPlace},
    site::{MeasuringSite, RunningServer, is_root, shown, unique},
    stag::StagBench,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A file's octets that the store in memory keeps, at most: octets past them read as something
/// else.
pub const FILE_LEN_MAX: u32 = 0x20_0000;
/// Line that the server logs when it can be called.
const READY: &str = "NFS SERVER INITIALIZED";
/// The export.
const EXPORT: &str = "/export";

/// Place of the files that are served.
#[derive(Clone, Debug)]
enum GaneshaStore {
    Memory,
    Vfs(FilesPlace),
    Ceph(SharedCluster, ObjectCache),
}

/// The object cache of libcephfs under NFS-Ganesha: octets that were read lately stay in the
/// server. Later versions of NFS-Ganesha leave it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectCache {
    /// On for this version, as it comes.
    AsItComes,
    /// Every READ asks a data daemon.
    Off,
}

/// NFS-Ganesha, and how it is called.
#[derive(Debug)]
pub struct Ganesha {
    bench: StagBench,
    store: GaneshaStore,
    // In this order: it takes its registrations back when it ends.
    server: Option<(RunningServer, String)>,
    mapper: Option<Mapper>,
    commands: Vec<String>,
}

impl Ganesha {
    /// Called by `stag bench` with these options. Files may have [`FILE_LEN_MAX`] octets.
    pub fn new(options: &str) -> Self {
        Self::of(GaneshaStore::Memory, StagBench::new(options))
    }

    /// The same with the files of a fresh directory.
    pub fn on_files(place: FilesPlace, options: &str) -> Self {
        Self::of(GaneshaStore::Vfs(place), StagBench::new(options))
    }

    /// The same with the root of a cluster's file system, through libcephfs.
    pub fn on_ceph(cluster: &SharedCluster, cache: ObjectCache, bench: StagBench) -> Self {
        Self::of(GaneshaStore::Ceph(cluster.clone(), cache), bench)
    }

    const fn of(store: GaneshaStore, bench: StagBench) -> Self {
        Self { bench, store, server: None, mapper: None, commands: Vec::new() }
    }
}

impl Contender for Ganesha {
    fn name(&self) -> String {
        let store = match self.store {
            GaneshaStore::Memory => "MEM",
            GaneshaStore::Vfs(FilesPlace::Tmpfs) => "VFS on tmpfs",
            GaneshaStore::Vfs(FilesPlace::Disk) => "VFS on a disk",
            GaneshaStore::Ceph(_, ObjectCache::AsItComes) => "CEPH",
            GaneshaStore::Ceph(_, ObjectCache::Off) => "CEPH, no object cache",
        };
        format!("NFS-Ganesha (TCP, {store}), same client")
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        let program = site.find("ganesha.nfsd", "nfs-ganesha")?;
        let unshare = site.find("unshare", "util-linux")?;
        let (module, package) = match self.store {
            GaneshaStore::Memory => ("libfsalmem.so", "nfs-ganesha-mem"),
            GaneshaStore::Vfs(_) => ("libfsalvfs.so", "nfs-ganesha-vfs"),
            GaneshaStore::Ceph(..) => ("libfsalceph.so", "nfs-ganesha-ceph"),
        };
        if !has_module(Path::new("/usr"), module) {
            let (program, package) = (module.to_owned(), package.to_owned());
            return Err(Absence::Missing { program, package });
        }
        if matches!(self.store, GaneshaStore::Vfs(_)) && !is_root() {
            return Err(Absence::failed(
                "FSAL_VFS opens files by their handles, which takes root (CAP_DAC_READ_SEARCH)",
            ));
        }
        let home = site.home().join(format!("ganesha-{}", unique()));
        fs::create_dir(&home).map_err(Absence::failed)?;
        let mut remarks = Vec::new();
        let store = match &self.store {
            GaneshaStore::Memory => GaneshaBlocks::memory(),
            GaneshaStore::Vfs(place) => {
                let directory = place.directory(site)?;
                remarks.push(directory.remark());
                GaneshaBlocks::vfs(&directory)
            }
            GaneshaStore::Ceph(cluster, ObjectCache::AsItComes) => {
                GaneshaBlocks::ceph(&cluster.configuration(site)?)
            }
            GaneshaStore::Ceph(cluster, ObjectCache::Off) => {
                let text = fs::read_to_string(cluster.configuration(site)?);
                let text = text.map_err(Absence::failed)? + "\n[client]\nclient_oc = false\n";
                let changed = home.join("ceph.conf");
                fs::write(&changed, text).map_err(Absence::failed)?;
                GaneshaBlocks::ceph(&changed)
            }
        };
        let (nfs, mount) =
            (free_port().map_err(Absence::failed)?, free_port().map_err(Absence::failed)?);
        let configuration = home.join("ganesha.conf");
        let ports = GaneshaPorts { nfs, mount };
        let text = configured(ports, self.bench.is_nfs4(), &store);
        fs::write(&configuration, &text).map_err(Absence::failed)?;
        let socket = home.join("rpcbind.sock");
        self.mapper = Some(Mapper::listen(&socket).map_err(Absence::failed)?);

        let mut serving = site.on_core(site.server, unshare);
        serving.args(namespaces(is_root())).args(["sh", "-c"]);
        serving.arg(script(&program, &configuration, &socket));
        let shown_configuration = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.commands = remarks;
        self.commands.extend([
            format!("# {}: {shown_configuration}", configuration.display()),
            format!("# {}: answers true to whatever is registered", socket.display()),
            shown(&serving),
        ]);
        let url = format!("tcp://127.0.0.1:{nfs}{EXPORT}?mountport={mount}");
        self.commands.push(shown(&self.bench.command(site, &url)));
        self.server = Some((start(site, serving)?, url));
        Ok(())
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let (running, url) = self.server.as_ref().ok_or("it was not started")?;
        self.bench.run_on(site, url, running)
    }
}

/// Starts it, and waits until it can be called.
fn start(site: &MeasuringSite, command: Command) -> Result<RunningServer, Absence> {
    let mut last = String::new();
    let started = site.serve(command, |line| {
        if let Some(complaint) = complaint(line) {
            complaint.clone_into(&mut last);
        }
        line.contains(READY).then_some(())
    });
    match started {
        Ok((running, ())) => Ok(running),
        Err(Absence::Failed(why)) if last.is_empty() => Err(Absence::failed(format!(
            "{why} (it takes root, or namespaces that users may make)"
        ))),
        Err(Absence::Failed(why)) => Err(Absence::failed(format!("{why}; {last}"))),
        Err(absence) => Err(absence),
    }
}

/// Returns the complaint in a line of the server's log, without time and place. The absence of
/// D-Bus and Kerberos is no complaint.
fn complaint(line: &str) -> Option<&str> {
    let is_grave = [":MAJ :", ":CRIT :", ":FATAL :"].iter().any(|level| line.contains(level));
    let is_ours = !line.contains(":DBUS :")
        && !line.contains("krb5")
        && !line.contains("credentials for principal");
    line.rsplit_once(" :").map(|(_, text)| text).filter(|_| is_grave && is_ours)
}

/// The parts of the configuration that depend on the store.
struct GaneshaBlocks {
    /// Blocks of their own.
    store: String,
    /// Lines of the export's block.
    export: String,
}

impl GaneshaBlocks {
    fn memory() -> Self {
        Self {
            store: format!("MEM {{ Inode_Size = {FILE_LEN_MAX:#x}; }}"),
            export: format!("Path = {EXPORT};\n    FSAL {{ Name = MEM; }}"),
        }
    }

    /// The files of a directory.
    fn vfs(directory: &FilesDirectory) -> Self {
        Self {
            store: String::new(),
            export: format!(
                "Path = \"{}\";\n    FSAL {{ Name = VFS; }}",
                directory.files.display()
            ),
        }
    }

    /// The root of the file system, as the cluster's administrator.
    fn ceph(configuration: &Path) -> Self {
        Self {
            store: format!("CEPH {{ Ceph_Conf = {}; }}", configuration.display()),
            export: "Path = /;\n    FSAL { Name = CEPH; User_Id = admin; Filesystem = fs; }"
                .to_owned(),
        }
    }
}

/// Ports of the loopback address.
#[derive(Clone, Copy, Debug)]
struct GaneshaPorts {
    nfs: u16,
    mount: u16,
}

/// NFS version 3, and 4 if it is called, over TCP, for everybody as root, at ports of the loopback
/// address, and nothing that needs another daemon. Whatever is not named here is as it comes.
fn configured(ports: GaneshaPorts, is_nfs4: bool, blocks: &GaneshaBlocks) -> String {
    let GaneshaPorts { nfs, mount } = ports;
    let GaneshaBlocks { store, export } = blocks;
    let protocols = if is_nfs4 { "3, 4" } else { "3" };
    format!(
        "NFS_CORE_PARAM {{
    Protocols = {protocols};
    Bind_addr = 127.0.0.1;
    NFS_Port = {nfs};
    MNT_Port = {mount};
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Mount_Path_Pseudo = true;
}}
NFSv4 {{ Graceless = true; }}
{store}
EXPORT {{
    Export_Id = 1;
    Pseudo = {EXPORT};
    Protocols = {protocols};
    Transports = TCP;
    Access_Type = RW;
    SecType = sys, none;
    Squash = All;
    Anonymous_Uid = 0;
    Anonymous_Gid = 0;
    {export}
}}
"
    )
}

/// A mount namespace; for users, one in which they are root.
const fn namespaces(is_root: bool) -> &'static [&'static str] {
    if is_root { &["--mount"] } else { &["--user", "--map-root-user", "--mount"] }
}

/// Returns the script that runs in the namespace: empty directories, the port mapper where it is
/// looked for, and the server. If the measuring process is killed, so is the server: it would
/// otherwise go to the host's port mapper to take back its registrations.
fn script(program: &Path, configuration: &Path, socket: &Path) -> String {
    let (program, configuration, socket) =
        (program.display(), configuration.display(), socket.display());
    format!(
        "mount -t tmpfs none /run && mount -t tmpfs none /var/lib/nfs && ln -s {socket} \
         /run/rpcbind.sock && \
         exec setpriv --pdeathsig KILL {program} -F -N EVENT -L STDOUT -f {configuration} -p \
         {configuration}.pid"
    )
}

/// Returns true if a library directory below `root` has a store of NFS-Ganesha's.
fn has_module(root: &Path, module: &str) -> bool {
    let below = |path: PathBuf| {
        fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    let libraries: Vec<_> =
        ["lib", "lib64", "local/lib"].iter().map(|name| root.join(name)).collect();
    let inner = libraries.iter().cloned().flat_map(below);
    libraries.iter().cloned().chain(inner).any(|path| path.join("ganesha").join(module).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_ports_of_its_own_and_no_other_daemon() {
        let ports = GaneshaPorts { nfs: 32_049, mount: 32_048 };
        let text = configured(ports, false, &GaneshaBlocks::memory());
        for line in [
            "NFS_Port = 32049;",
            "MNT_Port = 32048;",
            "Bind_addr = 127.0.0.1;",
            "Enable_NLM = false;",
            "Enable_RQUOTA = false;",
            "Inode_Size = 0x200000;",
            "FSAL { Name = MEM; }",
            "Path = /export;",
            "Protocols = 3;",
        ] {
            assert!(text.contains(line), "{line}");
        }
        let ceph = GaneshaBlocks::ceph(Path::new("/c/ceph.conf"));
        let ceph = configured(ports, false, &ceph);
        for line in ["Ceph_Conf = /c/ceph.conf;", "Name = CEPH;", "Path = /;", "Pseudo = /export;"]
        {
            assert!(ceph.contains(line), "{line}");
        }
        let directory = FilesDirectory {
            files: PathBuf::from("/a/files"),
            state: PathBuf::from("/a/state"),
            file_system: "ext4".to_owned(),
        };
        let vfs = configured(ports, true, &GaneshaBlocks::vfs(&directory));
        for line in ["Name = VFS;", "Path = \"/a/files\";", "Protocols = 3, 4;"] {
            assert!(vfs.contains(line), "{line}");
        }
        for text in [text, ceph, vfs] {
            let count = |what| text.matches(what).count();
            assert_eq!(count('{'), count('}'));
            assert!(text.lines().all(|line| line.is_empty() || line.ends_with([';', '{', '}'])));
        }
    }

    #[test]
    fn users_get_a_namespace_in_which_they_are_root() {
        assert_eq!(namespaces(true), ["--mount"]);
        assert!(namespaces(false).contains(&"--user"));
    }

    #[test]
    fn a_complaint_is_told_without_when_and_where() {
        let line = |level, text| {
            format!(
                "20/11/2026 13:53:03 : epoch 6b0050bf : vm : nfs-ganesha-1[main] \
                 __Register_program :DISP :{level} :{text}"
            )
        };
        let maj = line("MAJ", "Cannot register NFS V3 on UDP");
        assert_eq!(complaint(&maj), Some("Cannot register NFS V3 on UDP"));
        assert_eq!(complaint(&line("EVENT", "something")), None);
        assert_eq!(complaint(&line("CRIT", "Cannot acquire credentials for principal nfs")), None);
        assert_eq!(complaint(""), None);
    }

    #[test]
    fn a_store_is_found_where_distributions_put_it() {
        for place in ["lib/ganesha", "lib64/ganesha", "lib/x86_64-linux-gnu/ganesha"] {
            let root = tempfile::tempdir().unwrap();
            assert!(!has_module(root.path(), "libfsalmem.so"));
            fs::create_dir_all(root.path().join(place)).unwrap();
            fs::write(root.path().join(place).join("libfsalmem.so"), b"").unwrap();
            assert!(has_module(root.path(), "libfsalmem.so"), "{place}");
            assert!(!has_module(root.path(), "libfsalceph.so"), "{place}");
        }
    }
}
