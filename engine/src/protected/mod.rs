//! Calls of peers that a context of RPCSEC_GSS protects (RFC 2203): between a message's header and
//! the app, in both directions.
//!
//! The app gets arguments without protection, and the context's user in place of the credential
//! ([`Credential::Proven`](stag_protocol::rpc::Credential)). It answers as it answers any call, and
//! what it keeps for retransmissions is unprotected, too: verifier and protection are made for each
//! reply that is sent, with the sequence number of its call (RFC 2203 §5.3.3.2).
//!
//! Items travel in chunks under `krb5`. Under integrity and privacy nothing is reduced (RFC 8166
//! §8.2.2.3): a call that does so is refused, and an item of the reply is part of its message.
//!
//! | file | what |
//! |---|---|
//! | `calls.rs` | a call with RPCSEC_GSS, until the app has it |
//! | `arguments.rs` | arguments, verified and opened |
//! | `inits.rs` | requests for contexts, and the end of contexts |
//! | `replies.rs` | verifiers and protection of replies |
//! | `steps.rs` | long calls and replies, a step in each pass; replies that wait for memory |
//! | `widened.rs` | a longer reply, in its own buffer, in that of its item, or in another |
//!
//! No call or reply waits for memory in vain: while a reply waits, slow peers that hold memory are
//! ended, as for calls in line. Arguments are opened in the buffer
//! that they arrived in, or in the shard's room. A reply is protected in the buffer of its message
//! or of its item; otherwise it takes a free buffer, or the one that is reserved for replies, and
//! waits until there is one.

mod arguments;
mod calls;
mod inits;
mod replies;
mod steps;
mod widened;
