//! Costs of calls, in one program, because each program is linked with everything it tests. Tests
//! that measure all memory of a process are programs of their own: `idle`, `idle_connections`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod allocations;
mod attackers;
mod both_ways;
mod copies;
#[path = "../../tests/counting/mod.rs"]
mod counting;
mod counts;
mod flood;
mod hostile;
mod instructions;
#[path = "pages/main.rs"]
mod pages;
mod pressure;
#[path = "../../apps/nfs/tests/losses/requester.rs"]
mod requester;
mod runner;
mod shards;
mod short_way;
mod state_checks;
#[path = "../../engine/tests/support/mod.rs"]
mod support;
#[path = "trickle/main.rs"]
mod trickle;
