//! Checks of a host for RDMA, with the command that fixes each defect; applies and reverts fixes.
//!
//! A [`HostCheck`] asks one question about a [`Scene`]: a host, and what is to run on it.
//! Everything is read through [`HostFiles`], so that each check is tested on recorded hosts. A
//! [`HostReport`] is the results. [`apply_change`] writes a value that a check requires and that
//! can be undone at run time, after a [`ChangeJournal`] has the earlier one.
#![forbid(unsafe_code)]

mod apply;
mod check;
pub mod checks;
mod cores;
mod digest;
mod finding;
mod host;
mod journal;
mod keys;
mod process;
mod report;
mod scene;
mod stall;

pub use apply::{ChangeEnd, PlannedChange, apply_change, plan_changes, revert_changes};
pub use check::{FixClass, HostCheck, Severity, TuneProfile};
pub use cores::CoreList;
pub use digest::HostDigest;
pub use finding::{Answer, Finding, HostChange, Judged};
pub use host::HostFiles;
pub use journal::{ChangeJournal, JournalEntry, is_journal};
pub use keys::is_tunable;
pub use process::{ProcessSetting, ProcessSettings};
pub use report::{CheckState, HostReport, ReportRow, measure};
pub use scene::{HostPlan, Scene};
pub use stall::{CoreGap, watch};
