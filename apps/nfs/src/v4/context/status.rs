//! Statuses of the store in version 4 (RFC 8881 §15.1).

use stag_protocol::nfs::{v3::Status, v4::Status4};

/// The version 4 status for a status of the store.
pub(in crate::v4) const fn of_store(status: Status) -> Status4 {
    match status {
        Status::Ok => Status4::Ok,
        Status::Perm => Status4::Perm,
        Status::NoEnt => Status4::NoEnt,
        Status::Io => Status4::Io,
        Status::NxIo | Status::NoDev => Status4::NxIo,
        Status::Acces => Status4::Access,
        Status::Exist => Status4::Exist,
        Status::XDev => Status4::XDev,
        Status::NotDir => Status4::NotDir,
        Status::IsDir => Status4::IsDir,
        Status::Inval => Status4::Inval,
        Status::FBig => Status4::FBig,
        Status::NoSpc => Status4::NoSpc,
        Status::RoFs => Status4::RoFs,
        Status::MLink => Status4::MLink,
        Status::NameTooLong => Status4::NameTooLong,
        Status::NotEmpty => Status4::NotEmpty,
        Status::DQuot => Status4::DQuot,
        Status::Stale => Status4::Stale,
        Status::BadHandle => Status4::BadHandle,
        Status::BadCookie => Status4::BadCookie,
        Status::NotSupp => Status4::NotSupp,
        Status::TooSmall => Status4::TooSmall,
        Status::BadType => Status4::BadType,
        Status::Jukebox => Status4::Delay,
        // Version 4 has no guard of SETATTR, and this server has no server behind it.
        Status::ServerFault | Status::Remote | Status::NotSync => Status4::ServerFault,
    }
}

/// Checks the name of an object (RFC 8881 §14.5, §15.1.7).
///
/// # Errors
/// NFS4ERR_INVAL for an empty one, NFS4ERR_BADNAME for `.` and `..`, NFS4ERR_BADCHAR for one with a
/// slash or a zero octet, NFS4ERR_NAMETOOLONG above 255 octets.
pub(in crate::v4) fn check_name(name: &[u8]) -> Result<(), Status4> {
    match name {
        [] => Err(Status4::Inval),
        b"." | b".." => Err(Status4::BadName),
        _ if name.len() > 255 => Err(Status4::NameTooLong),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Status4::BadChar),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::xdr::{Codec, Reader};

    #[test]
    fn a_status_that_both_versions_have_keeps_its_number() {
        let parse = |value: u32| Status::parse(&mut Reader::new(&value.to_be_bytes())).ok();
        for status in (0..20_000).filter_map(parse) {
            let expected = match status {
                Status::NoDev => Status4::NxIo as u32,
                Status::Remote | Status::NotSync => Status4::ServerFault as u32,
                other => other as u32,
            };
            assert_eq!(of_store(status) as u32, expected, "{status:?}");
        }
    }

    #[test]
    fn names_that_no_object_can_have_are_refused() {
        for (name, expected) in [
            (&b""[..], Status4::Inval),
            (b".", Status4::BadName),
            (b"..", Status4::BadName),
            (b"a/b", Status4::BadChar),
            (b"a\0", Status4::BadChar),
            (&[b'x'; 256], Status4::NameTooLong),
        ] {
            assert_eq!(check_name(name), Err(expected));
        }
        assert_eq!((check_name(&[b'x'; 255]), check_name(b"...")), (Ok(()), Ok(())));
    }
}
