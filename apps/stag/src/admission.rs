//! Admission of peers: by network, and where callers can name any user, by port (DESIGN D12).

use crate::args::cidr;
use ipnet::IpNet;
use stag_engine::{Admission, Over, clock::Clock};
use stag_nfs::ConnectionPolicy;
use stag_nfs_store::log_rate::EventRate;
use stag_verbs::{PeerAddress, source};
use std::{
    collections::HashMap,
    fmt, fs,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

/// The peers that may connect.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    /// The configured networks; without any, this host by its loopback addresses.
    networks: Vec<IpNet>,
    /// Callers have to prove that they are privileged on their host.
    pub must_be_privileged: bool,
    /// Connections of one address at a time, if there is a limit.
    per_address: Option<u32>,
}

/// The reason for which a peer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Unlisted,
    Port,
    LocalPort,
    User(u32),
    Crowd(u32),
}

/// Rates of logged refusals, one per reason: a client that keeps retrying neither fills the log nor
/// hides the others.
#[derive(Debug)]
struct RefusalRates {
    clock: Clock,
    unlisted: EventRate,
    port: EventRate,
    local_port: EventRate,
    user: EventRate,
    crowd: EventRate,
}

impl RefusalRates {
    fn new() -> Self {
        Self {
            clock: Clock::start(),
            unlisted: EventRate::new("refusals by --clients"),
            port: EventRate::new("refusals by port"),
            local_port: EventRate::new("refusals by port on this host"),
            user: EventRate::new("refusals by user"),
            crowd: EventRate::new("refusals by --connections-per-address"),
        }
    }

    /// Returns true if a refusal is to be logged.
    fn allows(&mut self, why: Refusal) -> bool {
        let now = self.clock.now();
        let rate = match why {
            Refusal::Unlisted => &mut self.unlisted,
            Refusal::Port => &mut self.port,
            Refusal::LocalPort => &mut self.local_port,
            Refusal::User(_) => &mut self.user,
            Refusal::Crowd(_) => &mut self.crowd,
        };
        rate.allows(now)
    }

    fn settle(&mut self) {
        let now = self.clock.now();
        let Self { unlisted, port, local_port, user, crowd, .. } = self;
        for rate in [unlisted, port, local_port, user, crowd] {
            rate.settle(now);
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlisted => f.write_str("not in --clients"),
            Self::Port => f.write_str(
                "its port is above 1023, which any user can take (see WHO MAY CONNECT \
                             in --help)",
            ),
            Self::LocalPort => f.write_str(
                "it calls from this host, by a port above 1023, which any user can take (see WHO \
                 MAY CONNECT in --help)",
            ),
            Self::Crowd(most) => {
                write!(f, "its address has {most} connections already (--connections-per-address)")
            }
            Self::User(uid) => {
                write!(
                    f,
                    "its user, {uid}, is not root and could name any other (see SHARED \
                           MEMORY in --help)"
                )
            }
        }
    }
}

impl Clients {
    /// Peers from `networks`, from any port.
    pub const fn new(networks: Vec<IpNet>, per_address: Option<u32>) -> Self {
        Self { networks, must_be_privileged: false, per_address }
    }

    /// True if this host is among the clients.
    fn lists(&self, address: IpAddr) -> bool {
        match self.networks.as_slice() {
            [] => address.to_canonical().is_loopback(),
            networks => networks.iter().any(|network| cidr::contains(network, address)),
        }
    }

    /// Decides on a peer. `is_local` returns true for addresses of this host.
    fn judge(
        &self,
        peer: PeerAddress,
        over: Over,
        is_local: impl FnOnce(SocketAddr) -> bool,
    ) -> Result<(), Refusal> {
        match peer {
            PeerAddress::Ip(address) if !self.lists(address.ip()) => Err(Refusal::Unlisted),
            PeerAddress::Ip(address)
                if !self.must_be_privileged || source::is_reserved(address.port()) =>
            {
                Ok(())
            }
            PeerAddress::Ip(_) if over == Over::Tcp => Err(Refusal::Port),
            // Linux's NFS over RDMA uses any port, and its server checks none: over RDMA a port of
            // another host proves nothing. A process of this host may be any user's.
            PeerAddress::Ip(address) if is_local(address) => Err(Refusal::LocalPort),
            PeerAddress::Ip(_) => Ok(()),
            // The fabric let its user in (`--shm-allow`), and the kernel gives its identity.
            PeerAddress::Process { uid, .. } if self.must_be_privileged && uid != 0 => {
                Err(Refusal::User(uid))
            }
            PeerAddress::Process { .. } => Ok(()),
            PeerAddress::Simulated => Err(Refusal::Unlisted),
        }
    }

    /// True if the calling user is root of its host, as far as a connection can prove that.
    fn is_proven(&self, peer: PeerAddress, over: Over) -> bool {
        let asked = Self { must_be_privileged: true, ..self.clone() };
        !matches!(
            asked.judge(peer, over, is_of_this_host),
            Err(Refusal::Port | Refusal::LocalPort | Refusal::User(_))
        )
    }

    /// The same in the form a shard needs, for lists that do not change.
    pub fn admission(self, over: Over) -> Admission {
        Arc::new(AdmissionTable::new(self)).admission(over)
    }
}

/// The peers that may connect, which may change, and the number of connections of each address: one
/// table for all shards.
#[derive(Debug)]
pub struct AdmissionTable {
    clients: RwLock<Clients>,
    edition: AtomicU64,
    /// Open connections, by address. No more than all shards together can have.
    open: Mutex<HashMap<IpAddr, u32>>,
    logged: Mutex<RefusalRates>,
}

impl AdmissionTable {
    /// A table that admits `clients`.
    pub fn new(clients: Clients) -> Self {
        let clients = RwLock::new(clients);
        let logged = Mutex::new(RefusalRates::new());
        Self { clients, edition: AtomicU64::new(0), open: Mutex::default(), logged }
    }

    /// Admits other clients from here on. Each shard disconnects clients that are no longer
    /// admitted in one of its next passes.
    pub fn replace(&self, clients: Clients) {
        *self.clients.write().unwrap_or_else(PoisonError::into_inner) = clients;
        self.edition.fetch_add(1, Ordering::Release);
    }

    fn clients(&self) -> RwLockReadGuard<'_, Clients> {
        self.clients.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, peer: PeerAddress, over: Over) -> Result<(), Refusal> {
        let clients = self.clients();
        clients.judge(peer, over, is_of_this_host)?;
        let (Some(most), PeerAddress::Ip(at)) = (clients.per_address, peer) else { return Ok(()) };
        let has = self.open().get(&at.ip().to_canonical()).copied().unwrap_or(0);
        if has < most { Ok(()) } else { Err(Refusal::Crowd(most)) }
    }

    fn logged(&self) -> MutexGuard<'_, RefusalRates> {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs the number of refusals that were not logged, once their second is over. Called
    /// periodically.
    pub fn settle_with_the_log(&self) {
        self.logged().settle();
    }

    /// The admission check for peers that ask to connect. Logs a limited number of refusals a
    /// second for each reason.
    pub fn admission(self: Arc<Self>, over: Over) -> Admission {
        Box::new(move |peer| match self.judge(peer, over) {
            Ok(()) => true,
            Err(why) => {
                if self.logged().allows(why) {
                    tracing::warn!(target: "stag", %peer, "refused: {why}");
                }
                false
            }
        })
    }
}

impl ConnectionPolicy for AdmissionTable {
    fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    fn admits(&self, peer: PeerAddress, over: Over) -> bool {
        self.clients().judge(peer, over, is_of_this_host).is_ok()
    }

    fn is_proven(&self, peer: PeerAddress, over: Over) -> bool {
        self.clients().is_proven(peer, over)
    }

    fn opened(&self, peer: PeerAddress) -> bool {
        let PeerAddress::Ip(at) = peer else { return true };
        let most = self.clients().per_address.unwrap_or(u32::MAX);
        let mut open = self.open();
        let count = open.entry(at.ip().to_canonical()).or_default();
        *count = count.saturating_add(1);
        *count <= most
    }

    fn closed(&self, peer: PeerAddress) {
        let PeerAddress::Ip(at) = peer else { return };
        let (ip, mut open) = (at.ip().to_canonical(), self.open());
        if let Some(count) = open.get_mut(&ip) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.remove(&ip);
            }
        }
    }
}

/// True if `address` belongs to this host: sockets can be bound to such addresses only. Where they
/// can be bound to any (`net.ipv4.ip_nonlocal_bind`), all addresses count as this host's.
fn is_of_this_host(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback() || {
        let ip = address.ip().to_canonical();
        let mut any_port = if ip == address.ip() { address } else { SocketAddr::new(ip, 0) };
        any_port.set_port(0);
        UdpSocket::bind(any_port).is_ok()
    }
}

/// The lowest port that any user of this host may take.
pub fn first_open_port() -> u16 {
    /// The value that Linux begins with.
    const USUAL: u16 = 1_024;
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(networks: &[&str], must_be_privileged: bool) -> Clients {
        let networks =
            networks.iter().map(|text| cidr::parse(text, "--clients").unwrap()).collect();
        Clients { networks, must_be_privileged, per_address: None }
    }

    fn peer(address: &str, port: u16) -> PeerAddress {
        PeerAddress::Ip(SocketAddr::new(address.parse().unwrap(), port))
    }

    #[test]
    fn without_networks_this_host_is_admitted_and_nobody_else() {
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!((Clients::default().admission(Over::Tcp))(peer(address, 40_000)), "{address}");
        }
        for address in ["10.1.2.3", "fe80::1", "0.0.0.0", "::"] {
            assert!(!(Clients::default().admission(Over::Tcp))(peer(address, 700)), "{address}");
        }
        assert!(!(Clients::default().admission(Over::Fabric))(PeerAddress::Simulated));
        assert!((Clients::default().admission(Over::Fabric))(PeerAddress::Process {
            pid: 1,
            uid: 1000
        }));
    }

    #[test]
    fn networks_are_the_whole_list_and_loopback_is_no_exception() {
        let listed = clients(&["10.0.0.0/8", "fd00::/8"], false);
        for address in ["10.1.2.3", "fd00::1", "::ffff:10.9.9.9"] {
            assert!((listed.clone().admission(Over::Fabric))(peer(address, 40_000)), "{address}");
        }
        for address in ["127.0.0.1", "::1", "11.1.2.3", "fe80::1", "0.0.0.0"] {
            assert!(!(listed.clone().admission(Over::Tcp))(peer(address, 700)), "{address}");
        }
        assert!((clients(&["127.0.0.0/8"], false).admission(Over::Tcp))(peer("127.0.0.1", 40_000)));
    }

    #[test]
    fn where_callers_name_any_user_ports_above_1023_are_refused_but_over_rdma_from_other_hosts() {
        let clients = clients(&["0.0.0.0/0"], true);
        let judge = |port, over, local| clients.judge(peer("10.0.0.7", port), over, |_| local);
        for over in [Over::Fabric, Over::Tcp] {
            for local in [true, false] {
                for port in [1, 665, 1_023] {
                    assert_eq!(judge(port, over, local), Ok(()), "{port}");
                }
            }
        }
        for port in [1_024, 38_972, 65_535] {
            for local in [true, false] {
                assert_eq!(judge(port, Over::Tcp, local), Err(Refusal::Port));
            }
            assert_eq!(judge(port, Over::Fabric, true), Err(Refusal::LocalPort));
            assert_eq!(judge(port, Over::Fabric, false), Ok(()));
        }
        let process =
            |uid| clients.judge(PeerAddress::Process { pid: 9, uid }, Over::Fabric, |_| true);
        assert_eq!((process(0), process(1_000)), (Ok(()), Err(Refusal::User(1_000))));
    }

    #[test]
    fn one_connection_too_many_of_an_address_is_refused_until_another_of_it_ends() {
        let clients = Clients { per_address: Some(2), ..clients(&["10.0.0.0/8"], false) };
        let table = Arc::new(AdmissionTable::new(clients));
        let admits = || Arc::clone(&table).admission(Over::Tcp);
        let (one, other) = (peer("10.0.0.1", 40_000), peer("10.0.0.2", 40_000));
        for address in ["10.0.0.1", "::ffff:10.0.0.1"] {
            assert!(admits()(one) && table.opened(peer(address, 1)), "{address}");
        }
        assert!(!admits()(one) && admits()(other));
        assert!(!table.opened(one), "one that was admitted at the same moment");
        table.closed(one);
        assert!(!admits()(one));
        table.closed(one);
        assert!(admits()(one));
        table.closed(one);
        table.closed(one);
        assert!(table.open().is_empty(), "addresses without connections take no memory");
        assert!(admits()(one) && !admits()(peer("127.0.0.1", 1)));
    }

    #[test]
    fn a_stranger_who_keeps_knocking_hides_no_other_reason() {
        let mut rates = RefusalRates::new();
        while rates.allows(Refusal::Unlisted) {}
        assert!(rates.unlisted.has_left_out());
        for why in [Refusal::Port, Refusal::LocalPort, Refusal::User(7), Refusal::Crowd(1)] {
            assert!(rates.allows(why), "{why}");
        }
    }

    #[test]
    fn lists_that_are_replaced_count_from_then_on_and_in_a_new_edition() {
        let table = AdmissionTable::new(clients(&["10.0.0.0/8"], false));
        let edition = table.edition();
        assert!(table.admits(peer("10.0.0.1", 9), Over::Fabric));
        table.replace(clients(&["10.1.0.0/16"], false));
        assert!(table.edition() != edition && !table.admits(peer("10.0.0.1", 9), Over::Fabric));
        assert!(table.admits(peer("10.1.0.1", 9), Over::Fabric));
    }

    #[test]
    fn a_connection_proves_root_of_its_host_by_a_port_or_as_the_kernel_says() {
        let table = AdmissionTable::new(clients(&["0.0.0.0/0"], false));
        for (peer, over, expected) in [
            (peer("10.0.0.7", 700), Over::Tcp, true),
            (peer("10.0.0.7", 7_000), Over::Tcp, false),
            (peer("192.0.2.7", 7_000), Over::Fabric, true),
            (peer("127.0.0.1", 7_000), Over::Fabric, false),
            (PeerAddress::Process { pid: 1, uid: 0 }, Over::Fabric, true),
            (PeerAddress::Process { pid: 1, uid: 7 }, Over::Fabric, false),
        ] {
            let believed = fs::read_to_string("/proc/sys/net/ipv4/ip_nonlocal_bind");
            if believed.is_ok_and(|text| text.trim() != "0") && expected {
                continue;
            }
            assert_eq!(table.is_proven(peer, over), expected, "{peer}");
        }
    }

    #[test]
    fn this_host_knows_its_own_addresses() {
        for own in ["127.0.0.1:9", "127.3.4.5:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
            assert!(is_of_this_host(own.parse().unwrap()), "{own}");
        }
        let binds_all = |family: &str| {
            let path = format!("/proc/sys/net/{family}/ip_nonlocal_bind");
            fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
        };
        // Documentation addresses (RFC 5737, RFC 3849) belong to no host.
        assert!(binds_all("ipv4") || !is_of_this_host("192.0.2.1:9".parse().unwrap()));
        assert!(binds_all("ipv6") || !is_of_this_host("[2001:db8::1]:9".parse().unwrap()));
    }
}
