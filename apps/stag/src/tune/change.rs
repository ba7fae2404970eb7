//! `stag tune apply` and `revert`: changes of the running kernel, with a journal.

use super::{
    host,
    options::{TuneApplyOptions, TuneRevertOptions},
    scene,
};
use crate::{Error, caller::say};
use stag_tuning::{
    ChangeEnd, ChangeJournal, FixClass, HostReport, apply_change, checks, is_journal, plan_changes,
    revert_changes,
};
use std::{io, path::Path};

/// Makes the changes that checks want, or shows them.
pub fn apply(options: &TuneApplyOptions) -> Result<(), Error> {
    let all = checks::of_host();
    let tunable = all.into_iter().filter(|check| check.class == FixClass::Runtime).collect();
    let (scene, chosen) = scene(&options.plan, tunable)?;
    let changes = plan_changes(&scene.host, &HostReport::of(&scene, &chosen).changes());
    if changes.is_empty() {
        say("nothing to change\n");
        return Ok(());
    }
    if options.is_plan {
        for change in &changes {
            say(format!("{}: {} -> {}\n", change.key, change.old, change.new));
        }
        say(format!("{} changes; nothing was changed\n", changes.len()));
        return Ok(());
    }
    let mut journal = open(&options.journal)?;
    let mut refused = 0;
    for change in &changes {
        let end = apply_change(&scene.host, &mut journal, change);
        let end = end.map_err(|error| broken(&options.journal, &error))?;
        refused += usize::from(!matches!(end, ChangeEnd::Done));
        let (key, old, new) = (&change.key, &change.old, &change.new);
        say(format!("{key}: {old} -> {new}{}\n", words(&end)));
    }
    say(format!("undo with: stag tune revert --journal {}\n", options.journal.display()));
    match refused {
        0 => Ok(()),
        count => Err(Error::failure(format!("{count} of {} changes were not made", changes.len()))),
    }
}

/// Undoes what the journal has.
pub fn revert(options: &TuneRevertOptions) -> Result<(), Error> {
    if !is_journal(&options.journal) {
        say("nothing to undo\n");
        return Ok(());
    }
    let host = host(options.host.as_deref());
    let mut journal = open(&options.journal)?;
    let mut left = 0;
    revert_changes(&host, &mut journal, |key, old, end| {
        left += usize::from(matches!(end, ChangeEnd::Skipped(_) | ChangeEnd::Failed(_)));
        say(format!("{key}: {old}{}\n", words(end)));
    })
    .map_err(|error| broken(&options.journal, &error))?;
    match left {
        0 => Ok(()),
        1 => Err(Error::failure("one file was left as it is")),
        count => Err(Error::failure(format!("{count} files were left as they are"))),
    }
}

/// The text after a change; none if it was made.
fn words(end: &ChangeEnd) -> String {
    match end {
        ChangeEnd::Done => String::new(),
        ChangeEnd::Already => " (it is so already)".to_owned(),
        ChangeEnd::Skipped(why) => format!(" SKIPPED: {why}"),
        ChangeEnd::Failed(error) => format!(" FAILED: {error}"),
    }
}

fn open(path: &Path) -> Result<ChangeJournal, Error> {
    ChangeJournal::open(path).map_err(|error| broken(path, &error))
}

fn broken(path: &Path, error: &io::Error) -> Error {
    let path = path.display();
    Error::Refused(match error.kind() {
        io::ErrorKind::WouldBlock => format!("another 'stag tune' uses the journal {path}"),
        io::ErrorKind::PermissionDenied => format!("the journal {path} needs root (sudo)"),
        _ => format!("the journal {path} cannot be used: {error}"),
    })
}
