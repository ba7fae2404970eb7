//! Client records (RFC 8881 §2.4, §18.35): confirmed ones, and those awaiting their first
//! CREATE_SESSION.
//!
//! A client ID consists of the epoch of this run, the place of the record and the number of its
//! uses ([`NameKey`]): it is never issued twice, and cannot be guessed.

use std::collections::{HashMap, hash_map::Entry};

use stag_engine::{PeerAddress, Time};
use stag_protocol::nfs::v4::{CreateSessionOk, Status4, Verifier4};

use super::{
    CLIENTS, Host, MachineGuard, NameFacts, NameKey, Origin, Origins, SESSIONS, SLOTS, SessionRoom,
    UNCONFIRMED,
};
use crate::records::{OriginMark, Principal};
use stag_nfs4_state::ClientKey;

/// The last reply to CREATE_SESSION, its reply cache of one entry (RFC 8881 §18.36.4).
pub(in crate::v4) type CreateReply = Result<CreateSessionOk, Status4>;

/// The shard, other than the home, that checks READ and WRITE of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::v4) enum CachedAt {
    /// None.
    #[default]
    Nowhere,
    /// This one.
    At(u16),
    /// The shard has been asked to drop its copy; it still answers requests in progress.
    Leaving,
}

/// A client record.
#[derive(Debug)]
pub(in crate::v4) struct Client {
    /// The client ID.
    pub(in crate::v4) id: u64,
    /// The name that the client gives itself.
    pub(in crate::v4) owner: Box<[u8]>,
    /// Its incarnation.
    pub(in crate::v4) verifier: Verifier4,
    /// The user that created the record.
    pub(in crate::v4) principal: Principal,
    /// Its protection by the credential of its machine, which is `principal`.
    pub(in crate::v4) guard: Option<MachineGuard>,
    /// The hosts whose connections may use its sessions and end it.
    pub(in crate::v4) origins: Origins,
    /// The host that it was created from, to which its places are charged.
    pub(in crate::v4) host: Origin,
    /// The same host, in the form of its record.
    pub(in crate::v4) mark: OriginMark,
    /// The address that it was created from, for the log.
    pub(in crate::v4) from: PeerAddress,
    /// The incarnation that it replaced.
    pub(in crate::v4) former: Option<Verifier4>,
    /// True after the first CREATE_SESSION.
    pub(in crate::v4) is_confirmed: bool,
    /// Sequence ID of the last CREATE_SESSION.
    pub(in crate::v4) sequence: u32,
    /// The reply to it.
    pub(in crate::v4) created: Option<CreateReply>,
    /// Time at which the record was created. Until it is confirmed, it is kept for a lease.
    pub(in crate::v4) made: Time,
    /// The client in the tables of state, once it is confirmed.
    pub(in crate::v4) key: Option<ClientKey>,
    /// Sessions.
    pub(in crate::v4) sessions: u32,
    /// Its persistent record.
    pub(in crate::v4) record: RecordPhase,
    /// The shard, other than the home, that checks its READs and WRITEs.
    pub(in crate::v4) settled: CachedAt,
}

/// Phase of a client's persistent record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::v4) enum RecordPhase {
    /// There is none.
    #[default]
    None,
    /// There may be one.
    Asked,
    /// There is one.
    Stable,
    /// There is one until the client ends, which was requested because it is expired.
    Leaving,
}

/// Facts of a new record.
#[derive(Debug)]
pub(in crate::v4) struct NewClient<'a> {
    pub(in crate::v4) owner: &'a [u8],
    pub(in crate::v4) verifier: Verifier4,
    pub(in crate::v4) principal: Principal,
    pub(in crate::v4) guard: Option<MachineGuard>,
    pub(in crate::v4) host: Host,
    pub(in crate::v4) mark: OriginMark,
    pub(in crate::v4) from: PeerAddress,
    pub(in crate::v4) now: Time,
}

/// The records of one owner: at most one confirmed and one unconfirmed.
#[derive(Clone, Copy, Debug, Default)]
struct OwnerRecords {
    confirmed: Option<u16>,
    unconfirmed: Option<u16>,
}

/// Places that a host has in the tables of clients and sessions.
#[derive(Clone, Copy, Debug, Default)]
struct HostPlaces {
    records: usize,
    unconfirmed: usize,
    sessions: usize,
    slots: usize,
}

/// Returns true if a host with `held` places may have one more. The table has `all` of them,
/// and `used` are taken. A host has a share while three times its own places are fewer than are
/// free: one host takes a quarter at most, and any number of hosts leave places to a newcomer.
const fn has_share(held: usize, used: usize, all: usize) -> bool {
    held.saturating_mul(3) < all.saturating_sub(used)
}

/// A place for a record.
#[derive(Debug, Default)]
struct RecordPlace {
    uses: u64,
    client: Option<Client>,
}

/// Octets of a record and its place in the list of owners, without the owner's name.
#[cfg(test)]
pub(super) const RECORD_LEN: usize =
    size_of::<RecordPlace>() + size_of::<OwnerRecords>() + size_of::<Box<[u8]>>();

/// All client records of a shard.
#[derive(Debug)]
pub(in crate::v4) struct Clients {
    epoch: u32,
    names: NameKey,
    places: Box<[RecordPlace]>,
    free: Vec<u16>,
    owners: HashMap<Box<[u8]>, OwnerRecords>,
    hosts: HashMap<Origin, HostPlaces>,
    /// Places of the unconfirmed records, the oldest first.
    unconfirmed: Vec<u16>,
}

impl Clients {
    /// No records yet; `epoch` differs from that of every other run, and `names` is secret.
    pub(in crate::v4) fn new(epoch: u32, names: NameKey) -> Self {
        const { assert!(CLIENTS <= u16::MAX as usize) };
        Self {
            epoch,
            names,
            places: std::iter::repeat_with(RecordPlace::default).take(CLIENTS).collect(),
            free: (0..CLIENTS as u16).rev().collect(),
            owners: HashMap::new(),
            hosts: HashMap::new(),
            unconfirmed: Vec::with_capacity(UNCONFIRMED),
        }
    }

    /// Number of records.
    pub(in crate::v4) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The record of this client ID.
    pub(in crate::v4) fn get(&self, id: u64) -> Option<&Client> {
        self.at(place_of(id)).filter(|client| client.id == id)
    }

    /// The record of this client ID, for changes.
    pub(in crate::v4) fn get_mut(&mut self, id: u64) -> Option<&mut Client> {
        let place = self.places.get_mut(usize::from(place_of(id)))?;
        place.client.as_mut().filter(|client| client.id == id)
    }

    /// The confirmed record of an owner.
    pub(in crate::v4) fn confirmed(&self, owner: &[u8]) -> Option<&Client> {
        self.at(self.owners.get(owner)?.confirmed?)
    }

    /// The unconfirmed record of an owner.
    pub(in crate::v4) fn unconfirmed(&self, owner: &[u8]) -> Option<&Client> {
        self.at(self.owners.get(owner)?.unconfirmed?)
    }

    fn at(&self, place: u16) -> Option<&Client> {
        self.places.get(usize::from(place))?.client.as_ref()
    }

    /// Adds an unconfirmed record, in place of one of the same owner, and returns its client ID.
    /// Another unconfirmed record may make room: of the same host if that has used its share, or
    /// else of the host that has most of them. None when neither has any.
    pub(in crate::v4) fn add(&mut self, new: &NewClient<'_>) -> Option<u64> {
        if let Some(earlier) = self.unconfirmed(new.owner).map(|client| client.id) {
            self.remove(earlier);
        }
        let host = new.host.origin();
        self.make_room(host)?;
        let number = self.free.pop()?;
        let place = self.places.get_mut(usize::from(number))?;
        place.uses = place.uses.wrapping_add(1);
        let (epoch, uses) = (self.epoch, place.uses);
        let id = self.names.client(NameFacts { epoch, uses, place: number });
        place.client = Some(Client {
            id,
            owner: new.owner.into(),
            verifier: new.verifier,
            principal: new.principal,
            guard: new.guard,
            origins: Origins::new(host),
            host,
            mark: new.mark,
            from: new.from,
            former: None,
            is_confirmed: false,
            sequence: 0,
            created: None,
            made: new.now,
            key: None,
            sessions: 0,
            record: RecordPhase::None,
            settled: CachedAt::Nowhere,
        });
        self.owners.entry(new.owner.into()).or_default().unconfirmed = Some(number);
        self.unconfirmed.push(number);
        let places = self.hosts.entry(host).or_default();
        (places.records, places.unconfirmed) = (places.records + 1, places.unconfirmed + 1);
        Some(id)
    }

    /// Makes room for a record of a host, if there is none.
    fn make_room(&mut self, host: Origin) -> Option<()> {
        let held = self.places_of(host);
        let has_place = has_share(held.records, self.len(), CLIENTS);
        let may_wait = has_share(held.unconfirmed, self.unconfirmed.len(), UNCONFIRMED);
        if has_place && may_wait {
            return Some(());
        }
        let waiting = || self.unconfirmed.iter().filter_map(|place| self.at(*place));
        let oldest = match waiting().find(|client| client.host == host) {
            Some(own) => own.id,
            None if held.records > 0 && !has_place => return None,
            None => {
                let count = |client: &&Client| self.places_of(client.host).unconfirmed;
                waiting().rev().max_by_key(count)?.id
            }
        };
        self.remove(oldest);
        Some(())
    }

    fn places_of(&self, host: Origin) -> HostPlaces {
        self.hosts.get(&host).copied().unwrap_or_default()
    }

    /// Changes the places of a host, which is dropped when it has none.
    fn change_places(&mut self, host: Origin, change: impl FnOnce(&mut HostPlaces)) {
        let Entry::Occupied(mut entry) = self.hosts.entry(host) else { return };
        change(entry.get_mut());
        if entry.get().records == 0 {
            entry.remove();
        }
    }

    /// Slots, at most `granted`, that a new session of a client gets within the share of its host.
    /// None when the host has used its share of sessions or of slots. `used` counts the places of
    /// all hosts.
    pub(in crate::v4) fn share_of_slots(
        &self,
        id: u64,
        granted: u32,
        used: SessionRoom,
    ) -> Option<u32> {
        let held = self.places_of(self.get(id)?.host);
        if !has_share(held.sessions, used.sessions, SESSIONS)
            || !has_share(held.slots, used.slots, SLOTS)
        {
            return None;
        }
        // The nearer the host is to its share, the fewer slots each of its sessions gets; one slot
        // is reserved for each session that it may still create.
        let left = |all: usize, used: usize, held: usize| {
            (all.saturating_sub(used) / 3).saturating_sub(held)
        };
        let to_come = left(SESSIONS, used.sessions, held.sessions);
        let left = left(SLOTS, used.slots, held.slots).saturating_sub(to_come);
        Some(granted.min(u32::try_from(left / 16).unwrap_or(u32::MAX)).max(1))
    }

    /// Counts a new session of a client.
    pub(in crate::v4) fn count_session(&mut self, id: u64, slots: u32) {
        let Some(client) = self.get_mut(id) else { return };
        client.sessions += 1;
        let host = client.host;
        self.change_places(host, |places| {
            (places.sessions, places.slots) = (places.sessions + 1, places.slots + slots as usize);
        });
    }

    /// Counts the end of a session.
    pub(in crate::v4) fn count_session_end(&mut self, id: u64, slots: u32) {
        let Some(client) = self.get_mut(id) else { return };
        client.sessions -= 1;
        let host = client.host;
        self.change_places(host, |places| {
            (places.sessions, places.slots) = (places.sessions - 1, places.slots - slots as usize);
        });
    }

    /// Confirms a record. The caller has [removed](Self::remove) an earlier confirmed one of the
    /// owner.
    pub(in crate::v4) fn confirm(&mut self, id: u64, key: Option<ClientKey>) {
        let Some(client) = self.get_mut(id).filter(|client| !client.is_confirmed) else { return };
        (client.is_confirmed, client.key) = (true, key);
        let host = client.host;
        let owner = std::mem::take(&mut client.owner);
        if let Some(records) = self.owners.get_mut(&owner) {
            debug_assert!(records.confirmed.is_none(), "an owner has one confirmed record");
            *records = OwnerRecords { confirmed: Some(place_of(id)), unconfirmed: None };
        }
        if let Some(client) = self.get_mut(id) {
            client.owner = owner;
        }
        self.forget_waiting(place_of(id), host);
    }

    /// Removes a record from the unconfirmed ones, because it was confirmed or removed.
    fn forget_waiting(&mut self, place: u16, host: Origin) {
        self.unconfirmed.retain(|waiting| *waiting != place);
        self.change_places(host, |places| places.unconfirmed -= 1);
    }

    /// Removes a record. Its sessions and its state have ended before.
    pub(in crate::v4) fn remove(&mut self, id: u64) -> Option<Client> {
        let number = place_of(id);
        let place = self.places.get_mut(usize::from(number))?;
        let client = place.client.take_if(|client| client.id == id)?;
        debug_assert_eq!(client.sessions, 0, "sessions end before their client");
        self.free.push(number);
        if !client.is_confirmed {
            self.forget_waiting(number, client.host);
        }
        self.change_places(client.host, |places| places.records -= 1);
        if let Some(records) = self.owners.get_mut(&client.owner) {
            let record = match client.is_confirmed {
                true => &mut records.confirmed,
                false => &mut records.unconfirmed,
            };
            record.take_if(|place| *place == number);
            if records.confirmed.or(records.unconfirmed).is_none() {
                self.owners.remove(&client.owner);
            }
        }
        Some(client)
    }

    /// The record at a place, for iteration over all of them.
    pub(in crate::v4) fn nth(&self, place: usize) -> Option<&Client> {
        self.places.get(place)?.client.as_ref()
    }
}

/// The place in a client ID.
const fn place_of(id: u64) -> u16 {
    id as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_engine::PeerAddress;

    fn new(owner: &[u8], seconds: u64) -> NewClient<'_> {
        from(PeerAddress::Simulated, owner, seconds)
    }

    fn from(address: PeerAddress, owner: &[u8], seconds: u64) -> NewClient<'_> {
        let now = Time(seconds * 1_000_000_000);
        let host = names().host(address, None);
        let mark = OriginMark::default();
        let principal = Principal::Unix(0);
        NewClient {
            owner,
            verifier: [1; 8],
            principal,
            guard: None,
            host,
            mark,
            from: PeerAddress::Simulated,
            now,
        }
    }

    /// One host out of many.
    fn host(number: usize) -> PeerAddress {
        let [.., high, low] = number.to_be_bytes();
        PeerAddress::Ip(([10, 0, high, low], 700).into())
    }

    fn names() -> NameKey {
        NameKey::new([3; 16])
    }

    #[test]
    fn no_client_id_is_given_twice() {
        let mut clients = Clients::new(7, names());
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1_000 {
            let id = clients.add(&new(b"a", 0)).unwrap();
            assert!(seen.insert(id), "{id:x}");
        }
        assert_eq!(clients.len(), 1, "a new record takes the place of the one before");
    }

    #[test]
    fn an_owner_has_one_confirmed_record_and_one_that_waits() {
        let mut clients = Clients::new(1, names());
        let first = clients.add(&new(b"a", 0)).unwrap();
        clients.confirm(first, None);
        let second = clients.add(&new(b"a", 1)).unwrap();
        assert_eq!(clients.confirmed(b"a").unwrap().id, first);
        assert_eq!(clients.unconfirmed(b"a").unwrap().id, second);
        clients.remove(first);
        clients.confirm(second, None);
        assert_eq!(clients.confirmed(b"a").unwrap().id, second);
        assert!(clients.unconfirmed(b"a").is_none() && clients.get(first).is_none());
        clients.remove(second);
        assert_eq!((clients.len(), clients.owners.len()), (0, 0), "nothing is left behind");
    }

    #[test]
    fn a_host_recycles_its_own_records_that_wait_and_those_of_others_stay() {
        let mut clients = Clients::new(1, names());
        let other = clients.add(&from(host(1), b"other", 0)).unwrap();
        let owners: Vec<_> = (0..4 * UNCONFIRMED).map(usize::to_be_bytes).collect();
        let flood: Vec<u64> =
            owners.iter().map(|owner| clients.add(&from(host(2), owner, 1)).unwrap()).collect();
        assert!(clients.get(other).is_some(), "it is older than all of them");
        let left: Vec<_> = flood.iter().filter(|id| clients.get(**id).is_some()).collect();
        assert_eq!(left.len(), UNCONFIRMED / 4, "a quarter");
        assert!(left.into_iter().eq(&flood[flood.len() - UNCONFIRMED / 4..]), "the latest");
        clients.confirm(other, None);
        assert_eq!(clients.confirmed(b"other").unwrap().id, other);
    }

    #[test]
    fn a_newcomer_finds_room_when_many_hosts_have_records_that_wait() {
        let mut clients = Clients::new(1, names());
        let owners: Vec<_> = (0..2 * UNCONFIRMED).map(usize::to_be_bytes).collect();
        for round in 0..4 {
            for (number, owner) in owners.iter().enumerate() {
                let name = [&owner[..], &[round]].concat();
                clients.add(&from(host(number), &name, 0)).unwrap();
            }
        }
        assert!(clients.unconfirmed.len() <= UNCONFIRMED);
        assert_eq!(clients.len(), clients.unconfirmed.len());
        let newcomer = clients.add(&from(host(9_999), b"new", 9)).unwrap();
        let next = clients.add(&from(host(9_998), b"next", 9)).unwrap();
        assert!(clients.get(newcomer).is_some() && clients.get(next).is_some());
    }

    #[test]
    fn one_host_takes_a_quarter_of_the_records_and_others_find_places() {
        let mut clients = Clients::new(1, names());
        let take = |clients: &mut Clients, from_host| {
            let mut count = 0_usize;
            loop {
                let owner = [host(from_host).to_string().as_bytes(), &count.to_be_bytes()].concat();
                let Some(id) = clients.add(&from(host(from_host), &owner, 0)) else { break count };
                clients.confirm(id, None);
                count += 1;
            }
        };
        let taken = take(&mut clients, 1);
        assert_eq!(taken, CLIENTS.div_ceil(4));
        assert_eq!(clients.add(&from(host(1), b"one more", 0)), None);
        let all: Vec<usize> = (2..12).map(|other| take(&mut clients, other)).collect();
        assert!(all.is_sorted_by(|a, b| a >= b) && all.iter().all(|count| *count > 0), "{all:?}");
        let id = clients.add(&from(host(99), b"newcomer", 0)).unwrap();
        clients.confirm(id, None);
        assert!(clients.get(id).is_some(), "eleven hosts leave room for another");
        let all: Vec<u64> = (0..CLIENTS).filter_map(|it| Some(clients.nth(it)?.id)).collect();
        all.into_iter().for_each(|id| drop(clients.remove(id)));
        assert!(clients.hosts.is_empty() && clients.owners.is_empty(), "all places are free");
    }

    #[test]
    fn one_host_takes_a_quarter_of_sessions_and_slots() {
        let mut clients = Clients::new(1, names());
        let mut used = SessionRoom { sessions: 0, slots: 0 };
        let mut take = |clients: &mut Clients, from_host| {
            let mut granted = Vec::new();
            for number in 0_usize.. {
                let owner =
                    [host(from_host).to_string().as_bytes(), &number.to_be_bytes()].concat();
                let Some(id) = clients.add(&from(host(from_host), &owner, 0)) else { break };
                let Some(slots) = clients.share_of_slots(id, 64, used) else { break };
                clients.confirm(id, None);
                clients.count_session(id, slots);
                used.sessions += 1;
                used.slots += slots as usize;
                granted.push(slots);
            }
            granted
        };
        let granted = take(&mut clients, 1);
        assert!(granted.len() > 2_000, "each of its clients has a session: {}", granted.len());
        assert!(granted.is_sorted_by(|a, b| a >= b), "fewer and fewer");
        assert_eq!((granted.first(), granted.last()), (Some(&64), Some(&1)));
        let slots: u32 = granted.iter().sum();
        assert!((slots as usize) <= SLOTS / 4 + 1, "{slots}");
        assert_eq!(take(&mut clients, 2).first(), Some(&64), "another host has not noticed");
    }
}
