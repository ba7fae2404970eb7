//! Restart recovery (RFC 8881 §8.4.2): the grace period and the reclaims in it ([`grace`]), the
//! queue of records on the way to stable storage ([`record_writer`]), and the steps that follow
//! once they are stable ([`settled_records`]).

pub(in crate::v4) mod grace;
pub(in crate::v4) mod record_writer;
pub(super) mod settled_records;
