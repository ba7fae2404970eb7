//! Mounts: a client of a Ceph file system, from its settings to its end.

use crate::{
    abi::{CallbackArguments, RawMount, Vino},
    callbacks::{ReleaseQueue, Released, on_release},
    inode::CephInode,
    library::{Library, returned},
};
use rustix::io::Errno;
use std::{
    ffi::CString,
    fmt,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr::null_mut,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Ceph user, configuration and file system of a mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct MountSettings<'a> {
    /// The user without `client.` before it; `admin` if None.
    pub user: Option<&'a str>,
    /// The configuration file; where Ceph looks if None.
    pub configuration: Option<&'a Path>,
    /// The file system; the cluster's default one if None.
    pub file_system: Option<&'a str>,
    /// More options, set after our own.
    pub options: &'a [[&'a str; 2]],
}

/// Options of every mount, and why.
const OPTIONS: [[&str; 2]; 9] = [
    // With the object cache, an evicted client loses acknowledged writes, and fsync returns 0.
    ["client_oc", "false"],
    ["client_mount_timeout", "10"],
    ["rados_mon_op_timeout", "10"],
    // The socket of a process that is killed would stay.
    ["admin_socket", ""],
    ["log_to_stderr", "false"],
    ["log_file", ""],
    // A directory's size then changes with its times, and not with files deep below it.
    ["client_dirsize_rbytes", "false"],
    ["client_acl_type", "posix_acl"],
    // False: the library judges callers by their UserPerm. Security rests on it.
    ["fuse_default_permissions", "false"],
];

/// Subsystems with the levels that Ceph has by itself. It writes nothing of them to a log, and yet
/// puts each of their lines into words, for a thread to keep in memory in case of a crash: several
/// microseconds a call. A configuration that asks for other levels gets them.
const LOGS: [[&str; 2]; 4] = [
    ["debug_client", "0/5"],
    ["debug_objecter", "0/1"],
    ["debug_rados", "0/5"],
    ["debug_monc", "0/10"],
];

/// Flag of `ceph_start_reclaim`: ends the other client's session and frees all that it held.
const RECLAIM_RESET: u32 = 1;

/// A step of mounting that failed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountError {
    /// The step, as in "cannot ...".
    pub step: &'static str,
    /// The library's answer.
    pub errno: Errno,
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.errno)
    }
}

impl std::error::Error for MountError {}

fn failed(step: &'static str) -> impl Fn(Errno) -> MountError {
    move |errno| MountError { step, errno }
}

/// Outcome of a reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimed {
    /// A client of that name was there: it is gone, evicted and blocklisted.
    Ended,
    /// No client has that name.
    NotThere,
}

/// Mounts of this process that are not released, blocked ones included.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Number of mounts of this process that are not released yet: mounts in use, and mounts that a
/// blocked call keeps.
pub fn live_mounts() -> usize {
    LIVE.load(Ordering::Acquire)
}

/// Waits until all mounts of this process are released, for `limit` at most. Returns true if they
/// are.
///
/// The library may crash if the process exits while another thread ends one of its mounts.
pub fn await_unmounts(limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while live_mounts() > 0 {
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Ends the process at once, with this exit code: for a process whose mounts do not end. Nothing is
/// cleaned up, so no destructor waits for the mounts or fails because of them.
pub fn exit_at_once(code: u8) -> ! {
    // SAFETY: no code of this process runs after it.
    unsafe { libc::_exit(code.into()) }
}

/// One `ceph_mount_info`, which everything that came from it keeps alive.
pub(crate) struct MountHandle {
    pub(crate) library: &'static Library,
    pub(crate) raw: RawMount,
    released: Arc<ReleaseQueue>,
    pub(crate) generation: u64,
    is_mounted: bool,
    is_lost: AtomicBool,
}

// SAFETY: a `ceph_mount_info` may be used by several threads at a time: the library locks inside.
unsafe impl Send for MountHandle {}
// SAFETY: as above.
unsafe impl Sync for MountHandle {}

impl MountHandle {
    /// Converts the result of a call, and remembers when it says that the session is gone.
    pub(crate) fn returned(&self, code: impl Into<i64>) -> Result<u64, Errno> {
        let result = returned(code);
        if matches!(result, Err(Errno::SHUTDOWN | Errno::NOTCONN)) {
            self.is_lost.store(true, Ordering::Release);
        }
        result
    }

    /// Unmounts and frees; may wait for the metadata servers without limit.
    fn give_back(library: &'static Library, raw: SendRaw, is_mounted: bool) {
        let SendRaw(raw, released) = raw;
        if is_mounted {
            // SAFETY: the mount lives, and nothing that came from it is left.
            let _ = unsafe { (library.ceph_unmount)(raw) };
        }
        // SAFETY: as above; nothing uses the pointer any more.
        let code = unsafe { (library.ceph_release)(raw) };
        if returned(code).is_ok() {
            LIVE.fetch_sub(1, Ordering::AcqRel);
        } else {
            // The library goes on with the mount and may call back.
            std::mem::forget(released);
        }
    }
}

impl Drop for MountHandle {
    fn drop(&mut self) {
        let raw = SendRaw(self.raw, Arc::clone(&self.released));
        let (library, is_mounted) = (self.library, self.is_mounted);
        let work = move || Self::give_back(library, raw, is_mounted);
        // The thread that drops the last reference must not wait for a metadata server. If no
        // thread can be started, the mount stays and counts as live, as when a call is blocked.
        if thread::Builder::new().name("ceph-unmount".to_owned()).spawn(work).is_err() {
            std::mem::forget(Arc::clone(&self.released));
        }
    }
}

/// A mount that is sent to the thread that ends it, with the queue that its callback fills.
struct SendRaw(RawMount, Arc<ReleaseQueue>);

// SAFETY: see `MountHandle`.
unsafe impl Send for SendRaw {}

impl fmt::Debug for MountHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mount {}", self.generation)
    }
}

/// A client that has its settings, and is not mounted: the time to end others.
#[derive(Debug)]
pub struct PreparedMount(MountHandle);

impl PreparedMount {
    /// Makes a client with these settings, and starts its threads. They inherit the cores of the
    /// thread that calls.
    ///
    /// # Errors
    /// The step that failed.
    pub fn new(
        library: &'static Library,
        settings: &MountSettings<'_>,
    ) -> Result<Self, MountError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let user = text(settings.user.unwrap_or("admin"))?;
        let mut raw = null_mut();
        // SAFETY: both pointers live during the call.
        let made = unsafe { (library.ceph_create)(&mut raw, user.as_ptr()) };
        returned(made).map_err(failed("make a client of Ceph"))?;
        LIVE.fetch_add(1, Ordering::AcqRel);
        let prepared = Self(MountHandle {
            library,
            raw,
            released: Arc::default(),
            generation: NEXT.fetch_add(1, Ordering::Relaxed),
            is_mounted: false,
            is_lost: AtomicBool::new(false),
        });
        prepared.configure(settings)?;
        Ok(prepared)
    }

    fn configure(&self, settings: &MountSettings<'_>) -> Result<(), MountError> {
        let MountHandle { library, raw, released, .. } = &self.0;
        let path = settings.configuration.map(|path| text(path.as_os_str().as_bytes()));
        let path = path.transpose()?;
        let path = path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
        // SAFETY: a path that lives during the call, or none: then Ceph looks where it usually is.
        let read = unsafe { (library.ceph_conf_read_file)(*raw, path) };
        returned(read).map_err(failed("read the configuration of Ceph"))?;
        for [name, value] in OPTIONS.iter().chain(settings.options) {
            set_option(&self.0, name, value).map_err(failed("set an option of Ceph"))?;
        }
        for [name, usual] in LOGS {
            if option(&self.0, name).is_ok_and(|level| level == usual) {
                set_option(&self.0, name, "0/0").map_err(failed("set an option of Ceph"))?;
            }
        }
        // SAFETY: the client was made above, and this is the first call.
        let started = unsafe { (library.ceph_init)(*raw) };
        returned(started).map_err(failed("start the client of Ceph"))?;
        if let Some(name) = settings.file_system {
            let name = text(name)?;
            // SAFETY: a name that lives during the call.
            let chosen = unsafe { (library.ceph_select_filesystem)(*raw, name.as_ptr()) };
            returned(chosen).map_err(failed("choose the file system"))?;
        }
        let mut arguments = CallbackArguments {
            handle: Arc::as_ptr(released).cast_mut().cast(),
            inode: None,
            name: None,
            interrupt: None,
            remount: None,
            umask: None,
            release: Some(on_release),
        };
        // SAFETY: the structure is copied; the queue lives until the mount is released.
        unsafe { (library.ceph_ll_register_callbacks)(*raw, &mut arguments) };
        Ok(())
    }

    /// Ends the session of the client that called itself `name`: its files and locks are free at
    /// once, and it can never write again. Until it answers, metadata servers may take long.
    ///
    /// # Errors
    /// The step that failed.
    pub fn reclaim(&self, name: &str) -> Result<Reclaimed, MountError> {
        let step = "end the session of a client of that name";
        let MountHandle { library, raw, .. } = &self.0;
        let name = text(name)?;
        // SAFETY: the name lives during the call.
        let code = unsafe { (library.ceph_start_reclaim)(*raw, name.as_ptr(), RECLAIM_RESET) };
        // SAFETY: the client lives; after a start that failed, nothing is left to finish.
        unsafe { (library.ceph_finish_reclaim)(*raw) };
        match returned(code) {
            Ok(_) => Ok(Reclaimed::Ended),
            Err(Errno::NOENT) => Ok(Reclaimed::NotThere),
            Err(errno) => Err(failed(step)(errno)),
        }
    }

    /// Mounts the directory `path` under this name, which others can end it by.
    ///
    /// # Errors
    /// The step that failed; a name that another session has is refused with [`Errno::PERM`].
    pub fn mount(mut self, path: &str, name: Option<&str>) -> Result<CephMount, MountError> {
        let (library, raw) = (self.0.library, self.0.raw);
        if let Some(name) = name {
            let name = text(name)?;
            // SAFETY: the name lives during the call, which copies it.
            unsafe { (library.ceph_set_uuid)(raw, name.as_ptr()) };
        }
        let path = text(path)?;
        // SAFETY: the path lives during the call.
        let code = unsafe { (library.ceph_mount)(raw, path.as_ptr()) };
        returned(code).map_err(failed("mount the file system"))?;
        self.0.is_mounted = true;
        Ok(CephMount(Arc::new(self.0)))
    }
}

/// A file system that is mounted. Clones are the same mount; it ends when they and everything that
/// came from it are gone, in a thread of its own.
#[derive(Clone, Debug)]
pub struct CephMount(pub(crate) Arc<MountHandle>);

impl CephMount {
    /// The library that the mount uses.
    pub fn library(&self) -> &'static Library {
        self.0.library
    }

    /// A number that no other mount of this process has; later ones have higher ones.
    pub fn generation(&self) -> u64 {
        self.0.generation
    }

    /// Returns true once a call said that the session is gone, because the client was evicted: all
    /// calls fail from then on, and only a new mount helps.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::Acquire)
    }

    /// Takes the inodes that the metadata servers want back.
    pub fn take_released(&self) -> Released {
        self.0.released.take()
    }

    /// Number of the file system in its cluster; none where the library does not say.
    pub fn file_system(&self) -> Option<u64> {
        // SAFETY: the mount lives.
        returned(unsafe { (self.0.library.ceph_get_fs_cid)(self.0.raw) }).ok()
    }

    /// Value of an option, as `fsid`, in at most 256 octets.
    ///
    /// # Errors
    /// As the library says: there is no such option, or its value is longer.
    pub fn option(&self, name: &str) -> Result<String, Errno> {
        option(&self.0, name)
    }

    /// Sets an option of the running client.
    ///
    /// # Errors
    /// As the library says.
    pub fn set_option(&self, name: &str, value: &str) -> Result<(), Errno> {
        set_option(&self.0, name, value)
    }

    /// The root of the mount.
    ///
    /// # Errors
    /// As the library says.
    pub fn root(&self) -> Result<CephInode, Errno> {
        let mut inode = null_mut();
        // SAFETY: the mount lives, and the pointer during the call.
        let code = unsafe { (self.0.library.ceph_ll_lookup_root)(self.0.raw, &mut inode) };
        self.0.returned(code)?;
        Ok(CephInode::adopt(&self.0, inode))
    }

    /// The file with this name, also outside the directory that is mounted.
    ///
    /// # Errors
    /// As the library says; [`Errno::STALE`] where there is none.
    pub fn inode(&self, vino: Vino) -> Result<CephInode, Errno> {
        let mut inode = null_mut();
        // SAFETY: as above.
        let code = unsafe { (self.0.library.ceph_ll_lookup_vino)(self.0.raw, vino, &mut inode) };
        self.0.returned(code)?;
        Ok(CephInode::adopt(&self.0, inode))
    }
}

/// The value of an option, cut at 255 octets.
fn option(mount: &MountHandle, name: &str) -> Result<String, Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let mut value = [0_u8; 256];
    let room = value.as_mut_ptr().cast();
    // SAFETY: the name and the room for the value live during the call.
    let code =
        unsafe { (mount.library.ceph_conf_get)(mount.raw, name.as_ptr(), room, value.len()) };
    returned(code)?;
    let text = value.split(|octet| *octet == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn set_option(mount: &MountHandle, name: &str, value: &str) -> Result<(), Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let value = CString::new(value).map_err(|_| Errno::INVAL)?;
    // SAFETY: both texts live during the call.
    let code = unsafe { (mount.library.ceph_conf_set)(mount.raw, name.as_ptr(), value.as_ptr()) };
    returned(code).map(drop)
}

/// A text for the library, which takes none with a zero in it.
fn text(text: impl AsRef<[u8]>) -> Result<CString, MountError> {
    CString::new(text.as_ref())
        .map_err(|_| MountError { step: "name what has a zero octet", errno: Errno::INVAL })
}
