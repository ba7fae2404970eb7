//! Job files: the flags of `stag bench` in TOML, by their long names. Flags on the command line
//! override them.

use clap::Command;
use std::ffi::OsString;
use toml::{Table, Value};

/// Content of a job file.
#[derive(Debug, Default, PartialEq)]
pub struct Job {
    /// URL to call.
    pub url: Option<String>,
    /// The rest, as on the command line.
    pub flags: Vec<OsString>,
}

impl Job {
    /// Reads a job file for `command`, which defines the flags.
    ///
    /// # Errors
    /// A sentence that names the fault and its line.
    pub fn parse(text: &str, command: &Command) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error
                .span()
                .map_or(1, |span| text.get(..span.start).unwrap_or_default().split('\n').count());
            format!("line {line}: {}", error.message().replace('\n', "; "))
        })?;
        let mut job = Self::default();
        for (key, value) in &table {
            if key == "url" {
                let url = value.as_str().ok_or("url has to be a text in quotation marks")?;
                job.url = Some(url.to_owned());
                continue;
            }
            if ROLES.contains(&key.as_str()) {
                continue;
            }
            let flag = command
                .get_arguments()
                .find(|flag| flag.get_long() == Some(key) && is_of_jobs(key));
            let Some(flag) = flag else { return Err(unknown(key, command)) };
            let takes_value = flag.get_action().takes_values();
            match value {
                Value::Boolean(is_set) if !takes_value => {
                    if *is_set {
                        job.flags.push(format!("--{key}").into());
                    }
                }
                _ if !takes_value => return Err(format!("{key} is true or false")),
                value => {
                    let text = word(value).ok_or_else(|| {
                        format!("{key} has to be a text, a number or a list of them")
                    })?;
                    job.flags.push(format!("--{key}={text}").into());
                }
            }
        }
        Ok(job)
    }
}

/// Keys that assign roles to the tasks of a Slurm step: `--slurm` reads them.
const ROLES: [&str; 2] = ["servers", "serve"];

fn is_of_jobs(key: &str) -> bool {
    !["job", "slurm", "help", "version"].contains(&key)
}

fn unknown(key: &str, command: &Command) -> String {
    let known = command
        .get_arguments()
        .filter_map(|flag| flag.get_long())
        .filter(|known| is_of_jobs(known));
    let known: Vec<_> = ["url"].into_iter().chain(known).collect();
    format!("nothing is called {key:?} here, only {}", known.join(", "))
}

/// A value as on the command line.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Array(values) => {
            let words =
                values.iter().map(|value| if value.is_array() { None } else { word(value) });
            words.collect::<Option<Vec<_>>>().map(|words| words.join(","))
        }
        Value::Boolean(_) | Value::Datetime(_) | Value::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::options::{BenchOptions, RunOptions};
    use clap::Args;

    fn parse(text: &str) -> Result<Job, String> {
        let command = RunOptions::augment_args(Command::new("bench"));
        Job::parse(text, &command)
    }

    #[test]
    fn keys_are_flags() {
        let job = parse(
            "# a job\nurl = \"tcp://h:1/x\"\nworkload = 'nfs3:read'\ndepth = 8\nsize = ['4K', \
             65536]\n\
             duration = 0.5\nno-verify = true\n",
        );
        let job = job.unwrap();
        assert_eq!(job.url.as_deref(), Some("tcp://h:1/x"));
        let mut flags = job.flags;
        flags.sort();
        assert_eq!(
            flags,
            [
                "--depth=8",
                "--duration=0.5",
                "--no-verify",
                "--size=4K,65536",
                "--workload=nfs3:read"
            ]
            .map(OsString::from)
        );
        assert_eq!(parse("no-verify = false"), Ok(Job::default()));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, part) in [
            ("dept = 8", "nothing is called \"dept\" here, only url, workload, size"),
            ("[bench]\ndepth = 8", "nothing is called \"bench\""),
            ("job = 'x'", "nothing is called \"job\""),
            ("help = true", "nothing is called \"help\""),
            ("depth = 1\ndepth = 2", "line 2"),
            ("depth = ", "line 1"),
            ("url = 5", "url has to be a text"),
            ("no-verify = 'yes'", "true or false"),
            ("depth = true", "a text, a number or a list"),
            ("size = [[1]]", "a text, a number or a list"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn flags_on_the_command_line_override_those_of_the_file() {
        let arguments = ["--depth=8", "--size=1K,2K", "--depth", "3", "--size", "4K", "tcp://h:1"];
        let bench = BenchOptions::read(arguments.map(OsString::from)).unwrap();
        assert_eq!((bench.run.depth, bench.run.size.unwrap().0), (Some(3), vec![4_096]));
        BenchOptions::definition().debug_assert();
    }
}
