//! Clusters, their clients, and the faults that tests ask for.
//!
//! A cluster belongs to a configuration file: mounts with the same one see the same files. Faults
//! are asked for by options, which `ceph_conf_set` takes:
//!
//! | option | value | effect |
//! |---|---|---|
//! | `fake_fail` | `CALL ERRNO COUNT` | the next COUNT calls of that name fail; `*` is every call |
//! | `fake_block` | `CALL` | calls of that name wait |
//! | `fake_unblock` | `CALL` | waiting calls continue, and later ones do not wait |
//! | `fake_evict` | `NAME` | clients of that name are evicted; `*` is all but this one |
//! | `fake_release` | `INODE` | all clients are asked to let go of it |
//!
//! `ceph_conf_get` answers `fake_waiting` (calls that wait), `fake_held` (references, open files
//! and open directories of all clients) and `fake_sessions` (clients that are mounted).

use crate::tree::{FakeTree, OrErrno};
use libc::{EINVAL, ENOTCONN, ESHUTDOWN, c_int, c_void};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A callback that asks for an inode, and its argument.
#[derive(Clone, Copy)]
pub(crate) struct Asking {
    pub(crate) function: unsafe extern "C" fn(*mut c_void, crate::c::RawVino),
    pub(crate) handle: usize,
}

/// A client.
#[derive(Default)]
pub(crate) struct FakeClient {
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) uuid: Option<Vec<u8>>,
    pub(crate) asking: Option<Asking>,
    /// The directory that is mounted.
    pub(crate) root: u64,
    pub(crate) is_mounted: bool,
    pub(crate) is_evicted: bool,
    /// References to inodes.
    pub(crate) held: BTreeMap<u64, u64>,
    /// Open files and directories.
    pub(crate) open: BTreeMap<u64, Opened>,
}

/// An open file or directory.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) inode: u64,
    /// The place in a directory.
    pub(crate) place: u64,
    pub(crate) writes: bool,
}

struct WantedFailure {
    call: String,
    errno: c_int,
    left: u64,
}

/// A cluster.
pub(crate) struct FakeCluster {
    pub(crate) tree: FakeTree,
    pub(crate) clients: BTreeMap<u64, FakeClient>,
    /// Objects by namespace and name.
    pub(crate) objects: BTreeMap<crate::objects::ObjectName, Vec<u8>>,
    failures: Vec<WantedFailure>,
    blocked: BTreeSet<String>,
    waiting: u64,
    next_open: u64,
}

/// A cluster with the bell that blocked calls wait for.
pub(crate) struct SharedCluster {
    cluster: Mutex<FakeCluster>,
    bell: Condvar,
}

impl SharedCluster {
    pub(crate) fn lock(&self) -> MutexGuard<'_, FakeCluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Clusters by the paths of their configurations.
fn clusters() -> &'static Mutex<BTreeMap<Vec<u8>, Arc<SharedCluster>>> {
    static CLUSTERS: OnceLock<Mutex<BTreeMap<Vec<u8>, Arc<SharedCluster>>>> = OnceLock::new();
    CLUSTERS.get_or_init(Mutex::default)
}

/// Clusters by the numbers of their clients; none before the configuration is read.
fn clients() -> &'static Mutex<BTreeMap<u64, Option<Arc<SharedCluster>>>> {
    static CLIENTS: OnceLock<Mutex<BTreeMap<u64, Option<Arc<SharedCluster>>>>> = OnceLock::new();
    CLIENTS.get_or_init(Mutex::default)
}

/// Makes a client.
pub(crate) fn create() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    clients().lock().unwrap_or_else(PoisonError::into_inner).insert(number, None);
    number
}

/// Puts a client into the cluster of a configuration file.
pub(crate) fn join(client: u64, configuration: &[u8]) {
    let mut all = clusters().lock().unwrap_or_else(PoisonError::into_inner);
    let shared = all.entry(configuration.to_vec()).or_insert_with(|| {
        let cluster = FakeCluster {
            tree: FakeTree::new(),
            clients: BTreeMap::new(),
            objects: BTreeMap::new(),
            failures: Vec::new(),
            blocked: BTreeSet::new(),
            waiting: 0,
            next_open: 1,
        };
        Arc::new(SharedCluster { cluster: Mutex::new(cluster), bell: Condvar::new() })
    });
    shared.lock().clients.insert(client, FakeClient::default());
    let mut clients = clients().lock().unwrap_or_else(PoisonError::into_inner);
    clients.insert(client, Some(Arc::clone(shared)));
}

/// The cluster of a client.
pub(crate) fn cluster(client: u64) -> OrErrno<Arc<SharedCluster>> {
    let clients = clients().lock().unwrap_or_else(PoisonError::into_inner);
    clients.get(&client).cloned().flatten().ok_or(ENOTCONN)
}

/// Forgets a client.
pub(crate) fn release(client: u64) {
    let known = clients().lock().unwrap_or_else(PoisonError::into_inner).remove(&client);
    if let Some(shared) = known.flatten() {
        let mut cluster = shared.lock();
        cluster.end(client);
        cluster.clients.remove(&client);
    }
}

/// Carries out one call of a client: waits where a test wants it to, fails where a test wants it
/// to, or because the client is evicted or not mounted.
pub(crate) fn enter<T>(
    client: u64,
    call: &str,
    work: impl FnOnce(&mut FakeCluster) -> OrErrno<T>,
) -> OrErrno<T> {
    let shared = cluster(client)?;
    let mut cluster = shared.lock();
    cluster.waiting += 1;
    while cluster.blocked.contains(call) || cluster.blocked.contains("*") {
        cluster = shared.bell.wait(cluster).unwrap_or_else(PoisonError::into_inner);
    }
    cluster.waiting -= 1;
    cluster.fail(call)?;
    let known = cluster.clients.get(&client).ok_or(ENOTCONN)?;
    // As in Ceph, fsync succeeds after an eviction: no data is dirty any more.
    if known.is_evicted && call != "ceph_ll_fsync" {
        return Err(ESHUTDOWN);
    }
    if !known.is_mounted {
        return Err(ENOTCONN);
    }
    work(&mut cluster)
}

impl FakeCluster {
    fn fail(&mut self, call: &str) -> OrErrno<()> {
        let due = |failure: &&mut WantedFailure| {
            failure.left > 0 && (failure.call == call || failure.call == "*")
        };
        match self.failures.iter_mut().find(due) {
            Some(failure) => {
                failure.left -= 1;
                Err(failure.errno)
            }
            None => Ok(()),
        }
    }

    /// Ends the session of a client, which holds nothing from then on.
    fn end(&mut self, client: u64) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        known.is_mounted = false;
        let held = std::mem::take(&mut known.held).into_keys();
        let open = std::mem::take(&mut known.open).into_values().map(|open| open.inode);
        let inodes: Vec<_> = held.chain(open).collect();
        inodes.into_iter().for_each(|inode| self.forget(inode));
    }

    /// Takes a reference for a client.
    pub(crate) fn hold(&mut self, client: u64, inode: u64) {
        if let Some(known) = self.clients.get_mut(&client) {
            *known.held.entry(inode).or_default() += 1;
        }
    }

    /// Gives a reference back.
    pub(crate) fn put(&mut self, client: u64, inode: u64) -> OrErrno<()> {
        let known = self.clients.get_mut(&client).ok_or(ENOTCONN)?;
        match known.held.get_mut(&inode) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => drop(known.held.remove(&inode)),
            // The reference was lost with the session of the evicted client.
            None if known.is_evicted => {}
            None => return Err(EINVAL),
        }
        self.forget(inode);
        Ok(())
    }

    /// Opens a file or directory for a client.
    pub(crate) fn open(&mut self, client: u64, inode: u64, writes: bool) -> u64 {
        let number = self.next_open;
        self.next_open += 1;
        if let Some(known) = self.clients.get_mut(&client) {
            known.open.insert(number, Opened { inode, place: 0, writes });
        }
        number
    }

    /// The open file or directory of a number.
    pub(crate) fn opened(&mut self, client: u64, number: u64) -> OrErrno<&mut Opened> {
        let known = self.clients.get_mut(&client).ok_or(ENOTCONN)?;
        known.open.get_mut(&number).ok_or(libc::EBADF)
    }

    pub(crate) fn close(&mut self, client: u64, number: u64) {
        let known = self.clients.get_mut(&client);
        if let Some(open) = known.and_then(|known| known.open.remove(&number)) {
            self.forget(open.inode);
        }
    }

    /// Forgets a file without a name that no client holds.
    pub(crate) fn forget(&mut self, inode: u64) {
        let is_held = self.clients.values().any(|client| {
            client.held.contains_key(&inode) || client.open.values().any(|open| open.inode == inode)
        });
        if !is_held {
            self.tree.forget(inode);
        }
    }

    fn evict(&mut self, victims: impl Fn(u64, &FakeClient) -> bool) -> usize {
        let found = self.clients.iter().filter(|(number, client)| {
            client.is_mounted && !client.is_evicted && victims(**number, client)
        });
        let found: Vec<_> = found.map(|(number, _)| *number).collect();
        for number in &found {
            if let Some(client) = self.clients.get_mut(number) {
                client.is_evicted = true;
            }
        }
        found.len()
    }

    /// Ends the clients of a name, and returns true if there was one.
    pub(crate) fn reclaim(&mut self, name: &[u8]) -> bool {
        self.evict(|_, client| client.uuid.as_deref() == Some(name)) > 0
    }

    fn has(&self, name: &[u8]) -> bool {
        self.clients.values().any(|client| {
            client.is_mounted && !client.is_evicted && client.uuid.as_deref() == Some(name)
        })
    }

    /// Mounts a client, unless another one has its name.
    pub(crate) fn mount(&mut self, client: u64, path: &[u8]) -> OrErrno<()> {
        self.fail("ceph_mount")?;
        let root = self.tree.walk(path)?;
        let uuid = self.clients.get(&client).ok_or(ENOTCONN)?.uuid.clone();
        if uuid.is_some_and(|uuid| self.has(&uuid)) {
            return Err(libc::EPERM);
        }
        let known = self.clients.get_mut(&client).ok_or(ENOTCONN)?;
        (known.is_mounted, known.root) = (true, root);
        Ok(())
    }

    pub(crate) fn unmount(&mut self, client: u64) {
        self.end(client);
    }
}

/// Sets an option, or asks for a fault.
pub(crate) fn set_option(client: u64, name: &str, value: &str) -> OrErrno<()> {
    let shared = cluster(client)?;
    let mut cluster = shared.lock();
    match name {
        "fake_fail" => {
            let words: Vec<_> = value.split(' ').collect();
            let [call, errno, left] = words.as_slice() else { return Err(EINVAL) };
            let (errno, left) = (errno.parse(), left.parse());
            let (Ok(errno), Ok(left)) = (errno, left) else { return Err(EINVAL) };
            cluster.failures.push(WantedFailure { call: (*call).to_owned(), errno, left });
        }
        "fake_block" => drop(cluster.blocked.insert(value.to_owned())),
        "fake_unblock" => {
            cluster.blocked.remove(value);
            shared.bell.notify_all();
        }
        "fake_evict" => {
            let is_named = |client: &FakeClient| client.uuid.as_deref() == Some(value.as_bytes());
            cluster.evict(|number, other| match value {
                "*" => number != client,
                _ => is_named(other),
            });
        }
        "fake_release" => {
            let inode = value.parse().map_err(|_| EINVAL)?;
            let asked: Vec<_> = cluster.clients.values().filter_map(|one| one.asking).collect();
            drop(cluster);
            asked.into_iter().for_each(|asking| crate::c::ask(asking, inode));
        }
        _ => {
            let known = cluster.clients.get_mut(&client).ok_or(ENOTCONN)?;
            known.options.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(())
}

/// An option of a client, or what a test asks.
pub(crate) fn option(client: u64, name: &str) -> OrErrno<String> {
    let shared = cluster(client)?;
    let cluster = shared.lock();
    let all = || cluster.clients.values();
    Ok(match name {
        "fake_waiting" => cluster.waiting.to_string(),
        "fake_sessions" => all().filter(|client| client.is_mounted).count().to_string(),
        "fake_held" => {
            let held = all().map(|client| client.held.values().sum::<u64>()).sum::<u64>();
            (held + all().map(|client| client.open.len() as u64).sum::<u64>()).to_string()
        }
        "fsid" => "00000000-0000-4000-8000-000000000001".to_owned(),
        _ => all_options(&cluster, client, name)?,
    })
}

fn all_options(cluster: &FakeCluster, client: u64, name: &str) -> OrErrno<String> {
    let known = cluster.clients.get(&client).ok_or(ENOTCONN)?;
    known.options.get(name).cloned().ok_or(libc::ENOENT)
}
