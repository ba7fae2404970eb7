//! A software RNIC's protocol: MPA (RFC 5044, RFC 6581), DDP (RFC 5041), RDMAP (RFC 5040) over one
//! TCP connection.
//!
//! Nothing here owns a socket, a clock or payload memory. A connection passes through four steps:
//!
//! 1. [`mpa`]: one side emits a Request, the other answers with a Reply; both get the same kind of
//!    [`mpa::Negotiated`].
//! 2. [`fpdu`]: [`fpdu::parse`] finds one ULPDU in the octets received; [`fpdu::Framer`] closes a
//!    segment with pad and CRC and says where markers go. The CRC32c is the caller's
//!    ([`fpdu::Crc32c`]).
//! 3. [`stream::Stream`]: `handle_ulpdu` turns an ULPDU into an [`stream::Inbound`] event or a
//!    [`rdmap::Violation`] (the Terminate to send); `begin_*` and `poll_segment` turn an operation
//!    into DDP segments.
//! 4. The caller checks memory: what its STag table refuses goes to `refuse_*`, which returns the
//!    Terminate.
//!
//! [`ddp`] and [`rdmap`] are the codecs that step 3 is made of.
//!
//! ```
//! use stag_protocol::iwarp::fpdu::{self, Crc32c, Framer, Part};
//! use stag_protocol::iwarp::mpa::{self, Config, Frame, Initiator, Kind, Outcome, Request};
//! use stag_protocol::iwarp::stream::{Inbound, Stream};
//! # struct Digest; // stands for a real CRC32c
//! # impl Crc32c for Digest {
//! #     fn start() -> Self { Digest }
//! #     fn update(&mut self, _: &[u8]) {}
//! #     fn finish(self) -> u32 { 0 }
//! # }
//!
//! // Set-up: each variable is what one side sends.
//! let initiator = Initiator::new(Config::default());
//! let request = initiator.request(b"private data");
//! let asked = Request::parse(&request).unwrap().expect("a whole frame");
//! let (reply, agreed) = asked.accept(&Config::default(), b"more of it");
//! let Ok(mpa::Parsed::Frame(frame, _)) = Frame::parse(&reply, Kind::Reply) else { panic!() };
//! let Ok(Outcome::Accepted(negotiated, _)) = initiator.handle_reply(&frame) else { panic!() };
//!
//! // The connecting side owes its indication first, then sends "hello" in one FPDU.
//! let (mut stream, mut framer) = (Stream::<16, 16>::new(&negotiated), Framer::new(&negotiated));
//! let mulpdu = negotiated.mulpdu(negotiated.fpdu_size(), 1448);
//! let (mut wire, payload) = (Vec::new(), b"hello");
//! for mut message in [stream.begin_rtr(0).unwrap(), stream.begin_send(5, None, false).unwrap()] {
//!     while let Some(segment) = stream.poll_segment(&mut message, mulpdu) {
//!         let payload = &payload[segment.offset as usize..][..segment.len as usize];
//!         let framed = framer.frame::<Digest, _>(&segment.header, [payload]);
//!         for part in framed.parts() {
//!             match part {
//!                 Part::Marker(marker) => wire.extend_from_slice(&marker),
//!                 Part::Header(range) => wire.extend_from_slice(&segment.header[range]),
//!                 Part::Payload(range) => wire.extend_from_slice(&payload[range]),
//!                 Part::Trailer(range) => wire.extend_from_slice(&framed.trailer[range]),
//!             }
//!         }
//!     }
//! }
//!
//! // The listening side takes FPDUs off the front of what it has read.
//! let mut stream = Stream::<16, 16>::new(&agreed);
//! let mut delivered = Vec::new();
//! let next = |wire: &[u8]| fpdu::parse::<Digest>(wire, agreed.crc);
//! while let Ok(fpdu::Parsed::Fpdu { ulpdu, consumed }) = next(&wire) {
//!     match stream.handle_ulpdu(&wire[ulpdu]).expect("a peer that keeps the rules") {
//!         Inbound::Write(segment) => assert!(segment.payload.is_empty(), "the indication"),
//!         Inbound::Send(segment) => delivered.extend_from_slice(segment.payload),
//!         other => panic!("{other:?}"),
//!     }
//!     wire.drain(..consumed);
//! }
//! assert_eq!(delivered, b"hello");
//! assert!(stream.may_send());
//! ```

pub mod ddp;
pub mod fpdu;
pub mod mpa;
pub mod octets;
pub mod rdmap;
mod ring;
pub mod stream;
