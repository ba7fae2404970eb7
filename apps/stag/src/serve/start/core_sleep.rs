//! Sleep states of cores: deep ones are allowed while all shards rest (DESIGN D10).

use crate::serve::plan::options::AwakeOption;
use stag_engine::RestListener;
use stag_tuning::ProcessSettings;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts the shards that work, and allows deep sleep states when there are none.
#[derive(Debug)]
struct RestCount {
    settings: Arc<ProcessSettings>,
    /// Shards that work. Locked while the kernel is notified, so that the last setting is right.
    working: Mutex<usize>,
}

/// The listener of all shards; none where sleep states stay as they are.
pub(super) fn listener(
    awake: AwakeOption,
    settings: &Arc<ProcessSettings>,
) -> Option<Arc<dyn RestListener>> {
    let is_wanted = awake == AwakeOption::Busy && settings.holds_awake();
    is_wanted.then(|| {
        let settings = Arc::clone(settings);
        Arc::new(RestCount { settings, working: Mutex::new(0) }) as Arc<dyn RestListener>
    })
}

impl RestListener for RestCount {
    fn on_work(&self) {
        let mut working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        *working += 1;
        if *working == 1 {
            self.settings.hold_awake(true);
        }
    }

    fn on_rest(&self) {
        let mut working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        *working = working.saturating_sub(1);
        if *working == 0 {
            self.settings.hold_awake(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_sleep_states_are_allowed_only_while_no_shard_works() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("latency");
        std::fs::write(&path, "").unwrap();
        let settings = Arc::new(ProcessSettings::of_file(&path).unwrap());
        let latest = || {
            let told = std::fs::read(&path).unwrap();
            i32::from_ne_bytes(*told.last_chunk().unwrap())
        };
        assert!(listener(AwakeOption::Always, &settings).is_none());
        let both = listener(AwakeOption::Busy, &settings).unwrap();
        both.on_work();
        both.on_work();
        assert_eq!(latest(), 0);
        both.on_rest();
        assert_eq!(latest(), 0, "one works");
        both.on_rest();
        assert_eq!(latest(), 2_000_000_000, "as long as the kernel likes");
        both.on_work();
        assert_eq!(latest(), 0);
    }
}
