//! Users, keys and refusals of contexts whose tokens the library has judged.

use super::*;
use stag_gssapi::{ContextSecret, GssFailure, KerberosFault, SessionKey};
use std::io;

const FROM: PeerAddress = PeerAddress::Simulated;

fn admission() -> PrincipalAdmission {
    let query = |name: &str| match name {
        "alice" => Ok(Some(stag_nfs_store::exports::host_users::NamedUser {
            uid: 1000,
            gid: 100,
            groups: vec![100, 27],
        })),
        "slow" => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(None),
    };
    let users = KerberosUsers::asking(UserMap::default(), Box::new(query));
    PrincipalAdmission::new(Arc::new(users))
}

fn accepted(principal: &str, local: Option<&str>) -> stag_gssapi::AcceptedContext {
    let key = SessionKey::new(20, &[7; 32]).unwrap();
    stag_gssapi::AcceptedContext {
        token: vec![1, 2, 3],
        principal: principal.to_owned(),
        local_name: local.map(str::to_owned),
        keys: ContextSecret { key, is_acceptor_subkey: true, end_time: 4_000_000_000 },
        is_mutual: true,
    }
}

#[test]
fn a_context_has_its_principal_its_user_and_the_end_of_its_ticket() {
    let admitted = admission().admit(accepted("alice@A", Some("alice")), FROM).unwrap();
    assert_eq!((admitted.principal.as_str(), admitted.ends), ("alice@A", 4_000_000_000));
    assert_eq!(admitted.token, [1, 2, 3]);
    let user = admitted.unix.unwrap();
    assert_eq!((user.uid, user.gid, user.gids.list()), (1000, 100, &[27][..]));
}

#[test]
fn a_principal_without_a_user_has_a_context_all_the_same() {
    for (principal, local) in [("eve@A", Some("eve")), ("nfs/c@A", None), ("alice@B", None)] {
        let admitted = admission().admit(accepted(principal, local), FROM).unwrap();
        assert_eq!((admitted.principal.as_str(), admitted.unix), (principal, None));
    }
}

#[test]
fn a_client_comes_again_if_the_name_service_fails() {
    let refused = admission().admit(accepted("x@A", Some("slow")), FROM).unwrap_err();
    assert_eq!(refused, failed(TRY_AGAIN));
}

#[test]
fn a_refusal_keeps_its_statuses_and_its_token() {
    let refuse = |major, minor| {
        let failure = GssFailure {
            fault: KerberosFault::ClockSkew,
            major,
            minor,
            text: "clock skew".to_owned(),
        };
        admission().refuse(RefusedToken { failure, token: vec![9] }, FROM)
    };
    let expected = RefusedContext { major: MajorStatus(9 << 16), minor: 5, token: vec![9] };
    assert_eq!(refuse(9 << 16, 5), expected);
    assert_eq!(refuse(0, 5).major, MajorStatus::FAILURE, "complete is no refusal");
}
