//! Ctrl-C during a run: the first one ends it early and in order, the second one leaves at once.

use crate::Error;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Whether somebody asked for the end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asked for by SIGINT and SIGTERM, from here on to the end of the process.
    pub fn by_signals() -> Result<Self, Error> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal does not find the flag that it raises.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop.0))
                .and_then(|_| flag::register(signal, Arc::clone(&stop.0)))
                .map_err(|error| Error::failure(format!("cannot wait for signals: {error}")))?;
        }
        Ok(stop)
    }

    /// It was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
