//! A procedure as a value, for whatever executes it elsewhere. Most of it is made of the table of
//! [`procedures`](crate::store_procedures).
//!
//! | file | what |
//! |---|---|
//! | `store` | the trait [`Store`](crate::Store): which calls wait, how they are begun and end |
//! | `request`, `arguments` | a call that owns its arguments |
//! | `execute` | its execution by the store of another thread |
//! | `listing` | a listing in lent memory |
//! | `outcome`, `answered` | its outcome, and a store that has this one answer |
//! | `carrier` | how calls get to the thread that executes them |

pub(crate) mod answered;
pub(crate) mod arguments;
pub(crate) mod carrier;
pub(crate) mod execute;
pub(crate) mod listing;
pub(crate) mod outcome;
pub(crate) mod request;
pub(crate) mod store;
