//! Tests of the smallest app in one program, because each is linked with everything it tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod both;
mod forms;
mod recall;
mod sim;
mod tcp;
mod tcp_both;
mod tcp_hot;
mod tcp_replies;
