//! Figures of the workspace's source: how long functions are, how many names mean two things,
//! which folders import each other. The crate's test keeps them below their limits.
//!
//! ```text
//! cargo run -p stag-tidy                       # a table
//! cargo run -p stag-tidy -- --list functions   # the places that one figure counts
//! cargo run -p stag-tidy -- --root DIR         # another checkout, to compare with
//! ```
#![forbid(unsafe_code)]

pub mod comments;
pub mod dependencies;
pub mod dialect;
pub mod figure;
pub mod functions;
pub mod imports;
pub mod lines;
pub mod made_files;
pub mod names;
pub mod pages;
mod tree;
pub mod types;

pub use figure::{Figure, FoundPlace, all};
pub use tree::{SourceFile, SourceTree};

// Lines of items come from its feature span-locations.
use proc_macro2 as _;
use std::path::{Path, PathBuf};

/// The folder of this workspace.
#[must_use]
pub fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("the crate is two folders below the root").to_owned()
}
