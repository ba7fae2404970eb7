//! Wire format between controllers and servers: one JSON object a line, each answered by one.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Octets of a request, its newline included.
pub const REQUEST_MAX: usize = 4_096;
/// Octets of a reply: many more than the largest server's.
pub const REPLY_MAX: usize = 64 << 20;

/// A request: `{"command":"drop","client":"10.0.0.5"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Version, addresses and state.
    Status,
    /// The exports.
    Exports,
    /// The ways to mount the exports.
    Mounts {
        /// By this version of NFS alone.
        #[serde(default)]
        nfs: Option<u8>,
    },
    /// Read the configuration again.
    Reload,
    /// All connections.
    Clients,
    /// The contexts of Kerberos, by principal.
    Contexts,
    /// End connections.
    Drop {
        /// Name of a connection, address of a client, or both with its port.
        client: String,
    },
    /// A page of the clients of NFS version 4.
    Clients4 {
        /// The place where the page begins: zero, or `next` of the page before.
        #[serde(default)]
        from: usize,
    },
    /// End a client of version 4 with all of its state.
    Expire {
        /// Its client ID.
        client: String,
    },
    /// The grace period of version 4.
    Grace {
        /// End it now.
        #[serde(default)]
        end: bool,
    },
    /// A page of opens.
    Opens(StatePage),
    /// A page of byte-range locks.
    Locks(StatePage),
    /// A page of delegations.
    Delegations(StatePage),
    /// Finish the calls in progress, end all connections, take none.
    Drain,
    /// Take connections again.
    Resume,
    /// All numbers.
    Stats,
    /// Times of calls, by procedure and stage.
    Hist,
    /// Log by another filter; or, without one, say by which.
    Log {
        /// As in `--log`.
        #[serde(default)]
        filter: Option<String>,
    },
    /// Memory, and its limits.
    Memory,
    /// The latest watched calls.
    Trace {
        /// At most this many.
        last: usize,
    },
}

/// A page of states of version 4.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatePage {
    /// Of the client with this client ID alone.
    #[serde(default)]
    pub client: Option<String>,
    /// Of the file with this handle alone.
    #[serde(default)]
    pub file: Option<String>,
    /// The place where the page begins: zero, or `next` of the page before.
    #[serde(default)]
    pub from: usize,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Reply {
    /// It was done; this is what there is to say.
    Ok(Value),
    /// It was not done; why, and what to do.
    Error(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_written_as_the_help_says() {
        for (line, request) in [
            (r#"{"command":"status"}"#, Request::Status),
            (r#"{"command":"contexts"}"#, Request::Contexts),
            (
                r#"{"command":"drop","client":"1.2.3.4"}"#,
                Request::Drop { client: "1.2.3.4".into() },
            ),
            (r#"{"command":"trace","last":5}"#, Request::Trace { last: 5 }),
            (r#"{"command":"log"}"#, Request::Log { filter: None }),
            (r#"{"command":"grace"}"#, Request::Grace { end: false }),
            (r#"{"command":"clients4"}"#, Request::Clients4 { from: 0 }),
            (
                r#"{"command":"opens","client":"7","from":9}"#,
                Request::Opens(StatePage { client: Some("7".into()), file: None, from: 9 }),
            ),
        ] {
            assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
        }
        assert!(serde_json::from_str::<Request>(r#"{"command":"drop"}"#).is_err());
        assert!(serde_json::from_str::<Request>(r#"{"command":"halt"}"#).is_err());
        assert!(serde_json::from_str::<Request>(r#"{"command":"opens","path":"/a"}"#).is_err());
        let reply = serde_json::to_string(&Reply::Error("no".to_owned())).unwrap();
        assert_eq!(reply, r#"{"error":"no"}"#);
    }
}
