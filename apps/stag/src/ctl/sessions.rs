//! Sessions of NFS version 4 in `stag ctl clients`: as JSON, by the connections that they are bound
//! to, and as a table.

use super::show::{list, table, word};
use crate::metrics::Gathered;
use serde_json::{Value, json};
use stag_engine::PeerId;
use stag_nfs::SessionState;
use std::collections::HashMap;

/// Sessions that are shown of one connection.
const SHOWN_MAX: usize = 16;
/// Digits of a session ID in the table, from its end: the part that differs between the sessions
/// that exist at one moment.
const SHORT_LEN: usize = 8;

/// The sessions of each connection, by the index of its shard and its name there. The first shard
/// reports the sessions of all shards.
pub fn by_connection(gathered: &Gathered) -> HashMap<(usize, PeerId), Vec<Value>> {
    let mut all = HashMap::<_, Vec<_>>::new();
    for state in gathered.shards.iter().flat_map(|(_, counted)| &counted.app.sessions) {
        for at in &state.bound {
            let known = all.entry((at.shard, at.peer)).or_default();
            if known.len() < SHOWN_MAX {
                known.push(session(state));
            }
        }
    }
    all
}

fn session(state: &SessionState) -> Value {
    json!({
        "id": format!("{:032x}", u128::from_be_bytes(state.id)),
        "slots": { "used": state.busy_slots, "total": state.slots },
        "owner": state.owner.escape_ascii().to_string(),
    })
}

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

    #[test]
    fn sessions_stand_below_in_80_columns_with_every_octet_of_an_owner_escaped() {
        let state = SessionState {
            id: *b"\0\0\0\x07\0\0\0\x01\0\x02\0\x03\0\0\x01\x05",
            owner: [&b"Linux \x1b[2J\xff\n"[..], &[b'x'; 100]].concat().into(),
            busy_slots: 3,
            slots: 64,
            bound: Box::default(),
        };
        let session = session(&state);
        assert_eq!(session["id"], "00000007000000010002000300000105");
        assert!(session["owner"].as_str().unwrap().starts_with(r"Linux \x1b[2J\xff\nxx"));
        let client = |sessions| json!({ "id": "0.1.1", "sessions": sessions });
        let both = json!({ "clients": [client(json!([session])), client(json!([]))] });
        let shown = text(&both);
        assert!(shown.contains("\n0.1.1  00000105   3/64  Linux \\x1b"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert_eq!(text(&json!({ "clients": [client(json!([]))] })), "");
    }
}
