//! Small objects of RADOS, through librados, which is loaded when the first pool is opened: a place
//! for records that several gateways share. The contract of the C library is in Ceph's
//! `librados.h`; the declarations here are our own.

use crate::library::{NoLibrary, functions, load, returned};
use libc::{c_char, c_int, c_void, time_t};
use rustix::io::Errno;
use std::{
    ffi::{CStr, CString},
    fmt,
    path::Path,
    ptr::null_mut,
    sync::OnceLock,
};

type RawCluster = *mut c_void;
type RawPool = *mut c_void;
type RawWriteOp = *mut c_void;

functions! {
    /// The functions of librados that records need.
    RadosLibrary;
    needed {
        rados_create: fn(*mut RawCluster, *const c_char) -> c_int;
        rados_conf_read_file: fn(RawCluster, *const c_char) -> c_int;
        rados_connect: fn(RawCluster) -> c_int;
        rados_shutdown: fn(RawCluster);
        rados_ioctx_create: fn(RawCluster, *const c_char, *mut RawPool) -> c_int;
        rados_ioctx_destroy: fn(RawPool);
        rados_ioctx_set_namespace: fn(RawPool, *const c_char);
        rados_stat: fn(RawPool, *const c_char, *mut u64, *mut time_t) -> c_int;
        rados_read: fn(RawPool, *const c_char, *mut c_char, usize, u64) -> c_int;
        rados_remove: fn(RawPool, *const c_char) -> c_int;
        rados_create_write_op: fn() -> RawWriteOp;
        rados_release_write_op: fn(RawWriteOp);
        rados_write_op_assert_exists: fn(RawWriteOp);
        rados_write_op_create: fn(RawWriteOp, c_int, *const c_char);
        rados_write_op_write: fn(RawWriteOp, *const c_char, usize, u64);
        rados_write_op_write_full: fn(RawWriteOp, *const c_char, usize);
        rados_write_op_operate: fn(
            RawWriteOp, RawPool, *const c_char, *mut time_t, c_int
        ) -> c_int;
    }
    others {
        rados_conf_set: fn(RawCluster, *const c_char, *const c_char) -> c_int;
    }
}

/// `LIBRADOS_CREATE_EXCLUSIVE`.
const EXCLUSIVE: c_int = 1;
/// Options of every connection: a monitor or a data daemon that does not answer is an error after
/// ten seconds. The operation may have been done or not.
const OPTIONS: [[&CStr; 2]; 3] = [
    [c"rados_osd_op_timeout", c"10"],
    [c"rados_mon_op_timeout", c"10"],
    [c"client_mount_timeout", c"10"],
];

impl RadosLibrary {
    /// The installed library, loaded at the first call.
    ///
    /// # Errors
    /// A sentence that names the package when it is missing or lacks a function.
    pub fn installed() -> Result<&'static Self, NoLibrary> {
        static TABLE: OnceLock<Result<&'static RadosLibrary, NoLibrary>> = OnceLock::new();
        TABLE.get_or_init(|| Self::open(Path::new("librados.so.2"))).clone()
    }

    /// Another library with the same functions, at a path. It stays loaded as long as the process
    /// lives.
    ///
    /// # Errors
    /// As [`RadosLibrary::installed`].
    pub fn open(path: &Path) -> Result<&'static Self, NoLibrary> {
        let missing =
            |why: String| NoLibrary { name: path.display().to_string(), package: "librados2", why };
        let loaded = load(path).map_err(missing)?;
        let table = Self::find(loaded).map_err(|why| missing(why.to_string()))?;
        Ok(Box::leak(Box::new(table)))
    }

    /// Names of the functions that this version does not have.
    pub fn absent(&self) -> &[&'static str] {
        &self.absent
    }
}

impl fmt::Debug for RadosLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RadosLibrary")
    }
}

/// A pool to be opened.
#[derive(Clone, Copy, Debug)]
pub struct PoolSettings<'a> {
    /// The Ceph user, without `client.`; `admin` if None.
    pub user: Option<&'a CStr>,
    /// The configuration file; where Ceph looks if None.
    pub configuration: Option<&'a CStr>,
    /// Name of the pool.
    pub pool: &'a CStr,
    /// Namespace in the pool, which keeps its objects from those of others.
    pub namespace: &'a CStr,
}

/// A connection to a cluster, ended when it is dropped.
struct RadosConnection {
    library: &'static RadosLibrary,
    raw: RawCluster,
}

impl Drop for RadosConnection {
    fn drop(&mut self) {
        // SAFETY: it was created, and nothing uses it from here on.
        unsafe { (self.library.rados_shutdown)(self.raw) };
    }
}

/// A namespace of a pool, whose objects have names.
pub struct RadosPool {
    raw: RawPool,
    connection: RadosConnection,
}

// SAFETY: the library's objects belong to no thread, and this is one owner of both.
unsafe impl Send for RadosPool {}

impl Drop for RadosPool {
    fn drop(&mut self) {
        // SAFETY: it was opened, nothing uses it from here on, and its connection lives.
        unsafe { (self.connection.library.rados_ioctx_destroy)(self.raw) };
    }
}

impl fmt::Debug for RadosPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RadosPool")
    }
}

/// Condition under which an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existence {
    /// It may be there or not.
    Any,
    /// It has to be there: else [`Errno::NOENT`].
    Needed,
    /// It must not be there: else [`Errno::EXIST`].
    Refused,
}

impl RadosPool {
    /// Connects to a cluster and opens a pool. It waits for the cluster.
    ///
    /// # Errors
    /// As the library says.
    pub fn open(
        library: &'static RadosLibrary,
        settings: &PoolSettings<'_>,
    ) -> Result<Self, Errno> {
        let text = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
        let mut raw = null_mut();
        // SAFETY: room for a pointer, and a text or none.
        returned(unsafe { (library.rados_create)(&raw mut raw, text(settings.user)) })?;
        let connection = RadosConnection { library, raw };
        // SAFETY: the connection was created; the path is a text or none.
        let read = unsafe { (library.rados_conf_read_file)(raw, text(settings.configuration)) };
        returned(read)?;
        for [option, value] in OPTIONS {
            // SAFETY: the connection was created, and both are texts. An option that this version
            // has not is no loss.
            let _ = unsafe { (library.rados_conf_set)(raw, option.as_ptr(), value.as_ptr()) };
        }
        // SAFETY: the connection was created and configured.
        returned(unsafe { (library.rados_connect)(raw) })?;
        let mut pool = null_mut();
        // SAFETY: it is connected; a text, and room for a pointer.
        let opened =
            unsafe { (library.rados_ioctx_create)(raw, settings.pool.as_ptr(), &raw mut pool) };
        returned(opened)?;
        let pool = Self { raw: pool, connection };
        // SAFETY: the pool was opened, and the namespace is a text, which is copied.
        unsafe { (library.rados_ioctx_set_namespace)(pool.raw, settings.namespace.as_ptr()) };
        Ok(pool)
    }

    /// Sets an option of the connection.
    ///
    /// # Errors
    /// As the library says.
    pub fn set_option(&self, option: &CStr, value: &CStr) -> Result<(), Errno> {
        let RadosConnection { library, raw } = self.connection;
        // SAFETY: it is connected, and both are texts.
        returned(unsafe { (library.rados_conf_set)(raw, option.as_ptr(), value.as_ptr()) })
            .map(drop)
    }

    /// All bytes of an object.
    ///
    /// # Errors
    /// [`Errno::NOENT`] when there is none, [`Errno::FBIG`] when it is longer than `max`; else as
    /// the library says.
    pub fn read(&self, name: &str, max: usize) -> Result<Vec<u8>, Errno> {
        let name = object_name(name)?;
        let library = self.connection.library;
        let mut size = 0;
        // SAFETY: the pool is open; a text, and room for a number.
        let found =
            unsafe { (library.rados_stat)(self.raw, name.as_ptr(), &raw mut size, null_mut()) };
        returned(found)?;
        let size = usize::try_from(size).ok().filter(|size| *size <= max).ok_or(Errno::FBIG)?;
        let mut octets = vec![0; size];
        let mut done = 0;
        while let Some(rest) = octets.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let (to, len) = (rest.as_mut_ptr().cast(), rest.len());
            // SAFETY: the pool is open; a text, and room of that length.
            let count =
                unsafe { (library.rados_read)(self.raw, name.as_ptr(), to, len, done as u64) };
            match usize::try_from(returned(count)?).unwrap_or(0).min(len) {
                0 => break,
                count => done += count,
            }
        }
        octets.truncate(done);
        Ok(octets)
    }

    /// Writes bytes at `offset` of an object, or replaces all of it, at once. They are stored when
    /// it returns.
    ///
    /// # Errors
    /// As `existence` says, or the library. After [`Errno::TIMEDOUT`] the write may or may not have
    /// been done.
    pub fn write(
        &self,
        name: &str,
        octets: &[u8],
        offset: Option<u64>,
        existence: Existence,
    ) -> Result<(), Errno> {
        let name = object_name(name)?;
        let library = self.connection.library;
        // SAFETY: it has no arguments.
        let op = RadosWrite { library, raw: unsafe { (library.rados_create_write_op)() } };
        match existence {
            Existence::Any => {}
            // SAFETY: the operation was created.
            Existence::Needed => unsafe { (library.rados_write_op_assert_exists)(op.raw) },
            Existence::Refused => {
                // SAFETY: the operation was created; there is no category.
                unsafe { (library.rados_write_op_create)(op.raw, EXCLUSIVE, std::ptr::null()) };
            }
        }
        let (from, len) = (octets.as_ptr().cast(), octets.len());
        match offset {
            // SAFETY: the operation was created, and the octets live until it is over.
            Some(offset) => unsafe { (library.rados_write_op_write)(op.raw, from, len, offset) },
            // SAFETY: as above.
            None => unsafe { (library.rados_write_op_write_full)(op.raw, from, len) },
        }
        // SAFETY: operation and pool are good, the name is a text.
        let done = unsafe {
            (library.rados_write_op_operate)(op.raw, self.raw, name.as_ptr(), null_mut(), 0)
        };
        returned(done).map(drop)
    }

    /// Removes an object.
    ///
    /// # Errors
    /// [`Errno::NOENT`] when there is none; else as the library says.
    pub fn remove(&self, name: &str) -> Result<(), Errno> {
        let name = object_name(name)?;
        // SAFETY: the pool is open, and the name is a text.
        let removed = unsafe { (self.connection.library.rados_remove)(self.raw, name.as_ptr()) };
        returned(removed).map(drop)
    }
}

fn object_name(name: &str) -> Result<CString, Errno> {
    CString::new(name).map_err(|_| Errno::INVAL)
}

/// An operation that is made up step by step.
struct RadosWrite {
    library: &'static RadosLibrary,
    raw: RawWriteOp,
}

impl Drop for RadosWrite {
    fn drop(&mut self) {
        // SAFETY: it was created, and nothing uses it from here on.
        unsafe { (self.library.rados_release_write_op)(self.raw) };
    }
}
