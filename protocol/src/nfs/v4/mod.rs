//! NFS version 4, minor versions 1 and 2 (RFC 8881, RFC 7862), with extended attributes (RFC 8276):
//! program 100003, version 4.
//!
//! A call is NULL or COMPOUND. [`Compound`] reads its arguments one [`Request`] at a time, and
//! [`ResultsWriter`] writes one [`Answer`] at a time; a server's calls go the other way as
//! [`CallbackCompound`]. Nothing is collected and nothing is allocated. Attributes are a table
//! ([`Attribute`]). [`state`] has the rules between messages: clients, slots, opens, locks,
//! delegations, grace.

pub mod ace;
mod attr;
mod bitmap;
mod callback;
mod compound;
mod forms;
mod op;
pub mod state;
mod status;
mod types;

pub use ace::Ace;
pub use attr::*;
pub use bitmap::Bitmap;
pub use callback::*;
pub use compound::*;
pub use op::*;
pub use status::Status4;
pub use types::*;

/// The version number (RFC 8881 §16).
pub const VERSION: u32 = 4;
/// Number of the procedure COMPOUND, and of CB_COMPOUND (RFC 8881 §16.2, §20.2).
pub const COMPOUND: u32 = 1;
/// Version of the callback program (RFC 8881 §20).
pub const CALLBACK_VERSION: u32 = 1;

/// Arguments of COMPOUND.
pub type Compound<'a> = Operations<'a, CompoundHead<'a>, Request<'a>>;
/// Results of COMPOUND.
pub type CompoundReply<'a> = Results<'a, Answer<'a>>;
/// Arguments of CB_COMPOUND.
pub type CallbackCompound<'a> = Operations<'a, CallbackHead<'a>, CallbackRequest<'a>>;
/// Results of CB_COMPOUND.
pub type CallbackReply<'a> = Results<'a, CallbackAnswer<'a>>;
