//! Tools that steps share: the scene they work in, and checks that report what was expected.

use super::CheckPlan;
use serde::Serialize;
use stag_client::{Error, NfsClient};
use stag_echo::pattern::Pattern;
use stag_protocol::nfs::v3::{Attributes, CreateHow, FileHandle, SetAttributes, StableHow, Status};
use stag_verbs::Provider;
use std::fmt;

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckFailure {
    /// Action that was tried.
    pub what: String,
    /// Expected outcome.
    pub expected: String,
    /// Outcome that was seen.
    pub came: String,
    /// The connection is gone: nothing else can be tried.
    pub fatal: bool,
}

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, came {}", self.what, self.expected, self.came)
    }
}

/// Result of a check.
pub(crate) type CheckedValue<T> = Result<T, CheckFailure>;
/// Result of a step.
pub(crate) type StepResult = CheckedValue<()>;

/// A call that has to succeed.
pub(crate) fn done<T>(what: impl fmt::Display, result: Result<T, Error>) -> CheckedValue<T> {
    result.map_err(|error| CheckFailure {
        what: what.to_string(),
        expected: "success".to_owned(),
        came: match error {
            Error::Nfs(Status::Acces | Status::Perm) => {
                format!("{error} ({})", stag_client::denied_hint())
            }
            error => error.to_string(),
        },
        fatal: error.is_fatal(),
    })
}

/// Two values that have to be the same.
pub(crate) fn same<T: PartialEq + fmt::Debug>(
    what: impl fmt::Display,
    expected: &T,
    came: &T,
) -> StepResult {
    if expected == came {
        return Ok(());
    }
    Err(failure(what, short(expected), short(came)))
}

/// A condition that has to hold; `expected` names it.
pub(crate) fn holds(
    what: impl fmt::Display,
    holds: bool,
    expected: &str,
    came: impl fmt::Debug,
) -> StepResult {
    if holds { Ok(()) } else { Err(failure(what, expected.to_owned(), short(&came))) }
}

/// A call that has to fail, with one of these statuses: where RFC 1813 leaves a choice, servers
/// differ.
pub(crate) fn refused<T: fmt::Debug>(
    what: impl fmt::Display,
    expected: &[Status],
    result: Result<T, Error>,
) -> StepResult {
    let came = match result {
        Err(Error::Nfs(status)) if expected.contains(&status) => return Ok(()),
        Err(error) => {
            let mut failure = failure(what, format!("{expected:?}"), error.to_string());
            failure.fatal = error.is_fatal();
            return Err(failure);
        }
        Ok(value) => short(&value),
    };
    Err(failure(what, format!("{expected:?}"), format!("success: {came}")))
}

fn failure(what: impl fmt::Display, expected: String, came: String) -> CheckFailure {
    CheckFailure { what: what.to_string(), expected, came, fatal: false }
}

/// A value in its debug form, cut so that a report stays readable.
fn short(value: &impl fmt::Debug) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Environment that steps work in.
pub(crate) struct CheckScene<'a, P: Provider> {
    pub(crate) client: &'a mut NfsClient<P>,
    /// The client of MOUNT, if it is another one.
    pub(crate) mount: Option<&'a mut NfsClient<P>>,
    pub(crate) export: &'a str,
    pub(crate) plan: &'a CheckPlan,
    /// The export's root, the directory that this run's is made in, and this run's. Empty until
    /// they are known.
    pub(crate) root: FileHandle,
    pub(crate) base: FileHandle,
    pub(crate) work: FileHandle,
    /// Octets of the largest READ and WRITE.
    pub(crate) read_max: usize,
    pub(crate) write_max: usize,
    pub(crate) name_max: usize,
    /// Octets of file data moved.
    pub(crate) octets: u64,
    /// The working directory exists.
    pub(crate) is_dirty: bool,
    /// The note of the current step.
    pub(crate) note: Option<String>,
    files: u64,
}

impl<'a, P: Provider> CheckScene<'a, P> {
    pub(crate) fn new(client: &'a mut NfsClient<P>, export: &'a str, plan: &'a CheckPlan) -> Self {
        let nothing = FileHandle::new(&[]).expect("no octet is not too many");
        Self {
            client,
            mount: None,
            export,
            plan,
            root: nothing,
            base: nothing,
            work: nothing,
            read_max: 0,
            write_max: 0,
            name_max: 255,
            octets: 0,
            is_dirty: false,
            note: None,
            files: 0,
        }
    }

    /// Notes an observation of the current step.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.note = Some(note.into());
    }

    /// The client of MOUNT.
    pub(crate) fn mount(&mut self) -> &mut NfsClient<P> {
        self.mount.as_deref_mut().unwrap_or(self.client)
    }

    /// The content of one more file.
    pub(crate) fn pattern(&mut self) -> Pattern {
        self.files += 1;
        Pattern::new(self.plan.seed, self.files)
    }

    /// Makes an empty file, guarded.
    pub(crate) fn make(&mut self, dir: FileHandle, name: &str) -> CheckedValue<FileHandle> {
        let attributes = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
        let made = self.client.create(dir, name.as_bytes(), CreateHow::Guarded(attributes));
        let made = done(format_args!("CREATE {name}"), made)?;
        match made.object {
            Some(handle) => Ok(handle),
            None => self.find(dir, name),
        }
    }

    /// Makes a directory.
    pub(crate) fn make_dir(&mut self, dir: FileHandle, name: &str) -> CheckedValue<FileHandle> {
        let made =
            done(format_args!("MKDIR {name}"), self.client.mkdir(dir, name.as_bytes(), 0o755))?;
        match made.object {
            Some(handle) => Ok(handle),
            None => self.find(dir, name),
        }
    }

    /// Finds what has to be there.
    pub(crate) fn find(&mut self, dir: FileHandle, name: &str) -> CheckedValue<FileHandle> {
        let found = self.client.lookup(dir, name.as_bytes());
        Ok(done(format_args!("LOOKUP {name}"), found)?.object)
    }

    /// The attributes of what has to be there.
    pub(crate) fn attributes(
        &mut self,
        what: &str,
        object: FileHandle,
    ) -> CheckedValue<Attributes> {
        done(format_args!("GETATTR {what}"), self.client.getattr(object))
    }

    /// A file without a name is stale, unless the server still has it open.
    pub(crate) fn is_gone(&mut self, what: &str, file: FileHandle) -> StepResult {
        match self.client.getattr(file) {
            Ok(attributes) => same(format_args!("names of {what}"), &0, &attributes.nlink),
            came => refused(format_args!("GETATTR of {what}"), &[Status::Stale], came),
        }
    }

    /// Removes a file that has to be there.
    pub(crate) fn remove(&mut self, dir: FileHandle, name: &str) -> StepResult {
        done(format_args!("REMOVE {name}"), self.client.remove(dir, name.as_bytes())).map(drop)
    }

    /// Removes a directory that has to be there and empty.
    pub(crate) fn remove_dir(&mut self, dir: FileHandle, name: &str) -> StepResult {
        done(format_args!("RMDIR {name}"), self.client.rmdir(dir, name.as_bytes())).map(drop)
    }

    /// Writes all of `data` at `offset`, in WRITEs as large as the server takes; commits what is
    /// not stable.
    pub(crate) fn write(
        &mut self,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> StepResult {
        let mut verifier = None;
        let mut uncommitted = false;
        let mut written = 0_usize;
        loop {
            let rest = data.get(written..).unwrap_or_default();
            let piece = rest.get(..self.write_max).unwrap_or(rest);
            let at = offset + written as u64;
            let what = format!("WRITE of {} octets at {at}, {stable:?}", piece.len());
            let wrote = done(&what, self.client.write(file, at, piece, stable))?;
            let count = usize::try_from(wrote.count).unwrap_or(0);
            holds(&what, count > 0 || piece.is_empty(), "at least one octet written", count)?;
            same(
                format_args!("the verifier of {what}"),
                verifier.get_or_insert(wrote.verifier),
                &wrote.verifier,
            )?;
            uncommitted |= wrote.committed == StableHow::Unstable;
            self.octets += count as u64;
            written += count;
            if written >= data.len() {
                break;
            }
        }
        if uncommitted {
            let committed = done("COMMIT", self.client.commit(file, 0, 0))?;
            same("the verifier of COMMIT", &verifier, &Some(committed.verifier))?;
        }
        Ok(())
    }

    /// Reads from `offset` on until `room` is full or the file ends. Gives the number of octets,
    /// and whether the end was seen.
    pub(crate) fn read(
        &mut self,
        file: FileHandle,
        offset: u64,
        room: &mut [u8],
    ) -> CheckedValue<(usize, bool)> {
        let mut count = 0_usize;
        loop {
            let rest = room.get_mut(count..).unwrap_or_default();
            let len = rest.len().min(self.read_max);
            let piece = rest.get_mut(..len).unwrap_or_default();
            let at = offset + count as u64;
            let what = format!("READ of {len} octets at {at}");
            let read = done(&what, self.client.read(file, at, piece))?;
            count += read.count;
            self.octets += read.count as u64;
            if read.eof || count == room.len() {
                return Ok((count, read.eof));
            }
            holds(&what, read.count > 0, "an octet or the end of the file", read)?;
        }
    }

    /// Compares a whole file with the octets it has to have.
    pub(crate) fn compare(&mut self, what: &str, file: FileHandle, expected: &[u8]) -> StepResult {
        same(
            format_args!("the size of {what}"),
            &(expected.len() as u64),
            &self.attributes(what, file)?.size,
        )?;
        // One octet more than there are: the end has to be seen.
        let mut room = vec![0xa5; expected.len() + 1];
        let (count, eof) = self.read(file, 0, &mut room)?;
        same(format_args!("octets of {what}"), &expected.len(), &count)?;
        holds(format_args!("the end of {what}"), eof, "eof", eof)?;
        let differs = |at: &usize| expected.get(*at) != room.get(*at);
        match (0..expected.len()).find(differs) {
            Some(at) => {
                same(format_args!("octet {at} of {what}"), &expected.get(at), &room.get(at))
            }
            None => Ok(()),
        }
    }
}
