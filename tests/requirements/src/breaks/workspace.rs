//! The copy of the workspace in which lines are broken, and its builds by cargo.

use super::targets::{Targets, TestTarget};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The time between two looks at a running test.
const LOOK: Duration = Duration::from_millis(10);
/// The most address space of a test, in KiB: a broken loop that never ends must not take the host's
/// memory.
const MEMORY_KIB: u64 = 16 << 20;

/// A copy of the workspace with build results of its own, both kept from run to run.
#[derive(Debug)]
pub struct Workspace {
    source: PathBuf,
    folder: PathBuf,
    /// Held as long as the copy is used: two runs in one copy would break each other's lines.
    _lock: File,
}

/// The result of a build.
#[derive(Debug)]
pub enum Build {
    /// The test programs, by their targets.
    Done(BTreeMap<TestTarget, PathBuf>),
    /// It does not compile.
    Refused {
        /// The first error.
        error: String,
        /// An assertion that is checked when compiling is the reason.
        by_assertion: bool,
    },
}

/// The results of some tests of one program.
#[derive(Debug, Default)]
pub struct TestOutcome {
    /// Tests that passed, by their full names.
    pub passed: BTreeSet<String>,
    /// Tests that failed.
    pub failed: BTreeSet<String>,
    /// Tests that reported that they cannot run here.
    pub skipped: BTreeSet<String>,
    /// The program was stopped because it took too long.
    pub is_hung: bool,
    /// The time it took.
    pub took: Duration,
}

impl Workspace {
    /// Brings the copy of `source` in `folder` up to date; files that did not change keep their
    /// times, so that little is built again.
    ///
    /// # Errors
    ///
    /// Files that cannot be read or written, or another run that uses the copy.
    pub fn open(source: &Path, folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder.join("tree"))?;
        let lock = File::create(folder.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::other(format!(
                "another run uses {}; fix: wait, or name another --dir",
                folder.display()
            )),
            TryLockError::Error(error) => error,
        })?;
        let workspace =
            Self { source: source.to_owned(), folder: folder.canonicalize()?, _lock: lock };
        let mut kept = BTreeSet::new();
        workspace.copy(Path::new(""), &mut kept)?;
        workspace.remove_others(Path::new(""), &kept)?;
        Ok(workspace)
    }

    /// The folder of the copy.
    #[must_use]
    pub fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    fn copy(&self, below: &Path, kept: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(self.source.join(below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if is_left_out(&path) {
                continue;
            }
            let to = self.tree().join(&path);
            if entry.path().is_dir() {
                fs::create_dir_all(&to)?;
                kept.insert(path.clone());
                self.copy(&path, kept)?;
            } else if entry.path().is_file() {
                if fs::read(&to).ok() != Some(fs::read(entry.path())?) {
                    fs::copy(entry.path(), &to)?;
                    // A copy has the time of its making: cargo looks at nothing else.
                    File::options()
                        .append(true)
                        .open(&to)?
                        .set_modified(std::time::SystemTime::now())?;
                }
                kept.insert(path);
            }
        }
        Ok(())
    }

    fn remove_others(&self, below: &Path, kept: &BTreeSet<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(self.tree().join(below))? {
            let path = below.join(entry?.file_name());
            let full = self.tree().join(&path);
            match (kept.contains(&path), full.is_dir()) {
                (true, true) => self.remove_others(&path, kept)?,
                (true, false) => {}
                (false, true) => fs::remove_dir_all(full)?,
                (false, false) => fs::remove_file(full)?,
            }
        }
        Ok(())
    }

    /// Replaces a file of the copy until the result is dropped.
    ///
    /// # Errors
    ///
    /// A file that cannot be written.
    pub fn replace(&self, file: &str, text: &str) -> io::Result<Replaced> {
        let path = self.tree().join(file);
        let original = fs::read(&path)?;
        let replaced = Replaced { path, original };
        fs::write(&replaced.path, text)?;
        Ok(replaced)
    }

    /// The packages of the copy and their test programs.
    ///
    /// # Errors
    ///
    /// The words of cargo when it refuses.
    pub fn targets(&self) -> io::Result<Targets> {
        let output = self
            .cargo("metadata")
            .args(["--no-deps", "--format-version=1", "--locked"])
            .output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Targets::parse(&self.tree(), &output.stdout)
    }

    /// Builds test programs of one package.
    ///
    /// # Errors
    ///
    /// A cargo that cannot be run, or fails for another reason than the code.
    pub fn build(&self, package: &str, targets: &BTreeSet<TestTarget>) -> io::Result<Build> {
        let mut cargo = self.cargo("test");
        cargo.args(["--no-run", "--locked", "--message-format=json", "--package", package]);
        targets.iter().for_each(|target| _ = cargo.args(target.arguments()));
        let output = cargo.output()?;
        let mut programs = BTreeMap::new();
        let mut error = None;
        let mut by_assertion = false;
        let text = String::from_utf8_lossy(&output.stdout);
        for message in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            if let Some(program) = message.get("executable").and_then(Value::as_str)
                && let Some(target) = targets.iter().find(|target| target.is_in(&message))
            {
                programs.insert(target.clone(), PathBuf::from(program));
            }
            let Some(told) = message.get("message") else { continue };
            if told.get("level").and_then(Value::as_str) == Some("error") {
                by_assertion |= told.pointer("/code/code").and_then(Value::as_str) == Some("E0080");
                error = error.or_else(|| Some(told.get("message")?.as_str()?.to_owned()));
            }
        }
        match error {
            Some(error) => Ok(Build::Refused { error, by_assertion }),
            None if output.status.success() => Ok(Build::Done(programs)),
            None => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }

    fn cargo(&self, command: &str) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // Debug information, for messages that are not read, costs a third of the time to link.
        cargo
            .arg(command)
            .current_dir(self.tree())
            .env("CARGO_TARGET_DIR", self.folder.join("target"))
            .env("CARGO_PROFILE_TEST_DEBUG", "false")
            .env("CARGO_INCREMENTAL", "1")
            .stdin(Stdio::null());
        cargo
    }

    /// The tests of a program, by their full names.
    ///
    /// # Errors
    ///
    /// A program that cannot be run.
    pub fn list(&self, program: &Path, target: &TestTarget) -> io::Result<Vec<String>> {
        let mut command = Command::new(program);
        let output =
            self.surround(&mut command, target).args(["--list", "--format=terse"]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect())
    }

    /// Runs some tests of a program, for at most `limit`.
    ///
    /// # Errors
    ///
    /// A program that cannot be run, or a file for its output that cannot be written.
    pub fn run(
        &self,
        program: &Path,
        target: &TestTarget,
        names: &BTreeSet<String>,
        limit: Duration,
    ) -> io::Result<TestOutcome> {
        let log = self.folder.join("output");
        let output = File::create(&log)?;
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -v {MEMORY_KIB}; exec \"$@\""), "sh"]).arg(program);
        self.surround(&mut command, target)
            .args(["--exact", "--show-output"])
            .args(names)
            .stdout(output.try_clone()?)
            .stderr(output);
        let began = Instant::now();
        let mut child = command.spawn()?;
        let mut outcome = TestOutcome::default();
        let is_well = loop {
            if let Some(status) = child.try_wait()? {
                break status.success();
            }
            if began.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                outcome.is_hung = true;
                break false;
            }
            std::thread::sleep(LOOK);
        };
        outcome.took = began.elapsed();
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        outcome.read(&text, names, is_well);
        Ok(outcome)
    }

    fn surround<'c>(&self, command: &'c mut Command, target: &TestTarget) -> &'c mut Command {
        let folder = self.tree().join(&target.folder);
        command
            .env("CARGO_MANIFEST_DIR", &folder)
            .env("CARGO_TARGET_DIR", self.folder.join("target"))
            .current_dir(folder)
            .stdin(Stdio::null())
    }
}

impl TestOutcome {
    /// Reads what a program printed. Of a program that died, the tests that did not end are those
    /// that failed.
    fn read(&mut self, text: &str, names: &BTreeSet<String>, is_well: bool) {
        for line in text.lines().filter_map(|line| line.strip_prefix("test ")) {
            let Some((name, result)) = line.rsplit_once(" ... ") else { continue };
            let name = name.split(" - ").next().unwrap_or(name);
            match result.split([' ', ',']).next() {
                Some("ok") => self.passed.insert(name.to_owned()),
                Some("FAILED") => self.failed.insert(name.to_owned()),
                Some("ignored") => self.skipped.insert(name.to_owned()),
                _ => false,
            };
        }
        for name in names {
            let said = format!("---- {name} stdout ----\nskipped");
            if self.passed.contains(name) && text.contains(&said) {
                self.passed.remove(name);
                self.skipped.insert(name.clone());
            }
            let has_ended =
                [&self.passed, &self.failed, &self.skipped].iter().any(|set| set.contains(name));
            if !is_well && !has_ended {
                self.failed.insert(name.clone());
            }
        }
    }
}

/// Build results, hidden files and links to nowhere are not copied.
fn is_left_out(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name == "target" || name.starts_with('.')
}

/// A file of the copy that has other text for a while.
#[derive(Debug)]
pub struct Replaced {
    path: PathBuf,
    original: Vec<u8>,
}

impl Drop for Replaced {
    fn drop(&mut self) {
        // The next run compares all files and would repair this one.
        let _ = fs::write(&self.path, &self.original);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, names: &[&str], is_well: bool) -> TestOutcome {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let mut outcome = TestOutcome::default();
        outcome.read(text, &names, is_well);
        outcome
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn results_are_read_from_what_a_program_prints() {
        let text = "running 4 tests\ntest a::b ... ok\ntest c - should panic ... ok\ntest d ... \
            FAILED\ntest e ... ignored, slow\n\n---- a::b stdout ----\nskipped: no device\n";
        let outcome = read(text, &["a::b", "c", "d", "e"], false);
        assert_eq!(outcome.passed, set(&["c"]));
        assert_eq!(outcome.failed, set(&["d"]));
        assert_eq!(outcome.skipped, set(&["a::b", "e"]));
    }

    #[test]
    fn a_test_that_took_its_program_down_failed() {
        let outcome = read("test a ... ok\n", &["a", "b"], false);
        assert_eq!((outcome.passed, outcome.failed), (set(&["a"]), set(&["b"])));
        assert_eq!(read("", &["a"], true).failed, set(&[]));
    }
}
