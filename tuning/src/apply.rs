//! Changes of kernel settings at run time: planned, recorded in a journal, made and undone.

use crate::{ChangeJournal, HostChange, HostFiles, JournalEntry, host::chosen, keys::is_tunable};
use std::{
    io,
    time::{SystemTime, UNIX_EPOCH},
};

/// The id of the boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// A change, with the value that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChange {
    /// The file.
    pub key: String,
    /// Its value.
    pub old: String,
    /// The value to give it.
    pub new: String,
}

/// End of one change, or of its undoing.
#[derive(Debug)]
pub enum ChangeEnd {
    /// It was made or undone.
    Done,
    /// Nothing was to be done: the file has the value already.
    Already,
    /// It was left, for this reason.
    Skipped(String),
    /// The host refused it.
    Failed(io::Error),
}

/// The value of the file `key`: the choice, where it offers several.
fn current(host: &HostFiles, key: &str) -> Option<String> {
    let text = host.text(key).ok()?;
    let value = chosen(&text).unwrap_or(&text);
    Some(value.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Those of `changes` that can be made and undone, with the values that are there.
#[must_use]
pub fn plan_changes(host: &HostFiles, changes: &[HostChange]) -> Vec<PlannedChange> {
    let tunable = changes.iter().filter(|change| is_tunable(&change.key));
    tunable
        .filter_map(|HostChange { key, new }| {
            let old = current(host, key)?;
            (old != *new).then(|| PlannedChange { key: key.clone(), old, new: new.clone() })
        })
        .collect()
}

/// Makes a change after recording it in the journal.
///
/// # Errors
/// Those of the journal. The change is not made then, unless only the line after it is missing.
pub fn apply_change(
    host: &HostFiles,
    journal: &mut ChangeJournal,
    change: &PlannedChange,
) -> io::Result<ChangeEnd> {
    let PlannedChange { key, old, new } = change.clone();
    if !is_tunable(&key) {
        return Ok(ChangeEnd::Skipped("no file that tuning may change".to_owned()));
    }
    if current(host, &key).as_ref() != Some(&old) {
        return Ok(ChangeEnd::Skipped("it changed a moment ago".to_owned()));
    }
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let boot = host.text(BOOT).unwrap_or_default();
    journal.append(JournalEntry::Set { key: key.clone(), old, new: new.clone(), boot, time })?;
    let written = host.write(&key, &new);
    if let Some(value) = current(host, &key) {
        journal.append(JournalEntry::Became { key, value })?;
    }
    Ok(written.map_or_else(ChangeEnd::Failed, |()| ChangeEnd::Done))
}

/// Undoes all changes of the journal, the newest first, and reports each result to `tell`. A file
/// with neither our value nor the earlier one was changed by another program, and is left. The
/// journal is emptied, unless the host refused something.
///
/// # Errors
/// Those of the journal.
pub fn revert_changes(
    host: &HostFiles,
    journal: &mut ChangeJournal,
    mut tell: impl FnMut(&str, &str, &ChangeEnd),
) -> io::Result<()> {
    let boot = host.text(BOOT).unwrap_or_default();
    let mut became: Option<(String, String)> = None;
    let mut is_whole = true;
    for entry in journal.entries().iter().rev() {
        match entry {
            JournalEntry::Became { key, value } => became = Some((key.clone(), value.clone())),
            JournalEntry::Set { key, old, new, boot: then, .. } => {
                let shown = became.take().filter(|(of, _)| of == key).map(|(_, value)| value);
                let is_ours = |value: &str| match &shown {
                    Some(shown) => value == shown,
                    None => value == new || is_between(value, old, new),
                };
                let end = match *then == boot {
                    true => restore(host, key, old, is_ours),
                    false => ChangeEnd::Skipped("the host was booted since".to_owned()),
                };
                is_whole &= !matches!(end, ChangeEnd::Failed(_));
                tell(key, old, &end);
            }
        }
    }
    if is_whole {
        journal.clear()?;
    }
    Ok(())
}

/// Returns true if all are numbers and `value` is between `old` and `new`. The kernel reserves huge
/// pages one by one, and stops when the process that requested them is killed.
fn is_between(value: &str, old: &str, new: &str) -> bool {
    let (Ok(value), Ok(old), Ok(new)) =
        (value.parse::<i64>(), old.parse::<i64>(), new.parse::<i64>())
    else {
        return false;
    };
    (old.min(new)..=old.max(new)).contains(&value)
}

fn restore(host: &HostFiles, key: &str, old: &str, is_ours: impl Fn(&str) -> bool) -> ChangeEnd {
    if !is_tunable(key) {
        return ChangeEnd::Skipped("no file that tuning may change".to_owned());
    }
    match current(host, key) {
        None => ChangeEnd::Skipped("it is gone".to_owned()),
        Some(value) if value == old => ChangeEnd::Already,
        Some(value) if is_ours(&value) => match host.write(key, old) {
            Ok(()) => ChangeEnd::Done,
            Err(error) => ChangeEnd::Failed(error),
        },
        Some(value) => ChangeEnd::Skipped(format!("somebody else set it to {value}")),
    }
}
