//! Reports of a server about itself: texts of its start, facts for monitoring, and systemd.

pub mod addresses;
pub mod sentences;
pub mod startup_text;
pub mod systemd;
pub mod watching;
