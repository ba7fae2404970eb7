//! Contexts of Kerberos as JSON, by principal and host.

use super::answers::millis;
use serde_json::{Value, json};
use stag_engine::gss::PrincipalContexts;
use stag_protocol::rpc::gss::GssService;
use stag_verbs::Time;
use std::time::{SystemTime, UNIX_EPOCH};

/// Groups of contexts that are shown, at most.
const SHOWN_MAX: usize = 4_096;
/// The answer of a server without Kerberos.
pub const NO_KERBEROS: &str = "this server has no contexts: Kerberos needs a keytab (--keytab)";

/// The groups as they are at `now`, the latest used ones first. `at` is the same time by the clock
/// of the system.
pub fn listed(mut groups: Vec<PrincipalContexts>, now: Time, at: SystemTime) -> Value {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let contexts = groups.iter().map(|group| group.contexts).sum::<u64>();
    let left_out = groups.len().saturating_sub(SHOWN_MAX);
    groups.sort_by(|one, other| {
        let by_use = other.used_at.cmp(&one.used_at);
        by_use.then_with(|| (&one.principal, &one.host).cmp(&(&other.principal, &other.host)))
    });
    groups.truncate(SHOWN_MAX);
    let of = |group: &PrincipalContexts| {
        json!({
            "principal": group.principal,
            "host": group.host,
            "contexts": group.contexts,
            "idle_ms": millis(now.since(group.used_at)),
            "sec": group.service.map(word),
            "expires": group.ends,
            "expires_in_s": group.ends.saturating_sub(seconds),
        })
    };
    let groups: Vec<_> = groups.iter().map(of).collect();
    json!({ "contexts": contexts, "principals": groups, "left_out": left_out })
}

/// The protection, as mounts name it.
const fn word(service: GssService) -> &'static str {
    match service {
        GssService::None => "krb5",
        GssService::Integrity => "krb5i",
        GssService::Privacy => "krb5p",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn group(principal: &str, used_at: u64) -> PrincipalContexts {
        PrincipalContexts {
            principal: principal.into(),
            host: "10.0.0.1".to_owned(),
            contexts: 2,
            used_at: Time(used_at),
            service: Some(GssService::Privacy),
            ends: 1_000,
        }
    }

    #[test]
    fn the_latest_used_contexts_are_first_with_their_ages() {
        let never = PrincipalContexts { service: None, ..group("nfs/c@R", 1_000_000) };
        let groups = vec![never, group("alice@R", 3_000_000)];
        let at = UNIX_EPOCH + Duration::from_secs(400);
        let all = listed(groups, Time(5_000_000), at);
        assert_eq!((&all["contexts"], &all["left_out"]), (&json!(4), &json!(0)));
        let alice = json!({
            "principal": "alice@R", "host": "10.0.0.1", "contexts": 2, "idle_ms": 2.0,
            "sec": "krb5p", "expires": 1_000, "expires_in_s": 600,
        });
        assert_eq!(all["principals"][0], alice);
        assert_eq!(all["principals"][1]["sec"], Value::Null);
        // A clock that lags by a pass, and a ticket that has ended.
        let late = listed(vec![group("bob@R", 7)], Time(0), at + Duration::from_secs(900));
        let bob = &late["principals"][0];
        assert_eq!((&bob["idle_ms"], &bob["expires_in_s"]), (&json!(0.0), &json!(0)));
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let groups = (0..5_000).map(|n| group(&format!("u{n}@R"), n)).collect();
        let all = listed(groups, Time(5_000), UNIX_EPOCH);
        assert_eq!((&all["contexts"], &all["left_out"]), (&json!(10_000), &json!(904)));
        assert_eq!(all["principals"].as_array().unwrap().len(), SHOWN_MAX);
        assert_eq!(all["principals"][0]["principal"], "u4999@R");
    }
}
