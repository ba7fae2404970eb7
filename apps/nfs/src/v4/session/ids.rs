//! Names that cannot be guessed (RFC 8881 §2.10.8.3): client IDs, session IDs and the tags of
//! origins, made with a secret key of the server's run.
//!
//! Each ID ends with the place of its entry, so that the lookup is direct; all octets before the
//! place come from SipHash-2-4 under the key.
//!
//! A gateway of a cluster gives session IDs that the others recognise: 64 bits of hash, 32 that
//! prove the cluster, 16 that name the gateway, and the place.

use core::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use stag_engine::PeerAddress;
use stag_protocol::nfs::v4::{SessionId, Verifier4};

use crate::records::OriginMark;

/// Kinds of IDs, which are hashed, too, so that IDs of different kinds never have the same input.
#[derive(Clone, Copy)]
#[repr(u8)]
enum NameKind {
    Client = 1,
    Session = 2,
    Origin = 3,
    Cluster = 4,
    Gateway = 5,
}

/// The key from which IDs of a run are made.
#[derive(Clone, Copy)]
pub(in crate::v4) struct NameKey {
    key: [u8; 16],
    cluster: Option<ClusterMarks>,
}

/// Marks in the session IDs of a gateway in a cluster.
#[derive(Clone, Copy)]
struct ClusterMarks {
    /// Secret of the cluster.
    key: [u8; 16],
    /// Identity of the gateway, the same after a restart.
    gateway: [u8; 16],
}

fn hash(key: &[u8; 16], kind: NameKind, parts: &[&[u8]]) -> u128 {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write_u8(kind as u8);
    parts.iter().for_each(|octets| hasher.write(octets));
    hasher.finish128().as_u128()
}

impl ClusterMarks {
    /// Octets of a session ID before the marks.
    const HEAD: usize = 8;
    /// Octets of it before the mark of the gateway, and before the place.
    const GATEWAY_AT: usize = 12;
    const PLACE_AT: usize = 14;

    /// A session ID with this head and place, and with the marks of this gateway.
    fn mark(&self, id: SessionId) -> SessionId {
        let (mut marked, place) = (id, id.get(Self::PLACE_AT..).unwrap_or_default());
        let head = id.get(..Self::HEAD).unwrap_or_default();
        let cluster = hash(&self.key, NameKind::Cluster, &[head, place]).to_be_bytes();
        let gateway = hash(&self.key, NameKind::Gateway, &[&self.gateway, head, place]);
        let marks = cluster.into_iter().take(Self::GATEWAY_AT - Self::HEAD);
        let marks = marks.chain(gateway.to_be_bytes()).take(Self::PLACE_AT - Self::HEAD);
        marked.iter_mut().skip(Self::HEAD).zip(marks).for_each(|(octet, mark)| *octet = mark);
        marked
    }
}

impl core::fmt::Debug for NameKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("NameKey")
    }
}

/// Origin of a connection: the host that it comes from, as far as the connection proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::v4) struct Origin(u64);

/// Facts that make an ID different from all others of its kind.
#[derive(Clone, Copy, Debug)]
pub(in crate::v4) struct NameFacts {
    /// Number of the server's run.
    pub(in crate::v4) epoch: u32,
    /// Number of entries that its place has had.
    pub(in crate::v4) uses: u64,
    /// The place.
    pub(in crate::v4) place: u16,
}

impl NameKey {
    pub(in crate::v4) const fn new(key: [u8; 16]) -> Self {
        Self { key, cluster: None }
    }

    /// The same for a gateway in a cluster with this secret.
    pub(in crate::v4) fn in_cluster(self, secret: Option<[u8; 16]>, gateway: [u8; 16]) -> Self {
        Self { cluster: secret.map(|key| ClusterMarks { key, gateway }), ..self }
    }

    fn hash(&self, kind: NameKind, octets: &[u8]) -> u128 {
        hash(&self.key, kind, &[octets])
    }

    fn hash_facts(&self, kind: NameKind, facts: NameFacts) -> u128 {
        let NameFacts { epoch, uses, place } = facts;
        let mut octets = [0; 14];
        let (numbers, end) = octets.split_at_mut(12);
        numbers.copy_from_slice(&(u128::from(epoch) << 64 | u128::from(uses)).to_be_bytes()[4..]);
        end.copy_from_slice(&place.to_be_bytes());
        self.hash(kind, &octets)
    }

    /// A client ID: 48 bits of hash, and the place.
    pub(in crate::v4) fn client(&self, facts: NameFacts) -> u64 {
        let hash = self.hash_facts(NameKind::Client, facts) as u64;
        hash << 16 | u64::from(facts.place)
    }

    /// A session ID: 112 bits of hash, or 64 and the marks of a cluster, and the place.
    pub(in crate::v4) fn session(&self, facts: NameFacts) -> SessionId {
        let hash = self.hash_facts(NameKind::Session, facts);
        let id = (hash << 16 | u128::from(facts.place)).to_be_bytes();
        self.cluster.map_or(id, |cluster| cluster.mark(id))
    }

    /// Returns true for a session ID that another gateway of the cluster has issued. A forged ID
    /// passes by chance once in 2^32 times.
    pub(in crate::v4) fn is_of_other_gateway(&self, id: &SessionId) -> bool {
        let Some(cluster) = &self.cluster else { return false };
        let own = cluster.mark(*id);
        let is_of_cluster =
            own.get(..ClusterMarks::GATEWAY_AT) == id.get(..ClusterMarks::GATEWAY_AT);
        is_of_cluster && own != *id
    }

    /// The host at the other end of a connection, with the names in its certificate if it presented
    /// one.
    pub(in crate::v4) fn host(&self, from: PeerAddress, names: Option<&CertificateNames>) -> Host {
        let of = |octets: &[u8; 17]| self.hash(NameKind::Origin, octets) as u64;
        let address = Origin(of(&octets_of(from)) & !Origin::CERTIFICATE);
        let certificate =
            names.map(|names| Origin(of(&octets_of_names(names)) | Origin::CERTIFICATE));
        Host { address, certificate }
    }
}

/// Hash of the names in a certificate.
pub(crate) type CertificateNames = [u8; 32];

impl Origin {
    /// Marks an origin that was proven by a certificate.
    const CERTIFICATE: u64 = 1;

    /// Its number, for tables that count by hosts.
    pub(in crate::v4) const fn number(self) -> u64 {
        self.0
    }

    const fn is_proven(self) -> bool {
        self.0 & Self::CERTIFICATE != 0
    }
}

/// The host at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::v4) struct Host {
    address: Origin,
    certificate: Option<Origin>,
}

impl Host {
    /// The origin by which the host is known: its certificate, or else its address.
    pub(in crate::v4) fn origin(&self) -> Origin {
        self.certificate.unwrap_or(self.address)
    }
}

/// The mark of the host of this peer, for the record of a client with this verifier.
pub(in crate::v4) fn mark_of(
    verifier: &Verifier4,
    from: PeerAddress,
    names: Option<&CertificateNames>,
) -> OriginMark {
    OriginMark::of(verifier, &names.map_or_else(|| octets_of(from), octets_of_names))
}

/// The octets of an address: a kind, and an address or the user of this host.
fn octets_of(from: PeerAddress) -> [u8; 17] {
    let (kind, number) = match from {
        PeerAddress::Ip(at) => match at.ip().to_canonical() {
            IpAddr::V4(ip) => (4, u128::from(u32::from(ip))),
            IpAddr::V6(ip) => (6, u128::from(ip)),
        },
        PeerAddress::Process { uid, .. } => (1, u128::from(uid)),
        PeerAddress::Simulated => (0, 0),
    };
    octets_with(kind, number.to_be_bytes())
}

/// The same for the names in a certificate.
fn octets_of_names(names: &CertificateNames) -> [u8; 17] {
    let ([first, _], _) = names.as_chunks::<16>() else { return [0; 17] };
    octets_with(2, *first)
}

fn octets_with(kind: u8, number: [u8; 16]) -> [u8; 17] {
    let mut octets = [kind; 17];
    let [_, rest @ ..] = &mut octets;
    *rest = number;
    octets
}

/// Limit of origins of a client's connections.
pub(in crate::v4) const ORIGINS_MAX: usize = 8;

/// The origins from which a client was created or has sent EXCHANGE_ID since, the latest first.
/// Beyond [`ORIGINS_MAX`] the oldest one makes room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origins([Origin; ORIGINS_MAX]);

impl Origins {
    /// The origin of a new record.
    pub(in crate::v4) const fn new(origin: Origin) -> Self {
        Self([origin; ORIGINS_MAX])
    }

    /// Returns true if connections of this host belong to the client. A client with a certificate
    /// is recognised only by that.
    pub(in crate::v4) fn know(&self, host: &Host) -> bool {
        self.0.contains(&host.origin()) || (!self.are_proven() && self.0.contains(&host.address))
    }

    /// Returns true if the host may be the client's, with another address.
    pub(in crate::v4) fn allow(&self, host: &Host) -> bool {
        !self.are_proven() || self.know(host)
    }

    fn are_proven(&self) -> bool {
        self.0.iter().any(|origin| origin.is_proven())
    }

    /// Adds an origin.
    pub(in crate::v4) fn add(&mut self, origin: Origin) {
        if !self.0.contains(&origin) {
            self.0.rotate_right(1);
            let [first, ..] = &mut self.0;
            *first = origin;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> NameFacts {
        NameFacts { epoch: 7, uses: 1, place: 3 }
    }

    #[test]
    fn a_name_ends_with_its_place_and_changes_with_each_fact_and_the_key() {
        let key = NameKey::new([9; 16]);
        let others = [
            (key, NameFacts { uses: 2, ..facts() }),
            (key, NameFacts { epoch: 8, ..facts() }),
            (key, NameFacts { place: 4, ..facts() }),
            (NameKey::new([8; 16]), facts()),
        ];
        let (client, session) = (key.client(facts()), key.session(facts()));
        assert_eq!((client as u16, &session[14..]), (3, &[0, 3][..]));
        assert_eq!((key.client(facts()), key.session(facts())), (client, session), "by the seed");
        for (key, facts) in others {
            assert_ne!(key.client(facts) >> 16, client >> 16);
            assert_ne!(key.session(facts)[..14], session[..14]);
            // The IDs differ in many bits.
            let differing = (key.client(facts) ^ client) >> 16;
            assert!(differing.count_ones() > 4, "{differing:x}");
        }
    }

    #[test]
    fn a_gateway_recognises_the_sessions_of_the_others_of_its_cluster_and_no_made_up_ones() {
        let secret = Some([1; 16]);
        let gateway = |key, gateway| NameKey::new([key; 16]).in_cluster(secret, [gateway; 16]);
        let (own, other) = (gateway(9, 5), gateway(8, 6));
        for place in 0..200 {
            let facts = NameFacts { place, ..facts() };
            let id = other.session(facts);
            assert_eq!(id[14..], place.to_be_bytes());
            assert!(own.is_of_other_gateway(&id) && !other.is_of_other_gateway(&id));
            // The same gateway after a restart has another key.
            let restarted = gateway(7, 6);
            assert!(!restarted.is_of_other_gateway(&id));
            let strangers =
                [NameKey::new([9; 16]), NameKey::new([9; 16]).in_cluster(Some([2; 16]), [5; 16])];
            for stranger in strangers {
                assert!(!stranger.is_of_other_gateway(&id));
                assert!(!own.is_of_other_gateway(&stranger.session(facts)));
            }
            for octet in 0..12 {
                let mut changed = id;
                changed[octet] ^= 1;
                assert!(!own.is_of_other_gateway(&changed), "{octet}");
            }
        }
    }

    #[test]
    fn an_origin_is_the_host_whatever_the_port_and_the_notation() {
        let key = NameKey::new([9; 16]);
        let of = |from| key.host(from, None).origin();
        let at = |text: &str| of(PeerAddress::Ip(text.parse().unwrap()));
        assert_eq!(at("192.0.2.1:700"), at("192.0.2.1:40000"));
        assert_eq!(at("192.0.2.1:700"), at("[::ffff:192.0.2.1]:9"));
        assert_ne!(at("192.0.2.1:700"), at("192.0.2.2:700"));
        assert_ne!(at("[2001:db8::1]:7"), at("[2001:db8::2]:7"));
        let process = |pid, uid| of(PeerAddress::Process { pid, uid });
        assert_eq!(process(1, 5), process(2, 5));
        assert_ne!(process(1, 5), process(1, 6));
    }

    #[test]
    fn a_certificate_proves_a_host_wherever_it_is_and_nothing_else_does_then() {
        let key = NameKey::new([9; 16]);
        let host = |address: &str, names: Option<u8>| {
            let names = names.map(|octet| [octet; 32]);
            key.host(PeerAddress::Ip(address.parse().unwrap()), names.as_ref())
        };
        let proven = Origins::new(host("192.0.2.1:1", Some(1)).origin());
        assert!(proven.know(&host("192.0.2.2:1", Some(1))));
        for other in [host("192.0.2.1:1", None), host("192.0.2.1:1", Some(2))] {
            assert!(!proven.know(&other) && !proven.allow(&other));
        }
        let believed = Origins::new(host("192.0.2.1:1", None).origin());
        assert!(believed.know(&host("192.0.2.1:1", Some(1))), "it has got a certificate");
        let other = host("192.0.2.2:1", Some(1));
        assert!(!believed.know(&other) && believed.allow(&other));
    }

    #[test]
    fn the_oldest_origin_makes_room_and_known_ones_take_none() {
        let even = |tag: u64| Origin(2 * tag);
        let knows = |origins: &Origins, tag| origins.0.contains(&even(tag));
        let mut origins = Origins::new(even(0));
        (1..ORIGINS_MAX as u64).chain([0, 3]).for_each(|tag| origins.add(even(tag)));
        assert!((0..ORIGINS_MAX as u64).all(|tag| knows(&origins, tag)));
        origins.add(even(100));
        assert!(knows(&origins, 100) && !knows(&origins, 0));
        assert!((1..ORIGINS_MAX as u64).all(|tag| knows(&origins, tag)));
    }
}
