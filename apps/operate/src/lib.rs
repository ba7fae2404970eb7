//! Operation of a server: what an operator sees of it and changes while it runs.
//!
//! Facts about a server are here, without a command line: [`trace`] is its log, [`metrics`] its
//! numbers with the pages of `GET /metrics`, [`control`] the server's end of `stag ctl`,
//! [`exports`] the list of its exports, and [`observe`] binds the sockets of both pages and
//! control. `stag serve` calls them. Errors are sentences for people, which name the flag that
//! gives another value.
#![forbid(unsafe_code)]

pub mod control;
pub mod exports;
pub mod metrics;
pub mod mounts;
pub mod observe;
pub mod quote;
pub mod trace;

/// An error of the system without its number.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
