//! Promises of `stag-ceph`, each as a case that runs on the fake library and on a cluster.

mod files;
mod mounts;
mod names;

use stag_ceph::{CephInode, CephMount, Library, MountSettings, PreparedMount, UserPerm};
use std::{
    ffi::CString,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

/// A library, and the configuration of a cluster that it can reach.
pub struct Place {
    pub library: &'static Library,
    pub configuration: PathBuf,
    pub is_real: bool,
}

/// A case with its name.
pub type Case = (&'static str, fn(&Place));

/// All cases.
pub fn all() -> impl Iterator<Item = Case> {
    files::CASES.iter().chain(names::CASES).chain(mounts::CASES).copied()
}

/// Lists functions as cases.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const CASES: &[super::Case] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use cases;

impl Place {
    pub fn prepare(&self) -> PreparedMount {
        let settings =
            MountSettings { configuration: Some(&self.configuration), ..MountSettings::default() };
        PreparedMount::new(self.library, &settings).unwrap()
    }

    pub fn mount(&self) -> CephMount {
        self.prepare().mount("/", None).unwrap()
    }

    pub fn root(&self) -> UserPerm<'static> {
        UserPerm::root(self.library)
    }

    /// An empty directory that everyone may write.
    pub fn directory(&self, mount: &CephMount) -> CephInode {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = name(&format!("case-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let made = mount.root().unwrap().make_directory(&name, 0o777, &self.root());
        made.unwrap().0
    }
}

pub fn name(text: &str) -> CString {
    CString::new(text).unwrap()
}
