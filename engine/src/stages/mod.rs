//! The time of a call by stages, and the program that reports it.
//!
//! One call in a configured number ([`Sampling`]) is watched on its path through the shard that
//! answers it. Clients may be allowed to fetch the histograms by RPC ([`service`]).

pub mod service;

pub use crate::stage_times::{
    CallName, ProcedureTimes, Procedures, Sampling, Stage, Stages, TimeBuckets, WatchedCall,
    WatchedProgram,
};
