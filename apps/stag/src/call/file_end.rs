//! Outcome of `get` and `put`: checksums, totals, and failures.

use super::{partial_file::SourceMark, show::hex};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stag_client::transfer::TransferTotals;
use std::{
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Instant,
};

/// Octets of a local file that are read at a time to be hashed.
const HASHED: usize = 1 << 17;

/// A file that was moved.
#[derive(Debug)]
pub struct MovedFile {
    /// Its local path.
    pub path: PathBuf,
    /// The path on the server.
    pub remote: Vec<u8>,
    /// All its octets.
    pub len: u64,
    /// Octets that an earlier run had moved.
    pub resumed: u64,
    /// Octets that this run moved, and its calls.
    pub totals: TransferTotals,
    /// Digest of all octets.
    pub sha256: String,
}

/// End of one file.
#[derive(Debug)]
pub enum FileEnd {
    /// It was moved.
    Moved(Box<MovedFile>),
    /// It was there already.
    Left,
}

/// Sums over all entries of a tree.
#[derive(Debug)]
pub struct TreeOutcome {
    began: Instant,
    /// Files in the order in which they were found, by their number.
    pub files: Vec<(usize, MovedFile)>,
    /// Directories that were made, or were there.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// Files that were left as they are.
    pub left: u64,
    /// Entries that are no file, directory or symbolic link.
    pub skipped: Vec<String>,
    /// A sentence for each entry that failed, by its number.
    pub failures: Vec<(usize, String)>,
    /// Entries that were not tried any more.
    pub untried: u64,
    /// Files were read back and compared.
    pub is_verified: bool,
}

impl TreeOutcome {
    /// Nothing is moved yet.
    pub fn new(is_verified: bool) -> Self {
        Self {
            began: Instant::now(),
            files: Vec::new(),
            directories: 0,
            links: 0,
            left: 0,
            skipped: Vec::new(),
            failures: Vec::new(),
            untried: 0,
            is_verified,
        }
    }

    /// Adds the end of file `number`.
    pub fn add(&mut self, number: usize, end: FileEnd) {
        match end {
            FileEnd::Moved(file) => self.files.push((number, *file)),
            FileEnd::Left => self.left += 1,
        }
    }

    /// Orders files and failures as they were found.
    pub fn sort(&mut self) {
        self.files.sort_by_key(|(number, _)| *number);
        self.failures.sort_by_key(|(number, _)| *number);
    }

    /// Returns true if there is nothing to report but one failure.
    pub fn is_nothing(&self) -> bool {
        let counts = self.directories + self.links + self.left + self.untried;
        counts == 0 && self.files.is_empty() && self.failures.len() <= 1 && self.skipped.is_empty()
    }

    fn totals(&self) -> TransferTotals {
        let mut sum = TransferTotals::default();
        for (_, file) in &self.files {
            sum.octets += file.totals.octets;
            sum.calls += file.totals.calls;
            sum.replayed += file.totals.replayed;
        }
        sum
    }

    /// Returns the sentence about everything that failed, if something did.
    pub fn failure(&self) -> Option<String> {
        let untried = match self.untried {
            0 => String::new(),
            count => format!("; {count} more were not tried behind a lost connection"),
        };
        match self.failures.as_slice() {
            [] => None,
            [(_, only)] => Some(format!("{only}{untried}")),
            [(_, first), others @ ..] => Some(format!(
                "{} entries failed{untried}: {first}; and {} more, named above",
                self.failures.len(),
                others.len()
            )),
        }
    }

    /// Lines as `sha256sum` writes them, for standard output; and what was moved, for standard
    /// error.
    pub fn text(&self) -> (Vec<u8>, String) {
        let TransferTotals { octets, replayed, .. } = self.totals();
        let seconds = self.began.elapsed().as_secs_f64();
        let mut summary = format!(
            "{} files, {} directories, {} symbolic links: {octets} octets in {seconds:.2} s, \
             {:.1} MiB/s",
            self.files.len(),
            self.directories,
            self.links,
            octets as f64 / 1_048_576.0 / seconds.max(1e-9)
        );
        if self.left > 0 {
            summary.push_str(&format!("; {} files were there and are left", self.left));
        }
        let resumed: u64 = self.files.iter().map(|(_, file)| file.resumed).sum();
        if resumed > 0 {
            summary.push_str(&format!("; {resumed} octets were there from an earlier run"));
        }
        if replayed > 0 {
            summary.push_str(&format!(
                "; {replayed} octets written again after a restart of the server"
            ));
        }
        if self.is_verified {
            summary.push_str("; read back and compared");
        }
        summary.push('\n');
        self.skipped.iter().for_each(|what| summary.push_str(&format!("skipped: {what}\n")));
        self.failures.iter().for_each(|(_, why)| summary.push_str(&format!("failed: {why}\n")));
        let lines = self.files.iter();
        let lines =
            lines.flat_map(|(_, file)| line(file.path.as_os_str().as_bytes(), &file.sha256));
        (lines.collect(), summary)
    }

    /// The same as a JSON object. `url` gives the URL of a path on the server.
    pub fn object(&self, url: impl Fn(&[u8]) -> String) -> Value {
        let file = |(_, file): &(usize, MovedFile)| {
            json!({
                "path": file.path.to_string_lossy(),
                "url": url(&file.remote),
                "octets": file.len,
                "resumed": file.resumed,
                "sha256": file.sha256,
            })
        };
        let totals = self.totals();
        json!({
            "files": self.files.iter().map(file).collect::<Vec<_>>(),
            "directories": self.directories,
            "symbolic_links": self.links,
            "left": self.left,
            "skipped": self.skipped,
            "failures": self.failures.iter().map(|(_, why)| why).collect::<Vec<_>>(),
            "untried": self.untried,
            "octets": totals.octets,
            "calls": totals.calls,
            "replayed": totals.replayed,
            "verified": self.is_verified,
            "elapsed_s": self.began.elapsed().as_secs_f64(),
        })
    }
}

/// A line that `sha256sum -c` understands: a name that would break it is escaped, marked by a
/// backslash in front.
pub fn line(path: &[u8], sha256: &str) -> Vec<u8> {
    let is_odd = path.iter().any(|octet| matches!(octet, b'\\' | b'\n' | b'\r'));
    let mut line = if is_odd { vec![b'\\'] } else { Vec::new() };
    line.extend_from_slice(sha256.as_bytes());
    line.extend_from_slice(b"  ");
    for octet in path {
        match octet {
            b'\\' => line.extend_from_slice(br"\\"),
            b'\n' => line.extend_from_slice(br"\n"),
            b'\r' => line.extend_from_slice(br"\r"),
            octet => line.push(*octet),
        }
    }
    line.push(b'\n');
    line
}

/// The digest of the file at `path`.
pub fn hash_of(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    hash_rest(&mut File::open(path)?, &mut hash)?;
    Ok(hex(&hash.finalize()))
}

/// Hashes the rest of `from`. Returns its octets.
pub fn hash_rest(from: &mut impl Read, hash: &mut Sha256) -> io::Result<u64> {
    let (mut room, mut octets) = (vec![0; HASHED], 0);
    loop {
        let count = from.read(&mut room)?;
        if count == 0 {
            return Ok(octets);
        }
        octets += count as u64;
        hash.update(room.get(..count).unwrap_or_default());
    }
}

/// True if a file with `there` is as `source`, as far as length and time show: equal when times are
/// kept, else not older.
pub fn is_same(there: SourceMark, source: SourceMark, is_preserved: bool) -> bool {
    let (at, of) = ((there.seconds, there.nanos), (source.seconds, source.nanos));
    there.len == source.len && if is_preserved { at == of } else { at >= of }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_sha256sum() {
        assert_eq!(line(b"a b", "77"), b"77  a b\n");
        assert_eq!(line(b"a\n\\\xff", "77"), b"\\77  a\\n\\\\\xff\n");
    }

    #[test]
    fn a_file_is_left_when_it_is_as_long_and_not_older() {
        let source = SourceMark { len: 5, seconds: 10, nanos: 5 };
        for (there, kept, left) in [
            (source, true, true),
            (SourceMark { nanos: 6, ..source }, false, true),
            (SourceMark { nanos: 4, ..source }, false, false),
            (SourceMark { seconds: 9, nanos: 9, ..source }, false, false),
            (SourceMark { len: 4, ..source }, false, false),
        ] {
            assert_eq!(is_same(there, source, false), left, "{there:?}");
            assert_eq!(is_same(there, source, true), kept, "{there:?}");
        }
        // A newer one is as good only when times are not kept.
        assert!(!is_same(SourceMark { nanos: 6, ..source }, source, true));
    }

    #[test]
    fn one_failure_is_the_sentence_and_several_are_counted() {
        let mut outcome = TreeOutcome::new(false);
        assert_eq!(outcome.failure(), None);
        outcome.failures.push((3, "b: no".to_owned()));
        assert_eq!(outcome.failure().unwrap(), "b: no");
        outcome.failures.push((1, "a: no".to_owned()));
        outcome.untried = 2;
        outcome.sort();
        let sentence = outcome.failure().unwrap();
        assert!(sentence.starts_with("2 entries failed; 2 more were not tried"), "{sentence}");
        assert!(sentence.contains(": a: no; and 1 more"), "{sentence}");
        assert!(outcome.text().1.ends_with("failed: a: no\nfailed: b: no\n"));
    }
}
