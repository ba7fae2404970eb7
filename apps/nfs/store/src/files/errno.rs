//! Mapping of system errors to NFS status (RFC 1813 §2.6).

use rustix::io::Errno;
use stag_protocol::nfs::v3::Status;

use crate::exports::faults::{self, FaultPlace};

/// The status for `errno`. Notes the error if the file system is to blame.
pub(crate) fn status(errno: Errno) -> Status {
    noted(errno, FaultPlace::Export)
}

fn noted(errno: Errno, at: FaultPlace) -> Status {
    let status = meaning(errno);
    faults::note(errno, status, at);
    status
}

const fn meaning(errno: Errno) -> Status {
    // RFC 1813 §2.5 [1813-3]: an error of the file system becomes its NFS status
    match errno {
        Errno::PERM => Status::Perm,
        Errno::NOENT => Status::NoEnt,
        Errno::NXIO => Status::NxIo,
        Errno::ACCESS => Status::Acces,
        Errno::EXIST => Status::Exist,
        Errno::XDEV => Status::XDev,
        Errno::NODEV => Status::NoDev,
        Errno::NOTDIR => Status::NotDir,
        // RFC 1813 §3.3.12 [1813-68]: a REMOVE of a directory gets NFS3ERR_ISDIR
        Errno::ISDIR => Status::IsDir,
        // A symbolic link where none is allowed: the name was replaced meanwhile.
        Errno::INVAL | Errno::LOOP => Status::Inval,
        Errno::FBIG | Errno::OVERFLOW => Status::FBig,
        Errno::NOSPC => Status::NoSpc,
        Errno::ROFS => Status::RoFs,
        Errno::MLINK => Status::MLink,
        Errno::NAMETOOLONG => Status::NameTooLong,
        // RFC 1813 §3.3.13 [1813-70]: a RMDIR of a directory with entries gets NFS3ERR_NOTEMPTY
        Errno::NOTEMPTY => Status::NotEmpty,
        Errno::DQUOT => Status::DQuot,
        Errno::STALE => Status::Stale,
        Errno::OPNOTSUPP | Errno::NOSYS => Status::NotSupp,
        // A mount point, or a running program: an early retry would not help.
        Errno::BUSY | Errno::TXTBSY => Status::Acces,
        // A later retry may help.
        Errno::MFILE
        | Errno::NFILE
        | Errno::NOMEM
        | Errno::AGAIN
        | Errno::INTR
        | Errno::TIMEDOUT => Status::Jukebox,
        _ => Status::Io,
    }
}

/// The status for an error of the index, which uses `std::io`.
pub(super) fn status_of_io(error: &std::io::Error) -> Status {
    match (Errno::from_io_error(error), error.kind()) {
        (Some(errno), _) => noted(errno, FaultPlace::State),
        (None, std::io::ErrorKind::StorageFull) => Status::NoSpc,
        (None, _) => Status::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_keeps_its_meaning() {
        for (errno, expected) in [
            (Errno::NOSPC, Status::NoSpc),
            (Errno::DQUOT, Status::DQuot),
            (Errno::ROFS, Status::RoFs),
            (Errno::ACCESS, Status::Acces),
            (Errno::PERM, Status::Perm),
            (Errno::NAMETOOLONG, Status::NameTooLong),
            (Errno::NOTDIR, Status::NotDir),
            (Errno::ISDIR, Status::IsDir),
            (Errno::NOTEMPTY, Status::NotEmpty),
            (Errno::XDEV, Status::XDev),
            (Errno::MLINK, Status::MLink),
            (Errno::FBIG, Status::FBig),
            (Errno::IO, Status::Io),
            (Errno::STALE, Status::Stale),
            (Errno::NOENT, Status::NoEnt),
            (Errno::EXIST, Status::Exist),
            (Errno::MFILE, Status::Jukebox),
            (Errno::BADF, Status::Io),
        ] {
            assert_eq!(status(errno), expected, "{errno}");
        }
    }

    #[test]
    fn no_error_reads_as_success() {
        for number in 1..=133 {
            assert_ne!(status(Errno::from_raw_os_error(number)), Status::Ok);
        }
    }

    #[test]
    fn an_error_of_the_index_keeps_its_meaning() {
        assert_eq!(status_of_io(&Errno::DQUOT.into()), Status::DQuot);
        assert_eq!(status_of_io(&std::io::ErrorKind::StorageFull.into()), Status::NoSpc);
        assert_eq!(status_of_io(&std::io::ErrorKind::Other.into()), Status::Io);
    }
}
