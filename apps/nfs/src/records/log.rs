//! Client records as a log, in any storage of named byte strings.
//!
//! The state of all clients is in memory; a later boot restores it from the log. The log is
//! rewritten when a boot begins, when it has grown to several times its live content, and after a
//! failed append, whose remains are unknown.
//!
//! **Takeover** (several gateways, each with a log and a name). The taker notes it in its own log
//! and puts its name in a marker next to the other's log, which only one gateway can do. It reads
//! that log, writes the clients to its own, leaves the other nothing but its epoch, and marks the
//! takeover as done. If it dies at any point, its next boot continues there. A gateway with a
//! marker has been taken over; it starts again when the taker is done.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Boot, CLIENTS_MAX, ClientRecord, OWNER_MAX, RecordChange, RecordError, Records,
    entry::{Chain, EntryKind, LogEntry, LoggedClient},
};

/// Bytes that a log may have beyond its share.
const LOG_SLACK: usize = 64 << 10;
/// A log is rewritten when it is this many times as long as its live content.
const LOG_SHARE: usize = 4;

/// Named byte strings, which only one gateway writes at a time.
pub trait LogHome: Send {
    /// All bytes under a name; none if it does not exist.
    ///
    /// # Errors
    /// When the storage fails.
    fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, RecordError>;

    /// Appends bytes after the first `at`, and makes them stable.
    ///
    /// # Errors
    /// When they may be missing or incomplete.
    fn append(&mut self, name: &str, at: u64, octets: &[u8]) -> Result<(), RecordError>;

    /// Replaces all bytes under a name atomically, and makes them stable.
    ///
    /// # Errors
    /// When the old ones may remain.
    fn replace(&mut self, name: &str, octets: &[u8]) -> Result<(), RecordError>;

    /// Stores bytes under a new name, and makes them stable; false when the name exists.
    ///
    /// # Errors
    /// When they may be missing.
    fn create(&mut self, name: &str, octets: &[u8]) -> Result<bool, RecordError>;

    /// Removes a name.
    ///
    /// # Errors
    /// When it may remain.
    fn remove(&mut self, name: &str) -> Result<(), RecordError>;
}

/// The content of a log.
#[derive(Clone, Debug, Default)]
struct LogState {
    /// The last boot.
    epoch: u32,
    clients: BTreeMap<Box<[u8]>, LoggedClient>,
    /// The boot that last granted write delegations, while they may be reclaimed.
    write_delegations_in: Option<u32>,
    /// Gateways whose takeover is in progress.
    taking: BTreeSet<Box<[u8]>>,
}

impl LogState {
    /// The state after these entries, and the number of bytes in whole entries.
    fn replay(octets: &[u8]) -> (Self, usize) {
        let (mut state, mut at, mut chain) = (Self::default(), 0, 0);
        while let Some((entry, len, next)) =
            octets.get(at..).and_then(|rest| LogEntry::parse(rest, chain))
        {
            state.take_in(entry);
            (at, chain) = (at + len, next);
        }
        (state, at)
    }

    fn take_in(&mut self, LogEntry { epoch, kind }: LogEntry) {
        match kind {
            EntryKind::Boot => self.epoch = self.epoch.max(epoch),
            EntryKind::Client(client) => {
                self.clients.insert(client.record.owner.clone(), client);
            }
            EntryKind::Removed(owner) => drop(self.clients.remove(&owner)),
            EntryKind::WriteDelegations => self.write_delegations_in = Some(epoch),
            EntryKind::GraceEnded => {
                self.clients.retain(|_, client| client.complete_in == epoch);
                self.write_delegations_in = self.write_delegations_in.filter(|at| *at == epoch);
            }
            EntryKind::TakingOver(gateway) => drop(self.taking.insert(gateway)),
            EntryKind::TakenOver(gateway) => drop(self.taking.remove(&gateway)),
        }
    }

    /// The shortest log with this state, and its last checksum.
    fn log(&self) -> (Vec<u8>, Chain) {
        let (epoch, mut out, mut chain) = (self.epoch, Vec::new(), 0);
        let mut put = |epoch, kind| chain = LogEntry { epoch, kind }.emit(chain, &mut out);
        put(epoch, EntryKind::Boot);
        if let Some(epoch) = self.write_delegations_in {
            put(epoch, EntryKind::WriteDelegations);
        }
        for gateway in &self.taking {
            put(epoch, EntryKind::TakingOver(gateway.clone()));
        }
        for client in self.clients.values() {
            put(epoch, EntryKind::Client(client.clone()));
        }
        (out, chain)
    }

    fn reclaiming(&self) -> Vec<ClientRecord> {
        let clients = self.clients.values().filter(|client| client.may_reclaim);
        clients.map(|client| client.record.clone()).collect()
    }

    /// The entry of a change; none if it changes nothing.
    fn entry(&self, change: &RecordChange) -> Option<EntryKind> {
        Some(match change {
            RecordChange::Complete(record) => EntryKind::Client(LoggedClient {
                record: record.clone(),
                complete_in: self.epoch,
                may_reclaim: true,
            }),
            RecordChange::Forbid(owner) => {
                let client = self.clients.get(owner)?;
                EntryKind::Client(LoggedClient { may_reclaim: false, ..client.clone() })
            }
            RecordChange::Allow(owner) => {
                let client = self.clients.get(owner)?;
                EntryKind::Client(LoggedClient { may_reclaim: true, ..client.clone() })
            }
            RecordChange::Remove(owner) => {
                self.clients.get(owner)?;
                EntryKind::Removed(owner.clone())
            }
            RecordChange::WriteDelegations => {
                if self.write_delegations_in == Some(self.epoch) {
                    return None;
                }
                EntryKind::WriteDelegations
            }
            RecordChange::EndGrace => EntryKind::GraceEnded,
        })
    }
}

/// The log of one gateway.
#[derive(Debug)]
pub struct RecordLog<H> {
    home: H,
    /// The gateway's name, if there are several.
    gateway: Option<String>,
    state: LogState,
    len: usize,
    /// Bytes of the log when it was last rewritten.
    live_len: usize,
    chain: Chain,
    /// True if the log has to be rewritten because its end is unknown.
    is_unsure: bool,
    is_begun: bool,
}

impl<H: LogHome> RecordLog<H> {
    /// The log of the only gateway that uses this home.
    pub fn new(home: H) -> Self {
        Self::with_name(home, None)
    }

    /// The log of one of several gateways, each with a unique name: letters, digits, dots, hyphens
    /// and underscores.
    ///
    /// # Errors
    /// [`RecordError::Unfit`] for an invalid name.
    pub fn shared(home: H, gateway: &str) -> Result<Self, RecordError> {
        check_gateway(gateway)?;
        Ok(Self::with_name(home, Some(gateway.to_owned())))
    }

    fn with_name(home: H, gateway: Option<String>) -> Self {
        Self {
            home,
            gateway,
            state: LogState::default(),
            len: 0,
            live_len: 0,
            chain: 0,
            is_unsure: true,
            is_begun: false,
        }
    }

    fn name(&self) -> String {
        self.gateway.as_deref().map_or_else(|| "clients".to_owned(), log_of)
    }

    /// Rewrites the log with this state.
    fn rewrite(&mut self, state: LogState) -> Result<(), RecordError> {
        let (octets, chain) = state.log();
        self.is_unsure = true;
        self.home.replace(&self.name(), &octets)?;
        (self.state, self.chain) = (state, chain);
        (self.len, self.live_len) = (octets.len(), octets.len());
        self.is_unsure = false;
        Ok(())
    }

    /// Appends entries to the log and applies them to the state.
    fn add(&mut self, kinds: Vec<EntryKind>) -> Result<(), RecordError> {
        let epoch = self.state.epoch;
        let entries: Vec<_> = kinds.into_iter().map(|kind| LogEntry { epoch, kind }).collect();
        let is_long = self.len > LOG_SHARE * self.live_len + LOG_SLACK;
        if self.is_unsure || is_long {
            let mut state = self.state.clone();
            entries.into_iter().for_each(|entry| state.take_in(entry));
            return self.rewrite(state);
        }
        let (mut octets, mut chain) = (Vec::new(), self.chain);
        for entry in &entries {
            chain = entry.emit(chain, &mut octets);
        }
        self.is_unsure = true;
        self.home.append(&self.name(), self.len as u64, &octets)?;
        self.is_unsure = false;
        (self.len, self.chain) = (self.len + octets.len(), chain);
        entries.into_iter().for_each(|entry| self.state.take_in(entry));
        Ok(())
    }

    /// Fails once another gateway has taken over.
    fn must_be_ours(&mut self) -> Result<(), RecordError> {
        match &self.gateway {
            Some(gateway) if self.home.read(&marker_of(gateway))?.is_some() => {
                Err(RecordError::TakenOver)
            }
            _ => Ok(()),
        }
    }

    /// Restarts a gateway that was taken over, once the taker is done.
    fn come_back(&mut self) -> Result<(), RecordError> {
        let Some(gateway) = &self.gateway else { return Ok(()) };
        match self.home.read(&marker_of(gateway))? {
            None => Ok(()),
            Some(marker) if marker.ends_with(DONE) => self.home.remove(&marker_of(gateway)),
            Some(_) => Err(RecordError::Unfit(
                "another gateway is taking over the records of clients: wait until it is done",
            )),
        }
    }

    /// Takes over, or continues a takeover.
    fn finish_taking(&mut self, gateway: &str, own: &str) -> Result<(), RecordError> {
        let name = log_of(gateway);
        let octets = self.home.read(&name)?.unwrap_or_default();
        let (theirs, _) = LogState::replay(&octets);
        let mut state = self.state.clone();
        for (owner, client) in theirs.clients {
            let is_here =
                state.clients.get(&owner).is_some_and(|own| own.complete_in == state.epoch);
            if !is_here {
                // Complete in no boot of this gateway: forgotten at the end of its grace period.
                state.clients.insert(owner, LoggedClient { complete_in: 0, ..client });
            }
        }
        if state.clients.len() > CLIENTS_MAX {
            return Err(RecordError::Full);
        }
        if theirs.write_delegations_in.is_some() && state.write_delegations_in.is_none() {
            state.write_delegations_in = Some(0);
        }
        self.rewrite(state)?;
        let rest = LogState { epoch: theirs.epoch, ..LogState::default() };
        self.home.replace(&name, &rest.log().0)?;
        self.home.replace(&marker_of(gateway), &[own.as_bytes(), DONE].concat())?;
        self.add(vec![EntryKind::TakenOver(gateway.as_bytes().into())])
    }

    /// Continues takeovers that an earlier boot began.
    fn resume_taking(&mut self) -> Result<(), RecordError> {
        let Some(own) = self.gateway.clone() else { return Ok(()) };
        for gateway in self.state.taking.clone() {
            let name = String::from_utf8_lossy(&gateway).into_owned();
            let marker = self.home.read(&marker_of(&name))?;
            if marker.is_some_and(|marker| marker == [own.as_bytes(), BEGUN].concat()) {
                self.finish_taking(&name, &own)?;
            } else {
                self.add(vec![EntryKind::TakenOver(gateway)])?;
            }
        }
        Ok(())
    }
}

/// The words of a marker after the taker's name.
const BEGUN: &[u8] = b" begun";
const DONE: &[u8] = b" done";

fn log_of(gateway: &str) -> String {
    format!("{gateway}.clients")
}

fn marker_of(gateway: &str) -> String {
    format!("{gateway}.taken")
}

fn check_gateway(name: &str) -> Result<(), RecordError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(RecordError::Unfit(
            "a gateway is named by 1 to 64 letters, digits, dots, hyphens and underscores",
        ));
    }
    Ok(())
}

impl<H: LogHome> Records for RecordLog<H> {
    fn begin(&mut self) -> Result<Boot, RecordError> {
        self.come_back()?;
        let octets = self.home.read(&self.name())?.unwrap_or_default();
        let (mut state, whole) = LogState::replay(&octets);
        state.epoch = state.epoch.checked_add(1).ok_or(RecordError::Unfit(
            "the records of clients count no further boot: remove them",
        ))?;
        // RFC 8881 §2.4: an epoch is used when nothing can bring an earlier one back
        self.rewrite(state)?;
        self.resume_taking()?;
        self.is_begun = true;
        Ok(Boot {
            epoch: self.state.epoch,
            clients: self.state.reclaiming(),
            had_write_delegations: self.state.write_delegations_in.is_some(),
            torn_octets: (octets.len() - whole) as u64,
        })
    }

    fn apply(&mut self, changes: &[RecordChange]) -> Result<(), RecordError> {
        debug_assert!(self.is_begun, "records are begun first");
        let mut added = 0;
        for change in changes {
            if let RecordChange::Complete(record) = change {
                if record.owner.len() > OWNER_MAX {
                    return Err(RecordError::Unfit("an owner has at most 1,024 octets"));
                }
                added += usize::from(!self.state.clients.contains_key(&record.owner));
            }
        }
        if added > 0 && self.state.clients.len() + added > CLIENTS_MAX {
            return Err(RecordError::Full);
        }
        self.must_be_ours()?;
        // Each change is checked against the state after the earlier ones.
        let mut after = self.state.clone();
        let (mut kinds, epoch) = (Vec::new(), after.epoch);
        for change in changes {
            if let Some(kind) = after.entry(change) {
                after.take_in(LogEntry { epoch, kind: kind.clone() });
                kinds.push(kind);
            }
        }
        if !kinds.is_empty() {
            self.add(kinds)?;
            self.must_be_ours()?;
        }
        Ok(())
    }

    fn take_over(&mut self, gateway: &str) -> Result<Vec<ClientRecord>, RecordError> {
        check_gateway(gateway)?;
        let Some(own) = self.gateway.clone() else {
            return Err(RecordError::Unfit("only gateways that share a home take over records"));
        };
        if own == gateway || self.home.read(&log_of(gateway))?.is_none() {
            return Err(RecordError::Unfit("that gateway has no records to take over"));
        }
        self.must_be_ours()?;
        self.add(vec![EntryKind::TakingOver(gateway.as_bytes().into())])?;
        let begun = [own.as_bytes(), BEGUN].concat();
        if !self.home.create(&marker_of(gateway), &begun)?
            && self.home.read(&marker_of(gateway))? != Some(begun)
        {
            self.add(vec![EntryKind::TakenOver(gateway.as_bytes().into())])?;
            return Err(RecordError::Unfit("another gateway has taken over its records"));
        }
        self.finish_taking(gateway, &own)?;
        Ok(self.state.reclaiming())
    }
}
