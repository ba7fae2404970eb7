//! Contexts of Kerberos by principal, as a table.

use super::cells::{cut, list, table, uptime, word};
use serde_json::{Value, json};
use std::fmt::Write;

/// Columns of a principal, at most.
const PRINCIPAL: usize = 24;

/// The reply to `contexts`.
pub fn text(value: &Value) -> String {
    let row = |group: &Value| {
        let of = |pointer: &str| word(group, pointer);
        let idle = group.get("idle_ms").and_then(Value::as_f64).map(|millis| json!(millis / 1e3));
        let [idle, left] = [idle.as_ref(), group.get("expires_in_s")].map(uptime);
        let principal = cut(&of("/principal"), PRINCIPAL);
        vec![of("/contexts"), idle, left, of("/sec"), principal, of("/host")]
    };
    let rows: Vec<_> = list(value, "/principals").map(row).collect();
    if rows.is_empty() {
        return "no contexts\n".to_owned();
    }
    let heads = [" contexts", " idle", " expires in", "sec", "principal", "host"];
    let mut text = table(&heads, &rows);
    let left_out = value.get("left_out").and_then(Value::as_u64).unwrap_or(0);
    if left_out > 0 {
        let _ = writeln!(text, "and {left_out} more, which were used before these");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::cells::WIDTH;

    #[test]
    fn contexts_fit_80_columns_whatever_their_principals_are() {
        let group = |principal: &str, host: &str| {
            json!({
                "principal": principal, "host": host, "contexts": 64, "idle_ms": 61_500.0,
                "sec": "krb5p", "expires": 1_800_000_000, "expires_in_s": 36_000,
            })
        };
        let groups = [
            group("alice@EXAMPLE.ORG", "10.0.0.1"),
            group(&"x".repeat(200), "2001:db8:1111:2222:3333:4444:5555:6666"),
            group("\u{1b}[2J", "uid 7"),
        ];
        let shown = text(&json!({ "contexts": 192, "principals": groups, "left_out": 3 }));
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
        assert!(shown.contains("00:01:01    10:00:00  krb5p  alice@EXAMPLE.ORG "), "{shown}");
        assert!(shown.contains("  10.0.0.1\n") && !shown.contains('\u{1b}'), "{shown}");
        assert!(shown.ends_with("and 3 more, which were used before these\n"), "{shown}");
        assert_eq!(text(&json!({ "contexts": 0, "principals": [] })), "no contexts\n");
    }
}
