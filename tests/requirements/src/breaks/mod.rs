//! Breaks each line that a rule cites and runs the tests that the rule names: a test that still
//! passes shows nothing.
//!
//! A line is broken by small changes of its text ([`mutate`]) in a copy of the workspace
//! ([`workspace`]) that is never the user's own. The latest table is in
//! `docs/requirements/broken.toml` and, as a page, in `broken.md` ([`table`]).

pub mod command;
pub mod mutate;
pub mod plan;
pub mod run;
pub mod site;
pub mod table;
pub mod workspace;

mod operators;
mod progress;
mod targets;
