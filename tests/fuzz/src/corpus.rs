//! Inputs kept as files: messages that real peers sent (`corpus/TARGET/`), and inputs that once did
//! harm (`regressions/TARGET/`).

use std::{fs, path::PathBuf};

/// An input and its file's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorpusEntry {
    /// The file's name.
    pub name: String,
    /// The input.
    pub octets: Vec<u8>,
}

/// Inputs for `target` that real peers sent, by name.
pub fn corpus(target: &str) -> Vec<CorpusEntry> {
    entries("corpus", target)
}

/// Inputs that once did harm to `target`, by name.
pub fn regressions(target: &str) -> Vec<CorpusEntry> {
    entries("regressions", target)
}

/// The folder of this crate.
pub fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn entries(kind: &str, target: &str) -> Vec<CorpusEntry> {
    let Ok(folder) = fs::read_dir(home().join(kind).join(target)) else { return Vec::new() };
    let read = |file: std::io::Result<fs::DirEntry>| {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        CorpusEntry { name, octets: fs::read(file.path()).unwrap() }
    };
    let mut entries: Vec<_> = folder.map(read).collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}
