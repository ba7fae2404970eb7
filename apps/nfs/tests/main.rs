//! The gateway's tests in one program, because each program is linked with everything it tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod allocations;
#[path = "captured/main.rs"]
mod captured;
#[path = "../../../tests/counting/mod.rs"]
mod counting;
#[path = "drc/main.rs"]
mod drc;
mod fairness;
#[path = "gateway/main.rs"]
mod gateway;
mod gateway_allocations;
#[path = "helpers/main.rs"]
mod helpers;
mod kerberos;
#[path = "losses/main.rs"]
mod losses;
mod memory_store;
#[path = "stalling/main.rs"]
mod stalling;
#[path = "waiting/main.rs"]
mod waiting;
