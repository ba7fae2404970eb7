//! A defective peer at every layer: MPA, DDP, RDMAP, RPC-over-RDMA, RPC, RPCSEC_GSS and NFS, in
//! both roles.
//!
//! [`defects::all`] is the table of a client's defects, with the class of answer that the
//! specification requires and its clause; [`run`] plays it against a server and looks, after each
//! defect, whether well-behaved clients still get service. [`requester`] is a server that answers
//! badly, for our own calling side.
#![forbid(unsafe_code)]

pub mod answer;
pub mod defects;
pub mod gss;
pub mod judge;
pub mod ours;
pub mod peer;
pub mod play;
pub mod record;
pub mod requester;
mod run;
pub mod wire;
pub mod world;

pub use answer::{AnswerPattern, SeenAnswers};
pub use play::{Defect, DefectLayer};
pub use run::{DefectOutcome, run};
pub use world::{HostileWorld, ServerUnderTest};
