//! The rules of the specifications: read from `docs/requirements/*.toml`, checked against code and
//! tests, written as pages.
//!
//! ```sh
//! cargo run -p stag-requirements     # writes pages, prints totals and problems
//! cargo run -p stag-requirements -- break --rule 8166-12   # breaks its lines
//! ```
//!
//! `CONTRIBUTING.md` says how a rule is added.
#![forbid(unsafe_code)]

pub mod breaks;
pub mod check;
pub mod claim;
pub mod page;
pub mod rule;
pub mod sources;

pub use check::problems;
pub use claim::{Claim, Claims, Column, RuleStanding};
pub use rule::{Level, Rule, RuleStatus, Specification};
pub use sources::RustSources;

use std::path::{Path, PathBuf};

/// The workspace's folder, in which all paths of rules are.
#[must_use]
pub fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("the crate is two folders below the root").to_owned()
}

/// The folder of the rules and of their pages.
#[must_use]
pub fn requirements() -> PathBuf {
    root().join("docs/requirements")
}
