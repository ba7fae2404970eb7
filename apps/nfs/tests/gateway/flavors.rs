//! Security flavors of exports, in version 3: MNT lists them. A call with another one is denied,
//! except for questions of a client that does not know them yet (RFC 2623 §2.3).
//!
//! No context of RPCSEC_GSS is set up here: AUTH_SYS with the machine name `krb5`, `krb5i` or
//! `krb5p` stands for a call that one proves, with that protection.

use crate::gateway::{
    client::{Home, header, place, user, written},
    nfs4::{ceph, client::CONFIG},
    wire::{Message, OverTcp, Wire},
};
use stag_engine::{App, Call, Cause, Config, Cx, Outcome as Completed, PeerId, PeerSecurity, Time};
use stag_nfs::{Gateway, GatewayReport};
use stag_nfs_store::{
    Security, Store,
    exports::{
        client_rules::{ClientOptions, ExportRules},
        config::ExportConfig,
        security::SecurityFlavors,
    },
    files::{ExportSet, Files, RuledExport, SharedFiles, SlowExports},
    memory::{Memory, MemoryConfig, MemoryExport},
};
use stag_pools::Buf;
use stag_protocol::{
    nfs::{
        mount,
        v3::{self, Access, AccessArgs, FileHandle, GetAttrArgs, LookupArgs, SystemArgs},
    },
    rpc::{
        Accepted, AuthStatus, AuthSys, Credential, Denied, Outcome, PrincipalId, ProvenUser,
        ReplyHeader, UnixUser, gss::GssService,
    },
    xdr::Reader,
};
use std::sync::Arc;

/// A gateway whose callers prove their users, where their machine names say so.
pub struct WithTickets<S: Store>(pub Gateway<S>);

impl<S: Store> App for WithTickets<S> {
    type Report = GatewayReport;

    fn report(&self) -> GatewayReport {
        self.0.report()
    }

    fn wants_idle_passes(&self) -> bool {
        self.0.wants_idle_passes()
    }

    fn idle_pass_at(&self) -> Option<Time> {
        self.0.idle_pass_at()
    }

    fn sink(&mut self, len: usize) -> Option<Buf> {
        self.0.sink(len)
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let proven;
        let mut call = call;
        if let Credential::Sys(AuthSys { machine_name, uid, gid, gids, .. }) =
            call.header.credential
            && let Some(service) = service(machine_name)
        {
            let (identity, unix) = (PrincipalId([7; 16]), Some(UnixUser { uid, gid, gids }));
            proven = ProvenUser { identity, principal: "alice@STAG.TEST", service, unix };
            call.header.credential = Credential::Proven(&proven);
        }
        self.0.on_call(cx, call);
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Completed<'_>) {
        self.0.on_reply(cx, outcome);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        self.0.on_peer_up(cx, peer);
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        self.0.on_peer_down(cx, peer, cause);
    }

    fn on_security(&mut self, cx: &mut Cx<'_>, peer: PeerId, security: &PeerSecurity) {
        self.0.on_security(cx, peer, security);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.0.on_pass_end(cx);
    }
}

fn service(machine_name: &[u8]) -> Option<GssService> {
    match machine_name {
        b"krb5" => Some(GssService::None),
        b"krb5i" => Some(GssService::Integrity),
        b"krb5p" => Some(GssService::Privacy),
        _ => None,
    }
}

/// The credential of a call with this security.
pub fn credential(security: Security) -> Credential<'static> {
    match user() {
        Credential::Sys(sys) if security.is_proven() => {
            Credential::Sys(AuthSys { machine_name: security.word().as_bytes(), ..sys })
        }
        sys if security == Security::Sys => sys,
        _ => Credential::None,
    }
}

pub fn flavors(list: &[Security]) -> SecurityFlavors {
    SecurityFlavors::of(list).unwrap().unwrap()
}

/// `/data` and the read-only `/fixed` with these flavors.
pub fn set(home: &Home, both: [&[Security]; 2]) -> ExportSet {
    let exports = ["data", "fixed"].into_iter().zip(both).map(|(name, list)| {
        let (name, path) = (name.to_owned(), home.path(name));
        let read_only = name == "fixed";
        let security = SecurityFlavors::of(list).unwrap();
        let options = ClientOptions { security, ..ClientOptions::default() };
        RuledExport {
            config: ExportConfig { name, path, read_only, is_mountpoint: false },
            rules: ExportRules { options, ..ExportRules::default() },
        }
    });
    ExportSet { exports: exports.collect(), slow: SlowExports::None, is_insecure: true }
}

/// Files with such exports.
pub fn files(home: &Home, both: [&[Security]; 2]) -> (Files, Arc<SharedFiles>) {
    let shared = home.shared();
    shared.replace_exports(&set(home, both)).unwrap();
    (Files::open(&shared, 0).unwrap(), shared)
}

/// A memory with `/data` and `/fixed`, which have the same flavors.
pub fn memory(list: &[Security]) -> Memory {
    let export =
        |name: &str, read_only| MemoryExport { name: name.to_owned(), copy_of: None, read_only };
    let config = MemoryConfig::new(vec![export("data", false), export("fixed", true)], 8 << 20);
    let security = SecurityFlavors::of(list).unwrap();
    Memory::new(&MemoryConfig { security, ..config }, &mut |_| ()).unwrap()
}

pub fn over_tcp<S: Store + 'static>(store: S) -> Box<dyn Wire> {
    let gateway = Gateway::new(store).with_nfs4(CONFIG);
    Box::new(OverTcp::new(WithTickets(gateway), Config::small()))
}

struct Caller {
    wire: Box<dyn Wire>,
    _home: Box<dyn std::any::Any>,
}

impl Caller {
    /// Callers of all stores, whose `/data` accepts krb5p and krb5i.
    fn all() -> Vec<Self> {
        let list = [Security::Krb5p, Security::Krb5i];
        let home = Home::new();
        let (files, shared) = files(&home, [&list, &[]]);
        let (ceph, kept) = ceph::store(Some(flavors(&list)));
        vec![
            Self { wire: over_tcp(files), _home: Box::new((home, shared)) },
            Self { wire: over_tcp(memory(&list)), _home: Box::new(()) },
            Self { wire: over_tcp(ceph), _home: Box::new(kept) },
        ]
    }

    /// The outcome of a call, with the octets of its results.
    fn exchange(&mut self, octets: &[u8]) -> (Outcome<'static>, Vec<u8>) {
        let message = Message { octets, item: None, reply_max: 4_096, result_max: 0 };
        let reply = self.wire.exchange(message).unwrap();
        let mut reader = Reader::new(&reply);
        let outcome = match ReplyHeader::parse(&mut reader).unwrap().outcome {
            Outcome::Denied(denied) => Outcome::Denied(denied),
            Outcome::Accepted { status, .. } => Outcome::accepted(status),
        };
        let results = reply.get(ReplyHeader::LEN..).unwrap_or_default();
        (outcome, results.to_vec())
    }

    fn null(&mut self, security: Security) -> Outcome<'static> {
        let header = header(v3::PROGRAM, v3::VERSION, 0, credential(security));
        self.exchange(&written(|writer| header.emit(writer).unwrap())).0
    }

    fn call(&mut self, security: Security, call: &v3::Call<'_>) -> Outcome<'static> {
        let procedure = call.procedure().number();
        let header = header(v3::PROGRAM, v3::VERSION, procedure, credential(security));
        let (outcome, results) = self.exchange(&written(|writer| {
            header.emit(writer).unwrap();
            call.emit(writer).unwrap();
        }));
        if outcome == Outcome::accepted(Accepted::Success) {
            assert_eq!(results[..4], [0; 4], "{call:?} succeeds if it is accepted");
        }
        outcome
    }

    /// MNT: the handle and the flavors.
    fn mount(&mut self, path: &str) -> (FileHandle, Vec<u32>) {
        let call = mount::Call::Mnt(mount::Path(path.as_bytes()));
        let number = call.procedure().number();
        let header = header(mount::PROGRAM, mount::VERSION, number, user());
        let (_, results) = self.exchange(&written(|writer| {
            header.emit(writer).unwrap();
            call.emit(writer).unwrap();
        }));
        match mount::Reply::parse(call.procedure(), Reader::new(&results)).unwrap() {
            mount::Reply::Mnt(Ok(mounted)) => (mounted.handle, mounted.flavors.iter().collect()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_mount_lists_the_flavors_of_its_export_in_order() {
    for mut caller in Caller::all() {
        assert_eq!(caller.mount("/data").1, [390_005, 390_004]);
    }
    let home = Home::new();
    let mixed = [Security::Krb5, Security::Sys];
    let (files, _shared) = files(&home, [&mixed, &[]]);
    let mut caller = Caller { wire: over_tcp(files), _home: Box::new(home) };
    assert_eq!(caller.mount("/data").1, [390_003, 1, 0]);
    assert_eq!(caller.mount("/fixed").1, [1, 0], "as an export without flavors");
}

#[test]
fn a_call_of_version_3_is_denied_unless_its_export_accepts_its_flavor() {
    let denied = Outcome::Denied(Denied::AuthError(AuthStatus::TOO_WEAK));
    let accepted = Outcome::accepted(Accepted::Success);
    for mut caller in Caller::all() {
        let (root, _) = caller.mount("/data");
        let make = v3::Call::MkDir(v3::MkDirArgs {
            place: place(root, b"below"),
            attributes: v3::SetAttributes::default(),
        });
        let rights = v3::Call::Access(AccessArgs { object: root, access: Access(1) });
        let below = v3::Call::Lookup(LookupArgs { what: place(root, b"below") });
        let calls = [
            make,
            rights,
            below,
            v3::Call::FsStat(SystemArgs { object: root }),
            v3::Call::PathConf(SystemArgs { object: root }),
        ];
        for weak in [Security::None, Security::Sys, Security::Krb5] {
            for call in &calls {
                assert_eq!(caller.call(weak, call), denied, "{weak:?} {call:?}");
            }
        }
        for strong in [Security::Krb5p, Security::Krb5i] {
            // The directory is made once.
            let calls = if strong == Security::Krb5p { &calls[..] } else { &calls[1..] };
            for call in calls {
                assert_eq!(caller.call(strong, call), accepted, "{strong:?} {call:?}");
            }
        }
    }
}

#[test]
fn clients_that_mount_ask_for_facts_of_a_root_with_auth_sys() {
    let denied = Outcome::Denied(Denied::AuthError(AuthStatus::TOO_WEAK));
    let accepted = Outcome::accepted(Accepted::Success);
    for mut caller in Caller::all() {
        let (root, _) = caller.mount("/data");
        let calls = |object| {
            [v3::Call::GetAttr(GetAttrArgs { object }), v3::Call::FsInfo(SystemArgs { object })]
        };
        for weak in [Security::None, Security::Sys] {
            assert_eq!(caller.null(weak), accepted);
            for call in calls(root) {
                assert_eq!(caller.call(weak, &call), accepted, "{weak:?} {call:?}");
            }
        }
        for call in calls(root) {
            assert_eq!(
                caller.call(Security::Krb5, &call),
                denied,
                "it proves its user, but weakly"
            );
        }
        let attributes = v3::SetAttributes::default();
        let make = v3::MkDirArgs { place: place(root, b"below"), attributes };
        caller.call(Security::Krb5p, &v3::Call::MkDir(make));
        let (below, _) = caller.mount("/data/below");
        for call in calls(below) {
            assert_eq!(caller.call(Security::Sys, &call), denied, "no root: {call:?}");
            assert_eq!(caller.call(Security::Krb5i, &call), accepted, "{call:?}");
        }
    }
}
