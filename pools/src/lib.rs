//! Memory that changes hands under the compiler's eyes (DESIGN D2).
//!
//! A shard takes all of its memory once, at start: an arena cut into [`Class`]es of equal slots. A [`Buf`] owns one
//! slot and is the only way to read or write it. Posting a `Buf` moves it to the provider. Exposing it
//! ([`Buf::expose`]) turns it into [`Exposed`], which has no accessor, until a [`window::Windows`] table proves
//! that its key is dead ([`window::Fenced`]). [`Buf::freeze`] turns it into an [`Extent`]: shared, immutable, counted.
//!
//! Everything here belongs to one thread: no lock, no atomic, and nothing is allocated after start. (Starts count, for
//! the whole process, the huge pages they would have used: [`Budget::advice`].)
#![warn(clippy::undocumented_unsafe_blocks)]

mod arena;
mod budget;
mod buf;
mod extent;
mod host;
mod pool;
pub mod table;
pub mod window;

pub use arena::Pages;
pub use budget::{Budget, Class};
pub use buf::Buf;
pub use extent::Extent;
pub use pool::{Place, Pool, PoolId};
pub use table::Table;
pub use window::{Access, Exposed, Fenced, RemoteKey, Scope, Violation, Window, Windows};
