//! iWARP as it is on the wire, against a scripted peer over loopback. Numbers in brackets are those
//! of the checklist that the modules follow: MPA [1-23], FPDUs [24-34], DDP [35-55], RDMAP [56-74],
//! ends [75-80], security [89-92].
//!
//! Left out, with the reason:
//! - [14] as siw does it (it sends 2/0/04 for a wrong key in a Reply): RFC 5044 §7.1.2 closes in
//!   silence, so do we.
//! - [16] as siw does it (it rejects): markers are generated for a peer that asks.
//! - [24] RFC 5044 Figures 5 and 6: unit tests of the CRC, here and in the protocol.
//! - [33] a change of the MSS in mid-stream needs a network; FPDUs of any mixture of lengths are in
//!   [32].
//! - [40] the wrap of a message number needs 2^32 messages: a test of the protocol.
//! - [43] no receive posted: a message waits here instead (DESIGN D8); the conformance suite shows
//!   it.
//! - [58] solicited events: the contract has none; such Sends are delivered like others.
//! - [60, 91] a registered region instead of a window: only windows have keys here.
//! - [70, 71] FENCE is not in the contract: Reads complete before what depends on them is posted.
//! - [75, 77] completions of flushed work, and posts to a dead connection: the conformance suite.
//! - [76, 78] receives and completions belong to the shard: neither a queue's end nor its overflow
//!   exist.
//! - [80-88] real kernels and networks: the guest.
//! - [89] what keys look like: tests of the pools.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

mod ddp;
mod ends;
mod flood;
mod foretold;
mod fpdus;
mod landing;
mod look;
mod mpa;
mod noise;
mod peer;
mod rdmap;
mod siw;
