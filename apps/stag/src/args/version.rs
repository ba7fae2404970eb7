//! The text of `stag --version`, which reports of a fault carry too.

/// The features of the build, as a literal for `concat!`.
#[cfg(feature = "verbs")]
macro_rules! features {
    () => {
        "verbs"
    };
}
#[cfg(not(feature = "verbs"))]
macro_rules! features {
    () => {
        "none"
    };
}

/// The commit of the build.
pub const COMMIT: &str = env!("STAG_COMMIT");

/// The text of `--version`: also the commit, the features and the target of the build.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("STAG_COMMIT"),
    "; features: ",
    features!(),
    "; target: ",
    env!("STAG_TARGET"),
    ")"
);
