//! Memory pools of a shard, with ownership checked by the compiler (DESIGN D2).
//!
//! A shard takes all of its memory once, at start: an arena cut into [`Class`]es of equal slots. A
//! [`Buf`] owns one slot, or adjacent ones, and is the only way to read or write them. Posting a
//! `Buf` moves it to the provider. Exposing it ([`Buf::expose`]) turns it into [`Exposed`], which
//! has no accessor, until a [`window::Windows`] table proves that its key is dead
//! ([`window::Fenced`]). [`Buf::freeze`] turns it into an [`Extent`]: shared, immutable, counted.
//! [`Pool::take_run`] takes adjacent slots as one buffer; an extent of it holds only the slots that
//! it has octets of.
//!
//! Everything here belongs to one thread: no lock, no atomic, and nothing is allocated after start.
//! (Starts count, for the whole process, the huge pages they would have used: [`Budget::advice`].)
//!
//! ```
//! use stag_pools::{Access, Class, Pool, Scope, Windows};
//!
//! let pool = Pool::new(&[Class { slot_len: 4096, count: 8 }])?;
//! let mut buf = pool.take(4096).expect("nothing is taken yet");
//! buf.append(b"argument").expect("a slot is longer");
//!
//! // A peer may write the first three octets; no one else can reach the buffer meanwhile.
//! let mut windows = Windows::new(4, [7; 32]);
//! let peer = Scope(1);
//! let window = windows.bind(peer, buf.expose(0..3, Access::RemoteWrite)).expect("one is free");
//! let octets = windows.target(peer, window.key, window.offset, 3).expect("it is bound");
//! octets.copy_from_slice(b"ARG");
//!
//! // The end of the window is the proof that gives the buffer back.
//! let fenced = windows.invalidate(peer, window.key).expect("it is bound");
//! assert!(windows.target(peer, window.key, window.offset, 3).is_err());
//! assert_eq!(&fenced.into_buf()[..3], b"ARG");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A buffer that a peer can reach has no accessor:
//!
//! ```compile_fail,E0382
//! # use stag_pools::{Access, Class, Pool};
//! # let pool = Pool::new(&[Class { slot_len: 64, count: 1 }]).unwrap();
//! let buf = pool.take(64).unwrap();
//! let exposed = buf.expose(0..0, Access::RemoteRead);
//! println!("{}", buf.len()); // it has moved
//! ```
#![warn(clippy::undocumented_unsafe_blocks)]

mod ahead;
mod arena;
mod budget;
mod buf;
mod copy;
mod crc;
mod extent;
mod host;
mod pool;
mod runs;
pub mod steps;
pub mod table;
pub mod window;

pub use ahead::{prefetch, prefetch_lines};
pub use arena::Pages;
pub use budget::{Budget, Class};
pub use buf::Buf;
pub use copy::copy_octets;
pub use crc::{RunningCrc, crc32c, crc32c_copied};
pub use extent::Extent;
pub use pool::{Pool, PoolId, PoolPlace, Writer};
pub use runs::RUN_SLOTS;
pub use table::Table;
pub use window::{Access, AccessViolation, Exposed, Fenced, RemoteKey, Scope, Window, Windows};
