//! Clients and states of NFS version 4 as tables.

use super::cells::{cut, list, table, table_whole, word};
use serde_json::Value;
use std::fmt::Write;

/// The clients: leases and counts of states, then their names.
pub fn clients(value: &Value) -> String {
    let rows: Vec<_> = list(value, "/clients4").map(counts).collect();
    if rows.is_empty() {
        return "no clients\n".to_owned();
    }
    let heads =
        ["client", " lease", " ver", " sess", "back", " opens", " locks", " deleg", " revoked"];
    let names: Vec<_> = list(value, "/clients4").map(names).collect();
    table(&heads, &rows) + "\n" + &table(&["client", "address", "principal", "name"], &names)
}

fn counts(client: &Value) -> Vec<String> {
    let of = |pointer: &str| word(client, pointer);
    let seconds = |pointer: &str| {
        let seconds = client.pointer(pointer).and_then(Value::as_f64);
        seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0}"))
    };
    let lease = match client.pointer("/lease/expired") {
        Some(Value::Bool(true)) => "expired".to_owned(),
        _ => [seconds("/lease/age_s"), seconds("/lease_s")].join("/"),
    };
    let minor = client.pointer("/minor_version").and_then(Value::as_u64);
    let version = minor.map_or_else(|| "-".to_owned(), |minor| format!("4.{minor}"));
    let (sessions, back) = (of("/sessions"), of("/callbacks"));
    let states = ["/opens", "/locks", "/delegations", "/revoked"].map(of);
    [of("/id"), lease, version, sessions, back].into_iter().chain(states).collect()
}

fn names(client: &Value) -> Vec<String> {
    let of = |pointer: &str| word(client, pointer);
    vec![of("/id"), cut(&of("/address"), 21), of("/principal"), of("/name")]
}

/// The grace period, and the clients that have not come back.
pub fn grace(value: &Value) -> String {
    let Some(grace) = value.get("grace").filter(|grace| !grace.is_null()) else {
        return "no grace period: no client may reclaim\n".to_owned();
    };
    let of = |pointer: &str| word(grace, pointer);
    let left = grace.get("left_s").and_then(Value::as_f64).unwrap_or(0.0);
    let is_ended = value.get("ended") == Some(&Value::Bool(true));
    let mut text = match is_ended {
        true => format!("grace period ended; {} clients were awaited\n", of("/awaited")),
        false => {
            format!("grace period: {left:.0} s at most; {} clients are awaited\n", of("/awaited"))
        }
    };
    let rows = list(grace, "/absent").map(|it| vec![word(it, "/principal"), word(it, "/name")]);
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        text.push_str("not back since the restart:\n");
        text.push_str(&table(&["principal", "name"], &rows));
    }
    let more = grace.get("absent_more").and_then(Value::as_u64).unwrap_or(0);
    if more > 0 {
        let _ = writeln!(text, "and {more} more");
    }
    text
}

/// The opens.
pub fn opens(value: &Value) -> String {
    let heads = ["client", "access", "deny", "state", "export", "file"];
    states(value, "opens", &heads, |open| vec![word(open, "/access"), word(open, "/deny")])
}

/// The byte-range locks, each range in a row of its own; `…` marks a state that has more.
pub fn locks(value: &Value) -> String {
    let mut rows = Vec::new();
    for state in list(value, "/locks") {
        let shown = list(state, "/ranges").count() as u64;
        for range in list(state, "/ranges") {
            let last = range.pointer("/last").and_then(Value::as_u64);
            let last = last.map_or_else(|| "end".to_owned(), |last| last.to_string());
            rows.push(row(state, vec![word(range, "/type"), word(range, "/first"), last]));
        }
        if state.pointer("/count").and_then(Value::as_u64).is_some_and(|count| count > shown) {
            rows.push(row(state, vec!["…".to_owned(); 3]));
        }
    }
    let heads = ["client", "type", " first", " last", "state", "export", "file"];
    whole(&heads, &rows, "no locks\n")
}

/// The delegations.
pub fn delegations(value: &Value) -> String {
    let heads = ["client", "type", "phase", "state", "export", "file"];
    states(value, "delegations", &heads, |held| {
        let is = |pointer: &str| held.pointer(pointer) == Some(&Value::Bool(true));
        let phase = match (is("/revoked"), is("/recalled")) {
            (true, _) => "revoked",
            (_, true) => "recalled",
            _ => "granted",
        };
        vec![word(held, "/type"), phase.to_owned()]
    })
}

fn states(
    value: &Value,
    name: &str,
    heads: &[&str],
    own: impl Fn(&Value) -> Vec<String>,
) -> String {
    let pointer = format!("/{name}");
    let rows: Vec<_> = list(value, &pointer).map(|state| row(state, own(state))).collect();
    whole(heads, &rows, &format!("no {name}\n"))
}

/// A row with the cells that each kind of state has, around its `own` ones.
fn row(state: &Value, own: Vec<String>) -> Vec<String> {
    let of = ["/state", "/export", "/file"].map(|pointer| word(state, pointer));
    [word(state, "/client")].into_iter().chain(own).chain(of).collect()
}

/// A table that is not cut, because handles are copied; `none` where it has no rows.
fn whole(heads: &[&str], rows: &[Vec<String>], none: &str) -> String {
    match rows.is_empty() {
        true => none.to_owned(),
        false => table_whole(heads, rows, "  "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn clients_fit_80_columns_and_show_their_leases() {
        let client = |expired: bool| {
            json!({
                "id": "0000000700000001", "name": "Linux NFSv4.2 ".repeat(20),
                "principal": "kerberos 0123abcd", "lease_s": 90.0,
                "address": "[2001:db8:1111:2222:3333:4444:5555:6666]:65535",
                "lease": { "age_s": 12.3, "left_s": 77.7, "expired": expired },
                "minor_version": 2, "sessions": 1_024, "callbacks": "down", "opens": 65_536,
                "locks": 131_072, "delegations": 16_384, "revoked": 16_384,
            })
        };
        let shown = clients(&json!({ "clients4": [client(false), client(true)] }));
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        let row = "0000000700000001    12/90  4.2  1024  down  65536  131072  16384    16384";
        assert!(shown.lines().any(|line| line == row), "{shown}");
        assert!(shown.contains(" expired  4.2 ") && shown.contains("kerberos 0123abcd"), "{shown}");
        assert_eq!(clients(&json!({ "clients4": [] })), "no clients\n");
    }

    #[test]
    fn a_grace_period_names_the_clients_that_are_not_back() {
        let absent = json!([{ "name": "Linux NFSv4.2 a ".repeat(20), "principal": "uid 0" }]);
        let grace = json!({ "left_s": 41.6, "awaited": 3, "absent": absent, "absent_more": 2 });
        let shown = super::grace(&json!({ "grace": grace, "ended": false }));
        assert!(
            shown.starts_with("grace period: 42 s at most; 3 clients are awaited\n"),
            "{shown}"
        );
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert!(shown.contains("\nuid 0 ") && shown.ends_with("and 2 more\n"), "{shown}");
        let ended = super::grace(&json!({ "grace": grace, "ended": true }));
        assert!(ended.starts_with("grace period ended; 3 clients were awaited\n"), "{ended}");
        let none = super::grace(&json!({ "grace": null, "ended": false }));
        assert_eq!(none, "no grace period: no client may reclaim\n");
    }

    #[test]
    fn each_range_of_a_lock_has_a_row_and_handles_are_whole() {
        let file = "ab".repeat(128);
        let range = |last: Value| json!({ "first": 5, "last": last, "type": "write" });
        let state = json!({
            "state": "cd", "client": "0000000700000001", "file": file, "export": "/data",
            "ranges": [range(json!(9)), range(Value::Null)], "count": 3,
        });
        let shown = locks(&json!({ "locks": [state] }));
        assert_eq!(shown.lines().count(), 4, "{shown}");
        for part in ["write      5     9  cd", "write      5   end  cd", "…          …     …  cd"]
        {
            assert!(shown.contains(part), "{part} is in {shown}");
        }
        assert!(shown.lines().skip(1).all(|line| line.ends_with(&file)), "{shown}");
        assert_eq!(locks(&json!({ "locks": [] })), "no locks\n");
    }
}
