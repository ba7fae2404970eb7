//! A checkout's Rust files, parsed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};
use syn::{Attribute, Item, visit::Visit};
use walkdir::{DirEntry, WalkDir};

/// One Rust file.
pub struct SourceFile {
    /// Path below the root, with `/` between its parts.
    pub path: String,
    /// The file as it is.
    pub text: String,
    /// The file's items, without items under `#[cfg(test)]`.
    pub items: Vec<Item>,
    /// A file of tests, of examples or of benches: figures about code leave it out.
    pub is_test: bool,
}

/// All Rust files of a checkout, by path.
pub struct SourceTree {
    /// The checkout's folder.
    pub root: PathBuf,
    /// The files, in the order of their paths.
    pub sources: Vec<SourceFile>,
}

impl SourceTree {
    /// Reads and parses every `.rs` file below `root`, except build results and hidden folders.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or parsed; the message names it.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut sources = Vec::new();
        let walk = WalkDir::new(root).sort_by_file_name();
        for entry in walk.into_iter().filter_entry(is_wanted) {
            let entry = entry?;
            if entry.path().extension().is_none_or(|ending| ending != "rs") {
                continue;
            }
            let below = entry.path().strip_prefix(root).map_err(io::Error::other)?;
            let path = below.to_string_lossy().replace('\\', "/");
            sources.push(SourceFile::parse(path, fs::read_to_string(entry.path())?)?);
        }
        Ok(Self { root: root.to_owned(), sources })
    }

    /// The files that are neither tests nor examples nor benches.
    pub fn code(&self) -> impl Iterator<Item = &SourceFile> {
        self.sources.iter().filter(|source| !source.is_test)
    }
}

pub(crate) fn is_wanted(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    entry.depth() == 0 || !(name.starts_with('.') || name == "target")
}

impl SourceFile {
    /// Parses one file.
    ///
    /// # Errors
    ///
    /// Text that is not Rust; the message names the file.
    pub fn parse(path: String, text: String) -> io::Result<Self> {
        let file = syn::parse_file(&text).map_err(|error| {
            io::Error::other(format!("{path}:{}: {error}", error.span().start().line))
        })?;
        let is_test = is_test_path(&path);
        let items = file.items.into_iter().filter(|item| !is_behind_test(item)).collect();
        Ok(Self { path, text, items, is_test })
    }

    /// Visits every item that is not under `#[cfg(test)]`.
    pub fn visit<'ast>(&'ast self, visitor: &mut impl Visit<'ast>) {
        for item in &self.items {
            visitor.visit_item(item);
        }
    }
}

/// Crates are below `tests/` too: theirs is a test where the path names tests after the crate.
fn is_test_path(path: &str) -> bool {
    let behind = path.strip_prefix("tests/").unwrap_or(path);
    let (folders, file) = behind.rsplit_once('/').unwrap_or(("", behind));
    let is_folder = |name: &str| ["tests", "examples", "benches", "counting"].contains(&name);
    file == "tests.rs" || folders.split('/').any(is_folder)
}

fn is_behind_test(item: &Item) -> bool {
    attributes(item).iter().any(|attribute| {
        let text = || attribute.meta.require_list().map(|list| list.tokens.to_string());
        attribute.path().is_ident("cfg")
            && text().is_ok_and(|words| words == "test" || words.contains("(test"))
    })
}

/// The attributes of an item.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_that_test_are_code_and_their_tests_are_tests() {
        for code in ["engine/src/lib.rs", "tests/hostile/src/peer.rs", "bench/src/ends.rs"] {
            assert!(!is_test_path(code), "{code}");
        }
        let tests =
            ["engine/tests/rules.rs", "tests/hostile/tests/rows.rs", "pools/src/arena/tests.rs"];
        for test in tests.into_iter().chain(["engine/rpc/examples/kv.rs", "tests/counting/mod.rs"])
        {
            assert!(is_test_path(test), "{test}");
        }
    }

    #[test]
    fn what_is_behind_cfg_test_is_left_out() {
        let text = "struct A; #[cfg(test)] mod tests { struct B; } #[cfg(unix)] struct C;";
        let source = SourceFile::parse("a.rs".to_owned(), text.to_owned()).unwrap();
        assert_eq!(source.items.len(), 2);
    }

    #[test]
    fn a_file_that_is_not_rust_is_named() {
        let error = SourceFile::parse("a/b.rs".to_owned(), "struct".to_owned()).err().unwrap();
        assert!(error.to_string().starts_with("a/b.rs:1: "), "{error}");
    }
}
