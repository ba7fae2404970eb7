//! Kerberos 5 contexts for RPCSEC_GSS (RFC 2203, RFC 4121), set up by MIT's libgssapi_krb5, which
//! is loaded when it is first needed: no program needs it to build or to start. A context is set
//! up once for each user and server; its keys leave the library here, and messages are protected
//! elsewhere.
//!
//! | file | content |
//! |---|---|
//! | `library.rs` | the functions, looked up one by one |
//! | `abi.rs` | the structures that cross the boundary, with their sizes |
//! | `handles.rs` | owners of the library's objects |
//! | `acceptor.rs` | [`GssAcceptor`]: the server's end |
//! | `initiator.rs` | [`GssInitiator`]: the client's end |
//! | `credentials.rs` | names and settings as the library takes them, failures in words |
//! | `fault.rs` | [`KerberosFault`]: causes of failures, with their fixes |
//! | `key.rs` | [`ContextSecret`]: the result |
//! | `token.rs`, `time.rs` | frames of tokens and KRB-ERROR, read without the library |
//! | `keytab.rs` | [`keytab::inspect`]: checks of a keytab without the library |
//!
//! **Environment.** Keytab, replay cache, credential cache and client keytab are settings that go
//! to the library with each credential (`gss_acquire_cred_from`), so no variable has to be set for
//! them. krb5.conf has no such way: `KRB5_CONFIG` has to be set before the process starts, and so
//! has `KRB5_TRACE`.
//!
//! **Threads.** [`GssLibrary`], [`GssAcceptor`] and [`GssInitiator`] are `Send` and `Sync`: MIT
//! locks a credential during each call that uses it, and names do not change. [`PendingContext`]
//! is `Send` only. Calls wait for files (keytab, replay cache), and an initiator's for the KDC:
//! make none on a shard's thread.
//!
//! **Refused.** Encryption types other than the four of AES (RFC 3962, RFC 8009), SPNEGO and all
//! other mechanisms, contexts of several rounds, tokens of more than [`TOKEN_LEN_MAX`] bytes.
//! Delegated credentials and channel bindings are ignored.

mod abi;
mod acceptor;
mod credentials;
mod fault;
mod handles;
mod initiator;
mod key;
pub mod keytab;
mod library;
mod time;
mod token;

pub use acceptor::{
    AcceptedContext, AcceptorSettings, GssAcceptor, NAME_LEN_MAX, RefusedToken, ReplayCache,
    TOKEN_LEN_MAX,
};
pub use credentials::ServiceName;
pub use fault::{GssFailure, KerberosFault};
pub use initiator::{ClientCredentials, GssInitiator, InitiatorSettings, PendingContext};
pub use key::{ContextSecret, SessionKey};
pub use library::{GssLibrary, NoGssLibrary};
pub use stag_gss::Enctype;
pub use time::KerberosTime;
pub use token::{KrbError, is_request};
