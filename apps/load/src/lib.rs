//! Load generator for ONC RPC services, and its results.
//!
//! A [`Load`] makes calls over one fabric on one core: in a *closed* loop each call follows an
//! earlier one, in an *open* loop each has its time, which a slow server does not move. Two times
//! are recorded: from when a call goes out (*service*), and from when it was meant to go out
//! (*response*). They differ when a call had to wait for its turn. The generator watches itself
//! (*lag*).
#![forbid(unsafe_code)]

pub mod agents;
pub mod compare;
pub mod doubts;
pub mod drive;
pub mod floor;
pub mod generator;
pub mod ladder;
pub mod latency;
pub mod live;
pub mod nodes;
mod notes;
pub mod rate;
pub mod report;
pub mod run;
pub mod schedule;
pub mod stages;
pub mod steady;
pub mod versus;
pub mod workload;

pub use drive::{Load, LoadPlan, To};
pub use generator::{Generator, GeneratorWatch};
pub use latency::{CallRecord, Times};
pub use nodes::NodesRun;
pub use report::model::RunOutcome;
pub use schedule::{Arrivals, Pace, RunSpan, Schedule, SchedulePart};
pub use stages::Stages;
pub use workload::{LoadFiles, Workload};
