//! Promises of `stag-gssapi`, each as a case that runs with MIT's library and a KDC. A group has a
//! krb5.conf of its own.

mod accepts;
mod initiates;
mod many;

use super::realm::Folder;
use stag_gssapi::{
    AcceptedContext, AcceptorSettings, ClientCredentials, ContextSecret, Enctype, GssAcceptor,
    GssFailure, GssInitiator, GssLibrary, InitiatorSettings, PendingContext, RefusedToken,
    ReplayCache, ServiceName,
};

/// The library, and the folder of a realm.
pub struct Place {
    pub library: &'static GssLibrary,
    pub folder: Folder,
}

/// A case with its name.
pub type Case = (&'static str, fn(&Place));

/// Lists functions as cases.
macro_rules! cases {
    ($name:ident: $($case:ident),* $(,)?) => {
        pub const $name: &[super::Case] = &[$((stringify!($case), $case)),*];
    };
}
pub(crate) use cases;

/// Cases that run with the same krb5.conf.
pub struct Group {
    pub name: &'static str,
    pub configuration: &'static str,
    pub cases: &'static [Case],
}

const fn group(name: &'static str, configuration: &'static str, cases: &'static [Case]) -> Group {
    Group { name, configuration, cases }
}

/// All cases.
pub const GROUPS: &[Group] = &[
    group("accepts", "usual.conf", accepts::USUAL),
    group("initiates", "usual.conf", initiates::USUAL),
    group("many", "usual.conf", many::USUAL),
    group("foreign", "foreign.conf", accepts::FOREIGN),
    group("expired", "impatient.conf", accepts::EXPIRED),
    group("skewed", "impatient.conf", accepts::SKEWED),
    group("misconfigured", "broken.conf", accepts::MISCONFIGURED),
    group("alone", "alone.conf", initiates::ALONE),
];

pub use initiates::ALONE_CACHE;

pub const ANY_NFS: ServiceName<'_> = ServiceName::HostBased("nfs");
pub const SERVER: ServiceName<'_> = ServiceName::HostBased("nfs@server.test");

impl Place {
    pub fn acceptor(
        &self,
        service: ServiceName<'_>,
        keytab: &str,
        replay_cache: ReplayCache<'_>,
    ) -> Result<GssAcceptor, GssFailure> {
        let keytab = self.folder.path(keytab);
        let settings = AcceptorSettings { service, keytab: Some(&keytab), replay_cache };
        GssAcceptor::new(self.library, &settings)
    }

    /// An acceptor of any `nfs/…` in the server's keytab, without a replay cache.
    pub fn server(&self) -> GssAcceptor {
        self.acceptor(ANY_NFS, "server.keytab", ReplayCache::Off).unwrap()
    }

    /// Alice's end, with a cache of the folder.
    pub fn client(&self, cache: &str, target: ServiceName<'_>) -> Result<GssInitiator, GssFailure> {
        let cache = self.folder.cache(cache);
        let settings = InitiatorSettings {
            target,
            credentials: ClientCredentials::Cache(&cache),
            enctypes: &Enctype::ALL,
            is_mutual: true,
        };
        GssInitiator::new(self.library, &settings)
    }

    /// Alice's end, for contexts of one encryption type.
    pub fn client_with(&self, enctypes: &[Enctype], is_mutual: bool) -> GssInitiator {
        let cache = self.folder.cache("alice.cache");
        let credentials = ClientCredentials::Cache(&cache);
        let settings = InitiatorSettings { target: SERVER, credentials, enctypes, is_mutual };
        GssInitiator::new(self.library, &settings).unwrap()
    }

    /// A token of alice for a service.
    pub fn token(&self, target: ServiceName<'_>) -> (Vec<u8>, PendingContext) {
        self.client("alice.cache", target).unwrap().begin().unwrap()
    }
}

/// Sets up a context at both ends; the keys have to be the same.
pub fn set_up(
    initiator: &GssInitiator,
    acceptor: &GssAcceptor,
) -> (AcceptedContext, ContextSecret) {
    let (token, pending) = initiator.begin().unwrap();
    let accepted = acceptor.accept(&token).unwrap();
    let keys = pending.finish(&accepted.token).unwrap();
    assert_eq!(accepted.keys, keys);
    (accepted, keys)
}

/// The refusal of a token, printed.
pub fn refusal(acceptor: &GssAcceptor, token: &[u8]) -> RefusedToken {
    let refused = acceptor.accept(token).unwrap_err();
    println!(
        "  {} bytes: {refused} [{:x} {:x}]",
        token.len(),
        refused.failure.major,
        refused.failure.minor
    );
    assert!(refused.failure.major >= 1 << 16, "an error, {:#x}", refused.failure.major);
    refused
}

/// A message in the frame of a token.
pub fn framed(kind: [u8; 2], message: &[u8]) -> Vec<u8> {
    const MECHANISM: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
    let content = [MECHANISM, &kind, message].concat();
    let len = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[0x60, 0x82], &len[..], &content].concat()
}
