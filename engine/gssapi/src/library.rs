//! MIT's libgssapi_krb5, loaded at run time, its functions looked up one by one.

use crate::abi::{RawBuffer, RawContext, RawCredential, RawName, RawOid, RawOidSet, RawSettings};
use libloading::Library as Loaded;
use std::{
    ffi::{c_int, c_void},
    fmt,
    path::Path,
    sync::OnceLock,
};

/// Why there is no libgssapi_krb5 here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoGssLibrary {
    name: String,
    why: String,
}

impl fmt::Display for NoGssLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, why } = self;
        write!(f, "{name} cannot be loaded ({why}); fix: ")?;
        match cfg!(target_feature = "crt-static") {
            true => f.write_str("take a package, or the tarball that is not static"),
            false => f.write_str(
                "install MIT Kerberos 1.11 or newer (Debian, Ubuntu: apt install \
                 libgssapi-krb5-2; Fedora, RHEL: dnf install krb5-libs; SUSE: zypper install \
                 krb5; Arch: pacman -S krb5; Alpine: apk add krb5-libs)",
            ),
        }
    }
}

impl std::error::Error for NoGssLibrary {}

/// Makes the table and what fills it.
macro_rules! functions {
    (
        $(#[$about:meta])* $table:ident;
        $($name:ident: fn($($taken:ty),* $(,)?);)*
    ) => {
        $(#[$about])*
        pub struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($taken),*) -> u32,)*
        }

        impl $table {
            fn find(loaded: &'static Loaded) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the type is that of the function in MIT's headers, which its
                        // versions from 1.11 to 1.22 keep.
                        let found = unsafe {
                            loaded.get::<unsafe extern "C" fn($($taken),*) -> u32>(name)
                        };
                        *found?
                    },)*
                })
            }
        }
    };
}

functions! {
    /// The functions of libgssapi_krb5. `Sync`: it is a table of functions, all of which several
    /// threads may call at a time.
    GssLibrary;
    gss_import_name: fn(*mut u32, *mut RawBuffer, *mut RawOid, *mut RawName);
    gss_display_name: fn(*mut u32, RawName, *mut RawBuffer, *mut *mut RawOid);
    gss_localname: fn(*mut u32, RawName, *mut RawOid, *mut RawBuffer);
    gss_release_name: fn(*mut u32, *mut RawName);
    gss_release_buffer: fn(*mut u32, *mut RawBuffer);
    gss_display_status: fn(*mut u32, u32, c_int, *mut RawOid, *mut u32, *mut RawBuffer);
    gss_acquire_cred_from: fn(
        *mut u32, RawName, u32, *mut RawOidSet, c_int, *const RawSettings, *mut RawCredential,
        *mut *mut RawOidSet, *mut u32,
    );
    gss_release_cred: fn(*mut u32, *mut RawCredential);
    gss_krb5_set_allowable_enctypes: fn(*mut u32, RawCredential, u32, *mut i32);
    gss_accept_sec_context: fn(
        *mut u32, *mut RawContext, RawCredential, *mut RawBuffer, *mut c_void, *mut RawName,
        *mut *mut RawOid, *mut RawBuffer, *mut u32, *mut u32, *mut RawCredential,
    );
    gss_init_sec_context: fn(
        *mut u32, RawCredential, *mut RawContext, RawName, *mut RawOid, u32, u32, *mut c_void,
        *mut RawBuffer, *mut *mut RawOid, *mut RawBuffer, *mut u32, *mut u32,
    );
    gss_delete_sec_context: fn(*mut u32, *mut RawContext, *mut RawBuffer);
    gss_krb5_export_lucid_sec_context: fn(*mut u32, *mut RawContext, u32, *mut *mut c_void);
    gss_krb5_free_lucid_sec_context: fn(*mut u32, *mut c_void);
}

impl GssLibrary {
    /// Name of the library, as the loader knows it. Heimdal's libgssapi.so.3 exports no keys.
    const NAME: &'static str = "libgssapi_krb5.so.2";

    /// The installed library, loaded at the first call.
    ///
    /// # Errors
    /// A sentence that names the package when it is missing or lacks a function.
    pub fn load() -> Result<&'static Self, NoGssLibrary> {
        static TABLE: OnceLock<Result<&'static GssLibrary, NoGssLibrary>> = OnceLock::new();
        TABLE
            .get_or_init(|| {
                // SAFETY: the loader's own directories have MIT's library under this name.
                unsafe { Self::open(Path::new(Self::NAME)) }
            })
            .clone()
    }

    /// Another library with the same functions, at a path. It stays loaded as long as the process
    /// lives.
    ///
    /// # Errors
    /// As [`GssLibrary::load`].
    ///
    /// # Safety
    /// The file's constructors run in this process. Its functions must have the types and the
    /// meaning of those of MIT's libgssapi_krb5, and several threads may call them at a time.
    pub unsafe fn open(path: &Path) -> Result<&'static Self, NoGssLibrary> {
        let missing = |why: String| NoGssLibrary { name: path.display().to_string(), why };
        // Loading would bring the host's C library into the process, as a second one.
        if cfg!(target_feature = "crt-static") {
            let why = "this stag is linked statically and loads no library";
            return Err(missing(why.to_owned()));
        }
        // SAFETY: the caller answers for the file's constructors.
        let loaded = unsafe { Loaded::new(path) }.map_err(|why| missing(why.to_string()))?;
        let loaded = Box::leak(Box::new(loaded));
        let table = Self::find(loaded).map_err(|why| missing(why.to_string()))?;
        Ok(Box::leak(Box::new(table)))
    }
}

impl fmt::Debug for GssLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GssLibrary")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_or_another_one_is_a_sentence_with_the_packages() {
        for name in ["libgssapi_krb5.so.99", "libc.so.6"] {
            // SAFETY: one does not exist; the other is loaded already, and lacks the functions.
            let opened = unsafe { GssLibrary::open(Path::new(name)) };
            let sentence = opened.unwrap_err().to_string();
            assert!(sentence.starts_with(&format!("{name} cannot be loaded (")), "{sentence}");
            for package in ["apt install libgssapi-krb5-2", "dnf install krb5-libs"] {
                assert!(sentence.contains(package), "{sentence}");
            }
        }
    }
}
