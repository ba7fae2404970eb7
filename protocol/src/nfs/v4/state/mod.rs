//! State machines of clients, sessions, opens, locks and delegations, without I/O: events go in,
//! decisions come out. The caller holds the memory and passes the time.

mod delegation;
mod exchange;
mod grace;
mod ranges;
mod share;
mod slots;

pub use delegation::{Delegation, DelegationPhase, RecallAnswer, RecallStep};
pub use exchange::{
    ConfirmedClient, ExchangeStep, SequenceOrder, exchange_id, is_update, sequence_order,
};
pub use grace::{Grace, ReclaimState};
pub use ranges::{HeldLock, LockRange};
pub use share::{InvalidShare, OpenShare, ShareClass};
pub use slots::{Slot, SlotCall, SlotStep, SlotTable};
