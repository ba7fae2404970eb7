//! Comparisons of Stag with its alternatives, side by side.
//!
//! | module | what it does |
//! |---|---|
//! | [`goals`] | the table of goals and their contenders |
//! | [`contender`] | contenders, and the readings of a measurement |
//! | [`mod@stag`] | ours, as a user runs it |
//! | [`ours`] | ours, where no command shows what a goal is about |
//! | [`minimal`] | a server made for nothing but speed |
//! | [`floor`] | floors of this host |
//! | [`rivals`] | the alternatives to Stag |
//! | [`goal`], [`statistics`], [`strangers`] | rounds, ratios, which of them count |
//! | [`cores`] | how far apart the cores were in a round |
//! | [`results`], [`host`] | files and tables |
//! | [`way`] | the fabrics between two ends of ours, as URLs |
//! | [`site`] | cores, directories, programs |
//! | [`files_place`], [`mounts`] | file systems of the files that are served |
//! | [`ceph`] | the cluster of comparisons on CephFS |
//! | [`processor`] | time that a server's threads had a core |
//! | [`cli`] | the command line |
#![forbid(unsafe_code)]

pub mod ceph;
pub mod cli;
pub mod contender;
pub mod cores;
pub mod files_place;
pub mod floor;
pub mod goal;
pub mod goals;
pub mod host;
pub mod minimal;
pub mod mounts;
pub mod ours;
pub mod processor;
pub mod results;
pub mod rivals;
pub mod site;
pub mod stag;
pub mod statistics;
pub mod strangers;
pub mod way;
