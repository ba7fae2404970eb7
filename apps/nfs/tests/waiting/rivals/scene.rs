//! The part of a play that its clients see: the ledger, the directory that they fight in, and its
//! files, looked at without the server.

use super::ledger::Ledger;
use stag_nfs::Gateway;
use stag_nfs_store::{
    FileAttributes, Procedures, Store,
    exports::config::ExportConfig,
    files::{Callers, Files, FilesConfig, SharedFiles},
};
use stag_protocol::nfs::v3::FileHandle;
use stag_verbs::Time;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Names that the clients fight for.
pub const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];

/// A file as its attributes and names show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    pub change: u64,
    pub size: u64,
    pub mode: u32,
    /// A bit for each of [`NAMES`].
    names: u8,
}

impl Looks {
    /// Looks at a file in a store that waits for nothing.
    pub fn of(
        store: &mut impl Procedures,
        directory: &FileHandle,
        file: &FileHandle,
    ) -> Option<Self> {
        let FileAttributes { change, size, mode, .. } = store.getattr(file).ok()?;
        let mut names = 0;
        for (place, name) in NAMES.iter().enumerate() {
            let found = store.lookup(directory, name);
            names |= u8::from(found.is_ok_and(|found| found.handle == *file)) << place;
        }
        Some(Self { change, size, mode, names })
    }
}

/// Looks at a file.
type Look = Box<dyn Fn(&FileHandle) -> Option<Looks>>;

/// See the module.
pub struct Scene {
    pub ledger: RefCell<Ledger>,
    pub directory: FileHandle,
    pub look: Look,
    /// The store does everything at once, and reports nothing to the ledger.
    pub is_at_once: bool,
}

/// A scene, and how its servers are made.
pub struct Stage<S> {
    pub scene: Rc<Scene>,
    /// Makes the gateways of both shards of a server.
    pub build: Box<dyn Fn() -> [Gateway<S>; 2]>,
    /// The time at which the store has something.
    pub next_due: Box<dyn Fn() -> Option<Time>>,
}

/// A directory of this host, which two shards serve, and a third one looks at.
pub fn on_files(home: &std::path::Path) -> Stage<Files> {
    let path = home.join("export");
    std::fs::create_dir_all(&path).unwrap();
    let config = FilesConfig {
        state_dir: home.join("state"),
        exports: vec![ExportConfig {
            name: "data".to_owned(),
            path,
            read_only: false,
            is_mountpoint: false,
        }],
        shards: 3,
        sync_directories: false,
        callers: Callers::UNPRIVILEGED,
        open_files: Some(64),
        cluster: None,
    };
    let looker: Rc<RefCell<Option<Files>>> = Rc::default();
    let (mine, directory) = (Rc::clone(&looker), Rc::new(Cell::new(None)));
    let found = Rc::clone(&directory);
    let build = move || {
        // The former server has left its directory of state.
        mine.borrow_mut().take();
        let shared = SharedFiles::open(&config).unwrap();
        let [one, other, mut third] = [0, 1, 2].map(|shard| Files::open(&shared, shard).unwrap());
        found.set(Some(third.now().mount(b"/data").unwrap()));
        *mine.borrow_mut() = Some(third);
        [one, other].map(Gateway::new)
    };
    // One server before the first: it yields the handle of the directory.
    drop(build());
    let directory = directory.get().expect("it was mounted");
    let look = move |file: &FileHandle| {
        let mut looker = looker.borrow_mut();
        Looks::of(looker.as_mut()?.now(), &directory, file)
    };
    let (ledger, look) = (RefCell::default(), Box::new(look));
    let scene = Scene { ledger, directory, look, is_at_once: true };
    Stage { scene: Rc::new(scene), build: Box::new(build), next_due: Box::new(|| None) }
}
