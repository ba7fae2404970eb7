//! TCP connections of a shard: sockets, records, output, and TLS sessions (RFC 5531 §11, RFC 9289).
//!
//! This is the state that `stream` works with. Nothing here sees a call, or the shard.

mod handshakes;
mod input;
mod kernel_tls;
mod looks;
mod output;
mod probe;
mod silent;
mod socket;
mod table;
mod tls;

pub(crate) use handshakes::{COST_MIN, processor_time};
pub(crate) use input::{Source, gather};
pub(crate) use kernel_tls::KernelSession;
pub(crate) use looks::Surroundings;
pub(crate) use probe::{
    CallSecurity, NO_TLS, PROBE_MAX, emit_probe, emit_reply, judge, judge_reply,
};
pub(crate) use table::{Role, Stream, Streams};
pub(crate) use tls::TlsStep;

use std::time::Duration;

/// Octets read at a time, for all connections together.
pub(crate) const STAGING_LEN: usize = 256 << 10;
/// Parts, and octets, of replies waiting to be sent, above which a connection is not read: a client
/// that does not take its replies must not hold all buffers.
pub(crate) const OUTPUT_MAX: usize = 128;
pub(crate) const OUTPUT_OCTETS_MAX: usize = 4 << 20;
/// At most one part in `OUTPUT_PART` of the message slots may hold parts of waiting replies, on all
/// connections together.
pub(crate) const OUTPUT_PART: usize = 4;
/// Parts of replies sent at once.
pub(crate) const GATHER: usize = 64;
/// Calls in progress of one connection above which it is not read.
pub(crate) const CALLS_MAX: u32 = 128;
/// The time for which the listener pauses when the process has no descriptor left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The epoll data of the listener, in place of a connection's key.
pub(crate) const LISTENER: u64 = u64::MAX;
