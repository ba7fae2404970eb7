//! Version 4 on several shards. One shard, the *home*, has all clients and their state; the others
//! execute the compounds that need none, and send it the rest.
//!
//! | file | what |
//! |---|---|
//! | [`placement`] | decides which operations of a compound this shard executes |
//! | [`slot_lease`] | the home lends the slots of a session to the shard of its connections |
//! | [`bindings`] | connections of sessions that are bound only by BIND_CONN_TO_SESSION |
//! | [`split_open`] | an OPEN in two halves: the name here, the state at the home |
//! | [`state_cache`] | a client's share access, copied to its shard for READ and WRITE |
//! | [`shared_flags`] | facts of the home that every shard reads without a message |
//! | [`delegation_barrier`] | no delegation before every shard knows that its file may have one |
//! | [`home`] | the home and the connections of other shards |
//! | [`channel`], [`messages`] | mailboxes between the home and each other shard |

mod bindings;
pub(in crate::v4) mod channel;
pub(in crate::v4) mod delegation_barrier;
pub(in crate::v4) mod home;
pub(in crate::v4) mod messages;
pub(in crate::v4) mod placement;
pub(in crate::v4) mod shared_flags;
pub(in crate::v4) mod slot_lease;
pub(in crate::v4) mod split_open;
pub(in crate::v4) mod state_cache;
