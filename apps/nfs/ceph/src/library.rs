//! libcephfs, loaded at run time, its functions looked up one by one.

use crate::abi::{
    CallbackArguments, CephStat, RawDirectory, RawFile, RawInode, RawMount, RawPerm, Vino,
};
use libc::{c_char, c_int, c_uint, c_void, dirent64, statvfs};
use libloading::Library as Loaded;
use rustix::io::Errno;
use std::{fmt, path::Path, sync::OnceLock};

/// Why there is no libcephfs here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLibrary {
    pub(crate) name: String,
    pub(crate) package: &'static str,
    pub(crate) why: String,
}

impl fmt::Display for NoLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, package, why } = self;
        write!(f, "{name} cannot be loaded ({why}); fix: ")?;
        match cfg!(target_feature = "crt-static") {
            true => f.write_str("take a package, or the tarball that is not static"),
            false => write!(f, "install it (Debian: apt install {package})"),
        }
    }
}

impl std::error::Error for NoLibrary {}

/// The result of a function that the loaded version does not have.
pub(crate) trait AbsentResult {
    fn absent() -> Self;
}

impl AbsentResult for c_int {
    fn absent() -> Self {
        -libc::ENOSYS
    }
}

impl AbsentResult for i64 {
    fn absent() -> Self {
        -i64::from(libc::ENOSYS)
    }
}

impl AbsentResult for *const c_char {
    fn absent() -> Self {
        std::ptr::null()
    }
}

impl AbsentResult for () {
    fn absent() -> Self {}
}

/// Makes the table and what fills it. Without a `needed` function nothing can be served; in the
/// place of any other one stands a function that fails with ENOSYS.
macro_rules! functions {
    (
        $(#[$about:meta])* $table:ident;
        needed { $($needed:ident: fn($($taken:ty),*) $(-> $given:ty)?;)* }
        others { $($other:ident: fn($($argument:ty),*) -> $result:ty;)* }
    ) => {
        $(#[$about])*
        pub struct $table {
            $(pub(crate) $needed: unsafe extern "C" fn($($taken),*) $(-> $given)?,)*
            $(pub(crate) $other: unsafe extern "C" fn($($argument),*) -> $result,)*
            absent: Vec<&'static str>,
        }

        impl $table {
            #[allow(unused_mut, reason = "a table may need all of its functions")]
            fn find(loaded: &'static libloading::Library) -> Result<Self, libloading::Error> {
                let mut absent = Vec::new();
                Ok(Self {
                    $($needed: {
                        let name = concat!(stringify!($needed), "\0");
                        // SAFETY: the type is that of the function in Ceph's header, which its
                        // versions from 16.2 to 18.2 keep.
                        let found = unsafe {
                            loaded.get::<unsafe extern "C" fn($($taken),*) $(-> $given)?>(name)
                        };
                        *found?
                    },)*
                    $($other: {
                        unsafe extern "C" fn absent_one($(_: $argument),*) -> $result {
                            <$result as $crate::library::AbsentResult>::absent()
                        }
                        let name = concat!(stringify!($other), "\0");
                        // SAFETY: as above.
                        let found = unsafe {
                            loaded.get::<unsafe extern "C" fn($($argument),*) -> $result>(name)
                        };
                        found.map_or_else(
                            |_| {
                                absent.push(stringify!($other));
                                absent_one as unsafe extern "C" fn($($argument),*) -> $result
                            },
                            |found| *found,
                        )
                    },)*
                    absent,
                })
            }
        }
    };
}

pub(crate) use functions;

functions! {
    /// The functions of libcephfs that the store needs.
    Library;
    needed {
        ceph_create: fn(*mut RawMount, *const c_char) -> c_int;
        ceph_conf_read_file: fn(RawMount, *const c_char) -> c_int;
        ceph_conf_set: fn(RawMount, *const c_char, *const c_char) -> c_int;
        ceph_init: fn(RawMount) -> c_int;
        ceph_mount: fn(RawMount, *const c_char) -> c_int;
        ceph_unmount: fn(RawMount) -> c_int;
        ceph_release: fn(RawMount) -> c_int;
        ceph_userperm_new: fn(u32, u32, c_int, *mut u32) -> RawPerm;
        ceph_userperm_destroy: fn(RawPerm);
        ceph_ll_lookup_root: fn(RawMount, *mut RawInode) -> c_int;
        ceph_ll_lookup_vino: fn(RawMount, Vino, *mut RawInode) -> c_int;
        ceph_ll_lookup: fn(
            RawMount, RawInode, *const c_char, *mut RawInode, *mut CephStat, c_uint, c_uint, RawPerm
        ) -> c_int;
        ceph_ll_getattr: fn(RawMount, RawInode, *mut CephStat, c_uint, c_uint, RawPerm) -> c_int;
        ceph_ll_put: fn(RawMount, RawInode) -> c_int;
        ceph_ll_open: fn(RawMount, RawInode, c_int, *mut RawFile, RawPerm) -> c_int;
        ceph_ll_read: fn(RawMount, RawFile, i64, u64, *mut c_char) -> c_int;
        ceph_ll_close: fn(RawMount, RawFile) -> c_int;
    }
    others {
        ceph_version: fn(*mut c_int, *mut c_int, *mut c_int) -> *const c_char;
        ceph_conf_get: fn(RawMount, *const c_char, *mut c_char, usize) -> c_int;
        ceph_select_filesystem: fn(RawMount, *const c_char) -> c_int;
        ceph_get_fs_cid: fn(RawMount) -> i64;
        ceph_start_reclaim: fn(RawMount, *const c_char, c_uint) -> c_int;
        ceph_finish_reclaim: fn(RawMount) -> ();
        ceph_set_uuid: fn(RawMount, *const c_char) -> ();
        ceph_ll_register_callbacks: fn(RawMount, *mut CallbackArguments) -> ();
        ceph_ll_setattr: fn(RawMount, RawInode, *mut CephStat, c_int, RawPerm) -> c_int;
        ceph_ll_create: fn(
            RawMount, RawInode, *const c_char, u32, c_int, *mut RawInode, *mut RawFile,
            *mut CephStat, c_uint, c_uint, RawPerm
        ) -> c_int;
        ceph_ll_mkdir: fn(
            RawMount, RawInode, *const c_char, u32, *mut RawInode, *mut CephStat, c_uint, c_uint,
            RawPerm
        ) -> c_int;
        ceph_ll_mknod: fn(
            RawMount, RawInode, *const c_char, u32, u64, *mut RawInode, *mut CephStat, c_uint,
            c_uint, RawPerm
        ) -> c_int;
        ceph_ll_symlink: fn(
            RawMount, RawInode, *const c_char, *const c_char, *mut RawInode, *mut CephStat, c_uint,
            c_uint, RawPerm
        ) -> c_int;
        ceph_ll_readlink: fn(RawMount, RawInode, *mut c_char, usize, RawPerm) -> c_int;
        ceph_ll_link: fn(RawMount, RawInode, RawInode, *const c_char, RawPerm) -> c_int;
        ceph_ll_unlink: fn(RawMount, RawInode, *const c_char, RawPerm) -> c_int;
        ceph_ll_rmdir: fn(RawMount, RawInode, *const c_char, RawPerm) -> c_int;
        ceph_ll_rename: fn(
            RawMount, RawInode, *const c_char, RawInode, *const c_char, RawPerm
        ) -> c_int;
        ceph_ll_write: fn(RawMount, RawFile, i64, u64, *const c_char) -> c_int;
        ceph_ll_fsync: fn(RawMount, RawFile, c_int) -> c_int;
        ceph_ll_opendir: fn(RawMount, RawInode, *mut RawDirectory, RawPerm) -> c_int;
        ceph_ll_releasedir: fn(RawMount, RawDirectory) -> c_int;
        ceph_seekdir: fn(RawMount, RawDirectory, i64) -> ();
        ceph_readdirplus_r: fn(
            RawMount, RawDirectory, *mut dirent64, *mut CephStat, c_uint, c_uint, *mut RawInode
        ) -> c_int;
        ceph_ll_statfs: fn(RawMount, RawInode, *mut statvfs) -> c_int;
        ceph_ll_getxattr: fn(
            RawMount, RawInode, *const c_char, *mut c_void, usize, RawPerm
        ) -> c_int;
        ceph_ll_setxattr: fn(
            RawMount, RawInode, *const c_char, *const c_void, usize, c_int, RawPerm
        ) -> c_int;
    }
}

impl Library {
    /// Name of the library, as the loader knows it.
    const NAME: &'static str = "libcephfs.so.2";

    /// The installed library, loaded at the first call.
    ///
    /// # Errors
    /// A sentence that names the package when it is missing or lacks a needed function.
    pub fn installed() -> Result<&'static Self, NoLibrary> {
        static TABLE: OnceLock<Result<&'static Library, NoLibrary>> = OnceLock::new();
        TABLE.get_or_init(|| Self::open(Path::new(Self::NAME))).clone()
    }

    /// Another library with the same functions, at a path. It stays loaded as long as the process
    /// lives.
    ///
    /// # Errors
    /// As [`Library::installed`].
    pub fn open(path: &Path) -> Result<&'static Self, NoLibrary> {
        let missing = |why: String| NoLibrary {
            name: path.display().to_string(),
            package: "libcephfs2",
            why,
        };
        let loaded = load(path).map_err(missing)?;
        let table = Self::find(loaded).map_err(|why| missing(why.to_string()))?;
        Ok(Box::leak(Box::new(table)))
    }

    /// Names of the functions that this version does not have. Calls that need them fail with
    /// [`Errno::NOSYS`].
    pub fn absent(&self) -> &[&'static str] {
        &self.absent
    }

    /// The version of Ceph, major before minor; zeros where the library does not say.
    pub fn version(&self) -> [i32; 3] {
        let [mut major, mut minor, mut patch] = [0; 3];
        // SAFETY: three numbers that live during the call; the pointer that comes back, to text of
        // the library, is not looked at.
        let _text = unsafe { (self.ceph_version)(&mut major, &mut minor, &mut patch) };
        [major, minor, patch]
    }
}

/// Loads a library for as long as the process lives.
pub(crate) fn load(path: &Path) -> Result<&'static Loaded, String> {
    // Loading would bring a second C library into the process, of whatever version the host has.
    if cfg!(target_feature = "crt-static") {
        return Err("this stag is linked statically and loads no library".to_owned());
    }
    // SAFETY: Ceph's libraries have no constructor that depends on anything of ours.
    let loaded = unsafe { Loaded::new(path) };
    Ok(Box::leak(Box::new(loaded.map_err(|why| why.to_string())?)))
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Library")
    }
}

/// Converts a result of the library: a number, or an error below zero.
pub(crate) fn returned(code: impl Into<i64>) -> Result<u64, Errno> {
    let code = code.into();
    u64::try_from(code).map_err(|_| {
        let known = i32::try_from(code.unsigned_abs()).ok().filter(|number| *number < 4096);
        known.map_or(Errno::IO, Errno::from_raw_os_error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    functions! {
        /// Functions of the C library, one of which it lacks.
        Partial;
        needed { getpid: fn() -> c_int; }
        others {
            getuid: fn() -> c_int;
            no_function_of_this_name: fn(c_int) -> c_int;
        }
    }

    functions! {
        /// A table that no library fills.
        #[allow(dead_code)]
        Impossible;
        needed { no_function_of_this_name: fn() -> c_int; }
        others {}
    }

    #[test]
    fn functions_that_are_missing_fail_when_they_are_called() {
        let loaded = load(Path::new("libc.so.6")).unwrap();
        let table = Partial::find(loaded).unwrap();
        assert_eq!(table.absent, ["no_function_of_this_name"]);
        // SAFETY: they have no arguments that could be wrong.
        let [pid, uid] = [table.getpid, table.getuid].map(|function| unsafe { function() });
        assert!(pid > 0 && uid >= 0);
        // SAFETY: a function of this file stands here.
        let absent = unsafe { (table.no_function_of_this_name)(1) };
        assert_eq!(returned(absent), Err(Errno::NOSYS));
        assert!(Impossible::find(loaded).is_err());
    }

    #[test]
    fn a_library_that_is_missing_or_another_one_is_a_sentence_with_the_package() {
        for name in ["libcephfs.so.99", "libc.so.6"] {
            let sentence = Library::open(Path::new(name)).unwrap_err().to_string();
            assert!(sentence.starts_with(&format!("{name} cannot be loaded (")), "{sentence}");
            assert!(
                sentence.ends_with("install it (Debian: apt install libcephfs2)"),
                "{sentence}"
            );
        }
    }

    #[test]
    fn results_below_zero_are_errors_and_strange_ones_are_io() {
        assert_eq!(returned(7), Ok(7));
        assert_eq!(returned(-108), Err(Errno::SHUTDOWN));
        assert_eq!(returned(i64::MIN), Err(Errno::IO));
        assert_eq!(returned(-5_000), Err(Errno::IO));
    }
}
