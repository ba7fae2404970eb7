//! A store whose calls wait, on the simulated fabric, in virtual time: whatever is lost and however
//! late calls end, each change is carried out once, none overtakes another, the shard's memory
//! comes back, and other requests are not affected; that, counted over iWARP, too.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::result_large_err, missing_docs)]

mod beside;
mod changes;
mod client4;
mod compounds;
mod counted;
mod effects;
mod following;
mod held;
mod holders;
mod lending;
mod machine;
mod opening;
mod plays;
mod recalls;
mod rivals;
mod script;
mod seeds;
mod seeds4;
mod store;
mod waiters;
mod world;

use crate::{gateway::nfs4::recovery::disk, losses::requester};
