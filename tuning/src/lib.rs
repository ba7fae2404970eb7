//! Finds what on a host stands in the way of RDMA, says what to type, does it and undoes it.
//!
//! A [`HostCheck`] asks one question about a [`Scene`]: a host, and what is to run on it.
//! Everything is read through [`HostFiles`], so that each check is tested on recorded hosts. A
//! [`HostReport`] is the answers.
#![forbid(unsafe_code)]

mod check;
pub mod checks;
mod cores;
mod finding;
mod host;
mod report;
mod scene;
mod stall;

pub use check::{FixClass, HostCheck, Severity, TuneProfile};
pub use cores::CoreList;
pub use finding::{Answer, Finding, HostChange, Judged};
pub use host::HostFiles;
pub use report::{CheckState, HostReport, ReportRow, measure};
pub use scene::{HostPlan, Scene};
pub use stall::{CoreGap, watch};
