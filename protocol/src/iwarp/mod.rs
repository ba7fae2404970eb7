//! A software RNIC's protocol: MPA (RFC 5044, RFC 6581), DDP (RFC 5041), RDMAP (RFC 5040) over one TCP connection.
//!
//! Nothing here owns a socket, a clock or payload memory. A connection passes through four steps:
//!
//! 1. [`mpa`]: one side emits a Request, the other answers with a Reply; both get the same kind of
//!    [`mpa::Negotiated`].
//! 2. [`fpdu`]: [`fpdu::parse`] finds one ULPDU in the octets received; [`fpdu::Framer`] closes a segment with pad and
//!    CRC and says where markers go. The CRC32c is the caller's ([`fpdu::Crc32c`]).
//! 3. [`stream::Stream`]: `handle_ulpdu` turns an ULPDU into an [`stream::Inbound`] event or a [`rdmap::Violation`] (the
//!    Terminate to send); `begin_*` and `poll_segment` turn an operation into DDP segments.
//! 4. The caller checks memory: what its STag table refuses goes to `refuse_*`, which returns the Terminate.
//!
//! [`ddp`] and [`rdmap`] are the codecs that step 3 is made of.

pub mod ddp;
pub mod fpdu;
pub mod mpa;
pub mod octets;
pub mod rdmap;
mod ring;
pub mod stream;
