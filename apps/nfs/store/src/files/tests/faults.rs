//! Errors that blame the file system of an export: their log lines and their counts.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use super::*;
use crate::{
    Procedures,
    exports::faults::{FaultPlace, note},
};

/// Stores the fields of all events.
#[derive(Clone, Default)]
pub(super) struct KeptLog(Arc<Mutex<Vec<String>>>);

struct FieldText<'a>(&'a mut String);

impl Visit for FieldText<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}

impl Subscriber for KeptLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut FieldText(&mut text));
        self.0.lock().unwrap().push(text);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl KeptLog {
    pub(super) fn lines(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn faults(lab: &Lab) -> Vec<(String, u64)> {
    lab.files.shared().faults.counts().into_iter().collect()
}

#[test]
fn a_disk_that_fails_a_sync_is_logged_with_export_operation_and_error() {
    let log = KeptLog::default();
    tracing::subscriber::with_default(log.clone(), || {
        let mut lab = Lab::new();
        let handle = lab.file("f", b"x");
        assert!(Procedures::commit(&mut lab.files, &handle).is_ok());
        let root = lab.root();
        assert!(Procedures::lookup(&mut lab.files, &root, b"none").is_err());
        assert_eq!(log.lines(), [""; 0], "a name that is not there is no fault");
        lab.files.failing_syncs.set(1);
        assert!(Procedures::commit(&mut lab.files, &handle).is_err());
        let lines = log.lines();
        let [line] = &lines[..] else { panic!("{lines:?}") };
        for part in ["the file system of an export fails", "data", "COMMIT", "os error 5"] {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(faults(&lab), [("data".to_owned(), 1)]);
    });
}

#[test]
fn a_disk_that_goes_on_failing_is_counted_and_fills_no_log() {
    let log = KeptLog::default();
    tracing::subscriber::with_default(log.clone(), || {
        let mut lab = Lab::new();
        let handle = lab.file("f", b"x");
        lab.files.failing_syncs.set(500);
        for _ in 0..500 {
            assert!(Procedures::commit(&mut lab.files, &handle).is_err());
        }
        assert_eq!(faults(&lab), [("data".to_owned(), 500)]);
        let lines = log.lines().len();
        assert!((1..100).contains(&lines), "{lines} lines");
        assert!(lab.files.wants_idle_passes(), "the number left out is logged later");
    });
}

#[test]
fn files_that_are_gone_and_exports_mounted_read_only_are_no_faults() {
    let mut lab = Lab::new();
    let handle = lab.file("f", b"x");
    note(Errno::STALE, Status::Stale, FaultPlace::Export);
    assert!(Procedures::getattr(&mut lab.files, &handle).is_ok());
    assert_eq!(faults(&lab), []);
    // This export was not read-only at the start.
    note(Errno::ROFS, Status::RoFs, FaultPlace::Export);
    assert!(Procedures::getattr(&mut lab.files, &handle).is_ok());
    assert_eq!(faults(&lab), [("data".to_owned(), 1)]);
}
