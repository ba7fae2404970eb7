//! Interruption of a run, by Ctrl-C, the loss of the terminal or the like: the first one ends it
//! early and in order, the second one exits at once.

use crate::{Error, signals};
use signal_hook::{consts::SIGUSR1, flag};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Flag that is set once a signal asks for the end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asked for by SIGINT, SIGTERM and their like ([`signals::stopping`]), from here on to the end
    /// of the process.
    pub fn by_signals() -> Result<Self, Error> {
        let stop = Self::default();
        let failed = |error: io::Error| Error::failure(format!("cannot wait for signals: {error}"));
        for signal in signals::stopping() {
            // In this order, the first signal does not see the flag that it sets itself.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop.0))
                .and_then(|_| flag::register(signal, Arc::clone(&stop.0)))
                .map_err(failed)?;
        }
        signals::ignore(signals::strays().into_iter().chain([SIGUSR1])).map_err(failed)?;
        Ok(stop)
    }

    /// Asked for by whatever sets `flag`.
    pub fn of(flag: &Arc<AtomicBool>) -> Self {
        Self(Arc::clone(flag))
    }

    /// The flag that is set when it is asked for.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Asks for the end, as a signal does.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// It was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
