//! Results of runs: what they contain, and the forms in which they are written.
//!
//! Comparisons, joined runs and the run itself import this folder, and it imports none of them.

pub mod export;
pub mod html;
pub mod model;
