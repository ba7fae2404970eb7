//! The command's tests in one program, because each program is linked with everything it tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod accept;
mod activation;
mod at_rest;
#[path = "../../../engine/tls/tests/support/mod.rs"]
mod authority;
mod bench;
mod book;
mod call;
#[path = "support/caller.rs"]
mod caller;
#[path = "support/caller4.rs"]
mod caller4;
mod cluster;
mod config;
mod confined;
mod copying;
mod ctl;
mod demo;
mod devices;
mod errors_page;
mod finishing;
mod forged;
#[allow(dead_code)] // Of what it can do, some is for tests of the gateway.
#[path = "../../nfs/tests/stalling/fuse.rs"]
mod fuse;
mod hostile;
mod jobs;
mod kerberos;
mod letting_go;
mod log;
mod memory;
mod metrics;
mod nodes;
mod planted;
mod refusals;
mod reload;
mod rpcbind;
mod scoped;
mod serve;
mod signals;
mod stalled;
mod states;
mod support;
mod tickets;
mod tls;
mod transfers;
mod tune;
mod versions;
mod watchdog;
mod who;
mod workloads;
