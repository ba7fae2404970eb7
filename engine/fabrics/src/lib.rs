//! URLs of all fabrics: addresses, and the providers and streams that are made from them.
//!
//! One table names the fabrics. Everything else about a fabric is in its own folder: a provider is
//! added by an implementation of [`Provider`](stag_verbs::Provider) and [`Open`] there and by one
//! line here, which may depend on a feature. From the table come
//!
//! - [`FabricAddress`], an address on one of the fabrics;
//! - [`Fabric`] and [`FabricVisitor`]: code that is compiled for every fabric, and run for the one
//!   that an address names, so that nothing is decided on the way of a call;
//! - [`AnyProvider`]: a provider that asks on each call which fabric it is, for programs whose time
//!   does not count.
//!
//! ```
//! use stag_fabrics::{Endpoint, FabricAddress};
//!
//! let at = FabricAddress::parse("iwarp://127.0.0.1:20049")?;
//! assert_eq!((at.info().scheme, at.to_string().as_str()), ("iwarp", "iwarp://127.0.0.1:20049"));
//! assert!(matches!(Endpoint::parse("tcp://[::1]:2049")?, Endpoint::Tcp(_)));
//! # Ok::<(), stag_fabrics::UrlError>(())
//! ```
#![forbid(unsafe_code)]

#[macro_use]
mod any;
mod endpoint;
mod group;
mod info;
#[macro_use]
mod table;
mod url;

pub use endpoint::Endpoint;
pub use group::FabricGroup;
pub use info::FabricInfo;
pub use stag_verbs::{Here, Notation, Open, Settings, Sharing};
pub use url::{Absent, UrlError};

#[doc(hidden)]
pub use {stag_pools as pools, stag_verbs as verbs};

fabrics! {
    // The first one needs nothing but TCP.
    Iwarp = stag_iwarp::Iwarp;
    Shm = stag_shm::Shm;
    #[cfg(feature = "verbs")] #[absent("rdma", "RDMA devices", "verbs")]
    Rdma = stag_ibverbs::Ibverbs;
    #[cfg(feature = "sim")]
    Sim = stag_sim::Sim;
}

/// The provider of programs that call over TCP streams only.
pub type StreamsOnly = stag_iwarp::Iwarp;
