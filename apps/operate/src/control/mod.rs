//! Control of a running server through a Unix socket: the server's end, and the messages.

pub mod answers;
mod contexts;
pub mod server;
mod sessions;
mod states;
pub mod wire;

/// The name of the control socket in a state directory.
pub const CONTROL_FILE: &str = "control.sock";
