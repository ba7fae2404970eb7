//! The trait of a store, as its callers see it: what it answers at once, what waits, and its
//! exports.

use crate::Caller;
use crate::{
    Begun, Effort, ExportRoot, Fetched, LocalLock, Procedures, Procedures4, Status, StoreCall,
    StoreCallDone, TouchedFile, WaitTicket, exports::security::SecurityFlavors,
    start_error::StartError,
};
use std::{collections::BTreeMap, io};

use stag_engine::{PeerAddress, Time as EngineTime};
use stag_pools::{Buf, Pool};
use stag_protocol::nfs::{
    v3::{FileHandle, Verifier},
    v4::state::LockRange,
};

/// The turns of hosts whose calls came to other shards: shares of this shard's core.
pub trait HostTurns {
    /// Returns true if a call of this host, which came to that shard, may be executed now;
    /// [`end`](Self::end) must follow.
    fn take(&mut self, from: PeerAddress, shard: u16) -> bool;

    /// Charges the host for the time since.
    fn end(&mut self, from: PeerAddress, shard: u16);
}

/// The store of one shard, as its gateway uses it: state outside of calls, and two ways to make a
/// call. Most are answered at once by [`now`](Self::now). One that may [wait](Self::waits) is begun
/// as an owned [`StoreRequest`](crate::StoreRequest), and its outcome comes later from
/// [`next_done`](Self::next_done); meanwhile the gateway keeps its caller and its memory.
pub trait Store {
    /// True if calls may wait. If false, the methods on waiting are never called.
    const MAY_WAIT: bool = false;

    /// The procedures of calls that are answered at once.
    type Now: Procedures + Procedures4;

    /// The procedures of calls that do not [wait](Self::waits).
    fn now(&mut self) -> &mut Self::Now;

    /// Returns true if a call on `object` has to be begun by [`begin`](Self::begin). Looks at the
    /// handle only.
    fn waits(&self, _object: &FileHandle, _effort: Effort) -> bool {
        false
    }

    /// Returns true if MNT has to be begun by [`begin`](Self::begin).
    fn mount_waits(&self) -> bool {
        false
    }

    /// Begins a call that waits. `ticket` identifies it until [`next_done`](Self::next_done)
    /// returns it.
    fn begin(&mut self, call: StoreCall, _ticket: WaitTicket) -> Begun {
        Begun::Refused(call)
    }

    /// The next call that has completed. Called until there is none, once per pass.
    fn next_done(&mut self) -> Option<StoreCallDone> {
        None
    }

    /// Withdraws a call that was begun, if no work was done for it yet.
    fn withdraw(&mut self, _ticket: WaitTicket) -> Option<StoreCall> {
        None
    }

    /// The next READ deferred by [`Procedures::begin_read`] that can be completed. Called once per
    /// pass.
    fn next_fetched(&mut self) -> Option<Fetched> {
        None
    }

    /// The names of the exports, without the leading slash.
    fn exports(&self) -> impl Iterator<Item = &str>;

    /// Networks that may mount an export, for EXPORT; none if every host that may connect may.
    fn client_networks(&self, _export: &str) -> Vec<String> {
        Vec::new()
    }

    /// Returns true if a caller's rights depend on its proof.
    fn asks_for_proof(&self) -> bool {
        false
    }

    /// Checks whether a caller is one of an export's clients, whatever its security flavor. A store
    /// without client lists admits every caller that may connect.
    ///
    /// # Errors
    /// [`Status::Acces`] for another host, [`Status::Perm`] for an unprivileged source port.
    fn admits(&self, _export: &str, _caller: &Caller) -> Result<(), Status> {
        Ok(())
    }

    /// The same for the export of an object, for operations that call nothing else in the store.
    /// The handle is not verified.
    ///
    /// # Errors
    /// As in [`admits`](Self::admits).
    fn admits_to(&self, _object: &FileHandle, _caller: &Caller) -> Result<(), Status> {
        Ok(())
    }

    /// Returns true if an export has security flavors of its own: the flavor of each call is then
    /// judged by [`flavors`](Self::flavors) and [`flavors_of`](Self::flavors_of).
    fn has_security(&self) -> bool {
        false
    }

    /// Security flavors that an export accepts from a client at this address; none if nothing is
    /// known of them, so that no flavor is refused.
    fn flavors(&self, _export: &str, _address: PeerAddress) -> Option<SecurityFlavors> {
        None
    }

    /// The same for the export of an object. The handle is not verified.
    fn flavors_of(&self, _object: &FileHandle, _address: PeerAddress) -> Option<SecurityFlavors> {
        None
    }

    /// Returns true if an object is the root of an export. Not for each call: it allocates.
    fn is_root(&self, object: &FileHandle) -> bool {
        self.export_roots().iter().any(|export| export.root.as_ref() == Some(object))
    }

    /// The name of the export of an object, for administrators, if its handle names that. The
    /// handle is not verified.
    fn export_of(&self, _object: &FileHandle) -> Option<&str> {
        None
    }

    /// Number of changes of the exports or their clients since the start.
    fn edition(&self) -> u64 {
        0
    }

    /// The exports with all that a pseudo file system shows of them (RFC 8881 §7.3). An export
    /// whose directory was made again has another number. Not for each call: it allocates.
    fn export_roots(&self) -> Vec<ExportRoot>;

    /// Removes one [`pin`](Procedures4::pin) of a file; the last one drops a file without a name.
    /// Does not block.
    fn unpin(&mut self, _file: &FileHandle) {}

    /// Returns true if other programs may lock files of the store: their locks are found by
    /// [`find_local_lock`](Self::find_local_lock), and clients' locks shown by
    /// [`show_lock`](Self::show_lock).
    fn has_local_locks(&self) -> bool {
        false
    }

    /// Shows other programs the strongest lock that clients hold on bytes of a pinned file: a write
    /// lock (`Some(true)`), a read lock, or none. Does not block, and does nothing if locks cannot
    /// be shown.
    ///
    /// # Errors
    /// A program's conflicting lock; nothing has changed.
    fn show_lock(
        &mut self,
        _file: &FileHandle,
        _range: LockRange,
        _lock: Option<bool>,
    ) -> Result<(), LocalLock> {
        Ok(())
    }

    /// Looks for another program's lock that would conflict with a write lock (`exclusive`) or a
    /// read lock on bytes of a pinned file. Does not block.
    fn find_local_lock(
        &mut self,
        _file: &FileHandle,
        _range: LockRange,
        _exclusive: bool,
    ) -> Option<LocalLock> {
        None
    }

    /// Prepares to [watch](Self::watch) files.
    ///
    /// # Errors
    /// A sentence, also if no other program can change files of the store, or none can be watched.
    fn start_watching(&mut self) -> Result<(), StartError> {
        Err(StartError("files of this store cannot be watched".to_owned()))
    }

    /// Watches a pinned file: from here on no other program opens it for writing or truncates it
    /// before [`unwatch`](Self::unwatch), and [`next_touched`](Self::next_touched) reports any
    /// other change. The server must not open it for writing either. Does not block. False if the
    /// file cannot be watched, is open for writing, has no name, or its change attribute differs
    /// from `change`. One that is watched already stays so.
    fn watch(&mut self, _file: &FileHandle, _change: u64) -> bool {
        false
    }

    /// Stops watching a file: programs that wait for it proceed. Does not block.
    fn unwatch(&mut self, _file: &FileHandle) {}

    /// The next watched file that another program waits for, or has changed: each is reported once,
    /// and once more when a program starts a limited wait.
    fn next_touched(&mut self) -> Option<TouchedFile> {
        None
    }

    /// Errors so far that blame the file system, of all shards together, by export.
    fn faults(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// The current write verifier (RFC 1813 §3.3.7); it changes when unstable data may have been
    /// lost.
    fn verifier(&self) -> Verifier;

    /// Makes the handles issued since the last call survive as promised. Called before sending a
    /// reply that carries one, and once per pass.
    ///
    /// # Errors
    ///
    /// On failure those handles live as long as this process, or until a later call succeeds.
    fn flush(&mut self) -> io::Result<()>;

    /// Executes calls of other shards, as far as it is the turn of their hosts. Called once per
    /// pass; true if any was executed.
    fn serve_others(&mut self, turns: &mut dyn HostTurns) -> bool {
        let _ = turns;
        false
    }

    /// Releases resources that were unused for a while. Called once per pass, before
    /// [`flush`](Self::flush); `now` is its time. A shard makes a pass at least once a second.
    fn tidy(&mut self, _now: EngineTime) {}

    /// Returns true if [`tidy`](Self::tidy) or [`flush`](Self::flush) may have work without a call:
    /// because time has passed, or because another thread requests it.
    fn wants_idle_passes(&self) -> bool {
        true
    }

    /// A buffer of the store's own to pull `len` bytes of a WRITE into, which may then become the
    /// file's.
    fn sink(&self, _len: usize) -> Option<Buf> {
        None
    }

    /// Memory of the store's own that READs push from and WRITEs are pulled into: the fabric has to
    /// register it.
    fn pool(&self) -> Option<&Pool> {
        None
    }
}
