//! The engine's tests in one program, because each program is linked with everything it tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod accounts;
mod attackers;
#[path = "../tls/tests/support/mod.rs"]
mod authority;
mod chaos;
mod detail;
mod doorbells;
mod draft000;
mod grants;
mod gss;
mod items;
mod juggle;
mod peers;
mod pressure;
mod private_data;
mod programs;
mod replies;
mod reverse;
mod rules;
mod sending;
mod several;
mod silent;
mod stages;
mod support;
mod tls;
mod turns;
mod version2;
#[cfg(debug_assertions)]
mod ways;
mod windowless;
