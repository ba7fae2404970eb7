//! Steps of `stag accept`, run one after another, each with its own result.

use super::report::{AcceptStep, StepVerdict};
use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    sync::Once,
    time::Instant,
};

/// Figures of a step, by name and unit.
pub type Figures = BTreeMap<String, f64>;

/// The reason why a step did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepFault {
    /// It was not as it should be.
    Failed(String),
    /// It was not tried.
    Skipped(String),
}

impl From<String> for StepFault {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

/// Carries out a step. One that panics has failed, with the message of the panic.
pub fn judge(
    name: impl Into<String>,
    step: impl FnOnce() -> Result<Figures, StepFault>,
) -> AcceptStep {
    let began = Instant::now();
    let end = caught(step).unwrap_or_else(|words| Err(StepFault::Failed(words)));
    let took_ms = began.elapsed().as_secs_f64() * 1e3;
    let (verdict, reason, figures) = match end {
        Ok(figures) => (StepVerdict::Passed, None, figures),
        Err(StepFault::Failed(why)) => (StepVerdict::Failed, Some(why), Figures::new()),
        Err(StepFault::Skipped(why)) => (StepVerdict::Skipped, Some(why), Figures::new()),
    };
    AcceptStep { name: name.into(), verdict, reason, took_ms, figures }
}

thread_local! {
    /// True while panics of this thread are caught and not printed.
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
    /// Message and place of the first panic of this thread while it was watched.
    static WORDS: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `run`; an error is the message and the place of its panic, which is not printed.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| match IS_WATCHED.get() {
            true => note(panicked),
            false => before(panicked),
        }));
    });
    WORDS.take();
    let was_watched = IS_WATCHED.replace(true);
    let end = panic::catch_unwind(AssertUnwindSafe(run));
    IS_WATCHED.set(was_watched);
    end.map_err(|payload| WORDS.take().unwrap_or_else(|| words(&*payload)))
}

fn note(panicked: &PanicHookInfo<'_>) {
    let mut said = words(panicked.payload());
    if let Some(at) = panicked.location() {
        said = format!("{}:{}: {said}", at.file(), at.line());
    }
    WORDS.with_borrow_mut(|words| words.get_or_insert(said).len());
}

fn words(payload: &dyn Any) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it panicked".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_panics_has_failed_with_the_words_and_the_place() {
        let step = judge("a case", || panic!("octet {} differs", 7));
        assert_eq!((step.verdict, step.name.as_str()), (StepVerdict::Failed, "a case"));
        let reason = step.reason.unwrap();
        assert!(reason.ends_with(": octet 7 differs") && reason.contains("steps.rs:"), "{reason}");
    }

    #[test]
    fn each_end_of_a_step_has_its_verdict() {
        let figures = Figures::from([("p50_us".to_owned(), 2.5)]);
        let passed = judge("a", || Ok(figures.clone()));
        assert_eq!((passed.verdict, passed.figures), (StepVerdict::Passed, figures));
        let failed = judge("b", || Err("it ended".to_owned().into()));
        assert_eq!(
            (failed.verdict, failed.reason.as_deref()),
            (StepVerdict::Failed, Some("it ended"))
        );
        let skipped = judge("c", || Err(StepFault::Skipped("not asked for".to_owned())));
        assert_eq!(skipped.verdict, StepVerdict::Skipped);
        assert_eq!(judge("d", || Ok(Figures::new())).reason, None, "an earlier panic is forgotten");
    }

    #[test]
    fn a_later_panic_of_the_same_thread_has_its_own_words() {
        assert_eq!(caught(|| 1), Ok(1));
        assert!(caught(|| panic!("first")).unwrap_err().ends_with(": first"));
        assert!(caught(|| panic!("second")).unwrap_err().ends_with(": second"));
    }
}
