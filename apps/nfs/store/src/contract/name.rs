//! Names in a directory (RFC 1813 §3.3, "General comments on filenames").

use stag_protocol::nfs::v3::Status;

/// Octets of the longest name.
pub(crate) const NAME_MAX: usize = 255;

/// A name of an entry in a directory: 1 to 255 bytes, no slash, no zero byte, not `.` or `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a>(&'a [u8]);

/// Meaning of a name that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning<'a> {
    /// An entry.
    Entry(Name<'a>),
    /// `.`: the directory itself.
    Itself,
    /// `..`: the parent directory.
    Above,
}

impl<'a> Meaning<'a> {
    /// Interprets `octets` as a name.
    ///
    /// # Errors
    ///
    /// Empty, or with a slash or a zero byte: [`Status::Acces`], as in the RFC and Linux. Longer
    /// than 255 bytes: [`Status::NameTooLong`].
    pub fn of(octets: &'a [u8]) -> Result<Self, Status> {
        match octets {
            // RFC 1813 §3.2 [1813-15]: an empty name gets NFS3ERR_ACCES
            [] => Err(Status::Acces),
            // RFC 1813 §3.2 [1813-16]: the name . is the directory itself
            b"." => Ok(Self::Itself),
            // RFC 1813 §3.2 [1813-17]: the name .. is the parent, or the root of the export
            b".." => Ok(Self::Above),
            // RFC 1813 §3.2 [1813-18]: a name above name_max gets NFS3ERR_NAMETOOLONG
            _ if octets.len() > NAME_MAX => Err(Status::NameTooLong),
            // RFC 1813 §3.2 [1813-19]: a name with a slash or a zero octet gets NFS3ERR_ACCES
            // RFC 4506 §8 [4506-23]: a name with a zero octet never reaches the system
            _ if octets.contains(&b'/') || octets.contains(&0) => Err(Status::Acces),
            _ => Ok(Self::Entry(Name(octets))),
        }
    }
}

impl<'a> Name<'a> {
    /// A name for changing an entry.
    ///
    /// # Errors
    ///
    /// As in [`Meaning::of`]; `itself` for `.`, `above` for `..`, where the RFC differs between
    /// procedures.
    pub fn of(octets: &'a [u8], itself: Status, above: Status) -> Result<Self, Status> {
        match Meaning::of(octets)? {
            Meaning::Entry(name) => Ok(name),
            Meaning::Itself => Err(itself),
            Meaning::Above => Err(above),
        }
    }

    /// Returns the name's bytes.
    pub fn octets(self) -> &'a [u8] {
        self.0
    }
}

/// A copy of a name that borrows nothing and allocates nothing.
#[derive(Clone, Copy)]
pub(crate) struct NameCopy {
    octets: [u8; NAME_MAX],
    len: u8,
}

impl NameCopy {
    /// Copies a name of at most [`NAME_MAX`] bytes; truncates a longer one, which then names
    /// nothing.
    pub fn of(octets: &[u8]) -> Self {
        let mut copy = Self { octets: [0; NAME_MAX], len: 0 };
        for (to, from) in copy.octets.iter_mut().zip(octets) {
            *to = *from;
        }
        copy.len = u8::try_from(octets.len().min(NAME_MAX)).expect("at most 255");
        copy
    }

    /// The name.
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..usize::from(self.len)).expect("`of` checked the length")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_component_is_an_entry() {
        assert_eq!(Meaning::of(b""), Err(Status::Acces));
        assert_eq!(Meaning::of(b"."), Ok(Meaning::Itself));
        assert_eq!(Meaning::of(b".."), Ok(Meaning::Above));
        assert_eq!(Meaning::of(b"..."), Ok(Meaning::Entry(Name(b"..."))));
        assert_eq!(Meaning::of(&[b'x'; 255]), Ok(Meaning::Entry(Name(&[b'x'; 255]))));
        assert_eq!(Meaning::of(&[b'x'; 256]), Err(Status::NameTooLong));
    }

    #[test]
    fn a_slash_or_a_zero_octet_anywhere_is_refused_and_every_other_octet_is_taken() {
        for octet in 0..=u8::MAX {
            for at in 0..3 {
                let mut name = *b"abc";
                name[at] = octet;
                let refused = Meaning::of(&name) == Err(Status::Acces);
                assert_eq!(refused, octet == 0 || octet == b'/', "octet {octet} at {at}");
            }
        }
    }
}
