//! Time that the threads of a process had a core (`/proc/PID/task/TID/schedstat`).

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

/// Time between two looks at a process.
const INTERVAL: Duration = Duration::from_millis(10);

/// Time that all threads of a process had a core.
///
/// # Errors
/// When there is no such process.
pub fn used(process: u32) -> Result<Duration, String> {
    let folder = format!("/proc/{process}/task");
    let threads = fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
    let times = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    });
    Ok(times.sum())
}

/// A look: when, since 1970, and how much the process had used until then.
type Look = (Duration, Duration);

/// Watches a process until it is dropped or asked.
#[derive(Debug)]
pub struct ProcessWatch {
    is_over: Arc<AtomicBool>,
    looks: Option<JoinHandle<Vec<Look>>>,
}

impl ProcessWatch {
    /// Begins to watch a process that does not lose threads meanwhile.
    pub fn begin(process: u32) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let looks = thread::spawn(move || {
            let mut looks = Vec::new();
            while !over.load(Ordering::Acquire) {
                let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                if let (Ok(at), Ok(used)) = (at, used(process)) {
                    looks.push((at, used));
                }
                thread::sleep(INTERVAL);
            }
            looks
        });
        Self { is_over, looks: Some(looks) }
    }

    /// Ends the watch: the time that the process had a core from `begin` to `end`, both since 1970.
    ///
    /// # Errors
    /// When it was not watched all the time.
    pub fn used_between(mut self, begin: Duration, end: Duration) -> Result<Duration, String> {
        self.is_over.store(true, Ordering::Release);
        let looks = self.looks.take().ok_or("nobody watched")?;
        let looks = looks.join().map_err(|_| "the watching thread panicked")?;
        let used = |at| used_at(&looks, at).ok_or("the server was not watched all the time");
        Ok(used(end)?.saturating_sub(used(begin)?))
    }
}

impl Drop for ProcessWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// Time used until a moment between two looks.
fn used_at(looks: &[Look], at: Duration) -> Option<Duration> {
    let place = looks.partition_point(|(moment, _)| *moment <= at);
    let ((before, low), (after, high)) = (looks.get(place.checked_sub(1)?)?, looks.get(place)?);
    let part = (at - *before).as_secs_f64() / (*after - *before).as_secs_f64();
    Some(*low + (*high - *low).mul_f64(part.clamp(0.0, 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_looks_the_use_is_even() {
        let ms = Duration::from_millis;
        let looks = [(ms(10), ms(0)), (ms(20), ms(8)), (ms(40), ms(8))];
        for (at, used) in [(10, Some(0)), (15, Some(4)), (20, Some(8)), (30, Some(8))] {
            assert_eq!(used_at(&looks, ms(at)), used.map(ms), "{at}");
        }
        for at in [9, 40, 50] {
            assert_eq!(used_at(&looks, ms(at)), None, "{at}");
        }
        assert_eq!(used_at(&[], ms(1)), None);
    }

    #[test]
    fn this_process_uses_time_and_no_process_uses_none() {
        let before = used(std::process::id()).unwrap();
        // Under other load this thread may have a processor for a small part of the time only.
        let begin = std::time::Instant::now();
        while used(std::process::id()).unwrap() == before {
            assert!(begin.elapsed() < Duration::from_secs(60), "a minute is not seen");
            (0..1000).for_each(|_| std::hint::spin_loop());
        }
        assert!(used(u32::MAX).is_err());
    }
}
