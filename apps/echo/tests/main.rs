//! The smallest app's tests in one program, because each program is linked with everything it tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod both;
mod recall;
mod sim;
mod tcp;
mod tcp_both;
mod tcp_hot;
mod tcp_replies;
