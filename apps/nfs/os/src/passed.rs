//! Descriptors passed to this process by a service manager (sd_listen_fds(3)): `LISTEN_PID` names
//! the process, `LISTEN_FDS` the number of descriptors from 3 on, and `LISTEN_FDNAMES` their names.

use std::{
    env, fmt,
    os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
    process,
    sync::atomic::{AtomicBool, Ordering},
};

/// The first passed descriptor.
const FIRST: RawFd = 3;
/// Maximum number of passed descriptors.
pub const PASSED_MAX: RawFd = 64;
/// The name of an unnamed descriptor, as in systemd's own library.
const UNNAMED: &str = "unknown";

/// A passed descriptor.
#[derive(Debug)]
pub struct PassedDescriptor {
    /// Its number, for messages.
    pub number: RawFd,
    /// Its name: that of the unit, or of `FileDescriptorName=`.
    pub name: String,
    /// The descriptor.
    pub descriptor: OwnedFd,
}

/// Reason why passed descriptors cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassedFault {
    /// `LISTEN_FDS` has this text.
    NoNumber(String),
    /// `LISTEN_FDS` has this number.
    TooMany(u64),
    /// This descriptor is not open.
    NotOpen(RawFd),
}

impl fmt::Display for PassedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber(text) => write!(f, "LISTEN_FDS={text} is no number of sockets"),
            Self::TooMany(count) => {
                write!(f, "LISTEN_FDS={count}: at most {PASSED_MAX} sockets are taken")
            }
            Self::NotOpen(number) => {
                write!(f, "LISTEN_FDS counts descriptor {number}, which is not open")
            }
        }
    }
}

impl std::error::Error for PassedFault {}

/// Takes the descriptors that were passed to this process; later calls return none. To be called
/// before the program opens any of its own. No program that it starts inherits them.
///
/// # Errors
/// When the environment names descriptors that cannot exist.
pub fn take() -> Result<Vec<PassedDescriptor>, PassedFault> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    let text = |name| env::var_os(name).map(|text| text.to_string_lossy().into_owned());
    let own = process::id().to_string();
    if text("LISTEN_PID") != Some(own) || IS_TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let count = count(&text("LISTEN_FDS").unwrap_or_default())?;
    let names = text("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':').filter(|name| !name.is_empty());
    let named = |number| {
        let name = names.next().unwrap_or(UNNAMED).to_owned();
        Ok(PassedDescriptor { number, name, descriptor: adopt(number)? })
    };
    (FIRST..FIRST + count).map(named).collect()
}

fn count(text: &str) -> Result<RawFd, PassedFault> {
    let count: u64 = text.parse().map_err(|_| PassedFault::NoNumber(text.to_owned()))?;
    let fitting = RawFd::try_from(count).ok().filter(|count| *count <= PASSED_MAX);
    fitting.ok_or(PassedFault::TooMany(count))
}

/// Takes a descriptor that the environment assigns to this process.
fn adopt(number: RawFd) -> Result<OwnedFd, PassedFault> {
    // SAFETY: the descriptor is borrowed for one system call, which fails if it is not open.
    let passed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(passed, rustix::io::FdFlags::CLOEXEC)
        .map_err(|_| PassedFault::NotOpen(number))?;
    // SAFETY: it is open. LISTEN_PID gives it to this process, whose parts open descriptors after
    // `take`, which takes each once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_sockets_is_a_small_number() {
        assert_eq!(count("0"), Ok(0));
        assert_eq!(count("64"), Ok(64));
        assert_eq!(count("65"), Err(PassedFault::TooMany(65)));
        assert_eq!(count("99999999999"), Err(PassedFault::TooMany(99_999_999_999)));
        for text in ["", "-1", "x", "1 "] {
            assert_eq!(count(text), Err(PassedFault::NoNumber(text.to_owned())));
        }
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_not_taken() {
        assert_eq!(adopt(1_000_000).unwrap_err(), PassedFault::NotOpen(1_000_000));
    }

    #[test]
    fn what_was_passed_to_another_process_is_not_taken() {
        // The environment of the tests names no process, or another one.
        assert!(take().unwrap().is_empty());
    }
}
