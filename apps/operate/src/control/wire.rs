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
        ] {
            assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
        }
        assert!(serde_json::from_str::<Request>(r#"{"command":"drop"}"#).is_err());
        assert!(serde_json::from_str::<Request>(r#"{"command":"halt"}"#).is_err());
        let reply = serde_json::to_string(&Reply::Error("no".to_owned())).unwrap();
        assert_eq!(reply, r#"{"error":"no"}"#);
    }
}
