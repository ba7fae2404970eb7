//! What is logged: connections and refusals, on standard error. Never anything on the path of a call.

use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Starts logging, filtered by `STAG_LOG`. A filter that cannot be read is said once, and the default is used.
pub fn start() {
    let wanted = std::env::var("STAG_LOG").unwrap_or_default();
    let filter = match wanted.parse::<Targets>() {
        Ok(filter) if !wanted.is_empty() => filter,
        other => {
            if let Err(error) = other {
                eprintln!("stag: STAG_LOG is ignored: {error}");
            }
            Targets::new().with_default(tracing::Level::INFO)
        }
    };
    let events = fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    tracing_subscriber::registry().with(filter).with(events).init();
}
