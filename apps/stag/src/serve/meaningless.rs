//! Settings that say whom callers act as, where every caller acts as the user of the server.

use super::{
    options::{ModeOption, ServeOptions},
    plan::Plan,
};
use crate::{
    Error,
    settings::{ExportEntry, Origins},
};

/// Keys of an export, and of its clients, that only a server of privileged mode follows.
const KEYS: [&str; 3] = ["squash", "anonuid", "anongid"];

/// The first setting that means nothing in unprivileged mode, as a sentence begins with it.
pub fn of_users(
    arguments: &ServeOptions,
    entries: &[ExportEntry],
    origins: &Origins,
) -> Option<String> {
    let flags = [
        ("--squash", !arguments.squash.is_empty()),
        ("--anonuid", arguments.anonuid.is_some()),
        ("--anongid", arguments.anongid.is_some()),
    ];
    if let Some((flag, _)) = flags.into_iter().find(|(_, is_given)| *is_given) {
        return Some(flag.to_owned());
    }
    let keys = entries.iter().flat_map(|entry| {
        let of_clients = entry.client_places.iter().flat_map(|place| &place.keys);
        entry.keys.iter().chain(of_clients)
    });
    let mut found = keys.filter(|(key, _)| KEYS.contains(&key.as_str()));
    found.next().map(|(key, line)| format!("{}: {key} of an export", origins.at(*line)))
}

/// Refuses such a setting where unprivileged mode is asked for.
///
/// # Errors
/// The setting, and what to do about it.
pub fn check_asked(arguments: &ServeOptions, setting: Option<&String>) -> Result<(), Error> {
    match setting.filter(|_| arguments.mode == Some(ModeOption::Unprivileged)) {
        Some(setting) => Err(Error::usage(format!(
            "{setting} means nothing with --mode unprivileged, where every caller acts as the \
             server's user: leave it out"
        ))),
        None => Ok(()),
    }
}

/// Refuses such a setting where the mode came out as unprivileged, for want of privileges.
///
/// # Errors
/// The setting, and what to do about it.
pub fn check_found(plan: &Plan, is_privileged: bool) -> Result<(), Error> {
    match plan.setting_of_users.as_ref().filter(|_| !is_privileged) {
        Some(setting) => Err(Error::usage(format!(
            "{setting} means nothing where every caller acts as the server's user, because this \
             process cannot act as others: leave it out, or run the server as root (--mode \
             privileged says what it lacks)"
        ))),
        None => Ok(()),
    }
}
