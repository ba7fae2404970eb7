//! The rules of the specifications: read from `docs/requirements/*.toml`, checked against code and tests, written as pages.
//!
//! ```sh
//! cargo run -p stag-docs     # writes docs/requirements/*.md, prints the totals and every problem
//! cargo run -p stag-docs -- break --rule 8166-12   # breaks the lines of a rule and runs its tests
//! ```
//!
//! How to add a rule stands in `CONTRIBUTING.md`.
#![forbid(unsafe_code)]

pub mod breaks;
pub mod check;
pub mod claim;
pub mod page;
pub mod rule;
pub mod sources;

pub use check::problems;
pub use claim::{Claim, Claims, Column, Standing};
pub use rule::{Level, Rule, Specification, Status};
pub use sources::Sources;

use std::path::{Path, PathBuf};

/// The workspace's folder, in which all paths of rules are.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("docs/ lies in the workspace").to_owned()
}

/// The folder of the rules and of their pages.
#[must_use]
pub fn requirements() -> PathBuf {
    root().join("docs/requirements")
}
