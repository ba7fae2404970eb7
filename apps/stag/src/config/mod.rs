//! `stag config`: an example of a server's settings file, and the resulting settings.

pub mod options;
mod show;

use crate::{Error, caller::say, serve::options::ServeOptions, settings};
use clap::Args as _;
use options::{ConfigOptions, ConfigWhat, ShowSettings};
use std::{env, ffi::OsString};

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");

/// A file with every setting.
const EXAMPLE: &str = include_str!("example.toml");

/// Does what was asked for.
pub fn run(options: &ConfigOptions) -> Result<(), Error> {
    match &options.what {
        ConfigWhat::Example => say(EXAMPLE),
        ConfigWhat::Show(show) => {
            // The arguments after `stag config show`.
            let words: Vec<OsString> = env::args_os().skip(3).collect();
            let merged = settings::merge::<ShowSettings>(&words, show.serve.config.as_deref())?;
            let command = ServeOptions::augment_args(clap::Command::new("serve"));
            say(if show.json {
                show::json(&merged, &command)
            } else {
                show::text(&merged, &command)
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The example with its commented settings in force.
    fn in_force() -> String {
        let line = |line: &str| match line.strip_prefix("#") {
            Some(rest) if !rest.starts_with([' ', '#']) && !rest.is_empty() => rest.to_owned(),
            _ => line.to_owned(),
        };
        EXAMPLE.lines().map(line).collect::<Vec<_>>().join("\n")
    }

    fn read(text: &str) -> settings::Merged<ServeOptions> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("stag.toml");
        std::fs::write(&path, text).unwrap();
        let flag = OsString::from(format!("--config={}", path.display()));
        settings::merge(&[flag], Some(Path::new(&path))).unwrap()
    }

    #[test]
    fn the_example_can_be_read_as_it_is_and_with_everything_in_it_in_force() {
        assert_eq!(read(EXAMPLE).exports.len(), 1);
        // Memory is served instead of directories, and by no cluster.
        let all: Vec<_> = in_force()
            .lines()
            .filter(|line| !["memory =", "slow = ["].iter().any(|key| line.starts_with(key)))
            .map(str::to_owned)
            .collect();
        let all = read(&all.join("\n"));
        assert!(all.exports.len() > 1 && all.exports.iter().any(|it| !it.rules.are_usual()));
        assert!(!all.listen.is_empty());
    }

    #[test]
    fn the_example_has_every_flag_that_a_file_can_hold() {
        let command = ServeOptions::augment_args(clap::Command::new("serve"));
        for flag in show::shown(&command) {
            let key = settings::key_of(flag);
            let is_there = in_force()
                .lines()
                .any(|line| line.split_once('=').is_some_and(|(left, _)| left.trim() == key));
            // Listeners are tables there.
            assert!(is_there || key == "listen", "{key} is missing");
        }
    }
}
