//! Access control of one export: its admitted clients and their rights, like exports(5) of Linux'
//! server.
//!
//! The smallest network that contains a client's address applies, whatever the order. Options
//! missing in its rule come from the export, and then from the server.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use stag_engine::PeerAddress;
use stag_nfs_os::User;

use super::security::SecurityFlavors;
use crate::{Caller, Security};

/// Rules of one export for its clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportRules {
    /// Clients, by network. Empty: every client that may connect.
    pub clients: Vec<ClientRule>,
    /// Options of all of them, unless their own rule says otherwise.
    pub options: ClientOptions,
    /// Bytes of the largest READ advertised to clients; none: the store's limit.
    pub read_max: Option<u32>,
    /// Bytes of the largest WRITE advertised to clients.
    pub write_max: Option<u32>,
}

/// Rule for the clients of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// The network, or one address.
    pub network: IpNet,
    /// Options that differ from the export's.
    pub options: ClientOptions,
}

/// Set of callers that act as the anonymous user instead of the user that they claim to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// Callers claiming root, and group 0 wherever it is claimed.
    #[default]
    Root,
    /// Only callers without a user (AUTH_NONE).
    None,
    /// Everyone.
    All,
}

/// Options of clients. None leaves one to the export, and then to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// True if every change is refused.
    pub read_only: Option<bool>,
    /// Callers that act as the anonymous user.
    pub squash: Option<Squash>,
    /// The anonymous user's id.
    pub anon_uid: Option<u32>,
    /// The anonymous user's group.
    pub anon_gid: Option<u32>,
    /// True if callers may use unprivileged source ports.
    pub insecure: Option<bool>,
    /// Security flavors that are accepted; AUTH_SYS if neither the clients nor the export have any.
    pub security: Option<SecurityFlavors>,
}

impl ClientOptions {
    /// These options, with missing ones taken from `usual`.
    #[must_use]
    pub fn or(self, usual: Self) -> Self {
        Self {
            read_only: self.read_only.or(usual.read_only),
            squash: self.squash.or(usual.squash),
            anon_uid: self.anon_uid.or(usual.anon_uid),
            anon_gid: self.anon_gid.or(usual.anon_gid),
            insecure: self.insecure.or(usual.insecure),
            security: self.security.or(usual.security),
        }
    }
}

/// Rights of one client on one export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub read_only: bool,
    pub squash: Squash,
    pub anonymous: User,
}

/// The facts of a caller that rules judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientFacts {
    pub address: PeerAddress,
    /// Its user is root of its host, or no proof is required.
    pub is_proven: bool,
    pub security: Security,
}

impl From<&Caller> for ClientFacts {
    fn from(caller: &Caller) -> Self {
        let Caller { address, is_proven, security, .. } = *caller;
        Self { address, is_proven, security }
    }
}

/// The server's options, for those missing in an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsualGrant {
    pub grant: Grant,
    pub insecure: bool,
}

/// Reason to refuse a client access to an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessFault {
    /// Its address is in none of the export's networks.
    Unlisted,
    /// The export does not accept the security of its call.
    Security,
    /// Its source port is unprivileged: any user of its host could claim to be another one.
    Unproven,
}

impl fmt::Display for AccessFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unlisted => "not among the export's clients",
            Self::Security => "the export does not accept the security flavor of the call",
            Self::Unproven => {
                "its port is above 1023, which any user can take, and the export is not insecure"
            }
        })
    }
}

impl ExportRules {
    /// True if these rules change nothing of the server's options.
    pub fn are_usual(&self) -> bool {
        *self == Self::default()
    }

    /// These rules without security flavors.
    #[must_use]
    pub fn without_security(&self) -> Self {
        let mut others = self.clone();
        others.options.security = None;
        for rule in &mut others.clients {
            rule.options.security = None;
        }
        others
    }

    /// True if the export or a network of its clients has flavors of its own.
    pub fn have_security(&self) -> bool {
        let clients = self.clients.iter().map(|rule| rule.options);
        clients.chain([self.options]).any(|options| options.security.is_some())
    }

    /// Security flavors that the export accepts from a client; none if its address is not admitted.
    pub fn flavors(&self, address: PeerAddress) -> Option<SecurityFlavors> {
        let options = self.rule(address).ok()?.or(self.options);
        Some(options.security.unwrap_or_default())
    }

    /// Rights of a caller on an export with this `read_only` setting.
    pub(crate) fn grant(
        &self,
        caller: &ClientFacts,
        usual: &UsualGrant,
    ) -> Result<Grant, AccessFault> {
        let options = self.rule(caller.address)?.or(self.options);
        // The port says nothing about a call that is refused in any case.
        if !options.security.unwrap_or_default().accept(caller.security) {
            return Err(AccessFault::Security);
        }
        if !caller.is_proven && !options.insecure.unwrap_or(usual.insecure) {
            return Err(AccessFault::Unproven);
        }
        let UsualGrant { grant, .. } = usual;
        let (uid, gid) = (options.anon_uid, options.anon_gid);
        let anonymous = match (uid, gid) {
            (None, None) => grant.anonymous,
            _ => User::new(
                uid.unwrap_or(grant.anonymous.uid()),
                gid.unwrap_or(grant.anonymous.gid()),
                [],
            ),
        };
        Ok(Grant {
            read_only: options.read_only.unwrap_or(grant.read_only) || grant.read_only,
            squash: options.squash.unwrap_or(grant.squash),
            anonymous,
        })
    }

    /// Options of the smallest network that contains a client's address.
    fn rule(&self, address: PeerAddress) -> Result<ClientOptions, AccessFault> {
        if self.clients.is_empty() {
            return Ok(ClientOptions::default());
        }
        let ip = match address {
            PeerAddress::Ip(at) => at.ip().to_canonical(),
            // A process of this host that connects by shared memory.
            PeerAddress::Process { .. } => IpAddr::V4(Ipv4Addr::LOCALHOST),
            PeerAddress::Simulated => return Err(AccessFault::Unlisted),
        };
        let inside = self.clients.iter().filter(|rule| rule.network.contains(&ip));
        let smallest = inside.max_by_key(|rule| rule.network.prefix_len());
        smallest.map(|rule| rule.options).ok_or(AccessFault::Unlisted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> UsualGrant {
        let anonymous = User::new(65_534, 65_534, []);
        let grant = Grant { read_only: false, squash: Squash::Root, anonymous };
        UsualGrant { grant, insecure: false }
    }

    fn at(address: &str) -> PeerAddress {
        PeerAddress::Ip(address.parse().unwrap())
    }

    /// A caller with AUTH_SYS.
    fn from(address: PeerAddress, is_proven: bool) -> ClientFacts {
        ClientFacts { address, is_proven, security: Security::Sys }
    }

    fn rule(network: &str, options: ClientOptions) -> ClientRule {
        ClientRule { network: network.parse().unwrap(), options }
    }

    #[test]
    fn an_export_without_rules_leaves_everything_to_the_server() {
        let rules = ExportRules::default();
        assert!(rules.are_usual());
        assert_eq!(rules.grant(&from(at("192.0.2.1:700"), true), &usual()), Ok(usual().grant));
    }

    #[test]
    fn the_smallest_network_of_a_client_decides_and_the_export_fills_what_it_leaves_open() {
        let all = ClientOptions { squash: Some(Squash::All), ..ClientOptions::default() };
        let ro = ClientOptions { read_only: Some(true), anon_uid: Some(7), ..Default::default() };
        let rules = ExportRules {
            clients: vec![rule("10.0.0.0/8", all), rule("10.1.0.0/16", ro), rule("::1/128", all)],
            options: ClientOptions { anon_gid: Some(9), ..ClientOptions::default() },
            ..ExportRules::default()
        };
        let grant = |address| rules.grant(&from(at(address), true), &usual());
        let wide = grant("10.2.0.1:1").unwrap();
        assert_eq!((wide.read_only, wide.squash), (false, Squash::All));
        assert_eq!(wide.anonymous, User::new(65_534, 9, []));
        let narrow = grant("[::ffff:10.1.0.1]:1").unwrap();
        assert_eq!((narrow.read_only, narrow.squash), (true, Squash::Root));
        assert_eq!(narrow.anonymous, User::new(7, 9, []));
        for stranger in ["11.0.0.1:1", "127.0.0.1:1", "[::2]:1"] {
            assert_eq!(grant(stranger), Err(AccessFault::Unlisted), "{stranger}");
        }
        let process = PeerAddress::Process { pid: 1, uid: 0 };
        assert_eq!(rules.grant(&from(process, true), &usual()), Err(AccessFault::Unlisted));
        let local =
            ExportRules { clients: vec![rule("127.0.0.0/8", all)], ..ExportRules::default() };
        assert!(local.grant(&from(process, true), &usual()).is_ok(), "a process of this host");
    }

    #[test]
    fn a_port_of_anybody_is_refused_unless_the_network_the_export_or_the_server_is_insecure() {
        let insecure = ClientOptions { insecure: Some(true), ..ClientOptions::default() };
        let secure = ClientOptions { insecure: Some(false), ..ClientOptions::default() };
        let ask = |export, client, server: bool| {
            let clients = vec![rule("0.0.0.0/0", client)];
            let rules = ExportRules { clients, options: export, ..ExportRules::default() };
            let caller = from(at("10.0.0.1:40000"), false);
            rules.grant(&caller, &UsualGrant { insecure: server, ..usual() })
        };
        let open = ClientOptions::default();
        assert_eq!(ask(open, open, false), Err(AccessFault::Unproven));
        for (export, client, server) in
            [(open, open, true), (insecure, open, false), (secure, insecure, false)]
        {
            assert!(ask(export, client, server).is_ok());
        }
        for (export, client) in [(secure, open), (insecure, secure)] {
            assert_eq!(ask(export, client, true), Err(AccessFault::Unproven));
        }
    }

    #[test]
    fn no_client_may_write_to_an_export_that_is_read_only() {
        let writable = ClientOptions { read_only: Some(false), ..ClientOptions::default() };
        let rules =
            ExportRules { clients: vec![rule("0.0.0.0/0", writable)], ..ExportRules::default() };
        let read_only = Grant { read_only: true, ..usual().grant };
        let usual = UsualGrant { grant: read_only, ..usual() };
        assert!(rules.grant(&from(at("10.0.0.1:1"), true), &usual).unwrap().read_only);
    }

    #[test]
    fn a_call_is_judged_by_the_flavors_of_its_network_then_of_the_export_then_by_sys() {
        let flavors = |list: &[Security]| ClientOptions {
            security: SecurityFlavors::of(list).unwrap(),
            ..ClientOptions::default()
        };
        let strict = flavors(&[Security::Krb5p, Security::Krb5i]);
        let mixed = flavors(&[Security::Krb5, Security::Sys]);
        let clients =
            vec![rule("10.0.0.0/8", ClientOptions::default()), rule("10.1.0.0/16", strict)];
        let rules = ExportRules { clients: clients.clone(), options: mixed, ..Default::default() };
        let plain = ExportRules { clients, ..Default::default() };
        let judge = |rules: &ExportRules, address, security| {
            let caller = ClientFacts { address: at(address), is_proven: true, security };
            rules.grant(&caller, &usual()).map(drop)
        };
        use Security::{Krb5, Krb5i, Krb5p, None as Anyone, Sys};
        for security in [Anyone, Sys, Krb5, Krb5i, Krb5p] {
            let verdict = |accepted: &[Security]| match accepted.contains(&security) {
                true => Ok(()),
                false => Err(AccessFault::Security),
            };
            assert_eq!(judge(&rules, "10.2.0.1:1", security), verdict(&[Anyone, Sys, Krb5]));
            assert_eq!(judge(&rules, "10.1.0.1:1", security), verdict(&[Krb5p, Krb5i]));
            assert_eq!(judge(&plain, "10.2.0.1:1", security), verdict(&[Anyone, Sys]));
            // An address that is not admitted learns nothing about flavors.
            assert_eq!(judge(&rules, "11.0.0.1:1", security), Err(AccessFault::Unlisted));
        }
        assert_eq!(rules.flavors(at("10.1.0.1:1")), strict.security);
        assert_eq!(rules.flavors(at("10.2.0.1:1")), mixed.security);
        assert_eq!(plain.flavors(at("10.2.0.1:1")), Some(SecurityFlavors::SYS));
        assert_eq!(rules.flavors(at("11.0.0.1:1")), None);
        assert!(rules.have_security() && plain.have_security());
        assert!(!ExportRules::default().have_security());
    }

    #[test]
    fn a_port_is_not_judged_where_the_flavor_is_refused() {
        let krb5 = SecurityFlavors::only(Security::Krb5);
        let options = ClientOptions { security: Some(krb5), ..ClientOptions::default() };
        let rules = ExportRules { options, ..ExportRules::default() };
        let caller = from(at("10.0.0.1:40000"), false);
        assert_eq!(rules.grant(&caller, &usual()), Err(AccessFault::Security));
    }
}
