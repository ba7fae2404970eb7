//! Client records (RFC 8881 §2.4, §18.35): confirmed ones, and those that wait for their first
//! CREATE_SESSION.
//!
//! A client ID is made of the epoch of this run, the place of the record and the number of its uses
//! ([`NameKey`]): it is not given twice, and cannot be guessed.

use std::collections::HashMap;

use stag_engine::{PeerAddress, Time};
use stag_protocol::{
    nfs::v4::{CreateSessionOk, Status4, Verifier4},
    rpc::Credential,
};

use super::{CLIENTS, Host, NameFacts, NameKey, Origins, UNCONFIRMED};
use crate::records::OriginMark;
use crate::v4::{settled::Settled, state::ClientKey};

/// The user that a client ID belongs to (RFC 8881 §2.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::v4) enum Principal {
    /// AUTH_NONE.
    Anyone,
    /// AUTH_SYS with this user.
    Unix(u32),
}

impl From<&Credential<'_>> for Principal {
    fn from(credential: &Credential<'_>) -> Self {
        match credential {
            Credential::Sys(sys) => Self::Unix(sys.uid),
            Credential::None | Credential::Other(_) => Self::Anyone,
        }
    }
}

/// The last reply to CREATE_SESSION: its own cache of one reply (RFC 8881 §18.36.4).
pub(in crate::v4) type CreateReply = Result<CreateSessionOk, Status4>;

/// A client record.
#[derive(Debug)]
pub(in crate::v4) struct Client {
    /// The client ID.
    pub(in crate::v4) id: u64,
    /// The name that the client gives itself.
    pub(in crate::v4) owner: Box<[u8]>,
    /// Its incarnation.
    pub(in crate::v4) verifier: Verifier4,
    /// The user that made the record.
    pub(in crate::v4) principal: Principal,
    /// The hosts whose connections may use its sessions and end it.
    pub(in crate::v4) origins: Origins,
    /// The host that it was made from, as its record has it.
    pub(in crate::v4) mark: OriginMark,
    /// The address that it was made from, for the log.
    pub(in crate::v4) from: PeerAddress,
    /// The incarnation that it replaced.
    pub(in crate::v4) former: Option<Verifier4>,
    /// True after the first CREATE_SESSION.
    pub(in crate::v4) is_confirmed: bool,
    /// Sequence ID of the last CREATE_SESSION.
    pub(in crate::v4) sequence: u32,
    /// The reply to it.
    pub(in crate::v4) created: Option<CreateReply>,
    /// Time at which the record was made. Until it is confirmed, it lives for a lease.
    pub(in crate::v4) made: Time,
    /// The client in the tables of state, once it is confirmed.
    pub(in crate::v4) key: Option<ClientKey>,
    /// Sessions.
    pub(in crate::v4) sessions: u32,
    /// Its persistent record.
    pub(in crate::v4) record: RecordPhase,
    /// The shard that judges its READs and WRITEs beside the home.
    pub(in crate::v4) settled: Settled,
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
    /// There is one until the client ends, which was asked for because it is expired.
    Leaving,
}

/// Facts of a new record.
#[derive(Debug)]
pub(in crate::v4) struct NewClient<'a> {
    pub(in crate::v4) owner: &'a [u8],
    pub(in crate::v4) verifier: Verifier4,
    pub(in crate::v4) principal: Principal,
    pub(in crate::v4) host: Host,
    pub(in crate::v4) mark: OriginMark,
    pub(in crate::v4) from: PeerAddress,
    pub(in crate::v4) now: Time,
}

/// The records of one owner: at most one confirmed, and one that is not yet.
#[derive(Clone, Copy, Debug, Default)]
struct OwnerRecords {
    confirmed: Option<u16>,
    unconfirmed: Option<u16>,
}

/// A place for a record.
#[derive(Debug, Default)]
struct ClientPlace {
    uses: u64,
    client: Option<Client>,
}

/// Octets of a record and its place in the list of owners, without the owner's name.
#[cfg(test)]
pub(super) const RECORD_LEN: usize =
    size_of::<ClientPlace>() + size_of::<OwnerRecords>() + size_of::<Box<[u8]>>();

/// All client records of a shard.
#[derive(Debug)]
pub(in crate::v4) struct Clients {
    epoch: u32,
    names: NameKey,
    places: Box<[ClientPlace]>,
    free: Vec<u16>,
    owners: HashMap<Box<[u8]>, OwnerRecords>,
    unconfirmed: usize,
}

impl Clients {
    /// None yet; `epoch` is not that of any other run, and `names` is secret.
    pub(in crate::v4) fn new(epoch: u32, names: NameKey) -> Self {
        const { assert!(CLIENTS <= u16::MAX as usize) };
        Self {
            epoch,
            names,
            places: std::iter::repeat_with(ClientPlace::default).take(CLIENTS).collect(),
            free: (0..CLIENTS as u16).rev().collect(),
            owners: HashMap::new(),
            unconfirmed: 0,
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

    /// The record of this client ID, to be changed.
    pub(in crate::v4) fn get_mut(&mut self, id: u64) -> Option<&mut Client> {
        let place = self.places.get_mut(usize::from(place_of(id)))?;
        place.client.as_mut().filter(|client| client.id == id)
    }

    /// The confirmed record of an owner.
    pub(in crate::v4) fn confirmed(&self, owner: &[u8]) -> Option<&Client> {
        self.at(self.owners.get(owner)?.confirmed?)
    }

    /// The record of an owner that is not confirmed yet.
    pub(in crate::v4) fn unconfirmed(&self, owner: &[u8]) -> Option<&Client> {
        self.at(self.owners.get(owner)?.unconfirmed?)
    }

    fn at(&self, place: u16) -> Option<&Client> {
        self.places.get(usize::from(place))?.client.as_ref()
    }

    /// Adds a record that is not confirmed, in place of one of the same owner, and returns its
    /// client ID. None when all places are taken by confirmed ones.
    pub(in crate::v4) fn add(&mut self, new: &NewClient<'_>) -> Option<u64> {
        if let Some(earlier) = self.unconfirmed(new.owner).map(|client| client.id) {
            self.remove(earlier);
        }
        if self.unconfirmed >= UNCONFIRMED || self.free.is_empty() {
            let oldest = self.oldest_unconfirmed()?;
            self.remove(oldest);
        }
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
            origins: Origins::new(new.host.origin()),
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
            settled: Settled::Nowhere,
        });
        self.owners.entry(new.owner.into()).or_default().unconfirmed = Some(number);
        self.unconfirmed += 1;
        Some(id)
    }

    fn oldest_unconfirmed(&self) -> Option<u64> {
        let all = self.places.iter().filter_map(|place| place.client.as_ref());
        let waiting = all.filter(|client| !client.is_confirmed);
        waiting.min_by_key(|client| client.made).map(|client| client.id)
    }

    /// Confirms a record. The caller has [removed](Self::remove) an earlier confirmed one of the
    /// owner.
    pub(in crate::v4) fn confirm(&mut self, id: u64, key: Option<ClientKey>) {
        let Some(client) = self.get_mut(id).filter(|client| !client.is_confirmed) else { return };
        (client.is_confirmed, client.key) = (true, key);
        let owner = std::mem::take(&mut client.owner);
        if let Some(records) = self.owners.get_mut(&owner) {
            debug_assert!(records.confirmed.is_none(), "an owner has one confirmed record");
            *records = OwnerRecords { confirmed: Some(place_of(id)), unconfirmed: None };
        }
        if let Some(client) = self.get_mut(id) {
            client.owner = owner;
        }
        self.unconfirmed -= 1;
    }

    /// Removes a record. Its sessions and its state are gone already.
    pub(in crate::v4) fn remove(&mut self, id: u64) -> Option<Client> {
        let number = place_of(id);
        let place = self.places.get_mut(usize::from(number))?;
        let client = place.client.take_if(|client| client.id == id)?;
        debug_assert_eq!(client.sessions, 0, "sessions end before their client");
        self.free.push(number);
        self.unconfirmed -= usize::from(!client.is_confirmed);
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

    /// The record at a place, for whoever goes through all of them.
    pub(in crate::v4) fn nth(&self, place: usize) -> Option<&Client> {
        self.places.get(place)?.client.as_ref()
    }
}

/// The place that a client ID names.
const fn place_of(id: u64) -> u16 {
    id as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_engine::PeerAddress;

    fn new(owner: &[u8], seconds: u64) -> NewClient<'_> {
        let now = Time(seconds * 1_000_000_000);
        let host = names().host(PeerAddress::Simulated, None);
        let mark = OriginMark::default();
        let principal = Principal::Unix(0);
        NewClient {
            owner,
            verifier: [1; 8],
            principal,
            host,
            mark,
            from: PeerAddress::Simulated,
            now,
        }
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
    fn the_oldest_record_that_nobody_confirmed_makes_room() {
        let mut clients = Clients::new(1, names());
        let owner = |number: usize| number.to_be_bytes();
        let ids: Vec<u64> = (0..UNCONFIRMED + 3)
            .map(|number| clients.add(&new(&owner(number), number as u64)).unwrap())
            .collect();
        assert_eq!(clients.len(), UNCONFIRMED);
        assert!(ids[..3].iter().all(|id| clients.get(*id).is_none()), "the oldest went");
        assert!(ids[3..].iter().all(|id| clients.get(*id).is_some()));
    }

    #[test]
    fn when_every_place_is_confirmed_nobody_is_added() {
        let mut clients = Clients::new(1, names());
        for number in 0..CLIENTS {
            let id = clients.add(&new(&number.to_be_bytes(), 0)).unwrap();
            clients.confirm(id, None);
        }
        assert_eq!(clients.add(&new(b"one more", 0)), None);
    }
}
