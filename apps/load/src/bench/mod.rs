//! The load generator.
//!
//! A [`Load`] makes calls over one fabric on one core: in a *closed* loop each call follows an earlier one, in an *open* loop each
//! has its time, which a slow server does not move. Beside the time that a call takes (*service*) stands the time since it was
//! meant to go out (*response*): they differ when a call had to wait for its turn. The generator watches itself (*lag*).

pub mod compare;
pub mod doubts;
pub mod drive;
pub mod export;
pub mod floor;
pub mod generator;
pub mod html;
pub mod ladder;
pub mod latency;
pub mod outcome;
mod reverse;
pub mod schedule;
pub mod stages;
mod storm;
mod unsent;
pub mod versus;
pub mod workload;

pub use drive::{Load, Plan, To};
pub use generator::{Generator, Watch};
pub use latency::{Record, Times};
pub use outcome::Outcome;
pub use schedule::{Arrivals, Pace, Schedule, Span};
pub use stages::Stages;
pub use workload::{Files, Workload};
