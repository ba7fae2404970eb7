//! Sessions of NFS version 4 as JSON, by the connections that they are bound to.

use crate::metrics::Gathered;
use serde_json::{Value, json};
use stag_engine::PeerId;
use stag_nfs::SessionState;
use std::collections::HashMap;

/// Sessions that are shown of one connection.
const SHOWN_MAX: usize = 16;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_octet_of_an_owner_that_is_no_text_is_escaped() {
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
    }
}
