//! Sessions of NFS version 4 in `stag ctl clients`, as a table.

use super::cells::{list, table, word};
use serde_json::Value;

/// Digits of a session ID in the table, from its end: the part that differs between the sessions
/// that exist at one moment.
const SHORT_LEN: usize = 8;

/// The sessions of all `clients` as a table; nothing where there are none.
pub fn text(clients: &Value) -> String {
    let row = |client: &Value, session: &Value| {
        let id = word(session, "/id");
        let short = id.get(id.len().saturating_sub(SHORT_LEN)..).unwrap_or(&id).to_owned();
        let slots = ["used", "total"].map(|name| word(session, &format!("/slots/{name}")));
        vec![word(client, "/id"), short, slots.join("/"), word(session, "/owner")]
    };
    let of = |client| list(client, "/sessions").map(move |session| row(client, session));
    let rows: Vec<_> = list(clients, "/clients").flat_map(of).collect();
    match rows.is_empty() {
        true => String::new(),
        false => "\n".to_owned() + &table(&["id", "session", " slots", "owner"], &rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sessions_stand_below_in_80_columns() {
        let session = json!({
            "id": "00000007000000010002000300000105",
            "slots": { "used": 3, "total": 64 },
            "owner": format!("Linux \\x1b[2J{}", "x".repeat(100)),
        });
        let client = |sessions| json!({ "id": "0.1.1", "sessions": sessions });
        let both = json!({ "clients": [client(json!([session])), client(json!([]))] });
        let shown = text(&both);
        assert!(shown.contains("\n0.1.1  00000105   3/64  Linux \\x1b"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert_eq!(text(&json!({ "clients": [client(json!([]))] })), "");
    }
}
