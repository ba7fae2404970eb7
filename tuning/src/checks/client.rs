//! Checks of a client: why `mount -o rdma` will fail on this host.

use crate::{
    Finding, HostCheck, Judged, Scene,
    check::{ALL, FixClass, Severity},
    scene::mib,
};

/// The number of CAP_SYS_ADMIN (linux/capability.h).
const SYS_ADMIN: u32 = 21;

/// The checks of this family.
pub(super) const CHECKS: &[HostCheck] = &[
    HostCheck {
        id: "CLI01",
        name: "RDMA device of the client",
        severity: Severity::Fail,
        class: FixClass::Operator,
        profiles: ALL,
        why: "The kernel's client needs an RDMA device. Any network device becomes one: siw \
              speaks iWARP, as 'stag serve --listen iwarp://' does; rxe speaks RoCE.",
        source: "/sys/class/infiniband, modules.dep of the kernel; rdma-link(8)",
        judge: device,
    },
    HostCheck {
        id: "CLI02",
        name: "kernel module rpcrdma",
        severity: Severity::Fail,
        class: FixClass::Operator,
        profiles: ALL,
        why: "Without it 'mount -o rdma' says 'Protocol not supported', or 'an incorrect mount \
              option was specified'.",
        source: "/sys/module/rpcrdma, modules.dep of the kernel; kernel nfs-rdma.rst",
        judge: module,
    },
    HostCheck {
        id: "CLI03",
        name: "mount helper of NFS",
        severity: Severity::Fail,
        class: FixClass::Operator,
        profiles: ALL,
        why: "Without the helper the kernel is given options that it does not parse itself, and \
              'mount' says 'bad option; you might need a /sbin/mount.<type> helper program'.",
        source: "/sbin/mount.nfs; mount(8)",
        judge: helper,
    },
    HostCheck {
        id: "CLI04",
        name: "right to mount",
        severity: Severity::Fail,
        class: FixClass::Nobody,
        profiles: ALL,
        why: "Mounting needs CAP_SYS_ADMIN, which containers do not have.",
        source: "CapEff in /proc/self/status; mount(2), capabilities(7)",
        judge: privilege,
    },
    HostCheck {
        id: "CLI05",
        name: "locked memory of programs",
        severity: Severity::Info,
        class: FixClass::Boot,
        profiles: ALL,
        why: "The kernel's client locks no memory of a process, and no limit keeps it from \
              mounting. Programs that use the device themselves ('stag call rdma://') are bound \
              by it.",
        source: "/proc/self/limits; getrlimit(2)",
        judge: program_memory,
    },
    HostCheck {
        id: "CLI06",
        name: "name of the NFS client",
        severity: Severity::Warn,
        class: FixClass::Boot,
        profiles: ALL,
        why: "By version 4 a client is known by its host name. Two hosts of one name, as cloned \
              ones, end each other's opens and locks, or the second one's mounts wait.",
        source: "nfs4_unique_id of module nfs, /proc/sys/kernel/hostname; kernel \
                 nfs/client-identifier.rst",
        judge: client_name,
    },
];

/// Host names that images come with.
const COMMON_NAMES: [&str; 10] = [
    "(none)",
    "alpine",
    "archlinux",
    "buildroot",
    "debian",
    "fedora",
    "linux",
    "localhost",
    "raspberrypi",
    "ubuntu",
];

/// State of a module of the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Module {
    Loaded,
    Loadable,
    Absent,
}

/// State of the module `name`, whose file is named with `_` or with `-`.
fn module_state(scene: &Scene, name: &str) -> Result<Module, Finding> {
    if scene.host.exists(&format!("/sys/module/{name}")) {
        return Ok(Module::Loaded);
    }
    let release = scene.host.text("/proc/sys/kernel/osrelease")?;
    let at = format!("/lib/modules/{release}");
    let list = |file: &str| scene.host.text(&format!("{at}/{file}")).unwrap_or_default();
    let is_it = |line: &str| {
        let file = line.split(':').next().unwrap_or_default().rsplit('/').next();
        let file = file.unwrap_or_default().split(".ko").next().unwrap_or_default();
        file.replace('-', "_") == name
    };
    if list("modules.builtin").lines().any(is_it) {
        return Ok(Module::Loaded);
    }
    match list("modules.dep").lines().any(is_it) {
        true => Ok(Module::Loadable),
        false => Ok(Module::Absent),
    }
}

fn device(scene: &Scene) -> Judged {
    let wanted = "1 or more";
    if let Ok(devices) = scene.rdma_devices() {
        return Ok(Finding::judge(true, devices.join(", "), wanted));
    }
    let fix = |from: &SoftDevice| match from {
        SoftDevice::Siw(command) => command.clone(),
        SoftDevice::Rxe(command) => format!("{command} (needs an rdma:// server)"),
        SoftDevice::Neither => {
            "a kernel with siw (CONFIG_RDMA_SIW); until then mount over TCP: -o \
                                proto=tcp,port=2049,vers=3,nolock,mountport=2049,mountproto=tcp"
                .to_owned()
        }
    };
    let found = soft_device(scene)?;
    let measured = match found {
        SoftDevice::Siw(_) => "none; siw (iWARP) can make one",
        SoftDevice::Rxe(_) => "none; no siw in this kernel, rxe (RoCE) can make one",
        SoftDevice::Neither => "none; neither siw nor rxe in this kernel",
    };
    Ok(Finding::judge(false, measured, wanted).fix(fix(&found)))
}

/// The device in software that this kernel can have, and the command that makes one.
pub(super) enum SoftDevice {
    Siw(String),
    Rxe(String),
    Neither,
}

/// Finds it, by the modules that the kernel has.
pub(super) fn soft_device(scene: &Scene) -> Result<SoftDevice, Finding> {
    let net = scene.net_devices().ok().and_then(|devices| devices.into_iter().next());
    let net = net.unwrap_or_else(|| "DEV".to_owned());
    let soft = |module: &str, kind: &str| {
        format!("modprobe {module} && rdma link add {kind}0 type {kind} netdev {net}")
    };
    let has = |name: &str| Ok::<_, Finding>(module_state(scene, name)? != Module::Absent);
    Ok(match (has("siw")?, has("rdma_rxe")?) {
        (true, _) => SoftDevice::Siw(soft("siw", "siw")),
        (false, true) => SoftDevice::Rxe(soft("rdma_rxe", "rxe")),
        (false, false) => SoftDevice::Neither,
    })
}

fn module(scene: &Scene) -> Judged {
    let state = module_state(scene, "rpcrdma")?;
    let measured = match state {
        Module::Loaded => "loaded",
        Module::Loadable => "will be loaded by the mount",
        Module::Absent => "absent from this kernel",
    };
    Ok(Finding::judge(state != Module::Absent, measured, "loaded, or ready to be").fix(
        "a kernel with it (CONFIG_SUNRPC_XPRT_RDMA; package linux-modules-extra on Ubuntu, \
         kernel-modules on Fedora)",
    ))
}

fn helper(scene: &Scene) -> Judged {
    let places = ["/sbin/mount.nfs", "/usr/sbin/mount.nfs"];
    let found = places.iter().find(|path| scene.host.exists(path));
    let measured = found.map_or("not installed", |path| *path);
    Ok(Finding::judge(found.is_some(), measured, "installed")
        .fix("apt-get install nfs-common, or dnf install nfs-utils"))
}

fn privilege(scene: &Scene) -> Judged {
    let is_met = scene.has_capability("CapEff", SYS_ADMIN)?;
    let measured = if is_met { "CAP_SYS_ADMIN" } else { "no CAP_SYS_ADMIN" };
    let fix = match scene.is_container() {
        true => "mount on the host and give the container the directory",
        false => "mount as root (sudo)",
    };
    Ok(Finding::judge(is_met, measured, "CAP_SYS_ADMIN").fix(fix))
}

/// The identifier that makes a client's name differ from that of others with its host name: of this
/// network namespace, of the module, or as it will be when the module is loaded.
fn unique_id(scene: &Scene) -> Option<String> {
    let places =
        ["/sys/fs/nfs/net/nfs_client/identifier", "/sys/module/nfs/parameters/nfs4_unique_id"];
    let set = places.iter().filter_map(|path| scene.host.text(path).ok());
    if let Some(id) = set.into_iter().find(|id| !["", "(null)"].contains(&id.trim())) {
        return Some(id.trim().to_owned());
    }
    let folder = "/etc/modprobe.d";
    let files = scene.host.names(folder).into_iter();
    let texts = files.filter_map(|name| scene.host.text(&format!("{folder}/{name}")).ok());
    texts.into_iter().find_map(|text| {
        let options = text.lines().map(str::trim).filter(|line| line.starts_with("options nfs"));
        let mut words = options.flat_map(str::split_whitespace);
        words.find_map(|word| word.strip_prefix("nfs4_unique_id=")).map(str::to_owned)
    })
}

fn client_name(scene: &Scene) -> Judged {
    let wanted = "a name that no other host has";
    if let Some(id) = unique_id(scene) {
        return Ok(Finding::judge(true, format!("nfs4_unique_id {id}"), wanted));
    }
    let host = scene.host.text("/proc/sys/kernel/hostname")?;
    let first = host.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_common = first.is_empty() || COMMON_NAMES.contains(&&*first);
    let measured = format!("host name {host}, no nfs4_unique_id");
    Ok(Finding::judge(!is_common, measured, wanted).fix(
        "'options nfs nfs4_unique_id=NAME' in /etc/modprobe.d/nfs.conf, NAME from /etc/machine-id \
         unless that was cloned, and a boot",
    ))
}

fn program_memory(scene: &Scene) -> Judged {
    let (soft, _) = scene.limits("Max locked memory")?;
    let least = 64 * crate::scene::MIB;
    Ok(Finding::judge(soft >= least, mib(soft), format!("{} or more", mib(least)))
        .fix("'* - memlock unlimited' in /etc/security/limits.d/rdma.conf and a new login"))
}
