//! Notifications of systemd (sd_notify(3)): that the server is ready, stops, reloads, or is alive.

use sd_notify::NotifyState;

/// Notifies systemd, if it started the server.
pub fn tell_systemd(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::warn!(target: "stag", %error, "systemd cannot be told");
    }
}
