//! Clients and states of NFS version 4 as JSON, page by page, and the end of a client.

use super::wire::StatePage;
use crate::{metrics::Shards, quote};
use serde_json::{Map, Value, json};
use stag_nfs::{
    CallbackPath, ClientFacts, GraceFacts, LeaseFacts, ListedKind, StateAnswer, StateFacts,
    StateQuestion, StateidKind, records::Principal,
};
use stag_protocol::nfs::v4::{share, state::HeldLock};
use std::fmt::Write;

/// Bytes of an owner's name that are shown.
const OWNER_SHOWN: usize = 128;
/// Bytes of a handle, at most (NFS4_FHSIZE).
const HANDLE_MAX: usize = 128;

/// A page of clients.
pub fn clients(shards: &Shards, from: usize) -> Result<Value, String> {
    match shards.ask_states(StateQuestion::Clients { from })? {
        StateAnswer::Clients(clients, next) => {
            let clients: Vec<_> = clients.iter().map(client).collect();
            Ok(json!({ "clients4": clients, "next": next }))
        }
        _ => Err(no_client("given")),
    }
}

/// Ends a client.
pub fn expire(shards: &Shards, client: &str) -> Result<Value, String> {
    let id = client_id(client)?;
    match shards.ask_states(StateQuestion::Expire { client: id })? {
        StateAnswer::Expired => Ok(json!({ "expired": name_of(id) })),
        StateAnswer::Crowded => Err("64 clients are being ended already: try again".to_owned()),
        _ => Err(no_client(client)),
    }
}

/// The grace period; with `ends` it is ended.
pub fn grace(shards: &Shards, ends: bool) -> Result<Value, String> {
    match shards.ask_states(StateQuestion::Grace { ends })? {
        StateAnswer::Grace(None) if ends => {
            Err("there is no grace period: no client may reclaim, and none is awaited".to_owned())
        }
        StateAnswer::Grace(facts) => {
            let facts = facts.as_ref().map(grace_facts);
            Ok(json!({ "grace": facts, "ended": ends }))
        }
        _ => Err("the server has answered another question: try again".to_owned()),
    }
}

fn grace_facts(facts: &GraceFacts) -> Value {
    let absent = facts
        .absent
        .iter()
        .map(|(name, user)| json!({ "name": owner(name), "principal": principal(*user) }));
    json!({
        "left_s": seconds(facts.left_ms),
        "awaited": facts.awaited,
        "absent": absent.collect::<Vec<_>>(),
        "absent_more": facts.absent_more,
    })
}

/// A page of opens.
pub fn opens(shards: &Shards, page: &StatePage) -> Result<Value, String> {
    states(shards, page, StateidKind::Open, "opens")
}

/// A page of locks.
pub fn locks(shards: &Shards, page: &StatePage) -> Result<Value, String> {
    states(shards, page, StateidKind::Locks, "locks")
}

/// A page of delegations.
pub fn delegations(shards: &Shards, page: &StatePage) -> Result<Value, String> {
    states(shards, page, StateidKind::Delegation, "delegations")
}

fn states(
    shards: &Shards,
    page: &StatePage,
    kind: StateidKind,
    list: &str,
) -> Result<Value, String> {
    let client = page.client.as_deref().map(client_id).transpose()?;
    let handle = page.file.as_deref().map(handle).transpose()?;
    let question = StateQuestion::States { kind, client, handle, from: page.from };
    match shards.ask_states(question)? {
        StateAnswer::States(states, next) => {
            let states: Vec<_> = states.iter().map(state).collect();
            Ok(json!({ list: states, "next": next }))
        }
        _ => Err(no_client(page.client.as_deref().unwrap_or_default())),
    }
}

fn no_client(client: &str) -> String {
    format!("no client of NFS version 4 is {client:?}: 'stag ctl clients4' lists them")
}

/// A client ID as it is shown.
fn name_of(id: u64) -> String {
    format!("{id:016x}")
}

fn client_id(text: &str) -> Result<u64, String> {
    let is_id = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let id = u64::from_str_radix(text, 16).ok().filter(|_| is_id);
    id.ok_or_else(|| format!("{text:?} is no client ID, which has 16 hexadecimal digits"))
}

fn handle(text: &str) -> Result<Box<[u8]>, String> {
    let octet = |pair: &[u8]| {
        let digits = std::str::from_utf8(pair).ok().filter(|it| !it.starts_with('+'))?;
        u8::from_str_radix(digits, 16).ok()
    };
    let is_handle = text.len().is_multiple_of(2) && (2..=2 * HANDLE_MAX).contains(&text.len());
    let octets = is_handle.then(|| text.as_bytes().chunks(2).map(octet).collect()).flatten();
    octets.ok_or_else(|| format!("{text:?} is no file handle in hexadecimal digits"))
}

fn hexadecimal(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

/// The beginning of an owner's name, as text.
fn owner(name: &[u8]) -> String {
    quote::shown(name.get(..OWNER_SHOWN).unwrap_or(name))
}

fn principal(principal: Principal) -> String {
    match principal {
        Principal::Anyone => "none".to_owned(),
        Principal::Unix(uid) => format!("uid {uid}"),
        Principal::Proven(id) => format!("kerberos {:08x}", id.short()),
    }
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1e3
}

fn client(facts: &ClientFacts) -> Value {
    let lease = facts.lease.map(|lease| {
        json!({
            "age_s": seconds(lease.idle_ms),
            "left_s": seconds(facts.lease_ms.saturating_sub(lease.idle_ms)),
            "expired": lease.is_expired,
        })
    });
    let count = |of: fn(&LeaseFacts) -> usize| facts.lease.as_ref().map_or(0, of);
    json!({
        "id": name_of(facts.id),
        "name": owner(&facts.owner),
        "principal": principal(facts.principal),
        "address": facts.from.to_string(),
        "lease_s": seconds(facts.lease_ms),
        "lease": lease,
        "minor_version": facts.minor_version,
        "sessions": facts.sessions,
        "callbacks": match facts.callback_path {
            CallbackPath::Absent => "none",
            CallbackPath::Down => "down",
            CallbackPath::Up => "up",
        },
        "opens": count(|lease| lease.opens),
        "locks": count(|lease| lease.ranges),
        "delegations": count(|lease| lease.delegations),
        "revoked": count(|lease| lease.revoked),
    })
}

fn state(facts: &StateFacts) -> Value {
    let StateFacts { state, export } = facts;
    let mut all = json!({
        "state": hexadecimal(&state.stateid.other),
        "seqid": state.stateid.seqid,
        "client": name_of(state.client_id),
        "file": hexadecimal(&state.handle),
        "export": export.as_ref().map(|name| format!("/{name}")),
    });
    if let (Some(all), Value::Object(own)) = (all.as_object_mut(), kind(&state.kind)) {
        all.extend::<Map<_, _>>(own);
    }
    all
}

fn kind(kind: &ListedKind) -> Value {
    match kind {
        ListedKind::Open { access, deny, owner: name } => json!({
            "access": access_name(*access), "deny": access_name(*deny), "owner": owner(name),
        }),
        ListedKind::Locks { ranges, count, owner: name } => json!({
            "ranges": ranges.iter().map(range).collect::<Vec<_>>(),
            "count": count,
            "owner": owner(name),
        }),
        ListedKind::Delegation { write, is_recalled, is_revoked } => json!({
            "type": if *write { "write" } else { "read" },
            "recalled": is_recalled,
            "revoked": is_revoked,
        }),
    }
}

/// The last byte of a lock up to the end of the file is null.
fn range(held: &HeldLock) -> Value {
    let last = Some(held.range.last()).filter(|last| *last != u64::MAX);
    let kind = if held.exclusive { "write" } else { "read" };
    json!({ "first": held.range.offset(), "last": last, "type": kind })
}

/// The name of OPEN4_SHARE_ACCESS or OPEN4_SHARE_DENY bits (RFC 8881 §18.16.1).
const fn access_name(bits: u32) -> &'static str {
    match bits & share::BOTH {
        share::READ => "r",
        share::WRITE => "w",
        share::BOTH => "rw",
        _ => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_id_has_16_digits_and_a_handle_has_pairs_of_them() {
        assert_eq!(client_id("00000007000000ff"), Ok(0x7_0000_00ff));
        for text in ["", "7", "+000000700000001", "000000070000000g", "00000007000000010"] {
            assert!(client_id(text).is_err(), "{text}");
        }
        assert_eq!(handle("00ff7a").as_deref(), Ok(&[0, 0xff, 0x7a][..]));
        for text in ["", "0", "0g", "+f", "\u{e9}", &"00".repeat(129)] {
            assert!(handle(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_owner_that_is_no_text_is_escaped_and_cut() {
        assert_eq!(owner(b"Linux \x1b[2J\xff"), r"Linux \u{1b}[2J\xff");
        assert_eq!(owner(&[b'x'; 1_024]).len(), OWNER_SHOWN);
    }

    #[test]
    fn bits_of_access_and_denial_have_names() {
        let names = [0, share::READ, share::WRITE, share::BOTH].map(access_name);
        assert_eq!(names, ["-", "r", "w", "rw"]);
    }
}
