//! Calls that wait, of both versions: tables of fixed size. What happens to them is `gateway`'s.
//!
//! | file | calls |
//! |---|---|
//! | [`admission`] | not begun: too many are in flight, or hold too much memory |
//! | [`table`] | begun in a store, with what [`call`] says of each |
//! | [`deferred_reads`] | READs whose data a disk has to supply |

pub(crate) mod admission;
pub(crate) mod call;
pub(crate) mod deferred_reads;
pub(crate) mod table;
